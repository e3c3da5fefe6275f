#include <math.h>

#include "device/reference/reference.h"

/* Norms over the columns of a row, which are never cut: every column is here. */

enum { COLUMNS = 64 };

ls_status LS_REFERENCE(LAYERNORM)(const ls_kernel_args *args, ls_error *error) {
  const bool has_bias = args->inputs > 2;
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, has_bias ? "rrr>rrr" : "rr>rrr", error));
  const ls_view *x = &args->in[0], *y = &args->out[0];
  const LS_REAL *weight = ls_real_data(&args->in[1]);
  const LS_REAL *bias = has_bias ? ls_real_data(&args->in[2]) : NULL;
  LS_REAL *means = ls_real_data(&args->out[1]), *inverses = ls_real_data(&args->out[2]);
  const int64_t columns = x->valid[1];
  for (int64_t n = 0; n < y->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(x, n);
    LS_REAL *row = ls_real_row(y, n);
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < columns; c++) mean += (double)from[c];
    mean /= (double)columns;
    for (int64_t c = 0; c < columns; c++)
      variance += ((double)from[c] - mean) * ((double)from[c] - mean);
    variance /= (double)columns;
    const double inverse = 1 / sqrt(variance + args->attributes->epsilon);
    for (int64_t c = 0; c < columns; c++) {
      const double unit = ((double)from[c] - mean) * inverse;
      ls_put(&row[c], unit * (double)weight[c] + (bias ? (double)bias[c] : 0), args->accumulate[0]);
    }
    ls_put_padding(row, columns, y->dims[1], args->accumulate[0]);
    ls_put(&means[n], mean, args->accumulate[1]);
    ls_put(&inverses[n], inverse, args->accumulate[2]);
  }
  return LS_OK;
}

/* dx = (g - mean(g) - unit * mean(g * unit)) / deviation, where g = dy * weight and unit is the
 * normalised x. */
static void layernorm_rows(const ls_kernel_args *args) {
  const ls_view *dy = &args->in[0], *x = &args->in[1], *dx = &args->out[0];
  const LS_REAL *weight = ls_real_data(&args->in[2]);
  const LS_REAL *means = ls_real_data(&args->in[3]), *inverses = ls_real_data(&args->in[4]);
  const int64_t columns = x->valid[1];
  for (int64_t n = 0; n < dx->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(x, n), *slope = ls_real_row(dy, n);
    LS_REAL *row = ls_real_row(dx, n);
    const double mean = (double)means[n], inverse = (double)inverses[n];
    double plain = 0, along = 0;
    for (int64_t c = 0; c < columns; c++) {
      const double g = (double)slope[c] * (double)weight[c];
      plain += g;
      along += g * ((double)from[c] - mean) * inverse;
    }
    plain /= (double)columns;
    along /= (double)columns;
    for (int64_t c = 0; c < columns; c++) {
      const double g = (double)slope[c] * (double)weight[c];
      const double unit = ((double)from[c] - mean) * inverse;
      ls_put(&row[c], (g - plain - unit * along) * inverse, args->accumulate[0]);
    }
    ls_put_padding(row, columns, dx->dims[1], args->accumulate[0]);
  }
}

ls_status LS_REFERENCE(LAYERNORM_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrrrr>rr?r?", error));
  const ls_view *dy = &args->in[0], *x = &args->in[1];
  const LS_REAL *means = ls_real_data(&args->in[3]), *inverses = ls_real_data(&args->in[4]);
  const bool has_bias = args->outputs > 2;
  const int64_t columns = args->outputs > 1 ? args->out[1].valid[0] : 0;
  layernorm_rows(args);
  for (int64_t first = 0; first < columns; first += COLUMNS) {
    const int64_t width = ls_smaller(COLUMNS, columns - first);
    double of_weight[COLUMNS] = {0}, of_bias[COLUMNS] = {0};
    for (int64_t n = 0; n < dy->valid[0]; n++) {
      const LS_REAL *from = ls_real_row(x, n) + first, *slope = ls_real_row(dy, n) + first;
      const double mean = (double)means[n], inverse = (double)inverses[n];
      for (int64_t c = 0; c < width; c++) {
        of_weight[c] += (double)slope[c] * ((double)from[c] - mean) * inverse;
        of_bias[c] += (double)slope[c];
      }
    }
    for (int64_t c = 0; c < width; c++) {
      ls_put(ls_real_data(&args->out[1]) + first + c, of_weight[c], args->accumulate[1]);
      if (has_bias)
        ls_put(ls_real_data(&args->out[2]) + first + c, of_bias[c], args->accumulate[2]);
    }
  }
  return LS_OK;
}

