/* What the kernels of wrong_kernels.cc are given. C17 and C++17. */
#ifndef LS_TESTS_CUDA_WRONG_KERNELS_H
#define LS_TESTS_CUDA_WRONG_KERNELS_H

typedef struct ls_wrong_arguments {
  float *out; /* one for each thread */
} ls_wrong_arguments;

#endif
