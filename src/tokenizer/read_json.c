/* tokenizer.json, the format of Hugging Face's tokenizers. */
#include <string.h>

#include "text/quote.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/token_pipeline.h"

/* jansson refuses \u0000 in keys, and vocabularies have it: while a file is read this character,
 * which is none and is in no file, stands for it. */
static const char stand_in[] = "\xef\xbf\xbf";
enum { STAND_IN = 3 };

/* The text with NUL where its stand-in is. */
static ls_span restore(ls_token_pipeline *self, ls_span text) {
  if (!self->nul_stands_in || !text.bytes || !memmem(text.text, text.bytes, stand_in, STAND_IN)) {
    return text;
  }
  char *copy = ls_arena_alloc(self->arena, text.bytes + 1);
  size_t count = 0;
  for (size_t i = 0; i < text.bytes;) {
    const bool nul = text.bytes - i >= STAND_IN && memcmp(text.text + i, stand_in, STAND_IN) == 0;
    copy[count++] = nul ? 0 : text.text[i];
    i += nul ? STAND_IN : 1;
  }
  return (ls_span){copy, count};
}

/* A copy of the file with stand-ins; the text itself where it needs none. Where the stand-in's
 * own escape or bytes are in it, it is left to jansson to refuse it. */
static const char *put_stand_ins(ls_token_pipeline *self, const char *text, size_t bytes) {
  if (!memmem(text, bytes, "\\u0000", 6) || memmem(text, bytes, stand_in, STAND_IN) ||
      memmem(text, bytes, "\\uffff", 6) || memmem(text, bytes, "\\uFFFF", 6)) {
    return text;
  }
  char *copy = ls_arena_alloc(self->arena, bytes + 1);
  memcpy(copy, text, bytes);
  for (size_t i = 0; i + 1 < bytes; i++) {
    if (copy[i] != '\\') continue;
    if (bytes - i >= 6 && memcmp(copy + i, "\\u0000", 6) == 0) memcpy(copy + i, "\\uffff", 6);
    i++; /* the escaped character */
  }
  self->nul_stands_in = true;
  return copy;
}

static ls_span span_of(ls_token_pipeline *self, const json_t *string) {
  return restore(self, (ls_span){json_string_value(string), json_string_length(string)});
}

/* {"the": 5, ...}. */
static ls_status read_pieces(ls_token_pipeline *self, const char *where, const json_t *vocabulary,
                             ls_error *error) {
  const char *key;
  json_t *value;
  if (!json_is_object(vocabulary) || !json_object_size(vocabulary)) {
    return ls_fail(error, LS_INPUT, "%s: \"vocab\": expected an object of pieces and their ids",
                   where);
  }
  json_object_foreach((json_t *)vocabulary, key, value) {
    if (!json_is_integer(value)) {
      char shown[LS_QUOTE_BYTES];
      return ls_fail(error, LS_INPUT, "%s: \"vocab\": \"%s\": expected a whole number", where,
                     ls_quote(shown, key, strlen(key)));
    }
    LS_TRY(ls_vocabulary_add(self->vocabulary, where, restore(self, (ls_span){key, strlen(key)}),
                             json_integer_value(value), error));
  }
  return LS_OK;
}

/* "left right", or ["left", "right"] where pieces have spaces. */
static bool split_merge(ls_token_pipeline *self, const json_t *merge, ls_span *left,
                        ls_span *right) {
  if (json_is_array(merge)) {
    const json_t *first = json_array_get(merge, 0), *second = json_array_get(merge, 1);
    if (json_array_size(merge) != 2 || !json_is_string(first) || !json_is_string(second)) {
      return false;
    }
    *left = span_of(self, first);
    *right = span_of(self, second);
    return true;
  }
  if (!json_is_string(merge)) return false;
  const ls_span both = span_of(self, merge);
  const char *space = memchr(both.text, ' ', both.bytes);
  if (!space) return false;
  *left = (ls_span){both.text, (size_t)(space - both.text)};
  *right = (ls_span){space + 1, both.bytes - left->bytes - 1};
  return left->bytes && right->bytes && !memchr(right->text, ' ', right->bytes);
}

