/* The engine of devices that read each other's memory: their queues copy, and add up in rank order.
 *
 * Ranks meet on the host as they put the work down, and say where their data lies; what is done
 * when is said to the devices by marks: events in one process, words of the host's memory where
 * ranks are of several. Each is put on a queue before anybody awaits it, so that no device waits
 * for what is not yet there. Collectives have a queue, and what is received from a peer has one.
 * Between a transfer's beginning and its end kernels run on. */
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "comm/peer_words.h"
#include "comm/watch.h"

/* Events of a member of a group, each made by the member itself; of several processes it has words.
 */
typedef struct member_events {
  ls_device_event *ready, *done;
  ls_device_event *sent[LS_MOST_SENDS], *taken[LS_MOST_SENDS]; /* by a message's number */
  _Atomic bool *left; /* the member puts nothing down any more */
} member_events;

/* What the engine has of a group of this rank's. */
struct ls_group_lanes {
  ls_group *group;
  ls_lane received;      /* of messages; where there are none it is not open */
  member_events *of;     /* [size] */
  ls_group_words *words; /* in their place; NULL: the group is of one process */
  char *numbers;         /* this rank's, of sums under way: a slot for each that may be */
  uint32_t calls, sums;  /* begun so far */
};

typedef struct peer {
  ls_carrier carrier;
  ls_lane compute;     /* the rank's kernels have */
  ls_lane collectives; /* one for all groups: what begins later may need what began before */
  ls_begun_list begun;
  LS_LIST(struct ls_group_lanes *) groups;
  ls_arena *memory;
  ls_peer_words *words; /* NULL: one process */
  ls_watch watch;       /* where there are several: one of them may be killed */
} peer;

/* Longest wait for the others at the end. */
static const int64_t LEAVE_NS = (int64_t)10 * 1000000000;

enum { NUMBERS_BYTES = LS_MOST_SENDS * LS_NUMBERS_BYTES };

static const ls_transfer_calls *calls_of(const peer *self) {
  return self->carrier.of.device->transfers;
}

static bool has_several_processes(const ls_world *world) {
  return world->count_here < world->size;
}

static bool serves(const ls_carrier_options *of) {
  const ls_world *world = of->comm->world;
  if (!of->device->transfers) return false;
  for (int r = 0; r < world->count_here; r++) {
    const ls_device_place place = ls_comm_place(&world->comms[r]);
    if (!of->device->transfers->reaches(of->queue, &place)) return false;
  }
  if (!has_several_processes(world)) return true;
  ls_error why = {0};
  const bool can = ls_peer_words_try(of, &why) == LS_OK;
  if (!can && !ls_comm_apart(of->comm) && world->on_host == world->size)
    ls_warn("rank %d's GPU takes no words of other processes: %s", of->comm->rank, why.text);
  return can;
}

static void give_up(void *of) {
  const peer *self = of;
  for (int g = 0; g < self->groups.count; g++)
    ls_peer_words_let_go(self->groups.items[g]->group, self->groups.items[g]->words);
}

