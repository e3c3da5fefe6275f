/* E4M3 and E5M2: every number, rounding as PyTorch's and in two forms, scales. */
#include "base/fp8.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"

static const struct {
  int exponent_bits, mantissa_bits, bias, finite; /* codes from 0 on that are no infinity or NaN */
} formats[LS_FP8_COUNT] = {[LS_FP8_E4M3] = {4, 3, 7, 0x7f}, [LS_FP8_E5M2] = {5, 2, 15, 0x7c}};

/* The number of a code without a sign. */
static double number_of(ls_fp8 format, int code) {
  const int mantissa = formats[format].mantissa_bits;
  const int fraction = code & ((1 << mantissa) - 1), exponent = code >> mantissa;
  const int lead = exponent ? 1 << mantissa : 0;
  return ldexp(lead + fraction, (exponent ? exponent : 1) - formats[format].bias - mantissa);
}

/* In both forms, and with the other sign. */
static void expect(ls_fp8 format, float value, double expected) {
  const ls_fp8_grid grid = ls_fp8_grid_of(format);
  for (int sign = -1; sign <= 1; sign += 2) {
    const double wide = ls_fp8_round(format, sign * (double)value);
    const float single = ls_fp8_round_f32(&grid, (float)sign * value);
    if (wide != sign * expected || (double)single != sign * expected ||
        !signbit(wide) != !signbit(sign * expected) || !signbit(single) != !signbit(wide))
      fail_msg("%a in format %d: found %a and %a; expected %a", sign * (double)value, (int)format,
               wide, (double)single, sign * expected);
  }
}

static void every_number_stays_and_middles_go_to_even(void **state) {
  (void)state;
  for (ls_fp8 format = LS_FP8_E4M3; format <= LS_FP8_E5M2; format++) {
    for (int code = 0; code < formats[format].finite; code++) {
      const double low = number_of(format, code), high = number_of(format, code + 1);
      const float middle = (float)((low + high) / 2);
      expect(format, (float)low, low);
      if (code + 1 == formats[format].finite) continue;
      expect(format, middle, code & 1 ? high : low);
      expect(format, nextafterf(middle, 0), low);
      expect(format, nextafterf(middle, FLT_MAX), high);
    }
    const double most = number_of(format, formats[format].finite - 1);
    expect(format, (float)most * 1.2f, most);
    expect(format, FLT_MAX, most);
    expect(format, FLT_TRUE_MIN, 0);
  }
  assert_true(number_of(LS_FP8_E4M3, 0x7e) == 448 && number_of(LS_FP8_E5M2, 0x7b) == 57344);
}

static void every_number_has_its_code(void **state) {
  (void)state;
  for (int code = 0; code < 256; code++) {
    const float value = ls_e4m3_value((uint8_t)code);
    const int number = code & 0x7f;
    if (number == formats[LS_FP8_E4M3].finite)
      assert_true(isnan(value));
    else
      assert_true(fabs((double)value) == number_of(LS_FP8_E4M3, number));
    assert_int_equal(!signbit(value), code < 0x80);
    assert_int_equal(ls_e4m3_code(value), code);
  }
  assert_int_equal(ls_e4m3_code(INFINITY), 0x7f);
}

static void what_is_not_finite_stays_so(void **state) {
  (void)state;
  for (ls_fp8 format = LS_FP8_E4M3; format <= LS_FP8_E5M2; format++) {
    const ls_fp8_grid grid = ls_fp8_grid_of(format);
    assert_true(isnan(ls_fp8_round(format, NAN)) && isnan(ls_fp8_round_f32(&grid, NAN)));
    const double wide = ls_fp8_round(format, -INFINITY);
    const float single = ls_fp8_round_f32(&grid, -INFINITY);
    if (format == LS_FP8_E4M3)
      assert_true(isnan(wide) && isnan(single));
    else
      assert_true(wide == -INFINITY && single == -INFINITY);
  }
}

/* tools/reference/make_fp8.py */
static void rounding_is_pytorchs(void **state) {
  (void)state;
  FILE *file = fopen("tests/data/fp8.txt", "r");
  char line[128], words[2][16];
  unsigned bits;
  int lines = 0, compared = 0;
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    if (*line == '#') continue;
    assert_int_equal(sscanf(line, "%8x %15s %15s", &bits, words[0], words[1]), 3);
    lines++;
    const float value = ls_float_of_bits(bits);
    for (int f = 0; f < 2; f++) {
      if (words[f][0] == '-') continue;
      const float expected = ls_float_of_bits((uint32_t)strtoul(words[f], NULL, 16));
      if (isnan(expected))
        assert_true(isnan(ls_fp8_round((ls_fp8)(LS_FP8_E4M3 + f), (double)value)));
      else
        expect((ls_fp8)(LS_FP8_E4M3 + f), value, (double)expected);
      compared++;
    }
  }
  fclose(file);
  assert_int_equal(lines, 1360);
  assert_int_equal(compared, 2525);
}

static void both_forms_are_one(void **state) {
  (void)state;
  const uint64_t seed = 8;
  print_message("seed %llu\n", (unsigned long long)seed);
  for (uint64_t i = 0; i < 400000; i++) {
    const float value = ls_float_of_bits((uint32_t)ls_random_bits(seed, 0, i) & 0x7fffffffu);
    if (!isfinite(value)) continue;
    for (ls_fp8 format = LS_FP8_E4M3; format <= LS_FP8_E5M2; format++)
      expect(format, value, ls_fp8_round(format, (double)value));
  }
}

/* The largest number is still one of the format, and twice the scale would be too much. */
static void a_scale_is_the_largest(void **state) {
  (void)state;
  for (ls_fp8 format = LS_FP8_E4M3; format <= LS_FP8_E5M2; format++) {
    const double most = number_of(format, formats[format].finite - 1);
    for (uint64_t i = 0; i < 100000; i++) {
      const float drawn = ls_float_of_bits((uint32_t)ls_random_bits(9, 0, i) & 0x7fffffffu);
      if (!isfinite(drawn) || drawn < 0x1p-100f) continue;
      const int scale = ls_fp8_scale(format, (double)drawn);
      assert_true(ldexp((double)drawn, scale) <= most && ldexp((double)drawn, scale + 1) > most);
    }
    assert_int_equal(ls_fp8_scale(format, most), 0);
    assert_int_equal(ls_fp8_scale(format, nextafter(most, INFINITY)), -1);
    assert_int_equal(ls_fp8_scale(format, 0x1p-149), 126);
    assert_int_equal(ls_fp8_scale(format, 0), 0);
    assert_int_equal(ls_fp8_scale(format, INFINITY), 0);
    assert_int_equal(ls_fp8_scale(format, NAN), 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_number_has_its_code),
      cmocka_unit_test(every_number_stays_and_middles_go_to_even),
      cmocka_unit_test(what_is_not_finite_stays_so),
      cmocka_unit_test(rounding_is_pytorchs),
      cmocka_unit_test(both_forms_are_one),
      cmocka_unit_test(a_scale_is_the_largest),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
