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
} ls_vector_set;

extern const ls_vector_set ls_vector_set_plain;
extern const ls_vector_set ls_vector_set_avx2;
extern const ls_vector_set ls_vector_set_avx512;
extern const ls_vector_set ls_vector_set_avx512_bf16;

/* The set in effect on this processor. */
const ls_vector_set *ls_cpu_vectors(void);

#endif
