/* layernorm and rmsnorm, of whole rows and of each head by itself, and their gradients.
 *
 * A row is widened once where it fits a buffer, and so are the weights for all rows of a part; a
 * longer one is read by pieces in each pass. Gradients of weights are summed by parts of the rows,
 * each part into its own row of scratch, and the parts' sums are added in order: same count of
 * threads, same bits. */
#include "device/cpu/vector_kernels.h"

/* Longer than LS_PIECE, for whole rows of most models. */
enum { NORM_PIECE = 2048 };

/* A row as fp32; `there` says that the buffer holds it if it has only one piece. */
LS_INLINE const float *norm_load(const ls_view *view, int64_t row, int64_t at, int64_t count,
                                 bool there, float *buffer) {
  if (there && view->dtype != LS_F32 && view_columns(view) <= NORM_PIECE) return buffer;
  return piece_here(view, row, at, count, buffer);
}

/* Sums kept side by side, two vectors of them, so that additions wait less for each other and the
 * lanes are added up once a row: compilers do that one by one. */
enum { SIDE_BY_SIDE = 2 * LS_LANES };

LS_INLINE float sums_join(float *sums) {
  for (int half = SIDE_BY_SIDE / 2; half > 0; half /= 2) {
#pragma omp simd
    for (int i = 0; i < half; i++) sums[i] += sums[i + half];
  }
  return sums[0];
}

/* sum of (x - mean)^power of a row, with power 1 or 2; of the first pass over it, or another. */
LS_INLINE float row_moment(const ls_view *x, int64_t row, int64_t columns, float mean, bool squared,
                           bool first, float *buffer) {
  float sums[SIDE_BY_SIDE] = {0};
  for (int64_t at = 0; at < columns; at += NORM_PIECE) {
    const int64_t count = least(NORM_PIECE, columns - at);
    const size_t bytes = (size_t)count * ls_dtype_bytes(x->dtype);
    if (first) piece_expect(view_at(x, row, at + count), bytes);
    const float *piece = norm_load(x, row, at, count, !first, buffer);
    int64_t i = 0;
    for (; i + SIDE_BY_SIDE <= count; i += SIDE_BY_SIDE) {
#pragma omp simd
      for (int j = 0; j < SIDE_BY_SIDE; j++) {
        const float distance = piece[i + j] - mean;
        sums[j] += squared ? distance * distance : distance;
      }
    }
    for (int j = 0; i + j < count; j++) {
      const float distance = piece[i + j] - mean;
      sums[j] += squared ? distance * distance : distance;
    }
  }
  return sums_join(sums);
}

/* What a part of the rows is widened into. */
typedef struct norm_buffers {
  float x[NORM_PIECE], weight[NORM_PIECE], bias[NORM_PIECE], y[NORM_PIECE];
} norm_buffers;

/* y = (x - mean) * scale * weight + bias; or without bias, which may be NULL, and with `offset`
 * added to the weights. x has been loaded; `there`: weight and bias too, for another row.
 */
LS_INLINE void row_scale(const ls_view *y, const ls_view *x, const ls_view *weight,
                         const ls_view *bias, int64_t row, int64_t columns, float mean, float scale,
                         float offset, bool add, bool there, norm_buffers *buffers) {
  for (int64_t at = 0; at < columns; at += NORM_PIECE) {
    const int64_t count = least(NORM_PIECE, columns - at);
    const float *from = norm_load(x, row, at, count, true, buffers->x);
    const float *w = norm_load(weight, 0, at, count, there, buffers->weight);
    float *to = piece_target(y, row, at, count, add, buffers->y);
    if (bias) {
      const float *b = norm_load(bias, 0, at, count, there, buffers->bias);
#pragma omp simd
      for (int64_t i = 0; i < count; i++) to[i] = (from[i] - mean) * scale * w[i] + b[i];
    } else {
#pragma omp simd
      for (int64_t i = 0; i < count; i++) to[i] = (from[i] - mean) * scale * (w[i] + offset);
    }
    piece_store(y, row, at, count, add, buffers->y);
  }
  row_clear_tail(y, row, add);
}

