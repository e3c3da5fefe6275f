/* Products of few terms, as an adapter's are: a row's numbers against as many of each column. What
 * multiplies 16 columns stays in registers while rows pass. Flops are the floor, and memory. */
#include "device/cpu/vector_kernels.h"

#if defined(__AVX512BF16__)
enum {
  LANES = LS_FEW_SUMS_UNIT,
  TOGETHER = 8 /* rows of y that are written at once, line after line */
};

/* Of a column's terms, which lie side by side. */
static void pack_columns(const ls_shallow *p, int64_t stride) {
  for (int64_t c = 0; c < p->columns; c++)
    for (int64_t i = 0; i < p->depth / 2; i++)
      memcpy(p->pairs + i * stride + c, p->w + c * p->w_column + 2 * i, sizeof *p->pairs);
}

static void pack_rows(const ls_shallow *p, int64_t stride) {
  for (int64_t i = 0; i < p->depth / 2; i++) {
    const uint16_t *upper = p->w + 2 * i * p->w_row, *lower = upper + p->w_row;
    uint32_t *to = p->pairs + i * stride;
    for (int64_t c = 0; c < p->columns; c++) to[c] = (uint32_t)upper[c] | (uint32_t)lower[c] << 16;
  }
}

void LS_VECTOR(ls_shallow_pack)(const ls_shallow *p) {
  const int64_t stride = ls_shallow_stride(p->columns);
  for (int64_t i = 0; i < p->depth / 2; i++)
    for (int64_t c = p->columns; c < stride; c++) p->pairs[i * stride + c] = 0;
  (p->w_row == 1 ? pack_columns : pack_rows)(p, stride);
}

#if !defined(__AMX_BF16__) /* see vector_few_tiles.c */
/* Rows of 16 columns, of `pairs` pairs of terms. */
LS_INLINE void strip(const ls_shallow *p, int64_t begin, int64_t end, int64_t column, int pairs) {
  const int64_t left = p->columns - column;
  const __mmask16 some = (__mmask16)(left >= LANES ? 0xffffu : (1u << left) - 1);
  __m512i w[LS_SHALLOW / 2];
#pragma GCC unroll 16
  for (int i = 0; i < pairs; i++)
    w[i] = _mm512_loadu_si512(p->pairs + i * ls_shallow_stride(p->columns) + column);
  for (int64_t n = begin; n < end; n++) {
    const uint16_t *x = p->x.data + n * p->x.stride;
    uint16_t *y = p->y + n * p->stride + column;
    __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
#pragma GCC unroll 16
    for (int i = 0; i < pairs; i++) {
      int32_t two;
      memcpy(&two, x + 2 * i, sizeof two);
      sums[i % 2] = _mm512_dpbf16_ps(sums[i % 2], (__m512bh)w[i], (__m512bh)_mm512_set1_epi32(two));
    }
    __m512 sum = _mm512_add_ps(sums[0], sums[1]);
    if (p->add) {
      const __m512i before = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, y));
      sum = _mm512_add_ps(sum, (__m512)_mm512_slli_epi32(before, 16));
    }
    _mm256_mask_storeu_epi16(y, some, (__m256i)_mm512_cvtneps_pbh(sum));
  }
}

LS_INLINE void block(const ls_shallow *p, int64_t begin, int64_t end, int pairs) {
  for (int64_t column = 0; column < p->columns; column += LANES)
    strip(p, begin, end, column, pairs);
}

void LS_VECTOR(ls_shallow_make)(const ls_shallow *p, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; n += TOGETHER) {
    const int64_t behind = least(n + TOGETHER, end);
    switch (p->depth) {
      case 8: block(p, n, behind, 4); break;
      case 16: block(p, n, behind, 8); break;
      default: block(p, n, behind, 16); break;
    }
  }
}
#endif
#endif
