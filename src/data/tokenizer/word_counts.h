/* How often each word of some texts is there.
 *
 *   ls_word_counts *counts = ls_word_counts_create(arena);
 *   ls_word_counts_add(counts, (ls_span){"the", 3}, 1);
 *   LS_TRY(ls_word_counts_texts(&options, &files, counts, error));
 *   ... counts->items[0 .. counts->count) ...
 *
 * Memory grows with the different words alone, never with the texts. A table is for one thread at a
 * time; counting texts starts threads of its own. */
#ifndef LS_DATA_TOKENIZER_WORD_COUNTS_H
#define LS_DATA_TOKENIZER_WORD_COUNTS_H

#include "data/text_files.h"
#include "data/tokenizer/token_buffer.h"

typedef struct ls_counted_word {
  ls_span word; /* any bytes; in the table's arena */
  int64_t count;
} ls_counted_word;

typedef struct ls_word_counts {
  ls_arena *arena;
  ls_counted_word *items; /* [count], in the order they came */
  int count, capacity;
  uint64_t *slots; /* hash table: index + 1, and the hash's upper half above it */
  uint32_t slot_count;
} ls_word_counts;

ls_word_counts *ls_word_counts_create(ls_arena *arena);

/* Counts a word `times` more; its text is copied. */
void ls_word_counts_add(ls_word_counts *counts, ls_span word, int64_t times);

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

/* The last place, or with `first` the first, where a text may be cut in two without a word's
 * becoming another, text behind it and before it or not; -1: there is none. */
int64_t ls_word_counts_cut(ls_span text, bool first);

#endif
