/* A product with few rows, as a token that is generated makes: every weight is read once, so what
 * counts is to ask the memory for them in time. */
#include "run/cpu/vector_kernels.h"
#include "run/cpu/vector_tile.h"

enum { AHEAD_BYTES = 8192 };

typedef uint16_t narrow_lanes
    __attribute__((vector_size(LS_LANES * sizeof(uint16_t)), aligned(2), may_alias));

/* LS_LANES weights. */
LS_INLINE lanes weights_load(const char *source, bool bf16) {
  if (!bf16) return *(const lanes_anywhere *)(const void *)source;
  const narrow_lanes bits = *(const narrow_lanes *)(const void *)source;
  return (lanes)(__builtin_convertvector(bits, lanes_bits) << 16);
}

/* x . w, in as many sums as do not wait for each other. */
LS_INLINE float dot(const float *x, const char *w, bool bf16, int64_t count) {
  enum { SUMS = 4, STEP = SUMS * LS_LANES };
  const int64_t bytes = bf16 ? 2 : 4;
  lanes sums[SUMS] = {{0}};
  int64_t at = 0;
  for (; at + STEP <= count; at += STEP) {
    for (int64_t b = 0; b < STEP * bytes; b += 64)
      __builtin_prefetch(w + at * bytes + AHEAD_BYTES + b, 0, 2);
#pragma GCC unroll 4
    for (int i = 0; i < SUMS; i++)
      sums[i] += *(const lanes_anywhere *)(x + at + i * LS_LANES) *
                 weights_load(w + (at + i * LS_LANES) * bytes, bf16);
  }
  float rest = 0;
  for (; at < count; at++)
    rest += x[at] * (bf16 ? ls_bf16_widen(((const uint16_t *)(const void *)w)[at])
                          : ((const float *)(const void *)w)[at]);
  return lanes_sum((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

LS_INLINE void rows_run(const ls_few_rows *p, bool bf16, int64_t begin, int64_t end) {
  for (int64_t m = begin; m < end; m++) {
    const char *w = (const char *)p->weights + m * p->stride * (bf16 ? 2 : 4);
    for (int64_t n = 0; n < p->rows; n++)
      p->y[n * p->columns + m] = dot(p->x + n * p->depth, w, bf16, p->depth);
  }
}

void LS_VECTOR(ls_rows_multiply)(const ls_few_rows *p, int64_t begin, int64_t end) {
  if (p->dtype == LS_BF16)
    rows_run(p, true, begin, end);
  else
    rows_run(p, false, begin, end);
}
