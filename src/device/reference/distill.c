#include <math.h>

#include "device/reference/reference.h"

/* Distillation over a vocabulary of which this rank has some columns, of the student's logits and
 * of the teacher's alike. All sums are over columns, so that ranks add theirs up. */

static int64_t label_column(const ls_view *logits, int32_t label) {
  const int64_t column = (int64_t)label - logits->start[1];
  return label >= 0 && column >= 0 && column < logits->valid[1] ? column : -1;
}

ls_status LS_REFERENCE(DISTILL_SUM)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrrri>r", error));
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const LS_REAL *largest = ls_real_data(&args->in[1]), *its_largest = ls_real_data(&args->in[3]);
  const int32_t *labels = ls_index_data(&args->in[4]);
  const double inverse = args->attributes->softmax_scale;
  for (int64_t n = 0; n < out->valid[0]; n++) {
    const LS_REAL *row = ls_real_row(logits, n), *its = ls_real_row(&args->in[2], n);
    const int64_t target = label_column(logits, labels[n]);
    double sums[LS_DISTILL_SUMS] = {[LS_DISTILL_TARGET] = target < 0 ? 0 : (double)row[target]};
    for (int64_t v = 0; v < logits->valid[1]; v++) {
      const double below = (double)row[v] - (double)largest[n];
      const double its_below = (double)its[v] - (double)its_largest[n];
      const double share = exp(inverse * its_below);
      sums[LS_DISTILL_EXP] += exp(below);
      sums[LS_DISTILL_SOFT] += exp(inverse * below);
      sums[LS_DISTILL_TEACHER] += share;
      sums[LS_DISTILL_APART] += share * inverse * (its_below - below);
    }
    for (int s = 0; s < LS_DISTILL_SUMS; s++)
      ls_put(&ls_real_row(out, n)[s], sums[s], args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(DISTILL_LOSS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rri>ddd", error));
  const LS_REAL *largest = ls_real_data(&args->in[0]);
  const int32_t *labels = ls_index_data(&args->in[2]);
  const double inverse = args->attributes->softmax_scale, share = args->attributes->scale;
  double sums_of[2] = {0};
  for (int64_t n = 0; n < args->in[0].valid[0]; n++) {
    if (labels[n] < 0) continue;
    const LS_REAL *sums = ls_real_row(&args->in[1], n);
    const double teacher = (double)sums[LS_DISTILL_TEACHER];
    const double hard =
        log((double)sums[LS_DISTILL_EXP]) + (double)largest[n] - (double)sums[LS_DISTILL_TARGET];
    const double soft = (double)sums[LS_DISTILL_APART] / teacher - log(teacher) +
                        log((double)sums[LS_DISTILL_SOFT]);
    sums_of[0] += hard;
    sums_of[1] += soft;
  }
  const double loss = (1 - share) * sums_of[0] + share / (inverse * inverse) * sums_of[1];
  ls_put_cell(&args->out[0], loss, args->accumulate[0]);
  for (int o = 1; o < 3; o++) ls_put_cell(&args->out[o], sums_of[o - 1], args->accumulate[o]);
  return LS_OK;
}

/* Of the cross-entropy softmax less one at the label; of T^2 KL T times what the student's softened
 * softmax has more than the teacher's. */
ls_status LS_REFERENCE(DISTILL_GRAD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrrrrid>r", error));
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const LS_REAL *largest = ls_real_data(&args->in[1]), *its_largest = ls_real_data(&args->in[3]);
  const int32_t *labels = ls_index_data(&args->in[5]);
  const double inverse = args->attributes->softmax_scale, scale = *ls_cell_data(&args->in[6]);
  const double hard = scale * (1 - args->attributes->scale);
  const double soft = scale * args->attributes->scale / inverse;
  const int64_t columns = ls_smaller(logits->valid[1], out->dims[1]);
  for (int64_t n = 0; n < out->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(logits, n), *its = ls_real_row(&args->in[2], n);
    const LS_REAL *sums = ls_real_row(&args->in[4], n);
    LS_REAL *row = ls_real_row(out, n);
    const int64_t target = label_column(logits, labels[n]);
    if (labels[n] < 0) {
      ls_put_padding(row, 0, out->dims[1], args->accumulate[0]);
      continue;
    }
    for (int64_t v = 0; v < columns; v++) {
      const double below = (double)from[v] - (double)largest[n];
      const double its_below = (double)its[v] - (double)its_largest[n];
      const double share = exp(below) / (double)sums[LS_DISTILL_EXP] - (v == target);
      const double more = exp(inverse * below) / (double)sums[LS_DISTILL_SOFT] -
                          exp(inverse * its_below) / (double)sums[LS_DISTILL_TEACHER];
      ls_put(&row[v], hard * share + soft * more, args->accumulate[0]);
    }
    ls_put_padding(row, columns, out->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

/* Of a token what its teacher says of the ids it finds likeliest, gone through by column: ids
 * ascend, each once, those below 0 are none. */
typedef struct told {
  const int32_t *ids;
  const LS_REAL *below;
  int64_t at, count;
  double inverse;
} told;

static told told_of(const ls_view *ids, const ls_view *below, int64_t n, double inverse) {
  return (told){(const int32_t *)ids->data + n * ids->dims[1], ls_real_row(below, n), 0,
                ids->valid[1], inverse};
}

/* exp(below / T) of the id, which is at least that of the call before; 0: it is none of them. */
static double share_of(told *self, int64_t id, double *below) {
  while (self->at < self->count && self->ids[self->at] < id) self->at++;
  if (self->at == self->count || self->ids[self->at] != id) return 0;
  *below = (double)self->below[self->at];
  return exp(self->inverse * *below);
}

ls_status LS_REFERENCE(DISTILL_TOP_SUM)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rriri>r", error));
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const LS_REAL *largest = ls_real_data(&args->in[1]);
  const int32_t *labels = ls_index_data(&args->in[4]);
  const double inverse = args->attributes->softmax_scale;
  for (int64_t n = 0; n < out->valid[0]; n++) {
    const LS_REAL *row = ls_real_row(logits, n);
    const int64_t target = label_column(logits, labels[n]);
    told teacher = told_of(&args->in[2], &args->in[3], n, inverse);
    double sums[LS_DISTILL_SUMS] = {[LS_DISTILL_TARGET] = target < 0 ? 0 : (double)row[target]};
    for (int64_t v = 0; v < logits->valid[1]; v++) {
      const double below = (double)row[v] - (double)largest[n];
      double its_below = 0;
      const double share = share_of(&teacher, logits->start[1] + v, &its_below);
      sums[LS_DISTILL_EXP] += exp(below);
      sums[LS_DISTILL_SOFT] += exp(inverse * below);
      sums[LS_DISTILL_TEACHER] += share;
      sums[LS_DISTILL_APART] += share * inverse * (its_below - below);
    }
    for (int s = 0; s < LS_DISTILL_SUMS; s++)
      ls_put(&ls_real_row(out, n)[s], sums[s], args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(DISTILL_TOP_GRAD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrirrid>r", error));
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const LS_REAL *largest = ls_real_data(&args->in[1]);
  const int32_t *labels = ls_index_data(&args->in[5]);
  const double inverse = args->attributes->softmax_scale, scale = *ls_cell_data(&args->in[6]);
  const double hard = scale * (1 - args->attributes->scale);
  const double soft = scale * args->attributes->scale / inverse;
  const int64_t columns = ls_smaller(logits->valid[1], out->dims[1]);
  for (int64_t n = 0; n < out->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(logits, n), *sums = ls_real_row(&args->in[4], n);
    LS_REAL *row = ls_real_row(out, n);
    const int64_t target = label_column(logits, labels[n]);
    told teacher = told_of(&args->in[2], &args->in[3], n, inverse);
    if (labels[n] < 0) {
      ls_put_padding(row, 0, out->dims[1], args->accumulate[0]);
      continue;
    }
    for (int64_t v = 0; v < columns; v++) {
      const double below = (double)from[v] - (double)largest[n];
      double its_below = 0;
      const double its = share_of(&teacher, logits->start[1] + v, &its_below);
      const double share = exp(below) / (double)sums[LS_DISTILL_EXP] - (v == target);
      const double more = exp(inverse * below) / (double)sums[LS_DISTILL_SOFT] -
                          its / (double)sums[LS_DISTILL_TEACHER];
      ls_put(&row[v], hard * share + soft * more, args->accumulate[0]);
    }
    ls_put_padding(row, columns, out->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}
