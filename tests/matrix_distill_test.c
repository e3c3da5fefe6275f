/* A small model that a larger one teaches: under every strategy the training equals that of one
 * device, in fp64, whatever the teacher's family, width, depth and heads; the programs are proved;
 * and the proof sees a teacher that is taken for another. So it is with logits
 * from a file (data/top_logits.h). That the loss is PyTorch's is held in distill_trace_test.c. */
#include <string.h>

#include "check/check.h"
#include "lower/compile.h"
#include "support/layouts.h"
#include "support/program_faults.h"

enum { SEQUENCE = 8, SEQUENCES = 12 };

/* A teacher for each of the test shapes: more layers than these, fewer, and as many. */
static const ls_test_shape teachers[LS_TEST_SHAPES] = {
    {"llama",
     "{\"model_type\": \"llama\", \"vocab_size\": 37, \"hidden_size\": 24,"
     " \"intermediate_size\": 31, \"num_hidden_layers\": 1, \"num_attention_heads\": 12,"
     " \"num_key_value_heads\": 6, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5,"
     " \"tie_word_embeddings\": true}"},
    {"gpt2",
     "{\"model_type\": \"gpt2\", \"vocab_size\": 41, \"n_positions\": 8, \"n_embd\": 40,"
     " \"n_layer\": 5, \"n_head\": 8, \"n_inner\": 43}"},
    {"mixtral",
     "{\"model_type\": \"mixtral\", \"vocab_size\": 43, \"hidden_size\": 24,"
     " \"intermediate_size\": 21, \"num_hidden_layers\": 3, \"num_attention_heads\": 6,"
     " \"num_key_value_heads\": 3, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5,"
     " \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"tie_word_embeddings\": false}"},
};
static const double temperatures[] = {1, 2, 3.5}, shares[] = {1, 0.5, 0.25};

/* Of the last shape adapters are trained alone. */
static ls_model_config config_of(ls_arena *arena, int shape) {
  ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
  if (shape != LS_TEST_SHAPES - 1) return config;
  config.lora_rank = 3;
  config.lora_alpha = 5;
  config.lora_targets = (1 << LS_MODEL_LINEARS) - 1;
  return config;
}

static ls_model_teacher teacher_of(ls_arena *arena, int shape) {
  ls_model_config *made = LS_NEW(arena, ls_model_config);
  *made = ls_test_shape_config(arena, &teachers[shape]);
  made->teacher = true;
  return (ls_model_teacher){made, 0, temperatures[shape], shares[shape]};
}

static const ls_layout rows[] = {
    {.dp_replicate = 3, .logits_rows = 5},
    {.dp_shard = 2, .zero = 1, .microbatches = 2},
    {.dp_shard = 3, .zero = 2, .microbatches = 2, .logits_rows = 3},
    {.dp_shard = 4, .zero = 3, EVERY},
    {.dp_replicate = 2, .dp_shard = 2, .zero = 3, .microbatches = 3},
    {.tp = 2, .logits_rows = 7},
    {.tp = 3, .microbatches = 2, SP, .logits_rows = 7},
    {.dp_shard = 2, .tp = 2, .zero = 3, .microbatches = 2, SP, .logits_rows = 4},
    {.tp = 4, SP},
    {.cp = 2, .zero = 1},
    {.dp_shard = 2, .cp = 2, .zero = 3, .context = LS_CONTEXT_RING, .logits_rows = 6},
    {.cp = 2, .zero = 2, .microbatches = 2, .context = LS_CONTEXT_ULYSSES},
    {.cp = 2, .tp = 3, .zero = 1, SP, .context = LS_CONTEXT_RING},
    {PIPE(2, "1f1b"), .microbatches = 4},
    {PIPE(2, "1f1b"), .dp_shard = 2, .zero = 3, .microbatches = 2, EVERY},
    {PIPE(2, "gpipe"), .tp = 2, .microbatches = 2, SP, .logits_rows = 9},
    {PIPE(2, "zbh1"), .dp_shard = 2, .zero = 1, .microbatches = 3, .post_validation = true},
    {PIPE(3, "1f1b"), .microbatches = 3},
    {PIPE(2, "zbv"), .microbatches = 4, .chunks = 2},
    {PIPE(2, "zbh2"), .cp = 2, .zero = 1, .microbatches = 2},
};
enum { ROWS = sizeof rows / sizeof *rows, RUN = 50, REFUSED = 3 * ROWS - RUN };
enum { TOLD_RUN = 50, TOLD_REFUSED = 3 * ROWS - TOLD_RUN };

