/* Counting the words of text files.
 *
 *   LS_TRY(ls_word_counts_texts(&options, &files, counts, error));
 *
 * Starts threads of its own; memory grows with the different words, never with the texts. */
#ifndef LS_DATA_WORD_COUNTS_TEXTS_H
#define LS_DATA_WORD_COUNTS_TEXTS_H

#include "data/text_files.h"
#include "tokenizer/word_counts.h"

typedef struct ls_word_counts_options {
  const char *text_key; /* of JSON lines */
  int threads;
  void (*progress)(void *context, int64_t done, int64_t all); /* bytes on disk; may be NULL */
  void *context;
} ls_word_counts_options;

/* Counts the words that GPT-2's pattern cuts texts into, each document on its own. Bytes that are
 * no UTF-8 are read as U+FFFD. LS_INPUT names the file, and of JSON lines the line. */
LS_CHECKED ls_status ls_word_counts_texts(const ls_word_counts_options *options,
                                          const ls_text_files *files, ls_word_counts *counts,
                                          ls_error *error);

#endif
