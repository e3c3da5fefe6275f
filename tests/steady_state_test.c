/* A step in the steady state: no code of ours allocates in it, and it sends the bytes that its
 * program says.
 *
 * The allocator of this program counts, while a test asks it to, every call with the place it came
 * from; what lies in a library's file is that library's, everything else ours. Sanitizers bring
 * allocators of their own: under them nothing is counted and that part is skipped. */

#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "cost/cost.h"
#include "lower/compile.h"
#include "run/rank_parameters.h"
#include "run/rank_threads.h"
#include "session/inputs.h"
#include "support/layouts.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS_ALLOCATIONS 0
#endif
#endif
#if !defined(COUNTS_ALLOCATIONS) && defined(__GLIBC__)
#define COUNTS_ALLOCATIONS 1
#elif !defined(COUNTS_ALLOCATIONS)
#define COUNTS_ALLOCATIONS 0
#endif

/* Places that allocated while counting was on. */
enum { MAX_PLACES = 4096 };
static struct {
  _Atomic(void *) place;
  atomic_long calls, bytes;
} places[MAX_PLACES];
static atomic_bool counting;
static atomic_long all_calls;

#if COUNTS_ALLOCATIONS

/* glibc's own, under the names by which it can still be had. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

/* Inlined here, the calls of this file would seem to come from their callers. */
#define COUNTED __attribute__((noinline))

static void count(void *place, size_t bytes) {
  if (!atomic_load_explicit(&counting, memory_order_relaxed)) return;
  atomic_fetch_add(&all_calls, 1);
  for (size_t i = ((uintptr_t)place >> 2) % MAX_PLACES, tried = 0; tried < MAX_PLACES;
       i = (i + 1) % MAX_PLACES, tried++) {
    void *expected = NULL;
    if (!atomic_compare_exchange_strong(&places[i].place, &expected, place) && expected != place)
      continue;
    atomic_fetch_add(&places[i].calls, 1);
    atomic_fetch_add(&places[i].bytes, (long)bytes);
    return;
  }
}

COUNTED void *malloc(size_t bytes) {
  count(__builtin_return_address(0), bytes);
  return __libc_malloc(bytes);
}

COUNTED void *calloc(size_t number, size_t bytes) {
  count(__builtin_return_address(0), number * bytes);
  return __libc_calloc(number, bytes);
}

COUNTED void *realloc(void *old, size_t bytes) {
  count(__builtin_return_address(0), bytes);
  return __libc_realloc(old, bytes);
}

COUNTED void *aligned_alloc(size_t alignment, size_t bytes) {
  count(__builtin_return_address(0), bytes);
  return __libc_memalign(alignment, bytes);
}

COUNTED void *memalign(size_t alignment, size_t bytes) {
  count(__builtin_return_address(0), bytes);
  return __libc_memalign(alignment, bytes);
}

COUNTED int posix_memalign(void **result, size_t alignment, size_t bytes) {
  count(__builtin_return_address(0), bytes);
  void *made = __libc_memalign(alignment, bytes);
  if (!made) return ENOMEM;
  *result = made;
  return 0;
}

#endif

static void forget_places(void) {
  for (int i = 0; i < MAX_PLACES; i++) {
    atomic_store(&places[i].place, NULL);
    atomic_store(&places[i].calls, 0);
    atomic_store(&places[i].bytes, 0);
  }
  atomic_store(&all_calls, 0);
}

static const char *file_of(void *place) {
  Dl_info info;
  if (!dladdr(place, &info) || !info.dli_fname) return "?";
  const char *slash = strrchr(info.dli_fname, '/');
  return slash ? slash + 1 : info.dli_fname;
}

/* Prints calls and bytes by file; returns the calls that came from this program's own. */
static long list_places(int steps) {
  const char *own = file_of((void *)(uintptr_t)list_places);
  long ours = 0;
  for (int i = 0; i < MAX_PLACES; i++) {
    void *place = atomic_load(&places[i].place);
    if (!place) continue;
    const char *file = file_of(place);
    if (strcmp(file, own) == 0) ours += atomic_load(&places[i].calls);
    long calls = 0, bytes = 0;
    bool first = true;
    for (int j = 0; j < MAX_PLACES; j++) {
      void *other = atomic_load(&places[j].place);
      if (!other || strcmp(file_of(other), file) != 0) continue;
      if (j < i) first = false;
      calls += atomic_load(&places[j].calls);
      bytes += atomic_load(&places[j].bytes);
    }
    if (first)
      print_message("    %s: %ld calls, %ld bytes a step\n", file, calls / steps, bytes / steps);
  }
  return ours;
}

enum { COUNTED_STEPS = 3, MICROBATCHES = 3 };

typedef struct job {
  const ls_program *program;
  ls_device device;
  int64_t sent_before[16], sent_after[16]; /* by rank */
} job;

