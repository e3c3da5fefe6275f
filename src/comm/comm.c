/* Worlds of threads, and the groups of every world. */
#include "comm/comm.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "cluster/machine.h"
#include "comm/world.h"

static const double DEADLINE_S = 300;
static const size_t MESSAGE_BYTES = (size_t)1 << 30; /* MPI counts in int */
static const size_t STAGING_BYTES = (size_t)8 << 20;

ls_world *ls_world_new(int ranks, int first, int count_here) {
  ls_arena *memory = ls_arena_create();
  ls_world *world = LS_NEW(memory, ls_world);
  world->memory = memory;
  world->size = ranks;
  world->first = first;
  world->count_here = count_here;
  world->on_host = count_here;
  world->deadline_s = DEADLINE_S;
  world->message_bytes = MESSAGE_BYTES;
  world->staging_bytes = STAGING_BYTES;
  pthread_mutex_init(&world->lock, NULL);
  world->process = LS_NEW_ARRAY(memory, int, ranks);
  world->place = LS_NEW_ARRAY(memory, int, ranks);
  world->comms = LS_NEW_ARRAY(memory, ls_comm, count_here);
  for (int i = 0; i < count_here; i++) {
    ls_comm *comm = &world->comms[i];
    comm->world = world;
    comm->memory = ls_arena_create();
    comm->rank = first + i;
    comm->current_call.name = "nothing";
    comm->current_call.of = "bytes";
  }
  return world;
}

void ls_world_open(ls_world *world, int domain_ranks, int threads) {
  const size_t views = (size_t)LS_MAX_ARENAS * (size_t)domain_ranks;
  world->domain_ranks = domain_ranks;
  world->views = LS_NEW_ARRAY(world->memory, ls_memory, views);
  world->crowded = world->on_host > threads;
  world->uses_messages = domain_ranks < world->size; /* news of an abort comes by message as well */
}

ls_status ls_world_create_threads(int ranks, ls_world **made, ls_error *error) {
  *made = NULL;
  if (ranks < 1) return ls_fail(error, LS_INPUT, "%d ranks asked for; at least 1 is", ranks);
  int fd;
  ls_control *control = ls_host_memory.reserve(ls_control_bytes(), false, &fd);
  if (!control) {
    return ls_fail(error, LS_FAILED, "%zu MiB for flags cannot be mapped: %s",
                   ls_control_bytes() >> 20, strerror(errno));
  }
  ls_control_init(control, 0);
  ls_world *world = ls_world_new(ranks, 0, ranks);
  world->control = control;
  for (int rank = 0; rank < ranks; rank++) world->place[rank] = rank;
  ls_world_open(world, ranks, ls_machine_probe().threads);
  *made = world;
  return LS_OK;
}

static void memory_release(const ls_memory *memory) {
  if (memory->base) memory->of->release(memory->base, memory->bytes);
}

static void comm_close(ls_comm *comm) {
  for (int i = 0; i < comm->arena_count; i++) {
    memory_release(&comm->arenas[i].memory);
  }
  ls_host_memory.release(comm->staging, comm->world->staging_bytes);
  ls_arena_destroy(&comm->memory);
}

void ls_world_destroy(ls_world **made) {
  ls_world *world = *made;
  *made = NULL;
  if (!world) return;
  if (world->transport) world->transport->destroy(world->transport);
  for (int i = 0; i < world->count_here; i++) comm_close(&world->comms[i]);
  for (int i = 0; i < LS_MAX_ARENAS * world->domain_ranks; i++) {
    memory_release(&world->views[i]);
  }
  for (int i = 0; i < world->neighbour_count; i++) {
    if (world->neighbours[i].pidfd >= 0) close(world->neighbours[i].pidfd);
  }
  ls_host_memory.release(world->control, ls_control_bytes());
  pthread_mutex_destroy(&world->lock);
  ls_arena *memory = world->memory;
  ls_arena_destroy(&memory);
}

void ls_world_set_deadline(ls_world *world, double seconds) {
  world->deadline_s = seconds > 0 ? seconds : DEADLINE_S;
}