static ls_status read_merges(ls_token_pipeline *self, const char *where, const json_t *merges,
                             ls_error *error) {
  ls_bytes both = {0};
  ls_status status = LS_OK;
  for (size_t i = 0; i < json_array_size(merges) && status == LS_OK; i++) {
    ls_span left, right;
    if (!split_merge(self, json_array_get(merges, i), &left, &right)) {
      status = ls_fail(error, LS_INPUT, "%s: \"merges\": entry %zu: expected two pieces", where, i);
      break;
    }
    both.count = 0;
    ls_bytes_append(&both, left.text, left.bytes);
    ls_bytes_append(&both, right.text, right.bytes);
    const ls_span made = {both.data, both.count};
    const int32_t ids[] = {ls_vocabulary_find(self->vocabulary, left),
                           ls_vocabulary_find(self->vocabulary, right),
                           ls_vocabulary_find(self->vocabulary, made)};
    const ls_span named = ids[0] < 0 ? left : ids[1] < 0 ? right : made;
    if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0) {
      char shown[LS_QUOTE_BYTES];
      status = ls_fail(error, LS_INPUT,
                       "%s: \"merges\": entry %zu names \"%s\", which is not in \"vocab\"", where,
                       i, ls_quote(shown, named.text, named.bytes));
      break;
    }
    ls_bpe_add_merge(self->bpe, ids[0], ids[1], (uint32_t)i, ids[2]);
  }
  ls_bytes_free(&both);
  return status;
}

/* Pieces as bytes: the vocabulary in which words are looked up whole. */
static ls_status make_byte_vocabulary(ls_token_pipeline *self, const char *where,
                                      ls_vocabulary **bytes, ls_error *error) {
  ls_bytes made = {0};
  ls_status status = LS_OK;
  *bytes = ls_vocabulary_create(self->arena);
  for (int32_t id = 0; id < self->vocabulary->count && status == LS_OK; id++) {
    const ls_span piece = self->vocabulary->pieces[id];
    made.count = 0;
    if (!piece.text || !piece.bytes || !ls_byte_level_read(piece, &made)) continue;
    status = ls_vocabulary_add(*bytes, where, (ls_span){made.data, made.count}, id, error);
  }
  ls_bytes_free(&made);
  return status;
}

static const int32_t *byte_symbols(ls_token_pipeline *self) {
  int32_t *ids = LS_NEW_ARRAY(self->arena, int32_t, 256);
  for (int byte = 0; byte < 256; byte++) {
    char text[4];
    const int bytes = ls_unicode_put(ls_byte_level_point(byte), text);
    ids[byte] = ls_vocabulary_find(self->vocabulary, (ls_span){text, (size_t)bytes});
  }
  return ids;
}

/* "<0x00>" to "<0xFF>"; those that are missing are -1. */
static const int32_t *byte_pieces(ls_token_pipeline *self) {
  int32_t *ids = LS_NEW_ARRAY(self->arena, int32_t, 256);
  for (int byte = 0; byte < 256; byte++) {
    const char *name = ls_arena_printf(self->arena, "<0x%02X>", (unsigned)byte);
    ids[byte] = ls_vocabulary_find(self->vocabulary, (ls_span){name, strlen(name)});
  }
  return ids;
}

static ls_status refuse_options(const ls_json_object *model, ls_error *error) {
  static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  for (size_t i = 0; i < sizeof affixes / sizeof *affixes; i++) {
    const char *text;
    LS_TRY(ls_json_string_or(model, affixes[i], "", &text, error));
    if (!*text) continue;
    return ls_fail(error, LS_INPUT, "%s: \"%s\" is not supported but when it is empty",
                   model->where, affixes[i]);
  }
  double dropout;
  LS_TRY(ls_json_number_or(model, "dropout", 0, &dropout, error));
  if (dropout == 0) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: \"dropout\" is not supported but when it is 0",
                 model->where);
}

static ls_status read_unknown(const ls_token_pipeline *self, const ls_json_object *model,
                              const char *unknown, int32_t *id, ls_error *error) {
  char shown[LS_QUOTE_BYTES];
  *id = ls_vocabulary_find(self->vocabulary, (ls_span){unknown, strlen(unknown)});
  if (*id >= 0) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: \"unk_token\": \"%s\" is not in \"vocab\"", model->where,
                 ls_quote(shown, unknown, strlen(unknown)));
}

