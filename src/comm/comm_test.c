/* Collectives over threads against serial sums in rank order, bit for bit. */
#include "comm/comm.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/test_values.h"
#include "support/test_seed.h"

enum { MAX_RANKS = 16 };

static const int sizes[] = {1, 2, 3, 5, 8, 16};
static const ls_dtype reduced_dtypes[] = {LS_F32, LS_BF16, LS_F16, LS_F64, LS_I64};
static uint64_t seed;

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof(array)[0]))

/* --- ranks as threads ----------------------------------------------------------------------- */

typedef struct team team;
struct team {
  ls_world *world;
  int size;
  void (*body)(team *, ls_comm *);
  const void *argument;
  char failure[MAX_RANKS][1200]; /* empty: the rank found nothing wrong */
};

typedef struct start {
  team *all;
  int rank;
} start;

/* Used in rank threads, where cmocka's own assertions may not be. */
#define REQUIRE(team_, comm_, condition, ...)             \
  do {                                                    \
    if (!(condition)) {                                   \
      fail_rank((team_), (comm_), __LINE__, __VA_ARGS__); \
      return;                                             \
    }                                                     \
  } while (0)

LS_PRINTF(4, 5)
static void fail_rank(team *all, ls_comm *comm, int line, const char *format, ...) {
  ls_error error = {0};
  char text[800];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  (void)ls_fail(&error, LS_FAILED, "line %d: %s", line, text);
  memcpy(all->failure[ls_comm_rank(comm)], error.text, sizeof error.text);
  ls_comm_abort(comm, text);
}

static void *run_rank(void *argument) {
  const start *begin = argument;
  begin->all->body(begin->all, ls_world_comm(begin->all->world, begin->rank));
  return NULL;
}

static void run_team(team *all) {
  pthread_t threads[MAX_RANKS];
  start starts[MAX_RANKS];
  for (int rank = 0; rank < all->size; rank++) {
    starts[rank] = (start){all, rank};
    assert_int_equal(pthread_create(&threads[rank], NULL, run_rank, &starts[rank]), 0);
  }
  for (int rank = 0; rank < all->size; rank++) pthread_join(threads[rank], NULL);
  bool failed = false;
  for (int rank = 0; rank < all->size; rank++) {
    if (!all->failure[rank][0]) continue;
    fprintf(stderr, "rank %d: %s\n", rank, all->failure[rank]);
    failed = true;
  }
  assert_false(failed);
}

static void with_team(int size, void (*body)(team *, ls_comm *), const void *argument) {
  ls_error error = {0};
  team all = {.size = size, .body = body, .argument = argument};
  assert_int_equal(ls_world_create_threads(size, &all.world, &error), LS_OK);
  ls_world_set_deadline(all.world, 120);
  run_team(&all);
  ls_world_destroy(&all.world);
  assert_null(all.world);
}

static ls_group *group_of_all(team *all, ls_comm *comm) {
  int members[MAX_RANKS];
  for (int i = 0; i < all->size; i++) members[i] = i;
  ls_group *group = NULL;
  ls_error error = {0};
  if (ls_comm_group(comm, members, all->size, &group, &error) != LS_OK) {
    fail_rank(all, comm, __LINE__, "%s", error.text);
  }
  return group;
}

/* --- every collective, dtype, size and count ------------------------------------------------ */

typedef struct sample {
  int size;
  ls_dtype dtype;
  int64_t count, chunk;
  void *inputs[MAX_RANKS];
  void *sums, *maxima, *added; /* added: the inputs of rank 0 + sums */
} sample;

static int64_t start_of(const sample *s, int rank) {
  return s->chunk * rank < s->count ? s->chunk * rank : s->count;
}
static int64_t shard_of(const sample *s, int rank) {
  return start_of(s, rank + 1) - start_of(s, rank);
}

/* What is moved and not added. */
static bool is_moved(ls_dtype dtype) {
  return dtype == LS_I32 || dtype == LS_U8;
}

static sample make_sample(int size, ls_dtype dtype, int64_t count) {
  sample s = {size, dtype, count, (count + size - 1) / size, {0}, NULL, NULL, NULL};
  const size_t width = ls_dtype_bytes(dtype);
  s.sums = calloc((size_t)count + 1, width);
  s.maxima = calloc((size_t)count + 1, width);
  s.added = calloc((size_t)count + 1, width);
  for (int rank = 0; rank < size; rank++) {
    s.inputs[rank] = ls_test_values(seed, dtype, count, (uint64_t)count, rank);
  }
  for (int64_t i = 0; i < count && !is_moved(dtype); i++) {
    ls_test_reduce(s.sums, s.inputs, size, dtype, i, LS_SUM, NULL);
    ls_test_reduce(s.maxima, s.inputs, size, dtype, i, LS_MAX, NULL);
    ls_test_reduce(s.added, s.inputs, size, dtype, i, LS_SUM, s.inputs[0]);
  }
  return s;
}

