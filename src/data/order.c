#include "data/order.h"

#include <string.h>

#include "base/random.h"

int64_t ls_order_count(int64_t tokens, int64_t seq_len) {
  LS_ASSERT(seq_len > 0);
  return tokens > 1 ? (tokens - 1) / seq_len : 0;
}

int64_t ls_order_sequence(const ls_order *order, int64_t sample) {
  LS_ASSERT(order->sequences > 0 && sample >= 0);
  if (!order->shuffled) return sample < order->sequences ? sample : -1;
  const uint64_t count = (uint64_t)order->sequences;
  const uint64_t epoch = (uint64_t)sample / count, index = (uint64_t)sample % count;
  const uint64_t stream = ls_random_stream("data.order") + epoch;
  return (int64_t)ls_random_permute(order->seed, stream, count, index);
}

int64_t ls_order_batches(const ls_order *order) {
  return (order->sequences + order->batch - 1) / order->batch;
}

double ls_order_epoch(const ls_order *order, int64_t steps) {
  return (double)steps * (double)order->batch / (double)order->sequences;
}

static void fill_row(const ls_order *order, int64_t sample, int32_t *ids, int32_t *labels) {
  const int64_t length = order->seq_len;
  const int64_t sequence = ls_order_sequence(order, sample);
  if (sequence < 0) {
    for (int64_t t = 0; t < length; t++) {
      ids[t] = 0;
      labels[t] = LS_NO_LABEL;
    }
    return;
  }
  const int64_t start = order->first + sequence * length;
  ls_corpus_copy(order->corpus, start, length, ids);
  memcpy(labels, ids + 1, (size_t)(length - 1) * sizeof *labels);
  ls_corpus_copy(order->corpus, start + length, 1, labels + length - 1);
}

void ls_batch_fill(const ls_order *order, int64_t step, int64_t first_row, int64_t rows,
                   int32_t *ids, int32_t *labels) {
  LS_ASSERT(step >= 0 && first_row >= 0 && rows >= 0 && first_row <= order->batch - rows);
  for (int64_t row = 0; row < rows; row++) {
    fill_row(order, step * order->batch + first_row + row, ids + row * order->seq_len,
             labels + row * order->seq_len);
  }
}
