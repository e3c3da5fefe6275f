#include "tokenizer/sentence.h"

#include <string.h>

#include "tokenizer/token_decoder.h"

static const char sign[] = "\xe2\x96\x81"; /* ▁ */
enum { SIGN = 3 };

/* What the text's first character or characters become; *taken of them. */
static ls_span take_prefix(const ls_sentence *self, ls_span text, size_t *taken) {
  int32_t id;
  *taken = ls_added_tokens_prefix(self->user_defined, text, &id);
  if (*taken) return (ls_span){text.text, *taken};
  ls_span made;
  *taken = ls_charsmap_find(&self->map, text, &made);
  if (*taken) return made;
  const char *at = text.text;
  ls_unicode_next(&at);
  *taken = (size_t)(at - text.text);
  return (ls_span){text.text, *taken};
}

static void put_space(const ls_sentence *self, ls_bytes *out) {
  ls_bytes_append(out, self->escape_spaces ? sign : " ", self->escape_spaces ? SIGN : 1);
}

static void put_text(const ls_sentence *self, ls_span text, ls_bytes *out) {
  const char *at = text.text, *end = at + text.bytes;
  while (at < end) {
    const char *space = memchr(at, ' ', (size_t)(end - at));
    if (!space) space = end;
    ls_bytes_append(out, at, (size_t)(space - at));
    if (space < end) put_space(self, out);
    at = space + 1;
  }
}

static bool ends_with_space(const ls_sentence *self, const ls_bytes *out) {
  const size_t bytes = self->escape_spaces ? SIGN : 1;
  return out->count >= bytes &&
         memcmp(out->data + out->count - bytes, self->escape_spaces ? sign : " ", bytes) == 0;
}

ls_span ls_sentence_normalize(const ls_sentence *self, ls_span text, bool goes_on, bool more,
                              ls_bytes *out) {
  size_t taken;
  out->count = 0;
  ls_bytes_reserve(out, text.bytes + text.bytes / 2 + SIGN);
  while (self->remove_extra_spaces && !goes_on && text.bytes) {
    const ls_span made = take_prefix(self, text, &taken);
    if (made.bytes != 1 || made.text[0] != ' ') break;
    text.text += taken;
    text.bytes -= taken;
  }
  if (!text.bytes) return (ls_span){out->data, 0};
  if (self->add_dummy_prefix && !self->space_behind && !goes_on) put_space(self, out);
  bool after_space = self->remove_extra_spaces && !goes_on;
  if (!self->map.unit_count && !self->user_defined && !self->remove_extra_spaces) {
    put_text(self, text, out);
    text.bytes = 0;
  }
  while (text.bytes) {
    ls_span made = take_prefix(self, text, &taken);
    while (after_space && made.bytes && made.text[0] == ' ') {
      made.text++;
      made.bytes--;
    }
    if (made.bytes) {
      put_text(self, made, out);
      after_space = self->remove_extra_spaces && made.text[made.bytes - 1] == ' ';
    }
    text.text += taken;
    text.bytes -= taken;
  }
  while (self->remove_extra_spaces && !more && ends_with_space(self, out)) {
    out->count -= self->escape_spaces ? SIGN : 1;
  }
  if (self->add_dummy_prefix && self->space_behind && !more) put_space(self, out);
  return (ls_span){out->data, out->count};
}

/* ▁ becomes a space. */
static void put_piece(ls_span piece, ls_bytes *out) {
  while (piece.bytes) {
    const char *found = memmem(piece.text, piece.bytes, sign, SIGN);
    const size_t before = found ? (size_t)(found - piece.text) : piece.bytes;
    ls_bytes_append(out, piece.text, before);
    if (found) ls_bytes_append(out, " ", 1);
    const size_t used = before + (found ? SIGN : 0);
    piece.text += used;
    piece.bytes -= used;
  }
}

void ls_sentence_piece(const ls_sentence *self, int32_t id, ls_span piece, ls_bytes *out) {
  const int byte = ls_byte_piece(piece);
  const char single = (char)byte;
  switch ((ls_piece_kind)self->kinds[id]) {
    case LS_PIECE_BYTE: ls_bytes_append(out, &single, byte >= 0 ? 1 : 0); break;
    case LS_PIECE_UNKNOWN:
      ls_bytes_append(out, self->unknown_surface.text, self->unknown_surface.bytes);
      break;
    case LS_PIECE_CONTROL: ls_bytes_append(out, piece.text, piece.bytes); break;
    case LS_PIECE_NORMAL:
    case LS_PIECE_USER_DEFINED:
    case LS_PIECE_UNUSED: put_piece(piece, out); break;
  }
}

void ls_sentence_decode(const ls_sentence *self, const ls_spans *pieces, const int32_t *ids,
                        ls_bytes *out) {
  bool at_start = true, space_seen = false;
  ls_bytes bytes = {0}, repaired = {0};
  for (size_t i = 0; i < pieces->count;) {
    bytes.count = 0;
    for (; i < pieces->count && self->kinds[ids[i]] == LS_PIECE_BYTE; i++) {
      ls_sentence_piece(self, ids[i], pieces->items[i], &bytes);
    }
    if (bytes.count) {
      const ls_span text = ls_unicode_repair((ls_span){bytes.data, bytes.count}, true, &repaired);
      ls_bytes_append(out, text.text, text.bytes);
    }
    if (i == pieces->count) break;
    if (space_seen || out->count) at_start = false;
    ls_span piece = pieces->items[i];
    const bool text =
        self->kinds[ids[i]] == LS_PIECE_NORMAL || self->kinds[ids[i]] == LS_PIECE_USER_DEFINED;
    if (at_start && text && (self->add_dummy_prefix || self->remove_extra_spaces) &&
        piece.bytes >= SIGN && memcmp(piece.text, sign, SIGN) == 0) {
      piece.text += SIGN;
      piece.bytes -= SIGN;
      space_seen = !self->remove_extra_spaces;
    }
    ls_sentence_piece(self, ids[i], piece, out);
    i++;
  }
  ls_bytes_free(&bytes);
  ls_bytes_free(&repaired);
}
