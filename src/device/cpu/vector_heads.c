/* Heads made wider or narrower, and products of each with a matrix of its own
 * (device/reference/heads.c). */
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

/* Tokens that go through a head's matrix together, so that it is read once for all of them. */
enum { TOKENS = 8, ROWS = 64 };

/* Of the units of a product one head is for so many tokens: which, and its rows of the matrix. */
typedef struct head_unit {
  int64_t head, first, tokens, rows;
} head_unit;

static head_unit head_unit_of(const ls_kernel_args *args, int64_t unit) {
  const ls_view *x = &args->in[0];
  const int64_t heads = x->valid[1] / args->attributes->head_dim;
  const int64_t first = unit / heads * TOKENS;
  return (head_unit){unit % heads, first, least(TOKENS, x->valid[0] - first),
                     args->in[1].valid[0] / heads};
}

static void heads_up_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *x = &args->in[0], *weight = &args->in[1], *y = &args->out[0];
  const int64_t head_dim = args->attributes->head_dim, columns = args->attributes->columns;
  const int64_t made = weight->valid[1];
  const bool add = args->accumulate[0];
  float sums[TOKENS][LS_PIECE], buffer[LS_PIECE], factor;
  for (int64_t u = begin; u < end; u++) {
    const head_unit unit = head_unit_of(args, u);
    for (int64_t at = 0; at < made; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, made - at);
      for (int64_t t = 0; t < unit.tokens; t++) memset(sums[t], 0, (size_t)count * sizeof(float));
      for (int64_t r = 0; r < unit.rows; r++) {
        const float *with = piece_here(weight, unit.head * unit.rows + r, at, count, buffer);
        for (int64_t t = 0; t < unit.tokens; t++) {
          const float by = *piece_here(x, unit.first + t, unit.head * head_dim + r, 1, &factor);
#pragma omp simd
          for (int64_t i = 0; i < count; i++) sums[t][i] += by * with[i];
        }
      }
      for (int64_t t = 0; t < unit.tokens; t++) {
        float *to = piece_target(y, unit.first + t, unit.head * columns + at, count, add, buffer);
        memcpy(to, sums[t], (size_t)count * sizeof(float));
        piece_store(y, unit.first + t, unit.head * columns + at, count, add, buffer);
      }
    }
    for (int64_t t = 0; t < unit.tokens; t++)
      columns_copy(x, unit.head * head_dim + unit.rows, y, unit.first + t,
                   unit.head * columns + made, head_dim - unit.rows, add);
  }
}

/* So many rows of a head's matrix, from `row` on, for the tokens of a unit. */
static void heads_down_rows(const ls_kernel_args *args, const head_unit *unit, int64_t row,
                            int64_t rows) {
  const ls_view *x = &args->in[0], *weight = &args->in[1], *y = &args->out[0];
  const bool add = args->accumulate[0];
  float sums[TOKENS][ROWS] = {{0}}, in[TOKENS][LS_PIECE], buffer[LS_PIECE];
  const float *from[TOKENS];
  for (int64_t at = 0; at < weight->valid[1]; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, weight->valid[1] - at);
    for (int64_t t = 0; t < unit->tokens; t++)
      from[t] = piece_here(x, unit->first + t, unit->head * args->attributes->head_dim + at, count,
                           in[t]);
    for (int64_t r = 0; r < rows; r++) {
      const float *with = piece_here(weight, unit->head * unit->rows + row + r, at, count, buffer);
      for (int64_t t = 0; t < unit->tokens; t++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < count; i++) sum += from[t][i] * with[i];
        sums[t][r] += sum;
      }
    }
  }
  for (int64_t t = 0; t < unit->tokens; t++) {
    const int64_t column = unit->head * unit->rows + row;
    float *to = piece_target(y, unit->first + t, column, rows, add, buffer);
    memcpy(to, sums[t], (size_t)rows * sizeof(float));
    piece_store(y, unit->first + t, column, rows, add, buffer);
  }
}

static void heads_down_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  for (int64_t u = begin; u < end; u++) {
    const head_unit unit = head_unit_of(args, u);
    for (int64_t row = 0; row < unit.rows; row += ROWS)
      heads_down_rows(args, &unit, row, least(ROWS, unit.rows - row));
  }
}

static ls_status split_heads(const ls_kernel_args *args, ls_host_turns turns) {
  const ls_view *x = &args->in[0], *weight = &args->in[1];
  const int64_t heads = x->valid[1] / args->attributes->head_dim;
  const int64_t units = (x->valid[0] + TOKENS - 1) / TOKENS * heads;
  const int64_t work = x->valid[0] * weight->valid[0] * weight->valid[1];
  ls_host_split(args->queue->facts->threads, ls_cpu_parts(args->queue->facts, work), units, turns,
                args);
  return LS_OK;
}

static ls_status kernel_heads_up(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return split_heads(args, heads_up_turns);
}

static ls_status kernel_heads_down(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return split_heads(args, heads_down_turns);
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
  table->kernel[LS_OP_HEADS_UP] = kernel_heads_up;
  table->kernel[LS_OP_HEADS_DOWN] = kernel_heads_down;
  table->kernel[LS_OP_HEADS_BWD] = kernel_heads_bwd;
  table->kernel[LS_OP_HEADS_SHARED_BWD] = kernel_heads_shared_bwd;
}
