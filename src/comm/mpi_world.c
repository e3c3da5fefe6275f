/* Makes a world of the processes of MPI_COMM_WORLD. */
#include "comm/mpi.h"

#ifndef LS_HAVE_MPI

ls_status ls_world_create_mpi(const ls_world_options *options, ls_world **world, ls_error *error) {
  (void)options;
  *world = NULL;
  return ls_fail(error, LS_INPUT,
                 "this build has no MPI: install an MPI library (Debian: libopenmpi-dev and "
                 "openmpi-bin), build again; or leave mpirun out and let ranks be threads");
}

#else

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cluster/machine.h"

/* What each process says of itself. */
typedef struct process_entry {
  int64_t ranks, refuses, pid, pid_namespace, process;
} process_entry;

enum { ENTRY_FIELDS = sizeof(process_entry) / sizeof(int64_t) };

static process_entry own_entry(const ls_world_options *options, int process) {
  process_entry own = {.ranks = options->ranks_here,
                       .refuses = options->refuse_shared,
                       .pid = getpid(),
                       .process = process};
  struct stat namespace;
  /* Process numbers mean the same to two processes only in one namespace. */
  if (stat("/proc/self/ns/pid", &namespace) == 0) own.pid_namespace = (int64_t) namespace.st_ino;
  return own;
}

static ls_status start_mpi(bool *owns, int *level, ls_error *error) {
  int finalized = 0, initialized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return ls_fail(error, LS_INPUT, "MPI has ended: one world of it a process");
  MPI_Initialized(&initialized);
  *owns = !initialized;
  if (initialized) {
    MPI_Query_thread(level);
  } else if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, level) != MPI_SUCCESS) {
    return ls_fail(error, LS_FAILED, "MPI does not start: is mpirun of the same MPI library?");
  }
  if (*level >= MPI_THREAD_SERIALIZED) return LS_OK;
  if (*owns) MPI_Finalize();
  return ls_fail(error, LS_INPUT,
                 "this MPI library takes no calls from threads; use one that has "
                 "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE");
}

static ls_status check_entries(const process_entry *entries, int processes, bool *refused,
                               ls_error *error) {
  *refused = false;
  for (int p = 0; p < processes; p++) {
    if (entries[p].ranks < 1) {
      return ls_fail(error, LS_INPUT, "process %d of %d asks for %d ranks; at least 1 is", p,
                     processes, (int)entries[p].ranks);
    }
    if (entries[p].refuses) *refused = true;
  }
  return LS_OK;
}

/* Opens handles of the other processes of this host, by which their death is seen. */
static void open_neighbours(ls_mpi *mpi, const process_entry *host_entries, int host_size,
                            const process_entry *own) {
  ls_world *world = mpi->world;
  world->neighbours = LS_NEW_ARRAY(world->memory, ls_neighbour, host_size);
  for (int i = 0; i < host_size; i++) {
    const process_entry *other = &host_entries[i];
    if (other->process == own->process || other->pid_namespace != own->pid_namespace) continue;
    if (own->pid_namespace == 0) continue;
    world->neighbours[world->neighbour_count++] =
        (ls_neighbour){.pid = (int)other->pid,
                       .pidfd = (int)syscall(SYS_pidfd_open, (pid_t)other->pid, 0),
                       .first_rank = mpi->first_ranks[other->process]};
  }
}

/* Where the control block of a host lies. */
typedef struct place {
  int64_t pid, fd;
  uint64_t nonce;
} place;

/* One control block for all processes of the host; NULL where one of them cannot see it. */
static ls_control *share_control(MPI_Comm host) {
  int self, fd = -1;
  MPI_Comm_rank(host, &self);
  place where = {.pid = getpid(), .fd = -1};
  ls_control *control = NULL;
  if (self == 0) {
    control = ls_host_memory.reserve(ls_control_bytes(), true, &fd);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    where.nonce = ((uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec) * 0x9e3779b97f4a7c15u;
    where.nonce ^= (uint64_t)getpid();
    where.fd = fd;
    if (control) ls_control_init(control, where.nonce);
  }
  MPI_Bcast(&where, (int)sizeof where, MPI_BYTE, 0, host);
  if (self != 0 && where.fd >= 0) {
    const int file = ls_file_open_of((int)where.pid, (int)where.fd);
    if (file >= 0) control = ls_host_memory.import(file, ls_control_bytes(), NULL, NULL);
    if (file >= 0) close(file);
    /* A process number of another namespace may lead to somebody else's file. */
    if (control && ls_control_nonce(control) != where.nonce) {
      ls_host_memory.release(control, ls_control_bytes());
      control = NULL;
    }
  }
  int seen = control != NULL, by_all = 0;
  MPI_Allreduce(&seen, &by_all, 1, MPI_INT, MPI_MIN, host);
  if (fd >= 0) close(fd);
  if (by_all) return control;
  ls_host_memory.release(control, ls_control_bytes());
  return NULL;
}

/* Hardware threads that the processes of a host have together: each may be bound to its own. */
static int threads_of(MPI_Comm host) {
  const ls_thread_set own = ls_machine_allowed();
  ls_thread_set all;
  MPI_Allreduce(own.words, all.words, LS_THREAD_WORDS, MPI_UINT64_T, MPI_BOR, host);
  const int mine = ls_machine_threads_of("", &all);
  int least;
  MPI_Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, host);
  return least;
}

