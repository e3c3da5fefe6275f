/* Kernels over tokens: embedding and its gradient, the bias's gradient, rotary positions.
 *
 * Sums over tokens are taken by parts that own columns, each going through all tokens in order, so
 * their bits do not depend on the count of threads. */
#include "device/cpu/vector_kernels.h"

/* The row of `slice` (of a table cut by rows) that `id` stands in; -1 if in none. */
LS_INLINE int64_t slice_row(const ls_kernel_args *args, const ls_view *slice, int32_t id) {
  const int64_t row = id + args->attributes->skipped - slice->start[0];
  return row >= 0 && row < slice->valid[0] ? row : -1;
}

LS_INLINE float embedding_scale(const ls_kernel_args *args) {
  return args->attributes->scale > 0 ? (float)args->attributes->scale : 1.0f;
}

LS_INLINE void scaled_copy(float *to, const float *from, float scale, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; i++) to[i] = scale * from[i];
}

static void embedding_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *table = &args->in[0], *y = &args->out[0];
  const int32_t *ids = args->in[1].data;
  const bool add = args->accumulate[0];
  const int64_t columns = y->valid[1];
  const float scale = embedding_scale(args);
  for (int64_t row = begin; row < end; row++) {
    float in_buffer[LS_PIECE], out_buffer[LS_PIECE];
    const int64_t from_row = slice_row(args, table, ids[row]);
    for (int64_t at = 0; at < columns; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, columns - at);
      float *to = piece_target(y, row, at, count, add, out_buffer);
      if (from_row < 0) {
        memset(to, 0, (size_t)count * sizeof(float));
      } else {
        const float *from = piece_load(table, from_row, at, count, in_buffer);
        scaled_copy(to, from, scale, count);
      }
      piece_store(y, row, at, count, add, out_buffer);
    }
    row_clear_tail(y, row, add);
  }
}

static ls_status kernel_embedding(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *y = &args->out[0];
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, y->valid[0] * y->valid[1]), y->valid[0],
                embedding_turns, args);
  return LS_OK;
}

/* Columns are shared in lines of the cache. */
enum { LINE = 16 };

static void embedding_dw_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *dy = &args->in[0], *dw = &args->out[0];
  const int32_t *ids = args->in[1].data;
  const int64_t last = least(end * LINE, dy->valid[1]);
  const float scale = embedding_scale(args);
  float buffer[LS_PIECE], scaled[LS_PIECE];
  for (int64_t row = 0; row < dy->valid[0]; row++) {
    const int64_t to_row = slice_row(args, dw, ids[row]);
    if (to_row < 0) continue;
    for (int64_t at = begin * LINE; at < last; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, last - at);
      const float *from = piece_load(dy, row, at, count, buffer);
      scaled_copy(scaled, from, scale, count);
      piece_store(dw, to_row, at, count, true, scaled);
    }
  }
}

/* The tokens of each row of a table, in order. Where the table has 16 bits, what they add to a row
 * is summed in fp32 first: one by one, a frequent token's later gradients would be rounded away. */
typedef struct token_lists {
  const ls_kernel_args *args;
  int32_t *first; /* by row of the table: a token; -1: none */
  int32_t *next;  /* by token */
} token_lists;

static void lists_make(const token_lists *lists) {
  const ls_view *dw = &lists->args->out[0];
  const int32_t *ids = lists->args->in[1].data;
  for (int64_t row = 0; row < dw->valid[0]; row++) lists->first[row] = -1;
  for (int64_t token = lists->args->in[0].valid[0] - 1; token >= 0; token--) {
    const int64_t row = slice_row(lists->args, dw, ids[token]);
    if (row < 0) continue;
    lists->next[token] = lists->first[row];
    lists->first[row] = (int32_t)token;
  }
}

static void embedding_dw_narrow_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const token_lists *lists = work;
  const ls_view *dy = &lists->args->in[0], *dw = &lists->args->out[0];
  const int64_t last = least(end * LINE, dy->valid[1]);
  const float scale = embedding_scale(lists->args);
  float buffer[LS_PIECE], sums[LS_PIECE];
  for (int64_t row = 0; row < dw->valid[0]; row++) {
    if (lists->first[row] < 0) continue;
    for (int64_t at = begin * LINE; at < last; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, last - at);
      memset(sums, 0, (size_t)count * sizeof(float));
      for (int32_t token = lists->first[row]; token >= 0; token = lists->next[token]) {
        const float *from = piece_load(dy, token, at, count, buffer);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) sums[i] += from[i];
      }
      scaled_copy(sums, sums, scale, count);
      piece_store(dw, row, at, count, true, sums);
    }
  }
}

