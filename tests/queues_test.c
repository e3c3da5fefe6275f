/* Programs on a device with a thread for each queue of each rank (support/queue_device.h): whatever
 * order the queues take, the bits are those of the issued order. That says that events, beginnings
 * and waits suffice; and each of these is needed: programs with one wait fewer, or with one
 * transfer that begins too early, are rejected by `check`, or compute the same bits. All are
 * counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "lower/compile.h"
#include "model/model.h"
#include "pipeline/pipeline.h"
#include "support/layouts.h"
#include "support/mutate.h"
#include "support/offloads.h"
#include "support/queue_device.h"

enum { MOST_STAGES = 4, MOST_RANKS = 8, SEED = 20261123 };

typedef struct made {
  ls_graph *graph;
  ls_layout layout;
  const ls_program *stages[MOST_STAGES];
  int count;
} made;

static bool compile(ls_arena *arena, int shape, const ls_layout *layout, made *into) {
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
  const ls_build_options options = {
      .mode = LS_MODEL_TRAIN,
      .tokens = LS_TEST_SEQUENCES / layout->microbatches * LS_TEST_SEQUENCE,
      .sequence = LS_TEST_SEQUENCE};
  ls_program *stages[MOST_STAGES];
  ls_error error = {0};
  if (ls_layout_ranks(layout) > MOST_RANKS ||
      ls_model_build(arena, &config, &options, &into->graph, &error) != LS_OK)
    return false;
  ls_graph_backward(into->graph);
  if (ls_program_compile(into->graph, layout, LS_PROGRAM_STEP, stages, &error) != LS_OK)
    return false;
  into->layout = *layout;
  into->count = layout->pp;
  for (int s = 0; s < layout->pp; s++) into->stages[s] = stages[s];
  return true;
}

static const ls_queue_memory *run(ls_arena *arena, const made *of, ls_order order, uint64_t seed) {
  ls_queue_memory *memory = ls_queue_memory_make(arena, of->stages, SEED);
  ls_queue_device_run(of->stages, memory, order, seed);
  return memory;
}

/* All orders against the issued one; one layout that cannot be counts for nothing. */
static int try_layout(int shape, const ls_layout *layout, int seeds) {
  ls_arena *arena = ls_arena_create();
  made of;
  int runs = 0;
  if (compile(arena, shape, layout, &of)) {
    const ls_queue_memory *issued = run(arena, &of, LS_ORDER_ISSUED, 0);
    const double loss = ls_queue_memory_loss(of.stages, issued);
    if (!(loss > 0 && loss < 100)) fail_msg("a loss of %g", loss);
    for (int s = 0; s < seeds + 2; s++) {
      const ls_order order = s == 0 ? LS_ORDER_LATE : s == 1 ? LS_ORDER_FREE : LS_ORDER_SEEDED;
      if (!ls_queue_memory_equal(of.stages, issued, run(arena, &of, order, SEED + (uint64_t)s)))
        fail_msg("%s: other bits in order %d",
                 ls_test_layout_print(arena, layout, ls_test_shapes[shape].name), (int)order);
      runs++;
    }
  }
  ls_arena_destroy(&arena);
  return runs;
}

static void test_sample_of_the_matrix(void **state) {
  (void)state;
  enum { EVERY = 5 };
  ls_arena *arena = ls_arena_create();
  const ls_test_layouts all = ls_test_layouts_all(arena);
  int runs = 0;
  for (int i = 0; i < all.count; i += EVERY) {
    ls_layout layout = all.items[i];
    layout.prefetch = i % 3;
    layout.gather = (ls_when)(i % 2 ? LS_WHEN_AUTO : i / 2 % 3);
    layout.compute = i % 4 ? LS_F64 : LS_F32;
    if (i / EVERY % 4 == 1 && !layout.post_validation)
      layout.optimizer.kind = LS_OPTIMIZER_MUON; /* matrices are dealt and handed back */
    runs += try_layout(i / EVERY % LS_TEST_SHAPES, &layout, 1);
  }
  print_message("%d runs\n", runs);
  assert_true(runs > 30);
  ls_arena_destroy(&arena);
}

