/* Byte-pair encoding of one word: pairs of neighbours are merged, the one with the lowest rank
 * first, the leftmost of equal ones, until no pair can be.
 *
 *   ls_bpe *bpe = ls_bpe_create(arena, &options, merges);
 *   LS_TRY(ls_bpe_add_merge(bpe, left, right, rank, made));
 *   ls_bpe_work work = {0};
 *   ls_bpe_encode(bpe, &work, word, &ids);
 *   ls_bpe_work_free(&work);
 *
 * A word of n symbols takes n log n steps. The table is constant once filled: thread-safe; a
 * ls_bpe_work is one thread's, for one table. */
#ifndef LS_TOKENIZER_BPE_H
#define LS_TOKENIZER_BPE_H

#include "tokenizer/vocabulary.h"

/* Symbols are ids, and, from the vocabulary's count on, characters that are no piece themselves but
 * begin some. */
typedef struct ls_bpe_options {
  const ls_vocabulary *whole;   /* a word that is one of these is taken whole; NULL: none is */
  const ls_vocabulary *symbols; /* characters to symbols; unused with `byte_symbols` */
  const int32_t *byte_symbols;  /* [256]: words are bytes; -1: the byte is dropped */
  const int32_t *byte_ids; /* [256]: what a character becomes that is no piece; NULL: unknown */
  int32_t unknown;         /* its id, -1: such characters are dropped */
  int32_t pieces;          /* symbols below are ids */
  bool fuse_unknown;       /* several in a row are one */
  bool fall_back_last; /* characters become bytes after the merges (SentencePiece), not before */
} ls_bpe_options;

typedef struct ls_bpe ls_bpe;

/* Keeps what `options` points at; `merges` is how many will be added. */
ls_bpe *ls_bpe_create(ls_arena *arena, const ls_bpe_options *options, int64_t merges);

/* Of a pair given twice the last holds, as in Hugging Face's. */
void ls_bpe_add_merge(ls_bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t made);

/* What a thread works with: lists of symbols, and the words it met lately. */
typedef struct ls_bpe_work {
  ls_bytes symbols, heap;
  struct ls_word_cache *cache;
} ls_bpe_work;
void ls_bpe_work_free(ls_bpe_work *work);

/* Appends the ids of a word of valid UTF-8, or of bytes. */
void ls_bpe_encode(const ls_bpe *bpe, ls_bpe_work *work, ls_span word, ls_ids *ids);

#endif
