/* Every set's vectors restore blocks, and scales of 8 bits, with the bits of base's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/blocks.h"
#include "base/codes.h"
#include "base/random.h"
#include "base/scales.h"
#include "device/cpu/cpu.h"
#include "device/cpu/vector_table.h"

enum { ROWS = 7, BLOCKS = 5, STRIDE = 6, COLUMNS = BLOCKS * LS_BLOCK_WEIGHTS, WIDE = COLUMNS + 9 };

/* Rows of blocks with one more that is none, and rows of weights with columns of padding. */
static void check_case(ls_kernel kernel, ls_dtype blocks, ls_dtype dtype, int threads) {
  static ls_int8_block elements[ROWS * STRIDE];
  static float weights[LS_BLOCK_WEIGHTS];
  static double got[ROWS * WIDE], wanted[WIDE];
  const size_t bytes = ls_dtype_bytes(blocks), wide = ls_dtype_bytes(dtype);
  memset(elements, 0xff, sizeof elements); /* scales that are not numbers */
  memset(got, 0xff, sizeof got);
  for (int row = 0; row < ROWS; row++)
    for (int b = 0; b < BLOCKS; b++) {
      for (int i = 0; i < LS_BLOCK_WEIGHTS; i++)
        weights[i] = (float)ls_random_normal(7, (uint64_t)row, (uint64_t)(b * 64 + i));
      ls_blocks_quantise(blocks, weights, 1, (char *)elements + (size_t)(row * STRIDE + b) * bytes);
    }
  ls_device_facts facts = *ls_cpu_facts();
  facts.threads = threads;
  const ls_device_queue queue = {.facts = &facts};
  ls_kernel_args args = {.queue = &queue, .inputs = 1, .outputs = 1};
  args.in[0] = (ls_view){elements, blocks, 2, {ROWS, STRIDE}, {ROWS - 1, BLOCKS}, {0}};
  args.out[0] = (ls_view){got, dtype, 2, {ROWS, WIDE}, {ROWS - 1, COLUMNS}, {0}};
  ls_error error = {0};
  assert_int_equal(kernel(&args, &error), LS_OK);
  for (int row = 0; row < ROWS - 1; row++) {
    float all[WIDE] = {0};
    ls_blocks_restore(blocks, (char *)elements + (size_t)(row * STRIDE) * bytes, BLOCKS, all);
    ls_convert(wanted, dtype, all, LS_F32, WIDE);
    assert_memory_equal((char *)got + (size_t)row * WIDE * wide, wanted, WIDE * wide);
  }
  const char *beyond = (char *)got + (size_t)(ROWS - 1) * WIDE * wide;
  for (size_t i = 0; i < WIDE * wide; i++) assert_int_equal((unsigned char)beyond[i], 0xff);
  args.in[0].valid[1]--;
  assert_int_equal(kernel(&args, &error), LS_INTERNAL);
}

enum { MORE = 3, FROM_ROW = 90, FROM = 2, NUMBERED = (FROM_ROW + ROWS) * (BLOCKS + MORE) };

/* Of a larger weight, some rows and columns on: rows of blocks with one more that is none. */
static void check_scales(ls_kernel kernel, ls_dtype kind, int threads) {
  static ls_double_block given[ROWS * STRIDE];
  static ls_four_bit_block made[ROWS * STRIDE];
  static float nested[1 + (NUMBERED + LS_SCALES_TOGETHER - 1) / LS_SCALES_TOGETHER];
  enum { NESTED = sizeof nested / sizeof *nested };
  for (size_t i = 0; i < sizeof given; i++)
    ((uint8_t *)given)[i] = (uint8_t)ls_random_bits(8, 1, (uint64_t)i);
  for (int i = 0; i < NESTED; i++) nested[i] = (float)ls_random_normal(9, 1, (uint64_t)i);
  memset(made, 0x55, sizeof made);
  ls_device_facts facts = *ls_cpu_facts();
  facts.threads = threads;
  const ls_device_queue queue = {.facts = &facts};
  const ls_attributes attributes = {.columns = BLOCKS + MORE};
  ls_kernel_args args = {.queue = &queue, .attributes = &attributes, .inputs = 2, .outputs = 1};
  args.in[0] = (ls_view){given, kind, 2, {ROWS, STRIDE}, {ROWS - 1, BLOCKS}, {FROM_ROW, FROM}};
  args.in[1] = (ls_view){nested, LS_F32, 1, {NESTED}, {NESTED}, {0}};
  args.out[0] = (ls_view){made,           ls_blocks_single(kind), 2,
                          {ROWS, STRIDE}, {ROWS - 1, BLOCKS},     {FROM_ROW, FROM}};
  ls_error error = {0};
  if (kernel(&args, &error) != LS_OK) fail_msg("%s", error.text);
  for (int row = 0; row < ROWS; row++)
    for (int b = 0; b < STRIDE; b++) {
      const ls_four_bit_block *got = &made[row * STRIDE + b];
      const ls_double_block *from = &given[row * STRIDE + b];
      if (row == ROWS - 1 || b == BLOCKS) {
        assert_int_equal(got->codes[0], 0x55);
        continue;
      }
      const int64_t number = (FROM_ROW + row) * (BLOCKS + MORE) + FROM + b;
      assert_memory_equal(got->codes, from->codes, sizeof from->codes);
      /* Rounded twice. */
      volatile float distance = ls_codes_signed[from->scale] * nested[1 + number / 256];
      assert_true(got->scale == distance + nested[0]);
    }
  args.in[1].valid[0] -= 2;
  assert_int_equal(kernel(&args, &error), LS_INTERNAL);
  args.in[1].valid[0] += 2;
  args.out[0].dtype = LS_INT8;
  assert_int_equal(kernel(&args, &error), LS_INTERNAL);
}

static int check_set(const ls_vector_set *set) {
  static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F16}, kinds[] = {LS_NF4, LS_FP4, LS_INT8};
  ls_kernel_table table;
  int run = 0;
  ls_reference_kernels(&table, LS_F32);
  set->fill(&table);
  for (int d = 0; d < 3; d++)
    for (int b = 0; b < 3; b++)
      for (int threads = 1; threads <= 3; threads += 2, run++)
        check_case(table.kernel[LS_OP_DEQUANTIZE], kinds[b], dtypes[d], threads);
  for (int threads = 1; threads <= 3; threads += 2, run += 2) {
    check_scales(table.kernel[LS_OP_RESTORE_SCALES], LS_NF4_DOUBLE, threads);
    check_scales(table.kernel[LS_OP_RESTORE_SCALES], LS_FP4_DOUBLE, threads);
  }
  return run;
}

static void every_set_has_the_bits(void **state) {
  (void)state;
  int run = check_set(&ls_vector_set_plain) + check_set(ls_cpu_vectors());
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    run += check_set(&ls_vector_set_avx2);
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    run += check_set(&ls_vector_set_avx512);
#endif
  for (int wide = 0; wide < 2; wide++) {
    ls_kernel_table table;
    ls_reference_kernels(&table, wide ? LS_F64 : LS_F32);
    check_scales(table.kernel[LS_OP_RESTORE_SCALES], LS_NF4_DOUBLE, 1);
  }
  assert_true(run >= 44);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_set_has_the_bits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
