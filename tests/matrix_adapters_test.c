/* Adapters beside frozen weights: under every strategy the training equals that of one device, in
 * fp64; the weights stay as they are; and the programs are proved. What the adapters compute is
 * held to PEFT's in adapters_trace_test.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "cost/cost.h"
#include "lower/compile.h"
#include "support/layouts.h"
#include "support/tally.h"
#include "verify/equality.h"

enum { QUERY = 1, VALUE = 4, EVERY = (1 << LS_MODEL_LINEARS) - 1 };

/* A model of the shape with adapters: of all products, but for the last shape's. */
static ls_model_config adapted(ls_arena *arena, int shape) {
  ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
  config.lora_rank = 3;
  config.lora_alpha = 5;
  config.lora_rslora = shape == 1;
  config.dropout.adapter = shape == 1 ? 0.2 : 0;
  config.lora_targets = shape == 2 ? QUERY | VALUE : EVERY;
  return config;
}

static const struct layout_case {
  int pp, dp_replicate, dp_shard, tp, zero, microbatches;
  bool sp;
  const char *schedule;
  bool recompute;
  ls_tier optimizer, parameters, activations;
} cases[] = {
    {1, 3, 1, 1, 0, 1, false, NULL, false, 0, 0, 0},
    {1, 1, 2, 1, 1, 2, false, NULL, false, 0, 0, 0},
    {1, 1, 3, 1, 2, 2, false, NULL, false, 0, 0, 0},
    {1, 1, 4, 1, 3, 1, false, NULL, false, 0, 0, 0},
    {1, 2, 2, 1, 3, 3, false, NULL, false, 0, 0, 0},
    {1, 1, 1, 2, 0, 1, false, NULL, false, 0, 0, 0},
    {1, 1, 1, 2, 0, 2, true, NULL, false, 0, 0, 0},
    {1, 1, 1, 3, 0, 1, true, NULL, false, 0, 0, 0},
    {1, 1, 1, 8, 0, 1, false, NULL, false, 0, 0, 0},
    {1, 1, 1, 6, 0, 1, true, NULL, false, 0, 0, 0},
    {1, 1, 2, 2, 3, 2, true, NULL, false, 0, 0, 0},
    {2, 1, 1, 1, 0, 4, false, "1f1b", false, 0, 0, 0},
    {2, 1, 2, 1, 3, 4, false, "1f1b", false, 0, 0, 0},
    {2, 1, 1, 2, 0, 2, true, "gpipe", false, 0, 0, 0},
    {2, 1, 2, 1, 1, 4, false, "zbh1", false, 0, 0, 0},
    {2, 1, 1, 2, 0, 4, true, "zbh2", false, 0, 0, 0},
    {1, 1, 2, 2, 3, 1, true, NULL, true, 0, 0, 0},
    {2, 1, 2, 1, 3, 2, false, "1f1b", true, 0, 0, 0},
    {1, 1, 2, 1, 3, 2, false, NULL, false, LS_TIER_HOST, 0, 0},
    {1, 1, 2, 1, 3, 1, false, NULL, false, LS_TIER_HOST, LS_TIER_HOST, LS_TIER_HOST},
};
/* The heads of the first model do not allow tp 8, of the second 3 and 6, of the third 2 and 8. */
enum { CASES = sizeof cases / sizeof *cases, RUN = 50, REFUSED = 10 };

static ls_layout layout_of(const struct layout_case *from) {
  ls_layout layout = ls_layout_default();
  layout.compute = LS_F64;
  layout.pp = from->pp;
  layout.dp_replicate = from->dp_replicate;
  layout.dp_shard = from->dp_shard;
  layout.tp = from->tp;
  layout.zero = from->zero;
  layout.microbatches = from->microbatches;
  layout.sequence_parallel = from->sp;
  if (from->schedule) layout.schedule = from->schedule;
  if (from->recompute) {
    layout.recompute = (ls_op_set)LS_EVERY_OP;
    layout.recompute_layers = 1;
  }
  layout.offload.optimizer = from->optimizer;
  layout.offload.parameters = from->parameters;
  layout.offload.activations = from->activations;
  return layout;
}

