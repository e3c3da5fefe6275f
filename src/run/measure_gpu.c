/* A GPU: products, memory, the link to its host and those to others. What stands in for a GPU in
 * tests is slow, so sizes grow as long as they turn out to be quick. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "comm/engine.h"
#include "device/device.h"
#include "run/measure_parts.h"
#include "run/rank_threads.h"

/* Squares, and a layer's products of 8,192 tokens: enough is from which rate on the next is tried.
 */
static const struct {
  int64_t rows, columns, depth;
  double enough; /* flops a second; of an array below, bytes */
} shapes[] = {{192, 192, 192, 1e9},  {1024, 1024, 1024, 1e12}, {4096, 4096, 4096, 1e12},
              {8192, 8192, 8192, 0}, {8192, 14336, 4096, 0},   {8192, 4096, 14336, 0}};
static const struct {
  int64_t bytes;
  double enough;
} arrays[] = {{1 << 20, 20e9}, {1 << 28, 0}};

enum {
  SHAPES = sizeof shapes / sizeof *shapes,
  ARRAYS = sizeof arrays / sizeof *arrays,
  ALIGNMENT = 256
};

static const ls_dtype dtypes[] = {LS_BF16, LS_F16, LS_F32};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

enum { MOST_GPUS = 8 }; /* of a host: what it has more is like these */

/* The rank thread's device, and one allocation of it that all operands lie in. */
typedef struct gpu {
  measuring *self;
  ls_gpu_rates *made;
  const ls_device *device;
  const ls_device_queue *queue;
  char *memory;
  size_t bytes;
} gpu;