/* Chooses this process's domain: its host where memory can be shared, else itself. */
static ls_status find_domain(ls_mpi *mpi, const process_entry *own, bool refused, ls_error *error) {
  ls_world *world = mpi->world;
  MPI_Comm host;
  int host_size, fd;
  MPI_Comm_split_type(mpi->control, MPI_COMM_TYPE_SHARED, mpi->self, MPI_INFO_NULL, &host);
  MPI_Comm_size(host, &host_size);
  process_entry *entries = LS_NEW_ARRAY(world->memory, process_entry, host_size);
  MPI_Allgather(own, ENTRY_FIELDS, MPI_INT64_T, entries, ENTRY_FIELDS, MPI_INT64_T, host);
  world->on_host = 0;
  for (int i = 0; i < host_size; i++) {
    if (entries[i].process == own->process) world->first_on_host = world->on_host;
    world->on_host += (int)entries[i].ranks;
    /* There a number is another process's, whose files are not to be opened. */
    refused = refused || entries[i].pid_namespace != own->pid_namespace;
  }
  open_neighbours(mpi, entries, host_size, own);
  world->control = refused || host_size == 1 ? NULL : share_control(host);
  const bool shared = world->control != NULL;
  const int threads = threads_of(host);
  MPI_Comm_free(&host);
  if (!shared) {
    world->control = ls_host_memory.reserve(ls_control_bytes(), false, &fd);
    if (world->control) ls_control_init(world->control, 0);
  }
  bool *inside = LS_NEW_ARRAY(world->memory, bool, mpi->processes);
  inside[mpi->self] = true;
  for (int i = 0; shared && i < host_size; i++) inside[entries[i].process] = true;
  int seats = 0;
  for (int rank = 0; rank < world->size; rank++) {
    world->place[rank] = inside[world->process[rank]] ? seats++ : -1;
  }
  ls_world_open(world, seats, threads);
  /* All processes stop together where one cannot map its flags. */
  int mapped = world->control != NULL, by_all = 0;
  MPI_Allreduce(&mapped, &by_all, 1, MPI_INT, MPI_MIN, mpi->control);
  if (by_all) return LS_OK;
  return ls_fail(error, LS_FAILED, "%zu MiB for flags cannot be mapped on every process",
                 ls_control_bytes() >> 20);
}

static ls_mpi *make_world(const process_entry *entries, int processes, int self) {
  int ranks = 0, first = 0;
  for (int p = 0; p < processes; p++) {
    if (p == self) first = ranks;
    ranks += (int)entries[p].ranks;
  }
  ls_world *world = ls_world_new(ranks, first, (int)entries[self].ranks);
  ls_mpi *mpi = LS_NEW(world->memory, ls_mpi);
  mpi->world = world;
  mpi->processes = processes;
  mpi->self = self;
  mpi->first_ranks = LS_NEW_ARRAY(world->memory, int, processes);
  mpi->outgoing_requests = LS_NEW_ARRAY(world->memory, MPI_Request, processes);
  mpi->abort_seen = LS_NEW_ARRAY(world->memory, _Atomic bool, processes);
  int rank = 0;
  for (int p = 0; p < processes; p++) {
    const int here = (int)entries[p].ranks;
    mpi->first_ranks[p] = rank;
    if (here > mpi->most_ranks) mpi->most_ranks = here;
    for (int i = 0; i < here; i++) world->process[rank++] = p;
  }
  return mpi;
}

static void open_communicators(ls_mpi *mpi) {
  MPI_Comm_dup(MPI_COMM_WORLD, &mpi->data);
  MPI_Comm_dup(MPI_COMM_WORLD, &mpi->control);
  MPI_Comm_set_errhandler(mpi->data, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(mpi->control, MPI_ERRORS_RETURN);
  int *bound = NULL, found = 0;
  MPI_Comm_get_attr(mpi->data, MPI_TAG_UB, &bound, &found);
  mpi->largest_tag = found && *bound > 0 ? *bound : 32767; /* what the standard guarantees */
}

ls_status ls_world_create_mpi(const ls_world_options *options, ls_world **made, ls_error *error) {
  *made = NULL;
  bool owns = false, refused = false;
  int level = 0, processes, self;
  LS_TRY(start_mpi(&owns, &level, error));
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  MPI_Comm_rank(MPI_COMM_WORLD, &self);
  ls_arena *scratch = ls_arena_create();
  process_entry *entries = LS_NEW_ARRAY(scratch, process_entry, processes);
  const process_entry own = own_entry(options, self);
  MPI_Allgather(&own, ENTRY_FIELDS, MPI_INT64_T, entries, ENTRY_FIELDS, MPI_INT64_T,
                MPI_COMM_WORLD);
  ls_status status = check_entries(entries, processes, &refused, error);
  ls_mpi *mpi = status == LS_OK ? make_world(entries, processes, self) : NULL;
  ls_arena_destroy(&scratch);
  if (mpi) {
    mpi->owns_mpi = owns;
    mpi->one_at_a_time = level < MPI_THREAD_MULTIPLE;
    if (options->deadline_s > 0) mpi->world->deadline_s = options->deadline_s;
    open_communicators(mpi);
    status = find_domain(mpi, &own, refused, error);
  }
  if (status != LS_OK) {
    if (mpi) ls_world_destroy(&mpi->world);
    if (owns) MPI_Finalize();
    return status;
  }
  ls_mpi_open(mpi);
  mpi->world->transport = &mpi->transport;
  *made = mpi->world;
  return LS_OK;
}

#endif
