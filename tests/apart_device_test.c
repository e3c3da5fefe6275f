/* Training on a device whose kernels only say "enqueued" and run when their queue is waited for,
 * and whose memory the host cannot address: whoever follows a pointer into it is killed. The same
 * bits must come out as on this machine's device, with state on the device, at its host and in a
 * file. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "comm/engine.h"
#include "run/rank_threads.h"
#include "session/session.h"
#include "session/step.h"

/* ---- memory ---------------------------------------------------------------------------------- */

/* Addresses that are given out, and where the bytes are. */
typedef struct window {
  char *base, *bytes;
  size_t size;
} window;

enum { WINDOWS = 64 };

static window windows[WINDOWS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The bytes at an address of the device; NULL: it is not one. */
static char *bytes_at(const void *address) {
  char *found = NULL;
  pthread_mutex_lock(&lock);
  for (int w = 0; w < WINDOWS && !found; w++) {
    const uintptr_t at = (uintptr_t)address - (uintptr_t)windows[w].base;
    if (windows[w].base && at < windows[w].size) found = windows[w].bytes + at;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

static void *reserve(size_t bytes, bool exported, int *handle) {
  *handle = -1;
  if (exported) return NULL;
  const int privately = MAP_PRIVATE | MAP_ANONYMOUS;
  const window made = {mmap(NULL, bytes, PROT_NONE, privately, -1, 0),
                       mmap(NULL, bytes, PROT_READ | PROT_WRITE, privately, -1, 0), bytes};
  if (made.base == MAP_FAILED || made.bytes == MAP_FAILED) return NULL;
  pthread_mutex_lock(&lock);
  int w = 0;
  while (windows[w].base) w++;
  windows[w] = made;
  pthread_mutex_unlock(&lock);
  return made.base;
}

static void release(void *base, size_t bytes) {
  if (!base) return;
  pthread_mutex_lock(&lock);
  int w = 0;
  while (windows[w].base != base) w++;
  munmap(windows[w].bytes, bytes);
  windows[w] = (window){0};
  pthread_mutex_unlock(&lock);
  munmap(base, bytes);
}

/* What one end must be: of the device or of the host. */
static ls_status at_end(const void *address, bool device, char **bytes, ls_error *error) {
  char *found = bytes_at(address);
  *bytes = device ? found : (char *)(uintptr_t)address;
  if ((found != NULL) == device) return LS_OK;
  return ls_fail(error, LS_INTERNAL, "an address that is %s",
                 device ? "not the device's" : "not the host's");
}

static ls_status transfer(void *to, bool to_device, const void *from, bool from_device,
                          size_t bytes, ls_error *error) {
  char *target, *source;
  LS_TRY(at_end(to, to_device, &target, error));
  LS_TRY(at_end(from, from_device, &source, error));
  memcpy(target, source, bytes);
  return LS_OK;
}

static ls_status write_to(void *to, const void *from, size_t bytes, ls_error *error) {
  return transfer(to, true, from, false, bytes, error);
}

static ls_status read_from(void *to, const void *from, size_t bytes, ls_error *error) {
  return transfer(to, false, from, true, bytes, error);
}

static ls_status copy_within(void *to, const void *from, size_t bytes, ls_error *error) {
  return transfer(to, true, from, true, bytes, error);
}

static ls_status clear(void *to, size_t bytes, ls_error *error) {
  char *target;
  LS_TRY(at_end(to, true, &target, error));
  memset(target, 0, bytes);
  return LS_OK;
}

static const ls_memory_calls apart = {.reserve = reserve,
                                      .release = release,
                                      .write = write_to,
                                      .read = read_from,
                                      .copy = copy_within,
                                      .clear = clear};

/* ---- kernels --------------------------------------------------------------------------------- */

typedef struct enqueued {
  ls_op_kind kind;
  ls_kernel_args args;
} enqueued;

/* What a queue's stream points to. */
typedef struct stream {
  enqueued *items;
  int count, room;
} stream;

static ls_kernel_table own; /* of this machine, which does the work */
static _Atomic int most;    /* that were enqueued at once */

static ls_status enqueue(ls_op_kind kind, const ls_kernel_args *args, ls_error *error) {
  stream *on = args->queue->stream;
  if (on->count == on->room) {
    on->room = 2 * on->room + 16;
    on->items = realloc(on->items, (size_t)on->room * sizeof *on->items);
    if (!on->items) return ls_fail(error, LS_FAILED, "out of memory");
  }
  on->items[on->count++] = (enqueued){kind, *args};
  if (on->count > most) most = on->count;
  return LS_OK;
}

#define WRAPPED(NAME, text)                                                      \
  static ls_status enqueue_##NAME(const ls_kernel_args *args, ls_error *error) { \
    return enqueue(LS_OP_##NAME, args, error);                                   \
  }
LS_OPS(WRAPPED)
#define ENTRY(NAME, text) enqueue_##NAME,
static const ls_kernel wrapped[LS_OP_COUNT] = {LS_OPS(ENTRY)};

static ls_status reach(ls_view *view, ls_error *error) {
  char *bytes;
  LS_TRY(at_end(view->data, true, &bytes, error));
  view->data = bytes;
  return LS_OK;
}

static bool hidden; /* whether memory is apart as well */

static ls_status run(const enqueued *item, ls_error *error) {
  ls_kernel_args args = item->args;
  for (int i = 0; i < args.inputs && hidden; i++) LS_TRY(reach(&args.in[i], error));
  for (int o = 0; o < args.outputs && hidden; o++) LS_TRY(reach(&args.out[o], error));
  if (hidden && args.workspace) args.workspace = bytes_at(args.workspace);
  return own.kernel[item->kind](&args, error);
}

static ls_status wait(const ls_device_queue *queue, ls_error *error) {
  stream *on = queue->stream;
  ls_status status = LS_OK;
  for (int i = 0; i < on->count && status == LS_OK; i++) status = run(&on->items[i], error);
  on->count = 0;
  return status;
}

static ls_status enter(const ls_device *device, const ls_device_place *place,
                       ls_device_queue queues[LS_DEVICE_QUEUES], ls_error *error) {
  (void)place;
  for (int q = 0; q < LS_DEVICE_QUEUES; q++) queues[q] = (ls_device_queue){.facts = &device->facts};
  queues[LS_TIER_DEVICE].stream = calloc(1, sizeof(stream));
  if (queues[LS_TIER_DEVICE].stream) return LS_OK;
  return ls_fail(error, LS_FAILED, "out of memory");
}

static void leave(ls_device_queue queues[LS_DEVICE_QUEUES]) {
  stream *on = queues[LS_TIER_DEVICE].stream;
  free(on->items);
  free(on);
}

/* ---- training -------------------------------------------------------------------------------- */

enum { STEPS = 3 };

typedef struct job {
  const ls_session *session;
  double losses[STEPS];
  float *parameters; /* all, one after the other */
  int64_t count;
} job;

static ls_status take_tokens(void *context, int64_t step, int64_t first, int64_t count,
                             const ls_batch *batch, ls_error *error) {
  (void)error;
  const job *work = context;
  for (int64_t i = 0; i < count; i++) {
    batch->ids[i] = (int32_t)(ls_random_bits(3, (uint64_t)step, (uint64_t)(first + i)) % 250);
    batch->labels[i] = (int32_t)(ls_random_bits(4, (uint64_t)step, (uint64_t)(first + i)) % 250);
    batch->positions[i] = (int32_t)((first + i) % work->session->sequence);
  }
  return LS_OK;
}

static double rate_at(const void *context, int64_t step) {
  (void)context, (void)step;
  return 1e-3;
}

static ls_status train(job *work, ls_rank *rank, ls_error *error) {
  LS_TRY(ls_session_initialise(work->session, rank, error));
  const ls_inputs inputs = {.take = take_tokens, .context = work};
  ls_steps steps = ls_steps_of(rank, &inputs, rate_at, NULL);
  const bool first = ls_rank_number(rank) == 0;
  while (steps.step < STEPS) {
    LS_TRY(ls_steps_begin(&steps, error));
    LS_TRY(ls_steps_passes(&steps, false, error));
    LS_TRY(ls_steps_finish(&steps, error));
    if (first) work->losses[steps.step - 1] = ls_rank_cell(rank, LS_CELL_MEAN_LOSS);
  }
  const ls_program *program = ls_rank_program(rank, LS_SESSION_STEP);
  int64_t at = 0;
  for (int p = 0; p < program->parameter_count; p++) {
    const int64_t count = ls_program_parameter_elements(&program->parameters[p]);
    float *to = first ? work->parameters + at : calloc((size_t)count, sizeof *to);
    LS_TRY(ls_rank_read_parameter(rank, program, p, LS_PART_MASTER, 0, count, to, LS_F32, error));
    if (!first) free(to);
    at += count;
  }
  return LS_OK;
}

static ls_status on_rank(ls_comm *comm, void *context, ls_error *error) {
  job *work = context;
  ls_rank *rank;
  LS_TRY(ls_session_rank(work->session, comm, &rank, error));
  const ls_status status = train(work, rank, error);
  ls_rank_destroy(&rank);
  return status;
}

static void run_steps(ls_session *session, job *work) {
  ls_world *world;
  ls_error error = {0};
  *work = (job){.session = session, .count = ls_model_parameters(&session->config)};
  work->parameters = calloc((size_t)work->count, sizeof *work->parameters);
  assert_non_null(work->parameters);
  const ls_world_options all = {.ranks = session->devices};
  assert_int_equal(ls_world_start(&session->device.facts, &all, &world, &error), LS_OK);
  if (ls_rank_threads_run(world, on_rank, work, &error) != LS_OK) fail_msg("%s", error.text);
  ls_world_destroy(&world);
}

static void check_layout(const char *layout, bool apart_too) {
  ls_arena *arena = ls_arena_create();
  const char *words[16] = {"model=llama-3m", "data.seq_len=32", "train.batch=4",
                           "dtype=bf16",     "dropout=0",       "device.threads=1"};
  int count = 6;
  char *rest = ls_arena_strdup(arena, layout);
  for (char *word; (word = strsep(&rest, " "));) words[count++] = word;
  ls_run_file *run;
  ls_session *session;
  ls_error error = {0};
  assert_int_equal(ls_run_file_read(arena, NULL, words, count, &run, &error), LS_OK);
  int devices;
  assert_int_equal(ls_run_file_count_devices(run, 0, &devices, &error), LS_OK);
  if (ls_session_create(arena, run, devices, devices, &session, &error) != LS_OK)
    fail_msg("%s", error.text);
  job here, there;
  run_steps(session, &here);
  own = session->device.kernels[LS_TIER_DEVICE];
  hidden = apart_too;
  most = 0;
  memcpy(session->device.kernels[LS_TIER_DEVICE].kernel, wrapped, sizeof wrapped);
  if (apart_too) session->device.memory = &apart;
  session->device.enter = enter;
  session->device.leave = leave;
  session->device.wait = wait;
  run_steps(session, &there);
  print_message("%s: loss %.6f, %d kernels enqueued at once\n", layout, there.losses[STEPS - 1],
                most);
  assert_true(most > 10);
  assert_memory_equal(here.losses, there.losses, sizeof here.losses);
  assert_memory_equal(here.parameters, there.parameters, sizeof(float) * (size_t)here.count);
  free(here.parameters);
  free(there.parameters);
  ls_arena_destroy(&arena);
}

static void test_memory_that_the_host_cannot_address(void **state) {
  (void)state;
  check_layout("mesh.dp_shard=1", true);
  check_layout("train.microbatches=2 recompute=full", true);
  check_layout("offload.optimizer=host offload.parameters=host offload.activations=host", true);
  check_layout(
      "offload.optimizer=nvme offload.parameters=nvme offload.activations=nvme "
      "offload.path=/var/tmp",
      true);
}

/* Collectives and messages of memory that the host cannot address go through a mirror. */
static void test_transfers_of_memory_that_the_host_cannot_address(void **state) {
  (void)state;
  check_layout("mesh.dp_shard=2 mesh.tp=2", true);
  check_layout("mesh.dp_shard=3 zero=3 train.batch=6 train.microbatches=2", true);
  check_layout("mesh.tp=2 mesh.dp_replicate=2 zero=0 sequence_parallel=true", true);
  check_layout("mesh.pp=2 mesh.dp_replicate=2 train.microbatches=2 schedule=zbh1", true);
  check_layout("mesh.pp=4 train.microbatches=4 schedule=1f1b post_validation=true", true);
  check_layout("mesh.dp_shard=2 zero=2 offload.optimizer=host train.microbatches=2", true);
}

/* The engine in this process reads what kernels have made. */
static void test_kernels_that_are_enqueued(void **state) {
  (void)state;
  check_layout("mesh.dp_shard=2 mesh.tp=2", false);
  check_layout("mesh.pp=2 mesh.dp_replicate=2 train.microbatches=2 schedule=zbh1", false);
  check_layout("mesh.dp_shard=2 zero=2 offload.optimizer=host train.microbatches=2", false);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_memory_that_the_host_cannot_address),
      cmocka_unit_test(test_transfers_of_memory_that_the_host_cannot_address),
      cmocka_unit_test(test_kernels_that_are_enqueued)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
