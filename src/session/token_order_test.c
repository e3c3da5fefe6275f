/* The order of tokens over context ranks: every token once, two chunks of each sequence on each
 * rank, and as many causal scores on one as on another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session/token_order.h"

enum { SEQUENCES = 3, MOST = 3 * 240 };

static void every_token_lies_once(void **state) {
  (void)state;
  for (int ranks = 1; ranks <= 5; ranks++) {
    const int64_t sequence = 24 * ranks, rows = SEQUENCES * sequence / ranks;
    int seen[MOST] = {0};
    for (int r = 0; r < ranks; r++)
      for (int64_t row = 0; row < rows; row++) {
        const int64_t token = ls_token_order(row, sequence, ranks, r);
        assert_true(token >= 0 && token < SEQUENCES * sequence);
        assert_int_equal(token / sequence, row / (sequence / ranks));
        seen[token]++;
      }
    for (int64_t token = 0; token < SEQUENCES * sequence; token++) assert_int_equal(seen[token], 1);
  }
}

static void known_orders(void **state) {
  (void)state;
  static const int64_t first[] = {0, 1, 6, 7}, second[] = {2, 3, 4, 5};
  for (int64_t row = 0; row < 4; row++) {
    assert_int_equal(ls_token_order(row, 8, 2, 0), first[row]);
    assert_int_equal(ls_token_order(row, 8, 2, 1), second[row]);
    assert_int_equal(ls_token_order(4 + row, 8, 2, 0), 8 + first[row]);
    assert_int_equal(ls_token_order(row, 8, 1, 0), row);
  }
}

/* A token sees itself and all before it; in the order of the sequence the last of four ranks would
 * have seven times the work of the first. */
static void ranks_have_equal_work(void **state) {
  (void)state;
  enum { SEQUENCE = 240, RANKS = 4 };
  int64_t work[RANKS] = {0};
  for (int r = 0; r < RANKS; r++)
    for (int64_t row = 0; row < SEQUENCE / RANKS; row++)
      work[r] += ls_token_order(row, SEQUENCE, RANKS, r) + 1;
  for (int r = 1; r < RANKS; r++) assert_int_equal(work[r], work[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_token_lies_once),
                                     cmocka_unit_test(known_orders),
                                     cmocka_unit_test(ranks_have_equal_work)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
