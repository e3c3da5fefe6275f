/* What backward makes again has the bits of what it would have kept: losses, norms, gradients and
 * parameters are the same to the last bit, over kinds of recomputation, groups of layers,
 * pipelines, ZeRO, tensor and sequence parallelism; and the programs are proved. Every pair of
 * options; LS_LAYOUTS=all: all of them. And it is less that is kept, at the work that was said. */
#include "ir/program.h"
#include "lower/compile.h"
#include "support/layout_samples.h"

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
enum { SCHEDULES = 4, KINDS = 4, PLAIN = 64, KIND = 7, FACTORS = 9 };

/* Golden: of layouts with each kind of recomputation by 1 and 3 layers. */
enum { LEGAL = 1280, REFUSED = 256, SAMPLE = 20, PAIRS = 271 };

/* One of PLAIN layouts that make nothing again. */
static ls_layout plain_layout(int shape, int which) {
  const bool shards = which / 16 % 2, tensor = which / 32 % 2;
  return ls_test_layout_of(&(ls_layout){.schedule = schedules[which % SCHEDULES],
                                        .pp = 1 + which / 4 % 2,
                                        .microbatches = which / 8 % 2 ? 4 : 1,
                                        .zero = shards ? 3 : 1,
                                        .dp_shard = shards ? 2 : 1,
                                        .tp = tensor ? (shape == 0 ? 2 : 3) : 1,
                                        .sequence_parallel = tensor,
                                        .prefetch = which % 3});
}

static void add_kinds(ls_test_sample *sample, const ls_model_config *config, int shape, int which) {
  ls_layout layout = plain_layout(shape, which);
  for (int kind = 0; kind < KINDS; kind++)
    for (int layers = 1; layers <= 3; layers += 2) {
      layout.recompute = kinds[kind];
      layout.recompute_layers = layers;
      const ls_pairs_case options = {{shape, which % SCHEDULES, layout.pp, layout.microbatches,
                                      layout.zero, layout.tp, layout.prefetch, kind, layers}};
      ls_test_sample_add(sample, config, &layout, &options);
    }
}

/* Those of a plain layout's kinds that are run, beside it. */
static void run_kinds(const ls_test_sampled *of, const ls_experiment *experiment, ls_layout plain,
                      ls_test_tally *tally) {
  ls_arena *arena = ls_arena_create();
  ls_trajectory kept = {0};
  ls_error error = {0};
  for (int i = 0; i < KINDS * 2; i++) {
    if (!of[i].runs) continue;
    if (of[i].legal && !kept.parameters &&
        ls_trajectory_run(arena, experiment, &plain, &kept, &error) != LS_OK)
      fail_msg("%s: %s", ls_layout_print(arena, &plain), error.text);
    const int *option = of[i].options.option;
    ls_test_tally_layout(
        tally, experiment, &kept, &of[i].layout,
        ls_arena_printf(arena, "%s, kind %d, %d layers", ls_layout_print(arena, &plain),
                        option[KIND], of[i].layout.recompute_layers));
  }
  ls_arena_destroy(&arena);
}

static void test_made_again_is_kept(void **state) {
  (void)state;
  ls_test_sample sample = {.arena = ls_arena_create()};
  ls_test_tally tally = {.to_the_bit = true};
  ls_model_config configs[LS_TEST_SHAPES];
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    configs[shape] = ls_test_shape_config(sample.arena, &ls_test_shapes[shape]);
    for (int which = 0; which < PLAIN; which++) add_kinds(&sample, &configs[shape], shape, which);
  }
  ls_test_sample_choose(&sample, FACTORS, -1);
  for (int i = 0; i < sample.items.count; i += KINDS * 2) {
    const int shape = sample.items.items[i].options.option[0], which = i / (KINDS * 2) % PLAIN;
    const ls_experiment experiment = {.config = &configs[shape],
                                      .sequences = LS_TEST_SEQUENCES,
                                      .sequence = LS_TEST_SEQUENCE,
                                      .learning_rate = 1e-2,
                                      .seed = 5,
                                      .deadline_s = 60};
    run_kinds(&sample.items.items[i], &experiment, plain_layout(shape, which), &tally);
  }
  LS_TEST_EXPECT_SAMPLE(&sample, &tally, LEGAL, REFUSED, SAMPLE, PAIRS);
  ls_arena_destroy(&sample.arena);
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
    ls_layout layout = ls_test_layout_default();
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
