/* The engine of devices whose library carries data between ranks of any processes and hosts (NCCL).
 *
 * A transfer's beginning has its channel's queue come after the kernels so far, and puts the
 * library's work there; its end has the kernels come after that. The host waits for nothing but a
 * library that says that it is not through with the call. */
#include "comm/nccl.h"

#include <string.h>

static bool serves(const ls_carrier_options *of) {
  const ls_world *world = of->comm->world;
  const ls_communicator_calls *calls = of->device->communicators;
  if (!of->device->transfers || !calls || world->size == 1 || of->device->facts.exact) return false;
  for (int r = 0; r < world->count_here; r++) {
    const ls_comm *other = &world->comms[r];
    const ls_device_place place = ls_comm_place(other);
    if (other != of->comm && calls->shares(of->queue, &place)) return false;
  }
  return true;
}

static ls_status open(const ls_carrier_options *of, ls_carrier **carrier, ls_error *error) {
  ls_nccl *made = LS_NEW(of->comm->memory, ls_nccl);
  made->carrier.of = *of;
  made->memory = of->comm->memory;
  made->begun =
      (ls_begun_list){.calls = of->device->transfers, .memory = made->memory, .watched = true};
  made->watch = (ls_watch){.of = &made->carrier.of,
                           .begun = &made->begun,
                           .owner = made,
                           .poll = ls_nccl_find_failure,
                           .give_up = ls_nccl_abort};
  ls_watch_open(&made->watch);
  *carrier = &made->carrier;
  return ls_lane_borrow(of->device->transfers, of->queue, &made->compute, error);
}

static ls_status join(ls_carrier *carrier, ls_group *group, const ls_group_use *use,
                      ls_error *error) {
  return ls_nccl_add_group((ls_nccl *)carrier, group, use, error);
}

/* The others wait for what has failed here: they hear of it at once. */
static ls_status ready(ls_carrier *carrier, ls_group *everyone, ls_error *error) {
  ls_nccl *self = (ls_nccl *)carrier;
  ls_error unread = {0};
  if (!error) error = &unread;
  ls_status status = ls_nccl_connect(self, everyone, error);
  if (status == LS_OK) status = ls_watch_start(&self->watch, error);
  if (status == LS_OK || ls_control_aborted(carrier->of.comm->world->control, NULL)) return status;
  ls_error_prefix(error, "making communicators");
  ls_comm_abort(carrier->of.comm, error->text);
  ls_error_prefix(error, "rank %d", carrier->of.comm->rank);
  return status;
}

static void close(ls_carrier **carrier) {
  ls_nccl *self = (ls_nccl *)*carrier;
  if (!self) return;
  const ls_transfer_calls *calls = self->begun.calls;
  ls_watch_stop(&self->watch);
  ls_nccl_disconnect(self);
  for (int c = 0; c < self->channels.count; c++)
    ls_lane_close(calls, &self->channels.items[c]->lane);
  ls_begun_close(&self->begun);
  ls_lane_close(calls, &self->compute);
  if (self->scratch) carrier[0]->of.device->memory->release(self->scratch, self->scratch_bytes);
  ls_watch_close(&self->watch);
  *carrier = NULL;
}

/* ---- collectives ----------------------------------------------------------------------------- */

static ls_status put(const ls_nccl *self, ls_nccl_channel *on, const ls_communicator_work *work,
                     ls_error *error) {
  return ls_nccl_calls_of(self)->put(on->communicator, &on->lane.queue, work, error);
}

static ls_status copy(const ls_nccl *self, const ls_device_queue *queue, void *to, const void *from,
                      size_t bytes, ls_error *error) {
  if (!bytes || to == from) return LS_OK;
  const ls_device_copy of = {to, from, bytes, 1, bytes, bytes};
  return self->begun.calls->copy(queue, &of, error);
}

