#include "device/device.h"

#include <omp.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cuda/cuda_device.h"

/* Libraries and loops without a count of their own take as many threads as the calling one has. */
static ls_status enter(const ls_device *device, const ls_device_place *place,
                       ls_device_queue queues[LS_DEVICE_QUEUES], ls_error *error) {
  (void)place, (void)error;
  for (int q = 0; q < LS_DEVICE_QUEUES; q++) queues[q] = (ls_device_queue){.facts = &device->facts};
  omp_set_num_threads(device->facts.threads);
  return LS_OK;
}

static void leave(ls_device_queue queues[LS_DEVICE_QUEUES]) {
  (void)queues;
}

static ls_status wait(const ls_device_queue *queue, ls_error *error) {
  (void)queue, (void)error;
  return LS_OK;
}

static size_t no_workspace(const ls_device_facts *facts, ls_op_kind kind,
                           const ls_kernel_args *args) {
  (void)facts, (void)kind, (void)args;
  return 0;
}

static const ls_device_facts reference = {.name = "reference",
                                          .set = "plain",
                                          .alignment = 8,
                                          .queues = &ls_queues_in_process,
                                          .places = true,
                                          .formats = 1u << LS_F32 | 1u << LS_F64,
                                          .bf16_gradients = 1u << LS_F32,
                                          LS_HOST_RATES,
                                          .workspace = no_workspace,
                                          .workspace_source = "its kernels need none"};

/* Kernels of the host, which are the device's own where it is one of the host. */
static ls_status fill_kernels(ls_device *device, ls_kernel_table *table, ls_error *error) {
  device->host = *ls_cpu_facts();
  if (strcmp(device->kind, "reference") != 0) return ls_cpu_kernels(table, device->compute, error);
  device->host = reference;
  if (device->compute != LS_F32 && device->compute != LS_F64)
    return ls_fail(error, LS_INPUT, "dtype: the reference kernels compute in fp32 or fp64, not %s",
                   ls_dtype_name(device->compute));
  ls_reference_kernels(table, device->compute);
  return LS_OK;
}

ls_status ls_device_open(const ls_device_options *options, ls_device *device, ls_error *error) {
  const char *usual = options->compute == LS_F64 ? "reference" : "cpu";
  *device = (ls_device){.kind = options->kind ? options->kind : usual,
                        .compute = options->compute,
                        .memory = &ls_host_memory,
                        .enter = enter,
                        .leave = leave,
                        .wait = wait};
  const bool cuda = strcmp(device->kind, "cuda") == 0;
  if (!cuda && strcmp(device->kind, "cpu") != 0 && strcmp(device->kind, "reference") != 0)
    return ls_fail(error, LS_INPUT, "device.kind: found %s; expected cpu or cuda", device->kind);
  if (cuda) LS_TRY(ls_cuda_device_open(options, device, error));
  LS_TRY(fill_kernels(device, &device->kernels[LS_TIER_HOST], error));
  device->host.threads = options->threads > 0 ? options->threads : 1;
  device->host.exact = options->exact;
  device->host.engine = options->engine;
  if (cuda) return LS_OK;
  device->kernels[LS_TIER_DEVICE] = device->kernels[LS_TIER_HOST]; /* it is the host */
  device->facts = device->host;
  return LS_OK;
}

const ls_device_facts *ls_device_facts_here(void) {
  return ls_cpu_facts();
}
