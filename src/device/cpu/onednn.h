/* Matrix products through oneDNN, whose 2.x and 3.x C interfaces differ: only onednn.c knows.
 *
 *   ls_matrix a = {x, LS_BF16, k, 1}, b = {w, LS_BF16, 1, k}, c = {y, LS_BF16, m, 1};
 *   LS_TRY(ls_onednn_multiply(&c, &a, &b, n, m, k, false, args, error));   // c = a b
 *
 * Primitives are made when a shape is first seen and kept per calling thread, so any number of
 * threads may multiply at once; a thread's are freed when it ends. */
#ifndef LS_DEVICE_CPU_ONEDNN_H
#define LS_DEVICE_CPU_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/kernel.h"

/* Element (i, j) lies at data[i * row_stride + j * column_stride], in elements of `dtype`. */
typedef struct ls_matrix {
  void *data;
  ls_dtype dtype; /* LS_F32, LS_BF16, or LS_F16 where the set in effect has fp16 */
  int64_t row_stride, column_stride;
} ls_matrix;

/* target[rows, columns] (+)= left[rows, depth] right[depth, columns]; sums are kept in fp32 and
 * rounded once. Matrices of one column are dense: row_stride 1, and so are those of one row.
 * Threads and scratch are those of `args`. */
LS_CHECKED ls_status ls_onednn_multiply(const ls_matrix *target, const ls_matrix *left,
                                        const ls_matrix *right, int64_t rows, int64_t columns,
                                        int64_t depth, bool add, const ls_kernel_args *args,
                                        ls_error *error);

/* The same of fp32 matrices, by the calling thread alone and without scratch: for one of several
 * threads that share a product. */
LS_CHECKED ls_status ls_onednn_multiply_alone(const ls_matrix *target, const ls_matrix *left,
                                              const ls_matrix *right, int64_t rows, int64_t columns,
                                              int64_t depth, bool add, ls_error *error);

/* Bytes of scratch that product wants of `threads` threads; 0 if it cannot be made. Makes its
 * primitive, which the same thread's later call then finds. */
size_t ls_onednn_scratch_bytes(const ls_matrix *target, const ls_matrix *left,
                               const ls_matrix *right, int64_t rows, int64_t columns, int64_t depth,
                               bool add, int threads);

/* Instruction sets as oneDNN reports them in effect; the name is static storage. */
typedef struct ls_onednn_isa {
  const char *name;
  bool avx2, avx512, bf16, fp16, amx;
} ls_onednn_isa;
ls_onednn_isa ls_onednn_effective_isa(void);

/* "2.6.3": of the library in use, not of its headers. */
void ls_onednn_version(char *text, size_t bytes);

#endif
