#include "data/order.h"

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "base/sets.h"
#include "model/model.h"

int64_t ls_order_count(int64_t tokens, int64_t seq_len) {
  LS_ASSERT(seq_len > 0);
  return tokens > 1 ? (tokens - 1) / seq_len : 0;
}

/* The smallest period in which every share is whole: 3 and 7 for 0.3 and 0.7. */
static int64_t smallest_period(const ls_order *order, double total) {
  for (int64_t period = order->mix_count; period < LS_MIX_PERIOD; period++) {
    bool whole = true;
    for (int m = 0; m < order->mix_count && whole; m++) {
      const double share = order->mix[m].weight / total * (double)period;
      whole = fabs(share - nearbyint(share)) < 1e-9 * (double)period && share > 0.5;
    }
    if (whole) return period;
  }
  return LS_MIX_PERIOD;
}

/* Rounds down, and gives what is left over to those that lost most by it. */
static void share_out(ls_order *order, double total) {
  int64_t left = order->period;
  for (int m = 0; m < order->mix_count; m++) {
    ls_mix *each = &order->mix[m];
    each->share = (int64_t)floor(each->weight / total * (double)order->period + 1e-6);
    left -= each->share;
  }
  for (; left > 0; left--) {
    int most = 0;
    double loss = -1;
    for (int m = 0; m < order->mix_count; m++) {
      const ls_mix *each = &order->mix[m];
      const double lost = each->weight / total * (double)order->period - (double)each->share;
      if (lost > loss + 1e-9) {
        loss = lost;
        most = m;
      }
    }
    order->mix[most].share++;
  }
}

static ls_status check_shares(const ls_order *order, ls_error *error) {
  for (int m = 0; m < order->mix_count; m++) {
    const ls_mix *each = &order->mix[m];
    if (each->sequences == 0)
      return ls_fail(error, LS_INPUT,
                     "text %d: found %lld tokens; a sequence of %lld tokens needs %lld: give more "
                     "text, or a smaller data.seq_len",
                     m + 1, (long long)each->part.tokens, (long long)order->seq_len,
                     (long long)order->seq_len + 1);
    if (each->share == 0)
      return ls_fail(error, LS_INPUT,
                     "text %d: a weight of %g is less than one sample in %d; expected a larger "
                     "weight, or leave the text out",
                     m + 1, each->weight, LS_MIX_PERIOD);
  }
  return LS_OK;
}

ls_status ls_order_prepare(ls_order *order, ls_error *error) {
  LS_ASSERT(order->mix_count > 0 && order->batch > 0);
  double total = 0;
  order->sequences = 0;
  for (int m = 0; m < order->mix_count; m++) {
    ls_mix *each = &order->mix[m];
    each->sequences = each->packing ? each->packing->row_count
                                    : ls_order_count(each->part.tokens, order->seq_len);
    order->sequences += each->sequences;
    total += each->weight;
  }
  if (order->mix_count == 1 || !order->shuffled) {
    order->period = order->mix[0].share = 1;
    return LS_OK;
  }
  order->period = smallest_period(order, total);
  share_out(order, total);
  for (int m = 1; m < order->mix_count; m++)
    order->mix[m].before = order->mix[m - 1].before + order->mix[m - 1].share;
  return check_shares(order, error);
}

/* Parts one after another. */
static ls_sample in_sequence(const ls_order *order, int64_t sample) {
  for (int m = 0; m < order->mix_count; m++) {
    if (sample < order->mix[m].sequences) return (ls_sample){m, sample};
    sample -= order->mix[m].sequences;
  }
  return (ls_sample){-1, 0};
}

ls_sample ls_order_sample(const ls_order *order, int64_t sample) {
  LS_ASSERT(order->sequences > 0 && sample >= 0);
  if (!order->shuffled) return in_sequence(order, sample);
  int part = 0;
  if (order->mix_count > 1) {
    const int64_t period = sample / order->period;
    const uint64_t stream = ls_random_stream("data.mix") + (uint64_t)period;
    const int64_t slot = (int64_t)ls_random_permute(order->seed, stream, (uint64_t)order->period,
                                                    (uint64_t)(sample % order->period));
    while (slot >= order->mix[part].before + order->mix[part].share) part++;
    sample = period * order->mix[part].share + (slot - order->mix[part].before);
  }
  const uint64_t count = (uint64_t)order->mix[part].sequences;
  const uint64_t epoch = (uint64_t)sample / count, index = (uint64_t)sample % count;
  const uint64_t stream =
      ls_random_stream("data.order") + epoch + (uint64_t)part * 0x9e3779b97f4a7c15u;
  return (ls_sample){part, (int64_t)ls_random_permute(order->seed, stream, count, index)};
}

