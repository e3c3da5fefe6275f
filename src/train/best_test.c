/* Which evaluation is the best, and when patience ends. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/test_folder.h"
#include "train/best.h"

static ls_error error;

/* Losses one after the other: marks those that are the lowest, and ends with a bar where the run
 * does. As transformers' EarlyStoppingCallback: what is lower by less than min_delta is the best,
 * and still no reason to go on. */
static void judge(const double *losses, int count, ls_run_eval eval, char *marks) {
  ls_best_evaluation best = {0};
  for (int i = 0; i < count; i++) {
    *marks++ = ls_best_judge(&best, &eval, 10 * (i + 1), losses[i]) ? '*' : '.';
    assert_int_equal(best.judged, 10 * (i + 1));
    if (!ls_best_ends(&best, &eval)) continue;
    *marks++ = '|';
    break;
  }
  *marks = 0;
}

static void patience_ends(void **state) {
  (void)state;
  static const struct {
    double losses[8];
    ls_run_eval eval;
    const char *marks;
  } cases[] = {
      {{5, 4, 3, 2, 1, 0.5, 0.2, 0.1}, {.patience = 1}, "********"},
      {{5, 4, 4, 3, 6, 7, 2, 1}, {.patience = 2}, "**.*..|"},
      {{5, 4, 4, 3, 6, 7, 2, 1}, {.patience = 3}, "**.*..**"},
      {{5, 4, 4, 3, 6, 7, 2, 1}, {.patience = 0}, "**.*..**"},
      {{5, 4.9, 4.8, 4.7, 4, 3, 2, 1}, {.patience = 2, .min_delta = 0.5}, "***|"},
      {{5, 4.9, 4.8, 4.7, 4, 3, 2, 1}, {.patience = 4, .min_delta = 0.5}, "********"},
      {{NAN, 5, NAN, INFINITY, 4, NAN, NAN, 3}, {.patience = 2}, ".*..|"},
      {{NAN, INFINITY, 5, 4, 3, 2, 1, 0}, {.patience = 2}, "..|"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    char marks[10];
    judge(cases[c].losses, 8, cases[c].eval, marks);
    assert_string_equal(marks, cases[c].marks);
  }
}

static ls_run_file *run_of(const char *first, const char *second) {
  const char *words[] = {first, second};
  ls_run_file *run;
  if (ls_run_file_read(arena, NULL, words, 2, &run, &error) != LS_OK) fail_msg("%s", error.text);
  return run;
}

static void keys_without_effect_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *first, *second, *text;
    bool validation;
  } cases[] = {
      {"checkpoint.best=true", "eval.every=0", "checkpoint.best", true},
      {"eval.patience=3", "eval.every=0", "nothing is evaluated with eval.every=0", true},
      {"eval.patience=3", "eval.every=5", "keeps nothing for validation", false},
      {"eval.min_delta=0.1", "eval.every=5", "has no effect without eval.patience", true},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const ls_run_file *run = run_of(cases[c].first, cases[c].second);
    assert_int_equal(ls_best_check(run, cases[c].validation, &error), LS_INPUT);
    if (!strstr(error.text, cases[c].text)) fail_msg("%s", error.text);
  }
  assert_int_equal(ls_best_check(run_of("eval.patience=3", "eval.min_delta=0.1"), true, &error),
                   LS_OK);
  assert_int_equal(ls_best_check(run_of("eval.every=0", "train.lr=1"), false, &error), LS_OK);
}

/* The link follows the state that a run goes on from. */
static void the_link_is_settled(void **state) {
  (void)state;
  ls_best_evaluation best = {.loss = 1, .step = 4, .judged = 4};
  assert_int_equal(ls_directory_make(in_folder("checkpoints/step-4"), &error), LS_OK);
  assert_int_equal(ls_checkpoint_point_best(folder, 8, &error), LS_OK);
  assert_int_equal(ls_best_settle(folder, &best, &error), LS_OK);
  assert_int_equal(ls_checkpoint_best_step(folder), 4);
  assert_int_equal(rmdir(in_folder("checkpoints/step-4")), 0);
  ls_warnings_to(NULL, NULL);
  assert_int_equal(ls_best_settle(folder, &best, &error), LS_OK);
  assert_int_equal(ls_checkpoint_best_step(folder), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(patience_ends, set_up, tear_down),
      cmocka_unit_test_setup_teardown(keys_without_effect_are_refused, set_up, tear_down),
      cmocka_unit_test_setup_teardown(the_link_is_settled, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