static ls_status read_bpe(ls_token_pipeline *self, const ls_json_object *model, ls_error *error) {
  const json_t *merges = json_object_get(model->json, "merges");
  const char *unknown;
  bool fall_back, ignore;
  ls_bpe_options options = {.unknown = -1};
  LS_TRY(refuse_options(model, error));
  LS_TRY(ls_json_bool_or(model, "byte_fallback", false, &fall_back, error));
  LS_TRY(ls_json_bool_or(model, "ignore_merges", false, &ignore, error));
  LS_TRY(ls_json_bool_or(model, "fuse_unk", false, &options.fuse_unknown, error));
  LS_TRY(ls_json_string_or(model, "unk_token", NULL, &unknown, error));
  if (!json_is_array(merges)) {
    return ls_fail(error, LS_INPUT, "%s: \"merges\": expected a list of pairs of pieces",
                   model->where);
  }
  LS_TRY(read_pieces(self, model->where, json_object_get(model->json, "vocab"), error));
  if (unknown) LS_TRY(read_unknown(self, model, unknown, &options.unknown, error));
  ls_vocabulary *whole = self->vocabulary;
  if (self->pre.bytes) {
    options.byte_symbols = byte_symbols(self);
    LS_TRY(make_byte_vocabulary(self, model->where, &whole, error));
  } else {
    /* Added tokens join the vocabulary later, and are no symbols. */
    LS_TRY(ls_vocabulary_copy(self->arena, self->vocabulary, model->where, &whole, error));
    options.symbols = whole;
    if (fall_back) options.byte_ids = byte_pieces(self);
  }
  if (ignore) options.whole = whole;
  options.pieces = self->vocabulary->count;
  self->bpe = ls_bpe_create(self->arena, &options, (int64_t)json_array_size(merges));
  return read_merges(self, model->where, merges, error);
}

static ls_status read_word_piece(ls_token_pipeline *self, const ls_json_object *model,
                                 ls_error *error) {
  const char *unknown, *continuing;
  ls_vocabulary *whole;
  ls_word_piece_options options = {0};
  LS_TRY(ls_json_string_or(model, "unk_token", "[UNK]", &unknown, error));
  LS_TRY(ls_json_string_or(model, "continuing_subword_prefix", "##", &continuing, error));
  LS_TRY(ls_json_count_or(model, "max_input_chars_per_word", 100, &options.longest, error));
  LS_TRY(read_pieces(self, model->where, json_object_get(model->json, "vocab"), error));
  LS_TRY(read_unknown(self, model, unknown, &options.unknown, error));
  if (self->pre.bytes)
    return ls_fail(error, LS_INPUT, "%s: WordPiece behind a ByteLevel is not supported",
                   model->where);
  /* Added tokens join the vocabulary later, and are no pieces. */
  LS_TRY(ls_vocabulary_copy(self->arena, self->vocabulary, model->where, &whole, error));
  const char *copy = ls_arena_strdup(self->arena, continuing);
  options.vocabulary = whole;
  options.continuing = (ls_span){copy, strlen(copy)};
  self->word_piece = ls_word_piece_create(self->arena, &options);
  return LS_OK;
}

static ls_status read_model(ls_token_pipeline *self, const ls_json_object *root, ls_error *error) {
  ls_json_object model;
  const char *type;
  LS_TRY(ls_json_child(self->arena, root, "model", &model, error));
  LS_TRY(ls_json_string_or(&model, "type", "BPE", &type, error));
  if (strcmp(type, "BPE") == 0) return read_bpe(self, &model, error);
  if (strcmp(type, "WordPiece") == 0) return read_word_piece(self, &model, error);
  char shown[LS_QUOTE_BYTES];
  return ls_fail(error, LS_INPUT, "%s: the model %s is not supported; BPE and WordPiece are",
                 model.where, ls_quote(shown, type, strlen(type)));
}