static void prove(const ls_model_config *config, const ls_layout *layout) {
  ls_arena *arena = ls_arena_create();
  ls_graph *graph = ls_test_model(arena, config, layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
  ls_program *stages[2];
  ls_error error = {0};
  ls_graph_backward(graph);
  if (ls_program_compile(graph, layout, LS_PROGRAM_STEP, stages, &error) != LS_OK ||
      ls_check(graph, layout, (const ls_program *const *)stages, NULL, &error) != LS_OK)
    fail_msg("%s: %s", ls_layout_print(arena, layout), error.text);
  ls_arena_destroy(&arena);
}

static ls_experiment experiment_of(const ls_model_config *config) {
  return (ls_experiment){.config = config,
                         .sequences = LS_TEST_SEQUENCES,
                         .sequence = LS_TEST_SEQUENCE,
                         .learning_rate = 1e-2,
                         .seed = 5,
                         .deadline_s = 60};
}

static void train(ls_arena *arena, const ls_model_config *config, ls_trajectory *made) {
  const ls_experiment experiment = experiment_of(config);
  ls_test_one_device(arena, &experiment, config->family, made);
}

static void every_layout_equals_one_device(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = adapted(arena, shape);
    const ls_experiment experiment = experiment_of(&config);
    ls_trajectory reference;
    train(arena, &config, &reference);
    for (int c = 0; c < CASES; c++) {
      const ls_layout layout = layout_of(&cases[c]);
      const int run = tally.run;
      ls_test_tally_layout(&tally, &experiment, &reference, &layout,
                           ls_layout_print(arena, &layout));
      if (tally.run > run) prove(&config, &layout);
    }
    ls_arena_destroy(&arena);
  }
  print_message("%d layouts run, %d refused\n", tally.run, tally.refused);
  assert_int_equal(tally.failed, 0);
  assert_int_equal(tally.run, RUN);
  assert_int_equal(tally.refused, REFUSED);
}

/* After five steps every adapter is another, and every weight the same bits. */
static void only_adapters_are_trained(void **state) {
  (void)state;
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = adapted(arena, shape);
    ls_trajectory made;
    train(arena, &config, &made);
    int adapters = 0;
    for (int p = 0; p < made.parameters; p++) {
      const bool adapter = strstr(made.name[p], ".lora_") != NULL;
      const size_t bytes = sizeof(double) * (size_t)made.elements[p];
      assert_int_equal(memcmp(made.first[p], made.final[p], bytes) != 0, adapter);
      adapters += adapter;
    }
    /* GPT-2 has no gate. */
    const int64_t each = shape == 2 ? 4 : shape == 1 ? 14 : 12;
    assert_int_equal(adapters, each * config.layers);
    ls_arena_destroy(&arena);
  }
}

/* Moments and gradients are of the adapters alone. */
static void weights_take_no_state(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_model_config config = adapted(arena, 1);
  ls_layout layout = ls_layout_default();
  int64_t parts[2][LS_CATEGORY_COUNT], of_adapters = 0;
  for (int with = 0; with < 2; with++) {
    if (!with) config.lora_rank = config.lora_targets = 0;
    ls_graph *graph = ls_test_model(arena, &config, &layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
    ls_program *program;
    ls_error error = {0};
    ls_graph_backward(graph);
    assert_int_equal(ls_program_compile(graph, &layout, LS_PROGRAM_STEP, &program, &error), LS_OK);
    ls_program_peak(program, parts[with]);
    for (int p = 0; p < graph->parameters.count; p++)
      if (graph->parameters.items[p].about.adapter)
        of_adapters +=
            ls_tensor_elements(ls_graph_tensor(graph, graph->parameters.items[p].tensor));
    config = adapted(arena, 1);
  }
  assert_true(of_adapters > 0);
  const int64_t moments = parts[1][LS_CATEGORY_MOMENTS];
  assert_true(moments >= 8 * of_adapters && moments < 12 * of_adapters); /* padded */
  assert_true(moments < parts[0][LS_CATEGORY_MOMENTS] / 2);
  assert_true(parts[1][LS_CATEGORY_GRADIENTS] < parts[0][LS_CATEGORY_GRADIENTS]);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(only_adapters_are_trained),
      cmocka_unit_test(weights_take_no_state),
      cmocka_unit_test(every_layout_equals_one_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
