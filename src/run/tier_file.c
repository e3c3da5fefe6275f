#include "run/tier_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#ifdef LS_HAVE_URING
#include <liburing.h>
#endif

#include "base/arena.h"

/* Requests that are under way at once: enough for a drive's queue, and for what one job leaves. */
enum { REQUEST_BYTES = 4 << 20, RING_REQUESTS = 64, THREADS = 4, BLOCK = 4096 };

typedef struct request {
  ls_file_job *job;
  int64_t begin, bytes; /* of the job */
  bool busy;
  int64_t number; /* of the entry by which it goes to the ring */
} request;

struct ls_tier_file {
  int direct, buffered; /* descriptors of the same file; `direct` may be `buffered` */
  bool rings, threads;  /* which of the two there are */
  char note[256];
  ls_file_job *first, *last; /* with bytes that were not handed out */
#ifdef LS_HAVE_URING
  struct io_uring ring;
#endif
  int64_t prepared, given; /* entries of the ring; those that the kernel has taken */
  int broken;              /* errno of a ring that takes no more; 0: it does */
  request requests[RING_REQUESTS];
  int under_way;
  pthread_t thread[THREADS];
  int thread_count;
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  bool stop;
};

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* The next request of the oldest job that has one. */
static bool take(ls_tier_file *file, request *made) {
  ls_file_job *job = file->first;
  if (!job) return false;
  *made = (request){.job = job,
                    .begin = job->asked,
                    .bytes = smaller(REQUEST_BYTES, job->bytes - job->asked),
                    .busy = true};
  job->asked += made->bytes;
  if (job->asked == job->bytes) file->first = job->next;
  if (!file->first) file->last = NULL;
  return true;
}

/* The bytes from which a transfer that came back short can go on: O_DIRECT knows whole blocks. */
static int64_t grain_of(const ls_tier_file *file, int descriptor) {
  return descriptor == file->buffered ? 1 : BLOCK;
}

static int transfer(const ls_tier_file *file, int descriptor, bool writes, char *memory,
                    int64_t offset, int64_t bytes) {
  const int64_t grain = grain_of(file, descriptor);
  while (bytes > 0) {
    ssize_t some = writes ? pwrite(descriptor, memory, (size_t)bytes, offset)
                          : pread(descriptor, memory, (size_t)bytes, offset);
    if (some < 0 && errno == EINTR) continue;
    if (some < 0) return errno;
    some -= some % grain;
    if (some == 0) return writes ? ENOSPC : EIO; /* reads end before the file was as long */
    memory += some;
    offset += some;
    bytes -= some;
  }
  return 0;
}

int ls_tier_file_read(const ls_tier_file *file, void *data, int64_t offset, int64_t bytes) {
  return transfer(file, file->buffered, false, data, offset, bytes);
}

int ls_tier_file_write(const ls_tier_file *file, const void *data, int64_t offset, int64_t bytes) {
  return transfer(file, file->buffered, true, (char *)(uintptr_t)data, offset, bytes);
}

int ls_tier_file_blocks(const ls_tier_file *file, bool writes, char *memory, int64_t offset,
                        int64_t bytes) {
  return transfer(file, file->direct, writes, memory, offset, bytes);
}

static void *run_thread(void *argument) {
  ls_tier_file *file = argument;
  pthread_mutex_lock(&file->lock);
  while (!file->stop) {
    request mine;
    if (!take(file, &mine)) {
      pthread_cond_wait(&file->work, &file->lock);
      continue;
    }
    ls_file_job *job = mine.job;
    pthread_mutex_unlock(&file->lock);
    const int reason = transfer(file, file->direct, job->writes, job->memory + mine.begin,
                                job->offset + mine.begin, mine.bytes);
    pthread_mutex_lock(&file->lock);
    if (reason && !job->reason) job->reason = reason;
    job->done += mine.bytes;
    if (job->done == job->bytes) pthread_cond_broadcast(&file->done);
  }
  pthread_mutex_unlock(&file->lock);
  return NULL;
}

#ifdef LS_HAVE_URING

static void submit(ls_tier_file *file, request *part) {
  struct io_uring_sqe *entry = io_uring_get_sqe(&file->ring);
  LS_ASSERT(entry);
  const ls_file_job *job = part->job;
  char *memory = job->memory + part->begin;
  const uint64_t offset = (uint64_t)(job->offset + part->begin);
  if (job->writes)
    io_uring_prep_write(entry, file->direct, memory, (unsigned)part->bytes, offset);
  else
    io_uring_prep_read(entry, file->direct, memory, (unsigned)part->bytes, offset);
  io_uring_sqe_set_data(entry, part);
  part->number = file->prepared++;
}

