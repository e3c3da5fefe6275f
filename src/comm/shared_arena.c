/* Memory of a rank that its peers address. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "comm/world.h"

void ls_arena_locate(const ls_comm *comm, void *data, size_t bytes, ls_posting *posting) {
  posting->pointer = data;
  posting->arena = -1;
  posting->offset = 0;
  const uintptr_t start = (uintptr_t)data;
  for (int i = 0; i < comm->arena_count; i++) {
    const ls_memory *memory = &comm->arenas[i].memory;
    const uintptr_t base = (uintptr_t)memory->base;
    if (!comm->arenas[i].readable || start < base) continue;
    if (start - base > memory->bytes || bytes > memory->bytes - (start - base)) continue;
    posting->arena = i;
    posting->offset = start - base;
    return;
  }
}

void *ls_arena_view(const ls_world *world, int self, int rank, const ls_posting *posting) {
  if (world->process[rank] == world->process[self]) return posting->pointer;
  if (world->place[rank] < 0 || posting->arena < 0) return NULL;
  char *base = world->views[posting->arena * world->domain_ranks + world->place[rank]].base;
  return base + posting->offset;
}

/* What a rank tells the others of its new memory. */
typedef struct sequence {
  int64_t pid, fd, bytes, failed;
} sequence;

/* Maps what the other processes of the domain have made; one thread of a process does it for all.
 * False where some memory could not be mapped. */
static bool map_views(ls_comm *comm, const ls_memory_calls *of, int arena,
                      const sequence *sequences) {
  ls_world *world = comm->world;
  bool all = true;
  pthread_mutex_lock(&world->lock);
  for (int rank = 0; rank < world->size; rank++) {
    if (world->place[rank] < 0 || world->process[rank] == world->process[comm->rank]) continue;
    const int view = arena * world->domain_ranks + world->place[rank];
    const size_t bytes = (size_t)sequences[rank].bytes;
    ls_memory *seen = &world->views[view];
    if (!seen->base)
      *seen = (ls_memory){of, of->import((int)sequences[rank].pid, (int)sequences[rank].fd, bytes),
                          bytes};
    if (!seen->base) all = false;
  }
  pthread_mutex_unlock(&world->lock);
  return all;
}

/* Exchanges sequences; all ranks learn of one rank's failure, all stop sharing if one cannot map.
 */
static ls_status share(ls_comm *comm, const ls_memory_calls *of, int arena, sequence own,
                       bool *readable, ls_error *error) {
  ls_world *world = comm->world;
  const int64_t fields = (int64_t)(sizeof(sequence) / sizeof(int64_t));
  sequence *sequences = LS_NEW_ARRAY(comm->memory, sequence, world->size);
  sequences[comm->rank] = own;
  ls_status status = ls_all_gather(comm->everyone, sequences, &sequences[comm->rank],
                                   fields * world->size, LS_I64, error);
  for (int rank = 0; status == LS_OK && rank < world->size; rank++) {
    if (!sequences[rank].failed) continue;
    status =
        ls_fail(error, LS_FAILED, "rank %d: an arena of %.2f GiB cannot be mapped: %s%s", rank,
                (double)sequences[rank].bytes / (1 << 30), strerror((int)sequences[rank].failed),
                of->addressable ? "" : "; lockstep doctor names who holds the device's memory");
  }
  if (status == LS_OK) {
    int64_t refused = !map_views(comm, of, arena, sequences);
    status = ls_all_reduce(comm->everyone, &refused, 1, LS_I64, LS_MAX, error);
    *readable = !refused;
  }
  return status;
}

static ls_status everyone(ls_comm *comm, ls_error *error) {
  if (comm->everyone) return LS_OK;
  const int size = comm->world->size;
  int *members = LS_NEW_ARRAY(comm->memory, int, size);
  for (int i = 0; i < size; i++) members[i] = i;
  return ls_comm_group(comm, members, size, &comm->everyone, error);
}

ls_status ls_comm_arena(ls_comm *comm, const ls_memory_calls *of, size_t bytes, void **base,
                        ls_error *error) {
  *base = NULL;
  const int arena = comm->arena_count;
  if (arena == LS_MAX_ARENAS) {
    return ls_fail(error, LS_INTERNAL, "a rank may have %d arenas, not more", LS_MAX_ARENAS);
  }
  LS_TRY(everyone(comm, error));
  const size_t page = 4096;
  /* A size that overflows stays one that cannot be mapped. */
  const size_t rounded =
      bytes > SIZE_MAX - page ? bytes : (bytes + !bytes + page - 1) / page * page;
  int fd = -1;
  const bool exported = comm->world->domain_ranks > comm->world->count_here;
  void *memory = of->reserve(rounded, exported, &fd);
  const int64_t reason = memory ? 0 : errno;
  const sequence own = {.pid = getpid(), .fd = fd, .bytes = (int64_t)rounded, .failed = reason};
  bool readable = false;
  const ls_status status = share(comm, of, arena, own, &readable, error);
  if (fd >= 0) close(fd);
  if (status != LS_OK) {
    of->release(memory, rounded);
    return status;
  }
  *base = memory;
  comm->arenas[arena] = (ls_shared_arena){{of, memory, rounded}, readable};
  comm->arena_count++;
  return LS_OK;
}
