#include "tokenizer/token_decoder.h"

#include <string.h>

#include "text/quote.h"
#include "tokenizer/byte_level.h"

enum { DEEPEST = 8 }; /* Sequences in Sequences */

static ls_status read_text(ls_arena *arena, const ls_json_object *object, const char *key,
                           ls_span *text, ls_error *error) {
  const json_t *json = json_object_get(object->json, key);
  if (!json_is_string(json)) {
    return ls_fail(error, LS_INPUT, "%s: \"%s\": expected a string", object->where, key);
  }
  char *copy = ls_arena_alloc(arena, json_string_length(json) + 1);
  memcpy(copy, json_string_value(json), json_string_length(json));
  *text = (ls_span){copy, json_string_length(json)};
  return LS_OK;
}

static ls_status read_step(ls_arena *arena, const ls_json_object *object, const char *type,
                           ls_token_decoder *decoder, ls_error *error) {
  static const char *const names[] = {
      [LS_DECODE_BYTE_LEVEL] = "ByteLevel",
      [LS_DECODE_REPLACE] = "Replace",
      [LS_DECODE_BYTE_FALLBACK] = "ByteFallback",
      [LS_DECODE_FUSE] = "Fuse",
      [LS_DECODE_STRIP] = "Strip",
      [LS_DECODE_METASPACE] = "Metaspace",
      [LS_DECODE_WORD_PIECE] = "WordPiece",
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(names[i], type) != 0) continue;
    ls_token_decoder_step *step = LS_APPEND(arena, &decoder->steps);
    step->kind = (ls_token_decoder_kind)i;
    ls_prepend_scheme scheme;
    bool split;
    switch (step->kind) {
      case LS_DECODE_BYTE_LEVEL:
      case LS_DECODE_BYTE_FALLBACK:
      case LS_DECODE_FUSE: return LS_OK;
      case LS_DECODE_REPLACE:
        LS_TRY(read_text(arena, object, "content", &step->content, error));
        return ls_component_pattern(arena, object, &step->sought, &step->pattern, error);
      case LS_DECODE_STRIP:
        LS_TRY(read_text(arena, object, "content", &step->content, error));
        LS_TRY(ls_json_int_or(object, "start", 0, &step->start, error));
        return ls_json_int_or(object, "stop", 0, &step->stop, error);
      case LS_DECODE_METASPACE:
        LS_TRY(ls_metaspace_read(arena, object, &step->sought, &scheme, &split, error));
        step->prefix = scheme != LS_PREPEND_NEVER;
        return LS_OK;
      case LS_DECODE_WORD_PIECE:
        LS_TRY(read_text(arena, object, "prefix", &step->sought, error));
        return ls_json_bool_or(object, "cleanup", true, &step->prefix, error);
    }
  }
  char shown[LS_QUOTE_BYTES];
  return ls_fail(error, LS_INPUT,
                 "%s: the decoder %s is not supported; ByteLevel, Replace, ByteFallback, Fuse, "
                 "Strip, Metaspace, WordPiece and Sequence are",
                 object->where, ls_quote(shown, type, strlen(type)));
}

static ls_status read_any(ls_arena *arena, const char *where, const json_t *json, int depth,
                          ls_token_decoder *decoder, ls_error *error) {
  ls_json_object object;
  const char *type;
  LS_TRY(ls_json_root(where, json, &object, error));
  LS_TRY(ls_json_string(&object, "type", &type, error));
  if (strcmp(type, "Sequence") != 0) return read_step(arena, &object, type, decoder, error);
  const json_t *list = json_object_get(json, "decoders");
  if (!json_is_array(list) || depth == DEEPEST) {
    return ls_fail(error, LS_INPUT, "%s: \"decoders\": expected a list, at most %d deep", where,
                   DEEPEST);
  }
  for (size_t i = 0; i < json_array_size(list); i++) {
    LS_TRY(read_any(arena, where, json_array_get(list, i), depth + 1, decoder, error));
  }
  return LS_OK;
}

