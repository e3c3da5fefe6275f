/* The reference kernels: plain C, one thread, no workspace, one text compiled in two precisions.
 *
 * A kernel file is compiled once with LS_REAL=float and LS_REFERENCE_SUFFIX=_f32, and once with
 * LS_REAL=double and _f64. Compute and accumulation tensors are LS_REAL, index tensors int32, cells
 * double. Sums are made in double in both builds, in an order that depends on no cut of another
 * dimension, so a row or column of a slice has the bits it has in the whole.
 *
 *   ls_status LS_REFERENCE(ADD)(const ls_kernel_args *args, ls_error *error) {
 *     LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
 *
 * Not fast: what a device's own kernels are tested against. Threads may call kernels at once. */
#ifndef LS_DEVICE_REFERENCE_REFERENCE_H
#define LS_DEVICE_REFERENCE_REFERENCE_H

#include "device/kernel.h"

#define LS_REFERENCE_DECLARE(suffix, name)                                            \
  ls_status ls_reference_##suffix##_f32(const ls_kernel_args *args, ls_error *error); \
  ls_status ls_reference_##suffix##_f64(const ls_kernel_args *args, ls_error *error);
LS_OPS(LS_REFERENCE_DECLARE)
#undef LS_REFERENCE_DECLARE

/* Checks the count and the types of a kernel's operands: one letter each, inputs, '>', outputs.
 * 'r' is `real`, 'i' int32, 'd' a cell, 'b' blocks of weights, 'c' codes of 8
 * bits, '*' any floating type. A capital
 * output cannot be accumulated into. A mismatch is a fault of ours: LS_INTERNAL. */
LS_CHECKED ls_status ls_reference_expect(const ls_kernel_args *args, ls_dtype real,
                                         const char *operands, ls_error *error);

/* Stored columns of a view, which are also its row stride; 1 for a vector. */
static inline int64_t ls_stored_columns(const ls_view *view) {
  int64_t columns = 1;
  for (int d = 1; d < view->ndim; d++) columns *= view->dims[d];
  return columns;
}

/* Columns that exist: what a norm, a softmax or an update may see. */
static inline int64_t ls_valid_columns(const ls_view *view) {
  int64_t columns = 1;
  for (int d = 1; d < view->ndim; d++) columns *= d == 1 ? view->valid[d] : view->dims[d];
  return columns;
}

static inline int64_t ls_smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static inline const int32_t *ls_index_data(const ls_view *view) {
  return view->data;
}
static inline double *ls_cell_data(const ls_view *view) {
  return view->data;
}

static inline void ls_put_cell(const ls_view *cell, double value, bool accumulate) {
  double *place = cell->data;
  *place = accumulate ? *place + value : value;
}

#ifdef LS_REAL

#define LS_REFERENCE_PASTE(name, suffix) ls_reference_##name##suffix
#define LS_REFERENCE_NAME(name, suffix) LS_REFERENCE_PASTE(name, suffix)
/* The kernel of LS_OP_<name> in the precision being compiled. */
#define LS_REFERENCE(name) LS_REFERENCE_NAME(name, LS_REFERENCE_SUFFIX)

#define LS_REAL_DTYPE (sizeof(LS_REAL) == sizeof(double) ? LS_F64 : LS_F32)

static inline LS_REAL *ls_real_data(const ls_view *view) {
  return view->data;
}

static inline LS_REAL *ls_real_row(const ls_view *view, int64_t row) {
  return (LS_REAL *)view->data + row * ls_stored_columns(view);
}

static inline void ls_put(LS_REAL *place, double value, bool accumulate) {
  *place = (LS_REAL)(accumulate ? (double)*place + value : value);
}

/* Zeroes columns [from, stored) of a row, unless it is accumulated into. */
static inline void ls_put_padding(LS_REAL *row, int64_t from, int64_t stored, bool accumulate) {
  if (accumulate) return;
  for (int64_t c = from; c < stored; c++) row[c] = 0;
}

#endif
#endif
