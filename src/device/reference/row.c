#include <math.h>

#include "device/reference/reference.h"

/* The RMS norm in two ops, for rows whose columns may be cut: what is summed over columns is a
 * partial sum here, and whole where it is read. */

ls_status LS_REFERENCE(ROW_SQUARES)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>r", error));
  const ls_view *x = &args->in[0];
  LS_REAL *sums = ls_real_data(&args->out[0]);
  for (int64_t n = 0; n < x->valid[0]; n++) {
    const LS_REAL *row = ls_real_row(x, n);
    double squares = 0;
    for (int64_t c = 0; c < x->valid[1]; c++) squares += (double)row[c] * (double)row[c];
    ls_put(&sums[n], squares, args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(ROW_SQUARES_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
  const LS_REAL *slopes = ls_real_data(&args->in[0]);
  const ls_view *x = &args->in[1], *dx = &args->out[0];
  for (int64_t n = 0; n < dx->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(x, n);
    LS_REAL *row = ls_real_row(dx, n);
    for (int64_t c = 0; c < x->valid[1]; c++)
      ls_put(&row[c], 2 * (double)slopes[n] * (double)from[c], args->accumulate[0]);
    ls_put_padding(row, x->valid[1], dx->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

static double inverse_rms(const ls_attributes *attributes, double squares) {
  return 1 / sqrt(squares / (double)attributes->columns + attributes->epsilon);
}

ls_status LS_REFERENCE(ROW_SCALE)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrr>r", error));
  const ls_view *x = &args->in[0], *y = &args->out[0];
  const LS_REAL *weight = ls_real_data(&args->in[1]), *squares = ls_real_data(&args->in[2]);
  for (int64_t n = 0; n < y->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(x, n);
    LS_REAL *row = ls_real_row(y, n);
    const double inverse = inverse_rms(args->attributes, (double)squares[n]);
    for (int64_t c = 0; c < x->valid[1]; c++)
      ls_put(&row[c], (double)from[c] * inverse * (double)weight[c], args->accumulate[0]);
    ls_put_padding(row, x->valid[1], y->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

/* With r = (sum / C + epsilon)^(-1/2): dx = dy w r, dw = sum over rows of dy x r, and
 * dsum = sum over columns of dy w x times -r^3 / (2 C). */
ls_status LS_REFERENCE(ROW_SCALE_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrrr>rrr", error));
  const ls_view *dy = &args->in[0], *x = &args->in[1], *dx = &args->out[0];
  const LS_REAL *weight = ls_real_data(&args->in[2]), *squares = ls_real_data(&args->in[3]);
  LS_REAL *dweight = ls_real_data(&args->out[1]), *dsquares = ls_real_data(&args->out[2]);
  const double columns = (double)args->attributes->columns;
  for (int64_t n = 0; n < dx->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(x, n), *slope = ls_real_row(dy, n);
    LS_REAL *row = ls_real_row(dx, n);
    const double inverse = inverse_rms(args->attributes, (double)squares[n]);
    double along = 0;
    for (int64_t c = 0; c < x->valid[1]; c++) {
      const double g = (double)slope[c] * (double)weight[c];
      along += g * (double)from[c];
      ls_put(&row[c], g * inverse, args->accumulate[0]);
    }
    ls_put_padding(row, x->valid[1], dx->dims[1], args->accumulate[0]);
    ls_put(&dsquares[n], -0.5 * along * inverse * inverse * inverse / columns, args->accumulate[2]);
  }
  for (int64_t c = 0; c < args->out[1].valid[0]; c++) {
    double sum = 0;
    for (int64_t n = 0; n < dy->valid[0]; n++)
      sum += (double)ls_real_row(dy, n)[c] * (double)ls_real_row(x, n)[c] *
             inverse_rms(args->attributes, (double)squares[n]);
    ls_put(&dweight[c], sum, args->accumulate[1]);
  }
  return LS_OK;
}