ls_status ls_token_decoder_read(ls_arena *arena, const char *where, const json_t *json,
                                ls_token_decoder *decoder, ls_error *error) {
  *decoder = (ls_token_decoder){0};
  if (!json || json_is_null(json)) return LS_OK;
  decoder->given = true;
  return read_any(arena, ls_arena_printf(arena, "%s: \"decoder\"", where), json, 0, decoder, error);
}

void ls_token_decoder_free(ls_token_decoder *decoder) {
  for (int i = 0; i < decoder->steps.count; i++) ls_pattern_free(decoder->steps.items[i].pattern);
}

static int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int ls_byte_piece(ls_span piece) {
  if (piece.bytes != 6 || memcmp(piece.text, "<0x", 3) != 0 || piece.text[5] != '>') return -1;
  const int high = hex_value(piece.text[3]), low = hex_value(piece.text[4]);
  return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Texts that steps make live in an arena until all is decoded. */
typedef struct decoding {
  ls_arena *arena;
  ls_spans *pieces;
  ls_matcher matcher;
  ls_bytes scratch;
  size_t most; /* bytes of a piece */
} decoding;

static ls_span keep(decoding *self, const char *text, size_t bytes) {
  char *copy = ls_arena_alloc(self->arena, bytes + 1);
  if (bytes) memcpy(copy, text, bytes);
  return (ls_span){copy, bytes};
}

static ls_status replace_pieces(decoding *self, const ls_token_decoder_step *step,
                                ls_error *error) {
  for (size_t i = 0; i < self->pieces->count; i++) {
    ls_span *piece = &self->pieces->items[i];
    if (!step->pattern &&
        !memmem(piece->text, piece->bytes, step->sought.text, step->sought.bytes)) {
      continue;
    }
    self->scratch.count = 0;
    ls_bytes_reserve(&self->scratch, 1);
    LS_TRY(ls_replace_all(*piece, step->sought, step->pattern, &self->matcher, step->content,
                          self->most, &self->scratch, error));
    *piece = keep(self, self->scratch.data, self->scratch.count);
  }
  return LS_OK;
}

/* Bytes in a row are one piece where together they are UTF-8, else each is U+FFFD. */
static void join_byte_pieces(decoding *self) {
  ls_spans *pieces = self->pieces;
  size_t kept = 0;
  for (size_t i = 0; i < pieces->count;) {
    self->scratch.count = 0;
    size_t end = i;
    for (int byte; end < pieces->count && (byte = ls_byte_piece(pieces->items[end])) >= 0; end++) {
      const char each = (char)byte;
      ls_bytes_append(&self->scratch, &each, 1);
    }
    if (end == i) {
      pieces->items[kept++] = pieces->items[i++];
      continue;
    }
    ls_bytes unused = {0};
    const ls_span joined = {self->scratch.data, self->scratch.count};
    const bool whole = ls_unicode_repair(joined, true, &unused).text == joined.text;
    ls_bytes_free(&unused);
    if (whole) {
      pieces->items[kept++] = keep(self, joined.text, joined.bytes);
    } else {
      for (; i < end; i++) pieces->items[kept++] = (ls_span){"\xef\xbf\xbd", 3};
    }
    i = end;
  }
  pieces->count = kept;
}

static void append_bytes(ls_span piece, ls_bytes *out) {
  if (!ls_byte_level_read(piece, out)) ls_bytes_append(out, piece.text, piece.bytes);
}

/* All pieces become one; with `bytes` they are read as bytes in the alphabet. */
static void fuse(decoding *self, bool bytes) {
  ls_bytes repaired = {0};
  self->scratch.count = 0;
  ls_bytes_reserve(&self->scratch, 1);
  for (size_t i = 0; i < self->pieces->count; i++) {
    const ls_span piece = self->pieces->items[i];
    if (bytes) {
      append_bytes(piece, &self->scratch);
    } else {
      ls_bytes_append(&self->scratch, piece.text, piece.bytes);
    }
  }
  ls_span all = {self->scratch.data, self->scratch.count};
  if (bytes) all = ls_unicode_repair(all, false, &repaired);
  all = keep(self, all.text, all.bytes);
  ls_bytes_free(&repaired);
  self->pieces->count = 0;
  ls_spans_append(self->pieces, all.text, all.bytes);
}

static void strip_pieces(decoding *self, const ls_token_decoder_step *step) {
  const ls_span sign = step->content;
  for (size_t i = 0; i < self->pieces->count && sign.bytes; i++) {
    ls_span *piece = &self->pieces->items[i];
    for (int64_t n = 0; n < step->start && piece->bytes >= sign.bytes; n++) {
      if (memcmp(piece->text, sign.text, sign.bytes) != 0) break;
      piece->text += sign.bytes;
      piece->bytes -= sign.bytes;
    }
    for (int64_t n = 0; n < step->stop && piece->bytes >= sign.bytes; n++) {
      if (memcmp(piece->text + piece->bytes - sign.bytes, sign.text, sign.bytes) != 0) break;
      piece->bytes -= sign.bytes;
    }
  }
}

/* The character becomes a space; in the first piece, where it was put first, nothing. */
static ls_status take_metaspace(decoding *self, const ls_token_decoder_step *step,
                                ls_error *error) {
  const ls_token_decoder_step spaces = {.sought = step->sought, .content = {" ", 1}};
  if (step->prefix && self->pieces->count) {
    ls_spans first = {.items = self->pieces->items, .count = 1, .capacity = 1};
    ls_spans *all = self->pieces;
    self->pieces = &first;
    const ls_token_decoder_step nothing = {.sought = step->sought, .content = {"", 0}};
    const ls_status status = replace_pieces(self, &nothing, error);
    self->pieces = all;
    LS_TRY(status);
  }
  return replace_pieces(self, &spaces, error);
}

/* What "cleanup" makes of a piece with the blank before it. */
static void clean_piece(ls_span piece, ls_bytes *made) {
  static const struct {
    const char *from, *to;
  } changes[] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                 {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                 {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  ls_bytes other = {0};
  made->count = 0;
  ls_bytes_append(made, piece.text, piece.bytes);
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    const size_t wide = strlen(changes[i].from);
    const char *at = made->data, *end = made->data + made->count, *found;
    other.count = 0;
    ls_bytes_reserve(&other, made->count + 1);
    while ((found = memmem(at, (size_t)(end - at), changes[i].from, wide)) != NULL) {
      ls_bytes_append(&other, at, (size_t)(found - at));
      ls_bytes_append(&other, changes[i].to, strlen(changes[i].to));
      at = found + wide;
    }
    ls_bytes_append(&other, at, (size_t)(end - at));
    const ls_bytes before = *made;
    *made = other;
    other = before;
  }
  ls_bytes_free(&other);
}

/* A piece that does not go on with a word has a blank before it, unless it is the first. */
static void word_piece(const ls_token_decoder_step *step, ls_span piece, bool first,
                       ls_bytes *made) {
  const ls_span prefix = step->sought;
  const bool goes_on =
      piece.bytes >= prefix.bytes && memcmp(piece.text, prefix.text, prefix.bytes) == 0;
  ls_bytes with = {0};
  ls_bytes_reserve(&with, piece.bytes + 1);
  if (!first && goes_on) piece = (ls_span){piece.text + prefix.bytes, piece.bytes - prefix.bytes};
  if (!first && !goes_on) ls_bytes_append(&with, " ", 1);
  ls_bytes_append(&with, piece.text, piece.bytes);
  if (step->prefix) {
    clean_piece((ls_span){with.data, with.count}, made);
  } else {
    made->count = 0;
    ls_bytes_append(made, with.data, with.count);
  }
  ls_bytes_free(&with);
}

static void join_word_pieces(decoding *self, const ls_token_decoder_step *step) {
  for (size_t i = 0; i < self->pieces->count; i++) {
    word_piece(step, self->pieces->items[i], i == 0, &self->scratch);
    self->pieces->items[i] = keep(self, self->scratch.data, self->scratch.count);
  }
}

static ls_status apply_step(decoding *self, const ls_token_decoder_step *step, ls_error *error) {
  switch (step->kind) {
    case LS_DECODE_BYTE_LEVEL: fuse(self, true); break;
    case LS_DECODE_REPLACE: return replace_pieces(self, step, error);
    case LS_DECODE_BYTE_FALLBACK: join_byte_pieces(self); break;
    case LS_DECODE_FUSE: fuse(self, false); break;
    case LS_DECODE_STRIP: strip_pieces(self, step); break;
    case LS_DECODE_METASPACE: return take_metaspace(self, step, error);
    case LS_DECODE_WORD_PIECE: join_word_pieces(self, step); break;
  }
  return LS_OK;
}

ls_status ls_token_decoder_apply(const ls_token_decoder *decoder, ls_spans *pieces, ls_bytes *out,
                                 ls_error *error) {
  decoding self = {.arena = ls_arena_create(), .pieces = pieces};
  ls_status status = LS_OK;
  size_t total = 0;
  for (size_t i = 0; i < pieces->count; i++) total += pieces->items[i].bytes;
  self.most = ls_replaced_most(total);
  for (int i = 0; i < decoder->steps.count && status == LS_OK; i++) {
    status = apply_step(&self, &decoder->steps.items[i], error);
  }
  for (size_t i = 0; i < pieces->count && status == LS_OK; i++) {
    if (i && !decoder->given) ls_bytes_append(out, " ", 1);
    ls_bytes_append(out, pieces->items[i].text, pieces->items[i].bytes);
  }
  ls_matcher_free(&self.matcher);
  ls_bytes_free(&self.scratch);
  ls_arena_destroy(&self.arena);
  return status;
}

ls_status ls_token_decoder_piece(const ls_token_decoder *decoder, ls_span piece, ls_bytes *out,
                                 ls_error *error) {
  ls_matcher matcher = {0};
  ls_bytes made[2] = {{0}, {0}};
  ls_status status = LS_OK;
  bool bytes = false;
  const size_t most = ls_replaced_most(piece.bytes);
  const int byte = ls_byte_piece(piece);
  const char single = (char)byte;
  for (int i = 0; i < decoder->steps.count && status == LS_OK; i++) {
    const ls_token_decoder_step *step = &decoder->steps.items[i];
    if (step->kind == LS_DECODE_BYTE_FALLBACK && byte >= 0) piece = (ls_span){&single, 1};
    if (step->kind == LS_DECODE_BYTE_LEVEL) bytes = true;
    if (step->kind == LS_DECODE_WORD_PIECE) {
      ls_bytes *made_next = piece.text == made[0].data ? &made[1] : &made[0];
      word_piece(step, piece, false, made_next);
      piece = (ls_span){made_next->data, made_next->count};
    }
    if (step->kind != LS_DECODE_REPLACE && step->kind != LS_DECODE_METASPACE) continue;
    const bool space = step->kind == LS_DECODE_METASPACE;
    ls_bytes *next = piece.text == made[0].data ? &made[1] : &made[0];
    next->count = 0;
    ls_bytes_reserve(next, 1);
    status = ls_replace_all(piece, step->sought, step->pattern, &matcher,
                            space ? (ls_span){" ", 1} : step->content, most, next, error);
    piece = (ls_span){next->data, next->count};
  }
  if (bytes) {
    append_bytes(piece, out);
  } else {
    ls_bytes_append(out, piece.text, piece.bytes);
  }
  ls_bytes_free(&made[0]);
  ls_bytes_free(&made[1]);
  ls_matcher_free(&matcher);
  return status;
}
