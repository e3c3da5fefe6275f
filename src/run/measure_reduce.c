#include <string.h>

#include "base/clock.h"
#include "comm/engine.h"
#include "run/measure_parts.h"
#include "run/rank_threads.h"

enum { WARM = 2, MAX_RANKS = 4, SHORT = 4 << 20 };

static const int rank_counts[] = {2, 4};
static const int64_t sizes[] = {64 << 10, 1 << 20, 64 << 20};

enum { RANK_COUNTS = 2, SIZES = 3 };

int ls_measure_reduce_count(const measuring *self) {
  int taken = 0;
  for (int s = 0; s < SIZES; s++) taken += ls_measure_takes(self, sizes[s]);
  return RANK_COUNTS * taken;
}

/* One measurement, shared by its ranks; rank 0 times it. */
typedef struct reduction {
  measuring *of;
  int64_t bytes;
} reduction;

/* Ranks leave a barrier one after the other, so of one short call the first would see too much and
 * the last too little: a round is several. */
static int calls_of(const reduction *self) {
  return self->bytes < SHORT ? (int)(SHORT / self->bytes) : 1;
}

static ls_status reduce_once(ls_group *group, const reduction *self, float *data, double *seconds,
                             ls_error *error) {
  LS_TRY(ls_barrier(group, error));
  const double begin = ls_now_s();
  const int64_t count = self->bytes / (int64_t)sizeof(float);
  for (int c = 0; c < calls_of(self); c++)
    LS_TRY(ls_all_reduce(group, data, count, LS_F32, LS_SUM, error));
  *seconds = ls_now_s() - begin;
  return LS_OK;
}

static ls_status reduce_rounds(ls_group *group, const reduction *self, float *data,
                               ls_error *error) {
  double seconds;
  const bool first = ls_group_rank(group) == 0;
  for (int turn = 0; turn < WARM; turn++) LS_TRY(reduce_once(group, self, data, &seconds, error));
  int64_t more = 1;
  while (more) {
    LS_TRY(reduce_once(group, self, data, &seconds, error));
    if (first) {
      ls_measure_add(self->of, seconds);
      more = ls_measure_more(self->of);
    }
    LS_TRY(ls_broadcast(group, &more, 1, LS_I64, 0, error));
  }
  return LS_OK;
}

static ls_status reduce_body(ls_comm *comm, void *context, ls_error *error) {
  const reduction *self = context;
  int members[MAX_RANKS];
  const int ranks = ls_comm_size(comm);
  for (int r = 0; r < ranks; r++) members[r] = r;
  ls_group *group;
  void *data;
  LS_TRY(ls_comm_group(comm, members, ranks, &group, error));
  LS_TRY(ls_comm_arena(comm, &ls_host_memory, (size_t)self->bytes, &data, error));
  /* Zeros stay zeros, however often they are summed. */
  LS_TRY(ls_host_memory.clear(data, (size_t)self->bytes, error));
  return reduce_rounds(group, self, data, error);
}

ls_status ls_measure_reduce(measuring *self, ls_error *error) {
  for (int r = 0; r < RANK_COUNTS; r++)
    for (int s = 0; s < SIZES; s++) {
      if (!ls_measure_takes(self, sizes[s])) continue;
      const int64_t kib = sizes[s] >> 10;
      ls_measure_next(self, "all-reduce %lld %s, %d ranks",
                      (long long)(kib < 1024 ? kib : kib >> 10), kib < 1024 ? "KiB" : "MiB",
                      rank_counts[r]);
      reduction each = {.of = self, .bytes = sizes[s]};
      ls_measure_begin(self);
      ls_world *world;
      const ls_world_options all = {.ranks = rank_counts[r]};
      LS_TRY(ls_world_start(ls_device_facts_here(), &all, &world, error));
      const ls_status status = ls_rank_threads_run(world, reduce_body, &each, error);
      ls_world_destroy(&world);
      LS_TRY(status);
      const double bytes = (double)sizes[s] * calls_of(&each);
      *LS_APPEND(self->arena, &self->rates->reduce) =
          (ls_reduce_rate){rank_counts[r], sizes[s], ls_measure_rate(self, bytes)};
    }
  return LS_OK;
}
