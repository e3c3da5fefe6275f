/* Products of small bf16 tiles that stay in cache, with fp32 sums: two terms at a time.
 *
 *   pairs_multiply(scores, KEYS, q, pairs, 1, keys, KEYS, QUERIES, KEYS, pairs, false);
 *
 * What is summed over goes by pairs: 32 bits with an even term in the lower half and the odd one
 * that follows in the upper. A row of bf16 is such pairs along its columns as it lies; pairs along
 * rows are made by joining two rows. Shapes are as in vector_tile.h, of 32-bit elements.
 *
 * All sets compile it; where LS_PAIRS is 0, fp32 is faster. A set with tiles multiplies by these
 * what fills them: see vector_tiles.h. */
#ifndef LS_DEVICE_CPU_VECTOR_PAIRS_H
#define LS_DEVICE_CPU_VECTOR_PAIRS_H

#include "device/cpu/vector_tiles.h"

typedef uint32_t pairs_anywhere
    __attribute__((vector_size(LS_LANES * sizeof(uint32_t)), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(LS_LANES * sizeof(uint16_t))));

/* Whether the set has an instruction for the dot product of pairs. */
#if defined(__AVX512BF16__)
enum { LS_PAIRS = 1 };
#else
enum { LS_PAIRS = 0 };
#endif

#if defined(__AVX512BF16__)
/* fp32 rounded to bf16: the pairs of a row of two vectors. Subnormal numbers become 0. */
LS_INLINE lanes_bits row_pairs(lanes low, lanes high) {
  return (lanes_bits)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
}

/* Pairs of what stands in the same lane of two rows. */
LS_INLINE lanes_bits pairs_join(lanes even, lanes odd) {
  typedef uint16_t places __attribute__((vector_size(2 * LS_LANES * sizeof(uint16_t))));
  const places order = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return (lanes_bits)_mm512_permutexvar_epi16((__m512i)order, (__m512i)row_pairs(even, odd));
}
#else
/* fp32 rounded to bf16, in the upper halves; the lower ones are 0. Of a NaN the lower half must be
 * 0 too, as it is of those that arithmetic on bf16 makes. */
LS_INLINE lanes_bits upper_halves(lanes x) {
  const lanes_bits bits = (lanes_bits)x;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
}

LS_INLINE lanes_bits row_pairs(lanes low, lanes high) {
  const halves both[2] = {__builtin_convertvector(upper_halves(low) >> 16, halves),
                          __builtin_convertvector(upper_halves(high) >> 16, halves)};
  lanes_bits pairs;
  memcpy(&pairs, both, sizeof pairs);
  return pairs;
}

LS_INLINE lanes_bits pairs_join(lanes even, lanes odd) {
  return upper_halves(even) >> 16 | upper_halves(odd);
}
#endif

/* The same in a third of the time, but what lies in the middle of two bf16 numbers always goes to
 * the one further from 0. */
LS_INLINE lanes_bits pairs_join_away(lanes even, lanes odd) {
  return ((lanes_bits)even + 0x8000u) >> 16 | (((lanes_bits)odd + 0x8000u) & 0xffff0000u);
}

/* tile_multiply of pairs: c[rows, columns] (+)= a[rows, pairs] b[pairs, columns]. */
LS_INLINE void pairs_multiply(float *c, int64_t c_stride, const uint32_t *a, int64_t a_row,
                              int64_t a_column, const uint32_t *b, int64_t b_stride, int64_t rows,
                              int64_t columns, int64_t pairs, bool add) {
#if defined(__AMX_BF16__)
  const int64_t high = rows - rows % LS_TILE_SIDE, deep = pairs - pairs % LS_TILE_SIDE;
  if (high > 0 && deep > 0) {
    tiles_multiply(c, c_stride, a, a_row, a_column, b, b_stride, high, columns, deep, add);
    elements_multiply(true, c, c_stride, (const float *)a + deep * a_column, a_row, a_column,
                      (const float *)b + deep * b_stride, b_stride, deep < pairs ? high : 0,
                      columns, pairs - deep, true);
    a += high * a_row, c += high * c_stride, rows -= high;
  }
#endif
  elements_multiply(true, c, c_stride, (const float *)a, a_row, a_column, (const float *)b,
                    b_stride, rows, columns, pairs, add);
}

/* Reads `rows` rows of `columns` bf16 numbers at (row, column) of `view` into a tile of `pairs`
 * pairs a row and `all_rows` rows, zero where there is nothing. */
LS_INLINE void pairs_load(uint32_t *tile, int64_t pairs, int64_t all_rows, const ls_view *view,
                          int64_t row, int64_t rows, int64_t column, int64_t columns) {
  const int64_t step = row_bytes(view), bytes = columns * (int64_t)sizeof(uint16_t);
  const int64_t all_bytes = pairs * (int64_t)sizeof *tile;
  const char *source = view_at(view, row, column);
  for (int64_t i = 0; i < rows; i++, source += step) {
    char *target = (char *)(tile + i * pairs);
    if (i + LS_TILE_AHEAD < rows)
      for (int64_t j = 0; j < bytes; j += 64)
        __builtin_prefetch(source + LS_TILE_AHEAD * step + j, 0, 2);
    int64_t j = 0;
    for (; j + (int64_t)sizeof(lanes) <= bytes; j += (int64_t)sizeof(lanes))
      memcpy(target + j, source + j, sizeof(lanes));
    if (j < bytes) memcpy(target + j, source + j, (size_t)(bytes - j));
    if (bytes < all_bytes) memset(target + bytes, 0, (size_t)(all_bytes - bytes));
  }
  if (rows < all_rows)
    memset(tile + rows * pairs, 0, (size_t)((all_rows - rows) * pairs) * sizeof *tile);
}

