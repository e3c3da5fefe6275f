#include "text/number.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "support/test_seed.h"

static void numbers_come_back_from_their_shortest_text(void **state) {
  (void)state;
  static const struct {
    double value;
    const char *text;
  } cases[] = {{0, "0"},
               {0.1, "0.1"},
               {3e-4, "0.0003"},
               {1e-8, "1e-08"},
               {1e6, "1e+06"},
               {-2.5, "-2.5"},
               {1.0 / 3, "0.3333333333333333"},
               {INFINITY, "null"},
               {NAN, "null"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[LS_NUMBER_BYTES];
    ls_number_write(text, cases[i].value);
    assert_string_equal(text, cases[i].text);
  }
  const uint64_t seed = test_seed(20261128);
  for (uint64_t i = 0; i < 20000; i++) {
    const uint64_t bits = ls_random_bits(seed, 0, i);
    double value, back;
    memcpy(&value, &bits, sizeof value);
    if (!isfinite(value)) continue;
    char text[LS_NUMBER_BYTES];
    ls_number_write(text, value);
    assert_true(ls_number_read(text, &back));
    assert_true(back == value);
  }
}

static void only_numbers_are_read(void **state) {
  (void)state;
  static const char *const bad[] = {"",     "abc",  "1x",  "0x", ".",  "e5",  "1e",
                                    ".inf", ".nan", "1,5", " 1", "1 ", "--1", "1e999"};
  double value;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_false(ls_number_read(bad[i], &value));
  assert_true(ls_number_read("-.5e1", &value) && value == -5);
}

static void a_locale_changes_nothing(void **state) {
  (void)state;
  if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "fr_FR.UTF-8")) skip();
  char text[LS_NUMBER_BYTES];
  double value;
  ls_number_write(text, 2.5);
  const bool read = ls_number_read("2.5", &value);
  setlocale(LC_ALL, "C");
  assert_string_equal(text, "2.5");
  assert_true(read && value == 2.5);
}

static void sizes_have_units(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t bytes;
  } good[] = {{"0", 0},
              {"17", 17},
              {"1e3", 1000},
              {"1B", 1},
              {"2KB", 2000},
              {"2KiB", 2048},
              {"3 MiB", 3 << 20},
              {"1.5GiB", 3LL << 29},
              {"2gib", 2LL << 30},
              {"1TB", 1000000000000},
              {"1TiB", 1LL << 40},
              {"0.5kb", 500}};
  static const char *const bad[] = {"",     "GiB",   "1XB",     "1 GiB x",
                                    "0.1B", "x1GiB", "1.0.0GB", "9999999TiB"};
  int64_t bytes;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    assert_true(ls_size_read(good[i].text, &bytes));
    assert_int_equal(bytes, good[i].bytes);
    char text[LS_NUMBER_BYTES];
    ls_size_write(text, good[i].bytes);
    assert_true(ls_size_read(text, &bytes));
    assert_int_equal(bytes, good[i].bytes);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(ls_size_read(bad[i], &bytes));
  char text[LS_NUMBER_BYTES];
  ls_size_write(text, 2LL << 30);
  assert_string_equal(text, "2GiB");
  ls_size_write(text, 1025);
  assert_string_equal(text, "1025");
  ls_size_show(text, 812.44 * 1048576);
  assert_string_equal(text, "812.4 MiB");
  ls_size_show(text, 12);
  assert_string_equal(text, "12 B");
}

static void seconds_are_shown_in_their_unit(void **state) {
  (void)state;
  static const struct {
    double seconds;
    const char *text;
  } cases[] = {{812.44e-6, "812.4 us"}, {0.25, "250.0 ms"},     {1, "1.000 s"},
               {119.9, "119.900 s"},    {600, "10.0 min"},      {7200, "2.0 h"},
               {259200, "3.0 days"},    {INFINITY, "inf days"}, {0, "0.0 us"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[LS_NUMBER_BYTES];
    ls_seconds_show(text, cases[i].seconds);
    assert_string_equal(text, cases[i].text);
  }
}

static void counts_and_times_have_a_letter(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double value;
  } counts[] = {{"1B", 1e9}, {"300m", 3e8}, {"2.5T", 2.5e12}, {"7k", 7e3}, {"1e6", 1e6}},
    times[] = {{"12h", 43200}, {"60d", 5184000}, {"4W", 2419200}, {"90", 90}};
  static const char *const bad[] = {"", "B", "-1B", "0", "1BB", "1 B", "nan", "1e30", "1x", "1B "};
  double value;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    assert_true(ls_count_read(counts[i].text, &value));
    assert_float_equal(value, counts[i].value, 0);
  }
  for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
    assert_true(ls_time_read(times[i].text, &value));
    assert_float_equal(value, times[i].value, 0);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_false(ls_count_read(bad[i], &value));
    assert_false(ls_time_read(bad[i], &value));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_come_back_from_their_shortest_text),
      cmocka_unit_test(only_numbers_are_read),
      cmocka_unit_test(a_locale_changes_nothing),
      cmocka_unit_test(sizes_have_units),
      cmocka_unit_test(seconds_are_shown_in_their_unit),
      cmocka_unit_test(counts_and_times_have_a_letter),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
