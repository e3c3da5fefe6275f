#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sets.h"
#include "device/kernel.h"

/* Losses of classes against numbers of PyTorch 2.15.0. */

enum { CLASSES = 3 };

static ls_view view(void *data, ls_dtype dtype, int64_t rows, int64_t columns) {
  return (ls_view){data, dtype, columns > 1 ? 2 : 1, {rows, columns}, {rows, columns}, {0}};
}

static ls_view reals(double *data, int64_t rows, int64_t columns) {
  return view(data, LS_F64, rows, columns);
}

/* Of binary cross-entropies over as many classes as there are logits. */
static void call(ls_op_kind kind, int inputs, const ls_view *in, int outputs, const ls_view *out) {
  const bool wide = in[0].ndim == 2 && in[0].dims[1] > CLASSES;
  const ls_attributes attributes = {.scale = 1.0 / (double)(wide ? in[0].dims[1] : CLASSES)};
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

/* torch.nn.BCEWithLogitsLoss over rows that have classes, and its gradient, without and with
 * pos_weight; of columns cut in two as of the whole. */
static void binary_cross_entropy_is_pytorchs(void **state) {
  (void)state;
  enum { ROWS = 4 };
  double logits[ROWS * CLASSES] = {1, -0.5, 2, 0.25, 3, -1, -40, 0, 800, NAN, NAN, NAN};
  int32_t numbers[ROWS] = {0, 0, 0, -1}, classes[ROWS] = {1 | 4, 0, 1 | 2, 7};
  double mean[ROWS], loss, scale = 1.0 / 3, slopes[ROWS * CLASSES], weight[] = {0.25, 1.5, 4};
  static const double losses[] = {93.97724470247468, 90.69862374222691};
  static const double expected[2][ROWS * CLASSES] = {
      {-0.02988238015222168, 0.04194896319979394, -0.013244769113568632, 0.062464055653977564,
       0.10584156964693704, 0.02988238015222168, -0.1111111111111111, -0.05555555555555555,
       0.1111111111111111, 0, 0, 0},
      {-0.00747059503805542, 0.04194896319979394, -0.05297907645427453, 0.062464055653977564,
       0.10584156964693704, 0.02988238015222168, -0.027777777777777776, -0.08333333333333333,
       0.1111111111111111, 0, 0, 0}};
  const ls_view x = reals(logits, ROWS, CLASSES), labels = view(numbers, LS_I32, ROWS, 1);
  ls_view sets = view(classes, LS_I32, ROWS, 1), weights = reals(weight, CLASSES, 1);
  sets.ndim = 2, sets.dims[1] = sets.valid[1] = 1;
  const ls_view means = reals(mean, ROWS, 1), cell = reals(&scale, 1, 1);
  for (int weighted = 0; weighted < 2; weighted++) {
    call(LS_OP_BCE_SUM, 3 + weighted, (ls_view[]){x, labels, sets, weights}, 1, &means);
    call(LS_OP_BCE_LOSS, 2, (ls_view[]){means, labels}, 1, (ls_view[]){reals(&loss, 1, 1)});
    expect_near((double[]){loss / 3}, &losses[weighted], 1);
    call(LS_OP_BCE_GRAD, 4 + weighted, (ls_view[]){x, labels, sets, cell, weights}, 1,
         (ls_view[]){reals(slopes, ROWS, CLASSES)});
    expect_near(slopes, expected[weighted], ROWS * CLASSES);
  }
  double last[ROWS], other[ROWS];
  for (int n = 0; n < ROWS; n++) last[n] = logits[n * CLASSES + 2], logits[n * CLASSES + 2] = NAN;
  ls_view left = x, right = view(last, LS_F64, ROWS, 2);
  left.valid[1] = weights.valid[0] = 2;
  right.dims[1] = right.valid[1] = 1;
  right.start[1] = 2;
  const double whole = loss;
  call(LS_OP_BCE_SUM, 4, (ls_view[]){left, labels, sets, weights}, 1, &means);
  call(LS_OP_BCE_SUM, 4, (ls_view[]){right, labels, sets, reals(weight + 2, 1, 1)}, 1,
       (ls_view[]){reals(other, ROWS, 1)});
  for (int n = 0; n < ROWS; n++) mean[n] += other[n];
  call(LS_OP_BCE_LOSS, 2, (ls_view[]){means, labels}, 1, (ls_view[]){reals(&loss, 1, 1)});
  expect_near(&loss, &whole, 1);
}

/* More classes than a word has bits, the first and the last of each word among them. */
static void sets_of_many_classes_are_pytorchs(void **state) {
  (void)state;
  enum { MANY = 70, TOLD = 7 };
  static const int has[] = {0, 31, 32, 63, 64, 69}, at[TOLD] = {0, 1, 31, 32, 63, 64, 69};
  static const double expected[TOLD] = {
      -0.006713666784471374, 0.0038420203052856442, -0.017410714285714286, -0.009605050763214112,
      -0.0038090644306737,   -0.020624226481581878, -0.06461904280053697};
  double logits[MANY], weight[MANY], slopes[MANY], told[TOLD], mean, scale = 1;
  int32_t label = 0, set[3] = {0};
  assert_int_equal(ls_set_words(MANY), 3);
  for (int c = 0; c < MANY; c++)
    logits[c] = c * c * 7 % 23 / 4.0 - 2.75, weight[c] = 0.5 + c / 16.0;
  for (size_t h = 0; h < sizeof has / sizeof *has; h++) ls_set_add(set, has[h]);
  const ls_view x = {logits, LS_F64, 2, {1, MANY}, {1, MANY}, {0}}, out = reals(&mean, 1, 1);
  const ls_view labels = view(&label, LS_I32, 1, 1), weights = reals(weight, MANY, 1);
  const ls_view sets = {set, LS_I32, 2, {1, 3}, {1, 3}, {0}};
  call(LS_OP_BCE_SUM, 4, (ls_view[]){x, labels, sets, weights}, 1, &out);
  expect_near(&mean, (double[]){1.5487951898769348}, 1);
  call(LS_OP_BCE_GRAD, 5, (ls_view[]){x, labels, sets, reals(&scale, 1, 1), weights}, 1,
       (ls_view[]){{slopes, LS_F64, 2, {1, MANY}, {1, MANY}, {0}}});
  for (int i = 0; i < TOLD; i++) told[i] = slopes[at[i]];
  expect_near(told, expected, TOLD);
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
                                     cmocka_unit_test(sets_of_many_classes_are_pytorchs),
                                     cmocka_unit_test(a_mean_over_little_weight_is_one)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
