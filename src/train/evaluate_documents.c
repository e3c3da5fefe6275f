#include "train/evaluate_documents.h"

#include "base/stop.h"
#include "run/rank_threads.h"
#include "session/agree.h"
#include "session/scores.h"

typedef struct job {
  const ls_session *session;
  const ls_dataset *dataset;
  const ls_evaluating *told;
  int first; /* rank of this process, whose findings are kept */
  ls_document_losses *found;
} job;

typedef struct worker {
  const job *of;
  ls_rank *rank;
  ls_arena *arena;
} worker;

/* Labels that a piece asks for. */
static ls_status count_labels(const ls_corpus *corpus, const ls_packed_piece *piece,
                              int32_t *labels, int64_t *count, ls_error *error) {
  *count = 0;
  LS_TRY(ls_corpus_copy_labels(corpus, piece->first + 1, piece->count - 1, labels, error));
  for (int64_t t = 0; t + 1 < piece->count; t++) *count += labels[t] >= 0;
  return LS_OK;
}

/* A sequence's pieces, of which each token has the log-probability of all labels. */
static ls_status take_sequence(const worker *self, int64_t sample, const double *scores,
                               int32_t *labels, ls_error *error) {
  const ls_order *order = &self->of->dataset->evaluation;
  ls_document_losses *found = self->of->found;
  const ls_sample at = ls_order_sample(order, sample);
  if (at.part < 0) return LS_OK;
  int64_t before = 0; /* documents of the parts before */
  for (int m = 0; m < at.part; m++) before += order->mix[m].part.corpus->document_count;
  const ls_mix *mix = &order->mix[at.part];
  const ls_packing *packing = mix->packing;
  for (int64_t p = packing->rows[at.sequence]; p < packing->rows[at.sequence + 1]; p++) {
    const ls_packed_piece *piece = &packing->pieces[p];
    ls_document_loss *of =
        &found->items[before + ls_corpus_document(mix->part.corpus, piece->first)];
    int64_t count;
    LS_TRY(count_labels(mix->part.corpus, piece, labels, &count, error));
    of->sum -= scores[0];
    of->tokens += count;
    found->sum -= scores[0];
    found->tokens += count;
    scores += piece->count;
  }
  return LS_OK;
}

static ls_status score_batches(const worker *self, ls_error *error) {
  const ls_session *session = self->of->session;
  const ls_order *order = &self->of->dataset->evaluation;
  const ls_inputs inputs = ls_inputs_of_order(order);
  const int64_t batches = ls_order_batches(order), rows = order->batch, length = order->seq_len;
  const bool keeps = ls_rank_number(self->rank) == self->of->first;
  const bool tells = self->of->told->batch && ls_rank_number(self->rank) == 0;
  double *scores = LS_NEW_ARRAY(self->arena, double, session->batch * session->sequence);
  int32_t *labels = LS_NEW_ARRAY(self->arena, int32_t, length);
  for (int64_t b = 0; b < batches; b++) {
    bool stops;
    LS_TRY(ls_agree_any(self->rank, ls_stop_asked(), "whether to stop", &stops, error));
    if (stops)
      return ls_fail(error, LS_STOPPED, "stopped after %lld of %lld batches", (long long)b,
                     (long long)batches);
    if (tells) self->of->told->batch(self->of->told->context, b, batches);
    LS_TRY(ls_score_batch(session, self->rank, &inputs, b, scores, error));
    for (int64_t r = 0; keeps && r < rows; r++)
      LS_TRY(take_sequence(self, b * rows + r, scores + r * length, labels, error));
    if (keeps) self->of->found->batches = b + 1;
  }
  return LS_OK;
}

static ls_status evaluate(void *context, ls_error *error) {
  const worker *self = context;
  const ls_session *session = self->of->session;
  const ls_status status =
      ls_session_load_weights(session, self->rank, session->weights, NULL, error);
  LS_TRY(ls_agree(self->rank, status, error));
  return score_batches(self, error);
}

static ls_status rank_body(ls_comm *comm, void *context, ls_error *error) {
  worker self = {.of = context};
  LS_TRY(ls_session_rank(self.of->session, comm, &self.rank, error));
  self.arena = ls_arena_create();
  const ls_status status = ls_arena_guard(evaluate, &self, false, error);
  ls_arena_destroy(&self.arena);
  ls_rank_destroy(&self.rank);
  return status;
}

static ls_status prove(void *context, ls_error *error) {
  const job *all = context;
  ls_session_proof proof;
  return all->session->run->check ? ls_session_prove(all->session, &proof, error) : LS_OK;
}

ls_status ls_evaluate_documents(ls_arena *arena, const ls_session *session,
                                const ls_dataset *dataset, ls_world *world,
                                const ls_evaluating *told, ls_document_losses *found,
                                ls_error *error) {
  job all = {session, dataset, told, ls_world_first_here(world), found};
  LS_ASSERT(session->weights && session->run->eval.by_document);
  *found = (ls_document_losses){0};
  for (int m = 0; m < dataset->evaluation.mix_count; m++)
    found->count += dataset->evaluation.mix[m].part.corpus->document_count;
  found->items = LS_NEW_ARRAY(arena, ls_document_loss, found->count);
  LS_TRY(ls_world_agree(world, ls_arena_guard(prove, &all, false, error), error));
  return ls_rank_threads_run(world, rank_body, &all, error);
}
