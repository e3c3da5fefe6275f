/* cuBLASLt (libcublasLt.so.13 or .so.12), as far as it is used. Facts: cublasLt.h of CUDA 13.0,
 * which agrees with CUDA 12's in these. */
#ifndef LS_DEVICE_CUDA_CUBLASLT_CALLS_H
#define LS_DEVICE_CUDA_CUBLASLT_CALLS_H

#include "device/cuda/calls.h"

typedef unsigned cublasStatus_t, cublasEnum; /* cublasEnum: of any list of values */
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct cublasLtMatmulDescOpaque *cublasLtMatmulDesc_t;
typedef struct cublasLtMatrixLayoutOpaque *cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulPreferenceOpaque *cublasLtMatmulPreference_t;

/* Plain bytes: it may be kept in a file for the same version of the library. */
typedef struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
} cublasLtMatmulAlgo_t;

typedef struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize; /* bytes */
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
} cublasLtMatmulHeuristicResult_t;

#define LS_CUBLASLT_CALLS(X)                                                                    \
  X(size_t, cublasLtGetVersion, (void))                                                         \
  X(size_t, cublasLtGetCudartVersion, (void))                                                   \
  X(const char *, cublasLtGetStatusString, (cublasStatus_t status))                             \
  X(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t * handle))                                \
  X(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t handle))                                 \
  X(cublasStatus_t, cublasLtMatmulDescCreate,                                                   \
    (cublasLtMatmulDesc_t * product, cublasEnum compute, cublasEnum scale))                     \
  X(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t product))                  \
  X(cublasStatus_t, cublasLtMatmulDescSetAttribute,                                             \
    (cublasLtMatmulDesc_t product, cublasEnum attribute, const void *value, size_t bytes))      \
  X(cublasStatus_t, cublasLtMatrixLayoutCreate,                                                 \
    (cublasLtMatrixLayout_t * layout, cublasEnum type, uint64_t rows, uint64_t columns,         \
     int64_t stride))                                                                           \
  X(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout))               \
  X(cublasStatus_t, cublasLtMatrixLayoutSetAttribute,                                           \
    (cublasLtMatrixLayout_t layout, cublasEnum attribute, const void *value, size_t bytes))     \
  X(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * preference))  \
  X(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference))   \
  X(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,                                       \
    (cublasLtMatmulPreference_t preference, cublasEnum attribute, const void *value,            \
     size_t bytes))                                                                             \
  X(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,                                             \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,           \
     cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,              \
     cublasLtMatmulPreference_t preference, int most, cublasLtMatmulHeuristicResult_t *results, \
     int *count))                                                                               \
  X(cublasStatus_t, cublasLtMatmulAlgoCheck,                                                    \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,           \
     cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,              \
     const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result))                \
  X(cublasStatus_t, cublasLtMatmul,                                                             \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha, const void *a,   \
     cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,           \
     const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,                 \
     cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,        \
     size_t bytes, CUstream stream))

typedef struct ls_cublaslt_calls {
  LS_CUBLASLT_CALLS(LS_CALL)
} ls_cublaslt_calls;

#endif