static ls_status take_tokens(void *context, int64_t step, int64_t first, int64_t count,
                             const ls_batch *batch, ls_error *error) {
  (void)step, (void)error;
  const ls_program *program = context;
  for (int64_t i = 0; i < count; i++) {
    batch->ids[i] = (int32_t)((first + i) * 7 % 37);
    batch->labels[i] = (int32_t)((first + i) * 5 % 37);
    batch->positions[i] = (int32_t)((first + i) % program->sequence);
  }
  return LS_OK;
}

static ls_status fill_parameters(ls_rank *rank, const ls_program *program, ls_error *error) {
  for (int p = 0; p < program->parameter_count; p++) {
    const int64_t count_of = ls_program_parameter_elements(&program->parameters[p]);
    for (int64_t i = 0; i < count_of; i++) {
      const float value = 0.1F * (float)ls_random_normal(1, (uint64_t)p, (uint64_t)i);
      LS_TRY(
          ls_rank_write_parameter(rank, program, p, LS_PART_MASTER, i, 1, &value, LS_F32, error));
    }
  }
  return LS_OK;
}

/* One step to warm up; then the counted ones, between barriers. */
static ls_status run_steps(ls_rank *rank, job *work, ls_error *error) {
  const int number = ls_rank_number(rank);
  LS_TRY(fill_parameters(rank, work->program, error));
  const ls_inputs inputs = {.take = take_tokens, .context = (void *)work->program};
  for (int m = 0; m < work->program->layout.microbatches; m++)
    LS_TRY(ls_inputs_fill(&inputs, rank, 0, m, 0, error));
  ls_rank_set_cell(rank, LS_CELL_LEARNING_RATE, 1e-3);
  ls_rank_set_cell(rank, LS_CELL_STEP, 1);
  LS_TRY(ls_rank_run(rank, 0, error));
  LS_TRY(ls_barrier(ls_rank_world_group(rank), error));
  if (number == 0) atomic_store(&counting, true);
  LS_TRY(ls_barrier(ls_rank_world_group(rank), error));
  work->sent_before[number] = ls_comm_bytes_sent(ls_rank_comm(rank));
  for (int s = 0; s < COUNTED_STEPS; s++) {
    ls_rank_set_cell(rank, LS_CELL_STEP, s + 2);
    LS_TRY(ls_rank_run(rank, 0, error));
  }
  work->sent_after[number] = ls_comm_bytes_sent(ls_rank_comm(rank));
  LS_TRY(ls_barrier(ls_rank_world_group(rank), error));
  if (number == 0) atomic_store(&counting, false);
  return ls_barrier(ls_rank_world_group(rank), error);
}

static ls_status rank_body(ls_comm *comm, void *context, ls_error *error) {
  job *work = context;
  ls_rank *rank;
  const ls_rank_options options = {.programs = &work->program,
                                   .program_count = 1,
                                   .device = &work->device,
                                   .offload_path = "/var/tmp"};
  LS_TRY(ls_rank_create(comm, &options, &rank, error));
  const ls_status status = run_steps(rank, work, error);
  ls_rank_destroy(&rank);
  return status;
}

/* Runs a layout of a shape; the places that allocated in its counted steps are then known. */
static void run_layout(ls_arena *arena, int shape, const ls_layout *layout, bool fast, job *work) {
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
  const int64_t sequences = 12 / layout->microbatches;
  const ls_build_options options = {.tokens = sequences * LS_TEST_SEQUENCE,
                                    .sequence = LS_TEST_SEQUENCE};
  ls_error error = {0};
  ls_graph *graph;
  ls_program *program;
  ls_world *world;
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
  ls_graph_backward(graph);
  if (ls_program_compile(graph, layout, LS_PROGRAM_STEP, &program, &error) != LS_OK)
    fail_msg("%s", error.text);
  *work = (job){.program = program};
  const ls_device_options device = {.kind = fast ? "cpu" : "reference", .compute = layout->compute};
  assert_int_equal(ls_device_open(&device, &work->device, &error), LS_OK);
  const int ranks = ls_mesh_ranks(&program->mesh);
  assert_int_equal(ls_world_create_threads(ranks, &world, &error), LS_OK);
  forget_places();
  if (ls_rank_threads_run(world, rank_body, work, &error) != LS_OK) fail_msg("%s", error.text);
  ls_world_destroy(&world);
}

typedef struct strategy {
  const char *name;
  int shape, dp_replicate, dp_shard, tp, zero;
  bool sequence_parallel;
  ls_offload offload;
} strategy;

