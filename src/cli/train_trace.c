#include "cli/train_trace.h"

#include "cli/show_timeline.h"

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
  const char *title = ls_arena_printf(arena, "%s: %s", session->run->model,
                                      ls_layout_print(arena, &session->layout));
  const ls_timeline_run run = {.stages = session->stages[LS_SESSION_STEP], .title = title};
  const ls_status status = write_both(arena, session, &run, recording, error);
  ls_arena_destroy(&arena);
  return status;
}
