/* How pieces become text again: the "decoder" of tokenizer.json.
 *
 *   LS_TRY(ls_token_decoder_read(arena, where, json, &decoder, error));
 *   LS_TRY(ls_token_decoder_apply(&decoder, pieces, &out, error));
 *
 * ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, WordPiece and Sequences of them.
 * Constant once read: thread-safe. */
#ifndef LS_TOKENIZER_TOKEN_DECODER_H
#define LS_TOKENIZER_TOKEN_DECODER_H

#include "tokenizer/pre_tokenizer.h"

typedef enum ls_token_decoder_kind {
  LS_DECODE_BYTE_LEVEL,
  LS_DECODE_REPLACE,
  LS_DECODE_BYTE_FALLBACK,
  LS_DECODE_FUSE,
  LS_DECODE_STRIP,
  LS_DECODE_METASPACE,
  LS_DECODE_WORD_PIECE,
} ls_token_decoder_kind;

typedef struct ls_token_decoder_step {
  ls_token_decoder_kind kind;
  ls_span sought, content; /* Replace; Strip: content; Metaspace, WordPiece: sought */
  ls_pattern *pattern;
  int64_t start, stop; /* Strip */
  bool prefix;         /* Metaspace: the first piece has it put first; WordPiece: cleanup */
} ls_token_decoder_step;

typedef struct ls_token_decoder {
  LS_LIST(ls_token_decoder_step) steps;
  bool given; /* without one pieces are joined with spaces */
} ls_token_decoder;

LS_CHECKED ls_status ls_token_decoder_read(ls_arena *arena, const char *where, const json_t *json,
                                           ls_token_decoder *decoder, ls_error *error);
void ls_token_decoder_free(ls_token_decoder *decoder);

/* Appends the text of pieces; bytes that are no UTF-8 become U+FFFD. The list is used up. */
LS_CHECKED ls_status ls_token_decoder_apply(const ls_token_decoder *decoder, ls_spans *pieces,
                                            ls_bytes *out, ls_error *error);

/* Appends the bytes of one piece inside a text: bytes as they are, ▁ and the like replaced. */
LS_CHECKED ls_status ls_token_decoder_piece(const ls_token_decoder *decoder, ls_span piece,
                                            ls_bytes *out, ls_error *error);

/* The byte of "<0x0A>", -1 for other pieces. */
int ls_byte_piece(ls_span piece);

#endif
