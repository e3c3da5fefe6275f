/* A random sequence of collectives over random groups, the data in arenas and out of them.
 *
 *   comm_plan_test                                checks sequences over threads (a test)
 *   comm_plan_test threads RANKS SEED             prints "rank R hash bytes-sent" of each rank,
 *                                                 and how many ranks share memory with rank 0
 *   comm_plan_test mpi HERE shared|refused SEED [abort|die|late RANK]
 *                                                 the same under mpirun, HERE ranks a process;
 *                                                 RANK aborts, kills its process or stays away */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/comm.h"
#include "comm/test_values.h"
#include "comm/world.h"
#include "support/test_seed.h"

enum { MAX_RANKS = 16, GROUPS = 6, STEPS = 100, ARENA_BYTES = 2 << 20, LONGEST = 50000 };

typedef struct plan {
  uint64_t seed;
  int ranks;
  const char *ending; /* "": none */
  int ending_rank;
} plan;

typedef struct worker {
  const plan *todo;
  ls_world *world;
  int rank;
  ls_comm *comm;
  char *arena;
  ls_group *groups[GROUPS];
  int members[GROUPS][MAX_RANKS], sizes[GROUPS];
  uint64_t hash;
  ls_status status;
  ls_error error;
} worker;

static uint64_t draw(const plan *p, uint64_t step, uint64_t what, uint64_t below) {
  return ls_random_bits(p->seed, 7000 + step, what) % below;
}

/* Group 0 is all ranks; the others are drawn, in an order of their own. */
static int draw_members(const plan *p, int g, int *members) {
  int count = 0;
  for (int i = 0; i < p->ranks; i++) {
    const int rank =
        (int)ls_random_permute(p->seed, 50 + (uint64_t)g, (uint64_t)p->ranks, (uint64_t)i);
    if (g == 0) members[count++] = i;
    if (g > 0 && draw(p, (uint64_t)g, 100 + (uint64_t)rank, 3) > 0) members[count++] = rank;
  }
  if (count == 0) members[count++] = 0;
  return count;
}

static int64_t draw_count(const plan *p, uint64_t step) {
  static const int64_t limits[] = {4, 40, 2000, 10000, LONGEST};
  return (int64_t)draw(p, step, 1, (uint64_t)limits[draw(p, step, 2, 5)]);
}

/* One step of the plan, from the point of view of one member. */
typedef struct step {
  worker *w;
  uint64_t number;
  ls_group *group;
  const int *members;
  int size, self;
  int64_t count, chunk, start, shard;
  ls_dtype dtype;
  size_t width;
  char *source, *target; /* one half of the arena each, or memory of the heap */
  char *heap;
} step;

static void note(worker *w, const void *data, size_t bytes) {
  const unsigned char *at = data;
  for (size_t i = 0; i < bytes; i++) w->hash = (w->hash ^ at[i]) * 0x100000001b3u;
}

static void expect(step *s, const void *got, const void *want, size_t bytes, const char *what) {
  note(s->w, got, bytes);
  if (bytes == 0 || memcmp(got, want, bytes) == 0) return;
  s->w->status =
      ls_fail(&s->w->error, LS_INTERNAL, "WRONG: step %d, %s of %lld %s over %d ranks",
              (int)s->number, what, (long long)s->count, ls_dtype_name(s->dtype), s->size);
  ls_comm_abort(s->w->comm, s->w->error.text);
}

static void *input(const step *s, int member) {
  return ls_test_values(s->w->todo->seed, s->dtype, s->count, 100 + s->number, s->members[member]);
}

/* The reduction of all members' inputs. */
static char *reduced(const step *s, ls_reduce op, bool accumulate) {
  void *inputs[MAX_RANKS];
  for (int i = 0; i < s->size; i++) inputs[i] = input(s, i);
  char *sums = calloc((size_t)s->count + 1, s->width);
  for (int64_t i = 0; i < s->count; i++) {
    ls_test_reduce(sums, inputs, s->size, s->dtype, i, op, accumulate ? inputs[0] : NULL);
  }
  for (int i = 0; i < s->size; i++) free(inputs[i]);
  return sums;
}

static void put_input(const step *s, char *place) {
  void *own = input(s, s->self);
  memcpy(place, own, (size_t)s->count * s->width);
  free(own);
}