static const strategy strategies[] = {
    {"one device", 0, 1, 1, 1, 1, false, {0}},
    {"DDP", 0, 3, 1, 1, 0, false, {0}},
    {"DDP on dp_shard", 1, 1, 2, 1, 0, false, {0}},
    {"ZeRO-1", 2, 1, 2, 1, 1, false, {0}},
    {"ZeRO-2", 0, 1, 4, 1, 2, false, {0}},
    {"ZeRO-3", 1, 1, 4, 1, 3, false, {0}},
    {"HYBRID_SHARD", 2, 2, 2, 1, 3, false, {0}},
    {"tensor parallel", 0, 1, 1, 3, 1, false, {0}},
    {"tensor parallel, replicated KV heads", 1, 1, 1, 8, 1, false, {0}},
    {"tensor and sequence parallel", 1, 1, 1, 4, 1, true, {0}},
    {"all together", 2, 2, 2, 3, 3, true, {0}},
    {"offloaded to the host", 0, 1, 2, 1, 3, false, {LS_TIER_HOST, 1, LS_TIER_HOST, LS_TIER_HOST}},
    {"offloaded to a file", 1, 1, 1, 1, 1, false, {LS_TIER_NVME, 1, LS_TIER_NVME, LS_TIER_NVME}},
    {"some of it", 2, 2, 1, 3, 1, false, {LS_TIER_NVME, 0.5, LS_TIER_DEVICE, LS_TIER_HOST}},
};

static ls_layout layout_of(const strategy *of, ls_dtype compute) {
  ls_layout layout = ls_layout_default();
  layout.dp_replicate = of->dp_replicate;
  layout.dp_shard = of->dp_shard;
  layout.tp = of->tp;
  layout.zero = of->zero;
  layout.sequence_parallel = of->sequence_parallel;
  layout.offload = of->offload;
  layout.microbatches = of->dp_replicate == 3 ? 2 : MICROBATCHES;
  layout.compute = compute;
  return layout;
}

static const size_t strategy_count = sizeof strategies / sizeof *strategies;

static void test_the_counter_counts(void **state) {
  (void)state;
  if (!COUNTS_ALLOCATIONS) skip();
  forget_places();
  atomic_store(&counting, true);
  void *volatile made = malloc(100);
  void *volatile aligned = aligned_alloc(64, 128);
  atomic_store(&counting, false);
  free(made);
  free(aligned);
  assert_int_equal(list_places(1), 2);
}

/* On reference kernels nothing allocates at all, ours or another's. */
static void test_nothing_allocates_on_reference_kernels(void **state) {
  (void)state;
  if (!COUNTS_ALLOCATIONS) skip();
  for (size_t s = 0; s < strategy_count; s++) {
    ls_arena *arena = ls_arena_create();
    const ls_layout layout = layout_of(&strategies[s], s % 2 ? LS_F64 : LS_F32);
    job work;
    run_layout(arena, strategies[s].shape, &layout, false, &work);
    if (atomic_load(&all_calls)) {
      list_places(COUNTED_STEPS);
      fail_msg("%s: %ld allocations in %d steps", strategies[s].name, atomic_load(&all_calls),
               COUNTED_STEPS);
    }
    ls_arena_destroy(&arena);
  }
}

/* On the CPU device's kernels what libraries allocate is listed; our own code still does not. */
static void test_only_libraries_allocate_on_cpu_kernels(void **state) {
  (void)state;
  if (!COUNTS_ALLOCATIONS) skip();
  for (size_t s = 0; s < strategy_count; s++) {
    ls_arena *arena = ls_arena_create();
    const ls_layout layout =
        layout_of(&strategies[s], (ls_dtype[]){LS_F32, LS_BF16, LS_F16}[s % 3]);
    job work;
    run_layout(arena, strategies[s].shape, &layout, true, &work);
    print_message("  %s, %s:\n", strategies[s].name, ls_dtype_name(layout.compute));
    const long ours = list_places(COUNTED_STEPS);
    if (ours) fail_msg("%s: %ld allocations of ours", strategies[s].name, ours);
    ls_arena_destroy(&arena);
  }
}

static void test_bytes_sent_are_those_of_the_program(void **state) {
  (void)state;
  for (size_t s = 0; s < strategy_count; s++) {
    ls_arena *arena = ls_arena_create();
    const ls_layout layout = layout_of(&strategies[s], LS_F32);
    job work;
    run_layout(arena, strategies[s].shape, &layout, false, &work);
    const int ranks = ls_mesh_ranks(&work.program->mesh);
    int collectives;
    const double said = ls_program_bytes_sent(work.program, &collectives) * ranks;
    int64_t sent = 0;
    for (int r = 0; r < ranks; r++) sent += work.sent_after[r] - work.sent_before[r];
    print_message("  %-36s %9.0f bytes a step over all ranks, %d collectives a rank\n",
                  strategies[s].name, said, collectives);
    if (sent % COUNTED_STEPS || (double)(sent / COUNTED_STEPS) - said > 0.5 ||
        said - (double)(sent / COUNTED_STEPS) > 0.5)
      fail_msg("%s: %lld bytes sent in %d steps, the program says %.1f a step", strategies[s].name,
               (long long)sent, COUNTED_STEPS, said);
    assert_int_equal(ranks > 1, said > 0);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_counter_counts),
                                     cmocka_unit_test(test_nothing_allocates_on_reference_kernels),
                                     cmocka_unit_test(test_only_libraries_allocate_on_cpu_kernels),
                                     cmocka_unit_test(test_bytes_sent_are_those_of_the_program)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
