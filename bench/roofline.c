/* The roofline sheet of docs/gpu.md: for each op of a layer of Llama 3 8B with 8,192 tokens in bf16
 * the bytes that must move, the operations of products, and the least time of both; for each kernel
 * that is launched for it what a multiprocessor holds of it.
 *
 *   build/bench/roofline [ACCELERATOR...]      h100-sxm-80 and rtx4090, where none is named
 *
 * Registers and shared memory are those of bench/kernels.csv, launches those that a GPU is given,
 * bytes those of the cost room. Nothing is timed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cost/cost.h"
#include "device/cuda/kernels/cuda_launch.h"

/* Tokens, a sequence's, and the columns of a row: of the model, its keys, its gates, its logits. */
enum { N = 8192, T = 8192, C = 4096, K = 1024, F = 14336, V = 128256, D = 128 };
enum { ELEMENTS = 218112000 }; /* of a layer: two norms, 41,943,040 in attention, 3 x C x F */

/* What a multiprocessor holds: CUDA C++ Programming Guide, table of compute capabilities. */
typedef struct limits {
  int architecture, threads, blocks, registers, shared_bytes;
} limits;
static const limits known[] = {
    {80, 2048, 32, 65536, 164 << 10},  {86, 1536, 16, 65536, 100 << 10},
    {89, 1536, 24, 65536, 100 << 10},  {90, 2048, 32, 65536, 228 << 10},
    {100, 2048, 32, 65536, 228 << 10}, {120, 1536, 24, 65536, 100 << 10}};
enum { KNOWN = sizeof known / sizeof *known };
enum { WARP = 32, REGISTERS_AT_ONCE = 256, SHARED_OF_A_BLOCK = 1 << 10, SHARED_AT_ONCE = 128 };

/* Operands by letter: rows of tokens of C, K, F or V columns (c, k, f, v), a row of C (w), a number
 * for each token (r) or token and head (h), ids (i), the table of embeddings (e), elements of an
 * update (u), a cell (1). Capitals: fp32. */
static const struct {
  ls_op_kind kind;
  const char *in, *out;
} cases[] = {{LS_OP_EMBEDDING, "ei", "c"},
             {LS_OP_RMSNORM, "cw", "cr"},
             {LS_OP_RMSNORM_BWD, "ccwr", "cW"},
             {LS_OP_ADD, "cc", "c"},
             {LS_OP_ATTENTION, "ckk", "ch"},
             {LS_OP_ATTENTION_BWD, "cckkch", "ckk"},
             {LS_OP_SWIGLU, "ff", "f"},
             {LS_OP_SWIGLU_BWD, "fff", "ff"},
             {LS_OP_GELU, "f", "f"},
             {LS_OP_XENT_MAX, "v", "r"},
             {LS_OP_XENT_SUM, "vri", "rr"},
             {LS_OP_XENT_GRAD, "vrri1", "v"},
             {LS_OP_EMBEDDING_DW, "ci", "E"},
             {LS_OP_SQUARED_NORM, "u", "1"},
             {LS_OP_ADAMW, "u111", "uuu"}};
enum { CASES = sizeof cases / sizeof *cases };

static ls_view matrix(ls_dtype dtype, int64_t rows, int64_t columns) {
  return (ls_view){.dtype = dtype, .ndim = 2, .dims = {rows, columns}, .valid = {rows, columns}};
}

static ls_view vector(ls_dtype dtype, int64_t count) {
  return (ls_view){.dtype = dtype, .ndim = 1, .dims = {count}, .valid = {count}};
}

static ls_view operand(char letter) {
  switch (letter) {
    case 'c': return matrix(LS_BF16, N, C);
    case 'k': return matrix(LS_BF16, N, K);
    case 'f': return matrix(LS_BF16, N, F);
    case 'v': return matrix(LS_BF16, N, V);
    case 'w': return vector(LS_BF16, C);
    case 'W': return vector(LS_F32, C);
    case 'r': return vector(LS_F32, N);
    case 'h': return matrix(LS_F32, N, C / D);
    case 'i': return vector(LS_I32, N);
    case 'e': return matrix(LS_BF16, V, C);
    case 'E': return matrix(LS_F32, V, C);
    case 'u': return vector(LS_F32, ELEMENTS);
    default: return vector(LS_F64, 1);
  }
}

static ls_work_operand as_work(const ls_view *view) {
  ls_work_operand made = {.dtype = view->dtype, .ndim = view->ndim};
  memcpy(made.dims, view->dims, sizeof made.dims);
  return made;
}

/* Registers and static shared memory that the newest nvcc of the file gave a kernel. */
static bool find_kernel(const char *csv, const char *name, int architecture, int *registers,
                        int *shared) {
  char key[160];
  snprintf(key, sizeof key, ",%s,sm_%d,", name, architecture);
  bool found = false;
  for (const char *at = csv; (at = strstr(at, key)); at += strlen(key))
    found |= sscanf(at + strlen(key), "%d,%*d,%*d,%d", registers, shared) == 2;
  return found;
}

static int up_to(int value, int step) {
  return (value + step - 1) / step * step;
}

static int least(int a, int b) {
  return a < b ? a : b;
}

