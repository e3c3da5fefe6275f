/* A product with few rows, as a token that is generated makes: every weight is read once, so what
 * counts is to ask the memory for them in time. */
#include "device/cpu/vector_kernels.h"
#include "device/cpu/vector_tile.h"

enum { AHEAD_BYTES = 8192 };

typedef uint16_t narrow_lanes
    __attribute__((vector_size(LS_LANES * sizeof(uint16_t)), aligned(2), may_alias));

/* LS_LANES weights. */
LS_INLINE lanes weights_load(const char *source, bool bf16) {
  if (!bf16) return *(const lanes_anywhere *)(const void *)source;
  const narrow_lanes bits = *(const narrow_lanes *)(const void *)source;
  return (lanes)(__builtin_convertvector(bits, lanes_bits) << 16);
}

/* Rows of x that are multiplied at once, as registers allow, so that a weight is asked for and
 * widened once for all of them. */
enum { TOGETHER = LS_LANES == 16 ? 4 : 2 };

/* x . w of `rows` rows, each in as many sums as do not wait for each other: the same ones however
 * many rows there are. */
LS_INLINE void dots(const ls_few_rows *p, int64_t first, int rows, int64_t m, bool bf16) {
  enum { SUMS = 4, STEP = SUMS * LS_LANES };
  const int64_t bytes = bf16 ? 2 : 4, depth = p->depth;
  const char *w = (const char *)p->weights + m * p->stride * bytes;
  const float *x = p->x + first * depth;
  lanes sums[TOGETHER][SUMS] = {{{0}}};
  int64_t at = 0;
  for (; at + STEP <= depth; at += STEP) {
    for (int64_t b = 0; b < STEP * bytes; b += 64)
      __builtin_prefetch(w + at * bytes + AHEAD_BYTES + b, 0, 2);
#pragma GCC unroll 4
    for (int i = 0; i < SUMS; i++) {
      const lanes weights = weights_load(w + (at + i * LS_LANES) * bytes, bf16);
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++)
        sums[r][i] += *(const lanes_anywhere *)(x + r * depth + at + i * LS_LANES) * weights;
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) {
    float rest = 0;
    for (int64_t j = at; j < depth; j++)
      rest += x[r * depth + j] * (bf16 ? ls_bf16_widen(((const uint16_t *)(const void *)w)[j])
                                       : ((const float *)(const void *)w)[j]);
    p->y[(first + r) * p->columns + m] =
        lanes_sum((sums[r][0] + sums[r][1]) + (sums[r][2] + sums[r][3])) + rest;
  }
}

LS_INLINE void rows_run(const ls_few_rows *p, bool bf16, int64_t begin, int64_t end) {
  for (int64_t m = begin; m < end; m++) {
    int64_t n = 0;
    for (; n + TOGETHER <= p->rows; n += TOGETHER) dots(p, n, TOGETHER, m, bf16);
    for (; n + 2 <= p->rows; n += 2) dots(p, n, 2, m, bf16);
    for (; n < p->rows; n++) dots(p, n, 1, m, bf16);
  }
}

void LS_VECTOR(ls_rows_multiply)(const ls_few_rows *p, int64_t begin, int64_t end) {
  if (ls_dtype_numbers(p->dtype) > 1)
    LS_VECTOR(ls_rows_multiply_blocks)(p, begin, end);
  else if (p->dtype == LS_BF16)
    rows_run(p, true, begin, end);
  else
    rows_run(p, false, begin, end);
}
