/* NCCL, with rules that a program can break: communicators are non-blocking and asked for nothing
 * while they are busy; ranks agree on each collective's order, kind, size and type; a communicator
 * has one stream and one GPU, which no other rank has; memory is registered, mapped, and
 * deregistered before it goes; groups are closed. A rule that is broken is ncclInvalidUsage at
 * once, or of all its ranks where they disagree.
 *
 * Settings: nccl (its version), nccl_cuda (that it was made for), nccl_fail (the number of a call
 * that fails), nccl_skip (the number of a collective or message that is not done and said to be),
 * nccl_swap (the number of a message that changes places with the next to its peer), nccl_async
 * (the number of one after which the communicator has failed on its device), nccl_polls (how often
 * something is said to be under way, at least). Ranks meet in memory that the maker of the id has
 * as a file. */
#define _GNU_SOURCE
#include "support/stand_in/nccl.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "support/stand_in/stand_in.h"

enum { UNHANDLED = 1, INTERNAL = 3, MOST_PARTS = 64, MOST_HELD = 256, MAGIC = (int)0xcafebeef };

/* What an id says. */
typedef struct meeting {
  uint64_t nonce;
  int pid, file;
} meeting;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ncclComm_t held[MOST_HELD]; /* communicators that are not gone */
static ncclComm_t gone;            /* the last of those that are: work may still look at them */
static struct {
  uint64_t nonce;
  shared_memory *at;
} meetings[MOST_HELD];
static _Atomic long works; /* put so far */
static _Atomic long sends; /* of them messages outside of groups, to anybody */

static _Thread_local int depth;
static _Thread_local part parts[MOST_PARTS];
static _Thread_local CUstream streams_of[MOST_PARTS];
static _Thread_local int part_count;
static _Thread_local bool spoiled; /* the group has a call that failed */

static int kept_count(ncclComm_t comm) {
  int count = 0;
  for (int k = 0; k < MOST_KEPT; k++) count += comm->kept[k].at != NULL;
  return count;
}

/* What a program has not given back, in words; NULL: nothing. */
const char *ls_stand_in_left(void);
const char *ls_stand_in_left(void) {
  static char text[96];
  int comms = 0, kept = 0;
  for (int h = 0; h < MOST_HELD; h++) {
    comms += held[h] != NULL;
    if (held[h]) kept += kept_count(held[h]);
  }
  snprintf(text, sizeof text, "%d communicators, %d registrations", comms, kept);
  return comms + kept ? text : NULL;
}

void stand_in_reset(void) {
  memset(held, 0, sizeof held);
  works = 0;
}

static void find(void *driver, void **function, const char *name) {
  *function = dlsym(driver, name);
  if (!*function) abort();
}

const driver_of *stand_in_nccl_driver(void) {
  static driver_of found;
  static _Atomic bool is_found;
  if (is_found) return &found;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!driver) return NULL;
  find(driver, (void **)&found.enqueue, "stand_in_enqueue_when");
  find(driver, (void **)&found.file_of, "stand_in_file_of");
  find(driver, (void **)&found.reached, "stand_in_is_reached");
  find(driver, (void **)&found.spoils, "stand_in_spoils_capture");
  find(driver, (void **)&found.context, "stand_in_context");
  find(driver, (void **)&found.gpu, "stand_in_gpu");
  is_found = true;
  return &found;
}

#define ENTER()                                                  \
  do {                                                           \
    if (stand_in_fails("nccl_fail", __func__)) return UNHANDLED; \
  } while (0)

static _Thread_local char said[TEXT_BYTES];

static ncclResult_t say(ncclResult_t result, const char *text) {
  snprintf(said, sizeof said, "%s", text);
  return result;
}

/* The real one has such a text, which alone says for which CUDA it was made. */
static char made_for[48] = "NCCL version 2.28.9+cuda13.0";

ncclResult_t ncclGetVersion(int *version) {
  const long cuda = stand_in_number("nccl_cuda", 13000);
  if (stand_in_fails("nccl_fail", __func__)) return INTERNAL;
  snprintf(made_for, sizeof made_for, "NCCL version 2.28.9+cuda%ld.%ld", cuda / 1000,
           cuda % 1000 / 10);
  *version = (int)stand_in_number("nccl", 22809);
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
  static const char *const texts[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
  return result < sizeof texts / sizeof *texts ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm) {
  return comm && comm->of && atomic_load(&comm->of->wrong) ? comm->of->text : said;
}

void stand_in_nccl_wrong(ncclComm_t comm, unsigned result, const char *format, ...) {
  pthread_mutex_lock(&lock);
  if (!atomic_load(&comm->of->wrong)) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(comm->of->text, TEXT_BYTES, format, arguments);
    va_end(arguments);
    atomic_store(&comm->of->wrong, result);
  }
  pthread_mutex_unlock(&lock);
}

