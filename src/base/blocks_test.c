/* Blocks of quantised weights: the nearest code, and numbers that come back. */
#include "base/blocks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "base/scales.h"

enum { MANY = 500 };

static float weights[MANY][LS_BLOCK_WEIGHTS], back[MANY][LS_BLOCK_WEIGHTS];

static void draw(uint64_t seed) {
  for (int b = 0; b < MANY; b++)
    for (int i = 0; i < LS_BLOCK_WEIGHTS; i++)
      weights[b][i] = (float)(ls_random_normal(seed, (uint64_t)b, (uint64_t)i) * exp2(b % 40 - 20));
}

static const ls_dtype four_bits[] = {LS_NF4, LS_FP4};

/* No other code is nearer; the largest weight comes back as it is. */
static void four_bits_take_the_nearest_number(void **state) {
  (void)state;
  static ls_four_bit_block blocks[MANY];
  draw(61);
  for (int k = 0; k < 2; k++) {
    const float *values = ls_blocks_values(four_bits[k]);
    ls_blocks_quantise(four_bits[k], weights[0], MANY, blocks);
    ls_blocks_restore(four_bits[k], blocks, MANY, back[0]);
    for (int b = 0; b < MANY; b++) {
      float most = 0;
      for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) {
        most = fmaxf(most, fabsf(weights[b][i]));
        const double off = fabs((double)back[b][i] - (double)weights[b][i]);
        for (int c = 0; c < LS_FOUR_BIT_CODES; c++) {
          const double other = (double)values[c] * (double)blocks[b].scale;
          assert_true(off <= fabs(other - (double)weights[b][i]) + 1e-6 * (double)blocks[b].scale);
        }
        if (fabsf(weights[b][i]) == blocks[b].scale) assert_true(back[b][i] == weights[b][i]);
      }
      assert_true(most == blocks[b].scale);
    }
  }
  assert_null(ls_blocks_values(LS_INT8));
}

/* What bitsandbytes 0.50.2 makes of these weights: twelfths and what is halfway between them. */
static void fp4_is_bitsandbytes(void **state) {
  (void)state;
  static const int8_t share[LS_BLOCK_WEIGHTS] = {
      0,  1,  -1, 2,  -2, 3,  -3,  4,   -4,  5,   -5,  6,   7,   8,   9,  10,
      11, 12, 13, 14, 15, 16, 17,  18,  19,  20,  21,  22,  23,  24,  25, 26,
      27, 28, 29, 30, 31, 32, 33,  34,  35,  36,  37,  38,  39,  40,  41, 42,
      43, 44, 45, 46, 47, 48, -47, -40, -28, -22, -20, -14, -12, -10, -9, -48};
  static const uint8_t codes[LS_BLOCK_WEIGHTS / 2] = {
      0x01, 0x91, 0x91, 0x91, 0x96, 0xe6, 0x66, 0x66, 0x77, 0x77, 0x44,
      0x44, 0x44, 0x55, 0x55, 0x55, 0x55, 0x22, 0x22, 0x22, 0x22, 0x22,
      0x22, 0x33, 0x33, 0x33, 0x33, 0xbb, 0xad, 0xdc, 0xff, 0xeb};
  ls_four_bit_block block;
  for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) weights[0][i] = (float)share[i] / 48 * 1.5f;
  ls_blocks_quantise(LS_FP4, weights[0], 1, &block);
  assert_true(block.scale == 1.5f);
  assert_memory_equal(block.codes, codes, sizeof codes);
}

