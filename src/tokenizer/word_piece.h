/* WordPiece: a word is the longest piece of the vocabulary that it begins with, then the longest of
 * those that go on with what is left, and so on; where none does it is unknown as a whole.
 *
 *   ls_word_piece *model = ls_word_piece_create(arena, &options);
 *   ls_word_piece_encode(model, &work, word, &ids);
 *
 * Constant once made: thread-safe; a buffer is one thread's. */
#ifndef LS_TOKENIZER_WORD_PIECE_H
#define LS_TOKENIZER_WORD_PIECE_H

#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

typedef struct ls_word_piece ls_word_piece;

typedef struct ls_word_piece_options {
  const ls_vocabulary *vocabulary; /* borrowed */
  ls_span continuing;              /* what pieces that go on begin with: "##"; borrowed */
  int64_t longest;                 /* characters; longer words are unknown */
  int32_t unknown;
} ls_word_piece_options;

ls_word_piece *ls_word_piece_create(ls_arena *arena, const ls_word_piece_options *options);

/* Appends the ids of a word, at least one. */
void ls_word_piece_encode(const ls_word_piece *model, ls_bytes *work, ls_span word, ls_ids *ids);

#endif