static void do_all_reduce(step *s) {
  const ls_reduce op = draw(s->w->todo, s->number, 5, 4) ? LS_SUM : LS_MAX;
  put_input(s, s->source);
  s->w->status = ls_all_reduce(s->group, s->source, s->count, s->dtype, op, &s->w->error);
  if (s->w->status != LS_OK) return;
  char *want = reduced(s, op, false);
  expect(s, s->source, want, (size_t)s->count * s->width, "all-reduce");
  free(want);
}

static void do_reduce_scatter(step *s) {
  const bool accumulate = draw(s->w->todo, s->number, 5, 2);
  const size_t at = (size_t)s->start * s->width;
  put_input(s, s->source);
  char *target = !accumulate && draw(s->w->todo, s->number, 6, 2) ? s->source + at : s->target;
  if (accumulate) {
    char *first = input(s, 0);
    memcpy(target, first + at, (size_t)s->shard * s->width);
    free(first);
  }
  s->w->status =
      ls_reduce_scatter(s->group, target, s->source, s->count, s->dtype, accumulate, &s->w->error);
  if (s->w->status != LS_OK) return;
  char *want = reduced(s, LS_SUM, accumulate);
  expect(s, target, want + at, (size_t)s->shard * s->width, "reduce-scatter");
  free(want);
}

static void do_all_gather(step *s) {
  const size_t at = (size_t)s->start * s->width;
  char *want = input(s, 0);
  char *shard = draw(s->w->todo, s->number, 6, 2) ? s->target + at : s->source;
  memcpy(shard, want + at, (size_t)s->shard * s->width);
  s->w->status = ls_all_gather(s->group, s->target, shard, s->count, s->dtype, &s->w->error);
  if (s->w->status == LS_OK) {
    expect(s, s->target, want, (size_t)s->count * s->width, "all-gather");
  }
  free(want);
}

static void do_broadcast(step *s) {
  const int root = (int)draw(s->w->todo, s->number, 5, (uint64_t)s->size);
  put_input(s, s->source);
  s->w->status = ls_broadcast(s->group, s->source, s->count, s->dtype, root, &s->w->error);
  if (s->w->status != LS_OK) return;
  char *want = input(s, root);
  expect(s, s->source, want, (size_t)s->count * s->width, "broadcast");
  free(want);
}

static int64_t pair_count(const step *s, int from, int to) {
  const uint64_t most = (uint64_t)(s->count / s->size) + 1;
  return (int64_t)draw(s->w->todo, s->number, 1000 + (uint64_t)(from * MAX_RANKS + to), most);
}

static void do_all_to_all(step *s) {
  int64_t sent[MAX_RANKS], received[MAX_RANKS];
  for (int i = 0; i < s->size; i++) {
    sent[i] = pair_count(s, s->self, i);
    received[i] = pair_count(s, i, s->self);
  }
  put_input(s, s->source);
  s->w->status =
      ls_all_to_all(s->group, s->target, received, s->source, sent, s->dtype, &s->w->error);
  const char *at = s->target;
  for (int i = 0; i < s->size && s->w->status == LS_OK; i++) {
    char *theirs = input(s, i);
    int64_t skipped = 0;
    for (int j = 0; j < s->self; j++) skipped += pair_count(s, i, j);
    expect(s, at, theirs + (size_t)skipped * s->width, (size_t)received[i] * s->width,
           "all-to-all");
    at += (size_t)received[i] * s->width;
    free(theirs);
  }
}

/* Elements before a place in a tensor of these dimensions. */
static int64_t before(const int64_t *dims, const int64_t *at) {
  return (at[0] * dims[1] + at[1]) * dims[2] + at[2];
}

/* What of the target the shards of all members say, element by element; the rest stays as it is. */
static void fill_resharded(const step *s, const ls_resharding *of, char *want) {
  const int g = of->gathered, c = of->cut;
  for (int m = 0; m < s->size; m++) {
    char *theirs = input(s, m);
    int64_t at[3];
    for (at[0] = 0; at[0] < of->source[0]; at[0]++)
      for (at[1] = 0; at[1] < of->source[1]; at[1]++)
        for (at[2] = 0; at[2] < of->source[2]; at[2]++) {
          int64_t to[3] = {at[0], at[1], at[2]};
          to[g] += m * of->source[g];
          to[c] -= s->self * of->target[c];
          if (to[g] >= of->target[g] || to[c] < 0 || to[c] >= of->target[c]) continue;
          memcpy(want + (size_t)before(of->target, to) * s->width,
                 theirs + (size_t)before(of->source, at) * s->width, s->width);
        }
    free(theirs);
  }
}

