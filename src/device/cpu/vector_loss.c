/* Cross-entropy over a vocabulary that may be cut: only this rank's valid columns are looked at.
 * And the soft cap of logits. */
#include "base/sets.h"
#include "device/cpu/vector_kernels.h"

/* The larger of two, or the one that is not a number: it must reach the loss. */
LS_INLINE float larger(float a, float b) {
  return b > a || b != b ? b : a;
}

static float row_max(const ls_view *logits, int64_t row, int64_t columns) {
  enum { SIDE_BY_SIDE = 32 };
  float buffer[LS_PIECE], best[SIDE_BY_SIDE];
  for (int i = 0; i < SIDE_BY_SIDE; i++) best[i] = -INFINITY;
  for (int64_t at = 0; at < columns; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, columns - at);
    const float *x = piece_load(logits, row, at, count, buffer);
    int64_t i = 0;
    for (; i + SIDE_BY_SIDE <= count; i += SIDE_BY_SIDE) {
#pragma omp simd
      for (int j = 0; j < SIDE_BY_SIDE; j++) best[j] = larger(best[j], x[i + j]);
    }
    for (; i < count; i++) best[0] = larger(best[0], x[i]);
  }
  for (int i = 1; i < SIDE_BY_SIDE; i++) best[0] = larger(best[0], best[i]);
  return best[0];
}

/* Shares the rows of logits. */
static ls_status share_rows(const ls_kernel_args *args, ls_host_turns turns) {
  const ls_view *logits = &args->in[0];
  const int parts = ls_cpu_parts(args->queue->facts, logits->valid[0] * logits->valid[1]);
  ls_host_split(args->queue->facts->threads, parts, logits->valid[0], turns, args);
  return LS_OK;
}

static void xent_max_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *logits = &args->in[0];
  float *out = args->out[0].data;
  for (int64_t row = begin; row < end; row++) out[row] = row_max(logits, row, logits->valid[1]);
}

static ls_status kernel_xent_max(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, xent_max_turns);
}

/* Piece sums are added in double: 50,000 terms would cost fp32 two digits. */
static float row_exp_sum(const ls_view *logits, int64_t row, int64_t columns, float max) {
  float buffer[LS_PIECE];
  double total = 0;
  for (int64_t at = 0; at < columns; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, columns - at);
    const float *x = piece_load(logits, row, at, count, buffer);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) sum += exp_of(x[i] - max);
    total += (double)sum;
  }
  return (float)total;
}

/* The column of this rank's logits that `label` names; -1 if none of them. */
LS_INLINE int64_t label_column(const ls_view *logits, int32_t label) {
  const int64_t column = label - logits->start[1];
  return label >= 0 && column >= 0 && column < logits->valid[1] ? column : -1;
}

static void xent_sum_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *logits = &args->in[0];
  const float *max = args->in[1].data;
  const int32_t *labels = args->in[2].data;
  float *sums = args->out[0].data, *targets = args->out[1].data;
  for (int64_t row = begin; row < end; row++) {
    const int64_t column = label_column(logits, labels[row]);
    float one = 0, buffer;
    if (column >= 0) one = *piece_load(logits, row, column, 1, &buffer);
    const float sum = row_exp_sum(logits, row, logits->valid[1], max[row]);
    sums[row] = sum + (args->accumulate[0] ? sums[row] : 0);
    targets[row] = one + (args->accumulate[1] ? targets[row] : 0);
  }
}

static ls_status kernel_xent_sum(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, xent_sum_turns);
}

/* One row of (softmax - one at the label) * scale. */
static void grad_row(const ls_kernel_args *args, int64_t row, float max, float factor,
                     int64_t label, float scale) {
  float in_buffer[LS_PIECE], out_buffer[LS_PIECE];
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const bool add = args->accumulate[0];
  for (int64_t at = 0; at < logits->valid[1]; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, logits->valid[1] - at);
    const float *x = piece_load(logits, row, at, count, in_buffer);
    float *to = piece_target(out, row, at, count, add, out_buffer);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) to[i] = exp_of(x[i] - max) * factor;
    if (label >= at && label < at + count) to[label - at] -= scale;
    piece_store(out, row, at, count, add, out_buffer);
  }
  row_clear_tail(out, row, add);
}

