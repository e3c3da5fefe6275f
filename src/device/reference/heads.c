#include "device/reference/reference.h"

/* Heads made wider or narrower: each has its own columns, then those that all heads share, then
 * zeros, as far as there is room. */

/* How many columns of a head are its own, and how many behind them are shared. */
typedef struct ls_head_parts {
  int64_t heads, own, shared;
} ls_head_parts;

/* `wide`: the side that has `columns` to a head. */
static ls_status parts_of(const ls_kernel_args *args, const ls_view *wide, int64_t shared,
                          ls_head_parts *parts, ls_error *error) {
  const int64_t head_dim = args->attributes->head_dim, columns = args->attributes->columns;
  if (head_dim <= 0 || columns <= 0 || wide->dims[1] % columns)
    return ls_fail(error, LS_INTERNAL,
                   "heads of %lld columns in %lld; expected whole heads of at least one",
                   (long long)columns, (long long)wide->dims[1]);
  parts->heads = wide->dims[1] / columns;
  parts->own = ls_smaller(head_dim, columns);
  parts->shared = ls_smaller(shared, columns - parts->own);
  return LS_OK;
}

ls_status LS_REFERENCE(HEADS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, args->inputs > 1 ? "rr>r" : "r>r", error));
  const ls_view *x = &args->in[0], *y = &args->out[0];
  const int64_t head_dim = args->attributes->head_dim, columns = args->attributes->columns;
  ls_head_parts parts;
  LS_TRY(parts_of(args, y, args->inputs > 1 ? args->in[1].dims[1] : 0, &parts, error));
  for (int64_t n = 0; n < y->valid[0]; n++)
    for (int64_t h = 0; h < parts.heads; h++) {
      const LS_REAL *own = ls_real_row(x, n) + h * head_dim;
      const LS_REAL *shared = parts.shared ? ls_real_row(&args->in[1], n) : NULL;
      LS_REAL *to = ls_real_row(y, n) + h * columns;
      for (int64_t c = 0; c < columns; c++) {
        double value = 0;
        if (c < parts.own)
          value = (double)own[c];
        else if (c < parts.own + parts.shared)
          value = (double)shared[c - parts.own];
        ls_put(&to[c], value, args->accumulate[0]);
      }
    }
  return LS_OK;
}

ls_status LS_REFERENCE(HEADS_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>r", error));
  const ls_view *dy = &args->in[0], *dx = &args->out[0];
  const int64_t head_dim = args->attributes->head_dim, columns = args->attributes->columns;
  ls_head_parts parts;
  LS_TRY(parts_of(args, dy, 0, &parts, error));
  for (int64_t n = 0; n < dx->valid[0]; n++)
    for (int64_t h = 0; h < parts.heads; h++) {
      const LS_REAL *from = ls_real_row(dy, n) + h * columns;
      LS_REAL *to = ls_real_row(dx, n) + h * head_dim;
      for (int64_t c = 0; c < head_dim; c++)
        ls_put(&to[c], c < parts.own ? (double)from[c] : 0, args->accumulate[0]);
    }
  return LS_OK;
}

ls_status LS_REFERENCE(HEADS_SHARED_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>r", error));
  const ls_view *dy = &args->in[0], *shared = &args->out[0];
  ls_head_parts parts;
  LS_TRY(parts_of(args, dy, shared->dims[1], &parts, error));
  for (int64_t n = 0; n < shared->valid[0]; n++)
    for (int64_t c = 0; c < shared->dims[1]; c++) {
      const LS_REAL *from = ls_real_row(dy, n) + parts.own + c;
      double sum = 0;
      for (int64_t h = 0; h < parts.heads && c < parts.shared; h++)
        sum += (double)from[h * args->attributes->columns];
      ls_put(&ls_real_row(shared, n)[c], sum, args->accumulate[0]);
    }
  return LS_OK;
}

/* Heads of x, and how many rows of the weights are of each. */
static ls_status matrices_of(const ls_kernel_args *args, int64_t *heads, int64_t *rows,
                             ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
  const int64_t columns = args->in[0].dims[1], head_dim = args->attributes->head_dim;
  *heads = head_dim > 0 ? columns / head_dim : 0;
  *rows = *heads > 0 ? args->in[1].dims[0] / *heads : 0;
  if (*heads > 0 && columns == *heads * head_dim && args->in[1].dims[0] == *heads * *rows)
    return LS_OK;
  return ls_fail(error, LS_INTERNAL,
                 "matrices of %lld rows for heads of %lld in %lld columns; expected whole heads, "
                 "each with as many rows",
                 (long long)args->in[1].dims[0], (long long)head_dim, (long long)columns);
}

ls_status LS_REFERENCE(HEADS_UP)(const ls_kernel_args *args, ls_error *error) {
  const ls_view *x = &args->in[0], *weight = &args->in[1], *y = &args->out[0];
  const int64_t head_dim = args->attributes->head_dim, columns = args->attributes->columns;
  int64_t heads, rows;
  LS_TRY(matrices_of(args, &heads, &rows, error));
  if (rows > head_dim || columns != weight->dims[1] + head_dim - rows ||
      y->dims[1] != heads * columns)
    return ls_fail(error, LS_INTERNAL, "heads of %lld columns made in %lld; expected %lld",
                   (long long)columns, (long long)y->dims[1],
                   (long long)(weight->dims[1] + head_dim - rows));
  for (int64_t n = 0; n < y->valid[0]; n++)
    for (int64_t h = 0; h < heads; h++) {
      const LS_REAL *from = ls_real_row(x, n) + h * head_dim;
      LS_REAL *to = ls_real_row(y, n) + h * columns;
      for (int64_t c = 0; c < weight->dims[1]; c++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++)
          sum += (double)from[r] * (double)ls_real_row(weight, h * rows + r)[c];
        ls_put(&to[c], sum, args->accumulate[0]);
      }
      for (int64_t c = rows; c < head_dim; c++)
        ls_put(&to[weight->dims[1] + c - rows], (double)from[c], args->accumulate[0]);
    }
  return LS_OK;
}

ls_status LS_REFERENCE(HEADS_DOWN)(const ls_kernel_args *args, ls_error *error) {
  const ls_view *x = &args->in[0], *weight = &args->in[1], *y = &args->out[0];
  int64_t heads, rows;
  LS_TRY(matrices_of(args, &heads, &rows, error));
  if (weight->dims[1] > args->attributes->head_dim || y->dims[1] != heads * rows)
    return ls_fail(error, LS_INTERNAL, "heads of %lld columns for matrices of %lld; expected more",
                   (long long)args->attributes->head_dim, (long long)weight->dims[1]);
  for (int64_t n = 0; n < y->valid[0]; n++)
    for (int64_t h = 0; h < heads; h++) {
      const LS_REAL *from = ls_real_row(x, n) + h * args->attributes->head_dim;
      for (int64_t r = 0; r < rows; r++) {
        const LS_REAL *with = ls_real_row(weight, h * rows + r);
        double sum = 0;
        for (int64_t c = 0; c < weight->dims[1]; c++) sum += (double)from[c] * (double)with[c];
        ls_put(&ls_real_row(y, n)[h * rows + r], sum, args->accumulate[0]);
      }
    }
  return LS_OK;
}
