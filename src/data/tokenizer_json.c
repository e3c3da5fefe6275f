/* The byte tokenizer as the files that Hugging Face's tokenizers and transformers read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/tokenizer.h"
#include "text/json.h"

enum { BYTES = 256, CHARACTER_BYTES = 4 };

/* GPT-2's alphabet: a byte that prints in Latin-1 stands for itself, the others are U+0100 and on
 * in order. All are at most two bytes of UTF-8. */
static void byte_character(int byte, char text[CHARACTER_BYTES]) {
  int point = 0x100;
  for (int each = 0; each <= byte; each++) {
    const bool prints = (each >= '!' && each <= '~') || (each >= 0xa1 && each != 0xad);
    if (each == byte && prints) point = byte;
    if (each < byte && !prints) point++;
  }
  const int high = 0xc0 | point >> 6, low = 0x80 | (point & 0x3f);
  if (point < 0x80) {
    snprintf(text, CHARACTER_BYTES, "%c", point);
  } else {
    snprintf(text, CHARACTER_BYTES, "%c%c", high, low);
  }
}

static json_t *vocabulary(void) {
  json_t *made = json_object();
  for (int byte = 0; byte < BYTES; byte++) {
    char text[CHARACTER_BYTES];
    byte_character(byte, text);
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

ls_status ls_tokenizer_write(const ls_tokenizer *tokenizer, const char *folder, ls_error *error) {
  LS_ASSERT(tokenizer == ls_tokenizer_bytes());
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

ls_status ls_tokenizer_of(const char *folder, const ls_tokenizer **tokenizer, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const char *path = ls_arena_printf(arena, "%s/tokenizer.json", folder);
  const char *sentences = ls_arena_printf(arena, "%s/tokenizer.model", folder);
  json_t *root = NULL;
  ls_status status = LS_OK;
  const char *other = ls_file_exists(sentences) ? sentences : NULL;
  if (ls_file_exists(path)) {
    status = ls_json_read(path, 0, &root, error);
    other = status == LS_OK && !same_ids(root) ? path : NULL;
    json_decref(root);
  }
  if (status == LS_OK && other) {
    status = ls_fail(error, LS_INPUT,
                     "%s: not yet: tokenizers other than bytes come with a later version; "
                     "data.tokenizer=bytes trains on bytes",
                     other);
  }
  if (status == LS_OK) *tokenizer = ls_tokenizer_bytes();
  ls_arena_destroy(&arena);
  return status;
}
