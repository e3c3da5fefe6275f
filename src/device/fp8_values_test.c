/* Rounding to fp8 by amax: known values, and what does not depend on how a tensor is cut. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "device/cpu/cpu.h"

enum { COLUMNS = 700, ROWS = 5 };

typedef struct device_kernels {
  ls_kernel_table table;
  ls_device_facts facts;
  ls_device_queue queue;
} device_kernels;

static void open_kernels(device_kernels *of, bool reference) {
  ls_error error = {0};
  if (reference)
    ls_reference_kernels(&of->table, LS_F32);
  else
    assert_int_equal(ls_cpu_kernels(&of->table, LS_F32, &error), LS_OK);
  of->facts = *ls_cpu_facts();
  of->facts.threads = 1;
  of->queue = (ls_device_queue){.facts = &of->facts};
}

static ls_view matrix(float *data, int64_t rows, int64_t stored, int64_t columns) {
  return (ls_view){data, LS_F32, 2, {rows, stored}, {rows, columns}, {0}};
}

static ls_view vector(float *data, int64_t count) {
  return (ls_view){data, LS_F32, 1, {count}, {count}, {0}};
}

static void call(const device_kernels *of, ls_op_kind kind, ls_fp8 format, const ls_view *x,
                 const ls_view *amax, const ls_view *y) {
  const ls_attributes attributes = {.fp8 = format};
  ls_kernel_args args = {
      .queue = &of->queue, .attributes = &attributes, .inputs = y ? 2 : 1, .outputs = 1};
  ls_error error = {0};
  args.in[0] = *x;
  if (y) args.in[1] = *amax;
  args.out[0] = y ? *y : *amax;
  if (of->table.kernel[kind](&args, &error) != LS_OK) fail_msg("%s", error.text);
}

static void a_row_has_known_numbers(void **state) {
  (void)state;
  /* The largest is 3.5: times 128 it is 448. 1.05 is between 1 and 1.125, 0.7 between 0.6875 and
   * 0.75; a last number of 2^-9 / 128 is what is left of 2e-5. */
  float x[] = {3.5f, -1.05f, 0.7f, 2e-5f, 7e-6f, 0}, amax, y[6];
  static const float e4m3[] = {3.5f, -1.0f, 0.6875f, 0x1p-16f, 0, 0};
  static const float e5m2[] = {3.5f, -1.0f, 0.75f, 0x1.4p-16f, 0x1.cp-18f, 0};
  for (int reference = 0; reference < 2; reference++) {
    device_kernels of;
    open_kernels(&of, reference);
    const ls_view from = matrix(x, 1, 6, 6), to = matrix(y, 1, 6, 6), largest = vector(&amax, 1);
    call(&of, LS_OP_ROW_AMAX, LS_FP8_NONE, &from, &largest, NULL);
    assert_true(amax == 3.5f);
    call(&of, LS_OP_ROW_FP8, LS_FP8_E4M3, &from, &largest, &to);
    for (int i = 0; i < 6; i++) assert_true(y[i] == e4m3[i]);
    call(&of, LS_OP_ROW_FP8, LS_FP8_E5M2, &from, &largest, &to);
    for (int i = 0; i < 6; i++) assert_true(y[i] == e5m2[i]);
  }
}

/* By the larger of two parts' largest both are what they are in the whole. */
static void parts_of_columns_are_the_whole(void **state) {
  (void)state;
  static float x[ROWS * COLUMNS], whole[ROWS * COLUMNS], parts[ROWS * COLUMNS];
  const int64_t cut = 333;
  for (int i = 0; i < ROWS * COLUMNS; i++) { /* rows of very different sizes */
    const double uniform = (double)ls_random_bits(4, 0, (uint64_t)i) * 0x1p-64 - 0.5;
    x[i] = (float)ldexp(uniform * exp(i % 37 - 20), 9 * (i / COLUMNS));
  }
  for (int kinds = 0; kinds < 2; kinds++) {
    const ls_op_kind amax_kind = kinds ? LS_OP_AMAX : LS_OP_ROW_AMAX;
    const ls_op_kind kind = kinds ? LS_OP_FP8 : LS_OP_ROW_FP8;
    device_kernels of;
    open_kernels(&of, false);
    float amax[3][ROWS];
    const ls_view from[] = {matrix(x, ROWS, COLUMNS, COLUMNS), matrix(x, ROWS, COLUMNS, cut),
                            matrix(x + cut, ROWS, COLUMNS, COLUMNS - cut)};
    const int64_t count = kinds ? 1 : ROWS;
    for (int p = 0; p < 3; p++) {
      const ls_view largest = vector(amax[p], count);
      call(&of, amax_kind, LS_FP8_NONE, &from[p], &largest, NULL);
    }
    for (int64_t i = 0; i < count; i++)
      assert_true(fmaxf(amax[1][i], amax[2][i]) == amax[0][i] && amax[0][i] > 0);
    const ls_view largest = vector(amax[0], count), to = matrix(whole, ROWS, COLUMNS, COLUMNS);
    call(&of, kind, LS_FP8_E4M3, &from[0], &largest, &to);
    for (int row = 0; row < ROWS; row++) /* a row at a time, so that what is not written is kept */
      for (int p = 1; p < 3; p++) {
        const int64_t at = row * COLUMNS + (p == 2 ? cut : 0),
                      columns = p == 2 ? COLUMNS - cut : cut;
        const ls_view part = matrix(x + at, 1, columns, columns);
        const ls_view made = matrix(parts + at, 1, columns, columns);
        const ls_view own = vector(amax[0] + (kinds ? 0 : row), 1);
        call(&of, kind, LS_FP8_E4M3, &part, &own, &made);
      }
    assert_memory_equal(parts, whole, sizeof whole);
    assert_memory_not_equal(parts, x, sizeof whole);
  }
}

