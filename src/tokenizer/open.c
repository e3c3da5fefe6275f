/* Finding and opening a tokenizer's files, and writing them out again. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "text/json.h"
#include "text/quote.h"
#include "tokenizer/byte_form.h"
#include "tokenizer/token_pipeline.h"

/* What belongs to a tokenizer in a model's folder and goes where it goes. */
static const char *const companions[] = {
    "tokenizer.json",     "tokenizer.model",       "vocab.json",
    "merges.txt",         "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json",  "chat_template.jinja",   "r50k_base.tiktoken",
    "p50k_base.tiktoken", "cl100k_base.tiktoken",  "o200k_base.tiktoken"};
enum { COMPANIONS = sizeof companions / sizeof *companions };

static ls_status keep_file(ls_token_pipeline *self, const char *path,
                           const ls_tokenizer_file **kept, ls_error *error) {
  char *data;
  size_t bytes;
  LS_TRY(ls_file_read(self->arena, path, &data, &bytes, error));
  char shown[LS_QUOTE_BYTES];
  if (ls_is_lfs_pointer(data, bytes)) {
    return ls_fail(error, LS_INPUT, "%s: is a git-lfs pointer; fetch the file it stands for",
                   ls_quote(shown, path, strlen(path)));
  }
  const char *slash = strrchr(path, '/');
  ls_tokenizer_file *file = LS_APPEND(self->arena, &self->files);
  *file = (ls_tokenizer_file){ls_arena_strdup(self->arena, slash ? slash + 1 : path), data, bytes};
  if (kept) *kept = file;
  return LS_OK;
}

static const ls_tokenizer_file *find_file(const ls_token_pipeline *self, const char *name) {
  for (int i = 0; i < self->files.count; i++) {
    if (strcmp(self->files.items[i].name, name) == 0) return &self->files.items[i];
  }
  return NULL;
}

/* A tokenizer.model is SentencePiece's or, in Llama 3's folders, tiktoken's text. */
static ls_status read_model_file(ls_token_pipeline *self, const char *path,
                                 const ls_tokenizer_file *file, const char *pattern,
                                 ls_error *error) {
  if (file->bytes && file->data[0] == '\n') {
    return ls_token_pipeline_read_sentencepiece(self, path, file->data, file->bytes, error);
  }
  return ls_token_pipeline_read_tiktoken(self, path, file->data, file->bytes, pattern, error);
}

/* A word of tokenizer_config.json: "eos_token": "</s>" or {"content": "</s>"}. */
static const char *config_token(const json_t *config, const char *key) {
  const json_t *value = json_object_get(config, key);
  if (json_is_object(value)) value = json_object_get(value, "content");
  return json_is_string(value) ? json_string_value(value) : NULL;
}

static int32_t find_special(const ls_token_pipeline *self, const char *name) {
  return name ? ls_vocabulary_find(self->vocabulary, (ls_span){name, strlen(name)}) : -1;
}

/* What transformers adds to a SentencePiece model's ids. */
static void apply_sentence_config(ls_token_pipeline *self, const json_t *config) {
  const json_t *begin = json_object_get(config, "add_bos_token");
  const json_t *end = json_object_get(config, "add_eos_token");
  const int32_t first = find_special(self, config_token(config, "bos_token"));
  if (json_is_boolean(begin)) {
    self->prefix.count = 0;
    if (json_is_true(begin) && first >= 0) *LS_APPEND(self->arena, &self->prefix) = first;
  }
  if (json_is_true(end) && self->tokenizer.end_of_text >= 0) {
    *LS_APPEND(self->arena, &self->suffix) = self->tokenizer.end_of_text;
  }
}

static int32_t special_of(const ls_token_pipeline *self, const json_t *config, const char *key,
                          const char *usual) {
  const int32_t given = find_special(self, config_token(config, key));
  return given >= 0 ? given : find_special(self, usual);
}

/* What tokenizers of encoders have: a mask; and with WordPiece, texts begin with [CLS] and end with
 * [SEP]. */
static void apply_mask(ls_token_pipeline *self, const json_t *config) {
  self->mask = special_of(self, config, "mask_token", "[MASK]");
  if (self->mask < 0) self->mask = find_special(self, "<mask>");
  if (!self->word_piece) return;
  self->begin = special_of(self, config, "cls_token", "[CLS]");
  if (self->tokenizer.end_of_text < 0)
    self->tokenizer.end_of_text = special_of(self, config, "sep_token", "[SEP]");
}