static void free_sample(sample *s) {
  for (int rank = 0; rank < s->size; rank++) free(s->inputs[rank]);
  free(s->sums);
  free(s->maxima);
  free(s->added);
}

/* Everything a rank needs to check one sample. */
typedef struct bench {
  team *all;
  ls_comm *comm;
  ls_group *group;
  const sample *s;
  int rank;
  size_t width, whole_bytes, shard_bytes;
  int64_t start, shard;
} bench;

static char *copy_of_input(const bench *b) {
  char *data = calloc(b->whole_bytes + 64, 1);
  memcpy(data, b->s->inputs[b->rank], b->whole_bytes);
  return data;
}

#define SAME(b, got, want, bytes, what)                                                    \
  REQUIRE((b)->all, (b)->comm, memcmp((got), (want), (bytes)) == 0,                        \
          "%s differs: %d ranks, %lld %s", (what), (b)->s->size, (long long)(b)->s->count, \
          ls_dtype_name((b)->s->dtype))
#define DONE(b, call) REQUIRE((b)->all, (b)->comm, (call) == LS_OK, "%s", error.text)

static void check_all_reduce(const bench *b) {
  ls_error error = {0};
  char *data = copy_of_input(b);
  DONE(b, ls_all_reduce(b->group, data, b->s->count, b->s->dtype, LS_SUM, &error));
  SAME(b, data, b->s->sums, b->whole_bytes, "all-reduce sum");
  memcpy(data, b->s->inputs[b->rank], b->whole_bytes);
  DONE(b, ls_all_reduce(b->group, data, b->s->count, b->s->dtype, LS_MAX, &error));
  SAME(b, data, b->s->maxima, b->whole_bytes, "all-reduce max");
  free(data);
}

static void check_reduce_scatter(const bench *b) {
  ls_error error = {0};
  const size_t at = (size_t)b->start * b->width;
  char *data = copy_of_input(b);
  char *target = calloc(b->shard_bytes + 64, 1);
  DONE(b, ls_reduce_scatter(b->group, target, data, b->s->count, b->s->dtype, false, &error));
  SAME(b, target, (char *)b->s->sums + at, b->shard_bytes, "reduce-scatter");
  SAME(b, data, b->s->inputs[b->rank], b->whole_bytes, "source of reduce-scatter");
  memcpy(target, (char *)b->s->inputs[0] + at, b->shard_bytes);
  DONE(b, ls_reduce_scatter(b->group, target, data, b->s->count, b->s->dtype, true, &error));
  SAME(b, target, (char *)b->s->added + at, b->shard_bytes, "reduce-scatter, accumulated");
  char *place = data + (size_t)b->s->chunk * (size_t)b->rank * b->width;
  if (b->shard == 0) place = data;
  DONE(b, ls_reduce_scatter(b->group, place, data, b->s->count, b->s->dtype, false, &error));
  SAME(b, data + at, (char *)b->s->sums + at, b->shard_bytes, "reduce-scatter in place");
  SAME(b, data, b->s->inputs[b->rank], at, "source before the shard");
  free(data);
  free(target);
}

static void check_all_gather(const bench *b) {
  ls_error error = {0};
  const size_t at = (size_t)b->start * b->width;
  /* The whole is rank 0's input; each rank brings its shard of it. */
  char *whole = b->s->inputs[0];
  char *shard = calloc(b->shard_bytes + 64, 1);
  char *target = calloc(b->whole_bytes + 64, 1);
  memcpy(shard, whole + at, b->shard_bytes);
  DONE(b, ls_all_gather(b->group, target, shard, b->s->count, b->s->dtype, &error));
  SAME(b, target, whole, b->whole_bytes, "all-gather");
  memset(target, 0x55, b->whole_bytes);
  memcpy(target + at, whole + at, b->shard_bytes);
  DONE(b, ls_all_gather(b->group, target, target + at, b->s->count, b->s->dtype, &error));
  SAME(b, target, whole, b->whole_bytes, "all-gather in place");
  free(shard);
  free(target);
}

