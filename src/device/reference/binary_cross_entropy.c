#include <math.h>

#include "device/reference/reference.h"

/* Binary cross-entropies of classes of which this rank has columns [start, start + valid). A label
 * is a set of classes, one below zero none at all. */

static bool has_class(int32_t label, int64_t column) {
  return (uint32_t)label >> column & 1;
}

ls_status LS_REFERENCE(BCE_SUM)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ri>r", error));
  const ls_view *logits = &args->in[0];
  const int32_t *labels = ls_index_data(&args->in[1]);
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    const LS_REAL *row = ls_real_row(logits, n);
    double sum = 0;
    for (int64_t v = 0; v < logits->valid[1] && labels[n] >= 0; v++) {
      const double x = (double)row[v];
      const double above = x > 0 || isnan(x) ? x : 0; /* softplus(x), less x for a class it has */
      sum += above + log1p(exp(-fabs(x))) - (has_class(labels[n], logits->start[1] + v) ? x : 0);
    }
    ls_put(&ls_real_data(&args->out[0])[n], args->attributes->scale * sum, args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(BCE_LOSS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ri>d", error));
  const LS_REAL *means = ls_real_data(&args->in[0]);
  const int32_t *labels = ls_index_data(&args->in[1]);
  double loss = 0;
  for (int64_t n = 0; n < args->in[0].valid[0]; n++)
    if (labels[n] >= 0) loss += (double)means[n];
  ls_put_cell(&args->out[0], loss, args->accumulate[0]);
  return LS_OK;
}

ls_status LS_REFERENCE(BCE_GRAD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rid>r", error));
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const int32_t *labels = ls_index_data(&args->in[1]);
  const double scale = *ls_cell_data(&args->in[2]) * args->attributes->scale;
  for (int64_t n = 0; n < out->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(logits, n);
    LS_REAL *row = ls_real_row(out, n);
    const int64_t columns = labels[n] < 0 ? 0 : ls_smaller(logits->valid[1], out->dims[1]);
    for (int64_t v = 0; v < columns; v++) {
      const double share = 1 / (1 + exp(-(double)from[v]));
      ls_put(&row[v], scale * (share - has_class(labels[n], logits->start[1] + v)),
             args->accumulate[0]);
    }
    ls_put_padding(row, columns, out->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}
