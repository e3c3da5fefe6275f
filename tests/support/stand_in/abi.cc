// Compared at compile time: our lists of NVIDIA's interfaces (namespace ours) and the real headers.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

namespace ours {
#include "device/cuda/calls.h"
#include "device/cuda/cublaslt_calls.h"
#include "device/cuda/cudnn_calls.h"
#include "device/cuda/driver_calls.h"
#include "device/cuda/nccl_calls.h"
#include "device/cuda/nvml_calls.h"
}  // namespace ours

// 0 where a header says no more than that a pointer points to something.
template <class T, class = void>
struct size_of : std::integral_constant<std::size_t, 0> {};
template <class T>
struct size_of<T, std::enable_if_t<std::is_object_v<T> && (sizeof(T) > 0)>>
    : std::integral_constant<std::size_t, sizeof(T)> {};

// It says its own size, and ours ends where NCCL 2.18's did.
template <>
struct size_of<ours::ncclConfig_t> : std::integral_constant<std::size_t, 0> {};

template <class A, class B>
constexpr bool alike() {
  if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>) {
    if constexpr (!std::is_pointer_v<A> || !std::is_pointer_v<B>) {
      return false;
    } else {
      using a = std::remove_pointer_t<A>;
      using b = std::remove_pointer_t<B>;
      if constexpr (std::is_void_v<a> || std::is_void_v<b> || size_of<a>::value == 0 ||
                    size_of<b>::value == 0)
        return true;
      else
        return sizeof(a) == sizeof(b) && std::is_const_v<a> == std::is_const_v<b>;
    }
  } else if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
    return std::is_void_v<A> && std::is_void_v<B>;
  } else {
    return sizeof(A) == sizeof(B) && std::is_floating_point_v<A> == std::is_floating_point_v<B>;
  }
}

template <class A, class B>
struct same_call : std::false_type {};
template <class R, class... A, class S, class... B>
struct same_call<R (*)(A...), S (*)(B...)> {
  static constexpr bool arguments() {
    if constexpr (sizeof...(A) == sizeof...(B))
      return (alike<A, B>() && ...);
    else
      return false;
  }
  static constexpr bool value = alike<R, S>() && arguments();
};

#define CALL(table, name)                                                                    \
  static_assert(same_call<decltype(ours::table::name), decltype(&::name)>::value, #name);
#define VALUE(name, value) static_assert((long long)(name) == (value), #name);
#define SIZE(name) static_assert(sizeof(ours::name) == sizeof(::name), #name);
#define PLACE(type, member) \
  static_assert(offsetof(ours::type, member) == offsetof(::type, member), #type "." #member);

// All versions of a function are declared by their own names, and none is another's.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
LS_DRIVER_VALUES(VALUE)
#define DRIVER_CALL(result, name, arguments) CALL(ls_driver_calls, name)
LS_DRIVER_CALLS(DRIVER_CALL)
SIZE(CUuuid)
SIZE(CUmemLocation)
SIZE(CUmemAllocationProp)
PLACE(CUmemAllocationProp, location)
PLACE(CUmemAllocationProp, allocFlags)
SIZE(CUmemAccessDesc)
PLACE(CUmemAccessDesc, flags)
SIZE(CUDA_GRAPH_INSTANTIATE_PARAMS)
PLACE(CUDA_GRAPH_INSTANTIATE_PARAMS, result_out)
SIZE(CUgraphExecUpdateResultInfo)
SIZE(CUlaunchAttribute)
PLACE(CUlaunchAttribute, value)
SIZE(CUlaunchConfig)
PLACE(CUlaunchConfig, hStream)
PLACE(CUlaunchConfig, numAttrs)
SIZE(CUDA_MEMCPY2D)
PLACE(CUDA_MEMCPY2D, srcDevice)
PLACE(CUDA_MEMCPY2D, dstDevice)
PLACE(CUDA_MEMCPY2D, WidthInBytes)

#if __has_include(<nvml.h>)
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
LS_NVML_VALUES(VALUE)
#define NVML_CALL(result, name, arguments) CALL(ls_nvml_calls, name)
LS_NVML_CALLS(NVML_CALL)
SIZE(nvmlMemory_t)
PLACE(nvmlMemory_t, free)
PLACE(nvmlMemory_t, used)
SIZE(nvmlProcessInfo_t)
PLACE(nvmlProcessInfo_t, usedGpuMemory)
#endif

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define CUBLASLT_CALL(result, name, arguments) CALL(ls_cublaslt_calls, name)
LS_CUBLASLT_CALLS(CUBLASLT_CALL)
SIZE(cublasLtMatmulAlgo_t)
SIZE(cublasLtMatmulHeuristicResult_t)
PLACE(cublasLtMatmulHeuristicResult_t, workspaceSize)
PLACE(cublasLtMatmulHeuristicResult_t, state)
#endif

#if __has_include(<cudnn.h>)
#include <cudnn.h>
LS_CUDNN_VALUES(VALUE)
#define CUDNN_CALL(result, name, arguments) CALL(ls_cudnn_calls, name)
LS_CUDNN_CALLS(CUDNN_CALL)
#endif

#if __has_include(<nccl.h>)
#include <nccl.h>
LS_NCCL_VALUES(VALUE)
#define NCCL_CALL(result, name, arguments) CALL(ls_nccl_calls, name)
LS_NCCL_CALLS(NCCL_CALL)
SIZE(ncclUniqueId)
PLACE(ncclConfig_t, version)
PLACE(ncclConfig_t, blocking)
PLACE(ncclConfig_t, netName)
PLACE(ncclConfig_t, splitShare)
constexpr ncclConfig_t nccl_initial = NCCL_CONFIG_INITIALIZER;
static_assert(nccl_initial.magic == (unsigned)ours::LS_NCCL_MAGIC, "LS_NCCL_MAGIC");
static_assert(NCCL_CONFIG_UNDEF_INT == ours::LS_NCCL_UNDEFINED, "LS_NCCL_UNDEFINED");
static_assert(NCCL_SPLIT_NOCOLOR == ours::LS_NCCL_NO_COLOR, "LS_NCCL_NO_COLOR");
#endif