int64_t ls_order_batches(const ls_order *order) {
  return (order->sequences + order->batch - 1) / order->batch;
}

double ls_order_epoch(const ls_order *order, int64_t steps) {
  return (double)steps * (double)order->batch / (double)order->sequences;
}

static void fill_empty(int64_t length, const ls_batch *row) {
  for (int64_t t = 0; t < length; t++) {
    row->ids[t] = 0;
    row->labels[t] = LS_NO_LABEL;
    if (row->positions) row->positions[t] = (int32_t)t;
    if (row->reference) row->reference[t] = 0;
  }
}

/* Nothing after a document's last token is asked of it. */
static void fill_documents(const ls_text_part *part, int64_t start, int64_t length,
                           const ls_batch *row) {
  ls_text_part_places(part, start, length, row->positions);
  for (int64_t t = 0; t + 1 < length; t++)
    if (row->positions[t + 1] == 0) row->labels[t] = LS_NO_LABEL;
  int32_t after[2];
  ls_text_part_places(part, start + length - 1, 2, after);
  if (after[1] == 0) row->labels[length - 1] = LS_NO_LABEL;
}

/* One document from place `at` of the row on; it is asked for what is trained of it alone. What the
 * reference makes of all of it lies at the first of its labels. */
static ls_status fill_document(const ls_order *order, const ls_corpus *corpus, int64_t first,
                               int64_t count, const double *reference, int64_t at,
                               const ls_batch *row, ls_error *error) {
  LS_TRY(ls_corpus_copy(corpus, first, count, row->ids + at, error));
  LS_TRY(ls_corpus_copy_labels(corpus, first + 1, count - 1, row->labels + at, error));
  for (int64_t t = 0; row->positions && order->masked && t < count; t++)
    row->positions[at + t] = (int32_t)t;
  int64_t label = at;
  while (label < at + count - 1 && row->labels[label] < 0) label++;
  if (reference && row->reference) row->reference[label] = *reference;
  return LS_OK;
}

static void fill_types(const ls_order *order, int64_t count, int64_t at, const ls_batch *row) {
  bool second = false;
  for (int64_t t = at; row->types && order->typed && t < at + count; t++) {
    row->types[t] = second;
    second = second || row->ids[t] == order->separator;
  }
}

/* A text's set of classes, at the token that is asked for it; others have none. */
static ls_status fill_classes(const ls_order *order, const ls_corpus *corpus,
                              const ls_packed_piece *piece, int64_t asked, const ls_batch *row,
                              ls_error *error) {
  enum { ONCE = 64 };
  row->labels[asked] = 0;
  for (int64_t at = 0; row->sets && at < piece->labels; at += ONCE) {
    int32_t classes[ONCE];
    const int64_t here = piece->labels - at < ONCE ? piece->labels - at : ONCE;
    LS_TRY(ls_corpus_copy_labels(corpus, piece->label + at, here, classes, error));
    for (int64_t c = 0; c < here; c++) ls_set_add(row->sets + asked * order->set_words, classes[c]);
  }
  return LS_OK;
}

/* A row of whole examples. What is left of it is a document of its own that is asked for nothing.
 */
static ls_status fill_packed(const ls_order *order, const ls_mix *mix, int64_t sequence,
                             const ls_batch *row, ls_error *error) {
  const ls_packing *packing = mix->packing;
  const ls_corpus *corpus = mix->part.corpus;
  int64_t at = 0;
  fill_empty(order->seq_len, row);
  for (int64_t p = packing->rows[sequence]; p < packing->rows[sequence + 1]; p++) {
    const ls_packed_piece *piece = &packing->pieces[p];
    const double *reference = mix->reference ? mix->reference + 2 * p : NULL;
    const int64_t own = piece->chosen ? piece->chosen : piece->count;
    LS_TRY(fill_document(order, corpus, piece->first, own, reference, at, row, error));
    fill_types(order, own, at, row);
    const int64_t asked = at + (packing->first || packing->each ? 0 : own - 1);
    if (packing->several)
      LS_TRY(fill_classes(order, corpus, piece, asked, row, error));
    else if (piece->label)
      LS_TRY(
          ls_corpus_copy_labels(corpus, piece->label, piece->labels, row->labels + asked, error));
    if (piece->chosen)
      LS_TRY(fill_document(order, corpus, piece->first + own, piece->count - own,
                           reference ? reference + 1 : NULL, at + own, row, error));
    at += piece->count;
  }
  for (int64_t t = at; row->positions && order->masked && t < order->seq_len; t++)
    row->positions[t] = (int32_t)(t - at);
  return LS_OK;
}

