/* The vectorised kernels: one text, compiled once per instruction set with -DLS_ISA=NAME.
 *
 *   ls_vector_set_avx2.fill(&table);   // overrides every op the text has a kernel for
 *
 * Which set may be called is cpu.c's to know; everything here is thread-safe. */
#ifndef LS_DEVICE_CPU_VECTOR_TABLE_H
#define LS_DEVICE_CPU_VECTOR_TABLE_H

#include "device/kernel.h"

/* y[rows, columns] = x[rows, depth] weights[columns, depth]^T, of at most LS_FEW_ROWS rows: x and y
 * dense fp32, rows of weights in fp32, bf16 or blocks, `stride` elements apart. Beside blocks of
 * codes of 4 bits x is in the order that ls_four_bit_place says. */
enum { LS_FEW_ROWS = 8 };
typedef struct ls_few_rows {
  float *y;
  const float *x;
  const void *weights;
  ls_dtype dtype;
  int64_t stride, rows, columns, depth;
} ls_few_rows;

/* Where a block's number `i` of x stands: beside codes at the same place of each 32-bit word, in
 * whose order a vector of words has them. */
static inline int ls_four_bit_place(int i) {
  return (i % 8 ^ 1) * 8 + i / 8;
}

/* Rows of bf16, `stride` elements apart. */
typedef struct ls_bf16_rows {
  const uint16_t *data;
  int64_t stride;
} ls_bf16_rows;

/* y[few, many] = few[tokens, few]^T many[tokens, many], in fp32, or `turned` y[many, few]; y has
 * rows `stride` elements apart, and is added to where `add` says so. Both have at least one token.
 * `pairs` has room for ls_few_sums_words words, which packing fills. */
enum { LS_FEW_SUMS_UNIT = 16 };
typedef struct ls_few_sums {
  float *y;
  int64_t stride;
  ls_bf16_rows few, many;
  int64_t tokens, few_columns, many_columns;
  bool turned, add;
  uint32_t *pairs;
} ls_few_sums;

static inline int64_t ls_few_sums_words(int64_t tokens, int64_t few) {
  const int64_t units = (few + LS_FEW_SUMS_UNIT - 1) / LS_FEW_SUMS_UNIT;
  const int64_t tiles = (tokens + 2 * LS_FEW_SUMS_UNIT - 1) / (2 * LS_FEW_SUMS_UNIT);
  return tiles * LS_FEW_SUMS_UNIT * units * LS_FEW_SUMS_UNIT;
}

/* y[rows, columns] = x[rows, depth] w[depth, columns] of bf16, each element rounded once; of a
 * depth of 8, 16 or LS_SHALLOW. Rows of x and y lie `stride` elements apart, rows and columns of w
 * w_row and w_column, of which one is 1. y is added to where `add` says so. `pairs`, which packing
 * fills, has room for half the depth times ls_shallow_stride(columns) words. */
enum { LS_SHALLOW = 32 };
typedef struct ls_shallow {
  uint16_t *y;
  int64_t stride;
  ls_bf16_rows x;
  const uint16_t *w;
  int64_t w_row, w_column, columns, depth;
  bool add;
  uint32_t *pairs;
} ls_shallow;

static inline int64_t ls_shallow_stride(int64_t columns) {
  return (columns + LS_FEW_SUMS_UNIT - 1) / LS_FEW_SUMS_UNIT * LS_FEW_SUMS_UNIT;
}

typedef struct ls_vector_set {
  const char *name;
  void (*fill)(ls_kernel_table *table);
  /* `count` elements of bf16 or fp16 to fp32, and back, adding to what the target holds when
   * `add`. */
  void (*widen)(float *target, const void *source, ls_dtype dtype, int64_t count);
  void (*narrow)(void *target, ls_dtype dtype, const float *source, int64_t count, bool add);
  /* Columns [begin, end) of y. */
  void (*rows_multiply)(const ls_few_rows *product, int64_t begin, int64_t end);
  ls_kernel dequantize;
  /* Of columns [begin, end) of y by LS_FEW_SUMS_UNIT, of what was packed before. NULL: the set has
   * no instruction that multiplies bf16. */
  void (*few_sums_pack)(const ls_few_sums *sums);
  void (*few_sums_make)(const ls_few_sums *sums, int64_t begin, int64_t end);
  /* Likewise: rows [begin, end) of y. */
  void (*shallow_pack)(const ls_shallow *product);
  void (*shallow_make)(const ls_shallow *product, int64_t begin, int64_t end);
} ls_vector_set;

extern const ls_vector_set ls_vector_set_plain;
extern const ls_vector_set ls_vector_set_avx2;
extern const ls_vector_set ls_vector_set_avx512;
extern const ls_vector_set ls_vector_set_avx512_bf16;
extern const ls_vector_set ls_vector_set_avx512_amx;

/* The set in effect on this processor. */
const ls_vector_set *ls_cpu_vectors(void);

#endif
