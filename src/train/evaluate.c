#include "train/evaluate.h"

#include <math.h>

#include "base/stop.h"
#include "session/agree.h"
#include "session/forward.h"
#include "session/predictions.h"
#include "train/evaluate_ranks.h"

static ls_status evaluate_batches(const ls_session *session, const ls_dataset *dataset,
                                  ls_rank *rank, const ls_evaluating *told, ls_predictions *counts,
                                  ls_evaluation *found, ls_error *error) {
  int64_t batches = ls_order_batches(&dataset->evaluation);
  if (batches > session->run->eval.batches) batches = session->run->eval.batches;
  const bool tells = told->batch && ls_rank_number(rank) == 0;
  ls_inputs inputs = ls_inputs_of_order(&dataset->evaluation);
  inputs.weights = session->run->classes.weight;
  const bool classifies = session->config.classes > 0;
  const bool vectors = session->config.vectors;
  double sum = 0, counted = 0, answered = 0;
  *found = (ls_evaluation){.loss = NAN, .accuracy = NAN, .macro_f1 = NAN, .micro_f1 = NAN};
  for (int64_t b = 0; b < batches; b++) {
    LS_TRY(ls_agree_any(rank, ls_stop_asked(), "whether to stop", &found->interrupted, error));
    if (found->interrupted) return LS_OK;
    if (tells) told->batch(told->context, b, batches);
    for (int m = 0; m < session->layout.microbatches; m++) {
      int program;
      LS_TRY(ls_forward(session, rank, &inputs, m, b, &program, error));
      sum += ls_rank_cell(rank, LS_CELL_LOSS_SUM);
      counted += ls_rank_cell(rank, LS_CELL_VALID_TOKENS);
      if (vectors) answered += ls_rank_cell(rank, LS_CELL_REWARD_CHOSEN);
      if (classifies) LS_TRY(ls_predictions_add(rank, program, counts, error));
    }
    found->batches = b + 1;
  }
  if (classifies) LS_TRY(ls_predictions_sum(rank, counts, error));
  found->tokens = classifies ? ls_predictions_labels(counts) : (int64_t)counted;
  found->correct = vectors ? (int64_t)answered : ls_predictions_correct(counts);
  if (counted > 0) found->loss = sum / counted;
  if ((classifies || vectors) && found->tokens > 0)
    found->accuracy = (double)found->correct / (double)found->tokens;
  if (classifies) found->macro_f1 = ls_predictions_macro_f1(counts);
  if (classifies) found->micro_f1 = ls_predictions_micro_f1(counts);
  return LS_OK;
}

ls_status ls_evaluate(const ls_session *session, const ls_dataset *dataset, ls_rank *rank,
                      const ls_evaluating *told, ls_evaluation *found, ls_error *error) {
  ls_arena *scratch = ls_arena_create();
  ls_predictions counts =
      ls_predictions_none(scratch, session->config.classes, session->config.several);
  const ls_status status = evaluate_batches(session, dataset, rank, told, &counts, found, error);
  ls_arena_destroy(&scratch);
  return status;
}

typedef struct job {
  const ls_session *session;
  const ls_dataset *dataset;
  const ls_evaluating *told;
  ls_evaluation *found;
} job;

static ls_status evaluate(void *context, ls_rank *rank, ls_arena *arena, bool first,
                          ls_error *error) {
  (void)arena;
  const job *of = context;
  ls_evaluation found;
  LS_TRY(ls_evaluate(of->session, of->dataset, rank, of->told, &found, error));
  if (first) *of->found = found;
  if (!found.interrupted) return LS_OK;
  return ls_fail(error, LS_STOPPED, "stopped after %lld of %lld batches", (long long)found.batches,
                 (long long)ls_order_batches(&of->dataset->evaluation));
}

ls_status ls_evaluate_weights(const ls_session *session, const ls_dataset *dataset, ls_world *world,
                              const ls_evaluating *told, ls_evaluation *found, ls_error *error) {
  job all = {session, dataset, told, found};
  return ls_evaluate_ranks(session, world, evaluate, &all, error);
}
