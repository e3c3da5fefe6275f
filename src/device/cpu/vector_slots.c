/* Rows that are sent to the ranks of their experts: see device/reference/slots.c. Slots are rows
 * one after the other; each is written by one thread. */
#include "device/cpu/vector.h"
#include "device/cpu/vector_kernels.h"

/* In place of the slot of a choice that finds none, or is of no expert. */
enum { LEFT_OUT = -1 };

/* Slots [ranks, slots, columns] as rows. */
LS_INLINE ls_view as_rows(const ls_view *view) {
  if (view->ndim < 3) return *view;
  ls_view rows = {.data = view->data, .dtype = view->dtype, .ndim = 2};
  rows.dims[0] = rows.valid[0] = view->dims[0] * view->dims[1];
  rows.dims[1] = rows.valid[1] = view->dims[2];
  return rows;
}

LS_INLINE int64_t slots_of(const ls_view *view) {
  return view->dims[0] * view->dims[1];
}

static ls_status share_rows(const ls_kernel_args *args, int64_t rows, int64_t elements,
                            ls_host_turns turns) {
  ls_host_split(args->queue->facts->threads, ls_cpu_parts(args->queue->facts, elements), rows,
                turns, args);
  return LS_OK;
}

/* Where the rows of each rank's experts begin, and those of the next one. */
static void find_ranks(const int32_t *expert_of_row, int64_t rows, int64_t held, int64_t ranks,
                       int32_t *first) {
  int64_t row = 0;
  for (int64_t rank = 0; rank <= ranks; rank++) {
    while (row < rows && expert_of_row[row] < rank * held) row++;
    first[rank] = (int32_t)row;
  }
}

static ls_status kernel_slots(const ls_kernel_args *args, ls_error *error) {
  const ls_view *places = &args->in[0], *experts = &args->out[1];
  const int64_t held = args->attributes->held, ranks = args->attributes->experts / held;
  const int64_t choices = places->valid[0] * places->dims[1], room = experts->dims[1];
  const int32_t *row = places->data, *expert_of_row = args->in[1].data;
  const float *weight_of_row = args->in[2].data;
  int32_t *slot = args->out[0].data, *expert_of_slot = experts->data;
  float *weight_of_slot = args->out[2].data;
  if (args->accumulate[0] || args->accumulate[1] || args->accumulate[2])
    return ls_fail(error, LS_INTERNAL, "slots cannot be accumulated into");
  const size_t bytes = (size_t)(ranks + 1) * sizeof(int32_t);
  int32_t *first = ls_cpu_scratch(args, bytes);
  if (!first) return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", bytes);
  find_ranks(expert_of_row, choices, held, ranks, first);
  for (int64_t rank = 0; rank < ranks; rank++) {
    const int64_t count = least(first[rank + 1] - first[rank], room);
    memcpy(expert_of_slot + rank * room, expert_of_row + first[rank], (size_t)count * 4);
    memcpy(weight_of_slot + rank * room, weight_of_row + first[rank], (size_t)count * 4);
    memset(weight_of_slot + rank * room + count, 0, (size_t)(room - count) * 4);
    for (int64_t s = count; s < room; s++)
      expert_of_slot[rank * room + s] = (int32_t)args->attributes->experts;
  }
  for (int64_t s = 0; s < choices; s++) {
    const int64_t rank = expert_of_row[row[s]] / held;
    const int64_t at = row[s] - first[rank];
    slot[s] = rank < ranks && at < room ? (int32_t)(rank * room + at) : LEFT_OUT;
  }
  return LS_OK;
}

/* Whether one more row than there are slots is for the same rank. */
static bool leaves_out(const ls_attributes *of, const int32_t *expert_of_row, int64_t rows) {
  bool any = false;
  for (int64_t row = 0; row + of->slots < rows && !any; row++)
    any = expert_of_row[row] < of->experts &&
          expert_of_row[row] / of->held == expert_of_row[row + of->slots] / of->held;
  return any;
}

static ls_status kernel_left_out(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const int64_t ranks = args->attributes->turns > 0 ? args->attributes->turns : 1;
  const int64_t rows = args->in[0].valid[0] / ranks;
  const int32_t *expert_of_row = args->in[0].data;
  bool any = false;
  for (int64_t r = 0; r < ranks && !any; r++)
    any = leaves_out(args->attributes, expert_of_row + r * rows, rows);
  double *out = args->out[0].data;
  *out = (args->accumulate[0] ? *out : 0) + (any ? (double)INFINITY : 0);
  return LS_OK;
}

static ls_status kernel_slots_bwd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *places = &args->in[1];
  const int32_t *row = places->data, *slot = args->in[2].data;
  const float *from = args->in[0].data;
  float *to = args->out[0].data;
  for (int64_t s = 0; s < places->valid[0] * places->dims[1]; s++)
    to[row[s]] = (args->accumulate[0] ? to[row[s]] : 0) + (slot[s] == LEFT_OUT ? 0 : from[slot[s]]);
  return LS_OK;
}

LS_INLINE void copy_row(const ls_view *to, int64_t row, const ls_view *from, int64_t of, bool add) {
  float from_buffer[LS_PIECE], to_buffer[LS_PIECE];
  const int64_t columns = least(from->valid[1], to->dims[1]);
  if (!add && to->dtype == from->dtype) {
    memcpy(view_at(to, row, 0), view_at(from, of, 0),
           (size_t)columns * ls_dtype_bytes(from->dtype));
    return;
  }
  for (int64_t at = 0; at < columns; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, columns - at);
    const float *piece = piece_here(from, of, at, count, from_buffer);
    float *target = piece_target(to, row, at, count, add, to_buffer);
    memcpy(target, piece, (size_t)count * sizeof *target);
    piece_store(to, row, at, count, add, to_buffer);
  }
}