/* Times `scale`, or each row times its own. */
LS_INLINE void grad_rows(const ls_kernel_args *args, int64_t begin, int64_t end, float scale,
                         const float *each) {
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const float *max = args->in[1].data, *sum = args->in[2].data;
  const int32_t *labels = args->in[3].data;
  for (int64_t row = begin; row < end; row++) {
    if (each) scale = each[row];
    if (labels[row] >= 0) {
      grad_row(args, row, max[row], scale / sum[row], label_column(logits, labels[row]), scale);
    } else if (!args->accumulate[0]) {
      memset(view_at(out, row, 0), 0, (size_t)out->dims[1] * ls_dtype_bytes(out->dtype));
    }
  }
}

static void xent_grad_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  grad_rows(args, begin, end, (float)*(const double *)args->in[4].data, NULL);
}

static void xent_grad_each_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  grad_rows(args, begin, end, 0, args->in[4].data);
}

static ls_status kernel_xent_grad_each(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, xent_grad_each_turns);
}

static ls_status kernel_xent_grad(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, xent_grad_turns);
}

/* Of a row of logits the signs and weights of a piece: 1 for a class that it has not; for one that
 * it has -1, and how often that counts. */
static void piece_of_set(const ls_kernel_args *args, int weights, int64_t row, int64_t at,
                         int64_t count, float *sign, float *weight) {
  const ls_view *sets = &args->in[2];
  const int32_t *set = (const int32_t *)sets->data + row * sets->dims[1];
  const double *often = args->inputs > weights ? args->in[weights].data : NULL;
  for (int64_t i = 0; i < count; i++) {
    const bool has = ls_set_has(set, args->in[0].start[1] + at + i);
    sign[i] = has ? -1 : 1;
    weight[i] = has && often ? (float)often[at + i] : 1;
  }
}

static void bce_sum_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *logits = &args->in[0];
  const int32_t *labels = args->in[1].data;
  float *out = args->out[0].data, buffer[LS_PIECE], sign[LS_PIECE], weight[LS_PIECE];
  for (int64_t row = begin; row < end; row++) {
    double sum = 0;
    for (int64_t at = 0; at < logits->valid[1] && labels[row] >= 0; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, logits->valid[1] - at);
      const float *x = piece_load(logits, row, at, count, buffer);
      piece_of_set(args, 3, row, at, count, sign, weight);
      for (int64_t i = 0; i < count; i++)
        sum += (double)(weight[i] * (larger(0, sign[i] * x[i]) + log1pf(exp_of(-fabsf(x[i])))));
    }
    out[row] = (float)(args->attributes->scale * sum) + (args->accumulate[0] ? out[row] : 0);
  }
}

static ls_status kernel_bce_sum(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, bce_sum_turns);
}

/* The slope of softplus is its logit's share, and that of softplus(-x) the same of -x, turned. */
static void bce_grad_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const int32_t *labels = args->in[1].data;
  const float scale = (float)(*(const double *)args->in[3].data * args->attributes->scale);
  const bool add = args->accumulate[0];
  float in_buffer[LS_PIECE], out_buffer[LS_PIECE], sign[LS_PIECE], weight[LS_PIECE];
  for (int64_t row = begin; row < end; row++) {
    if (labels[row] < 0) {
      if (!add) memset(view_at(out, row, 0), 0, (size_t)out->dims[1] * ls_dtype_bytes(out->dtype));
      continue;
    }
    for (int64_t at = 0; at < logits->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, logits->valid[1] - at);
      const float *x = piece_load(logits, row, at, count, in_buffer);
      float *to = piece_target(out, row, at, count, add, out_buffer);
      piece_of_set(args, 4, row, at, count, sign, weight);
#pragma omp simd
      for (int64_t i = 0; i < count; i++)
        to[i] = scale * sign[i] * weight[i] / (1 + exp_of(-sign[i] * x[i]));
      piece_store(out, row, at, count, add, out_buffer);
    }
    row_clear_tail(out, row, add);
  }
}