/* The end of a text: as tokenizer_config.json says, else by the names in use. */
static ls_status apply_config(ls_token_pipeline *self, const char *path, ls_error *error) {
  static const char *const names[] = {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"};
  const ls_tokenizer_file *file = find_file(self, "tokenizer_config.json");
  json_t *config = NULL;
  if (file) {
    const char *where = ls_arena_printf(self->arena, "%s/tokenizer_config.json", path);
    LS_TRY(ls_json_parse(where, file->data, file->bytes, LS_JSON_LAST_KEY, &config, error));
  }
  const int32_t given = find_special(self, config_token(config, "eos_token"));
  if (given >= 0) self->tokenizer.end_of_text = given;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (self->tokenizer.end_of_text >= 0 || self->sentence) break;
    self->tokenizer.end_of_text = find_special(self, names[i]);
  }
  apply_mask(self, config);
  if (config && self->sentence) apply_sentence_config(self, config);
  json_decref(config);
  return LS_OK;
}

/* transformers finds the class of these two files beside a GPT-2 model alone; it would also add an
 * end of text to a vocabulary without one. */
static void add_merges_config(ls_token_pipeline *self) {
  static const char end[] = "<|endoftext|>";
  const bool has_end = ls_vocabulary_find(self->vocabulary, (ls_span){end, sizeof end - 1}) >= 0;
  const char *text = has_end ? "{\"tokenizer_class\": \"GPT2Tokenizer\"}\n"
                             : "{\"tokenizer_class\": \"GPT2Tokenizer\", \"bos_token\": null, "
                               "\"eos_token\": null, \"unk_token\": null}\n";
  *LS_APPEND(self->arena, &self->files) = (ls_tokenizer_file){
      "tokenizer_config.json", ls_arena_strdup(self->arena, text), strlen(text)};
}

/* vocab.json and merges.txt say nothing of how words are cut: GPT-2's way is taken, unless the
 * folder says that it is another's. */
static ls_status read_merges_files(ls_token_pipeline *self, const char *path, ls_error *error) {
  const ls_tokenizer_file *vocabulary = find_file(self, "vocab.json");
  const ls_tokenizer_file *merges = find_file(self, "merges.txt");
  const ls_tokenizer_file *config = find_file(self, "tokenizer_config.json");
  json_t *root = NULL;
  if (config) {
    LS_TRY(ls_json_parse(path, config->data, config->bytes, LS_JSON_LAST_KEY, &root, error));
  }
  const char *class = config_token(root, "tokenizer_class");
  ls_status status = LS_OK;
  if (class && strcmp(class, "GPT2Tokenizer") != 0 && strcmp(class, "GPT2TokenizerFast") != 0) {
    char shown[LS_QUOTE_BYTES];
    status = ls_fail(error, LS_INPUT,
                     "%s: vocab.json and merges.txt of a %s are not supported (GPT2Tokenizer's "
                     "are): its tokenizer.json is expected",
                     path, ls_quote(shown, class, strlen(class)));
  }
  json_decref(root);
  LS_TRY(status);
  LS_TRY(ls_token_pipeline_read_merges(self, ls_arena_printf(self->arena, "%s/vocab.json", path),
                                       vocabulary->data, vocabulary->bytes,
                                       ls_arena_printf(self->arena, "%s/merges.txt", path),
                                       merges->data, merges->bytes, error));
  if (!config) add_merges_config(self);
  return LS_OK;
}

static ls_status read_folder(ls_token_pipeline *self, const char *path, const char *pattern,
                             ls_error *error) {
  for (int i = 0; i < COMPANIONS; i++) {
    const char *name = ls_arena_printf(self->arena, "%s/%s", path, companions[i]);
    if (ls_file_exists(name)) LS_TRY(keep_file(self, name, NULL, error));
  }
  const ls_tokenizer_file *json = find_file(self, "tokenizer.json");
  const ls_tokenizer_file *model = find_file(self, "tokenizer.model");
  if (json) {
    const char *name = ls_arena_printf(self->arena, "%s/tokenizer.json", path);
    LS_TRY(ls_token_pipeline_read_json(self, name, json->data, json->bytes, error));
  } else if (model) {
    const char *name = ls_arena_printf(self->arena, "%s/tokenizer.model", path);
    LS_TRY(read_model_file(self, name, model, pattern, error));
  } else if (find_file(self, "vocab.json") && find_file(self, "merges.txt")) {
    LS_TRY(read_merges_files(self, path, error));
  } else {
    const ls_tokenizer_file *ranks = NULL;
    for (int i = 8; i < COMPANIONS && !ranks; i++) ranks = find_file(self, companions[i]);
    if (!ranks) {
      return ls_fail(error, LS_INPUT,
                     "%s: found no tokenizer; expected tokenizer.json, tokenizer.model, vocab.json "
                     "with merges.txt, or a *.tiktoken of a known name",
                     path);
    }
    const char *name = ls_arena_printf(self->arena, "%s/%s", path, ranks->name);
    LS_TRY(ls_token_pipeline_read_tiktoken(self, name, ranks->data, ranks->bytes, pattern, error));
  }
  return apply_config(self, path, error);
}