static void fill_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view to = as_rows(&args->out[0]);
  const int64_t chosen = args->in[1].dims[1];
  const int32_t *slot = args->in[1].data;
  for (int64_t n = begin; n < end; n++)
    for (int64_t j = 0; j < chosen; j++)
      if (slot[n * chosen + j] != LEFT_OUT)
        copy_row(&to, slot[n * chosen + j], &args->in[0], n, args->accumulate[0]);
}

static ls_status kernel_fill(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view to = as_rows(&args->out[0]), *slots = &args->in[1];
  if (!args->accumulate[0])
    memset(to.data, 0, (size_t)(to.dims[0] * to.dims[1]) * ls_dtype_bytes(to.dtype));
  return share_rows(args, slots->valid[0], slots->valid[0] * slots->dims[1] * to.dims[1],
                    fill_turns);
}

static void collect_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view from = as_rows(&args->in[0]), *out = &args->out[0];
  const int64_t chosen = args->in[1].dims[1];
  const bool add = args->accumulate[0];
  float from_buffer[LS_PIECE], sums[LS_PIECE];
  for (int64_t n = begin; n < end; n++) {
    const int32_t *slot = (const int32_t *)args->in[1].data + n * chosen;
    for (int64_t at = 0; at < from.valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, from.valid[1] - at);
      float *to = piece_target(out, n, at, count, add, sums);
      memset(to, 0, (size_t)count * sizeof *to);
      for (int64_t j = 0; j < chosen; j++) {
        if (slot[j] == LEFT_OUT) continue;
        const float *piece = piece_here(&from, slot[j], at, count, from_buffer);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) to[i] += piece[i];
      }
      piece_store(out, n, at, count, add, sums);
    }
    row_clear_tail(out, n, add);
  }
}

static ls_status kernel_collect(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *slots = &args->in[1];
  return share_rows(args, slots->valid[0], slots->valid[0] * slots->dims[1] * args->out[0].valid[1],
                    collect_turns);
}

static ls_status kernel_arrivals(const ls_kernel_args *args, ls_error *error) {
  const int64_t slots = slots_of(&args->in[0]), experts = args->attributes->experts;
  const int32_t *expert = args->in[0].data;
  const float *weight = args->in[1].data;
  int32_t *row_of_slot = args->out[0].data, *expert_of_row = args->out[1].data, row = 0;
  float *weight_of_row = args->out[2].data;
  if (args->accumulate[0] || args->accumulate[1] || args->accumulate[2])
    return ls_fail(error, LS_INTERNAL, "arrivals cannot be accumulated into");
  const size_t bytes = (size_t)(experts + 1) * sizeof(int32_t);
  int32_t *next = ls_cpu_scratch(args, bytes);
  if (!next) return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", bytes);
  memset(next, 0, bytes);
  for (int64_t s = 0; s < slots; s++) next[expert[s]]++;
  for (int64_t e = 0; e <= experts; e++) {
    const int32_t count = next[e];
    next[e] = row;
    row += count;
  }
  for (int64_t s = 0; s < slots; s++) {
    row_of_slot[s] = next[expert[s]]++;
    expert_of_row[row_of_slot[s]] = expert[s];
    weight_of_row[row_of_slot[s]] = weight[s];
  }
  return LS_OK;
}

static ls_status kernel_arrivals_bwd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const int32_t *row = args->in[1].data;
  const float *from = args->in[0].data;
  float *to = args->out[0].data;
  for (int64_t s = 0; s < slots_of(&args->in[1]); s++)
    to[s] = (args->accumulate[0] ? to[s] : 0) + from[row[s]];
  return LS_OK;
}

static void arrive_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view from = as_rows(&args->in[0]);
  const int32_t *row = args->in[1].data;
  for (int64_t s = begin; s < end; s++)
    copy_row(&args->out[0], row[s], &from, s, args->accumulate[0]);
}

static void leave_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view to = as_rows(&args->out[0]);
  const int32_t *row = args->in[1].data;
  for (int64_t s = begin; s < end; s++) copy_row(&to, s, &args->in[0], row[s], args->accumulate[0]);
}

static ls_status kernel_arrive(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const int64_t slots = slots_of(&args->in[1]);
  return share_rows(args, slots, slots * args->out[0].dims[1], arrive_turns);
}

static ls_status kernel_leave(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const int64_t slots = slots_of(&args->in[1]);
  return share_rows(args, slots, slots * args->in[0].dims[1], leave_turns);
}

void LS_VECTOR(ls_fill_slots)(ls_kernel_table *table) {
  table->kernel[LS_OP_SLOTS] = kernel_slots;
  table->kernel[LS_OP_LEFT_OUT] = kernel_left_out;
  table->kernel[LS_OP_SLOTS_BWD] = kernel_slots_bwd;
  table->kernel[LS_OP_TO_SLOTS] = kernel_fill;
  table->kernel[LS_OP_TO_SLOTS_BWD] = kernel_collect;
  table->kernel[LS_OP_FROM_SLOTS] = kernel_collect;
  table->kernel[LS_OP_FROM_SLOTS_BWD] = kernel_fill;
  table->kernel[LS_OP_ARRIVALS] = kernel_arrivals;
  table->kernel[LS_OP_ARRIVALS_BWD] = kernel_arrivals_bwd;
  table->kernel[LS_OP_ARRIVE] = kernel_arrive;
  table->kernel[LS_OP_ARRIVE_BWD] = kernel_leave;
  table->kernel[LS_OP_LEAVE] = kernel_leave;
  table->kernel[LS_OP_LEAVE_BWD] = kernel_arrive;
}
