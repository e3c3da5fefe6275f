/* Element types: every bf16 and fp16 value, and rounding against exact arithmetic in double. */
#include "lockstep/dtype.h"

#include <float.h>
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
  static const char *const names[] = {"fp32",  "bf16", "fp16", "fp64", "int32",      "int64",
                                      "uint8", "nf4",  "int8", "fp4",  "nf4-double", "fp4-double"};
  static const size_t bytes[] = {4, 2, 2, 8, 4, 8, 1, 36, 68, 36, 33, 33};
  assert_int_equal(LS_DTYPE_COUNT, 12);
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

static void every_fp16_value_survives(void **state) {
  (void)state;
  for (uint32_t bits = 0; bits <= 0xffff; bits++) {
    const float value = ls_f16_to_f32((uint16_t)bits);
    if (isnan(value)) {
      const uint16_t quiet = (uint16_t)(bits | 0x200);
      assert_int_equal(ls_f32_to_f16(value), quiet);
    } else {
      assert_int_equal(ls_f32_to_f16(value), bits);
    }
  }
}

/* The magnitude of fp16's bits; beyond the largest, what it would be without infinity. */
static double magnitude_of(int bits) {
  const int exponent = bits >> 10, fraction = bits & 1023;
  return exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
}

/* What a magnitude rounds to, found among all: the nearer neighbour, in the middle the even one. */
static uint16_t nearest_f16(double magnitude) {
  int low = 0, high = 0x7c00; /* magnitude_of(low) <= magnitude */
  if (magnitude >= magnitude_of(high)) return 0x7c00;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (magnitude_of(middle) <= magnitude) low = middle;
    if (magnitude_of(middle) > magnitude) high = middle;
  }
  const double to_low = magnitude - magnitude_of(low), to_high = magnitude_of(high) - magnitude;
  return (uint16_t)(to_high < to_low || (to_high == to_low && low & 1) ? high : low);
}

static void check_f16_rounding(double value) {
  const uint16_t wanted = (uint16_t)(nearest_f16(fabs(value)) | (signbit(value) ? 0x8000 : 0));
  uint16_t got;
  ls_convert(&got, LS_F16, &value, LS_F64, 1);
  if (got != wanted) fail_msg("%a becomes %04x, not %04x", value, got, wanted);
  if ((double)(float)value == value) assert_int_equal(ls_f32_to_f16((float)value), wanted);
}

static void fp16_rounds_to_nearest_even(void **state) {
  (void)state;
  const uint64_t seed = 21;
  print_message("seed %llu\n", (unsigned long long)seed);
  for (uint64_t i = 0; i < 200000; i++) {
    const float any = from_bits((uint32_t)ls_random_bits(seed, 0, i));
    if (!isfinite(any) || any == 0) continue;
    const double near = ldexp((double)any, (int)(i % 46) - 27 - ilogb((double)any));
    check_f16_rounding((double)any);
    check_f16_rounding(near);
  }
  /* Every value, every middle between two, and their neighbours in fp32 and in fp64. */
  for (int bits = 0; bits < 0x7c00; bits++) {
    const double value = magnitude_of(bits), middle = (value + magnitude_of(bits + 1)) / 2;
    const double around[] = {value, middle};
    for (int i = 0; i < 2; i++) {
      const double x = i & 1 ? -around[i] : around[i];
      check_f16_rounding(x);
      check_f16_rounding((double)nextafterf((float)x, INFINITY));
      check_f16_rounding((double)nextafterf((float)x, -INFINITY));
      check_f16_rounding(nextafter(x, INFINITY));
      check_f16_rounding(nextafter(x, -INFINITY));
    }
  }
  assert_int_equal(ls_f32_to_f16(65519.996f), 0x7bff);
  assert_int_equal(ls_f32_to_f16(65520), 0x7c00); /* the middle of the largest and 2^16 */
  assert_int_equal(ls_f32_to_f16(-FLT_MAX), 0xfc00);
  assert_int_equal(ls_f32_to_f16(INFINITY), 0x7c00);
  assert_int_equal(ls_f32_to_f16(-INFINITY), 0xfc00);
  assert_int_equal(ls_f32_to_f16(0x1p-24f), 1);
  assert_int_equal(ls_f32_to_f16(-0x1p-25f), 0x8000);
  assert_int_equal(ls_f32_to_f16(0x1.000002p-25f), 1);
  assert_true(isnan(ls_f16_to_f32(ls_f32_to_f16(from_bits(0x7f800001)))));
}

/* clang has the type on this processor from 15 on. */
#if defined(__FLT16_MAX__) && (!defined(__clang__) || __clang_major__ >= 15)
static void fp16_is_the_compilers(void **state) {
  (void)state;
  for (uint64_t i = 0; i < 3000000; i++) {
    uint32_t bits = (uint32_t)ls_random_bits(22, 0, i);
    /* Half of them where fp16 has numbers, subnormal ones too. */
    if (i & 1) bits = (bits & 0x807fffff) | (0x65 + (bits >> 23 & 0xff) % 42) << 23;
    const float value = from_bits(bits);
    const _Float16 narrow = (_Float16)value;
    uint16_t wanted;
    memcpy(&wanted, &narrow, sizeof wanted);
    if (isnan(value)) {
      assert_true(isnan(ls_f16_to_f32(ls_f32_to_f16(value))));
    } else if (ls_f32_to_f16(value) != wanted) {
      fail_msg("%a becomes %04x, the compiler's is %04x", (double)value, ls_f32_to_f16(value),
               wanted);
    }
  }
}
#else
static void fp16_is_the_compilers(void **state) {
  (void)state;
  skip();
}
#endif

/* Rounded to fp32 first, these would end on the wrong side of a middle. */
static void doubles_are_rounded_once(void **state) {
  (void)state;
  const double above = 1 + 0x1p-8 + 0x1p-40, below = 1 + 3 * 0x1p-8 - 0x1p-40;
  const double values[] = {above, -above, below, -below};
  static const uint16_t wanted[] = {0x3f81, 0xbf81, 0x3f81, 0xbf81};
  uint16_t got[4];
  ls_convert(got, LS_BF16, values, LS_F64, 4);
  assert_memory_equal(got, wanted, sizeof got);
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
  for (int i = 0; i < 3; i++) {
    double back[COUNT];
    uint16_t half[COUNT];
    ls_convert(back, types[i], wide, LS_F64, COUNT);
    ls_convert(half, LS_F16, back, types[i], COUNT);
    assert_int_equal(half[3], types[i] == LS_BF16 ? 0x7c00 : halves[3]); /* bf16: 65,536 */
    half[3] = halves[3];
    assert_memory_equal(half, halves, sizeof halves);
  }
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
      cmocka_unit_test(every_fp16_value_survives),
      cmocka_unit_test(fp16_rounds_to_nearest_even),
      cmocka_unit_test(fp16_is_the_compilers),
      cmocka_unit_test(doubles_are_rounded_once),
      cmocka_unit_test(converts_between_all_floating_types),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