static bool ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

static ls_status read_file(ls_token_pipeline *self, const char *path, const char *pattern,
                           ls_error *error) {
  const ls_tokenizer_file *file;
  if (ends_with(path, "vocab.json") || ends_with(path, "merges.txt")) {
    const char *slash = strrchr(path, '/');
    return read_folder(
        self, slash ? ls_arena_printf(self->arena, "%.*s", (int)(slash - path), path) : ".",
        pattern, error);
  }
  LS_TRY(keep_file(self, path, &file, error));
  if (ends_with(path, ".json")) {
    LS_TRY(ls_token_pipeline_read_json(self, path, file->data, file->bytes, error));
  } else {
    LS_TRY(read_model_file(self, path, file, pattern, error));
  }
  return apply_config(self, path, error);
}

/* The kind of file, and a fingerprint of all there is. */
static const char *make_name(ls_token_pipeline *self) {
  uint64_t hash = 0;
  for (int i = 0; i < self->files.count; i++) {
    const ls_tokenizer_file *file = &self->files.items[i];
    hash = hash * 0x9e3779b97f4a7c15u + ls_vocabulary_hash((ls_span){file->data, file->bytes});
  }
  return ls_arena_printf(self->arena, "%s-%016llx", self->files.items[0].name,
                         (unsigned long long)hash);
}

ls_status ls_tokenizer_open(const char *path, const ls_tokenizer_options *options,
                            const ls_tokenizer **tokenizer, ls_error *error) {
  const char *pattern = options ? options->pattern : NULL;
  ls_token_pipeline *made = ls_token_pipeline_create();
  ls_status status = ls_directory_exists(path) ? read_folder(made, path, pattern, error)
                                               : read_file(made, path, pattern, error);
  if (status == LS_OK) status = ls_token_pipeline_finish(made, error);
  if (status != LS_OK) {
    ls_token_pipeline_destroy(&made);
    return status;
  }
  made->tokenizer.name = make_name(made);
  *tokenizer = &made->tokenizer;
  return LS_OK;
}

void ls_tokenizer_close(const ls_tokenizer **tokenizer) {
  if (!*tokenizer) return;
  ls_token_pipeline *pipeline = (*tokenizer)->pipeline;
  *tokenizer = NULL;
  ls_token_pipeline_destroy(&pipeline);
}

ls_status ls_tokenizer_write(const ls_tokenizer *tokenizer, const char *folder, ls_error *error) {
  const ls_token_pipeline *self = tokenizer->pipeline;
  if (!self) {
    LS_ASSERT(tokenizer == ls_tokenizer_bytes());
    return ls_byte_form_write(folder, error);
  }
  ls_arena *arena = ls_arena_create();
  ls_status status = LS_OK;
  for (int i = 0; i < self->files.count && status == LS_OK; i++) {
    const ls_tokenizer_file *file = &self->files.items[i];
    status = ls_file_write(ls_arena_printf(arena, "%s/%s", folder, file->name), file->data,
                           file->bytes, error);
  }
  ls_arena_destroy(&arena);
  return status;
}

ls_status ls_tokenizer_of(const char *folder, const ls_tokenizer **tokenizer, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  bool found = false, bytes = false;
  for (int i = 0; i < COMPANIONS && !found; i++) {
    const char *path = ls_arena_printf(arena, "%s/%s", folder, companions[i]);
    const bool with_another = i == 2 || i == 3; /* vocab.json, merges.txt */
    const bool settings = i >= 4 && i < 8;
    if (settings || !ls_file_exists(path)) continue;
    found = !with_another ||
            (i == 2 && ls_file_exists(ls_arena_printf(arena, "%s/merges.txt", folder)));
    char *text;
    size_t length;
    bytes = i == 0 && ls_file_read(arena, path, &text, &length, NULL) == LS_OK &&
            ls_byte_form_is(text, length);
  }
  ls_arena_destroy(&arena);
  if (found && !bytes) return ls_tokenizer_open(folder, NULL, tokenizer, error);
  *tokenizer = ls_tokenizer_bytes();
  return LS_OK;
}
