/* Every schedule of a pipeline equals one device: losses, norms, every gradient of five steps and
 * the parameters after them, in fp64, over stages, microbatches, ZeRO, tensor and data parallelism;
 * and the programs are proved. Every pair of options; LS_LAYOUTS=all: every layout. */
#include "pipeline/pipeline.h"
#include "support/layout_samples.h"

/* What the data and tensor axes are beside the pipeline. */
static const struct beside {
  int dp_replicate, dp_shard, tp, zero;
  ls_when gather;
} besides[] = {
    {1, 1, 1, 1, LS_WHEN_AUTO}, {1, 2, 1, 3, LS_WHEN_AUTO},       {1, 1, 2, 1, LS_WHEN_AUTO},
    {1, 2, 2, 3, LS_WHEN_AUTO}, {1, 2, 1, 3, LS_WHEN_MICROBATCH}, {2, 1, 1, 1, LS_WHEN_AUTO},
    {2, 2, 1, 3, LS_WHEN_AUTO}, {1, 2, 1, 2, LS_WHEN_MICROBATCH}, {1, 3, 1, 1, LS_WHEN_AUTO},
};
static const int stage_counts[] = {1, 2, 3, 4}, microbatch_counts[] = {1, 2, 4, 6};
enum {
  BESIDES = sizeof besides / sizeof *besides,
  STAGES = sizeof stage_counts / sizeof *stage_counts,
  MICROBATCHES = sizeof microbatch_counts / sizeof *microbatch_counts,
  FACTORS = 6,
  MOST_RANKS = 16,
};

/* Golden. */
enum { LEGAL = 2860, REFUSED = 1460, SAMPLE = 91, PAIRS = 416 };

static void add(ls_test_sample *sample, const ls_model_config *config, int shape, int kind, int s,
                int m, int b) {
  const struct beside *beside = &besides[b];
  ls_layout layout = ls_test_layout_of(&(ls_layout){.pp = stage_counts[s],
                                                    .schedule = ls_pipeline_kinds[kind].name,
                                                    .microbatches = microbatch_counts[m],
                                                    .dp_replicate = beside->dp_replicate,
                                                    .dp_shard = beside->dp_shard,
                                                    .tp = beside->tp,
                                                    .zero = beside->zero,
                                                    .gather = beside->gather,
                                                    .reduce = beside->gather,
                                                    .prefetch = (s + m + b) % 3});
  layout.sequence_parallel = layout.tp > 1 && b % 2 == 1;
  const ls_pairs_case options = {{shape, kind, s, m, b, layout.prefetch}};
  if (ls_layout_ranks(&layout) <= MOST_RANKS) ls_test_sample_add(sample, config, &layout, &options);
}

static void add_shape(ls_test_sample *sample, const ls_model_config *config, int shape) {
  for (int kind = 0; kind < ls_pipeline_kind_count; kind++)
    for (int s = 0; s < STAGES; s++)
      for (int m = 0; m < MICROBATCHES; m++)
        for (int b = 0; b < BESIDES; b++) add(sample, config, shape, kind, s, m, b);
}

static void test_every_schedule_equals_one_device(void **state) {
  (void)state;
  ls_test_sample sample = {.arena = ls_arena_create()};
  ls_test_tally tally = {0};
  ls_model_config configs[LS_TEST_SHAPES];
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    configs[shape] = ls_test_shape_config(sample.arena, &ls_test_shapes[shape]);
    add_shape(&sample, &configs[shape], shape);
  }
  ls_test_sample_choose(&sample, FACTORS, -1);
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    const ls_experiment experiment = {.config = &configs[shape],
                                      .sequences = LS_TEST_SEQUENCES,
                                      .sequence = LS_TEST_SEQUENCE,
                                      .learning_rate = 1e-2,
                                      .seed = 5,
                                      .deadline_s = 60};
    ls_test_sample_run(&sample, shape, &experiment, ls_test_shapes[shape].name, &tally);
  }
  LS_TEST_EXPECT_SAMPLE(&sample, &tally, LEGAL, REFUSED, SAMPLE, PAIRS);
  ls_arena_destroy(&sample.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_schedule_equals_one_device)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
