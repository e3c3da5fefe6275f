/* A part of a corpus, for training or for evaluation: documents or a stretch of tokens, one after
 * another, counted from 0.
 *
 *   ls_text_part parts[2];
 *   ls_text_part_split_documents(arena, &corpus, 0.01, &parts[0], &parts[1]);
 *   LS_TRY(ls_text_part_copy(&parts[0], first, count, ids, error));
 *
 * Which document is in which part follows from its text alone, so it stays there when other texts
 * come or go, and the same text is never in both. Thread-safe once made. */
#ifndef LS_DATA_TEXT_PART_H
#define LS_DATA_TEXT_PART_H

#include "data/corpus.h"

/* Tokens [first, ...) of the corpus, that begin at `place` of the part. */
typedef struct ls_token_run {
  int64_t place, first;
} ls_token_run;

typedef struct ls_text_part {
  const ls_corpus *corpus;
  const ls_token_run *runs; /* in order, and one more that ends the last */
  int64_t run_count;
  int64_t tokens;
  int64_t documents; /* that begin in it */
} ls_text_part;

/* All of it. */
void ls_text_part_whole(ls_arena *arena, const ls_corpus *corpus, ls_text_part *part);

/* Documents whose hash, as a number from 0 to 1, is below `fraction`, and the others. */
void ls_text_part_split_documents(ls_arena *arena, const ls_corpus *corpus, double fraction,
                                  ls_text_part *others, ls_text_part *kept);

/* The last `tail` tokens, and those before. */
void ls_text_part_split_tail(ls_arena *arena, const ls_corpus *corpus, int64_t tail,
                             ls_text_part *others, ls_text_part *kept);

/* Ids of the part's tokens [first, first + count). Errors: as ls_corpus_copy has. */
LS_CHECKED ls_status ls_text_part_copy(const ls_text_part *part, int64_t first, int64_t count,
                                       int32_t *ids, ls_error *error);

/* For each of these tokens its place in its document, as if nothing lay before `first`. */
void ls_text_part_places(const ls_text_part *part, int64_t first, int64_t count, int32_t *places);

#endif
