/* Blocks of quantised weights: the nearest code, and numbers that come back. */
#include "base/blocks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"

enum { MANY = 500 };

static float weights[MANY][LS_BLOCK_WEIGHTS], back[MANY][LS_BLOCK_WEIGHTS];

static void draw(uint64_t seed) {
  for (int b = 0; b < MANY; b++)
    for (int i = 0; i < LS_BLOCK_WEIGHTS; i++)
      weights[b][i] = (float)(ls_random_normal(seed, (uint64_t)b, (uint64_t)i) * exp2(b % 40 - 20));
}

/* No other code is nearer; the largest weight comes back as it is. */
static void nf4_takes_the_nearest_number(void **state) {
  (void)state;
  static ls_nf4_block blocks[MANY];
  draw(61);
  ls_blocks_quantise(LS_NF4, weights[0], MANY, blocks);
  ls_blocks_restore(LS_NF4, blocks, MANY, back[0]);
  for (int b = 0; b < MANY; b++) {
    float most = 0;
    for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) {
      most = fmaxf(most, fabsf(weights[b][i]));
      const double off = fabs((double)back[b][i] - (double)weights[b][i]);
      for (int c = 0; c < LS_NF4_CODES; c++) {
        const double other = (double)ls_nf4_values[c] * (double)blocks[b].scale;
        assert_true(off <= fabs(other - (double)weights[b][i]) + 1e-6 * (double)blocks[b].scale);
      }
      if (fabsf(weights[b][i]) == blocks[b].scale) assert_true(back[b][i] == weights[b][i]);
    }
    assert_true(most == blocks[b].scale);
  }
}

static void int8_is_off_by_half_a_step(void **state) {
  (void)state;
  static ls_int8_block blocks[MANY];
  draw(62);
  ls_blocks_quantise(LS_INT8, weights[0], MANY, blocks);
  ls_blocks_restore(LS_INT8, blocks, MANY, back[0]);
  for (int b = 0; b < MANY; b++)
    for (int i = 0; i < LS_BLOCK_WEIGHTS; i++)
      assert_true(fabsf(back[b][i] - weights[b][i]) <= blocks[b].scale * 0.5001f);
}

/* What was quantised once has the same codes when it is quantised again. */
static void quantising_again_changes_nothing(void **state) {
  (void)state;
  static const ls_dtype dtypes[] = {LS_NF4, LS_INT8};
  static ls_int8_block blocks[2][MANY];
  draw(63);
  for (int d = 0; d < 2; d++) {
    ls_blocks_quantise(dtypes[d], weights[0], MANY, blocks[0]);
    ls_blocks_restore(dtypes[d], blocks[0], MANY, back[0]);
    ls_blocks_quantise(dtypes[d], back[0], MANY, blocks[1]);
    for (int b = 0; b < MANY; b++) {
      const size_t bytes = ls_dtype_bytes(dtypes[d]);
      const char *one = (const char *)blocks[0] + (size_t)b * bytes;
      const char *other = (const char *)blocks[1] + (size_t)b * bytes;
      float scales[2];
      memcpy(&scales[0], one, sizeof *scales);
      memcpy(&scales[1], other, sizeof *scales);
      assert_true(fabsf(scales[0] - scales[1]) <= 1e-6f * scales[0]);
      assert_memory_equal(one + sizeof *scales, other + sizeof *scales, bytes - sizeof *scales);
    }
  }
}

static void zeros_stay_zeros(void **state) {
  (void)state;
  ls_nf4_block nf4;
  ls_int8_block int8;
  memset(weights[0], 0, sizeof weights[0]);
  ls_blocks_quantise(LS_NF4, weights[0], 1, &nf4);
  ls_blocks_restore(LS_NF4, &nf4, 1, back[0]);
  ls_blocks_quantise(LS_INT8, weights[0], 1, &int8);
  ls_blocks_restore(LS_INT8, &int8, 1, back[1]);
  for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) assert_true(back[0][i] == 0 && back[1][i] == 0);
  assert_int_equal(ls_dtype_numbers(LS_NF4), LS_BLOCK_WEIGHTS);
  assert_int_equal(ls_dtype_numbers(LS_F32), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nf4_takes_the_nearest_number),
      cmocka_unit_test(int8_is_off_by_half_a_step),
      cmocka_unit_test(quantising_again_changes_nothing),
      cmocka_unit_test(zeros_stay_zeros),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
