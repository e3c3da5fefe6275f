/* layernorm and rmsnorm, of whole rows and of each head by itself, and their gradients.
 *
 * A row is read once per pass in pieces that the first-level cache keeps. Gradients of weights are
 * summed by parts of the rows, each part into its own row of scratch, and the parts' sums are added
 * in order: same count of threads, same bits. */
#include "run/cpu/vector_kernels.h"

/* sum of (x - mean)^power of a row, with power 1 or 2. */
LS_INLINE float row_moment(const ls_view *x, int64_t row, int64_t columns, float mean,
                           bool squared) {
  float buffer[LS_PIECE];
  float total = 0;
  for (int64_t at = 0; at < columns; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, columns - at);
    const float *piece = piece_load(x, row, at, count, buffer);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) {
      const float distance = piece[i] - mean;
      sum += squared ? distance * distance : distance;
    }
    total += sum;
  }
  return total;
}

/* y = (x - mean) * scale * weight + bias; or without mean and bias, which may be NULL, and with
 * `offset` added to the weights. */
LS_INLINE void row_scale(const ls_view *y, const ls_view *x, const ls_view *weight,
                         const ls_view *bias, int64_t row, int64_t columns, float mean, float scale,
                         float offset, bool add) {
  float x_buffer[LS_PIECE], w_buffer[LS_PIECE], b_buffer[LS_PIECE], y_buffer[LS_PIECE];
  for (int64_t at = 0; at < columns; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, columns - at);
    const float *from = piece_load(x, row, at, count, x_buffer);
    const float *w = piece_load(weight, 0, at, count, w_buffer);
    float *to = piece_target(y, row, at, count, add, y_buffer);
    if (bias) {
      const float *b = piece_load(bias, 0, at, count, b_buffer);
#pragma omp simd
      for (int64_t i = 0; i < count; i++) to[i] = (from[i] - mean) * scale * w[i] + b[i];
    } else {
#pragma omp simd
      for (int64_t i = 0; i < count; i++) to[i] = from[i] * scale * (w[i] + offset);
    }
    piece_store(y, row, at, count, add, y_buffer);
  }
  row_clear_tail(y, row, add);
}

static void layernorm_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *x = &args->in[0];
  float *means = args->out[1].data, *scales = args->out[2].data;
  const int64_t columns = x->valid[1];
  for (int64_t row = begin; row < end; row++) {
    const float mean = row_moment(x, row, columns, 0, false) / (float)columns;
    const float variance = row_moment(x, row, columns, mean, true) / (float)columns;
    const float scale = 1.0f / sqrtf(variance + (float)args->attributes->epsilon);
    row_scale(&args->out[0], x, &args->in[1], &args->in[2], row, columns, mean, scale, 0,
              args->accumulate[0]);
    means[row] = mean + (args->accumulate[1] ? means[row] : 0);
    scales[row] = scale + (args->accumulate[2] ? scales[row] : 0);
  }
}

static ls_status kernel_layernorm(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *x = &args->in[0];
  ls_cpu_share(args->threads, ls_cpu_parts(args, x->valid[0] * x->valid[1]), x->valid[0],
               layernorm_turns, args);
  return LS_OK;
}

static void rmsnorm_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *x = &args->in[0];
  float *scales = args->out[1].data;
  const int64_t columns = x->valid[1];
  for (int64_t row = begin; row < end; row++) {
    const float square = row_moment(x, row, columns, 0, true) / (float)columns;
    const float scale = 1.0f / sqrtf(square + (float)args->attributes->epsilon);
    row_scale(&args->out[0], x, &args->in[1], NULL, row, columns, 0, scale,
              (float)args->attributes->weight_offset, args->accumulate[0]);
    scales[row] = scale + (args->accumulate[1] ? scales[row] : 0);
  }
}

static ls_status kernel_rmsnorm(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *x = &args->in[0];
  ls_cpu_share(args->threads, ls_cpu_parts(args, x->valid[0] * x->valid[1]), x->valid[0],
               rmsnorm_turns, args);
  return LS_OK;
}

/* Sums over a row of g and of g * xhat, where g = dy * (weight + offset); and this row's share of
 * the weight's and the bias's gradients (`db` may be NULL). */
