#include "device/reference/reference.h"

/* Mixtures of experts: tokens' rows to their experts and back, and products in which each row has
 * its own expert's matrix. Routed rows come sorted by expert, of one expert by token. */

/* A copy of each token's row for each of its routed rows. */
static ls_status spread(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ri>r", error));
  const ls_view *x = &args->in[0], *places = &args->in[1], *out = &args->out[0];
  const int32_t *rows = places->data;
  const int64_t chosen = places->dims[1], columns = ls_smaller(x->dims[1], out->dims[1]);
  for (int64_t s = 0; s < places->valid[0] * chosen; s++) {
    const LS_REAL *from = ls_real_row(x, s / chosen);
    LS_REAL *row = ls_real_row(out, rows[s]);
    for (int64_t c = 0; c < columns; c++) ls_put(&row[c], (double)from[c], args->accumulate[0]);
    ls_put_padding(row, columns, out->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

/* The sum of each token's routed rows. */
static ls_status collect(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ri>r", error));
  const ls_view *y = &args->in[0], *places = &args->in[1], *out = &args->out[0];
  const int64_t chosen = places->dims[1], columns = ls_smaller(y->dims[1], out->dims[1]);
  for (int64_t n = 0; n < out->valid[0]; n++) {
    const int32_t *rows = (const int32_t *)places->data + n * chosen;
    LS_REAL *to = ls_real_row(out, n);
    for (int64_t c = 0; c < columns; c++) {
      double sum = 0;
      for (int64_t j = 0; j < chosen; j++) sum += (double)ls_real_row(y, rows[j])[c];
      ls_put(&to[c], sum, args->accumulate[0]);
    }
    ls_put_padding(to, columns, out->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(DISPATCH)(const ls_kernel_args *args, ls_error *error) {
  return spread(args, error);
}

ls_status LS_REFERENCE(DISPATCH_BWD)(const ls_kernel_args *args, ls_error *error) {
  return collect(args, error);
}

ls_status LS_REFERENCE(COMBINE)(const ls_kernel_args *args, ls_error *error) {
  return collect(args, error);
}

ls_status LS_REFERENCE(COMBINE_BWD)(const ls_kernel_args *args, ls_error *error) {
  return spread(args, error);
}

ls_status LS_REFERENCE(WEIGH)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
  const ls_view *out = &args->out[0];
  for (int64_t n = 0; n < out->valid[0]; n++) {
    const double weight = (double)ls_real_data(&args->in[1])[n];
    for (int64_t c = 0; c < out->dims[1]; c++)
      ls_put(&ls_real_row(out, n)[c], weight * (double)ls_real_row(&args->in[0], n)[c],
             args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(WEIGH_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrr>rr", error));
  const ls_view *dx = &args->out[0];
  for (int64_t n = 0; n < dx->valid[0]; n++) {
    const LS_REAL *dy = ls_real_row(&args->in[0], n), *x = ls_real_row(&args->in[1], n);
    const double weight = (double)ls_real_data(&args->in[2])[n];
    double sum = 0;
    for (int64_t c = 0; c < dx->dims[1]; c++) {
      sum += (double)dy[c] * (double)x[c];
      ls_put(&ls_real_row(dx, n)[c], weight * (double)dy[c], args->accumulate[0]);
    }
    ls_put(&ls_real_data(&args->out[1])[n], sum, args->accumulate[1]);
  }
  return LS_OK;
}

/* The matrix of one of the experts that the rank has: `rows` rows. */
static ls_view matrix_of(const ls_view *weights, int64_t rows, int64_t expert) {
  ls_view matrix = *weights;
  matrix.dims[0] = matrix.valid[0] = rows;
  matrix.data = ls_real_row(weights, (expert - weights->start[0] / rows) * rows);
  return matrix;
}

/* Whether row n is of an expert that another rank has; then it is zeros. */
static bool is_others_row(const ls_kernel_args *args, int64_t rows, int64_t n) {
  const ls_held_experts held = ls_held_experts_of(&args->in[1], rows);
  const int64_t expert = ls_index_data(&args->in[2])[n];
  const ls_view *y = &args->out[0];
  if (expert >= held.first && expert < held.first + held.count) return false;
  ls_put_padding(ls_real_row(y, n), 0, y->dims[1], args->accumulate[0]);
  return true;
}

/* Each row times its expert's matrix [in, out]. */
static ls_status times_matrix(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rri>r", error));
  const ls_view *x = &args->in[0], *y = &args->out[0];
  for (int64_t n = 0; n < y->valid[0]; n++) {
    if (is_others_row(args, x->dims[1], n)) continue;
    const ls_view matrix = matrix_of(&args->in[1], x->dims[1], ls_index_data(&args->in[2])[n]);
    const int64_t columns = ls_smaller(matrix.dims[1], y->dims[1]);
    const LS_REAL *from = ls_real_row(x, n);
    for (int64_t m = 0; m < columns; m++) {
      double sum = 0;
      for (int64_t k = 0; k < matrix.dims[0]; k++)
        sum += (double)from[k] * (double)ls_real_row(&matrix, k)[m];
      ls_put(&ls_real_row(y, n)[m], sum, args->accumulate[0]);
    }
    ls_put_padding(ls_real_row(y, n), columns, y->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

/* Each row times its expert's matrix [out, in], transposed. */
static ls_status times_transposed(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rri>r", error));
  const ls_view *x = &args->in[0], *y = &args->out[0];
  for (int64_t n = 0; n < y->valid[0]; n++) {
    if (is_others_row(args, y->dims[1], n)) continue;
    const ls_view matrix = matrix_of(&args->in[1], y->dims[1], ls_index_data(&args->in[2])[n]);
    const int64_t columns = ls_smaller(matrix.dims[0], y->dims[1]);
    const int64_t count = ls_smaller(x->valid[1], matrix.valid[1]);
    for (int64_t m = 0; m < columns; m++) {
      double sum = 0;
      for (int64_t k = 0; k < count; k++)
        sum += (double)ls_real_row(x, n)[k] * (double)ls_real_row(&matrix, m)[k];
      ls_put(&ls_real_row(y, n)[m], sum, args->accumulate[0]);
    }
    ls_put_padding(ls_real_row(y, n), columns, y->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

/* Of each expert that the rank has the sum of a's rows times b's, over its rows: [columns of a,
 * columns of b]. */
static ls_status outer_sums(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rri>r", error));
  const ls_view *a = &args->in[0], *b = &args->in[1], *out = &args->out[0];
  const int32_t *expert = ls_index_data(&args->in[2]);
  const ls_held_experts held = ls_held_experts_of(out, a->dims[1]);
  int64_t row = 0;
  while (row < a->valid[0] && expert[row] < held.first) row++;
  for (int64_t e = held.first; e < held.first + held.count; e++) {
    const ls_view matrix = matrix_of(out, a->dims[1], e);
    const int64_t first = row, columns = ls_smaller(b->dims[1], matrix.dims[1]);
    while (row < a->valid[0] && expert[row] == e) row++;
    for (int64_t k = 0; k < matrix.dims[0]; k++) {
      for (int64_t m = 0; m < columns; m++) {
        double sum = 0;
        for (int64_t n = first; n < row; n++)
          sum += (double)ls_real_row(a, n)[k] * (double)ls_real_row(b, n)[m];
        ls_put(&ls_real_row(&matrix, k)[m], sum, args->accumulate[0]);
      }
      ls_put_padding(ls_real_row(&matrix, k), columns, matrix.dims[1], args->accumulate[0]);
    }
  }
  return LS_OK;
}

ls_status LS_REFERENCE(GROUPED_UP)(const ls_kernel_args *args, ls_error *error) {
  return times_matrix(args, error);
}

ls_status LS_REFERENCE(GROUPED_UP_DX)(const ls_kernel_args *args, ls_error *error) {
  return times_transposed(args, error);
}

ls_status LS_REFERENCE(GROUPED_UP_DW)(const ls_kernel_args *args, ls_error *error) {
  return outer_sums(args, error);
}

ls_status LS_REFERENCE(GROUPED_DOWN)(const ls_kernel_args *args, ls_error *error) {
  return times_transposed(args, error);
}

ls_status LS_REFERENCE(GROUPED_DOWN_DX)(const ls_kernel_args *args, ls_error *error) {
  return times_matrix(args, error);
}

ls_status LS_REFERENCE(GROUPED_DOWN_DW)(const ls_kernel_args *args, ls_error *error) {
  return outer_sums(args, error);
}

/* The bias of row n's expert, or NULL: another rank has it. */
static const LS_REAL *bias_of(const ls_view *bias, const ls_view *experts, int64_t n) {
  const ls_held_experts held = ls_held_experts_of(bias, 1);
  const int64_t expert = ls_index_data(experts)[n] - held.first;
  return expert >= 0 && expert < held.count ? ls_real_row(bias, expert) : NULL;
}

/* Rows of others' experts stay as they are: zeros. */
ls_status LS_REFERENCE(GROUPED_BIAS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rri>r", error));
  const ls_view *y = &args->out[0];
  for (int64_t n = 0; n < y->valid[0]; n++) {
    const LS_REAL *bias = bias_of(&args->in[1], &args->in[2], n);
    const LS_REAL *x = ls_real_row(&args->in[0], n);
    for (int64_t c = 0; c < y->dims[1]; c++)
      ls_put(&ls_real_row(y, n)[c], (double)x[c] + (bias ? (double)bias[c] : 0),
             args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(GROUPED_BIAS_DB)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ri>r", error));
  const ls_view *dy = &args->in[0], *out = &args->out[0];
  const int32_t *expert = ls_index_data(&args->in[1]);
  const ls_held_experts held = ls_held_experts_of(out, 1);
  for (int64_t e = 0; e < held.count; e++)
    for (int64_t c = 0; c < out->dims[1]; c++) {
      double sum = 0;
      for (int64_t n = 0; n < dy->valid[0]; n++)
        if (expert[n] == held.first + e) sum += (double)ls_real_row(dy, n)[c];
      ls_put(&ls_real_row(out, e)[c], sum, args->accumulate[0]);
    }
  return LS_OK;
}

ls_status LS_REFERENCE(GROUPED_WEIGH)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrir>r", error));
  const ls_view *y = &args->out[0];
  for (int64_t n = 0; n < y->valid[0]; n++) {
    const LS_REAL *bias = bias_of(&args->in[1], &args->in[2], n);
    const LS_REAL *x = ls_real_row(&args->in[0], n);
    const double weight = (double)ls_real_data(&args->in[3])[n];
    for (int64_t c = 0; c < y->dims[1]; c++)
      ls_put(&ls_real_row(y, n)[c], bias ? weight * ((double)x[c] + (double)bias[c]) : 0,
             args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(GROUPED_WEIGH_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrrir>rrr?", error));
  const ls_view *dx = &args->out[0], *db = &args->out[2];
  const bool biased = args->outputs > 2;
  for (int64_t e = 0; biased && e < db->dims[0]; e++)
    ls_put_padding(ls_real_row(db, e), 0, db->dims[1], args->accumulate[2]);
  for (int64_t n = 0; n < dx->valid[0]; n++) {
    const LS_REAL *dy = ls_real_row(&args->in[0], n), *x = ls_real_row(&args->in[1], n);
    const LS_REAL *bias = bias_of(&args->in[2], &args->in[3], n);
    const double weight = (double)ls_real_data(&args->in[4])[n];
    double sum = 0;
    for (int64_t c = 0; c < dx->dims[1]; c++) {
      const double d = bias ? (double)dy[c] : 0;
      if (bias) sum += d * ((double)x[c] + (double)bias[c]);
      ls_put(&ls_real_row(dx, n)[c], weight * d, args->accumulate[0]);
      if (bias && biased)
        ls_put(&ls_real_row(db, ls_index_data(&args->in[3])[n] - db->start[0])[c], weight * d,
               true);
    }
    ls_put(&ls_real_data(&args->out[1])[n], sum, args->accumulate[1]);
  }
  return LS_OK;
}