/* Scales that have no inverse in fp32. */
static void tiny_weights_keep_their_signs(void **state) {
  (void)state;
  ls_four_bit_block block;
  for (int k = 0; k < 2; k++) {
    for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) weights[0][i] = (float)(i % 3 - 1) * 1e-39f;
    ls_blocks_quantise(four_bits[k], weights[0], 1, &block);
    ls_blocks_restore(four_bits[k], &block, 1, back[0]);
    for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) assert_true(back[0][i] * weights[0][i] >= 0);
    for (int i = 1; i < LS_BLOCK_WEIGHTS; i += 3) assert_true(back[0][i] == 0);
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
  static const ls_dtype dtypes[] = {LS_NF4, LS_INT8, LS_FP4};
  static ls_int8_block blocks[2][MANY];
  draw(63);
  for (int d = 0; d < 3; d++) {
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
      float again[LS_BLOCK_WEIGHTS];
      ls_blocks_restore(dtypes[d], other, 1, again);
      if (dtypes[d] == LS_FP4) /* which has two codes for 0 */
        for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) assert_true(again[i] == back[b][i]);
      else
        assert_memory_equal(one + sizeof *scales, other + sizeof *scales, bytes - sizeof *scales);
    }
  }
}

/* Codes are the same; scales become ls_scale_code's and back, whichever block is the first. */
static void scales_of_8_bits_are_between(void **state) {
  (void)state;
  static ls_four_bit_block single[MANY], made[MANY];
  static ls_double_block twice[MANY];
  static float scales[MANY], nested[3];
  draw(64);
  for (int k = 0; k < 2; k++) {
    ls_blocks_quantise(four_bits[k], weights[0], MANY, single);
    ls_blocks_scales(weights[0], MANY, scales);
    for (int b = 0; b < MANY; b++) assert_true(scales[b] == single[b].scale);
    assert_int_equal(ls_scales_nested(MANY), 3);
    ls_scales_measure(scales, MANY, nested);
    ls_blocks_nest(single, nested, 0, 250, twice);
    ls_blocks_nest(single + 250, nested, 250, MANY - 250, twice + 250);
    ls_blocks_unnest(twice, nested, 0, 300, made);
    ls_blocks_unnest(twice + 300, nested, 300, MANY - 300, made + 300);
    for (int b = 0; b < MANY; b++) {
      assert_int_equal(twice[b].scale, ls_scale_code(scales[b], nested, b));
      assert_true(made[b].scale == ls_scale_of(twice[b].scale, nested, b));
      assert_memory_equal(twice[b].codes, single[b].codes, sizeof single[b].codes);
      assert_memory_equal(made[b].codes, single[b].codes, sizeof single[b].codes);
    }
  }
  assert_int_equal(ls_blocks_single(LS_NF4_DOUBLE), LS_NF4);
  assert_int_equal(ls_blocks_single(LS_FP4_DOUBLE), LS_FP4);
  assert_int_equal(ls_blocks_single(LS_INT8), LS_INT8);
  assert_int_equal(ls_dtype_bytes(LS_NF4_DOUBLE), 33);
  assert_int_equal(ls_dtype_numbers(LS_FP4_DOUBLE), LS_BLOCK_WEIGHTS);
}

static void zeros_stay_zeros(void **state) {
  (void)state;
  ls_four_bit_block four;
  ls_int8_block int8;
  memset(weights[0], 0, sizeof weights[0]);
  ls_blocks_quantise(LS_NF4, weights[0], 1, &four);
  ls_blocks_restore(LS_NF4, &four, 1, back[0]);
  ls_blocks_quantise(LS_INT8, weights[0], 1, &int8);
  ls_blocks_restore(LS_INT8, &int8, 1, back[1]);
  ls_blocks_quantise(LS_FP4, weights[0], 1, &four);
  ls_blocks_restore(LS_FP4, &four, 1, back[2]);
  for (int i = 0; i < LS_BLOCK_WEIGHTS; i++)
    assert_true(back[0][i] == 0 && back[1][i] == 0 && back[2][i] == 0);
  assert_int_equal(ls_dtype_numbers(LS_NF4), LS_BLOCK_WEIGHTS);
  assert_int_equal(ls_dtype_numbers(LS_F32), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(four_bits_take_the_nearest_number),
      cmocka_unit_test(fp4_is_bitsandbytes),
      cmocka_unit_test(tiny_weights_keep_their_signs),
      cmocka_unit_test(int8_is_off_by_half_a_step),
      cmocka_unit_test(quantising_again_changes_nothing),
      cmocka_unit_test(scales_of_8_bits_are_between),
      cmocka_unit_test(zeros_stay_zeros),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
