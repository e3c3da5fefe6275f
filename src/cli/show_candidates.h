/* Layouts that `lockstep show` sets beside a run's own: --compare and --html.
 *
 *   int count;
 *   const ls_candidate *all = ls_candidates_make(arena, devices, &count);
 *   ... ls_candidate_open(arena, run, devices, &all[c], &session, &refusal) ...
 *
 * Called by the main thread. */
#ifndef LS_CLI_SHOW_CANDIDATES_H
#define LS_CLI_SHOW_CANDIDATES_H

#include "session/session.h"

typedef struct ls_candidate {
  const char *name; /* "ZeRO-3" */
  ls_run_mesh mesh; /* axes that are not named are 1 */
  int zero;
  bool sequence_parallel;
  bool drawn; /* on the page of --html too, which has no room for all */
} ls_candidate;

/* Each strategy with all devices on its axis. In the arena. */
const ls_candidate *ls_candidates_make(ls_arena *arena, int devices, int *count);

/* The run under a candidate's layout, or as it is (NULL); microbatches of the run that do not fit
 * that layout are chosen anew. `run` is as it was read, and stays so. LS_INPUT, LS_REFUTED: it
 * cannot be, with the reason. */
LS_CHECKED ls_status ls_candidate_open(ls_arena *arena, const ls_run_file *run, int devices,
                                       const ls_candidate *as, ls_session **session,
                                       ls_error *error);

#endif
