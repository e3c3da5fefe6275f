/* The arithmetic of the collectives, whose vector code has edges and special values. */
#include "comm/reduce.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/test_values.h"

/* All 65,536 bf16 values against each of a few: sums rounded once, NaN kept, maxima. */
static void every_bf16_value(void **state) {
  (void)state;
  static uint16_t all[65536], other[65536], sums[65536];
  static const uint16_t others[] = {0x0000, 0x8000, 0x3f80, 0xbf81, 0x7f80, 0xff80,
                                    0x7fc0, 0x0001, 0x7f7f, 0x4b00, 0x3300, 0x7f81};
  for (int i = 0; i < 65536; i++) all[i] = (uint16_t)i;
  for (size_t o = 0; o < sizeof others / sizeof others[0]; o++) {
    for (int i = 0; i < 65536; i++) other[i] = others[o];
    const void *sources[2] = {all, other};
    void *target = sums;
    ls_reduce_range(&target, 1, sources, 2, 65536, LS_BF16, LS_SUM, false);
    for (int i = 0; i < 65536; i++) {
      const float sum = ls_bf16_to_f32(all[i]) + ls_bf16_to_f32(other[i]);
      /* Which NaN comes of two is the processor's choice. */
      const float got = ls_bf16_to_f32(sums[i]);
      if (sum != sum ? got == got : sums[i] != ls_f32_to_bf16(sum)) {
        fail_msg("%04x + %04x gives %04x", (unsigned)all[i], (unsigned)other[i], (unsigned)sums[i]);
      }
    }
    ls_reduce_range(&target, 1, sources, 2, 65536, LS_BF16, LS_MAX, false);
    for (int i = 0; i < 65536; i++) {
      const float a = ls_bf16_to_f32(all[i]), b = ls_bf16_to_f32(other[i]);
      const float got = ls_bf16_to_f32(sums[i]);
      const int right = a != a || b != b ? got != got : got == (a > b ? a : b);
      if (!right) fail_msg("max of %04x and %04x", (unsigned)all[i], (unsigned)other[i]);
    }
  }
}

/* Lengths around those of vectors and tiles, misaligned, several targets, one of them a source. */
static void lengths_and_targets(void **state) {
  (void)state;
  static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F64, LS_I64};
  static const int64_t lengths[] = {0, 1, 3, 7, 15, 17, 33, 2047, 2048, 2049, 4101};
  for (int d = 0; d < 4; d++) {
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
      cmocka_unit_test(lengths_and_targets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
