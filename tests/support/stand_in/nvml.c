/* NVML: all GPUs of the host, also hidden ones. Settings beside the driver's: release (its minor
 * number, 580.N.05), links (NVLinks of a GPU), width (of 16), reasons (why clocks are held down),
 * ecc (uncorrected errors; -1: there is no ECC), rows (1: to be replaced; 2: could not be), holder
 * (a pid), mig, nvml_fail (the number of a call). */
#define _GNU_SOURCE
#include "device/cuda/nvml_calls.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "support/stand_in/stand_in.h"

static int inits;

void stand_in_reset(void) {
  inits = 0;
}

const char *ls_stand_in_left(void);
const char *ls_stand_in_left(void) {
  return inits ? "nvmlShutdown was not called" : NULL;
}

static unsigned gpus(void) {
  return (unsigned)stand_in_number("gpus", 1);
}

static nvmlReturn_t enter(const char *call) {
  if (!inits && strcmp(call, "nvmlInit_v2") != 0) return NVML_ERROR_UNINITIALIZED;
  return stand_in_fails("nvml_fail", call) ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

#define ENTER()                                   \
  do {                                            \
    const nvmlReturn_t entered = enter(__func__); \
    if (entered) return entered;                  \
  } while (0)

#define ENTER_DEVICE(device)                                                        \
  do {                                                                              \
    ENTER();                                                                        \
    if (!(device) || (size_t)(device) > gpus()) return NVML_ERROR_INVALID_ARGUMENT; \
  } while (0)

nvmlReturn_t nvmlInit_v2(void) {
  ENTER();
  inits++;
  return NVML_SUCCESS;
}

/* It ends what was begun even where it fails. */
nvmlReturn_t nvmlShutdown(void) {
  const nvmlReturn_t result = enter(__func__);
  if (inits) inits--;
  return result;
}

const char *nvmlErrorString(nvmlReturn_t result) {
  return result == NVML_ERROR_UNKNOWN ? "Unknown Error" : "Some Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned bytes) {
  ENTER();
  snprintf(text, bytes, "580.%ld.05", stand_in_number("release", 65));
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
  ENTER();
  *count = gpus();
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
  ENTER();
  if (index >= gpus()) return NVML_ERROR_INVALID_ARGUMENT;
  *device = (nvmlDevice_t)(size_t)(index + 1);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device) {
  ENTER();
  unsigned bus;
  if (sscanf(id, "%*x:%x:", &bus) != 1 || bus < 16 || bus - 16 >= gpus())
    return NVML_ERROR_NOT_FOUND;
  *device = (nvmlDevice_t)(size_t)(bus - 15);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned bytes) {
  ENTER_DEVICE(device);
  snprintf(text, bytes, "GPU-%zu-5a5a", (size_t)device - 1);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
  ENTER_DEVICE(device);
  memory->total = (unsigned long long)stand_in_number("memory", 80) << 30;
  memory->used = (unsigned long long)stand_in_number("held", 0) << 30;
  memory->free = memory->total - memory->used;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_t *processes) {
  ENTER_DEVICE(device);
  const unsigned room = *count;
  *count = stand_in_number("held", 0) && stand_in_number("holder", 0);
  if (*count > room) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (*count)
    processes[0] =
        (nvmlProcessInfo_t){.pid = (unsigned)stand_in_number("holder", 0),
                            .usedGpuMemory = (unsigned long long)stand_in_number("held", 0) << 30};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlEnum clock, unsigned *mhz) {
  ENTER_DEVICE(device);
  *mhz = clock == NVML_CLOCK_SM ? 1755 : 2619;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlEnum clock, unsigned *mhz) {
  ENTER_DEVICE(device);
  *mhz = clock == NVML_CLOCK_SM ? 1980 : 2619;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
                                                       unsigned long long *reasons) {
  ENTER_DEVICE(device);
  *reasons = (unsigned long long)stand_in_number("reasons", 1);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlEnum sensor, unsigned *celsius) {
  ENTER_DEVICE(device);
  if (sensor != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
  *celsius = 41;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnum *current, nvmlEnum *pending) {
  ENTER_DEVICE(device);
  if (stand_in_number("ecc", 0) < 0) return NVML_ERROR_NOT_SUPPORTED;
  *current = *pending = 1;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlEnum error, nvmlEnum counter,
                                         unsigned long long *count) {
  ENTER_DEVICE(device);
  if (error != NVML_MEMORY_ERROR_TYPE_UNCORRECTED || counter != NVML_VOLATILE_ECC)
    return NVML_ERROR_INVALID_ARGUMENT;
  *count = (unsigned long long)stand_in_number("ecc", 0);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected,
                                       unsigned *uncorrected, unsigned *pending, unsigned *failed) {
  ENTER_DEVICE(device);
  const long rows = stand_in_number("rows", 0);
  *corrected = *uncorrected = 0;
  *pending = rows == 1;
  *failed = rows == 2;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned *generation) {
  ENTER_DEVICE(device);
  *generation = 1; /* it is idle */
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned *generation) {
  ENTER_DEVICE(device);
  *generation = 5;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned *width) {
  ENTER_DEVICE(device);
  *width = (unsigned)stand_in_number("width", 16);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned *width) {
  ENTER_DEVICE(device);
  *width = 16;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t peer,
                                                 nvmlEnum *level) {
  ENTER_DEVICE(device);
  if (!peer || (size_t)peer > gpus() || peer == device) return NVML_ERROR_INVALID_ARGUMENT;
  const size_t a = (size_t)device - 1, b = (size_t)peer - 1; /* two on a switch, four on a node */
  *level = a / 2 == b / 2   ? NVML_TOPOLOGY_SINGLE
           : a / 4 == b / 4 ? NVML_TOPOLOGY_NODE
                            : NVML_TOPOLOGY_SYSTEM;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, nvmlEnum *active) {
  ENTER_DEVICE(device);
  if (link >= NVML_NVLINK_MAX_LINKS) return NVML_ERROR_INVALID_ARGUMENT;
  if (stand_in_is("peers", "none") || stand_in_is("peers", "pcie")) return NVML_ERROR_NOT_SUPPORTED;
  *active = link < (unsigned)stand_in_number("links", 18);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
  ENTER_DEVICE(device);
  *current = *pending = (unsigned)stand_in_number("mig", 0);
  return NVML_SUCCESS;
}
