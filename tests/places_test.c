/* Attention of tokens in an order of their own, told by their places: what the queries of each rank
 * see among the keys of all is, forward and backward, what attention on whole sequences in their
 * order makes; gradients of keys and values add up to it. In the order of context parallelism and
 * in one of chance, with documents, windows, soft caps, ALiBi and grouped heads, causal and both
 * ways; the reference, and the CPU device in its types. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/random.h"
#include "device/cpu/cpu.h"
#include "session/token_order.h"
#include "support/test_seed.h"
#include "support/thinned.h"

static uint64_t seed, drawn;

static int64_t below(int64_t limit) {
  return (int64_t)(ls_random_bits(seed, 1, drawn++) % (uint64_t)limit);
}

enum { CASES = 15, OPERANDS = 9 }; /* q, k, v, do, o, log-sum-exp, dq, dk, dv */
enum { Q, K, V, GO, O, LSE, DQ, DK, DV };

typedef struct placed_case {
  ls_arena *arena;
  ls_attributes attributes;
  int64_t tokens, heads, kv_heads;
  int ranks, threads;
  int64_t columns[OPERANDS];
  double *whole[OPERANDS]; /* by token */
  int32_t *positions;      /* by token */
  int32_t *places;         /* by row, those of rank after rank */
  int32_t *remaining;      /* by token: of its document behind it */
  int32_t *draws;          /* by token; of dropout, in some cases */
} placed_case;

static void draw_places(placed_case *c) {
  const int64_t rows = c->tokens / c->ranks;
  for (int64_t row = 0; row < c->tokens; row++)
    c->places[row] =
        (int32_t)ls_token_order(row % rows, c->attributes.sequence, c->ranks, (int)(row / rows));
  if (below(3)) return;
  for (int64_t row = c->tokens - 1; row > 0; row--) {
    const int64_t other = below(row + 1);
    const int32_t place = c->places[row];
    c->places[row] = c->places[other], c->places[other] = place;
  }
}

/* `wide`: heads of which going back takes queries in ranges, of 64. */
static void draw(placed_case *c, bool wide) {
  static const int64_t head_dims[] = {2, 8, 24, 64, 72};
  const int64_t d = wide ? 2048 : head_dims[below(5)], sequences = wide ? 1 : 1 + below(2);
  c->ranks = wide ? 2 : 1 + (int)below(4);
  c->threads = below(2) ? 3 : 1;
  c->kv_heads = wide ? 1 : 1 + below(2);
  c->heads = c->kv_heads * (wide ? 1 : 1 + below(3));
  const int64_t sequence = 2 * c->ranks * (wide ? 45 : 1 + below(40));
  c->tokens = sequences * sequence;
  c->attributes = (ls_attributes){.sequence = sequence,
                                  .head_dim = d,
                                  .kv_heads = c->kv_heads,
                                  .heads = c->heads,
                                  .window = below(3) ? 0 : 1 + below(sequence),
                                  .softcap = below(3) ? 0 : 1.5,
                                  .alibi = below(3) ? 0 : 0.5,
                                  .dropout = below(2) ? 0 : 0.3,
                                  .site = 1 + below(9),
                                  .softmax_scale = wide ? 0.05 : 0.3};
  for (int i = 0; i < OPERANDS; i++) {
    const bool of_keys = i == K || i == V || i == DK || i == DV;
    c->columns[i] = i == LSE ? c->heads : (of_keys ? c->kv_heads : c->heads) * d;
    c->whole[i] = LS_NEW_ARRAY(c->arena, double, c->tokens * c->columns[i]);
    for (int64_t e = 0; e < c->tokens * c->columns[i] && i <= GO; e++)
      c->whole[i][e] = 0.5 * ls_random_normal(seed, 2, drawn++);
  }
  c->positions = LS_NEW_ARRAY(c->arena, int32_t, c->tokens);
  c->places = LS_NEW_ARRAY(c->arena, int32_t, c->tokens);
  const int64_t mean = below(2) ? 1 + below(2 * sequence) : INT32_MAX;
  for (int64_t n = 0; n < c->tokens; n++)
    c->positions[n] =
        n % sequence == 0 || (n > 0 && below(mean) == 0) ? 0 : c->positions[n - 1] + 1;
  c->attributes.two_way = below(2);
  if (c->attributes.two_way) c->attributes.alibi = 0;
  c->remaining = LS_NEW_ARRAY(c->arena, int32_t, c->tokens);
  for (int64_t n = c->tokens - 1; n >= 0; n--) {
    const bool last = (n + 1) % sequence == 0 || c->positions[n + 1] == 0;
    c->remaining[n] = last ? 0 : c->remaining[n + 1] + 1;
  }
  draw_places(c);
  c->draws = LS_NEW_ARRAY(c->arena, int32_t, c->tokens);
  for (int64_t n = 0; n < c->tokens; n++)
    c->draws[n] = (int32_t)(uint32_t)ls_random_bits(seed, 3, drawn++);
}

