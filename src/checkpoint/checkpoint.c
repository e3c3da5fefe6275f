#include "checkpoint/checkpoint.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint_folder.h"
#include "session/load_parameters.h"
#include "session/rounds.h"
#include "session/saved_tensors.h"
#include "store/adapters.h"

static const size_t usual_shard_bytes = 5000000000u;

/* The weights or the moments. */
typedef struct tensor_set {
  const char *stem;
  const ls_stored_layout *layouts;
  int count;
  ls_safetensors_writer *writer;
} tensor_set;

enum { WEIGHTS, MOMENTS, SETS };

typedef struct saver {
  const ls_session *session;
  ls_rank *rank;
  const ls_program *program;
  const ls_checkpoint_extra *extra;
  ls_arena *arena;
  ls_dtype dtype; /* of all tensors of the checkpoint but codes */
  bool first;     /* rank 0 */
  const char *aside, *final;
  int64_t step;
  tensor_set sets[SETS];
  int set_count;         /* 1: the weights alone, for a moment: neither flushed nor published */
  ls_sealed_file *files; /* of both sets */
  int file_count;
  int ranks;
  int64_t *sums;   /* [ranks][files][NUMBERS] */
  int64_t process; /* of rank 0 */
} saver;

/* All write to the folder that has the first one's number in its name. */
static ls_status give_name(void *context, ls_round_message *message, ls_error *error) {
  (void)error;
  saver *self = context;
  self->process = (int64_t)getpid();
  *message = (ls_round_message){.own = &self->process, .count = 1};
  return LS_OK;
}

static ls_status list_tensors(void *context, ls_round_message *message, ls_error *error) {
  (void)message;
  saver *self = context;
  self->aside = ls_arena_printf(self->arena, "%s.tmp-%lld", self->final, (long long)self->process);
  ls_saved_tensors all;
  LS_TRY(ls_saved_tensors_list(self->arena, &self->session->config, self->session->graph,
                               self->program, &all, error));
  const bool adapters = self->session->config.lora_rank > 0;
  self->sets[WEIGHTS] = (tensor_set){
      .stem = adapters ? LS_ADAPTERS_STEM : "model", .layouts = all.items, .count = all.weights};
  self->sets[MOMENTS] = (tensor_set){
      .stem = "optimizer", .layouts = all.items + all.weights, .count = all.count - all.weights};
  return LS_OK;
}

static ls_dtype dtype_of(const saver *self, const ls_stored_layout *layout) {
  return ls_state_row_of(layout->part)->type == LS_TYPE_CODE ? LS_U8 : self->dtype;
}

/* What this rank saves of one tensor. */
static ls_status write_tensor(saver *self, tensor_set *set, int t, void *tile_data, void *scratch,
                              ls_error *error) {
  const ls_stored_layout *layout = &set->layouts[t];
  const ls_dtype dtype = dtype_of(self, layout);
  for (int i = 0; i < layout->pieces.count; i++) {
    const ls_weight_place to = {layout, &layout->pieces.items[i], NULL};
    ls_state_range ranges[LS_MOST_RANGES];
    const int count = ls_state_saved(&ls_state_ranges, self->program, ls_rank_number(self->rank),
                                     to.piece->parameter, layout->part, ranges);
    for (int r = 0; r < count; r++) {
      const ls_box box = ls_weight_piece_box(to.piece, &ranges[r].box);
      for (ls_box tile = {0}; ls_stored_tile(layout, &box, LS_TILE_ELEMENTS, 1, &tile);) {
        LS_TRY(ls_rank_read_range(self->rank, self->program, to.piece->parameter, &ranges[r], &tile,
                                  tile_data, dtype, error));
        LS_TRY(ls_stored_write(set->writer, t, &to, &tile, dtype, tile_data, scratch, error));
      }
    }
  }
  return LS_OK;
}

/* All that this rank saves, each byte once, until it is on the disk. */
static ls_status write_own(void *context, ls_round_message *message, ls_error *error) {
  (void)message;
  saver *self = context;
  const size_t bytes = LS_TILE_ELEMENTS * ls_dtype_bytes(self->dtype);
  void *tile = ls_arena_alloc(self->arena, bytes), *scratch = ls_arena_alloc(self->arena, bytes);
  for (int s = 0; s < self->set_count; s++) {
    tensor_set *set = &self->sets[s];
    for (int t = 0; t < set->count; t++) LS_TRY(write_tensor(self, set, t, tile, scratch, error));
    if (self->set_count == SETS) LS_TRY(ls_safetensors_sync(set->writer, error));
  }
  return LS_OK;
}

enum { WRITTEN, WORDS, PLACES, NUMBERS };

