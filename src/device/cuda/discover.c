/* What the driver says of a GPU, and a trial of context, memory and kernels. */
#include "device/cuda/discover.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device/cuda/kernels/cuda_modules.h"

/* As ls_cuda_did, of a call for this GPU. */
static ls_status did(const ls_cuda_libraries *all, CUresult result, const char *call, int ordinal,
                     ls_error *error) {
  char text[96];
  if (result == CUDA_SUCCESS) return LS_OK;
  snprintf(text, sizeof text, "%s of GPU %d", call, ordinal);
  return ls_cuda_did(all, result, text, error);
}

ls_status ls_cuda_count(const ls_cuda_libraries *all, int *count, ls_error *error) {
  *count = 0;
  const CUresult result = all->driver.cuInit(0);
  if (result == CUDA_ERROR_NO_DEVICE) return LS_OK;
  LS_TRY(ls_cuda_did(all, result, "cuInit", error));
  return ls_cuda_did(all, all->driver.cuDeviceGetCount(count), "cuDeviceGetCount", error);
}

ls_status ls_cuda_none_visible(ls_error *error) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (visible)
    return ls_fail(
        error, LS_INPUT,
        "device.kind: CUDA_VISIBLE_DEVICES is \"%.40s\" and leaves no GPU; unset it, name "
        "some that nvidia-smi -L lists, or give device.kind=cpu",
        visible);
  return ls_fail(error, LS_INPUT,
                 "device.kind: no GPU is visible; lockstep doctor says why, or give "
                 "device.kind=cpu");
}

