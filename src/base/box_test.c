/* Boxes against the elements that they are said to have, one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/box.h"
#include "base/random.h"
#include "support/test_seed.h"

static uint64_t seed;

static int64_t below(uint64_t stream, uint64_t index, int64_t bound) {
  return (int64_t)(ls_random_bits(seed, stream, index) % (uint64_t)bound);
}

/* The boxes' elements, in order, are first, first + 1, ... end - 1. */
static void ranges_are_cut_in_order(void **state) {
  (void)state;
  for (uint64_t round = 0; round < 2000; round++) {
    const int64_t columns = 1 + below(1, round, 9), first = below(2, round, 60);
    const int64_t end = first + below(3, round, 40);
    ls_box boxes[LS_MOST_BOXES];
    const int count = ls_box_of_range(first, end, columns, boxes);
    int64_t next = first;
    for (int i = 0; i < count; i++)
      for (int64_t r = 0; r < boxes[i].rows; r++)
        for (int64_t c = 0; c < boxes[i].columns; c++)
          assert_int_equal((boxes[i].row + r) * columns + boxes[i].column + c, next++);
    assert_int_equal(next, end);
  }
}

static bool has(const ls_box *box, int64_t row, int64_t column) {
  return row >= box->row && row < box->row + box->rows && column >= box->column &&
         column < box->column + box->columns;
}

static void meeting_is_what_both_have(void **state) {
  (void)state;
  enum { SIDE = 8 };
  for (uint64_t round = 0; round < 2000; round++) {
    ls_box boxes[2], common = {0};
    for (uint64_t i = 0; i < 2; i++) {
      const int64_t row = below(4 + i, round, SIDE), column = below(6 + i, round, SIDE);
      boxes[i] = (ls_box){row, 1 + below(8 + i, round, SIDE - row), column,
                          1 + below(10 + i, round, SIDE - column)};
    }
    const bool met = ls_box_meet(&boxes[0], &boxes[1], &common);
    int64_t both = 0;
    for (int64_t row = 0; row < SIDE; row++)
      for (int64_t column = 0; column < SIDE; column++) {
        const bool expected = has(&boxes[0], row, column) && has(&boxes[1], row, column);
        assert_int_equal(met && has(&common, row, column), expected);
        both += expected;
      }
    assert_int_equal(ls_box_holds(&boxes[0], &boxes[1]), both == ls_box_elements(&boxes[1]));
  }
}

int main(void) {
  seed = test_seed(20261128);
  const struct CMUnitTest tests[] = {cmocka_unit_test(ranges_are_cut_in_order),
                                     cmocka_unit_test(meeting_is_what_both_have)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
