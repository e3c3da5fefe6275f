/* What a plan's rows are, and what they are not. */
#include "plan/test_plan.h"

/* What is held is so in every row; what cannot be is refused in one line that names it. */
static void what_is_held_stays(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  task posed;
  pose(arena, "llama-8m", 16, "8xA100-SXM-80:8", &posed);
  posed.problem.base.tp = 2;
  posed.problem.base.zero = 2;
  posed.problem.held.zero = posed.problem.held.axis[3] = true;
  posed.problem.held.micro_batch = 2;
  const ls_plan *found = plan(arena, &posed.problem);
  assert_true(found->rows.count > 0);
  for (int r = 0; r < found->rows.count; r++) {
    const ls_plan_row *row = &found->rows.items[r];
    double sum = 0;
    for (int t = 0; t < LS_PLAN_TERM_COUNT; t++) sum += row->terms[t];
    assert_true(fabs(sum - row->seconds) < 1e-9 * row->seconds);
    assert_int_equal(row->layout.tp, 2);
    assert_int_equal(row->layout.zero, 2);
    assert_int_equal(row->micro_batch, 2);
  }
  posed.problem.base.tp = 3;
  ls_plan *none;
  ls_error error = {0};
  assert_int_equal(ls_plan_make(arena, &posed.problem, &none, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "mesh.tp=3 zero=2 train.micro_batch=2"));
  ls_arena_destroy(&arena);
}

/* Nothing that needs more than a device has is among the rows; with less memory comes no faster
 * layout. */
static void what_does_not_fit_is_no_row(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  task posed;
  pose(arena, "gpt2-124m", 8, "4xA100-SXM-80:4", &posed);
  const ls_plan *wide = plan(arena, &posed.problem);
  posed.problem.limit = wide->rows.items[0].bytes - 1;
  const ls_plan *narrow = plan(arena, &posed.problem);
  assert_true(narrow->rows.count > 0);
  for (int r = 0; r < narrow->rows.count; r++)
    assert_true(narrow->rows.items[r].bytes <= posed.problem.limit);
  assert_true(narrow->rows.items[0].seconds >= wide->rows.items[0].seconds * (1 - 1e-9));
  posed.problem.limit = INT64_C(1) << 20;
  const ls_plan *none = plan(arena, &posed.problem);
  assert_int_equal(none->rows.count, 0);
  assert_true(none->too_large.count > 0);
  ls_arena_destroy(&arena);
}

/* As many rows are proved as are asked for. On an engine with one queue for all messages 1F1B never
 * ends: check refuses its rows, and they are rows no more. */
static void what_is_refuted_is_no_row(void **state) {
  (void)state;
  static const ls_queues one = {"one", LS_QUEUE_FOR_ALL, .holds = true, .most_sends = 0};
  ls_arena *arena = ls_arena_create();
  task posed;
  pose(arena, "llama-3m", 8, "4xA100-SXM-80:4", &posed);
  posed.problem.held.schedule = posed.problem.held.axis[0] = true;
  posed.problem.base.schedule = "1f1b";
  posed.problem.base.pp = 2;
  posed.problem.held.microbatches = 4;
  ls_plan *found = plan(arena, &posed.problem);
  const int all = found->rows.count;
  assert_true(all > 3);
  ls_plan_prove_rows(&posed.problem, found, 3);
  assert_int_equal(found->rows.count, all);
  for (int r = 0; r < all; r++) assert_int_equal(found->rows.items[r].proved, r < 3);
  posed.facts.queues = &one;
  ls_plan_prove_rows(&posed.problem, found, all);
  assert_int_equal(found->rows.count, 3);
  assert_int_equal(found->refuted, all - 3);
  assert_non_null(strstr(found->refutation.text, "stage"));
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_held_stays),
      cmocka_unit_test(what_does_not_fit_is_no_row),
      cmocka_unit_test(what_is_refuted_is_no_row),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