/* Of dimensions that mostly do not divide. */
static void do_reshard(step *s) {
  enum { WIDEST = 30 };
  ls_resharding of = {.ndim = 3, .gathered = (int)draw(s->w->todo, s->number, 5, 3)};
  of.cut = (of.gathered + 1 + (int)draw(s->w->todo, s->number, 6, 2)) % 3;
  int64_t there = 1, here = 1;
  for (int d = 0; d < 3; d++) {
    const int64_t whole = 1 + (int64_t)draw(s->w->todo, s->number, 30 + (uint64_t)d, WIDEST);
    const int64_t shard = (whole + s->size - 1) / s->size;
    there *= of.source[d] = d == of.gathered ? shard : whole;
    here *= of.target[d] = d == of.cut ? shard : whole;
  }
  s->count = there;
  put_input(s, s->source);
  memset(s->target, 0x55, (size_t)here * s->width);
  s->w->status = ls_reshard(s->group, s->target, s->source, &of, s->dtype, &s->w->error);
  if (s->w->status != LS_OK) return;
  char *want = calloc((size_t)here, s->width);
  memset(want, 0x55, (size_t)here * s->width);
  fill_resharded(s, &of, want);
  expect(s, s->target, want, (size_t)here * s->width, "all-to-all of shards");
  free(want);
}

enum { PIECES = 3, ROOM = 64 };

/* One of the pieces that a member has for another: rows out of anywhere, each to a place of its
 * own.
 */
static ls_deal_piece draw_piece(const step *s, int from, int to, int which) {
  const plan *p = s->w->todo;
  const uint64_t at = 40 + (uint64_t)(((from * s->size) + to) * PIECES + which) * 5;
  ls_deal_piece made = {.from = from, .to = to, .target = (from * PIECES + which) * ROOM};
  made.rows = (int64_t)draw(p, s->number, at, 6);
  made.width = 1 + (int64_t)draw(p, s->number, at + 1, 8);
  made.source_stride = made.width + (int64_t)draw(p, s->number, at + 2, 4);
  made.target_stride = made.width + (int64_t)draw(p, s->number, at + 3, 4);
  made.source = (int64_t)draw(p, s->number, at + 4, (uint64_t)(s->count - ROOM + 1));
  return made;
}

static void fill_dealt(const step *s, const ls_deal_piece *piece, char *want) {
  char *theirs = input(s, piece->from);
  for (int64_t row = 0; row < piece->rows; row++)
    memcpy(want + (size_t)(piece->target + row * piece->target_stride) * s->width,
           theirs + (size_t)(piece->source + row * piece->source_stride) * s->width,
           (size_t)piece->width * s->width);
  free(theirs);
}

/* Pieces of several lengths for each other member, some of none. */
static void do_deal(step *s) {
  const int64_t here = (int64_t)s->size * PIECES * ROOM;
  ls_deal_piece *pieces = calloc((size_t)s->size * 2 * PIECES + 1, sizeof *pieces);
  s->count = ROOM + (int64_t)draw(s->w->todo, s->number, 5, 100);
  ls_resharding of = {.ndim = 1, .source = {s->count}, .target = {here}, .cut = 1};
  char *want = calloc((size_t)here, s->width);
  memset(want, 0x55, (size_t)here * s->width);
  for (int from = 0; from < s->size; from++)
    for (int to = 0; to < s->size; to++)
      for (int k = 0; k < PIECES && (from == s->self || to == s->self); k++) {
        const ls_deal_piece piece = draw_piece(s, from, to, k);
        if (piece.rows) pieces[of.piece_count++] = piece;
        if (to == s->self) fill_dealt(s, &piece, want);
      }
  of.pieces = pieces;
  put_input(s, s->source);
  memset(s->target, 0x55, (size_t)here * s->width);
  s->w->status = ls_reshard(s->group, s->target, s->source, &of, s->dtype, &s->w->error);
  if (s->w->status == LS_OK)
    expect(s, s->target, want, (size_t)here * s->width, "all-to-all of pieces");
  free(want), free(pieces);
}

static void do_permute(step *s) {
  const int shift = (int)draw(s->w->todo, s->number, 5, 2 * (uint64_t)s->size) - s->size;
  put_input(s, s->source);
  s->w->status =
      ls_permute(s->group, s->target, s->source, s->count, shift, s->dtype, &s->w->error);
  if (s->w->status != LS_OK) return;
  char *want = input(s, (s->self + shift + s->size) % s->size);
  expect(s, s->target, want, (size_t)s->count * s->width, "permute");
  free(want);
}

