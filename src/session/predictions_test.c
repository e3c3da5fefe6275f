/* Which texts are classified correctly: the class with the largest logit, of equal ones the first;
 * and F1. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "session/predictions.h"

static ls_predictions tell(ls_arena *arena, const double *logits, int64_t rows,
                           const int32_t *labels) {
  ls_predictions made = ls_predictions_none(arena, 3, false);
  ls_predictions_add_rows(logits, rows, 3, labels, NULL, &made);
  return made;
}

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
  ls_arena *arena = ls_arena_create();
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const ls_predictions made = tell(arena, logits, 5, cases[c].labels);
    assert_int_equal(ls_predictions_correct(&made), cases[c].correct);
  }
  const double none[] = {NAN, NAN, NAN, /**/ NAN, 1, NAN};
  const ls_predictions unknown = tell(arena, none, 2, (int32_t[]){0, 1});
  assert_int_equal(ls_predictions_correct(&unknown), 0);
  assert_true(ls_predictions_macro_f1(&unknown) == 0);
  const ls_predictions nothing = tell(arena, logits, 0, cases[0].labels);
  assert_int_equal(ls_predictions_correct(&nothing), 0);
  assert_true(isnan(ls_predictions_macro_f1(&nothing)));
  ls_arena_destroy(&arena);
}

/* Predicted are 1, 0, 0, 1, 0: class 0 is correct in 2 of 3 and the label of 2, class 1 in 1 of 1
 * and the label of 2; class 2 is neither, and left out. */
static void macro_f1_is_the_mean_of_classes(void **state) {
  (void)state;
  const double logits[] = {1, 3, 2, /**/ 3, 1, 2, /**/ 2, 2, 1, /**/ 0, 5, 5, /**/ -1, -3, -2};
  ls_arena *arena = ls_arena_create();
  const ls_predictions made = tell(arena, logits, 5, (int32_t[]){1, 0, 0, -1, 1});
  assert_int_equal(made.of[0].labels + 10 * made.of[0].predicted + 100 * made.of[0].correct, 232);
  assert_int_equal(made.of[1].labels + 10 * made.of[1].predicted + 100 * made.of[1].correct, 112);
  assert_true(fabs(ls_predictions_macro_f1(&made) - (4.0 / 5 + 2.0 / 3) / 2) < 1e-15);
  ls_arena_destroy(&arena);
}

/* Sets of classes: of two texts one whole; class 2 is in none and predicted once, which counts. */
static void sets_are_predicted_class_by_class(void **state) {
  (void)state;
  const double logits[] = {1, -1, 2, /**/ 1, 0.5, -3, /**/ 9, 9, 9, /**/ NAN, -1, -1};
  ls_arena *arena = ls_arena_create();
  ls_predictions made = ls_predictions_none(arena, 3, true);
  ls_predictions_add_rows(logits, 4, 3, (int32_t[]){0, 0, -1, 0}, (int32_t[]){1, 3, 7, 0}, &made);
  assert_int_equal(ls_predictions_labels(&made), 3);
  assert_int_equal(ls_predictions_correct(&made), 1);
  assert_true(fabs(ls_predictions_macro_f1(&made) - (1.0 + 1.0 + 0.0) / 3) < 1e-15);
  assert_true(fabs(ls_predictions_micro_f1(&made) - 2.0 * 3 / 7) < 1e-15);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_largest_logit_decides),
                                     cmocka_unit_test(macro_f1_is_the_mean_of_classes),
                                     cmocka_unit_test(sets_are_predicted_class_by_class)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
