#include "train/evaluate_documents.h"

#include "base/stop.h"
#include "session/agree.h"
#include "session/scores.h"
#include "train/evaluate_ranks.h"

typedef struct job {
  const ls_session *session;
  const ls_dataset *dataset;
  const ls_evaluating *told;
  ls_document_losses *found;
} job;

/* Labels that a piece asks for. */
static ls_status count_labels(const ls_corpus *corpus, const ls_packed_piece *piece,
                              int32_t *labels, int64_t *count, ls_error *error) {
  *count = 0;
  LS_TRY(ls_corpus_copy_labels(corpus, piece->first + 1, piece->count - 1, labels, error));
  for (int64_t t = 0; t + 1 < piece->count; t++) *count += labels[t] >= 0;
  return LS_OK;
}

/* A sequence's pieces, of which each token has the log-probability of all labels. */
static ls_status take_sequence(const job *of, int64_t sample, const double *scores, int32_t *labels,
                               ls_error *error) {
  const ls_order *order = &of->dataset->evaluation;
  ls_document_losses *found = of->found;
  const ls_sample at = ls_order_sample(order, sample);
  if (at.part < 0) return LS_OK;
  int64_t before = 0; /* documents of the parts before */
  for (int m = 0; m < at.part; m++) before += order->mix[m].part.corpus->document_count;
  const ls_mix *mix = &order->mix[at.part];
  const ls_packing *packing = mix->packing;
  for (int64_t p = packing->rows[at.sequence]; p < packing->rows[at.sequence + 1]; p++) {
    const ls_packed_piece *piece = &packing->pieces[p];
    ls_document_loss *each =
        &found->items[before + ls_corpus_document(mix->part.corpus, piece->first)];
    int64_t count;
    LS_TRY(count_labels(mix->part.corpus, piece, labels, &count, error));
    each->sum -= scores[0];
    each->tokens += count;
    found->sum -= scores[0];
    found->tokens += count;
    scores += piece->count;
  }
  return LS_OK;
}

static ls_status score_batches(void *context, ls_rank *rank, ls_arena *arena, bool first,
                               ls_error *error) {
  const job *of = context;
  const ls_session *session = of->session;
  const ls_order *order = &of->dataset->evaluation;
  const ls_inputs inputs = ls_inputs_of_order(order);
  const int64_t batches = ls_order_batches(order), rows = order->batch, length = order->seq_len;
  const bool tells = of->told->batch && ls_rank_number(rank) == 0;
  double *scores = LS_NEW_ARRAY(arena, double, session->batch * session->sequence);
  int32_t *labels = LS_NEW_ARRAY(arena, int32_t, length);
  for (int64_t b = 0; b < batches; b++) {
    bool stops;
    LS_TRY(ls_agree_any(rank, ls_stop_asked(), "whether to stop", &stops, error));
    if (stops)
      return ls_fail(error, LS_STOPPED, "stopped after %lld of %lld batches", (long long)b,
                     (long long)batches);
    if (tells) of->told->batch(of->told->context, b, batches);
    LS_TRY(ls_score_batch(session, rank, &inputs, b, scores, error));
    for (int64_t r = 0; first && r < rows; r++)
      LS_TRY(take_sequence(of, b * rows + r, scores + r * length, labels, error));
    if (first) of->found->batches = b + 1;
  }
  return LS_OK;
}

ls_status ls_evaluate_documents(ls_arena *arena, const ls_session *session,
                                const ls_dataset *dataset, ls_world *world,
                                const ls_evaluating *told, ls_document_losses *found,
                                ls_error *error) {
  job all = {session, dataset, told, found};
  LS_ASSERT(session->run->eval.by_document);
  *found = (ls_document_losses){0};
  for (int m = 0; m < dataset->evaluation.mix_count; m++)
    found->count += dataset->evaluation.mix[m].part.corpus->document_count;
  found->items = LS_NEW_ARRAY(arena, ls_document_loss, found->count);
  return ls_evaluate_ranks(session, world, score_batches, &all, error);
}