ls_status ls_cuda_gpu_read(const ls_cuda_libraries *all, int ordinal, ls_cuda_gpu *gpu,
                           ls_error *error) {
  const ls_driver_calls *driver = &all->driver;
  *gpu = (ls_cuda_gpu){.ordinal = ordinal};
  size_t bytes = 0;
  int major = 0, minor = 0, memory = 0, exports = 0, mode = 0;
  LS_TRY(did(all, driver->cuDeviceGet(&gpu->device, ordinal), "cuDeviceGet", ordinal, error));
  const CUdevice device = gpu->device;
  LS_TRY(did(all, driver->cuDeviceGetName(gpu->name, sizeof gpu->name, device), "cuDeviceGetName",
             ordinal, error));
  LS_TRY(did(all, driver->cuDeviceGetPCIBusId(gpu->bus, sizeof gpu->bus, device),
             "cuDeviceGetPCIBusId", ordinal, error));
  for (char *at = gpu->bus; *at; at++) *at = (char)tolower((unsigned char)*at); /* as in /sys */
  LS_TRY(
      did(all, driver->cuDeviceTotalMem_v2(&bytes, device), "cuDeviceTotalMem_v2", ordinal, error));
  const struct {
    CUenum attribute;
    int *value;
  } asked[] = {{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
               {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
               {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &gpu->processors},
               {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &memory},
               {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, &exports},
               {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, &mode}};
  for (size_t a = 0; a < sizeof asked / sizeof *asked; a++)
    LS_TRY(did(all, driver->cuDeviceGetAttribute(asked[a].value, asked[a].attribute, device),
               "cuDeviceGetAttribute", ordinal, error));
  gpu->architecture = 10 * major + minor;
  gpu->memory_bytes = (int64_t)bytes;
  gpu->virtual_memory = memory != 0;
  gpu->exports = exports != 0;
  gpu->mode = (CUenum)mode;
  return LS_OK;
}

/* Ends something that was begun: the first failure is the one that is told. */
static ls_status end(const ls_cuda_libraries *all, ls_status before, CUresult result,
                     const char *call, int ordinal, ls_error *error) {
  const ls_status status = did(all, result, call, ordinal, before == LS_OK ? error : NULL);
  return before != LS_OK ? before : status;
}

static ls_status try_access(const ls_cuda_libraries *all, const ls_cuda_gpu *gpu, CUdeviceptr at,
                            size_t bytes, CUmemGenericAllocationHandle handle, ls_error *error) {
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, gpu->device},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const int ordinal = gpu->ordinal;
  LS_TRY(did(all, all->driver.cuMemSetAccess(at, bytes, &access, 1), "cuMemSetAccess", ordinal,
             error));
  if (!gpu->exports) return LS_OK;
  int file = -1;
  LS_TRY(did(all,
             all->driver.cuMemExportToShareableHandle(&file, handle,
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
             "cuMemExportToShareableHandle", ordinal, error));
  close(file);
  return LS_OK;
}

static ls_status try_mapping(const ls_cuda_libraries *all, const ls_cuda_gpu *gpu, CUdeviceptr at,
                             size_t bytes, const CUmemAllocationProp *of, ls_error *error) {
  const ls_driver_calls *driver = &all->driver;
  const int ordinal = gpu->ordinal;
  CUmemGenericAllocationHandle handle;
  LS_TRY(did(all, driver->cuMemCreate(&handle, bytes, of, 0), "cuMemCreate", ordinal, error));
  ls_status status =
      did(all, driver->cuMemMap(at, bytes, 0, handle, 0), "cuMemMap", ordinal, error);
  if (status == LS_OK) {
    status = try_access(all, gpu, at, bytes, handle, error);
    status = end(all, status, driver->cuMemUnmap(at, bytes), "cuMemUnmap", ordinal, error);
  }
  return end(all, status, driver->cuMemRelease(handle), "cuMemRelease", ordinal, error);
}

static ls_status try_memory(const ls_cuda_libraries *all, const ls_cuda_gpu *gpu, ls_error *error) {
  const ls_driver_calls *driver = &all->driver;
  const int ordinal = gpu->ordinal;
  const CUmemAllocationProp of = {
      .type = CU_MEM_ALLOCATION_TYPE_PINNED,
      .requestedHandleTypes = gpu->exports ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0,
      .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu->device}};
  size_t bytes = 0;
  CUdeviceptr at = 0;
  LS_TRY(did(
      all, driver->cuMemGetAllocationGranularity(&bytes, &of, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      "cuMemGetAllocationGranularity", ordinal, error));
  LS_TRY(did(all, driver->cuMemAddressReserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve", ordinal,
             error));
  const ls_status status = try_mapping(all, gpu, at, bytes, &of, error);
  return end(all, status, driver->cuMemAddressFree(at, bytes), "cuMemAddressFree", ordinal, error);
}

ls_status ls_cuda_modules_load(const ls_cuda_libraries *all, const ls_cuda_gpu *gpu,
                               CUlibrary modules[LS_CUDA_MOST_MODULES], int *count,
                               ls_error *error) {
  /* A build without kernels has one module of nothing, which a driver refuses. */
  static const unsigned char nothing[1];
  const bool none = !ls_cuda_modules[0].name;
  for (int m = 0; m == 0 || (!none && ls_cuda_modules[m].name); m++) {
    LS_ASSERT(m < LS_CUDA_MOST_MODULES);
    const void *code = none ? nothing : ls_cuda_modules[m].image;
    const CUresult loaded =
        all->driver.cuLibraryLoadData(&modules[m], code, NULL, NULL, 0, NULL, NULL, 0);
    if (loaded && none)
      return ls_fail(error, LS_INPUT,
                     "device.kind: this build has no CUDA kernels, since no nvcc was found; build "
                     "with CUDA 12.4 or newer, or give device.kind=cpu");
    if (loaded == CUDA_ERROR_NO_BINARY_FOR_GPU || loaded == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
      return ls_fail(error, LS_INPUT,
                     "GPU %d (%s) is sm_%d, for which this build's kernels (%s) have no code that "
                     "its driver takes; update the driver, build with a newer CUDA, or give "
                     "device.kind=cpu",
                     gpu->ordinal, gpu->name, gpu->architecture, ls_cuda_modules[m].name);
    LS_TRY(did(all, loaded, "cuLibraryLoadData", gpu->ordinal, error));
    *count = m + 1;
  }
  return LS_OK;
}

static ls_status try_modules(const ls_cuda_libraries *all, const ls_cuda_gpu *gpu,
                             ls_error *error) {
  CUlibrary modules[LS_CUDA_MOST_MODULES];
  int count = 0;
  ls_status status = ls_cuda_modules_load(all, gpu, modules, &count, error);
  while (count)
    status = end(all, status, all->driver.cuLibraryUnload(modules[--count]), "cuLibraryUnload",
                 gpu->ordinal, error);
  return status;
}

ls_status ls_cuda_gpu_try(const ls_cuda_libraries *all, const ls_cuda_gpu *gpu, ls_error *error) {
  const ls_driver_calls *driver = &all->driver;
  const int ordinal = gpu->ordinal;
  CUcontext context;
  LS_TRY(did(all, driver->cuDevicePrimaryCtxRetain(&context, gpu->device),
             "cuDevicePrimaryCtxRetain", ordinal, error));
  ls_status status = did(all, driver->cuCtxSetCurrent(context), "cuCtxSetCurrent", ordinal, error);
  if (status == LS_OK) {
    if (gpu->virtual_memory) status = try_memory(all, gpu, error);
    if (status == LS_OK) status = try_modules(all, gpu, error);
    status = end(all, status, driver->cuCtxSetCurrent(NULL), "cuCtxSetCurrent", ordinal, error);
  }
  return end(all, status, driver->cuDevicePrimaryCtxRelease_v2(gpu->device),
             "cuDevicePrimaryCtxRelease_v2", ordinal, error);
}
