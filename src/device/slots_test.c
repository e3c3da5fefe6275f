/* Rows sent to the ranks of their experts. Every choice has a slot of its own among those of its
 * expert's rank, with that expert and its own weight, or where there are too few none, which is
 * told as an infinite loss; arrivals are sorted by expert, each slot once. The CPU device's kernels
 * make what the reference's make, bit for bit but for sums. LS_SEED=N repeats a run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/random.h"
#include "device/cpu/cpu.h"
#include "device/device.h"
#include "support/test_seed.h"

enum { ROUNDS = 40, COLUMNS = 5 };

/* Tokens of one rank, each with some of ranks x held experts. */
typedef struct sent {
  ls_arena *arena;
  uint64_t seed;
  int64_t tokens, chosen, ranks, held, slots;
  ls_view places, experts, weights;       /* as routed */
  ls_view slot, slot_expert, slot_weight; /* as packed */
  ls_attributes attributes;
} sent;

static uint64_t run_seed;

static int64_t draw(const sent *of, int what, int64_t low, int64_t high) {
  return low + (int64_t)(ls_random_bits(of->seed, (uint64_t)what, 0) % (uint64_t)(high - low + 1));
}

static ls_view view_of(ls_arena *arena, ls_dtype dtype, int ndim, int64_t a, int64_t b, int64_t c) {
  ls_view made = {.dtype = dtype, .ndim = ndim, .dims = {a, b, c}, .valid = {a, b, c}};
  made.data = LS_NEW_ARRAY(arena, double, a *(ndim > 1 ? b : 1) * (ndim > 2 ? c : 1) + 1);
  return made;
}

static int64_t elements_of(const ls_view *view) {
  int64_t elements = 1;
  for (int d = 0; d < view->ndim; d++) elements *= view->dims[d];
  return elements;
}

static void call(const ls_kernel_table *table, ls_op_kind kind, const sent *of, const ls_view *in,
                 int inputs, ls_view *out, int outputs) {
  static const ls_device_facts facts = {.threads = 1};
  const ls_device_queue queue = {.facts = &facts};
  ls_kernel_args args = {.queue = &queue,
                         .attributes = &of->attributes,
                         .inputs = inputs,
                         .outputs = outputs,
                         .workspace = LS_NEW_ARRAY(of->arena, double, 256),
                         .workspace_bytes = 2048};
  ls_error error = {0};
  memcpy(args.in, in, sizeof *in * (size_t)inputs);
  memcpy(args.out, out, sizeof *out * (size_t)outputs);
  if (table->kernel[kind](&args, &error) != LS_OK) fail_msg("%s: %s", ls_op_name(kind), error.text);
}

static void fill_numbers(const sent *of, ls_view *view, int what) {
  for (int64_t i = 0; i < elements_of(view); i++)
    ((float *)view->data)[i] =
        (float)ls_random_uniform(of->seed, (uint64_t)(100 + what), (uint64_t)i) - 0.5f;
}

/* Choices in the order of experts, as a routing numbers them. */
static sent route(ls_arena *arena, uint64_t seed) {
  sent of = {.arena = arena, .seed = seed};
  of.tokens = draw(&of, 1, 1, 9), of.ranks = draw(&of, 2, 1, 4), of.held = draw(&of, 3, 1, 3);
  const int64_t experts = of.ranks * of.held;
  of.chosen = draw(&of, 4, 1, experts < 3 ? experts : 3);
  of.slots = draw(&of, 5, 1, of.tokens * of.chosen);
  of.attributes = (ls_attributes){.experts = experts, .held = of.held, .slots = of.slots};
  const int64_t choices = of.tokens * of.chosen;
  of.places = view_of(arena, LS_I32, 2, of.tokens, of.chosen, 0);
  of.experts = view_of(arena, LS_I32, 1, choices, 0, 0);
  of.weights = view_of(arena, LS_F32, 1, choices, 0, 0);
  fill_numbers(&of, &of.weights, 6);
  int32_t row = 0;
  for (int64_t e = 0; e < experts; e++)
    for (int64_t s = 0; s < choices; s++) {
      const int64_t first = draw(&of, 1000 + (int)(s / of.chosen), 0, experts - 1);
      if ((first + s % of.chosen) % experts != e) continue;
      ((int32_t *)of.experts.data)[row] = (int32_t)e;
      ((int32_t *)of.places.data)[s] = row++;
    }
  of.slot = view_of(arena, LS_I32, 2, of.tokens, of.chosen, 0);
  of.slot_expert = view_of(arena, LS_I32, 2, of.ranks, of.slots, 0);
  of.slot_weight = view_of(arena, LS_F32, 2, of.ranks, of.slots, 0);
  return of;
}

