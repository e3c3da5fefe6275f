#include "run/tiers.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "cluster/machine.h"
#include "run/tier_file.h"

/* Bytes of a device's memory that go by way of the host at once. */
enum { BOUNCE_BYTES = 4 << 20, BLOCK = 4096 };

typedef struct move {
  void *to; /* NULL: the slot is free */
  const void *from;
  int64_t bytes;
  const char *name;
  bool queued, copied; /* by the file's own queue; else by the copier, which has ended it */
  ls_status status;    /* of the copier */
  ls_error error;
  int64_t begin_ns, end_ns;
  ls_file_job job;
} move;

struct ls_tiers {
  const ls_memory_calls *memory;
  int64_t host_bytes, file_bytes;
  char *host, *file_base; /* the latter only to be pointed into */
  char *bounce;           /* NULL: the host addresses all memory */
  bool pinned_host, pinned_bounce;
  char *path;
  ls_tier_file *file;
  int count;
  move *moves;
  int *waiting; /* copies in memory, in their order: a ring of slots */
  int first_waiting, waiting_count;
  pthread_t copier;
  bool copies, stop;
  pthread_mutex_t lock;
  pthread_cond_t work, done;
};

char *ls_tiers_base(const ls_tiers *tiers, ls_tier tier) {
  return tier == LS_TIER_NVME ? tiers->file_base : tiers->host;
}

static bool lies_in(const void *address, const char *base, int64_t bytes) {
  return base && (uintptr_t)address - (uintptr_t)base < (uintptr_t)bytes;
}

ls_tier ls_tiers_of(const ls_tiers *tiers, const void *address) {
  if (lies_in(address, tiers->file_base, tiers->file_bytes)) return LS_TIER_NVME;
  return lies_in(address, tiers->host, tiers->host_bytes) ? LS_TIER_HOST : LS_TIER_DEVICE;
}

static int64_t offset_of(const ls_tiers *tiers, const void *address) {
  return (const char *)address - tiers->file_base;
}

static ls_status fail_file(const ls_tiers *tiers, bool writes, const char *name, int reason,
                           ls_error *error) {
  return ls_fail(error, LS_FAILED, "offload.path: %s: %s %s: %s", tiers->path,
                 writes ? "writing" : "reading", name, strerror(reason));
}

/* Between the file and memory that the host cannot address. */
static ls_status bounce(const ls_tiers *tiers, const move *moved, ls_error *error) {
  const bool writes = ls_tiers_of(tiers, moved->to) == LS_TIER_NVME;
  const int64_t offset = offset_of(tiers, writes ? moved->to : moved->from);
  for (int64_t at = 0; at < moved->bytes; at += BOUNCE_BYTES) {
    const int64_t left = moved->bytes - at, some = left < BOUNCE_BYTES ? left : BOUNCE_BYTES;
    const int64_t blocks = (some + BLOCK - 1) / BLOCK * BLOCK;
    const char *from = (const char *)moved->from + at;
    if (writes) LS_TRY(tiers->memory->read(tiers->bounce, from, (size_t)some, error));
    const int reason = ls_tier_file_blocks(tiers->file, writes, tiers->bounce, offset + at, blocks);
    if (reason) return fail_file(tiers, writes, moved->name, reason, error);
    char *to = (char *)moved->to + at;
    if (!writes) LS_TRY(tiers->memory->write(to, tiers->bounce, (size_t)some, error));
  }
  return LS_OK;
}

static ls_status copy(const ls_tiers *tiers, const move *moved, ls_error *error) {
  const ls_tier to = ls_tiers_of(tiers, moved->to), from = ls_tiers_of(tiers, moved->from);
  const size_t bytes = (size_t)moved->bytes;
  if (to == LS_TIER_NVME || from == LS_TIER_NVME) return bounce(tiers, moved, error);
  if (to == LS_TIER_DEVICE && from == LS_TIER_DEVICE)
    return tiers->memory->copy(moved->to, moved->from, bytes, error);
  return to == LS_TIER_HOST ? tiers->memory->read(moved->to, moved->from, bytes, error)
                            : tiers->memory->write(moved->to, moved->from, bytes, error);
}

static void *run_copier(void *argument) {
  ls_tiers *tiers = argument;
  pthread_mutex_lock(&tiers->lock);
  while (!tiers->stop) {
    if (!tiers->waiting_count) {
      pthread_cond_wait(&tiers->work, &tiers->lock);
      continue;
    }
    move *next = &tiers->moves[tiers->waiting[tiers->first_waiting]];
    tiers->first_waiting = (tiers->first_waiting + 1) % tiers->count;
    tiers->waiting_count--;
    pthread_mutex_unlock(&tiers->lock);
    next->status = copy(tiers, next, &next->error);
    pthread_mutex_lock(&tiers->lock);
    next->copied = true;
    next->end_ns = ls_now_ns();
    pthread_cond_signal(&tiers->done);
  }
  pthread_mutex_unlock(&tiers->lock);
  return NULL;
}