static void test_all_pipelines(void **state) {
  (void)state;
  int runs = 0;
  for (int k = 0; k < ls_pipeline_kind_count; k++)
    for (int stages = 2; stages <= MOST_STAGES; stages += 2)
      for (int b = 0; b < 3; b++) {
        ls_layout layout = ls_layout_default();
        layout.compute = LS_F64;
        layout.pp = stages;
        layout.schedule = ls_pipeline_kinds[k].name;
        layout.microbatches = 8;
        layout.dp_shard = b ? 2 : 1;
        layout.zero = b == 2 ? 3 : 1;
        layout.gather = b == 2 ? LS_WHEN_MICROBATCH : LS_WHEN_AUTO;
        layout.post_validation = b == 0 && stages == 2;
        layout.prefetch = b;
        runs += try_layout(stages == 2 ? 0 : 2, &layout, 1);
      }
  print_message("%d runs\n", runs);
  assert_true(runs > 60);
}

static void test_offload(void **state) {
  (void)state;
  int runs = 0;
  for (int sample = 0; sample < 24; sample++) {
    ls_layout layout = ls_test_offload_layout(sample);
    layout.offload = ls_test_offload(sample);
    layout.compute = sample % 2 ? LS_F64 : LS_F32;
    layout.grad_dtype = LS_F32;
    runs += try_layout(ls_test_offload_shape(sample), &layout, 1);
  }
  print_message("%d runs\n", runs);
  assert_true(runs > 20);
}

/* ---- one wait fewer, one beginning too early ---------------------------------------------------
 */

typedef struct tally {
  int waits, waits_rejected;
  int gathers, seen;   /* waits for weights; that the device sees to be missing too */
  int begins, bounded; /* that check keeps from beginning one place too early */
  int moves, equal;    /* places that it accepts; runs with the earliest of them */
} tally;

static ls_status check(const made *of) {
  ls_error error = {0};
  return ls_check(of->graph, &of->layout, of->stages, NULL, &error);
}

static void move(ls_program *program, int from, int to) {
  ls_program_action *items = program->actions.items;
  const ls_program_action moved = items[from];
  for (int a = from; a < to; a++) items[a] = items[a + 1];
  for (int a = from; a > to; a--) items[a] = items[a - 1];
  items[to] = moved;
  ls_refresh_lives(program);
}

static bool has_work(const ls_program *program, int a) {
  return program->bodies.items[program->actions.items[a].body].count > 0;
}

/* Without the wait, which is put back. Weights that nobody waits for are poison on a late device.
 */
static void drop_wait(const made *of, ls_program *program, int a, const ls_queue_memory *issued,
                      tally *count) {
  const bool gather = program->actions.items[a].action.transfer == LS_TRANSFER_GATHER;
  const int last = program->actions.count - 1;
  move(program, a, last);
  program->actions.count--;
  ls_refresh_lives(program);
  count->waits++;
  count->waits_rejected += check(of) != LS_OK;
  if (gather) {
    ls_arena *arena = ls_arena_create();
    count->gathers++;
    count->seen += !ls_queue_memory_equal(of->stages, issued, run(arena, of, LS_ORDER_LATE, SEED));
    ls_arena_destroy(&arena);
  }
  program->actions.count++;
  move(program, last, a);
}

/* As early as check lets it: one place before that it is rejected, and there the bits are the same.
 */
