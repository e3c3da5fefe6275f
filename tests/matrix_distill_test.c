/* A small model that a larger one teaches: under every strategy the training equals that of one
 * device, in fp64, whatever the teacher's family, width, depth and heads; the programs are proved;
 * and the proof sees a teacher that is taken for another. That the loss is PyTorch's is held in
 * distill_trace_test.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "lower/compile.h"
#include "support/layouts.h"
#include "support/tally.h"
#include "verify/equality.h"

enum { SEQUENCE = 8, SEQUENCES = 12, MOST_STAGES = 3, EVERY = (1 << LS_MODEL_LINEARS) - 1 };

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
  config.lora_targets = EVERY;
  return config;
}

static ls_model_teacher teacher_of(ls_arena *arena, int shape) {
  ls_model_config *made = LS_NEW(arena, ls_model_config);
  *made = ls_test_shape_config(arena, &teachers[shape]);
  made->teacher = true;
  return (ls_model_teacher){made, temperatures[shape], shares[shape]};
}

static const struct layout_case {
  int pp, dp_replicate, dp_shard, cp, tp, zero, microbatches;
  bool sp;
  const char *schedule;
  bool recompute, post_validation;
  ls_context context;
  int logits_rows, chunks;
} cases[] = {
    {1, 3, 1, 1, 1, 0, 1, .logits_rows = 5},
    {1, 1, 2, 1, 1, 1, 2, .sp = false},
    {1, 1, 3, 1, 1, 2, 2, .logits_rows = 3},
    {1, 1, 4, 1, 1, 3, 1, .recompute = true},
    {1, 2, 2, 1, 1, 3, 3, .sp = false},
    {1, 1, 1, 1, 2, 0, 1, .logits_rows = 7},
    {1, 1, 1, 1, 3, 0, 2, .sp = true, .logits_rows = 7},
    {1, 1, 2, 1, 2, 3, 2, .sp = true, .logits_rows = 4},
    {1, 1, 1, 1, 4, 0, 1, .sp = true},
    {1, 1, 1, 2, 1, 1, 1, .sp = false},
    {1, 1, 2, 2, 1, 3, 1, .context = LS_CONTEXT_RING, .logits_rows = 6},
    {1, 1, 1, 2, 1, 2, 2, .context = LS_CONTEXT_ULYSSES},
    {1, 1, 1, 2, 3, 1, 1, .sp = true, .context = LS_CONTEXT_RING},
    {2, 1, 1, 1, 1, 0, 4, .schedule = "1f1b"},
    {2, 1, 2, 1, 1, 3, 2, .schedule = "1f1b", .recompute = true},
    {2, 1, 1, 1, 2, 0, 2, .sp = true, .schedule = "gpipe", .logits_rows = 9},
    {2, 1, 2, 1, 1, 1, 3, .schedule = "zbh1", .post_validation = true},
    {3, 1, 1, 1, 1, 0, 3, .schedule = "1f1b"},
    {2, 1, 1, 1, 1, 0, 4, .schedule = "zbv", .chunks = 2},
    {2, 1, 1, 2, 1, 1, 2, .schedule = "zbh2"},
};
enum { CASES = sizeof cases / sizeof *cases, RUN = 50 };

static ls_layout layout_of(const struct layout_case *from) {
  ls_layout layout = ls_layout_default();
  layout.compute = LS_F64;
  layout.pp = from->pp;
  layout.dp_replicate = from->dp_replicate;
  layout.dp_shard = from->dp_shard;
  layout.cp = from->cp;
  layout.tp = from->tp;
  layout.zero = from->zero;
  layout.context = from->context;
  layout.microbatches = from->microbatches;
  layout.logits_rows = from->logits_rows;
  layout.sequence_parallel = from->sp;
  layout.post_validation = from->post_validation;
  if (from->schedule) layout.schedule = from->schedule;
  if (from->chunks) layout.chunks = from->chunks;
  if (from->recompute) {
    layout.recompute = (ls_op_set)LS_EVERY_OP;
    layout.recompute_layers = 1;
  }
  return layout;
}

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

static ls_graph *graph_of(ls_arena *arena, const ls_model_config *config, const ls_layout *layout,
                          int shape) {
  const ls_build_options options = {.tokens = SEQUENCES / layout->microbatches * SEQUENCE,
                                    .sequence = SEQUENCE,
                                    .places = layout->cp > 1,
                                    .turns = ls_layout_turns(layout),
                                    .teacher = teacher_of(arena, shape)};
  ls_graph *graph;
  ls_error error = {0};
  if (ls_model_build(arena, config, &options, &graph, &error) != LS_OK) fail_msg("%s", error.text);
  return graph;
}

/* Of the step and of the evaluation. */
static void prove(const ls_model_config *config, const ls_layout *layout, int shape) {
  for (int kind = 0; kind < 2; kind++) {
    ls_arena *arena = ls_arena_create();
    ls_graph *graph = graph_of(arena, config, layout, shape);
    ls_program *stages[MOST_STAGES];
    ls_error error = {0};
    if (kind == 0) ls_graph_backward(graph);
    ls_layout proved = *layout;
    proved.post_validation = layout->post_validation && kind == 0;
    if (ls_program_compile(graph, &proved, kind ? LS_PROGRAM_FORWARD : LS_PROGRAM_STEP, stages,
                           &error) != LS_OK ||
        ls_check(graph, &proved, (const ls_program *const *)stages, NULL, &error) != LS_OK)
      fail_msg("%s: %s", ls_layout_print(arena, layout), error.text);
    ls_arena_destroy(&arena);
  }
}

