/* Kernels that take each element by itself: add, bias, scale, gelu, swiglu, cast, and copies that
 * add.
 *
 * They share one driver. It walks the first output's rows in pieces, loads the same piece of every
 * input as fp32, and has a function compute the piece: one call for a thousand elements. */
#include "device/cpu/vector_kernels.h"
#include "device/mask.h"

typedef void (*piece_function)(float *const *out, const float *const *in, int64_t count);

/* Inputs of one row are given to every row. */
static int64_t input_row(const ls_view *view, int64_t row) {
  return view->ndim > 1 ? row : 0;
}

static void piece_run(const ls_kernel_args *args, piece_function function, int64_t row, int64_t at,
                      int64_t count) {
  enum { INPUTS = 3, OUTPUTS = 2 };
  float in_buffers[INPUTS][LS_PIECE], out_buffers[OUTPUTS][LS_PIECE];
  const float *in[INPUTS];
  float *out[OUTPUTS];
  for (int i = 0; i < args->inputs && i < INPUTS; i++) {
    const ls_view *view = &args->in[i];
    in[i] = piece_load(view, input_row(view, row), at, count, in_buffers[i]);
  }
  for (int i = 0; i < args->outputs && i < OUTPUTS; i++) {
    out[i] = piece_target(&args->out[i], row, at, count, args->accumulate[i], out_buffers[i]);
  }
  function(out, in, count);
  for (int i = 0; i < args->outputs && i < OUTPUTS; i++) {
    piece_store(&args->out[i], row, at, count, args->accumulate[i], out_buffers[i]);
  }
}

typedef struct elementwise_work {
  const ls_kernel_args *args;
  piece_function function;
} elementwise_work;

static void elementwise_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const elementwise_work *given = work;
  const ls_kernel_args *args = given->args;
  const int64_t columns = view_columns(&args->out[0]);
  const int64_t pieces = view_pieces(&args->out[0]);
  for (int64_t i = begin; i < end; i++) {
    const int64_t row = i / pieces;
    const int64_t at = i % pieces * LS_PIECE;
    piece_run(args, given->function, row, at, least(LS_PIECE, columns - at));
    if (at + LS_PIECE < columns) continue;
    for (int j = 0; j < args->outputs; j++) {
      row_clear_tail(&args->out[j], row, args->accumulate[j]);
    }
  }
}

/* Pieces are dealt out in order, whatever rows they lie in, so a tensor of one dimension is shared
 * by all threads as well. */
static ls_status elementwise(const ls_kernel_args *args, piece_function function) {
  const elementwise_work work = {args, function};
  const int64_t rows = view_rows(&args->out[0]);
  const int parts = ls_cpu_parts(args->queue->facts, rows * view_columns(&args->out[0]));
  ls_host_split(args->queue->facts->threads, parts, rows * view_pieces(&args->out[0]),
                elementwise_turns, &work);
  return LS_OK;
}

static void piece_add(float *const *out, const float *const *in, int64_t count) {
  const float *a = in[0], *b = in[1];
  float *y = out[0];
#pragma omp simd
  for (int64_t i = 0; i < count; i++) y[i] = a[i] + b[i];
}

typedef struct dropout_work {
  const ls_kernel_args *args;
  uint32_t limit;
  float kept;
} dropout_work;

static void dropout_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const dropout_work *given = work;
  const ls_kernel_args *args = given->args;
  const ls_view *x = &args->in[0], *out = &args->out[0];
  const uint32_t limit = given->limit;
  const float kept = given->kept;
  float buffer[LS_PIECE], target[LS_PIECE];
  for (int64_t row = begin; row < end; row++) {
    const uint32_t mask =
        ls_mask_row(((const int32_t *)args->in[1].data)[row], args->attributes->site, 0);
    for (int64_t at = 0; at < out->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, out->valid[1] - at);
      const float *from = piece_load(x, row, at, count, buffer);
      float *to = piece_target(out, row, at, count, args->accumulate[0], target);
      const uint32_t first = (uint32_t)(x->start[1] + at);
#pragma omp simd
      for (int64_t i = 0; i < count; i++)
        to[i] = ls_mask_keeps(mask, first + (uint32_t)i, limit) ? from[i] * kept : 0.0f;
      piece_store(out, row, at, count, args->accumulate[0], target);
    }
    row_clear_tail(out, row, args->accumulate[0]);
  }
}

static ls_status kernel_dropout(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *out = &args->out[0];
  const double rate = args->attributes->dropout;
  const dropout_work work = {args, ls_mask_limit(rate), (float)(1 / (1 - rate))};
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, out->valid[0] * out->valid[1]), out->valid[0],
                dropout_turns, &work);
  return LS_OK;
}

