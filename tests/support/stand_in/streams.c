/* The driver's streams, events, copies and launches. Work is put down and done later, when somebody
 * waits for it: of the streams whose next piece may begin, by what events say, one is drawn (seed=N
 * in LS_STAND_IN). drop=N: the Nth wait for an event is forgotten, and its
 * stream goes ahead of all others from then on. Kernels are those of
 * device/cuda/kernels, run by the shim. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/shim_run.h"
#include "device/cuda/driver_calls.h"
#include "device/cuda/kernels/cuda_launch.h"
#include "support/stand_in/driver.h"
#include "support/stand_in/stand_in.h"

enum {
  LAUNCH_FAILED = 719,
  NOT_FOUND = 500,
  PER_THREAD = 2,
  MOST_STREAMS = 256,
  SHARED_BYTES = 227 << 10
};

struct CUevent_st {
  uint64_t recorded, done;
  int pieces, destroyed; /* pieces of streams that it is in */
};

/* A piece of work of a stream. */
typedef struct piece {
  stand_in_work run; /* NULL: an event is recorded or waited for */
  void *data;        /* of run; freed with the piece */
  CUevent event;
  uint64_t version;
  int records;
  struct piece *next;
} piece;

struct CUstream_st {
  piece *first, *last;
  int hasty; /* it did not wait: it goes ahead of all others */
  int own;   /* of a thread: not destroyed */
};