int32_t ls_text_label(const ls_text_form *form, int64_t number, bool first, bool last) {
  const bool asked = form->pooling == LS_TEXT_FIRST ? first : last;
  if (asked && number % form->texts == 0) return (int32_t)number;
  return asked || form->pooling == LS_TEXT_MEAN ? (int32_t)(-2 - number) : LS_NO_LABEL;
}

/* Of a pair, whose texts are numbered from `number` on, `count` tokens, of which the first of each
 * text but the first is marked by a label. */
static void tell_texts(const ls_text_form *form, int64_t number, int64_t count, int32_t *labels,
                       int32_t *positions) {
  int32_t position = 0;
  for (int64_t t = 0; t < count; t++) {
    const bool last = t + 1 == count || labels[t + 1] >= 0;
    labels[t] = ls_text_label(form, number, position == 0, last);
    if (positions) positions[t] = position;
    position = last ? 0 : position + 1;
    number += last;
  }
}

/* A row of pairs of texts, which is number `number` of the step's. */
static ls_status fill_texts(const ls_order *order, const ls_mix *mix, int64_t sequence,
                            int64_t number, const ls_batch *row, ls_error *error) {
  const ls_packing *packing = mix->packing;
  const ls_text_form *form = order->texts;
  int64_t at = 0, pair = number * form->pairs;
  fill_empty(order->seq_len, row);
  for (int64_t p = packing->rows[sequence]; p < packing->rows[sequence + 1]; p++) {
    const ls_packed_piece *piece = &packing->pieces[p];
    LS_TRY(ls_corpus_copy(mix->part.corpus, piece->first, piece->count, row->ids + at, error));
    LS_TRY(ls_corpus_copy_labels(mix->part.corpus, piece->first, piece->count, row->labels + at,
                                 error));
    tell_texts(form, pair++ * form->texts, piece->count, row->labels + at,
               row->positions ? row->positions + at : NULL);
    at += piece->count;
  }
  for (int64_t t = at; row->positions && t < order->seq_len; t++)
    row->positions[t] = (int32_t)(t - at);
  return LS_OK;
}

static double share_of(uint64_t bits) {
  return (double)(bits >> 11) * 0x1p-53;
}

/* Token t of the row, which is number `token` of all that are ever drawn, is asked for. */
static void mask_token(const ls_masking *masking, uint64_t token, int64_t t, const ls_batch *row) {
  const uint64_t seed = masking->seed;
  const double share = share_of(ls_random_bits(seed, ls_random_stream("mlm.form"), token));
  row->labels[t] = row->ids[t];
  if (share < masking->mask_replace) {
    row->ids[t] = masking->mask;
  } else if (share < masking->mask_replace + masking->random_replace) {
    const uint64_t bits = ls_random_bits(seed, ls_random_stream("mlm.id"), token);
    row->ids[t] = (int32_t)(bits % (uint64_t)masking->vocabulary);
  }
}

/* Of a row in which no token was drawn the nearest to it is asked for: a loss over none is no
 * number. */
static void mask_row(const ls_masking *masking, int64_t sample, int64_t length,
                     const ls_batch *row) {
  const uint64_t first = (uint64_t)sample * (uint64_t)length;
  const uint64_t stream = ls_random_stream("mlm.chosen");
  double least = 1;
  int64_t nearest = -1;
  for (int64_t t = 0; t < length; t++) {
    row->labels[t] = LS_NO_LABEL;
    if (masking->special[row->ids[t]]) continue;
    const double share = share_of(ls_random_bits(masking->seed, stream, first + (uint64_t)t));
    if (share < least) least = share, nearest = t;
    if (share < masking->probability) mask_token(masking, first + (uint64_t)t, t, row);
  }
  if (nearest >= 0 && least >= masking->probability)
    mask_token(masking, first + (uint64_t)nearest, nearest, row);
}

