/* NCCL (libnccl.so.2), as far as it is used. Facts: nccl.h of NCCL 2.28; all of these are in 2.19,
 * where ncclCommRegister came. */
#ifndef LS_DEVICE_CUDA_NCCL_CALLS_H
#define LS_DEVICE_CUDA_NCCL_CALLS_H

#include "device/cuda/calls.h"

typedef unsigned ncclResult_t, ncclEnum; /* ncclEnum: of any list of values */
typedef struct ncclComm *ncclComm_t;

typedef struct ncclUniqueId {
  char internal[128];
} ncclUniqueId;

/* As of 2.18, which later versions take by its size; what it does not name is not customised. */
typedef struct ncclConfig_t {
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare;
} ncclConfig_t;

#define LS_NCCL_VALUES(X)   \
  X(ncclSuccess, 0)         \
  X(ncclInProgress, 7)      \
  X(ncclSystemError, 2)     \
  X(ncclInvalidArgument, 4) \
  X(ncclInvalidUsage, 5)    \
  X(ncclRemoteError, 6)     \
  X(ncclSum, 0)             \
  X(ncclMax, 2)             \
  X(ncclUint8, 1)           \
  X(ncclInt32, 2)           \
  X(ncclInt64, 4)           \
  X(ncclFloat16, 6)         \
  X(ncclFloat32, 7)         \
  X(ncclFloat64, 8)         \
  X(ncclBfloat16, 9)

enum { LS_NCCL_VALUES(LS_VALUE) };

/* NCCL_CONFIG_INITIALIZER's, NCCL_CONFIG_UNDEF_INT and NCCL_SPLIT_NOCOLOR. */
enum { LS_NCCL_MAGIC = (int)0xcafebeef, LS_NCCL_UNDEFINED = INT32_MIN, LS_NCCL_NO_COLOR = -1 };

#define LS_NCCL_CALLS(X)                                                                         \
  X(ncclResult_t, ncclGetVersion, (int *version))                                                \
  X(const char *, ncclGetErrorString, (ncclResult_t result))                                     \
  X(const char *, ncclGetLastError, (ncclComm_t comm))                                           \
  X(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id))                                          \
  X(ncclResult_t, ncclCommInitRankConfig,                                                        \
    (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config))             \
  X(ncclResult_t, ncclCommSplit,                                                                 \
    (ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config))               \
  X(ncclResult_t, ncclCommFinalize, (ncclComm_t comm))                                           \
  X(ncclResult_t, ncclCommDestroy, (ncclComm_t comm))                                            \
  X(ncclResult_t, ncclCommAbort, (ncclComm_t comm))                                              \
  X(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * result))               \
  X(ncclResult_t, ncclCommRegister, (ncclComm_t comm, void *at, size_t bytes, void **handle))    \
  X(ncclResult_t, ncclCommDeregister, (ncclComm_t comm, void *handle))                           \
  X(ncclResult_t, ncclGroupStart, (void))                                                        \
  X(ncclResult_t, ncclGroupEnd, (void))                                                          \
  X(ncclResult_t, ncclAllReduce,                                                                 \
    (const void *from, void *to, size_t count, ncclEnum type, ncclEnum op, ncclComm_t comm,      \
     CUstream stream))                                                                           \
  X(ncclResult_t, ncclAllGather,                                                                 \
    (const void *from, void *to, size_t count, ncclEnum type, ncclComm_t comm, CUstream stream)) \
  X(ncclResult_t, ncclReduceScatter,                                                             \
    (const void *from, void *to, size_t count, ncclEnum type, ncclEnum op, ncclComm_t comm,      \
     CUstream stream))                                                                           \
  X(ncclResult_t, ncclReduce,                                                                    \
    (const void *from, void *to, size_t count, ncclEnum type, ncclEnum op, int root,             \
     ncclComm_t comm, CUstream stream))                                                          \
  X(ncclResult_t, ncclBroadcast,                                                                 \
    (const void *from, void *to, size_t count, ncclEnum type, int root, ncclComm_t comm,         \
     CUstream stream))                                                                           \
  X(ncclResult_t, ncclSend,                                                                      \
    (const void *from, size_t count, ncclEnum type, int peer, ncclComm_t comm, CUstream stream)) \
  X(ncclResult_t, ncclRecv,                                                                      \
    (void *to, size_t count, ncclEnum type, int peer, ncclComm_t comm, CUstream stream))

typedef struct ls_nccl_calls {
  LS_NCCL_CALLS(LS_CALL)
} ls_nccl_calls;

#endif
