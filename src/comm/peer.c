/* The engine of devices that read each other's memory: their queues copy, and add up in rank order.
 *
 * Ranks meet on the host as they put the work down, and say where their data lies; what is done
 * when is said to the devices by events. Each is recorded before anybody awaits it, so that no
 * device waits for what is not yet on a queue. Collectives have a queue, and what is received from
 * a peer has one. Between a transfer's beginning and its end kernels run on.
 */
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "comm/lanes.h"
#include "comm/world.h"

/* Events of a member of a group, each made by the member itself. */
typedef struct member_events {
  ls_device_event *ready, *done; /* its data of a collective is there; it no longer reads others' */
  ls_device_event *sent[LS_MOST_SENDS], *taken[LS_MOST_SENDS]; /* by a message's number */
  _Atomic bool *left; /* the member puts nothing down any more */
} member_events;

/* What the engine has of a group of this rank's. */
struct ls_group_lanes {
  ls_lane received;
  member_events *of; /* [size] */
  char *numbers;     /* this rank's, of sums under way: a slot for each that may be */
  uint32_t sums;     /* begun so far */
};

typedef struct peer {
  ls_carrier carrier;
  ls_lane compute;     /* the rank's kernels have */
  ls_lane collectives; /* one for all groups: what begins later may need what began before */
  ls_begun_list begun;
  LS_LIST(struct ls_group_lanes *) groups;
  ls_arena *memory;
} peer;

/* Longest wait for the others at the end. */
static const int64_t LEAVE_NS = (int64_t)10 * 1000000000;

enum { NUMBERS_BYTES = LS_MOST_NUMBERS * sizeof(double) };

static const ls_transfer_calls *calls_of(const peer *self) {
  return self->carrier.of.device->transfers;
}

static bool serves(const ls_carrier_options *of) {
  const ls_world *world = of->comm->world;
  if (!of->device->transfers || world->count_here < world->size) return false;
  for (int rank = 0; rank < world->size; rank++) {
    const ls_device_place place = ls_comm_place(&world->comms[rank]);
    if (!of->device->transfers->reaches(of->queue, &place)) return false;
  }
  return true;
}

