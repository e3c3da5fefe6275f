#include <string.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_folder.h"
#include "session/agree.h"
#include "session/load_parameters.h"
#include "session/saved_tensors.h"
#include "store/safetensors.h"

static ls_status check_model(const ls_session *session, const char *folder, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_model_config stored;
  ls_status status = ls_model_config_read(arena, folder, &stored, error);
  if (status == LS_OK) {
    status = ls_model_config_compare(&stored, &session->config, error);
    if (status != LS_OK)
      ls_error_prefix(error, "%s/config.json: the checkpoint is of another model than %s", folder,
                      session->config.source);
  }
  ls_arena_destroy(&arena);
  return status;
}

static ls_status check_shape(const ls_stored_tensor *tensor, const ls_stored_layout *about,
                             ls_error *error) {
  bool same = tensor->ndim == about->ndim;
  for (int d = 0; same && d < about->ndim; d++) same = tensor->dims[d] == about->dims[d];
  if (same) return LS_OK;
  return ls_fail(
      error, LS_INPUT, "%s: %s: found %lld elements in %d dimensions; expected [%lld%s%.0lld]",
      tensor->file, tensor->name, (long long)tensor->count, tensor->ndim, (long long)about->dims[0],
      about->ndim > 1 ? ", " : "", about->ndim > 1 ? (long long)about->dims[1] : 0LL);
}

/* Where each moment lies; every tensor must be one. */
static ls_status find_moments(const ls_program *program, const char *folder,
                              const ls_safetensors *stored, ls_arena *arena, ls_load_item **items,
                              int *count, ls_error *error) {
  const ls_saved_tensors all = ls_saved_moments(arena, program);
  *count = all.count;
  *items = LS_NEW_ARRAY(arena, ls_load_item, all.count);
  for (int i = 0; i < all.count; i++) {
    const ls_stored_layout *layout = &all.items[i];
    const ls_stored_tensor *tensor = ls_safetensors_find(stored, layout->name);
    if (!tensor)
      return ls_fail(error, LS_INPUT, "%s: the optimizer's tensor %s is missing", folder,
                     layout->name);
    LS_TRY(check_shape(tensor, layout, error));
    (*items)[i] = (ls_load_item){.from = {layout, layout->pieces.items, tensor},
                                 .parameter = layout->pieces.items->parameter,
                                 .part = layout->part};
  }
  const int there = ls_safetensors_count(stored);
  if (*count == there) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: the optimizer has %d tensors; this model and optimizer have %d: take those "
                 "the checkpoint was made with, and the same train.freeze",
                 folder, there, *count);
}

static ls_status load_moments(ls_rank *rank, const char *folder, int64_t *bytes, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, LS_SESSION_STEP);
  ls_arena *arena = ls_arena_create();
  ls_safetensors *stored = NULL;
  ls_load_item *items;
  int count;
  ls_status status = ls_safetensors_open(folder, "optimizer", &stored, error);
  if (status == LS_OK) status = find_moments(program, folder, stored, arena, &items, &count, error);
  if (status == LS_OK) status = ls_load_parameters(rank, program, items, count, error);
  if (stored) *bytes += ls_safetensors_bytes_read(stored);
  ls_safetensors_close(&stored);
  ls_arena_destroy(&arena);
  return status;
}

ls_status ls_checkpoint_load(const ls_session *session, ls_rank *rank, const char *folder,
                             ls_checkpoint_state *state, ls_error *error) {
  LS_TRY(ls_checkpoint_state_read(folder, state, error));
  LS_TRY(check_model(session, folder, error));
  LS_TRY(ls_session_load_weights(session, rank, folder, &state->bytes_read, error));
  return load_moments(rank, folder, &state->bytes_read, error);
}

/* Every rank takes a part of each file, and all learn of every part. */
ls_status ls_checkpoint_verify_together(ls_rank *rank, const char *folder, ls_sealed_part which,
                                        ls_error *error) {
  ls_group *all = ls_rank_world_group(rank);
  const int ranks = ls_group_size(all);
  ls_arena *arena = ls_arena_create();
  ls_checksum *own = NULL;
  int files = 0;
  ls_status status =
      ls_checkpoint_sum(arena, folder, which, ls_rank_number(rank), ranks, &own, &files, error);
  status = ls_agree(rank, status, error);
  if (status == LS_OK) {
    const int64_t numbers = 2 * files;
    int64_t *sent = LS_NEW_ARRAY(arena, int64_t, numbers);
    int64_t *every = LS_NEW_ARRAY(arena, int64_t, numbers * ranks);
    memcpy(sent, own, (size_t)files * sizeof *own);
    status = ls_all_gather(all, every, sent, numbers * ranks, LS_I64, error);
    ls_checksum *sums = LS_NEW_ARRAY(arena, ls_checksum, files);
    for (int64_t i = 0; i < (int64_t)files * ranks && status == LS_OK; i++)
      ls_checksum_join(&sums[i % files],
                       &(ls_checksum){(uint64_t)every[2 * i], (uint64_t)every[2 * i + 1]});
    if (status == LS_OK)
      status = ls_checkpoint_compare(folder, which, sums, files, ls_rank_number(rank) == 0, error);
    /* Every rank compared the same numbers, with what it read itself. */
    status = ls_agree(rank, status, error);
  }
  ls_arena_destroy(&arena);
  return status;
}
