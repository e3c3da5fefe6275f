/* Largest magnitudes, and rounding to fp8 by them (base/fp8.h): see device/reference/fp8.c. */
#include "base/fp8.h"

#include "device/cpu/vector_kernels.h"

/* The magnitudes' bits are in their order, and those of a NaN, which is none, beyond all. */
LS_INLINE float row_largest(const ls_view *x, int64_t row) {
  float buffer[LS_PIECE];
  uint32_t largest = 0;
  for (int64_t at = 0; at < x->valid[1]; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, x->valid[1] - at);
    const float *piece = piece_load(x, row, at, count, buffer);
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < count; i++) {
      const uint32_t bits = ls_bits_of_float(piece[i]) & 0x7fffffffu;
      const uint32_t magnitude = bits > 0x7f800000u ? 0 : bits;
      largest = magnitude > largest ? magnitude : largest;
    }
  }
  return ls_float_of_bits(largest);
}

static void row_amax_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  float *amax = args->out[0].data;
  for (int64_t row = begin; row < end; row++) amax[row] = row_largest(&args->in[0], row);
}

static ls_status kernel_row_amax(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *x = &args->in[0];
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, x->valid[0] * x->valid[1]), x->valid[0],
                row_amax_turns, args);
  return LS_OK;
}

typedef struct amax_work {
  const ls_view *weight;
  float *largest; /* of each part */
} amax_work;

static void amax_turns(const void *work, int part, int64_t begin, int64_t end) {
  const amax_work *of = work;
  float largest = 0;
  for (int64_t row = begin; row < end; row++) {
    const float own = row_largest(of->weight, row);
    largest = own > largest ? own : largest;
  }
  of->largest[part] = largest;
}

static ls_status kernel_amax(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *weight = &args->in[0];
  float parts_largest[LS_HOST_PARTS] = {0}, *largest = args->out[0].data;
  const amax_work work = {weight, parts_largest};
  const int parts = ls_cpu_parts(args->queue->facts, weight->valid[0] * weight->valid[1]);
  ls_host_split(args->queue->facts->threads, parts, weight->valid[0], amax_turns, &work);
  *largest = 0;
  for (int p = 0; p < parts; p++)
    *largest = parts_largest[p] > *largest ? parts_largest[p] : *largest;
  return LS_OK;
}

static void fp8_row(const ls_kernel_args *args, int64_t row, float amax) {
  const ls_view *x = &args->in[0], *y = &args->out[0];
  const ls_fp8_grid grid = ls_fp8_grid_of(args->attributes->fp8);
  const int exponent = ls_fp8_scale(args->attributes->fp8, (double)amax);
  const float up = ldexpf(1.0f, exponent), down = ldexpf(1.0f, -exponent);
  const bool add = args->accumulate[0];
  float x_buffer[LS_PIECE], y_buffer[LS_PIECE];
  for (int64_t at = 0; at < y->valid[1]; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, y->valid[1] - at);
    const float *from = piece_load(x, row, at, count, x_buffer);
    float *to = piece_target(y, row, at, count, add, y_buffer);
#pragma omp simd
    for (int64_t i = 0; i < count; i++) to[i] = ls_fp8_round_f32(&grid, from[i] * up) * down;
    piece_store(y, row, at, count, add, y_buffer);
  }
  row_clear_tail(y, row, add);
}

static void row_fp8_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const float *amax = args->in[1].data;
  for (int64_t row = begin; row < end; row++) fp8_row(args, row, amax[row]);
}

static void fp8_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const float *amax = args->in[1].data;
  for (int64_t row = begin; row < end; row++) fp8_row(args, row, *amax);
}

static ls_status share_rows(const ls_kernel_args *args, ls_host_turns turns) {
  const ls_view *y = &args->out[0];
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, y->valid[0] * y->valid[1]), y->valid[0], turns,
                args);
  return LS_OK;
}

static ls_status kernel_row_fp8(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, row_fp8_turns);
}

static ls_status kernel_fp8(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, fp8_turns);
}

void LS_VECTOR(ls_fill_fp8)(ls_kernel_table *table) {
  table->kernel[LS_OP_AMAX] = kernel_amax;
  table->kernel[LS_OP_ROW_AMAX] = kernel_row_amax;
  table->kernel[LS_OP_FP8] = kernel_fp8;
  table->kernel[LS_OP_ROW_FP8] = kernel_row_fp8;
}