/* The RMS norm of groups of columns, as many as the weight has: a whole row, or each head's. */
static ls_status rmsnorm(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>rr", error));
  const ls_view *x = &args->in[0], *y = &args->out[0];
  const LS_REAL *weight = ls_real_data(&args->in[1]);
  LS_REAL *inverses = ls_real_data(&args->out[1]);
  const double offset = args->attributes->weight_offset;
  const int64_t columns = args->in[1].valid[0], groups = x->valid[1] / columns;
  for (int64_t n = 0; n < y->valid[0] * groups; n++) {
    const LS_REAL *from = ls_real_row(x, n / groups) + n % groups * columns;
    LS_REAL *row = ls_real_row(y, n / groups) + n % groups * columns;
    double squares = 0;
    for (int64_t c = 0; c < columns; c++) squares += (double)from[c] * (double)from[c];
    const double inverse = 1 / sqrt(squares / (double)columns + args->attributes->epsilon);
    for (int64_t c = 0; c < columns; c++)
      ls_put(&row[c], (double)from[c] * inverse * ((double)weight[c] + offset),
             args->accumulate[0]);
    ls_put(&inverses[n], inverse, args->accumulate[1]);
  }
  for (int64_t n = 0; n < y->valid[0]; n++)
    ls_put_padding(ls_real_row(y, n), x->valid[1], y->dims[1], args->accumulate[0]);
  return LS_OK;
}

ls_status LS_REFERENCE(RMSNORM)(const ls_kernel_args *args, ls_error *error) {
  return rmsnorm(args, error);
}

ls_status LS_REFERENCE(HEADNORM)(const ls_kernel_args *args, ls_error *error) {
  return rmsnorm(args, error);
}

/* dx = (g - unit * mean(g * unit)) / rms, where g = dy * weight and unit = x / rms. */
static void rmsnorm_rows(const ls_kernel_args *args, int64_t columns, int64_t groups) {
  const ls_view *dy = &args->in[0], *x = &args->in[1], *dx = &args->out[0];
  const LS_REAL *weight = ls_real_data(&args->in[2]), *inverses = ls_real_data(&args->in[3]);
  const double offset = args->attributes->weight_offset;
  for (int64_t n = 0; n < dx->valid[0] * groups; n++) {
    const int64_t first = n % groups * columns;
    const LS_REAL *from = ls_real_row(x, n / groups) + first;
    const LS_REAL *slope = ls_real_row(dy, n / groups) + first;
    LS_REAL *row = ls_real_row(dx, n / groups) + first;
    const double inverse = (double)inverses[n];
    double along = 0;
    for (int64_t c = 0; c < columns; c++)
      along += (double)slope[c] * ((double)weight[c] + offset) * (double)from[c] * inverse;
    along /= (double)columns;
    for (int64_t c = 0; c < columns; c++) {
      const double g = (double)slope[c] * ((double)weight[c] + offset);
      ls_put(&row[c], (g - (double)from[c] * inverse * along) * inverse, args->accumulate[0]);
    }
  }
  for (int64_t n = 0; n < dx->valid[0]; n++)
    ls_put_padding(ls_real_row(dx, n), x->valid[1], dx->dims[1], args->accumulate[0]);
}

static ls_status rmsnorm_bwd(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrrr>rr?", error));
  const ls_view *dy = &args->in[0], *x = &args->in[1];
  const LS_REAL *inverses = ls_real_data(&args->in[3]);
  const int64_t columns = args->in[2].valid[0], groups = x->valid[1] / columns;
  rmsnorm_rows(args, columns, groups);
  if (args->outputs == 1) return LS_OK;
  LS_REAL *dweight = ls_real_data(&args->out[1]);
  for (int64_t first = 0; first < columns; first += COLUMNS) {
    const int64_t width = ls_smaller(COLUMNS, columns - first);
    double sums[COLUMNS] = {0};
    for (int64_t n = 0; n < dy->valid[0] * groups; n++) {
      const int64_t place = n % groups * columns + first;
      const LS_REAL *from = ls_real_row(x, n / groups) + place;
      const LS_REAL *slope = ls_real_row(dy, n / groups) + place;
      const double inverse = (double)inverses[n];
      for (int64_t c = 0; c < width; c++) sums[c] += (double)slope[c] * (double)from[c] * inverse;
    }
    for (int64_t c = 0; c < width; c++) ls_put(&dweight[first + c], sums[c], args->accumulate[1]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(RMSNORM_BWD)(const ls_kernel_args *args, ls_error *error) {
  return rmsnorm_bwd(args, error);
}

ls_status LS_REFERENCE(HEADNORM_BWD)(const ls_kernel_args *args, ls_error *error) {
  return rmsnorm_bwd(args, error);
}