/* What the target holds, and a rank's shard of the sums. */
static ls_status add(const ls_nccl *self, const ls_device_queue *queue, const ls_transfer *of,
                     const void *sums, int64_t count, ls_error *error) {
  const ls_device_sum with = {.target = of->target,
                              .sources = &sums,
                              .ranks = 1,
                              .count = count,
                              .dtype = of->dtype,
                              .accumulate = true};
  return count ? self->begun.calls->sum(queue, &with, error) : LS_OK;
}

/* Shards of other lengths are work each, all of them one group. */
static ls_status each_shard(const ls_nccl *self, ls_nccl_channel *on, const ls_transfer *of,
                            void *target, ls_error *error) {
  const ls_communicator_calls *calls = ls_nccl_calls_of(self);
  const ls_group *group = of->group;
  const bool gathers = of->kind == LS_ALL_GATHER;
  LS_TRY(calls->open_group(on->communicator, error));
  ls_status status = LS_OK;
  for (int i = 0; i < group->size && status == LS_OK; i++) {
    const ls_shard_range shard = ls_group_shard(group, of->count, i);
    const size_t offset = (size_t)shard.start * ls_dtype_bytes(of->dtype);
    const bool own = i == group->rank;
    const ls_communicator_work work = {.kind = gathers ? LS_TOGETHER_BROADCAST : LS_TOGETHER_REDUCE,
                                       .source = !gathers ? (const char *)of->source + offset
                                                 : own    ? of->source
                                                          : target,
                                       .target = gathers ? (char *)of->target + offset : target,
                                       .count = shard.count,
                                       .dtype = of->dtype,
                                       .peer = i};
    if (shard.count) status = put(self, on, &work, error);
  }
  const ls_status closed = calls->close_group(on->communicator, status == LS_OK ? error : NULL);
  return status == LS_OK ? closed : status;
}

static ls_status all_reduce(const ls_nccl *self, ls_nccl_channel *on, const ls_transfer *of,
                            ls_error *error) {
  const ls_communicator_work work = {.kind = LS_TOGETHER_ALL_REDUCE,
                                     .source = of->source,
                                     .target = of->target,
                                     .count = of->count,
                                     .dtype = of->dtype,
                                     .largest = of->reduce == LS_MAX};
  return of->count ? put(self, on, &work, error) : LS_OK;
}

static ls_status reduce_scatter(const ls_nccl *self, ls_nccl_channel *on, const ls_transfer *of,
                                ls_error *error) {
  const ls_group *group = of->group;
  const ls_shard_range own = ls_group_shard(group, of->count, group->rank);
  void *target = of->accumulate ? on->scratch : of->target;
  if (of->count % group->size == 0 && of->count) {
    const ls_communicator_work work = {.kind = LS_TOGETHER_REDUCE_SCATTER,
                                       .source = of->source,
                                       .target = target,
                                       .count = own.count,
                                       .dtype = of->dtype};
    LS_TRY(put(self, on, &work, error));
  } else {
    LS_TRY(each_shard(self, on, of, target, error));
  }
  return of->accumulate ? add(self, &on->lane.queue, of, target, own.count, error) : LS_OK;
}

static ls_status all_gather(const ls_nccl *self, ls_nccl_channel *on, const ls_transfer *of,
                            ls_error *error) {
  const ls_group *group = of->group;
  if (of->count % group->size || !of->count) return each_shard(self, on, of, of->target, error);
  const ls_communicator_work work = {.kind = LS_TOGETHER_ALL_GATHER,
                                     .source = of->source,
                                     .target = of->target,
                                     .count = of->count / group->size,
                                     .dtype = of->dtype};
  return put(self, on, &work, error);
}

typedef struct copying {
  const ls_nccl *self;
  const ls_device_queue *queue;
} copying;

static ls_status copy_rows(void *context, const ls_device_copy *rows, ls_error *error) {
  const copying *with = context;
  return with->self->begun.calls->copy(with->queue, rows, error);
}

