/* The loss of a model on a text, on any layout: within a run, or of weights alone.
 *
 *   ls_evaluation found;
 *   LS_TRY(ls_evaluate_weights(session, dataset, world, &told, &found, error));
 *   printf("loss %.4f of %lld tokens\n", found.loss, (long long)found.tokens);
 *
 * What is computed does not depend on the layout. */
#ifndef LS_TRAIN_EVALUATE_H
#define LS_TRAIN_EVALUATE_H

#include "data/dataset.h"
#include "session/prove.h"
#include "session/session.h"

typedef struct ls_evaluation {
  double loss; /* natural logarithm, mean of a token; NaN: there is none, or a stop came */
  int64_t tokens, batches; /* of a classifier a text is one token: that its class is the label of;
                            * of vectors of texts one that asks is one token */
  double accuracy;         /* of these, 0 to 1: correct of tokens, the right class or the own answer
                            * found; else NaN */
  double macro_f1;         /* of a classifier (ls_predictions_macro_f1) */
  double micro_f1;         /* likewise; that of labels of one class is the accuracy */
  int64_t correct;
  bool interrupted;
} ls_evaluation;

/* Called by rank 0's thread before each batch; `batch` may be NULL. */
typedef struct ls_evaluating {
  void (*batch)(void *context, int64_t done, int64_t batches);
  void *context;
} ls_evaluating;

/* Over the evaluation part: eval.batches batches, or what there is; asked to stop (base/stop.h), it
 * ends after the batch. Collective: all ranks. */
LS_CHECKED ls_status ls_evaluate(const ls_session *session, const ls_dataset *dataset,
                                 ls_rank *rank, const ls_evaluating *told, ls_evaluation *found,
                                 ls_error *error);

/* Proves the session's programs (run->check), loads session->weights on all ranks, and evaluates
 * them. LS_STOPPED after a stop; else as ls_train. Collective: all processes. */
LS_CHECKED ls_status ls_evaluate_weights(const ls_session *session, const ls_dataset *dataset,
                                         ls_world *world, const ls_evaluating *told,
                                         ls_evaluation *found, ls_error *error);

#endif
