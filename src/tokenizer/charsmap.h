/* SentencePiece's precompiled table of replacements ("nmt_nfkc"): the longest beginning of the text
 * that is in it, and what that becomes.
 *
 *   LS_TRY(ls_charsmap_read(where, data, bytes, &map, error));
 *   size_t taken = ls_charsmap_find(&map, text, &replacement);
 *
 * A double array of 32-bit units in the layout of Darts-clone, behind it the replacements, each
 * ended by a NUL. Every index is checked as it is followed. Constant: thread-safe. */
#ifndef LS_TOKENIZER_CHARSMAP_H
#define LS_TOKENIZER_CHARSMAP_H

#include "tokenizer/token_buffer.h"

/* Borrows the data it is read from. */
typedef struct ls_charsmap {
  const char *units;
  size_t unit_count;
  const char *replacements;
  size_t replacement_bytes;
} ls_charsmap;

LS_CHECKED ls_status ls_charsmap_read(const char *where, const char *data, size_t bytes,
                                      ls_charsmap *map, ls_error *error);

/* Bytes of the text that are replaced; 0: none. */
size_t ls_charsmap_find(const ls_charsmap *map, ls_span text, ls_span *replacement);

#endif
