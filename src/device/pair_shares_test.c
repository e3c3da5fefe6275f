/* How often each token counts where a loss is a mean over pairs of answers: of each sequence as
 * many times as it has pairs, shared out over its tokens that have a label. By hand; and pairs
 * whose tokens lie in another order are the same pairs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

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

/* Of each of six tokens that lie elsewhere the row; and a place that is none of theirs. */
static void rows_of_tokens_are_found(void **state) {
  (void)state;
  static int32_t places[] = {13, 12, 17, 15, 14, 16};
  static const int32_t expected[] = {1, 0, 4, 3, 5, 2};
  int32_t found[6];
  ls_kernel_table table;
  ls_error error = {0};
  ls_reference_kernels(&table, LS_F64);
  ls_kernel_args args = {.inputs = 1,
                         .outputs = 1,
                         .in = {{places, LS_I32, 1, {6}, {6}, {12}}},
                         .out = {{found, LS_I32, 1, {6}, {6}, {12}}}};
  if (table.kernel[LS_OP_TOKEN_ROWS](&args, &error) != LS_OK) fail_msg("%s", error.text);
  assert_memory_equal(found, expected, sizeof found);
  args.in[0].start[0] = 13;
  assert_int_equal(table.kernel[LS_OP_TOKEN_ROWS](&args, &error), LS_INTERNAL);
  assert_non_null(strstr(error.text, "row 1 is token 12; expected one of 6 from 13 on"));
}

enum { ROWS = 2 * SEQUENCE };

/* What is summed over two sequences of pairs, and what is said of each token, `moved` to the rows
 * that `rows` says. */
static void pair_up(const int32_t *rows, bool odds, double sums[4], double said[3][ROWS]) {
  static const int32_t positions[ROWS] = {0, 1, 2, 0, 1, 0, 0, 1, 0, 1, 2, 3, 0, 1, 2, 3};
  static const int32_t labels[ROWS] = {-1, 5, 5, -1, 5, -1, -1, 3, 1, 5, -1, 5, -1, 5, 2, -1};
  const ls_attributes attributes = {
      .sequence = SEQUENCE, .dpo_beta = 0.3, .scale = odds ? 1 : 0, .smoothing = odds ? 0 : 0.1};
  double tokens[4][ROWS], answers[ROWS], slopes[ROWS], shares[ROWS], scale = 0.5;
  int32_t whole[2][ROWS], order[ROWS];
  ls_kernel_table table;
  ls_error error = {0};
  ls_reference_kernels(&table, LS_F64);
  for (int t = 0; t < ROWS; t++) {
    const int n = order[t] = rows ? rows[t] : t;
    whole[0][n] = labels[t];
    whole[1][n] = positions[t];
    tokens[0][n] = 3 + 0.1 * t;                           /* the largest logit, */
    tokens[1][n] = 2 + sin(t);                            /* the sum, */
    tokens[2][n] = tokens[0][n] - 0.4 * fabs(cos(t));     /* the label's, */
    tokens[3][n] = labels[t] < 0 ? 0 : -0.3 * cos(2 * t); /* the reference's */
  }
  const ls_view label = {whole[0], LS_I32, 1, {ROWS}, {ROWS}, {0}};
  const ls_view position = {whole[1], LS_I32, 1, {ROWS}, {ROWS}, {0}};
  const ls_view row = {order, LS_I32, 1, {ROWS}, {ROWS}, {0}};
#define REALS(data, count)               \
  {                                      \
    data, LS_F64, 1, {count}, {count}, { \
      0                                  \
    }                                    \
  }
  const ls_kernel_args loss = {
      .attributes = &attributes,
      .inputs = rows ? 7 : 6,
      .outputs = 2,
      .in = {REALS(tokens[0], ROWS), REALS(tokens[1], ROWS), REALS(tokens[2], ROWS), label,
             position, REALS(tokens[3], ROWS), row},
      .out = {REALS(sums, 1), REALS(answers, ROWS)}};
  const ls_kernel_args back = {.attributes = &attributes,
                               .inputs = rows ? 5 : 4,
                               .outputs = 1,
                               .in = {REALS(answers, ROWS), label, position, REALS(&scale, 1), row},
                               .out = {REALS(slopes, ROWS)}};
  const ls_kernel_args told = {.attributes = &attributes,
                               .inputs = rows ? 4 : 3,
                               .outputs = 3,
                               .in = {REALS(answers, ROWS), label, position, row},
                               .out = {REALS(sums + 1, 1), REALS(sums + 2, 1), REALS(sums + 3, 1)}};
  const ls_kernel_args share = {.attributes = &attributes,
                                .inputs = rows ? 3 : 2,
                                .outputs = 1,
                                .in = {label, position, row},
                                .out = {REALS(shares, ROWS)}};
  if (table.kernel[LS_OP_PAIR_LOSS](&loss, &error) != LS_OK ||
      table.kernel[LS_OP_PAIR_LOSS_BWD](&back, &error) != LS_OK ||
      table.kernel[LS_OP_PAIR_REWARDS](&told, &error) != LS_OK ||
      table.kernel[LS_OP_PAIR_SHARES](&share, &error) != LS_OK)
    fail_msg("%s", error.text);
  for (int t = 0; t < ROWS; t++) {
    said[0][t] = answers[order[t]];
    said[1][t] = slopes[order[t]];
    said[2][t] = shares[order[t]];
  }
}

static void pairs_in_another_order_are_the_same(void **state) {
  (void)state;
  /* As two ranks have them that share both sequences, and backwards. */
  static const int32_t orders[2][ROWS] = {{0, 1, 8, 9, 10, 11, 2, 3, 4, 5, 12, 13, 14, 15, 6, 7},
                                          {15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}};
  for (int odds = 0; odds < 2; odds++) {
    double sums[4], said[3][ROWS];
    pair_up(NULL, odds, sums, said);
    assert_true(sums[0] > 0 && said[1][1] > 0);
    for (int o = 0; o < 2; o++) {
      double other_sums[4], other[3][ROWS];
      pair_up(orders[o], odds, other_sums, other);
      assert_memory_equal(other_sums, sums, sizeof sums);
      assert_memory_equal(other, said, sizeof said);
    }
  }
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
                                     cmocka_unit_test(rows_of_tokens_are_found),
                                     cmocka_unit_test(pairs_in_another_order_are_the_same),
                                     cmocka_unit_test(a_token_counts_as_often_as_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
