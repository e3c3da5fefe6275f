/* Collectives and messages between threads: all ranks of a world at once, in groups.
 *
 * Where ranks are more than cores, every rank computes for a while between two of them, as in
 * training: who waits has gone to sleep by then, and has to be woken. Of such a transfer that time
 * counts which it takes of the cores: one that waits leaves its core to others. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "comm/engine.h"
#include "run/measure_parts.h"
#include "run/rank_threads.h"

enum { WARM = 2, MAX_MEMBERS = 64, SHORT = 1 << 20, MOST_CALLS = 16, FEWEST_CROWDED = 4 };

/* Of a rank's memory, in messages of the largest size. */
enum { ROOM = 4 };

/* Of a rank's processor, between two transfers. */
static const double computing_s = 200e-6;

/* The same where slices of time are measured: many of them. */
static const double slices_s = 100e-3;
enum { SLICE_ROUNDS = 5 };

/* Ranks of a world, and of each group in it. */
static const struct {
  int world, ranks;
} groups[] = {{2, 2}, {4, 2}, {4, 4}, {8, 2}, {8, 4}, {8, 8}};

static const ls_collective collectives[] = {LS_ALL_REDUCE, LS_REDUCE_SCATTER, LS_ALL_GATHER,
                                            LS_SEND, LS_SUM_NUMBERS};
static const int64_t sizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20};

enum {
  GROUPS = sizeof groups / sizeof *groups,
  COLLECTIVES = sizeof collectives / sizeof *collectives,
  SIZES = sizeof sizes / sizeof *sizes
};

/* Of a few numbers the size is always the same; a message has two ends. */
static bool is_measured(const measuring *self, int g, int c, int s) {
  if (collectives[c] == LS_SUM_NUMBERS) return s == 0 && groups[g].ranks == groups[g].world;
  if (collectives[c] == LS_SEND && groups[g].ranks != 2) return false;
  return ls_measure_takes(self, sizes[s]);
}

/* Of a core alone every rank gets an even share; of very many a rank more is next to none. */
static bool has_slices(const measuring *self) {
  return self->rates->key.cores > 1 && self->rates->key.cores < MAX_MEMBERS;
}

int ls_measure_transfer_count(const measuring *self) {
  int taken = has_slices(self);
  for (int i = 0; i < GROUPS * COLLECTIVES * SIZES; i++)
    taken += is_measured(self, i / SIZES / COLLECTIVES, i / SIZES % COLLECTIVES, i % SIZES);
  return taken;
}

/* One measurement, shared by its ranks; rank 0 times it. */
typedef struct transfer {
  measuring *of;
  ls_collective collective;
  int ranks, world;
  int64_t bytes;
} transfer;

static bool is_crowded(const transfer *self) {
  return self->world > self->of->rates->key.cores;
}

