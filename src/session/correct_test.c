/* Which texts are told right: the class with the largest logit, of equal ones the first; and F1. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "session/correct.h"

static ls_told tell(ls_arena *arena, const double *logits, int64_t rows, const int32_t *labels) {
  ls_told told = ls_told_none(arena, 3, false);
  ls_rows_tell(logits, rows, 3, labels, &told);
  return told;
}

static void the_largest_logit_decides(void **state) {
  (void)state;
  const double logits[] = {1, 3, 2, /**/ 3, 1, 2, /**/ 2, 2, 1, /**/ 0, 5, 5, /**/ -1, -3, -2};
  const struct {
    int32_t labels[5];
    int64_t right;
  } cases[] = {
      {{1, 0, 0, 1, 0}, 5},      {{0, 1, 1, 2, 2}, 0}, /* the second of equal ones is none */
      {{-1, -1, -1, -1, -1}, 0}, {{1, -1, 1, 1, -1}, 2}, {{3, 3, 3, 3, 3}, 0}, /* no such class */
  };
  ls_arena *arena = ls_arena_create();
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const ls_told told = tell(arena, logits, 5, cases[c].labels);
    assert_int_equal(ls_told_right(&told), cases[c].right);
  }
  const double none[] = {NAN, NAN, NAN, /**/ NAN, 1, NAN};
  const ls_told unknown = tell(arena, none, 2, (int32_t[]){0, 1});
  assert_int_equal(ls_told_right(&unknown), 0);
  assert_true(ls_told_macro_f1(&unknown) == 0);
  const ls_told nothing = tell(arena, logits, 0, cases[0].labels);
  assert_int_equal(ls_told_right(&nothing), 0);
  assert_true(isnan(ls_told_macro_f1(&nothing)));
  ls_arena_destroy(&arena);
}

/* Told are 1, 0, 0, 1, 0: class 0 is right in 2 of 3 and asked 2 times, class 1 in 1 of 1 and asked
 * 2 times; class 2 is neither asked nor told, and left out. */
static void macro_f1_is_the_mean_of_classes(void **state) {
  (void)state;
  const double logits[] = {1, 3, 2, /**/ 3, 1, 2, /**/ 2, 2, 1, /**/ 0, 5, 5, /**/ -1, -3, -2};
  ls_arena *arena = ls_arena_create();
  const ls_told told = tell(arena, logits, 5, (int32_t[]){1, 0, 0, -1, 1});
  assert_int_equal(told.of[0].asked + 10 * told.of[0].told + 100 * told.of[0].right, 232);
  assert_int_equal(told.of[1].asked + 10 * told.of[1].told + 100 * told.of[1].right, 112);
  assert_true(fabs(ls_told_macro_f1(&told) - (4.0 / 5 + 2.0 / 3) / 2) < 1e-15);
  ls_arena_destroy(&arena);
}

/* Sets of classes: of two texts one whole; class 2 is asked of none and told once, which counts. */
static void sets_are_told_class_by_class(void **state) {
  (void)state;
  const double logits[] = {1, -1, 2, /**/ 1, 0.5, -3, /**/ 9, 9, 9, /**/ NAN, -1, -1};
  ls_arena *arena = ls_arena_create();
  ls_told told = ls_told_none(arena, 3, true);
  ls_rows_tell(logits, 4, 3, (int32_t[]){1, 3, -1, 0}, &told);
  assert_int_equal(ls_told_asked(&told), 3);
  assert_int_equal(ls_told_right(&told), 1);
  assert_true(fabs(ls_told_macro_f1(&told) - (1.0 + 1.0 + 0.0) / 3) < 1e-15);
  assert_true(fabs(ls_told_micro_f1(&told) - 2.0 * 3 / 7) < 1e-15);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_largest_logit_decides),
                                     cmocka_unit_test(macro_f1_is_the_mean_of_classes),
                                     cmocka_unit_test(sets_are_told_class_by_class)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