static void end_request(ls_tier_file *file, request *part, int reason) {
  if (reason && !part->job->reason) part->job->reason = reason;
  part->job->done += part->bytes;
  part->busy = false;
  file->under_way--;
}

/* Notes how many entries the kernel took, the oldest first. Where the ring itself is broken, the
 * requests of the others end here; the kernel may be at those that it took, so these go on. */
static void note_given(ls_tier_file *file, int result) {
  if (result >= 0) file->given += result;
  if (result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY) return;
  file->broken = -result;
  for (int p = 0; p < RING_REQUESTS; p++)
    if (file->requests[p].busy && file->requests[p].number >= file->given)
      end_request(file, &file->requests[p], file->broken);
}

static void fill_ring(ls_tier_file *file) {
  for (request *part = file->requests; file->first && part < file->requests + RING_REQUESTS;) {
    if (part->busy) {
      part++;
      continue;
    }
    take(file, part);
    file->under_way++;
    if (file->broken)
      end_request(file, part, file->broken);
    else
      submit(file, part);
  }
  if (!file->broken) note_given(file, io_uring_submit(&file->ring));
}

/* Takes one request that has come back, if there is one. A broken ring is no longer waited on, but
 * what the kernel had taken still comes back to the memory that both see. */
static request *next_back(ls_tier_file *file, int *result) {
  const struct timespec moment = {.tv_nsec = 200 * 1000};
  struct io_uring_cqe *entry;
  if (!file->broken) note_given(file, io_uring_submit_and_wait(&file->ring, 1));
  if (io_uring_peek_cqe(&file->ring, &entry) != 0) {
    if (file->broken && file->under_way) nanosleep(&moment, NULL);
    return NULL;
  }
  *result = entry->res;
  request *part = io_uring_cqe_get_data(entry);
  io_uring_cqe_seen(&file->ring, entry);
  return part;
}

/* A request that came back short goes on from where it stopped. */
static void reap(ls_tier_file *file) {
  int result;
  request *part = next_back(file, &result);
  if (!part) return;
  if (result > 0) result -= result % (int)grain_of(file, file->direct);
  ls_file_job *job = part->job;
  const bool again = result == -EINTR || result == -EAGAIN;
  if (!again && (result <= 0 || result == part->bytes)) {
    end_request(file, part, result > 0 ? 0 : result < 0 ? -result : job->writes ? ENOSPC : EIO);
  } else if (file->broken) {
    end_request(file, part, file->broken);
  } else {
    const int some = again ? 0 : result;
    part->begin += some;
    part->bytes -= some;
    job->done += some;
    submit(file, part);
    note_given(file, io_uring_submit(&file->ring));
  }
}

static bool open_ring(ls_tier_file *file) {
  return io_uring_queue_init(RING_REQUESTS, &file->ring, 0) == 0;
}
static void close_ring(ls_tier_file *file) {
  io_uring_queue_exit(&file->ring);
}

#else

static void fill_ring(ls_tier_file *file) {
  (void)file;
}
static void reap(ls_tier_file *file) {
  (void)file;
}
static bool open_ring(ls_tier_file *file) {
  (void)file;
  return false;
}
static void close_ring(ls_tier_file *file) {
  (void)file;
}

#endif

void ls_tier_file_begin(ls_tier_file *file, ls_file_job *job) {
  if (!job->bytes) return;
  if (file->direct != file->buffered) job->bytes = (job->bytes + BLOCK - 1) / BLOCK * BLOCK;
  if (file->threads) pthread_mutex_lock(&file->lock);
  if (file->last) file->last->next = job;
  if (!file->first) file->first = job;
  file->last = job;
  if (file->threads) {
    pthread_cond_broadcast(&file->work);
    pthread_mutex_unlock(&file->lock);
  } else {
    fill_ring(file);
  }
}

void ls_tier_file_wait(ls_tier_file *file, ls_file_job *job) {
  if (file->rings) {
    while (job->done < job->bytes) {
      fill_ring(file);
      reap(file);
    }
    if (file->first) fill_ring(file);
    return;
  }
  pthread_mutex_lock(&file->lock);
  while (job->done < job->bytes) pthread_cond_wait(&file->done, &file->lock);
  pthread_mutex_unlock(&file->lock);
}

const char *ls_tier_file_note(const ls_tier_file *file) {
  return *file->note ? file->note : NULL;
}

