#include "base/clock.h"
#include "device/device.h"
#include "run/measure_parts.h"

/* Large products, as training has them, and few rows against a large weight, as generation has. */
static const struct {
  int64_t rows, columns, depth;
} shapes[] = {{1024, 1024, 1024}, {2048, 2048, 2048}, {2048, 3072, 768},
              {128, 4096, 4096},  {16, 4096, 4096},   {1, 4096, 4096}};

enum { SHAPES = sizeof shapes / sizeof *shapes };

static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F16};

enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static bool is_native(ls_dtype dtype) {
  return ls_device_multiplies(ls_device_facts_here(), dtype);
}

/* bf16 is what many train in, native or not; fp16 is of interest where it is native. */
static bool is_measured(ls_dtype dtype) {
  return dtype != LS_F16 || is_native(dtype);
}

/* One thread and all cores, which may be the same. */
static int thread_counts(const measuring *self) {
  return self->rates->key.cores > 1 ? 2 : 1;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static bool is_taken(const measuring *self, int shape) {
  const int64_t rows = shapes[shape].rows, columns = shapes[shape].columns;
  const int64_t depth = shapes[shape].depth;
  const int64_t most = larger(rows * columns, larger(rows * depth, columns * depth));
  return ls_measure_takes(self, most * (int64_t)sizeof(float));
}

int ls_measure_matmul_count(const measuring *self) {
  int taken = 0, count = 0;
  for (int s = 0; s < SHAPES; s++) taken += is_taken(self, s);
  for (int d = 0; d < DTYPES; d++) count += is_measured(dtypes[d]) * taken;
  return count * thread_counts(self);
}

static ls_view matrix(ls_arena *arena, ls_dtype dtype, int64_t rows, int64_t columns) {
  return (ls_view){.data = ls_arena_alloc(arena, (size_t)(rows * columns) * ls_dtype_bytes(dtype)),
                   .dtype = dtype,
                   .ndim = 2,
                   .dims = {rows, columns},
                   .valid = {rows, columns}};
}

static ls_status time_product(measuring *self, const ls_device *device, const ls_kernel_args *args,
                              ls_matmul_rate *made, ls_error *error) {
  const ls_kernel product = device->kernels[LS_TIER_DEVICE].kernel[LS_OP_LINEAR];
  const double flops = 2.0 * (double)made->rows * (double)made->columns * (double)made->depth;
  /* A call of a small product is shorter than what a clock can tell well. */
  const int calls = flops < 1e8 ? 8 : 1;
  LS_TRY(product(args, error)); /* makes the primitive, and brings the operands in */
  LS_TRY(device->wait(args->queue, error));
  ls_measure_begin(self);
  while (ls_measure_more(self)) {
    const double begin = ls_now_s();
    for (int c = 0; c < calls; c++) LS_TRY(product(args, error));
    LS_TRY(device->wait(args->queue, error));
    ls_measure_add(self, ls_now_s() - begin);
  }
  made->rate = ls_measure_rate(self, flops * calls);
  *LS_APPEND(self->arena, &self->rates->matmul) = *made;
  return LS_OK;
}

static ls_status measure_shape(measuring *self, const ls_device *device,
                               const ls_device_queue *queue, ls_matmul_rate *made,
                               ls_error *error) {
  ls_measure_next(self, "matmul %s %lldx%lldx%lld, %d thread%s", ls_dtype_name(made->dtype),
                  (long long)made->rows, (long long)made->columns, (long long)made->depth,
                  made->threads, made->threads == 1 ? "" : "s");
  ls_arena *arena = ls_arena_create();
  const ls_attributes attributes = {0};
  ls_kernel_args args = {.queue = queue,
                         .attributes = &attributes,
                         .inputs = 2,
                         .outputs = 1,
                         .in = {matrix(arena, made->dtype, made->rows, made->depth),
                                matrix(arena, made->dtype, made->columns, made->depth)},
                         .out = {matrix(arena, made->dtype, made->rows, made->columns)}};
  ls_status status = ls_measure_fill(device->memory, &args.in[0], error);
  if (status == LS_OK) status = ls_measure_fill(device->memory, &args.in[1], error);
  args.workspace_bytes = ls_device_workspace(&device->facts, LS_OP_LINEAR, &args);
  args.workspace = ls_arena_alloc(arena, args.workspace_bytes + 1);
  if (status == LS_OK) status = time_product(self, device, &args, made, error);
  ls_arena_destroy(&arena);
  return status;
}

/* The calling thread is left with as many threads as it is measured with last. */
static ls_status measure_on(measuring *self, const ls_device_options *options, ls_error *error) {
  ls_device device;
  ls_device_queue queues[LS_DEVICE_QUEUES];
  LS_TRY(ls_device_open(options, &device, error));
  LS_TRY(device.enter(&device, &(ls_device_place){0, 0}, queues, error));
  ls_status status = LS_OK;
  for (int s = 0; s < SHAPES && status == LS_OK; s++) {
    if (!is_taken(self, s)) continue;
    ls_matmul_rate made = {.dtype = options->compute,
                           .native = is_native(options->compute),
                           .threads = options->threads,
                           .rows = shapes[s].rows,
                           .columns = shapes[s].columns,
                           .depth = shapes[s].depth};
    status = measure_shape(self, &device, &queues[LS_TIER_DEVICE], &made, error);
  }
  device.leave(queues);
  return status;
}

ls_status ls_measure_matmul(measuring *self, ls_error *error) {
  const int all = self->rates->key.cores;
  for (int d = 0; d < DTYPES; d++) {
    if (!is_measured(dtypes[d])) continue;
    const ls_device_options options = {.kind = "cpu", .compute = dtypes[d], .threads = all};
    LS_TRY(measure_on(self, &options, error));
    if (all > 1)
      LS_TRY(measure_on(
          self, &(ls_device_options){.kind = "cpu", .compute = dtypes[d], .threads = 1}, error));
  }
  return LS_OK;
}
