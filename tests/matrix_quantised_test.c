/* A base stored as blocks beside adapters: under every strategy the training equals that of one
 * device, in fp64; the blocks stay as they are; the programs are proved, and damaged ones are not.
 * What a quantised base computes is held to bitsandbytes' in quantised_trace_test.c. */
#include <stdlib.h>
#include <string.h>

#include "support/layouts.h"
#include "support/mutate.h"
#include "support/program_faults.h"

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
    /* Products with more than 256 blocks, whose scales are two groups. */
    {"llama",
     "{\"model_type\": \"llama\", \"vocab_size\": 41, \"hidden_size\": 128,"
     " \"intermediate_size\": 256, \"num_hidden_layers\": 2, \"num_attention_heads\": 8,"
     " \"num_key_value_heads\": 2, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5,"
     " \"tie_word_embeddings\": false}"},
};
enum { SHAPES = 2, OF_GROUPS = 2, ALL = (1 << LS_MODEL_LINEARS) - 1, SEQUENCES = 12 };

/* NF4 beside adapters of every product; and int8 beside those of queries and values alone. */
static ls_model_config quantised_as(ls_arena *arena, int shape, ls_precision blocks) {
  ls_model_config config = ls_test_shape_config(arena, &shapes[shape]);
  ls_error error = {0};
  config.lora_rank = 3;
  config.lora_alpha = 5;
  config.lora_targets = shape == 1 ? 5 : ALL;
  if (ls_model_quantize(&config, blocks, &error) != LS_OK) fail_msg("%s", error.text);
  return config;
}

static ls_model_config quantised(ls_arena *arena, int shape) {
  return quantised_as(arena, shape, shape ? LS_BLOCKS_INT8 : LS_BLOCKS_NF4);
}

static const ls_layout rows[] = {
    {.dp_replicate = 3},
    {.dp_shard = 2, .zero = 1, .microbatches = 2},
    {.dp_shard = 3, .zero = 2, .microbatches = 2},
    {.dp_shard = 4, .zero = 3, .prefetch = 1},
    {.dp_replicate = 2, .dp_shard = 2, .zero = 3, .microbatches = 3},
    {.tp = 2},
    {.tp = 2, .microbatches = 2, SP},
    {.tp = 3, SP},
    {.dp_shard = 2, .tp = 2, .zero = 3, .microbatches = 2, SP, .prefetch = 1},
    {.dp_shard = 2, .tp = 3, .zero = 3, EVERY},
    {.cp = 2, .zero = 3},
    {.dp_shard = 2, .cp = 2, .tp = 2, .zero = 3, SP},
    {PIPE(2, "1f1b"), .microbatches = 4},
    {PIPE(2, "1f1b"), .dp_shard = 2, .zero = 3, .microbatches = 3, EVERY},
    {PIPE(2, "zbh1"), .tp = 2, .microbatches = 4, SP},
    {PIPE(2, "zbh2"), .dp_shard = 2, .zero = 1, .microbatches = 2},
    {.dp_shard = 2,
     .zero = 3,
     EVERY,
     .offload = {.optimizer = LS_TIER_HOST,
                 .parameters = LS_TIER_HOST,
                 .activations = LS_TIER_HOST}},
    {.microbatches = 2, EVERY, .offload = {.parameters = LS_TIER_HOST}},
};
/* Of the first shape rows have two blocks, which 3 ranks do not share, of the second 2 not. */
enum { ROWS = sizeof rows / sizeof *rows, RUN = 29, REFUSED = 7 };

static ls_experiment experiment_of(const ls_model_config *config) {
  return (ls_experiment){.config = config,
                         .sequences = SEQUENCES,
                         .sequence = LS_TEST_SEQUENCE,
                         .learning_rate = 1e-2,
                         .seed = 5,
                         .deadline_s = 60};
}