/* ---- meeting --------------------------------------------------------------------------------- */

static void seize(shared_memory *of) {
  while (atomic_flag_test_and_set(&of->lock)) usleep(10);
}

static void let_go(shared_memory *of) {
  atomic_flag_clear(&of->lock);
}

/* The memory of an id: once in a process. */
static shared_memory *meet(const meeting *where) {
  shared_memory *at = NULL;
  pthread_mutex_lock(&lock);
  int m = 0;
  while (m < MOST_HELD - 1 && meetings[m].at && meetings[m].nonce != where->nonce) m++;
  at = meetings[m].at;
  if (!at) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", where->pid, where->file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    at =
        file < 0 ? MAP_FAILED : mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (at == MAP_FAILED || at->nonce != where->nonce) at = NULL;
    meetings[m].nonce = where->nonce;
    meetings[m].at = at;
  }
  pthread_mutex_unlock(&lock);
  return at;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  ENTER();
  static _Atomic uint64_t ids;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  meeting where = {.pid = getpid(), .file = memfd_create("nccl", MFD_CLOEXEC)};
  where.nonce = (uint64_t)now.tv_nsec << 32 ^ (uint64_t)getpid() << 8 ^ ++ids;
  if (where.file < 0 || ftruncate(where.file, sizeof(shared_memory)) ||
      pwrite(where.file, &where.nonce, sizeof where.nonce, 0) != sizeof where.nonce)
    return ncclSystemError;
  memset(id, 0, sizeof *id);
  memcpy(id, &where, sizeof where);
  return ncclSuccess;
}

static ncclResult_t check_config(const ncclConfig_t *of) {
  if (!of || of->size != sizeof *of || of->magic != (unsigned)MAGIC)
    return say(ncclInvalidArgument, "the configuration is none");
  if (of->blocking != 0) return say(ncclInvalidArgument, "the stand-in never blocks");
  if (of->maxCTAs < 1 || of->maxCTAs > 64 || of->minCTAs > of->maxCTAs)
    return say(ncclInvalidArgument, "CTAs");
  return ncclSuccess;
}

static ncclComm_t make(shared_memory *memory, int which, int rank, ncclComm_t like) {
  ncclComm_t made = calloc(1, sizeof *made);
  made->memory = memory;
  made->of = &memory->of[which];
  made->rank = rank;
  made->state = JOINING;
  made->polls = (int)stand_in_number("nccl_polls", 1);
  made->context = like ? like->context : stand_in_nccl_driver()->context();
  made->gpu = like ? like->gpu : stand_in_nccl_driver()->gpu();
  made->of->pids[rank] = getpid();
  made->of->gpus[rank] = made->gpu;
  atomic_fetch_add(&made->of->joined, 1);
  pthread_mutex_lock(&lock);
  int h = 0;
  while (h < MOST_HELD - 1 && held[h]) h++;
  held[h] = made;
  pthread_mutex_unlock(&lock);
  return made;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  ENTER();
  meeting where;
  memcpy(&where, &id, sizeof where);
  const ncclResult_t wrong = check_config(config);
  if (wrong) return wrong;
  if (!stand_in_nccl_driver() || !stand_in_nccl_driver()->context())
    return say(ncclInvalidUsage, "no device is current");
  if (ranks < 1 || ranks > MOST_RANKS || rank < 0 || rank >= ranks)
    return say(ncclInvalidArgument, "rank out of range");
  shared_memory *memory = meet(&where);
  if (!memory) return say(ncclSystemError, "the id leads nowhere");
  shared_comm *of = &memory->of[0];
  seize(memory);
  const bool fits = !of->ranks || of->ranks == ranks;
  of->ranks = ranks;
  if (!memory->comms) memory->comms = 1;
  let_go(memory);
  if (!fits || atomic_exchange(&of->taken[rank], true))
    return say(ncclInvalidUsage, "two ranks are the same, or there are more than were said");
  *comm = make(memory, 0, rank, NULL);
  return ncclInProgress;
}

/* ---- progress -------------------------------------------------------------------------------- */

