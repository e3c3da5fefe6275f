/* Error bars: whose they are, what they are made from, how they read. */
#include "sim/interval.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"

static ls_arena *arena;

static int open_arena(void **state) {
  (void)state;
  arena = ls_arena_create();
  return 0;
}

static int close_arena(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return 0;
}

static const ls_interval *interval_of(ls_catalog *catalog, const char *text, int devices) {
  ls_cluster *cluster;
  ls_error error = {0};
  if (ls_cluster_read(catalog, text, &cluster, &error) != LS_OK)
    fail_msg("%s: %s", text, error.text);
  return ls_interval_of(cluster, devices);
}

static void test_machines_have_their_kind(void **state) {
  (void)state;
  ls_catalog *catalog;
  assert_int_equal(ls_catalog_read(arena, NULL, &catalog, NULL), LS_OK);
  assert_ptr_equal(interval_of(catalog, "2xRTX4090", 2), &ls_intervals[LS_INTERVAL_CARDS]);
  assert_ptr_equal(interval_of(catalog, "1xRTX4090", 1), &ls_intervals[LS_INTERVAL_CARDS]);
  assert_ptr_equal(interval_of(catalog, "8xRTX4090:4", 8), &ls_intervals[LS_INTERVAL_HOSTS]);
  assert_ptr_equal(interval_of(catalog, "1xH100-SXM", 1), &ls_intervals[LS_INTERVAL_DEVICE]);
  assert_ptr_equal(interval_of(catalog, "8xH100-SXM", 8), &ls_intervals[LS_INTERVAL_HOST]);
  assert_ptr_equal(interval_of(catalog, "64xH100-SXM", 64), &ls_intervals[LS_INTERVAL_HOSTS]);
  assert_null(ls_interval_of(NULL, 2));
}

/* docs/validation.md and the table are made by one run of the same program. */
static void test_intervals_are_those_of_the_report(void **state) {
  (void)state;
  char *text;
  size_t bytes;
  ls_error error = {0};
  assert_int_equal(ls_file_read(arena, "docs/validation.md", &text, &bytes, &error), LS_OK);
  for (int k = 0; k < LS_INTERVAL_KINDS; k++) {
    const ls_interval *of = &ls_intervals[k];
    const char *row = ls_arena_printf(arena, "\n| %s | %d | %d | %.2f |", of->machines, of->runs,
                                      of->sources, of->low);
    const char *at = strstr(text, row);
    if (!at) fail_msg("docs/validation.md has no row %s", row + 1);
    double middle, high;
    assert_int_equal(sscanf(at + strlen(row), "%lf |%lf", &middle, &high), 2);
    assert_true(high == of->high && of->low <= middle && middle <= high);
  }
}

static void test_bounds_are_around_what_was_simulated(void **state) {
  (void)state;
  const ls_interval of = {"one host", 43, 5, 0.9, 1.3}, below = {"one host", 10, 2, 0.6, 0.8};
  assert_string_equal(ls_interval_print(arena, &of, 2),
                      "1.800 s to 2.600 s: 80 % of 43 published runs on one host");
  assert_true(ls_interval_low(&below, 2) == 1.2 && ls_interval_high(&below, 2) == 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_machines_have_their_kind),
      cmocka_unit_test(test_intervals_are_those_of_the_report),
      cmocka_unit_test(test_bounds_are_around_what_was_simulated),
  };
  return cmocka_run_group_tests(tests, open_arena, close_arena);
}
