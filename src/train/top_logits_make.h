/* What a model says of a dataset, written for others to learn of it: the k likeliest ids of each
 * token of its sequences (data/top_logits.h).
 *
 *   ls_top_made made;
 *   LS_TRY(ls_top_logits_make(session, dataset, world, &told, "out.safetensors", 64, &made,
 * error));
 *
 * The session is an evaluation's, made with ls_session_keep_logits. Any layout writes the same, to
 * rounding. */
#ifndef LS_TRAIN_TOP_LOGITS_MAKE_H
#define LS_TRAIN_TOP_LOGITS_MAKE_H

#include "train/evaluate.h"

typedef struct ls_top_made {
  double loss;                        /* of tokens with a label, over both parts */
  int64_t tokens, sequences, counted; /* all of them; sequences; with a label */
  double probability; /* what the ids that are told have of it, a mean over tokens */
} ls_top_made;

/* Loads session->weights, has every sequence of training and evaluation go through them once, and
 * writes `path`, which is there whole or not at all. `top` is at most the vocabulary. LS_STOPPED
 * after a stop; LS_FAILED where a logit is no number; else as ls_evaluate_weights. Collective: all
 * processes. */
LS_CHECKED ls_status ls_top_logits_make(const ls_session *session, const ls_dataset *dataset,
                                        ls_world *world, const ls_evaluating *told,
                                        const char *path, int64_t top, ls_top_made *made,
                                        ls_error *error);

/* Of one token's logits [count], which are those of ids from `first` on: the `top` largest, or
 * all, the first of equal ones; `ids` and `logits` take as many, in no order. Returns how many.
 * *largest is the largest, *sum that of exp(logit - *largest). */
int64_t ls_top_pick(const double *from, int64_t first, int64_t count, int64_t top, double *ids,
                    double *logits, double *largest, double *sum);

#endif
