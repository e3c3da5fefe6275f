/* Times every kernel of the CPU device at the shapes of one training step of GPT-2 124M:
 *
 *   cpu_bench [fp32|bf16|fp16] [THREADS] [B] [T]
 *
 * Columns: op and shape, calls a step, best ms of a call, GFLOP/s or GB/s, ms a step, share of the
 * step. Machines are shared: the best of several counts, and one thread is timed by the processor
 * time that it got, two by the clock on the wall. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "run/cpu/cpu.h"

typedef struct bench {
  ls_kernel_table table;
  ls_dtype dtype;
  int threads, count;
  struct {
    char name[48];
    double calls, ms, rate;
    const char *unit;
  } rows[64];
} bench;

static double now(const bench *b) {
  struct timespec time;
  clock_gettime(b->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A matrix (or, with 0 rows, a vector) of small pseudo-random values. */
static ls_view view_of(ls_dtype dtype, int64_t rows, int64_t columns) {
  const bool matrix = rows > 0;
  const int64_t count = matrix ? rows * columns : columns;
  ls_view view = {.dtype = dtype, .ndim = matrix ? 2 : 1};
  view.dims[0] = view.valid[0] = matrix ? rows : columns;
  if (matrix) view.dims[1] = view.valid[1] = columns;
  view.data = aligned_alloc(64, ((size_t)count * ls_dtype_bytes(dtype) + 63) / 64 * 64);
  if (!view.data) abort();
  uint32_t state = 12345;
  for (int64_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    const float value = (float)(state >> 8) * 0x1p-23f - 1.0f;
    switch (dtype) {
      case LS_F32: ((float *)view.data)[i] = value; break;
      case LS_BF16: ((uint16_t *)view.data)[i] = ls_f32_to_bf16(value); break;
      case LS_F16: ((uint16_t *)view.data)[i] = ls_f32_to_f16(value); break;
      case LS_I32: ((int32_t *)view.data)[i] = (int32_t)(state % 50257); break;
      default: ((double *)view.data)[i] = 1; break;
    }
  }
  return view;
}

/* Times `kind` on the views of `args`, whose memory it frees, and adds a row. `work` is in units of
 * 1e9: floating-point operations or, if 0, the bytes of all operands. */
static void time_op(bench *b, ls_op_kind kind, ls_kernel_args *args, const char *shape,
                    double calls, double flops) {
  ls_error error = {0};
  args->threads = b->threads;
  args->workspace_bytes = ls_cpu_workspace_bytes(kind, args);
  args->workspace = malloc(args->workspace_bytes + 1);
  double best = 1e9, bytes = 0;
  const double start = now(b);
  for (int i = 0; i < 200 && (i < 4 || now(b) - start < 0.5); i++) {
    const double before = now(b);
    if (b->table.kernel[kind](args, &error) != LS_OK) {
      fprintf(stderr, "%s: %s\n", ls_op_name(kind), error.text);
      exit(3);
    }
    best = fmin(best, now(b) - before);
  }
  for (int i = 0; i < args->inputs + args->outputs; i++) {
    ls_view *view = i < args->inputs ? &args->in[i] : &args->out[i - args->inputs];
    const int64_t count = view->dims[0] * (view->ndim > 1 ? view->dims[1] : 1);
    bytes += (double)count * (double)ls_dtype_bytes(view->dtype);
    free(view->data);
  }
  free(args->workspace);
  snprintf(b->rows[b->count].name, sizeof b->rows->name, "%s %s", ls_op_name(kind), shape);
  b->rows[b->count].calls = calls;
  b->rows[b->count].ms = best * 1e3;
  b->rows[b->count].rate = (flops > 0 ? flops : bytes) / best * 1e-9;
  b->rows[b->count].unit = flops > 0 ? "GFLOP/s" : "GB/s";
  b->count++;
}

enum { LAYERS = 12, WIDTH = 768, HEADS = 12, VOCABULARY = 50257, PARAMETERS = 124439808 };

