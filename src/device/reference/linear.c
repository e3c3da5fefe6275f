#include "device/reference/reference.h"

#include "base/blocks.h"

/* Matrix products. The compiler may not reorder sums of floating-point numbers, so speed comes from
 * several sums at once: four dot products, or eight columns that stay in registers. */

enum { COLUMNS = 8 };

/* y[row] = x . weight[row] for four rows at once. */
static void dot4(double sums[4], const LS_REAL *x, const LS_REAL *weight, int64_t stride,
                 int64_t count) {
  double a = 0, b = 0, c = 0, d = 0;
  for (int64_t k = 0; k < count; k++) {
    const double value = (double)x[k];
    a += value * (double)weight[k];
    b += value * (double)weight[k + stride];
    c += value * (double)weight[k + 2 * stride];
    d += value * (double)weight[k + 3 * stride];
  }
  sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;
}

static double dot(const LS_REAL *x, const LS_REAL *y, int64_t count) {
  double sum = 0;
  for (int64_t k = 0; k < count; k++) sum += (double)x[k] * (double)y[k];
  return sum;
}

/* row[c] = sum over r of factor[r * factor_stride] * matrix[r * matrix_stride + c]. */
static void combine_rows(LS_REAL *row, bool accumulate, const LS_REAL *factor,
                         int64_t factor_stride, const LS_REAL *matrix, int64_t matrix_stride,
                         int64_t rows, int64_t columns) {
  for (int64_t first = 0; first < columns; first += COLUMNS) {
    const int64_t width = ls_smaller(COLUMNS, columns - first);
    double sums[COLUMNS] = {0};
    for (int64_t r = 0; r < rows; r++) {
      const double value = (double)factor[r * factor_stride];
      const LS_REAL *from = matrix + r * matrix_stride + first;
      if (width == COLUMNS) {
        for (int c = 0; c < COLUMNS; c++) sums[c] += value * (double)from[c];
      } else {
        for (int64_t c = 0; c < width; c++) sums[c] += value * (double)from[c];
      }
    }
    for (int64_t c = 0; c < width; c++) ls_put(&row[first + c], sums[c], accumulate);
  }
}

