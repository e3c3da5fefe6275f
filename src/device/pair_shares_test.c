/* How often each token counts where a loss is a mean over pairs of answers: of each sequence as
 * many times as it has pairs, shared out over its tokens that have a label. By hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "device/kernel.h"

enum { SEQUENCE = 8, TOKENS = 3 * SEQUENCE };

static void a_sequence_counts_once_for_each_pair(void **state) {
  (void)state;
  /* A pair and one without labels; two pairs; a document alone, whose labels are of no pair. */
  static int32_t positions[TOKENS] = {0,       1, 2, 0, 1, 0, 1, 0, /* */ 0, 1, 0, 1, 0, 1, 0, 1,
                                      /* */ 0, 1, 2, 3, 4, 5, 6, 7};
  static int32_t labels[TOKENS] = {-1,       5,  5,  -1, 5,  -1, -1, -1,
                                   /* */ -1, 5,  -1, 5,  -1, 5,  -1, 5,
                                   /* */ 5,  -1, 5,  5,  5,  5,  5,  5};
  static const double each[] = {1.0 / 3, 2.0 / 4, 0};
  static const ls_attributes attributes = {.sequence = SEQUENCE};
  double shares[TOKENS];
  ls_kernel_table table;
  ls_error error = {0};
  ls_reference_kernels(&table, LS_F64);
  const ls_kernel_args args = {.attributes = &attributes,
                               .inputs = 2,
                               .outputs = 1,
                               .in = {{labels, LS_I32, 1, {TOKENS}, {TOKENS}, {0}},
                                      {positions, LS_I32, 1, {TOKENS}, {TOKENS}, {0}}},
                               .out = {{shares, LS_F64, 1, {TOKENS}, {TOKENS}, {0}}}};
  if (table.kernel[LS_OP_PAIR_SHARES](&args, &error) != LS_OK) fail_msg("%s", error.text);
  for (int n = 0; n < TOKENS; n++)
    assert_true(fabs(shares[n] - (labels[n] < 0 ? 0 : each[n / SEQUENCE])) < 1e-15);
}

/* What routers pay for the first token, the second or both, each counting so often. */
static double paid(int32_t first, int32_t second, double *counts) {
  enum { EXPERTS = 3 };
  static double logits[2 * EXPERTS] = {0.5, -1, 2, 1, 1.5, -0.25}, loads[EXPERTS] = {2, 1, 1};
  static const ls_attributes attributes = {.scale = 0.7, .z_scale = 0.1};
  int32_t labels[] = {first, second};
  double sum;
  ls_kernel_table table;
  ls_error error = {0};
  ls_reference_kernels(&table, LS_F64);
  const ls_kernel_args args = {.attributes = &attributes,
                               .inputs = counts ? 4 : 3,
                               .outputs = 1,
                               .in = {{logits, LS_F64, 2, {2, EXPERTS}, {2, EXPERTS}, {0}},
                                      {labels, LS_I32, 1, {2}, {2}, {0}},
                                      {loads, LS_F64, 2, {1, EXPERTS}, {1, EXPERTS}, {0}},
                                      {counts, LS_F64, 1, {2}, {2}, {0}}},
                               .out = {{&sum, LS_F64, 1, {1}, {1}, {0}}}};
  if (table.kernel[LS_OP_ROUTER_LOSS_EACH](&args, &error) != LS_OK) fail_msg("%s", error.text);
  return sum;
}

static void a_token_counts_as_often_as_is_said(void **state) {
  (void)state;
  double counts[] = {2, 0.25};
  const double first = paid(1, -1, NULL), second = paid(-1, 1, NULL);
  assert_true(first > 0 && second > 0 && first != second);
  assert_true(fabs(paid(1, 1, NULL) - first - second) < 1e-15);
  assert_true(fabs(paid(1, 1, counts) - 2 * first - 0.25 * second) < 1e-14);
  assert_true(fabs(paid(-1, 1, counts) - 0.25 * second) < 1e-15);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_sequence_counts_once_for_each_pair),
                                     cmocka_unit_test(a_token_counts_as_often_as_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
