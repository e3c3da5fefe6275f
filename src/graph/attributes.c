#include <math.h>
#include <string.h>

#include "graph/op.h"

double ls_alibi_slope(int64_t head, int64_t heads) {
  int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  const double base = exp2(-8 / (double)power);
  if (head < power) return pow(base, (double)(head + 1));
  return pow(sqrt(base), (double)(2 * (head - power) + 1));
}

/* Numbers are compared as they are: both sides come from one place, so not a bit may differ. */
bool ls_attributes_equal(const ls_attributes *a, const ls_attributes *b) {
  return a->sequence == b->sequence && a->head_dim == b->head_dim && a->kv_heads == b->kv_heads &&
         a->heads == b->heads && a->window == b->window && a->columns == b->columns &&
         a->epsilon == b->epsilon && a->weight_offset == b->weight_offset &&
         a->softmax_scale == b->softmax_scale && a->softcap == b->softcap && a->alibi == b->alibi &&
         a->scale == b->scale && a->rope_scale == b->rope_scale && a->rope_pairs == b->rope_pairs &&
         (a->rope_pairs == 0 || memcmp(a->rope_frequencies, b->rope_frequencies,
                                       sizeof(double) * (size_t)a->rope_pairs) == 0) &&
         a->activation == b->activation && a->beta1 == b->beta1 && a->beta2 == b->beta2 &&
         a->weight_decay == b->weight_decay && a->clip == b->clip && a->weight == b->weight;
}