static ls_experiment experiment_of(ls_arena *arena, const ls_model_config *config, int shape) {
  return (ls_experiment){.config = config,
                         .sequences = SEQUENCES,
                         .sequence = SEQUENCE,
                         .teacher = teacher_of(arena, shape),
                         .learning_rate = 1e-2,
                         .seed = 7,
                         .saved = true,
                         .steps = 3,
                         .deadline_s = 60};
}

static void every_layout_equals_one_device(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = config_of(arena, shape);
    const ls_experiment experiment = experiment_of(arena, &config, shape);
    ls_test_equal_layouts(&tally, &experiment, rows, ROWS, ls_test_shapes[shape].name);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, RUN, REFUSED);
}

/* The same of what a teacher has said of its likeliest ids: a few, all of the vocabulary, one. */
static ls_experiment told_of(const ls_model_config *config, int shape) {
  const int64_t tops[LS_TEST_SHAPES] = {5, config->vocabulary, 1};
  return (ls_experiment){.config = config,
                         .sequences = SEQUENCES,
                         .sequence = SEQUENCE,
                         .teacher = {NULL, tops[shape], temperatures[shape], shares[shape]},
                         .learning_rate = 1e-2,
                         .seed = 7,
                         .saved = true,
                         .steps = 3,
                         .deadline_s = 60};
}

static void every_layout_is_told_the_same(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = config_of(arena, shape);
    const ls_experiment experiment = told_of(&config, shape);
    ls_test_equal_layouts(&tally, &experiment, rows, ROWS, ls_test_shapes[shape].name);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, TOLD_RUN, TOLD_REFUSED);
}

/* Each alters a program of the step; false: there is nothing to alter. */
static bool another_temperature(ls_program *program) {
  ls_instruction *sums = ls_test_find(program, LS_OP_DISTILL_SUM, 0);
  if (sums) sums->attributes.softmax_scale *= 2;
  return sums;
}

static bool another_temperature_backward(ls_program *program) {
  ls_instruction *back = ls_test_find(program, LS_OP_DISTILL_GRAD, 0);
  if (back) back->attributes.softmax_scale *= 2;
  return back;
}

static bool another_share(ls_program *program) {
  ls_instruction *loss = ls_test_find(program, LS_OP_DISTILL_LOSS, 0);
  if (loss) loss->attributes.scale = 0.75;
  return loss;
}

static bool its_own_teacher(ls_program *program) {
  ls_instruction *sums = ls_test_find(program, LS_OP_DISTILL_SUM, 0);
  if (sums) sums->in[2] = sums->in[0];
  return sums;
}

static bool roles_exchanged(ls_program *program) {
  ls_instruction *sums = ls_test_find(program, LS_OP_DISTILL_SUM, 0);
  for (int i = 0; sums && i < 2; i++) {
    const int kept = sums->in[i];
    sums->in[i] = sums->in[i + 2];
    sums->in[i + 2] = kept;
  }
  return sums;
}

/* What backward makes is taken for the gradient of the teacher's logits. */
static bool gradient_into_the_teacher(ls_program *program) {
  ls_instruction *sums = ls_test_find(program, LS_OP_DISTILL_SUM, 0);
  ls_instruction *back = ls_test_find(program, LS_OP_DISTILL_GRAD, 0);
  for (int i = 0; sums && back && i < 2; i++) {
    back->in[i] = sums->in[i + 2];
    back->in[i + 2] = sums->in[i];
  }
  return sums && back;
}

static bool largest_of_the_teacher(ls_program *program) {
  ls_instruction *back = ls_test_find(program, LS_OP_DISTILL_GRAD, 0);
  if (back) back->in[1] = back->in[3];
  return back;
}

static bool teacher_without_a_layer(ls_program *program) {
  ls_instruction *norm = ls_test_find(program, LS_OP_LAYERNORM, 0);
  const ls_instruction *add = ls_test_find(program, LS_OP_ADD, 0);
  if (norm && add) norm->in[0] = add->in[0];
  return norm && add;
}