static void every_layout_equals_one_device(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = config_of(arena, shape);
    const ls_experiment experiment = experiment_of(arena, &config, shape);
    ls_trajectory reference;
    ls_test_one_device(arena, &experiment, config.family, &reference);
    for (int c = 0; c < CASES; c++) {
      const ls_layout layout = layout_of(&cases[c]);
      const int run = tally.run;
      ls_test_tally_layout(&tally, &experiment, &reference, &layout,
                           ls_layout_print(arena, &layout));
      if (tally.run > run) prove(&config, &layout, shape);
    }
    ls_arena_destroy(&arena);
  }
  print_message("%d layouts run, %d refused\n", tally.run, tally.refused);
  assert_int_equal(tally.failed, 0);
  assert_int_equal(tally.run, RUN);
}

/* Instruction number `which` of a kind; NULL: the program has none. */
static ls_instruction *find(ls_program *program, ls_op_kind kind, int which) {
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (each->collective == LS_COLLECTIVE_NONE && each->kind == kind && which-- == 0) return each;
  }
  return NULL;
}

/* Each alters a program of the step; false: there is nothing to alter. */
static bool another_temperature(ls_program *program) {
  ls_instruction *sums = find(program, LS_OP_DISTILL_SUM, 0);
  if (sums) sums->attributes.softmax_scale *= 2;
  return sums != NULL;
}

static bool another_temperature_backward(ls_program *program) {
  ls_instruction *back = find(program, LS_OP_DISTILL_GRAD, 0);
  if (back) back->attributes.softmax_scale *= 2;
  return back != NULL;
}

static bool another_share(ls_program *program) {
  ls_instruction *loss = find(program, LS_OP_DISTILL_LOSS, 0);
  if (loss) loss->attributes.scale = 0.75;
  return loss != NULL;
}

static bool its_own_teacher(ls_program *program) {
  ls_instruction *sums = find(program, LS_OP_DISTILL_SUM, 0);
  if (sums) sums->in[2] = sums->in[0];
  return sums != NULL;
}

static bool roles_exchanged(ls_program *program) {
  ls_instruction *sums = find(program, LS_OP_DISTILL_SUM, 0);
  for (int i = 0; sums && i < 2; i++) {
    const int kept = sums->in[i];
    sums->in[i] = sums->in[i + 2];
    sums->in[i + 2] = kept;
  }
  return sums != NULL;
}

/* What backward makes is taken for the gradient of the teacher's logits. */
static bool gradient_into_the_teacher(ls_program *program) {
  ls_instruction *sums = find(program, LS_OP_DISTILL_SUM, 0);
  ls_instruction *back = find(program, LS_OP_DISTILL_GRAD, 0);
  for (int i = 0; sums && back && i < 2; i++) {
    back->in[i] = sums->in[i + 2];
    back->in[i + 2] = sums->in[i];
  }
  return sums && back;
}

static bool largest_of_the_teacher(ls_program *program) {
  ls_instruction *back = find(program, LS_OP_DISTILL_GRAD, 0);
  if (back) back->in[1] = back->in[3];
  return back != NULL;
}

static bool teacher_without_a_layer(ls_program *program) {
  for (int which = 0;; which++) {
    ls_instruction *norm = find(program, LS_OP_LAYERNORM, which);
    if (!norm) return false;
    ls_instruction *add = find(program, LS_OP_ADD, 0);
    if (!add) return false;
    norm->in[0] = add->in[0];
    return true;
  }
}

