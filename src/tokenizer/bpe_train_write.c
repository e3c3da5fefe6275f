/* A trained tokenizer as the files that Hugging Face's tokenizers and transformers read. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "text/json.h"
#include "tokenizer/bpe_train.h"

static json_t *text_of(ls_span piece) {
  return json_stringn(piece.text, piece.bytes);
}

static json_t *vocabulary(const ls_bpe_trained *trained) {
  json_t *made = json_object();
  for (int32_t id = 0; id < trained->vocabulary->count; id++) {
    json_object_set_new(made, trained->vocabulary->pieces[id].text, json_integer(id));
  }
  return made;
}

/* "a b": the alphabet has no space, and all versions of the library read this. */
static json_t *merges(const ls_bpe_trained *trained) {
  json_t *made = json_array();
  for (int i = 0; i < trained->rule_count; i++) {
    const ls_bpe_rule *rule = &trained->rules[i];
    const ls_span left = trained->vocabulary->pieces[rule->left];
    const ls_span right = trained->vocabulary->pieces[rule->right];
    json_array_append_new(
        made, json_sprintf("%.*s %.*s", (int)left.bytes, left.text, (int)right.bytes, right.text));
  }
  return made;
}

static json_t *added_tokens(const ls_bpe_trained *trained) {
  json_t *made = json_array();
  for (int id = 0; id < trained->special_count; id++) {
    json_array_append_new(
        made, json_pack("{s:i, s:o, s:b, s:b, s:b, s:b, s:b}", "id", id, "content",
                        text_of(trained->vocabulary->pieces[id]), "single_word", 0, "lstrip", 0,
                        "rstrip", 0, "normalized", 0, "special", 1));
  }
  return made;
}

static json_t *byte_level(void) {
  return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                   "trim_offsets", 1, "use_regex", 1);
}

static json_t *tokenizer_file(const ls_bpe_trained *trained) {
  json_t *model = json_pack(
      "{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
      "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
      "ignore_merges", 0, "vocab", vocabulary(trained), "merges", merges(trained));
  return json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:o, s:o}", "version", "1.0", "truncation",
                   "padding", "added_tokens", added_tokens(trained), "normalizer", "pre_tokenizer",
                   byte_level(), "post_processor", "decoder", byte_level(), "model", model);
}

static json_t *configuration(const ls_bpe_trained *trained) {
  json_t *made = json_pack("{s:s, s:b, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                           "clean_up_tokenization_spaces", 0, "add_prefix_space", 0);
  if (trained->special_count > 0)
    json_object_set_new(made, "eos_token", text_of(trained->vocabulary->pieces[0]));
  return made;
}

static ls_status write_json(ls_arena *arena, const char *folder, const char *name, json_t *root,
                            ls_error *error) {
  char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
  json_decref(root);
  if (!text) return ls_fail(error, LS_FAILED, "%s: out of memory while writing it", name);
  const char *path = ls_arena_printf(arena, "%s/%s", folder, name);
  const char *line = ls_arena_printf(arena, "%s\n", text);
  free(text);
  const ls_status status = ls_file_write(path, line, strlen(line), error);
  return status;
}

static ls_status write_aside(ls_arena *arena, const ls_bpe_trained *trained, const char *aside,
                             ls_error *error) {
  LS_TRY(ls_directory_make(aside, error));
  LS_TRY(write_json(arena, aside, "tokenizer.json", tokenizer_file(trained), error));
  return write_json(arena, aside, "tokenizer_config.json", configuration(trained), error);
}

ls_status ls_bpe_trained_write(const ls_bpe_trained *trained, const char *folder, ls_error *error) {
  LS_TRY(ls_directory_check_new(folder, error));
  ls_arena *arena = ls_arena_create();
  size_t length = strlen(folder);
  while (length > 1 && folder[length - 1] == '/') length--;
  const char *target = ls_arena_printf(arena, "%.*s", (int)length, folder);
  const char *aside = ls_arena_printf(arena, "%s.tmp-%ld", target, (long)getpid());
  ls_status status = write_aside(arena, trained, aside, error);
  if (status == LS_OK) {
    (void)rmdir(target); /* an empty one */
    status = ls_directory_publish(aside, target, error);
  }
  if (status != LS_OK) (void)!ls_directory_remove(aside, NULL);
  ls_arena_destroy(&arena);
  return status;
}
