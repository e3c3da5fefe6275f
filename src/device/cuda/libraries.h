/* NVIDIA's libraries, opened at run time: one program runs with them and without.
 *
 *   ls_cuda_libraries libraries = {.places = ls_cuda_places_usual(arena)};
 *   LS_TRY(ls_cuda_open(&libraries, LS_CUDA_DRIVER, error));
 *   LS_TRY(ls_cuda_did(&libraries, libraries.driver.cuInit(0), "cuInit", error));
 *   ...
 *   ls_cuda_close(&libraries);
 *
 * A library is looked for on the loader's path (LD_LIBRARY_PATH, ldconfig), then in the folders of
 * `places`. Its version and every symbol are checked before a call is made. One thread at a time
 * opens and closes; the calls are as thread-safe as NVIDIA says. */
#ifndef LS_DEVICE_CUDA_LIBRARIES_H
#define LS_DEVICE_CUDA_LIBRARIES_H

#include <stdbool.h>

#include "base/arena.h"
#include "device/cuda/cublaslt_calls.h"
#include "device/cuda/cudnn_calls.h"
#include "device/cuda/driver_calls.h"
#include "device/cuda/nccl_calls.h"
#include "device/cuda/nvml_calls.h"

typedef enum ls_cuda_library_id {
  LS_CUDA_DRIVER = 0,
  LS_CUDA_NVML,
  LS_CUDA_CUBLASLT,
  LS_CUDA_CUDNN,
  LS_CUDA_NCCL,
  LS_CUDA_LIBRARY_COUNT
} ls_cuda_library_id;

/* Where libraries are looked for. */
typedef struct ls_cuda_places {
  bool loader; /* on the loader's path first */
  const char **folders;
  int folder_count;
} ls_cuda_places;

/* The loader's path, CUDA_HOME/lib64, and the folders nvidia/NAME/lib of the site-packages of an
 * active VIRTUAL_ENV. In the arena. */
ls_cuda_places ls_cuda_places_usual(ls_arena *arena);

/* An open library. */
typedef struct ls_cuda_library {
  void *handle;     /* NULL: not open */
  char path[512];   /* its file */
  char version[48]; /* as its maker writes it: "9.19.0" */
  int cuda;         /* the driver: newest CUDA that it runs; others: CUDA that they were built for,
                       major * 1000 + minor * 10; 0: not said */
} ls_cuda_library;

/* The tables of libraries that are not open hold no pointers. */
typedef struct ls_cuda_libraries {
  ls_cuda_places places;
  ls_cuda_library of[LS_CUDA_LIBRARY_COUNT];
  ls_driver_calls driver;
  ls_nvml_calls nvml;
  ls_cublaslt_calls cublaslt;
  ls_cudnn_calls cudnn;
  ls_nccl_calls nccl;
} ls_cuda_libraries;

/* "NVIDIA driver", "NVML", "cuBLASLt", "cuDNN", "NCCL". */
const char *ls_cuda_library_name(ls_cuda_library_id id);

/* How to get it: "pip install nvidia-nccl-cu12, ...". `cuda`: that of the driver, or 0. */
const char *ls_cuda_library_remedy(ls_cuda_library_id id, int cuda);

/* Opens a library; one that is open stays so. The driver is opened before others where there is
 * one: a library for a newer CUDA than its is passed over, or refused where there is no other.
 * LS_INPUT, in one line with the remedy: not found, too old or of another major version, or a
 * symbol is missing. */
LS_CHECKED ls_status ls_cuda_open(ls_cuda_libraries *libraries, ls_cuda_library_id id,
                                  ls_error *error);

void ls_cuda_close(ls_cuda_libraries *libraries);

/* Of what a call of the driver or of NVML returned: LS_OK, or LS_FAILED with the call, the error's
 * name and what to do. `call` says which, and of what: "cuMemCreate of GPU 1". */
LS_CHECKED ls_status ls_cuda_did(const ls_cuda_libraries *libraries, CUresult result,
                                 const char *call, ls_error *error);
LS_CHECKED ls_status ls_nvml_did(const ls_cuda_libraries *libraries, nvmlReturn_t result,
                                 const char *call, ls_error *error);

#endif