static void check_broadcast(const bench *b) {
  ls_error error = {0};
  for (int root = 0; root < b->s->size; root += 1 + b->s->size / 2) {
    char *data = copy_of_input(b);
    DONE(b, ls_broadcast(b->group, data, b->s->count, b->s->dtype, root, &error));
    SAME(b, data, b->s->inputs[root], b->whole_bytes, "broadcast");
    free(data);
  }
}

/* Rank r sends rank i the first (r + 2 i) % 5 times count / 8 of its elements, and one more. */
static int64_t pair_count(const sample *s, int from, int to) {
  return s->count == 0 ? 0 : (from + 2 * to) % 5 * (s->count / 8) + (from != to);
}

static void check_all_to_all(const bench *b) {
  ls_error error = {0};
  int64_t send_counts[MAX_RANKS], receive_counts[MAX_RANKS], sent = 0, received = 0;
  for (int i = 0; i < b->s->size; i++) {
    sent += send_counts[i] = pair_count(b->s, b->rank, i);
    received += receive_counts[i] = pair_count(b->s, i, b->rank);
  }
  char *source = calloc((size_t)sent + 1, b->width);
  char *target = calloc((size_t)received + 1, b->width);
  char *to = source;
  for (int i = 0; i < b->s->size; i++) {
    memcpy(to, b->s->inputs[b->rank], (size_t)send_counts[i] * b->width);
    to += (size_t)send_counts[i] * b->width;
  }
  DONE(b,
       ls_all_to_all(b->group, target, receive_counts, source, send_counts, b->s->dtype, &error));
  const char *from = target;
  for (int i = 0; i < b->s->size; i++) {
    SAME(b, from, b->s->inputs[i], (size_t)receive_counts[i] * b->width, "all-to-all");
    from += (size_t)receive_counts[i] * b->width;
  }
  free(source);
  free(target);
}

/* Each rank hands its data to the next, even ranks sending first; the last one of an odd count
 * is even as well, and its receiver, rank 0, sends first: rank 0's send is met by rank 1. */
static void check_ring(const bench *b) {
  if (b->s->size == 1) return;
  ls_error error = {0};
  const int next = (b->rank + 1) % b->s->size;
  const int previous = (b->rank + b->s->size - 1) % b->s->size;
  char *data = calloc(b->whole_bytes + 64, 1);
  const void *own = b->s->inputs[b->rank];
  for (int turn = 0; turn < 2; turn++) {
    if (b->rank % 2 == turn) {
      DONE(b, ls_send(b->group, own, b->s->count, b->s->dtype, next, &error));
    } else if (previous % 2 == turn) {
      DONE(b, ls_receive(b->group, data, b->s->count, b->s->dtype, previous, &error));
    }
    /* Where the count is odd, the last rank and rank 0 both send in turn 0. */
    if (turn == 1 && b->s->size % 2 == 1 && b->rank == 0) {
      DONE(b, ls_receive(b->group, data, b->s->count, b->s->dtype, previous, &error));
    }
  }
  SAME(b, data, b->s->inputs[previous], b->whole_bytes, "what the ring brought");
  free(data);
}

static void check_sample(team *all, ls_comm *comm) {
  const sample *s = all->argument;
  bench b = {.all = all, .comm = comm, .s = s, .rank = ls_comm_rank(comm)};
  b.group = group_of_all(all, comm);
  if (!b.group) return;
  b.width = ls_dtype_bytes(s->dtype);
  b.start = start_of(s, b.rank);
  b.shard = shard_of(s, b.rank);
  b.whole_bytes = (size_t)s->count * b.width;
  b.shard_bytes = (size_t)b.shard * b.width;
  if (!is_moved(s->dtype)) {
    check_all_reduce(&b);
    check_reduce_scatter(&b);
  }
  check_all_gather(&b);
  check_broadcast(&b);
  check_all_to_all(&b);
  check_ring(&b);
  ls_error error = {0};
  REQUIRE(all, comm, ls_barrier(b.group, &error) == LS_OK, "%s", error.text);
}