/* The content as the normalized text has it. */
static ls_status normalize_content(ls_token_pipeline *self, ls_span *content, ls_error *error) {
  ls_matcher matcher = {0};
  ls_normalizer_work work = {.matcher = &matcher};
  ls_span made;
  const ls_status status =
      ls_normalizer_apply(&self->normalizer, *content, false, &work, &made, error);
  if (status == LS_OK) {
    char *copy = ls_arena_alloc(self->arena, made.bytes + 1);
    memcpy(copy, made.text, made.bytes);
    *content = (ls_span){copy, made.bytes};
  }
  ls_bytes_free(&work.made[0]);
  ls_bytes_free(&work.made[1]);
  ls_matcher_free(&matcher);
  return status;
}

static ls_status read_added_token(ls_token_pipeline *self, const char *where, const json_t *json,
                                  ls_error *error) {
  ls_json_object object;
  int64_t id;
  bool special, normalized;
  ls_added_token token = {0};
  LS_TRY(ls_json_root(where, json, &object, error));
  LS_TRY(ls_json_int(&object, "id", &id, error));
  LS_TRY(ls_json_bool_or(&object, "special", false, &special, error));
  LS_TRY(ls_json_bool_or(&object, "normalized", !special, &normalized, error));
  LS_TRY(ls_json_bool_or(&object, "single_word", false, &token.single_word, error));
  LS_TRY(ls_json_bool_or(&object, "lstrip", false, &token.lstrip, error));
  LS_TRY(ls_json_bool_or(&object, "rstrip", false, &token.rstrip, error));
  const json_t *content = json_object_get(json, "content");
  if (!json_is_string(content)) {
    return ls_fail(error, LS_INPUT, "%s: \"content\": expected a string", where);
  }
  if (id < 0 || id >= LS_VOCABULARY_MOST) {
    return ls_fail(error, LS_INPUT, "%s: \"id\": found %lld; expected one from 0 to %d", where,
                   (long long)id, LS_VOCABULARY_MOST - 1);
  }
  token.id = (int32_t)id;
  const ls_span text = span_of(self, content);
  char *copy = ls_arena_alloc(self->arena, text.bytes + 1);
  memcpy(copy, text.text, text.bytes);
  token.content = (ls_span){copy, text.bytes};
  LS_TRY(ls_token_pipeline_add_token(self, where, &token, normalized ? NULL : &self->added, special,
                                     error));
  if (!normalized) return LS_OK;
  LS_TRY(normalize_content(self, &token.content, error));
  *LS_APPEND(self->arena, &self->renamed) = token;
  if (!self->added_normalized) self->added_normalized = ls_added_tokens_create(self->arena);
  ls_added_tokens_add(self->added_normalized, &token);
  return LS_OK;
}

static ls_status read_added(ls_token_pipeline *self, const ls_json_object *root, ls_error *error) {
  const json_t *list = json_object_get(root->json, "added_tokens");
  if (!list || json_is_null(list)) return LS_OK;
  if (!json_is_array(list)) {
    return ls_fail(error, LS_INPUT, "%s: \"added_tokens\": expected a list", root->where);
  }
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *where =
        ls_arena_printf(self->arena, "%s: \"added_tokens\": entry %zu", root->where, i);
    LS_TRY(read_added_token(self, where, json_array_get(list, i), error));
  }
  return LS_OK;
}

ls_status ls_token_pipeline_read_form(ls_token_pipeline *self, const char *path, const json_t *json,
                                      ls_error *error) {
  ls_json_object root;
  LS_TRY(ls_json_root(path, json, &root, error));
  LS_TRY(ls_normalizer_read(self->arena, path, json_object_get(json, "normalizer"),
                            &self->normalizer, error));
  LS_TRY(ls_pre_tokenizer_read(self->arena, path, json_object_get(json, "pre_tokenizer"),
                               &self->pre, error));
  LS_TRY(ls_token_decoder_read(self->arena, path, json_object_get(json, "decoder"), &self->decoder,
                               error));
  LS_TRY(read_model(self, &root, error));
  LS_TRY(read_added(self, &root, error));
  return ls_post_processor_read(self, path, json_object_get(json, "post_processor"), error);
}

ls_status ls_token_pipeline_read_json(ls_token_pipeline *self, const char *path, const char *text,
                                      size_t bytes, ls_error *error) {
  json_t *json;
  LS_TRY(ls_json_parse(path, put_stand_ins(self, text, bytes), bytes, 0, &json, error));
  const ls_status status = ls_token_pipeline_read_form(self, path, json, error);
  json_decref(json);
  return status;
}
