/* What the starting weights make of pairs of answers, before they are trained: the reference of
 * direct preference optimization.
 *
 *   LS_TRY(ls_session_load_weights(session, rank, session->weights, NULL, error));
 *   ls_dataset own;
 *   LS_TRY(ls_references_make(arena, session, dataset, rank, &told, &own, error));
 *   const ls_inputs inputs = ls_inputs_of_order(&own.training);
 *
 * Every sequence goes once through the evaluation's program, with a reference of 0. Used by the
 * rank's own thread. */
#ifndef LS_TRAIN_REFERENCES_H
#define LS_TRAIN_REFERENCES_H

#include "train/evaluate.h"

/* A copy of the dataset whose orders have the log-probabilities of both answers of each pair, under
 * the parameters that the ranks have now; they and the orders are in the arena. `told` is told of
 * the batches. LS_STOPPED where a stop was asked. Collective: all ranks. */
LS_CHECKED ls_status ls_references_make(ls_arena *arena, const ls_session *session,
                                        const ls_dataset *dataset, ls_rank *rank,
                                        const ls_evaluating *told, ls_dataset *own,
                                        ls_error *error);

#endif