static ls_status fill_row(const ls_order *order, int64_t sample, const ls_batch *row,
                          ls_error *error) {
  const int64_t length = order->seq_len;
  const ls_sample at = ls_order_sample(order, sample);
  if (at.part < 0) {
    fill_empty(length, row);
    return LS_OK;
  }
  if (order->texts)
    return fill_texts(order, &order->mix[at.part], at.sequence, sample % order->batch, row, error);
  if (order->mix[at.part].packing)
    return fill_packed(order, &order->mix[at.part], at.sequence, row, error);
  const ls_text_part *part = &order->mix[at.part].part;
  const int64_t start = at.sequence * length;
  LS_TRY(ls_text_part_copy(part, start, length, row->ids, error));
  memcpy(row->labels, row->ids + 1, (size_t)(length - 1) * sizeof *row->labels);
  LS_TRY(ls_text_part_copy(part, start + length, 1, row->labels + length - 1, error));
  if (order->masked) {
    LS_ASSERT(row->positions);
    fill_documents(part, start, length, row);
  } else if (row->positions) {
    for (int64_t t = 0; t < length; t++) row->positions[t] = (int32_t)t;
  }
  if (order->masking) mask_row(order->masking, sample, length, row);
  return LS_OK;
}

/* What the teacher has said of the row, whose sequences it has in the text's order. */
static ls_status fill_told(const ls_order *order, int64_t sample, const ls_batch *row,
                           ls_error *error) {
  const ls_top_logits *told = order->told;
  const int64_t count = order->seq_len * told->about.top;
  const ls_sample at = ls_order_sample(order, sample);
  int64_t number = order->told_first + at.sequence;
  LS_ASSERT(row->positions && row->top_below);
  for (int m = 0; m < at.part; m++) number += order->mix[m].sequences;
  if (at.part >= 0)
    return ls_top_logits_read(told, number, row->ids, row->positions, row->top_ids, row->top_below,
                              error);
  for (int64_t i = 0; i < count; i++) row->top_ids[i] = -1, row->top_below[i] = 0;
  return LS_OK;
}

ls_status ls_batch_fill(const ls_order *order, int64_t step, int64_t first_row, int64_t rows,
                        const ls_batch *batch, ls_error *error) {
  LS_ASSERT(step >= 0 && first_row >= 0 && rows >= 0 && first_row <= order->batch - rows);
  const int64_t top = order->told ? order->told->about.top : 0, words = order->set_words;
  for (int64_t r = 0; r < rows; r++) {
    const int64_t begin = r * order->seq_len;
    const ls_batch row = {batch->ids + begin,
                          batch->labels + begin,
                          batch->positions ? batch->positions + begin : NULL,
                          batch->reference ? batch->reference + begin : NULL,
                          batch->types ? batch->types + begin : NULL,
                          top && batch->top_ids ? batch->top_ids + begin * top : NULL,
                          top && batch->top_below ? batch->top_below + begin * top : NULL,
                          words && batch->sets ? batch->sets + begin * words : NULL};
    if (row.sets) memset(row.sets, 0, sizeof *row.sets * (size_t)(order->seq_len * words));
    const int64_t sample = step * order->batch + first_row + r;
    LS_TRY(fill_row(order, sample, &row, error));
    if (row.top_ids) LS_TRY(fill_told(order, sample, &row, error));
  }
  return LS_OK;
}

ls_status ls_order_check_told(ls_arena *arena, const ls_order *order, ls_error *error) {
  const int64_t length = order->seq_len, top = length * order->told->about.top;
  ls_order plain = *order;
  plain.shuffled = false;
  int32_t *numbers = LS_NEW_ARRAY(arena, int32_t, 3 * length + top);
  const ls_batch row = {.ids = numbers,
                        .labels = numbers + length,
                        .positions = numbers + 2 * length,
                        .top_ids = numbers + 3 * length,
                        .top_below = LS_NEW_ARRAY(arena, float, top)};
  for (int end = 0; end < 2 && order->sequences > 0; end++) {
    const int64_t sample = end ? order->sequences - 1 : 0;
    LS_TRY(ls_batch_fill(&plain, sample / order->batch, sample % order->batch, 1, &row, error));
  }
  return LS_OK;
}
