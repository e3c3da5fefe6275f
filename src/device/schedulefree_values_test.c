#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/kernel.h"

/* Schedule-free AdamW against numbers of its authors' code. */

static ls_view vector(double *data, int64_t count) {
  return (ls_view){data, LS_F64, 1, {count}, {count}, {0}};
}

static void call(const ls_kernel_args *args, ls_op_kind kind) {
  ls_kernel_table table;
  ls_reference_kernels(&table, LS_F64);
  ls_error error = {0};
  assert_int_equal(table.kernel[kind](args, &error), LS_OK);
}

static void expect_equal(const double *found, const double *expected) {
  for (int i = 0; i < 3; i++)
    if (!(fabs(found[i] - expected[i]) <= 1e-14))
      fail_msg("element %d is %.17g, expected %.17g", i, found[i], expected[i]);
}

/* Five steps of the authors' AdamWScheduleFree (schedulefree 1.4.1) in double, three of warm-up. */
static void schedulefree_steps_as_theirs(void **state) {
  (void)state;
  static const double gradients[5][3] = {{0.5, -1.5, 0.25},
                                         {0.4, 2.0, -0.75},
                                         {-0.3, 0.1, 0.5},
                                         {1.0, -0.2, 0.125},
                                         {0.6, -0.4, -0.25}};
  static const double mean[] = {0.8049849926156689, -1.9205626726921825, 0.4500146607171508},
                      at[] = {0.7896109125710244, -1.9123432254277983, 0.4506302661458189},
                      fast[] = {0.6512441921692238, -1.838368200048342, 0.4561707150038322},
                      squares[] = {0.08660157812500008, 0.27345820312500024, 0.04180744140625003};
  double gradient[3], rate, step, factor = 0.5;
  double master[3] = {1, -2, 0.5}, offset[3] = {0}, second[3] = {0}, point[3];
  const ls_attributes attributes = {
      .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.2, .rate = 0.25, .epsilon = 1e-8, .warmup = 3};
  const ls_kernel_args args = {
      .attributes = &attributes,
      .inputs = 4,
      .outputs = 3,
      .in = {vector(gradient, 3), vector(&rate, 1), vector(&step, 1), vector(&factor, 1)},
      .out = {vector(master, 3), vector(offset, 3), vector(second, 3)}};
  const ls_kernel_args makes = {.attributes = &attributes,
                                .inputs = 2,
                                .outputs = 1,
                                .in = {args.out[0], args.out[1]},
                                .out = {vector(point, 3)}};
  for (int s = 0; s < 6; s++) {
    for (int i = 0; i < 3; i++) gradient[i] = s < 5 ? 2 * gradients[s][i] : NAN;
    if (s == 5) factor = 0; /* nothing is changed */
    step = s + 1;
    rate = 0.4 * fmin(1, step / 3);
    call(&args, LS_OP_SCHEDULEFREE);
    call(&makes, LS_OP_SCHEDULEFREE_POINT);
    if (s < 4) continue;
    expect_equal(master, mean);
    expect_equal(point, at);
    expect_equal(second, squares);
    for (int i = 0; i < 3; i++) assert_true(fabs(master[i] + offset[i] - fast[i]) < 1e-14);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(schedulefree_steps_as_theirs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
