/* What SentencePiece does to a text before and behind its model: the normalizer_spec of a
 * tokenizer.model, and its way of decoding.
 *
 *   const ls_span normalized = ls_sentence_normalize(sentence, text, false, false, &buffer);
 *   ls_sentence_decode(sentence, &pieces, ids, &out);
 *
 * As SentencePiece 0.1.97 does it. Constant: thread-safe. */
#ifndef LS_TOKENIZER_SENTENCE_H
#define LS_TOKENIZER_SENTENCE_H

#include "tokenizer/added_tokens.h"
#include "tokenizer/charsmap.h"

typedef enum ls_piece_kind {
  LS_PIECE_NORMAL = 1,
  LS_PIECE_UNKNOWN = 2,
  LS_PIECE_CONTROL = 3,
  LS_PIECE_USER_DEFINED = 4,
  LS_PIECE_UNUSED = 5,
  LS_PIECE_BYTE = 6,
} ls_piece_kind;

typedef struct ls_sentence {
  ls_charsmap map;
  const ls_added_tokens *user_defined; /* left as they are; NULL: none */
  bool add_dummy_prefix, remove_extra_spaces, escape_spaces, space_behind;
  const uint8_t *kinds;    /* [vocabulary] ls_piece_kind */
  ls_span unknown_surface; /* what an unknown token is decoded to */
} ls_sentence;

/* The text as the model sees it, in `out`. With `goes_on` it is no text's beginning, with `more` no
 * text's end. */
ls_span ls_sentence_normalize(const ls_sentence *sentence, ls_span text, bool goes_on, bool more,
                              ls_bytes *out);

/* Appends the text of pieces; ids are theirs. Control pieces are written as they are called. */
void ls_sentence_decode(const ls_sentence *sentence, const ls_spans *pieces, const int32_t *ids,
                        ls_bytes *out);

/* Appends the bytes of a piece inside a text. */
void ls_sentence_piece(const ls_sentence *sentence, int32_t id, ls_span piece, ls_bytes *out);

#endif
