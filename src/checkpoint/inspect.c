#include "checkpoint/inspect.h"

#include <string.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "data/token_file.h"
#include "model/model.h"
#include "store/safetensors.h"
#include "tokenizer/tokenizer.h"

typedef struct inspection {
  ls_arena *arena;
  const char *path;
  bool tensors;
  json_t *found; /* object of sections, in the order in which they are said */
} inspection;

static const char *path_in(const inspection *self, const char *folder, const char *name) {
  return ls_arena_printf(self->arena, "%s/%s", folder, name);
}

static bool ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

static ls_status inspect_config(const inspection *self, const char *path, ls_error *error) {
  ls_model_config config;
  LS_TRY(ls_model_config_read(self->arena, path, &config, error));
  json_t *about = json_pack(
      "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "family", config.family, "parameters",
      (json_int_t)ls_model_parameters(&config), "layers", (json_int_t)config.layers, "width",
      (json_int_t)config.width, "heads", (json_int_t)config.heads, "kv_heads",
      (json_int_t)config.kv_heads, "vocabulary", (json_int_t)config.vocabulary, "positions",
      (json_int_t)config.positions, "tied_embeddings", (int)config.tied);
  json_object_set_new(self->found, "model", about);
  return LS_OK;
}

static json_t *describe_tensor(const ls_stored_tensor *tensor) {
  json_t *shape = json_array();
  for (int d = 0; d < tensor->ndim; d++)
    json_array_append_new(shape, json_integer((json_int_t)tensor->dims[d]));
  return json_pack("{s:s, s:o, s:I}", "dtype", tensor->format, "shape", shape, "bytes",
                   (json_int_t)tensor->bytes);
}

static ls_status inspect_tensors(const inspection *self, const char *path, const char *stem,
                                 ls_error *error) {
  ls_safetensors *opened;
  LS_TRY(ls_safetensors_open(path, stem, &opened, error));
  json_t *types = json_object(), *list = json_object();
  int64_t elements = 0, bytes = 0, files = 0;
  const char *file = "";
  const int count = ls_safetensors_count(opened);
  for (int i = 0; i < count; i++) {
    const ls_stored_tensor *each = ls_safetensors_at(opened, i);
    const json_int_t before = json_integer_value(json_object_get(types, each->format));
    json_object_set_new(types, each->format, json_integer(before + 1));
    json_object_set_new(list, each->name, describe_tensor(each));
    elements += each->count;
    bytes += (int64_t)each->bytes;
    files += strcmp(file, each->file) != 0;
    file = ls_arena_strdup(self->arena, each->file);
  }
  json_t *about =
      json_pack("{s:i, s:I, s:I, s:I, s:o}", "tensors", count, "elements", (json_int_t)elements,
                "bytes", (json_int_t)bytes, "files", (json_int_t)files, "types", types);
  if (self->tensors)
    json_object_set_new(about, "names", list);
  else
    json_decref(list);
  json_object_set_new(self->found, strcmp(stem ? stem : "model", "model") == 0 ? "weights" : stem,
                      about);
  ls_safetensors_close(&opened);
  return LS_OK;
}

static ls_status inspect_state(const inspection *self, const char *folder, ls_error *error) {
  ls_checkpoint_state state;
  LS_TRY(ls_checkpoint_state_read(folder, &state, error));
  LS_TRY(ls_checkpoint_verify(folder, LS_SEALED_ALL, error));
  json_t *about =
      json_pack("{s:s, s:I, s:I, s:I, s:I, s:s}", "folder", folder, "step", (json_int_t)state.step,
                "tokens", (json_int_t)state.tokens, "sequences", (json_int_t)state.sequences,
                "seed", (json_int_t)state.seed, "files", "all as they were written");
  if (about && state.best.step) {
    json_object_set_new(about, "best_step", json_integer(state.best.step));
    json_object_set_new(about, "best_validation_loss", json_real(state.best.loss));
  }
  json_object_set_new(self->found, "checkpoint", about);
  return LS_OK;
}

static ls_status inspect_token_file(const inspection *self, const char *path, const char *section,
                                    ls_error *error) {
  ls_token_header about;
  LS_TRY(ls_token_file_about(path, &about, error));
  const char *content = ls_arena_printf(self->arena, "%016llx", (unsigned long long)about.content);
  json_t *found =
      json_pack("{s:I, s:I, s:I, s:i, s:s, s:I, s:I, s:s, s:s}", "tokens", (json_int_t)about.count,
                "documents", (json_int_t)about.documents, "skipped_lines",
                (json_int_t)about.skipped, "bytes_per_token", (int)about.width, "tokenizer",
                about.tokenizer, "vocabulary", (json_int_t)about.vocabulary, "end_of_text",
                (json_int_t)about.end_of_text, "content", content, "file", "as it was written");
  json_object_set_new(self->found, section, found);
  return LS_OK;
}

/* Each under its name. */
static ls_status inspect_token_files(const inspection *self, const char *folder, ls_error *error) {
  char **paths = NULL;
  int count = 0;
  if (ls_file_glob(self->arena, path_in(self, folder, "*.tokens"), &paths, &count, NULL) != LS_OK)
    return LS_OK;
  for (int i = 0; i < count; i++)
    LS_TRY(inspect_token_file(self, paths[i], strrchr(paths[i], '/') + 1, error));
  return LS_OK;
}