LS_INLINE void row_sums(const ls_kernel_args *args, int64_t row, int64_t columns, float mean,
                        float scale, float *dw, float *db, float *g_sum, float *gx_sum) {
  float dy_buffer[LS_PIECE], x_buffer[LS_PIECE], w_buffer[LS_PIECE];
  *g_sum = *gx_sum = 0;
  for (int64_t at = 0; at < columns; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, columns - at);
    const float *dy = piece_load(&args->in[0], row, at, count, dy_buffer);
    const float *x = piece_load(&args->in[1], row, at, count, x_buffer);
    const float *w = piece_load(&args->in[2], 0, at, count, w_buffer);
    const float offset = (float)args->attributes->weight_offset;
    float *dw_piece = dw + at;
    float g = 0, gx = 0;
#pragma omp simd reduction(+ : g, gx)
    for (int64_t i = 0; i < count; i++) {
      const float xhat = (x[i] - mean) * scale;
      g += dy[i] * (w[i] + offset);
      gx += dy[i] * (w[i] + offset) * xhat;
      dw_piece[i] += dy[i] * xhat;
    }
    if (db) {
      float *db_piece = db + at;
#pragma omp simd
      for (int64_t i = 0; i < count; i++) db_piece[i] += dy[i];
    }
    *g_sum += g;
    *gx_sum += gx;
  }
}

/* dx = scale * (g - g_mean - xhat * gx_mean). */
LS_INLINE void row_dx(const ls_kernel_args *args, int64_t row, int64_t columns, float mean,
                      float scale, float g_mean, float gx_mean) {
  float dy_buffer[LS_PIECE], x_buffer[LS_PIECE], w_buffer[LS_PIECE], dx_buffer[LS_PIECE];
  const bool add = args->accumulate[0];
  const float offset = (float)args->attributes->weight_offset;
  for (int64_t at = 0; at < columns; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, columns - at);
    const float *dy = piece_load(&args->in[0], row, at, count, dy_buffer);
    const float *x = piece_load(&args->in[1], row, at, count, x_buffer);
    const float *w = piece_load(&args->in[2], 0, at, count, w_buffer);
    float *dx = piece_target(&args->out[0], row, at, count, add, dx_buffer);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
      const float xhat = (x[i] - mean) * scale;
      dx[i] = scale * (dy[i] * (w[i] + offset) - g_mean - xhat * gx_mean);
    }
    piece_store(&args->out[0], row, at, count, add, dx_buffer);
  }
  row_clear_tail(&args->out[0], row, add);
}

/* `means` is NULL for rmsnorm, whose sums are those of dw alone. */
typedef struct norm_bwd_work {
  const ls_kernel_args *args;
  const float *means, *scales;
  float *sums;            /* a part's dw, then its db */
  int64_t length, stride; /* of dw; of a part's sums */
  bool has_bias;
} norm_bwd_work;

/* One part's rows. */
static void norm_bwd_turns(const void *work, int part, int64_t begin, int64_t end) {
  const norm_bwd_work *given = work;
  const ls_kernel_args *args = given->args;
  const float *means = given->means, *scales = given->scales;
  float *dw = given->sums + part * given->stride, *db = given->has_bias ? dw + given->length : NULL;
  const int64_t columns = args->in[1].valid[1];
  memset(dw, 0, (size_t)columns * sizeof(float));
  if (db) memset(db, 0, (size_t)columns * sizeof(float));
  for (int64_t row = begin; row < end; row++) {
    const float mean = means ? means[row] : 0;
    float g, gx;
    row_sums(args, row, columns, mean, scales[row], dw, db, &g, &gx);
    row_dx(args, row, columns, mean, scales[row], means ? g / (float)columns : 0,
           gx / (float)columns);
  }
}

void LS_VECTOR(ls_join_parts)(const ls_view *out, bool add, const float *sums, int64_t stride,
                              int parts) {
  const int64_t columns = view_columns(out);
  float buffer[LS_PIECE];
  for (int64_t at = 0; at < columns; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, columns - at);
    float *to = piece_target(out, 0, at, count, add, buffer);
    memcpy(to, sums + at, (size_t)count * sizeof(float));
    for (int part = 1; part < parts; part++) {
      const float *from = sums + part * stride + at;
#pragma omp simd
      for (int64_t i = 0; i < count; i++) to[i] += from[i];
    }
    piece_store(out, 0, at, count, add, buffer);
  }
}

