/* Gradients of matrices with few rows or columns, as adapters' are: sums over tokens of a token's
 * few numbers times its many. The few are packed as pairs of two tokens, which an instruction
 * multiplies and adds up; the many are read once. Flops are the floor. */
#include "device/cpu/vector_few_sums.h"
#include "device/cpu/vector_kernels.h"

#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
enum { LANES = LS_FEW_SUMS_UNIT };

LS_INLINE __mmask16 first_of(int64_t count) {
  return (__mmask16)(count >= LANES ? 0xffffu : (1u << count) - 1);
}

/* Up to 16 columns of a row and of the next side by side; behind the last row are zeros. */
LS_INLINE __m512i pair_at(const ls_bf16_rows *rows, int64_t row, int64_t end, int64_t column,
                          __mmask16 columns) {
  const uint16_t *at = rows->data + row * rows->stride + column;
  const __m512i one = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(columns, at));
  if (row + 1 == end) return one;
  const __m256i next = _mm256_maskz_loadu_epi16(columns, at + rows->stride);
  return _mm512_or_si512(one, _mm512_slli_epi32(_mm512_cvtepu16_epi32(next), 16));
}

void LS_VECTOR(ls_few_sums_pack)(const ls_few_sums *p) {
  uint32_t *pairs = p->pairs;
  for (int64_t column = 0; column < p->few_columns; column += LANES) {
    const __mmask16 columns = first_of(p->few_columns - column);
    for (int64_t n = 0; n < p->tokens; n += 2, pairs += LANES)
      _mm512_storeu_si512(pairs, pair_at(&p->few, n, p->tokens, column, columns));
  }
}

LS_INLINE void add_pair(__m512 sums[LANES], const uint32_t *pairs, __m512i many) {
#pragma GCC unroll 16
  for (int s = 0; s < LANES; s++)
    sums[s] =
        _mm512_dpbf16_ps(sums[s], (__m512bh)many, (__m512bh)_mm512_set1_epi32((int32_t)pairs[s]));
}

void LS_VECTOR(ls_few_sums_make)(const ls_few_sums *p, int64_t begin, int64_t end) {
  const int64_t pairs = (p->tokens + 1) / 2;
  for (int64_t column = begin * LANES; column < least(end * LANES, p->many_columns);
       column += LANES) {
    const __mmask16 columns = first_of(p->many_columns - column);
    for (int64_t few = 0; few < p->few_columns; few += LANES) {
      const uint32_t *packed = p->pairs + few * pairs;
      __m512 sums[LANES];
#pragma GCC unroll 16
      for (int s = 0; s < LANES; s++) sums[s] = _mm512_setzero_ps();
      for (int64_t i = 0; i < pairs; i++, packed += LANES)
        add_pair(sums, packed, pair_at(&p->many, 2 * i, p->tokens, column, columns));
      float made[LANES][LANES];
#pragma GCC unroll 16
      for (int s = 0; s < LANES; s++) _mm512_storeu_ps(made[s], sums[s]);
      few_sums_store(p, few, column, made[0]);
    }
  }
}
#endif