static void every_layout_equals_one_device(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int shape = 0; shape < SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = quantised(arena, shape);
    const ls_experiment experiment = experiment_of(&config);
    ls_test_equal_layouts(&tally, &experiment, rows, ROWS, shapes[shape].name);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, RUN, REFUSED);
}

/* FP4 is NF4 with other numbers, and scales of 8 bits are restored before: a few of the layouts,
 * that shard, cut, gather and offload. */
static void others_equal_one_device(void **state) {
  (void)state;
  static const ls_precision others[] = {LS_BLOCKS_FP4, LS_BLOCKS_NF4_DOUBLE};
  static const int some[] = {3, 5, 10, 14, 16, 8, 12};
  enum { SOME = sizeof some / sizeof *some, OF_FP4 = 5 };
  ls_layout few[SOME];
  for (int s = 0; s < SOME; s++) few[s] = rows[some[s]];
  ls_test_tally tally = {0};
  for (int o = 0; o < 2; o++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = quantised_as(arena, o ? OF_GROUPS : 0, others[o]);
    const ls_experiment experiment = experiment_of(&config);
    ls_test_equal_layouts(&tally, &experiment, few, o ? SOME : OF_FP4, o ? "nf4-double" : "fp4");
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, OF_FP4 + SOME, 0);
}

/* After the steps every adapter is another, and every weight and block the same bits. */
static void blocks_stay_as_they_are(void **state) {
  (void)state;
  for (int shape = 0; shape < SHAPES + 1; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = shape < SHAPES
                                       ? quantised(arena, shape)
                                       : quantised_as(arena, OF_GROUPS, LS_BLOCKS_FP4_DOUBLE);
    const ls_experiment experiment = experiment_of(&config);
    ls_trajectory made;
    ls_test_one_device(arena, &experiment, config.family, &made);
    for (int p = 0; p < made.parameters; p++) {
      const bool adapter = strstr(made.name[p], ".lora_") != NULL;
      const size_t bytes = sizeof(double) * (size_t)made.elements[p];
      assert_int_equal(memcmp(made.first[p], made.final[p], bytes) != 0, adapter);
    }
    ls_arena_destroy(&arena);
  }
}

/* Of the base's products memory has the blocks, and of their weights nothing more; beside scales of
 * 8 bits what these stand for, and for a while one weight's blocks with scales in fp32. */
static void check_memory(ls_precision precision, int shape, int64_t each, int64_t most_restored) {
  ls_arena *arena = ls_arena_create();
  ls_model_config config = quantised_as(arena, shape, precision);
  const ls_layout layout = ls_test_layout_default();
  int64_t parts[2][LS_CATEGORY_COUNT], blocks = 0, scales = 0;
  for (int with = 0; with < 2; with++) {
    config.blocks = with ? precision : LS_COMPUTE;
    const ls_experiment experiment = experiment_of(&config);
    const ls_test_step step = ls_test_compile(arena, &experiment, &layout);
    const ls_graph *graph = step.graph;
    ls_program_peak(step.stages[0], parts[with]);
    for (int p = 0; with && p < graph->parameters.count; p++) {
      const ls_parameter_record *record = &graph->parameters.items[p];
      const int64_t elements = ls_tensor_elements(ls_graph_tensor(graph, record->tensor));
      if (record->about.precision == LS_SCALES) scales += elements;
      if (record->about.precision != precision) continue;
      assert_false(record->trainable);
      blocks += elements;
    }
  }
  assert_int_equal(scales > 0, ls_precision_is_double(precision));
  const int64_t saved = blocks * (LS_BLOCK_WEIGHTS * 4 - each) - 4 * scales;
  const int64_t less = parts[0][LS_CATEGORY_PARAMETERS] - parts[1][LS_CATEGORY_PARAMETERS];
  assert_true(llabs(less - saved) < saved / 100); /* padding of units */
  const int64_t more = parts[1][LS_CATEGORY_TEMPORARIES] - parts[0][LS_CATEGORY_TEMPORARIES];
  assert_true(more >= 0 && more <= most_restored);
  ls_arena_destroy(&arena);
}