static void pack(sent *of, const ls_kernel_table *table) {
  ls_view out[] = {of->slot, of->slot_expert, of->slot_weight};
  call(table, LS_OP_SLOTS, of, (ls_view[]){of->places, of->experts, of->weights}, 3, out, 3);
}

static double left_out(const sent *of, const ls_kernel_table *table) {
  ls_view loss = view_of(of->arena, LS_F64, 1, 1, 0, 0);
  call(table, LS_OP_LEFT_OUT, of, &of->experts, 1, &loss, 1);
  return *(double *)loss.data;
}

/* Rows of two ranks, of which one has none for others or the same: it loses as the one alone. */
static void expect_ranks_told_together(const sent *of, const ls_kernel_table *table, bool any) {
  const int64_t rows = of->experts.dims[0];
  sent both = *of;
  both.attributes.turns = 2;
  both.experts = view_of(of->arena, LS_I32, 1, 2 * rows, 0, 0);
  int32_t *expert = both.experts.data;
  for (int which = 0; which < 3; which++) {
    for (int64_t r = 0; r < 2 * rows; r++) {
      const bool has = which == 2 || (which == 1) == (r >= rows);
      expert[r] = has ? ((int32_t *)of->experts.data)[r % rows] : (int32_t)of->attributes.experts;
    }
    assert_true(any ? isinf(left_out(&both, table)) : left_out(&both, table) == 0);
  }
}

static void choices_have_slots_of_their_own(void **state) {
  (void)state;
  int without = 0, with = 0;
  ls_kernel_table table, fast;
  ls_error error = {0};
  ls_reference_kernels(&table, LS_F32);
  assert_int_equal(ls_cpu_kernels(&fast, LS_F32, &error), LS_OK);
  for (uint64_t round = 0; round < ROUNDS; round++) {
    ls_arena *arena = ls_arena_create();
    sent of = route(arena, run_seed + round);
    pack(&of, &table);
    const int64_t choices = of.tokens * of.chosen, all = of.ranks * of.slots;
    const int32_t *row = of.places.data, *slot = of.slot.data, *expert = of.slot_expert.data;
    bool *taken = LS_NEW_ARRAY(arena, bool, all + 1), any = false;
    for (int64_t s = 0; s < choices; s++) {
      const int32_t own = ((int32_t *)of.experts.data)[row[s]];
      any |= slot[s] < 0;
      if (slot[s] < 0) continue;
      assert_true(slot[s] < all && !taken[slot[s]]);
      taken[slot[s]] = true;
      assert_int_equal(slot[s] / of.slots, own / of.held);
      assert_int_equal(expert[slot[s]], own);
      assert_true(((float *)of.slot_weight.data)[slot[s]] == ((float *)of.weights.data)[row[s]]);
    }
    for (int64_t s = 0; s < all; s++)
      if (!taken[s])
        assert_true(expert[s] == of.attributes.experts && ((float *)of.slot_weight.data)[s] == 0);
    assert_true(any ? isinf(left_out(&of, &table)) : left_out(&of, &table) == 0);
    expect_ranks_told_together(&of, &table, any);
    expect_ranks_told_together(&of, &fast, any);
    *(any ? &without : &with) += 1;
    ls_arena_destroy(&arena);
  }
  assert_true(without > 3 && with > 3);
}

static void arrivals_are_sorted(void **state) {
  (void)state;
  ls_kernel_table table;
  ls_reference_kernels(&table, LS_F32);
  for (uint64_t round = 0; round < ROUNDS; round++) {
    ls_arena *arena = ls_arena_create();
    sent of = route(arena, run_seed + round);
    pack(&of, &table);
    const int64_t rows = of.ranks * of.slots;
    ls_view out[] = {view_of(arena, LS_I32, 2, of.ranks, of.slots, 0),
                     view_of(arena, LS_I32, 1, rows, 0, 0), view_of(arena, LS_F32, 1, rows, 0, 0)};
    call(&table, LS_OP_ARRIVALS, &of, (ls_view[]){of.slot_expert, of.slot_weight}, 2, out, 3);
    const int32_t *row = out[0].data, *expert = out[1].data;
    bool *taken = LS_NEW_ARRAY(arena, bool, rows + 1);
    for (int64_t s = 0; s < rows; s++) {
      assert_true(row[s] >= 0 && row[s] < rows && !taken[row[s]]);
      taken[row[s]] = true;
      assert_int_equal(expert[row[s]], ((int32_t *)of.slot_expert.data)[s]);
      assert_true(((float *)out[2].data)[row[s]] == ((float *)of.slot_weight.data)[s]);
      if (s) assert_true(expert[s - 1] <= expert[s]);
    }
    ls_arena_destroy(&arena);
  }
}

