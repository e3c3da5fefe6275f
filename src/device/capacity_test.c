/* Experts held to a capacity. Of each sequence an expert takes the rows of its first places,
 * counted by hand; what is dropped is of no expert, weighs nothing and has no gradient; a routing
 * of what is kept has each row once, sorted. The CPU device's kernels make what the reference's
 * make, bit for bit. LS_SEED=N repeats a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/random.h"
#include "device/cpu/cpu.h"
#include "support/test_seed.h"

enum { ROUNDS = 40, ROOM = 4096 };

static uint64_t run_seed;

static ls_view view_of(void *data, ls_dtype dtype, int ndim, int64_t rows, int64_t columns) {
  return (ls_view){.data = data,
                   .dtype = dtype,
                   .ndim = ndim,
                   .dims = {rows, columns},
                   .valid = {rows, columns}};
}

static void call(const ls_kernel_table *table, ls_op_kind kind, const ls_attributes *attributes,
                 const ls_view *in, int inputs, const ls_view *out, int outputs) {
  static const ls_device_facts facts = {.threads = 1};
  static double workspace[ROOM];
  const ls_device_queue queue = {.facts = &facts};
  ls_kernel_args args = {.queue = &queue,
                         .attributes = attributes,
                         .inputs = inputs,
                         .outputs = outputs,
                         .workspace = workspace,
                         .workspace_bytes = sizeof workspace};
  ls_error error = {0};
  memcpy(args.in, in, sizeof *in * (size_t)inputs);
  memcpy(args.out, out, sizeof *out * (size_t)outputs);
  if (table->kernel[kind](&args, &error) != LS_OK) fail_msg("%s: %s", ls_op_name(kind), error.text);
}

static void open_tables(ls_kernel_table tables[2]) {
  ls_error error = {0};
  ls_reference_kernels(&tables[0], LS_F32);
  if (ls_cpu_kernels(&tables[1], LS_F32, &error) != LS_OK) fail_msg("%s", error.text);
}

/* Two sequences of four tokens, two experts of three for each, two rows of an expert. Rows lie as
 * on two ranks that share sequences: of each the first and the last token, then the others. */
static void rows_are_taken_in_order(void **state) {
  (void)state;
  enum { TOKENS = 8, CHOSEN = 2, EXPERTS = 3 };
  static int32_t choices[TOKENS * CHOSEN] = {0, 1, /* */ 0, 1, /* first sequence: 0 and 3 */
                                             2, 0, /* */ 1, 2, /* second: 4 and 7 */
                                             1, 0, /* */ 0, 2, /* 1 and 2 */
                                             0, 1, /* */ 2, 0 /* 5 and 6 */};
  static int32_t places[TOKENS] = {0, 3, 4, 7, 1, 2, 5, 6};
  static int32_t labels[TOKENS] = {5, 5, 5, 5, 5, -1, 5, 5};
  /* Of the first sequence expert 0 has 0 and 1, and 2 and 3 are dropped; 1 has 0 and 1, and 3 is.
   * Of the second 0 has 4 and 5, and 6 is dropped; 2 has 4 and 6, and 7 is. */
  static const int32_t expected[TOKENS * CHOSEN] = {0, 1, 3, 3, 2, 0, 1, 3, 1, 0, 3, 2, 0, 1, 2, 3};
  static const ls_attributes attributes = {.experts = EXPERTS, .slots = 2, .sequence = 4};
  ls_kernel_table tables[2];
  open_tables(tables);
  for (int t = 0; t < 2; t++) {
    double dropped[EXPERTS];
    int32_t kept[TOKENS * CHOSEN];
    call(&tables[t], LS_OP_CAPACITY, &attributes,
         (ls_view[]){view_of(choices, LS_I32, 2, TOKENS, CHOSEN),
                     view_of(labels, LS_I32, 1, TOKENS, 0), view_of(places, LS_I32, 1, TOKENS, 0)},
         3,
         (ls_view[]){view_of(dropped, LS_F64, 2, 1, EXPERTS),
                     view_of(kept, LS_I32, 2, TOKENS, CHOSEN)},
         2);
    assert_memory_equal(kept, expected, sizeof kept);
    /* The token at place 2 has no label. */
    assert_true(dropped[0] == 2 && dropped[1] == 1 && dropped[2] == 1);
  }
}