/* What this rank wrote of each file. */
static ls_status gather_sums(void *context, ls_round_message *message, ls_error *error) {
  (void)error;
  saver *self = context;
  self->file_count = 0;
  for (int s = 0; s < self->set_count; s++)
    self->file_count += ls_safetensors_files(self->sets[s].writer);
  const int64_t numbers = (int64_t)NUMBERS * self->file_count;
  int64_t *own = LS_NEW_ARRAY(self->arena, int64_t, numbers);
  self->sums = LS_NEW_ARRAY(self->arena, int64_t, numbers * self->ranks);
  self->files = LS_NEW_ARRAY(self->arena, ls_sealed_file, self->file_count);
  for (int s = 0, f = 0; s < self->set_count; s++)
    for (int i = 0; i < ls_safetensors_files(self->sets[s].writer); i++, f++) {
      const ls_written_file file = ls_safetensors_file(self->sets[s].writer, i);
      /* The writer's path goes with it, before the files are sealed. */
      self->files[f] = (ls_sealed_file){
          .name = ls_arena_strdup(self->arena, strrchr(file.path, '/') + 1), .bytes = file.bytes};
      own[f * NUMBERS + WRITTEN] = (int64_t)file.written;
      own[f * NUMBERS + WORDS] = (int64_t)file.checksum.words;
      own[f * NUMBERS + PLACES] = (int64_t)file.checksum.places;
    }
  *message = (ls_round_message){.own = own, .every = self->sums, .count = numbers};
  return LS_OK;
}

/* All ranks together wrote each file's bytes; its checksum is of what they wrote. */
static ls_status close_files(void *context, ls_round_message *message, ls_error *error) {
  (void)message;
  saver *self = context;
  for (int f = 0; f < self->file_count; f++) {
    uint64_t written = 0;
    ls_sealed_file *file = &self->files[f];
    for (int r = 0; r < self->ranks; r++) {
      const int64_t *of = self->sums + NUMBERS * (r * (int64_t)self->file_count + f);
      const ls_checksum part = {(uint64_t)of[WORDS], (uint64_t)of[PLACES]};
      ls_checksum_join(&file->checksum, &part);
      written += (uint64_t)of[WRITTEN];
    }
    if (written != file->bytes)
      return ls_fail(error, LS_INTERNAL, "%s: %llu bytes were written; it has %llu", file->name,
                     (unsigned long long)written, (unsigned long long)file->bytes);
  }
  for (int s = 0; s < self->set_count; s++)
    LS_TRY(ls_safetensors_leave(&self->sets[s].writer, error));
  return LS_OK;
}

static ls_status write_text(saver *self, const char *name, const char *text, ls_error *error) {
  return ls_file_write(ls_arena_printf(self->arena, "%s/%s", self->aside, name), text, strlen(text),
                       error);
}

static ls_status write_adapter_config(saver *self, ls_error *error) {
  const char *text;
  LS_TRY(ls_adapters_text(self->arena, &self->session->config, &text, error));
  return write_text(self, "adapter_config.json", text, error);
}

/* Rank 0 begins the files, the others join in. */
static ls_status open_set(saver *self, tensor_set *set, ls_error *error) {
  ls_tensor_spec *specs = LS_NEW_ARRAY(self->arena, ls_tensor_spec, set->count);
  for (int t = 0; t < set->count; t++) {
    const ls_stored_layout *layout = &set->layouts[t];
    int64_t *dims = LS_NEW_ARRAY(self->arena, int64_t, 3);
    specs[t] = (ls_tensor_spec){.name = layout->name, .dtype = dtype_of(self, layout)};
    specs[t].ndim = ls_stored_shape(layout, dims);
    specs[t].dims = dims;
  }
  const size_t asked = self->extra->max_shard_bytes;
  const size_t max_shard_bytes = asked ? asked : usual_shard_bytes;
  return (self->first ? ls_safetensors_create_shards : ls_safetensors_join_shards)(
      self->aside, set->stem, max_shard_bytes, specs, set->count, NULL, 0, &set->writer, error);
}

static ls_status open_sets(void *context, ls_round_message *message, ls_error *error) {
  (void)message;
  saver *self = context;
  for (int s = 0; s < self->set_count; s++) LS_TRY(open_set(self, &self->sets[s], error));
  return LS_OK;
}

/* Beside the tokenizer's files, where transformers looks for it. */
static ls_status write_template(const saver *self, ls_error *error) {
  size_t bytes;
  const ls_chat *chat = self->extra->chat;
  const char *text = chat ? ls_chat_given_template(chat, &bytes) : NULL;
  if (!text) return LS_OK;
  return ls_file_write(ls_arena_printf(self->arena, "%s/chat_template.jinja", self->aside), text,
                       bytes, error);
}