static void piece_copy(float *const *out, const float *const *in, int64_t count) {
  if (out[0] != in[0]) memcpy(out[0], in[0], (size_t)count * sizeof(float));
}

/* gelu's tanh form, x/2 (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3), is x sigmoid(2u),
 * which loses no digits where tanh comes near -1. */
LS_INLINE float twice_u(float x) {
  return 1.595769122f * (x + 0.044715f * x * x * x);
}

static void piece_gelu_tanh(float *const *out, const float *const *in, int64_t count) {
  const float *x = in[0];
  float *y = out[0];
#pragma omp simd
  for (int64_t i = 0; i < count; i++) y[i] = x[i] * sigmoid_of(twice_u(x[i]));
}

static void piece_gelu_tanh_bwd(float *const *out, const float *const *in, int64_t count) {
  const float *dy = in[0], *x = in[1];
  float *dx = out[0];
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    const float v = x[i];
    const float s = sigmoid_of(twice_u(v));
    const float slope = 1.595769122f * (1.0f + 0.134145f * v * v);
    dx[i] = dy[i] * (s + v * s * (1.0f - s) * slope);
  }
}

static void piece_relu(float *const *out, const float *const *in, int64_t count) {
  const float *x = in[0];
  float *y = out[0];
#pragma omp simd
  for (int64_t i = 0; i < count; i++) y[i] = x[i] > 0 ? x[i] : 0;
}

static void piece_relu_bwd(float *const *out, const float *const *in, int64_t count) {
  const float *dy = in[0], *x = in[1];
  float *dx = out[0];
#pragma omp simd
  for (int64_t i = 0; i < count; i++) dx[i] = x[i] > 0 ? dy[i] : 0;
}

static void piece_gelu_erf(float *const *out, const float *const *in, int64_t count) {
  const float *x = in[0];
  float *y = out[0];
#pragma omp simd
  for (int64_t i = 0; i < count; i++) y[i] = 0.5f * x[i] * (1.0f + erf_of(0.707106781f * x[i]));
}

static void piece_gelu_erf_bwd(float *const *out, const float *const *in, int64_t count) {
  const float *dy = in[0], *x = in[1];
  float *dx = out[0];
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    const float v = x[i];
    const float normal = 0.5f * (1.0f + erf_of(0.707106781f * v));
    dx[i] = dy[i] * (normal + v * 0.398942280f * exp_of(-0.5f * v * v));
  }
}

/* gate's activation times up, with gelu in its two forms; see above. */
static void piece_geglu_tanh(float *const *out, const float *const *in, int64_t count) {
  const float *gate = in[0], *up = in[1];
  float *y = out[0];
#pragma omp simd
  for (int64_t i = 0; i < count; i++) y[i] = gate[i] * sigmoid_of(twice_u(gate[i])) * up[i];
}

static void piece_geglu_tanh_bwd(float *const *out, const float *const *in, int64_t count) {
  const float *dy = in[0], *gate = in[1], *up = in[2];
  float *dgate = out[0], *dup = out[1];
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    const float g = gate[i], d = dy[i], u = up[i];
    const float s = sigmoid_of(twice_u(g));
    const float slope = 1.595769122f * (1.0f + 0.134145f * g * g);
    dgate[i] = d * u * (s + g * s * (1.0f - s) * slope);
    dup[i] = d * g * s;
  }
}

static void piece_geglu_erf(float *const *out, const float *const *in, int64_t count) {
  const float *gate = in[0], *up = in[1];
  float *y = out[0];
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    y[i] = 0.5f * gate[i] * (1.0f + erf_of(0.707106781f * gate[i])) * up[i];
  }
}

static void piece_geglu_erf_bwd(float *const *out, const float *const *in, int64_t count) {
  const float *dy = in[0], *gate = in[1], *up = in[2];
  float *dgate = out[0], *dup = out[1];
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    const float g = gate[i], d = dy[i], u = up[i];
    const float normal = 0.5f * (1.0f + erf_of(0.707106781f * g));
    dgate[i] = d * u * (normal + g * 0.398942280f * exp_of(-0.5f * g * g));
    dup[i] = d * g * normal;
  }
}

static void piece_swiglu(float *const *out, const float *const *in, int64_t count) {
  const float *gate = in[0], *up = in[1];
  float *y = out[0];
#pragma omp simd
  for (int64_t i = 0; i < count; i++) y[i] = gate[i] * sigmoid_of(gate[i]) * up[i];
}