static void layernorm_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *x = &args->in[0];
  float *means = args->out[1].data, *scales = args->out[2].data;
  const int64_t columns = x->valid[1];
  norm_buffers buffers;
  for (int64_t row = begin; row < end; row++) {
    const float mean = row_moment(x, row, columns, 0, false, true, buffers.x) / (float)columns;
    const float variance =
        row_moment(x, row, columns, mean, true, false, buffers.x) / (float)columns;
    const float scale = 1.0f / sqrtf(variance + (float)args->attributes->epsilon);
    row_scale(&args->out[0], x, &args->in[1], args->inputs > 2 ? &args->in[2] : NULL, row, columns,
              mean, scale, 0, args->accumulate[0], row > begin, &buffers);
    means[row] = mean + (args->accumulate[1] ? means[row] : 0);
    scales[row] = scale + (args->accumulate[2] ? scales[row] : 0);
  }
}

static ls_status kernel_layernorm(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *x = &args->in[0];
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, x->valid[0] * x->valid[1]), x->valid[0],
                layernorm_turns, args);
  return LS_OK;
}

static void rmsnorm_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *x = &args->in[0];
  float *scales = args->out[1].data;
  const int64_t columns = x->valid[1];
  norm_buffers buffers;
  for (int64_t row = begin; row < end; row++) {
    const float square = row_moment(x, row, columns, 0, true, true, buffers.x) / (float)columns;
    const float scale = 1.0f / sqrtf(square + (float)args->attributes->epsilon);
    row_scale(&args->out[0], x, &args->in[1], NULL, row, columns, 0, scale,
              (float)args->attributes->weight_offset, args->accumulate[0], row > begin, &buffers);
    scales[row] = scale + (args->accumulate[1] ? scales[row] : 0);
  }
}

static ls_status kernel_rmsnorm(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *x = &args->in[0];
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, x->valid[0] * x->valid[1]), x->valid[0],
                rmsnorm_turns, args);
  return LS_OK;
}

/* What a part of the rows is widened into on the way back. */
typedef struct norm_bwd_buffers {
  float dy[NORM_PIECE], x[NORM_PIECE], weight[NORM_PIECE], dx[NORM_PIECE];
} norm_bwd_buffers;

/* Sums over a row of g and of g * xhat, where g = dy * (weight + offset); and this row's share of
 * the weight's and the bias's gradients (both may be NULL). `there`: the weight is loaded. */
LS_INLINE void row_sums(const ls_kernel_args *args, int64_t row, int64_t columns, float mean,
                        float scale, float *dw, float *db, float *g_sum, float *gx_sum, bool there,
                        norm_bwd_buffers *buffers) {
  const ls_view *dy_view = &args->in[0], *x_view = &args->in[1];
  const float offset = (float)args->attributes->weight_offset;
  float g[SIDE_BY_SIDE] = {0}, gx[SIDE_BY_SIDE] = {0};
  for (int64_t at = 0; at < columns; at += NORM_PIECE) {
    const int64_t count = least(NORM_PIECE, columns - at);
    piece_expect(view_at(dy_view, row, at + count), (size_t)count * ls_dtype_bytes(dy_view->dtype));
    piece_expect(view_at(x_view, row, at + count), (size_t)count * ls_dtype_bytes(x_view->dtype));
    const float *dy = norm_load(dy_view, row, at, count, false, buffers->dy);
    const float *x = norm_load(x_view, row, at, count, false, buffers->x);
    const float *w = norm_load(&args->in[2], 0, at, count, there, buffers->weight);
    float *dw_piece = dw ? dw + at : NULL;
    int64_t i = 0;
    for (; i + SIDE_BY_SIDE <= count; i += SIDE_BY_SIDE) {
#pragma omp simd
      for (int j = 0; j < SIDE_BY_SIDE; j++) {
        const float xhat = (x[i + j] - mean) * scale, slope = dy[i + j] * (w[i + j] + offset);
        g[j] += slope;
        gx[j] += slope * xhat;
        if (dw_piece) dw_piece[i + j] += dy[i + j] * xhat;
      }
    }
    for (int j = 0; i + j < count; j++) {
      const float xhat = (x[i + j] - mean) * scale, slope = dy[i + j] * (w[i + j] + offset);
      g[j] += slope;
      gx[j] += slope * xhat;
      if (dw_piece) dw_piece[i + j] += dy[i + j] * xhat;
    }
    if (db) {
      float *db_piece = db + at;
#pragma omp simd
      for (int64_t j = 0; j < count; j++) db_piece[j] += dy[j];
    }
  }
  *g_sum = sums_join(g);
  *gx_sum = sums_join(gx);
}

