/* How many texts a classifier tells right: of the tokens with a label, those whose largest logit is
 * the label's, the first of equal ones (as argmax has it).
 *
 *   LS_TRY(ls_inputs_fill(&inputs, rank, LS_SESSION_EVALUATE, m, step, error));
 *   LS_TRY(ls_rank_run(rank, LS_SESSION_EVALUATE, error));
 *   LS_TRY(ls_count_correct(rank, &correct, error));   // adds this rank's, after each microbatch
 *   LS_TRY(ls_sum_correct(rank, &correct, error));     // over all ranks, once
 *
 * The evaluation must keep its logits (ls_session_keep_logits), whole rows on each rank. Used by
 * each rank's own thread. */
#ifndef LS_SESSION_CORRECT_H
#define LS_SESSION_CORRECT_H

#include "session/inputs.h"

/* Whether the rank gives logits: of those that hold the same ones, the first. */
bool ls_gives_logits(const ls_program *program, int rank);

/* Of `rows` rows of `columns` logits each, those with a label (from 0 on; -1: none) whose largest
 * logit it is. */
int64_t ls_rows_correct(const double *logits, int64_t rows, int64_t columns, const int32_t *labels);

/* Adds to *correct those of the microbatch that was run last, whose inputs still lie in the rank's
 * staging memory; nothing on a rank that gives no logits. Not collective. Errors: the device's. */
LS_CHECKED ls_status ls_count_correct(ls_rank *rank, int64_t *correct, ls_error *error);

/* The sum over all ranks. Collective. */
LS_CHECKED ls_status ls_sum_correct(ls_rank *rank, int64_t *correct, ls_error *error);

#endif
