/* A pairwise sample of the matrix on the CPU device's fp32 kernels: every two values of (model,
 * ranks, ZeRO, sequence parallelism, microbatches, tp, replicated or not, optimizer) that any legal
 * layout has together are had together by one that runs.
 *
 * The reference is one device in fp64, so the error is that of fp32 itself and of the layout. The
 * five steps' losses, norms and gradients and the parameters after them must be within 1e-5 of it,
 * on the scale of max(the tensor's norm, 1e-3 of all). Later steps start from parameters that
 * differ in rounding, and an optimizer must not make more of that. A weight moves by rate times
 * g / (|g| + epsilon) in AdamW's first step, whose slope is rate / epsilon at most: with the usual
 * 1e-8, what rounds in a gradient that is zero but for rounding (of keys' biases, before softmax)
 * moves its weight as far as anything can, and one such tensor differs by 2 %. With an epsilon as
 * large as the rate the slope is at most 1: a step adds the error of a gradient to its weight, as
 * SGD of rate 1 would, so both optimizers are held to one bound. It is about as large as gradients
 * are (0.008, clipped), so the second moment still counts: with a beta of 0.951 for its 0.95 in the
 * layouts alone, every AdamW run fails. (fp64 runs of the whole matrix hold AdamW to 1e-10, with
 * an epsilon of 1e-8.) */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/counts.h"
#include "support/layouts.h"
#include "verify/equality.h"

static const double tolerance = 1e-5, rate = 1e-2, epsilon = 1e-2;

/* Counts that every run must reach, so that the sample cannot empty itself. */
enum { EXPECTED_LEGAL = 756, EXPECTED_REFUSED = 582, EXPECTED_RUN = 44, EXPECTED_PAIRS = 329 };

/* What a case is made of: each a small number. */
enum { MODEL, RANKS, ZERO, SEQUENCE_PARALLEL, MICROBATCHES, TENSOR, REPLICATED, OPTIMIZER, KINDS };
static const ls_optimizer_kind optimizers[] = {LS_OPTIMIZER_ADAMW, LS_OPTIMIZER_SGD};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };
enum { MAX_VALUES = 17 };

typedef struct candidate {
  int shape;
  ls_layout layout;
  int value[KINDS];
  bool chosen;
} candidate;

typedef struct sample {
  ls_arena *arena;
  ls_model_config configs[LS_TEST_SHAPES];
  LS_LIST(candidate) cases; /* every legal layout with every optimizer */
  int legal, refused;
  bool covered[KINDS][MAX_VALUES][KINDS][MAX_VALUES];
} sample;

static uint64_t chosen_seed(void) {
  const char *given = getenv("LS_SEED");
  return given ? strtoull(given, NULL, 10) : 20261121;
}

static void set_optimizer(ls_layout *layout, ls_optimizer_kind kind) {
  layout->optimizer.kind = kind;
  layout->optimizer.momentum = 0.9;
  layout->optimizer.epsilon = epsilon;
}

static bool is_legal(sample *of, int shape, const ls_layout *layout) {
  ls_arena *arena = ls_arena_create();
  ls_graph *graph;
  ls_mesh mesh;
  ls_error error = {0};
  const int64_t tokens = LS_TEST_SEQUENCES / layout->microbatches * LS_TEST_SEQUENCE;
  const ls_build_options options = {.tokens = tokens, .sequence = LS_TEST_SEQUENCE};
  assert_int_equal(ls_model_build(arena, &of->configs[shape], &options, &graph, &error), LS_OK);
  const bool legal = ls_layout_mesh(layout, graph, &mesh, &error) == LS_OK;
  ls_arena_destroy(&arena);
  return legal;
}

static void list_candidates(sample *of) {
  const ls_test_layouts all = ls_test_layouts_all(of->arena);
  for (int m = 0; m < LS_TEST_SHAPES; m++) {
    of->configs[m] = ls_test_shape_config(of->arena, &ls_test_shapes[m]);
    for (int l = 0; l < all.count; l++) {
      const ls_layout *layout = &all.items[l];
      if (!is_legal(of, m, layout)) {
        of->refused++;
        continue;
      }
      of->legal++;
      for (int o = 0; o < OPTIMIZERS; o++) {
        candidate *each = LS_APPEND(of->arena, &of->cases);
        *each = (candidate){
            .shape = m,
            .layout = *layout,
            .value = {m, ls_test_layout_ranks(layout), layout->zero, layout->sequence_parallel,
                      layout->microbatches, layout->tp, layout->dp_replicate > 1, o}};
        set_optimizer(&each->layout, optimizers[o]);
      }
    }
  }
}

/* Pairs of values of this case that no chosen case has; marks them where asked. */
static int new_pairs(sample *of, const candidate *from, bool mark) {
  int count = 0;
  for (int a = 0; a < KINDS; a++)
    for (int b = a + 1; b < KINDS; b++) {
      bool *covered = &of->covered[a][from->value[a]][b][from->value[b]];
      count += !*covered;
      if (mark) *covered = true;
    }
  return count;
}

/* Greedy: the case with the most new pairs, the first of equals, until there is none. */
static int choose(sample *of) {
  int pairs = 0;
  for (;;) {
    candidate *best = NULL;
    int most = 0;
    for (int c = 0; c < of->cases.count; c++) {
      const int count = new_pairs(of, &of->cases.items[c], false);
      if (count <= most) continue;
      most = count;
      best = &of->cases.items[c];
    }
    if (!best) return pairs;
    best->chosen = true;
    pairs += new_pairs(of, best, true);
  }
}