static void every_collective(void **state) {
  (void)state;
  int samples = 0;
  for (int n = 0; n < COUNT_OF(sizes); n++) {
    const int size = sizes[n];
    team all = {.size = size, .body = check_sample};
    ls_error error = {0};
    assert_int_equal(ls_world_create_threads(size, &all.world, &error), LS_OK);
    const int64_t counts[] = {0, 1, 2, size - 1, size, size + 1, 1000, 70001};
    for (int d = 0; d < COUNT_OF(reduced_dtypes) + 2; d++) {
      const int moved = d - COUNT_OF(reduced_dtypes);
      const ls_dtype dtype = moved < 0 ? reduced_dtypes[d] : moved ? LS_U8 : LS_I32;
      for (int c = 0; c < COUNT_OF(counts); c++) {
        sample s = make_sample(size, dtype, counts[c]);
        all.argument = &s;
        run_team(&all);
        free_sample(&s);
        samples++;
      }
    }
    ls_world_destroy(&all.world);
  }
  print_message("%d samples\n", samples);
}

/* A length of several rounds of the reduction, uneven, where the last rank's shard is short. */
static void long_reduction(void **state) {
  (void)state;
  sample s = make_sample(3, LS_F32, 2500003);
  with_team(3, check_sample, &s);
  free_sample(&s);
}

/* --- groups --------------------------------------------------------------------------------- */

/* The ranks of a 2 x 3 x 2 mesh that share this one's coordinates but for those of `axes`. */
static int mesh_members(int rank, unsigned axes, int *members) {
  static const int extents[3] = {2, 3, 2};
  int count = 0;
  for (int other = 0; other < 12; other++) {
    bool same = true;
    int a = rank, b = other;
    for (int axis = 2; axis >= 0; axis--) {
      if (!(axes >> axis & 1) && a % extents[axis] != b % extents[axis]) same = false;
      a /= extents[axis];
      b /= extents[axis];
    }
    if (same) members[count++] = other;
  }
  return count;
}

static void mesh_body(team *all, ls_comm *comm) {
  enum { COUNT = 1001 };
  ls_error error = {0};
  ls_group *groups[8];
  int members[8][12];
  const int rank = ls_comm_rank(comm);
  for (unsigned axes = 0; axes < 8; axes++) {
    const int count = mesh_members(rank, axes, members[axes]);
    REQUIRE(all, comm, ls_comm_group(comm, members[axes], count, &groups[axes], &error) == LS_OK,
            "%s", error.text);
    REQUIRE(all, comm, members[axes][ls_group_rank(groups[axes])] == rank, "wrong group rank");
  }
  /* Ranks do not wait for each other between groups: all axes are under way at once. */
  for (int repeat = 0; repeat < 20; repeat++) {
    for (unsigned axes = 0; axes < 8; axes++) {
      const uint64_t stream = 1000 + (uint64_t)repeat * 8 + axes;
      const int count = ls_group_size(groups[axes]);
      void *inputs[12];
      for (int i = 0; i < count; i++)
        inputs[i] = ls_test_values(seed, LS_F32, COUNT, stream, members[axes][i]);
      float *want = calloc(COUNT, sizeof *want);
      for (int64_t i = 0; i < COUNT; i++) {
        ls_test_reduce(want, inputs, count, LS_F32, i, LS_SUM, NULL);
      }
      float *data = inputs[ls_group_rank(groups[axes])];
      REQUIRE(all, comm, ls_all_reduce(groups[axes], data, COUNT, LS_F32, LS_SUM, &error) == LS_OK,
              "%s", error.text);
      REQUIRE(all, comm, memcmp(data, want, COUNT * sizeof *want) == 0, "axes %u differ", axes);
      for (int i = 0; i < count; i++) free(inputs[i]);
      free(want);
    }
  }
}

static void mesh_axes(void **state) {
  (void)state;
  with_team(12, mesh_body, NULL);
}

/* Members in another order than their ranks, and two groups of the same members. */
static void order_body(team *all, ls_comm *comm) {
  const int members[3] = {2, 0, 1};
  const int rank = ls_comm_rank(comm);
  ls_group *first, *second;
  ls_error error = {0};
  REQUIRE(all, comm, ls_comm_group(comm, members, 3, &first, &error) == LS_OK, "%s", error.text);
  REQUIRE(all, comm, ls_comm_group(comm, members, 3, &second, &error) == LS_OK, "%s", error.text);
  const float values_of[3] = {1e8f, 1.0f, -1e8f};
  /* (-1e8 + 1e8) + 1 is 1; in the order of world ranks it would be 0. */
  float data = values_of[rank];
  REQUIRE(all, comm, ls_all_reduce(first, &data, 1, LS_F32, LS_SUM, &error) == LS_OK, "%s",
          error.text);
  REQUIRE(all, comm, data == 1.0f, "sum is %g", (double)data);
  int32_t number = rank;
  REQUIRE(all, comm, ls_broadcast(second, &number, 1, LS_I32, 0, &error) == LS_OK, "%s",
          error.text);
  REQUIRE(all, comm, number == 2, "member 0 is rank %d", number);
  ls_group *bad;
  const int others[1] = {(rank + 1) % 3};
  const int twice[2] = {rank, rank};
  const int outside[2] = {rank, 3};
  REQUIRE(all, comm, ls_comm_group(comm, others, 1, &bad, &error) == LS_INTERNAL, "no own rank");
  REQUIRE(all, comm, ls_comm_group(comm, twice, 2, &bad, &error) == LS_INTERNAL, "twice");
  REQUIRE(all, comm, ls_comm_group(comm, outside, 2, &bad, &error) == LS_INTERNAL, "outside");
}

