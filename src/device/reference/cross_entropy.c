#include <math.h>

#include "device/reference/reference.h"

/* Cross-entropy over a vocabulary of which this rank has columns [start, start + valid): the
 * largest logit, then the sum of exponentials and the label's logit, are each reduced over the
 * ranks before the next kernel needs them. A label below zero means that there is none. */

/* The column of `label` in this rank's logits, or -1. */
static int64_t label_column(const ls_view *logits, int32_t label) {
  const int64_t column = (int64_t)label - logits->start[1];
  return label >= 0 && column >= 0 && column < logits->valid[1] ? column : -1;
}

ls_status LS_REFERENCE(XENT_MAX)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>R", error));
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  for (int64_t n = 0; n < out->valid[0]; n++) {
    const LS_REAL *row = ls_real_row(logits, n);
    /* A NaN among the logits stays: it must reach the loss, where it is looked for. */
    LS_REAL largest = (LS_REAL)-INFINITY;
    for (int64_t v = 0; v < logits->valid[1]; v++)
      if (row[v] > largest || isnan(row[v])) largest = row[v];
    ls_real_data(out)[n] = largest;
  }
  return LS_OK;
}

ls_status LS_REFERENCE(XENT_SUM)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rri>rr", error));
  const ls_view *logits = &args->in[0];
  const LS_REAL *largest = ls_real_data(&args->in[1]);
  const int32_t *labels = ls_index_data(&args->in[2]);
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    const LS_REAL *row = ls_real_row(logits, n);
    double sum = 0;
    for (int64_t v = 0; v < logits->valid[1]; v++) sum += exp((double)row[v] - (double)largest[n]);
    const int64_t column = label_column(logits, labels[n]);
    ls_put(&ls_real_data(&args->out[0])[n], sum, args->accumulate[0]);
    ls_put(&ls_real_data(&args->out[1])[n], column < 0 ? 0 : (double)row[column],
           args->accumulate[1]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(XENT_SUM_EACH)(const ls_kernel_args *args, ls_error *error) {
  return LS_REFERENCE(XENT_SUM)(args, error);
}

ls_status LS_REFERENCE(XENT_LOSS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrri>d", error));
  const LS_REAL *largest = ls_real_data(&args->in[0]), *sums = ls_real_data(&args->in[1]);
  const LS_REAL *targets = ls_real_data(&args->in[2]);
  const int32_t *labels = ls_index_data(&args->in[3]);
  double loss = 0;
  for (int64_t n = 0; n < args->in[0].valid[0]; n++)
    if (labels[n] >= 0) loss += log((double)sums[n]) + (double)largest[n] - (double)targets[n];
  ls_put_cell(&args->out[0], loss, args->accumulate[0]);
  return LS_OK;
}

ls_status LS_REFERENCE(XENT_LOSS_EACH)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrrid>d", error));
  const LS_REAL *largest = ls_real_data(&args->in[0]), *sums = ls_real_data(&args->in[1]);
  const LS_REAL *targets = ls_real_data(&args->in[2]);
  const int32_t *labels = ls_index_data(&args->in[3]);
  const double *weights = args->in[4].data;
  double loss = 0;
  for (int64_t n = 0; n < args->in[0].valid[0]; n++)
    if (labels[n] >= 0)
      loss += weights[n] * (log((double)sums[n]) + (double)largest[n] - (double)targets[n]);
  ls_put_cell(&args->out[0], loss, args->accumulate[0]);
  return LS_OK;
}

ls_status LS_REFERENCE(XENT_LOSS_EACH_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "idd>r", error));
  const int32_t *labels = ls_index_data(&args->in[0]);
  const double *weights = args->in[1].data, scale = *ls_cell_data(&args->in[2]);
  for (int64_t n = 0; n < args->out[0].valid[0]; n++)
    ls_put(&ls_real_data(&args->out[0])[n], labels[n] < 0 ? 0 : scale * weights[n],
           args->accumulate[0]);
  return LS_OK;
}

/* Scaled by the cell, or where `each` is there token by token. */
static void put_gradient(const ls_kernel_args *args, double scale, const LS_REAL *each) {
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const LS_REAL *largest = ls_real_data(&args->in[1]), *sums = ls_real_data(&args->in[2]);
  const int32_t *labels = ls_index_data(&args->in[3]);
  const int64_t columns = ls_smaller(logits->valid[1], out->dims[1]);
  for (int64_t n = 0; n < out->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(logits, n);
    LS_REAL *row = ls_real_row(out, n);
    const int64_t target = label_column(logits, labels[n]);
    if (labels[n] < 0) {
      ls_put_padding(row, 0, out->dims[1], args->accumulate[0]);
      continue;
    }
    if (each) scale = (double)each[n];
    for (int64_t v = 0; v < columns; v++) {
      const double share = exp((double)from[v] - (double)largest[n]) / (double)sums[n];
      ls_put(&row[v], scale * (v == target ? share - 1 : share), args->accumulate[0]);
    }
    ls_put_padding(row, columns, out->dims[1], args->accumulate[0]);
  }
}

ls_status LS_REFERENCE(XENT_GRAD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrrid>r", error));
  put_gradient(args, *ls_cell_data(&args->in[4]), NULL);
  return LS_OK;
}

ls_status LS_REFERENCE(XENT_GRAD_EACH)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrrir>r", error));
  put_gradient(args, 0, ls_real_data(&args->in[4]));
  return LS_OK;
}

ls_status LS_REFERENCE(COUNT_VALID)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "i>d", error));
  const int32_t *labels = ls_index_data(&args->in[0]);
  int64_t count = 0;
  for (int64_t n = 0; n < args->in[0].valid[0]; n++) count += labels[n] >= 0;
  ls_put_cell(&args->out[0], (double)count, args->accumulate[0]);
  return LS_OK;
}

ls_status LS_REFERENCE(COUNT_WEIGHTS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "id>d", error));
  const int32_t *labels = ls_index_data(&args->in[0]);
  const double *weights = args->in[1].data;
  double sum = 0;
  for (int64_t n = 0; n < args->in[0].valid[0]; n++) sum += labels[n] < 0 ? 0 : weights[n];
  ls_put_cell(&args->out[0], sum, args->accumulate[0]);
  return LS_OK;
}