static ls_status kernel_bce_grad(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, bce_grad_turns);
}

/* Of a row of logits and of the teacher's, piece by piece: sums as of row_exp_sum. */
static void distill_sums(const ls_kernel_args *args, int64_t row, double sums[LS_DISTILL_SUMS]) {
  const ls_view *logits = &args->in[0];
  const float max = ((const float *)args->in[1].data)[row];
  const float its_max = ((const float *)args->in[3].data)[row];
  const float inverse = (float)args->attributes->softmax_scale;
  float buffer[LS_PIECE], its_buffer[LS_PIECE];
  for (int64_t at = 0; at < logits->valid[1]; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, logits->valid[1] - at);
    const float *x = piece_load(logits, row, at, count, buffer);
    const float *t = piece_load(&args->in[2], row, at, count, its_buffer);
    float sum = 0, soft = 0, teacher = 0, apart = 0;
#pragma omp simd reduction(+ : sum, soft, teacher, apart)
    for (int64_t i = 0; i < count; i++) {
      const float below = x[i] - max, its_below = t[i] - its_max;
      const float share = exp_of(inverse * its_below);
      sum += exp_of(below);
      soft += exp_of(inverse * below);
      teacher += share;
      apart += share * (inverse * (its_below - below));
    }
    sums[LS_DISTILL_EXP] += (double)sum;
    sums[LS_DISTILL_SOFT] += (double)soft;
    sums[LS_DISTILL_TEACHER] += (double)teacher;
    sums[LS_DISTILL_APART] += (double)apart;
  }
}

/* Of a token, with its label's logit. */
static void put_distill_sums(const ls_kernel_args *args, int64_t row,
                             double sums[LS_DISTILL_SUMS]) {
  const ls_view *logits = &args->in[0];
  const int64_t column = label_column(logits, ((const int32_t *)args->in[4].data)[row]);
  float buffer, *out = (float *)args->out[0].data + row * args->out[0].dims[1];
  if (column >= 0) sums[LS_DISTILL_TARGET] = (double)*piece_load(logits, row, column, 1, &buffer);
  for (int s = 0; s < LS_DISTILL_SUMS; s++)
    out[s] = (float)sums[s] + (args->accumulate[0] ? out[s] : 0);
}

static void distill_sum_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  for (int64_t row = begin; row < end; row++) {
    double sums[LS_DISTILL_SUMS] = {0};
    distill_sums(args, row, sums);
    put_distill_sums(args, row, sums);
  }
}

static ls_status kernel_distill_sum(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, distill_sum_turns);
}

/* One row of hard (softmax - one at the label) + soft (softened softmax - the teacher's). */
static void distill_grad_row(const ls_kernel_args *args, int64_t row, int64_t label, float hard,
                             float soft) {
  float in_buffer[LS_PIECE], its_buffer[LS_PIECE], out_buffer[LS_PIECE];
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const float max = ((const float *)args->in[1].data)[row];
  const float its_max = ((const float *)args->in[3].data)[row];
  const float *sums = (const float *)args->in[4].data + row * args->in[4].dims[1];
  const float inverse = (float)args->attributes->softmax_scale;
  const float of_hard = hard / sums[LS_DISTILL_EXP], of_soft = soft / sums[LS_DISTILL_SOFT];
  const float of_teacher = soft / sums[LS_DISTILL_TEACHER];
  const bool add = args->accumulate[0];
  for (int64_t at = 0; at < logits->valid[1]; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, logits->valid[1] - at);
    const float *x = piece_load(logits, row, at, count, in_buffer);
    const float *t = piece_load(&args->in[2], row, at, count, its_buffer);
    float *to = piece_target(out, row, at, count, add, out_buffer);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
      const float below = x[i] - max;
      to[i] = exp_of(below) * of_hard + exp_of(inverse * below) * of_soft -
              exp_of(inverse * (t[i] - its_max)) * of_teacher;
    }
    if (label >= at && label < at + count) to[label - at] -= hard;
    piece_store(out, row, at, count, add, out_buffer);
  }
  row_clear_tail(out, row, add);
}

typedef void grad_of_row(const ls_kernel_args *args, int64_t row, int64_t label, float hard,
                         float soft);

