/* The RMS norm in two ops, for rows whose columns are cut over ranks: see device/reference/row.c.
 *
 * Weights' gradients are summed by parts of the rows and then joined, as in vector_norm.c. */
#include "device/cpu/vector_kernels.h"

static void row_squares_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *x = &args->in[0];
  float *sums = args->out[0].data, buffer[LS_PIECE];
  for (int64_t row = begin; row < end; row++) {
    float total = args->accumulate[0] ? sums[row] : 0;
    for (int64_t at = 0; at < x->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, x->valid[1] - at);
      const float *piece = piece_load(x, row, at, count, buffer);
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < count; i++) sum += piece[i] * piece[i];
      total += sum;
    }
    sums[row] = total;
  }
}

static void row_squares_bwd_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const float *slopes = args->in[0].data;
  const ls_view *x = &args->in[1], *dx = &args->out[0];
  float x_buffer[LS_PIECE], dx_buffer[LS_PIECE];
  const bool add = args->accumulate[0];
  for (int64_t row = begin; row < end; row++) {
    const float slope = 2.0f * slopes[row];
    for (int64_t at = 0; at < x->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, x->valid[1] - at);
      const float *from = piece_load(x, row, at, count, x_buffer);
      float *to = piece_target(dx, row, at, count, add, dx_buffer);
#pragma omp simd
      for (int64_t i = 0; i < count; i++) to[i] = slope * from[i];
      piece_store(dx, row, at, count, add, dx_buffer);
    }
    row_clear_tail(dx, row, add);
  }
}

LS_INLINE float inverse_rms(const ls_attributes *attributes, float squares) {
  return 1.0f / sqrtf(squares / (float)attributes->columns + (float)attributes->epsilon);
}

static void row_scale_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *x = &args->in[0], *y = &args->out[0];
  const float *squares = args->in[2].data;
  float x_buffer[LS_PIECE], w_buffer[LS_PIECE], y_buffer[LS_PIECE];
  const bool add = args->accumulate[0];
  for (int64_t row = begin; row < end; row++) {
    const float scale = inverse_rms(args->attributes, squares[row]);
    for (int64_t at = 0; at < x->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, x->valid[1] - at);
      const float *from = piece_load(x, row, at, count, x_buffer);
      const float *w = piece_load(&args->in[1], 0, at, count, w_buffer);
      float *to = piece_target(y, row, at, count, add, y_buffer);
#pragma omp simd
      for (int64_t i = 0; i < count; i++) to[i] = from[i] * scale * w[i];
      piece_store(y, row, at, count, add, y_buffer);
    }
    row_clear_tail(y, row, add);
  }
}

typedef struct row_bwd_work {
  const ls_kernel_args *args;
  float *sums;    /* a part's share of the weight's gradient */
  int64_t stride; /* of a part */
} row_bwd_work;

/* One row: dx, the row's share of dw, and the sum over columns of dy w x. */
LS_INLINE float row_bwd(const ls_kernel_args *args, int64_t row, float scale, float *dw) {
  float dy_buffer[LS_PIECE], x_buffer[LS_PIECE], w_buffer[LS_PIECE], dx_buffer[LS_PIECE];
  const ls_view *x = &args->in[1];
  const bool add = args->accumulate[0];
  float along = 0;
  for (int64_t at = 0; at < x->valid[1]; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, x->valid[1] - at);
    const float *dy = piece_load(&args->in[0], row, at, count, dy_buffer);
    const float *from = piece_load(x, row, at, count, x_buffer);
    const float *w = piece_load(&args->in[2], 0, at, count, w_buffer);
    float *dx = piece_target(&args->out[0], row, at, count, add, dx_buffer);
    float *dw_piece = dw + at, sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) {
      const float g = dy[i] * w[i];
      sum += g * from[i];
      dw_piece[i] += dy[i] * from[i] * scale;
      dx[i] = g * scale;
    }
    along += sum;
    piece_store(&args->out[0], row, at, count, add, dx_buffer);
  }
  row_clear_tail(&args->out[0], row, add);
  return along;
}

static void row_scale_bwd_turns(const void *work, int part, int64_t begin, int64_t end) {
  const row_bwd_work *given = work;
  const ls_kernel_args *args = given->args;
  const float *squares = args->in[3].data;
  float *dsquares = args->out[2].data, *dw = given->sums + part * given->stride;
  memset(dw, 0, (size_t)given->stride * sizeof(float));
  for (int64_t row = begin; row < end; row++) {
    const float scale = inverse_rms(args->attributes, squares[row]);
    const float along = row_bwd(args, row, scale, dw);
    const float slope = -0.5f * along * scale * scale * scale / (float)args->attributes->columns;
    dsquares[row] = slope + (args->accumulate[2] ? dsquares[row] : 0);
  }
}

static ls_status share_rows(const ls_kernel_args *args, const ls_view *x, ls_host_turns turns) {
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, x->valid[0] * x->valid[1]), x->valid[0], turns,
                args);
  return LS_OK;
}

static ls_status kernel_row_squares(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, &args->in[0], row_squares_turns);
}

static ls_status kernel_row_squares_bwd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, &args->in[1], row_squares_bwd_turns);
}

static ls_status kernel_row_scale(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, &args->in[0], row_scale_turns);
}

static ls_status kernel_row_scale_bwd(const ls_kernel_args *args, ls_error *error) {
  const ls_view *x = &args->in[1];
  const int parts = ls_cpu_parts(args->queue->facts, x->valid[0] * x->valid[1]);
  const int64_t stride = (x->valid[1] + 15) / 16 * 16; /* whole cache lines for each part */
  const size_t bytes = (size_t)(stride * parts) * sizeof(float);
  float *sums = ls_cpu_scratch(args, bytes);
  if (bytes && !sums) return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", bytes);
  const row_bwd_work work = {args, sums, stride};
  ls_host_split(args->queue->facts->threads, parts, x->valid[0], row_scale_bwd_turns, &work);
  LS_VECTOR(ls_join_parts)(&args->out[1], args->accumulate[1], sums, stride, parts);
  return LS_OK;
}

void LS_VECTOR(ls_fill_row)(ls_kernel_table *table) {
  table->kernel[LS_OP_ROW_SQUARES] = kernel_row_squares;
  table->kernel[LS_OP_ROW_SQUARES_BWD] = kernel_row_squares_bwd;
  table->kernel[LS_OP_ROW_SCALE] = kernel_row_scale;
  table->kernel[LS_OP_ROW_SCALE_BWD] = kernel_row_scale_bwd;
}