static ls_status embedding_dw_narrow(const ls_kernel_args *args, int parts, ls_error *error) {
  const size_t bytes = sizeof(int32_t) * (size_t)(args->out[0].valid[0] + args->in[0].valid[0]);
  if (bytes == 0) return LS_OK;
  int32_t *places = ls_cpu_scratch(args, bytes);
  if (!places) return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", bytes);
  const token_lists lists = {args, places, places + args->out[0].valid[0]};
  lists_make(&lists);
  ls_host_split(args->queue->facts->threads, parts, (args->in[0].valid[1] + LINE - 1) / LINE,
                embedding_dw_narrow_turns, &lists);
  return LS_OK;
}

static ls_status kernel_embedding_dw(const ls_kernel_args *args, ls_error *error) {
  const ls_view *dy = &args->in[0], *dw = &args->out[0];
  const int64_t columns = dy->valid[1];
  if (!args->accumulate[0]) {
    memset(dw->data, 0, (size_t)(dw->dims[0] * dw->dims[1]) * ls_dtype_bytes(dw->dtype));
  }
  const int parts = ls_cpu_parts(args->queue->facts, dy->valid[0] * columns);
  if (dw->dtype != LS_F32) return embedding_dw_narrow(args, parts, error);
  ls_host_split(args->queue->facts->threads, parts, (columns + LINE - 1) / LINE, embedding_dw_turns,
                args);
  return LS_OK;
}

/* Adds rows [begin, end) of a piece to `sums`, several at a time: `sums` are then read and written
 * less often than the rows. What follows a piece in its row is another's to read, so it is the rows
 * below that are asked for ahead. */
LS_INLINE void rows_add(const ls_view *x, int64_t begin, int64_t end, int64_t at, int64_t count,
                        float *sums) {
  enum { TOGETHER = 4, AHEAD = 8 };
  const size_t bytes = (size_t)count * ls_dtype_bytes(x->dtype);
  float buffers[TOGETHER][LS_PIECE];
  const float *rows[TOGETHER];
  int64_t row = begin;
  for (; row + TOGETHER <= end; row += TOGETHER) {
    for (int i = 0; i < TOGETHER; i++) {
      piece_expect(view_at(x, row + AHEAD + i, at), bytes);
      rows[i] = piece_here(x, row + i, at, count, buffers[i]);
    }
    const float *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3];
#pragma omp simd
    for (int64_t i = 0; i < count; i++) sums[i] += (a[i] + b[i]) + (c[i] + d[i]);
  }
  for (; row < end; row++) {
    const float *a = piece_here(x, row, at, count, buffers[0]);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) sums[i] += a[i];
  }
}

/* Column sums of a piece, of blocks of rows first so that long sums keep their digits. */
static void columns_sum(const ls_view *x, int64_t at, int64_t count, float *total) {
  enum { BLOCK = 64 };
  float sums[LS_PIECE];
  memset(total, 0, (size_t)count * sizeof(float));
  for (int64_t row = 0; row < x->valid[0]; row += BLOCK) {
    memset(sums, 0, (size_t)count * sizeof(float));
    rows_add(x, row, least(row + BLOCK, x->valid[0]), at, count, sums);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) total[i] += sums[i];
  }
}

static void bias_db_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *dy = &args->in[0], *db = &args->out[0];
  const int64_t last = least(end * LINE, least(dy->valid[1], db->valid[0]));
  float buffer[LS_PIECE];
  for (int64_t at = begin * LINE; at < last; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, last - at);
    float *to = piece_target(db, 0, at, count, args->accumulate[0], buffer);
    columns_sum(dy, at, count, to);
    piece_store(db, 0, at, count, args->accumulate[0], buffer);
  }
}

static ls_status kernel_bias_db(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *dy = &args->in[0];
  const int64_t columns = least(dy->valid[1], args->out[0].valid[0]);
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, dy->valid[0] * columns),
                (columns + LINE - 1) / LINE, bias_db_turns, args);
  return LS_OK;
}

/* Rotates pairs (i, i + half) of one head, whose columns begin at `first_column`, by the row's
 * angles, or back by them. */