ls_status LS_REFERENCE(LINEAR)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
  const ls_view *x = &args->in[0], *weight = &args->in[1], *y = &args->out[0];
  const int64_t count = ls_smaller(x->valid[1], weight->valid[1]);
  const int64_t columns = ls_smaller(weight->valid[0], y->dims[1]);
  for (int64_t n = 0; n < y->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(x, n);
    LS_REAL *row = ls_real_row(y, n);
    int64_t m = 0;
    for (; m + 4 <= columns; m += 4) {
      double sums[4];
      dot4(sums, from, ls_real_row(weight, m), weight->dims[1], count);
      for (int i = 0; i < 4; i++) ls_put(&row[m + i], sums[i], args->accumulate[0]);
    }
    for (; m < columns; m++)
      ls_put(&row[m], dot(from, ls_real_row(weight, m), count), args->accumulate[0]);
    ls_put_padding(row, columns, y->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(LINEAR_DX)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
  const ls_view *dy = &args->in[0], *weight = &args->in[1], *dx = &args->out[0];
  const int64_t count = ls_smaller(dy->valid[1], weight->valid[0]);
  const int64_t columns = ls_smaller(weight->dims[1], dx->dims[1]);
  for (int64_t n = 0; n < dx->valid[0]; n++) {
    LS_REAL *row = ls_real_row(dx, n);
    combine_rows(row, args->accumulate[0], ls_real_row(dy, n), 1, weight->data, weight->dims[1],
                 count, columns);
    ls_put_padding(row, columns, dx->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(LINEAR_DW)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
  const ls_view *dy = &args->in[0], *x = &args->in[1], *dweight = &args->out[0];
  const int64_t count = ls_smaller(dy->valid[0], x->valid[0]);
  const int64_t columns = ls_smaller(x->dims[1], dweight->dims[1]);
  for (int64_t m = 0; m < dweight->valid[0]; m++) {
    LS_REAL *row = ls_real_row(dweight, m);
    combine_rows(row, args->accumulate[0], ls_real_data(dy) + m, dy->dims[1], x->data, x->dims[1],
                 count, columns);
    ls_put_padding(row, columns, dweight->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

enum { TOGETHER = 64 }; /* rows that a block is restored for at once */

/* A block of a row of weights, which are rounded to fp32 whatever is computed in. */
static void restore(float weights[LS_BLOCK_WEIGHTS], const ls_view *blocks, int64_t row,
                    int64_t block) {
  const size_t bytes = ls_dtype_bytes(blocks->dtype);
  const char *at = (const char *)blocks->data + (size_t)(row * blocks->dims[1] + block) * bytes;
  ls_blocks_restore(blocks->dtype, at, 1, weights);
}

/* y of rows [first, first + rows) and column m. */
static void blocks_column(const ls_kernel_args *args, int64_t first, int64_t rows, int64_t m) {
  const ls_view *x = &args->in[0], *blocks = &args->in[1], *y = &args->out[0];
  double sums[TOGETHER] = {0};
  for (int64_t b = 0; b < blocks->valid[1]; b++) {
    float weights[LS_BLOCK_WEIGHTS];
    restore(weights, blocks, m, b);
    for (int64_t n = 0; n < rows; n++) {
      const LS_REAL *from = ls_real_row(x, first + n) + b * LS_BLOCK_WEIGHTS;
      for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) sums[n] += (double)from[i] * (double)weights[i];
    }
  }
  for (int64_t n = 0; n < rows; n++)
    ls_put(&ls_real_row(y, first + n)[m], sums[n], args->accumulate[0]);
}

/* dx of rows [first, first + rows) and the columns of block b. */
static void blocks_columns_dx(const ls_kernel_args *args, int64_t first, int64_t rows, int64_t b) {
  const ls_view *dy = &args->in[0], *blocks = &args->in[1], *dx = &args->out[0];
  double sums[TOGETHER][LS_BLOCK_WEIGHTS] = {{0}};
  for (int64_t m = 0; m < ls_smaller(dy->valid[1], blocks->valid[0]); m++) {
    float weights[LS_BLOCK_WEIGHTS];
    restore(weights, blocks, m, b);
    for (int64_t n = 0; n < rows; n++) {
      const double value = (double)ls_real_row(dy, first + n)[m];
      for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) sums[n][i] += value * (double)weights[i];
    }
  }
  for (int64_t n = 0; n < rows; n++)
    for (int i = 0; i < LS_BLOCK_WEIGHTS; i++)
      ls_put(&ls_real_row(dx, first + n)[b * LS_BLOCK_WEIGHTS + i], sums[n][i],
             args->accumulate[0]);
}

static ls_status expect_blocks(const ls_view *wide, const ls_view *blocks, ls_error *error) {
  if (wide->valid[1] == blocks->valid[1] * LS_BLOCK_WEIGHTS) return LS_OK;
  return ls_fail(error, LS_INTERNAL, "%lld blocks of a row are multiplied with %lld columns",
                 (long long)blocks->valid[1], (long long)wide->valid[1]);
}

ls_status LS_REFERENCE(LINEAR_BLOCKS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rb>r", error));
  const ls_view *y = &args->out[0];
  LS_TRY(expect_blocks(&args->in[0], &args->in[1], error));
  const int64_t columns = ls_smaller(args->in[1].valid[0], y->dims[1]);
  for (int64_t n = 0; n < y->valid[0]; n += TOGETHER) {
    const int64_t rows = ls_smaller(TOGETHER, y->valid[0] - n);
    for (int64_t m = 0; m < columns; m++) blocks_column(args, n, rows, m);
  }
  for (int64_t n = 0; n < y->valid[0]; n++)
    ls_put_padding(ls_real_row(y, n), columns, y->dims[1], args->accumulate[0]);
  return LS_OK;
}

ls_status LS_REFERENCE(LINEAR_BLOCKS_DX)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rb>r", error));
  const ls_view *dx = &args->out[0], *blocks = &args->in[1];
  LS_TRY(expect_blocks(dx, blocks, error));
  for (int64_t n = 0; n < dx->valid[0]; n += TOGETHER) {
    const int64_t rows = ls_smaller(TOGETHER, dx->valid[0] - n);
    for (int64_t b = 0; b < blocks->valid[1]; b++) blocks_columns_dx(args, n, rows, b);
  }
  for (int64_t n = 0; n < dx->valid[0]; n++)
    ls_put_padding(ls_real_row(dx, n), dx->valid[1], dx->dims[1], args->accumulate[0]);
  return LS_OK;
}

ls_status LS_REFERENCE(BIAS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
  const ls_view *x = &args->in[0], *bias = &args->in[1], *y = &args->out[0];
  const int64_t stored = y->dims[1], columns = ls_smaller(bias->valid[0], stored);
  const LS_REAL *added = ls_real_data(bias);
  for (int64_t n = 0; n < y->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(x, n);
    LS_REAL *row = ls_real_row(y, n);
    for (int64_t c = 0; c < columns; c++)
      ls_put(&row[c], (double)from[c] + (double)added[c], args->accumulate[0]);
    ls_put_padding(row, columns, stored, args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(BIAS_DB)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>r", error));
  const ls_view *dy = &args->in[0], *dbias = &args->out[0];
  const LS_REAL one = 1;
  combine_rows(dbias->data, args->accumulate[0], &one, 0, dy->data, dy->dims[1], dy->valid[0],
               ls_smaller(dy->dims[1], dbias->valid[0]));
  return LS_OK;
}