static ls_status begin(void *context, ls_round_message *message, ls_error *error) {
  saver *self = context;
  const ls_checkpoint_extra *extra = self->extra;
  LS_TRY(ls_directory_remove(self->aside, error));
  LS_TRY(ls_directory_make(self->aside, error));
  const char *config = ls_model_config_text(self->arena, &self->session->config, self->dtype);
  LS_TRY(write_text(self, "config.json", config, error));
  if (self->session->config.lora_rank) LS_TRY(write_adapter_config(self, error));
  if (extra->run_text) LS_TRY(write_text(self, "run.yaml", extra->run_text, error));
  if (extra->tokenizer) LS_TRY(ls_tokenizer_write(extra->tokenizer, self->aside, error));
  LS_TRY(write_template(self, error));
  return open_sets(self, message, error);
}

static json_t *describe(const saver *self) {
  const ls_layout *layout = &self->program->layout;
  json_t *state = json_pack(
      "{s:I, s:I, s:I, s:I, s:s, s:s, s:{s:i, s:b, s:i}}", "step", (json_int_t)self->step, "tokens",
      (json_int_t)self->extra->tokens, "sequences", (json_int_t)self->extra->sequences, "seed",
      (json_int_t)self->session->run->train.seed, "dtype", ls_dtype_name(self->dtype), "compute",
      ls_dtype_name(layout->compute), "layout", "zero", layout->zero, "sequence_parallel",
      (int)layout->sequence_parallel, "microbatches", layout->microbatches);
  const char *loss_scale = self->extra->loss_scale, *corpus = self->extra->corpus;
  const char *base = self->extra->base;
  int failed = 0;
  for (int a = 0; a < LS_LAYOUT_AXES && state; a++)
    failed |= json_object_set_new(json_object_get(state, "layout"), ls_layout_axis(a),
                                  json_integer(ls_layout_size(layout, a)));
  if (state && loss_scale)
    failed |= json_object_set_new(state, "loss_scale", json_string(loss_scale));
  if (state && corpus) failed |= json_object_set_new(state, "corpus", json_string(corpus));
  if (state && base) failed |= json_object_set_new(state, "base", json_string(base));
  if (state && self->extra->best)
    failed |= json_object_set_new(state, "best", ls_checkpoint_best_json(self->extra->best));
  if (!failed) return state;
  json_decref(state);
  return NULL;
}

static ls_status publish(void *context, ls_round_message *message, ls_error *error) {
  (void)message;
  const saver *self = context;
  if (self->set_count < SETS) return LS_OK;
  json_t *state = describe(self);
  ls_status status =
      state ? ls_checkpoint_seal(self->aside, state, self->files, self->file_count, error)
            : ls_fail(error, LS_FAILED, "state.json: out of memory");
  json_decref(state);
  if (status == LS_OK) status = ls_checkpoint_publish(self->aside, self->final, error);
  return status;
}

static ls_round_work *const work[LS_SAVE_ROUND_COUNT] = {
    [LS_SAVE_NAME] = give_name,    [LS_SAVE_LIST] = list_tensors, [LS_SAVE_BEGIN] = begin,
    [LS_SAVE_JOIN] = open_sets,    [LS_SAVE_WRITE] = write_own,   [LS_SAVE_SUMS] = gather_sums,
    [LS_SAVE_CLOSE] = close_files, [LS_SAVE_PUBLISH] = publish};

/* The saver's folder is left, in `arena`, where the weights alone are asked for. */
static ls_status save(ls_arena *arena, const ls_session *session, ls_rank *rank, const char *out,
                      int64_t step, const ls_checkpoint_extra *extra, int set_count,
                      const char **folder, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, LS_SESSION_STEP);
  saver self = {.session = session,
                .rank = rank,
                .program = program,
                .extra = extra,
                .arena = arena,
                .dtype = program->layout.compute == LS_F64 ? LS_F64 : LS_F32,
                .first = ls_rank_number(rank) == 0,
                .ranks = ls_comm_size(ls_rank_comm(rank)),
                .set_count = set_count,
                .step = step};
  self.final = ls_arena_printf(arena, "%s/checkpoints/step-%lld", out, (long long)step);
  const ls_status status = ls_rounds_run(rank, &ls_save_rounds, work, &self, error);
  for (int s = 0; s < SETS; s++) ls_safetensors_abandon(&self.sets[s].writer);
  if (self.first && self.aside && status != LS_OK) (void)!ls_directory_remove(self.aside, NULL);
  *folder = self.aside;
  return status;
}

ls_status ls_checkpoint_save(const ls_session *session, ls_rank *rank, const char *out,
                             int64_t step, const ls_checkpoint_extra *extra, ls_error *error) {
  const char *folder;
  ls_arena *arena = ls_arena_create();
  const ls_status status = save(arena, session, rank, out, step, extra, SETS, &folder, error);
  ls_arena_destroy(&arena);
  return status;
}

ls_status ls_checkpoint_lay_weights(ls_arena *arena, const ls_session *session, ls_rank *rank,
                                    const char *out, int64_t step, const char **folder,
                                    ls_error *error) {
  return save(arena, session, rank, out, step, &(ls_checkpoint_extra){0}, WEIGHTS + 1, folder,
              error);
}