static ls_experiment experiment_of(const sample *of, int shape, bool fast) {
  return (ls_experiment){.config = &of->configs[shape],
                         .sequences = LS_TEST_SEQUENCES,
                         .sequence = LS_TEST_SEQUENCE,
                         .seed = chosen_seed(),
                         .fast_kernels = fast,
                         .learning_rate = rate};
}

typedef struct tally {
  int run, failed;
  double worst_first, worst;
} tally;

static void run_case(const sample *of, const candidate *each, const ls_trajectory *reference,
                     tally *counts) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_layout layout = each->layout;
  layout.prefetch = layout.dp_shard % 3;
  layout.compute = LS_F32;
  const char *name =
      ls_arena_printf(arena, "%s%s", layout.optimizer.kind == LS_OPTIMIZER_SGD ? "sgd " : "adamw ",
                      ls_test_layout_print(arena, &layout, ls_test_shapes[each->shape].name));
  const ls_experiment experiment = experiment_of(of, each->shape, true);
  ls_trajectory found;
  if (ls_trajectory_run(arena, &experiment, &layout, &found, &error) != LS_OK)
    fail_msg("%s: %s", name, error.text);
  const char *where_first, *where;
  const double first = ls_trajectory_difference_of_steps(&found, reference, 1, &where_first);
  const double all = ls_trajectory_difference(&found, reference, &where);
  counts->run++;
  counts->worst_first = fmax(counts->worst_first, first);
  counts->worst = fmax(counts->worst, all);
  if (!(first <= tolerance && all <= tolerance)) {
    print_message("%s: %.3g in %s at first, %.3g in %s over all steps\n", name, first, where_first,
                  all, where);
    counts->failed++;
  }
  ls_arena_destroy(&arena);
}

static void run_shape(const sample *of, int shape, int optimizer, tally *counts) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_layout one = ls_layout_default();
  one.compute = LS_F64;
  set_optimizer(&one, optimizers[optimizer]);
  const ls_experiment experiment = experiment_of(of, shape, false);
  ls_trajectory reference;
  if (ls_trajectory_run(arena, &experiment, &one, &reference, &error) != LS_OK)
    fail_msg("%s on one device: %s", ls_test_shapes[shape].name, error.text);
  for (int c = 0; c < of->cases.count; c++)
    if (of->cases.items[c].chosen && of->cases.items[c].shape == shape &&
        of->cases.items[c].value[OPTIMIZER] == optimizer)
      run_case(of, &of->cases.items[c], &reference, counts);
  ls_arena_destroy(&arena);
}

static void test_sample_equals_one_device(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  sample *of = LS_NEW(arena, sample);
  of->arena = arena;
  print_message("seed %llu (set LS_SEED for another)\n", (unsigned long long)chosen_seed());
  list_candidates(of);
  const int pairs = choose(of);
  tally counts = {0};
  for (int m = 0; m < LS_TEST_SHAPES; m++)
    for (int o = 0; o < OPTIMIZERS; o++) run_shape(of, m, o, &counts);
  print_message(
      "%d of %d legal layouts run (%d refused), %d pairs, %d failed; worst difference "
      "%.3g in the first step, %.3g in all\n",
      counts.run, of->legal, of->refused, pairs, counts.failed, counts.worst_first, counts.worst);
  assert_int_equal(counts.failed, 0);
  const ls_test_count wanted[] = {
      LS_TEST_COUNT(of->legal, EXPECTED_LEGAL), LS_TEST_COUNT(of->refused, EXPECTED_REFUSED),
      LS_TEST_COUNT(counts.run, EXPECTED_RUN), LS_TEST_COUNT(pairs, EXPECTED_PAIRS)};
  ls_test_expect_counts(wanted, 4);
  ls_arena_destroy(&arena);
}

static void assert_same_bits(const ls_trajectory *a, const ls_trajectory *b) {
  assert_memory_equal(a->loss, b->loss, sizeof a->loss);
  assert_memory_equal(a->norm, b->norm, sizeof a->norm);
  for (int p = 0; p < a->parameters; p++) {
    const size_t bytes = (size_t)a->elements[p] * sizeof **a->final;
    assert_memory_equal(a->final[p], b->final[p], bytes);
    for (int s = 0; s < LS_TRAJECTORY_STEPS; s++)
      assert_memory_equal(a->gradient[s * a->parameters + p], b->gradient[s * b->parameters + p],
                          bytes);
  }
}

/* Twice the same layout: the same bits of everything, whichever thread came first. */
static void test_same_layout_gives_same_bits(void **state) {
  (void)state;
  static const int meshes[][4] = {{2, 1, 1, 1}, {1, 2, 1, 3}, {1, 1, 2, 1}, {1, 2, 4, 2}};
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
    ls_arena *arena = ls_arena_create();
    sample *of = LS_NEW(arena, sample);
    of->configs[1] = ls_test_shape_config(arena, &ls_test_shapes[1]);
    ls_layout layout = ls_layout_default();
    layout.dp_replicate = meshes[i][0];
    layout.dp_shard = meshes[i][1];
    layout.tp = meshes[i][2];
    layout.zero = meshes[i][3];
    layout.sequence_parallel = layout.tp > 1;
    layout.microbatches = 2;
    const ls_experiment experiment = experiment_of(of, 1, true);
    ls_trajectory first, second;
    ls_error error = {0};
    assert_int_equal(ls_trajectory_run(arena, &experiment, &layout, &first, &error), LS_OK);
    assert_int_equal(ls_trajectory_run(arena, &experiment, &layout, &second, &error), LS_OK);
    assert_same_bits(&first, &second);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_sample_equals_one_device),
                                     cmocka_unit_test(test_same_layout_gives_same_bits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
