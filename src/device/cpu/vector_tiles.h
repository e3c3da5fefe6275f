/* Products of pairs of bf16 by the processor's tiles (AMX: Intel's manual of instruction set
 * extensions, 319433, chapter 3): 16 rows of 16 pairs against 16 pairs of 16 columns, summed in
 * fp32, in an instruction.
 *
 *   tiles_begin(16);
 *   tiles_multiply(c, c_stride, a, a_row, 1, b, b_stride, 64, 64, 32, false);
 *   tiles_end();
 *
 * A thread multiplies between the first and the last: to begin says how many pairs operands have,
 * whose tiles are 4 and 7 on the left, 5 and 6 on the right; sums are in 0 to 3. To end hands them
 * to whoever comes next. Sets without tiles have both, which do nothing. */
#ifndef LS_DEVICE_CPU_VECTOR_TILES_H
#define LS_DEVICE_CPU_VECTOR_TILES_H

#include "device/cpu/vector_tile.h"

#if defined(__AMX_BF16__)
enum { LS_TILES = 1, LS_TILE_SIDE = 16 };

static inline void tiles_begin(int pairs) {
  enum { ALL = 8, ROW_BYTES = 64 };
  struct {
    uint8_t palette, first_row, none[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } shapes = {.palette = 1};
  for (int t = 0; t < ALL; t++) shapes.row_bytes[t] = ROW_BYTES, shapes.rows[t] = LS_TILE_SIDE;
  shapes.row_bytes[4] = shapes.row_bytes[7] = (uint16_t)(4 * pairs);
  shapes.rows[5] = shapes.rows[6] = (uint8_t)pairs;
  _tile_loadconfig(&shapes);
}

LS_INLINE void tiles_end(void) {
  _tile_release();
}

/* 16 pairs of two rows of bf16, of their first 16 columns or of the next. */
LS_INLINE __m512i lines_join(__m512i even, __m512i odd, bool next) {
  typedef uint16_t places __attribute__((vector_size(4 * LS_TILE_SIDE)));
  static const places first = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                               8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  return _mm512_permutex2var_epi16(even, (__m512i)(next ? first + LS_TILE_SIDE : first), odd);
}

/* Whole tiles of the operands of pairs_multiply, 16 rows by `across` tiles of columns, of which the
 * first four have sums in tiles 0 to 3. `across` is a constant. */
LS_INLINE void tiles_strip(const int across, float *c, int64_t c_stride, const uint32_t *a,
                           int64_t a_row, int64_t a_column, const uint32_t *b, int64_t b_stride,
                           int64_t pairs, bool add) {
  const size_t c_bytes = (size_t)c_stride * sizeof *c, b_bytes = (size_t)b_stride * sizeof *b;
  uint32_t turned[LS_TILE_SIDE * LS_TILE_SIDE];
#define LS_TILES_EACH(DO) DO(0) DO(1) DO(2) DO(3)
#define LS_TILE_START(t)                           \
  if (across > t && add)                           \
    _tile_loadd(t, c + t * LS_TILE_SIDE, c_bytes); \
  else if (across > t)                             \
    _tile_zero(t);
#define LS_TILE_MULTIPLY(t)                            \
  if (across > t) {                                    \
    _tile_loadd(5, right + t * LS_TILE_SIDE, b_bytes); \
    _tile_dpbf16ps(t, 4, 5);                           \
  }
#define LS_TILE_STORE(t) \
  if (across > t) _tile_stored(t, c + t * LS_TILE_SIDE, c_bytes);
  LS_TILES_EACH(LS_TILE_START)
  for (int64_t k = 0; k < pairs; k += LS_TILE_SIDE) {
    const uint32_t *left = a + k * a_column, *right = b + k * b_stride;
    if (a_column == 1) {
      _tile_loadd(4, left, (size_t)a_row * sizeof *a);
    } else {
      tile_transpose((float *)turned, LS_TILE_SIDE, (const float *)left, a_column, LS_TILE_SIDE,
                     LS_TILE_SIDE);
      _tile_loadd(4, turned, LS_TILE_SIDE * sizeof *turned);
    }
    LS_TILES_EACH(LS_TILE_MULTIPLY)
  }
  LS_TILES_EACH(LS_TILE_STORE)
#undef LS_TILES_EACH
#undef LS_TILE_START
#undef LS_TILE_MULTIPLY
#undef LS_TILE_STORE
}

/* c[rows, columns] (+)= a[rows, pairs] b[pairs, columns], all multiples of 16; rows or columns of
 * `a` lie side by side. */
LS_INLINE void tiles_multiply(float *c, int64_t c_stride, const uint32_t *a, int64_t a_row,
                              int64_t a_column, const uint32_t *b, int64_t b_stride, int64_t rows,
                              int64_t columns, int64_t pairs, bool add) {
  enum { MOST = 4 };
  for (int64_t i = 0; i < rows; i += LS_TILE_SIDE) {
    for (int64_t j = 0; j < columns; j += MOST * LS_TILE_SIDE) {
      float *to = c + i * c_stride + j;
      const uint32_t *left = a + i * a_row, *right = b + j;
      switch (least((columns - j) / LS_TILE_SIDE, MOST)) {
        case 1:
          tiles_strip(1, to, c_stride, left, a_row, a_column, right, b_stride, pairs, add);
          break;
        case 2:
          tiles_strip(2, to, c_stride, left, a_row, a_column, right, b_stride, pairs, add);
          break;
        case 3:
          tiles_strip(3, to, c_stride, left, a_row, a_column, right, b_stride, pairs, add);
          break;
        default:
          tiles_strip(MOST, to, c_stride, left, a_row, a_column, right, b_stride, pairs, add);
      }
    }
  }
}
#else
enum { LS_TILES = 0, LS_TILE_SIDE = 16 };

LS_INLINE void tiles_begin(int pairs) {
  (void)pairs;
}

LS_INLINE void tiles_end(void) {}
#endif

#endif