/* The three products of a weight [m, k], `calls` times a step. */
static void bench_linear(bench *b, int64_t n, int64_t m, int64_t k, double calls) {
  static const ls_op_kind kinds[] = {LS_OP_LINEAR, LS_OP_LINEAR_DX, LS_OP_LINEAR_DW};
  const double flops = 2.0 * (double)n * (double)m * (double)k;
  char shape[32];
  snprintf(shape, sizeof shape, "%lldx%lldx%lld", (long long)n, (long long)m, (long long)k);
  for (int i = 0; i < 3; i++) {
    ls_kernel_args args = {.inputs = 2, .outputs = 1};
    const ls_view nk = view_of(b->dtype, n, k), nm = view_of(b->dtype, n, m);
    const ls_view mk = view_of(i == 2 ? LS_F32 : b->dtype, m, k);
    args.in[0] = i == 0 ? nk : nm;
    args.in[1] = i == 2 ? nk : mk;
    args.out[0] = i == 0 ? nm : (i == 1 ? nk : mk);
    time_op(b, kinds[i], &args, shape, calls, flops);
  }
}

static void bench_attention(bench *b, int64_t n, int64_t sequence, int64_t heads, int64_t kv_heads,
                            int64_t head_dim, double calls) {
  const ls_attributes attributes = {
      .sequence = sequence, .head_dim = head_dim, .softmax_scale = 1 / sqrt((double)head_dim)};
  const double product = (double)n * (double)(sequence + 1) * (double)(heads * head_dim);
  char shape[32];
  snprintf(shape, sizeof shape, "d%lld H%lld/%lld", (long long)head_dim, (long long)heads,
           (long long)kv_heads);
  ls_kernel_args forward = {.attributes = &attributes, .inputs = 3, .outputs = 2};
  forward.in[0] = forward.out[0] = view_of(b->dtype, n, heads * head_dim);
  forward.in[1] = view_of(b->dtype, n, kv_heads * head_dim);
  forward.in[2] = view_of(b->dtype, n, kv_heads * head_dim);
  forward.out[0] = view_of(b->dtype, n, heads * head_dim);
  forward.out[1] = view_of(LS_F32, n, heads);
  time_op(b, LS_OP_ATTENTION, &forward, shape, calls, 2 * product);
  ls_kernel_args backward = {.attributes = &attributes, .inputs = 6, .outputs = 3};
  for (int i = 0; i < 6; i++) {
    const bool kv = i == 2 || i == 3;
    backward.in[i] = i == 5 ? view_of(LS_F32, n, heads)
                            : view_of(b->dtype, n, (kv ? kv_heads : heads) * head_dim);
  }
  for (int i = 0; i < 3; i++) {
    backward.out[i] = view_of(b->dtype, n, (i ? kv_heads : heads) * head_dim);
  }
  for (int64_t i = 0; i < n * heads; i++) ((float *)backward.in[5].data)[i] += 5;
  time_op(b, LS_OP_ATTENTION_BWD, &backward, shape, calls, 5 * product);
}

static void bench_norm(bench *b, int64_t n) {
  const ls_attributes attributes = {.epsilon = 1e-5};
  ls_kernel_args forward = {.attributes = &attributes, .inputs = 3, .outputs = 3};
  forward.in[0] = view_of(b->dtype, n, WIDTH);
  forward.in[1] = view_of(b->dtype, 0, WIDTH);
  forward.in[2] = view_of(b->dtype, 0, WIDTH);
  forward.out[0] = view_of(b->dtype, n, WIDTH);
  forward.out[1] = view_of(LS_F32, 0, n);
  forward.out[2] = view_of(LS_F32, 0, n);
  time_op(b, LS_OP_LAYERNORM, &forward, "", 2 * LAYERS + 1, 0);
  ls_kernel_args backward = {.attributes = &attributes, .inputs = 5, .outputs = 3};
  backward.in[0] = view_of(b->dtype, n, WIDTH);
  backward.in[1] = view_of(b->dtype, n, WIDTH);
  backward.in[2] = view_of(b->dtype, 0, WIDTH);
  backward.in[3] = view_of(LS_F32, 0, n);
  backward.in[4] = view_of(LS_F32, 0, n);
  backward.out[0] = view_of(b->dtype, n, WIDTH);
  backward.out[1] = view_of(LS_F32, 0, WIDTH);
  backward.out[2] = view_of(LS_F32, 0, WIDTH);
  time_op(b, LS_OP_LAYERNORM_BWD, &backward, "", 2 * LAYERS + 1, 0);
}

