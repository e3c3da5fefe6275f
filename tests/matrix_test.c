/* Every layout equals one device: loss, gradient norm, every parameter's gradient of five steps and
 * every parameter after them, in fp64 on the reference kernels and the real collectives. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/counts.h"
#include "support/layouts.h"
#include "support/tally.h"

/* Counts that every run must reach, so that the matrix cannot empty itself. */
enum { EXPECTED_RUN = 756, EXPECTED_REFUSED = 582 };

static uint64_t chosen_seed(void) {
  const char *given = getenv("LS_SEED");
  return given ? strtoull(given, NULL, 10) : 20261121;
}

static void run_model(const ls_test_shape *shape, uint64_t seed, ls_test_tally *counts) {
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, shape);
  const ls_experiment experiment = {.config = &config,
                                    .sequences = LS_TEST_SEQUENCES,
                                    .sequence = LS_TEST_SEQUENCE,
                                    .seed = seed,
                                    .learning_rate = 0.01};
  ls_trajectory reference;
  ls_test_one_device(arena, &experiment, shape->name, &reference);
  const ls_test_layouts all = ls_test_layouts_all(arena);
  for (int l = 0; l < all.count; l++)
    ls_test_tally_layout(counts, &experiment, &reference, &all.items[l],
                         ls_test_layout_print(arena, &all.items[l], shape->name));
  ls_arena_destroy(&arena);
}

static void test_every_layout_equals_one_device(void **state) {
  (void)state;
  const uint64_t seed = chosen_seed();
  ls_test_tally counts = {0};
  print_message("seed %llu (set LS_SEED for another)\n", (unsigned long long)seed);
  for (int m = 0; m < LS_TEST_SHAPES; m++) run_model(&ls_test_shapes[m], seed, &counts);
  print_message("%d layouts run, %d refused, %d failed, worst difference %.3g\n", counts.run,
                counts.refused, counts.failed, counts.worst);
  assert_int_equal(counts.failed, 0);
  if (getenv("LS_CASE")) return;
  const ls_test_count wanted[] = {LS_TEST_COUNT(counts.run, EXPECTED_RUN),
                                  LS_TEST_COUNT(counts.refused, EXPECTED_REFUSED)};
  ls_test_expect_counts(wanted, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_layout_equals_one_device)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
