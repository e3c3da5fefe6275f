/* The masks of dropout: as many elements are kept as the rate says, and whether one is kept says
 * nothing of its neighbours, of other columns, tokens, places of the model, heads or steps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "device/mask.h"

enum { TOKENS = 512, COLUMNS = 768 };

static int32_t draw_of(uint64_t step, int token) {
  const uint64_t stream = ls_random_stream("dropout") + step;
  return (int32_t)(uint32_t)ls_random_bits(1, stream, (uint64_t)token);
}

/* 1 or -1. */
static int kept(uint64_t step, int token, int64_t site, int64_t head, int column, double rate) {
  const uint32_t row = ls_mask_row(draw_of(step, token), site, head);
  return ls_mask_keeps(row, (uint32_t)column, ls_mask_limit(rate)) ? 1 : -1;
}

/* A sum of n independent signs is within 5 sqrt(n) but once in 1.7 million times; seeds are fixed.
 */
static void assert_is_chance(int64_t sum, int64_t count, const char *what) {
  if (llabs(sum) > 5 * sqrt((double)count))
    fail_msg("%s: %lld of %lld", what, (long long)sum, (long long)count);
}

static void as_many_are_kept_as_is_said(void **state) {
  (void)state;
  static const double rates[] = {0.01, 0.1, 0.5, 0.9};
  for (int r = 0; r < 4; r++) {
    int64_t count = 0;
    for (int t = 0; t < TOKENS; t++)
      for (int c = 0; c < COLUMNS; c++) count += kept(1, t, 1, 0, c, rates[r]) > 0;
    const double elements = TOKENS * COLUMNS, expected = (1 - rates[r]) * elements;
    const double deviation = sqrt(elements * rates[r] * (1 - rates[r]));
    if (fabs((double)count - expected) > 5 * deviation)
      fail_msg("rate %g keeps %lld of %g", rates[r], (long long)count, elements);
  }
}

static void nothing_tells_of_another(void **state) {
  (void)state;
  static const struct {
    const char *what;
    int step, token, site, head, column;
  } beside[] = {{"the next column", 0, 0, 0, 0, 1},      {"two columns on", 0, 0, 0, 0, 2},
                {"64 columns on", 0, 0, 0, 0, 64},       {"the next token", 0, 1, 0, 0, 0},
                {"the token's diagonal", 0, 1, 0, 0, 1}, {"the next place", 0, 0, 1, 0, 0},
                {"the next head", 0, 0, 0, 1, 0},        {"the next step", 1, 0, 0, 0, 0},
                {"place and head", 0, 0, 1, -1, 0},      {"step and token", 1, -1, 0, 0, 0}};
  for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
    int64_t sum = 0;
    for (int t = 1; t < TOKENS; t++)
      for (int c = 0; c < COLUMNS; c++)
        sum += kept(3, t, 5, 1, c, 0.5) * kept((uint64_t)(3 + beside[i].step), t + beside[i].token,
                                               5 + beside[i].site, 1 + beside[i].head,
                                               c + beside[i].column, 0.5);
    assert_is_chance(sum, (TOKENS - 1) * COLUMNS, beside[i].what);
  }
}

/* No token loses much more than its part, nor does a column over all tokens. */
static void rows_and_columns_are_even(void **state) {
  (void)state;
  for (int t = 0; t < TOKENS; t++) {
    int64_t sum = 0;
    for (int c = 0; c < COLUMNS; c++) sum += kept(7, t, 2, 0, c, 0.5);
    assert_is_chance(sum, COLUMNS, "a token");
  }
  for (int c = 0; c < COLUMNS; c++) {
    int64_t sum = 0;
    for (int t = 0; t < TOKENS; t++) sum += kept(7, t, 2, 0, c, 0.5);
    assert_is_chance(sum, TOKENS, "a column");
  }
}

static void the_bits_stay(void **state) {
  (void)state;
  assert_int_equal(ls_mask_mix(1), 0x514e28b7);
  assert_int_equal(ls_mask_limit(0.25), 0x40000000);
  uint64_t hash = 0;
  for (int t = 0; t < 8; t++)
    for (int c = 0; c < 64; c++) hash = hash * 31 + (uint64_t)(kept(0, t, 3, 2, c, 0.3) > 0);
  assert_int_equal(hash, 0xc2f8250194af2992);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_many_are_kept_as_is_said), cmocka_unit_test(nothing_tells_of_another),
      cmocka_unit_test(rows_and_columns_are_even), cmocka_unit_test(the_bits_stay)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
