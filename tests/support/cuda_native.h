/* Kernels of CUDA tests on a real GPU: with LS_NATIVE_GPU set, what a test would run by the shim is
 * launched on GPU 0 instead. Operands go to its memory, at places as aligned as the host's, and
 * come back. For support/cuda_case.h. */
#ifndef LS_TESTS_CUDA_NATIVE_H
#define LS_TESTS_CUDA_NATIVE_H

#include "device/cuda/cuda_gpu.h"
#include "support/cpu_makers.h"

enum { NATIVE_BYTES = 512 << 20, NATIVE_ALIGNMENT = 256 };

typedef struct native_gpu {
  ls_device device;
  ls_device_queue queues[LS_DEVICE_QUEUES];
  char *memory;
} native_gpu;

/* NULL: no test asks for a GPU. It stays open until the program ends. */
static inline native_gpu *native_here(void) {
  static native_gpu gpu;
  if (!getenv("LS_NATIVE_GPU")) return NULL;
  if (gpu.memory) return &gpu;
  const ls_device_options options = {.kind = "cuda", .compute = LS_BF16};
  ls_error error = {0};
  int none;
  if (ls_device_open(&options, &gpu.device, &error) != LS_OK ||
      gpu.device.enter(&gpu.device, &(ls_device_place){0, 0}, gpu.queues, &error) != LS_OK)
    fail_msg("%s", error.text);
  gpu.memory = gpu.device.memory->reserve(NATIVE_BYTES, false, &none);
  assert_non_null(gpu.memory);
  return &gpu;
}

/* What lies in the host's memory, and where on the GPU. */
typedef struct native_place {
  void *host, *there;
  size_t bytes;
} native_place;

static inline void *native_put(native_gpu *gpu, native_place *place, void *host, size_t bytes,
                               char **at) {
  ls_error error = {0};
  *place = (native_place){host, *at + (uintptr_t)host % 16, bytes};
  if (gpu->device.memory->write(place->there, host, bytes, &error) != LS_OK)
    fail_msg("%s", error.text);
  *at += (bytes + 16 + NATIVE_ALIGNMENT - 1) / NATIVE_ALIGNMENT * NATIVE_ALIGNMENT;
  assert_true(*at <= gpu->memory + NATIVE_BYTES);
  return place->there;
}

static inline size_t native_bytes(const operand *o, ls_dtype dtype) {
  return (size_t)stored_count(o) * ls_dtype_bytes(dtype);
}

/* Runs a call whose operands and workspace lie in the host's memory. NULL, or what failed. */
static inline const char *native_run(native_gpu *gpu, const op_case *c,
                                     const ls_kernel_args *call) {
  static ls_error error;
  native_place places[LS_MAX_INPUTS + LS_MAX_OUTPUTS + 1];
  ls_kernel_args there = *call;
  char *at = gpu->memory;
  int count = 0;
  there.queue = &gpu->queues[LS_TIER_DEVICE];
  for (int i = 0; i < c->inputs; i++)
    there.in[i].data = native_put(gpu, &places[count++], call->in[i].data,
                                  native_bytes(&c->in[i], call->in[i].dtype), &at);
  for (int i = 0; i < c->outputs; i++)
    there.out[i].data = c->in_place && i == 0
                            ? there.in[0].data
                            : native_put(gpu, &places[count++], call->out[i].data,
                                         native_bytes(&c->out[i], call->out[i].dtype), &at);
  there.workspace = native_put(gpu, &places[count++], call->workspace, call->workspace_bytes, &at);
  ls_cuda_launches launches;
  ls_status status = ls_cuda_choose(c->kind, &there, &launches, &error);
  if (status == LS_OK) status = ls_cuda_launch_all(there.queue->stream, &launches, &error);
  if (status == LS_OK) status = gpu->device.wait(there.queue, &error);
  for (int p = 0; p < count && status == LS_OK; p++)
    status = gpu->device.memory->read(places[p].host, places[p].there, places[p].bytes, &error);
  return status == LS_OK ? NULL : error.text;
}

#endif
