#include <math.h>

#include "base/sets.h"
#include "device/reference/reference.h"

/* Binary cross-entropies of classes of which this rank has columns [start, start + valid), and as
 * many weights; of sets it has whole rows. A label below zero is none. */

static const int32_t *set_of(const ls_view *sets, int64_t row) {
  return ls_index_data(sets) + row * sets->dims[1];
}

/* How often a class that is in a set counts. */
static double weight_of(const ls_kernel_args *args, int input, int64_t column) {
  return args->inputs > input ? ls_cell_data(&args->in[input])[column] : 1;
}

ls_status LS_REFERENCE(BCE_SUM)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, args->inputs > 3 ? "riid>r" : "rii>r", error));
  const ls_view *logits = &args->in[0];
  const int32_t *labels = ls_index_data(&args->in[1]);
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    const LS_REAL *row = ls_real_row(logits, n);
    const int32_t *set = set_of(&args->in[2], n);
    double sum = 0;
    for (int64_t v = 0; v < logits->valid[1] && labels[n] >= 0; v++) {
      const double x = (double)row[v];
      const bool has = ls_set_has(set, logits->start[1] + v);
      const double above = has ? -x : x; /* softplus of x, and of -x for a class that it has */
      const double own = (above > 0 || isnan(x) ? above : 0) + log1p(exp(-fabs(x)));
      sum += has ? weight_of(args, 3, v) * own : own;
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
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, args->inputs > 4 ? "riidd>r" : "riid>r", error));
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const int32_t *labels = ls_index_data(&args->in[1]);
  const double scale = *ls_cell_data(&args->in[3]) * args->attributes->scale;
  for (int64_t n = 0; n < out->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(logits, n);
    const int32_t *set = set_of(&args->in[2], n);
    LS_REAL *row = ls_real_row(out, n);
    const int64_t columns = labels[n] < 0 ? 0 : ls_smaller(logits->valid[1], out->dims[1]);
    for (int64_t v = 0; v < columns; v++) {
      const double share = 1 / (1 + exp(-(double)from[v]));
      const bool has = ls_set_has(set, logits->start[1] + v);
      const double slope = has ? weight_of(args, 4, v) * (share - 1) : share;
      ls_put(&row[v], scale * slope, args->accumulate[0]);
    }
    ls_put_padding(row, columns, out->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}