static bool trained_teacher(ls_program *program) {
  for (int p = 0; p < program->parameter_count; p++)
    if (strncmp(program->parameters[p].name, "teacher.", 8) == 0)
      program->parameters[p].trainable = true;
  return true;
}

/* The second microbatch is held against what the teacher says of the first. */
static bool teacher_of_another_microbatch(ls_program *program) {
  return program->ids >= 0 && ls_test_of_first_microbatch(program, program->ids);
}

static const ls_test_fault faults[] = {
    {"temperature", another_temperature, "softmax_scale", false},
    {"temperature backward", another_temperature_backward, "settings", false},
    {"share", another_share, "scale", false},
    {"its own teacher", its_own_teacher, "distill_sum", false},
    {"roles exchanged", roles_exchanged, "distill_sum", false},
    {"gradient into the teacher", gradient_into_the_teacher, "distill_grad", false},
    {"largest of the teacher", largest_of_the_teacher, "operands", false},
    {"without a layer", teacher_without_a_layer, NULL, false},
    {"trained teacher", trained_teacher, "teacher.", false},
    {"another microbatch", teacher_of_another_microbatch, "microbatch", false},
};

static bool told_at_another_temperature(ls_program *program) {
  ls_instruction *sums = ls_test_find(program, LS_OP_DISTILL_TOP_SUM, 0);
  if (sums) sums->attributes.softmax_scale *= 2;
  return sums;
}

static bool told_at_another_temperature_backward(ls_program *program) {
  ls_instruction *back = ls_test_find(program, LS_OP_DISTILL_TOP_GRAD, 0);
  if (back) back->attributes.softmax_scale *= 2;
  return back;
}

static bool ids_of_another_microbatch(ls_program *program) {
  return program->top_ids >= 0 && ls_test_of_first_microbatch(program, program->top_ids);
}

static bool logits_of_another_microbatch(ls_program *program) {
  return program->top_below >= 0 && ls_test_of_first_microbatch(program, program->top_below);
}

/* Its operands are as the teacher's logits would be, whose op this is. */
static bool told_as_logits(ls_program *program) {
  ls_instruction *sums = ls_test_find(program, LS_OP_DISTILL_TOP_SUM, 0);
  if (sums) sums->kind = LS_OP_DISTILL_SUM;
  return sums;
}

static bool told_of_the_labels(ls_program *program) {
  ls_instruction *back = ls_test_find(program, LS_OP_DISTILL_TOP_GRAD, 0);
  if (back) back->in[5] = program->ids;
  return back;
}

static const ls_test_fault told_faults[] = {
    {"temperature", told_at_another_temperature, "softmax_scale", false},
    {"temperature backward", told_at_another_temperature_backward, "settings", false},
    {"ids of another microbatch", ids_of_another_microbatch, "microbatch", false},
    {"logits of another microbatch", logits_of_another_microbatch, "microbatch", false},
    {"another op", told_as_logits, "distill", false},
    {"ids for labels", told_of_the_labels, "uses ids", false},
};

static void the_proof_sees_faults_of_what_is_told(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = config_of(arena, 0);
  const ls_experiment experiment = told_of(&config, 0);
  const ls_layout layout = ls_test_layout_of(&rows[13]);
  ls_test_refute(&experiment, &layout, told_faults, sizeof told_faults / sizeof *told_faults);
  ls_arena_destroy(&arena);
}

/* Stages that make no loss are told nothing. */
static void the_last_stage_is_told(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = config_of(arena, 0);
  const ls_experiment experiment = told_of(&config, 0);
  const ls_layout layout = ls_test_layout_of(&rows[13]);
  const ls_test_step step = ls_test_compile(arena, &experiment, &layout);
  for (int s = 0; s < layout.pp; s++) {
    assert_int_equal(step.stages[s]->top_ids >= 0, s == layout.pp - 1);
    assert_int_equal(step.stages[s]->top_below >= 0, s == layout.pp - 1);
  }
  ls_arena_destroy(&arena);
}

static void the_proof_sees_faults(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = config_of(arena, 1);
  const ls_experiment experiment = experiment_of(arena, &config, 1);
  const ls_layout layout = ls_test_layout_of(&rows[13]);
  ls_test_refute(&experiment, &layout, faults, sizeof faults / sizeof *faults);
  ls_arena_destroy(&arena);
}

