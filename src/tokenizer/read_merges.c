/* GPT-2's vocab.json and merges.txt. */
#include <string.h>

#include "text/json.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/token_pipeline.h"

/* What tokenizer.json says of GPT-2's tokenizer; vocabulary and merges are put in. */
static json_t *gpt2_form(json_t *vocabulary, json_t *merges) {
  json_t *byte_level = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                                 "trim_offsets", 1, "use_regex", 1);
  json_t *model =
      json_pack("{s:s, s:o, s:o}", "type", "BPE", "vocab", vocabulary, "merges", merges);
  return json_pack("{s:O, s:o, s:o, s:[]}", "pre_tokenizer", byte_level, "decoder", byte_level,
                   "model", model, "added_tokens");
}

/* "left right" on each line; "#version" may be the first. */
static ls_status read_lines(const char *path, const char *text, size_t bytes, json_t *merges,
                            ls_error *error) {
  int line = 0;
  for (const char *at = text, *end = text + bytes; at < end;) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    if (!stop) stop = end;
    size_t length = (size_t)(stop - at);
    if (length && at[length - 1] == '\r') length--;
    line++;
    const bool header = line == 1 && length >= 8 && memcmp(at, "#version", 8) == 0;
    if (length && !header) {
      json_t *merge = json_stringn(at, length);
      const char *space = memchr(at, ' ', length);
      const bool two = space && space > at && space + 1 < at + length &&
                       !memchr(space + 1, ' ', (size_t)(at + length - space - 1));
      if (!two || json_array_append_new(merges, merge) != 0) {
        if (!two) json_decref(merge);
        return ls_fail(error, LS_INPUT,
                       "%s:%d: expected two pieces of UTF-8 with one space between them", path,
                       line);
      }
    }
    at = stop + 1;
  }
  return LS_OK;
}

/* GPT-2's end of text is a piece like others in vocab.json. */
static void add_end_of_text(json_t *root, const json_t *vocabulary) {
  static const char end[] = "<|endoftext|>";
  const json_t *id = json_object_get(vocabulary, end);
  if (!json_is_integer(id)) return;
  json_array_append_new(json_object_get(root, "added_tokens"),
                        json_pack("{s:I, s:s, s:b, s:b}", "id", json_integer_value(id), "content",
                                  end, "special", 1, "normalized", 0));
}

ls_status ls_token_pipeline_read_merges(ls_token_pipeline *self, const char *vocabulary_path,
                                        const char *vocabulary_text, size_t vocabulary_bytes,
                                        const char *merges_path, const char *merges_text,
                                        size_t merges_bytes, ls_error *error) {
  json_t *vocabulary;
  LS_TRY(ls_json_parse(vocabulary_path, vocabulary_text, vocabulary_bytes, 0, &vocabulary, error));
  json_t *merges = json_array();
  ls_status status = read_lines(merges_path, merges_text, merges_bytes, merges, error);
  if (status != LS_OK) {
    json_decref(vocabulary);
    json_decref(merges);
    return status;
  }
  json_t *root = gpt2_form(vocabulary, merges);
  if (!root) return ls_fail(error, LS_FAILED, "%s: out of memory", vocabulary_path);
  add_end_of_text(root, vocabulary);
  status = ls_token_pipeline_read_form(self, vocabulary_path, root, error);
  json_decref(root);
  return status;
}
