/* A training compiled in memory: programs are those of its graphs, whatever is known of the device;
 * layouts that cannot be are refused, and a budget is fitted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost/cost.h"
#include "ir/saved.h"
#include "lower/training.h"

static ls_model_config config_of(ls_arena *arena, const char *preset) {
  ls_model_config config;
  ls_error error = {0};
  assert_int_equal(ls_model_find(arena, preset, &config, &error), LS_OK);
  return config;
}

static ls_compiled compile(ls_arena *arena, const ls_training *training, const ls_layout *layout,
                           const char *set) {
  ls_compiled compiled;
  ls_error error = {0};
  const ls_device_facts *facts = ls_device_facts_cpu(set);
  assert_non_null(facts);
  if (ls_compile(arena, training, layout, facts, &compiled, &error) != LS_OK)
    fail_msg("%s", error.text);
  return compiled;
}

static ls_layout layout_of(int pp, int dp_shard, int tp, int microbatches) {
  ls_layout layout = ls_layout_default();
  layout.pp = pp;
  layout.dp_shard = dp_shard;
  layout.tp = tp;
  layout.zero = 3;
  layout.microbatches = microbatches;
  return layout;
}

/* What a device is decides over workspace, never over the program. */
static void programs_are_those_of_the_graphs(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = config_of(arena, "llama-3m");
  const ls_training training = {.model = &config, .batch = 8, .sequence = 64};
  const ls_layout layout = layout_of(2, 2, 2, 2);
  const ls_compiled plain = compile(arena, &training, &layout, "plain");
  const ls_compiled tiles = compile(arena, &training, &layout, "avx512_amx");
  ls_program *stages[2];
  ls_error error = {0};
  assert_int_equal(ls_program_compile(plain.graph, &layout, LS_PROGRAM_STEP, stages, &error),
                   LS_OK);
  for (int s = 0; s < 2; s++) {
    const char *text = ls_program_text(arena, stages[s]);
    assert_string_equal(text, ls_program_text(arena, plain.stages[LS_COMPILED_STEP][s]));
    assert_string_equal(text, ls_program_text(arena, tiles.stages[LS_COMPILED_STEP][s]));
    assert_int_equal(plain.stages[LS_COMPILED_EVALUATE][s]->kind, LS_PROGRAM_FORWARD);
    assert_true(plain.workspace[s] > 0 && tiles.workspace[s] > 0);
  }
  ls_arena_destroy(&arena);
}

static void what_cannot_be_is_refused(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = config_of(arena, "llama-3m");
  const ls_training training = {.model = &config, .batch = 6, .sequence = 64};
  const ls_layout layout = layout_of(1, 4, 1, 1);
  ls_compiled compiled;
  ls_error error = {0};
  assert_int_equal(
      ls_compile(arena, &training, &layout, ls_device_facts_cpu("plain"), &compiled, &error),
      LS_INPUT);
  assert_non_null(strstr(error.text, "6 sequences per microbatch over 4 data-parallel ranks"));
  ls_arena_destroy(&arena);
}

/* Bytes with all kept; between these and the least, recomputation makes it fit. */
static void a_budget_is_fitted(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = config_of(arena, "llama-3m");
  ls_training training = {.model = &config, .batch = 8, .sequence = 256};
  const ls_layout layout = layout_of(1, 2, 1, 1);
  const ls_compiled kept = compile(arena, &training, &layout, "avx2");
  const int64_t most = ls_program_bytes(kept.stages[LS_COMPILED_STEP][0]) + kept.workspace[0];
  training.budget = most * 8 / 10;
  const ls_compiled fitted = compile(arena, &training, &layout, "avx2");
  assert_int_equal(fitted.layout.recompute_of_count, fitted.graph->segments.count);
  assert_true(ls_program_bytes(fitted.stages[LS_COMPILED_STEP][0]) + fitted.workspace[0] <=
              training.budget);
  assert_true(fitted.stages[LS_COMPILED_STEP][0]->recomputed_flops > 0);
  training.budget = 1 << 20;
  ls_compiled none;
  ls_error error = {0};
  assert_int_equal(
      ls_compile(arena, &training, &layout, ls_device_facts_cpu("avx2"), &none, &error),
      LS_REFUTED);
  ls_arena_destroy(&arena);
}

/* None alone; two ranks are one group however many axes it is made over. */
static void groups_are_counted_once(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = config_of(arena, "llama-3m");
  const ls_training training = {.model = &config, .batch = 8, .sequence = 64};
  const ls_layout alone = layout_of(1, 1, 1, 1), two = layout_of(1, 2, 1, 1);
  assert_int_equal(compile(arena, &training, &alone, "plain").groups[0], 0);
  const ls_compiled compiled = compile(arena, &training, &two, "plain");
  assert_int_equal(compiled.groups[0], 1);
  assert_int_equal(ls_programs_groups(compiled.stages[LS_COMPILED_STEP], 1), 1);
  ls_arena_destroy(&arena);
}

static ls_status freeze_all_but_the_head(const void *context, ls_graph *graph, ls_error *error) {
  (void)error;
  *(int *)(uintptr_t)context += 1;
  for (int p = 0; p < graph->parameters.count; p++)
    graph->parameters.items[p].trainable = graph->parameters.items[p].tensor.index == 0;
  return LS_OK;
}

/* Both graphs are prepared, before either has a backward part. */
static void graphs_are_prepared(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = config_of(arena, "llama-3m");
  int calls = 0;
  ls_training training = {.model = &config, .batch = 2, .sequence = 64};
  const ls_layout layout = layout_of(1, 1, 1, 1);
  const int nodes = compile(arena, &training, &layout, "plain").graph->nodes.count;
  training.prepare = freeze_all_but_the_head;
  training.context = &calls;
  const ls_compiled compiled = compile(arena, &training, &layout, "plain");
  assert_int_equal(calls, 2);
  assert_true(compiled.graph->nodes.count < nodes);
  ls_arena_destroy(&arena);
}

/* Without a step there is one program, and of a parameter nothing but itself. */
static void an_evaluation_keeps_parameters_alone(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = config_of(arena, "llama-3m");
  ls_training training = {.model = &config, .batch = 2, .sequence = 64};
  const ls_layout layout = layout_of(1, 1, 1, 1);
  const ls_compiled trained = compile(arena, &training, &layout, "plain");
  training.evaluates = true;
  const ls_compiled compiled = compile(arena, &training, &layout, "plain");
  const ls_program *const *only = compiled.stages[LS_COMPILED_EVALUATE];
  assert_ptr_equal(compiled.stages[LS_COMPILED_STEP], only);
  int64_t parts[LS_CATEGORY_COUNT] = {0}, whole[LS_CATEGORY_COUNT] = {0};
  ls_program_peak(only[0], parts);
  ls_program_peak(trained.stages[LS_COMPILED_EVALUATE][0], whole); /* beside a step */
  assert_true(whole[LS_CATEGORY_MOMENTS] > 0);
  assert_true(parts[LS_CATEGORY_MOMENTS] == 0 && parts[LS_CATEGORY_GRADIENTS] == 0);
  const int64_t weights = 4 * ls_model_parameters(&config);
  assert_in_range(parts[LS_CATEGORY_PARAMETERS] + parts[LS_CATEGORY_MASTER], weights,
                  weights + 65536);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(programs_are_those_of_the_graphs),
      cmocka_unit_test(what_cannot_be_is_refused),
      cmocka_unit_test(a_budget_is_fitted),
      cmocka_unit_test(groups_are_counted_once),
      cmocka_unit_test(graphs_are_prepared),
      cmocka_unit_test(an_evaluation_keeps_parameters_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