/* `kind` from `inputs` matrices to `outputs` of the same shape. */
static void bench_rows(bench *b, ls_op_kind kind, int inputs, int outputs, int64_t n, int64_t c,
                       const char *shape, double calls) {
  const ls_attributes attributes = {.activation = LS_GELU_TANH, .head_dim = 64};
  ls_kernel_args args = {.attributes = &attributes, .inputs = inputs, .outputs = outputs};
  for (int i = 0; i < inputs; i++) args.in[i] = view_of(b->dtype, n, c);
  for (int i = 0; i < outputs; i++) args.out[i] = view_of(b->dtype, n, c);
  time_op(b, kind, &args, shape, calls, 0);
}

static void bench_bias(bench *b, int64_t n, int64_t c, double calls) {
  char shape[16];
  snprintf(shape, sizeof shape, "%lld", (long long)c);
  ls_kernel_args forward = {.inputs = 2, .outputs = 1};
  forward.in[0] = view_of(b->dtype, n, c);
  forward.in[1] = view_of(b->dtype, 0, c);
  forward.out[0] = view_of(b->dtype, n, c);
  time_op(b, LS_OP_BIAS, &forward, shape, calls, 0);
  ls_kernel_args backward = {.inputs = 1, .outputs = 1};
  backward.in[0] = view_of(b->dtype, n, c);
  backward.out[0] = view_of(LS_F32, 0, c);
  time_op(b, LS_OP_BIAS_DB, &backward, shape, calls, 0);
}

static void bench_embedding(bench *b, int64_t n) {
  ls_kernel_args forward = {.inputs = 2, .outputs = 1};
  forward.in[0] = view_of(b->dtype, VOCABULARY, WIDTH);
  forward.in[1] = view_of(LS_I32, 0, n);
  forward.out[0] = view_of(b->dtype, n, WIDTH);
  time_op(b, LS_OP_EMBEDDING, &forward, "", 2, 0);
  ls_kernel_args backward = {.inputs = 2, .outputs = 1};
  backward.in[0] = view_of(b->dtype, n, WIDTH);
  backward.in[1] = view_of(LS_I32, 0, n);
  backward.out[0] = view_of(LS_F32, VOCABULARY, WIDTH);
  time_op(b, LS_OP_EMBEDDING_DW, &backward, "", 2, 0);
}

static void bench_loss(bench *b, int64_t n) {
  static const ls_op_kind kinds[] = {LS_OP_XENT_MAX, LS_OP_XENT_SUM, LS_OP_XENT_GRAD};
  for (int i = 0; i < 3; i++) {
    ls_kernel_args args = {.inputs = 1 + 2 * i, .outputs = i == 1 ? 2 : 1};
    args.in[0] = view_of(b->dtype, n, VOCABULARY);
    if (i > 0) args.in[1] = view_of(LS_F32, 0, n);
    if (i == 1) args.in[2] = view_of(LS_I32, 0, n);
    if (i == 2) {
      args.in[2] = view_of(LS_F32, 0, n);
      args.in[3] = view_of(LS_I32, 0, n);
      args.in[4] = view_of(LS_F64, 0, 1);
    }
    args.out[0] = i == 2 ? view_of(b->dtype, n, VOCABULARY) : view_of(LS_F32, 0, n);
    if (i == 1) args.out[1] = view_of(LS_F32, 0, n);
    time_op(b, kinds[i], &args, "", 1, 0);
  }
}

