/* The GPUs of this process: opened once, entered by rank threads. */
#include "device/cuda/cuda_device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_gpu.h"
#include "device/cuda/cuda_recipe.h"
#include "device/cuda/cuda_tuning.h"

static struct {
  pthread_mutex_t lock; /* of users, contexts and the opening */
  bool open;
  ls_arena *arena;
  ls_cuda_libraries libraries;
  ls_cuda_context gpus[LS_CUDA_MOST_GPUS];
  int count;
  bool loopback; /* ranks share GPUs */
  bool peers;    /* each GPU reads each other's memory */
  bool asked;    /* for NVML */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local ls_cuda_context *here;

const ls_cuda_libraries *ls_cuda_opened(void) {
  return &process.libraries;
}

ls_cuda_context *ls_cuda_here(void) {
  return here;
}

int ls_cuda_gpu_count(void) {
  return process.count;
}

ls_cuda_context *ls_cuda_gpu_at(int ordinal) {
  return &process.gpus[ordinal];
}

ls_status ls_cuda_gpu_did(const ls_cuda_context *on, CUresult result, const char *call,
                          ls_error *error) {
  if (result == CUDA_SUCCESS) return LS_OK;
  char text[96];
  snprintf(text, sizeof text, "%s of GPU %d", call, on->gpu.ordinal);
  return ls_cuda_did(&process.libraries, result, text, error);
}

/* ---- opening --------------------------------------------------------------------------------- */

static ls_status read_gpus(ls_error *error) {
  int count;
  LS_TRY(ls_cuda_count(&process.libraries, &count, error));
  if (!count) return ls_cuda_none_visible(error);
  process.count = count < LS_CUDA_MOST_GPUS ? count : LS_CUDA_MOST_GPUS;
  for (int g = 0; g < process.count; g++) {
    ls_cuda_gpu *gpu = &process.gpus[g].gpu;
    LS_TRY(ls_cuda_gpu_read(&process.libraries, g, gpu, error));
    if (gpu->architecture < 80)
      return ls_fail(error, LS_INPUT,
                     "GPU %d (%s) is sm_%d; expected sm_80 (Ampere) or newer: hide it with "
                     "CUDA_VISIBLE_DEVICES",
                     g, gpu->name, gpu->architecture);
    if (!gpu->virtual_memory)
      return ls_fail(error, LS_INPUT,
                     "GPU %d (%s) has no virtual memory management, as under some virtual GPUs; "
                     "expected a whole one",
                     g, gpu->name);
  }
  return LS_OK;
}

static ls_status find_peers(ls_error *error) {
  process.peers = true;
  for (int g = 0; g < process.count; g++)
    for (int other = 0; other < process.count; other++) {
      int can = 1;
      if (other != g)
        LS_TRY(
            ls_cuda_gpu_did(&process.gpus[g],
                            process.libraries.driver.cuDeviceCanAccessPeer(
                                &can, process.gpus[g].gpu.device, process.gpus[other].gpu.device),
                            "cuDeviceCanAccessPeer", error));
      process.peers = process.peers && can;
    }
  return LS_OK;
}

static ls_status open_process(ls_error *error) {
  if (process.open) return LS_OK;
  if (!process.arena) process.arena = ls_arena_create();
  process.libraries.places = ls_cuda_places_usual(process.arena);
  LS_TRY(ls_cuda_open(&process.libraries, LS_CUDA_DRIVER, error));
  LS_TRY(ls_cuda_open(&process.libraries, LS_CUDA_CUBLASLT, error));
  ls_error absent; /* our own kernels run attention then */
  (void)!ls_cuda_open(&process.libraries, LS_CUDA_CUDNN, &absent);
  (void)!ls_cuda_open(&process.libraries, LS_CUDA_NCCL,
                      &absent); /* other engines carry data then */
  LS_TRY(read_gpus(error));
  LS_TRY(find_peers(error));
  process.open = true;
  return LS_OK;
}

/* ---- entering -------------------------------------------------------------------------------- */

/* Makes what all ranks of a GPU share; the lock is held. */
static ls_status enter_gpu(ls_cuda_context *on, ls_error *error) {
  const ls_driver_calls *driver = &process.libraries.driver;
  if (!on->users) {
    LS_TRY(ls_cuda_gpu_did(on, driver->cuDevicePrimaryCtxRetain(&on->context, on->gpu.device),
                           "cuDevicePrimaryCtxRetain", error));
  }
  on->users++;
  LS_TRY(ls_cuda_gpu_did(on, driver->cuCtxSetCurrent(on->context), "cuCtxSetCurrent", error));
  if (on->module_count) return LS_OK;
  return ls_cuda_modules_load(&process.libraries, &on->gpu, on->modules, &on->module_count, error);
}

/* What the last rank of a GPU leaves goes; the thread is where it was before. */
static void leave_gpu(ls_cuda_context *on, ls_cuda_context *before) {
  const ls_driver_calls *driver = &process.libraries.driver;
  pthread_mutex_lock(&process.lock);
  if (!--on->users) {
    while (on->module_count) (void)driver->cuLibraryUnload(on->modules[--on->module_count]);
    (void)driver->cuDevicePrimaryCtxRelease_v2(on->gpu.device);
  }
  pthread_mutex_unlock(&process.lock);
  (void)driver->cuCtxSetCurrent(before ? before->context : NULL);
  here = before;
}

static void close_stream(ls_cuda_stream *stream) {
  const ls_driver_calls *driver = &process.libraries.driver;
  if (!stream) return;
  if (stream->compute) { /* what is under way after a failure still copies from the staging */
    (void)driver->cuStreamSynchronize(stream->compute);
    (void)driver->cuStreamDestroy_v2(stream->compute);
  }
  ls_cuda_staging_destroy(stream);
  ls_cuda_plans_destroy(&stream->plans);
  ls_cuda_products_destroy(&stream->products);
  free(stream);
}

static ls_status open_stream(ls_cuda_context *on, ls_cuda_stream **stream, ls_error *error) {
  enum { NON_BLOCKING = 1 };
  ls_cuda_stream *made = *stream = calloc(1, sizeof *made);
  if (!made) return ls_fail(error, LS_FAILED, "out of memory for a queue");
  made->on = on;
  LS_TRY(ls_cuda_gpu_did(
      on, process.libraries.driver.cuStreamCreateWithPriority(&made->compute, NON_BLOCKING, 0),
      "cuStreamCreateWithPriority", error));
  LS_TRY(ls_cuda_staging_create(made, error));
  LS_TRY(ls_cuda_products_create(&made->products, error));
  return ls_cuda_plans_create(made->compute, &made->plans, error);
}

/* The rank's number on the host says which; where a launcher shows each process its own GPUs, or
 * where ranks share them, the number in the process does. */
ls_status ls_cuda_choose_gpu(const ls_device_place *place, ls_cuda_context **on, ls_error *error) {
  int ordinal = place->of_host;
  if (ordinal >= process.count && getenv("CUDA_VISIBLE_DEVICES")) ordinal = place->of_process;
  if (ordinal >= process.count && process.loopback) ordinal = place->of_process % process.count;
  if (ordinal >= process.count)
    return ls_fail(error, LS_INPUT,
                   "rank %d of this host has no GPU of its own: %d %s visible; start as many ranks "
                   "a host as it has GPUs, let them share with device.loopback=true, or give "
                   "device.kind=cpu",
                   place->of_host, process.count, process.count == 1 ? "is" : "are");
  *on = &process.gpus[ordinal];
  return LS_OK;
}

static ls_status enter(const ls_device *device, const ls_device_place *place,
                       ls_device_queue queues[LS_DEVICE_QUEUES], ls_error *error) {
  ls_cuda_context *on = NULL;
  ls_cuda_stream *stream = NULL;
  LS_TRY(ls_cuda_choose_gpu(place, &on, error));
  queues[LS_TIER_DEVICE] = (ls_device_queue){.facts = &device->facts};
  queues[LS_TIER_HOST] = (ls_device_queue){.facts = &device->host};
  pthread_mutex_lock(&process.lock);
  ls_status status = enter_gpu(on, error);
  const bool entered = status == LS_OK || on->users;
  pthread_mutex_unlock(&process.lock);
  if (status == LS_OK) status = open_stream(on, &stream, error);
  if (status != LS_OK) {
    close_stream(stream);
    if (entered) leave_gpu(on, here);
    return status;
  }
  stream->before = here;
  here = on;
  queues[LS_TIER_DEVICE].stream = stream;
  return LS_OK;
}

static void leave(ls_device_queue queues[LS_DEVICE_QUEUES]) {
  ls_cuda_stream *stream = queues[LS_TIER_DEVICE].stream;
  ls_cuda_context *on = stream->on, *before = stream->before;
  close_stream(stream);
  leave_gpu(on, before);
}

static ls_status wait(const ls_device_queue *queue, ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  return ls_cuda_gpu_did(stream->on, process.libraries.driver.cuStreamSynchronize(stream->compute),
                         "cuStreamSynchronize", error);
}

/* Queues of the engines for GPUs: peer and staged, and NCCL where it may be taken as ranks meet.
 * All but staged have queues beside the kernels'. */
static void choose_queues(const ls_device_options *options, ls_device_facts *facts) {
  const bool any = !options->engine;
  const bool nccl = process.libraries.of[LS_CUDA_NCCL].handle && !options->exact &&
                    !options->loopback && (any || strcmp(options->engine, "nccl") == 0);
  facts->engine = options->engine;
  facts->queues = &ls_queues_in_process;
  facts->also = nccl ? &ls_queues_nccl : NULL;
  facts->overlaps = nccl || (process.peers && (any || strcmp(options->engine, "peer") == 0));
}

/* By the catalog, which may have it under a name of its own. */
static double sheet_flops(const ls_accelerator *reported, ls_dtype compute) {
  ls_arena *arena = ls_arena_create();
  ls_catalog *catalog;
  ls_error unread;
  const ls_accelerator *like = ls_catalog_open(arena, &catalog, &unread) == LS_OK
                                   ? ls_catalog_like(catalog, reported)
                                   : NULL;
  const ls_catalog_format format = compute == LS_BF16  ? LS_CATALOG_BF16
                                   : compute == LS_F16 ? LS_CATALOG_FP16
                                                       : LS_CATALOG_FP32;
  const double rate = like ? like->flops_per_s[format] : 0;
  ls_arena_destroy(&arena);
  return rate;
}

static ls_accelerator reported(const ls_cuda_gpu *gpu) {
  return (ls_accelerator){.id = gpu->name,
                          .name = gpu->name,
                          .source = "its driver",
                          .architecture = gpu->architecture,
                          .memory_mib = gpu->memory_bytes >> 20,
                          .processors = gpu->processors,
                          .reported = true};
}

const char *ls_cuda_driver_version(void) {
  const ls_cuda_library *of = process.libraries.of;
  ls_error ignored; /* of NVML's alone is the driver's version */
  pthread_mutex_lock(&process.lock);
  if (!process.asked) (void)!ls_cuda_open(&process.libraries, LS_CUDA_NVML, &ignored);
  process.asked = true;
  pthread_mutex_unlock(&process.lock);
  return *of[LS_CUDA_NVML].version ? of[LS_CUDA_NVML].version : of[LS_CUDA_DRIVER].version;
}

void ls_cuda_device_tell(ls_arena *arena, ls_gpus *gpus) {
  const ls_cuda_gpu *gpu = &process.gpus[0].gpu;
  *gpus = (ls_gpus){.first = reported(gpu),
                    .count = process.count,
                    .peers = process.count > 1 && process.peers,
                    .stands_on = ls_arena_printf(arena, "%s, driver %s, cuBLASLt %s", gpu->name,
                                                 ls_cuda_driver_version(),
                                                 process.libraries.of[LS_CUDA_CUBLASLT].version)};
}

/* ---- the device ------------------------------------------------------------------------------ */

ls_status ls_cuda_device_open(const ls_device_options *options, ls_device *device,
                              ls_error *error) {
  pthread_mutex_lock(&process.lock);
  const ls_status status = open_process(error);
  process.loopback = options->loopback;
  pthread_mutex_unlock(&process.lock);
  LS_TRY(status);
  if (options->compute == LS_F64)
    return ls_fail(error, LS_INPUT, "dtype: GPUs compute in fp32, bf16 or fp16, not in fp64");
  const ls_cuda_gpu *gpu = &process.gpus[0].gpu;
  const ls_accelerator as = reported(gpu);
  if (!ls_device_facts_of(&as, &device->facts))
    return ls_fail(error, LS_INPUT, "GPU 0 (%s): no recipe is known for sm_%d; take cpu", gpu->name,
                   gpu->architecture);
  ls_cuda_set_fp8(&device->facts, process.libraries.cublaslt.cublasLtGetVersion());
  choose_queues(options, &device->facts);
  /* Ranks that share a GPU reach less. */
  device->sheet_flops_per_s = options->loopback ? 0 : sheet_flops(&as, options->compute);
  device->facts.exact = options->exact;
  device->memory = &ls_cuda_memory;
  device->transfers = &ls_cuda_transfers;
  if (device->facts.also) device->communicators = &ls_cuda_communicators;
  device->calls = &ls_cuda_queue_calls;
  device->tuning = &ls_cuda_tuning;
  device->graphs = true;
  device->enter = enter;
  device->leave = leave;
  device->wait = wait;
  ls_cuda_fill_kernels(&device->kernels[LS_TIER_DEVICE]);
  return LS_OK;
}

ls_status ls_cuda_device_try(ls_error *error) {
  return ls_cuda_gpu_try(&process.libraries, &process.gpus[0].gpu, error);
}