static void order_of_members(void **state) {
  (void)state;
  with_team(3, order_body, NULL);
}

/* --- special values, bytes, arenas, load ---------------------------------------------------- */

static void nan_body(team *all, ls_comm *comm) {
  ls_group *group = group_of_all(all, comm);
  if (!group) return;
  ls_error error = {0};
  const int rank = ls_comm_rank(comm);
  for (int guilty = 0; guilty < all->size; guilty++) {
    float data[3] = {rank == guilty ? (float)NAN : 1.0f, 2.0f, -0.0f};
    uint16_t narrow = ls_f32_to_bf16(data[0]);
    REQUIRE(all, comm, ls_all_reduce(group, data, 3, LS_F32, LS_MAX, &error) == LS_OK, "%s",
            error.text);
    REQUIRE(all, comm, data[0] != data[0] && data[1] == 2.0f, "max lost the NaN of %d", guilty);
    REQUIRE(all, comm, ls_all_reduce(group, &narrow, 1, LS_BF16, LS_SUM, &error) == LS_OK, "%s",
            error.text);
    const float sum = ls_bf16_to_f32(narrow);
    REQUIRE(all, comm, sum != sum, "sum lost the NaN of %d", guilty);
  }
}

static void nans_are_kept(void **state) {
  (void)state;
  with_team(5, nan_body, NULL);
}

static int64_t bytes_over_all(team *all) {
  int64_t total = 0;
  for (int rank = 0; rank < all->size; rank++) {
    total += ls_comm_bytes_sent(ls_world_comm(all->world, rank));
  }
  return total;
}

static const char *counted;

static void bytes_body(team *all, ls_comm *comm) {
  enum { COUNT = 1003 };
  ls_group *group = group_of_all(all, comm);
  if (!group) return;
  ls_error error = {0};
  float *data = calloc(COUNT * 2, sizeof *data);
  ls_status status = LS_OK;
  int64_t counts[MAX_RANKS];
  for (int i = 0; i < all->size; i++) counts[i] = 10;
  switch (counted[0]) {
    case 'r': status = ls_all_reduce(group, data, COUNT, LS_F32, LS_SUM, &error); break;
    case 's':
      status = ls_reduce_scatter(group, data + COUNT, data, COUNT, LS_F32, false, &error);
      break;
    case 'g': status = ls_all_gather(group, data + COUNT, data, COUNT, LS_F32, &error); break;
    case 'b': status = ls_broadcast(group, data, COUNT, LS_F32, 0, &error); break;
    case 'a':
      status = ls_all_to_all(group, data + COUNT, counts, data, counts, LS_F32, &error);
      break;
    default: break;
  }
  free(data);
  REQUIRE(all, comm, status == LS_OK, "%s", error.text);
}

static void bytes_are_counted(void **state) {
  (void)state;
  for (int n = 0; n < COUNT_OF(sizes); n++) {
    const int64_t size = sizes[n], bytes = 1003 * 4;
    const struct {
      const char *name;
      int64_t want;
    } cases[] = {{"r", 2 * bytes * (size - 1)},
                 {"s", bytes * (size - 1)},
                 {"g", bytes * (size - 1)},
                 {"b", bytes * (size - 1)},
                 {"a", 40 * size * (size - 1)}};
    for (int c = 0; c < COUNT_OF(cases); c++) {
      counted = cases[c].name;
      team all = {.size = sizes[n], .body = bytes_body};
      ls_error error = {0};
      assert_int_equal(ls_world_create_threads(sizes[n], &all.world, &error), LS_OK);
      run_team(&all);
      assert_int_equal(bytes_over_all(&all), cases[c].want);
      ls_world_destroy(&all.world);
    }
  }
}

