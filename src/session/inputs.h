/* Filling a rank's inputs: one way for training, evaluation and verification, which differ in where
 * tokens come from. Those of decoding are the generator's.
 *
 *   const ls_inputs inputs = ls_inputs_of_order(&dataset->training);
 *   LS_TRY(ls_inputs_fill(&inputs, rank, LS_SESSION_STEP, microbatch, step, error));
 *
 * Used by each rank's own thread. */
#ifndef LS_SESSION_INPUTS_H
#define LS_SESSION_INPUTS_H

#include "data/order.h"
#include "run/rank.h"

/* Where tokens come from: `take` gives tokens [first, first + count) of a step's batch, sequence
 * after sequence, with their labels and positions; of pairs of answers with what a reference makes
 * of the labels, and where it knows them with types, which are 0 before. Ranks take only what lies
 * on them. */
typedef struct ls_inputs {
  ls_status (*take)(void *context, int64_t step, int64_t first, int64_t count,
                    const ls_batch *batch, ls_error *error);
  void *context;
  uint64_t seed;         /* of what dropout drops */
  const double *weights; /* how often a label counts, by label; where programs ask for it */
} ls_inputs;

/* The batches of an order, which is borrowed; seed 0. */
ls_inputs ls_inputs_of_order(const ls_order *order);

/* Fills this rank's inputs, draws among them, of one microbatch of a program; of LS_SESSION_STEP
 * those of all microbatches lie side by side. Errors: those of `take`. */
LS_CHECKED ls_status ls_inputs_fill(const ls_inputs *inputs, ls_rank *rank, int program,
                                    int microbatch, int64_t step, ls_error *error);

/* Which token of a microbatch is row `row` of this rank's inputs: where ranks share sequences, in
 * an order of its own. */
int64_t ls_inputs_token(const ls_rank *rank, int program, int64_t row);

#endif
