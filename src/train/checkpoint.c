#include "train/checkpoint.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "store/weights.h"
#include "train/checkpoint_folder.h"

enum {
  PIECE_ELEMENTS = 1 << 19, /* of a tensor at a time: 2 MiB in fp32 */
};

/* One file of a shard set, as Hugging Face cuts them. */
static const size_t max_shard_bytes = 5000000000u;

static const ls_part_of_parameter moment_parts[] = {LS_PART_MOMENT1, LS_PART_MOMENT2};
static const char *const moment_names[] = {"moment1", "moment2"};
enum { MOMENTS = 2 };

typedef struct saver {
  const ls_session *session;
  ls_rank *rank;
  const ls_program *program;
  const ls_checkpoint_extra *extra;
  ls_arena *arena;
  ls_dtype dtype; /* of all tensors of the checkpoint */
  bool writes;    /* rank 0 */
  const char *aside, *final;
  int64_t step;
  ls_weight_plan plan;
  ls_safetensors_writer *writer; /* rank 0: of the file that is being written */
  void *piece;                   /* PIECE_ELEMENTS of dtype */
  ls_error failure;              /* of rank 0: the first one */
} saver;

static bool able(const saver *self) {
  return self->writes && self->failure.status == LS_OK;
}

static int moments_of(const ls_layout *layout) {
  return layout->optimizer.kind == LS_OPTIMIZER_ADAMW ? 2 : 1;
}

static const char *moment_name(ls_arena *arena, const ls_program_parameter *parameter, int moment) {
  return ls_arena_printf(arena, "%s.%s", moment_names[moment], parameter->name);
}

/* Rank 0 tells whether it could write so far; what it could not is everybody's error. */
static ls_status agree(saver *self, ls_error *error) {
  int32_t message[(sizeof(ls_error) + sizeof(int32_t) - 1) / sizeof(int32_t)] = {0};
  if (self->writes) memcpy(message, &self->failure, sizeof self->failure);
  LS_TRY(ls_broadcast(ls_rank_world_group(self->rank), message,
                      (int64_t)(sizeof message / sizeof *message), LS_I32, 0, error));
  ls_error told;
  memcpy(&told, message, sizeof told);
  if (told.status == LS_OK) return LS_OK;
  return ls_fail(error, told.status, "%s", told.text);
}

static void append(saver *self, const void *data, int64_t elements) {
  if (!able(self)) return;
  self->failure.status = ls_safetensors_append(
      self->writer, data, (size_t)elements * ls_dtype_bytes(self->dtype), &self->failure);
}

/* Elements [begin, end) of a part of a parameter, in pieces. */
static ls_status stream_range(saver *self, int parameter, ls_part_of_parameter part, int64_t begin,
                              int64_t end, ls_error *error) {
  for (int64_t first = begin; first < end; first += PIECE_ELEMENTS) {
    const int64_t left = end - first;
    const int64_t count = left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS;
    LS_TRY(ls_rank_read_parameter(self->rank, self->program, parameter, part, first, count,
                                  self->piece, self->dtype, error));
    append(self, self->piece, count);
  }
  return LS_OK;
}

/* A whole part of a parameter, row after row. */
static ls_status stream(saver *self, int parameter, ls_part_of_parameter part, ls_error *error) {
  const int64_t elements = ls_program_parameter_elements(&self->program->parameters[parameter]);
  return stream_range(self, parameter, part, 0, elements, error);
}

/* A tensor that the file has as [in, out]: every row of it takes from every row of ours, so that
 * one such tensor is held whole (GPT-2's are not large). */