static void do_message(step *s) {
  const int from = (int)draw(s->w->todo, s->number, 5, (uint64_t)s->size);
  const int to = (from + 1 + (int)draw(s->w->todo, s->number, 6, (uint64_t)s->size)) % s->size;
  if (from == to) return;
  /* Twice, so that the second is sent while the first may not yet be taken. */
  for (int i = 0; i < 2 && s->w->status == LS_OK; i++) {
    if (s->self == from) {
      put_input(s, s->source);
      s->w->status = ls_send(s->group, s->source, s->count, s->dtype, to, &s->w->error);
    } else if (s->self == to) {
      memset(s->target, 0, (size_t)s->count * s->width);
      s->w->status = ls_receive(s->group, s->target, s->count, s->dtype, from, &s->w->error);
      char *want = input(s, from);
      if (s->w->status == LS_OK) {
        expect(s, s->target, want, (size_t)s->count * s->width, "message");
      }
      free(want);
    }
  }
}

/* Two members send each other several messages before either receives: sends that end only when
 * they are asked to. */
static void do_messages_at_once(step *s) {
  const int one = (int)draw(s->w->todo, s->number, 5, (uint64_t)s->size);
  const int two = (one + 1 + (int)draw(s->w->todo, s->number, 6, (uint64_t)s->size)) % s->size;
  const int many = 1 + (int)draw(s->w->todo, s->number, 7, LS_MOST_SENDS);
  if (one == two || (s->self != one && s->self != two)) return;
  const int peer = s->self == one ? two : one;
  put_input(s, s->source);
  for (int i = 0; i < many && s->w->status == LS_OK; i++)
    s->w->status = ls_send_begin(s->group, s->source, s->count, s->dtype, peer, &s->w->error);
  char *want = input(s, peer);
  for (int i = 0; i < many && s->w->status == LS_OK; i++) {
    memset(s->target, 0, (size_t)s->count * s->width);
    s->w->status = ls_receive(s->group, s->target, s->count, s->dtype, peer, &s->w->error);
    if (s->w->status == LS_OK) {
      expect(s, s->target, want, (size_t)s->count * s->width, "message at once");
    }
  }
  free(want);
  for (int i = 0; i < many && s->w->status == LS_OK; i++)
    s->w->status = ls_send_end(s->group, peer, &s->w->error);
}

/* Sums that begin before a collective of the same group, and end after it. */
static void do_sums(step *s) {
  const int count = 1 + (int)draw(s->w->todo, s->number, 5, LS_MOST_NUMBERS);
  const int many = 1 + (int)draw(s->w->todo, s->number, 6, 3);
  double want[3][LS_MOST_NUMBERS] = {0};
  double *numbers = (double *)(void *)s->source;
  for (int m = 0; m < s->size; m++)
    for (int i = 0; i < many * count; i++) {
      const double number =
          (double)draw(s->w->todo, s->number, 2000 + (uint64_t)(s->members[m] * 100 + i), 1000) / 7;
      if (m == s->self) numbers[i] = number;
      want[i / count][i % count] += number;
    }
  for (int k = 0; k < many && s->w->status == LS_OK; k++)
    s->w->status = ls_sum_begin(s->group, &numbers[k * count], count, &s->w->error);
  if (s->w->status == LS_OK) s->w->status = ls_barrier(s->group, &s->w->error);
  for (int k = 0; k < many && s->w->status == LS_OK; k++) {
    s->w->status = ls_sum_end(s->group, &numbers[k * count], count, &s->w->error);
    if (s->w->status == LS_OK)
      expect(s, &numbers[k * count], want[k], (size_t)count * sizeof(double), "sum");
  }
}

static void do_barrier(step *s) {
  s->w->status = ls_barrier(s->group, &s->w->error);
}