struct CUkern_st {
  char name[64];
  int shared;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUstream streams[MOST_STREAMS];
static _Thread_local struct CUstream_st *own;
static uint64_t drawn;
static CUresult failed; /* of work that was done: it is told at every call from then on */

static uint64_t draw(void) {
  if (!drawn) drawn = (uint64_t)stand_in_number("seed", 1);
  drawn = drawn * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return drawn >> 33;
}

static int add_stream(CUstream stream) {
  for (int s = 0; s < MOST_STREAMS; s++)
    if (!streams[s]) {
      streams[s] = stream;
      return 1;
    }
  return 0;
}

/* The stream of a handle; NULL: there is none. The lock is held. */
static CUstream find(CUstream handle) {
  if ((size_t)handle == PER_THREAD) {
    if (!own) {
      own = calloc(1, sizeof *own);
      own->own = 1;
      add_stream(own);
    }
    return own;
  }
  for (int s = 0; s < MOST_STREAMS; s++)
    if (handle && streams[s] == handle && !streams[s]->own) return handle;
  return NULL;
}

static int may_begin(CUstream stream) {
  const piece *next = stream->first;
  return next && (next->run || next->records || next->event->done >= next->version);
}

static void do_next(CUstream stream) {
  piece *next = stream->first;
  stream->first = next->next;
  if (!stream->first) stream->last = NULL;
  if (next->run && !failed) failed = next->run(next->data);
  if (next->records) next->event->done = next->version;
  if (next->event && !--next->event->pieces && next->event->destroyed) free(next->event);
  free(next->data);
  free(next);
}

/* Does work until the stream has none; the lock is held. */
static void drain(CUstream until) {
  while (until->first) {
    CUstream ready[MOST_STREAMS];
    int count = 0;
    for (int s = 0; s < MOST_STREAMS; s++)
      if (streams[s] && may_begin(streams[s])) ready[count++] = streams[s];
    for (int r = 0; r < count; r++)
      if (ready[r]->hasty) ready[0] = ready[r], count = 1;
    if (!count) abort(); /* an event's version is never of the future */
    do_next(ready[draw() % (uint64_t)count]);
  }
}

static void put(CUstream stream, piece of) {
  piece *made = malloc(sizeof *made);
  *made = of;
  made->next = NULL;
  if (stream->last)
    stream->last->next = made;
  else
    stream->first = made;
  stream->last = made;
}

CUresult stand_in_enqueue(CUstream handle, stand_in_work run, const void *data, size_t bytes) {
  pthread_mutex_lock(&lock);
  CUstream stream = find(handle);
  if (stream) {
    void *copy = malloc(bytes);
    memcpy(copy, data, bytes);
    put(stream, (piece){.run = run, .data = copy});
  }
  const CUresult result = stream ? failed : CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_unlock(&lock);
  return result;
}

void stand_in_reset_streams(void) {
  failed = CUDA_SUCCESS;
  drawn = 0;
}

int stand_in_streams_left(void) {
  int count = 0;
  for (int s = 0; s < MOST_STREAMS; s++) count += streams[s] && !streams[s]->own;
  return count;
}

/* ---- streams and events ---------------------------------------------------------------------- */

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
  STAND_IN_CONTEXT();
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  (void)priority;
  pthread_mutex_lock(&lock);
  *stream = calloc(1, sizeof **stream);
  if (!add_stream(*stream)) abort();
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  STAND_IN_CONTEXT();
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  const CUresult result = stand_in_driver_enter(__func__);
  pthread_mutex_lock(&lock);
  CUstream found = find(stream);
  if (found) {
    drain(found); /* what is under way is done before it goes */
    for (int s = 0; s < MOST_STREAMS; s++)
      if (streams[s] == found) streams[s] = NULL;
    free(found);
  }
  pthread_mutex_unlock(&lock);
  return found ? result : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamSynchronize(CUstream stream) {
  STAND_IN_CONTEXT();
  pthread_mutex_lock(&lock);
  CUstream found = find(stream);
  if (found) drain(found);
  const CUresult result = found ? failed : CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
  STAND_IN_CONTEXT();
  (void)flags;
  *event = calloc(1, sizeof **event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  const CUresult result = stand_in_driver_enter(__func__);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&lock);
  event->destroyed = 1;
  if (!event->pieces) free(event);
  pthread_mutex_unlock(&lock);
  return result;
}

/* Whether this wait is the one that drop=N names; the lock is held. */
static int wait_is_dropped(void) {
  static long waits;
  return ++waits == stand_in_number("drop", 0);
}

static CUresult put_event(CUstream handle, CUevent event, int records) {
  pthread_mutex_lock(&lock);
  CUstream stream = find(handle);
  /* Nobody here means to wait for what was never recorded, which would be no wait at all. */
  const int fits = stream && event && !event->destroyed && (records || event->recorded);
  if (fits && !records && wait_is_dropped()) {
    stream->hasty = 1;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
  }
  if (fits) {
    if (records) event->recorded++;
    event->pieces++;
    put(stream, (piece){.event = event, .version = event->recorded, .records = records});
  }
  pthread_mutex_unlock(&lock);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  STAND_IN_CONTEXT();
  return put_event(stream, event, 1);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  STAND_IN_CONTEXT();
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  return put_event(stream, event, 0);
}

/* ---- copies ---------------------------------------------------------------------------------- */

typedef struct transfer {
  char *to;
  const char *from;
  size_t bytes;
} transfer;

static CUresult run_transfer(void *data) {
  const transfer *of = data;
  if (of->from)
    memmove(of->to, of->from, of->bytes);
  else
    memset(of->to, 0, of->bytes);
  return CUDA_SUCCESS;
}

static CUresult put_transfer(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device,
                             size_t bytes, CUstream stream) {
  if ((to_device && !stand_in_is_mapped(to, bytes)) ||
      (from_device && !stand_in_is_mapped(from, bytes)) ||
      (!to_device && stand_in_is_mapped(to, 1)) || (!from_device && stand_in_is_mapped(from, 1)))
    return CUDA_ERROR_INVALID_VALUE;
  const transfer made = {(char *)(size_t)to, (const char *)(size_t)from, bytes};
  return stand_in_enqueue(stream, run_transfer, &made, sizeof made);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  STAND_IN_CONTEXT();
  if (!stand_in_is_reached(to, bytes) || !stand_in_is_reached(from, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return put_transfer(to, true, from, true, bytes, stream);
}

static CUresult run_rows(void *data) {
  const CUDA_MEMCPY2D *of = data;
  for (size_t row = 0; row < of->Height; row++)
    memmove((char *)(size_t)of->dstDevice + row * of->dstPitch,
            (const char *)(size_t)of->srcDevice + row * of->srcPitch, of->WidthInBytes);
  return CUDA_SUCCESS;
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *of, CUstream stream) {
  STAND_IN_CONTEXT();
  if (of->srcMemoryType != CU_MEMORYTYPE_UNIFIED || of->dstMemoryType != CU_MEMORYTYPE_UNIFIED ||
      of->srcXInBytes || of->srcY || of->dstXInBytes || of->dstY || !of->Height ||
      !of->WidthInBytes || of->WidthInBytes > of->srcPitch || of->WidthInBytes > of->dstPitch ||
      !stand_in_is_reached(of->dstDevice, of->dstPitch * (of->Height - 1) + of->WidthInBytes) ||
      !stand_in_is_reached(of->srcDevice, of->srcPitch * (of->Height - 1) + of->WidthInBytes))
    return CUDA_ERROR_INVALID_VALUE;
  return stand_in_enqueue(stream, run_rows, of, sizeof *of);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  STAND_IN_CONTEXT();
  return put_transfer(to, true, (CUdeviceptr)(size_t)from, false, bytes, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  STAND_IN_CONTEXT();
  return put_transfer((CUdeviceptr)(size_t)to, false, from, true, bytes, stream);
}

CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t count, CUstream stream) {
  STAND_IN_CONTEXT();
  if (!stand_in_is_mapped(at, count) || value) return CUDA_ERROR_INVALID_VALUE;
  const transfer made = {(char *)(size_t)at, NULL, count};
  return stand_in_enqueue(stream, run_transfer, &made, sizeof made);
}

typedef struct rectangle {
  char *at;
  size_t pitch, width, height;
} rectangle;

static CUresult run_rectangle(void *data) {
  const rectangle *of = data;
  for (size_t row = 0; row < of->height; row++) memset(of->at + row * of->pitch, 0, of->width);
  return CUDA_SUCCESS;
}

CUresult cuMemsetD2D8Async(CUdeviceptr at, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream) {
  STAND_IN_CONTEXT();
  if (!width || !height || width > pitch || value ||
      !stand_in_is_mapped(at, pitch * (height - 1) + width))
    return CUDA_ERROR_INVALID_VALUE;
  const rectangle made = {(char *)(size_t)at, pitch, width, height};
  return stand_in_enqueue(stream, run_rectangle, &made, sizeof made);
}

/* ---- kernels --------------------------------------------------------------------------------- */

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUenum *options, void **values,
                           unsigned count, CUenum *library_options, void **library_values,
                           unsigned library_count) {
  STAND_IN_CONTEXT();
  (void)options, (void)values, (void)library_options, (void)library_values;
  if (!code || count || library_count) return CUDA_ERROR_INVALID_VALUE;
  *library = (CUlibrary)malloc(1);
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
  const CUresult result = stand_in_driver_enter(__func__);
  free(library);
  return result;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
  static struct CUkern_st kernels[MOST_STREAMS];
  STAND_IN_ENTER();
  if (!library || strlen(name) >= sizeof kernels->name) return CUDA_ERROR_INVALID_VALUE;
  if (!ls_shim_argument_bytes(name)) return NOT_FOUND;
  pthread_mutex_lock(&lock);
  int k = 0;
  while (k < MOST_STREAMS - 1 && kernels[k].name[0] && strcmp(kernels[k].name, name) != 0) k++;
  snprintf(kernels[k].name, sizeof kernels[k].name, "%s", name);
  pthread_mutex_unlock(&lock);
  *kernel = &kernels[k];
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  STAND_IN_CONTEXT();
  *function = (CUfunction)kernel;
  return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUenum attribute, int value, CUkernel kernel, CUdevice device) {
  STAND_IN_ENTER();
  (void)device;
  if (attribute != 8 || value > SHARED_BYTES) return CUDA_ERROR_INVALID_VALUE;
  kernel->shared = value;
  return CUDA_SUCCESS;
}

typedef struct launched {
  CUkernel kernel;
  CUlaunchConfig config;
  ls_cuda_arguments arguments;
} launched;

static CUresult run_launch(void *data) {
  const launched *of = data;
  const ls_shim_launch launch = {
      .name = {of->kernel->name, NULL},
      .grid = {of->config.gridDimX, of->config.gridDimY, of->config.gridDimZ},
      .block = of->config.blockDimX,
      .shared_bytes = of->config.sharedMemBytes,
      .arguments = &of->arguments,
      .argument_bytes = ls_shim_argument_bytes(of->kernel->name)};
  const char *wrong = ls_shim_run(&launch, draw());
  if (!wrong) return CUDA_SUCCESS;
  fprintf(stderr, "stand-in GPU: %s: %s\n", of->kernel->name, wrong);
  return LAUNCH_FAILED;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments,
                          void **extra) {
  STAND_IN_CONTEXT();
  CUkernel kernel = (CUkernel)function;
  const unsigned most = kernel->shared > 48 << 10 ? (unsigned)kernel->shared : 48u << 10;
  if (extra || config->numAttrs || !config->gridDimX || !config->gridDimY || !config->gridDimZ ||
      config->gridDimY > 65535 || config->gridDimZ > 65535 || !config->blockDimX ||
      config->blockDimX * config->blockDimY * config->blockDimZ > 1024 ||
      config->sharedMemBytes > most)
    return CUDA_ERROR_INVALID_VALUE;
  launched made = {.kernel = kernel, .config = *config};
  memcpy(&made.arguments, arguments[0], sizeof made.arguments);
  return stand_in_enqueue(config->hStream, run_launch, &made, sizeof made);
}
