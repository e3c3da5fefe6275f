/* Every schedule of a pipeline equals one device: losses, norms, every gradient of five steps and
 * the parameters after them, in fp64, over stages, microbatches, ZeRO, tensor and data parallelism.
 * The counts of layouts run and refused are golden. LS_LAYOUTS=all runs them all; by default a
 * seeded third. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "pipeline/pipeline.h"
#include "support/counts.h"
#include "support/layouts.h"
#include "verify/equality.h"

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
  MOST_RANKS = 16,
  ALL_RUN = 2860,
  ALL_REFUSED = 1460,
  SAMPLE_RUN = 930,
  SAMPLE_REFUSED = 511,
};

typedef struct tally {
  int run, refused, left_out;
} tally;

static bool chosen(uint64_t number) {
  const char *which = getenv("LS_LAYOUTS");
  if (which && strcmp(which, "all") == 0) return true;
  return ls_random_bits(20261121, 3, number) % 3 == 0;
}

static void run_one(ls_arena *arena, const ls_experiment *experiment, const char *model,
                    const ls_layout *layout, const ls_trajectory *reference, tally *count) {
  ls_error error = {0};
  ls_trajectory made;
  const ls_status status = ls_trajectory_run(arena, experiment, layout, &made, &error);
  if (status == LS_INPUT) {
    count->refused++;
    return;
  }
  const char *where = "";
  const double worst = status == LS_OK ? ls_trajectory_difference(&made, reference, &where) : 1;
  if (!(worst < 1e-10))
    fail_msg("%s, %d microbatches: %g in %s; %s",
             ls_arena_printf(arena, "%s, %s", model, ls_layout_print(arena, layout)),
             layout->microbatches, worst, where, error.text);
  count->run++;
}

static void run_schedule(const ls_test_shape *shape, const ls_pipeline_kind *kind,
                         const ls_experiment *experiment, const ls_trajectory *reference,
                         uint64_t *number, tally *count) {
  for (size_t s = 0; s < sizeof stage_counts / sizeof *stage_counts; s++)
    for (size_t m = 0; m < sizeof microbatch_counts / sizeof *microbatch_counts; m++)
      for (int b = 0; b < BESIDES; b++) {
        ls_layout layout = ls_layout_default();
        layout.compute = LS_F64;
        layout.pp = stage_counts[s];
        layout.schedule = kind->name;
        layout.microbatches = microbatch_counts[m];
        layout.dp_replicate = besides[b].dp_replicate;
        layout.dp_shard = besides[b].dp_shard;
        layout.tp = besides[b].tp;
        layout.zero = besides[b].zero;
        layout.gather = layout.reduce = besides[b].gather;
        layout.sequence_parallel = layout.tp > 1 && b % 2 == 1;
        layout.prefetch = (int)(s + m + (size_t)b) % 3;
        if (ls_test_layout_ranks(&layout) > MOST_RANKS) continue;
        if (!chosen((*number)++)) {
          count->left_out++;
          continue;
        }
        ls_arena *arena = ls_arena_create();
        run_one(arena, experiment, shape->name, &layout, reference, count);
        ls_arena_destroy(&arena);
      }
}

static void run_shape(int index, tally *count) {
  const ls_test_shape *shape = &ls_test_shapes[index];
  ls_arena *arena = ls_arena_create();
  ls_model_config config = ls_test_shape_config(arena, shape);
  const ls_experiment experiment = {.config = &config,
                                    .sequences = LS_TEST_SEQUENCES,
                                    .sequence = LS_TEST_SEQUENCE,
                                    .learning_rate = 1e-2,
                                    .seed = 5,
                                    .deadline_s = 60};
  ls_layout one = ls_layout_default();
  one.compute = LS_F64;
  ls_trajectory reference;
  ls_error error = {0};
  if (ls_trajectory_run(arena, &experiment, &one, &reference, &error) != LS_OK)
    fail_msg("%s", error.text);
  uint64_t number = (uint64_t)index * 1000000;
  for (int k = 0; k < ls_pipeline_kind_count; k++)
    run_schedule(shape, &ls_pipeline_kinds[k], &experiment, &reference, &number, count);
  ls_arena_destroy(&arena);
}

static void test_every_schedule_equals_one_device(void **state) {
  (void)state;
  tally count = {0};
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) run_shape(shape, &count);
  print_message("%d layouts run, %d refused, %d left out\n", count.run, count.refused,
                count.left_out);
  const ls_test_count all[] = {LS_TEST_COUNT(count.run, ALL_RUN),
                               LS_TEST_COUNT(count.refused, ALL_REFUSED)};
  const ls_test_count sample[] = {LS_TEST_COUNT(count.run, SAMPLE_RUN),
                                  LS_TEST_COUNT(count.refused, SAMPLE_REFUSED)};
  ls_test_expect_counts(count.left_out ? sample : all, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_schedule_equals_one_device)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
