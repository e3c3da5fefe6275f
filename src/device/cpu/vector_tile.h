/* Products of small fp32 tiles that stay in cache, and the moving of tiles in and out: what
 * attention is made of.
 *
 *   tile_multiply(scores, KEYS, q, width, 1, keys, KEYS, QUERIES, KEYS, head_dim, false);
 *
 * A tile is row-major with a leading dimension that is a multiple of LS_LANES, and has rows to a
 * multiple of LS_TILE_ROWS; what pads it is computed like the rest. */
#ifndef LS_DEVICE_CPU_VECTOR_TILE_H
#define LS_DEVICE_CPU_VECTOR_TILE_H

#include "device/cpu/vector.h"

typedef float lanes __attribute__((vector_size(LS_LANES * sizeof(float))));
typedef float lanes_anywhere
    __attribute__((vector_size(LS_LANES * sizeof(float)), aligned(4), may_alias));

typedef uint32_t lanes_bits __attribute__((vector_size(LS_LANES * sizeof(uint32_t))));
typedef int32_t lanes_mask __attribute__((vector_size(LS_LANES * sizeof(int32_t))));

/* An instruction of the set, by what its names for all widths have in common. */
#if defined(__AVX512F__)
#define LS_LANES_DO(name) _mm512_##name
typedef __m512 lanes_set;
typedef __m512d lanes_pairs;
#elif defined(__AVX2__)
#define LS_LANES_DO(name) _mm256_##name
typedef __m256 lanes_set;
typedef __m256d lanes_pairs;
#elif defined(__SSE2__)
#define LS_LANES_DO(name) _mm_##name
typedef __m128 lanes_set;
typedef __m128d lanes_pairs;
#endif

LS_INLINE lanes lanes_of(float value) {
  return value - (lanes){0};
}

/* The larger of each pair; y's where one is no number. */
LS_INLINE lanes lanes_larger(lanes x, lanes y) {
#if defined(__SSE2__)
  return (lanes)LS_LANES_DO(max_ps)((lanes_set)x, (lanes_set)y);
#else
  const lanes_mask more = (lanes_mask)(x > y);
  return (lanes)((more & (lanes_mask)x) | (~more & (lanes_mask)y));
#endif
}

/* exp2_of, of numbers below 128. */
LS_INLINE lanes lanes_exp2(lanes x) {
  const float magic = 12582912.0f + 127.0f;
  const lanes bounded = lanes_larger(lanes_of(-127.0f), x);
  const lanes shifted = bounded + magic;
  const lanes f = bounded - (shifted - magic);
  lanes p = 1.5403530e-4f * f + 1.3333558e-3f;
  p = p * f + 9.6181291e-3f;
  p = p * f + 5.5504109e-2f;
  p = p * f + 2.4022651e-1f;
  p = p * f + 6.9314718e-1f;
  p = p * f + 1.0f;
  return p * (lanes)((lanes_bits)shifted << 23);
}

/* The sum, and the largest, of all lanes; the dot product of rows of a multiple of LS_LANES
 * numbers. What a compiler makes of a loop with a reduction adds the lanes one by one, which takes
 * longer than a short row. */
LS_INLINE float lanes_sum(lanes v) {
  typedef float four __attribute__((vector_size(16)));
  four parts[LS_LANES / 4];
  memcpy(parts, &v, sizeof v);
  for (int i = 1; i < LS_LANES / 4; i++) parts[0] += parts[i];
  return (parts[0][0] + parts[0][1]) + (parts[0][2] + parts[0][3]);
}

LS_INLINE float row_dot(const float *x, const float *y, int64_t count) {
  lanes sum = {0};
  for (int64_t j = 0; j < count; j += LS_LANES) {
    sum += *(const lanes_anywhere *)(x + j) * *(const lanes_anywhere *)(y + j);
  }
  return lanes_sum(sum);
}

LS_INLINE float lanes_most(lanes v) {
  float largest[LS_LANES];
  memcpy(largest, &v, sizeof v);
#pragma GCC unroll 4
  for (int half = LS_LANES / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; i++)
      largest[i] = largest[i + half] > largest[i] ? largest[i + half] : largest[i];
  }
  return largest[0];
}

/* Sums held in registers at a time: rows x vectors. 32 registers are there with AVX-512, else 16;
 * with fewer than 8 sums the multipliers would wait for each other. */
enum { LS_TILE_ROWS = 4, LS_TILE_VECTORS = LS_LANES == 16 ? 4 : 2 };