/* Puts a message to or from a member, as part of a group. */
static ls_status put_message(const ls_nccl *self, ls_nccl_channel *on, int peer, bool sends,
                             char *data, size_t bytes, ls_error *error) {
  const ls_communicator_work work = {.kind = sends ? LS_TOGETHER_SEND : LS_TOGETHER_RECEIVE,
                                     .source = data,
                                     .target = data,
                                     .count = (int64_t)bytes,
                                     .dtype = LS_U8,
                                     .peer = peer};
  return bytes ? put(self, on, &work, error) : LS_OK;
}

/* The blocks for other members lie in the scratch, those for each together, then those from them.
 */
static ls_status send_blocks(const ls_nccl *self, ls_nccl_channel *on, const ls_transfer *of,
                             char *in, ls_error *error) {
  const ls_group *group = of->group;
  char *out = on->scratch;
  for (int i = 0; i < group->size; i++) {
    const size_t leaves = ls_reshard_bytes(&of->reshard, group->rank, i, of->dtype),
                 comes = ls_reshard_bytes(&of->reshard, i, group->rank, of->dtype);
    if (i == group->rank) continue;
    LS_TRY(put_message(self, on, i, true, out, leaves, error));
    LS_TRY(put_message(self, on, i, false, in, comes, error));
    ls_count_sent(group->comm, (int64_t)leaves);
    out += leaves;
    in += comes;
  }
  return LS_OK;
}

/* Between the buffers and the scratch, and this rank's own block straight over. */
static ls_status pack_blocks(const ls_nccl *self, const ls_nccl_channel *on, const ls_transfer *of,
                             bool out, char **packed, ls_error *error) {
  const ls_group *group = of->group;
  copying with = {self, &on->lane.queue};
  for (int i = 0; i < group->size; i++) {
    const ls_reshard_side side = {out ? group->rank : i, out ? i : group->rank, out};
    if (i == group->rank && !out) continue;
    if (i == group->rank) {
      LS_TRY(ls_reshard_rows(&of->reshard, i, i, of->dtype, of->target, of->source, copy_rows,
                             &with, error));
      continue;
    }
    LS_TRY(ls_reshard_packed(&of->reshard, &side, of->dtype, out ? (void *)of->source : of->target,
                             *packed, copy_rows, &with, error));
    *packed += ls_reshard_bytes(&of->reshard, side.from, side.to, of->dtype);
  }
  return LS_OK;
}

static ls_status all_to_all(const ls_nccl *self, ls_nccl_channel *on, const ls_transfer *of,
                            ls_error *error) {
  const ls_communicator_calls *calls = ls_nccl_calls_of(self);
  char *in = on->scratch;
  LS_TRY(pack_blocks(self, on, of, true, &in, error));
  LS_TRY(calls->open_group(on->communicator, error));
  const ls_status status = send_blocks(self, on, of, in, error);
  const ls_status closed = calls->close_group(on->communicator, status == LS_OK ? error : NULL);
  LS_TRY(status);
  LS_TRY(closed);
  return pack_blocks(self, on, of, false, &in, error);
}

static int around(const ls_group *group, int member) {
  return (member % group->size + group->size) % group->size;
}

static ls_status permute(const ls_nccl *self, ls_nccl_channel *on, const ls_transfer *of,
                         ls_error *error) {
  const ls_communicator_calls *calls = ls_nccl_calls_of(self);
  const ls_group *group = of->group;
  const size_t bytes = (size_t)of->count * ls_dtype_bytes(of->dtype);
  const int from = around(group, group->rank + of->shift),
            to = around(group, group->rank - of->shift);
  if (from == group->rank) return copy(self, &on->lane.queue, of->target, of->source, bytes, error);
  LS_TRY(calls->open_group(on->communicator, error));
  ls_status status = put_message(self, on, to, true, (char *)of->source, bytes, error);
  if (status == LS_OK) status = put_message(self, on, from, false, of->target, bytes, error);
  const ls_status closed = calls->close_group(on->communicator, status == LS_OK ? error : NULL);
  return status == LS_OK ? closed : status;
}

