/* The collectives, once for all kinds of worlds.
 *
 * Reductions are direct: each rank owns a shard, reads that shard of every rank (in place, or as a
 * message), sums in rank order and hands the sums out. Rings would add in another order for each
 * shard; trees in an order that depends on their shape. */
#include <string.h>

#include "comm/comm.h"
#include "comm/reduce.h"
#include "comm/world.h"

static int64_t chunk_of(const ls_group *group, int64_t count) {
  return count / group->size + (count % group->size != 0);
}

ls_shard_range ls_group_shard(const ls_group *group, int64_t count, int member) {
  const int64_t chunk = chunk_of(group, count);
  const int64_t start = chunk * member < count ? chunk * member : count;
  return (ls_shard_range){start, count - start < chunk ? count - start : chunk};
}

/* A reduction of `count` elements of which this rank sums its shard into `target`. */
typedef struct reduction {
  const char *data; /* this rank's elements */
  char *target;
  int64_t count;
  ls_dtype dtype;
  ls_reduce op;
  bool accumulate;
  bool everywhere; /* the sums are also written to the peers' buffers, where they can be */
  int64_t block;   /* elements summed at a time */
} reduction;

/* Part `round` of the shard of `member`. */
static ls_shard_range block_of(const ls_group *group, const reduction *r, int member,
                               int64_t round) {
  const ls_shard_range whole = ls_group_shard(group, r->count, member);
  const int64_t skipped = round * r->block < whole.count ? round * r->block : whole.count;
  const int64_t left = whole.count - skipped;
  return (ls_shard_range){whole.start + skipped, left < r->block ? left : r->block};
}

static char *staging_of(const ls_group *group, const reduction *r, int member, int64_t round) {
  const size_t block_bytes = (size_t)r->block * ls_dtype_bytes(r->dtype);
  const size_t index = (size_t)(round % 2) * (size_t)group->size + (size_t)member;
  return (char *)group->comm->staging + index * block_bytes;
}

/* Sends the owners this rank's part of their blocks, receives the others' part of its own. */
static ls_status start_round(ls_group *group, const reduction *r, int64_t round, ls_error *error) {
  const size_t width = ls_dtype_bytes(r->dtype);
  const ls_shard_range own = block_of(group, r, group->rank, round);
  ls_transfers_clear(group);
  for (int i = 0; i < group->size; i++) {
    if (i == group->rank) continue;
    ls_peer_transfer *transfer = &group->transfers[i];
    if (!group->peers[i]) {
      transfer->in = staging_of(group, r, i, round);
      transfer->in_bytes = (size_t)own.count * width;
    }
    if (ls_group_needs_message(group, i, ls_call_own(group))) {
      const ls_shard_range theirs = block_of(group, r, i, round);
      transfer->out = r->data + (size_t)theirs.start * width;
      transfer->out_bytes = (size_t)theirs.count * width;
    }
  }
  return ls_requests_start(group, LS_COLLECTIVES, (int)(round % 2), error);
}

static void reduce_round(ls_group *group, const reduction *r, int64_t round) {
  const size_t width = ls_dtype_bytes(r->dtype);
  const ls_shard_range own = block_of(group, r, group->rank, round);
  const int64_t done = own.start - ls_group_shard(group, r->count, group->rank).start;
  int target_count = 0;
  group->targets[target_count++] = r->target + (size_t)done * width;
  for (int i = 0; i < group->size; i++) {
    char *data = group->peers[i];
    group->sources[i] = data ? data + (size_t)own.start * width : staging_of(group, r, i, round);
    if (r->everywhere && data && i != group->rank) {
      group->targets[target_count++] = data + (size_t)own.start * width;
    }
  }
  ls_reduce_range(group->targets, target_count, group->sources, group->size, own.count, r->dtype,
                  r->op, r->accumulate);
}

static ls_status reduce_shard(ls_group *group, reduction *r, ls_error *error) {
  const ls_world *world = group->comm->world;
  const size_t width = ls_dtype_bytes(r->dtype);
  size_t block_bytes = world->staging_bytes / 2 / (size_t)group->size;
  if (block_bytes > world->message_bytes) block_bytes = world->message_bytes;
  r->block = (int64_t)(block_bytes / width);
  if (r->block == 0) r->block = 1;
  const int64_t chunk = chunk_of(group, r->count);
  const int64_t rounds = (chunk + r->block - 1) / r->block;
  if (rounds > 0) LS_TRY(start_round(group, r, 0, error));
  for (int64_t round = 0; round < rounds; round++) {
    if (round + 1 < rounds) LS_TRY(start_round(group, r, round + 1, error));
    LS_TRY(ls_requests_finish(group, (int)(round % 2), error));
    reduce_round(group, r, round);
  }
  return LS_OK;
}

