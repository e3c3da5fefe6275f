#include <string.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_folder.h"
#include "session/load_parameters.h"
#include "session/rounds.h"
#include "session/saved_tensors.h"
#include "store/adapters.h"
#include "store/safetensors.h"

static ls_status check_model(const ls_session *session, const char *folder, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_model_config stored;
  ls_status status = ls_adapters_read(arena, folder, &stored, error);
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
    const bool codes = ls_state_row_of(layout->part)->type == LS_TYPE_CODE;
    if (codes != (tensor->dtype == LS_U8))
      return ls_fail(error, LS_INPUT, "%s: %s: found %s; expected %s", tensor->file, tensor->name,
                     ls_dtype_name(tensor->dtype), codes ? "uint8" : "floating-point numbers");
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

/* Sums of a checkpoint's files: of this rank's part of each, of those of all ranks, of the whole.
 */
typedef struct verifying {
  ls_rank *rank;
  ls_arena *arena;
  const char *folder;
  ls_sealed_part which;
  int ranks, files;
  ls_checksum *own, *every;
} verifying;

static ls_status sum_part(void *context, ls_round_message *message, ls_error *error) {
  (void)message;
  verifying *self = context;
  return ls_checkpoint_sum(self->arena, self->folder, self->which, ls_rank_number(self->rank),
                           self->ranks, &self->own, &self->files, error);
}

static ls_status gather_sums(void *context, ls_round_message *message, ls_error *error) {
  (void)error;
  verifying *self = context;
  self->every = LS_NEW_ARRAY(self->arena, ls_checksum, self->files * self->ranks);
  *message = (ls_round_message){.own = self->own, .every = self->every, .count = 2 * self->files};
  return LS_OK;
}

/* Every rank compares the same numbers, with what it read itself. */
static ls_status compare_sums(void *context, ls_round_message *message, ls_error *error) {
  (void)message;
  const verifying *self = context;
  ls_checksum *sums = LS_NEW_ARRAY(self->arena, ls_checksum, self->files);
  for (int i = 0; i < self->files * self->ranks; i++)
    ls_checksum_join(&sums[i % self->files], &self->every[i]);
  return ls_checkpoint_compare(self->folder, self->which, sums, self->files,
                               ls_rank_number(self->rank) == 0, error);
}

_Static_assert(sizeof(ls_checksum) == 2 * sizeof(int64_t), "a checksum goes as two numbers");

ls_status ls_checkpoint_verify_together(ls_rank *rank, const char *folder, ls_sealed_part which,
                                        ls_error *error) {
  static ls_round_work *const work[LS_VERIFY_ROUND_COUNT] = {[LS_VERIFY_SUM] = sum_part,
                                                             [LS_VERIFY_SUMS] = gather_sums,
                                                             [LS_VERIFY_COMPARE] = compare_sums};
  verifying self = {.rank = rank,
                    .arena = ls_arena_create(),
                    .folder = folder,
                    .which = which,
                    .ranks = ls_comm_size(ls_rank_comm(rank))};
  const ls_status status = ls_rounds_run(rank, &ls_verify_rounds, work, &self, error);
  ls_arena_destroy(&self.arena);
  return status;
}