static void bench_update(bench *b) {
  const ls_attributes attributes = {
      .epsilon = 1e-8, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1, .weight = 1};
  ls_kernel_args norm = {.attributes = &attributes, .inputs = 1, .outputs = 1};
  norm.in[0] = view_of(LS_F32, 0, PARAMETERS);
  norm.out[0] = view_of(LS_F64, 0, 1);
  time_op(b, LS_OP_SQUARED_NORM, &norm, "", 1, 0);
  ls_kernel_args adamw = {.attributes = &attributes, .inputs = 4, .outputs = 3};
  adamw.in[0] = view_of(LS_F32, 0, PARAMETERS);
  for (int i = 1; i < 4; i++) adamw.in[i] = view_of(LS_F64, 0, 1);
  for (int i = 0; i < 3; i++) adamw.out[i] = view_of(LS_F32, 0, PARAMETERS);
  memset(adamw.out[2].data, 0, PARAMETERS * sizeof(float));
  time_op(b, LS_OP_ADAMW, &adamw, "", 1, 0);
  ls_kernel_args cast = {.inputs = 1, .outputs = 1};
  cast.in[0] = view_of(LS_F32, 0, PARAMETERS);
  const ls_dtype half = b->dtype == LS_F16 ? LS_F16 : LS_BF16;
  cast.out[0] = view_of(half, 0, PARAMETERS);
  time_op(b, LS_OP_CAST, &cast, half == LS_F16 ? "to fp16" : "to bf16", b->dtype == half, 0);
}

static void print_rows(const bench *b) {
  double total = 0;
  for (int i = 0; i < b->count; i++) total += b->rows[i].calls * b->rows[i].ms;
  printf("%s, %d threads, %s, kernels for %s\n", ls_dtype_name(b->dtype), b->threads,
         ls_cpu_isa_name(), ls_cpu_vector_set());
  for (int i = 0; i < b->count; i++) {
    const double step = b->rows[i].calls * b->rows[i].ms;
    printf("%-28s x%-3.0f %9.3f ms %8.1f %-7s %9.1f ms %5.1f %%\n", b->rows[i].name,
           b->rows[i].calls, b->rows[i].ms, b->rows[i].rate, b->rows[i].unit, step,
           100 * step / total);
  }
  printf("step %.1f ms\n", total);
}

int main(int argc, char **argv) {
  static bench b;
  ls_error error = {0};
  if (argc > 1 && strcmp(argv[1], "bf16") == 0) b.dtype = LS_BF16;
  if (argc > 1 && strcmp(argv[1], "fp16") == 0) b.dtype = LS_F16;
  b.threads = argc > 2 ? atoi(argv[2]) : 1;
  const int64_t sequences = argc > 3 ? atoll(argv[3]) : 4, length = argc > 4 ? atoll(argv[4]) : 512;
  const int64_t n = sequences * length;
  if (ls_cpu_kernels(&b.table, b.dtype, &error) != LS_OK) {
    fprintf(stderr, "%s\n", error.text);
    return ls_exit_status(error.status);
  }
  bench_linear(&b, n, 3 * WIDTH, WIDTH, LAYERS);
  bench_linear(&b, n, WIDTH, WIDTH, LAYERS);
  bench_linear(&b, n, 4 * WIDTH, WIDTH, LAYERS);
  bench_linear(&b, n, WIDTH, 4 * WIDTH, LAYERS);
  bench_linear(&b, n, VOCABULARY, WIDTH, 1);
  bench_attention(&b, n, length, HEADS, HEADS, 64, LAYERS);
  bench_attention(&b, n, length, 24, 24, 32, 0);
  bench_attention(&b, n, length, 16, 16, 48, 0);
  bench_attention(&b, n, length, 6, 6, 128, 0);
  bench_attention(&b, n, length, HEADS, 3, 64, 0);
  bench_norm(&b, n);
  bench_bias(&b, n, 3 * WIDTH, LAYERS);
  bench_bias(&b, n, WIDTH, 2 * LAYERS);
  bench_bias(&b, n, 4 * WIDTH, LAYERS);
  bench_rows(&b, LS_OP_ADD, 2, 1, n, WIDTH, "", 2 * LAYERS + 1);
  bench_rows(&b, LS_OP_GELU, 1, 1, n, 4 * WIDTH, "", LAYERS);
  bench_rows(&b, LS_OP_GELU_BWD, 2, 1, n, 4 * WIDTH, "", LAYERS);
  bench_rows(&b, LS_OP_SWIGLU, 2, 1, n, 4 * WIDTH, "", 0);
  bench_rows(&b, LS_OP_SWIGLU_BWD, 3, 2, n, 4 * WIDTH, "", 0);
  bench_rows(&b, LS_OP_COPY, 1, 1, n, 4 * WIDTH, "", 0);
  bench_embedding(&b, n);
  bench_loss(&b, n);
  bench_update(&b);
  print_rows(&b);
  return 0;
}