static void piece_swiglu_bwd(float *const *out, const float *const *in, int64_t count) {
  const float *dy = in[0], *gate = in[1], *up = in[2];
  float *dgate = out[0], *dup = out[1];
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    const float g = gate[i], d = dy[i], u = up[i];
    const float s = sigmoid_of(g);
    dgate[i] = d * u * (s + g * s * (1.0f - s));
    dup[i] = d * g * s;
  }
}

static ls_status kernel_add(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return elementwise(args, piece_add);
}

static void scale_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *x = &args->in[0], *y = &args->out[0];
  const float scale = (float)args->attributes->scale;
  const bool add = args->accumulate[0];
  float in[LS_PIECE], out[LS_PIECE];
  for (int64_t row = begin; row < end; row++) {
    for (int64_t at = 0; at < y->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, y->valid[1] - at);
      const float *from = piece_load(x, row, at, count, in);
      float *to = piece_target(y, row, at, count, add, out);
#pragma omp simd
      for (int64_t i = 0; i < count; i++) to[i] = scale * from[i];
      piece_store(y, row, at, count, add, out);
    }
    row_clear_tail(y, row, add);
  }
}

static ls_status kernel_scale(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const int64_t rows = args->out[0].valid[0];
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, rows * view_columns(&args->out[0])), rows,
                scale_turns, args);
  return LS_OK;
}

/* A type our loops load and store. */
static bool is_ours(ls_dtype dtype) {
  return dtype == LS_F32 || dtype == LS_BF16 || dtype == LS_F16;
}

static ls_status kernel_cast(const ls_kernel_args *args, ls_error *error) {
  const ls_view *in = &args->in[0], *out = &args->out[0];
  if (is_ours(in->dtype) && is_ours(out->dtype)) return elementwise(args, piece_copy);
  if (args->accumulate[0]) {
    return ls_fail(error, LS_INTERNAL, "cast adds %s to %s; expected fp32, bf16 or fp16",
                   ls_dtype_name(in->dtype), ls_dtype_name(out->dtype));
  }
  for (int64_t row = 0; row < view_rows(out); row++) {
    ls_convert(view_at(out, row, 0), out->dtype, view_at(in, row, 0), in->dtype, view_columns(out));
    row_clear_tail(out, row, false);
  }
  return LS_OK;
}

/* Rows as bytes, of any type. */
static void copy_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *in = &args->in[0], *out = &args->out[0];
  const int64_t columns = least(view_columns(out), view_columns(in));
  const size_t bytes = (size_t)columns * ls_dtype_bytes(out->dtype);
  for (int64_t row = begin; row < end; row++) {
    memmove(view_at(out, row, 0), view_at(in, row, 0), bytes);
    row_clear_tail(out, row, false);
  }
}

static ls_status copy_bytes(const ls_kernel_args *args) {
  const int64_t rows = view_rows(&args->out[0]);
  const int64_t columns = least(view_columns(&args->out[0]), view_columns(&args->in[0]));
  ls_host_split(args->queue->facts->threads,
                rows > 1 ? ls_cpu_parts(args->queue->facts, rows * columns) : 1, rows, copy_turns,
                args);
  return LS_OK;
}

/* The output is a slice of what the input holds, found by its place in the whole tensor. */
static ls_status kernel_copy(const ls_kernel_args *args, ls_error *error) {
  ls_kernel_args moved = *args;
  ls_view *in = &moved.in[0];
  const ls_view *out = &args->out[0];
  const int64_t shift = out->start[0] - in->start[0], rows = out->valid[0];
  if (in->dtype != out->dtype) {
    return ls_fail(error, LS_INTERNAL, "copy of %s into %s; expected one type",
                   ls_dtype_name(in->dtype), ls_dtype_name(out->dtype));
  }
  if (rows > 0 && (shift < 0 || shift + rows > in->valid[0])) {
    return ls_fail(error, LS_INTERNAL, "copy of rows %lld to %lld from an input of %lld",
                   (long long)shift, (long long)(shift + rows), (long long)in->valid[0]);
  }
  in->data = in->ndim > 1 ? view_at(in, shift, 0) : view_at(in, 0, shift);
  in->valid[0] = rows;
  if (!args->accumulate[0]) return copy_bytes(&moved);
  if (is_ours(in->dtype)) return elementwise(&moved, piece_copy);
  return ls_fail(error, LS_INTERNAL, "copy adds %s; expected fp32, bf16 or fp16",
                 ls_dtype_name(in->dtype));
}

