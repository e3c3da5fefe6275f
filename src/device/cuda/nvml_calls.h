/* NVIDIA's management library (libnvidia-ml.so.1), which comes with the driver, as far as it is
 * used. Facts: nvml.h of CUDA 12.9; all of these are in the drivers of CUDA 12.0. */
#ifndef LS_DEVICE_CUDA_NVML_CALLS_H
#define LS_DEVICE_CUDA_NVML_CALLS_H

#include "device/cuda/calls.h"

typedef unsigned nvmlReturn_t, nvmlEnum; /* nvmlEnum: of any list of values */
typedef struct nvmlDevice_st *nvmlDevice_t;

typedef struct nvmlMemory_t {
  unsigned long long total, free, used; /* bytes */
} nvmlMemory_t;

typedef struct nvmlProcessInfo_t {
  unsigned pid;
  unsigned long long usedGpuMemory; /* bytes; all ones where it is not said */
  unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

#define LS_NVML_VALUES(X)                              \
  X(NVML_SUCCESS, 0)                                   \
  X(NVML_ERROR_UNINITIALIZED, 1)                       \
  X(NVML_ERROR_INVALID_ARGUMENT, 2)                    \
  X(NVML_ERROR_NOT_SUPPORTED, 3)                       \
  X(NVML_ERROR_NO_PERMISSION, 4)                       \
  X(NVML_ERROR_NOT_FOUND, 6)                           \
  X(NVML_ERROR_INSUFFICIENT_SIZE, 7)                   \
  X(NVML_ERROR_DRIVER_NOT_LOADED, 9)                   \
  X(NVML_ERROR_GPU_IS_LOST, 15)                        \
  X(NVML_ERROR_LIB_RM_VERSION_MISMATCH, 18)            \
  X(NVML_ERROR_UNKNOWN, 999)                           \
  X(NVML_CLOCK_SM, 1)                                  \
  X(NVML_CLOCK_MEM, 2)                                 \
  X(NVML_TEMPERATURE_GPU, 0)                           \
  X(NVML_MEMORY_ERROR_TYPE_UNCORRECTED, 1)             \
  X(NVML_VOLATILE_ECC, 0)                              \
  X(NVML_NVLINK_MAX_LINKS, 18)                         \
  X(NVML_TOPOLOGY_SINGLE, 10)                          \
  X(NVML_TOPOLOGY_MULTIPLE, 20)                        \
  X(NVML_TOPOLOGY_HOSTBRIDGE, 30)                      \
  X(NVML_TOPOLOGY_NODE, 40)                            \
  X(NVML_TOPOLOGY_SYSTEM, 50)                          \
  X(nvmlClocksThrottleReasonHwSlowdown, 8)             \
  X(nvmlClocksThrottleReasonHwThermalSlowdown, 64)     \
  X(nvmlClocksThrottleReasonHwPowerBrakeSlowdown, 128) \
  X(nvmlClocksEventReasonSwPowerCap, 4)                \
  X(nvmlClocksEventReasonSwThermalSlowdown, 32)        \
  X(nvmlClocksEventReasonApplicationsClocksSetting, 2)

enum { LS_NVML_VALUES(LS_VALUE) };

#define LS_NVML_CALLS(X)                                                                           \
  X(nvmlReturn_t, nvmlInit_v2, (void))                                                             \
  X(nvmlReturn_t, nvmlShutdown, (void))                                                            \
  X(const char *, nvmlErrorString, (nvmlReturn_t result))                                          \
  X(nvmlReturn_t, nvmlSystemGetDriverVersion, (char *text, unsigned bytes))                        \
  X(nvmlReturn_t, nvmlDeviceGetCount_v2, (unsigned *count))                                        \
  X(nvmlReturn_t, nvmlDeviceGetHandleByIndex_v2, (unsigned index, nvmlDevice_t *device))           \
  X(nvmlReturn_t, nvmlDeviceGetHandleByPciBusId_v2, (const char *id, nvmlDevice_t *device))        \
  X(nvmlReturn_t, nvmlDeviceGetUUID, (nvmlDevice_t device, char *text, unsigned bytes))            \
  X(nvmlReturn_t, nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t * memory))           \
  X(nvmlReturn_t, nvmlDeviceGetComputeRunningProcesses_v3,                                         \
    (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *processes))                          \
  X(nvmlReturn_t, nvmlDeviceGetClockInfo, (nvmlDevice_t device, nvmlEnum clock, unsigned *mhz))    \
  X(nvmlReturn_t, nvmlDeviceGetMaxClockInfo, (nvmlDevice_t device, nvmlEnum clock, unsigned *mhz)) \
  X(nvmlReturn_t, nvmlDeviceGetCurrentClocksThrottleReasons,                                       \
    (nvmlDevice_t device, unsigned long long *reasons))                                            \
  X(nvmlReturn_t, nvmlDeviceGetTemperature,                                                        \
    (nvmlDevice_t device, nvmlEnum sensor, unsigned *celsius))                                     \
  X(nvmlReturn_t, nvmlDeviceGetEccMode,                                                            \
    (nvmlDevice_t device, nvmlEnum * current, nvmlEnum * pending))                                 \
  X(nvmlReturn_t, nvmlDeviceGetTotalEccErrors,                                                     \
    (nvmlDevice_t device, nvmlEnum error, nvmlEnum counter, unsigned long long *count))            \
  X(nvmlReturn_t, nvmlDeviceGetRemappedRows,                                                       \
    (nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,           \
     unsigned *failed))                                                                            \
  X(nvmlReturn_t, nvmlDeviceGetCurrPcieLinkGeneration,                                             \
    (nvmlDevice_t device, unsigned *generation))                                                   \
  X(nvmlReturn_t, nvmlDeviceGetMaxPcieLinkGeneration, (nvmlDevice_t device, unsigned *generation)) \
  X(nvmlReturn_t, nvmlDeviceGetCurrPcieLinkWidth, (nvmlDevice_t device, unsigned *width))          \
  X(nvmlReturn_t, nvmlDeviceGetMaxPcieLinkWidth, (nvmlDevice_t device, unsigned *width))           \
  X(nvmlReturn_t, nvmlDeviceGetTopologyCommonAncestor,                                             \
    (nvmlDevice_t device, nvmlDevice_t peer, nvmlEnum * level))                                    \
  X(nvmlReturn_t, nvmlDeviceGetNvLinkState,                                                        \
    (nvmlDevice_t device, unsigned link, nvmlEnum *active))                                        \
  X(nvmlReturn_t, nvmlDeviceGetMigMode, (nvmlDevice_t device, unsigned *current, unsigned *pending))

typedef struct ls_nvml_calls {
  LS_NVML_CALLS(LS_CALL)
} ls_nvml_calls;

#endif
