/* What a classifier predicts: of the tokens with a label the class of the largest logit, the first
 * of equal ones (as argmax has it), counted by class. Where a label is a set of classes each class
 * is predicted on its own, and a set is correct as a whole.
 *
 *   ls_predictions made = ls_predictions_none(arena, classes, several);
 *   LS_TRY(ls_forward(session, rank, &inputs, m, step, &program, error));
 *   LS_TRY(ls_predictions_add(rank, program, &made, error)); // after each microbatch
 *   LS_TRY(ls_predictions_sum(rank, &made, error));          // over all ranks, once
 *   ... ls_predictions_correct(&made), ls_predictions_macro_f1(&made) ...
 *
 * The evaluation must keep its logits (ls_session_keep_logits), whole rows on each rank. Used by
 * each rank's own thread. */
#ifndef LS_SESSION_PREDICTIONS_H
#define LS_SESSION_PREDICTIONS_H

#include "session/inputs.h"

/* By class. */
typedef struct ls_class_predictions {
  int64_t labels, predicted, correct; /* the label is this class; the prediction is; both are */
} ls_class_predictions;

typedef struct ls_predictions {
  int64_t classes;
  bool several;
  ls_class_predictions
      *of; /* [classes], and behind them how many sets there are, and are correct */
} ls_predictions;

/* `several`: labels are sets of classes. */
ls_predictions ls_predictions_none(ls_arena *arena, int64_t classes, bool several);

/* Whether the rank gives logits: of those that hold the same ones, the first. */
bool ls_gives_logits(const ls_program *program, int rank);

/* Adds `rows` rows of `columns` logits each, as many as classes, of which those with a label (from
 * 0 on; -1: none) count; of several labels `sets` has each row's (ls_set_words), else NULL. Rows
 * with a logit that is no number have no prediction. */
void ls_predictions_add_rows(const double *logits, int64_t rows, int64_t columns,
                             const int32_t *labels, const int32_t *sets, ls_predictions *made);

/* Adds the microbatch that was run last, by `program`, whose inputs still lie in the rank's staging
 * memory; nothing on a rank that gives no logits. Not collective. Errors: the device's. */
LS_CHECKED ls_status ls_predictions_add(ls_rank *rank, int program, ls_predictions *made,
                                        ls_error *error);

/* The sum over all ranks. Collective. */
LS_CHECKED ls_status ls_predictions_sum(ls_rank *rank, ls_predictions *made, ls_error *error);

/* How many labels there are. */
int64_t ls_predictions_labels(const ls_predictions *made);

/* Correct labels; the mean of F1 over the classes that are a label or predicted, of sets over all
 * (as scikit-learn has both); and F1 of all together, which is the accuracy where each label is one
 * class. NaN: there is none. */
int64_t ls_predictions_correct(const ls_predictions *made);
double ls_predictions_macro_f1(const ls_predictions *made);
double ls_predictions_micro_f1(const ls_predictions *made);

#endif
