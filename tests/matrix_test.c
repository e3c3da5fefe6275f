/* Layouts equal one device: loss, gradient norm, every parameter's gradient of five steps and every
 * parameter after them, in fp64 on the reference kernels and the real collectives; and the programs
 * are proved. Every mesh of up to 16 ranks, and every pair of options; LS_LAYOUTS=all: every
 * layout. */

#include <stdlib.h>

#include "support/layout_samples.h"
#include "support/test_seed.h"

/* Counts that every run must reach, so that the matrix cannot empty itself. */
enum { LEGAL = 756, REFUSED = 582, SAMPLE = 88, PAIRS = 502 };

static uint64_t chosen_seed(void) {
  return test_seed_untold(20261121);
}

static void test_layouts_equal_one_device(void **state) {
  (void)state;
  const uint64_t seed = chosen_seed();
  ls_test_sample sample = {.arena = ls_arena_create()};
  ls_test_tally tally = {0};
  print_message("seed %llu (set LS_SEED for another)\n", (unsigned long long)seed);
  ls_test_sample_meshes(&sample, ls_test_shapes, LS_TEST_SHAPES);
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    const ls_model_config config = ls_test_shape_config(sample.arena, &ls_test_shapes[shape]);
    const ls_experiment experiment = {.config = &config,
                                      .sequences = LS_TEST_SEQUENCES,
                                      .sequence = LS_TEST_SEQUENCE,
                                      .seed = seed,
                                      .learning_rate = 0.01};
    ls_test_sample_run(&sample, shape, &experiment, ls_test_shapes[shape].name, &tally);
  }
  LS_TEST_EXPECT_SAMPLE(&sample, &tally, LEGAL, REFUSED, SAMPLE, PAIRS);
  ls_arena_destroy(&sample.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts_equal_one_device)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
