/* The arithmetic of the collectives, whose vector code has edges and special values. */
#include "comm/reduce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/test_values.h"

/* All 65,536 values of a 16-bit type against each of a few: sums rounded once, NaN kept, maxima. */
static void every_value(ls_dtype dtype, const uint16_t *others, size_t other_count) {
  static uint16_t all[65536], other[65536], sums[65536], wanted;
  for (int i = 0; i < 65536; i++) all[i] = (uint16_t)i;
  for (size_t o = 0; o < other_count; o++) {
    for (int i = 0; i < 65536; i++) other[i] = others[o];
    const void *sources[2] = {all, other};
    void *target = sums;
    ls_reduce_range(&target, 1, sources, 2, 65536, dtype, LS_SUM, false);
    for (int i = 0; i < 65536; i++) {
      const float sum = ls_test_load(all, dtype, i) + ls_test_load(other, dtype, i);
      ls_convert(&wanted, dtype, &sum, LS_F32, 1);
      /* Which NaN comes of two is the processor's choice. */
      const float got = ls_test_load(sums, dtype, i);
      if (sum != sum ? got == got : sums[i] != wanted) {
        fail_msg("%04x + %04x gives %04x", (unsigned)all[i], (unsigned)other[i], (unsigned)sums[i]);
      }
    }
    ls_reduce_range(&target, 1, sources, 2, 65536, dtype, LS_MAX, false);
    for (int i = 0; i < 65536; i++) {
      const float a = ls_test_load(all, dtype, i), b = ls_test_load(other, dtype, i);
      const float got = ls_test_load(sums, dtype, i);
      const int right = a != a || b != b ? got != got : got == (a > b ? a : b);
      if (!right) fail_msg("max of %04x and %04x", (unsigned)all[i], (unsigned)other[i]);
    }
  }
}

static void every_bf16_value(void **state) {
  (void)state;
  static const uint16_t others[] = {0x0000, 0x8000, 0x3f80, 0xbf81, 0x7f80, 0xff80,
                                    0x7fc0, 0x0001, 0x7f7f, 0x4b00, 0x3300, 0x7f81};
  every_value(LS_BF16, others, sizeof others / sizeof others[0]);
}

/* With 1, the largest, infinities, NaNs, subnormal numbers among the others. */
static void every_fp16_value(void **state) {
  (void)state;
  static const uint16_t others[] = {0x0000, 0x8000, 0x3c00, 0xbc01, 0x7c00, 0xfc00, 0x7e00,
                                    0x0001, 0x83ff, 0x7bff, 0x6800, 0x1000, 0x7c01};
  every_value(LS_F16, others, sizeof others / sizeof others[0]);
}

/* With every addition rounded to fp16, the first would overflow on the way and the second lose its
 * ones; the third is too large. */
static void sums_are_kept_in_fp32(void **state) {
  (void)state;
  const uint16_t large[3] = {0x7bff, 0x6800, 0xfbff}, small[3] = {0x7bff, 0x3c00, 0xfbff};
  const uint16_t third[3] = {0xfbff, 0x3c00, 0xfbff};
  const void *sources[3] = {large, small, third};
  uint16_t sums[3];
  void *target = sums;
  ls_reduce_range(&target, 1, sources, 3, 3, LS_F16, LS_SUM, false);
  assert_int_equal(sums[0], 0x7bff);
  assert_int_equal(sums[1], 0x6801); /* 2048 + 1 + 1 */
  assert_int_equal(sums[2], 0xfc00);
}

/* Lengths around those of vectors and tiles, misaligned, several targets, one of them a source. */
static void lengths_and_targets(void **state) {
  (void)state;
  static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F16, LS_F64, LS_I64};
  static const int64_t lengths[] = {0, 1, 3, 7, 15, 17, 33, 2047, 2048, 2049, 4101};
  for (int d = 0; d < 5; d++) {
    for (int l = 0; l < 11; l++) {
      const int64_t count = lengths[l];
      const size_t width = ls_dtype_bytes(dtypes[d]), bytes = (size_t)count * width;
      char *inputs[3];
      for (int r = 0; r < 3; r++) {
        inputs[r] = ls_test_values(5, dtypes[d], count + 1, (uint64_t)l, r);
        inputs[r] += width; /* no longer aligned to vectors */
      }
      char *want = calloc((size_t)count + 1, width), *other = calloc((size_t)count + 1, width);
      for (int64_t i = 0; i < count; i++) {
        ls_test_reduce(want, (void *const *)inputs, 3, dtypes[d], i, LS_SUM, inputs[1]);
      }
      void *targets[2] = {inputs[1], other};
      ls_reduce_range(targets, 2, (const void *const *)inputs, 3, count, dtypes[d], LS_SUM, true);
      assert_memory_equal(inputs[1], want, bytes);
      assert_memory_equal(other, want, bytes);
      for (size_t i = 0; i < width; i++) assert_int_equal(other[bytes + i], 0);
      for (int r = 0; r < 3; r++) free(inputs[r] - width);
      free(want);
      free(other);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_bf16_value),
      cmocka_unit_test(every_fp16_value),
      cmocka_unit_test(sums_are_kept_in_fp32),
      cmocka_unit_test(lengths_and_targets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