/* Codes that ranks make of their ranges of a weight, put together, stand for what the whole is
 * rounded to. */
static void codes_of_ranges_are_the_whole(void **state) {
  (void)state;
  enum { COUNT = ROWS * COLUMNS, CUTS = 4 };
  static const int64_t cuts[CUTS] = {0, 1000, 1001, COUNT};
  static float x[COUNT], whole[COUNT], decoded[COUNT];
  static uint8_t codes[COUNT];
  for (int i = 0; i < COUNT; i++)
    x[i] = (float)((double)ls_random_bits(6, 0, (uint64_t)i) * 0x1p-64 - 0.5) * (float)exp(-i % 23);
  x[COUNT - 1] = NAN;
  for (int reference = 0; reference < 2; reference++) {
    device_kernels of;
    open_kernels(&of, reference);
    float amax[2] = {0}, own;
    ls_view all = matrix(x, ROWS, COLUMNS, COLUMNS), to = matrix(whole, ROWS, COLUMNS, COLUMNS);
    ls_view largest = vector(&amax[0], 1), part = vector(&own, 1);
    call(&of, LS_OP_AMAX, LS_FP8_NONE, &all, &largest, NULL);
    call(&of, LS_OP_FP8, LS_FP8_E4M3, &all, &largest, &to);
    for (int c = 0; c + 1 < CUTS; c++) {
      const ls_view range = vector(x + cuts[c], cuts[c + 1] - cuts[c]);
      call(&of, LS_OP_RANGE_AMAX, LS_FP8_NONE, &range, &part, NULL);
      amax[1] = fmaxf(amax[1], own);
    }
    assert_true(amax[1] == amax[0] && amax[0] > 0);
    for (int c = 0; c + 1 < CUTS; c++) {
      const ls_view range = vector(x + cuts[c], cuts[c + 1] - cuts[c]);
      ls_view made = range;
      made.data = codes + cuts[c], made.dtype = LS_U8;
      call(&of, LS_OP_FP8_CODES, LS_FP8_E4M3, &range, &largest, &made);
    }
    ls_view from = all;
    from.data = codes, from.dtype = LS_U8;
    to.data = decoded;
    call(&of, LS_OP_FP8_DECODE, LS_FP8_E4M3, &from, &largest, &to);
    assert_memory_equal(decoded, whole, sizeof whole - sizeof *whole);
    assert_true(isnan(decoded[COUNT - 1]) && isnan(whole[COUNT - 1]));
  }
}

static void what_is_not_finite_is_seen(void **state) {
  (void)state;
  for (int reference = 0; reference < 2; reference++) {
    float x[] = {NAN, 1, 2, INFINITY, 3, 0, 0, 0, 0}, amax[3], y[9];
    device_kernels of;
    open_kernels(&of, reference);
    const ls_view from = matrix(x, 3, 3, 3), to = matrix(y, 3, 3, 3), largest = vector(amax, 3);
    call(&of, LS_OP_ROW_AMAX, LS_FP8_NONE, &from, &largest, NULL);
    assert_true(amax[0] == 2 && isinf(amax[1]) && amax[2] == 0);
    call(&of, LS_OP_ROW_FP8, LS_FP8_E4M3, &from, &largest, &to);
    assert_true(isnan(y[0]) && y[1] == 1 && y[2] == 2 && isnan(y[3]) && y[6] == 0);
    call(&of, LS_OP_ROW_FP8, LS_FP8_E5M2, &from, &largest, &to);
    assert_true(isnan(y[0]) && isinf(y[3]) && y[6] == 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_row_has_known_numbers),
      cmocka_unit_test(parts_of_columns_are_the_whole),
      cmocka_unit_test(codes_of_ranges_are_the_whole),
      cmocka_unit_test(what_is_not_finite_is_seen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