static ls_status map(int64_t bytes, int protection, int flags, char **base, ls_error *error) {
  if (!bytes) return LS_OK;
  void *made = mmap(NULL, (size_t)bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (made == MAP_FAILED)
    return ls_fail(error, LS_FAILED, "offload: %.1f MiB cannot be mapped: %s",
                   (double)bytes / 1048576, strerror(errno));
  *base = made;
  return LS_OK;
}

/* Has the kernel give every page now, not as each is first used: 0 or errno. */
static int fill_pages(char *base, int64_t bytes) {
  (void)madvise(base, (size_t)bytes, MADV_HUGEPAGE); /* a wish */
#ifdef MADV_POPULATE_WRITE
  int failed;
  do {
    failed = madvise(base, (size_t)bytes, MADV_POPULATE_WRITE) ? errno : 0;
  } while (failed == EINTR || failed == EAGAIN);
  if (failed != EINVAL) return failed; /* Linux before 5.14 */
#endif
  for (int64_t at = 0; at < bytes; at += 4096) *(volatile char *)(base + at) = 0;
  return 0;
}

/* Compares before it takes: of a machine or a cgroup that runs out the kernel kills a process. */
static ls_status take_host(int64_t bytes, char **base, ls_error *error) {
  const ls_memory_there machine = ls_machine_memory_there(""), own = ls_process_memory_there();
  const ls_memory_there there = own.bytes < machine.bytes ? own : machine;
  if (bytes > there.bytes)
    return ls_fail(error, LS_FAILED,
                   "offload: a rank keeps %.1f MiB in the host's memory, and %.1f are there (%s): "
                   "offload less, or to a drive (nvme)",
                   (double)bytes / 1048576, (double)there.bytes / 1048576, there.what);
  LS_TRY(map(bytes, PROT_READ | PROT_WRITE, 0, base, error));
  const int reason = bytes ? fill_pages(*base, bytes) : 0;
  if (!reason) return LS_OK;
  return ls_fail(error, LS_FAILED, "offload: %.1f MiB of the host's memory cannot be had: %s",
                 (double)bytes / 1048576, strerror(reason));
}

/* One rank of a process after the other, so that none counts on what another is about to take. */
static ls_status reserve_host(int64_t bytes, char **base, ls_error *error) {
  static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&one);
  const ls_status status = take_host(bytes, base, error);
  pthread_mutex_unlock(&one);
  return status;
}

/* So that the device copies it without a buffer in between. */
static ls_status pin(const ls_tiers *tiers, char *base, int64_t bytes, bool *pinned,
                     ls_error *error) {
  if (!base || !tiers->memory->pin) return LS_OK;
  const ls_status status = tiers->memory->pin(base, (size_t)bytes, error);
  *pinned = status == LS_OK;
  if (status != LS_OK)
    ls_error_prefix(error, "offload: %.1f MiB of the host's memory cannot be pinned",
                    (double)bytes / 1048576);
  return status;
}

static ls_status fill_tiers(ls_tiers *tiers, const ls_tiers_options *options, ls_error *error) {
  tiers->count = options->moves > 0 ? options->moves : 1;
  tiers->moves = calloc((size_t)tiers->count, sizeof *tiers->moves);
  tiers->waiting = calloc((size_t)tiers->count, sizeof *tiers->waiting);
  if (!tiers->moves || !tiers->waiting)
    return ls_fail(error, LS_FAILED, "out of memory for %d moves", tiers->count);
  tiers->memory = options->memory ? options->memory : &ls_host_memory;
  tiers->host_bytes = options->host_bytes;
  tiers->file_bytes = options->file_bytes;
  LS_TRY(reserve_host(tiers->host_bytes, &tiers->host, error));
  LS_TRY(map(tiers->file_bytes, PROT_NONE, MAP_NORESERVE, &tiers->file_base, error));
  if (tiers->file_bytes && !tiers->memory->addressable)
    LS_TRY(map(BOUNCE_BYTES, PROT_READ | PROT_WRITE, 0, &tiers->bounce, error));
  LS_TRY(pin(tiers, tiers->host, tiers->host_bytes, &tiers->pinned_host, error));
  LS_TRY(pin(tiers, tiers->bounce, BOUNCE_BYTES, &tiers->pinned_bounce, error));
  if (tiers->file_bytes) {
    tiers->path = strdup(options->path ? options->path : "");
    if (!tiers->path) return ls_fail(error, LS_FAILED, "out of memory for a path");
    LS_TRY(ls_tier_file_create(tiers->path, tiers->file_bytes, options->no_ring, options->no_direct,
                               &tiers->file, error));
  }
  if (!options->moves) return LS_OK;
  const int failure = pthread_create(&tiers->copier, NULL, run_copier, tiers);
  if (failure) return ls_fail(error, LS_FAILED, "cannot start a thread: %s", strerror(failure));
  tiers->copies = true;
  return LS_OK;
}

