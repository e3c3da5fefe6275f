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
#include "verify/equality.h"

/* Counts that every run must reach, so that the matrix cannot empty itself. */
enum { EXPECTED_RUN = 756, EXPECTED_REFUSED = 582 };

static const double tolerance = 1e-10;

typedef struct tally {
  int run, refused, failed;
  double worst;
} tally;

static uint64_t chosen_seed(void) {
  const char *given = getenv("LS_SEED");
  return given ? strtoull(given, NULL, 10) : 20261121;
}

static void run_case(const ls_experiment *experiment, const ls_trajectory *reference,
                     const ls_layout *layout, const char *model, tally *counts) {
  ls_arena *arena = ls_arena_create();
  ls_trajectory found;
  ls_error error = {0};
  const char *name = ls_test_layout_print(arena, layout, model);
  const char *only = getenv("LS_CASE");
  const ls_status status = only && !strstr(name, only)
                               ? LS_INPUT
                               : ls_trajectory_run(arena, experiment, layout, &found, &error);
  if (status == LS_INPUT) {
    counts->refused++;
  } else if (status != LS_OK) {
    print_message("%s: %s\n", name, error.text);
    counts->failed++;
  } else {
    const char *where;
    const double difference = ls_trajectory_difference(&found, reference, &where);
    counts->run++;
    if (difference > counts->worst) counts->worst = difference;
    if (!(difference <= tolerance)) {
      print_message("%s: %.3g in %s\n", name, difference, where);
      counts->failed++;
    }
  }
  ls_arena_destroy(&arena);
}

static void run_model(const ls_test_shape *shape, uint64_t seed, tally *counts) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  const ls_model_config config = ls_test_shape_config(arena, shape);
  const ls_experiment experiment = {.config = &config,
                                    .sequences = LS_TEST_SEQUENCES,
                                    .sequence = LS_TEST_SEQUENCE,
                                    .seed = seed,
                                    .learning_rate = 0.01};
  ls_layout one = ls_layout_default();
  one.compute = LS_F64;
  ls_trajectory reference;
  if (ls_trajectory_run(arena, &experiment, &one, &reference, &error) != LS_OK)
    fail_msg("%s on one device: %s", shape->name, error.text);
  const ls_test_layouts all = ls_test_layouts_all(arena);
  for (int l = 0; l < all.count; l++)
    run_case(&experiment, &reference, &all.items[l], shape->name, counts);
  ls_arena_destroy(&arena);
}

static void test_every_layout_equals_one_device(void **state) {
  (void)state;
  const uint64_t seed = chosen_seed();
  tally counts = {0};
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
