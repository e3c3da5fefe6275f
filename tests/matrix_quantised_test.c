/* A base stored as blocks beside adapters: under every strategy the training equals that of one
 * device, in fp64; the blocks stay as they are; the programs are proved, and damaged ones are not.
 * What a quantised base computes is held to bitsandbytes' in quantised_trace_test.c. */
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
#include "support/mutate.h"
#include "support/tally.h"
#include "verify/equality.h"

/* Rows of two and three blocks, so that some meshes cut them and others do not. */
static const ls_test_shape shapes[] = {
    {"llama",
     "{\"model_type\": \"llama\", \"vocab_size\": 41, \"hidden_size\": 128,"
     " \"intermediate_size\": 128, \"num_hidden_layers\": 2, \"num_attention_heads\": 8,"
     " \"num_key_value_heads\": 2, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5,"
     " \"tie_word_embeddings\": false}"},
    {"qwen2",
     "{\"model_type\": \"qwen2\", \"vocab_size\": 43, \"hidden_size\": 192,"
     " \"intermediate_size\": 192, \"num_hidden_layers\": 1, \"num_attention_heads\": 12,"
     " \"num_key_value_heads\": 3, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5,"
     " \"tie_word_embeddings\": true}"},
};
enum {
  SHAPES = sizeof shapes / sizeof *shapes,
  EVERY = (1 << LS_MODEL_LINEARS) - 1,
  SEQUENCES = 12
};

/* NF4 beside adapters of every product; and int8 beside those of queries and values alone. */
static ls_model_config quantised(ls_arena *arena, int shape) {
  ls_model_config config = ls_test_shape_config(arena, &shapes[shape]);
  ls_error error = {0};
  config.lora_rank = 3;
  config.lora_alpha = 5;
  config.lora_targets = shape ? 5 : EVERY;
  if (ls_model_quantize(&config, shape ? LS_BLOCKS_INT8 : LS_BLOCKS_NF4, &error) != LS_OK)
    fail_msg("%s", error.text);
  return config;
}

static const struct layout_case {
  int pp, dp_replicate, dp_shard, cp, tp, zero, microbatches;
  bool sp;
  const char *schedule;
  bool recompute;
  ls_tier optimizer, parameters, activations;
  int prefetch;
} cases[] = {
    {1, 3, 1, 1, 1, 0, 1, false, NULL, false, 0, 0, 0, 0},
    {1, 1, 2, 1, 1, 1, 2, false, NULL, false, 0, 0, 0, 0},
    {1, 1, 3, 1, 1, 2, 2, false, NULL, false, 0, 0, 0, 0},
    {1, 1, 4, 1, 1, 3, 1, false, NULL, false, 0, 0, 0, 1},
    {1, 2, 2, 1, 1, 3, 3, false, NULL, false, 0, 0, 0, 0},
    {1, 1, 1, 1, 2, 0, 1, false, NULL, false, 0, 0, 0, 0},
    {1, 1, 1, 1, 2, 0, 2, true, NULL, false, 0, 0, 0, 0},
    {1, 1, 1, 1, 3, 0, 1, true, NULL, false, 0, 0, 0, 0},
    {1, 1, 2, 1, 2, 3, 2, true, NULL, false, 0, 0, 0, 1},
    {1, 1, 2, 1, 3, 3, 1, false, NULL, true, 0, 0, 0, 0},
    {1, 1, 1, 2, 1, 3, 1, false, NULL, false, 0, 0, 0, 0},
    {1, 1, 2, 2, 2, 3, 1, true, NULL, false, 0, 0, 0, 0},
    {2, 1, 1, 1, 1, 0, 4, false, "1f1b", false, 0, 0, 0, 0},
    {2, 1, 2, 1, 1, 3, 3, false, "1f1b", true, 0, 0, 0, 0},
    {2, 1, 1, 1, 2, 0, 4, true, "zbh1", false, 0, 0, 0, 0},
    {2, 1, 2, 1, 1, 1, 2, false, "zbh2", false, 0, 0, 0, 0},
    {1, 1, 2, 1, 1, 3, 1, false, NULL, true, LS_TIER_HOST, LS_TIER_HOST, LS_TIER_HOST, 0},
    {1, 1, 1, 1, 1, 0, 2, false, NULL, true, 0, LS_TIER_HOST, 0, 0},
};
/* Of the first shape rows have two blocks, which 3 ranks do not share, of the second 2 not. */
enum { CASES = sizeof cases / sizeof *cases, RUN = 29, REFUSED = 7 };

