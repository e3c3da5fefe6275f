/* Which tokens are in which row of which batch: a function of (seed, epoch, index) alone.
 *
 *   ls_order order = {.corpus = &corpus, .first = 0, .sequences = ls_order_count(tokens, T), ...};
 *   ls_batch_fill(&order, step, first_row, rows, ids, labels);
 *
 * Sequence i of a part of the text covers its tokens [i T, i T + T + 1): T inputs and, shifted by
 * one, T labels. What is left at the end is dropped. A shuffled order goes through all sequences
 * once an epoch, each epoch in another permutation; row r of step s is sample s x batch + r of the
 * endless row of epochs. So every layout of ranks sees the same batches, and resuming needs the
 * step's number only. Thread-safe: values. */
#ifndef LS_DATA_ORDER_H
#define LS_DATA_ORDER_H

#include <stdbool.h>

#include "data/corpus.h"

enum { LS_NO_LABEL = -1 };

typedef struct ls_order {
  const ls_corpus *corpus;
  int64_t first;     /* token where the part starts */
  int64_t sequences; /* 0: there is no part */
  int64_t seq_len;   /* T */
  int64_t batch;     /* rows of a step over the whole mesh */
  bool shuffled;     /* else in the text's order, once */
  uint64_t seed;
} ls_order;

/* Whole sequences in so many tokens. */
int64_t ls_order_count(int64_t tokens, int64_t seq_len);

/* The sequence of a sample; -1 past the end of an order that is not shuffled. */
int64_t ls_order_sequence(const ls_order *order, int64_t sample);

/* Batches that hold all sequences once; the last may have empty rows. */
int64_t ls_order_batches(const ls_order *order);

/* Passes over the sequences after so many steps. */
double ls_order_epoch(const ls_order *order, int64_t steps);

/* Rows [first_row, first_row + rows) of a step's batch: ids and labels [rows, T]. An empty row has
 * ids 0 and no labels (LS_NO_LABEL), so that it counts for nothing. */
void ls_batch_fill(const ls_order *order, int64_t step, int64_t first_row, int64_t rows,
                   int32_t *ids, int32_t *labels);

#endif
