#include "cli/show_candidates.h"

#include <string.h>

enum { KEYS = 9, AGAIN = 2 };

const ls_candidate *ls_candidates_make(ls_arena *arena, int devices, int *count) {
  const ls_candidate table[] = {
      {"DDP", 1, devices, 1, 1, 0, false, true},     {"ZeRO-1", 1, 1, devices, 1, 1, false, false},
      {"ZeRO-2", 1, 1, devices, 1, 2, false, false}, {"ZeRO-3", 1, 1, devices, 1, 3, false, true},
      {"TP", 1, 1, 1, devices, 0, false, true},      {"TP+SP", 1, 1, 1, devices, 0, true, false},
      {"PP", devices, 1, 1, 1, 0, false, true},
  };
  *count = sizeof table / sizeof *table;
  ls_candidate *made = LS_NEW_ARRAY(arena, ls_candidate, *count);
  memcpy(made, table, sizeof table);
  return made;
}

/* All that a layout is made of: what the run's own file says of the mesh is no part of another. Its
 * schedule is kept for stages alone: one from a file fits no other count of them. Returns how many
 * keys there are. */
static int write_keys(ls_arena *arena, const ls_candidate *as, const char *keys[KEYS]) {
  keys[0] = ls_arena_printf(arena, "mesh.pp=%d", as->pp);
  keys[1] = ls_arena_printf(arena, "mesh.dp_replicate=%d", as->dp_replicate);
  keys[2] = ls_arena_printf(arena, "mesh.dp_shard=%d", as->dp_shard);
  keys[3] = ls_arena_printf(arena, "mesh.tp=%d", as->tp);
  keys[4] = ls_arena_printf(arena, "zero=%d", as->zero);
  keys[5] = as->sequence_parallel ? "sequence_parallel=true" : "sequence_parallel=false";
  keys[6] = "stages=auto";
  if (as->pp > 1) return 7;
  keys[7] = "schedule=1f1b";
  keys[8] = "chunks=auto";
  return KEYS;
}

static ls_status open_session(ls_arena *arena, const char *run_path, const char *const *keys,
                              int key_count, int devices, ls_session **session, ls_error *error) {
  ls_run_file *run;
  LS_TRY(ls_run_file_read(arena, run_path, keys, key_count, &run, error));
  return ls_session_create(arena, run, devices, devices, session, error);
}

ls_status ls_candidate_open_own(ls_arena *arena, const char *run_path, const ls_words *words,
                                int devices, ls_session **session, ls_error *error) {
  return open_session(arena, run_path, words->keys, words->key_count, devices, session, error);
}

ls_status ls_candidate_open(ls_arena *arena, const char *run_path, const ls_words *words,
                            int devices, const ls_candidate *as, ls_session **session,
                            ls_error *error) {
  int count = words->key_count;
  const char **keys = LS_NEW_ARRAY(arena, const char *, count + KEYS + AGAIN);
  memcpy(keys, words->keys, sizeof *keys * (size_t)count);
  count += write_keys(arena, as, &keys[count]);
  keys[count] = "train.microbatches=auto";
  keys[count + 1] = "train.micro_batch=auto";
  const ls_status first = open_session(arena, run_path, keys, count, devices, session, error);
  if (first == LS_OK) return LS_OK;
  ls_error second = {0}; /* not told: the first refusal is of what the user gave */
  if (open_session(arena, run_path, keys, count + AGAIN, devices, session, &second) == LS_OK) {
    *error = (ls_error){0};
    return LS_OK;
  }
  return first;
}