/* The name goes at once: the file is deleted with its last descriptor, however the run ends. */
static ls_status open_file(ls_tier_file *file, const char *path, bool no_direct, ls_error *error) {
  char *name = NULL;
  if (asprintf(&name, "%s/lockstep-offload-XXXXXX", path) < 0)
    return ls_fail(error, LS_FAILED, "out of memory for a path");
  file->buffered = mkostemp(name, O_CLOEXEC);
  if (file->buffered < 0) {
    free(name);
    return ls_fail(error, LS_INPUT, "offload.path: %s: %s; expected a folder that can be written",
                   path, strerror(errno));
  }
  file->direct = no_direct ? -1 : open(name, O_RDWR | O_CLOEXEC | O_DIRECT);
  unlink(name);
  free(name);
  return LS_OK;
}

/* Some file systems take the flag and refuse the first read. */
static void try_direct(ls_tier_file *file) {
  void *block = aligned_alloc(BLOCK, BLOCK);
  if (file->direct >= 0 && (!block || transfer(file, file->direct, false, block, 0, BLOCK) != 0)) {
    close(file->direct);
    file->direct = -1;
  }
  free(block);
  if (file->direct < 0) file->direct = file->buffered;
}

static ls_status reserve(const ls_tier_file *file, const char *path, int64_t bytes,
                         ls_error *error) {
  const int reason = posix_fallocate(file->buffered, 0, bytes);
  if (!reason) return LS_OK;
  struct statvfs about;
  const double free_bytes =
      fstatvfs(file->buffered, &about) == 0 ? (double)about.f_bavail * (double)about.f_frsize : 0;
  return ls_fail(error,
                 reason == ENOSPC || reason == EFBIG || reason == EDQUOT ? LS_REFUTED : LS_INPUT,
                 "offload.path: %s: %s: a rank needs %.1f MiB there, %.1f are free: free some, or "
                 "name another folder",
                 path, strerror(reason), (double)bytes / 1048576, free_bytes / 1048576);
}

static ls_status start_threads(ls_tier_file *file, ls_error *error) {
  file->threads = true;
  for (; file->thread_count < THREADS; file->thread_count++) {
    const int failure = pthread_create(&file->thread[file->thread_count], NULL, run_thread, file);
    if (failure) return ls_fail(error, LS_FAILED, "cannot start a thread: %s", strerror(failure));
  }
  return LS_OK;
}

static ls_status fill_file(ls_tier_file *file, const char *path, int64_t bytes, bool no_ring,
                           bool no_direct, ls_error *error) {
  bytes = (bytes + BLOCK - 1) / BLOCK * BLOCK;
  LS_TRY(open_file(file, path, no_direct, error));
  LS_TRY(reserve(file, path, bytes, error));
  try_direct(file);
  const bool cached = file->direct == file->buffered;
  file->rings = !no_ring && open_ring(file);
  if (!file->rings) LS_TRY(start_threads(file, error));
  if (cached || !file->rings)
    snprintf(file->note, sizeof file->note, "offload.path: %.80s: %s%s%s", path,
             cached ? "no O_DIRECT there, so the page cache is used" : "",
             cached && !file->rings ? "; " : "",
             file->rings ? "" : "io_uring is not allowed here, so threads read and write");
  return LS_OK;
}

ls_status ls_tier_file_create(const char *path, int64_t bytes, bool no_ring, bool no_direct,
                              ls_tier_file **file, ls_error *error) {
  ls_tier_file *made = calloc(1, sizeof *made);
  if (!made) return ls_fail(error, LS_FAILED, "out of memory for a file");
  made->direct = made->buffered = -1;
  pthread_mutex_init(&made->lock, NULL);
  pthread_cond_init(&made->work, NULL);
  pthread_cond_init(&made->done, NULL);
  const ls_status status = fill_file(made, path, bytes, no_ring, no_direct, error);
  if (status != LS_OK) ls_tier_file_destroy(&made);
  *file = made;
  return status;
}

void ls_tier_file_destroy(ls_tier_file **file) {
  ls_tier_file *self = *file;
  if (!self) return;
  if (self->rings) {
    self->first = NULL;
    while (self->under_way) reap(self);
    close_ring(self);
  }
  pthread_mutex_lock(&self->lock);
  self->stop = true;
  self->first = NULL;
  pthread_cond_broadcast(&self->work);
  pthread_mutex_unlock(&self->lock);
  for (int t = 0; t < self->thread_count; t++) pthread_join(self->thread[t], NULL);
  if (self->direct >= 0 && self->direct != self->buffered) close(self->direct);
  if (self->buffered >= 0) close(self->buffered);
  pthread_mutex_destroy(&self->lock);
  pthread_cond_destroy(&self->work);
  pthread_cond_destroy(&self->done);
  free(self);
  *file = NULL;
}