static void grad_distilled(const ls_kernel_args *args, int64_t begin, int64_t end,
                           grad_of_row *grad) {
  const ls_view *out = &args->out[0];
  const int32_t *labels = args->in[5].data;
  const double scale = *(const double *)args->in[6].data, share = args->attributes->scale;
  const float hard = (float)(scale * (1 - share));
  const float soft = (float)(scale * share / args->attributes->softmax_scale);
  for (int64_t row = begin; row < end; row++) {
    if (labels[row] >= 0)
      grad(args, row, label_column(&args->in[0], labels[row]), hard, soft);
    else if (!args->accumulate[0])
      memset(view_at(out, row, 0), 0, (size_t)out->dims[1] * ls_dtype_bytes(out->dtype));
  }
}

static void distill_grad_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  grad_distilled(work, begin, end, distill_grad_row);
}

static ls_status kernel_distill_grad(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, distill_grad_turns);
}

/* Of a token what its teacher says of the ids it finds likeliest, which ascend, each once: from the
 * first that is one of this rank's columns on. */
typedef struct told {
  const int32_t *ids;
  const float *below;
  int64_t at, count, start;
} told;

LS_INLINE told told_of(const ls_kernel_args *args, int64_t row) {
  const ls_view *ids = &args->in[2], *below = &args->in[3], *logits = &args->in[0];
  told made = {(const int32_t *)ids->data + row * ids->dims[1],
               (const float *)below->data + row * below->dims[1], 0, ids->valid[1],
               logits->start[1]};
  const int64_t first = made.start > 0 ? made.start : 0;
  while (made.at < made.count && made.ids[made.at] < first) made.at++;
  return made;
}

/* Whether the next is one of the columns before `end`; its column. */
LS_INLINE bool told_before(const told *self, int64_t end, int64_t *column) {
  if (self->at == self->count) return false;
  *column = self->ids[self->at] - self->start;
  return *column < end;
}

static void distill_top_sums(const ls_kernel_args *args, int64_t row,
                             double sums[LS_DISTILL_SUMS]) {
  const ls_view *logits = &args->in[0];
  const float max = ((const float *)args->in[1].data)[row];
  const float inverse = (float)args->attributes->softmax_scale;
  float buffer[LS_PIECE];
  told teacher = told_of(args, row);
  for (int64_t at = 0, column; at < logits->valid[1]; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, logits->valid[1] - at);
    const float *x = piece_load(logits, row, at, count, buffer);
    float sum = 0, soft = 0;
#pragma omp simd reduction(+ : sum, soft)
    for (int64_t i = 0; i < count; i++) {
      sum += exp_of(x[i] - max);
      soft += exp_of(inverse * (x[i] - max));
    }
    sums[LS_DISTILL_EXP] += (double)sum;
    sums[LS_DISTILL_SOFT] += (double)soft;
    for (; told_before(&teacher, at + count, &column); teacher.at++) {
      const float its_below = teacher.below[teacher.at], share = exp_of(inverse * its_below);
      sums[LS_DISTILL_TEACHER] += (double)share;
      sums[LS_DISTILL_APART] += (double)(share * (inverse * (its_below - (x[column - at] - max))));
    }
  }
}

static void distill_top_sum_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  for (int64_t row = begin; row < end; row++) {
    double sums[LS_DISTILL_SUMS] = {0};
    distill_top_sums(args, row, sums);
    put_distill_sums(args, row, sums);
  }
}

static ls_status kernel_distill_top_sum(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, distill_top_sum_turns);
}

