/* CUDA's driver API (libcuda.so.1), as far as it is used. Facts: cuda.h of CUDA 13.0; all of these
 * are in drivers since CUDA 12.0, where cuLibraryLoadData came. A name's ending (_v2) is part of
 * the symbol. */
#ifndef LS_DEVICE_CUDA_DRIVER_CALLS_H
#define LS_DEVICE_CUDA_DRIVER_CALLS_H

#include "device/cuda/calls.h"

typedef unsigned CUresult, CUenum; /* CUenum: of any list of values */
typedef int CUdevice;
typedef unsigned long long CUdeviceptr, CUmemGenericAllocationHandle, cuuint64_t;
typedef struct CUarray_st *CUarray;
typedef struct CUctx_st *CUcontext;
typedef struct CUevent_st *CUevent;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUfunc_st *CUfunction;

typedef struct CUuuid {
  char bytes[16];
} CUuuid;

typedef struct CUmemLocation {
  CUenum type; /* CU_MEM_LOCATION_TYPE */
  int id;
} CUmemLocation;

typedef struct CUmemAllocationProp {
  CUenum type; /* CU_MEM_ALLOCATION_TYPE */
  CUenum requestedHandleTypes;
  CUmemLocation location;
  void *win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
} CUmemAllocationProp;

typedef struct CUmemAccessDesc {
  CUmemLocation location;
  CUenum flags; /* CU_MEM_ACCESS_FLAGS */
} CUmemAccessDesc;

