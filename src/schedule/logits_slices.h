/* Slices: the head, gone through some tokens at a time.
 *
 * Logits and what has their shape are a model's widest values by far. Ops that read or make them
 * take tokens one by one: the table of ops lets label n be cut. So n is cut once more, in time. The
 * nodes between the product that makes the logits and those that use up their gradient run for the
 * first rows that a rank has, then for the next: no more than a slice of logits ever is there. What
 * such nodes make of tokens is put together again; what they make without, gradients of weights, is
 * added up, as over microbatches.
 *
 *   const ls_logits_slices *slices = ls_logits_slices_make(sharded);   // in the arena of the
 * sharded graph */
#ifndef LS_SCHEDULE_LOGITS_SLICES_H
#define LS_SCHEDULE_LOGITS_SLICES_H

#include "shard/shard.h"

typedef struct ls_logits_slices {
  int64_t rows, all; /* of a slice, of which the last may have fewer; that a rank has. 0: none */
  int first, last;   /* sharded nodes in slices, and what is between */
  bool *nodes;       /* by sharded node: it runs for each slice */
  bool *before;      /* likewise: it stands between such nodes, and runs before all slices */
  bool *inside; /* by sharded value: such nodes alone touch it, so it is only there in slices */
  bool *wide;   /* of these, logits and what has their shape */
} ls_logits_slices;

/* As many rows as the layout says or, where it does not, as few as make products no slower. None
 * where one slice has all rows, where there is no loss, or where something between the nodes needs
 * rows together. */
ls_logits_slices *ls_logits_slices_make(const ls_sharded *sharded);

/* Rows of a slice of `all`, each with so many bytes of logits; 0: one slice has all. What the
 * layout asks for or, where it does not, a power of two by their size. */
int64_t ls_logits_slices_rows(int64_t all, int64_t row_bytes, const ls_layout *layout);

/* Stored elements of a row of logits with so many columns. */
int64_t ls_logits_row_elements(int64_t columns, const ls_layout *layout);

#endif