static void arena_body(team *all, ls_comm *comm) {
  enum { BYTES = 300000, COUNT = BYTES / 4 };
  ls_group *group = group_of_all(all, comm);
  if (!group) return;
  ls_error error = {0};
  void *base, *other, *huge;
  REQUIRE(all, comm, ls_comm_arena(comm, &ls_host_memory, BYTES, &base, &error) == LS_OK, "%s",
          error.text);
  REQUIRE(all, comm, ls_comm_arena(comm, &ls_host_memory, 0, &other, &error) == LS_OK, "%s",
          error.text);
  REQUIRE(all, comm, (uintptr_t)base % 4096 == 0 && other && other != base, "bad address");
  const size_t asked = ls_comm_rank(comm) == 1 ? (size_t)1 << 60 : 4096;
  REQUIRE(all, comm, ls_comm_arena(comm, &ls_host_memory, asked, &huge, &error) == LS_FAILED,
          "huge was given");
  REQUIRE(all, comm, !huge && strstr(error.text, "rank 1: an arena of 1073741824.00 GiB"),
          "text is: %s", error.text);
  int64_t *data = base;
  for (int i = 0; i < COUNT / 2; i++) {
    REQUIRE(all, comm, data[i] == 0, "element %d is not zero", i);
    data[i] = i;
  }
  REQUIRE(all, comm, ls_all_reduce(group, data, COUNT / 2, LS_I64, LS_SUM, &error) == LS_OK, "%s",
          error.text);
  for (int i = 0; i < COUNT / 2; i++) {
    REQUIRE(all, comm, data[i] == (int64_t)i * all->size, "element %d is wrong", i);
  }
}

static void arenas(void **state) {
  (void)state;
  with_team(4, arena_body, NULL);
}

/* Many more ranks than cores, small data: waiting ranks must leave the cores to the others. */
static void load_body(team *all, ls_comm *comm) {
  ls_group *group = group_of_all(all, comm);
  if (!group) return;
  ls_error error = {0};
  for (int i = 0; i < 1000; i++) {
    int64_t data[4] = {i, ls_comm_rank(comm), 1, -i};
    REQUIRE(all, comm, ls_all_reduce(group, data, 4, LS_I64, LS_SUM, &error) == LS_OK, "%s",
            error.text);
    REQUIRE(all, comm, data[0] == (int64_t)i * all->size && data[2] == all->size, "turn %d", i);
  }
}

static void more_ranks_than_cores(void **state) {
  (void)state;
  with_team(16, load_body, NULL);
}

static void bad_calls(void **state) {
  (void)state;
  ls_world *world;
  ls_group *group;
  ls_error error = {0};
  assert_int_equal(ls_world_create_threads(0, &world, &error), LS_INPUT);
  assert_null(world);
  assert_int_equal(ls_world_create_threads(1, &world, &error), LS_OK);
  const int self = 0;
  ls_comm *comm = ls_world_comm(world, 0);
  assert_int_equal(ls_comm_group(comm, &self, 1, &group, &error), LS_OK);
  float data[2] = {1, 2};
  assert_int_equal(ls_all_reduce(group, data, -1, LS_F32, LS_SUM, &error), LS_INTERNAL);
  assert_int_equal(ls_all_reduce(group, data, 1, LS_I32, LS_SUM, &error), LS_INTERNAL);
  assert_int_equal(ls_all_reduce(group, data, 1, LS_U8, LS_MAX, &error), LS_INTERNAL);
  assert_int_equal(ls_broadcast(group, data, 1, LS_F32, 1, &error), LS_INTERNAL);
  assert_int_equal(ls_send(group, data, 1, LS_F32, 0, &error), LS_INTERNAL);
  assert_int_equal(ls_send_begin(group, data, 1, LS_F32, 0, &error), LS_INTERNAL);
  assert_int_equal(ls_send_end(group, 0, &error), LS_INTERNAL);
  assert_int_equal(ls_comm_bytes_sent(comm), 0);
  ls_world_destroy(&world);
}

int main(void) {
  seed = test_seed(20261128);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_collective), cmocka_unit_test(long_reduction),
      cmocka_unit_test(mesh_axes),        cmocka_unit_test(order_of_members),
      cmocka_unit_test(nans_are_kept),    cmocka_unit_test(bytes_are_counted),
      cmocka_unit_test(arenas),           cmocka_unit_test(more_ranks_than_cores),
      cmocka_unit_test(bad_calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
