/* What backward makes again has the bits of what it would have kept: losses, norms, gradients and
 * parameters are the same to the last bit, over kinds of recomputation, groups of layers,
 * pipelines, ZeRO, tensor and sequence parallelism. And it is less that is kept, at the work that
 * was said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "ir/program.h"
#include "lower/compile.h"
#include "support/counts.h"
#include "support/layouts.h"
#include "verify/equality.h"

static const char *const schedules[] = {"1f1b", "zbh1", "interleaved", "zbv"};
static const ls_op_set kinds[] = {
    LS_EVERY_OP,
    {.has = {[LS_OP_LAYERNORM] = true,
             [LS_OP_RMSNORM] = true,
             [LS_OP_GELU] = true,
             [LS_OP_SWIGLU] = true}},
    {.has = {[LS_OP_ATTENTION] = true}},
    {.has = {[LS_OP_LINEAR] = true, [LS_OP_BIAS] = true}},
};
enum { SCHEDULES = 4, KINDS = 4, ALL_RUN = 1280, SAMPLE_RUN = 329 };

typedef struct tally {
  int run, left_out;
  uint64_t number;
} tally;

static bool chosen(tally *count) {
  const char *which = getenv("LS_LAYOUTS");
  if (which && strcmp(which, "all") == 0) return true;
  const bool yes = ls_random_bits(20261121, 4, count->number++) % 4 == 0;
  count->left_out += !yes;
  return yes;
}

static void run_kinds(ls_arena *arena, const ls_experiment *experiment, ls_layout *layout,
                      const ls_trajectory *kept, tally *count) {
  for (int kind = 0; kind < KINDS; kind++)
    for (int layers = 1; layers <= 3; layers += 2) {
      if (!chosen(count)) continue;
      ls_trajectory made;
      ls_error error = {0};
      const char *where = "";
      layout->recompute = kinds[kind];
      layout->recompute_layers = layers;
      if (ls_trajectory_run(arena, experiment, layout, &made, &error) != LS_OK)
        fail_msg("%s: %s", ls_layout_print(arena, layout), error.text);
      const double worst = ls_trajectory_difference(&made, kept, &where);
      if (worst != 0)
        fail_msg("%s, kind %d, %d layers: %g in %s", ls_layout_print(arena, layout), kind, layers,
                 worst, where);
      count->run++;
    }
}

static void run_layout(const ls_experiment *experiment, int shape, int which, tally *count) {
  ls_layout layout = ls_layout_default();
  layout.compute = LS_F64;
  layout.schedule = schedules[which % SCHEDULES];
  layout.pp = 1 + which / 4 % 2;
  layout.microbatches = which / 8 % 2 ? 4 : 1;
  layout.zero = which / 16 % 2 ? 3 : 1;
  layout.dp_shard = which / 16 % 2 ? 2 : 1;
  layout.tp = which / 32 % 2 ? (shape == 0 ? 2 : 3) : 1;
  layout.sequence_parallel = layout.tp > 1;
  layout.prefetch = which % 3;
  ls_arena *arena = ls_arena_create();
  ls_trajectory kept;
  ls_error error = {0};
  const ls_status status = ls_trajectory_run(arena, experiment, &layout, &kept, &error);
  if (status == LS_OK) run_kinds(arena, experiment, &layout, &kept, count);
  if (status != LS_OK && status != LS_INPUT) fail_msg("%s", error.text);
  ls_arena_destroy(&arena);
}

static void test_made_again_is_kept(void **state) {
  (void)state;
  tally count = {0};
  for (int shape = 0; shape < 3; shape++) {
    ls_arena *arena = ls_arena_create();
    ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
    const ls_experiment experiment = {.config = &config,
                                      .sequences = LS_TEST_SEQUENCES,
                                      .sequence = LS_TEST_SEQUENCE,
                                      .learning_rate = 1e-2,
                                      .seed = 5,
                                      .deadline_s = 60};
    for (int which = 0; which < 64; which++) run_layout(&experiment, shape, which, &count);
    ls_arena_destroy(&arena);
  }
  print_message("%d runs equal to the last bit, %d left out\n", count.run, count.left_out);
  const ls_test_count all = LS_TEST_COUNT(count.run, ALL_RUN);
  const ls_test_count sample = LS_TEST_COUNT(count.run, SAMPLE_RUN);
  ls_test_expect_counts(count.left_out ? &sample : &all, 1);
}

static int64_t kept_bytes(const ls_program *program) {
  int64_t by_category[LS_CATEGORY_COUNT] = {0};
  ls_program_peak(program, by_category);
  return by_category[LS_CATEGORY_ACTIVATIONS];
}

static void test_less_is_kept_for_the_work_that_was_said(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_model_config config;
  ls_graph *graph;
  ls_error error = {0};
  assert_int_equal(ls_model_find(arena, "gpt2-124m", &config, &error), LS_OK);
  assert_int_equal(
      ls_model_build(arena, &config, &(ls_build_options){.tokens = 1024, .sequence = 512}, &graph,
                     &error),
      LS_OK);
  ls_graph_backward(graph);
  int64_t before = INT64_MAX;
  double work = -1;
  for (int kind = -1; kind < 2; kind++) { /* nothing, then norms and activations, then all */
    ls_layout layout = ls_layout_default();
    if (kind >= 0) layout.recompute = kinds[1 - kind];
    ls_program *program;
    assert_int_equal(ls_program_compile(graph, &layout, LS_PROGRAM_STEP, &program, &error), LS_OK);
    print_message("%.1f MiB kept, %.1f %% of the work done again\n",
                  (double)kept_bytes(program) / 1048576,
                  100 * program->recomputed_flops / program->flops);
    assert_true(kept_bytes(program) < before);
    assert_true(program->recomputed_flops >= work);
    assert_true(program->recomputed_flops < program->flops / 3);
    before = kept_bytes(program);
    work = program->recomputed_flops;
  }
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_made_again_is_kept),
      cmocka_unit_test(test_less_is_kept_for_the_work_that_was_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
