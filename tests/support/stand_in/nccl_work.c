/* What NCCL's work does on a stream. A launch comes in two pieces. The first begins when every part
 * has met its partners, which must ask for the same, and reads; the second when all have read what
 * lies here, and writes. Until then both hold the stream. Sums go round a ring from another rank
 * for each shard, rounded at each hop, as the real ones may. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/stand_in/nccl.h"
#include "support/stand_in/numbers.h"
#include "support/stand_in/stand_in.h"

typedef struct launch {
  ncclComm_t comm;
  bool posted;
  int count;
  part parts[];
} launch;

size_t stand_in_nccl_width(unsigned type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

static bool is_message(const part *of) {
  return of->kind == SEND || of->kind == RECEIVE;
}

/* ---- meeting --------------------------------------------------------------------------------- */

static void post_to(posting *at, const part *of) {
  at->kind = (int)of->kind;
  at->root = of->root;
  at->type = of->type;
  at->op = of->op;
  at->count = of->count;
  at->at = of->from;
  at->file = -1;
  (void)stand_in_nccl_driver()->file_of(of->from, 1, &at->file, &at->offset);
  atomic_store(&at->number, of->number);
}

static void post(const launch *all) {
  shared_comm *shared = all->comm->of;
  const int own = all->comm->rank;
  for (int p = 0; p < all->count; p++) {
    const part *of = &all->parts[p];
    if (of->kind == SEND)
      post_to(&shared->sends[own][of->root], of);
    else if (of->kind == RECEIVE)
      post_to(&shared->receives[of->root][own], of);
    else
      post_to(&shared->together[own][of->number % RING], of);
  }
}

static const char *const kinds[] = {"nothing",   "AllReduce", "Reduce", "ReduceScatter",
                                    "AllGather", "Broadcast", "Send",   "Recv"};

/* Whether a partner asks for the same. */
static bool agrees(const launch *all, const part *own, const posting *other, int rank) {
  const bool same = other->count == own->count && other->type == own->type &&
                    (is_message(own) || (other->kind == (int)own->kind && other->op == own->op &&
                                         other->root == own->root));
  if (!same)
    stand_in_nccl_wrong(all->comm, ncclInvalidUsage,
                        "rank %d: %s of %zu of type %u, and rank %d: %s of %zu of type %u",
                        all->comm->rank, kinds[own->kind], own->count, own->type, rank,
                        kinds[other->kind], other->count, other->type);
  return same;
}

static bool has_met(const launch *all, const part *of) {
  shared_comm *shared = all->comm->of;
  const int own = all->comm->rank;
  if (is_message(of)) {
    const posting *other =
        of->kind == SEND ? &shared->receives[own][of->root] : &shared->sends[of->root][own];
    const uint64_t number = atomic_load(&other->number);
    if (number > of->number) return true; /* it has been received already */
    return number == of->number && agrees(all, of, other, of->root);
  }
  for (int r = 0; r < shared->ranks; r++) {
    const posting *other = &shared->together[r][of->number % RING];
    if (atomic_load(&other->number) != of->number) return false;
    if (!agrees(all, of, other, r)) return false;
  }
  return true;
}

static int may_read(void *data) {
  launch *all = *(launch **)data;
  if (atomic_load(&all->comm->aborted)) return 1;
  if (atomic_load(&all->comm->of->wrong)) return 0;
  if (!all->posted) post(all);
  all->posted = true;
  for (int p = 0; p < all->count; p++)
    if (!has_met(all, &all->parts[p])) return 0;
  return 1;
}

/* Whether others have read what this rank has for them. */
static int may_write(void *data) {
  const launch *all = *(launch **)data;
  shared_comm *shared = all->comm->of;
  if (atomic_load(&all->comm->aborted)) return 1;
  if (atomic_load(&shared->wrong)) return 0;
  for (int p = 0; p < all->count; p++) {
    const part *of = &all->parts[p];
    if (of->kind == SEND && atomic_load(&shared->received[all->comm->rank][of->root]) < of->number)
      return 0;
    for (int r = 0; r < shared->ranks && !is_message(of); r++)
      if (atomic_load(&shared->read[r]) < of->number) return 0;
  }
  return 1;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Bytes of what another rank has posted, in another process by way of its file. */
static void read_of(const launch *all, int rank, const posting *of, size_t offset, void *to,
                    size_t bytes) {
  const int pid = all->comm->of->pids[rank];
  if (pid == getpid()) {
    memcpy(to, of->at + offset, bytes);
    return;
  }
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, of->file);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  for (size_t done = 0; file >= 0 && done < bytes;) {
    const ssize_t some =
        pread(file, (char *)to + done, bytes - done, (off_t)(of->offset + offset + done));
    if (some <= 0 && errno != EINTR) break;
    done += some > 0 ? (size_t)some : 0;
    if (done == bytes) {
      close(file);
      return;
    }
  }
  if (file >= 0) close(file);
  if (bytes) stand_in_nccl_wrong(all->comm, ncclRemoteError, "rank %d has gone", rank);
}

