/* Launching kernels: chosen from the operands, found once by name, put on the queue's stream. */
#include <stdio.h>
#include <string.h>

#include "device/cuda/cuda_gpu.h"
#include "device/cuda/cuda_tuning.h"

enum { MAX_DYNAMIC_SHARED = 8 }; /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */

enum { NOT_FOUND = 500 }; /* CUDA_ERROR_NOT_FOUND */

static ls_status load(const ls_cuda_stream *stream, ls_cuda_found *found, ls_error *error) {
  const ls_cuda_context *on = stream->on;
  const ls_driver_calls *driver = &ls_cuda_opened()->driver;
  CUresult result = NOT_FOUND;
  for (int m = 0; m < on->module_count && result == NOT_FOUND; m++)
    result = driver->cuLibraryGetKernel(&found->kernel, on->modules[m], found->name);
  LS_TRY(ls_cuda_gpu_did(on, result, found->name, error));
  return ls_cuda_gpu_did(on, driver->cuKernelGetFunction(&found->function, found->kernel),
                         found->name, error);
}

/* Asks for more shared memory than any launch before took. What is given unasked is 48 KiB less the
 * kernel's own arrays (CUDA C++ Programming Guide, 20.7). */
static ls_status ask_for_shared(const ls_cuda_stream *stream, ls_cuda_found *found, uint32_t shared,
                                ls_error *error) {
  const ls_cuda_context *on = stream->on;
  if (shared <= found->shared) return LS_OK;
  LS_TRY(ls_cuda_gpu_did(on,
                         ls_cuda_opened()->driver.cuKernelSetAttribute(
                             MAX_DYNAMIC_SHARED, (int)shared, found->kernel, on->gpu.device),
                         found->name, error));
  found->shared = shared;
  return LS_OK;
}

/* The kernel of a launch. */
static ls_status find(ls_cuda_stream *stream, const ls_cuda_launch *launch, CUfunction *function,
                      ls_error *error) {
  char name[sizeof stream->found->name];
  snprintf(name, sizeof name, "%s%s", launch->name[0], launch->name[1] ? launch->name[1] : "");
  uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
  for (const char *at = name; *at; at++) hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
  for (unsigned turn = 0; turn < LS_CUDA_KERNEL_SLOTS; turn++) {
    ls_cuda_found *slot = &stream->found[(hash + turn) % LS_CUDA_KERNEL_SLOTS];
    if (slot->name[0] && strcmp(slot->name, name) != 0) continue;
    if (!slot->function) {
      memcpy(slot->name, name, sizeof name);
      LS_TRY(load(stream, slot, error));
    }
    LS_TRY(ask_for_shared(stream, slot, launch->shared_bytes, error));
    *function = slot->function;
    return LS_OK;
  }
  return ls_fail(error, LS_INTERNAL, "more kernels than %d", LS_CUDA_KERNEL_SLOTS);
}

static ls_status launch(ls_cuda_stream *stream, ls_cuda_launch *of, ls_error *error) {
  CUfunction function = NULL;
  LS_TRY(find(stream, of, &function, error));
  const CUlaunchConfig config = {.gridDimX = of->grid[0],
                                 .gridDimY = of->grid[1],
                                 .gridDimZ = of->grid[2],
                                 .blockDimX = of->block,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .sharedMemBytes = of->shared_bytes,
                                 .hStream = stream->compute};
  void *arguments[] = {&of->arguments};
  return ls_cuda_gpu_did(
      stream->on, ls_cuda_opened()->driver.cuLaunchKernelEx(&config, function, arguments, NULL),
      of->name[0], error);
}

ls_status ls_cuda_launch_all(ls_cuda_stream *stream, ls_cuda_launches *launches, ls_error *error) {
  for (int i = 0; i < launches->count; i++) LS_TRY(launch(stream, &launches->launch[i], error));
  return LS_OK;
}

static ls_status run(ls_op_kind kind, const ls_kernel_args *args, ls_error *error) {
  ls_cuda_launches launches;
  if (kind == LS_OP_LINEAR || kind == LS_OP_LINEAR_DX || kind == LS_OP_LINEAR_DW)
    return ls_cuda_multiply(kind, args, error);
  if (kind == LS_OP_LINEAR_BLOCKS || kind == LS_OP_LINEAR_BLOCKS_DX)
    return ls_cuda_multiply_blocks(kind, args, error);
  if (kind == LS_OP_ATTENTION || kind == LS_OP_ATTENTION_BWD) {
    bool done;
    LS_TRY(ls_cuda_attend(kind, args, &done, error));
    if (done) return LS_OK;
  }
  LS_TRY(ls_cuda_choose(kind, args, &launches, error));
  return ls_cuda_launch_all(args->queue->stream, &launches, error);
}

#define BODY(NAME, text)                                                     \
  static ls_status run_##NAME(const ls_kernel_args *args, ls_error *error) { \
    return run(LS_OP_##NAME, args, error);                                   \
  }
LS_OPS(BODY)

#define ENTRY(NAME, text) run_##NAME,
static const ls_kernel_table kernels = {.name = "cuda",
                                        .kernel = {LS_OPS(ENTRY)},
                                        .wants = ls_cuda_attention_wants,
                                        .prepare = ls_cuda_products_prepare,
                                        .joins_bias = true};

void ls_cuda_fill_kernels(ls_kernel_table *table) {
  *table = kernels;
}
