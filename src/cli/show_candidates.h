/* Layouts that `lockstep show` sets beside a run's own: --compare and --html.
 *
 *   int count;
 *   const ls_candidate *all = ls_candidates_make(arena, devices, &count);
 *   ... ls_candidate_open(arena, path, words, devices, &all[c], &session, &refusal) ...
 *
 * Called by the main thread. */
#ifndef LS_CLI_SHOW_CANDIDATES_H
#define LS_CLI_SHOW_CANDIDATES_H

#include "cli/command.h"
#include "session/session.h"

typedef struct ls_candidate {
  const char *name; /* "ZeRO-3" */
  int pp, dp_replicate, dp_shard, tp, zero;
  bool sequence_parallel;
  bool drawn; /* on the page of --html too, which has no room for all */
} ls_candidate;

/* Each strategy with all devices on its axis. In the arena. */
const ls_candidate *ls_candidates_make(ls_arena *arena, int devices, int *count);

/* The run as it is. Errors: as ls_session_create has. */
LS_CHECKED ls_status ls_candidate_open_own(ls_arena *arena, const char *run_path,
                                           const ls_words *words, int devices, ls_session **session,
                                           ls_error *error);

/* The same run under a candidate's layout: its keys come last and so win. Microbatches of the run
 * that do not fit that layout are chosen anew. LS_INPUT, LS_NO: it cannot be, with the reason. */
LS_CHECKED ls_status ls_candidate_open(ls_arena *arena, const char *run_path, const ls_words *words,
                                       int devices, const ls_candidate *as, ls_session **session,
                                       ls_error *error);

#endif