/* dx = scale * (g - g_mean - xhat * gx_mean), of a row that row_sums has loaded. */
LS_INLINE void row_dx(const ls_kernel_args *args, int64_t row, int64_t columns, float mean,
                      float scale, float g_mean, float gx_mean, norm_bwd_buffers *buffers) {
  const bool add = args->accumulate[0];
  const float offset = (float)args->attributes->weight_offset;
  for (int64_t at = 0; at < columns; at += NORM_PIECE) {
    const int64_t count = least(NORM_PIECE, columns - at);
    const float *dy = norm_load(&args->in[0], row, at, count, true, buffers->dy);
    const float *x = norm_load(&args->in[1], row, at, count, true, buffers->x);
    const float *w = norm_load(&args->in[2], 0, at, count, true, buffers->weight);
    float *dx = piece_target(&args->out[0], row, at, count, add, buffers->dx);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
      const float xhat = (x[i] - mean) * scale;
      dx[i] = scale * (dy[i] * (w[i] + offset) - g_mean - xhat * gx_mean);
    }
    piece_store(&args->out[0], row, at, count, add, buffers->dx);
  }
  row_clear_tail(&args->out[0], row, add);
}

/* `means` is NULL for rmsnorm, whose sums are those of dw alone. */
typedef struct norm_bwd_work {
  const ls_kernel_args *args;
  const float *means, *scales;
  float *sums;            /* a part's dw, then its db; NULL: nobody needs them */
  int64_t length, stride; /* of dw; of a part's sums */
  bool has_bias;
} norm_bwd_work;

/* One part's rows. */
LS_INLINE void norm_bwd_rows(const norm_bwd_work *given, int64_t begin, int64_t end, float *dw,
                             float *db) {
  const ls_kernel_args *args = given->args;
  const float *means = given->means, *scales = given->scales;
  const int64_t columns = args->in[1].valid[1];
  norm_bwd_buffers buffers;
  if (dw) memset(dw, 0, (size_t)columns * sizeof(float));
  if (db) memset(db, 0, (size_t)columns * sizeof(float));
  for (int64_t row = begin; row < end; row++) {
    const float mean = means ? means[row] : 0;
    float g, gx;
    row_sums(args, row, columns, mean, scales[row], dw, db, &g, &gx, row > begin, &buffers);
    row_dx(args, row, columns, mean, scales[row], means ? g / (float)columns : 0,
           gx / (float)columns, &buffers);
  }
}

static void norm_bwd_turns(const void *work, int part, int64_t begin, int64_t end) {
  const norm_bwd_work *given = work;
  if (!given->sums) {
    norm_bwd_rows(given, begin, end, NULL, NULL);
    return;
  }
  float *dw = given->sums + part * given->stride;
  norm_bwd_rows(given, begin, end, dw, given->has_bias ? dw + given->length : NULL);
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
                          ls_error *error) {
  const ls_view *x = &args->in[1];
  const bool has_bias = args->outputs > 2;
  const int parts = ls_cpu_parts(args->queue->facts, x->valid[0] * x->valid[1]);
  const int64_t length = (x->valid[1] + 15) / 16 * 16; /* whole cache lines for each part */
  const int64_t stride = has_bias ? 2 * length : length;
  const size_t bytes = (size_t)(stride * parts) * sizeof(float);
  float *sums = args->outputs > 1 ? ls_cpu_scratch(args, bytes) : NULL;
  if (!sums && args->outputs > 1)
    return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", bytes);
  const norm_bwd_work work = {args, means, scales, sums, length, stride, has_bias};
  ls_host_split(args->queue->facts->threads, parts, x->valid[0], norm_bwd_turns, &work);
  if (sums) LS_VECTOR(ls_join_parts)(&args->out[1], args->accumulate[1], sums, stride, parts);
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
  return norm_bwd(&rows, NULL, args->in[3].data, error);
}

static ls_status kernel_layernorm_bwd(const ls_kernel_args *args, ls_error *error) {
  return norm_bwd(args, args->in[3].data, args->in[4].data, error);
}

static ls_status kernel_rmsnorm_bwd(const ls_kernel_args *args, ls_error *error) {
  return norm_bwd(args, NULL, args->in[3].data, error);
}

void LS_VECTOR(ls_fill_norm)(ls_kernel_table *table) {
  table->kernel[LS_OP_LAYERNORM] = kernel_layernorm;
  table->kernel[LS_OP_RMSNORM] = kernel_rmsnorm;
  table->kernel[LS_OP_HEADNORM] = kernel_headnorm;
  table->kernel[LS_OP_HEADNORM_BWD] = kernel_headnorm_bwd;
  table->kernel[LS_OP_LAYERNORM_BWD] = kernel_layernorm_bwd;
  table->kernel[LS_OP_RMSNORM_BWD] = kernel_rmsnorm_bwd;
}