static double add(double a, double b, unsigned op) {
  return op == ncclMax ? (a > b ? a : b) : a + b;
}

static void join(void *into, const void *from, size_t count, unsigned type, unsigned op) {
  for (size_t i = 0; i < count; i++) {
    const int64_t at = (int64_t)i;
    if (type == ncclFloat64) {
      ((double *)into)[i] = add(((double *)into)[i], ((const double *)from)[i], op);
    } else if (type == ncclInt64) {
      const int64_t a = ((int64_t *)into)[i], b = ((const int64_t *)from)[i];
      ((int64_t *)into)[i] = op == ncclMax ? (a > b ? a : b) : a + b;
    } else {
      const stand_in_type as = type == ncclFloat32    ? STAND_IN_FP32
                               : type == ncclBfloat16 ? STAND_IN_BF16
                                                      : STAND_IN_FP16;
      const float a = number_at(into, as, at), b = number_at(from, as, at);
      put_number(into, as, at, op == ncclMax ? (a > b ? a : b) : a + b);
    }
  }
}

/* Elements [first, first + count) of what all ranks have, from `begin` round the ring. */
static void reduce(const launch *all, const part *of, size_t first, size_t count, int begin,
                   char *to) {
  const shared_comm *shared = all->comm->of;
  const size_t width = stand_in_nccl_width(of->type), bytes = count * width;
  char *next = malloc(bytes + 1);
  for (int step = 0; step < shared->ranks; step++) {
    const int r = (begin + step) % shared->ranks;
    const posting *other = &shared->together[r][of->number % RING];
    read_of(all, r, other, first * width, step ? next : to, bytes);
    if (step) join(to, next, count, of->type, of->op);
  }
  free(next);
}

static void read_part(const launch *all, part *of) {
  const shared_comm *shared = all->comm->of;
  const int own = all->comm->rank, ranks = shared->ranks;
  const size_t width = stand_in_nccl_width(of->type), bytes = of->count * width;
  of->result = malloc(of->bytes + 1);
  switch (of->kind) {
    case ALL_REDUCE:
      for (int c = 0; c < ranks; c++) {
        const size_t first = of->count * (size_t)c / (size_t)ranks,
                     end = of->count * (size_t)(c + 1) / (size_t)ranks;
        reduce(all, of, first, end - first, c + 1, of->result + first * width);
      }
      break;
    case REDUCE:
      if (of->root == own) reduce(all, of, 0, of->count, own + 1, of->result);
      break;
    case REDUCE_SCATTER:
      reduce(all, of, of->count * (size_t)own, of->count, own + 1, of->result);
      break;
    case ALL_GATHER:
      for (int r = 0; r < ranks; r++)
        read_of(all, r, &shared->together[r][of->number % RING], 0, of->result + bytes * (size_t)r,
                bytes);
      break;
    case BROADCAST:
      read_of(all, of->root, &shared->together[of->root][of->number % RING], 0, of->result, bytes);
      break;
    case RECEIVE:
      read_of(all, of->root, &shared->sends[of->root][own], 0, of->result, bytes);
      break;
    default: break;
  }
}

static CUresult read_all(void *data) {
  launch *all = *(launch **)data;
  shared_comm *shared = all->comm->of;
  const int own = all->comm->rank;
  if (atomic_load(&all->comm->aborted)) return CUDA_SUCCESS;
  for (int p = 0; p < all->count; p++) read_part(all, &all->parts[p]);
  for (int p = 0; p < all->count; p++) {
    const part *of = &all->parts[p];
    if (of->kind == RECEIVE)
      atomic_store(&shared->received[of->root][own], of->number);
    else if (of->kind != SEND)
      atomic_store(&shared->read[own], of->number);
  }
  return CUDA_SUCCESS;
}

static CUresult write_all(void *data) {
  launch *all = *(launch **)data;
  for (int p = 0; p < all->count; p++) {
    part *of = &all->parts[p];
    const bool writes = of->result && of->bytes && !atomic_load(&all->comm->aborted);
    if (writes) memcpy(of->to, of->result, of->bytes);
    free(of->result);
  }
  free(all);
  return CUDA_SUCCESS;
}

bool stand_in_nccl_launch(ncclComm_t comm, CUstream stream, const part *parts, int count) {
  launch *made = calloc(1, sizeof *made + (size_t)count * sizeof *parts);
  made->comm = comm;
  made->count = count;
  memcpy(made->parts, parts, (size_t)count * sizeof *parts);
  const driver_of *driver = stand_in_nccl_driver();
  if (driver->enqueue(stream, may_read, read_all, &made, sizeof made)) {
    free(made);
    return false;
  }
  return !driver->enqueue(stream, may_write, write_all, &made, sizeof made);
}