/* Sends this rank's sums to the members it could not write to; receives theirs likewise. */
static ls_status hand_out(ls_group *group, char *data, int64_t count, size_t width,
                          ls_error *error) {
  const ls_shard_range own = ls_group_shard(group, count, group->rank);
  ls_transfers_clear(group);
  for (int i = 0; i < group->size; i++) {
    if (i == group->rank) continue;
    ls_peer_transfer *transfer = &group->transfers[i];
    if (!group->peers[i]) {
      transfer->out = data + (size_t)own.start * width;
      transfer->out_bytes = (size_t)own.count * width;
    }
    if (ls_group_needs_message(group, i, ls_call_own(group))) {
      const ls_shard_range theirs = ls_group_shard(group, count, i);
      transfer->in = data + (size_t)theirs.start * width;
      transfer->in_bytes = (size_t)theirs.count * width;
    }
  }
  return ls_exchange(group, LS_COLLECTIVES, error);
}

static ls_status all_reduce(ls_group *group, char *data, int64_t count, ls_dtype dtype,
                            ls_reduce op, ls_error *error) {
  const size_t width = ls_dtype_bytes(dtype);
  const ls_posting call = {
      .kind = LS_CALL_ALL_REDUCE, .dtype = (int32_t)dtype, .detail = (int32_t)op, .count = count};
  LS_TRY(ls_call_begin(group, &call, data, (size_t)count * width, LS_ALL_MEMBERS, error));
  const ls_shard_range own = ls_group_shard(group, count, group->rank);
  reduction sum = {.data = data,
                   .target = data + (size_t)own.start * width,
                   .count = count,
                   .dtype = dtype,
                   .op = op,
                   .everywhere = true};
  LS_TRY(reduce_shard(group, &sum, error));
  LS_TRY(hand_out(group, data, count, width, error));
  const int64_t elements = count - own.count + own.count * (group->size - 1);
  ls_count_sent(group->comm, elements * (int64_t)width);
  return ls_call_end(group, true, error);
}

ls_status ls_all_reduce(ls_group *group, void *data, int64_t count, ls_dtype dtype, ls_reduce op,
                        ls_error *error) {
  LS_TRY(ls_call_check(group, LS_CALL_ALL_REDUCE, count, dtype, true, error));
  if (group->size == 1) return LS_OK;
  return ls_call_conclude(group, all_reduce(group, data, count, dtype, op, error));
}

static ls_status reduce_scatter(ls_group *group, void *target, const void *source, int64_t count,
                                ls_dtype dtype, bool accumulate, ls_error *error) {
  const size_t width = ls_dtype_bytes(dtype);
  const ls_posting call = {.kind = LS_CALL_REDUCE_SCATTER, .dtype = (int32_t)dtype, .count = count};
  LS_TRY(ls_call_begin(group, &call, (void *)source, (size_t)count * width, LS_ALL_MEMBERS, error));
  reduction sum = {.data = source,
                   .target = target,
                   .count = count,
                   .dtype = dtype,
                   .op = LS_SUM,
                   .accumulate = accumulate};
  LS_TRY(reduce_shard(group, &sum, error));
  const ls_shard_range own = ls_group_shard(group, count, group->rank);
  ls_count_sent(group->comm, (count - own.count) * (int64_t)width);
  return ls_call_end(group, true, error);
}

ls_status ls_reduce_scatter(ls_group *group, void *target, const void *source, int64_t count,
                            ls_dtype dtype, bool accumulate, ls_error *error) {
  LS_TRY(ls_call_check(group, LS_CALL_REDUCE_SCATTER, count, dtype, true, error));
  if (group->size == 1) {
    if (accumulate || target != source) {
      ls_reduce_range(&target, 1, &source, 1, count, dtype, LS_SUM, accumulate);
    }
    return LS_OK;
  }
  return ls_call_conclude(group,
                          reduce_scatter(group, target, source, count, dtype, accumulate, error));
}

