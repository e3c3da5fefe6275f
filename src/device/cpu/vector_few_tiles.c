/* The products of adapters by tiles: gradients of matrices with few rows or columns, and products
 * of few terms. Memory is the floor. */
#include "device/cpu/vector_few_sums.h"
#include "device/cpu/vector_kernels.h"
#include "device/cpu/vector_tiles.h"

#if defined(__AMX_BF16__)
enum { SIDE = LS_TILE_SIDE, BLOCK = SIDE * SIDE };

static inline int64_t blocks_of(const ls_few_sums *p) {
  return (p->tokens + 2 * SIDE - 1) / (2 * SIDE);
}

/* Up to 32 columns of a row; none behind the last row. */
LS_INLINE __m512i columns_at(const ls_bf16_rows *rows, int64_t row, int64_t end, int64_t column,
                             __mmask32 columns) {
  if (row >= end) return _mm512_setzero_si512();
  return _mm512_maskz_loadu_epi16(columns, rows->data + row * rows->stride + column);
}

LS_INLINE __mmask32 columns_of(int64_t count) {
  return count >= 2 * SIDE ? 0xffffffffu : (1u << count) - 1;
}

/* Tokens from `row` on, two in each of a tile's rows, and 32 columns: two tiles. */
LS_INLINE void join(uint32_t *tiles, const ls_bf16_rows *rows, int64_t row, int64_t end,
                    int64_t column, __mmask32 columns) {
  for (int64_t i = 0; i < SIDE; i++) {
    const __m512i even = columns_at(rows, row + 2 * i, end, column, columns);
    const __m512i odd = columns_at(rows, row + 2 * i + 1, end, column, columns);
    _mm512_storeu_si512(tiles + i * SIDE, lines_join(even, odd, false));
    _mm512_storeu_si512(tiles + BLOCK + i * SIDE, lines_join(even, odd, true));
  }
}

/* The few as left operands: of 32 tokens after others a tile for each 16 columns. */
void LS_VECTOR(ls_few_sums_pack)(const ls_few_sums *p) {
  const int64_t units = (p->few_columns + SIDE - 1) / SIDE;
  uint32_t joined[2 * BLOCK], *to = p->pairs;
  for (int64_t block = 0; block < blocks_of(p); block++) {
    join(joined, &p->few, block * 2 * SIDE, p->tokens, 0, columns_of(p->few_columns));
    for (int64_t u = 0; u < units; u++, to += BLOCK)
      tile_transpose((float *)to, SIDE, (const float *)joined + u * BLOCK, SIDE, SIDE, SIDE);
  }
}

/* 32 of the many from `column` on; `units`, a constant: tiles of the few. */
LS_INLINE void columns_make(const ls_few_sums *p, int64_t column, const int units) {
  const __mmask32 columns = columns_of(p->many_columns - column);
  const uint32_t *few = p->pairs;
  uint32_t many[2 * BLOCK];
  float sums[4][BLOCK];
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t block = 0; block < blocks_of(p); block++, few += units * BLOCK) {
    join(many, &p->many, block * 2 * SIDE, p->tokens, column, columns);
    _tile_loadd(4, few, SIDE * sizeof *few);
    _tile_loadd(5, many, SIDE * sizeof *many);
    _tile_loadd(6, many + BLOCK, SIDE * sizeof *many);
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 6);
    if (units < 2) continue;
    _tile_loadd(7, few + BLOCK, SIDE * sizeof *few);
    _tile_dpbf16ps(2, 7, 5);
    _tile_dpbf16ps(3, 7, 6);
  }
  _tile_stored(0, sums[0], SIDE * sizeof(float));
  _tile_stored(1, sums[1], SIDE * sizeof(float));
  _tile_stored(2, sums[2], SIDE * sizeof(float));
  _tile_stored(3, sums[3], SIDE * sizeof(float));
  for (int u = 0; u < units; u++)
    for (int half = 0; half < 2 && column + half * SIDE < p->many_columns; half++)
      few_sums_store(p, u * SIDE, column + half * SIDE, sums[2 * u + half]);
}

void LS_VECTOR(ls_few_sums_make)(const ls_few_sums *p, int64_t begin, int64_t end) {
  ls_few_sums part = *p; /* without the columns from the end on */
  part.many_columns = least(end * SIDE, p->many_columns);
  tiles_begin(SIDE);
  for (int64_t column = begin * SIDE; column < part.many_columns; column += 2 * SIDE) {
    if (p->few_columns > SIDE)
      columns_make(&part, column, 2);
    else
      columns_make(&part, column, 1);
  }
  tiles_end();
}

/* Up to 32 columns of 16 rows' sums, rounded. */
static void rows_store(const ls_shallow *p, int64_t row, int64_t rows, int64_t column,
                       const float *sums) {
  const __mmask32 some = columns_of(p->columns - column);
  for (int64_t i = 0; i < rows; i++) {
    uint16_t *y = p->y + (row + i) * p->stride + column;
    __m512 low = _mm512_loadu_ps(sums + i * SIDE), high = _mm512_loadu_ps(sums + BLOCK + i * SIDE);
    if (p->add) {
      const __m512i before = _mm512_maskz_loadu_epi16(some, y);
      const __m512i first = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(before));
      const __m512i second = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(before, 1));
      low = _mm512_add_ps(low, (__m512)_mm512_slli_epi32(first, 16));
      high = _mm512_add_ps(high, (__m512)_mm512_slli_epi32(second, 16));
    }
    _mm512_mask_storeu_epi16(y, some, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
}

/* Rows [row, row + rows), 16 at most. Behind them the operand that is read has zeros. */
static void rows_make(const ls_shallow *p, int64_t row, int64_t rows) {
  const int64_t stride = ls_shallow_stride(p->columns),
                b_bytes = stride * (int64_t)sizeof(uint32_t);
  uint16_t tail[SIDE * LS_SHALLOW] = {0};
  const uint16_t *x = p->x.data + row * p->x.stride;
  int64_t x_stride = p->x.stride;
  float sums[2 * BLOCK];
  if (rows < SIDE) {
    for (int64_t i = 0; i < rows; i++)
      memcpy(tail + i * LS_SHALLOW, x + i * x_stride, (size_t)p->depth * sizeof *x);
    x = tail, x_stride = LS_SHALLOW;
  }
  _tile_loadd(4, x, (size_t)x_stride * sizeof *x);
  for (int64_t column = 0; column < p->columns; column += 2 * SIDE) {
    _tile_zero(0);
    _tile_loadd(5, p->pairs + column, (size_t)b_bytes);
    _tile_dpbf16ps(0, 4, 5);
    _tile_stored(0, sums, SIDE * sizeof(float));
    if (column + SIDE < stride) {
      _tile_zero(1);
      _tile_loadd(5, p->pairs + column + SIDE, (size_t)b_bytes);
      _tile_dpbf16ps(1, 4, 5);
      _tile_stored(1, sums + BLOCK, SIDE * sizeof(float));
    }
    rows_store(p, row, rows, column, sums);
  }
}

void LS_VECTOR(ls_shallow_make)(const ls_shallow *p, int64_t begin, int64_t end) {
  tiles_begin((int)p->depth / 2);
  for (int64_t n = begin; n < end; n += SIDE) rows_make(p, n, least(SIDE, end - n));
  tiles_end();
}
#endif
