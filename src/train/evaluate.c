#include "train/evaluate.h"

#include <math.h>

#include "base/stop.h"
#include "run/rank_threads.h"
#include "session/agree.h"
#include "session/correct.h"
#include "session/inputs.h"

/* A microbatch; again where rows for experts found no slot. */
static ls_status run(const ls_session *session, ls_rank *rank, const ls_inputs *inputs, int m,
                     int64_t batch, ls_error *error) {
  LS_TRY(ls_inputs_fill(inputs, rank, LS_SESSION_EVALUATE, m, batch, error));
  LS_TRY(ls_rank_run(rank, LS_SESSION_EVALUATE, error));
  if (session->compiled.count <= LS_SESSION_EVALUATE_AGAIN ||
      !isinf(ls_rank_cell(rank, LS_CELL_LOSS_SUM)))
    return LS_OK;
  LS_TRY(ls_inputs_fill(inputs, rank, LS_SESSION_EVALUATE_AGAIN, m, batch, error));
  return ls_rank_run(rank, LS_SESSION_EVALUATE_AGAIN, error);
}

static ls_status evaluate_batches(const ls_session *session, const ls_dataset *dataset,
                                  ls_rank *rank, const ls_evaluating *told, ls_told *counts,
                                  ls_evaluation *found, ls_error *error) {
  int64_t batches = ls_order_batches(&dataset->evaluation);
  if (batches > session->run->eval.batches) batches = session->run->eval.batches;
  const bool tells = told->batch && ls_rank_number(rank) == 0;
  ls_inputs inputs = ls_inputs_of_order(&dataset->evaluation);
  inputs.weights = session->run->classes.weight;
  const bool classifies = session->config.classes > 0;
  double sum = 0, counted = 0;
  *found = (ls_evaluation){.loss = NAN, .accuracy = NAN, .macro_f1 = NAN, .micro_f1 = NAN};
  for (int64_t b = 0; b < batches; b++) {
    LS_TRY(ls_agree_any(rank, ls_stop_asked(), "whether to stop", &found->interrupted, error));
    if (found->interrupted) return LS_OK;
    if (tells) told->batch(told->context, b, batches);
    for (int m = 0; m < session->layout.microbatches; m++) {
      LS_TRY(run(session, rank, &inputs, m, b, error));
      sum += ls_rank_cell(rank, LS_CELL_LOSS_SUM);
      counted += ls_rank_cell(rank, LS_CELL_VALID_TOKENS);
      if (classifies) LS_TRY(ls_count_told(rank, counts, error));
    }
    found->batches = b + 1;
  }
  if (classifies) LS_TRY(ls_sum_told(rank, counts, error));
  found->tokens = classifies ? ls_told_asked(counts) : (int64_t)counted;
  found->correct = ls_told_right(counts);
  if (counted > 0) found->loss = sum / counted;
  if (classifies) found->accuracy = (double)found->correct / (double)found->tokens;
  if (classifies) found->macro_f1 = ls_told_macro_f1(counts);
  if (classifies) found->micro_f1 = ls_told_micro_f1(counts);
  return LS_OK;
}

ls_status ls_evaluate(const ls_session *session, const ls_dataset *dataset, ls_rank *rank,
                      const ls_evaluating *told, ls_evaluation *found, ls_error *error) {
  ls_arena *scratch = ls_arena_create();
  ls_told counts = ls_told_none(scratch, session->config.classes, session->config.several);
  const ls_status status = evaluate_batches(session, dataset, rank, told, &counts, found, error);
  ls_arena_destroy(&scratch);
  return status;
}

typedef struct job {
  const ls_session *session;
  const ls_dataset *dataset;
  const ls_evaluating *told;
  int first; /* rank of this process, whose findings are kept */
  ls_evaluation *found;
} job;

typedef struct worker {
  const job *of;
  ls_rank *rank;
} worker;

static ls_status evaluate(void *context, ls_error *error) {
  const worker *self = context;
  const job *of = self->of;
  ls_status status =
      ls_session_load_weights(of->session, self->rank, of->session->weights, NULL, error);
  LS_TRY(ls_agree(self->rank, status, error));
  ls_evaluation found;
  LS_TRY(ls_evaluate(of->session, of->dataset, self->rank, of->told, &found, error));
  if (ls_rank_number(self->rank) == of->first) *of->found = found;
  if (!found.interrupted) return LS_OK;
  return ls_fail(error, LS_STOPPED, "stopped after %lld of %lld batches", (long long)found.batches,
                 (long long)ls_order_batches(&of->dataset->evaluation));
}

static ls_status rank_body(ls_comm *comm, void *context, ls_error *error) {
  worker self = {.of = context};
  LS_TRY(ls_session_rank(self.of->session, comm, &self.rank, error));
  const ls_status status = ls_arena_guard(evaluate, &self, false, error);
  ls_rank_destroy(&self.rank);
  return status;
}

static ls_status prove(void *context, ls_error *error) {
  const job *all = context;
  ls_session_proof proof;
  return all->session->run->check ? ls_session_prove(all->session, &proof, error) : LS_OK;
}

ls_status ls_evaluate_weights(const ls_session *session, const ls_dataset *dataset, ls_world *world,
                              const ls_evaluating *told, ls_evaluation *found, ls_error *error) {
  job all = {session, dataset, told, ls_world_first_here(world), found};
  LS_ASSERT(session->weights);
  LS_TRY(ls_world_agree(world, ls_arena_guard(prove, &all, false, error), error));
  return ls_rank_threads_run(world, rank_body, &all, error);
}
