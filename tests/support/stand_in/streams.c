/* The driver's streams, events, graphs, copies and launches. Work is put down and done later, when
 * somebody waits for it: of the streams whose next piece may begin, by what events say, one is
 * drawn (seed=N in LS_STAND_IN). drop=N: the Nth wait for an event is forgotten, its stream goes
 * ahead of all others from then on, and the one that it did not wait for behind them; drop_word=N:
 * the Nth for a word. early=N: the Nth word is written at once, ahead of what is on its stream.
 * slow=US: each piece of work takes as long. Kernels are those of device/cuda/kernels, run by the
 * shim.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
  MOST_GRAPHS = 65536,
  ILLEGAL_ADDRESS = 700,
  REST_US = 100,
  SHARED_BYTES = 227 << 10
};

struct CUevent_st {
  uint64_t recorded, done;
  double at; /* of its stream's time, when it was done last */
  int untimed;
  int pieces, destroyed; /* pieces of streams that it is in */
  CUstream on;           /* that it was recorded on last */
};

/* A piece of work of a stream. */
typedef struct piece {
  stand_in_work run;    /* NULL: an event is recorded or waited for */
  stand_in_ready ready; /* NULL: run may begin when all before it has ended */
  void *data;           /* of run; freed with the piece */
  size_t bytes;
  CUevent event;
  uint64_t version;
  int records;
  struct piece *next;
} piece;

/* Work in its order, captured or made of what was. */
struct CUgraph_st {
  piece *first, *last;
  int spoiled; /* by a call that a capture does not allow */
};

struct CUgraphExec_st {
  struct CUgraph_st of;
};

struct CUstream_st {
  piece *first, *last;
  int hasty;         /* it did not wait: it goes ahead of all others */
  int late;          /* it is what was not waited for: it goes behind all others */
  int own;           /* of a thread: not destroyed */
  int context;       /* that it was made in */
  double time;       /* milliseconds of all its work so far */
  size_t cleared;    /* bytes, since a product began last */
  CUgraph capturing; /* what is put goes there */
};

