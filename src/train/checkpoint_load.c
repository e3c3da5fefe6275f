#include <math.h>
#include <string.h>

#include "store/safetensors.h"
#include "train/checkpoint.h"

enum { PIECE_ELEMENTS = 1 << 16 };

/* Numbers of the configuration that no tensor's shape tells. */
typedef struct hidden_number {
  const char *name;
  double in_checkpoint, in_run;
} hidden_number;

static ls_status compare_configs(const char *folder, const ls_model_config *stored,
                                 const ls_model_config *config, ls_error *error) {
  if (strcmp(stored->family, config->family) != 0)
    return ls_fail(error, LS_INPUT, "%s: a checkpoint of a %s model; this run's model is a %s",
                   folder, stored->family, config->family);
  const hidden_number numbers[] = {
      {"heads", (double)stored->heads, (double)config->heads},
      {"key/value heads", (double)stored->kv_heads, (double)config->kv_heads},
      {"layers", (double)stored->layers, (double)config->layers},
      {"activation", (double)stored->activation, (double)config->activation},
      {"epsilon of the norms", stored->epsilon, config->epsilon},
      {"scale of the attention scores", stored->softmax_scale, config->softmax_scale},
      {"rope_theta", stored->rope_theta, config->rope_theta},
      {"kind of rope_scaling", (double)stored->rope_scaling, (double)config->rope_scaling},
      {"factor of rope_scaling", stored->rope_factor, config->rope_factor},
      {"base of the rotations in layers with a window", stored->rope_local_theta,
       config->rope_local_theta},
      {"columns of a head that are turned", (double)stored->rotary_dim, (double)config->rotary_dim},
      {"window", (double)stored->window, (double)config->window},
      {"soft cap of the attention scores", stored->softcap, config->softcap},
      {"soft cap of the logits", stored->logit_cap, config->logit_cap},
      {"attention beside the MLP", stored->parallel, config->parallel},
  };
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    const hidden_number *number = &numbers[i];
    if (fabs(number->in_checkpoint - number->in_run) <= 1e-9 * fabs(number->in_run)) continue;
    return ls_fail(error, LS_INPUT,
                   "%s/config.json: %s: found %g; this run's model has %g: take the model the "
                   "checkpoint was made with",
                   folder, number->name, number->in_checkpoint, number->in_run);
  }
  return LS_OK;
}

static ls_status check_model(const ls_session *session, const char *folder, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_model_config stored;
  ls_status status = ls_model_config_read(arena, folder, &stored, error);
  if (status == LS_OK) status = compare_configs(folder, &stored, &session->config, error);
  ls_arena_destroy(&arena);
  return status;
}

static ls_status check_shape(const ls_stored_tensor *tensor, const ls_program_parameter *about,
                             ls_error *error) {
  bool same = tensor->ndim == about->ndim;
  for (int d = 0; same && d < about->ndim; d++) same = tensor->dims[d] == about->dims[d];
  if (same) return LS_OK;
  return ls_fail(
      error, LS_INPUT, "%s: %s: found %lld elements in %d dimensions; expected [%lld%s%.0lld]",
      tensor->file, tensor->name, (long long)tensor->count, tensor->ndim, (long long)about->dims[0],
      about->ndim > 1 ? ", " : "", about->ndim > 1 ? (long long)about->dims[1] : 0LL);
}

static ls_status load_moment(ls_rank *rank, const ls_program *program, int parameter,
                             ls_part_of_parameter part, const ls_stored_tensor *tensor,
                             double *piece, ls_error *error) {
  LS_TRY(check_shape(tensor, &program->parameters[parameter], error));
  for (int64_t first = 0; first < tensor->count; first += PIECE_ELEMENTS) {
    const int64_t left = tensor->count - first;
    const int64_t count = left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS;
    LS_TRY(ls_stored_tensor_read(tensor, first, count, LS_F64, piece, error));
    LS_TRY(ls_rank_write_parameter(rank, program, parameter, part, first, count, piece, LS_F64,
                                   error));
  }
  return LS_OK;
}

static ls_status load_moments(const ls_program *program, ls_rank *rank, const char *folder,
                              const ls_safetensors *stored, ls_arena *arena, ls_error *error) {
  double *piece = LS_NEW_ARRAY(arena, double, PIECE_ELEMENTS);
  const int moments = program->layout.optimizer.kind == LS_OPTIMIZER_ADAMW ? 2 : 1;
  int taken = 0;
  for (int p = 0; p < program->parameter_count; p++) {
    const ls_program_parameter *about = &program->parameters[p];
    for (int m = 0; m < moments; m++) {
      const char *name = ls_arena_printf(arena, "moment%d.%s", m + 1, about->name);
      const ls_stored_tensor *tensor = ls_safetensors_find(stored, name);
      if (!tensor)
        return ls_fail(error, LS_INPUT, "%s: the optimizer's tensor %s is missing", folder, name);
      const ls_part_of_parameter part = m == 0 ? LS_PART_MOMENT1 : LS_PART_MOMENT2;
      LS_TRY(load_moment(rank, program, p, part, tensor, piece, error));
      taken++;
    }
  }
  const int there = ls_safetensors_count(stored);
  if (taken == there) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: the optimizer has %d tensors; this model and optimizer have %d: take those "
                 "the checkpoint was made with",
                 folder, there, taken);
}

ls_status ls_checkpoint_load(const ls_session *session, ls_rank *rank, const char *folder,
                             ls_checkpoint_state *state, ls_error *error) {
  LS_TRY(ls_checkpoint_state_read(folder, state, error));
  LS_TRY(check_model(session, folder, error));
  LS_TRY(ls_session_load_weights(session, rank, folder, error));
  ls_arena *arena = ls_arena_create();
  ls_safetensors *stored = NULL;
  ls_status status = ls_safetensors_open(folder, "optimizer", &stored, error);
  if (status == LS_OK)
    status =
        load_moments(ls_rank_program(rank, LS_SESSION_STEP), rank, folder, stored, arena, error);
  ls_safetensors_close(&stored);
  ls_arena_destroy(&arena);
  return status;
}