static bool trained_teacher(ls_program *program) {
  for (int p = 0; p < program->parameter_count; p++)
    if (strncmp(program->parameters[p].name, "teacher.", 8) == 0)
      program->parameters[p].trainable = true;
  return true;
}

/* The second microbatch is held against what the teacher says of the first. */
static bool teacher_of_another_microbatch(ls_program *program) {
  bool changed = false;
  for (int a = 0; a < program->actions.count; a++) {
    const ls_program_action *action = &program->actions.items[a];
    const ls_body *body = &program->bodies.items[action->body];
    if (action->action.microbatch < 1) continue;
    for (int g = 0; g < body->buffer_groups.count; g++) {
      const ls_buffer_group *group = &program->buffer_groups.items[body->buffer_groups.items[g]];
      if (strcmp(group->name, "ids") != 0) continue;
      action->live_intervals[g] -= action->action.microbatch;
      changed = true;
    }
  }
  return changed;
}

static const struct fault {
  const char *name;
  bool (*alter)(ls_program *program);
  const char *said;
} faults[] = {
    {"temperature", another_temperature, "softmax_scale"},
    {"temperature backward", another_temperature_backward, "settings"},
    {"share", another_share, "scale"},
    {"its own teacher", its_own_teacher, "distill_sum"},
    {"roles exchanged", roles_exchanged, "distill_sum"},
    {"gradient into the teacher", gradient_into_the_teacher, "distill_grad"},
    {"largest of the teacher", largest_of_the_teacher, "operands"},
    {"without a layer", teacher_without_a_layer, ""},
    {"trained teacher", trained_teacher, "teacher."},
    {"another microbatch", teacher_of_another_microbatch, "microbatch"},
};

static void the_proof_sees_faults(void **state) {
  (void)state;
  for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = config_of(arena, 1);
    const ls_layout layout = layout_of(&cases[13]);
    ls_graph *graph = graph_of(arena, &config, &layout, 1);
    ls_program *stages[MOST_STAGES];
    ls_error error = {0};
    ls_graph_backward(graph);
    assert_int_equal(ls_program_compile(graph, &layout, LS_PROGRAM_STEP, stages, &error), LS_OK);
    bool altered = false;
    for (int s = 0; s < layout.pp; s++) altered |= faults[f].alter(stages[s]);
    assert_true(altered);
    const ls_status status =
        ls_check(graph, &layout, (const ls_program *const *)stages, NULL, &error);
    if (status != LS_REFUTED || !strstr(error.text, faults[f].said))
      fail_msg("%s: %s", faults[f].name, status == LS_OK ? "proved" : error.text);
    print_message("%s\n", error.text);
    ls_arena_destroy(&arena);
  }
}

/* Nothing of a teacher is there but its stored weights: no gradient, no moments, no master. */
static void teachers_are_frozen(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = config_of(arena, 1);
  ls_layout layout = layout_of(&cases[3]);
  layout.compute = LS_BF16;
  ls_graph *graph = graph_of(arena, &config, &layout, 1);
  ls_program *stages[MOST_STAGES];
  ls_error error = {0};
  int frozen = 0;
  ls_graph_backward(graph);
  assert_int_equal(ls_program_compile(graph, &layout, LS_PROGRAM_STEP, stages, &error), LS_OK);
  for (int p = 0; p < stages[0]->parameter_count; p++) {
    const ls_program_parameter *each = &stages[0]->parameters[p];
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
  ls_layout layout = layout_of(&cases[8]);
  layout.tp = 8;
  const ls_build_options options = {
      .tokens = SEQUENCES * SEQUENCE, .sequence = SEQUENCE, .teacher = {&teacher, 2, 0.5}};
  ls_graph *graph;
  ls_program *stages[MOST_STAGES];
  ls_error error = {0};
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
  ls_graph_backward(graph);
  assert_int_equal(ls_program_compile(graph, &layout, LS_PROGRAM_STEP, stages, &error), LS_INPUT);
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
    ls_layout layout = layout_of(&cases[7]);
    layout.sequence_parallel = sp;
    ls_graph *graph = graph_of(arena, &config, &layout, 1);
    ls_program *stages[MOST_STAGES];
    ls_error error = {0};
    int wide = 0;
    ls_graph_backward(graph);
    assert_int_equal(ls_program_compile(graph, &layout, LS_PROGRAM_STEP, stages, &error), LS_OK);
    for (int v = 0; v < stages[0]->values.count; v++) {
      const ls_value *value = &stages[0]->values.items[v];
      if (value->ndim < 2 || value->global[0] != graph->tokens || value->global[1] != 41) continue;
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
      cmocka_unit_test(every_layout_equals_one_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