static ls_status inspect_tokenizer(const inspection *self, const char *path, ls_error *error) {
  const ls_tokenizer *tokenizer;
  LS_TRY(ls_tokenizer_open(path, NULL, &tokenizer, error));
  int32_t special = 0;
  for (int32_t id = 0; id < tokenizer->vocabulary; id++)
    special += ls_tokenizer_is_special(tokenizer, id);
  json_object_set_new(self->found, "tokenizer",
                      json_pack("{s:s, s:i, s:i, s:i}", "name", tokenizer->name, "vocabulary",
                                (int)tokenizer->vocabulary, "special_tokens", (int)special,
                                "end_of_text", (int)tokenizer->end_of_text));
  ls_tokenizer_close(&tokenizer);
  return LS_OK;
}

static ls_status inspect_tokenizer_of(const inspection *self, const char *folder, ls_error *error) {
  static const char *const files[] = {"tokenizer.json", "tokenizer.model", "vocab.json"};
  for (int i = 0; i < 3; i++)
    if (ls_file_exists(path_in(self, folder, files[i])))
      return inspect_tokenizer(self, folder, error);
  return LS_OK;
}

static bool is_tokenizer(const char *path) {
  return ends_with(path, "tokenizer.json") || ends_with(path, "tokenizer.model") ||
         ends_with(path, "vocab.json") || ends_with(path, ".tiktoken");
}

/* An adapter's own keys, but for those that say nothing. */
static ls_status inspect_adapter(const inspection *self, const char *path, ls_error *error) {
  char *text;
  size_t bytes;
  LS_TRY(ls_file_read(self->arena, path, &text, &bytes, error));
  json_error_t reason;
  json_t *read = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &reason);
  if (!json_is_object(read)) {
    const bool parsed = read != NULL;
    json_decref(read);
    if (parsed) return ls_fail(error, LS_INPUT, "%s: found no object; expected one", path);
    return ls_fail(error, LS_INPUT, "%s:%d:%d: %s", path, reason.line, reason.column, reason.text);
  }
  json_t *about = json_object(), *value;
  const char *key;
  json_object_foreach(read, key, value) {
    const bool empty = json_is_null(value) || json_is_false(value) ||
                       (json_is_object(value) && !json_object_size(value));
    if (!empty) json_object_set(about, key, value);
  }
  json_decref(read);
  json_object_set_new(self->found, "adapter", about);
  return LS_OK;
}

static ls_status inspect_if(const inspection *self, const char *folder, const char *name,
                            ls_status (*inspect)(const inspection *, const char *, ls_error *),
                            ls_error *error) {
  const char *path = path_in(self, folder, name);
  return ls_file_exists(path) ? inspect(self, path, error) : LS_OK;
}

static bool has_stem(const inspection *self, const char *folder, const char *stem) {
  return ls_file_exists(ls_arena_printf(self->arena, "%s/%s.safetensors", folder, stem)) ||
         ls_file_exists(ls_arena_printf(self->arena, "%s/%s.safetensors.index.json", folder, stem));
}

/* Its bytes are looked at after. */
static ls_status find_newest(const inspection *self, const char **folder, ls_error *error) {
  int64_t step;
  LS_TRY(ls_checkpoint_newest(self->arena, self->path, INT64_MAX, folder, &step, error));
  if (*folder) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: no checkpoint in it; let the run save one first",
                 self->path);
}

static ls_status inspect_folder(const inspection *self, ls_error *error) {
  static const char *const stems[] = {"model", "optimizer", "adapter_model"};
  const char *folder = self->path;
  if (!ls_file_exists(path_in(self, folder, "config.json")) &&
      ls_directory_exists(path_in(self, folder, "checkpoints")))
    LS_TRY(find_newest(self, &folder, error));
  if (ls_file_exists(path_in(self, folder, "state.json")))
    LS_TRY(inspect_state(self, folder, error));
  LS_TRY(inspect_if(self, folder, "config.json", inspect_config, error));
  LS_TRY(inspect_if(self, folder, "adapter_config.json", inspect_adapter, error));
  LS_TRY(inspect_tokenizer_of(self, folder, error));
  for (int s = 0; s < 3; s++)
    if (has_stem(self, folder, stems[s])) LS_TRY(inspect_tensors(self, folder, stems[s], error));
  LS_TRY(inspect_token_files(self, folder, error));
  if (json_object_size(self->found)) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: nothing known in it; expected a run, a checkpoint, a model's or an adapter's "
                 "folder, or one of token files",
                 self->path);
}

static ls_status inspect_path(const inspection *self, ls_error *error) {
  if (ls_directory_exists(self->path)) return inspect_folder(self, error);
  if (!ls_file_exists(self->path))
    return ls_fail(error, LS_INPUT, "%s: no such file or folder", self->path);
  if (ends_with(self->path, ".safetensors") || ends_with(self->path, ".safetensors.index.json"))
    return inspect_tensors(self, self->path, NULL, error);
  if (ends_with(self->path, "adapter_config.json")) return inspect_adapter(self, self->path, error);
  if (is_tokenizer(self->path)) return inspect_tokenizer(self, self->path, error);
  if (ends_with(self->path, ".json")) return inspect_config(self, self->path, error);
  if (ls_token_file_is(self->path)) return inspect_token_file(self, self->path, "tokens", error);
  return ls_fail(error, LS_INPUT,
                 "%s: of no known kind; expected config.json, adapter_config.json, .safetensors, "
                 "its index, a tokenizer or a token file",
                 self->path);
}

ls_status ls_inspect(const char *path, bool tensors, json_t **found, ls_error *error) {
  inspection self = {ls_arena_create(), path, tensors, json_object()};
  const ls_status status = inspect_path(&self, error);
  if (status != LS_OK) {
    json_decref(self.found);
    self.found = NULL;
  }
  *found = self.found;
  ls_arena_destroy(&self.arena);
  return status;
}
