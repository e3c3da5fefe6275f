/* What a rank's stream does behind its kernels while the host goes on: small copies by way of
 * pinned memory, and graphs. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_gpu.h"

/* A host that is further ahead than half of this waits. */
enum { PUT_BYTES = 2 << 20, PUT_HALF = PUT_BYTES / 2, PUT_ALIGNMENT = 16 };

enum { NO_TIMING = 2, OF_THIS_THREAD = 1 }; /* CU_EVENT_DISABLE_TIMING, capture THREAD_LOCAL */

struct ls_cuda_staging {
  char *pinned; /* two halves for what is put, then a slot for each read */
  CUevent left[2], read[LS_QUEUE_READS];
  bool waits[2]; /* a half is free once its event has passed */
  int half;
  size_t used; /* of the half */
};

static const ls_driver_calls *driver(void) {
  return &ls_cuda_opened()->driver;
}

ls_status ls_cuda_staging_create(ls_cuda_stream *stream, ls_error *error) {
  ls_cuda_staging *made = stream->staging = calloc(1, sizeof *made);
  if (!made) return ls_fail(error, LS_FAILED, "out of memory for a queue");
  void *pinned;
  LS_TRY(ls_cuda_gpu_did(
      stream->on,
      driver()->cuMemHostAlloc(&pinned, PUT_BYTES + LS_QUEUE_READS * LS_QUEUE_READ_BYTES, 0),
      "cuMemHostAlloc", error));
  made->pinned = pinned;
  for (int h = 0; h < 2; h++)
    LS_TRY(ls_cuda_gpu_did(stream->on, driver()->cuEventCreate(&made->left[h], NO_TIMING),
                           "cuEventCreate", error));
  for (int s = 0; s < LS_QUEUE_READS; s++)
    LS_TRY(ls_cuda_gpu_did(stream->on, driver()->cuEventCreate(&made->read[s], NO_TIMING),
                           "cuEventCreate", error));
  return LS_OK;
}

void ls_cuda_staging_destroy(ls_cuda_stream *stream) {
  ls_cuda_staging *of = stream->staging;
  if (!of) return;
  for (int h = 0; h < 2; h++)
    if (of->left[h]) (void)driver()->cuEventDestroy_v2(of->left[h]);
  for (int s = 0; s < LS_QUEUE_READS; s++)
    if (of->read[s]) (void)driver()->cuEventDestroy_v2(of->read[s]);
  if (of->pinned) (void)driver()->cuMemFreeHost(of->pinned);
  free(of);
  stream->staging = NULL;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* The half is full: the other one is taken, once what was put from it has arrived. */
static ls_status turn(const ls_cuda_stream *stream, ls_error *error) {
  ls_cuda_staging *of = stream->staging;
  LS_TRY(ls_cuda_gpu_did(stream->on, driver()->cuEventRecord(of->left[of->half], stream->compute),
                         "cuEventRecord", error));
  of->waits[of->half] = true;
  of->half = 1 - of->half;
  of->used = 0;
  if (!of->waits[of->half]) return LS_OK;
  of->waits[of->half] = false;
  return ls_cuda_gpu_did(stream->on, driver()->cuEventSynchronize(of->left[of->half]),
                         "cuEventSynchronize", error);
}

static ls_status put(const ls_device_queue *queue, void *to, const void *from, size_t bytes,
                     ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  ls_cuda_staging *of = stream->staging;
  for (size_t at = 0; at < bytes;) {
    if (of->used == PUT_HALF) LS_TRY(turn(stream, error));
    const size_t room = PUT_HALF - of->used, some = bytes - at < room ? bytes - at : room;
    char *pinned = of->pinned + (size_t)of->half * PUT_HALF + of->used;
    memcpy(pinned, (const char *)from + at, some);
    LS_TRY(ls_cuda_gpu_did(stream->on,
                           driver()->cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)to + at, pinned,
                                                          some, stream->compute),
                           "cuMemcpyHtoDAsync_v2", error));
    of->used += (some + PUT_ALIGNMENT - 1) / PUT_ALIGNMENT * PUT_ALIGNMENT;
    at += some;
  }
  return LS_OK;
}

static ls_status clear(const ls_device_queue *queue, void *to, size_t bytes, ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  if (!bytes) return LS_OK;
  return ls_cuda_gpu_did(
      stream->on, driver()->cuMemsetD8Async((CUdeviceptr)(uintptr_t)to, 0, bytes, stream->compute),
      "cuMemsetD8Async", error);
}

static char *read_slot(const ls_cuda_staging *of, int slot) {
  return of->pinned + PUT_BYTES + (size_t)slot * LS_QUEUE_READ_BYTES;
}

static ls_status read_begin(const ls_device_queue *queue, int slot, const void *from, size_t bytes,
                            ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  const ls_cuda_staging *of = stream->staging;
  LS_ASSERT(bytes <= LS_QUEUE_READ_BYTES);
  LS_TRY(ls_cuda_gpu_did(
      stream->on,
      driver()->cuMemcpyDtoHAsync_v2(read_slot(of, slot), (CUdeviceptr)(uintptr_t)from, bytes,
                                     stream->compute),
      "cuMemcpyDtoHAsync_v2", error));
  return ls_cuda_gpu_did(stream->on, driver()->cuEventRecord(of->read[slot], stream->compute),
                         "cuEventRecord", error);
}

static ls_status read_end(const ls_device_queue *queue, int slot, void *to, size_t bytes,
                          ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  const ls_cuda_staging *of = stream->staging;
  LS_TRY(ls_cuda_gpu_did(stream->on, driver()->cuEventSynchronize(of->read[slot]),
                         "cuEventSynchronize", error));
  memcpy(to, read_slot(of, slot), bytes);
  return LS_OK;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static ls_status begin_capture(const ls_device_queue *queue, ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  return ls_cuda_gpu_did(stream->on,
                         driver()->cuStreamBeginCapture_v2(stream->compute, OF_THIS_THREAD),
                         "cuStreamBeginCapture_v2", error);
}

static ls_status end_capture(const ls_device_queue *queue, void **graph, ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  CUgraph captured = NULL;
  CUgraphExec made = NULL;
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {.flags = 0};
  *graph = NULL;
  LS_TRY(ls_cuda_gpu_did(stream->on, driver()->cuStreamEndCapture(stream->compute, &captured),
                         "cuStreamEndCapture", error));
  const ls_status status = ls_cuda_gpu_did(
      stream->on, driver()->cuGraphInstantiateWithParams(&made, captured, &parameters),
      "cuGraphInstantiateWithParams", error);
  (void)driver()->cuGraphDestroy(captured);
  LS_TRY(status);
  *graph = made;
  return LS_OK;
}

static ls_status replay(const ls_device_queue *queue, void *graph, ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  return ls_cuda_gpu_did(stream->on, driver()->cuGraphLaunch(graph, stream->compute),
                         "cuGraphLaunch", error);
}

static void drop(const ls_device_queue *queue, void *graph) {
  (void)queue;
  (void)driver()->cuGraphExecDestroy(graph);
}

const ls_queue_calls ls_cuda_queue_calls = {.put = put,
                                            .clear = clear,
                                            .read_begin = read_begin,
                                            .read_end = read_end,
                                            .begin_capture = begin_capture,
                                            .end_capture = end_capture,
                                            .replay = replay,
                                            .drop = drop};
