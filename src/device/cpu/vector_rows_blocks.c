/* A product with few rows of weights that are stored as blocks (base/blocks.h). Numbers that codes
 * stand for are made in registers and multiplied; a block's sum is scaled once. */
#include "base/blocks.h"
#include "device/cpu/vector_kernels.h"
#include "device/cpu/vector_tile.h"

enum {
  AHEAD_BYTES = 8192,
  VECTORS = LS_BLOCK_WEIGHTS / LS_LANES,
  /* Rows of x that are multiplied at once, as registers allow. */
  TOGETHER = LS_LANES == 16 ? 4 : 2
};

/* Vector `i` of the numbers that a block's codes stand for: of 4 bits in the order of
 * ls_four_bit_place. A permutation reads the lowest bits of an index and no others, so that a shift
 * is all it takes. */
#if defined(__AVX512F__)
LS_INLINE lanes four_bit_numbers(const uint8_t *codes, const float *values, int i) {
  const lanes_bits apart = {0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4};
  const __m256i words = _mm256_loadu_si256((const __m256i *)(const void *)codes);
  const lanes_bits both = (lanes_bits)_mm512_broadcast_i64x4(words) >> apart;
  return (lanes)_mm512_permutexvar_ps((__m512i)(both >> (8 * i)), _mm512_loadu_ps(values));
}
#elif defined(__AVX2__)
/* Of two tables of eight the one that the code's upper bit says. */
LS_INLINE lanes four_bit_numbers(const uint8_t *codes, const float *values, int i) {
  const __m256 below = _mm256_loadu_ps(values), above = _mm256_loadu_ps(values + 8);
  const lanes_bits words = (lanes_bits)_mm256_loadu_si256((const __m256i *)(const void *)codes);
  const __m256i at = (__m256i)(words >> (4 * i));
  return (lanes)_mm256_blendv_ps(_mm256_permutevar8x32_ps(below, at),
                                 _mm256_permutevar8x32_ps(above, at),
                                 (__m256)(words << (28 - 4 * i)));
}
#else
LS_INLINE lanes four_bit_numbers(const uint8_t *codes, const float *values, int i) {
  const int first = i * LS_LANES % 8, shift = i * LS_LANES / 8 * 4;
  lanes made;
  for (int l = 0; l < LS_LANES; l++) {
    uint32_t word;
    memcpy(&word, codes + (first + l) * (int)sizeof word, sizeof word);
    made[l] = values[word >> shift & 15];
  }
  return made;
}
#endif

#if defined(__AVX512F__)
LS_INLINE lanes int8_numbers(const int8_t *codes, int i) {
  const __m128i narrow = _mm_loadu_si128((const __m128i *)(const void *)codes + i);
  return (lanes)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(narrow));
}
#elif defined(__AVX2__)
LS_INLINE lanes int8_numbers(const int8_t *codes, int i) {
  const __m128i narrow = _mm_loadl_epi64((const __m128i *)(const void *)(codes + i * LS_LANES));
  return (lanes)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(narrow));
}
#else
LS_INLINE lanes int8_numbers(const int8_t *codes, int i) {
  lanes made;
  for (int l = 0; l < LS_LANES; l++) made[l] = codes[i * LS_LANES + l];
  return made;
}
#endif

/* Adds what a block gives to the sums of `rows` rows of x, which are `depth` numbers apart. */
LS_INLINE void block_add(lanes *sums, const char *block, const float *x, int64_t depth, int rows,
                         const float *values) {
  float scale;
  lanes made[TOGETHER] = {{0}};
  __builtin_prefetch(block + AHEAD_BYTES, 0, 2);
  memcpy(&scale, block, sizeof scale);
#pragma GCC unroll 16
  for (int i = 0; i < VECTORS; i++) {
    const lanes numbers = values
                              ? four_bit_numbers((const uint8_t *)block + sizeof scale, values, i)
                              : int8_numbers((const int8_t *)block + sizeof scale, i);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
      made[r] += *(const lanes_anywhere *)(x + r * depth + i * LS_LANES) * numbers;
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) sums[r] += made[r] * scale;
}

/* x . w of `rows` rows; sums of two blocks do not wait for each other. */
LS_INLINE void dots(const ls_few_rows *p, int64_t first, int rows, int64_t m, const float *values) {
  const int64_t bytes =
      values ? (int64_t)sizeof(ls_four_bit_block) : (int64_t)sizeof(ls_int8_block);
  const int64_t depth = p->depth, blocks = depth / LS_BLOCK_WEIGHTS;
  const char *at = (const char *)p->weights + m * p->stride * bytes;
  const float *x = p->x + first * depth;
  lanes even[TOGETHER] = {{0}}, odd[TOGETHER] = {{0}};
  int64_t b = 0;
  for (; b + 2 <= blocks; b += 2, at += 2 * bytes, x += 2 * LS_BLOCK_WEIGHTS) {
    block_add(even, at, x, depth, rows, values);
    block_add(odd, at + bytes, x + LS_BLOCK_WEIGHTS, depth, rows, values);
  }
  if (b < blocks) block_add(even, at, x, depth, rows, values);
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++) p->y[(first + r) * p->columns + m] = lanes_sum(even[r] + odd[r]);
}

LS_INLINE void rows_run(const ls_few_rows *p, const float *values, int64_t begin, int64_t end) {
  for (int64_t m = begin; m < end; m++) {
    int64_t n = 0;
    for (; n + TOGETHER <= p->rows; n += TOGETHER) dots(p, n, TOGETHER, m, values);
    for (; n + 2 <= p->rows; n += 2) dots(p, n, 2, m, values);
    for (; n < p->rows; n++) dots(p, n, 1, m, values);
  }
}

void LS_VECTOR(ls_rows_multiply_blocks)(const ls_few_rows *p, int64_t begin, int64_t end) {
  const float *values = ls_blocks_values(p->dtype);
  if (values)
    rows_run(p, values, begin, end);
  else
    rows_run(p, NULL, begin, end);
}
