/* All-reduce in place between processes of one host, beside MPI's own, in turns:
 *   mpirun -n 2 build/bench/comm_mpi_bench [MiB] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/comm.h"

#ifdef LS_HAVE_MPI
#include <mpi.h>

enum { MAX_RANKS = 16, MAX_TURNS = 1000 };

typedef struct bench {
  ls_group *group;
  float *data; /* zeros stay zeros, however often they are summed */
  double ours[MAX_TURNS], theirs[MAX_TURNS];
} bench;

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void print(const char *whose, double *seconds, int turns, size_t bytes, const char *dtype) {
  qsort(seconds, (size_t)turns, sizeof *seconds, compare);
  printf("%-8s %9zu bytes  %s  median %9.1f us  best %9.1f us\n", whose, bytes, dtype,
         seconds[turns / 2] * 1e6, seconds[0] * 1e6);
}

static ls_status measure(bench *self, size_t bytes, ls_dtype dtype, int turns, ls_error *error) {
  const int64_t count = (int64_t)(bytes / ls_dtype_bytes(dtype));
  const bool mpi = dtype == LS_F32; /* it knows no bf16 */
  for (int turn = -2; turn < turns; turn++) {
    const int place = turn < 0 ? 0 : turn;
    LS_TRY(ls_barrier(self->group, error));
    double begin = ls_now_s();
    LS_TRY(ls_all_reduce(self->group, self->data, count, dtype, LS_SUM, error));
    self->ours[place] = ls_now_s() - begin;
    LS_TRY(ls_barrier(self->group, error));
    begin = ls_now_s();
    if (mpi)
      MPI_Allreduce(MPI_IN_PLACE, self->data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    self->theirs[place] = ls_now_s() - begin;
  }
  if (ls_group_rank(self->group) != 0) return LS_OK;
  print("Lockstep", self->ours, turns, bytes, ls_dtype_name(dtype));
  if (mpi) print("MPI", self->theirs, turns, bytes, ls_dtype_name(dtype));
  return LS_OK;
}

static ls_status run(ls_world *world, size_t bytes, ls_error *error) {
  static bench self;
  ls_comm *comm = ls_world_comm(world, ls_world_first_here(world));
  const int ranks = ls_comm_size(comm);
  int members[MAX_RANKS];
  if (ranks > MAX_RANKS) return ls_fail(error, LS_INPUT, "%d ranks; expected 16 at most", ranks);
  for (int r = 0; r < ranks; r++) members[r] = r;
  void *data;
  LS_TRY(ls_comm_group(comm, members, ranks, &self.group, error));
  LS_TRY(ls_comm_arena(comm, &ls_host_memory, bytes > 65536 ? bytes : 65536, &data, error));
  memset(data, 0, bytes > 65536 ? bytes : 65536);
  self.data = data;
  LS_TRY(measure(&self, bytes, LS_F32, 30, error));
  LS_TRY(measure(&self, bytes / 2, LS_BF16, 30, error)); /* as many elements */
  return measure(&self, 65536, LS_F32, MAX_TURNS, error);
}

int main(int count, char **arguments) {
  ls_error error = {0};
  ls_world *world;
  const size_t bytes = (count > 1 ? strtoull(arguments[1], NULL, 10) : 64) << 20;
  ls_status status = ls_world_create_mpi(&(ls_world_options){.ranks_here = 1}, &world, &error);
  if (status == LS_OK) {
    status = run(world, bytes, &error);
    ls_world_destroy(&world);
  }
  if (status != LS_OK) fprintf(stderr, "%s\n", error.text);
  return status == LS_OK ? 0 : 1;
}
#else
int main(void) {
  fprintf(stderr, "this build has no MPI\n");
  return 1;
}
#endif