void ls_comm_set_patient(ls_comm *comm, bool patient) {
  comm->patient = patient;
}

void ls_comm_about(ls_comm *comm, const char *name) {
  comm->current_call.about = name;
}

int ls_world_size(const ls_world *world) {
  return world->size;
}
int ls_world_first_here(const ls_world *world) {
  return world->first;
}
int ls_world_count_here(const ls_world *world) {
  return world->count_here;
}
int ls_world_count_on_host(const ls_world *world) {
  return world->on_host;
}

ls_comm *ls_world_comm(ls_world *world, int rank) {
  LS_ASSERT(rank >= world->first && rank < world->first + world->count_here);
  return &world->comms[rank - world->first];
}

int ls_comm_rank(const ls_comm *comm) {
  return comm->rank;
}
int ls_comm_size(const ls_comm *comm) {
  return comm->world->size;
}

ls_device_place ls_comm_place(const ls_comm *comm) {
  const int of_process = comm->rank - ls_world_first_here(comm->world);
  return (ls_device_place){comm->world->first_on_host + of_process, of_process};
}
ls_comm *ls_group_comm(const ls_group *group) {
  return group->comm;
}

int ls_group_size(const ls_group *group) {
  return group->size;
}
int ls_group_rank(const ls_group *group) {
  return group->rank;
}

int64_t ls_comm_bytes_sent(const ls_comm *comm) {
  return atomic_load_explicit(&comm->bytes_sent, memory_order_relaxed);
}

const char *ls_comm_apart(const ls_comm *comm) {
  const bool one_host = comm->world->on_host == comm->world->size; /* else nobody asks */
  return one_host && *comm->apart ? comm->apart : NULL;
}

void ls_comm_abort(ls_comm *comm, const char *text) {
  (void)ls_control_abort(comm->world->control, comm->rank, text);
  if (comm->world->transport) comm->world->transport->announce(comm->world->transport);
}

/* FNV-1a over the members and how often this rank has made a group of just these: the same number
 * on each member, another one for each group. */
static uint64_t group_key(const ls_comm *comm, const int *members, int count) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (int i = 0; i < count; i++) hash = (hash ^ (uint64_t)members[i]) * 0x100000001b3u;
  uint64_t before = 0;
  for (const ls_group *group = comm->groups; group; group = group->next) {
    if (group->size != count) continue;
    before += memcmp(group->members, members, (size_t)count * sizeof *members) == 0;
  }
  hash = (hash ^ (uint64_t)count) * 0x100000001b3u;
  hash = (hash ^ before) * 0x100000001b3u;
  hash ^= hash >> 29;
  return hash ? hash : 1;
}

/* Seats the members of this rank's domain: those that share flags with it. */
static ls_status seat_members(ls_comm *comm, ls_group *group, const int *members, ls_error *error) {
  const ls_world *world = comm->world;
  group->rank = -1;
  for (int i = 0; i < group->size; i++) {
    const int rank = members[i];
    if (rank < 0 || rank >= world->size) {
      return ls_fail(error, LS_INTERNAL, "a group of rank %d in a world of %d", rank, world->size);
    }
    for (int j = 0; j < i; j++) {
      if (members[j] == rank) return ls_fail(error, LS_INTERNAL, "rank %d twice in a group", rank);
    }
    group->members[i] = rank;
    group->seats[i] = world->place[rank] < 0 ? -1 : group->seat_count++;
    if (rank != comm->rank) continue;
    group->rank = i;
    group->seat = group->seats[i];
  }
  if (group->rank >= 0) return LS_OK;
  return ls_fail(error, LS_INTERNAL, "rank %d makes a group without itself", comm->rank);
}

/* Counts the groups that this rank has in common with each member. Both make them in the same
 * order, so the two come to the same number, which no other group of theirs has. */