static void memory_has_blocks_alone(void **state) {
  (void)state;
  check_memory(LS_BLOCKS_NF4, 0, 36, 0);
  check_memory(LS_BLOCKS_NF4_DOUBLE, OF_GROUPS, 33, 256 * 2 * 36);
}

/* A block further; another weight's blocks, going forward and back; blocks of another format; a
 * base that would be trained. */
static void damage(ls_program *program, int kind) {
  ls_value *values = program->values.items;
  ls_instruction *first = ls_test_find(program, LS_OP_LINEAR_BLOCKS, 0);
  ls_instruction *second = ls_test_find(program, LS_OP_LINEAR_BLOCKS, 3);
  ls_instruction *last = ls_test_find(program, LS_OP_LINEAR_BLOCKS, 7); /* of the last layer */
  ls_instruction *back = ls_test_find(program, LS_OP_LINEAR_BLOCKS_DX, 0);
  assert_true(first && second && last && back);
  ls_program_parameter *parameter = NULL;
  for (int p = 0; p < program->parameter_count; p++)
    if (program->parameters[p].part[LS_PART_USED] == first->in[1])
      parameter = &program->parameters[p];
  assert_non_null(parameter);
  switch (kind) {
    case 0: values[first->in[1]].offset += 36; break;
    case 1: first->in[1] = second->in[1]; break;
    case 2: values[first->in[1]].dtype = LS_INT8; break;
    case 3: back->in[1] = last->in[1]; break;
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
      ls_layout layout = ls_test_layout_default();
      if (c) layout.dp_shard = 2;
      const ls_experiment experiment = experiment_of(&config);
      const ls_test_step step = ls_test_compile(arena, &experiment, &layout);
      damage(step.stages[0], kind);
      ls_test_expect_refuted(&step, ls_arena_printf(arena, "damage %d", kind), NULL);
      ls_arena_destroy(&arena);
    }
}

/* Scales of another weight, or numbered otherwise; blocks that are not restored, or another's. */
static void damage_scales(ls_program *program, int kind) {
  ls_instruction *first = ls_test_find(program, LS_OP_RESTORE_SCALES, 0);
  ls_instruction *second = ls_test_find(program, LS_OP_RESTORE_SCALES, 3);
  ls_instruction *product = ls_test_find(program, LS_OP_LINEAR_BLOCKS, 0);
  assert_true(first && second && product);
  switch (kind) {
    case 0: first->in[1] = second->in[1]; break;
    case 1: first->in[0] = second->in[0]; break;
    case 2: first->attributes.columns++; break;
    case 3: program->values.items[first->in[1]].offset += 4; break;
    case 4: program->values.items[first->out[0]].dtype = LS_FP4; break;
    case 5: product->in[1] = first->in[0]; break;
    default:
      ls_drop_instruction(program, (int)(first - program->instructions.items), (char[160]){0});
  }
}

static void damaged_scales_are_refuted(void **state) {
  (void)state;
  enum { KINDS = 7 };
  for (int kind = 0; kind < KINDS; kind++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = quantised_as(arena, OF_GROUPS, LS_BLOCKS_NF4_DOUBLE);
    ls_layout layout = ls_test_layout_default();
    layout.dp_shard = 1 + kind % 2;
    const ls_experiment experiment = experiment_of(&config);
    const ls_test_step step = ls_test_compile(arena, &experiment, &layout);
    damage_scales(step.stages[0], kind);
    ls_test_expect_refuted(&step, ls_arena_printf(arena, "scales, damage %d", kind), NULL);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(blocks_stay_as_they_are),
      cmocka_unit_test(memory_has_blocks_alone),
      cmocka_unit_test(damaged_programs_are_refuted),
      cmocka_unit_test(damaged_scales_are_refuted),
      cmocka_unit_test(every_layout_equals_one_device),
      cmocka_unit_test(others_equal_one_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
