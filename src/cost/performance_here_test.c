/* Seconds on a machine that was measured, by rates that are made: no clock is asked. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cost/performance.h"
#include "support/test_folder.h"

static const ls_attributes no_attributes = {0};

static ls_work_operand matrix(ls_dtype dtype, int64_t rows, int64_t columns) {
  return (ls_work_operand){.dtype = dtype, .ndim = 2, .dims = {rows, columns}};
}

static ls_op_time product(ls_dtype dtype, int threads, int64_t rows, int64_t columns,
                          int64_t depth) {
  const ls_work_operand in[] = {matrix(dtype, rows, depth), matrix(dtype, columns, depth)};
  const ls_work_operand out = matrix(dtype, rows, columns);
  return ls_op_time_of(LS_OP_LINEAR, &no_attributes, in, 2, &out, 1, threads);
}

static void add(ls_rates *rates, ls_op_time of, double seconds) {
  of.seconds = seconds;
  *LS_APPEND(arena, &rates->ops) = of;
}

static bool near(double a, double b) {
  return fabs(a / b - 1) < 1e-9;
}

static void sizes_are_what_a_time_depends_on(void **state) {
  (void)state;
  ls_op_time made = product(LS_BF16, 2, 64, 96, 256);
  assert_true(made.work == 2.0 * 64 * 96 * 256 && made.dtype == LS_BF16 && made.threads == 2);
  assert_true(made.sizes[0] == 64 && made.sizes[1] == 96 && made.sizes[2] == 256);
  const ls_work_operand gradient = matrix(LS_F32, 512, 96), x = matrix(LS_F32, 512, 64);
  ls_work_operand weight = matrix(LS_F32, 96, 64);
  const ls_work_operand both[] = {gradient, x};
  weight.adds = true;
  made = ls_op_time_of(LS_OP_LINEAR_DW, &no_attributes, both, 2, &weight, 1, 1);
  assert_true(made.adds && made.sizes[0] == 96 && made.sizes[1] == 64 && made.sizes[2] == 512);
  const ls_attributes of = {.sequence = 128, .head_dim = 32, .kv_heads = 2};
  const ls_work_operand rows = matrix(LS_F32, 256, 64), heads[] = {rows, rows, rows};
  const ls_work_operand outs[] = {rows, matrix(LS_F32, 256, 2)};
  made = ls_op_time_of(LS_OP_ATTENTION, &of, heads, 3, outs, 2, 1);
  assert_true(made.sizes[0] == 256 * 64 && made.sizes[1] == 128 && made.sizes[2] == 32);
  const ls_work_operand pair[] = {rows, rows};
  made = ls_op_time_of(LS_OP_ADD, &no_attributes, pair, 2, &rows, 1, 1);
  assert_true(made.work == 3 * 256 * 64 * 4 && made.sizes[0] == made.work && made.sizes[1] == 64);
}

/* Where all that was measured ran at one rate, everything does, however large. */
static void one_rate_is_every_size_s(void **state) {
  (void)state;
  ls_rates *rates = LS_NEW(arena, ls_rates);
  for (int64_t size = 32; size <= 1024; size *= 2)
    for (int64_t depth = 32; depth <= 1024; depth *= 4) {
      const ls_op_time of = product(LS_F32, 2, size, size, depth);
      add(rates, of, of.work / 1e11);
    }
  const ls_op_time small = product(LS_F32, 2, 8, 24, 16), large = product(LS_F32, 2, 8192, 300, 77);
  assert_true(near(ls_op_seconds_here(rates, &small), small.work / 1e11));
  assert_true(near(ls_op_seconds_here(rates, &large), large.work / 1e11));
}

/* Rates that rise with a size by a power law are followed between sizes, and one thread's are not
 * taken for two's. */
static void rates_follow_their_sizes(void **state) {
  (void)state;
  ls_rates *rates = LS_NEW(arena, ls_rates);
  for (int threads = 1; threads <= 2; threads++)
    for (int64_t rows = 16; rows <= 4096; rows *= 2)
      for (int64_t depth = 64; depth <= 1024; depth *= 2) {
        const ls_op_time of = product(LS_F32, threads, rows, 256, depth);
        add(rates, of, of.work / (threads * 1e9 * sqrt((double)rows)));
      }
  for (int threads = 1; threads <= 2; threads++) {
    const ls_op_time asked = product(LS_F32, threads, 181, 256, 256);
    const double expected = asked.work / (threads * 1e9 * sqrt(181));
    assert_true(fabs(ls_op_seconds_here(rates, &asked) / expected - 1) < 0.03);
  }
}

