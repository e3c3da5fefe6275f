/* cuDNN's graph API (libcudnn.so.9), as far as it is used. Facts: cudnn_graph.h of cuDNN 9.19. */
#ifndef LS_DEVICE_CUDA_CUDNN_CALLS_H
#define LS_DEVICE_CUDA_CUDNN_CALLS_H

#include "device/cuda/calls.h"

typedef unsigned cudnnStatus_t, cudnnEnum; /* cudnnEnum: of any list of values */
typedef struct cudnnContext *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;

#define LS_CUDNN_CALLS(X)                                                                \
  X(size_t, cudnnGetVersion, (void))                                                     \
  X(size_t, cudnnGetCudartVersion, (void))                                               \
  X(const char *, cudnnGetErrorString, (cudnnStatus_t status))                           \
  X(void, cudnnGetLastErrorString, (char *text, size_t bytes))                           \
  X(cudnnStatus_t, cudnnCreate, (cudnnHandle_t * handle))                                \
  X(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle))                                 \
  X(cudnnStatus_t, cudnnSetStream, (cudnnHandle_t handle, CUstream stream))              \
  X(cudnnStatus_t, cudnnBackendCreateDescriptor,                                         \
    (cudnnEnum type, cudnnBackendDescriptor_t * descriptor))                             \
  X(cudnnStatus_t, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor)) \
  X(cudnnStatus_t, cudnnBackendSetAttribute,                                             \
    (cudnnBackendDescriptor_t descriptor, cudnnEnum name, cudnnEnum type, int64_t count, \
     const void *values))                                                                \
  X(cudnnStatus_t, cudnnBackendGetAttribute,                                             \
    (cudnnBackendDescriptor_t descriptor, cudnnEnum name, cudnnEnum type, int64_t most,  \
     int64_t * count, void *values))                                                     \
  X(cudnnStatus_t, cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor))          \
  X(cudnnStatus_t, cudnnBackendExecute,                                                  \
    (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t variant))

typedef struct ls_cudnn_calls {
  LS_CUDNN_CALLS(LS_CALL)
} ls_cudnn_calls;

#endif
