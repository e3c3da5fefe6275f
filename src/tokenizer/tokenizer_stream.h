/* A file of any length through a tokenizer: read in pieces, encoded by several threads, given out
 * in order.
 *
 *   const ls_token_stream stream = {.tokenizer = tokenizer, .threads = 8, .take = take, ...};
 *   LS_TRY(ls_token_stream_run(&stream, file, "corpus.txt", error));
 *
 * The ids are those of the file at once (Unigram models, whose sums are rounded differently, and
 * texts in which ls_tokenizer_cut finds no place, may differ; the latter are refused when they are
 * large). Takes memory for two pieces a thread. One thread calls; it starts the others. */
#ifndef LS_TOKENIZER_TOKENIZER_STREAM_H
#define LS_TOKENIZER_TOKENIZER_STREAM_H

#include <stdio.h>

#include "tokenizer/tokenizer.h"

typedef struct ls_token_stream {
  const ls_tokenizer *tokenizer;
  int threads;
  int64_t piece_bytes; /* 0: one MiB */
  unsigned flags;      /* LS_TOKENS_SPECIAL */
  /* Called in order, by the calling thread. */
  ls_status (*take)(void *context, const int32_t *ids, int64_t count, ls_error *error);
  void *context;
} ls_token_stream;

/* `name` is the file's, for errors: LS_INPUT as ls_tokenizer_append says, and where the file cannot
 * be read. */
LS_CHECKED ls_status ls_token_stream_run(const ls_token_stream *stream, FILE *file,
                                         const char *name, ls_error *error);

#endif
