/* Maps of 8 bits as bitsandbytes makes them, and the nearest of their numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/codes.h"
#include "base/random.h"

static int by_value(const void *a, const void *b) {
  const double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

/* create_dynamic_map(signed, max_exponent_bits=7, total_bits=8): of each power of ten the middles
 * of twice as many equal parts of [0.1, 1] as of the power below. */
static void maps_are_bitsandbytes(void **state) {
  (void)state;
  for (int positive = 0; positive < 2; positive++) {
    double made[LS_CODES];
    int count = 0;
    for (int i = 0; i < 7; i++) {
      const int parts = 1 << (i + positive);
      for (int k = 0; k < parts; k++) {
        const double mean = 0.1 + 0.9 * (k + 0.5) / parts;
        made[count++] = pow(10, i - 6) * mean;
        if (!positive) made[count++] = -pow(10, i - 6) * mean;
      }
    }
    made[count++] = 0;
    made[count++] = 1;
    assert_int_equal(count, LS_CODES);
    qsort(made, LS_CODES, sizeof *made, by_value);
    const float *map = positive ? ls_codes_positive : ls_codes_signed;
    for (int c = 0; c < LS_CODES; c++)
      assert_true(fabs((double)map[c] - made[c]) <= 2e-7 * fabs(made[c]));
  }
}

static void codes_are_the_nearest(void **state) {
  (void)state;
  for (int i = 0; i < 20000; i++) {
    const float *map = i % 2 ? ls_codes_positive : ls_codes_signed;
    const double size = pow(10, -8 * ls_random_uniform(3, (uint64_t)i, 0));
    const double value = i % 3 ? size : -size;
    int nearest = 0;
    for (int c = 1; c < LS_CODES; c++)
      if (fabs(value - (double)map[c]) < fabs(value - (double)map[nearest])) nearest = c;
    assert_int_equal(ls_code_of(map, value), nearest);
  }
  for (int c = 0; c < LS_CODES; c++) {
    assert_int_equal(ls_code_of(ls_codes_signed, (double)ls_codes_signed[c]), c);
    if (c == 0) continue;
    const double middle = ((double)ls_codes_signed[c - 1] + (double)ls_codes_signed[c]) / 2;
    assert_int_equal(ls_code_of(ls_codes_signed, middle), c - 1);
  }
  assert_int_equal(ls_code_of(ls_codes_signed, -5), 0);
  assert_int_equal(ls_code_of(ls_codes_positive, 5), LS_CODES - 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(maps_are_bitsandbytes),
      cmocka_unit_test(codes_are_the_nearest),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