static ls_view view_of(ls_arena *arena, ls_dtype dtype, int64_t rows, int64_t columns) {
  void *data = ls_arena_alloc(arena, (size_t)(rows * columns) * ls_dtype_bytes(dtype) + 64);
  return (ls_view){
      .data = data, .dtype = dtype, .ndim = 2, .dims = {rows, columns}, .valid = {rows, columns}};
}

static ls_view indices_of(int32_t *of, int64_t rows) {
  return (ls_view){.data = of, .dtype = LS_I32, .ndim = 1, .dims = {rows}, .valid = {rows}};
}

static void call(const placed_case *c, const ls_kernel_table *table, ls_op_kind kind,
                 ls_kernel_args *args) {
  ls_error error = {0};
  ls_device_facts facts = *ls_device_facts_here();
  facts.threads = c->threads;
  const ls_device_queue queue = {.facts = &facts};
  args->queue = &queue;
  args->attributes = &c->attributes;
  args->workspace_bytes = ls_device_workspace(&facts, kind, args);
  args->workspace = ls_arena_alloc(c->arena, args->workspace_bytes + 64);
  args->workspace = (char *)args->workspace + (-(uintptr_t)args->workspace & 63);
  const int64_t misses = ls_cpu_scratch_misses();
  if (table->kernel[kind](args, &error) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(ls_cpu_scratch_misses(), misses); /* its recipe has room for it */
}

/* Forward and backward on views that are filled but for what is made. `remaining`: where tokens see
 * those behind them. */
static void run(const placed_case *c, const ls_kernel_table *table, const ls_view of[OPERANDS],
                const ls_view *positions, const ls_view *places, const ls_view *remaining,
                const ls_view *draws) {
  const int behind = c->attributes.two_way && places;
  ls_kernel_args forward = {.inputs = (draws ? 6 : places ? 5 : 4) + behind, .outputs = 2};
  forward.in[0] = of[Q], forward.in[1] = of[K], forward.in[2] = of[V];
  forward.out[0] = of[O], forward.out[1] = of[LSE];
  ls_kernel_args backward = {.inputs = forward.inputs + 3, .outputs = 3};
  static const int in[] = {GO, Q, K, V, O, LSE};
  for (int i = 0; i < 6; i++) backward.in[i] = of[in[i]];
  for (int o = 0; o < 3; o++) backward.out[o] = of[DQ + o];
  forward.in[3] = backward.in[6] = *positions;
  if (places) forward.in[4] = backward.in[7] = *places;
  if (behind) forward.in[5] = backward.in[8] = *remaining;
  if (draws) forward.in[5 + behind] = backward.in[8 + behind] = *draws;
  call(c, table, LS_OP_ATTENTION, &forward);
  call(c, table, LS_OP_ATTENTION_BWD, &backward);
}

/* In order, in fp64: what is expected. */
static void run_whole(const placed_case *c) {
  ls_kernel_table table;
  ls_reference_kernels(&table, LS_F64);
  ls_view of[OPERANDS];
  for (int i = 0; i < OPERANDS; i++) {
    of[i] = view_of(c->arena, LS_F64, c->tokens, c->columns[i]);
    of[i].data = c->whole[i];
  }
  const ls_view positions = indices_of(c->positions, c->tokens);
  if (!(c->attributes.dropout > 0)) {
    run(c, &table, of, &positions, NULL, NULL, NULL);
    return;
  }
  int32_t *order = LS_NEW_ARRAY(c->arena, int32_t, c->tokens);
  for (int64_t n = 0; n < c->tokens; n++) order[n] = (int32_t)n;
  const ls_view places = indices_of(order, c->tokens), draws = indices_of(c->draws, c->tokens);
  const ls_view remaining = indices_of(c->remaining, c->tokens);
  run(c, &table, of, &positions, &places, &remaining, &draws);
}

static void compare(const placed_case *c, int operand, int64_t token, const double *found,
                    double tolerance) {
  const double *expected = c->whole[operand] + token * c->columns[operand];
  for (int64_t j = 0; j < c->columns[operand]; j++)
    if (!(fabs(found[j] - expected[j]) <= tolerance * (1 + fabs(expected[j]))))
      fail_msg("operand %d, token %lld of %lld over %d ranks, column %lld: %g, expected %g",
               operand, (long long)token, (long long)c->tokens, c->ranks, (long long)j, found[j],
               expected[j]);
}

static void run_ranks(const placed_case *c, const ls_kernel_table *table, ls_dtype dtype,
                      double tolerance) {
  const int64_t rows = c->tokens / c->ranks;
  const ls_dtype sums = dtype == LS_F64 ? LS_F64 : LS_F32;
  double *added[2];
  for (int i = 0; i < 2; i++) added[i] = LS_NEW_ARRAY(c->arena, double, c->tokens * c->columns[K]);
  double *row = LS_NEW_ARRAY(c->arena, double, c->heads * c->attributes.head_dim);
  int32_t *positions = LS_NEW_ARRAY(c->arena, int32_t, rows);
  int32_t *own = LS_NEW_ARRAY(c->arena, int32_t, rows);
  int32_t *behind = LS_NEW_ARRAY(c->arena, int32_t, rows);
  for (int r = 0; r < c->ranks; r++) {
    ls_view of[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
      const bool keys = i == K || i == V || i == DK || i == DV;
      const int64_t first = keys ? 0 : r * rows, count = keys ? c->tokens : rows;
      of[i] = view_of(c->arena, i == LSE ? sums : dtype, count, c->columns[i]);
      of[i].start[0] = first;
      for (int64_t n = 0; n < count && i <= GO; n++)
        ls_convert((char *)of[i].data + (size_t)(n * c->columns[i]) * ls_dtype_bytes(dtype), dtype,
                   c->whole[i] + c->places[first + n] * c->columns[i], LS_F64, c->columns[i]);
    }
    for (int64_t n = 0; n < rows; n++) {
      positions[n] = c->positions[c->places[r * rows + n]];
      own[n] = c->draws[c->places[r * rows + n]];
      behind[n] = c->remaining[c->places[r * rows + n]];
    }
    const ls_view at = indices_of(positions, rows), places = indices_of(c->places, c->tokens);
    const ls_view draws = indices_of(own, rows), remaining = indices_of(behind, rows);
    run(c, table, of, &at, &places, &remaining, c->attributes.dropout > 0 ? &draws : NULL);
    static const int mine[] = {O, LSE, DQ};
    for (int i = 0; i < 3; i++)
      for (int64_t n = 0; n < rows; n++) {
        const ls_view *view = &of[mine[i]];
        const int64_t columns = c->columns[mine[i]];
        ls_convert(row, LS_F64,
                   (char *)view->data + (size_t)(n * columns) * ls_dtype_bytes(view->dtype),
                   view->dtype, columns);
        compare(c, mine[i], c->places[r * rows + n], row, tolerance);
      }
    for (int i = 0; i < 2; i++)
      for (int64_t n = 0; n < c->tokens; n++) {
        ls_convert(row, LS_F64,
                   (char *)of[DK + i].data + (size_t)(n * c->columns[K]) * ls_dtype_bytes(dtype),
                   dtype, c->columns[K]);
        for (int64_t j = 0; j < c->columns[K]; j++)
          added[i][c->places[n] * c->columns[K] + j] += row[j];
      }
  }
  for (int i = 0; i < 2; i++)
    for (int64_t token = 0; token < c->tokens; token++)
      compare(c, DK + i, token, added[i] + token * c->columns[K], tolerance);
}

/* Rank r's rows of an operand; those of what is given are filled. */
static ls_view share_of(const placed_case *c, int operand, ls_dtype dtype, int rank) {
  const int64_t rows = c->tokens / c->ranks, columns = c->columns[operand];
  ls_view view = view_of(c->arena, dtype, rows, columns);
  view.start[0] = rank * rows;
  for (int64_t n = 0; n < rows && operand <= GO; n++)
    ls_convert((char *)view.data + (size_t)(n * columns) * ls_dtype_bytes(dtype), dtype,
               c->whole[operand] + c->places[rank * rows + n] * columns, LS_F64, columns);
  return view;
}

/* Adds what a rank has made of an operand to what others have, by token. */
static void gather(const placed_case *c, int operand, const ls_view *view, int rank, double *sums) {
  const int64_t rows = c->tokens / c->ranks, columns = c->columns[operand];
  double *row = LS_NEW_ARRAY(c->arena, double, columns);
  for (int64_t n = 0; n < rows; n++) {
    ls_convert(row, LS_F64,
               (char *)view->data + (size_t)(n * columns) * ls_dtype_bytes(view->dtype),
               view->dtype, columns);
    for (int64_t j = 0; j < columns; j++) sums[c->places[rank * rows + n] * columns + j] += row[j];
  }
}

/* The sums, maxima and sums of values of a rank's queries through all turns, and their end. */
static void ring_forward(placed_case *c, const ls_kernel_table *table, ls_dtype dtype, int rank,
                         const ls_view *positions, const ls_view *places, ls_kernel_args *end) {
  const ls_dtype sums = dtype == LS_F64 ? LS_F64 : LS_F32;
  const int64_t rows = c->tokens / c->ranks;
  ls_kernel_args turn = {.inputs = 5, .outputs = 3};
  turn.in[0] = share_of(c, Q, dtype, rank);
  turn.in[3] = *positions, turn.in[4] = *places;
  for (int j = 0; j < c->ranks; j++) {
    c->attributes.turn = j;
    for (int i = 0; i < 2; i++) turn.in[1 + i] = share_of(c, K + i, dtype, (rank + j) % c->ranks);
    const bool in_place = j > 0 && below(2);
    for (int o = 0; o < 3; o++)
      turn.out[o] = o == 0 && in_place
                        ? turn.in[5]
                        : view_of(c->arena, sums, rows, o == 0 ? c->columns[O] : c->heads);
    call(c, table, LS_OP_RING_ATTENTION, &turn);
    turn.inputs = 8;
    for (int o = 0; o < 3; o++) turn.in[5 + o] = turn.out[o];
  }
  *end = (ls_kernel_args){.inputs = 3, .outputs = 1};
  for (int i = 0; i < 3; i++) end->in[i] = turn.out[i];
  end->out[0] = view_of(c->arena, dtype, rows, c->columns[O]);
  call(c, table, LS_OP_RING_END, end);
}

/* Keys and values come round block by block, and so do their gradients. */
static void run_ring(placed_case *c, const ls_kernel_table *table, ls_dtype dtype,
                     double tolerance) {
  const ls_dtype sums = dtype == LS_F64 ? LS_F64 : LS_F32;
  const int64_t rows = c->tokens / c->ranks;
  const ls_view places = indices_of(c->places, c->tokens);
  int32_t *own = LS_NEW_ARRAY(c->arena, int32_t, rows);
  double *found[OPERANDS];
  for (int i = O; i < OPERANDS; i++)
    found[i] = LS_NEW_ARRAY(c->arena, double, c->tokens * c->columns[i]);
  for (int r = 0; r < c->ranks; r++) {
    for (int64_t n = 0; n < rows; n++) own[n] = c->positions[c->places[r * rows + n]];
    const ls_view positions = indices_of(own, rows);
    ls_kernel_args end, back = {.inputs = 4, .outputs = 2};
    ring_forward(c, table, dtype, r, &positions, &places, &end);
    gather(c, O, &end.out[0], r, found[O]);
    back.in[0] = share_of(c, GO, dtype, r), back.in[1] = end.out[0];
    back.in[2] = end.in[1], back.in[3] = end.in[2];
    for (int o = 0; o < 2; o++) back.out[o] = view_of(c->arena, sums, rows, c->heads);
    call(c, table, LS_OP_RING_END_BWD, &back);
    gather(c, LSE, &back.out[0], r, found[LSE]);
    for (int j = c->ranks - 1; j >= 0; j--) {
      const int from = (r + j) % c->ranks;
      ls_kernel_args turn = {.inputs = 8, .outputs = 3};
      c->attributes.turn = j;
      turn.in[0] = back.in[0], turn.in[1] = share_of(c, Q, dtype, r);
      for (int i = 0; i < 2; i++) turn.in[2 + i] = share_of(c, K + i, dtype, from);
      turn.in[4] = back.out[0], turn.in[5] = back.out[1];
      turn.in[6] = positions, turn.in[7] = places;
      for (int o = 0; o < 3; o++) turn.out[o] = share_of(c, DQ + o, dtype, o ? from : r);
      call(c, table, LS_OP_RING_BWD, &turn);
      for (int o = 0; o < 3; o++) gather(c, DQ + o, &turn.out[o], o ? from : r, found[DQ + o]);
    }
  }
  for (int i = O; i < OPERANDS; i++)
    for (int64_t token = 0; token < c->tokens; token++)
      compare(c, i, token, found[i] + token * c->columns[i], tolerance);
}

/* A rank has a share of each sequence, in the order of context parallelism or in one of chance. */
static void draw_shares(placed_case *c) {
  const int64_t rows = c->tokens / c->ranks, sequence = c->attributes.sequence;
  const int64_t share = sequence / c->ranks;
  for (int64_t row = 0; row < c->tokens; row++)
    c->places[row] = (int32_t)ls_token_order(row % rows, sequence, c->ranks, (int)(row / rows));
  if (below(3)) return;
  for (int64_t first = 0; first < rows; first += share)
    for (int64_t i = sequence - 1; i > 0; i--) {
      const int64_t j = below(i + 1);
      int32_t *a = &c->places[i / share * rows + first + i % share];
      int32_t *b = &c->places[j / share * rows + first + j % share];
      const int32_t place = *a;
      *a = *b, *b = place;
    }
}

/* What is given as the device has it, so that only its own rounding is seen. */
static void round_given(const placed_case *c, ls_dtype dtype) {
  for (int i = Q; i <= GO; i++) {
    const int64_t count = c->tokens * c->columns[i];
    void *rounded = ls_arena_alloc(c->arena, (size_t)count * ls_dtype_bytes(dtype));
    ls_convert(rounded, dtype, c->whole[i], LS_F64, count);
    ls_convert(c->whole[i], LS_F64, rounded, dtype, count);
  }
}

/* `wide`: how many more cases have wide heads. */
static void run_cases(const ls_kernel_table *table, ls_dtype dtype, int count, int wide,
                      double tolerance) {
  for (int i = 0; i < count + wide; i++) {
    placed_case c = {.arena = ls_arena_create()};
    draw(&c, i >= count);
    round_given(&c, dtype);
    run_whole(&c);
    run_ranks(&c, table, dtype, tolerance);
    if (c.attributes.two_way) { /* rings are causal */
      ls_arena_destroy(&c.arena);
      continue;
    }
    const bool drops = c.attributes.dropout > 0; /* rings have no masks */
    c.attributes.dropout = 0;
    if (drops) run_whole(&c);
    c.attributes.turns = c.ranks;
    draw_shares(&c);
    run_ring(&c, table, dtype, tolerance);
    ls_arena_destroy(&c.arena);
  }
}

static void the_reference_takes_places(void **state) {
  (void)state;
  ls_kernel_table table;
  ls_reference_kernels(&table, LS_F64);
  run_cases(&table, LS_F64, ls_test_fewer(CASES, 5), 0, 1e-11);
}

static void the_cpu_takes_places(void **state) {
  (void)state;
  static const struct {
    ls_dtype dtype;
    double tolerance;
  } types[] = {{LS_F32, 1e-5}, {LS_BF16, 0.02}, {LS_F16, 0.003}};
  for (int t = 0; t < 3; t++) {
    ls_kernel_table table;
    ls_error error = {0};
    assert_int_equal(ls_cpu_kernels(&table, types[t].dtype, &error), LS_OK);
    run_cases(&table, types[t].dtype, ls_test_fewer(CASES, 5), 1, types[t].tolerance);
  }
}

int main(void) {
  seed = test_seed(20261128);
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_reference_takes_places),
                                     cmocka_unit_test(the_cpu_takes_places)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
