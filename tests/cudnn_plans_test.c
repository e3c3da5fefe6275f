/* cuDNN for real, without a GPU: every attention graph that the recipe gives it has a plan for
 * GPUs that it is only described, and no plan takes more workspace than the recipe holds. Skipped
 * where the library is not: in build/cudnn-venv, which `make check-cudnn` makes, else on the
 * loader's path, in CUDA_HOME or in /usr/local/cuda. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/file.h"
#include "device/cuda/cudnn_attention.h"
#include "device/cuda/libraries.h"

/* What NVIDIA's library keeps to its end is not ours to free. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "detect_leaks=0";
}

/* Facts: NVIDIA's data sheets and the CUDA C++ Programming Guide, table of compute capabilities. */
static const struct gpu {
  const char *name;
  int architecture, processors, shared_bytes, bus_bits, threads;
} gpus[] = {{"NVIDIA A100-SXM4-80GB", 80, 108, 166912, 5120, 2048},
            {"NVIDIA H100 80GB HBM3", 90, 132, 232448, 5120, 2048},
            {"NVIDIA B200", 100, 148, 232448, 8192, 2048}};
enum { GPUS = sizeof gpus / sizeof *gpus };

/* Lengths about a tile, one token short of two, odd; heads alone, shared by pairs and by all. */
static const struct shape {
  int64_t sequences, length, heads, key_heads, head_dim, window;
  ls_dtype dtype;
  bool documents;
} shapes[] = {{4, 4096, 32, 32, 128, 0, LS_BF16, false}, {4, 4096, 32, 8, 128, 0, LS_BF16, false},
              {1, 1000, 12, 12, 64, 0, LS_F16, false},   {3, 33, 4, 2, 8, 0, LS_BF16, false},
              {2, 512, 4, 1, 96, 100, LS_BF16, false},   {3, 2, 4, 2, 80, 0, LS_F16, false},
              {2, 130, 4, 2, 256, 0, LS_BF16, false},    {1, 8192, 32, 8, 128, 0, LS_BF16, true},
              {3, 65, 4, 4, 64, 0, LS_F16, true},        {2, 512, 4, 1, 96, 100, LS_BF16, true}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static char *properties_of(ls_arena *arena, const struct gpu *gpu) {
  return ls_arena_printf(
      arena,
      "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
      "\"regsPerBlock\": 65536, \"multiProcessorCount\": %d, \"smCountOrigin\": 0, \"warpSize\": "
      "32, "
      "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": %d, "
      "\"oversizedSharedMemoryPerBlock\": 0, \"memoryBusWidth\": %d, "
      "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, "
      "\"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": %d, "
      "\"pciDeviceId\": 0, \"isTccDriver\": 0, \"supportCoopLaunch\": 1, "
      "\"smClockRateKHz\": 1410000, \"memClockRateKHz\": 1593000, \"l2CacheSize\": 41943040, "
      "\"deviceName\": \"%s\", \"deviceVer\": %d, \"driverVer\": 13000, \"cudaDeviceId\": 0, "
      "\"totalGlobalMem\": 85899345920, \"ctasPerSM\": 32, \"version\": 1}",
      gpu->processors, gpu->shared_bytes, gpu->bus_bits, gpu->threads, gpu->name,
      gpu->architecture * 10);
}

static ls_view view(int64_t rows, int64_t columns, ls_dtype dtype) {
  return (ls_view){.dtype = dtype, .ndim = 2, .dims = {rows, columns}, .valid = {rows, columns}};
}

/* A call of a shape; attributes stay the caller's. */
static ls_kernel_args call_of(const struct shape *s, bool back, ls_attributes *with) {
  const int64_t tokens = s->sequences * s->length;
  const ls_view q = view(tokens, s->heads * s->head_dim, s->dtype);
  const ls_view k = view(tokens, s->key_heads * s->head_dim, s->dtype);
  const ls_view log_sums = view(tokens, s->heads, LS_F32);
  *with = (ls_attributes){.head_dim = s->head_dim, .sequence = s->length, .window = s->window};
  const ls_view positions = {.dtype = LS_I32, .ndim = 1, .dims = {tokens}, .valid = {tokens}};
  if (back)
    return (ls_kernel_args){.attributes = with,
                            .inputs = s->documents ? 7 : 6,
                            .outputs = 3,
                            .in = {q, q, k, k, q, log_sums, positions},
                            .out = {q, k, k}};
  return (ls_kernel_args){.attributes = with,
                          .inputs = s->documents ? 4 : 3,
                          .outputs = 2,
                          .in = {q, k, k, positions},
                          .out = {q, log_sums}};
}

static ls_device_facts facts_of(const struct gpu *gpu) {
  ls_device_facts facts;
  const ls_accelerator of = {
      .id = gpu->name, .architecture = gpu->architecture, .processors = gpu->processors};
  assert_true(ls_device_facts_of(&of, &facts));
  return facts;
}

/* NULL: the library is not here. */
static const ls_cudnn_calls *library(ls_arena *arena) {
  static ls_cuda_libraries libraries;
  const char *build = getenv("LS_BUILD_DIR");
  ls_error error;
  char **found = NULL;
  int count = 0;
  build = build ? build : "build";
  char *driver = ls_arena_printf(arena, "%s/tests/planner/libcuda.so.1", build);
  if (!dlopen(driver, RTLD_NOW | RTLD_GLOBAL)) fail_msg("%s: %s", driver, dlerror());
  libraries.places = ls_cuda_places_usual(arena);
  const ls_cuda_places usual = libraries.places;
  char *pattern = ls_arena_printf(
      arena, "%s/cudnn-venv/lib/python*/site-packages/nvidia/cudnn/lib/libcudnn.so.9", build);
  if (ls_file_glob(arena, pattern, &found, &count, NULL) != LS_OK) count = 0;
  const char **folders = LS_NEW_ARRAY(arena, const char *, usual.folder_count + 2);
  int held = 0;
  if (count) {
    *strrchr(found[0], '/') = 0;
    folders[held++] = found[0];
    libraries.places.loader = false;
  }
  memcpy(folders + held, usual.folders, (size_t)usual.folder_count * sizeof *folders);
  held += usual.folder_count;
  folders[held++] = "/usr/local/cuda/lib64";
  libraries.places.folders = folders;
  libraries.places.folder_count = held;
  if (ls_cuda_open(&libraries, LS_CUDA_CUDNN, &error) != LS_OK) {
    print_message("skipped: %s\n", error.text);
    return NULL;
  }
  print_message("cuDNN %s: %s\n", libraries.of[LS_CUDA_CUDNN].version,
                libraries.of[LS_CUDA_CUDNN].path);
  return &libraries.cudnn;
}

/* A plan, and its bytes against the recipe's; false: the recipe has it for our own kernel. */
static bool plan_one(const ls_cudnn_calls *calls, const char *properties, const struct gpu *gpu,
                     const struct shape *s, bool back) {
  const ls_device_facts facts = facts_of(gpu);
  const ls_op_kind kind = back ? LS_OP_ATTENTION_BWD : LS_OP_ATTENTION;
  ls_attributes with;
  const ls_kernel_args args = call_of(s, back, &with);
  if (!ls_cudnn_attends(&facts, kind, &args)) return false;
  const ls_cudnn_attention of = ls_cudnn_attention_of(kind, &args);
  int64_t dots;
  const int64_t most =
      (int64_t)ls_device_workspace(&facts, kind, &args) - ls_cudnn_attention_held(&of, &dots);
  ls_error error;
  ls_cudnn_plan plan;
  ls_cudnn_graph graph;
  ls_cudnn_graph_begin(&graph, calls);
  ls_cudnn_attention_build(&graph, &of);
  const ls_status status =
      ls_cudnn_plan_make(&graph, &(ls_cudnn_place){.properties = properties}, most, &plan, &error);
  if (status != LS_OK)
    fail_msg("sm_%d, %lld tokens, %lld heads of %lld, %s: %s", gpu->architecture,
             (long long)s->length, (long long)s->heads, (long long)s->head_dim,
             back ? "backward" : "forward", error.text);
  ls_cudnn_plan_destroy(calls, &plan);
  ls_cudnn_graph_end(&graph);
  return true;
}

static void promised_graphs_have_plans(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_cudnn_calls *calls = library(arena);
  int plans = 0;
  for (int g = 0; calls && g < GPUS; g++) {
    const char *properties = properties_of(arena, &gpus[g]);
    for (int s = 0; s < SHAPES; s++)
      for (int back = 0; back < 2; back++)
        plans += plan_one(calls, properties, &gpus[g], &shapes[s], back);
  }
  ls_arena_destroy(&arena);
  if (!calls) skip();
  print_message("%d plans\n", plans);
  /* Heads of 256 backward: on Hopper alone; three shapes of documents: not before it. */
  assert_int_equal(plans, 2 * GPUS * SHAPES - 2 - 2 * 3);
}

/* What the recipe leaves to our own kernel. */
static void others_are_our_own(void **state) {
  (void)state;
  ls_device_facts facts = facts_of(&gpus[1]);
  ls_attributes with;
  ls_kernel_args args = call_of(&shapes[0], true, &with);
  assert_true(ls_cudnn_attends(&facts, LS_OP_ATTENTION_BWD, &args));
  facts.exact = true;
  assert_false(ls_cudnn_attends(&facts, LS_OP_ATTENTION_BWD, &args));
  facts.exact = false;
  args.accumulate[1] = true;
  assert_false(ls_cudnn_attends(&facts, LS_OP_ATTENTION_BWD, &args));
  args = call_of(&shapes[0], false, &with);
  assert_true(ls_cudnn_attends(&facts, LS_OP_ATTENTION, &args));
  with.softcap = 30;
  assert_false(ls_cudnn_attends(&facts, LS_OP_ATTENTION, &args));
  with.softcap = 0, with.alibi = 1;
  assert_false(ls_cudnn_attends(&facts, LS_OP_ATTENTION, &args));
  with.alibi = 0, args.inputs = 4; /* documents, from Hopper on */
  assert_true(ls_cudnn_attends(&facts, LS_OP_ATTENTION, &args));
  facts.architecture = 80;
  assert_false(ls_cudnn_attends(&facts, LS_OP_ATTENTION, &args));
  facts.architecture = 90, args.inputs = 3, args.out[0].dtype = LS_F32;
  assert_false(ls_cudnn_attends(&facts, LS_OP_ATTENTION, &args));
  with.head_dim = 12;
  args = call_of(&(struct shape){1, 16, 2, 2, 12, 0, LS_BF16, false}, false, &with);
  assert_false(ls_cudnn_attends(&facts, LS_OP_ATTENTION, &args));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(others_are_our_own),
                                     cmocka_unit_test(promised_graphs_have_plans)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
