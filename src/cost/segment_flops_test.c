/* What segments cost: told alike by the graphs of a step and of an evaluation, or stages of the two
 * would hold other layers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost/cost.h"
#include "model/model.h"

static ls_graph *build(ls_arena *arena, ls_model_config *config, ls_model_mode mode) {
  ls_graph *graph;
  ls_error error = {0};
  const ls_build_options options = {.mode = mode, .tokens = 128, .sequence = 64};
  if (ls_model_build(arena, config, &options, &graph, &error) != LS_OK) fail_msg("%s", error.text);
  if (mode == LS_MODEL_TRAIN) ls_graph_backward(graph);
  return graph;
}

static void step_and_evaluation_are_cut_alike(void **state) {
  (void)state;
  static const char *const models[] = {"llama-3m", "gpt2-124m"};
  for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
    ls_arena *arena = ls_arena_create();
    ls_model_config config;
    ls_error error = {0};
    assert_int_equal(ls_model_find(arena, models[m], &config, &error), LS_OK);
    const ls_graph *step = build(arena, &config, LS_MODEL_TRAIN);
    const ls_graph *evaluation = build(arena, &config, LS_MODEL_FORWARD);
    const int segments = step->segments.count;
    double *of_step = LS_NEW_ARRAY(arena, double, segments);
    double *of_evaluation = LS_NEW_ARRAY(arena, double, segments);
    const double sum = ls_segment_flops(step, of_step);
    assert_true(sum == ls_segment_flops(evaluation, of_evaluation));
    for (int s = 0; s < segments; s++) assert_true(of_step[s] == of_evaluation[s]);
    assert_true(sum == ls_graph_flops(step));
    assert_true(3 * ls_graph_flops(evaluation) == sum);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(step_and_evaluation_are_cut_alike)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
