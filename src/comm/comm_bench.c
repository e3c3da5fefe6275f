/* Measures the collectives over threads: comm_bench [MiB]; prints one line each. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"

enum { MAX_RANKS = 16, MAX_TURNS = 2000 };

typedef struct measurement {
  const char *name;
  int ranks, turns;
  size_t bytes;
  ls_dtype dtype;
  char what; /* r: all-reduce, s: reduce-scatter, g: all-gather */
} measurement;

typedef struct shared {
  const measurement *of;
  ls_world *world;
  double seconds[MAX_TURNS];
} shared;

typedef struct start {
  shared *all;
  int rank;
} start;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static ls_status one(const measurement *of, ls_group *group, char *data, ls_error *error) {
  const int64_t count = (int64_t)(of->bytes / ls_dtype_bytes(of->dtype));
  const int64_t chunk = (count + of->ranks - 1) / of->ranks;
  char *shard = data + (size_t)(chunk * ls_group_rank(group)) * ls_dtype_bytes(of->dtype);
  switch (of->what) {
    case 's': return ls_reduce_scatter(group, shard, data, count, of->dtype, false, error);
    case 'g': return ls_all_gather(group, data, shard, count, of->dtype, error);
    default: return ls_all_reduce(group, data, count, of->dtype, LS_SUM, error);
  }
}

static void *run(void *argument) {
  const start *begin = argument;
  const measurement *of = begin->all->of;
  ls_comm *comm = ls_world_comm(begin->all->world, begin->rank);
  ls_error error = {0};
  ls_group *group = NULL;
  void *data = NULL;
  int members[MAX_RANKS];
  for (int i = 0; i < of->ranks; i++) members[i] = i;
  ls_status status = ls_comm_group(comm, members, of->ranks, &group, &error);
  if (status == LS_OK) status = ls_comm_arena(comm, &ls_host_memory, of->bytes, &data, &error);
  if (data) memset(data, 0, of->bytes);
  for (int turn = -2; status == LS_OK && turn < of->turns; turn++) {
    status = ls_barrier(group, &error);
    const double before = now();
    if (status == LS_OK) status = one(of, group, data, &error);
    if (begin->rank == 0 && turn >= 0) begin->all->seconds[turn] = now() - before;
  }
  if (status != LS_OK) {
    fprintf(stderr, "%s\n", error.text);
    ls_comm_abort(comm, error.text);
  }
  return NULL;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int measure(const measurement *of) {
  static shared all;
  ls_error error = {0};
  all.of = of;
  if (ls_world_create_threads(of->ranks, &all.world, &error) != LS_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  pthread_t threads[MAX_RANKS];
  start starts[MAX_RANKS];
  for (int rank = 0; rank < of->ranks; rank++) {
    starts[rank] = (start){&all, rank};
    if (pthread_create(&threads[rank], NULL, run, &starts[rank]) != 0) return 1;
  }
  for (int rank = 0; rank < of->ranks; rank++) pthread_join(threads[rank], NULL);
  ls_world_destroy(&all.world);
  qsort(all.seconds, (size_t)of->turns, sizeof all.seconds[0], compare);
  const double median = all.seconds[of->turns / 2], best = all.seconds[0];
  printf("%-16s ranks %2d  %9zu bytes  %s  median %9.1f us  best %9.1f us  best %6.2f GB/s\n",
         of->name, of->ranks, of->bytes, ls_dtype_name(of->dtype), median * 1e6, best * 1e6,
         (double)of->bytes / best * 1e-9);
  return 0;
}

int main(int count, char **arguments) {
  const size_t bytes = (count > 1 ? strtoull(arguments[1], NULL, 10) : 64) << 20;
  const measurement all[] = {
      {"all-reduce", 2, 30, bytes, LS_F32, 'r'},     {"all-reduce", 4, 30, bytes, LS_F32, 'r'},
      {"all-reduce", 2, 30, bytes, LS_BF16, 'r'},    {"all-reduce", 4, 30, bytes, LS_BF16, 'r'},
      {"reduce-scatter", 2, 30, bytes, LS_F32, 's'}, {"all-gather", 2, 30, bytes, LS_F32, 'g'},
      {"all-reduce", 2, 2000, 65536, LS_F32, 'r'},   {"all-reduce", 4, 2000, 65536, LS_F32, 'r'},
      {"all-reduce", 2, 2000, 64, LS_F32, 'r'},      {"all-reduce", 16, 1000, 64, LS_F32, 'r'},
  };
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    if (measure(&all[i]) != 0) return 1;
  }
  return 0;
}
