/* Memory of a rank that its peers address. */
#include <errno.h>
#include <stdio.h>
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
typedef struct arena_told {
  int64_t pid, file, bytes, failed, network, mailbox;
  ls_memory_owner owner;
} arena_told;

typedef struct sharing {
  ls_comm *comm;
  const ls_memory_calls *calls;
  int arena;
  arena_told *told; /* [world size] */
  ls_mailbox mailbox;
} sharing;

/* The first rank of its process, which maps for all of it. */
static bool is_first(const ls_world *world, int rank) {
  return rank == 0 || world->process[rank] != world->process[rank - 1];
}

/* What all ranks find alike: whether files of devices' memory can go to all processes. */
static ls_status check_passing(const sharing *of, ls_error *error) {
  const ls_world *world = of->comm->world;
  for (int rank = 0; rank < world->size; rank++)
    if (world->place[rank] < 0)
      return ls_fail(error, LS_FAILED,
                     "rank %d shares no memory with it: another host, container or user", rank);
  for (int rank = 0; rank < world->size; rank++) {
    const arena_told *each = &of->told[rank];
    if (each->file < 0)
      return ls_fail(error, LS_FAILED, "rank %d's GPU hands out no memory as files", rank);
    if (each->network != of->told[of->comm->rank].network)
      return ls_fail(error, LS_FAILED, "rank %d is in another network namespace", rank);
    if (is_first(world, rank) && !each->mailbox)
      return ls_fail(error, LS_FAILED, "rank %d has no socket for files, or its GPU no UUID", rank);
  }
  return LS_OK;
}

/* Devices' files are sent; those of the host's memory are opened by who maps them. */
static ls_status get_files(const sharing *of, int *files, ls_error *error) {
  const int size = of->comm->world->size;
  int64_t *names = LS_NEW_ARRAY(of->comm->memory, int64_t, size);
  for (int rank = 0; rank < size; rank++) names[rank] = of->told[rank].mailbox;
  if (of->calls->addressable) return LS_OK;
  LS_TRY(check_passing(of, error));
  ls_passing passing = {names, (int)of->told[of->comm->rank].file, files};
  return ls_files_pass(of->comm, &of->mailbox, &passing, error);
}

static ls_status map_view(const sharing *of, int rank, int *file, ls_memory *seen,
                          ls_error *error) {
  const arena_told *each = &of->told[rank];
  ls_error cause = {0};
  *seen = (ls_memory){of->calls, NULL, (size_t)each->bytes};
  if (of->calls->addressable) *file = ls_file_open_of((int)each->pid, (int)each->file);
  if (*file >= 0) {
    seen->base = of->calls->import(*file, seen->bytes, &each->owner, &cause);
    close(*file);
  }
  *file = -1;
  if (seen->base) return LS_OK;
  return ls_fail(error, LS_FAILED, "rank %d's memory: %s", rank, cause.text);
}

/* Maps what the other processes of the domain have made, for all ranks of this one. LS_FAILED where
 * some memory could not be mapped. */
static ls_status map_views(const sharing *of, int *files, ls_error *error) {
  ls_world *world = of->comm->world;
  for (int rank = 0; rank < world->size; rank++) {
    if (world->place[rank] < 0 || world->process[rank] == world->process[world->first]) continue;
    ls_memory *seen = &world->views[of->arena * world->domain_ranks + world->place[rank]];
    LS_TRY(map_view(of, rank, &files[rank], seen, error));
  }
  return LS_OK;
}

/* What is known here of why; all ranks get the text of the first that knows. */
static ls_status agree(const sharing *of, bool refused, const char *why, bool *readable,
                       ls_error *error) {
  ls_comm *comm = of->comm;
  const int size = comm->world->size;
  int64_t first = refused ? size - comm->rank : 0, words[APART_BYTES / 8] = {0};
  LS_TRY(ls_all_reduce(comm->everyone, &first, 1, LS_I64, LS_MAX, error));
  *readable = !first;
  if (!first || of->calls->addressable) return LS_OK;
  snprintf((char *)words, sizeof words, "rank %d: %.160s", comm->rank, why);
  LS_TRY(ls_broadcast(comm->everyone, words, APART_BYTES / 8, LS_I64, (int)(size - first), error));
  memcpy(comm->apart, words, sizeof words);
  return LS_OK;
}

/* One rank of a process does it for all: devices map memory for all that their threads entered. */
static ls_status share_views(const sharing *of, bool *readable, ls_error *error) {
  const ls_world *world = of->comm->world;
  const int size = world->size;
  int *files = LS_NEW_ARRAY(of->comm->memory, int, size);
  for (int rank = 0; rank < size; rank++) files[rank] = -1;
  ls_error why = {0};
  ls_status status = world->count_here < size ? get_files(of, files, &why) : LS_OK;
  if (status == LS_OK && of->comm->rank == world->first) status = map_views(of, files, &why);
  for (int rank = 0; rank < size; rank++)
    if (files[rank] >= 0) close(files[rank]);
  return agree(of, status != LS_OK, why.text, readable, error);
}

/* All ranks learn of one rank's failure, all stop sharing if one cannot map. */
static ls_status share(sharing *of, const arena_told *own, bool *readable, ls_error *error) {
  ls_comm *comm = of->comm;
  const int size = comm->world->size;
  const int64_t fields = (int64_t)(sizeof(arena_told) / sizeof(int64_t));
  of->told = LS_NEW_ARRAY(comm->memory, arena_told, size);
  of->told[comm->rank] = *own;
  LS_TRY(
      ls_all_gather(comm->everyone, of->told, &of->told[comm->rank], fields * size, LS_I64, error));
  for (int rank = 0; rank < size; rank++)
    if (of->told[rank].failed)
      return ls_fail(
          error, LS_FAILED, "rank %d: an arena of %.2f GiB cannot be mapped: %s%s", rank,
          (double)of->told[rank].bytes / (1 << 30), strerror((int)of->told[rank].failed),
          of->calls->addressable ? "" : "; lockstep doctor names who holds the device's memory");
  return share_views(of, readable, error);
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
  int file = -1;
  const ls_world *world = comm->world;
  const bool exported = world->domain_ranks > world->count_here;
  void *memory = of->reserve(rounded, exported, &file);
  sharing with = {comm, of, arena, .mailbox = {.socket = -1}};
  arena_told own = {.pid = getpid(),
                    .file = file,
                    .bytes = (int64_t)rounded,
                    .failed = memory ? 0 : errno,
                    .network = ls_files_network()};
  /* What fails here is found, and said, as files are to be passed. */
  if (exported && of->owner && memory && of->owner(&own.owner, NULL) == LS_OK &&
      ls_mailbox_open(&with.mailbox, NULL) == LS_OK && comm->rank == world->first)
    own.mailbox = with.mailbox.name;
  bool readable = false;
  const ls_status status = share(&with, &own, &readable, error);
  ls_mailbox_close(&with.mailbox);
  if (file >= 0) close(file);
  if (status != LS_OK) {
    of->release(memory, rounded);
    return status;
  }
  *base = memory;
  comm->arenas[arena] = (ls_shared_arena){{of, memory, rounded}, readable};
  comm->arena_count++;
  return LS_OK;
}
