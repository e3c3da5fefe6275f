#include "session/prove.h"

#include "base/clock.h"
#include "session/rounds.h"
#include "session/saved_tensors.h"
#include "store/stored_box.h"

ls_status ls_prove_saving(const ls_model_config *config, const ls_graph *graph,
                          const ls_program *const *stages, int count, ls_saving_report *report,
                          ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_saved_tensors all;
  ls_status status = ls_saved_tensors_list(arena, config, graph, stages[0], &all, error);
  if (status == LS_OK)
    status = ls_check_saving(stages, count, &ls_state_ranges, all.items, all.all, ls_stored_stretch,
                             report, error);
  for (int l = 0; l < LS_ROUND_LISTS && status == LS_OK; l++) {
    status = ls_check_rounds(&ls_round_lists[l], 1, error);
    report->rounds += ls_round_lists[l]->count;
  }
  ls_arena_destroy(&arena);
  return status;
}

static ls_status fail_program(const char *name, ls_status status, const ls_error *found,
                              ls_error *error) {
  if (status == LS_OK) return LS_OK;
  return ls_fail(error, status, "the program of the %s is wrong: %s", name, found->text);
}

ls_status ls_session_prove(const ls_session *session, ls_session_proof *proof, ls_error *error) {
  static const char *const names[LS_SESSION_PROGRAMS] = {"step", "evaluation", "step made again",
                                                         "evaluation made again"};
  const double begin = ls_now_s();
  for (int p = 0; p < session->compiled.count; p++) {
    ls_error found = {0};
    const ls_graph *graph = ls_compiled_graph(&session->compiled, p);
    const ls_status status = ls_check_on(session->device.facts.queues, graph, &session->layout,
                                         session->stages[p], &proof->reports[p], &found);
    LS_TRY(fail_program(names[p], status, &found, error));
    /* Which engine is taken is known as ranks meet: the program holds for either. */
    const ls_queues *also = session->device.facts.also;
    ls_check_report other;
    if (also)
      LS_TRY(fail_program(
          names[p], ls_check_on(also, graph, &session->layout, session->stages[p], &other, &found),
          &found, error));
  }
  ls_error found = {0};
  ls_status status = LS_OK;
  for (int p = 1; p < session->compiled.count; p++) {
    status = ls_check_shared(session->stages[LS_SESSION_STEP], session->stages[p],
                             session->layout.pp, &found);
    if (status != LS_OK)
      return ls_fail(error, status, "step and %s do not fit: %s", names[p], found.text);
  }
  status = ls_prove_saving(&session->config, session->graph, session->stages[LS_SESSION_STEP],
                           session->layout.pp, &proof->saving, &found);
  if (status != LS_OK) return ls_fail(error, status, "saving or loading is wrong: %s", found.text);
  proof->seconds = ls_now_s() - begin;
  return LS_OK;
}
