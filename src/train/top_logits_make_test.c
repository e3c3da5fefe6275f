/* The likeliest of a token's ids, whichever part of the vocabulary they are found in. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "train/top_logits_make.h"

enum { MOST = 60 };

/* Larger first, of equal ones the first id. */
static int by_rank(const void *a, const void *b, void *logits) {
  const double *values = logits, first = values[*(const int *)a], second = values[*(const int *)b];
  if (first != second) return first < second ? 1 : -1;
  return *(const int *)a - *(const int *)b;
}

static int by_number(const void *a, const void *b) {
  const double first = *(const double *)a, second = *(const double *)b;
  return (first > second) - (first < second);
}

static void check(const double *logits, int count, int top) {
  double ids[MOST], values[MOST], expected[MOST], largest, sum, all = 0;
  int order[MOST];
  const int kept = top < count ? top : count;
  for (int v = 0; v < count; v++) order[v] = v;
  qsort_r(order, (size_t)count, sizeof *order, by_rank, (void *)logits);
  assert_int_equal(ls_top_pick(logits, 100, count, top, ids, values, &largest, &sum), kept);
  for (int j = 0; j < kept; j++) {
    assert_true(values[j] == logits[(int)ids[j] - 100]);
    expected[j] = 100 + order[j];
  }
  qsort(ids, (size_t)kept, sizeof *ids, by_number);
  qsort(expected, (size_t)kept, sizeof *expected, by_number);
  assert_memory_equal(ids, expected, (size_t)kept * sizeof *ids);
  for (int v = 0; v < count; v++) all += exp(logits[v] - logits[order[0]]);
  assert_true(largest == logits[order[0]]);
  assert_true(fabs(sum - all) <= 1e-12 * all);
}

static void the_likeliest_are_picked(void **state) {
  (void)state;
  for (uint64_t round = 0; round < 400; round++) {
    const int count = 1 + (int)(ls_random_bits(1, 1, round) % MOST);
    const int top = 1 + (int)(ls_random_bits(1, 2, round) % MOST);
    double logits[MOST];
    for (int v = 0; v < count; v++) { /* of a few values, so that many are equal */
      const uint64_t bits = ls_random_bits(1, 3, round * MOST + (uint64_t)v);
      logits[v] = round % 2 ? (double)(bits % 7) : (double)(bits % 1000003) / 1000;
    }
    check(logits, count, top);
  }
}

/* Nothing is as unlikely as what a mask took out. */
static void what_is_masked_has_no_share(void **state) {
  (void)state;
  check((double[]){-INFINITY, 2, -INFINITY, 1}, 4, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_likeliest_are_picked),
                                     cmocka_unit_test(what_is_masked_has_no_share)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
