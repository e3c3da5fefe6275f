#include "cli/train_trace.h"

#include "cli/show_timeline.h"

static ls_status find_chunks(const ls_session *session, ls_timeline_run *run, ls_error *error) {
  ls_sharded *sharded;
  ls_chunks *chunks;
  LS_TRY(ls_session_cut(session, &sharded, &chunks, error));
  run->chunk_of = chunks->chunk_of;
  run->chunks = chunks->pipeline->chunks;
  return LS_OK;
}

static ls_status write_both(ls_arena *arena, const ls_session *session, const ls_timeline_run *run,
                            const ls_recording *recording, ls_error *error) {
  const char *out = session->run->out;
  LS_TRY(ls_timeline_write(ls_timeline_measured(arena, run, recording, LS_TIMELINE_INSTRUCTIONS),
                           ls_arena_printf(arena, "%s/trace.json", out), error));
  return ls_timeline_write(ls_timeline_measured(arena, run, recording, LS_TIMELINE_ACTIONS),
                           ls_arena_printf(arena, "%s/timeline.svg", out), error);
}

ls_status ls_train_trace_write(const ls_session *session, const ls_recording *recording,
                               ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_timeline_run run = {.stages = session->stages[LS_SESSION_STEP],
                         .graph = session->graph,
                         .title = ls_arena_printf(arena, "%s: %s", session->run->model,
                                                  ls_layout_print(arena, &session->layout))};
  ls_status status = find_chunks(session, &run, error);
  if (status == LS_OK) status = write_both(arena, session, &run, recording, error);
  ls_arena_destroy(&arena);
  return status;
}
