#include "tokenizer/word_piece.h"

#include "tokenizer/token_buffer.h"
#include "tokenizer/unicode.h"

struct ls_word_piece {
  ls_word_piece_options options;
  size_t longest; /* bytes of a piece */
};

ls_word_piece *ls_word_piece_create(ls_arena *arena, const ls_word_piece_options *options) {
  ls_word_piece *made = LS_NEW(arena, ls_word_piece);
  made->options = *options;
  for (int32_t id = 0; id < options->vocabulary->count; id++) {
    const size_t bytes = options->vocabulary->pieces[id].bytes;
    if (bytes > made->longest) made->longest = bytes;
  }
  return made;
}

static int64_t characters(ls_span word) {
  int64_t count = 0;
  for (const char *at = word.text, *end = at + word.bytes; at < end; count++) ls_unicode_next(&at);
  return count;
}

/* The longest piece that the text begins with; *bytes takes how much of it that is. `before`: bytes
 * that pieces have in front of what is theirs of the text. */
static int32_t longest_piece(const ls_word_piece *self, ls_span text, size_t before,
                             size_t *bytes) {
  size_t length = text.bytes < self->longest ? text.bytes : self->longest;
  for (; length > before; length--) {
    if (length < text.bytes && ((unsigned char)text.text[length] & 0xc0) == 0x80) continue;
    const int32_t id = ls_vocabulary_find(self->options.vocabulary, (ls_span){text.text, length});
    *bytes = length - before;
    if (id >= 0) return id;
  }
  return -1;
}

void ls_word_piece_encode(const ls_word_piece *self, ls_bytes *work, ls_span word, ls_ids *ids) {
  const ls_span continuing = self->options.continuing;
  const int64_t first = ids->count;
  bool known = characters(word) <= self->options.longest;
  for (size_t at = 0; at < word.bytes && known;) {
    ls_span rest = {word.text + at, word.bytes - at};
    if (at > 0) {
      work->count = 0;
      ls_bytes_append(work, continuing.text, continuing.bytes);
      ls_bytes_append(work, rest.text, rest.bytes);
      rest = (ls_span){work->data, work->count};
    }
    size_t bytes = 0;
    const int32_t id = longest_piece(self, rest, at > 0 ? continuing.bytes : 0, &bytes);
    known = id >= 0;
    at += bytes;
    if (known) ls_ids_push(ids, id);
  }
  if (known) return;
  ids->count = first;
  ls_ids_push(ids, self->options.unknown);
}
