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
const char *ls_attributes_differ(const ls_attributes *a, const ls_attributes *b, double of[2]) {
#define LS_DIFFER(type, name) \
  of[0] = (double)a->name;    \
  of[1] = (double)b->name;    \
  if (a->name != b->name) return #name;
  LS_ATTRIBUTES(LS_DIFFER)
#undef LS_DIFFER
  for (int64_t p = 0; p < a->rope_pairs; p++) {
    of[0] = a->rope_frequencies[p];
    of[1] = b->rope_frequencies[p];
    if (of[0] != of[1]) return "rope_frequencies";
  }
  return NULL;
}

bool ls_attributes_equal(const ls_attributes *a, const ls_attributes *b) {
  double of[2];
  return !ls_attributes_differ(a, b, of);
}
