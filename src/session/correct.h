/* What a classifier tells: of the tokens with a label, those whose largest logit is the label's,
 * the first of equal ones (as argmax has it), and by class how often each is asked and told. Where
 * a label is a set of classes each class is told by itself, and a set right as a whole.
 *
 *   ls_told told = ls_told_none(arena, classes, several);
 *   LS_TRY(ls_inputs_fill(&inputs, rank, LS_SESSION_EVALUATE, m, step, error));
 *   LS_TRY(ls_rank_run(rank, LS_SESSION_EVALUATE, error));
 *   LS_TRY(ls_count_told(rank, &told, error));   // adds this rank's, after each microbatch
 *   LS_TRY(ls_sum_told(rank, &told, error));     // over all ranks, once
 *   ... ls_told_right(&told), ls_told_macro_f1(&told) ...
 *
 * The evaluation must keep its logits (ls_session_keep_logits), whole rows on each rank. Used by
 * each rank's own thread. */
#ifndef LS_SESSION_CORRECT_H
#define LS_SESSION_CORRECT_H

#include "session/inputs.h"

/* By class. */
typedef struct ls_told_class {
  int64_t asked, told, right; /* the label is this class; the largest logit is; both are */
} ls_told_class;

typedef struct ls_told {
  int64_t classes;
  bool several;
  ls_told_class *of; /* [classes], and behind them of sets how many are asked, and are right */
} ls_told;

/* `several`: labels are sets of classes, class c being bit c. */
ls_told ls_told_none(ls_arena *arena, int64_t classes, bool several);

/* Whether the rank gives logits: of those that hold the same ones, the first. */
bool ls_gives_logits(const ls_program *program, int rank);

/* Adds `rows` rows of `columns` logits each, as many as classes, of which those with a label (from
 * 0 on; -1: none) count. Rows with a logit that is no number are told as nothing. */
void ls_rows_tell(const double *logits, int64_t rows, int64_t columns, const int32_t *labels,
                  ls_told *told);

/* Adds the microbatch that was run last, whose inputs still lie in the rank's staging memory;
 * nothing on a rank that gives no logits. Not collective. Errors: the device's. */
LS_CHECKED ls_status ls_count_told(ls_rank *rank, ls_told *told, ls_error *error);

/* The sum over all ranks. Collective. */
LS_CHECKED ls_status ls_sum_told(ls_rank *rank, ls_told *told, ls_error *error);

/* How many labels there are. */
int64_t ls_told_asked(const ls_told *told);

/* Labels told right; the mean of F1 over the classes that are asked or told, of sets over all (as
 * scikit-learn has both); and F1 of all together, which is the share told right where each label is
 * one class. NaN: there is none. */
int64_t ls_told_right(const ls_told *told);
double ls_told_macro_f1(const ls_told *told);
double ls_told_micro_f1(const ls_told *told);

#endif