static ls_status sum_numbers(const ls_nccl *self, ls_nccl_channel *on, const ls_transfer *of,
                             ls_error *error) {
  const ls_communicator_work work = {
      .kind = LS_TOGETHER_ALL_REDUCE,
      .source = of->source,
      .target = on->numbers + on->sums++ % LS_MOST_SENDS * LS_MOST_NUMBERS * sizeof(double),
      .count = of->count,
      .dtype = LS_F64};
  return put(self, on, &work, error);
}

static ls_status work_of(const ls_nccl *self, ls_nccl_channel *on, const ls_transfer *of,
                         ls_error *error) {
  const ls_communicator_work message = {
      .kind = of->kind == LS_SEND ? LS_TOGETHER_SEND : LS_TOGETHER_RECEIVE,
      .source = of->source,
      .target = of->target,
      .count = of->count,
      .dtype = of->dtype,
      .peer = of->peer};
  switch (of->kind) {
    case LS_ALL_REDUCE: return all_reduce(self, on, of, error);
    case LS_REDUCE_SCATTER: return reduce_scatter(self, on, of, error);
    case LS_ALL_GATHER: return all_gather(self, on, of, error);
    case LS_ALL_TO_ALL: return all_to_all(self, on, of, error);
    case LS_PERMUTE: return permute(self, on, of, error);
    case LS_SUM_NUMBERS: return sum_numbers(self, on, of, error);
    default: return put(self, on, &message, error);
  }
}

/* A group of one: its rank's kernels' own queue does it. */
static ls_status work_alone(const ls_nccl *self, const ls_transfer *of, ls_error *error) {
  const ls_device_queue *queue = self->carrier.of.queue;
  const size_t bytes = (size_t)of->count * ls_dtype_bytes(of->dtype);
  copying with = {self, queue};
  if (of->kind == LS_SUM_NUMBERS) return LS_OK;
  if (of->kind == LS_REDUCE_SCATTER && of->accumulate)
    return add(self, queue, of, of->source, of->count, error);
  if (of->kind == LS_ALL_TO_ALL)
    return ls_reshard_rows(&of->reshard, 0, 0, of->dtype, of->target, of->source, copy_rows, &with,
                           error);
  return copy(self, queue, of->target, of->source, bytes, error);
}

/* Bytes that others read of this rank's; of an all-to-all they are counted as they go. */
static int64_t bytes_sent(const ls_transfer *of) {
  const ls_group *group = of->group;
  const int64_t others = group->size - 1, own = ls_group_shard(group, of->count, group->rank).count;
  const int64_t elements = of->kind == LS_ALL_REDUCE       ? of->count - own + own * others
                           : of->kind == LS_REDUCE_SCATTER ? of->count - own
                           : of->kind == LS_ALL_GATHER     ? own * others
                           : of->kind == LS_SUM_NUMBERS    ? of->count * others
                           : of->kind == LS_SEND           ? of->count
                           : of->kind == LS_PERMUTE && around(group, of->shift) ? of->count
                                                                                : 0;
  return elements * (int64_t)ls_dtype_bytes(of->dtype);
}

/* ---- transfers ------------------------------------------------------------------------------- */

static ls_nccl_channel *channel_of(const ls_nccl *self, const ls_transfer *of) {
  const ls_nccl_group *found = ls_nccl_group_of(self, of->group);
  return of->kind == LS_SEND ? found->out : of->kind == LS_RECEIVE ? found->in : found->together;
}

static ls_status check(ls_carrier *carrier, ls_error *error) {
  return ls_watch_check(&((ls_nccl *)carrier)->watch, error);
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
  return a && b && (const char *)a < (const char *)b + b_bytes &&
         (const char *)b < (const char *)a + a_bytes;
}