static bool joined(ncclComm_t comm) {
  shared_comm *of = comm->of;
  if (atomic_load(&of->joined) < of->ranks) return false;
  for (int r = 0; r < of->ranks; r++)
    if (r != comm->rank && of->gpus[r] == comm->gpu)
      stand_in_nccl_wrong(comm, ncclInvalidUsage, "Duplicate GPU detected: ranks %d and %d",
                          comm->rank, r);
  return true;
}

/* This rank's place among those of its color, by key; *count of them, *low the lowest. */
static int place_in(const shared_comm *of, int split, int rank, int *count, int *low) {
  const int *colors = of->colors[split], *keys = of->keys[split];
  int place = 0;
  *count = 0;
  *low = -1;
  for (int r = 0; r < of->ranks; r++) {
    if (colors[r] != colors[rank]) continue;
    if (*low < 0) *low = r;
    ++*count;
    place += keys[r] < keys[rank] || (keys[r] == keys[rank] && r < rank);
  }
  return place;
}

static bool split_is_done(ncclComm_t comm) {
  shared_comm *of = comm->of;
  for (int r = 0; r < of->ranks; r++)
    if (atomic_load(&of->splits[r]) <= (uint64_t)comm->split) return false;
  if (of->colors[comm->split][comm->rank] < 0) return true;
  int count, low;
  const int place = place_in(of, comm->split, comm->rank, &count, &low);
  seize(comm->memory);
  int *child = &of->children[comm->split][low];
  if (!*child) *child = comm->memory->comms++;
  if (*child >= MOST_COMMS) abort();
  comm->memory->of[*child].ranks = count;
  let_go(comm->memory);
  *comm->child = make(comm->memory, *child, place, comm);
  return true;
}

static bool is_through(ncclComm_t comm) {
  if (comm->state == JOINING) return joined(comm);
  if (comm->state == SPLITTING) return split_is_done(comm);
  return atomic_load(&comm->of->finished) == comm->of->ranks;
}

static void find_dead(ncclComm_t comm) {
  for (int r = 0; r < comm->of->ranks; r++)
    if (comm->of->pids[r] && kill(comm->of->pids[r], 0) && errno == ESRCH &&
        atomic_load(&comm->of->finished) < comm->of->ranks)
      stand_in_nccl_wrong(comm, ncclRemoteError, "the process of rank %d died", r);
}

/* Of no consequence to the count of calls: it is asked again and again. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
  if (!comm || comm->state == GONE) return ncclInvalidArgument;
  const bool busy = comm->state != READY && comm->state != FINISHED;
  find_dead(comm);
  if (busy && comm->polls-- <= 0 && is_through(comm))
    comm->state = comm->state == FINISHING ? FINISHED : READY;
  *result = atomic_load(&comm->of->wrong);
  if (!*result && comm->state != READY && comm->state != FINISHED) *result = ncclInProgress;
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made,
                           ncclConfig_t *config) {
  ENTER();
  const ncclResult_t wrong = check_config(config);
  if (wrong) return wrong;
  if (comm->state != READY) return say(ncclInvalidUsage, "the communicator is busy");
  const int split = (int)atomic_load(&comm->of->splits[comm->rank]);
  if (split >= MOST_SPLITS || color < -1) return say(ncclInvalidArgument, "color");
  comm->of->colors[split][comm->rank] = color;
  comm->of->keys[split][comm->rank] = key;
  *made = NULL;
  comm->split = split;
  comm->child = made;
  comm->state = SPLITTING;
  comm->polls = (int)stand_in_number("nccl_polls", 1);
  atomic_store(&comm->of->splits[comm->rank], (uint64_t)split + 1);
  return ncclInProgress;
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void forget(ncclComm_t comm) {
  comm->state = GONE;
  pthread_mutex_lock(&lock);
  comm->gone_before = gone;
  gone = comm;
  for (int h = 0; h < MOST_HELD; h++)
    if (held[h] == comm) held[h] = NULL;
  pthread_mutex_unlock(&lock);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  ENTER();
  if (comm->state != READY) return say(ncclInvalidUsage, "the communicator is busy");
  comm->state = FINISHING;
  comm->polls = (int)stand_in_number("nccl_polls", 1);
  atomic_fetch_add(&comm->of->finished, 1);
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const int fails = stand_in_fails("nccl_fail", __func__);
  if (comm->state != FINISHED) return say(ncclInvalidUsage, "it was not finalized");
  if (kept_count(comm)) return say(ncclInvalidUsage, "it has registered memory");
  forget(comm);
  return fails ? UNHANDLED : ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const int fails = stand_in_fails("nccl_fail", __func__);
  if (comm->state == GONE) return ncclInvalidArgument;
  atomic_store(&comm->aborted, true);
  memset(comm->kept, 0, sizeof comm->kept);
  forget(comm);
  return fails ? UNHANDLED : ncclSuccess;
}

/* ---- memory ---------------------------------------------------------------------------------- */