LS_INLINE int64_t round_up(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

/* sums + the products of both bf16 halves of each lane: see vector_pairs.h. */
LS_INLINE lanes pairs_dot(lanes sums, lanes_bits a, lanes_bits b) {
#if defined(__AVX512BF16__)
  return (lanes)_mm512_dpbf16_ps((__m512)sums, (__m512bh)a, (__m512bh)b);
#else
  sums += (lanes)(a << 16) * (lanes)(b << 16);
  return sums + (lanes)(a & 0xffff0000u) * (lanes)(b & 0xffff0000u);
#endif
}

/* sums + one element of a times a vector of b: of fp32, or `paired`: a constant. */
LS_INLINE lanes lanes_multiply(const bool paired, lanes sums, const void *a, lanes b) {
  if (!paired) return sums + *(const float *)a * b;
  return pairs_dot(sums, *(const uint32_t *)a - (lanes_bits){0}, (lanes_bits)b);
}

/* c[LS_TILE_ROWS, vectors * LS_LANES] (+)= a[.., depth] b[depth, ..]; `vectors` and `paired` are
 * constants. */
LS_INLINE void block_multiply(const int vectors, const bool paired, float *c, int64_t c_stride,
                              const float *a, int64_t a_row, int64_t a_column, const float *b,
                              int64_t b_stride, int64_t depth, bool add) {
  lanes sums[LS_TILE_ROWS][LS_TILE_VECTORS];
#pragma GCC unroll 4
  for (int i = 0; i < LS_TILE_ROWS; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) {
      sums[i][j] = (lanes){0};
      if (add) sums[i][j] = *(const lanes_anywhere *)(c + i * c_stride + j * LS_LANES);
    }
  }
  for (int64_t k = 0; k < depth; k++) {
    lanes right[LS_TILE_VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) {
      right[j] = *(const lanes_anywhere *)(b + k * b_stride + j * LS_LANES);
    }
#pragma GCC unroll 4
    for (int i = 0; i < LS_TILE_ROWS; i++) {
      const float *left = a + i * a_row + k * a_column;
#pragma GCC unroll 4
      for (int j = 0; j < vectors; j++)
        sums[i][j] = lanes_multiply(paired, sums[i][j], left, right[j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < LS_TILE_ROWS; i++) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) {
      *(lanes_anywhere *)(c + i * c_stride + j * LS_LANES) = sums[i][j];
    }
  }
}

LS_INLINE int64_t row_bytes(const ls_view *view) {
  return view_stride(view) * (int64_t)ls_dtype_bytes(view->dtype);
}

/* c[rows, columns] (+)= a[rows, depth] b[depth, columns], where element (i, k) of `a` lies at
 * a[i * a_row + k * a_column]. Elements are 32 bits: fp32, or `paired`, a constant. */
LS_INLINE void elements_multiply(const bool paired, float *c, int64_t c_stride, const float *a,
                                 int64_t a_row, int64_t a_column, const float *b, int64_t b_stride,
                                 int64_t rows, int64_t columns, int64_t depth, bool add) {
  for (int64_t j = 0; j < columns;) {
    const int64_t left = (columns - j) / LS_LANES;
    const int64_t vectors = least(left, LS_TILE_VECTORS);
    for (int64_t i = 0; i < rows; i += LS_TILE_ROWS) {
      float *to = c + i * c_stride + j;
      const float *from = a + i * a_row;
      switch (vectors) {
        case 1:
          block_multiply(1, paired, to, c_stride, from, a_row, a_column, b + j, b_stride, depth,
                         add);
          break;
        case 2:
          block_multiply(2, paired, to, c_stride, from, a_row, a_column, b + j, b_stride, depth,
                         add);
          break;
        case 3: /* there are as many with AVX-512 only */
          block_multiply(LS_TILE_VECTORS > 3 ? 3 : LS_TILE_VECTORS, paired, to, c_stride, from,
                         a_row, a_column, b + j, b_stride, depth, add);
          break;
        default:
          block_multiply(LS_TILE_VECTORS, paired, to, c_stride, from, a_row, a_column, b + j,
                         b_stride, depth, add);
      }
    }
    j += vectors * LS_LANES;
  }
}

LS_INLINE void tile_multiply(float *c, int64_t c_stride, const float *a, int64_t a_row,
                             int64_t a_column, const float *b, int64_t b_stride, int64_t rows,
                             int64_t columns, int64_t depth, bool add) {
  elements_multiply(false, c, c_stride, a, a_row, a_column, b, b_stride, rows, columns, depth, add);
}

/* Asks for a row before it is read: rows of a head lie too far apart for a processor to see. */
LS_INLINE void row_expect(const ls_view *view, int64_t row, int64_t column, int64_t columns) {
  const char *place = view_at(view, row, column);
  const int64_t bytes = columns * (int64_t)ls_dtype_bytes(view->dtype);
  for (int64_t j = 0; j < bytes; j += 64) __builtin_prefetch(place + j, 0, 2);
}

/* What calling memcpy for each row of a head costs is half of copying it. */
LS_INLINE void row_copy(float *target, const float *source, int64_t count) {
  int64_t i = 0;
  for (; i + LS_LANES <= count; i += LS_LANES)
    *(lanes_anywhere *)(target + i) = *(const lanes_anywhere *)(source + i);
  for (; i < count; i++) target[i] = source[i];
}

/* Rows of a tile to ask for before they are read: they lie too far apart for a processor to see. */
enum { LS_TILE_AHEAD = 8 };

/* Reads `rows` rows of `columns` columns at (row, column) of `view` into a tile of `width` columns
 * and `all_rows` rows, zero where there is nothing. */
LS_INLINE void tile_load(float *tile, int64_t width, int64_t all_rows, const ls_view *view,
                         int64_t row, int64_t rows, int64_t column, int64_t columns) {
  const int64_t step = row_bytes(view), bytes = columns * (int64_t)ls_dtype_bytes(view->dtype);
  const char *source = view_at(view, row, column);
  for (int64_t i = 0; i < rows; i++, source += step) {
    float *target = tile + i * width;
    if (i + LS_TILE_AHEAD < rows)
      for (int64_t j = 0; j < bytes; j += 64)
        __builtin_prefetch(source + LS_TILE_AHEAD * step + j, 0, 2);
    if (view->dtype == LS_F32) {
      row_copy(target, (const float *)(const void *)source, columns);
    } else {
      widen(target, source, view->dtype, columns);
    }
    for (int64_t j = columns; j < width; j++) target[j] = 0;
  }
  if (rows < all_rows) {
    memset(tile + rows * width, 0, (size_t)((all_rows - rows) * width) * sizeof(float));
  }
}

/* Of rows `step` apart, as many quads of four as a vector holds: each row's next to the last's. */
#if defined(__AVX512F__)
LS_INLINE __m512 quads_load(const float *from, int64_t step) {
  __m512 quads = _mm512_castps128_ps512(_mm_loadu_ps(from));
  quads = _mm512_insertf32x4(quads, _mm_loadu_ps(from + step), 1);
  quads = _mm512_insertf32x4(quads, _mm_loadu_ps(from + 2 * step), 2);
  return _mm512_insertf32x4(quads, _mm_loadu_ps(from + 3 * step), 3);
}
#elif defined(__AVX2__)
LS_INLINE __m256 quads_load(const float *from, int64_t step) {
  const __m256 quads = _mm256_castps128_ps256(_mm_loadu_ps(from));
  return _mm256_insertf128_ps(quads, _mm_loadu_ps(from + step), 1);
}
#elif defined(__SSE2__)
LS_INLINE __m128 quads_load(const float *from, int64_t step) {
  (void)step;
  return _mm_loadu_ps(from);
}
#endif

/* Turns LS_LANES rows of four columns into four rows. Instructions turn each quad of a vector by
 * itself, so quads are loaded where they are to be. */
LS_INLINE void columns_turn(float *to, int64_t to_stride, const float *from, int64_t from_stride) {
#if defined(__SSE2__)
  lanes even[2], odd[2];
  for (int i = 0; i < 2; i++) {
    const lanes_set first = quads_load(from + 2 * i * from_stride, 4 * from_stride);
    const lanes_set second = quads_load(from + (2 * i + 1) * from_stride, 4 * from_stride);
    even[i] = (lanes)LS_LANES_DO(unpacklo_ps)(first, second);
    odd[i] = (lanes)LS_LANES_DO(unpackhi_ps)(first, second);
  }
  const lanes_pairs low[2] = {(lanes_pairs)even[0], (lanes_pairs)even[1]};
  const lanes_pairs high[2] = {(lanes_pairs)odd[0], (lanes_pairs)odd[1]};
  *(lanes_anywhere *)to = (lanes)LS_LANES_DO(unpacklo_pd)(low[0], low[1]);
  *(lanes_anywhere *)(to + to_stride) = (lanes)LS_LANES_DO(unpackhi_pd)(low[0], low[1]);
  *(lanes_anywhere *)(to + 2 * to_stride) = (lanes)LS_LANES_DO(unpacklo_pd)(high[0], high[1]);
  *(lanes_anywhere *)(to + 3 * to_stride) = (lanes)LS_LANES_DO(unpackhi_pd)(high[0], high[1]);
#else
  for (int64_t y = 0; y < 4; y++) {
    for (int64_t x = 0; x < LS_LANES; x++) to[y * to_stride + x] = from[x * from_stride + y];
  }
#endif
}

/* target[columns, rows] = source[rows, columns]; both counts are multiples of LS_LANES. */
LS_INLINE void tile_transpose(float *target, int64_t target_stride, const float *source,
                              int64_t source_stride, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; i += LS_LANES) {
    for (int64_t j = 0; j < columns; j += 4) {
      columns_turn(target + j * target_stride + i, target_stride, source + i * source_stride + j,
                   source_stride);
    }
  }
}

/* Writes `rows` rows of `columns` columns of a tile to (row, column) of `view`, or adds them. */
LS_INLINE void tile_store(const ls_view *view, int64_t row, int64_t rows, int64_t column,
                          int64_t columns, const float *tile, int64_t width, bool add) {
  const int64_t step = row_bytes(view);
  char *target = view_at(view, row, column);
  for (int64_t i = 0; i < rows; i++, target += step) {
    const float *source = tile + i * width;
    if (view->dtype == LS_F32 && !add) {
      row_copy((float *)(void *)target, source, columns);
    } else {
      piece_store(view, row + i, column, columns, add, source);
    }
  }
}

#endif