static void run_step(worker *w, uint64_t number) {
  static void (*const kinds[])(step *) = {do_all_reduce,       do_reduce_scatter, do_all_gather,
                                          do_broadcast,        do_all_to_all,     do_message,
                                          do_messages_at_once, do_sums,           do_barrier,
                                          do_reshard,          do_permute,        do_deal};
  static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F16, LS_F64, LS_I64};
  const plan *p = w->todo;
  const int g = (int)draw(p, number, 3, GROUPS);
  if (!w->groups[g]) return;
  step s = {.w = w, .number = number, .group = w->groups[g], .members = w->members[g]};
  s.size = ls_group_size(s.group);
  s.self = ls_group_rank(s.group);
  s.dtype = dtypes[draw(p, number, 4, 5)];
  s.width = ls_dtype_bytes(s.dtype);
  s.count = draw_count(p, number);
  s.chunk = (s.count + s.size - 1) / s.size;
  s.start = s.chunk * s.self < s.count ? s.chunk * s.self : s.count;
  s.shard = s.count - s.start < s.chunk ? s.count - s.start : s.chunk;
  const size_t half = (size_t)LONGEST * 8 + 64;
  /* Each rank draws for itself where its data lies. */
  const bool outside = draw(p, number, 500 + (uint64_t)w->rank, 3) == 0;
  if (outside) s.heap = calloc(2, half);
  s.source = outside ? s.heap : w->arena;
  s.target = s.source + half;
  kinds[draw(p, number, 8, 11)](&s);
  free(s.heap);
}

/* Many long messages both ways that must be copied, then a wait by flags alone: who has its data
 * and goes on may owe the sender the library's receipt. */
static void send_much_then_meet(worker *w) {
  enum { MANY = 24, COUNT = 47119 };
  const int size = ls_group_size(w->groups[0]), peer = 1 - w->rank;
  char *sent = calloc(COUNT, 8), *taken = calloc(COUNT, 8);
  for (int i = 0; i < MANY && w->rank < 2 && size > 1 && w->status == LS_OK; i++)
    w->status = ls_send_begin(w->groups[0], sent, COUNT, LS_I64, peer, &w->error);
  for (int i = 0; i < MANY && w->rank < 2 && size > 1 && w->status == LS_OK; i++)
    w->status = ls_receive(w->groups[0], taken, COUNT, LS_I64, peer, &w->error);
  for (int i = 0; i < MANY && w->rank < 2 && size > 1 && w->status == LS_OK; i++)
    w->status = ls_send_end(w->groups[0], peer, &w->error);
  if (w->status == LS_OK) w->status = ls_barrier(w->groups[0], &w->error);
  free(sent);
  free(taken);
}

/* The ending rank aborts amid long sends and uses their memory at once; the first rank, which is
 * receiving, gets what was sent or nothing. */
static void reuse_after_abort(worker *w) {
  enum { MANY = 64, COUNT = 47119 };
  const size_t bytes = COUNT * sizeof(int64_t);
  char *data = malloc(bytes), *want = calloc(1, bytes);
  memset(data, 0, bytes);
  for (int i = 0; i < MANY && w->status == LS_OK && w->rank == 0; i++) {
    step s = {.w = w, .number = (uint64_t)i, .count = COUNT, .dtype = LS_I64, .size = 2};
    w->status = ls_receive(w->groups[0], data, COUNT, LS_I64, w->todo->ending_rank, &w->error);
    if (w->status == LS_OK) expect(&s, data, want, bytes, "message of a rank that aborts");
  }
  for (int i = 0; i < MANY && w->status == LS_OK && w->rank == w->todo->ending_rank; i++) {
    w->status = ls_send_begin(w->groups[0], data, COUNT, LS_I64, 0, &w->error);
    if (i == LS_MOST_SENDS - 1) ls_comm_abort(w->comm, "the plan says so");
    if (i >= LS_MOST_SENDS - 1 && w->status == LS_OK)
      w->status = ls_send_end(w->groups[0], 0, &w->error);
  }
  memset(data, 0x55, bytes);
  free(data);
  free(want);
}

static void end_early(worker *w) {
  const plan *p = w->todo;
  if (strcmp(p->ending, "abort") == 0) ls_comm_abort(w->comm, "the plan says so");
  if (strcmp(p->ending, "die") == 0) kill(getpid(), SIGKILL);
  if (strcmp(p->ending, "late") == 0) sleep(4);
}

static void *run_worker(void *argument) {
  worker *w = argument;
  void *base = NULL;
  w->comm = ls_world_comm(w->world, w->rank);
  w->hash = 0xcbf29ce484222325u;
  w->status = ls_comm_arena(w->comm, &ls_host_memory, ARENA_BYTES, &base, &w->error);
  w->arena = base;
  for (int g = 0; g < GROUPS && w->status == LS_OK; g++) {
    w->sizes[g] = draw_members(w->todo, g, w->members[g]);
    bool inside = false;
    for (int i = 0; i < w->sizes[g]; i++) inside = inside || w->members[g][i] == w->rank;
    if (!inside) continue;
    w->status = ls_comm_group(w->comm, w->members[g], w->sizes[g], &w->groups[g], &w->error);
  }
  for (uint64_t number = 0; number < STEPS && w->status == LS_OK; number++) {
    const bool half_way = number == STEPS / 2;
    if (half_way && w->rank == w->todo->ending_rank) end_early(w);
    if (half_way && strcmp(w->todo->ending, "reuse") == 0) reuse_after_abort(w);
    run_step(w, number);
  }
  for (int i = 0; i < 4 && w->status == LS_OK; i++) send_much_then_meet(w);
  if (w->status != LS_OK) ls_comm_abort(w->comm, w->error.text);
  return NULL;
}