/* Blocks of a kernel that a multiprocessor holds at a time. */
static int blocks_of(const limits *of, int threads, int registers, int shared) {
  const int warps = (threads + WARP - 1) / WARP;
  const int by_registers = of->registers / (up_to(registers * WARP, REGISTERS_AT_ONCE) * warps);
  const int by_shared = of->shared_bytes / (up_to(shared, SHARED_AT_ONCE) + SHARED_OF_A_BLOCK);
  return least(least(of->blocks, of->threads / (warps * WARP)), least(by_registers, by_shared));
}

static void print_launch(const char *csv, const limits *of, const ls_cuda_launch *launch) {
  char name[96];
  int registers, shared;
  snprintf(name, sizeof name, "%s%s", launch->name[0], launch->name[1] ? launch->name[1] : "");
  if (!find_kernel(csv, name, of->architecture, &registers, &shared)) {
    printf("| %s | %u | ? | ? | ? |\n", name, launch->block);
    return;
  }
  shared += (int)launch->shared_bytes;
  const int blocks = blocks_of(of, (int)launch->block, registers, shared);
  printf("| %s | %u | %d | %.1f | %d, %d %% |\n", name, launch->block, registers, shared / 1024.0,
         blocks, 100 * blocks * up_to((int)launch->block, WARP) / of->threads);
}

static ls_status print_op(const char *csv, const limits *of, const ls_accelerator *device,
                          const ls_device_facts *facts, int number, ls_error *error) {
  const ls_device_queue queue = {.facts = facts};
  const ls_attributes with = {
      .sequence = T, .head_dim = D, .softmax_scale = 1 / sqrt(D), .epsilon = 1e-5, .weight = 1};
  ls_kernel_args args = {.queue = &queue, .attributes = &with};
  ls_work_operand in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS];
  for (const char *at = cases[number].in; *at; at++) {
    args.in[args.inputs] = operand(*at);
    in[args.inputs] = as_work(&args.in[args.inputs]);
    args.inputs++;
  }
  for (const char *at = cases[number].out; *at; at++) {
    args.out[args.outputs] = operand(*at);
    out[args.outputs] = as_work(&args.out[args.outputs]);
    args.outputs++;
  }
  const ls_op_kind kind = cases[number].kind;
  const ls_work work = ls_op_work(kind, &with, in, args.inputs, out, args.outputs);
  const double moved_s = work.bytes / device->memory_bytes_per_s;
  const double products_s = work.flops / device->flops_per_s[LS_CATALOG_BF16];
  args.workspace_bytes = ls_device_workspace(facts, kind, &args);
  args.workspace = (void *)(uintptr_t)4096; /* only asked whether it is there */
  ls_cuda_launches launches;
  LS_TRY(ls_cuda_choose(kind, &args, &launches, error));
  for (int i = 0; i < launches.count; i++) {
    if (i)
      printf("| | | | | ");
    else
      printf("| %s | %.1f | %.1f | %.0f | %s ", ls_op_name(kind), work.bytes / 1e6,
             work.flops / 1e9, 1e6 * fmax(moved_s, products_s),
             moved_s >= products_s ? "memory" : "products");
    print_launch(csv, of, &launches.launch[i]);
  }
  return LS_OK;
}

static ls_status print_device(const char *csv, const ls_accelerator *device, ls_error *error) {
  ls_device_facts facts;
  const limits *of = known;
  while (of < known + KNOWN && of->architecture != device->architecture) of++;
  if (of == known + KNOWN || !ls_device_facts_of(device, &facts))
    return ls_fail(error, LS_INPUT, "%s: its multiprocessors are not known here", device->id);
  printf("\n%s, %.0f GB/s, %.0f TFLOP/s in bf16:\n\n", device->name,
         device->memory_bytes_per_s / 1e9, device->flops_per_s[LS_CATALOG_BF16] / 1e12);
  printf(
      "| op | MB | GFLOP | least us | bound by | kernel | threads | registers | shared KiB | "
      "blocks and warps held |\n|---|---|---|---|---|---|---|---|---|---|\n");
  for (int n = 0; n < CASES; n++) LS_TRY(print_op(csv, of, device, &facts, n, error));
  return LS_OK;
}

static ls_status run(ls_arena *arena, int count, char **words, ls_error *error) {
  static char *usual[] = {"h100-sxm-80", "rtx4090"};
  ls_catalog *catalog;
  char *csv;
  size_t bytes;
  if (!count) words = usual, count = 2;
  LS_TRY(ls_file_read(arena, "bench/kernels.csv", &csv, &bytes, error));
  LS_TRY(ls_catalog_open(arena, &catalog, error));
  for (int i = 0; i < count; i++) {
    const ls_accelerator *device;
    LS_TRY(ls_catalog_find(catalog, words[i], &device, error));
    LS_TRY(print_device(csv, device, error));
  }
  return LS_OK;
}

int main(int count, char **words) {
  ls_arena *arena = ls_arena_create();
  ls_error error;
  const ls_status status = run(arena, count - 1, words + 1, &error);
  if (status != LS_OK) fprintf(stderr, "roofline: %s\n", error.text);
  ls_arena_destroy(&arena);
  return ls_exit_status(status);
}