/* By activation; NULL: no model has it in that form. */
static const struct {
  piece_function alone, alone_bwd, gated, gated_bwd;
} activations[LS_ACTIVATION_COUNT] = {
    [LS_SILU] = {NULL, NULL, piece_swiglu, piece_swiglu_bwd},
    [LS_GELU_TANH] = {piece_gelu_tanh, piece_gelu_tanh_bwd, piece_geglu_tanh, piece_geglu_tanh_bwd},
    [LS_GELU_ERF] = {piece_gelu_erf, piece_gelu_erf_bwd, piece_geglu_erf, piece_geglu_erf_bwd},
    [LS_RELU] = {piece_relu, piece_relu_bwd, NULL, NULL},
};

static ls_status activate(const ls_kernel_args *args, piece_function function, ls_error *error) {
  if (function) return elementwise(args, function);
  return ls_fail(error, LS_INTERNAL, "activation %d; expected one with a kernel of this form",
                 (int)args->attributes->activation);
}

static ls_status kernel_gelu(const ls_kernel_args *args, ls_error *error) {
  return activate(args, activations[args->attributes->activation].alone, error);
}

static ls_status kernel_gelu_bwd(const ls_kernel_args *args, ls_error *error) {
  return activate(args, activations[args->attributes->activation].alone_bwd, error);
}

static ls_status kernel_swiglu(const ls_kernel_args *args, ls_error *error) {
  return activate(args, activations[args->attributes->activation].gated, error);
}

static ls_status kernel_swiglu_bwd(const ls_kernel_args *args, ls_error *error) {
  return activate(args, activations[args->attributes->activation].gated_bwd, error);
}

/* Of gates and ups that stand in turns. */
static void paired_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const float limit = (float)args->attributes->gate_limit;
  const float slope = (float)args->attributes->gate_slope;
  const bool back = args->inputs > 1, add = args->accumulate[0];
  const ls_view *x = &args->in[back], *out = &args->out[0];
  enum { PAIRS = LS_PIECE / 2 };
  float x_buffer[LS_PIECE], dy_buffer[PAIRS], to_buffer[LS_PIECE];
  for (int64_t row = begin; row < end; row++) {
    for (int64_t at = 0; at < x->valid[1] / 2; at += PAIRS) {
      const int64_t count = least(PAIRS, x->valid[1] / 2 - at), each = back ? 2 : 1;
      const float *from = piece_load(x, row, 2 * at, 2 * count, x_buffer);
      float *to = piece_target(out, row, each * at, each * count, add, to_buffer);
      const float *dy = back ? piece_load(&args->in[0], row, at, count, dy_buffer) : NULL;
#pragma omp simd
      for (int64_t i = 0; i < count; i++) {
        const float g = from[2 * i], u = from[2 * i + 1];
        const float gate = g < limit ? g : limit;
        const float up = (u > limit ? limit : u < -limit ? -limit : u) + 1.0f;
        const float share = sigmoid_of(slope * gate);
        if (!back) {
          to[i] = gate * share * up;
        } else {
          const float of_gate = share * (1.0f + slope * gate * (1.0f - share)) * up;
          to[2 * i] = g <= limit ? dy[i] * of_gate : 0.0f;
          to[2 * i + 1] = u <= limit && u >= -limit ? dy[i] * gate * share : 0.0f;
        }
      }
      piece_store(out, row, each * at, each * count, add, to_buffer);
    }
    row_clear_tail(out, row, add);
  }
}

static ls_status kernel_paired_glu(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const int64_t rows = args->out[0].valid[0];
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, rows * view_columns(&args->out[0])), rows,
                paired_turns, args);
  return LS_OK;
}

void LS_VECTOR(ls_fill_elementwise)(ls_kernel_table *table) {
  table->kernel[LS_OP_PAIRED_GLU] = kernel_paired_glu;
  table->kernel[LS_OP_PAIRED_GLU_BWD] = kernel_paired_glu;
  table->kernel[LS_OP_ADD] = kernel_add;
  table->kernel[LS_OP_BIAS] = kernel_add; /* the bias is an input of one row */
  table->kernel[LS_OP_SCALE] = kernel_scale;
  table->kernel[LS_OP_SCALE_BWD] = kernel_scale;
  table->kernel[LS_OP_COPY] = kernel_copy;
  table->kernel[LS_OP_CAST] = kernel_cast;
  table->kernel[LS_OP_GELU] = kernel_gelu;
  table->kernel[LS_OP_GELU_BWD] = kernel_gelu_bwd;
  table->kernel[LS_OP_SWIGLU] = kernel_swiglu;
  table->kernel[LS_OP_SWIGLU_BWD] = kernel_swiglu_bwd;
  table->kernel[LS_OP_DROPOUT] = kernel_dropout;
  table->kernel[LS_OP_DROPOUT_BWD] = kernel_dropout;
}
