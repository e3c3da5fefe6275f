/* The shim catches what it says it does (cuda/shim_run.h), in every order of threads, and says
 * nothing of kernels that are right: those of cuda/wrong_kernels.cc. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/shim_run.h"
#include "cuda/wrong_kernels.h"

enum { THREADS = 64, ORDERS = 20 };

static float out[THREADS];

static const char *run(const char *kernel, uint64_t seed) {
  const ls_wrong_arguments arguments = {.out = out};
  for (int t = 0; t < THREADS; t++) out[t] = -2;
  return ls_shim_run(&(ls_shim_launch){.name = {kernel},
                                       .grid = {1, 1, 1},
                                       .block = THREADS,
                                       .arguments = &arguments,
                                       .argument_bytes = sizeof arguments},
                     seed);
}

/* Whether each thread has the number of the one at the block's other end. */
static bool is_turned(void) {
  for (int t = 0; t < THREADS; t++)
    if (out[t] != (float)(THREADS - 1 - t)) return false;
  return true;
}

static void test_a_missing_barrier_shows(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < ORDERS; seed++) {
    assert_null(run("ls_right_barrier", seed));
    assert_true(is_turned());
    assert_null(run("ls_wrong_barrier_missing", seed));
    assert_false(is_turned());
  }
}

static void assert_caught(const char *kernel, const char *words) {
  for (uint64_t seed = 0; seed < ORDERS; seed++) {
    const char *wrong = run(kernel, seed);
    if (!wrong) fail_msg("%s: nothing was caught with seed %d", kernel, (int)seed);
    if (!strstr(wrong, kernel) || !strstr(wrong, words)) fail_msg("%s: said %s", kernel, wrong);
  }
}

static void test_barriers_that_differ_are_caught(void **state) {
  (void)state;
  assert_caught("ls_wrong_barrier_divergent", "others at");
  assert_caught("ls_wrong_barrier_left", "left");
}

static void test_lanes_are_held_to_their_mask(void **state) {
  (void)state;
  assert_caught("ls_wrong_lane_outside", "without its lane");
  assert_caught("ls_wrong_lane_missing", "lanes");
  for (uint64_t seed = 0; seed < ORDERS; seed++) {
    assert_null(run("ls_wrong_lane_source", seed));
    assert_true(out[0] != out[0]); /* poison is a NaN */
    assert_true(out[31] == 20);
  }
}

static void test_warp_functions(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < ORDERS; seed++) {
    assert_null(run("ls_right_votes", seed));
    for (int t = 0; t < THREADS; t++) assert_true(out[t] == 1);
    assert_null(run("ls_right_atomics", seed));
    assert_true(out[1] == THREADS && out[2] == THREADS - 1 - 2);
  }
}

static void test_launches_are_held_to_their_kernel(void **state) {
  (void)state;
  const ls_wrong_arguments arguments = {.out = out};
  ls_shim_launch launch = {.name = {"ls_right_", "barrier"},
                           .grid = {1, 1, 1},
                           .block = THREADS,
                           .arguments = &arguments,
                           .argument_bytes = sizeof arguments};
  assert_null(ls_shim_run(&launch, 0));
  launch.block = THREADS + 1;
  assert_non_null(strstr(ls_shim_run(&launch, 0), "65 threads (up to 64)"));
  launch.block = THREADS;
  launch.argument_bytes = 1;
  assert_non_null(ls_shim_run(&launch, 0));
  launch.name[1] = "other";
  assert_string_equal(ls_shim_run(&launch, 0), "there is no kernel ls_right_other");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_missing_barrier_shows),
                                     cmocka_unit_test(test_barriers_that_differ_are_caught),
                                     cmocka_unit_test(test_lanes_are_held_to_their_mask),
                                     cmocka_unit_test(test_warp_functions),
                                     cmocka_unit_test(test_launches_are_held_to_their_kernel)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