static ls_status stream_transposed(saver *self, const ls_stored_layout *layout, ls_arena *scratch,
                                   ls_error *error) {
  const size_t element = ls_dtype_bytes(self->dtype);
  const void **pieces = LS_NEW_ARRAY(scratch, const void *, layout->pieces.count);
  for (int i = 0; i < layout->pieces.count; i++) {
    const int p = layout->pieces.items[i].parameter;
    const int64_t elements = ls_program_parameter_elements(&self->program->parameters[p]);
    void *piece = ls_arena_alloc(scratch, (size_t)elements * element);
    LS_TRY(ls_rank_read_parameter(self->rank, self->program, p, LS_PART_MASTER, 0, elements, piece,
                                  self->dtype, error));
    pieces[i] = piece;
  }
  if (!able(self)) return LS_OK;
  const int64_t columns = layout->dims[1];
  const int64_t at_once = columns < PIECE_ELEMENTS ? PIECE_ELEMENTS / columns : 1;
  void *rows = ls_arena_alloc(scratch, (size_t)(at_once * columns) * element);
  for (int64_t row = 0; row < layout->dims[0]; row += at_once) {
    const int64_t left = layout->dims[0] - row, count = left < at_once ? left : at_once;
    ls_stored_layout_fill(layout, pieces, self->dtype, row, count, rows);
    append(self, rows, count * columns);
  }
  return LS_OK;
}

static ls_status save_tensor(saver *self, const ls_stored_layout *layout, ls_error *error) {
  if (layout->transposed) {
    ls_arena *scratch = ls_arena_create();
    const ls_status status = stream_transposed(self, layout, scratch, error);
    ls_arena_destroy(&scratch);
    return status;
  }
  /* Pieces lie side by side in as many blocks each: one, or one for each KV head. */
  const int64_t groups = layout->pieces.items[0].rows / layout->pieces.items[0].block;
  for (int64_t g = 0; g < groups; g++)
    for (int i = 0; i < layout->pieces.count; i++) {
      const ls_weight_piece *piece = &layout->pieces.items[i];
      const int64_t columns = layout->ndim == 2 ? layout->dims[1] : 1,
                    size = piece->block * columns;
      LS_TRY(stream_range(self, piece->parameter, LS_PART_MASTER, g * size, (g + 1) * size, error));
    }
  return LS_OK;
}

static ls_status save_weights(saver *self, ls_error *error) {
  for (int t = 0; t < self->plan.count; t++) {
    LS_TRY(save_tensor(self, &self->plan.tensors[t], error));
    LS_TRY(agree(self, error));
  }
  return LS_OK;
}

static ls_status save_moments(saver *self, ls_error *error) {
  for (int p = 0; p < self->program->parameter_count; p++) {
    for (int m = 0; m < moments_of(&self->program->layout); m++)
      LS_TRY(stream(self, p, moment_parts[m], error));
    LS_TRY(agree(self, error));
  }
  return LS_OK;
}

static ls_status write_text(saver *self, const char *name, const char *text, ls_error *error) {
  return ls_file_write(ls_arena_printf(self->arena, "%s/%s", self->aside, name), text, strlen(text),
                       error);
}

static ls_status open_weights(saver *self, ls_error *error) {
  ls_tensor_spec *specs = LS_NEW_ARRAY(self->arena, ls_tensor_spec, self->plan.count);
  for (int t = 0; t < self->plan.count; t++) {
    const ls_stored_layout *layout = &self->plan.tensors[t];
    specs[t] = (ls_tensor_spec){layout->name, self->dtype, layout->ndim, layout->dims};
  }
  return ls_safetensors_create_shards(self->aside, "model", max_shard_bytes, specs,
                                      self->plan.count, NULL, 0, &self->writer, error);
}

static ls_status open_moments(saver *self, ls_error *error) {
  const int most = MOMENTS * self->program->parameter_count;
  ls_tensor_spec *specs = LS_NEW_ARRAY(self->arena, ls_tensor_spec, most);
  int count = 0;
  for (int p = 0; p < self->program->parameter_count; p++) {
    const ls_program_parameter *about = &self->program->parameters[p];
    for (int m = 0; m < moments_of(&self->program->layout); m++)
      specs[count++] = (ls_tensor_spec){moment_name(self->arena, about, m), self->dtype,
                                        about->ndim, about->dims};
  }
  return ls_safetensors_create_shards(self->aside, "optimizer", max_shard_bytes, specs, count, NULL,
                                      0, &self->writer, error);
}