static int64_t draw(uint64_t seed, int what, int64_t low, int64_t high) {
  return low + (int64_t)(ls_random_bits(seed, (uint64_t)what, 0) % (uint64_t)(high - low + 1));
}

/* A routing of chance, and what becomes of it. */
typedef struct held {
  int64_t tokens, chosen;
  ls_attributes attributes;
  bool placed;
  int32_t *places, *labels;
  int32_t *rows, *experts, *choices, *kept, *kept_rows, *kept_experts;
  float *weights, *kept_weights, *slopes, *back;
  double *dropped;
} held;

static held make(ls_arena *arena, uint64_t seed) {
  held of = {.chosen = draw(seed, 0, 1, 3), .placed = draw(seed, 1, 0, 1)};
  of.attributes = (ls_attributes){.experts = draw(seed, 2, of.chosen, 6),
                                  .sequence = draw(seed, 3, 1, 7),
                                  .slots = draw(seed, 4, 1, 4)};
  of.tokens = of.attributes.sequence * draw(seed, 5, 1, 4);
  const int64_t choices = of.tokens * of.chosen;
  int32_t **lists[] = {&of.places,  &of.labels, &of.rows,      &of.experts,
                       &of.choices, &of.kept,   &of.kept_rows, &of.kept_experts};
  float **numbers[] = {&of.weights, &of.kept_weights, &of.slopes, &of.back};
  for (int l = 0; l < 8; l++) *lists[l] = LS_NEW_ARRAY(arena, int32_t, choices);
  for (int l = 0; l < 4; l++) *numbers[l] = LS_NEW_ARRAY(arena, float, choices);
  of.dropped = LS_NEW_ARRAY(arena, double, of.attributes.experts);
  for (int64_t n = 0; n < of.tokens; n++) {
    of.places[n] = (int32_t)n;
    of.labels[n] = (int32_t)draw(seed, (int)(100 + n), -1, 3);
  }
  for (int64_t n = of.tokens - 1; n > 0 && of.placed; n--) {
    const int64_t other = draw(seed, (int)(200 + n), 0, n);
    const int32_t place = of.places[n];
    of.places[n] = of.places[other];
    of.places[other] = place;
  }
  int32_t row = 0;
  for (int64_t e = 0; e < of.attributes.experts; e++)
    for (int64_t s = 0; s < choices; s++) {
      const int64_t first = draw(seed, (int)(300 + s / of.chosen), 0, of.attributes.experts - 1);
      if ((first + s % of.chosen) % of.attributes.experts != e) continue;
      of.weights[row] = (float)(row + 1);
      of.slopes[row] = (float)(-row - 1);
      of.experts[row] = (int32_t)e;
      of.rows[s] = row++;
    }
  return of;
}

static void run(const ls_kernel_table *table, held *of) {
  const int64_t n = of->tokens, j = of->chosen, o = n * j;
  const ls_view rows = view_of(of->rows, LS_I32, 2, n, j),
                kept = view_of(of->kept, LS_I32, 2, n, j);
  const ls_view choices = view_of(of->choices, LS_I32, 2, n, j);
  const ls_view kept_rows = view_of(of->kept_rows, LS_I32, 2, n, j);
  const ls_view weights = view_of(of->weights, LS_F32, 1, o, 0);
  call(table, LS_OP_CHOICES, &of->attributes,
       (ls_view[]){rows, view_of(of->experts, LS_I32, 1, o, 0)}, 2, &choices, 1);
  call(table, LS_OP_CAPACITY, &of->attributes,
       (ls_view[]){choices, view_of(of->labels, LS_I32, 1, n, 0),
                   view_of(of->places, LS_I32, 1, n, 0)},
       of->placed ? 3 : 2,
       (ls_view[]){view_of(of->dropped, LS_F64, 2, 1, of->attributes.experts), kept}, 2);
  call(table, LS_OP_KEEP, &of->attributes, (ls_view[]){rows, weights, kept}, 3,
       (ls_view[]){kept_rows, view_of(of->kept_experts, LS_I32, 1, o, 0),
                   view_of(of->kept_weights, LS_F32, 1, o, 0)},
       3);
  const ls_view back = view_of(of->back, LS_F32, 1, o, 0);
  call(table, LS_OP_KEEP_BWD, &of->attributes,
       (ls_view[]){view_of(of->slopes, LS_F32, 1, o, 0), rows, kept_rows, kept}, 4, &back, 1);
}

