/* Queues for transfers: streams beside that of a rank's kernels, events between them, copies from
 * and to other GPUs, and sums of their memory in rank order. */
#include <stdlib.h>

#include "device/cuda/cuda_gpu.h"

enum { NO_TIMING = 2 }; /* CU_EVENT_DISABLE_TIMING */

static const ls_driver_calls *driver(void) {
  return &ls_cuda_opened()->driver;
}

static CUevent event_of(ls_device_event *event) {
  return (CUevent)event;
}

static bool reaches(const ls_device_queue *queue, const ls_device_place *rank) {
  const ls_cuda_context *own = ((const ls_cuda_stream *)queue->stream)->on;
  ls_cuda_context *other;
  int can = 0;
  if (ls_cuda_choose_gpu(rank, &other, NULL) != LS_OK) return false;
  if (other == own) return true;
  return driver()->cuDeviceCanAccessPeer(&can, own->gpu.device, other->gpu.device) == 0 && can;
}

static void close(ls_device_queue *queue) {
  ls_cuda_stream *stream = queue->stream;
  *queue = (ls_device_queue){.facts = NULL};
  if (!stream) return;
  if (stream->compute) {
    (void)driver()->cuStreamSynchronize(stream->compute);
    (void)driver()->cuStreamDestroy_v2(stream->compute);
  }
  free(stream);
}

static ls_status open(const ls_device_queue *beside, ls_device_queue *made, ls_error *error) {
  enum { NON_BLOCKING = 1 };
  ls_cuda_stream *stream = calloc(1, sizeof *stream);
  *made = (ls_device_queue){.facts = beside->facts, .stream = stream};
  if (!stream) return ls_fail(error, LS_FAILED, "out of memory for a queue");
  stream->on = ((const ls_cuda_stream *)beside->stream)->on;
  /* What others wait for goes ahead of kernels that are on the GPU as well. */
  int least, greatest;
  LS_TRY(ls_cuda_gpu_did(stream->on, driver()->cuCtxGetStreamPriorityRange(&least, &greatest),
                         "cuCtxGetStreamPriorityRange", error));
  return ls_cuda_gpu_did(
      stream->on, driver()->cuStreamCreateWithPriority(&stream->compute, NON_BLOCKING, greatest),
      "cuStreamCreateWithPriority", error);
}

static ls_status make_event(const ls_device_queue *queue, ls_device_event **made, ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  CUevent event = NULL;
  const CUresult result = driver()->cuEventCreate(&event, NO_TIMING);
  *made = (ls_device_event *)event;
  return ls_cuda_gpu_did(stream->on, result, "cuEventCreate", error);
}

static void free_event(ls_device_event *event) {
  if (event) (void)driver()->cuEventDestroy_v2(event_of(event));
}

static ls_status record(const ls_device_queue *queue, ls_device_event *event, ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  return ls_cuda_gpu_did(stream->on, driver()->cuEventRecord(event_of(event), stream->compute),
                         "cuEventRecord", error);
}

static ls_status await(const ls_device_queue *queue, ls_device_event *event, ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  return ls_cuda_gpu_did(stream->on,
                         driver()->cuStreamWaitEvent(stream->compute, event_of(event), 0),
                         "cuStreamWaitEvent", error);
}

static ls_status passed(ls_device_event *event, bool *passed, ls_error *error) {
  const CUresult result = driver()->cuEventQuery(event_of(event));
  *passed = result == CUDA_SUCCESS;
  if (result == CUDA_ERROR_NOT_READY) return LS_OK;
  return ls_cuda_did(ls_cuda_opened(), result, "cuEventQuery", error);
}

static ls_status copy(const ls_device_queue *queue, const ls_device_copy *of, ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  const CUdeviceptr to = (CUdeviceptr)(uintptr_t)of->to, from = (CUdeviceptr)(uintptr_t)of->from;
  if (of->rows == 1)
    return ls_cuda_gpu_did(stream->on,
                           driver()->cuMemcpyAsync(to, from, of->width, stream->compute),
                           "cuMemcpyAsync", error);
  const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                              .srcDevice = from,
                              .srcPitch = of->from_stride,
                              .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                              .dstDevice = to,
                              .dstPitch = of->to_stride,
                              .WidthInBytes = of->width,
                              .Height = of->rows};
  return ls_cuda_gpu_did(stream->on, driver()->cuMemcpy2DAsync_v2(&rows, stream->compute),
                         "cuMemcpy2DAsync_v2", error);
}

static ls_status sum(const ls_device_queue *queue, const ls_device_sum *of, ls_error *error) {
  const ls_cuda_reduction with = {.target = of->target,
                                  .sources = of->sources,
                                  .ranks = of->ranks,
                                  .count = of->count,
                                  .dtype = of->dtype,
                                  .largest = of->largest,
                                  .accumulate = of->accumulate};
  ls_cuda_launches launches;
  LS_TRY(ls_cuda_choose_reduction(queue->facts, &with, &launches, error));
  return ls_cuda_launch_all(queue->stream, &launches, error);
}

static ls_status visit(const ls_device_queue *queue, ls_error *error) {
  const ls_cuda_context *on = ((const ls_cuda_stream *)queue->stream)->on;
  return ls_cuda_gpu_did(on, driver()->cuCtxSetCurrent(on->context), "cuCtxSetCurrent", error);
}

const ls_transfer_calls ls_cuda_transfers = {.reaches = reaches,
                                             .open = open,
                                             .close = close,
                                             .make_event = make_event,
                                             .free_event = free_event,
                                             .record = record,
                                             .await = await,
                                             .passed = passed,
                                             .copy = copy,
                                             .sum = sum,
                                             .visit = visit,
                                             .try_words = ls_cuda_try_words,
                                             .share_words = ls_cuda_share_words,
                                             .unshare_words = ls_cuda_unshare_words,
                                             .write_word = ls_cuda_write_word,
                                             .await_word = ls_cuda_await_word};
