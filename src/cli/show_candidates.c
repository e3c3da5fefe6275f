#include "cli/show_candidates.h"

#include <string.h>

const ls_candidate *ls_candidates_make(ls_arena *arena, int devices, int *count) {
  const ls_candidate table[] = {
      {"DDP", {.dp_replicate = devices}, 0, false, true},
      {"ZeRO-1", {.dp_shard = devices}, 1, false, false},
      {"ZeRO-2", {.dp_shard = devices}, 2, false, false},
      {"ZeRO-3", {.dp_shard = devices}, 3, false, true},
      {"TP", {.tp = devices}, 0, false, true},
      {"TP+SP", {.tp = devices}, 0, true, false},
      {"PP", {.pp = devices}, 0, false, true},
  };
  *count = sizeof table / sizeof *table;
  ls_candidate *made = LS_NEW_ARRAY(arena, ls_candidate, *count);
  memcpy(made, table, sizeof table);
  return made;
}

/* All that a layout is made of: what the run itself says of the mesh is no part of another. Its
 * schedule is kept for stages alone: one from a file fits no other count of them. */
static void lay(ls_run_file *run, const ls_candidate *as) {
  static const char *const automatic[] = {"auto"};
  run->mesh.pp = as->mesh.pp > 1 ? as->mesh.pp : 1;
  run->mesh.dp_replicate = as->mesh.dp_replicate > 1 ? as->mesh.dp_replicate : 1;
  run->mesh.dp_shard = as->mesh.dp_shard > 1 ? as->mesh.dp_shard : 1;
  run->mesh.cp = run->mesh.ep = 1;
  run->experts.tensor_parallel = true;
  run->mesh.tp = as->mesh.tp > 1 ? as->mesh.tp : 1;
  run->zero = as->zero;
  run->sequence_parallel = as->sequence_parallel;
  run->stages = (ls_run_globs){automatic, 1};
  if (run->mesh.pp > 1) return;
  run->schedule = "1f1b";
  run->chunks = 0;
}

ls_status ls_candidate_open(ls_arena *arena, const ls_run_file *run, int devices,
                            const ls_candidate *as, ls_session **session, ls_error *error) {
  ls_run_file *own = ls_run_file_copy(arena, run);
  if (as) lay(own, as);
  const ls_status first = ls_session_create(arena, own, devices, devices, session, error);
  if (first == LS_OK || !as) return first;
  ls_error second = {0}; /* not told: the first refusal is of what the user gave */
  own = ls_run_file_copy(arena, run);
  lay(own, as);
  own->train.microbatches = own->train.micro_batch = 0;
  if (ls_session_create(arena, own, devices, devices, session, &second) != LS_OK) return first;
  *error = (ls_error){0};
  return LS_OK;
}