static size_t aligned(size_t bytes) {
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t view_bytes(const ls_view *view) {
  return aligned((size_t)(view->dims[0] * view->dims[1]) * ls_dtype_bytes(view->dtype));
}

static ls_status hold(gpu *on, size_t bytes, ls_error *error) {
  int none;
  if (bytes <= on->bytes) return LS_OK;
  on->device->memory->release(on->memory, on->bytes);
  on->bytes = bytes;
  on->memory = on->device->memory->reserve(bytes, false, &none);
  if (on->memory) return LS_OK;
  on->bytes = 0;
  return ls_fail(error, LS_FAILED, "the GPU has no %zu MiB left to measure it with", bytes >> 20);
}

static ls_view matrix(ls_dtype dtype, int64_t rows, int64_t columns) {
  return (ls_view){.dtype = dtype, .ndim = 2, .dims = {rows, columns}, .valid = {rows, columns}};
}

/* Room for the operands and the workspace of a call, one behind the other, and numbers to read. */
static ls_status place(gpu *on, ls_op_kind kind, ls_kernel_args *args, ls_error *error) {
  ls_view *views[LS_MAX_INPUTS + 1];
  int count = 0;
  size_t bytes = 0;
  for (int i = 0; i < args->inputs; i++) views[count++] = &args->in[i];
  views[count++] = &args->out[0];
  for (int v = 0; v < count; v++) bytes += view_bytes(views[v]);
  args->queue = on->queue;
  args->workspace_bytes = ls_device_workspace(&on->device->facts, kind, args);
  LS_TRY(hold(on, bytes + args->workspace_bytes, error));
  char *at = on->memory;
  for (int v = 0; v < count; at += view_bytes(views[v++])) views[v]->data = at;
  args->workspace = at;
  for (int i = 0; i < args->inputs; i++)
    LS_TRY(ls_measure_fill(on->device->memory, &args->in[i], error));
  return LS_OK;
}

/* Has the library's fastest way of a product taken, as runs have (device.tune). */
static ls_status tune(gpu *on, ls_op_kind kind, const ls_kernel_args *args, ls_error *error) {
  const ls_tuning_calls *calls = on->device->tuning;
  const ls_kernel_table *table = &on->device->kernels[LS_TIER_DEVICE];
  if (!calls || !table->prepare) return LS_OK;
  const int before = calls->count(on->queue);
  LS_TRY(table->prepare(kind, args, error));
  for (int i = before; i < calls->count(on->queue); i++) {
    ls_tuned of;
    ls_way way;
    calls->about(on->queue, i, &of);
    if (of.ways < 2) continue;
    if (!calls->kept(on->queue, i, &way)) {
      const size_t room = of.bytes + of.beside;
      LS_TRY(hold(on, room + args->workspace_bytes, error));
      LS_TRY(calls->try_all(
          on->queue, i,
          &(ls_tuning_room){on->memory, on->memory + room, room, args->workspace_bytes}, &way,
          error));
      calls->keep(on->queue, i, &way);
    }
    LS_TRY(calls->take(on->queue, i, &way, error));
  }
  return LS_OK;
}

/* Calls of a kernel, `work` each: as many in a round as take a millisecond. */
static ls_status time_kernel(gpu *on, ls_op_kind kind, const ls_kernel_args *args, double work,
                             ls_rate *rate, ls_error *error) {
  const ls_kernel kernel = on->device->kernels[LS_TIER_DEVICE].kernel[kind];
  const double round_s = 1e-3;
  int calls = 1;
  LS_TRY(kernel(args, error));
  LS_TRY(on->device->wait(on->queue, error));
  const double first = ls_now_s();
  LS_TRY(kernel(args, error));
  LS_TRY(on->device->wait(on->queue, error));
  const double once = ls_now_s() - first;
  if (once < round_s) calls = once > round_s / 100 ? (int)(round_s / once) + 1 : 100;
  ls_measure_begin(on->self);
  while (ls_measure_more(on->self)) {
    const double begin = ls_now_s();
    for (int c = 0; c < calls; c++) LS_TRY(kernel(args, error));
    LS_TRY(on->device->wait(on->queue, error));
    ls_measure_add(on->self, ls_now_s() - begin);
  }
  *rate = ls_measure_rate(on->self, work * calls);
  return LS_OK;
}

static ls_status measure_product(gpu *on, ls_dtype dtype, int s, ls_rate *rate, ls_error *error) {
  const int64_t rows = shapes[s].rows, columns = shapes[s].columns, depth = shapes[s].depth;
  const ls_attributes attributes = {0};
  ls_kernel_args args = {.attributes = &attributes,
                         .inputs = 2,
                         .outputs = 1,
                         .in = {matrix(dtype, rows, depth), matrix(dtype, columns, depth)},
                         .out = {matrix(dtype, rows, columns)}};
  ls_measure_next(on->self, "GPU, %s product %lldx%lldx%lld", ls_dtype_name(dtype), (long long)rows,
                  (long long)columns, (long long)depth);
  args.queue = on->queue;
  args.workspace_bytes = ls_device_workspace(&on->device->facts, LS_OP_LINEAR, &args);
  LS_TRY(tune(on, LS_OP_LINEAR, &args, error));
  LS_TRY(place(on, LS_OP_LINEAR, &args, error));
  LS_TRY(time_kernel(on, LS_OP_LINEAR, &args, 2.0 * (double)rows * (double)columns * (double)depth,
                     rate, error));
  *LS_APPEND(on->self->arena, &on->made->products) =
      (ls_matmul_rate){dtype, true, 0, rows, columns, depth, *rate};
  return LS_OK;
}

static void keep_way(gpu *on, const char *name, const char *what, int64_t bytes, ls_rate rate) {
  *LS_APPEND(on->self->arena, &on->made->ways) = (ls_gpu_way){name, what, bytes, rate};
}

/* Our kernel that adds two arrays of bf16: what most ops that are no products come near. */
static ls_status measure_add(gpu *on, int64_t bytes, ls_rate *rate, ls_error *error) {
  enum { WIDTH = 1024 };
  const ls_attributes attributes = {0};
  const ls_view array = matrix(LS_BF16, bytes / WIDTH / (int64_t)ls_dtype_bytes(LS_BF16), WIDTH);
  ls_kernel_args args = {
      .attributes = &attributes, .inputs = 2, .outputs = 1, .in = {array, array}, .out = {array}};
  ls_measure_next(on->self, "GPU, memory");
  LS_TRY(place(on, LS_OP_ADD, &args, error));
  LS_TRY(time_kernel(on, LS_OP_ADD, &args, 3.0 * (double)bytes, rate, error));
  keep_way(on, "add", "a = b + c", bytes, *rate);
  return LS_OK;
}

typedef ls_status (*mover)(void *to, const void *from, size_t bytes, ls_error *error);

static ls_status time_moves(gpu *on, mover move, void *to, const void *from, int64_t bytes,
                            ls_rate *rate, ls_error *error) {
  LS_TRY(move(to, from, (size_t)bytes, error));
  ls_measure_begin(on->self);
  while (ls_measure_more(on->self)) {
    const double begin = ls_now_s();
    LS_TRY(move(to, from, (size_t)bytes, error));
    ls_measure_add(on->self, ls_now_s() - begin);
  }
  *rate = ls_measure_rate(on->self, (double)bytes);
  return LS_OK;
}

/* From and to pinned memory of the host. */
static ls_status measure_host(gpu *on, int64_t bytes, ls_error *error) {
  const ls_memory_calls *calls = on->device->memory;
  ls_rate up = {0}, down = {0};
  void *host = ls_measure_map((size_t)bytes);
  ls_measure_next(on->self, "GPU, link to the host");
  if (!host)
    return ls_fail(error, LS_FAILED, "no memory for an array of %lld MiB", (long long)bytes >> 20);
  memset(host, 1, (size_t)bytes);
  ls_status status = calls->pin ? calls->pin(host, (size_t)bytes, error) : LS_OK;
  const bool pinned = calls->pin && status == LS_OK;
  if (status == LS_OK) status = hold(on, (size_t)bytes, error);
  if (status == LS_OK) status = time_moves(on, calls->write, on->memory, host, bytes, &up, error);
  if (status == LS_OK) status = time_moves(on, calls->read, host, on->memory, bytes, &down, error);
  if (pinned) calls->unpin(host);
  ls_measure_unmap(host, (size_t)bytes);
  LS_TRY(status);
  keep_way(on, "from the host", "pinned memory", bytes, up);
  keep_way(on, "to the host", "pinned memory", bytes, down);
  on->made->host = up.best < down.best ? up.best : down.best;
  return LS_OK;
}

static ls_status measure_products(gpu *on, ls_error *error) {
  for (int d = 0; d < DTYPES; d++) {
    ls_rate rate = {0};
    for (int s = 0; s < SHAPES; s++) {
      if (s && shapes[s - 1].enough > rate.best) break;
      LS_TRY(measure_product(on, dtypes[d], s, &rate, error));
    }
  }
  return LS_OK;
}

static ls_status measure_memory(gpu *on, int64_t *bytes, ls_error *error) {
  ls_rate rate = {0};
  for (int a = 0; a < ARRAYS; a++) {
    if (a && arrays[a - 1].enough > rate.best) break;
    LS_TRY(measure_add(on, *bytes = arrays[a].bytes, &rate, error));
    if (rate.best > on->made->memory) on->made->memory = rate.best;
  }
  return LS_OK;
}

/* What the ranks of a world, one a GPU, know of each other. */
typedef struct gpus {
  measuring *self;
  ls_gpu_rates *made;
  const ls_device *device;
  char *of[MOST_GPUS]; /* an array on each */
  int64_t bytes;
} gpus;

/* The first reads an array of another. */
static ls_status measure_peer(gpu *on, gpus *all, int other, ls_error *error) {
  const ls_transfer_calls *calls = on->device->transfers;
  if (!calls->reaches(on->queue, &(ls_device_place){other, other})) return LS_OK;
  const size_t bytes = (size_t)all->bytes;
  const ls_device_copy copy = {on->memory, all->of[other], bytes, 1, bytes, bytes};
  ls_measure_next(on->self, "GPU, from GPU %d", other);
  ls_measure_begin(on->self);
  for (int round = 0; round == 0 || ls_measure_more(on->self); round++) {
    const double begin = ls_now_s();
    LS_TRY(calls->copy(on->queue, &copy, error));
    LS_TRY(on->device->wait(on->queue, error));
    if (round) ls_measure_add(on->self, ls_now_s() - begin);
  }
  const ls_rate rate = ls_measure_rate(on->self, (double)all->bytes);
  keep_way(on, ls_arena_printf(on->self->arena, "from GPU %d", other), "read by GPU 0", all->bytes,
           rate);
  if (!(on->made->peer > 0) || rate.best < on->made->peer) on->made->peer = rate.best;
  return LS_OK;
}

static ls_status measure_first(gpu *on, gpus *all, ls_error *error) {
  LS_TRY(measure_products(on, error));
  LS_TRY(measure_memory(on, &all->bytes, error));
  return measure_host(on, all->bytes, error);
}

/* Every rank holds an array of its own, and the first measures. */
static ls_status run_entered(gpu *on, gpus *all, int rank, ls_group *group, ls_error *error) {
  if (rank == 0) LS_TRY(measure_first(on, all, error));
  LS_TRY(ls_barrier(group, error));
  if (rank > 0) LS_TRY(hold(on, (size_t)all->bytes, error));
  all->of[rank] = on->memory;
  LS_TRY(ls_barrier(group, error));
  for (int other = 1; rank == 0 && other < ls_group_size(group); other++)
    LS_TRY(measure_peer(on, all, other, error));
  return ls_barrier(group, error);
}

static ls_status run_rank(ls_comm *comm, void *context, ls_error *error) {
  static const int members[MOST_GPUS] = {0, 1, 2, 3, 4, 5, 6, 7};
  gpus *all = context;
  ls_group *group;
  ls_device_queue queues[LS_DEVICE_QUEUES];
  gpu on = {all->self, all->made, all->device, &queues[LS_TIER_DEVICE], NULL, 0};
  const ls_device_place place = ls_comm_place(comm);
  LS_TRY(ls_comm_group(comm, members, ls_comm_size(comm), &group, error));
  LS_TRY(on.device->enter(on.device, &place, queues, error));
  const ls_status status = run_entered(&on, all, ls_comm_rank(comm), group, error);
  on.device->memory->release(on.memory, on.bytes);
  on.device->leave(queues);
  return status;
}

ls_status ls_measure_gpus(ls_arena *arena, const ls_measure_options *options, int count,
                          ls_gpu_rates *made, ls_error *error) {
  ls_device device;
  ls_world *world;
  const ls_world_options ranks = {.ranks = count < MOST_GPUS ? count : MOST_GPUS};
  measuring *self = LS_NEW(arena, measuring);
  *self = (measuring){.arena = arena,
                      .options = options,
                      .seconds = options->seconds,
                      .count = DTYPES * SHAPES + ARRAYS + ranks.ranks};
  if (!(self->seconds > 0)) self->seconds = 0.15;
  *made = (ls_gpu_rates){.memory = 0};
  gpus all = {.self = self, .made = made, .device = &device};
  LS_TRY(ls_device_open(&(ls_device_options){.kind = "cuda", .compute = LS_BF16, .exact = true},
                        &device, error));
  LS_TRY(ls_world_start(ls_device_facts_here(), &ranks, &world, error));
  const ls_status status = ls_rank_threads_run(world, run_rank, &all, error);
  ls_world_destroy(&world);
  LS_TRY(status);
  self->done = self->count; /* what was too slow for the larger ones is left out */
  ls_measure_next(self, "done");
  return LS_OK;
}