/* A tile's row of `width` numbers, fp32 or `paired`. */
LS_INLINE float *row_of_tile(const bool paired, float *tile, int64_t width, int64_t row) {
  return tile + row * (paired ? width / 2 : width);
}

/* Reads rows of a head into a tile from its row `begin` on, as fp32 or, of bf16, as pairs. */
LS_INLINE void rows_load(const bool paired, float *tile, int64_t width, int64_t begin,
                         const ls_view *view, int64_t row, int64_t rows, int64_t column,
                         int64_t columns) {
  float *to = row_of_tile(paired, tile, width, begin);
  if (paired)
    pairs_load((uint32_t *)to, width / 2, rows, view, row, rows, column, columns);
  else
    tile_load(to, width, rows, view, row, rows, column, columns);
}

/* Zeros in rows [begin, end) of such a tile. */
LS_INLINE void rows_clear(const bool paired, float *tile, int64_t width, int64_t begin,
                          int64_t end) {
  float *to = row_of_tile(paired, tile, width, begin);
  if (begin < end) memset(to, 0, (size_t)(row_of_tile(paired, tile, width, end) - to) * sizeof *to);
}

/* target[columns, rows] = source[rows, columns], moved as pairs; `rows` is a multiple of LS_LANES,
 * `columns` of 4. */
LS_INLINE void pairs_transpose(uint32_t *target, int64_t target_stride, const uint32_t *source,
                               int64_t source_stride, int64_t rows, int64_t columns) {
  tile_transpose((float *)target, target_stride, (const float *)source, source_stride, rows,
                 columns);
}

/* LS_LANES numbers from `at` on of a row of pairs, as fp32. */
LS_INLINE lanes halves_widen(const uint32_t *from, int64_t at) {
  halves narrow;
  memcpy(&narrow, (const uint16_t *)(const void *)from + at, sizeof narrow);
  return (lanes)(__builtin_convertvector(narrow, lanes_bits) << 16);
}

/* The dot product of two rows of pairs, of `count` numbers each: a multiple of LS_LANES. */
LS_INLINE float row_pairs_dot(const uint32_t *x, const uint32_t *y, int64_t count) {
  lanes sum = {0};
  for (int64_t j = 0; j < count; j += LS_LANES) sum += halves_widen(x, j) * halves_widen(y, j);
  return lanes_sum(sum);
}

/* Rounds a row of `count` fp32 numbers, a multiple of two vectors, to pairs; `to` may be `from`. */
LS_INLINE void row_narrow(uint32_t *to, const float *from, int64_t count) {
  for (int64_t j = 0; j < count; j += 2 * LS_LANES) {
    *(pairs_anywhere *)(to + j / 2) = row_pairs(*(const lanes_anywhere *)(from + j),
                                                *(const lanes_anywhere *)(from + j + LS_LANES));
  }
}

/* Writes `rows` rows of `columns` bf16 numbers of a tile to (row, column) of `view`. */
LS_INLINE void pairs_store(const ls_view *view, int64_t row, int64_t rows, int64_t column,
                           int64_t columns, const uint32_t *tile, int64_t pairs) {
  const int64_t step = row_bytes(view), bytes = columns * (int64_t)sizeof(uint16_t);
  char *target = view_at(view, row, column);
  for (int64_t i = 0; i < rows; i++, target += step) {
    const char *source = (const char *)(tile + i * pairs);
    int64_t j = 0;
    for (; j + (int64_t)sizeof(lanes) <= bytes; j += (int64_t)sizeof(lanes))
      memcpy(target + j, source + j, sizeof(lanes));
    if (j < bytes) memcpy(target + j, source + j, (size_t)(bytes - j));
  }
}

/* target[rows / 2, columns]: pairs along rows, of a tile whose rows are pairs along columns:
 * source[rows, columns / 2]. `columns` is a multiple of LS_LANES, `rows` is even. */
LS_INLINE void rows_join(uint32_t *target, int64_t target_stride, const uint32_t *source,
                         int64_t source_stride, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; i += 2) {
    uint32_t *to = target + i / 2 * target_stride;
    const char *even = (const char *)(source + i * source_stride);
    const char *odd = (const char *)(source + (i + 1) * source_stride);
    for (int64_t j = 0; j < columns; j += LS_LANES) {
      halves low, high;
      memcpy(&low, even + j * (int64_t)sizeof(uint16_t), sizeof low);
      memcpy(&high, odd + j * (int64_t)sizeof(uint16_t), sizeof high);
      *(pairs_anywhere *)(to + j) = __builtin_convertvector(low, lanes_bits) |
                                    __builtin_convertvector(high, lanes_bits) << 16;
    }
  }
}

#endif
