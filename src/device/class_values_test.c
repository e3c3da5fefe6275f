#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/kernel.h"

/* Losses of classes against numbers of PyTorch 2.15.0. */

enum { CLASSES = 3 };

static ls_view view(void *data, ls_dtype dtype, int64_t rows, int64_t columns) {
  return (ls_view){data, dtype, columns > 1 ? 2 : 1, {rows, columns}, {rows, columns}, {0}};
}

static ls_view reals(double *data, int64_t rows, int64_t columns) {
  return view(data, LS_F64, rows, columns);
}

static void call(ls_op_kind kind, int inputs, const ls_view *in, int outputs, const ls_view *out) {
  const ls_attributes attributes = {.scale = 1.0 / CLASSES};
  ls_kernel_args args = {.attributes = &attributes, .inputs = inputs, .outputs = outputs};
  for (int i = 0; i < inputs; i++) args.in[i] = in[i];
  for (int o = 0; o < outputs; o++) args.out[o] = out[o];
  ls_kernel_table table;
  ls_reference_kernels(&table, LS_F64);
  ls_error error = {0};
  if (table.kernel[kind](&args, &error) != LS_OK) fail_msg("%s", error.text);
}

static void expect_near(const double *found, const double *expected, int count) {
  for (int i = 0; i < count; i++)
    if (!(fabs(found[i] - expected[i]) <= 1e-14 * (1 + fabs(expected[i]))))
      fail_msg("number %d is %.17g, expected %.17g", i, found[i], expected[i]);
}

/* torch.nn.CrossEntropyLoss(weight=[0.25, 1.5, 4]), a weighted mean, and its gradient. */
static void weighted_cross_entropy_is_pytorchs(void **state) {
  (void)state;
  enum { ROWS = 4 };
  double logits[ROWS * CLASSES] = {1, -0.5, 2, 0.25, 3, -1, -2, 0, 0.5, 1, 1, 1};
  int32_t numbers[ROWS] = {2, 0, -1, 1};
  double weight[ROWS] = {4, 0.25, 0, 1.5}, max[ROWS], sum[ROWS], target[ROWS], each[ROWS];
  double loss, count, scale, slopes[ROWS * CLASSES];
  static const double expected[ROWS * CLASSES] = {0.1764982133113219,
                                                  0.039382074602066976,
                                                  -0.2158802879133888,
                                                  -0.040910010539456074,
                                                  0.040174194500342035,
                                                  0.0007358160391140352,
                                                  0,
                                                  0,
                                                  0,
                                                  0.08695652173913043,
                                                  -0.17391304347826086,
                                                  0.08695652173913043};
  const ls_view x = reals(logits, ROWS, CLASSES), labels = view(numbers, LS_I32, ROWS, 1);
  const ls_view largest = reals(max, ROWS, 1), sums = reals(sum, ROWS, 1);
  const ls_view targets = reals(target, ROWS, 1), weights = reals(weight, ROWS, 1);
  const ls_view often = reals(each, ROWS, 1);
  call(LS_OP_XENT_MAX, 1, &x, 1, &largest);
  call(LS_OP_XENT_SUM_EACH, 3, (ls_view[]){x, largest, labels}, 2, (ls_view[]){sums, targets});
  call(LS_OP_XENT_LOSS_EACH, 5, (ls_view[]){largest, sums, targets, labels, weights}, 1,
       (ls_view[]){reals(&loss, 1, 1)});
  call(LS_OP_COUNT_WEIGHTS, 2, (ls_view[]){labels, weights}, 1, (ls_view[]){reals(&count, 1, 1)});
  assert_true(count == 5.75);
  expect_near((double[]){loss / count}, (double[]){0.6680580192632906}, 1);
  scale = 1 / count;
  call(LS_OP_XENT_LOSS_EACH_BWD, 3, (ls_view[]){labels, weights, reals(&scale, 1, 1)}, 1, &often);
  call(LS_OP_XENT_GRAD_EACH, 5, (ls_view[]){x, largest, sums, labels, often}, 1,
       (ls_view[]){reals(slopes, ROWS, CLASSES)});
  expect_near(slopes, expected, ROWS * CLASSES);
}

/* torch.nn.BCEWithLogitsLoss over rows that have classes, and its gradient; of columns cut in two
 * as of the whole. */
static void binary_cross_entropy_is_pytorchs(void **state) {
  (void)state;
  enum { ROWS = 4 };
  double logits[ROWS * CLASSES] = {1, -0.5, 2, 0.25, 3, -1, -40, 0, 800, NAN, NAN, NAN};
  int32_t numbers[ROWS] = {1 | 4, 0, 1 | 2, -1};
  double mean[ROWS], loss, scale = 1.0 / 3, slopes[ROWS * CLASSES];
  static const double expected[ROWS * CLASSES] = {-0.02988238015222168,
                                                  0.04194896319979394,
                                                  -0.013244769113568632,
                                                  0.062464055653977564,
                                                  0.10584156964693704,
                                                  0.02988238015222168,
                                                  -0.1111111111111111,
                                                  -0.05555555555555555,
                                                  0.1111111111111111,
                                                  0,
                                                  0,
                                                  0};
  const ls_view x = reals(logits, ROWS, CLASSES), labels = view(numbers, LS_I32, ROWS, 1);
  const ls_view means = reals(mean, ROWS, 1), cell = reals(&scale, 1, 1);
  call(LS_OP_BCE_SUM, 2, (ls_view[]){x, labels}, 1, &means);
  call(LS_OP_BCE_LOSS, 2, (ls_view[]){means, labels}, 1, (ls_view[]){reals(&loss, 1, 1)});
  expect_near((double[]){loss / 3}, (double[]){93.97724470247468}, 1);
  call(LS_OP_BCE_GRAD, 3, (ls_view[]){x, labels, cell}, 1,
       (ls_view[]){reals(slopes, ROWS, CLASSES)});
  expect_near(slopes, expected, ROWS * CLASSES);
  double last[ROWS], other[ROWS];
  for (int n = 0; n < ROWS; n++) last[n] = logits[n * CLASSES + 2], logits[n * CLASSES + 2] = NAN;
  ls_view left = x, right = view(last, LS_F64, ROWS, 2);
  left.valid[1] = 2;
  right.dims[1] = right.valid[1] = 1;
  right.start[1] = 2;
  const double whole = loss;
  call(LS_OP_BCE_SUM, 2, (ls_view[]){left, labels}, 1, &means);
  call(LS_OP_BCE_SUM, 2, (ls_view[]){right, labels}, 1, (ls_view[]){reals(other, ROWS, 1)});
  for (int n = 0; n < ROWS; n++) mean[n] += other[n];
  call(LS_OP_BCE_LOSS, 2, (ls_view[]){means, labels}, 1, (ls_view[]){reals(&loss, 1, 1)});
  expect_near(&loss, &whole, 1);
}

/* A sum of weights below 1 is divided by as it is. */
static void a_mean_over_little_weight_is_one(void **state) {
  (void)state;
  double count = 0.25, scale = 8, result;
  const ls_view in[] = {reals(&count, 1, 1), reals(&scale, 1, 1)}, out = reals(&result, 1, 1);
  call(LS_OP_RECIPROCAL, 2, in, 1, &out);
  assert_true(result == 32);
  count = 0;
  call(LS_OP_RECIPROCAL, 2, in, 1, &out);
  assert_true(result == 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(weighted_cross_entropy_is_pytorchs),
                                     cmocka_unit_test(binary_cross_entropy_is_pytorchs),
                                     cmocka_unit_test(a_mean_over_little_weight_is_one)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
