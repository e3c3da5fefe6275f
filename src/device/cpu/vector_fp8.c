/* Largest magnitudes, and rounding to fp8 by them (base/fp8.h): see device/reference/fp8.c. */
#include "base/fp8.h"

#include "device/cpu/vector_kernels.h"

/* The magnitudes' bits are in their order, and those of a NaN, which is none, beyond all. */
LS_INLINE float largest_in(const ls_view *x, int64_t row, int64_t begin, int64_t end) {
  float buffer[LS_PIECE];
  uint32_t largest = 0;
  for (int64_t at = begin; at < end; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, end - at);
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

LS_INLINE float row_largest(const ls_view *x, int64_t row) {
  return largest_in(x, row, 0, x->valid[1]);
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

/* So many numbers, in turns of which each part has some. */
static ls_status find_largest(const ls_kernel_args *args, int64_t numbers, int64_t turns,
                              ls_host_turns work_on) {
  float parts_largest[LS_HOST_PARTS] = {0}, *largest = args->out[0].data;
  const amax_work work = {&args->in[0], parts_largest};
  const int parts = ls_cpu_parts(args->queue->facts, numbers);
  ls_host_split(args->queue->facts->threads, parts, turns, work_on, &work);
  *largest = 0;
  for (int p = 0; p < parts; p++)
    *largest = parts_largest[p] > *largest ? parts_largest[p] : *largest;
  return LS_OK;
}

static ls_status kernel_amax(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *weight = &args->in[0];
  return find_largest(args, weight->valid[0] * weight->valid[1], weight->valid[0], amax_turns);
}

/* Pieces of a range of a weight's elements. */
static void range_amax_turns(const void *work, int part, int64_t begin, int64_t end) {
  const amax_work *of = work;
  of->largest[part] =
      largest_in(of->weight, 0, begin * LS_PIECE, least(end * LS_PIECE, of->weight->valid[0]));
}

static ls_status kernel_range_amax(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *range = &args->in[0];
  return find_largest(args, range->valid[0], view_pieces(range), range_amax_turns);
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

static void codes_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *x = &args->in[0];
  const ls_fp8_grid grid = ls_fp8_grid_of(LS_FP8_E4M3);
  const float up =
      ldexpf(1.0f, ls_fp8_scale(LS_FP8_E4M3, (double)*(const float *)args->in[1].data));
  for (int64_t i = begin; i < end; i++) {
    float buffer[LS_PIECE];
    const int64_t at = i * LS_PIECE, count = least(LS_PIECE, x->valid[0] - at);
    const float *from = piece_load(x, 0, at, count, buffer);
    uint8_t *codes = (uint8_t *)args->out[0].data + at;
#pragma omp simd
    for (int64_t c = 0; c < count; c++)
      codes[c] = ls_e4m3_code(ls_fp8_round_f32(&grid, from[c] * up));
  }
}

static ls_status kernel_fp8_codes(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *x = &args->in[0];
  ls_host_split(args->queue->facts->threads, ls_cpu_parts(args->queue->facts, x->valid[0]),
                view_pieces(x), codes_turns, args);
  return LS_OK;
}

static void decode_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *codes = &args->in[0], *y = &args->out[0];
  const int exponent = ls_fp8_scale(LS_FP8_E4M3, (double)*(const float *)args->in[1].data);
  const float down = ldexpf(1.0f, -exponent);
  const bool add = args->accumulate[0];
  for (int64_t row = begin; row < end; row++) {
    float buffer[LS_PIECE];
    for (int64_t at = 0; at < y->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, y->valid[1] - at);
      const uint8_t *from = view_at(codes, row, at);
      float *to = piece_target(y, row, at, count, add, buffer);
#pragma omp simd
      for (int64_t c = 0; c < count; c++) to[c] = ls_e4m3_value(from[c]) * down;
      piece_store(y, row, at, count, add, buffer);
    }
    row_clear_tail(y, row, add);
  }
}

static ls_status kernel_fp8_decode(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return share_rows(args, decode_turns);
}

void LS_VECTOR(ls_fill_fp8)(ls_kernel_table *table) {
  table->kernel[LS_OP_RANGE_AMAX] = kernel_range_amax;
  table->kernel[LS_OP_FP8_CODES] = kernel_fp8_codes;
  table->kernel[LS_OP_FP8_DECODE] = kernel_fp8_decode;
  table->kernel[LS_OP_AMAX] = kernel_amax;
  table->kernel[LS_OP_ROW_AMAX] = kernel_row_amax;
  table->kernel[LS_OP_FP8] = kernel_fp8;
  table->kernel[LS_OP_ROW_FP8] = kernel_row_fp8;
}
