#include "graph/op_flops.h"

#include "graph/ring.h"

/* Keys that a query sees on average: half of the sequence, or less with a window; both ways twice
 * as many. */
static double mean_keys(const ls_attributes *attributes) {
  const double sequence = (double)attributes->sequence, window = (double)attributes->window;
  const double ways = attributes->two_way ? 2 : 1;
  if (window < 1 || window >= sequence) return ways * sequence / 2;
  return ways * (window - window * window / (2 * sequence));
}

/* Causal attention sees half of T x T: each of its products costs 2 x n x T / 2 x the columns of
 * the query; forward has two (scores, values). */
double ls_attention_flops(const ls_attributes *attributes, const int64_t *query,
                          const int64_t *keys) {
  (void)keys;
  return 2 * 2 * (double)query[0] * mean_keys(attributes) * (double)query[1];
}

/* Four products: dq, dk, dv and the slope of the softmax. What is computed again is not counted. */
double ls_attention_bwd_flops(const ls_attributes *attributes, const int64_t *query,
                              const int64_t *other) {
  return 2 * ls_attention_flops(attributes, query, other);
}

/* A block of the ring has an equal part of them: under zigzag order so do all that any rank needs.
 */
double ls_ring_flops(const ls_attributes *attributes, const int64_t *query, const int64_t *keys) {
  return ls_attention_flops(attributes, query, keys) / (double)ls_ring_needed(attributes);
}

double ls_ring_bwd_flops(const ls_attributes *attributes, const int64_t *query,
                         const int64_t *other) {
  return ls_attention_bwd_flops(attributes, query, other) / (double)ls_ring_needed(attributes);
}

/* Five times the matrix times itself, that times itself, and the matrix times what both make. */
double ls_orthogonalise_flops(const ls_attributes *attributes, const int64_t *elements,
                              const int64_t *other) {
  (void)attributes, (void)other;
  const double columns = (double)(elements[1] > 0 ? elements[1] : 1);
  const double rows = (double)elements[0] / columns;
  const double least = rows < columns ? rows : columns, most = rows < columns ? columns : rows;
  return 5 * (4 * least * least * most + 2 * least * least * least);
}