static ls_status open(const ls_carrier_options *of, ls_carrier **carrier, ls_error *error) {
  peer *made = LS_NEW(of->comm->memory, peer);
  made->carrier.of = *of;
  made->memory = of->comm->memory;
  *carrier = &made->carrier;
  const bool several = has_several_processes(of->comm->world);
  made->begun =
      (ls_begun_list){.calls = calls_of(made), .memory = made->memory, .watched = several};
  made->watch =
      (ls_watch){.of = &made->carrier.of, .begun = &made->begun, .owner = made, .give_up = give_up};
  ls_watch_open(&made->watch);
  LS_TRY(ls_lane_borrow(calls_of(made), of->queue, &made->compute, error));
  LS_TRY(ls_lane_open(calls_of(made), of->queue, &made->collectives, error));
  return several ? ls_peer_words_open(&made->carrier.of, &made->words, error) : LS_OK;
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

static ls_status join_by_events(peer *self, ls_group *group, ls_error *error) {
  struct ls_group_lanes *made = group->lanes;
  int none;
  made->numbers = self->carrier.of.device->memory->reserve(NUMBERS_BYTES, false, &none);
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

static ls_status join(ls_carrier *carrier, ls_group *group, const ls_group_use *use,
                      ls_error *error) {
  peer *self = (peer *)carrier;
  struct ls_group_lanes *made = LS_NEW(self->memory, struct ls_group_lanes);
  *LS_APPEND(self->memory, &self->groups) = made;
  made->group = group;
  made->of = LS_NEW_ARRAY(self->memory, member_events, group->size);
  group->lanes = made;
  /* Few queues: those beyond what the hardware has wait for each other. */
  if (use->messages)
    LS_TRY(ls_lane_open(calls_of(self), carrier->of.queue, &made->received, error));
  if (!self->words) return join_by_events(self, group, error);
  LS_TRY(ls_peer_words_join(self->words, group, &made->words, error));
  made->numbers = made->words->numbers;
  return LS_OK;
}

static ls_status ready(ls_carrier *carrier, ls_group *everyone, ls_error *error) {
  (void)everyone;
  peer *self = (peer *)carrier;
  return self->words ? ls_watch_start(&self->watch, error) : LS_OK;
}

static void leave(const peer *self, struct ls_group_lanes *group) {
  const ls_transfer_calls *calls = calls_of(self);
  ls_lane_close(calls, &group->received);
  if (group->words) return;
  self->carrier.of.device->memory->release(group->numbers, NUMBERS_BYTES);
  const member_events *own = &group->of[group->group->rank];
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

/* The watch goes on until this rank's queues are empty: what they wait for may never come. */
static void close(ls_carrier **carrier) {
  peer *self = (peer *)*carrier;
  if (!self) return;
  const ls_transfer_calls *calls = calls_of(self);
  if (self->words)
    (void)!self->carrier.of.device->wait(self->carrier.of.queue, NULL);
  else
    wait_for_others(self);
  ls_lane_close(calls, &self->collectives);
  for (int g = 0; g < self->groups.count; g++) leave(self, self->groups.items[g]);
  ls_watch_stop(&self->watch);
  for (int g = 0; g < self->groups.count; g++) self->groups.items[g]->group->lanes = NULL;
  ls_begun_close(&self->begun);
  ls_lane_close(calls, &self->compute);
  ls_watch_close(&self->watch);
  ls_peer_words_close(self->words);
  *carrier = NULL;
}

static ls_status check(ls_carrier *carrier, ls_error *error) {
  return ls_watch_check(&((peer *)carrier)->watch, error);
}

/* ---- marks ----------------------------------------------------------------------------------- */

static ls_device_event *event_of(const member_events *of, ls_mark_kind kind, uint32_t number) {
  switch (kind) {
    case LS_MARK_READY: return of->ready;
    case LS_MARK_DONE: return of->done;
    case LS_MARK_SENT: return of->sent[number % LS_MOST_SENDS];
    default: return of->taken[number % LS_MOST_SENDS];
  }
}

/* Says, behind what is on the queue, that this rank is so far. */
static ls_status mark(const peer *self, const ls_group *group, ls_mark_kind kind, uint32_t number,
                      const ls_device_queue *queue, ls_error *error) {
  const struct ls_group_lanes *lanes = group->lanes;
  if (lanes->words)
    return ls_peer_words_write(self->words, group, lanes->words, kind, number, queue, error);
  return calls_of(self)->record(queue, event_of(&lanes->of[group->rank], kind, number), error);
}

/* What is put on the queue from now on comes after a member's having been so far. */
static ls_status follow(const peer *self, const ls_group *group, int member, ls_mark_kind kind,
                        uint32_t number, const ls_device_queue *queue, ls_error *error) {
  const struct ls_group_lanes *lanes = group->lanes;
  if (lanes->words)
    return ls_peer_words_await(self->words, lanes->words, member, kind, number, queue, error);
  return calls_of(self)->await(queue, event_of(&lanes->of[member], kind, number), error);
}

static ls_status follow_others(const peer *self, const ls_group *group, ls_mark_kind kind,
                               uint32_t number, const ls_device_queue *queue, ls_error *error) {
  for (int i = 0; i < group->size; i++)
    if (i != group->rank) LS_TRY(follow(self, group, i, kind, number, queue, error));
  return LS_OK;
}

/* Keeps what is on the lane until the transfer's end; the watch looks at the list as well. */
static ls_status keep(peer *self, ls_lane *on, const ls_transfer *of, bool ended, ls_error *error) {
  pthread_mutex_lock(&self->watch.lock);
  const ls_status status = ls_begun_keep(&self->begun, on, of, error);
  if (ended && status == LS_OK) ls_begun_end(&self->begun);
  pthread_mutex_unlock(&self->watch.lock);
  return status;
}

/* What waits for others as it ends is watched as well, until it has passed. */
static ls_status keep_end(peer *self, ls_lane *on, const ls_transfer *of, ls_error *error) {
  return self->begun.watched ? keep(self, on, of, true, error) : LS_OK;
}

static ls_status await_begun(peer *self, const ls_device_queue *queue, const ls_transfer *of,
                             ls_error *error) {
  pthread_mutex_lock(&self->watch.lock);
  const ls_status status = ls_begun_await(&self->begun, queue, of, error);
  pthread_mutex_unlock(&self->watch.lock);
  return status;
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
  ls_group *group = of->group;
  const ls_device_queue *queue = &self->collectives.queue;
  const uint32_t number = ++group->lanes->calls;
  const ls_posting call = call_of(of);
  LS_TRY(mark(self, group, LS_MARK_READY, number, queue, error));
  LS_TRY(ls_call_begin(group, &call, data, ls_transfer_bytes_of(of).in, LS_ALL_MEMBERS, error));
  LS_TRY(follow_others(self, group, LS_MARK_READY, number, queue, error));
  LS_TRY(work_of(self, of, error));
  LS_TRY(mark(self, group, LS_MARK_DONE, number, queue, error));
  LS_TRY(ls_call_end(group, true, error));
  return follow_others(self, group, LS_MARK_DONE, number, queue, error);
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
  return keep(self, &self->collectives, of, false, error);
}

/* ---- messages -------------------------------------------------------------------------------- */

static ls_status begin_send(const peer *self, const ls_transfer *of, ls_error *error) {
  ls_group *group = of->group;
  LS_TRY(mark(self, group, LS_MARK_SENT, group->sent[of->peer] + 1, self->carrier.of.queue, error));
  return ls_send_begin(group, of->source, of->count, of->dtype, of->peer, error);
}

/* Waits, on the host, until the receiver has put the copy on its queue. */
static ls_status end_send(peer *self, const ls_transfer *of, ls_lane *on, ls_error *error) {
  ls_group *group = of->group;
  LS_TRY(ls_send_end(group, of->peer, error));
  LS_TRY(follow(self, group, of->peer, LS_MARK_TAKEN, group->ended[of->peer], &on->queue, error));
  return keep_end(self, on, of, error);
}

/* Where the next message of a member lies; the queue comes after what sends it. */
static ls_status find_sent(const peer *self, const ls_transfer *of, int from,
                           const ls_device_queue *queue, const void **theirs, ls_error *error) {
  ls_group *group = of->group;
  LS_TRY(ls_receive_seen(group, of->count, of->dtype, from, theirs, error));
  return follow(self, group, from, LS_MARK_SENT, group->taken[from], queue, error);
}

static ls_status end_receive(peer *self, const ls_transfer *of, ls_error *error) {
  ls_group *group = of->group;
  ls_lane *received = &group->lanes->received;
  const size_t bytes = (size_t)of->count * ls_dtype_bytes(of->dtype);
  const void *theirs = NULL;
  LS_TRY(await_begun(self, &received->queue, of, error));
  LS_TRY(find_sent(self, of, of->peer, &received->queue, &theirs, error));
  const ls_device_copy rows = {of->target, theirs, bytes, 1, bytes, bytes};
  if (bytes) LS_TRY(calls_of(self)->copy(&received->queue, &rows, error));
  LS_TRY(mark(self, group, LS_MARK_TAKEN, group->taken[of->peer], &received->queue, error));
  ls_receive_taken(group, of->peer);
  LS_TRY(keep_end(self, received, of, error));
  return ls_lane_fence(calls_of(self), received, &self->compute, error);
}

/* ---- sums of numbers ------------------------------------------------------------------------- */

static char *slot_of(const struct ls_group_lanes *lanes, uint32_t number) {
  return lanes->numbers + (number % LS_MOST_SENDS) * LS_NUMBERS_BYTES;
}

/* The numbers as they are now, for the others to read. */
static ls_status begin_sum(const peer *self, const ls_transfer *of, ls_error *error) {
  ls_group *group = of->group;
  struct ls_group_lanes *lanes = group->lanes;
  char *slot = slot_of(lanes, ++lanes->sums);
  LS_TRY(ls_lane_fence(calls_of(self), &self->compute, &self->collectives, error));
  LS_TRY(copy(self, slot, of->source, (size_t)of->count * sizeof(double), error));
  LS_TRY(mark(self, group, LS_MARK_SENT, lanes->sums, &self->collectives.queue, error));
  for (int i = 0; i < group->size; i++)
    if (i != group->rank) LS_TRY(ls_send_begin(group, slot, of->count, LS_F64, i, error));
  return LS_OK;
}

static ls_status end_sum(peer *self, const ls_transfer *of, ls_error *error) {
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
  LS_TRY(mark(self, group, LS_MARK_TAKEN, number, queue, error));
  for (int i = 0; i < group->size; i++)
    if (i != group->rank) ls_receive_taken(group, i);
  ls_transfer each = *of;
  for (each.peer = 0; each.peer < group->size; each.peer++)
    if (each.peer != group->rank) LS_TRY(end_send(self, &each, &self->collectives, error));
  return ls_lane_fence(calls_of(self), &self->collectives, &self->compute, error);
}

static ls_status begin_any(peer *self, const ls_transfer *of, ls_error *error) {
  if (of->kind == LS_SEND) return begin_send(self, of, error);
  if (of->kind == LS_RECEIVE) return keep(self, &self->compute, of, false, error);
  if (of->kind == LS_SUM_NUMBERS) return begin_sum(self, of, error);
  return begin_collective(self, of, error);
}

static ls_status end_any(peer *self, const ls_transfer *of, ls_error *error) {
  if (of->kind == LS_SEND) return end_send(self, of, &self->compute, error);
  if (of->kind == LS_RECEIVE) return end_receive(self, of, error);
  if (of->kind == LS_SUM_NUMBERS) return end_sum(self, of, error);
  return await_begun(self, self->carrier.of.queue, of, error);
}

/* Where this rank fails it may have put down half of a transfer, whose other half others' queues
 * wait for: they hear of it before this rank's queues are waited for. */
static ls_status announce(peer *self, ls_status status, ls_error *error) {
  ls_comm *comm = self->carrier.of.comm;
  if (status == LS_OK || !self->words || ls_control_aborted(comm->world->control, NULL))
    return status;
  ls_comm_abort(comm, error ? error->text : "a transfer failed");
  return status;
}

static ls_status begin(ls_carrier *carrier, const ls_transfer *of, ls_error *error) {
  peer *self = (peer *)carrier;
  return announce(self, begin_any(self, of, error), error);
}

static ls_status end(ls_carrier *carrier, const ls_transfer *of, ls_error *error) {
  peer *self = (peer *)carrier;
  return announce(self, end_any(self, of, error), error);
}

const ls_engine ls_engine_peer = {.name = "peer",
                                  .words = "between their memories, added up in rank order",
                                  .needs = "ranks of one host whose GPUs read each other's memory",
                                  .queues = &ls_queues_in_process,
                                  .serves = serves,
                                  .open = open,
                                  .join = join,
                                  .ready = ready,
                                  .begin = begin,
                                  .end = end,
                                  .check = check,
                                  .close = close};
