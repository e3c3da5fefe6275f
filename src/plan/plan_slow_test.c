/* The planner held against compiling and simulating everything: two tasks, and with LS_LAYOUTS=all
 * five. */
#include "plan/test_plan.h"

/* Within 1 % of the best of all layouts, with at most half the work. The first has layouts with
 * cp; of the second, experts are shared out. */
static void the_winner_is_the_best_of_all(void **state) {
  (void)state;
  enum { TASKS = 5, USUAL = 2 };
  static const struct {
    const char *model, *on; /* model NULL: a mixture */
    int64_t batch, sequence;
    int ep; /* 0: any */
  } tasks[TASKS] = {{"llama-8m", "8xA100-SXM-80:8", 4, 8192, 0},
                    {NULL, "8xH100-SXM:4", 8, 512, 4},
                    {"llama-8m", "16xA100-SXM-80:8", 16, 512, 0},
                    {"llama-3m", "16xRTX4090:8", 32, 512, 0},
                    {"gpt2-124m", "16xH100-SXM:4", 16, 512, 0}};
  const char *which = getenv("LS_LAYOUTS");
  const int count = which && strcmp(which, "all") == 0 ? TASKS : USUAL;
  for (int t = 0; t < count; t++) {
    ls_arena *arena = ls_arena_create();
    ls_plan_task posed;
    if (tasks[t].model)
      pose_long(arena, tasks[t].model, tasks[t].batch, tasks[t].sequence, tasks[t].on, &posed);
    else
      pose_mixture(arena, tasks[t].batch, tasks[t].sequence, tasks[t].on, &posed);
    posed.problem.held.ep = tasks[t].ep > 0;
    if (tasks[t].ep) posed.problem.base.ep = tasks[t].ep;
    const ls_plan *found = plan(arena, &posed.problem);
    posed.problem.all = true;
    const ls_plan *all = plan(arena, &posed.problem);
    assert_true(found->rows.count > 0);
    const ls_plan_row *best = &all->rows.items[0];
    if (found->rows.items[0].seconds > 1.01 * best->seconds)
      fail_msg("%s on %s: %s takes %.6g s; the best of all, %s, %.6g s (estimated %.6g)",
               tasks[t].model ? tasks[t].model : "a mixture", tasks[t].on,
               ls_plan_print(arena, &found->rows.items[0]), found->rows.items[0].seconds,
               ls_plan_print(arena, best), best->seconds, best->estimated_s);
    assert_in_range(found->work, 1, all->work / 2);
    printf("%s on %s: %d of %d layouts, %.6g s; the best of all %.6g s: %s\n",
           tasks[t].model ? tasks[t].model : "a mixture", tasks[t].on, found->compiled,
           all->compiled, found->rows.items[0].seconds, best->seconds, ls_plan_print(arena, best));
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_winner_is_the_best_of_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
