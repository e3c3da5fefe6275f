/* Words of the host's memory by which GPUs of several processes tell each other how far their
 * streams are: no event of one process is seen by another in a way that the host can end, and these
 * the host may write too.
 *
 * A write goes with the driver's barrier before it: whoever sees the word sees all that the stream
 * did before, wherever that lies. */
#include <pthread.h>
#include <stdatomic.h>

#include "device/cuda/cuda_gpu.h"

enum { MOST_SHARED = 256, DEFAULT = 0 /* GEQ modulo 2^32; a write with its barrier */ };

/* What is registered, by how many ranks of this process. */
static struct {
  void *base;
  int users;
} shared[MOST_SHARED];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const ls_driver_calls *driver(void) {
  return &ls_cuda_opened()->driver;
}

static CUdeviceptr address_of(const void *at) {
  return (CUdeviceptr)(uintptr_t)at;
}

/* Of this base; with NULL one that is free. The lock is held. */
static int find(const void *base) {
  int s = 0;
  while (s < MOST_SHARED && shared[s].base != base) s++;
  return s;
}

/* The lock is held. */
static ls_status register_once(const ls_cuda_context *on, void *base, size_t bytes,
                               ls_error *error) {
  enum { OF_ALL_CONTEXTS = 1, MAPPED = 2 };
  int s = find(base);
  if (s == MOST_SHARED) {
    s = find(NULL);
    if (s == MOST_SHARED) return ls_fail(error, LS_FAILED, "too much memory of words is shared");
    LS_TRY(ls_cuda_gpu_did(on,
                           driver()->cuMemHostRegister_v2(base, bytes, OF_ALL_CONTEXTS | MAPPED),
                           "cuMemHostRegister_v2", error));
    shared[s].base = base;
  }
  shared[s].users++;
  return LS_OK;
}

void ls_cuda_unshare_words(void *base) {
  pthread_mutex_lock(&lock);
  const int s = find(base);
  if (s < MOST_SHARED && !--shared[s].users) {
    shared[s].base = NULL;
    (void)driver()->cuMemHostUnregister(base);
  }
  pthread_mutex_unlock(&lock);
}

ls_status ls_cuda_share_words(const ls_device_queue *queue, void *base, size_t bytes, void **at,
                              ls_error *error) {
  const ls_cuda_context *on = ((const ls_cuda_stream *)queue->stream)->on;
  pthread_mutex_lock(&lock);
  const ls_status status = register_once(on, base, bytes, error);
  pthread_mutex_unlock(&lock);
  LS_TRY(status);
  CUdeviceptr seen = 0;
  const ls_status found =
      ls_cuda_gpu_did(on, driver()->cuMemHostGetDevicePointer_v2(&seen, base, 0),
                      "cuMemHostGetDevicePointer_v2", error);
  if (found != LS_OK) ls_cuda_unshare_words(base);
  *at = (void *)(uintptr_t)seen;
  return found;
}

ls_status ls_cuda_write_word(const ls_device_queue *queue, void *at, uint32_t value,
                             ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  return ls_cuda_gpu_did(
      stream->on,
      driver()->cuStreamWriteValue32_v2(stream->compute, address_of(at), value, DEFAULT),
      "cuStreamWriteValue32_v2", error);
}

ls_status ls_cuda_await_word(const ls_device_queue *queue, void *at, uint32_t value,
                             ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  return ls_cuda_gpu_did(
      stream->on, driver()->cuStreamWaitValue32_v2(stream->compute, address_of(at), value, DEFAULT),
      "cuStreamWaitValue32_v2", error);
}

static ls_status write_and_see(const ls_device_queue *queue, _Atomic uint32_t *word,
                               ls_error *error) {
  const ls_cuda_stream *stream = queue->stream;
  void *at;
  LS_TRY(ls_cuda_share_words(queue, word, 4096, &at, error));
  ls_status status = ls_cuda_write_word(queue, at, 1, error);
  if (status == LS_OK) status = ls_cuda_await_word(queue, at, 1, error);
  const ls_status ended =
      ls_cuda_gpu_did(stream->on, driver()->cuStreamSynchronize(stream->compute),
                      "cuStreamSynchronize", status == LS_OK ? error : NULL);
  ls_cuda_unshare_words(word);
  if (status != LS_OK || ended != LS_OK) return status != LS_OK ? status : ended;
  return atomic_load(word) == 1 ? LS_OK : ls_fail(error, LS_FAILED, "a word is not written");
}

ls_status ls_cuda_try_words(const ls_device_queue *queue, ls_error *error) {
  int none;
  _Atomic uint32_t *word = ls_host_memory.reserve(4096, false, &none);
  if (!word) return ls_fail(error, LS_FAILED, "out of memory for a word");
  const ls_status status = write_and_see(queue, word, error);
  ls_host_memory.release((void *)word, 4096);
  return status;
}
