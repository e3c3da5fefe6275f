/* Steps that few microbatches tell of, held against all of them. */
#include "plan/few.h"

#include "pipeline/pipeline.h"
#include "plan/test_plan.h"

/* What a step takes by few of its microbatches, and compiled and simulated whole; then its proof.
 * Returns whether few told. */
static bool compare(const ls_plan_problem *problem, const ls_layout *layout,
                    const ls_sim_options *options) {
  ls_plan_problem all = *problem;
  ls_plan_row few, whole;
  ls_error error = {0};
  all.whole = true;
  if (ls_plan_measure(&all, layout, options, &whole, NULL) != LS_OK) return false;
  ls_arena *arena = ls_arena_create();
  assert_int_equal(ls_plan_measure(problem, layout, options, &few, NULL), LS_OK);
  const char *text = ls_arena_printf(arena, "%s: %d of %d microbatches", ls_plan_print(arena, &few),
                                     few.few, layout->microbatches);
  if (fabs(few.seconds - whole.seconds) > 1e-12 * whole.seconds)
    fail_msg("%s: %.15g s, whole %.15g s", text, few.seconds, whole.seconds);
  for (int t = 0; t < LS_PLAN_TERM_COUNT; t++)
    if (fabs(few.terms[t] - whole.terms[t]) > 1e-12 * whole.seconds)
      fail_msg("%s: %s %.15g s, whole %.15g s", text, ls_plan_term_name((ls_plan_term)t),
               few.terms[t], whole.terms[t]);
  if (fabs(few.flops - whole.flops) > 1e-12 * whole.flops) fail_msg("%s: flops", text);
  /* Gaps between lives are not always the same. */
  if (fabs((double)(few.bytes - whole.bytes)) > 0.03 * (double)whole.bytes)
    fail_msg("%s: %lld bytes, whole %lld", text, (long long)few.bytes, (long long)whole.bytes);
  assert_int_equal(whole.few, layout->microbatches);
  if (ls_plan_prove(problem, &few, &error) != LS_OK) fail_msg("%s: %s", text, error.text);
  assert_int_equal(few.bytes, whole.bytes);
  ls_arena_destroy(&arena);
  return few.few < layout->microbatches;
}

/* What the data axes of a step do: nothing but a sum at its end; shards that are gathered and
 * reduced once a step, or for each microbatch; state that waits on the host. */
enum { SUMMED, ONCE, EACH, AWAY, WAYS };

static void lay_data(ls_layout *layout, int way) {
  ls_layout_set_data_ranks(layout, way == SUMMED ? 2 : 1, way == SUMMED ? 1 : 2);
  layout->zero = way == SUMMED ? 0 : way == AWAY ? 1 : 3;
  if (way == EACH) layout->gather = layout->reduce = LS_WHEN_MICROBATCH;
  if (way == AWAY) layout->offload = (ls_offload){.optimizer = LS_TIER_HOST};
  layout->offload.optimizer_fraction = 1;
}

/* Every schedule but gpipe, which keeps all microbatches, goes through a step in periods. With
 * counts that stages divide and do not, it takes what it takes whole, to the last digits. */
static void few_tell_of_all(void **state) {
  (void)state;
  static const int counts[] = {64, 99};
  ls_arena *arena = ls_arena_create();
  ls_plan_task posed;
  pose(arena, "llama-3m", 1, "8xH100-SXM:4", &posed);
  posed.model.layers = 9;
  for (int k = 0; k < ls_pipeline_kind_count; k++) {
    int told = 0;
    for (int way = 0; way < WAYS; way++)
      for (int c = 0; c < 2; c++) {
        ls_layout layout = posed.problem.base;
        layout.pp = 4;
        layout.schedule = ls_pipeline_kinds[k].name;
        layout.microbatches = counts[c];
        lay_data(&layout, way);
        posed.training.batch = 2 * counts[c];
        told += compare(&posed.problem, &layout, NULL);
      }
    print_message("%s: %d of %d\n", ls_pipeline_kinds[k].name, told, 2 * WAYS);
    assert_true((told > 0) == (strcmp(ls_pipeline_kinds[k].name, "gpipe") != 0));
  }
  ls_arena_destroy(&arena);
}

/* Stages of which each is a little slower than the one before fall behind for long, until one that
 * waits for them does so in every period: what looks alike but for times is not the same again. */
static void what_falls_behind_is_not_yet_again(void **state) {
  (void)state;
  static const double speeds[] = {1, 0.997, 0.992, 0.985};
  const ls_sim_options options = {.speed_of = speeds};
  ls_arena *arena = ls_arena_create();
  ls_plan_task posed;
  pose(arena, "llama-3m", 400, "8xH100-SXM:4", &posed);
  posed.model.layers = 8;
  for (int k = 0; k < ls_pipeline_kind_count; k++) {
    ls_layout layout = posed.problem.base;
    layout.pp = 4;
    layout.schedule = ls_pipeline_kinds[k].name;
    layout.microbatches = 200;
    lay_data(&layout, ONCE);
    const bool told = compare(&posed.problem, &layout, &options);
    assert_true(told == (strcmp(layout.schedule, "gpipe") != 0));
  }
  ls_arena_destroy(&arena);
}

/* On one stage, with all that may wait on the host. */
static void few_tell_of_one_stage(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_plan_task posed;
  pose(arena, "llama-3m", 128, "2xH100-SXM", &posed);
  for (int way = 0; way < WAYS; way++) {
    ls_layout layout = posed.problem.base;
    layout.microbatches = 64;
    layout.schedule = "1f1b";
    lay_data(&layout, way);
    assert_true(compare(&posed.problem, &layout, NULL));
  }
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(few_tell_of_all),
      cmocka_unit_test(what_falls_behind_is_not_yet_again),
      cmocka_unit_test(few_tell_of_one_stage),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