static double processor_s(clockid_t of) {
  struct timespec now;
  clock_gettime(of, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void compute(double seconds) {
  const double begin = processor_s(CLOCK_THREAD_CPUTIME_ID);
  while (processor_s(CLOCK_THREAD_CPUTIME_ID) - begin < seconds) {
  }
}

/* Cores that are busy all the time where ranks share them; of two that send to each other one
 * computes at a time. */
static double busy_cores(const transfer *self) {
  const double ranks = self->collective == LS_SEND ? self->world / 2.0 : self->world;
  return fmin(ranks, self->of->rates->key.cores);
}

/* What computing takes a call. */
static double computing_seconds(const transfer *self) {
  return is_crowded(self) ? self->world * computing_s / busy_cores(self) : 0;
}

/* Where ranks share the cores, what these have done, so that other work on the machine, which gets
 * its turn there as well, does not count. */
static double clock_of(const transfer *self) {
  return is_crowded(self) ? processor_s(CLOCK_PROCESS_CPUTIME_ID) / busy_cores(self) : ls_now_s();
}

/* Ranks leave a barrier one after the other, so of one short call the first would see too much and
 * the last too little: a round is several. Where cores are short ranks leave it by slices of time
 * apart, and a round is as long as there is time for. */
static int calls_of(const transfer *self) {
  const int64_t calls = SHORT / self->bytes;
  if (!is_crowded(self)) return calls < 1 ? 1 : calls > MOST_CALLS ? MOST_CALLS : (int)calls;
  const double round_s = self->of->seconds / LS_MEASURE_FEWEST;
  const double fit = calls < 1 ? 0 : round_s / computing_seconds(self);
  return fit < FEWEST_CROWDED ? FEWEST_CROWDED : (int)fit;
}

/* There and back again: two messages. */
static ls_status send_once(ls_group *group, const transfer *self, float *data, int64_t count,
                           ls_error *error) {
  const int rank = ls_group_rank(group);
  if (rank) LS_TRY(ls_receive(group, data, count, LS_F32, 0, error));
  if (is_crowded(self)) compute(computing_s);
  LS_TRY(ls_send(group, data, count, LS_F32, 1 - rank, error));
  return rank ? LS_OK : ls_receive(group, data, count, LS_F32, 1, error);
}

static ls_status call_once(ls_group *group, const transfer *self, float *data, ls_error *error) {
  const int64_t count = self->bytes / (int64_t)sizeof(float);
  double numbers[2] = {0};
  if (self->collective != LS_SEND && is_crowded(self)) compute(computing_s);
  switch (self->collective) {
    case LS_ALL_REDUCE: return ls_all_reduce(group, data, count, LS_F32, LS_SUM, error);
    case LS_REDUCE_SCATTER:
      return ls_reduce_scatter(group, data + count, data, count, LS_F32, false, error);
    case LS_ALL_GATHER: return ls_all_gather(group, data + count, data, count, LS_F32, error);
    case LS_SEND: return send_once(group, self, data, count, error);
    default:
      LS_TRY(ls_sum_begin(group, numbers, 2, error));
      return ls_sum_end(group, numbers, 2, error);
  }
}

/* Where a call's data lies. Activations have just been made; when the turn of gradients and weights
 * comes no cache holds them any more. */
static float *place_of(const transfer *self, float *data, int turn) {
  const bool in_place = self->collective == LS_ALL_REDUCE || self->collective == LS_SEND;
  const int each = in_place ? 1 : 2;
  if (self->bytes <= SHORT) return data;
  return data + turn % (ROOM / each) * each * (self->bytes / (int64_t)sizeof(float));
}

/* So many calls; `turn` counts those before. */
static ls_status time_once(ls_group *all, ls_group *group, const transfer *self, int calls,
                           float *data, int *turn, double *seconds, ls_error *error) {
  /* Behind a barrier others may be far ahead before rank 0 has a core again. */
  double begin = clock_of(self);
  LS_TRY(ls_barrier(all, error));
  if (!is_crowded(self)) begin = clock_of(self);
  for (int c = 0; c < calls; c++)
    LS_TRY(call_once(group, self, place_of(self, data, (*turn)++), error));
  if (is_crowded(self)) LS_TRY(ls_barrier(all, error));
  const double shortest = 1e-7 * calls; /* of a transfer between threads, whatever else */
  *seconds = clock_of(self) - begin - calls * computing_seconds(self);
  if (*seconds < shortest) *seconds = shortest;
  if (self->collective == LS_SEND) *seconds /= 2;
  return LS_OK;
}

static ls_status time_rounds(ls_group *all, ls_group *group, const transfer *self, float *data,
                             ls_error *error) {
  double seconds;
  const bool first = ls_group_rank(all) == 0;
  int turn = 0;
  LS_TRY(time_once(all, group, self, WARM, data, &turn, &seconds, error));
  int64_t more = 1;
  if (first) ls_measure_begin(self->of);
  while (more) {
    LS_TRY(time_once(all, group, self, calls_of(self), data, &turn, &seconds, error));
    if (first) {
      ls_measure_add(self->of, seconds);
      more = ls_measure_more(self->of);
    }
    LS_TRY(ls_broadcast(all, &more, 1, LS_I64, 0, error));
  }
  return LS_OK;
}

static ls_status make_group(ls_comm *comm, int first, int ranks, ls_group **group,
                            ls_error *error) {
  int members[MAX_MEMBERS];
  for (int r = 0; r < ranks; r++) members[r] = first + r;
  return ls_comm_group(comm, members, ranks, group, error);
}

static ls_status run_world(int ranks, ls_rank_threads_body body, void *context, ls_error *error) {
  ls_world *world;
  const ls_world_options all = {.ranks = ranks};
  LS_TRY(ls_world_start(ls_device_facts_here(), &all, &world, error));
  const ls_status status = ls_rank_threads_run(world, body, context, error);
  ls_world_destroy(&world);
  return status;
}

/* What the ranks of a world measure, one after the other. */
typedef struct grouping {
  measuring *of;
  int g;
} grouping;

static ls_status measure_one(ls_group *all, ls_group *group, const transfer *each, float *data,
                             ls_error *error) {
  measuring *self = each->of;
  const int64_t kib = each->bytes >> 10;
  const bool first = ls_group_rank(all) == 0;
  if (first)
    ls_measure_next(self, "%s %lld %s, %d of %d ranks", ls_collective_name(each->collective),
                    (long long)(kib < 1024 ? kib : kib >> 10), kib < 1024 ? "KiB" : "MiB",
                    each->ranks, each->world);
  LS_TRY(time_rounds(all, group, each, data, error));
  if (!first) return LS_OK;
  const double bytes = (double)each->bytes * calls_of(each);
  *LS_APPEND(self->arena, &self->rates->transfer) = (ls_transfer_rate){
      each->collective, each->ranks, each->world, each->bytes, ls_measure_rate(self, bytes)};
  return LS_OK;
}

static int64_t most_bytes(const measuring *self) {
  int64_t most = sizes[0];
  for (int s = 0; s < SIZES; s++)
    if (ls_measure_takes(self, sizes[s]) && sizes[s] > most) most = sizes[s];
  return most;
}

static ls_status grouping_body(ls_comm *comm, void *context, ls_error *error) {
  const grouping *of = context;
  const int ranks = groups[of->g].ranks, rank = ls_comm_rank(comm);
  ls_group *all, *group;
  void *data;
  LS_TRY(make_group(comm, 0, ls_comm_size(comm), &all, error));
  LS_TRY(make_group(comm, rank / ranks * ranks, ranks, &group, error));
  const size_t room = ROOM * (size_t)most_bytes(of->of);
  LS_TRY(ls_comm_arena(comm, &ls_host_memory, room, &data, error));
  /* Zeros stay zeros, however often they are summed. */
  LS_TRY(ls_host_memory.clear(data, room, error));
  for (int i = 0; i < COLLECTIVES * SIZES; i++) {
    const int c = i / SIZES, s = i % SIZES;
    const transfer each = {of->of, collectives[c], ranks, groups[of->g].world, sizes[s]};
    if (is_measured(of->of, of->g, c, s)) LS_TRY(measure_one(all, group, &each, data, error));
  }
  return LS_OK;
}

/* One rank more than there are cores: all compute as long, and the last ends later than by an even
 * share, as an operating system hands out cores by slices of time. */
static ls_status slice_body(ls_comm *comm, void *context, ls_error *error) {
  measuring *self = context;
  ls_group *all;
  const int ranks = ls_comm_size(comm);
  LS_TRY(make_group(comm, 0, ranks, &all, error));
  for (int round = 0; round < SLICE_ROUNDS; round++) {
    LS_TRY(ls_barrier(all, error));
    const double begin = ls_now_s();
    compute(slices_s);
    LS_TRY(ls_barrier(all, error));
    if (ls_group_rank(all) == 0) ls_measure_add(self, ls_now_s() - begin);
  }
  return LS_OK;
}

static ls_status measure_slice(measuring *self, ls_error *error) {
  const int cores = self->rates->key.cores;
  ls_measure_next(self, "slices of time, %d ranks", cores + 1);
  ls_measure_begin(self);
  LS_TRY(run_world(cores + 1, slice_body, self, error));
  const double even = (cores + 1.0) / cores;
  const double late = 1 / ls_measure_rate(self, 1).median - slices_s * even;
  self->rates->slice_s = late > 0 ? late / (2 - even) : 0;
  return LS_OK;
}

ls_status ls_measure_transfer(measuring *self, ls_error *error) {
  if (has_slices(self)) LS_TRY(measure_slice(self, error));
  const double seconds = self->seconds;
  self->seconds = seconds / 2; /* there are many */
  for (int g = 0; g < GROUPS; g++) {
    grouping of = {self, g};
    LS_TRY(run_world(groups[g].world, grouping_body, &of, error));
  }
  self->seconds = seconds;
  return LS_OK;
}
