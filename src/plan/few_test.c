/* Steps that few microbatches tell of, held against all of them. */
#include "plan/few.h"

#include "pipeline/pipeline.h"
#include "plan/test_plan.h"

/* What a step of many microbatches takes by few of them, and compiled and simulated whole. */
static void compare(const ls_plan_problem *problem, const ls_layout *layout, int *told) {
  ls_arena *arena = ls_arena_create();
  ls_plan_problem all = *problem;
  ls_plan_row few, whole;
  all.whole = true;
  if (ls_plan_measure(&all, layout, NULL, &whole, NULL) != LS_OK) return;
  assert_int_equal(ls_plan_measure(problem, layout, NULL, &few, NULL), LS_OK);
  const char *text = ls_arena_printf(arena, "%s, %d of %d microbatches", ls_plan_print(arena, &few),
                                     few.few, layout->microbatches);
  print_message("%s %.3e %lld\n", text, few.seconds / whole.seconds - 1, (long long)(few.bytes - whole.bytes));
  if (fabs(few.seconds - whole.seconds) > 1e-9 * whole.seconds)
    print_message("%s: %.15g s, whole %.15g s\n", text, few.seconds, whole.seconds);
  for (int t = 0; t < LS_PLAN_TERM_COUNT; t++)
    if (fabs(few.terms[t] - whole.terms[t]) > 1e-9 * whole.seconds)
      print_message("%s: %s %.15g s, whole %.15g s\n", text, ls_plan_term_name((ls_plan_term)t),
               few.terms[t], whole.terms[t]);
  *told += few.few < layout->microbatches;
  ls_arena_destroy(&arena);
}

static void few_tell_of_all(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_plan_task posed;
  pose(arena, "llama-8m", 1, "8xH100-SXM:4", &posed);
  posed.model.layers = 16;
  int told = 0;
  static const int counts[] = {64, 96, 67, 128};
  for (int k = 0; k < ls_pipeline_kind_count; k++)
    for (int z = 0; z < 4; z++)
      for (int m = 0; m < 4; m++) {
        ls_layout layout = posed.problem.base;
        layout.pp = 4;
        layout.schedule = ls_pipeline_kinds[k].name;
        ls_layout_set_data_ranks(&layout, 1, 2);
        layout.zero = z == 1 ? 1 : z ? 3 : 0;
        if (z == 0) ls_layout_set_data_ranks(&layout, 2, 1);
        if (z == 3) layout.gather = LS_WHEN_MICROBATCH, layout.reduce = LS_WHEN_MICROBATCH;
        layout.microbatches = counts[m];
        posed.training.batch = 2 * counts[m];
        compare(&posed.problem, &layout, &told);
      }
  print_message("%d\n", told);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(few_tell_of_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
