/* Heads made wider or narrower (device/reference/heads.c): rows are copied by pieces of a head. */
#include "device/cpu/vector_kernels.h"

/* Columns of a row to columns of another. */
LS_INLINE void columns_copy(const ls_view *x, int64_t from, const ls_view *y, int64_t row,
                            int64_t at, int64_t columns, bool add) {
  float in[LS_PIECE], out[LS_PIECE];
  for (int64_t c = 0; c < columns; c += LS_PIECE) {
    const int64_t count = least(LS_PIECE, columns - c);
    const float *source = piece_here(x, row, from + c, count, in);
    float *to = piece_target(y, row, at + c, count, add, out);
    memcpy(to, source, (size_t)count * sizeof(float));
    piece_store(y, row, at + c, count, add, out);
  }
}

LS_INLINE void columns_clear(const ls_view *y, int64_t row, int64_t at, int64_t columns, bool add) {
  if (!add && columns > 0)
    memset(view_at(y, row, at), 0, (size_t)columns * ls_dtype_bytes(y->dtype));
}

static void heads_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *x = &args->in[0], *y = &args->out[0];
  const int64_t head_dim = args->attributes->head_dim, columns = args->attributes->columns;
  const int64_t own = least(head_dim, columns), heads = y->valid[1] / columns;
  const int64_t shared = args->inputs > 1 ? least(args->in[1].dims[1], columns - own) : 0;
  const bool add = args->accumulate[0];
  for (int64_t row = begin; row < end; row++) {
    for (int64_t head = 0; head < heads; head++) {
      const int64_t at = head * columns;
      columns_copy(x, head * head_dim, y, row, at, own, add);
      if (shared > 0) columns_copy(&args->in[1], 0, y, row, at + own, shared, add);
      columns_clear(y, row, at + own + shared, columns - own - shared, add);
    }
    row_clear_tail(y, row, add);
  }
}

static void heads_bwd_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *dy = &args->in[0], *dx = &args->out[0];
  const int64_t head_dim = args->attributes->head_dim, columns = args->attributes->columns;
  const int64_t own = least(head_dim, columns), heads = dx->valid[1] / head_dim;
  const bool add = args->accumulate[0];
  for (int64_t row = begin; row < end; row++) {
    for (int64_t head = 0; head < heads; head++) {
      columns_copy(dy, head * columns, dx, row, head * head_dim, own, add);
      columns_clear(dx, row, head * head_dim + own, head_dim - own, add);
    }
    row_clear_tail(dx, row, add);
  }
}

static void heads_shared_bwd_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *dy = &args->in[0], *out = &args->out[0];
  const int64_t columns = args->attributes->columns, heads = dy->valid[1] / columns;
  const int64_t own = least(args->attributes->head_dim, columns);
  const int64_t shared = least(out->valid[1], columns - own);
  const bool add = args->accumulate[0];
  for (int64_t row = begin; row < end; row++) {
    for (int64_t at = 0; at < shared; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, shared - at);
      float in[LS_PIECE], sums[LS_PIECE] = {0};
      for (int64_t head = 0; head < heads; head++) {
        const float *from = piece_here(dy, row, head * columns + own + at, count, in);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) sums[i] += from[i];
      }
      float buffer[LS_PIECE];
      float *to = piece_target(out, row, at, count, add, buffer);
      memcpy(to, sums, (size_t)count * sizeof(float));
      piece_store(out, row, at, count, add, buffer);
    }
    columns_clear(out, row, shared, out->dims[1] - shared, add);
  }
}

static ls_status split(const ls_kernel_args *args, ls_host_turns turns) {
  const ls_view *read = &args->in[0], *made = &args->out[0];
  const int64_t wider = read->dims[1] > made->dims[1] ? read->dims[1] : made->dims[1];
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, made->valid[0] * wider), made->valid[0], turns,
                args);
  return LS_OK;
}

static ls_status kernel_heads(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return split(args, heads_turns);
}

static ls_status kernel_heads_bwd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return split(args, heads_bwd_turns);
}

static ls_status kernel_heads_shared_bwd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return split(args, heads_shared_bwd_turns);
}

void LS_VECTOR(ls_fill_heads)(ls_kernel_table *table) {
  table->kernel[LS_OP_HEADS] = kernel_heads;
  table->kernel[LS_OP_HEADS_BWD] = kernel_heads_bwd;
  table->kernel[LS_OP_HEADS_SHARED_BWD] = kernel_heads_shared_bwd;
}
