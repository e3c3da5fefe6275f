/* What every collective has in common: posting a buffer, meeting the others, leaving together. */
#include <sched.h>

#include "base/clock.h"
#include "comm/reduce.h"
#include "comm/world.h"

/* Longest wait for a peer to leave a buffer after an abort: it is copying, not waiting. */
static const int64_t LEAVE_NS = (int64_t)10 * 1000000000;

static const char *const call_names[] = {
    [LS_CALL_BARRIER] = "barrier",
    [LS_CALL_ALL_REDUCE] = "all-reduce",
    [LS_CALL_REDUCE_SCATTER] = "reduce-scatter",
    [LS_CALL_ALL_GATHER] = "all-gather",
    [LS_CALL_BROADCAST] = "broadcast",
    [LS_CALL_ALL_TO_ALL] = "all-to-all",
    [LS_CALL_PERMUTE] = "permute",
    [LS_CALL_MESSAGE] = "message",
};

void ls_count_sent(ls_comm *comm, int64_t bytes) {
  atomic_fetch_add_explicit(&comm->bytes_sent, bytes, memory_order_relaxed);
}

ls_status ls_call_check(ls_group *group, ls_call_kind kind, int64_t count, ls_dtype dtype,
                        bool reducing, ls_error *error) {
  ls_comm *comm = group->comm;
  const char *name = call_names[kind];
  if (count < 0) {
    return ls_fail(error, LS_INTERNAL, "%s of %lld elements", name, (long long)count);
  }
  if (reducing && !ls_reduce_knows(dtype)) {
    return ls_fail(error, LS_INTERNAL, "%s of dtype %s: fp32, bf16, fp16, fp64 or int64 are known",
                   name, ls_dtype_name(dtype));
  }
  comm->current_call.name = name;
  comm->current_call.count = count;
  comm->current_call.of = ls_dtype_name(dtype);
  if (!ls_control_aborted(comm->world->control, error)) return LS_OK;
  ls_lanes_cancel(comm);
  return LS_FAILED;
}

ls_status ls_call_agree(ls_group *group, int member, const ls_posting *own,
                        const ls_posting *theirs, ls_error *error) {
  if (own->kind == theirs->kind && own->dtype == theirs->dtype && own->count == theirs->count &&
      own->detail == theirs->detail) {
    return LS_OK;
  }
  /* A fault of ours, but one that ends the run everywhere, so it takes the way of an abort. */
  return ls_comm_give_up(group->comm, error,
                         "ranks disagree: %s of %lld %s (variant %d) here, %s of %lld %s "
                         "(variant %d) on rank %d",
                         call_names[own->kind], (long long)own->count,
                         ls_dtype_name((ls_dtype)own->dtype), own->detail, call_names[theirs->kind],
                         (long long)theirs->count, ls_dtype_name((ls_dtype)theirs->dtype),
                         theirs->detail, group->members[member]);
}

const ls_posting *ls_call_own(const ls_group *group) {
  return &group->slots[group->seat].posting;
}

ls_status ls_call_begin(ls_group *group, const ls_posting *call, void *data, size_t bytes,
                        int reads, ls_error *error) {
  ls_comm *comm = group->comm;
  ls_slot *own = &group->slots[group->seat];
  group->sequence++;
  /* Nobody reads the slot now: all that read the posting before have said that they are through. */
  own->posting = *call;
  ls_arena_locate(comm, data, bytes, &own->posting);
  ls_flag_raise(&own->flag, 2 * group->sequence - 1);
  /* Looked at after the flag went up: a member that has seen the abort either sees the flag and
   * waits for this rank to leave its buffer, or this rank sees the abort and does not touch it. */
  if (ls_control_aborted(comm->world->control, error)) return LS_FAILED;
  for (int i = 0; i < group->size; i++) {
    group->peers[i] = NULL;
    if (i == group->rank) group->peers[i] = data;
    if (i == group->rank || group->seats[i] < 0) continue;
    if (reads != LS_ALL_MEMBERS && reads != i) continue;
    ls_slot *slot = &group->slots[group->seats[i]];
    LS_TRY(ls_wait_flag(comm, &slot->flag, 2 * group->sequence - 1, group->members[i], error));
    LS_TRY(ls_call_agree(group, i, call, &slot->posting, error));
    group->peers[i] = ls_arena_view(comm->world, comm->rank, group->members[i], &slot->posting);
  }
  return LS_OK;
}

ls_status ls_call_end(ls_group *group, bool wait, ls_error *error) {
  ls_flag_raise(&group->slots[group->seat].flag, 2 * group->sequence);
  for (int i = 0; wait && i < group->size; i++) {
    if (i == group->rank || group->seats[i] < 0) continue;
    ls_flag *flag = &group->slots[group->seats[i]].flag;
    LS_TRY(ls_wait_flag(group->comm, flag, 2 * group->sequence, group->members[i], error));
  }
  return LS_OK;
}

void ls_call_leave(ls_group *group, int member, ls_flag *flag, uint32_t left) {
  const ls_world *world = group->comm->world;
  const int rank = group->members[member];
  /* Other processes read arenas only, which they have mapped themselves. */
  if (world->process[rank] != world->process[group->comm->rank]) return;
  const int64_t started = ls_now_ns();
  while (atomic_load(&flag->value) == left - 1 && ls_now_ns() - started < LEAVE_NS) sched_yield();
}

ls_status ls_call_conclude(ls_group *group, ls_status status) {
  if (status == LS_OK) return LS_OK;
  ls_lanes_cancel(group->comm);
  ls_flag_raise(&group->slots[group->seat].flag, 2 * group->sequence);
  for (int i = 0; i < group->size; i++) {
    if (i == group->rank || group->seats[i] < 0) continue;
    ls_call_leave(group, i, &group->slots[group->seats[i]].flag, 2 * group->sequence);
  }
  return status;
}
