/* The CUDA kernels that are in this build: fat binaries for cuLibraryLoadData, each with kernels of
 * cuda_launch.h by their names. Made by cmake/cuda.cmake; none where there was no nvcc. */
#ifndef LS_DEVICE_CUDA_KERNELS_CUDA_MODULES_H
#define LS_DEVICE_CUDA_KERNELS_CUDA_MODULES_H

#include <stddef.h>

typedef struct ls_cuda_module {
  const char *name; /* of its source, without .cu */
  const unsigned char *image;
  const size_t *bytes;
} ls_cuda_module;

/* Behind the last, one without a name. */
extern const ls_cuda_module ls_cuda_modules[];

#endif
