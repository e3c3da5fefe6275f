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

/* Counts that are no powers of two, sequence parallelism and offload are in the space, and what
 * lies next to a layout of 12 devices has thirds moved too. */
static void the_space_has_all_choices(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  task posed;
  pose(arena, "llama-60m", 48, "12xA100-SXM-80:4", &posed);
  ls_plan_candidates all = {.arena = arena}, near = {.arena = arena};
  ls_plan_enumerate(&posed.problem, &all);
  int thirds = 0, whole = 0, away = 0, stored = 0;
  for (int c = 0; c < all.list.count; c++) {
    const ls_layout *layout = &all.list.items[c].layout;
    assert_int_equal(ls_layout_ranks(layout), 12);
    thirds += layout->pp == 3 || ls_layout_shards(layout) == 6;
    whole += layout->tp > 1 && !layout->sequence_parallel;
    away += layout->offload.optimizer == LS_TIER_HOST;
    stored += layout->offload.parameters == LS_TIER_HOST;
  }
  assert_true(thirds > 100 && whole > 100 && away > stored && stored > 100);
  ls_plan_row row = {.layout = posed.problem.base};
  ls_layout_set_data_ranks(&row.layout, 1, 12);
  row.layout.zero = 3;
  row.layout.microbatches = 4;
  row.layout.schedule = "1f1b";
  ls_plan_neighbours(&posed.problem, &row, &near);
  bool third = false;
  for (int c = 0; c < near.list.count; c++) third |= near.list.items[c].layout.pp == 3;
  assert_true(third);
  ls_arena_destroy(&arena);
}

/* Where nothing fits, the smallest that is named is within 1 % of the smallest of all layouts. */
static void the_smallest_is_known(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  task posed;
  pose(arena, "llama-3m", 4, "4xRTX4090:4", &posed);
  posed.problem.held.zero = true;
  posed.problem.base.zero = 3;
  posed.problem.limit = INT64_C(1) << 20;
  const ls_plan *none = plan(arena, &posed.problem);
  assert_int_equal(none->rows.count, 0);
  posed.problem.all = true;
  const ls_plan *all = plan(arena, &posed.problem);
  assert_in_range(ls_plan_least(none)->bytes, 1, ls_plan_least(all)->bytes / 100 * 101);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_held_stays),        cmocka_unit_test(what_does_not_fit_is_no_row),
      cmocka_unit_test(what_is_refuted_is_no_row), cmocka_unit_test(the_space_has_all_choices),
      cmocka_unit_test(the_smallest_is_known),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
