/* A pairwise sample of the matrix on the CPU device's fp32 kernels: every two values of (model,
 * ranks, ZeRO, sequence parallelism, microbatches, tp, replicated or not, optimizer) that any legal
 * layout has together are had together by one that runs.
 *
 * The reference is one device in fp64, so the error is that of fp32 itself and of the layout. The
 * five steps' losses, norms and gradients and the parameters after them must be within 3e-5 of it,
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
#include <stdlib.h>

#include "support/layout_samples.h"
#include "support/test_seed.h"

static const double tolerance = 3e-5, rate = 1e-2, epsilon = 1e-2;

/* Counts that every run must reach, so that the sample cannot empty itself: of layouts with each of
 * the optimizers. */
enum { LEGAL = 2 * 756, REFUSED = 2 * 582, SAMPLE = 44, PAIRS = 329 };

enum {
  SHAPE,
  RANKS,
  ZERO,
  SEQUENCE_PARALLEL,
  MICROBATCHES,
  TENSOR,
  REPLICATED,
  OPTIMIZER,
  FACTORS
};
static const ls_optimizer_kind optimizers[] = {LS_OPTIMIZER_ADAMW, LS_OPTIMIZER_SGD};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

static uint64_t chosen_seed(void) {
  return test_seed_untold(20261121);
}

static void set_optimizer(ls_layout *layout, ls_optimizer_kind kind) {
  layout->optimizer.kind = kind;
  layout->optimizer.momentum = 0.9;
  layout->optimizer.epsilon = epsilon;
}

static void list_layouts(ls_test_sample *sample, const ls_model_config *configs) {
  const ls_test_layouts all = ls_test_layouts_all(sample->arena);
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++)
    for (int l = 0; l < all.count; l++)
      for (int o = 0; o < OPTIMIZERS; o++) {
        ls_layout layout = all.items[l];
        set_optimizer(&layout, optimizers[o]);
        const ls_pairs_case options = {{shape, ls_layout_ranks(&layout), layout.zero,
                                        layout.sequence_parallel, layout.microbatches, layout.tp,
                                        layout.dp_replicate > 1, o}};
        ls_test_sample_add(sample, &configs[shape], &layout, &options);
      }
  ls_test_sample_choose(sample, FACTORS, -1);
}

static ls_experiment experiment_of(const ls_model_config *config, bool fast) {
  return (ls_experiment){.config = config,
                         .sequences = LS_TEST_SEQUENCES,
                         .sequence = LS_TEST_SEQUENCE,
                         .seed = chosen_seed(),
                         .device = {.kind = fast ? "cpu" : NULL},
                         .learning_rate = rate};
}

typedef struct tally {
  int run, failed;
  double worst_first, worst;
} tally;

static void run_case(const ls_model_config *config, const ls_test_sampled *each,
                     const ls_trajectory *reference, tally *counts) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_layout layout = each->layout;
  layout.prefetch = layout.dp_shard % 3;
  layout.compute = LS_F32;
  const char *name =
      ls_arena_printf(arena, "%s%s", layout.optimizer.kind == LS_OPTIMIZER_SGD ? "sgd " : "adamw ",
                      ls_test_layout_print(arena, &layout, config->family));
  const ls_experiment experiment = experiment_of(config, true);
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

/* The legal ones of the sample: what is refused is refused in matrix_test. */
static void run_shape(const ls_test_sample *sample, const ls_model_config *config, int shape,
                      int optimizer, tally *counts) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_layout one = ls_layout_default();
  one.compute = LS_F64;
  set_optimizer(&one, optimizers[optimizer]);
  const ls_experiment experiment = experiment_of(config, false);
  ls_trajectory reference;
  if (ls_trajectory_run(arena, &experiment, &one, &reference, &error) != LS_OK)
    fail_msg("%s on one device: %s", ls_test_shapes[shape].name, error.text);
  for (int i = 0; i < sample->items.count; i++) {
    const ls_test_sampled *each = &sample->items.items[i];
    const int *option = each->options.option;
    if (each->chosen && option[SHAPE] == shape && option[OPTIMIZER] == optimizer)
      run_case(config, each, &reference, counts);
  }
  ls_arena_destroy(&arena);
}

static void test_sample_equals_one_device(void **state) {
  (void)state;
  ls_test_sample sample = {.arena = ls_arena_create()};
  ls_model_config configs[LS_TEST_SHAPES];
  tally counts = {0};
  print_message("seed %llu (set LS_SEED for another)\n", (unsigned long long)chosen_seed());
  for (int m = 0; m < LS_TEST_SHAPES; m++)
    configs[m] = ls_test_shape_config(sample.arena, &ls_test_shapes[m]);
  list_layouts(&sample, configs);
  for (int m = 0; m < LS_TEST_SHAPES; m++)
    for (int o = 0; o < OPTIMIZERS; o++) run_shape(&sample, &configs[m], m, o, &counts);
  print_message("%d layouts run, %d failed; worst difference %.3g in the first step, %.3g in all\n",
                counts.run, counts.failed, counts.worst_first, counts.worst);
  assert_int_equal(counts.failed, 0);
  const ls_test_count wanted[] = {
      LS_TEST_COUNT(sample.legal, LEGAL), LS_TEST_COUNT(sample.refused, REFUSED),
      LS_TEST_COUNT(counts.run, SAMPLE), LS_TEST_COUNT(sample.pairs, PAIRS)};
  ls_test_expect_counts(wanted, 4);
  ls_arena_destroy(&sample.arena);
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
    const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
    ls_layout layout = ls_layout_default();
    layout.dp_replicate = meshes[i][0];
    layout.dp_shard = meshes[i][1];
    layout.tp = meshes[i][2];
    layout.zero = meshes[i][3];
    layout.sequence_parallel = layout.tp > 1;
    layout.microbatches = 2;
    const ls_experiment experiment = experiment_of(&config, true);
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