/* What runs have shown of a kind makes exactly this kind so much longer. */
static void residuals_are_of_one_kind(void **state) {
  (void)state;
  ls_rates *rates = LS_NEW(arena, ls_rates);
  const ls_op_time forward = product(LS_F32, 1, 64, 64, 64);
  ls_op_time backward = forward;
  backward.kind = LS_OP_LINEAR_DX;
  add(rates, forward, 1e-4);
  add(rates, backward, 3e-4);
  const double first = ls_op_seconds_here(rates, &forward);
  const double second = ls_op_seconds_here(rates, &backward);
  ls_rates_learn(arena, rates, "linear_dx", 1.3);
  assert_true(ls_op_seconds_here(rates, &forward) == first);
  assert_true(ls_op_seconds_here(rates, &backward) == second * 1.3);
}

static void kinds_that_were_not_measured_take_their_bytes(void **state) {
  (void)state;
  ls_rates *rates = LS_NEW(arena, ls_rates);
  rates->key.cores = 2;
  *LS_APPEND(arena, &rates->memory) = (ls_memory_rate){LS_MEMORY_COPY, 2, {2e10, 1e10}};
  const ls_work_operand rows = matrix(LS_F32, 256, 64);
  const ls_op_time asked = ls_op_time_of(LS_OP_GELU, &no_attributes, &rows, 1, &rows, 1, 2);
  assert_true(near(ls_op_seconds_here(rates, &asked), 2 * 256 * 64 * 4 / 2e10));
  /* Products of experts take what a product of that size does. */
  const ls_op_time linear = product(LS_F32, 2, 64, 64, 64);
  ls_op_time grouped = linear;
  grouped.kind = LS_OP_GROUPED_UP;
  add(rates, linear, 1e-4);
  assert_true(near(ls_op_seconds_here(rates, &grouped), 1e-4));
}

static void transfers_lie_between_those_measured(void **state) {
  (void)state;
  ls_rates *rates = LS_NEW(arena, ls_rates);
  const struct {
    ls_collective collective;
    int ranks, world;
    int64_t bytes;
    double seconds;
  } made[] = {{LS_ALL_REDUCE, 2, 2, 4096, 1e-5},
              {LS_ALL_REDUCE, 2, 2, 1 << 20, 1e-4},
              {LS_ALL_REDUCE, 2, 2, 1 << 24, 2e-3},
              {LS_ALL_REDUCE, 4, 4, 1 << 20, 5e-4},
              {LS_SEND, 2, 2, 1 << 20, 7e-5}};
  for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
    const double rate = (double)made[i].bytes / made[i].seconds;
    *LS_APPEND(arena, &rates->transfer) = (ls_transfer_rate){
        made[i].collective, made[i].ranks, made[i].world, made[i].bytes, {rate, rate}};
  }
  const ls_group_shape pair = {2, 2}, four = {4, 4};
  const double middle = (4096 + (1 << 20)) / 2.0;
  assert_true(near(ls_transfer_seconds_here(rates, LS_ALL_REDUCE, 64, &pair, 2), 1e-5));
  assert_true(near(ls_transfer_seconds_here(rates, LS_ALL_REDUCE, middle, &pair, 2), 5.5e-5));
  assert_true(near(ls_transfer_seconds_here(rates, LS_ALL_REDUCE, 1 << 25, &pair, 2), 4e-3));
  assert_true(near(ls_transfer_seconds_here(rates, LS_ALL_REDUCE, 1 << 20, &four, 4), 5e-4));
  assert_true(ls_transfer_seconds_here(rates, LS_ALL_GATHER, 1 << 20, &four, 4) < 0);
  ls_performance on = ls_performance_here(rates, ls_device_facts_here(), 2, 2);
  assert_true(near(ls_collective_time(&on, LS_ALL_REDUCE, 1 << 20, &pair).latency_s, 1e-4));
  assert_true(near(ls_collective_time(&on, LS_PERMUTE, 1 << 20, &pair).latency_s, 7e-5));
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      CASE(sizes_are_what_a_time_depends_on),
      CASE(one_rate_is_every_size_s),
      CASE(rates_follow_their_sizes),
      CASE(residuals_are_of_one_kind),
      CASE(kinds_that_were_not_measured_take_their_bytes),
      CASE(transfers_lie_between_those_measured),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
