/* Which texts are told right: the class with the largest logit, of equal ones the first. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "session/correct.h"

static void the_largest_logit_decides(void **state) {
  (void)state;
  const double logits[] = {1, 3, 2, /**/ 3, 1, 2, /**/ 2, 2, 1, /**/ 0, 5, 5, /**/ -1, -3, -2};
  const struct {
    int32_t labels[5];
    int64_t correct;
  } cases[] = {
      {{1, 0, 0, 1, 0}, 5},      {{0, 1, 1, 2, 2}, 0}, /* the second of equal ones is none */
      {{-1, -1, -1, -1, -1}, 0}, {{1, -1, 1, 1, -1}, 2}, {{3, 3, 3, 3, 3}, 0}, /* no such class */
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    assert_int_equal(ls_rows_correct(logits, 5, 3, cases[c].labels), cases[c].correct);
  const double none[] = {NAN, NAN, NAN, /**/ NAN, 1, NAN};
  assert_int_equal(ls_rows_correct(none, 2, 3, (int32_t[]){0, 1}), 0);
  assert_int_equal(ls_rows_correct(logits, 0, 3, cases[0].labels), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_largest_logit_decides)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
