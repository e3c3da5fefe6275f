/* GPUs as the driver knows them: their facts, and whether a process can work on one.
 *
 *   int count;
 *   LS_TRY(ls_cuda_open(&libraries, LS_CUDA_DRIVER, error));
 *   LS_TRY(ls_cuda_count(&libraries, &count, error));
 *   LS_TRY(ls_cuda_gpu_read(&libraries, 0, &gpu, error));
 *   LS_TRY(ls_cuda_gpu_try(&libraries, &gpu, error));
 *
 * LS_FAILED: a call of the driver failed; the text names it, the GPU and what to do. */
#ifndef LS_DEVICE_CUDA_DISCOVER_H
#define LS_DEVICE_CUDA_DISCOVER_H

#include "device/cuda/libraries.h"

typedef struct ls_cuda_gpu {
  int ordinal; /* among the visible ones */
  CUdevice device;
  char name[96];
  char bus[32];     /* "0000:3b:00.0" */
  int architecture; /* 90 for sm_90 */
  int processors;
  int64_t memory_bytes;
  bool virtual_memory, exports; /* arenas by VMM, with handles that other processes import */
  CUenum mode;                  /* CU_COMPUTEMODE */
} ls_cuda_gpu;

/* Starts the driver and counts the GPUs that CUDA_VISIBLE_DEVICES leaves; 0 is LS_OK. */
LS_CHECKED ls_status ls_cuda_count(const ls_cuda_libraries *libraries, int *count, ls_error *error);

/* LS_INPUT: why that is 0, of device.kind. */
LS_CHECKED ls_status ls_cuda_none_visible(ls_error *error);

LS_CHECKED ls_status ls_cuda_gpu_read(const ls_cuda_libraries *libraries, int ordinal,
                                      ls_cuda_gpu *gpu, ls_error *error);

enum { LS_CUDA_MOST_MODULES = 32 };

/* Loads the kernels of this build into the calling thread's context; *count of them are loaded,
 * also where one is not. LS_INPUT: the build has none, or none for the GPU's architecture. */
LS_CHECKED ls_status ls_cuda_modules_load(const ls_cuda_libraries *libraries,
                                          const ls_cuda_gpu *gpu,
                                          CUlibrary modules[LS_CUDA_MOST_MODULES], int *count,
                                          ls_error *error);

/* Makes a context, the smallest arena that can be handed to another process, and loads the kernels;
 * frees them. The calling thread has no context afterwards. */
LS_CHECKED ls_status ls_cuda_gpu_try(const ls_cuda_libraries *libraries, const ls_cuda_gpu *gpu,
                                     ls_error *error);

#endif