static ls_layout layout_of(const struct layout_case *from) {
  ls_layout layout = ls_layout_default();
  layout.compute = LS_F64;
  layout.pp = from->pp;
  layout.dp_replicate = from->dp_replicate;
  layout.dp_shard = from->dp_shard;
  layout.cp = from->cp;
  layout.tp = from->tp;
  layout.zero = from->zero;
  layout.microbatches = from->microbatches;
  layout.sequence_parallel = from->sp;
  layout.prefetch = from->prefetch;
  if (from->schedule) layout.schedule = from->schedule;
  if (from->recompute) layout.recompute = (ls_op_set)LS_EVERY_OP;
  layout.offload.optimizer = from->optimizer;
  layout.offload.parameters = from->parameters;
  layout.offload.activations = from->activations;
  return layout;
}

/* The step of a layout of one or two stages, and its graph; false where it is refused. */
static bool compile(ls_arena *arena, const ls_model_config *config, const ls_layout *layout,
                    ls_graph **graph, ls_program **stages) {
  ls_error error = {0};
  *graph = ls_test_model(arena, config, layout, SEQUENCES, LS_TEST_SEQUENCE);
  ls_graph_backward(*graph);
  const ls_status status = ls_program_compile(*graph, layout, LS_PROGRAM_STEP, stages, &error);
  if (status != LS_OK && status != LS_INPUT) fail_msg("%s", error.text);
  return status == LS_OK;
}

static void prove(const ls_model_config *config, const ls_layout *layout) {
  ls_arena *arena = ls_arena_create();
  ls_graph *graph;
  ls_program *stages[2];
  ls_error error = {0};
  assert_true(compile(arena, config, layout, &graph, stages));
  if (ls_check(graph, layout, (const ls_program *const *)stages, NULL, &error) != LS_OK)
    fail_msg("%s: %s", ls_layout_print(arena, layout), error.text);
  ls_arena_destroy(&arena);
}

static ls_experiment experiment_of(const ls_model_config *config) {
  return (ls_experiment){.config = config,
                         .sequences = SEQUENCES,
                         .sequence = LS_TEST_SEQUENCE,
                         .learning_rate = 1e-2,
                         .seed = 5,
                         .deadline_s = 60};
}

static void train_on_one(ls_arena *arena, const ls_model_config *config, ls_trajectory *made) {
  const ls_experiment experiment = experiment_of(config);
  ls_test_one_device(arena, &experiment, config->family, made);
}