static ls_status all_gather(ls_group *group, char *target, const void *source, int64_t count,
                            ls_dtype dtype, ls_error *error) {
  const size_t width = ls_dtype_bytes(dtype);
  const ls_shard_range own = ls_group_shard(group, count, group->rank);
  const size_t own_bytes = (size_t)own.count * width;
  const ls_posting call = {.kind = LS_CALL_ALL_GATHER, .dtype = (int32_t)dtype, .count = count};
  LS_TRY(ls_call_begin(group, &call, (void *)source, own_bytes, LS_ALL_MEMBERS, error));
  ls_transfers_clear(group);
  for (int i = 0; i < group->size; i++) {
    ls_peer_transfer *transfer = &group->transfers[i];
    if (ls_group_needs_message(group, i, ls_call_own(group))) {
      transfer->out = source;
      transfer->out_bytes = own_bytes;
    }
    if (!group->peers[i]) {
      const ls_shard_range theirs = ls_group_shard(group, count, i);
      transfer->in = target + (size_t)theirs.start * width;
      transfer->in_bytes = (size_t)theirs.count * width;
    }
  }
  LS_TRY(ls_exchange(group, LS_COLLECTIVES, error));
  /* Each rank begins with another one, so that not all read the same memory at the same time. */
  for (int step = 0; step < group->size; step++) {
    const int i = (group->rank + step) % group->size;
    const ls_shard_range theirs = ls_group_shard(group, count, i);
    char *place = target + (size_t)theirs.start * width;
    if (theirs.count == 0 || !group->peers[i] || group->peers[i] == place) continue;
    memcpy(place, group->peers[i], (size_t)theirs.count * width);
  }
  ls_count_sent(group->comm, (int64_t)own_bytes * (group->size - 1));
  return ls_call_end(group, true, error);
}

ls_status ls_all_gather(ls_group *group, void *target, const void *source, int64_t count,
                        ls_dtype dtype, ls_error *error) {
  LS_TRY(ls_call_check(group, LS_CALL_ALL_GATHER, count, dtype, false, error));
  if (group->size == 1) {
    if (target != source && count) memcpy(target, source, (size_t)count * ls_dtype_bytes(dtype));
    return LS_OK;
  }
  return ls_call_conclude(group, all_gather(group, target, source, count, dtype, error));
}

static ls_status broadcast(ls_group *group, void *data, int64_t count, ls_dtype dtype, int root,
                           ls_error *error) {
  const size_t bytes = (size_t)count * ls_dtype_bytes(dtype);
  const ls_posting call = {
      .kind = LS_CALL_BROADCAST, .dtype = (int32_t)dtype, .detail = root, .count = count};
  const bool is_root = group->rank == root;
  LS_TRY(ls_call_begin(group, &call, data, bytes, is_root ? LS_NO_MEMBER : root, error));
  ls_transfers_clear(group);
  if (is_root) {
    for (int i = 0; i < group->size; i++) {
      if (!ls_group_needs_message(group, i, ls_call_own(group))) continue;
      group->transfers[i].out = data;
      group->transfers[i].out_bytes = bytes;
    }
    ls_count_sent(group->comm, (int64_t)bytes * (group->size - 1));
  } else if (!group->peers[root]) {
    group->transfers[root].in = data;
    group->transfers[root].in_bytes = bytes;
  } else if (bytes) {
    memcpy(data, group->peers[root], bytes);
  }
  LS_TRY(ls_exchange(group, LS_COLLECTIVES, error));
  return ls_call_end(group, is_root, error);
}

ls_status ls_broadcast(ls_group *group, void *data, int64_t count, ls_dtype dtype, int root,
                       ls_error *error) {
  LS_TRY(ls_call_check(group, LS_CALL_BROADCAST, count, dtype, false, error));
  if (root < 0 || root >= group->size) {
    return ls_fail(error, LS_INTERNAL, "broadcast from member %d of %d", root, group->size);
  }
  if (group->size == 1) return LS_OK;
  return ls_call_conclude(group, broadcast(group, data, count, dtype, root, error));
}

static ls_status barrier(ls_group *group, ls_error *error) {
  const ls_posting call = {.kind = LS_CALL_BARRIER};
  LS_TRY(ls_call_begin(group, &call, NULL, 0, LS_NO_MEMBER, error));
  char out = 0, *in = group->comm->staging; /* each receives into a byte of its own */
  ls_transfers_clear(group);
  for (int i = 0; i < group->size; i++) {
    if (group->seats[i] >= 0) continue;
    group->transfers[i] =
        (ls_peer_transfer){.out = &out, .in = in + i, .out_bytes = 1, .in_bytes = 1};
  }
  LS_TRY(ls_exchange(group, LS_COLLECTIVES, error));
  return ls_call_end(group, true, error);
}

ls_status ls_barrier(ls_group *group, ls_error *error) {
  LS_TRY(ls_call_check(group, LS_CALL_BARRIER, 0, LS_I32, false, error));
  group->comm->current_call.count = group->size;
  group->comm->current_call.of = "ranks";
  if (group->size == 1) return LS_OK;
  return ls_call_conclude(group, barrier(group, error));
}