static ls_status norm_bwd(const ls_kernel_args *args, const float *means, const float *scales,
                          bool has_bias, ls_error *error) {
  const ls_view *x = &args->in[1];
  const int parts = ls_cpu_parts(args, x->valid[0] * x->valid[1]);
  const int64_t length = (x->valid[1] + 15) / 16 * 16; /* whole cache lines for each part */
  const int64_t stride = has_bias ? 2 * length : length;
  const size_t bytes = (size_t)(stride * parts) * sizeof(float);
  float *sums = ls_cpu_scratch(args, bytes);
  if (!sums) return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", bytes);
  const norm_bwd_work work = {args, means, scales, sums, length, stride, has_bias};
  ls_cpu_share(args->threads, parts, x->valid[0], norm_bwd_turns, &work);
  LS_VECTOR(ls_join_parts)(&args->out[1], args->accumulate[1], sums, stride, parts);
  if (has_bias)
    LS_VECTOR(ls_join_parts)(&args->out[2], args->accumulate[2], sums + length, stride, parts);
  return LS_OK;
}

/* Heads as rows of their own: none is padded. */
static void heads_as_rows(ls_view *view, int64_t columns) {
  const int64_t heads = view->valid[1] / columns;
  view->dims[0] *= heads;
  view->valid[0] *= heads;
  view->dims[1] = view->valid[1] = columns;
}

/* One number for each head of each row, as a vector. */
static void flatten(ls_view *view) {
  view->ndim = 1;
  view->dims[0] *= view->dims[1];
  view->valid[0] *= view->valid[1];
}

static ls_status check_heads(const ls_view *x, int64_t columns, ls_error *error) {
  if (columns > 0 && x->dims[1] == x->valid[1] && x->valid[1] % columns == 0) return LS_OK;
  return ls_fail(error, LS_INTERNAL,
                 "norm of heads of %lld columns in rows of %lld, stored as %lld; expected whole "
                 "heads",
                 (long long)columns, (long long)x->valid[1], (long long)x->dims[1]);
}

static ls_status kernel_headnorm(const ls_kernel_args *args, ls_error *error) {
  const int64_t columns = args->in[1].valid[0];
  ls_kernel_args rows = *args;
  LS_TRY(check_heads(&args->in[0], columns, error));
  heads_as_rows(&rows.in[0], columns);
  heads_as_rows(&rows.out[0], columns);
  flatten(&rows.out[1]);
  return kernel_rmsnorm(&rows, error);
}

static ls_status kernel_headnorm_bwd(const ls_kernel_args *args, ls_error *error) {
  const int64_t columns = args->in[2].valid[0];
  ls_kernel_args rows = *args;
  LS_TRY(check_heads(&args->in[1], columns, error));
  heads_as_rows(&rows.in[0], columns);
  heads_as_rows(&rows.in[1], columns);
  heads_as_rows(&rows.out[0], columns);
  flatten(&rows.in[3]);
  return norm_bwd(&rows, NULL, args->in[3].data, false, error);
}

static ls_status kernel_layernorm_bwd(const ls_kernel_args *args, ls_error *error) {
  return norm_bwd(args, args->in[3].data, args->in[4].data, true, error);
}

static ls_status kernel_rmsnorm_bwd(const ls_kernel_args *args, ls_error *error) {
  return norm_bwd(args, NULL, args->in[3].data, false, error);
}

void LS_VECTOR(ls_fill_norm)(ls_kernel_table *table) {
  table->kernel[LS_OP_LAYERNORM] = kernel_layernorm;
  table->kernel[LS_OP_RMSNORM] = kernel_rmsnorm;
  table->kernel[LS_OP_HEADNORM] = kernel_headnorm;
  table->kernel[LS_OP_HEADNORM_BWD] = kernel_headnorm_bwd;
  table->kernel[LS_OP_LAYERNORM_BWD] = kernel_layernorm_bwd;
  table->kernel[LS_OP_RMSNORM_BWD] = kernel_rmsnorm_bwd;
}