ncclResult_t ncclCommRegister(ncclComm_t comm, void *at, size_t bytes, void **handle) {
  ENTER();
  if (comm->state != READY) return say(ncclInvalidUsage, "the communicator is busy");
  if (!bytes || !stand_in_nccl_driver()->reached((CUdeviceptr)(size_t)at, bytes))
    return say(ncclInvalidArgument, "memory that is not mapped is registered");
  for (int k = 0; k < MOST_KEPT; k++) {
    if (comm->kept[k].at) continue;
    comm->kept[k] = (kept_memory){at, bytes};
    *handle = &comm->kept[k];
    return ncclSuccess;
  }
  return ncclInvalidArgument;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle) {
  const int fails = stand_in_fails("nccl_fail", __func__);
  for (int k = 0; k < MOST_KEPT; k++) {
    if (&comm->kept[k] != handle || !comm->kept[k].at) continue;
    comm->kept[k].at = NULL;
    return fails ? UNHANDLED : ncclSuccess;
  }
  return say(ncclInvalidArgument, "memory that was not registered is deregistered");
}

static bool is_kept(ncclComm_t comm, const void *at, size_t bytes) {
  for (int k = 0; k < MOST_KEPT; k++) {
    const size_t from = (size_t)at - (size_t)comm->kept[k].at;
    if (comm->kept[k].at && from < comm->kept[k].bytes && bytes <= comm->kept[k].bytes - from)
      return stand_in_nccl_driver()->reached((CUdeviceptr)(size_t)at, bytes);
  }
  return false;
}

/* ---- work ------------------------------------------------------------------------------------ */

static ncclResult_t launch(void) {
  ncclResult_t result = spoiled ? ncclInvalidUsage : ncclSuccess;
  for (int p = 0; p < part_count && !spoiled; p++) {
    ncclComm_t comm = parts[p].comm;
    part of[MOST_PARTS];
    int count = 0;
    for (int other = 0; other < part_count; other++) {
      if (parts[other].comm != comm) continue;
      if (other < p) count = -MOST_PARTS; /* launched already */
      if (count >= 0) of[count++] = parts[other];
    }
    if (count > 0 && !stand_in_nccl_launch(comm, streams_of[p], of, count)) result = UNHANDLED;
  }
  part_count = 0;
  spoiled = false;
  return result;
}

ncclResult_t ncclGroupStart(void) {
  ENTER();
  depth++;
  return ncclSuccess;
}

/* It closes the group also where it fails. */
ncclResult_t ncclGroupEnd(void) {
  const int fails = stand_in_fails("nccl_fail", __func__);
  if (!depth) return say(ncclInvalidUsage, "no group is open");
  if (fails) spoiled = true;
  const ncclResult_t result = --depth ? ncclSuccess : launch();
  return fails ? UNHANDLED : result;
}

static ncclResult_t refuse(const char *text) {
  if (depth) spoiled = true;
  return say(ncclInvalidUsage, text);
}

/* What is read and written: of reductions and broadcasts also at ranks that are not the root. */
static ncclResult_t check(const part *of, size_t reads) {
  ncclComm_t comm = of->comm;
  const driver_of *driver = stand_in_nccl_driver();
  if (!comm || comm->state == GONE) return refuse("a communicator that is gone");
  if (comm->state != READY) return refuse("the communicator is busy");
  if (atomic_load(&comm->of->wrong)) return refuse("the communicator has failed");
  if (driver->context() != comm->context) return refuse("another device is current");
  if (driver->spoils()) return refuse("the stand-in has no work in captures");
  if (of->type > ncclBfloat16 || of->op > ncclMax || of->root < 0 || of->root >= comm->of->ranks)
    return refuse("type, op or root");
  if ((of->kind == SEND || of->kind == RECEIVE) && of->root == comm->rank)
    return refuse("the stand-in sends nothing to oneself");
  if (reads && !is_kept(comm, of->from, reads)) return refuse("what it reads is not registered");
  if (of->bytes && !is_kept(comm, of->to, of->bytes))
    return refuse("what it writes is not registered");
  const bool apart =
      !reads || !of->bytes || of->from + reads <= of->to || of->to + of->bytes <= of->from ||
      of->from == of->to ||
      (of->kind == ALL_GATHER && of->from == of->to + reads * (size_t)comm->rank) ||
      (of->kind == REDUCE_SCATTER && of->to == of->from + of->bytes * (size_t)comm->rank);
  return apart ? ncclSuccess : refuse("its buffers overlap");
}