typedef struct CUDA_GRAPH_INSTANTIATE_PARAMS {
  cuuint64_t flags;
  CUstream hUploadStream;
  CUgraphNode hErrNode_out;
  CUenum result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

typedef struct CUgraphExecUpdateResultInfo {
  CUenum result;
  CUgraphNode errorNode, errorFromNode;
} CUgraphExecUpdateResultInfo;

typedef struct CUlaunchAttribute {
  CUenum id;
  char pad[4];
  union {
    char pad[64];
    int cooperative, programmaticStreamSerializationAllowed, priority;
    struct {
      unsigned x, y, z;
    } clusterDim;
  } value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute *attrs;
  unsigned numAttrs;
} CUlaunchConfig;

typedef struct CUDA_MEMCPY2D {
  size_t srcXInBytes, srcY;
  CUenum srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  size_t srcPitch, dstXInBytes, dstY;
  CUenum dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  size_t dstPitch, WidthInBytes, Height;
} CUDA_MEMCPY2D;

#define LS_DRIVER_VALUES(X)                                               \
  X(CUDA_SUCCESS, 0)                                                      \
  X(CUDA_ERROR_INVALID_VALUE, 1)                                          \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                          \
  X(CUDA_ERROR_NOT_INITIALIZED, 3)                                        \
  X(CUDA_ERROR_STUB_LIBRARY, 34)                                          \
  X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46)                                    \
  X(CUDA_ERROR_NO_DEVICE, 100)                                            \
  X(CUDA_ERROR_INVALID_DEVICE, 101)                                       \
  X(CUDA_ERROR_INVALID_CONTEXT, 201)                                      \
  X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                                    \
  X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)                                    \
  X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222)                              \
  X(CUDA_ERROR_INVALID_HANDLE, 400)                                       \
  X(CUDA_ERROR_NOT_READY, 600)                                            \
  X(CUDA_ERROR_NOT_PERMITTED, 800)                                        \
  X(CUDA_ERROR_NOT_SUPPORTED, 801)                                        \
  X(CUDA_ERROR_SYSTEM_NOT_READY, 802)                                     \
  X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)                               \
  X(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, 804)                       \
  X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                           \
  X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901)                           \
  X(CUDA_ERROR_UNKNOWN, 999)                                              \
  X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                         \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 20)                                 \
  X(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38)                                \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                     \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                     \
  X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)         \
  X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103) \
  X(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 3)                   \
  X(CU_COMPUTEMODE_DEFAULT, 0)                                            \
  X(CU_COMPUTEMODE_PROHIBITED, 2)                                         \
  X(CU_COMPUTEMODE_EXCLUSIVE_PROCESS, 3)                                  \
  X(CU_MEMORYTYPE_UNIFIED, 4)                                             \
  X(CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                     \
  X(CU_MEM_LOCATION_TYPE_DEVICE, 1)                                       \
  X(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                          \
  X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                                \
  X(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)

enum { LS_DRIVER_VALUES(LS_VALUE) };

#define LS_DRIVER_CALLS(X)                                                                       \
  X(CUresult, cuInit, (unsigned flags))                                                          \
  X(CUresult, cuDriverGetVersion, (int *version))                                                \
  X(CUresult, cuGetErrorName, (CUresult error, const char **text))                               \
  X(CUresult, cuGetErrorString, (CUresult error, const char **text))                             \
  X(CUresult, cuDeviceGetCount, (int *count))                                                    \
  X(CUresult, cuDeviceGet, (CUdevice * device, int ordinal))                                     \
  X(CUresult, cuDeviceGetName, (char *name, int bytes, CUdevice device))                         \
  X(CUresult, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                              \
  X(CUresult, cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                            \
  X(CUresult, cuDeviceGetAttribute, (int *value, CUenum attribute, CUdevice device))             \
  X(CUresult, cuDeviceGetPCIBusId, (char *id, int bytes, CUdevice device))                       \
  X(CUresult, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                  \
  X(CUresult, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                   \
  X(CUresult, cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned flags))                  \
  X(CUresult, cuCtxSetCurrent, (CUcontext context))                                              \
  X(CUresult, cuCtxGetCurrent, (CUcontext * context))                                            \
  X(CUresult, cuCtxSynchronize, (void))                                                          \
  X(CUresult, cuCtxGetStreamPriorityRange, (int *least, int *greatest))                          \
  X(CUresult, cuMemGetInfo_v2, (size_t * left, size_t * total))                                  \
  X(CUresult, cuMemGetAllocationGranularity,                                                     \
    (size_t * bytes, const CUmemAllocationProp *of, CUenum option))                              \
  X(CUresult, cuMemCreate,                                                                       \
    (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *of,         \
     unsigned long long flags))                                                                  \
  X(CUresult, cuMemRelease, (CUmemGenericAllocationHandle handle))                               \
  X(CUresult, cuMemAddressReserve,                                                               \
    (CUdeviceptr * at, size_t bytes, size_t alignment, CUdeviceptr wish,                         \
     unsigned long long flags))                                                                  \
  X(CUresult, cuMemAddressFree, (CUdeviceptr at, size_t bytes))                                  \
  X(CUresult, cuMemMap,                                                                          \
    (CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,           \
     unsigned long long flags))                                                                  \
  X(CUresult, cuMemUnmap, (CUdeviceptr at, size_t bytes))                                        \
  X(CUresult, cuMemSetAccess,                                                                    \
    (CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count))                 \
  X(CUresult, cuMemExportToShareableHandle,                                                      \
    (void *shared, CUmemGenericAllocationHandle handle, CUenum type, unsigned long long flags))  \
  X(CUresult, cuMemImportFromShareableHandle,                                                    \
    (CUmemGenericAllocationHandle * handle, void *shared, CUenum type))                          \
  X(CUresult, cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority))     \
  X(CUresult, cuStreamDestroy_v2, (CUstream stream))                                             \
  X(CUresult, cuStreamSynchronize, (CUstream stream))                                            \
  X(CUresult, cuStreamQuery, (CUstream stream))                                                  \
  X(CUresult, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))               \
  X(CUresult, cuStreamBeginCapture_v2, (CUstream stream, CUenum mode))                           \
  X(CUresult, cuStreamEndCapture, (CUstream stream, CUgraph * graph))                            \
  X(CUresult, cuStreamIsCapturing, (CUstream stream, CUenum * status))                           \
  X(CUresult, cuEventCreate, (CUevent * event, unsigned flags))                                  \
  X(CUresult, cuEventDestroy_v2, (CUevent event))                                                \
  X(CUresult, cuEventRecord, (CUevent event, CUstream stream))                                   \
  X(CUresult, cuEventQuery, (CUevent event))                                                     \
  X(CUresult, cuEventSynchronize, (CUevent event))                                               \
  X(CUresult, cuEventElapsedTime, (float *milliseconds, CUevent begin, CUevent end))             \
  X(CUresult, cuGraphInstantiateWithParams,                                                      \
    (CUgraphExec * executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS * parameters))       \
  X(CUresult, cuGraphExecUpdate_v2,                                                              \
    (CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo * result))               \
  X(CUresult, cuGraphUpload, (CUgraphExec executable, CUstream stream))                          \
  X(CUresult, cuGraphLaunch, (CUgraphExec executable, CUstream stream))                          \
  X(CUresult, cuGraphExecDestroy, (CUgraphExec executable))                                      \
  X(CUresult, cuGraphDestroy, (CUgraph graph))                                                   \
  X(CUresult, cuLibraryLoadData,                                                                 \
    (CUlibrary * library, const void *code, CUenum *options, void **values, unsigned count,      \
     CUenum *library_options, void **library_values, unsigned library_count))                    \
  X(CUresult, cuLibraryUnload, (CUlibrary library))                                              \
  X(CUresult, cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name))      \
  X(CUresult, cuKernelGetFunction, (CUfunction * function, CUkernel kernel))                     \
  X(CUresult, cuKernelGetAttribute,                                                              \
    (int *value, CUenum attribute, CUkernel kernel, CUdevice device))                            \
  X(CUresult, cuKernelSetAttribute,                                                              \
    (CUenum attribute, int value, CUkernel kernel, CUdevice device))                             \
  X(CUresult, cuLaunchKernelEx,                                                                  \
    (const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra))         \
  X(CUresult, cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))  \
  X(CUresult, cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *of, CUstream stream))                    \
  X(CUresult, cuMemcpyHtoDAsync_v2,                                                              \
    (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                           \
  X(CUresult, cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream)) \
  X(CUresult, cuMemsetD8Async,                                                                   \
    (CUdeviceptr at, unsigned char value, size_t count, CUstream stream))                        \
  X(CUresult, cuMemsetD2D8Async,                                                                 \
    (CUdeviceptr at, size_t pitch, unsigned char value, size_t width, size_t height,             \
     CUstream stream))                                                                           \
  X(CUresult, cuMemHostAlloc, (void **at, size_t bytes, unsigned flags))                         \
  X(CUresult, cuMemFreeHost, (void *at))                                                         \
  X(CUresult, cuMemHostRegister_v2, (void *at, size_t bytes, unsigned flags))                    \
  X(CUresult, cuMemHostUnregister, (void *at))                                                   \
  X(CUresult, cuMemHostGetDevicePointer_v2, (CUdeviceptr * seen, void *at, unsigned flags))      \
  X(CUresult, cuStreamWriteValue32_v2,                                                           \
    (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags))                           \
  X(CUresult, cuStreamWaitValue32_v2,                                                            \
    (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags))                           \
  X(CUresult, cuPointerGetAttribute, (void *value, CUenum attribute, CUdeviceptr at))            \
  X(CUresult, cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer))                 \
  X(CUresult, cuDeviceGetP2PAttribute,                                                           \
    (int *value, CUenum attribute, CUdevice device, CUdevice peer))                              \
  X(CUresult, cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags))                           \
  X(CUresult, cuCtxDisablePeerAccess, (CUcontext peer))

typedef struct ls_driver_calls {
  LS_DRIVER_CALLS(LS_CALL)
} ls_driver_calls;

#endif
