/* Axes: where values are, round ticks and powers, and values that are all alike or none. */
#include "watch/axis.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef struct ticks {
  double at[64];
  int count;
} ticks;

static void keep(void *context, double value) {
  ticks *of = context;
  assert_true(of->count < 64);
  of->at[of->count++] = value;
}

static ticks ticks_of(const ls_axis *axis, double pixels) {
  ticks found = {.count = 0};
  ls_axis_ticks(axis, pixels, keep, &found);
  return found;
}

static void test_round_steps(void **state) {
  (void)state;
  const ls_axis axis = ls_axis_of(0, 100, true);
  assert_false(axis.powers);
  assert_true(fabs(ls_axis_at(&axis, 0) - 0) < 1e-12);
  assert_true(fabs(ls_axis_at(&axis, 105) - 1) < 1e-12);
  const ticks found = ticks_of(&axis, 320);
  assert_int_equal(found.count, 6); /* 0, 20 .. 100 */
  assert_true(fabs(found.at[1] - 20) < 1e-12);
}

static void test_powers(void **state) {
  (void)state;
  const ls_axis axis = ls_axis_of(0.2, 40, true), plain = ls_axis_of(0.2, 40, false);
  assert_true(axis.powers && !plain.powers);
  const double middle = sqrt(0.2 * 40);
  assert_true(fabs(ls_axis_at(&axis, middle) - 0.5) < 1e-12);
  const ticks found = ticks_of(&axis, 600);
  const double expected[] = {0.2, 0.5, 1, 2, 5, 10, 20, 50};
  assert_int_equal(found.count, 8);
  for (int t = 0; t < 8; t++) assert_true(fabs(found.at[t] - expected[t]) < 1e-12);
}

static void test_below_zero(void **state) {
  (void)state;
  const ls_axis axis = ls_axis_of(-3, 3, true);
  assert_false(axis.powers);
  assert_true(fabs(ls_axis_at(&axis, 0) - 0.5) < 1e-12);
}

static void test_one_value_and_none(void **state) {
  (void)state;
  const ls_axis alike = ls_axis_of(-2, -2, true), none = ls_axis_of(INFINITY, -INFINITY, true);
  assert_true(alike.low < -2 && alike.high > -2);
  assert_true(isfinite(none.low) && none.low < none.high);
  assert_true(ticks_of(&alike, 300).count > 0);
}

static void test_numbers_have_no_exponent(void **state) {
  (void)state;
  static const struct {
    double value;
    const char *text;
  } cases[] = {{0, "0"},          {0.005, "0.005"}, {20000, "20000"}, {99999, "99999"},
               {1e5, "100k"},     {750000, "750k"}, {1.5e6, "1.5M"},  {25e9, "25B"},
               {15e12, "15T"},    {2e15, "2000T"},  {-8e5, "-800k"},  {999999.9, "1M"},
               {0.0001, "0.0001"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[LS_TICK_TEXT];
    ls_axis_number(text, cases[i].value);
    assert_string_equal(text, cases[i].text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_numbers_have_no_exponent),
      cmocka_unit_test(test_round_steps),
      cmocka_unit_test(test_powers),
      cmocka_unit_test(test_below_zero),
      cmocka_unit_test(test_one_value_and_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
