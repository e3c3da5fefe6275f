#include "train/references.h"

#include "base/stop.h"
#include "session/agree.h"
#include "session/scores.h"

typedef struct scoring {
  ls_arena *arena;
  const ls_session *session;
  ls_rank *rank;
  const ls_evaluating *told;
  ls_order plain; /* every sequence once */
  double **found; /* by part: [2 x pieces] */
  double *scores; /* by token of a batch */
} scoring;

/* Both answers of each pair of a sequence, whose tokens' scores these are. */
static void take_sequence(const scoring *self, int64_t sample, const double *scores) {
  const ls_sample at = ls_order_sample(&self->plain, sample);
  if (at.part < 0) return;
  const ls_packing *packing = self->plain.mix[at.part].packing;
  for (int64_t p = packing->rows[at.sequence]; p < packing->rows[at.sequence + 1]; p++) {
    self->found[at.part][2 * p] = scores[0];
    self->found[at.part][2 * p + 1] = scores[packing->pieces[p].chosen];
    scores += packing->pieces[p].count;
  }
}

static ls_status score_all(const scoring *self, ls_error *error) {
  const int64_t batches = ls_order_batches(&self->plain), rows = self->plain.batch;
  const ls_inputs inputs = ls_inputs_of_order(&self->plain);
  for (int64_t b = 0; b < batches; b++) {
    bool stops;
    LS_TRY(ls_agree_any(self->rank, ls_stop_asked(), "whether to stop", &stops, error));
    if (stops)
      return ls_fail(error, LS_STOPPED,
                     "stopped before the first step, at the reference's answers");
    if (self->told->batch && ls_rank_number(self->rank) == 0)
      self->told->batch(self->told->context, b, batches);
    LS_TRY(ls_score_batch(self->session, self->rank, &inputs, b, self->scores, error));
    for (int64_t r = 0; r < rows; r++)
      take_sequence(self, b * rows + r, self->scores + r * self->plain.seq_len);
  }
  return LS_OK;
}

/* The order with what is found of it. */
static ls_status score_order(const scoring *all, const ls_order *order, ls_order *own,
                             ls_error *error) {
  scoring self = *all;
  *own = *order;
  if (order->sequences == 0) return LS_OK;
  own->mix = LS_NEW_ARRAY(self.arena, ls_mix, order->mix_count);
  self.found = LS_NEW_ARRAY(self.arena, double *, order->mix_count);
  self.plain = *order;
  self.plain.shuffled = false;
  for (int m = 0; m < order->mix_count; m++) {
    const ls_packing *packing = order->mix[m].packing;
    self.found[m] = LS_NEW_ARRAY(self.arena, double, 2 * packing->rows[packing->row_count] + 1);
    own->mix[m] = order->mix[m];
    own->mix[m].reference = self.found[m];
  }
  return score_all(&self, error);
}

ls_status ls_references_make(ls_arena *arena, const ls_session *session, const ls_dataset *dataset,
                             ls_rank *rank, const ls_evaluating *told, ls_dataset *own,
                             ls_error *error) {
  const scoring self = {.arena = arena,
                        .session = session,
                        .rank = rank,
                        .told = told,
                        .scores = LS_NEW_ARRAY(arena, double, session->batch * session->sequence)};
  *own = *dataset;
  LS_TRY(score_order(&self, &dataset->training, &own->training, error));
  return score_order(&self, &dataset->evaluation, &own->evaluation, error);
}