/* Nothing of a teacher is there but its stored weights: no gradient, no moments, no master. */
static void teachers_are_frozen(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = config_of(arena, 1);
  const ls_experiment experiment = experiment_of(arena, &config, 1);
  ls_layout layout = ls_test_layout_of(&rows[3]);
  layout.compute = LS_BF16;
  const ls_program *program = ls_test_compile(arena, &experiment, &layout).stages[0];
  int frozen = 0;
  for (int p = 0; p < program->parameter_count; p++) {
    const ls_program_parameter *each = &program->parameters[p];
    if (strncmp(each->name, "teacher.", 8) != 0) continue;
    frozen++;
    for (int part = 0; part < LS_PART_COUNT; part++)
      if (ls_state_row_of((ls_state_part)part)->trained) assert_true(each->part[part] < 0);
  }
  assert_int_equal(frozen, 2 + 5 * 16 + 2);
  ls_arena_destroy(&arena);
}

/* A mesh whose ranks have several KV heads of one model, and a part of the queries of each, would
 * give heads the queries of others: it is refused, and where it is made by hand, refuted. */
static void both_models_have_the_same_kv_ranks(void **state) {
  (void)state;
  static const ls_test_shape grouped = {
      "llama",
      "{\"model_type\": \"llama\", \"vocab_size\": 41, \"hidden_size\": 32,"
      " \"intermediate_size\": 45, \"num_hidden_layers\": 1, \"num_attention_heads\": 16,"
      " \"num_key_value_heads\": 8, \"max_position_embeddings\": 16}"};
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = config_of(arena, 1);
  ls_model_config teacher = ls_test_shape_config(arena, &grouped);
  teacher.teacher = true;
  ls_layout layout = ls_test_layout_of(&rows[8]);
  layout.tp = 8;
  ls_experiment experiment = experiment_of(arena, &config, 1);
  experiment.teacher = (ls_model_teacher){&teacher, 0, 2, 0.5};
  ls_graph *graph;
  ls_program *stages[1];
  ls_error error = {0};
  assert_int_equal(
      ls_experiment_compile(arena, &experiment, &layout, LS_PROGRAM_STEP, &graph, stages, &error),
      LS_INPUT);
  assert_string_equal(error.text,
                      "tp=8 and 16 heads, 4 KV heads, and a teacher with 16 heads, 8 KV heads: use "
                      "tp=1, 2 or 4");
  const ls_mesh mesh = ls_mesh_make((const int[LS_MESH_ROWS]){1, 1, 1, 1, 2, 2});
  layout.tp = 4;
  layout.mesh = &mesh;
  const ls_status status = ls_program_compile(graph, &layout, LS_PROGRAM_STEP, stages, &error);
  if (status == LS_OK)
    assert_int_equal(ls_check(graph, &layout, (const ls_program *const *)stages, NULL, &error),
                     LS_REFUTED);
  assert_non_null(strstr(error.text, "shares queries out of"));
  ls_arena_destroy(&arena);
}

/* Neither model's logits are there whole. */
static void logits_are_made_in_slices(void **state) {
  (void)state;
  for (int sp = 0; sp < 2; sp++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = config_of(arena, 1);
    const ls_experiment experiment = experiment_of(arena, &config, 1);
    ls_layout layout = ls_test_layout_of(&rows[7]);
    layout.sequence_parallel = sp;
    const ls_test_step step = ls_test_compile(arena, &experiment, &layout);
    int wide = 0;
    for (int v = 0; v < step.stages[0]->values.count; v++) {
      const ls_value *value = &step.stages[0]->values.items[v];
      if (value->ndim < 2 || value->global[0] != step.graph->tokens || value->global[1] != 41)
        continue;
      wide++;
      assert_in_range(value->rows, 1, layout.logits_rows);
    }
    assert_true(wide >= 3);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(teachers_are_frozen),
      cmocka_unit_test(both_models_have_the_same_kv_ranks),
      cmocka_unit_test(logits_are_made_in_slices),
      cmocka_unit_test(the_proof_sees_faults),
      cmocka_unit_test(the_last_stage_is_told),
      cmocka_unit_test(the_proof_sees_faults_of_what_is_told),
      cmocka_unit_test(every_layout_equals_one_device),
      cmocka_unit_test(every_layout_is_told_the_same),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