static void begin_early(ls_arena *arena, const made *of, ls_program *program, int a,
                        const ls_queue_memory *issued, tally *count) {
  int to = a;
  bool rejected = false;
  while (to > 0 && !rejected) {
    move(program, to, to - 1);
    to--;
    rejected = check(of) != LS_OK;
  }
  if (rejected) move(program, to, to + 1);
  to += rejected;
  count->begins++;
  count->bounded += rejected;
  count->moves += a - to;
  if (to < a) {
    if (!ls_queue_memory_equal(of->stages, issued, run(arena, of, LS_ORDER_LATE, SEED)) ||
        !ls_queue_memory_equal(of->stages, issued, run(arena, of, LS_ORDER_SEEDED, SEED)))
      fail_msg("%s may begin at action %d, and computes something else",
               ls_action_name(&program->actions.items[to].action), to);
    count->equal++;
  }
  move(program, to, a);
}

static void try_all(int shape, const ls_layout *layout, tally *count) {
  ls_arena *arena = ls_arena_create();
  made of;
  if (!compile(arena, shape, layout, &of)) fail_msg("a layout that cannot be");
  assert_int_equal(check(&of), LS_OK);
  const ls_queue_memory *issued = run(arena, &of, LS_ORDER_ISSUED, 0);
  for (int s = 0; s < of.count; s++) {
    ls_program *program = (ls_program *)of.stages[s];
    ls_refresh_lives(program);
    for (int a = 0; a < program->actions.count; a++) {
      const ls_action_kind kind = program->actions.items[a].action.kind;
      if (!has_work(program, a)) continue;
      if (kind == LS_ACTION_WAIT) drop_wait(&of, program, a, issued, count);
      if (kind != LS_ACTION_BEGIN) continue;
      ls_arena *scratch = ls_arena_create();
      begin_early(scratch, &of, program, a, issued, count);
      ls_arena_destroy(&scratch);
    }
  }
  ls_arena_destroy(&arena);
}

static void test_no_wait_and_no_place_is_idle(void **state) {
  (void)state;
  tally count = {0};
  ls_layout layout = ls_layout_default();
  layout.compute = LS_F64;
  layout.dp_shard = 2;
  layout.zero = 3;
  layout.microbatches = 2;
  try_all(1, &layout, &count); /* gathers and reductions, ended where they begin */
  layout.prefetch = 1;
  try_all(1, &layout, &count); /* the same with overlap */
  layout.zero = 1;
  layout.tp = 2;
  try_all(1, &layout, &count); /* reduced once a step, published */
  layout.tp = 1;
  layout.zero = 3;
  layout.dp_replicate = 2;
  try_all(1, &layout, &count); /* reduced again across replicas */
  layout.dp_replicate = 1;
  layout.offload = (ls_offload){LS_TIER_NVME, 1, LS_TIER_HOST, LS_TIER_HOST};
  try_all(1, &layout, &count); /* copies between tiers */
  layout = ls_layout_default();
  layout.compute = LS_F64;
  layout.pp = 2;
  layout.microbatches = 4;
  try_all(0, &layout, &count); /* messages, and two stages that share a unit */
  layout.prefetch = 1;
  try_all(0, &layout, &count); /* messages under way beside passes */
  layout.dp_shard = 2;
  layout.zero = 1;
  layout.post_validation = true;
  try_all(0, &layout, &count); /* speculated weights, published and taken back */
  print_message(
      "%d of %d waits dropped: rejected; of %d for weights the device sees %d\n"
      "%d beginnings: %d kept by check from being one place earlier than it lets them, %d run with "
      "the same bits there (%d places)\n",
      count.waits_rejected, count.waits, count.gathers, count.seen, count.begins, count.bounded,
      count.equal, count.moves);
  assert_int_equal(count.waits_rejected, count.waits);
  assert_true(count.seen * 2 > count.gathers); /* a later gather's wait covers those before it */
  assert_true(count.waits > 100 && count.begins == count.waits && count.bounded * 2 > count.begins);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sample_of_the_matrix), cmocka_unit_test(test_all_pipelines),
      cmocka_unit_test(test_offload), cmocka_unit_test(test_no_wait_and_no_place_is_idle)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
