/* The planner held against compiling and simulating everything: one task, and with LS_LAYOUTS=all
 * three. */
#include "plan/test_plan.h"

/* Within 1 % of the best of all layouts of 16 devices, with at most half the work. */
static void the_winner_is_the_best_of_all(void **state) {
  (void)state;
  enum { TASKS = 3 };
  static const struct {
    const char *model, *on;
    int64_t batch;
  } tasks[TASKS] = {{"llama-8m", "16xA100-SXM-80:8", 16},
                    {"llama-3m", "16xRTX4090:8", 32},
                    {"gpt2-124m", "16xH100-SXM:4", 16}};
  const char *which = getenv("LS_LAYOUTS");
  const int count = which && strcmp(which, "all") == 0 ? TASKS : 1;
  for (int t = 0; t < count; t++) {
    ls_arena *arena = ls_arena_create();
    ls_plan_task posed;
    pose(arena, tasks[t].model, tasks[t].batch, tasks[t].on, &posed);
    const ls_plan *found = plan(arena, &posed.problem);
    posed.problem.all = true;
    const ls_plan *all = plan(arena, &posed.problem);
    assert_true(found->rows.count > 0);
    const ls_plan_row *best = &all->rows.items[0];
    if (found->rows.items[0].seconds > 1.01 * best->seconds)
      fail_msg("%s: %s takes %.6g s; the best of all, %s, %.6g s (estimated %.6g)", tasks[t].model,
               ls_plan_print(arena, &found->rows.items[0]), found->rows.items[0].seconds,
               ls_plan_print(arena, best), best->seconds, best->estimated_s);
    assert_in_range(found->work, 1, all->work / 2);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_winner_is_the_best_of_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