/* Runs the ranks of this process; small messages and little staging, so that data goes in parts. */
static void run_plan(ls_world *world, const plan *p, worker *workers) {
  pthread_t threads[MAX_RANKS];
  world->message_bytes = 20000;
  const int first = ls_world_first_here(world), here = ls_world_count_here(world);
  for (int i = 0; i < here; i++) {
    workers[i] = (worker){.todo = p, .world = world, .rank = first + i};
    if (pthread_create(&threads[i], NULL, run_worker, &workers[i]) != 0) abort();
  }
  for (int i = 0; i < here; i++) pthread_join(threads[i], NULL);
}

/* --- as a program ----------------------------------------------------------------------------- */

static int print_results(const worker *workers, int here) {
  int result = 0;
  for (int i = 0; i < here; i++) {
    if (workers[i].status == LS_OK) {
      printf("rank %d %016llx %lld\n", workers[i].rank, (unsigned long long)workers[i].hash,
             (long long)ls_comm_bytes_sent(workers[i].comm));
      continue;
    }
    fprintf(stderr, "on rank %d: %s\n", workers[i].rank, workers[i].error.text);
    result = ls_exit_status(workers[i].status);
  }
  fflush(stdout);
  return result;
}

static int run_program(int count, char **arguments) {
  static worker workers[MAX_RANKS];
  ls_error error = {0};
  ls_world *world = NULL;
  ls_status status;
  plan p = {.ending = "", .ending_rank = -1};
  if (strcmp(arguments[1], "threads") == 0) {
    p.seed = strtoull(arguments[3], NULL, 10);
    status = ls_world_create_threads(atoi(arguments[2]), &world, &error);
  } else {
    const ls_world_options options = {.ranks_here = atoi(arguments[2]),
                                      .refuse_shared = strcmp(arguments[3], "refused") == 0,
                                      .deadline_s = 600};
    p.seed = strtoull(arguments[4], NULL, 10);
    if (count > 6) p.ending = arguments[5];
    if (count > 6) p.ending_rank = atoi(arguments[6]);
    status = ls_world_create_mpi(&options, &world, &error);
    if (status == LS_OK && strcmp(p.ending, "late") == 0) ls_world_set_deadline(world, 2);
  }
  if (status != LS_OK) {
    fprintf(stderr, "%s\n", error.text);
    return ls_exit_status(status);
  }
  p.ranks = ls_world_size(world);
  if (p.ranks > MAX_RANKS) return 2;
  run_plan(world, &p, workers);
  const int result = print_results(workers, ls_world_count_here(world));
  if (ls_world_first_here(world) == 0)
    printf("memory of %d ranks, who %s\n", world->domain_ranks, world->crowded ? "yield" : "spin");
  ls_world_destroy(&world);
  return result;
}

/* --- as a test -------------------------------------------------------------------------------- */

static uint64_t seed;

static void random_plans(void **state) {
  (void)state;
  static const int ranks[] = {1, 2, 3, 5, 8};
  static worker workers[MAX_RANKS], again[MAX_RANKS];
  for (int n = 0; n < 5; n++) {
    ls_error error = {0};
    const plan p = {.seed = seed + (uint64_t)n, .ranks = ranks[n], .ending = "", .ending_rank = -1};
    for (int repeat = 0; repeat < 2; repeat++) {
      ls_world *world;
      assert_int_equal(ls_world_create_threads(ranks[n], &world, &error), LS_OK);
      run_plan(world, &p, repeat ? again : workers);
      ls_world_destroy(&world);
    }
    for (int i = 0; i < ranks[n]; i++) {
      if (workers[i].status != LS_OK) fail_msg("%s", workers[i].error.text);
      assert_true(workers[i].hash == again[i].hash);
    }
  }
}

int main(int count, char **arguments) {
  if (count > 3) return run_program(count, arguments);
  seed = test_seed(20261128);
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_plans)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
