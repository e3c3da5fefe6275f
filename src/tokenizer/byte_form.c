#include "tokenizer/byte_form.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "text/json.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

/* The written form is smaller: a larger file is another tokenizer's. */
enum { BYTES = 256, FORM_BYTES = 1 << 16 };

static json_t *vocabulary(void) {
  json_t *made = json_object();
  for (int byte = 0; byte < BYTES; byte++) {
    char text[5] = "";
    ls_unicode_put(ls_byte_level_point(byte), text);
    json_object_set_new(made, text, json_integer(byte));
  }
  return made;
}

/* use_regex false: without merges there is nothing that splitting into words could change. */
static json_t *byte_level(void) {
  return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                   "trim_offsets", 0, "use_regex", 0);
}

static json_t *tokenizer_file(void) {
  json_t *model =
      json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:[]}", "type", "BPE", "dropout",
                "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                "byte_fallback", 0, "ignore_merges", 0, "vocab", vocabulary(), "merges");
  return json_pack("{s:s, s:n, s:n, s:[], s:n, s:o, s:n, s:o, s:o}", "version", "1.0", "truncation",
                   "padding", "added_tokens", "normalizer", "pre_tokenizer", byte_level(),
                   "post_processor", "decoder", byte_level(), "model", model);
}

static json_t *configuration(void) {
  return json_pack("{s:s, s:b, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                   "clean_up_tokenization_spaces", 0, "add_prefix_space", 0);
}

static ls_status write_json(const char *folder, const char *name, json_t *root, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
  ls_status status = ls_fail(error, LS_FAILED, "%s: out of memory while writing it", name);
  if (text) {
    status = ls_file_write(ls_arena_printf(arena, "%s/%s", folder, name),
                           ls_arena_printf(arena, "%s\n", text), strlen(text) + 1, error);
  }
  free(text);
  json_decref(root);
  ls_arena_destroy(&arena);
  return status;
}

ls_status ls_byte_form_write(const char *folder, ls_error *error) {
  LS_TRY(write_json(folder, "tokenizer.json", tokenizer_file(), error));
  return write_json(folder, "tokenizer_config.json", configuration(), error);
}

/* What decides ids: the model, what comes before it and what is added to it. */
static bool same_ids(const json_t *root) {
  static const char *const parts[] = {"added_tokens", "normalizer", "pre_tokenizer", "model"};
  json_t *ours = tokenizer_file();
  bool same = ours != NULL;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    same = same && json_equal(json_object_get(root, parts[i]), json_object_get(ours, parts[i]));
  }
  json_decref(ours);
  return same;
}

bool ls_byte_form_is(const char *text, size_t bytes) {
  json_t *root;
  if (bytes > FORM_BYTES || ls_json_parse("", text, bytes, 0, &root, NULL) != LS_OK) return false;
  const bool same = same_ids(root);
  json_decref(root);
  return same;
}