/* Whether a transfer touches what an earlier one fills, or fills what that reads. */
static bool needs(const ls_transfer *later, const ls_transfer *earlier) {
  const ls_transfer_bytes own = ls_transfer_bytes_of(later), its = ls_transfer_bytes_of(earlier);
  return overlap(later->source, own.in, earlier->target, its.out) ||
         overlap(later->target, own.out, earlier->target, its.out) ||
         overlap(later->target, own.out, earlier->source, its.in);
}

/* One body may begin a transfer that needs another one whose end comes later, such as the sum over
 * other axes of what was summed: their queues are others. */
static ls_status await_needed(const ls_nccl *self, const ls_nccl_channel *on, const ls_transfer *of,
                              ls_error *error) {
  for (int b = 0; b < self->begun.of.count; b++) {
    const ls_begun *each = &self->begun.of.items[b];
    if (each->event && !each->ended && each->on != &on->lane && needs(of, &each->what))
      LS_TRY(self->begun.calls->await(&on->lane.queue, each->event, error));
  }
  return LS_OK;
}

/* The lock is held. */
static ls_status begin_on(ls_nccl *self, ls_nccl_channel *on, const ls_transfer *of,
                          ls_error *error) {
  LS_TRY(check(&self->carrier, error));
  LS_TRY(ls_lane_fence(self->begun.calls, &self->compute, &on->lane, error));
  LS_TRY(await_needed(self, on, of, error));
  LS_TRY(work_of(self, on, of, error));
  return ls_begun_keep(&self->begun, &on->lane, of, error);
}

static ls_status begin(ls_carrier *carrier, const ls_transfer *of, ls_error *error) {
  ls_nccl *self = (ls_nccl *)carrier;
  if (of->group->size == 1) return work_alone(self, of, error);
  ls_nccl_channel *on = channel_of(self, of);
  self->carrier.of.comm->current_call.name = ls_collective_name(of->kind);
  self->carrier.of.comm->current_call.count = of->count;
  self->carrier.of.comm->current_call.of = ls_dtype_name(of->dtype);
  pthread_mutex_lock(&self->watch.lock);
  const ls_status status = begin_on(self, on, of, error);
  pthread_mutex_unlock(&self->watch.lock);
  LS_TRY(status);
  ls_count_sent(of->group->comm, bytes_sent(of));
  return ls_nccl_settle(self, on->communicator, error);
}

static ls_status end(ls_carrier *carrier, const ls_transfer *of, ls_error *error) {
  ls_nccl *self = (ls_nccl *)carrier;
  const ls_device_queue *queue = carrier->of.queue;
  const size_t bytes = (size_t)of->count * sizeof(double);
  if (of->group->size == 1) {
    if (of->kind != LS_SUM_NUMBERS) return LS_OK;
    return copy(self, queue, of->target, of->source, bytes, error);
  }
  pthread_mutex_lock(&self->watch.lock);
  ls_status status = check(carrier, error);
  if (status == LS_OK) status = ls_begun_await(&self->begun, queue, of, error);
  pthread_mutex_unlock(&self->watch.lock);
  if (of->kind != LS_SUM_NUMBERS || status != LS_OK) return status;
  /* Sums end in the order in which they began. */
  ls_nccl_channel *on = channel_of(self, of);
  const char *sums =
      on->numbers + on->sums_ended++ % LS_MOST_SENDS * LS_MOST_NUMBERS * sizeof(double);
  return copy(self, queue, of->target, sums, bytes, error);
}

const ls_engine ls_engine_nccl = {
    .name = "nccl",
    .words = "by NCCL",
    .needs = "a GPU for each rank, NCCL 2.19 or newer, and numerics: fast",
    .said =
        ", which adds up in an order of its own: runs on other layouts or machines differ by "
        "rounding (numerics=exact adds up in rank order)",
    .queues = &ls_queues_nccl,
    .serves = serves,
    .open = open,
    .join = join,
    .ready = ready,
    .begin = begin,
    .end = end,
    .check = check,
    .close = close};