ls_status ls_tiers_create(const ls_tiers_options *options, ls_tiers **tiers, ls_error *error) {
  ls_tiers *made = calloc(1, sizeof *made);
  if (!made) return ls_fail(error, LS_FAILED, "out of memory for tiers");
  pthread_mutex_init(&made->lock, NULL);
  pthread_cond_init(&made->work, NULL);
  pthread_cond_init(&made->done, NULL);
  const ls_status status = fill_tiers(made, options, error);
  if (status != LS_OK) ls_tiers_destroy(&made);
  *tiers = made;
  return status;
}

void ls_tiers_destroy(ls_tiers **tiers) {
  ls_tiers *self = *tiers;
  if (!self) return;
  pthread_mutex_lock(&self->lock);
  self->stop = true;
  pthread_cond_signal(&self->work);
  pthread_mutex_unlock(&self->lock);
  if (self->copies) pthread_join(self->copier, NULL);
  ls_tier_file_destroy(&self->file);
  if (self->pinned_host) self->memory->unpin(self->host);
  if (self->pinned_bounce) self->memory->unpin(self->bounce);
  if (self->host) munmap(self->host, (size_t)self->host_bytes);
  if (self->file_base) munmap(self->file_base, (size_t)self->file_bytes);
  if (self->bounce) munmap(self->bounce, BOUNCE_BYTES);
  free(self->moves);
  free(self->waiting);
  free(self->path);
  pthread_mutex_destroy(&self->lock);
  pthread_cond_destroy(&self->work);
  pthread_cond_destroy(&self->done);
  free(self);
  *tiers = NULL;
}

static void begin_copy(ls_tiers *tiers, int slot) {
  pthread_mutex_lock(&tiers->lock);
  tiers->waiting[(tiers->first_waiting + tiers->waiting_count++) % tiers->count] = slot;
  pthread_cond_signal(&tiers->work);
  pthread_mutex_unlock(&tiers->lock);
}

ls_status ls_tiers_begin(ls_tiers *tiers, void *to, const void *from, int64_t bytes,
                         const char *name, ls_error *error) {
  int slot = 0;
  while (slot < tiers->count && tiers->moves[slot].to) slot++;
  if (slot == tiers->count)
    return ls_fail(error, LS_INTERNAL, "more than %d moves under way", tiers->count);
  move *made = &tiers->moves[slot];
  const bool writes = ls_tiers_of(tiers, to) == LS_TIER_NVME;
  const bool reads = ls_tiers_of(tiers, from) == LS_TIER_NVME;
  if (writes && reads) return ls_fail(error, LS_INTERNAL, "a move within the file");
  const ls_tier other = ls_tiers_of(tiers, writes ? from : to);
  *made = (move){to, from, bytes, name, .begin_ns = ls_now_ns()};
  made->queued = (writes || reads) && (other == LS_TIER_HOST || tiers->memory->addressable);
  if (!made->queued) {
    begin_copy(tiers, slot);
    return LS_OK;
  }
  made->job = (ls_file_job){.memory = writes ? (char *)(uintptr_t)from : to,
                            .offset = offset_of(tiers, writes ? to : from),
                            .bytes = bytes,
                            .writes = writes};
  ls_tier_file_begin(tiers->file, &made->job);
  return LS_OK;
}

ls_status ls_tiers_end(ls_tiers *tiers, const void *to, ls_tiers_span *span, ls_error *error) {
  int slot = 0;
  while (slot < tiers->count && tiers->moves[slot].to != to) slot++;
  if (slot == tiers->count) return ls_fail(error, LS_INTERNAL, "no such move is under way");
  move *ended = &tiers->moves[slot];
  if (ended->queued) {
    ls_tier_file_wait(tiers->file, &ended->job);
  } else {
    pthread_mutex_lock(&tiers->lock);
    while (!ended->copied) pthread_cond_wait(&tiers->done, &tiers->lock);
    pthread_mutex_unlock(&tiers->lock);
  }
  ended->to = NULL;
  if (span) *span = (ls_tiers_span){ended->begin_ns, ended->queued ? ls_now_ns() : ended->end_ns};
  if (!ended->queued && ended->status != LS_OK) {
    if (error) *error = ended->error;
    return ended->status;
  }
  if (!ended->queued || !ended->job.reason) return LS_OK;
  return fail_file(tiers, ended->job.writes, ended->name, ended->job.reason, error);
}

ls_status ls_tiers_read(const ls_tiers *tiers, void *data, const void *from, int64_t bytes,
                        ls_error *error) {
  const int reason = ls_tier_file_read(tiers->file, data, offset_of(tiers, from), bytes);
  return reason ? fail_file(tiers, false, "parameters", reason, error) : LS_OK;
}

ls_status ls_tiers_write(const ls_tiers *tiers, void *to, const void *data, int64_t bytes,
                         ls_error *error) {
  const int reason = ls_tier_file_write(tiers->file, data, offset_of(tiers, to), bytes);
  return reason ? fail_file(tiers, true, "parameters", reason, error) : LS_OK;
}

const char *ls_tiers_note(const ls_tiers *tiers) {
  return tiers->file ? ls_tier_file_note(tiers->file) : NULL;
}