static ls_status count_common(ls_comm *comm, ls_group *group, ls_error *error) {
  const ls_world *world = comm->world;
  if (!world->transport) return LS_OK;
  const uint64_t most = world->transport->tags / LS_STREAMS;
  for (int i = 0; i < group->size; i++) {
    const int rank = group->members[i];
    group->earlier[i] = comm->common[rank]++;
    if (group->earlier[i] < most || world->process[rank] == world->process[comm->rank]) continue;
    return ls_fail(error, LS_INPUT,
                   "ranks %d and %d are in more than %llu groups together, and this MPI library "
                   "has no tags for more: start fewer ranks in a process",
                   comm->rank, rank, (unsigned long long)most);
  }
  return LS_OK;
}

/* Finds the flags of the group in the domain's memory; its first member there makes them. */
static ls_status group_attach(ls_comm *comm, ls_group *group, ls_error *error) {
  ls_wait wait = {.comm = comm, .peer = -1};
  for (int i = group->size; i-- > 0;) {
    if (group->seats[i] == 0) wait.peer = group->members[i];
  }
  void *block = NULL;
  for (;;) {
    LS_TRY(ls_control_block(comm->world->control, group->key,
                            (size_t)group->seat_count * sizeof *group->slots, group->seat == 0,
                            &block, error));
    if (block) break;
    LS_TRY(ls_wait_turn(&wait, error));
  }
  group->slots = block;
  return LS_OK;
}

/* Memory for messages is made here, so that no collective makes any. */
static ls_status requests_grow(ls_comm *comm, int size, ls_error *error) {
  if (!comm->world->transport || size <= comm->request_room) return LS_OK;
  for (int i = 0; i < 2; i++) {
    comm->request_sets[i].requests = LS_NEW_ARRAY(comm->memory, ls_request, 2 * size);
  }
  comm->request_room = size;
  if (!comm->common) comm->common = LS_NEW_ARRAY(comm->memory, uint64_t, comm->world->size);
  int fd;
  if (!comm->staging)
    comm->staging = ls_host_memory.reserve(comm->world->staging_bytes, false, &fd);
  if (comm->staging) return LS_OK;
  return ls_comm_give_up(comm, error, "%zu MiB for messages cannot be mapped: %s",
                         comm->world->staging_bytes >> 20, strerror(errno));
}

static ls_group *group_new(ls_comm *comm, int size) {
  ls_group *group = LS_NEW(comm->memory, ls_group);
  group->comm = comm;
  group->size = size;
  group->members = LS_NEW_ARRAY(comm->memory, int, size);
  group->seats = LS_NEW_ARRAY(comm->memory, int, size);
  group->in = LS_NEW_ARRAY(comm->memory, ls_channel *, size);
  group->out = LS_NEW_ARRAY(comm->memory, ls_channel *, size);
  group->earlier = LS_NEW_ARRAY(comm->memory, uint64_t, size);
  group->sent = LS_NEW_ARRAY(comm->memory, uint32_t, size);
  group->taken = LS_NEW_ARRAY(comm->memory, uint32_t, size);
  group->ended = LS_NEW_ARRAY(comm->memory, uint32_t, size);
  group->peers = LS_NEW_ARRAY(comm->memory, void *, size);
  group->sources = LS_NEW_ARRAY(comm->memory, const void *, size);
  group->targets = LS_NEW_ARRAY(comm->memory, void *, size);
  group->transfers = LS_NEW_ARRAY(comm->memory, ls_peer_transfer, size);
  return group;
}

ls_status ls_comm_group(ls_comm *comm, const int *members, int count, ls_group **made,
                        ls_error *error) {
  *made = NULL;
  if (count < 1) return ls_fail(error, LS_INTERNAL, "a group of %d ranks", count);
  comm->current_call.name = "making a group";
  comm->current_call.count = count;
  comm->current_call.of = "ranks";
  if (ls_control_aborted(comm->world->control, error)) return LS_FAILED;
  LS_TRY(requests_grow(comm, count, error));
  ls_group *group = group_new(comm, count);
  group->key = group_key(comm, members, count);
  LS_TRY(seat_members(comm, group, members, error));
  LS_TRY(count_common(comm, group, error));
  if (count > 1) LS_TRY(group_attach(comm, group, error));
  group->next = comm->groups;
  comm->groups = group;
  *made = group;
  return LS_OK;
}
