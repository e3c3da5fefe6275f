/* cuDNN's graph API (libcudnn.so.9), as far as it is used. Facts: cudnn_graph.h of cuDNN 9.19. */
#ifndef LS_DEVICE_CUDA_CUDNN_CALLS_H
#define LS_DEVICE_CUDA_CUDNN_CALLS_H

#include "device/cuda/calls.h"

typedef unsigned cudnnStatus_t, cudnnEnum; /* cudnnEnum: of any list of values */
typedef struct cudnnContext *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;

#define LS_CUDNN_VALUES(X)                              \
  X(CUDNN_DATA_FLOAT, 0)                                \
  X(CUDNN_DATA_HALF, 2)                                 \
  X(CUDNN_DATA_INT32, 4)                                \
  X(CUDNN_DATA_BFLOAT16, 9)                             \
  X(CUDNN_DATA_BOOLEAN, 11)                             \
  X(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)              \
  X(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)                 \
  X(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)              \
  X(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)             \
  X(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)         \
  X(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)   \
  X(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)        \
  X(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)          \
  X(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)                \
  X(CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18)                \
  X(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)      \
  X(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21)             \
  X(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)   \
  X(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31)     \
  X(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, 38)            \
  X(CUDNN_TYPE_HANDLE, 0)                               \
  X(CUDNN_TYPE_DATA_TYPE, 1)                            \
  X(CUDNN_TYPE_BOOLEAN, 2)                              \
  X(CUDNN_TYPE_INT64, 3)                                \
  X(CUDNN_TYPE_VOID_PTR, 6)                             \
  X(CUDNN_TYPE_HEUR_MODE, 8)                            \
  X(CUDNN_TYPE_POINTWISE_MODE, 14)                      \
  X(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                  \
  X(CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18)             \
  X(CUDNN_TYPE_CHAR, 24)                                \
  X(CUDNN_ATTR_POINTWISE_MODE, 0)                       \
  X(CUDNN_ATTR_POINTWISE_MATH_PREC, 1)                  \
  X(CUDNN_ATTR_POINTWISE_AXIS, 9)                       \
  X(CUDNN_ATTR_ENGINEHEUR_MODE, 200)                    \
  X(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)         \
  X(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                 \
  X(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, 204)              \
  X(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400)              \
  X(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)       \
  X(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)      \
  X(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, 405) \
  X(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, 407)          \
  X(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)  \
  X(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)          \
  X(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)          \
  X(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)          \
  X(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 758)          \
  X(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)              \
  X(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                 \
  X(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)              \
  X(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                   \
  X(CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                  \
  X(CUDNN_ATTR_TENSOR_STRIDES, 903)                     \
  X(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                   \
  X(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                  \
  X(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908)                 \
  X(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)           \
  X(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)        \
  X(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)            \
  X(CUDNN_ATTR_MATMUL_COMP_TYPE, 1500)                  \
  X(CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520)            \
  X(CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521)            \
  X(CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522)            \
  X(CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523)             \
  X(CUDNN_ATTR_REDUCTION_OPERATOR, 1600)                \
  X(CUDNN_ATTR_REDUCTION_COMP_TYPE, 1601)               \
  X(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610)         \
  X(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611)         \
  X(CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612)          \
  X(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 2200)           \
  X(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 2201)           \
  X(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702)    \
  X(CUDNN_HEUR_MODE_A, 3)                               \
  X(CUDNN_POINTWISE_ADD, 0)                             \
  X(CUDNN_POINTWISE_MUL, 1)                             \
  X(CUDNN_POINTWISE_MIN, 2)                             \
  X(CUDNN_POINTWISE_DIV, 6)                             \
  X(CUDNN_POINTWISE_SUB, 9)                             \
  X(CUDNN_POINTWISE_EXP, 13)                            \
  X(CUDNN_POINTWISE_LOG, 15)                            \
  X(CUDNN_POINTWISE_CMP_GE, 303)                        \
  X(CUDNN_POINTWISE_CMP_GT, 302)                        \
  X(CUDNN_POINTWISE_GEN_INDEX, 501)                     \
  X(CUDNN_POINTWISE_BINARY_SELECT, 601)                 \
  X(CUDNN_POINTWISE_IDENTITY, 21)                       \
  X(CUDNN_REDUCE_TENSOR_ADD, 0)                         \
  X(CUDNN_REDUCE_TENSOR_MAX, 3)

enum { LS_CUDNN_VALUES(LS_VALUE) };

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