struct CUkern_st {
  char name[64];
  int shared;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUstream streams[MOST_STREAMS];
static _Thread_local struct CUstream_st *own;
static _Thread_local CUstream captured; /* by this thread */
static CUgraphExec executables[MOST_GRAPHS];
static uint64_t drawn;
static double lasted;   /* of the work that is being done */
static CUstream doing;  /* that it is of */
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

static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

/* A thread's own stream goes with it. */
static void drop_own(void *stream) {
  pthread_mutex_lock(&lock);
  for (int s = 0; s < MOST_STREAMS; s++)
    if (streams[s] == stream) streams[s] = NULL;
  pthread_mutex_unlock(&lock);
  free(stream);
}

static void make_own_key(void) {
  if (pthread_key_create(&own_key, drop_own)) abort();
}

/* The stream of a handle; NULL: there is none. The lock is held. */
static CUstream find(CUstream handle) {
  if ((size_t)handle == PER_THREAD) {
    if (!own) {
      own = calloc(1, sizeof *own);
      own->own = 1;
      pthread_once(&own_once, make_own_key);
      if (!add_stream(own) || pthread_setspecific(own_key, own)) abort();
    }
    return own;
  }
  for (int s = 0; s < MOST_STREAMS; s++)
    if (handle && streams[s] == handle && !streams[s]->own) return handle;
  return NULL;
}

static int may_begin(CUstream stream) {
  const piece *next = stream->first;
  if (next && next->ready) return next->ready(next->data);
  return next && (next->run || next->records || next->event->done >= next->version);
}

/* Whether other processes, or other threads of this one, are waited for. */
static int awaits_others(void) {
  for (int s = 0; s < MOST_STREAMS; s++)
    if (streams[s] && streams[s]->first && streams[s]->first->ready) return 1;
  return 0;
}

static void pause_for(long microseconds) {
  pthread_mutex_unlock(&lock);
  usleep((unsigned)microseconds);
  pthread_mutex_lock(&lock);
}

static void do_next(CUstream stream) {
  piece *next = stream->first;
  stream->first = next->next;
  if (!stream->first) stream->last = NULL;
  lasted = next->run ? 1e-3 : 0;
  doing = stream;
  if (next->run && !failed) failed = next->run(next->data);
  stream->time += lasted;
  if (next->records) next->event->done = next->version, next->event->at = stream->time;
  if (next->event && !--next->event->pieces && next->event->destroyed) free(next->event);
  free(next->data);
  free(next);
}

void stand_in_lasts(double milliseconds) {
  lasted = milliseconds;
}

bool stand_in_is_cold(void) {
  const bool cold = doing->cleared > STAND_IN_CACHE;
  doing->cleared = 0;
  return cold;
}

/* Does a piece of work of any stream that may begin one, if there is one; the lock is held. */
static int do_any(void) {
  CUstream ready[MOST_STREAMS];
  int count = 0;
  for (int s = 0; s < MOST_STREAMS; s++)
    if (streams[s] && may_begin(streams[s])) ready[count++] = streams[s];
  for (int r = 0; r < count; r++)
    if (ready[r]->hasty) ready[0] = ready[r], count = 1;
  for (int r = count; r-- > 0 && count > 1;)
    if (ready[r]->late) ready[r] = ready[--count];
  if (!count) return 0;
  do_next(ready[draw() % (uint64_t)count]);
  const long slow = stand_in_number("slow", 0);
  if (slow) pause_for(slow);
  return count;
}

/* The same, which waits for one; the lock is held. */
static void do_one(void) {
  if (do_any()) return;
  if (!awaits_others()) abort(); /* an event's version is never of the future */
  pause_for(REST_US);
}

/* What streams have is done also while nobody here waits for it. */
static void *do_all(void *unused) {
  (void)unused;
  pthread_mutex_lock(&lock);
  for (;;)
    if (!do_any()) pause_for(REST_US);
  return NULL;
}

/* Does work until the stream has none; the lock is held. */
static void drain(CUstream until) {
  while (until->first) do_one();
}

static void put(piece **first, piece **last, piece of) {
  piece *made = malloc(sizeof *made);
  *made = of;
  made->next = NULL;
  if (*last)
    (*last)->next = made;
  else
    *first = made;
  *last = made;
}

static void put_work(piece **first, piece **last, stand_in_work run, const void *data,
                     size_t bytes) {
  void *copy = malloc(bytes);
  memcpy(copy, data, bytes);
  put(first, last, (piece){.run = run, .data = copy, .bytes = bytes});
}

/* Whether the stream is one of the current context's. */
static bool is_here(const struct CUstream_st *stream) {
  return stream && (stream->own || stream->context == stand_in_context());
}

CUresult stand_in_enqueue(CUstream handle, stand_in_work run, const void *data, size_t bytes) {
  pthread_mutex_lock(&lock);
  CUstream stream = find(handle);
  if (!is_here(stream)) stream = NULL;
  if (stream && stream->capturing)
    put_work(&stream->capturing->first, &stream->capturing->last, run, data, bytes);
  else if (stream)
    put_work(&stream->first, &stream->last, run, data, bytes);
  const CUresult result = stream ? failed : CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult stand_in_enqueue_when(CUstream handle, stand_in_ready ready, stand_in_work run,
                               const void *data, size_t bytes) {
  static int started;
  pthread_mutex_lock(&lock);
  CUstream stream = find(handle);
  const bool may = is_here(stream) && !stream->capturing;
  if (may) {
    put_work(&stream->first, &stream->last, run, data, bytes);
    stream->last->ready = ready;
  }
  pthread_t thread;
  if (may && !started) started = !pthread_create(&thread, NULL, do_all, NULL);
  pthread_mutex_unlock(&lock);
  return may ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
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
  (*stream)->context = stand_in_context();
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
  STAND_IN_NOT_CAPTURED();
  pthread_mutex_lock(&lock);
  CUstream found = find(stream);
  if (found) drain(found);
  const CUresult result = found ? failed : CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
  enum { UNTIMED = 2 }; /* CU_EVENT_DISABLE_TIMING */
  STAND_IN_CONTEXT();
  *event = calloc(1, sizeof **event);
  (*event)->untimed = (flags & UNTIMED) != 0;
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
  if (records && !is_here(stream)) stream = NULL;
  if (stream && stream->capturing) { /* no program here has two streams in one graph */
    stream->capturing->spoiled = 1;
    pthread_mutex_unlock(&lock);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  /* Nobody here means to wait for what was never recorded, which would be no wait at all. */
  const int fits = stream && event && !event->destroyed && (records || event->recorded);
  if (fits && !records && wait_is_dropped()) {
    stream->hasty = 1;
    for (int s = 0; s < MOST_STREAMS; s++)
      if (streams[s] && streams[s] == event->on) streams[s]->late = 1;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
  }
  if (fits) {
    if (records) event->recorded++;
    if (records) event->on = stream;
    event->pieces++;
    put(&stream->first, &stream->last,
        (piece){.event = event, .version = event->recorded, .records = records});
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

/* Of what was recorded last; nothing where it never was. */
CUresult cuEventSynchronize(CUevent event) {
  STAND_IN_CONTEXT();
  STAND_IN_NOT_CAPTURED();
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&lock);
  while (event->done < event->recorded) do_one();
  const CUresult result = failed;
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult cuEventQuery(CUevent event) {
  STAND_IN_CONTEXT();
  STAND_IN_NOT_CAPTURED();
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&lock);
  const CUresult result = event->done < event->recorded ? CUDA_ERROR_NOT_READY : failed;
  pthread_mutex_unlock(&lock);
  return result;
}

/* Of two that were made to tell it, recorded, and have passed. */
CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end) {
  STAND_IN_CONTEXT();
  if (!begin || !end || begin->untimed || end->untimed || !begin->recorded || !end->recorded)
    return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&lock);
  const int passed = begin->done >= begin->recorded && end->done >= end->recorded;
  *milliseconds = (float)(end->at - begin->at);
  const CUresult result = passed ? failed : CUDA_ERROR_NOT_READY;
  pthread_mutex_unlock(&lock);
  return result;
}

/* ---- words ----------------------------------------------------------------------------------- */

typedef struct word {
  _Atomic uint32_t *at;
  uint32_t value;
} word;

/* The word where it still is; it may have been unpinned since. */
static CUresult write_word(void *data) {
  const word *of = data;
  atomic_store(of->at, of->value);
  return CUDA_SUCCESS;
}

static int has_come(void *data) {
  const word *of = data;
  return (int32_t)(atomic_load(of->at) - of->value) >= 0;
}

static int at_once(void *data) {
  (void)data;
  return 1;
}

static CUresult nothing(void *data) {
  (void)data;
  return CUDA_SUCCESS;
}

/* What every call of a word begins with. */
static CUresult find_word(CUdeviceptr seen, uint32_t value, unsigned flags, word *made) {
  if (stand_in_is("words", "none")) return CUDA_ERROR_NOT_SUPPORTED;
  *made = (word){stand_in_word(seen), value};
  return made->at && !flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags) {
  static _Atomic long writes;
  word made;
  STAND_IN_CONTEXT();
  const CUresult found = find_word(at, value, flags, &made);
  if (found) return found;
  if (++writes == stand_in_number("early", 0)) return write_word(&made);
  return stand_in_enqueue_when(stream, at_once, write_word, &made, sizeof made);
}

CUresult cuStreamWaitValue32_v2(CUstream handle, CUdeviceptr at, uint32_t value, unsigned flags) {
  static long waits;
  word made;
  STAND_IN_CONTEXT();
  const CUresult found = find_word(at, value, flags, &made);
  if (found) return found;
  pthread_mutex_lock(&lock);
  CUstream stream = find(handle);
  const bool dropped = stream && ++waits == stand_in_number("drop_word", 0);
  if (dropped) stream->hasty = 1;
  pthread_mutex_unlock(&lock);
  return dropped ? CUDA_SUCCESS
                 : stand_in_enqueue_when(handle, has_come, nothing, &made, sizeof made);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static void forget(CUgraph graph) {
  for (piece *next; graph->first; graph->first = next) {
    next = graph->first->next;
    free(graph->first->data);
    free(graph->first);
  }
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUenum mode) {
  enum { OF_THIS_THREAD = 1 };
  STAND_IN_CONTEXT();
  pthread_mutex_lock(&lock);
  CUstream stream = find(handle);
  const bool may =
      is_here(stream) && !stream->own && !stream->capturing && !captured && mode == OF_THIS_THREAD;
  if (may) {
    captured = stream;
    stream->capturing = calloc(1, sizeof *stream->capturing);
    stand_in_captures(&stream->capturing->spoiled);
  }
  pthread_mutex_unlock(&lock);
  return may ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* It ends the capture also where it fails. */
CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph) {
  const CUresult entered = stand_in_driver_enter(__func__);
  *graph = NULL;
  pthread_mutex_lock(&lock);
  CUstream stream = find(handle);
  if (!stream || !stream->capturing || stream != captured) {
    pthread_mutex_unlock(&lock);
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUgraph made = stream->capturing;
  stream->capturing = NULL;
  captured = NULL;
  stand_in_captures(NULL);
  pthread_mutex_unlock(&lock);
  const CUresult result = made->spoiled ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : entered;
  if (!result) {
    *graph = made;
    return CUDA_SUCCESS;
  }
  forget(made);
  free(made);
  return result;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *executable, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
  STAND_IN_CONTEXT();
  STAND_IN_NOT_CAPTURED();
  if (!graph || parameters->flags) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExec made = calloc(1, sizeof *made);
  for (const piece *each = graph->first; each; each = each->next)
    put_work(&made->of.first, &made->of.last, each->run, each->data, each->bytes);
  pthread_mutex_lock(&lock);
  int e = 0;
  while (e < MOST_GRAPHS && executables[e]) e++;
  if (e == MOST_GRAPHS) abort();
  executables[e] = *executable = made;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

/* Where it is among those that are there; -1: it is not. The lock is held. */
static int find_executable(CUgraphExec executable) {
  for (int e = 0; e < MOST_GRAPHS; e++)
    if (executable && executables[e] == executable) return e;
  return -1;
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream handle) {
  STAND_IN_CONTEXT();
  pthread_mutex_lock(&lock);
  CUstream stream = find(handle);
  const bool may = is_here(stream) && find_executable(executable) >= 0;
  const bool captures = may && stream->capturing;
  for (const piece *each = may && !captures ? executable->of.first : NULL; each; each = each->next)
    put_work(&stream->first, &stream->last, each->run, each->data, each->bytes);
  const CUresult result = !may       ? CUDA_ERROR_INVALID_HANDLE
                          : captures ? CUDA_ERROR_NOT_SUPPORTED
                                     : failed;
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
  const CUresult result = stand_in_driver_enter(__func__);
  pthread_mutex_lock(&lock);
  const int e = find_executable(executable);
  if (e >= 0) executables[e] = NULL;
  pthread_mutex_unlock(&lock);
  if (e < 0) return CUDA_ERROR_INVALID_HANDLE;
  forget(&executable->of);
  free(executable);
  return result;
}

CUresult cuGraphDestroy(CUgraph graph) {
  const CUresult result = stand_in_driver_enter(__func__);
  if (!graph) return CUDA_ERROR_INVALID_HANDLE;
  forget(graph);
  free(graph);
  return result;
}

/* ---- copies ---------------------------------------------------------------------------------- */

typedef struct transfer {
  char *to;
  const char *from;
  size_t bytes;
  bool to_device, from_device;
} transfer;

/* Many whole pages of a file are given back, which leaves zeros: most are never looked at. */
static void clear(char *at, size_t bytes) {
  enum { PAGE = 4096, MANY = 64 * PAGE };
  char *first = (char *)(((size_t)at + PAGE - 1) / PAGE * PAGE);
  char *end = (char *)(((size_t)at + bytes) / PAGE * PAGE);
  const bool given = bytes >= MANY && !madvise(first, (size_t)(end - first), MADV_REMOVE);
  memset(at, 0, given ? (size_t)(first - at) : bytes);
  if (given) memset(end, 0, (size_t)(at + bytes - end));
}

/* What was there as it was put may be gone by now. */
static CUresult run_transfer(void *data) {
  const transfer *of = data;
  if ((of->to_device && !stand_in_is_mapped((CUdeviceptr)(size_t)of->to, of->bytes)) ||
      (of->from_device && !stand_in_is_mapped((CUdeviceptr)(size_t)of->from, of->bytes)))
    return stand_in_works_on_nothing(), ILLEGAL_ADDRESS;
  if (of->from)
    memmove(of->to, of->from, of->bytes);
  else
    clear(of->to, of->bytes), doing->cleared += of->bytes;
  return CUDA_SUCCESS;
}

static CUresult put_transfer(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device,
                             size_t bytes, CUstream stream) {
  if ((to_device && !stand_in_is_mapped(to, bytes)) ||
      (from_device && !stand_in_is_mapped(from, bytes)) ||
      (!to_device && stand_in_is_mapped(to, 1)) || (!from_device && stand_in_is_mapped(from, 1)))
    return CUDA_ERROR_INVALID_VALUE;
  if ((!to_device && !stand_in_is_pinned((void *)(size_t)to, bytes)) ||
      (!from_device && !stand_in_is_pinned((void *)(size_t)from, bytes)))
    STAND_IN_NOT_CAPTURED(); /* the driver would copy to a buffer of its own and wait */
  const transfer made = {(char *)(size_t)to, (const char *)(size_t)from, bytes, to_device,
                         from_device};
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
  const transfer made = {(char *)(size_t)at, NULL, count, true, false};
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
  STAND_IN_NOT_CAPTURED();
  if (stand_in_is("code", "none")) return CUDA_ERROR_NO_BINARY_FOR_GPU;
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
  STAND_IN_NOT_CAPTURED(); /* it may load code */
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
  /* Unasked it is 48 KiB less the kernel's own arrays, which are not known here. */
  const unsigned most = kernel->shared ? (unsigned)kernel->shared : 32u << 10;
  if (extra || config->numAttrs || !config->gridDimX || !config->gridDimY || !config->gridDimZ ||
      config->gridDimY > 65535 || config->gridDimZ > 65535 || !config->blockDimX ||
      config->blockDimX * config->blockDimY * config->blockDimZ > 1024 ||
      config->sharedMemBytes > most)
    return CUDA_ERROR_INVALID_VALUE;
  launched made = {.kernel = kernel, .config = *config};
  memcpy(&made.arguments, arguments[0], sizeof made.arguments);
  return stand_in_enqueue(config->hStream, run_launch, &made, sizeof made);
}
