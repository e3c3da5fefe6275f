/* SentencePiece's Unigram: of all ways to cut a text into pieces the one with the greatest sum of
 * scores (Kudo 2018, section 3.2), found as SentencePiece 0.1.97 does, rounding included.
 *
 *   ls_unigram_work work = {0};
 *   ls_unigram_encode(&unigram, &work, text, &ids);
 *   ls_unigram_work_free(&work);
 *
 * The model is constant: thread-safe; a ls_unigram_work is one thread's. */
#ifndef LS_TOKENIZER_UNIGRAM_H
#define LS_TOKENIZER_UNIGRAM_H

#include "tokenizer/vocabulary.h"

typedef struct ls_unigram {
  const ls_vocabulary *pieces; /* those that text may become */
  const float *scores;         /* by id */
  const bool *user_defined;    /* by id: taken before all others */
  float lowest, highest;       /* of the normal pieces */
  int32_t unknown;
  const int32_t *byte_ids; /* [256]: what an unknown character becomes; NULL: `unknown` */
} ls_unigram;

typedef struct ls_unigram_work {
  ls_bytes nodes;
} ls_unigram_work;
void ls_unigram_work_free(ls_unigram_work *work);

/* Appends the ids of a text of valid UTF-8. */
void ls_unigram_encode(const ls_unigram *unigram, ls_unigram_work *work, ls_span text, ls_ids *ids);

#endif
