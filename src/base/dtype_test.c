/* Element types: every bf16 and fp16 value, and rounding against exact arithmetic in double. */
#include "lockstep/dtype.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"

static float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void names_and_sizes(void **state) {
  (void)state;
  static const char *const names[] = {"fp32", "bf16", "fp16", "fp64", "int32", "int64", "uint8"};
  static const size_t bytes[] = {4, 2, 2, 8, 4, 8, 1};
  assert_int_equal(LS_DTYPE_COUNT, 7);
  for (int i = 0; i < LS_DTYPE_COUNT; i++) {
    assert_string_equal(ls_dtype_name((ls_dtype)i), names[i]);
    assert_int_equal(ls_dtype_bytes((ls_dtype)i), bytes[i]);
  }
}

static void every_bf16_value_survives(void **state) {
  (void)state;
  for (uint32_t bits = 0; bits <= 0xffff; bits++) {
    const float value = ls_bf16_to_f32((uint16_t)bits);
    if (isnan(value)) {
      assert_true(isnan(ls_bf16_to_f32(ls_f32_to_bf16(value))));
    } else {
      assert_int_equal(ls_f32_to_bf16(value), bits);
    }
  }
}

/* A value between two neighbours goes to the nearer one, in the middle to the even one. */
static void check_rounding(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint16_t toward_zero = (uint16_t)(bits >> 16);
  const uint16_t away = (uint16_t)(toward_zero + 1);
  const double below = fabs((double)ls_bf16_to_f32(toward_zero));
  /* Beyond the largest finite value, the neighbour is what it would be without infinity. */
  const double above = (away & 0x7fff) == 0x7f80 ? 0x1p128 : fabs((double)ls_bf16_to_f32(away));
  const double to_below = fabs((double)value) - below, to_above = above - fabs((double)value);
  const bool up = to_above < to_below || (to_above == to_below && (toward_zero & 1));
  assert_int_equal(ls_f32_to_bf16(value), up ? away : toward_zero);
}

static void bf16_rounds_to_nearest_even(void **state) {
  (void)state;
  const uint64_t seed = 20;
  print_message("seed %llu\n", (unsigned long long)seed);
  for (uint64_t i = 0; i < 500000; i++) {
    const float value = from_bits((uint32_t)ls_random_bits(seed, 0, i));
    if (isfinite(value)) check_rounding(value);
  }
  /* Around each middle: just below, on it, just above. */
  for (uint32_t upper = 0; upper < 0x10000; upper += 3) {
    if ((upper & 0x7f80) == 0x7f80) continue;
    for (uint32_t lower = 0x7fff; lower <= 0x8001; lower++) {
      check_rounding(from_bits(upper << 16 | lower));
    }
  }
  assert_int_equal(ls_f32_to_bf16(1.00390625f), 0x3f80); /* 1 + 2^-8: to even, down */
  assert_int_equal(ls_f32_to_bf16(1.01171875f), 0x3f82); /* 1 + 3 x 2^-8: to even, up */
  assert_int_equal(ls_f32_to_bf16(INFINITY), 0x7f80);
  assert_int_equal(ls_f32_to_bf16(-INFINITY), 0xff80);
  /* A NaN whose upper fraction bits are all zero must not become infinite. */
  assert_true(isnan(ls_bf16_to_f32(ls_f32_to_bf16(from_bits(0x7f800001)))));
}

static void every_fp16_value_is_what_its_bits_say(void **state) {
  (void)state;
  for (uint32_t bits = 0; bits <= 0xffff; bits++) {
    const int exponent = (int)(bits >> 10 & 31);
    const int fraction = (int)(bits & 1023);
    const float value = ls_f16_to_f32((uint16_t)bits);
    assert_int_equal(!!signbit(value), bits >> 15);
    if (exponent == 31) {
      assert_true(fraction ? isnan(value) : isinf(value));
      continue;
    }
    const double expected = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    assert_true(fabs((double)value) == expected);
  }
}

static void converts_between_all_floating_types(void **state) {
  (void)state;
  static const ls_dtype types[] = {LS_F32, LS_BF16, LS_F64};
  enum { COUNT = 5 };
  const double values[COUNT] = {0, -1.5, 3.25, 1e30, -0.0078125};
  const float singles[COUNT] = {0, -1.5f, 3.25f, 1e30f, -0.0078125f};
  const uint16_t halves[COUNT] = {0, 0xbe00, 0x4280, 0x7bff, 0xa000};
  for (int i = 0; i < 3; i++) {
    for (int j = 0; j < 3; j++) {
      double first[COUNT], second[COUNT], third[COUNT];
      ls_convert(first, types[i], values, LS_F64, COUNT);
      ls_convert(second, types[j], first, types[i], COUNT);
      ls_convert(third, LS_F64, second, types[j], COUNT);
      for (int k = 0; k < COUNT; k++) {
        const bool exact = k != 3;
        const bool narrow = types[i] == LS_BF16 || types[j] == LS_BF16;
        const double bound = exact ? 0 : narrow ? 0x1p-8 : 0x1p-23;
        assert_true(fabs(third[k] - values[k]) <= bound * fabs(values[k]));
      }
    }
  }
  double wide[COUNT];
  ls_convert(wide, LS_F64, halves, LS_F16, COUNT);
  assert_true(wide[1] == -1.5 && wide[2] == 3.25 && wide[3] == 65504 && wide[4] == -0.0078125);
  float narrow[COUNT];
  ls_convert(narrow, LS_F32, values, LS_F64, COUNT);
  assert_memory_equal(narrow, singles, sizeof narrow);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_and_sizes),
      cmocka_unit_test(every_bf16_value_survives),
      cmocka_unit_test(bf16_rounds_to_nearest_even),
      cmocka_unit_test(every_fp16_value_is_what_its_bits_say),
      cmocka_unit_test(converts_between_all_floating_types),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