static void every_layout_equals_one_device(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int shape = 0; shape < SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = quantised(arena, shape);
    const ls_experiment experiment = experiment_of(&config);
    ls_trajectory reference;
    train_on_one(arena, &config, &reference);
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

/* After the steps every adapter is another, and every weight and block the same bits. */
static void blocks_stay_as_they_are(void **state) {
  (void)state;
  for (int shape = 0; shape < SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = quantised(arena, shape);
    ls_trajectory made;
    train_on_one(arena, &config, &made);
    for (int p = 0; p < made.parameters; p++) {
      const bool adapter = strstr(made.name[p], ".lora_") != NULL;
      const size_t bytes = sizeof(double) * (size_t)made.elements[p];
      assert_int_equal(memcmp(made.first[p], made.final[p], bytes) != 0, adapter);
    }
    ls_arena_destroy(&arena);
  }
}

/* Of the base's products memory has the blocks, and of their weights one matrix at a time. */
static void memory_has_blocks_and_one_matrix(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_model_config config = quantised(arena, 0);
  const ls_layout layout = ls_layout_default();
  int64_t parts[2][LS_CATEGORY_COUNT], largest = 0, blocks = 0;
  for (int with = 0; with < 2; with++) {
    ls_graph *graph;
    ls_program *program;
    config.blocks = with ? LS_BLOCKS_NF4 : LS_COMPUTE;
    assert_true(compile(arena, &config, &layout, &graph, &program));
    ls_program_peak(program, parts[with]);
    for (int p = 0; with && p < graph->parameters.count; p++) {
      const ls_parameter_record *record = &graph->parameters.items[p];
      const int64_t elements = ls_tensor_elements(ls_graph_tensor(graph, record->tensor));
      if (record->about.precision != LS_BLOCKS_NF4) continue;
      assert_false(record->trainable);
      blocks += elements;
      if (elements > largest) largest = elements;
    }
  }
  const int64_t saved = blocks * (LS_BLOCK_WEIGHTS * 4 - 36);
  const int64_t less = parts[0][LS_CATEGORY_PARAMETERS] - parts[1][LS_CATEGORY_PARAMETERS];
  assert_true(llabs(less - saved) < saved / 100); /* padding of units */
  assert_true(parts[1][LS_CATEGORY_TEMPORARIES] <=
              parts[0][LS_CATEGORY_TEMPORARIES] + largest * LS_BLOCK_WEIGHTS * 4);
  ls_arena_destroy(&arena);
}

static ls_instruction *find_dequantize(ls_program *program, int which) {
  for (int i = 0; i < program->instructions.count; i++)
    if (program->instructions.items[i].kind == LS_OP_DEQUANTIZE && which-- == 0)
      return &program->instructions.items[i];
  return NULL;
}

/* A block further; another weight's blocks; scales of other blocks, as another format has them;
 * weights made for one product and read by another; a base that would be trained. */
static void damage(ls_program *program, int kind) {
  ls_value *values = program->values.items;
  ls_instruction *first = find_dequantize(program, 0), *second = find_dequantize(program, 4);
  assert_true(first && second);
  ls_program_parameter *parameter = NULL;
  for (int p = 0; p < program->parameter_count; p++)
    if (program->parameters[p].part[LS_PART_USED] == first->in[0])
      parameter = &program->parameters[p];
  assert_non_null(parameter);
  switch (kind) {
    case 0: values[first->in[0]].offset += 36; break;
    case 1: first->in[0] = second->in[0]; break;
    case 2: values[first->in[0]].dtype = LS_INT8; break;
    case 3: first->out[0] = second->out[0]; break;
    case 4: parameter->trainable = true; break;
    case 5: parameter->precision = LS_BLOCKS_INT8; break;
    case 6: values[parameter->part[LS_PART_STORED]].flat_offset += 32; break;
    default:
      ls_drop_instruction(program, (int)(first - program->instructions.items), (char[160]){0});
  }
}

static void damaged_programs_are_refuted(void **state) {
  (void)state;
  enum { KINDS = 8 };
  for (int kind = 0; kind < KINDS; kind++)
    for (int c = 0; c < 2; c++) {
      ls_arena *arena = ls_arena_create();
      const ls_model_config config = quantised(arena, 0);
      ls_layout layout = ls_layout_default();
      if (c) layout.dp_shard = 2;
      ls_graph *graph;
      ls_program *program;
      ls_error error = {0};
      assert_true(compile(arena, &config, &layout, &graph, &program));
      damage(program, kind);
      const ls_program *stages[] = {program};
      if (ls_check(graph, &layout, stages, NULL, &error) != LS_REFUTED)
        fail_msg("damage %d is not found: %s", kind, error.text);
      ls_arena_destroy(&arena);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(blocks_stay_as_they_are),
      cmocka_unit_test(memory_has_blocks_and_one_matrix),
      cmocka_unit_test(damaged_programs_are_refuted),
      cmocka_unit_test(every_layout_equals_one_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