LS_INLINE void head_rotate(const ls_kernel_args *args, int64_t row, int64_t first_column,
                           int64_t half, float direction) {
  enum { HALF_PIECE = LS_PIECE / 2 };
  float low_in[HALF_PIECE], high_in[HALF_PIECE], low_out[HALF_PIECE], high_out[HALF_PIECE];
  float cosine_buffer[HALF_PIECE], sine_buffer[HALF_PIECE];
  const ls_view *x = &args->in[0], *angles = &args->in[1], *y = &args->out[0];
  const bool add = args->accumulate[0];
  for (int64_t at = 0; at < half; at += HALF_PIECE) {
    const int64_t count = least(HALF_PIECE, half - at);
    const int64_t low = first_column + at, high = low + half;
    const float *a = piece_here(x, row, low, count, low_in);
    const float *b = piece_here(x, row, high, count, high_in);
    const float *cosine = piece_here(angles, row, at, count, cosine_buffer);
    const float *sine = piece_here(angles, row, half + at, count, sine_buffer);
    float *to_low = piece_target(y, row, low, count, add, low_out);
    float *to_high = piece_target(y, row, high, count, add, high_out);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
      const float first = a[i], second = b[i], turned = sine[i] * direction;
      to_low[i] = first * cosine[i] - second * turned;
      to_high[i] = second * cosine[i] + first * turned;
    }
    piece_store(y, row, low, count, add, low_out);
    piece_store(y, row, high, count, add, high_out);
  }
}

/* Columns [at, end) of a row as they are. */
LS_INLINE void columns_keep(const ls_kernel_args *args, int64_t row, int64_t at, int64_t end) {
  const bool add = args->accumulate[0];
  float in[LS_PIECE], out[LS_PIECE];
  if (!add && args->in[0].data == args->out[0].data) return;
  for (; at < end; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, end - at);
    const float *from = piece_load(&args->in[0], row, at, count, in);
    float *to = piece_target(&args->out[0], row, at, count, add, out);
    memcpy(to, from, (size_t)count * sizeof(float));
    piece_store(&args->out[0], row, at, count, add, out);
  }
}

/* The same of pairs side by side. */
LS_INLINE void head_rotate_beside(const ls_kernel_args *args, int64_t row, int64_t first_column,
                                  int64_t half, float direction) {
  enum { HALF_PIECE = LS_PIECE / 2 };
  float in[LS_PIECE], out[LS_PIECE], cosine_buffer[HALF_PIECE], sine_buffer[HALF_PIECE];
  const ls_view *x = &args->in[0], *angles = &args->in[1], *y = &args->out[0];
  const bool add = args->accumulate[0];
  for (int64_t at = 0; at < half; at += HALF_PIECE) {
    const int64_t count = least(HALF_PIECE, half - at), column = first_column + 2 * at;
    const float *from = piece_here(x, row, column, 2 * count, in);
    const float *cosine = piece_here(angles, row, at, count, cosine_buffer);
    const float *sine = piece_here(angles, row, half + at, count, sine_buffer);
    float *to = piece_target(y, row, column, 2 * count, add, out);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
      const float first = from[2 * i], second = from[2 * i + 1], turned = sine[i] * direction;
      to[2 * i] = first * cosine[i] - second * turned;
      to[2 * i + 1] = second * cosine[i] + first * turned;
    }
    piece_store(y, row, column, 2 * count, add, out);
  }
}

typedef struct rotate_work {
  const ls_kernel_args *args;
  float direction;
} rotate_work;

static void rotate_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const rotate_work *given = work;
  const ls_kernel_args *args = given->args;
  const ls_view *y = &args->out[0];
  const int64_t head_dim = args->attributes->head_dim, turned = args->in[1].dims[1];
  const int64_t heads = y->valid[1] / head_dim, before = args->attributes->rope_first;
  for (int64_t row = begin; row < end; row++) {
    for (int64_t head = 0; head < heads; head++) {
      const int64_t first = head * head_dim + before;
      if (args->attributes->rope_neighbours)
        head_rotate_beside(args, row, first, turned / 2, given->direction);
      else
        head_rotate(args, row, first, turned / 2, given->direction);
      columns_keep(args, row, first - before, first);
      columns_keep(args, row, first + turned, (head + 1) * head_dim);
    }
    row_clear_tail(y, row, args->accumulate[0]);
  }
}

static ls_status rotate(const ls_kernel_args *args, float direction) {
  const rotate_work work = {args, direction};
  const ls_view *y = &args->out[0];
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, y->valid[0] * y->valid[1]), y->valid[0],
                rotate_turns, &work);
  return LS_OK;
}

static ls_status kernel_rope(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return rotate(args, 1.0f);
}

static ls_status kernel_rope_bwd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return rotate(args, -1.0f);
}

void LS_VECTOR(ls_fill_token)(ls_kernel_table *table) {
  table->kernel[LS_OP_EMBEDDING] = kernel_embedding;
  table->kernel[LS_OP_EMBEDDING_DW] = kernel_embedding_dw;
  table->kernel[LS_OP_BIAS_DB] = kernel_bias_db;
  table->kernel[LS_OP_ROPE] = kernel_rope;
  table->kernel[LS_OP_ROPE_BWD] = kernel_rope_bwd;
}
