/* Adapters beside frozen weights: under every strategy the training equals that of one device, in
 * fp64; the weights stay as they are; and the programs are proved. What the adapters compute is
 * held to PEFT's in adapters_trace_test.c. */
#include <string.h>

#include "support/equal_layouts.h"
#include "support/layouts.h"

enum { QUERY = 1, KEY = 2, VALUE = 4, UP = 32, ALL = (1 << LS_MODEL_LINEARS) - 1 };

/* Of the first shape each layer's products have another size. */
static const ls_lora_size *sizes_of(ls_arena *arena, const ls_model_config *config) {
  ls_lora_size *sizes = LS_NEW_ARRAY(arena, ls_lora_size, config->layers * LS_MODEL_LINEARS);
  for (int64_t i = 0; i < config->layers * LS_MODEL_LINEARS; i++)
    sizes[i] = (ls_lora_size){1 + i % 5, 2.5 + (double)(i % 3)};
  return sizes;
}

/* A model of the shape with adapters: of all products, but for the last shape's. */
static ls_model_config adapted(ls_arena *arena, int shape) {
  ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
  config.lora_rank = 3;
  config.lora_alpha = 5;
  config.lora_rslora = shape == 1;
  config.dropout.adapter = shape == 1 ? 0.2 : 0;
  config.lora_targets = shape == 2 ? QUERY | VALUE : ALL;
  if (shape == 0) config.lora_sizes = sizes_of(arena, &config);
  if (shape == 1) config.lora_fused = KEY | VALUE | UP; /* as where files have them as one tensor */
  return config;
}

static const ls_layout rows[] = {
    {.dp_replicate = 3},
    {.dp_shard = 2, .zero = 1, .microbatches = 2},
    {.dp_shard = 3, .zero = 2, .microbatches = 2},
    {.dp_shard = 4, .zero = 3},
    {.dp_replicate = 2, .dp_shard = 2, .zero = 3, .microbatches = 3},
    {.tp = 2},
    {.tp = 2, .microbatches = 2, SP},
    {.tp = 3, SP},
    {.tp = 8},
    {.tp = 6, SP},
    {.dp_shard = 2, .tp = 2, .zero = 3, .microbatches = 2, SP},
    {PIPE(2, "1f1b"), .microbatches = 4},
    {PIPE(2, "1f1b"), .dp_shard = 2, .zero = 3, .microbatches = 4},
    {PIPE(2, "gpipe"), .tp = 2, .microbatches = 2, SP},
    {PIPE(2, "zbh1"), .dp_shard = 2, .zero = 1, .microbatches = 4},
    {PIPE(2, "zbh2"), .tp = 2, .microbatches = 4, SP},
    {.dp_shard = 2, .tp = 2, .zero = 3, SP, EVERY},
    {PIPE(2, "1f1b"), .dp_shard = 2, .zero = 3, .microbatches = 2, EVERY},
    {.dp_shard = 2, .zero = 3, .microbatches = 2, .offload = {.optimizer = LS_TIER_HOST}},
    {.dp_shard = 2,
     .zero = 3,
     .offload = {.optimizer = LS_TIER_HOST,
                 .parameters = LS_TIER_HOST,
                 .activations = LS_TIER_HOST}},
};
/* The heads of the first model do not allow tp 8, of the second 3 and 6, of the third 2 and 8. */
enum { ROWS = sizeof rows / sizeof *rows, RUN = 50, REFUSED = 10 };

static ls_experiment experiment_of(const ls_model_config *config) {
  return (ls_experiment){.config = config,
                         .sequences = LS_TEST_SEQUENCES,
                         .sequence = LS_TEST_SEQUENCE,
                         .learning_rate = 1e-2,
                         .seed = 5,
                         .deadline_s = 60};
}

static void every_layout_equals_one_device(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = adapted(arena, shape);
    const ls_experiment experiment = experiment_of(&config);
    ls_test_equal_layouts(&tally, &experiment, rows, ROWS, ls_test_shapes[shape].name);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, RUN, REFUSED);
}

/* After five steps every adapter is another, and every weight the same bits. */
static void only_adapters_are_trained(void **state) {
  (void)state;
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = adapted(arena, shape);
    const ls_experiment experiment = experiment_of(&config);
    ls_trajectory made;
    ls_test_one_device(arena, &experiment, config.family, &made);
    int adapters = 0;
    for (int p = 0; p < made.parameters; p++) {
      const bool adapter = strstr(made.name[p], ".lora_") != NULL;
      const size_t bytes = sizeof(double) * (size_t)made.elements[p];
      assert_int_equal(memcmp(made.first[p], made.final[p], bytes) != 0, adapter);
      adapters += adapter;
    }
    /* GPT-2 has no gate; of seven products four have a first adapter of their own. */
    const int64_t each = shape == 2 ? 4 : shape == 1 ? 7 + 4 : 12;
    assert_int_equal(adapters, each * config.layers);
    ls_arena_destroy(&arena);
  }
}

/* Moments and gradients are of the adapters alone. */
static void weights_take_no_state(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_model_config config = adapted(arena, 1);
  const ls_layout layout = ls_test_layout_default();
  int64_t parts[2][LS_CATEGORY_COUNT], of_adapters = 0;
  for (int with = 0; with < 2; with++) {
    if (!with) config.lora_rank = config.lora_targets = 0;
    const ls_experiment experiment = experiment_of(&config);
    const ls_test_step step = ls_test_compile(arena, &experiment, &layout);
    const ls_graph *graph = step.graph;
    ls_program_peak(step.stages[0], parts[with]);
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