static ls_status begin(saver *self, ls_error *error) {
  const ls_checkpoint_extra *extra = self->extra;
  const char *config;
  LS_TRY(ls_directory_remove(self->aside, error));
  LS_TRY(ls_directory_make(self->aside, error));
  LS_TRY(ls_model_config_text(self->arena, &self->session->config, self->dtype, &config, error));
  LS_TRY(write_text(self, "config.json", config, error));
  if (extra->run_text) LS_TRY(write_text(self, "run.yaml", extra->run_text, error));
  if (extra->tokenizer) LS_TRY(ls_tokenizer_write(extra->tokenizer, self->aside, error));
  return open_weights(self, error);
}

static json_t *describe(const saver *self) {
  const ls_layout *layout = &self->program->layout;
  json_t *state = json_pack(
      "{s:I, s:I, s:I, s:I, s:s, s:s, s:{s:i, s:i, s:i, s:i, s:i, s:b, s:i}}", "step",
      (json_int_t)self->step, "tokens", (json_int_t)self->extra->tokens, "sequences",
      (json_int_t)self->extra->sequences, "seed", (json_int_t)self->session->run->train.seed,
      "dtype", ls_dtype_name(self->dtype), "compute", ls_dtype_name(layout->compute), "layout",
      "pp", layout->pp, "dp_replicate", layout->dp_replicate, "dp_shard", layout->dp_shard, "tp",
      layout->tp, "zero", layout->zero, "sequence_parallel", (int)layout->sequence_parallel,
      "microbatches", layout->microbatches);
  const char *loss_scale = self->extra->loss_scale, *corpus = self->extra->corpus;
  int failed = 0;
  if (state && loss_scale)
    failed |= json_object_set_new(state, "loss_scale", json_string(loss_scale));
  if (state && corpus) failed |= json_object_set_new(state, "corpus", json_string(corpus));
  if (!failed) return state;
  json_decref(state);
  return NULL;
}

static ls_status publish(saver *self, ls_error *error) {
  json_t *state = describe(self);
  ls_status status = state ? ls_checkpoint_seal(self->aside, state, error)
                           : ls_fail(error, LS_FAILED, "state.json: out of memory");
  json_decref(state);
  if (status == LS_OK) status = ls_checkpoint_publish(self->aside, self->final, error);
  return status;
}

static ls_status after_weights(saver *self, ls_error *error) {
  LS_TRY(ls_safetensors_finish(&self->writer, error));
  return open_moments(self, error);
}

static ls_status after_moments(saver *self, ls_error *error) {
  LS_TRY(ls_safetensors_finish(&self->writer, error));
  return publish(self, error);
}

/* What rank 0 does alone; all ranks learn how it went. */
static ls_status alone(saver *self, ls_status (*act)(saver *self, ls_error *error),
                       ls_error *error) {
  if (able(self)) self->failure.status = act(self, &self->failure);
  return agree(self, error);
}

static ls_status save(saver *self, ls_error *error) {
  LS_TRY(ls_weights_plan(self->arena, &self->session->config, self->session->graph, &self->plan,
                         error));
  LS_TRY(alone(self, begin, error));
  LS_TRY(save_weights(self, error));
  LS_TRY(alone(self, after_weights, error));
  LS_TRY(save_moments(self, error));
  return alone(self, after_moments, error);
}

ls_status ls_checkpoint_save(const ls_session *session, ls_rank *rank, const char *out,
                             int64_t step, const ls_checkpoint_extra *extra, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const ls_program *program = ls_rank_program(rank, LS_SESSION_STEP);
  const ls_dtype dtype = program->layout.compute == LS_F64 ? LS_F64 : LS_F32;
  saver self = {.session = session,
                .rank = rank,
                .program = program,
                .extra = extra,
                .arena = arena,
                .dtype = dtype,
                .writes = ls_rank_number(rank) == 0,
                .step = step,
                .piece = ls_arena_alloc(arena, PIECE_ELEMENTS * ls_dtype_bytes(dtype))};
  self.final = ls_arena_printf(arena, "%s/checkpoints/step-%lld", out, (long long)step);
  self.aside = ls_arena_printf(arena, "%s.tmp-%ld", self.final, (long)getpid());
  const ls_status status = save(&self, error);
  ls_safetensors_abandon(&self.writer);
  if (self.writes && status != LS_OK) (void)!ls_directory_remove(self.aside, NULL);
  ls_arena_destroy(&arena);
  return status;
}