static ls_status open(const ls_carrier_options *of, ls_carrier **carrier, ls_error *error) {
  peer *made = LS_NEW(of->comm->memory, peer);
  made->carrier.of = *of;
  made->memory = of->comm->memory;
  *carrier = &made->carrier;
  made->begun = (ls_begun_list){.calls = calls_of(made), .memory = made->memory};
  LS_TRY(ls_lane_borrow(calls_of(made), of->queue, &made->compute, error));
  return ls_lane_open(calls_of(made), of->queue, &made->collectives, error);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* A member's events as it tells the others: addresses, which are the same in all of a process. */
typedef union events_told {
  member_events events;
  int64_t words[sizeof(member_events) / sizeof(int64_t)];
} events_told;

static ls_status make_events(const peer *self, member_events *made, ls_error *error) {
  const ls_transfer_calls *calls = calls_of(self);
  const ls_device_queue *queue = self->carrier.of.queue;
  LS_TRY(calls->make_event(queue, &made->ready, error));
  LS_TRY(calls->make_event(queue, &made->done, error));
  for (int m = 0; m < LS_MOST_SENDS; m++) {
    LS_TRY(calls->make_event(queue, &made->sent[m], error));
    LS_TRY(calls->make_event(queue, &made->taken[m], error));
  }
  return LS_OK;
}

static ls_status join(ls_carrier *carrier, ls_group *group, const ls_group_use *use,
                      ls_error *error) {
  (void)use;
  peer *self = (peer *)carrier;
  struct ls_group_lanes *made = LS_NEW(self->memory, struct ls_group_lanes);
  made->of = LS_NEW_ARRAY(self->memory, member_events, group->size);
  *LS_APPEND(self->memory, &self->groups) = made;
  group->lanes = made;
  LS_TRY(ls_lane_open(calls_of(self), carrier->of.queue, &made->received, error));
  int none;
  made->numbers =
      carrier->of.device->memory->reserve((size_t)LS_MOST_SENDS * NUMBERS_BYTES, false, &none);
  if (!made->numbers) return ls_fail(error, LS_FAILED, "out of memory for a group's sums");
  events_told *all = LS_NEW_ARRAY(self->memory, events_told, group->size);
  member_events *own = &made->of[group->rank];
  LS_TRY(make_events(self, own, error));
  own->left = LS_NEW(self->memory, _Atomic bool);
  all[group->rank].events = *own;
  const int64_t words = (int64_t)(sizeof(events_told) / sizeof(int64_t)) * group->size;
  LS_TRY(ls_all_gather(group, all, &all[group->rank], words, LS_I64, error));
  for (int m = 0; m < group->size; m++) made->of[m] = all[m].events;
  return LS_OK;
}

static void leave(const peer *self, struct ls_group_lanes *group, int rank) {
  const ls_transfer_calls *calls = calls_of(self);
  const ls_memory_calls *memory = self->carrier.of.device->memory;
  ls_lane_close(calls, &group->received);
  memory->release(group->numbers, (size_t)LS_MOST_SENDS * NUMBERS_BYTES);
  const member_events *own = &group->of[rank];
  calls->free_event(own->ready);
  calls->free_event(own->done);
  for (int m = 0; m < LS_MOST_SENDS; m++) {
    calls->free_event(own->sent[m]);
    calls->free_event(own->taken[m]);
  }
}

/* Others may be about to await this rank's events, which go as it closes: it gives them the time to
 * close as well, but where one has failed. */
static void wait_for_others(const peer *self) {
  ls_comm *comm = self->carrier.of.comm;
  const int64_t started = ls_now_ns();
  for (ls_group *group = comm->groups; group; group = group->next)
    if (group->lanes && group->lanes->of[group->rank].left)
      atomic_store(group->lanes->of[group->rank].left, true);
  for (ls_group *group = comm->groups; group; group = group->next)
    for (int i = 0; group->lanes && i < group->size; i++)
      while (group->lanes->of[i].left && !atomic_load(group->lanes->of[i].left) &&
             !ls_control_aborted(comm->world->control, NULL) && ls_now_ns() - started < LEAVE_NS)
        sched_yield();
}

static void close(ls_carrier **carrier) {
  peer *self = (peer *)*carrier;
  if (!self) return;
  wait_for_others(self);
  const ls_transfer_calls *calls = calls_of(self);
  int left = self->groups.count;
  for (ls_group *group = self->carrier.of.comm->groups; group && left; group = group->next) {
    if (!group->lanes) continue;
    leave(self, group->lanes, group->rank);
    group->lanes = NULL;
    left--;
  }
  ls_begun_close(&self->begun);
  ls_lane_close(calls, &self->compute);
  ls_lane_close(calls, &self->collectives);
  *carrier = NULL;
}

/* ---- collectives ----------------------------------------------------------------------------- */

static ls_status copy(const peer *self, void *to, const void *from, size_t bytes, ls_error *error) {
  if (!bytes || to == from) return LS_OK;
  const ls_device_copy of = {to, from, bytes, 1, bytes, bytes};
  return calls_of(self)->copy(&self->collectives.queue, &of, error);
}

/* This rank's shard of all members' data, added up; others read the rest of this rank's. */
static ls_status sum(const peer *self, const ls_transfer *of, void *target, ls_error *error) {
  ls_group *group = of->group;
  const ls_shard_range own = ls_group_shard(group, of->count, group->rank);
  const size_t width = ls_dtype_bytes(of->dtype), offset = (size_t)own.start * width;
  ls_count_sent(group->comm, (of->count - own.count) * (int64_t)width);
  if (own.count == 0) return LS_OK;
  for (int i = 0; i < group->size; i++) group->sources[i] = (char *)group->peers[i] + offset;
  const ls_device_sum with = {.target = target,
                              .sources = group->sources,
                              .ranks = group->size,
                              .count = own.count,
                              .dtype = of->dtype,
                              .largest = of->kind == LS_ALL_REDUCE && of->reduce == LS_MAX,
                              .accumulate = of->accumulate};
  return calls_of(self)->sum(&self->collectives.queue, &with, error);
}

static ls_status all_reduce(const peer *self, const ls_transfer *of, ls_error *error) {
  const ls_group *group = of->group;
  const size_t width = ls_dtype_bytes(of->dtype);
  const ls_shard_range own = ls_group_shard(group, of->count, group->rank);
  const size_t offset = (size_t)own.start * width, bytes = (size_t)own.count * width;
  char *sums = (char *)of->target + offset;
  LS_TRY(sum(self, of, sums, error));
  for (int step = 1; step < group->size; step++) {
    const int i = (group->rank + step) % group->size;
    LS_TRY(copy(self, (char *)group->peers[i] + offset, sums, bytes, error));
  }
  ls_count_sent(group->comm, (int64_t)bytes * (group->size - 1));
  return LS_OK;
}

static ls_status all_gather(const peer *self, const ls_transfer *of, ls_error *error) {
  const ls_group *group = of->group;
  const size_t width = ls_dtype_bytes(of->dtype);
  /* Each rank begins with another one, so that not all read the same memory at the same time. */
  for (int step = 0; step < group->size; step++) {
    const int i = (group->rank + step) % group->size;
    const ls_shard_range theirs = ls_group_shard(group, of->count, i);
    LS_TRY(copy(self, (char *)of->target + (size_t)theirs.start * width, group->peers[i],
                (size_t)theirs.count * width, error));
  }
  const ls_shard_range own = ls_group_shard(group, of->count, group->rank);
  ls_count_sent(group->comm, own.count * (int64_t)width * (group->size - 1));
  return LS_OK;
}

static ls_status copy_rows(void *context, const ls_device_copy *rows, ls_error *error) {
  const peer *self = context;
  return calls_of(self)->copy(&self->collectives.queue, rows, error);
}

static ls_status all_to_all(peer *self, const ls_transfer *of, ls_error *error) {
  const ls_group *group = of->group;
  for (int step = 0; step < group->size; step++) {
    const int i = (group->rank + step) % group->size;
    LS_TRY(ls_reshard_rows(&of->reshard, i, group->rank, of->dtype, of->target, group->peers[i],
                           copy_rows, self, error));
    if (i != group->rank)
      ls_count_sent(group->comm,
                    (int64_t)ls_reshard_bytes(&of->reshard, group->rank, i, of->dtype));
  }
  return LS_OK;
}

static int around(const ls_group *group, int member) {
  return (member % group->size + group->size) % group->size;
}

static ls_status permute(const peer *self, const ls_transfer *of, ls_error *error) {
  const ls_group *group = of->group;
  const size_t bytes = (size_t)of->count * ls_dtype_bytes(of->dtype);
  if (around(group, of->shift) != 0) ls_count_sent(group->comm, (int64_t)bytes);
  return copy(self, of->target, group->peers[around(group, group->rank + of->shift)], bytes, error);
}

static ls_status work_of(peer *self, const ls_transfer *of, ls_error *error) {
  switch (of->kind) {
    case LS_ALL_REDUCE: return all_reduce(self, of, error);
    case LS_REDUCE_SCATTER: return sum(self, of, of->target, error);
    case LS_ALL_GATHER: return all_gather(self, of, error);
    case LS_ALL_TO_ALL: return all_to_all(self, of, error);
    case LS_PERMUTE: return permute(self, of, error);
    default: return ls_fail(error, LS_INTERNAL, "not a collective of a group");
  }
}

/* What members must agree on. */
static ls_posting call_of(const ls_transfer *of) {
  static const ls_call_kind kinds[] = {[LS_ALL_REDUCE] = LS_CALL_ALL_REDUCE,
                                       [LS_REDUCE_SCATTER] = LS_CALL_REDUCE_SCATTER,
                                       [LS_ALL_GATHER] = LS_CALL_ALL_GATHER,
                                       [LS_ALL_TO_ALL] = LS_CALL_ALL_TO_ALL,
                                       [LS_PERMUTE] = LS_CALL_PERMUTE};
  const int details[] = {[LS_ALL_REDUCE] = (int)of->reduce,
                         [LS_ALL_TO_ALL] = of->reshard.gathered * LS_MAX_DIMS + of->reshard.cut,
                         [LS_PERMUTE] = of->shift};
  return (ls_posting){.kind = (int32_t)kinds[of->kind],
                      .dtype = (int32_t)of->dtype,
                      .detail = details[of->kind],
                      .count = of->count};
}

/* Meets the others twice: when all have said where their data lies, and when all have put down what
 * reads it. */
static ls_status meet_and_work(peer *self, const ls_transfer *of, void *data, ls_error *error) {
  const ls_transfer_calls *calls = calls_of(self);
  ls_group *group = of->group;
  const ls_device_queue *queue = &self->collectives.queue;
  const member_events *events = group->lanes->of;
  const ls_posting call = call_of(of);
  LS_TRY(calls->record(queue, events[group->rank].ready, error));
  LS_TRY(ls_call_begin(group, &call, data, ls_transfer_bytes_of(of).in, LS_ALL_MEMBERS, error));
  for (int i = 0; i < group->size; i++)
    if (i != group->rank) LS_TRY(calls->await(queue, events[i].ready, error));
  LS_TRY(work_of(self, of, error));
  LS_TRY(calls->record(queue, events[group->rank].done, error));
  LS_TRY(ls_call_end(group, true, error));
  for (int i = 0; i < group->size; i++)
    if (i != group->rank) LS_TRY(calls->await(queue, events[i].done, error));
  return LS_OK;
}

static ls_status begin_collective(peer *self, const ls_transfer *of, ls_error *error) {
  ls_group *group = of->group;
  const bool reduces = of->kind == LS_ALL_REDUCE || of->kind == LS_REDUCE_SCATTER;
  const ls_posting call = call_of(of);
  LS_TRY(ls_call_check(group, (ls_call_kind)call.kind, of->count, of->dtype, reduces, error));
  LS_TRY(ls_lane_fence(calls_of(self), &self->compute, &self->collectives, error));
  void *data = of->kind == LS_ALL_REDUCE ? of->target : of->source;
  if (of->kind == LS_ALL_REDUCE)
    LS_TRY(copy(self, of->target, of->source, ls_transfer_bytes_of(of).in, error));
  ls_status status;
  if (group->size > 1) {
    status = ls_call_conclude(group, meet_and_work(self, of, data, error));
  } else {
    group->peers[0] = data;
    status = work_of(self, of, error);
  }
  LS_TRY(status);
  return ls_begun_keep(&self->begun, &self->collectives, of, error);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* The event of a message of this number. */
static ls_device_event *of_number(ls_device_event *const *events, uint32_t number) {
  return events[number % LS_MOST_SENDS];
}

static ls_status begin_send(const peer *self, const ls_transfer *of, ls_error *error) {
  ls_group *group = of->group;
  const struct ls_group_lanes *lanes = group->lanes;
  const uint32_t number = group->sent[of->peer] + 1;
  LS_TRY(calls_of(self)->record(self->carrier.of.queue,
                                of_number(lanes->of[group->rank].sent, number), error));
  return ls_send_begin(group, of->source, of->count, of->dtype, of->peer, error);
}

/* Waits, on the host, until the receiver has put the copy on its queue. */
static ls_status end_send(const peer *self, const ls_transfer *of, const ls_device_queue *queue,
                          ls_error *error) {
  ls_group *group = of->group;
  LS_TRY(ls_send_end(group, of->peer, error));
  return calls_of(self)->await(
      queue, of_number(group->lanes->of[of->peer].taken, group->ended[of->peer]), error);
}

/* Where the next message of a member lies; the queue comes after what sends it. */
static ls_status find_sent(const peer *self, const ls_transfer *of, int from,
                           const ls_device_queue *queue, const void **theirs, ls_error *error) {
  ls_group *group = of->group;
  LS_TRY(ls_receive_seen(group, of->count, of->dtype, from, theirs, error));
  return calls_of(self)->await(queue, of_number(group->lanes->of[from].sent, group->taken[from]),
                               error);
}

static ls_status end_receive(peer *self, const ls_transfer *of, ls_error *error) {
  ls_group *group = of->group;
  const ls_device_queue *queue = &group->lanes->received.queue;
  const size_t bytes = (size_t)of->count * ls_dtype_bytes(of->dtype);
  const void *theirs = NULL;
  LS_TRY(ls_begun_await(&self->begun, queue, of, error));
  LS_TRY(find_sent(self, of, of->peer, queue, &theirs, error));
  const ls_device_copy rows = {of->target, theirs, bytes, 1, bytes, bytes};
  if (bytes) LS_TRY(calls_of(self)->copy(queue, &rows, error));
  LS_TRY(calls_of(self)->record(
      queue, of_number(group->lanes->of[group->rank].taken, group->taken[of->peer]), error));
  ls_receive_taken(group, of->peer);
  return ls_lane_fence(calls_of(self), &group->lanes->received, &self->compute, error);
}

/* ---- sums of numbers ------------------------------------------------------------------------- */

static char *slot_of(const struct ls_group_lanes *lanes, uint32_t number) {
  return lanes->numbers + (number % LS_MOST_SENDS) * NUMBERS_BYTES;
}

/* The numbers as they are now, for the others to read. */
static ls_status begin_sum(const peer *self, const ls_transfer *of, ls_error *error) {
  ls_group *group = of->group;
  struct ls_group_lanes *lanes = group->lanes;
  char *slot = slot_of(lanes, ++lanes->sums);
  LS_TRY(ls_lane_fence(calls_of(self), &self->compute, &self->collectives, error));
  LS_TRY(copy(self, slot, of->source, (size_t)of->count * sizeof(double), error));
  LS_TRY(calls_of(self)->record(&self->collectives.queue,
                                of_number(lanes->of[group->rank].sent, lanes->sums), error));
  for (int i = 0; i < group->size; i++)
    if (i != group->rank) LS_TRY(ls_send_begin(group, slot, of->count, LS_F64, i, error));
  return LS_OK;
}

static ls_status end_sum(const peer *self, const ls_transfer *of, ls_error *error) {
  ls_group *group = of->group;
  const struct ls_group_lanes *lanes = group->lanes;
  const ls_device_queue *queue = &self->collectives.queue;
  const int next = group->rank == 0 && group->size > 1;
  if (group->size == 1) return LS_OK;
  const uint32_t number = group->taken[next] + 1; /* sums end in the order in which they began */
  LS_TRY(ls_lane_fence(calls_of(self), &self->compute, &self->collectives, error));
  for (int i = 0; i < group->size; i++) {
    const void *theirs = slot_of(lanes, number);
    if (i != group->rank) LS_TRY(find_sent(self, of, i, queue, &theirs, error));
    group->sources[i] = theirs;
  }
  const ls_device_sum with = {.target = of->target,
                              .sources = group->sources,
                              .ranks = group->size,
                              .count = of->count,
                              .dtype = LS_F64};
  LS_TRY(calls_of(self)->sum(queue, &with, error));
  LS_TRY(calls_of(self)->record(queue, of_number(lanes->of[group->rank].taken, number), error));
  for (int i = 0; i < group->size; i++)
    if (i != group->rank) ls_receive_taken(group, i);
  ls_transfer each = *of;
  for (each.peer = 0; each.peer < group->size; each.peer++)
    if (each.peer != group->rank) LS_TRY(end_send(self, &each, queue, error));
  return ls_lane_fence(calls_of(self), &self->collectives, &self->compute, error);
}

static ls_status begin(ls_carrier *carrier, const ls_transfer *of, ls_error *error) {
  peer *self = (peer *)carrier;
  if (of->kind == LS_SEND) return begin_send(self, of, error);
  if (of->kind == LS_RECEIVE) return ls_begun_keep(&self->begun, &self->compute, of, error);
  if (of->kind == LS_SUM_NUMBERS) return begin_sum(self, of, error);
  return begin_collective(self, of, error);
}

static ls_status end(ls_carrier *carrier, const ls_transfer *of, ls_error *error) {
  peer *self = (peer *)carrier;
  if (of->kind == LS_SEND) return end_send(self, of, carrier->of.queue, error);
  if (of->kind == LS_RECEIVE) return end_receive(self, of, error);
  if (of->kind == LS_SUM_NUMBERS) return end_sum(self, of, error);
  return ls_begun_await(&self->begun, carrier->of.queue, of, error);
}

const ls_engine ls_engine_peer = {
    .name = "peer",
    .words = "between their memories, added up in rank order",
    .needs = "ranks of one process whose GPUs read each other's memory",
    .queues = &ls_queues_in_process,
    .serves = serves,
    .open = open,
    .join = join,
    .begin = begin,
    .end = end,
    .close = close};