static ncclResult_t place(part of, CUstream stream) {
  ncclComm_t comm = of.comm;
  of.number = of.kind == SEND      ? ++comm->sent[of.root]
              : of.kind == RECEIVE ? ++comm->taken[of.root]
                                   : ++comm->collectives;
  if (part_count == MOST_PARTS) return refuse("too many in a group");
  parts[part_count] = of;
  streams_of[part_count++] = stream;
  return depth ? ncclSuccess : launch();
}

/* A message that goes behind the next one to its peer; comm NULL: there is none. */
static _Thread_local struct {
  part of;
  CUstream stream;
} late;

static bool is_late(const part *of, CUstream stream) {
  if (of->kind != SEND || depth || ++sends != stand_in_number("nccl_swap", 0)) return false;
  late.of = *of;
  late.stream = stream;
  return true;
}

static ncclResult_t put(part of, size_t reads, CUstream stream) {
  ncclResult_t result = check(&of, reads);
  if (result) return result;
  ncclComm_t comm = of.comm;
  if (comm->stream && comm->stream != stream) return refuse("a communicator on two streams");
  comm->stream = stream;
  const long work = ++works;
  if (work == stand_in_number("nccl_async", 0))
    stand_in_nccl_wrong(comm, ncclSystemError, "the stand-in's device of rank %d failed",
                        comm->rank);
  if (work == stand_in_number("nccl_skip", 0) || is_late(&of, stream)) return ncclSuccess;
  result = place(of, stream);
  if (result || of.kind != SEND || late.of.comm != comm) return result;
  of = late.of;
  late.of.comm = NULL;
  return place(of, late.stream);
}

#define ALL(comm) ((size_t)(comm)->of->ranks)

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclEnum type, ncclEnum op,
                           ncclComm_t comm, CUstream stream) {
  ENTER();
  const size_t bytes = count * stand_in_nccl_width(type);
  return put((part){comm, ALL_REDUCE, from, to, count, bytes, type, op, 0, 0, NULL}, bytes, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclEnum type, ncclEnum op,
                        int root, ncclComm_t comm, CUstream stream) {
  ENTER();
  const size_t bytes = count * stand_in_nccl_width(type);
  const size_t out = root == comm->rank ? bytes : 0;
  return put((part){comm, REDUCE, from, to, count, out, type, op, root, 0, NULL}, bytes, stream);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclEnum type, ncclEnum op,
                               ncclComm_t comm, CUstream stream) {
  ENTER();
  const size_t bytes = count * stand_in_nccl_width(type);
  return put((part){comm, REDUCE_SCATTER, from, to, count, bytes, type, op, 0, 0, NULL},
             bytes * ALL(comm), stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclEnum type, ncclComm_t comm,
                           CUstream stream) {
  ENTER();
  const size_t bytes = count * stand_in_nccl_width(type);
  return put((part){comm, ALL_GATHER, from, to, count, bytes * ALL(comm), type, 0, 0, 0, NULL},
             bytes, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclEnum type, int root,
                           ncclComm_t comm, CUstream stream) {
  ENTER();
  const size_t bytes = count * stand_in_nccl_width(type);
  return put((part){comm, BROADCAST, from, to, count, bytes, type, 0, root, 0, NULL},
             root == comm->rank ? bytes : 0, stream);
}

ncclResult_t ncclSend(const void *from, size_t count, ncclEnum type, int peer, ncclComm_t comm,
                      CUstream stream) {
  ENTER();
  const size_t bytes = count * stand_in_nccl_width(type);
  return put((part){comm, SEND, from, NULL, count, 0, type, 0, peer, 0, NULL}, bytes, stream);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclEnum type, int peer, ncclComm_t comm,
                      CUstream stream) {
  ENTER();
  const size_t bytes = count * stand_in_nccl_width(type);
  return put((part){comm, RECEIVE, NULL, to, count, bytes, type, 0, peer, 0, NULL}, 0, stream);
}