static void expect_same(const sent *of, ls_op_kind kind, const ls_view *in, int inputs,
                        const ls_view *like, int outputs) {
  ls_kernel_table reference, cpu;
  ls_reference_kernels(&reference, LS_F32);
  ls_error error = {0};
  assert_int_equal(ls_cpu_kernels(&cpu, LS_F32, &error), LS_OK);
  ls_view a[3], b[3];
  for (int o = 0; o < outputs; o++) {
    a[o] = view_of(of->arena, like[o].dtype, like[o].ndim, like[o].dims[0], like[o].dims[1],
                   like[o].dims[2]);
    b[o] = view_of(of->arena, like[o].dtype, like[o].ndim, like[o].dims[0], like[o].dims[1],
                   like[o].dims[2]);
  }
  call(&reference, kind, of, in, inputs, a, outputs);
  call(&cpu, kind, of, in, inputs, b, outputs);
  for (int o = 0; o < outputs; o++)
    for (int64_t i = 0; i < elements_of(&a[o]); i++) {
      if (a[o].dtype == LS_I32)
        assert_int_equal(((int32_t *)a[o].data)[i], ((int32_t *)b[o].data)[i]);
      else if (a[o].dtype == LS_F64)
        assert_true(memcmp(a[o].data, b[o].data, sizeof(double)) == 0);
      else
        assert_true(fabsf(((float *)a[o].data)[i] - ((float *)b[o].data)[i]) < 1e-6f);
    }
}

static void the_cpus_kernels_are_the_references(void **state) {
  (void)state;
  ls_kernel_table table;
  ls_reference_kernels(&table, LS_F32);
  for (uint64_t round = 0; round < ROUNDS; round++) {
    ls_arena *arena = ls_arena_create();
    sent of = route(arena, run_seed + round);
    pack(&of, &table);
    const int64_t rows = of.ranks * of.slots;
    ls_view x = view_of(arena, LS_F32, 2, of.tokens, COLUMNS, 0), loss = {0};
    ls_view sent_rows = view_of(arena, LS_F32, 3, of.ranks, of.slots, COLUMNS);
    ls_view came = view_of(arena, LS_F32, 2, rows, COLUMNS, 0);
    ls_view arrivals[] = {view_of(arena, LS_I32, 2, of.ranks, of.slots, 0),
                          view_of(arena, LS_I32, 1, rows, 0, 0),
                          view_of(arena, LS_F32, 1, rows, 0, 0)};
    loss = view_of(arena, LS_F64, 1, 1, 0, 0);
    fill_numbers(&of, &x, 7), fill_numbers(&of, &sent_rows, 8), fill_numbers(&of, &came, 9);
    call(&table, LS_OP_ARRIVALS, &of, (ls_view[]){of.slot_expert, of.slot_weight}, 2, arrivals, 3);
    const ls_view slots[] = {of.slot, of.slot_expert, of.slot_weight}, row = arrivals[0];
    expect_same(&of, LS_OP_SLOTS, (ls_view[]){of.places, of.experts, of.weights}, 3, slots, 3);
    expect_same(&of, LS_OP_LEFT_OUT, &of.experts, 1, &loss, 1);
    expect_same(&of, LS_OP_SLOTS_BWD, (ls_view[]){of.slot_weight, of.places, of.slot}, 3,
                &of.weights, 1);
    expect_same(&of, LS_OP_ARRIVALS, (ls_view[]){of.slot_expert, of.slot_weight}, 2, arrivals, 3);
    expect_same(&of, LS_OP_ARRIVALS_BWD, (ls_view[]){arrivals[2], row}, 2, &of.slot_weight, 1);
    expect_same(&of, LS_OP_TO_SLOTS, (ls_view[]){x, of.slot}, 2, &sent_rows, 1);
    expect_same(&of, LS_OP_FROM_SLOTS_BWD, (ls_view[]){x, of.slot}, 2, &sent_rows, 1);
    expect_same(&of, LS_OP_FROM_SLOTS, (ls_view[]){sent_rows, of.slot}, 2, &x, 1);
    expect_same(&of, LS_OP_TO_SLOTS_BWD, (ls_view[]){sent_rows, of.slot}, 2, &x, 1);
    expect_same(&of, LS_OP_ARRIVE, (ls_view[]){sent_rows, row}, 2, &came, 1);
    expect_same(&of, LS_OP_LEAVE_BWD, (ls_view[]){sent_rows, row}, 2, &came, 1);
    expect_same(&of, LS_OP_LEAVE, (ls_view[]){came, row}, 2, &sent_rows, 1);
    expect_same(&of, LS_OP_ARRIVE_BWD, (ls_view[]){came, row}, 2, &sent_rows, 1);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  run_seed = test_seed(20261126);
  const struct CMUnitTest tests[] = {cmocka_unit_test(choices_have_slots_of_their_own),
                                     cmocka_unit_test(arrivals_are_sorted),
                                     cmocka_unit_test(the_cpus_kernels_are_the_references)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