/* Rows of one expert and sequence that are kept, and all of them. */
static void expect_capacity(const held *of, int64_t sequence, int32_t expert) {
  int64_t all = 0, kept = 0, last_kept = -1, first_dropped = INT64_MAX;
  for (int64_t s = 0; s < of->tokens * of->chosen; s++) {
    const int64_t place = of->places[s / of->chosen];
    if (place / of->attributes.sequence != sequence || of->choices[s] != expert) continue;
    all++;
    kept += of->kept[s] == expert;
    if (of->kept[s] == expert && place > last_kept) last_kept = place;
    if (of->kept[s] != expert && place < first_dropped) first_dropped = place;
  }
  assert_int_equal(kept, all < of->attributes.slots ? all : of->attributes.slots);
  assert_true(last_kept < first_dropped);
}

static void expect_routing(ls_arena *arena, const held *of) {
  const int32_t none = (int32_t)of->attributes.experts;
  bool *taken = LS_NEW_ARRAY(arena, bool, of->tokens * of->chosen);
  for (int64_t s = 0; s < of->tokens * of->chosen; s++) {
    const int32_t row = of->kept_rows[s], expert = of->kept[s];
    assert_true(!taken[row] && of->kept_experts[row] == expert);
    assert_true(expert == none || expert == of->experts[of->rows[s]]);
    assert_true(of->kept_weights[row] == (expert == none ? 0 : of->weights[of->rows[s]]));
    assert_true(of->back[of->rows[s]] == (expert == none ? 0 : of->slopes[row]));
    assert_true(s == 0 || of->kept_experts[s - 1] <= of->kept_experts[s]);
    taken[row] = true;
  }
}

static void what_is_kept_is_a_routing(void **state) {
  (void)state;
  ls_kernel_table tables[2];
  int64_t dropped = 0, unlabelled = 0;
  open_tables(tables);
  for (uint64_t round = 0; round < ROUNDS; round++) {
    ls_arena *arena = ls_arena_create();
    held of = make(arena, run_seed + round), fast = make(arena, run_seed + round);
    run(&tables[0], &of);
    run(&tables[1], &fast);
    const int64_t choices = of.tokens * of.chosen;
    for (int64_t q = 0; q < of.tokens / of.attributes.sequence; q++)
      for (int32_t e = 0; e < of.attributes.experts; e++) expect_capacity(&of, q, e);
    expect_routing(arena, &of);
    for (int64_t s = 0; s < choices; s++)
      if (of.kept[s] == of.attributes.experts)
        *(of.labels[s / of.chosen] < 0 ? &unlabelled : &dropped) += 1;
    for (int64_t e = 0; e < of.attributes.experts; e++) dropped -= (int64_t)of.dropped[e];
    assert_memory_equal(of.kept, fast.kept, (size_t)choices * 4);
    assert_memory_equal(of.kept_rows, fast.kept_rows, (size_t)choices * 4);
    assert_memory_equal(of.kept_experts, fast.kept_experts, (size_t)choices * 4);
    assert_memory_equal(of.kept_weights, fast.kept_weights, (size_t)choices * 4);
    assert_memory_equal(of.back, fast.back, (size_t)choices * 4);
    assert_memory_equal(of.dropped, fast.dropped, (size_t)of.attributes.experts * 8);
    ls_arena_destroy(&arena);
  }
  assert_int_equal(dropped, 0);
  assert_true(unlabelled > 3);
}

int main(void) {
  run_seed = test_seed(20261126);
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_taken_in_order),
                                     cmocka_unit_test(what_is_kept_is_a_routing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
