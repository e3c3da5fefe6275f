#include "base/fp8.h"

#include <math.h>

#include "device/reference/reference.h"

/* Rounding to numbers of 8 bits, which a tensor of wider ones holds. A NaN is no largest magnitude:
 * it stays one whatever that is. */

static double largest_of(const ls_view *view, int64_t row) {
  const LS_REAL *from = ls_real_row(view, row);
  double largest = 0;
  for (int64_t c = 0; c < view->valid[1]; c++) largest = fmax(largest, fabs((double)from[c]));
  return largest;
}

ls_status LS_REFERENCE(AMAX)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>R", error));
  const ls_view *weight = &args->in[0];
  double largest = 0;
  for (int64_t m = 0; m < weight->valid[0]; m++) largest = fmax(largest, largest_of(weight, m));
  ls_real_data(&args->out[0])[0] = (LS_REAL)largest;
  return LS_OK;
}

ls_status LS_REFERENCE(ROW_AMAX)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>R", error));
  const ls_view *x = &args->in[0];
  for (int64_t n = 0; n < x->valid[0]; n++)
    ls_real_data(&args->out[0])[n] = (LS_REAL)largest_of(x, n);
  return LS_OK;
}

/* Each row by a number of its own, or all by one. */
static ls_status round_rows(const ls_kernel_args *args, bool own, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
  const ls_view *x = &args->in[0], *y = &args->out[0];
  const LS_REAL *amax = ls_real_data(&args->in[1]);
  const ls_fp8 format = args->attributes->fp8;
  const int64_t columns = ls_smaller(x->valid[1], y->dims[1]);
  for (int64_t n = 0; n < y->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(x, n);
    LS_REAL *row = ls_real_row(y, n);
    const int scale = ls_fp8_scale(format, (double)amax[own ? n : 0]);
    for (int64_t c = 0; c < columns; c++) {
      const double rounded = ls_fp8_round(format, ldexp((double)from[c], scale));
      ls_put(&row[c], ldexp(rounded, -scale), args->accumulate[0]);
    }
    ls_put_padding(row, columns, y->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(FP8)(const ls_kernel_args *args, ls_error *error) {
  return round_rows(args, false, error);
}

ls_status LS_REFERENCE(ROW_FP8)(const ls_kernel_args *args, ls_error *error) {
  return round_rows(args, true, error);
}

/* A range of a weight's elements. */
ls_status LS_REFERENCE(RANGE_AMAX)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>R", error));
  const LS_REAL *from = ls_real_data(&args->in[0]);
  double largest = 0;
  for (int64_t i = 0; i < args->in[0].valid[0]; i++) largest = fmax(largest, fabs((double)from[i]));
  ls_real_data(&args->out[0])[0] = (LS_REAL)largest;
  return LS_OK;
}

ls_status LS_REFERENCE(FP8_CODES)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>C", error));
  const LS_REAL *from = ls_real_data(&args->in[0]);
  uint8_t *codes = args->out[0].data;
  const int scale = ls_fp8_scale(LS_FP8_E4M3, (double)ls_real_data(&args->in[1])[0]);
  for (int64_t i = 0; i < args->out[0].valid[0]; i++)
    codes[i] = ls_e4m3_code((float)ls_fp8_round(LS_FP8_E4M3, ldexp((double)from[i], scale)));
  return LS_OK;
}

ls_status LS_REFERENCE(FP8_DECODE)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "cr>r", error));
  const ls_view *codes = &args->in[0], *y = &args->out[0];
  const int scale = ls_fp8_scale(LS_FP8_E4M3, (double)ls_real_data(&args->in[1])[0]);
  const int64_t columns = ls_smaller(codes->valid[1], y->dims[1]);
  for (int64_t n = 0; n < y->valid[0]; n++) {
    const uint8_t *from = (const uint8_t *)codes->data + n * ls_stored_columns(codes);
    LS_REAL *row = ls_real_row(y, n);
    for (int64_t c = 0; c < columns; c++)
      ls_put(&row[c], ldexp((double)ls_e4m3_value(from[c]), -scale), args->accumulate[0]);
    ls_put_padding(row, columns, y->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}