static void distill_top_grad_row(const ls_kernel_args *args, int64_t row, int64_t label, float hard,
                                 float soft) {
  float in_buffer[LS_PIECE], out_buffer[LS_PIECE];
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const float max = ((const float *)args->in[1].data)[row];
  const float *sums = (const float *)args->in[4].data + row * args->in[4].dims[1];
  const float inverse = (float)args->attributes->softmax_scale;
  const float of_hard = hard / sums[LS_DISTILL_EXP], of_soft = soft / sums[LS_DISTILL_SOFT];
  const float of_teacher = soft / sums[LS_DISTILL_TEACHER];
  const bool add = args->accumulate[0];
  told teacher = told_of(args, row);
  for (int64_t at = 0, column; at < logits->valid[1]; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, logits->valid[1] - at);
    const float *x = piece_load(logits, row, at, count, in_buffer);
    float *to = piece_target(out, row, at, count, add, out_buffer);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
      const float below = x[i] - max;
      to[i] = exp_of(below) * of_hard + exp_of(inverse * below) * of_soft;
    }
    if (label >= at && label < at + count) to[label - at] -= hard;
    for (; told_before(&teacher, at + count, &column); teacher.at++)
      to[column - at] -= exp_of(inverse * teacher.below[teacher.at]) * of_teacher;
    piece_store(out, row, at, count, add, out_buffer);
  }
  row_clear_tail(out, row, add);
}

static void distill_top_grad_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  grad_distilled(work, begin, end, distill_top_grad_row);
}

static ls_status kernel_distill_top_grad(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, distill_top_grad_turns);
}

static void softcap_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *x = &args->in[0], *y = &args->out[0];
  const float cap = (float)args->attributes->softcap, inverse = 1.0f / cap;
  const bool add = args->accumulate[0];
  float in[LS_PIECE], out[LS_PIECE];
  for (int64_t row = begin; row < end; row++) {
    for (int64_t at = 0; at < y->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, y->valid[1] - at);
      const float *from = piece_load(x, row, at, count, in);
      float *to = piece_target(y, row, at, count, add, out);
#pragma omp simd
      for (int64_t i = 0; i < count; i++) to[i] = cap * tanh_of(from[i] * inverse);
      piece_store(y, row, at, count, add, out);
    }
    row_clear_tail(y, row, add);
  }
}

static void softcap_bwd_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *dy = &args->in[0], *y = &args->in[1], *dx = &args->out[0];
  const float inverse = 1.0f / (float)args->attributes->softcap;
  const bool add = args->accumulate[0];
  float dy_buffer[LS_PIECE], y_buffer[LS_PIECE], out[LS_PIECE];
  for (int64_t row = begin; row < end; row++) {
    for (int64_t at = 0; at < dx->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, dx->valid[1] - at);
      const float *slope = piece_load(dy, row, at, count, dy_buffer);
      const float *made = piece_load(y, row, at, count, y_buffer);
      float *to = piece_target(dx, row, at, count, add, out);
#pragma omp simd
      for (int64_t i = 0; i < count; i++) {
        const float share = made[i] * inverse;
        to[i] = slope[i] * (1.0f - share * share);
      }
      piece_store(dx, row, at, count, add, out);
    }
    row_clear_tail(dx, row, add);
  }
}

static ls_status kernel_softcap(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, softcap_turns);
}

static ls_status kernel_softcap_bwd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, softcap_bwd_turns);
}

void LS_VECTOR(ls_fill_loss)(ls_kernel_table *table) {
  table->kernel[LS_OP_XENT_MAX] = kernel_xent_max;
  table->kernel[LS_OP_XENT_SUM] = kernel_xent_sum;
  table->kernel[LS_OP_XENT_GRAD] = kernel_xent_grad;
  table->kernel[LS_OP_BCE_SUM] = kernel_bce_sum;
  table->kernel[LS_OP_BCE_GRAD] = kernel_bce_grad;
  table->kernel[LS_OP_XENT_SUM_EACH] = kernel_xent_sum;
  table->kernel[LS_OP_XENT_GRAD_EACH] = kernel_xent_grad_each;
  table->kernel[LS_OP_DISTILL_SUM] = kernel_distill_sum;
  table->kernel[LS_OP_DISTILL_GRAD] = kernel_distill_grad;
  table->kernel[LS_OP_DISTILL_TOP_SUM] = kernel_distill_top_sum;
  table->kernel[LS_OP_DISTILL_TOP_GRAD] = kernel_distill_top_grad;
  table->kernel[LS_OP_SOFTCAP] = kernel_softcap;
  table->kernel[LS_OP_SOFTCAP_BWD] = kernel_softcap_bwd;
}
