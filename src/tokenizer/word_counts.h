/* How often each word of some texts is there.
 *
 *   ls_word_counts *counts = ls_word_counts_create(arena);
 *   ls_word_counts_add(counts, (ls_span){"the", 3}, 1);
 *   ... counts->items[0 .. counts->count) ...
 *
 * Memory grows with the different words alone. A table is for one thread at a time. */
#ifndef LS_TOKENIZER_WORD_COUNTS_H
#define LS_TOKENIZER_WORD_COUNTS_H

#include "tokenizer/token_buffer.h"

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

/* The last place, or with `first` the first, where a text may be cut in two without a word's
 * becoming another, text behind it and before it or not; -1: there is none. */
int64_t ls_word_counts_cut(ls_span text, bool first);

#endif
