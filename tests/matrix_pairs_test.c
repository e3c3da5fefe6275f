/* A loss over pairs of answers: under every strategy the training equals that of one device, in
 * fp64, with and without adapters; the programs are proved; and the proof sees a pair's operands
 * exchanged. What the loss is, is held to PyTorch's in pairs_trace_test.c. */
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

enum { SEQUENCE = 8, SEQUENCES = 12, MOST_STAGES = 2, EVERY = (1 << LS_MODEL_LINEARS) - 1 };

static const ls_model_pairs pairs[] = {{0.3, 0}, {0.3, 0.2}, {0.5, 0}};

/* Of the last shape adapters are trained alone. */
static ls_model_config config_of(ls_arena *arena, int shape) {
  ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
  if (shape != LS_TEST_SHAPES - 1) return config;
  config.lora_rank = 3;
  config.lora_alpha = 5;
  config.lora_targets = EVERY;
  return config;
}

static const struct layout_case {
  int pp, dp_replicate, dp_shard, tp, zero, microbatches;
  bool sp;
  const char *schedule;
  bool recompute, post_validation;
} cases[] = {
    {1, 3, 1, 1, 0, 1, false, NULL, false, false},  {1, 1, 2, 1, 1, 2, false, NULL, false, false},
    {1, 1, 3, 1, 2, 2, false, NULL, false, false},  {1, 1, 4, 1, 3, 1, false, NULL, false, false},
    {1, 2, 2, 1, 3, 3, false, NULL, false, false},  {1, 1, 1, 2, 0, 1, false, NULL, false, false},
    {1, 1, 1, 2, 0, 2, true, NULL, true, false},    {1, 1, 1, 3, 0, 1, true, NULL, false, false},
    {1, 1, 2, 2, 3, 2, true, NULL, false, false},   {2, 1, 1, 1, 0, 4, false, "1f1b", false, false},
    {2, 1, 2, 1, 3, 2, false, "1f1b", true, false}, {2, 1, 1, 2, 0, 2, true, "gpipe", false, false},
    {2, 1, 2, 1, 1, 3, false, "zbh1", false, true}, {2, 1, 1, 2, 0, 4, true, "zbh2", false, false},
};
/* The heads of the second shape do not allow tp 3, of the third tp 2. */
enum { CASES = sizeof cases / sizeof *cases, RUN = 36 };

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
  layout.post_validation = from->post_validation;
  if (from->schedule) layout.schedule = from->schedule;
  if (from->recompute) {
    layout.recompute = (ls_op_set)LS_EVERY_OP;
    layout.recompute_layers = 1;
  }
  return layout;
}

static ls_experiment experiment_of(const ls_model_config *config, int shape) {
  return (ls_experiment){.config = config,
                         .sequences = SEQUENCES,
                         .sequence = SEQUENCE,
                         .pairs = pairs[shape % 3],
                         .learning_rate = 1e-2,
                         .seed = 7,
                         .saved = true,
                         .deadline_s = 60};
}

static ls_graph *graph_of(ls_arena *arena, const ls_model_config *config, const ls_layout *layout,
                          int shape) {
  const ls_build_options options = {.tokens = SEQUENCES / layout->microbatches * SEQUENCE,
                                    .sequence = SEQUENCE,
                                    .documents = true,
                                    .pairs = pairs[shape % 3]};
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
    const ls_experiment experiment = experiment_of(&config, shape);
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

/* The instruction of a kind; NULL: the program has none. */
static ls_instruction *find(ls_program *program, ls_op_kind kind) {
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (each->collective == LS_COLLECTIVE_NONE && each->kind == kind) return each;
  }
  return NULL;
}

static void exchange(int *a, int *b) {
  const int kept = *a;
  *a = *b;
  *b = kept;
}

/* Each alters a program of the step; false: there is nothing to alter. */
static bool pairs_of_other_documents(ls_program *program) { /* begun where labels are, not */
  ls_instruction *loss = find(program, LS_OP_PAIR_LOSS);
  if (loss) exchange(&loss->in[3], &loss->in[4]);
  return loss != NULL;
}

static bool pairs_of_other_lengths(ls_program *program) {
  ls_instruction *loss = find(program, LS_OP_PAIR_LOSS);
  if (loss) loss->attributes.sequence = SEQUENCE / 2;
  return loss != NULL;
}

static bool another_beta_backward(ls_program *program) {
  ls_instruction *back = find(program, LS_OP_PAIR_LOSS_BWD);
  if (back) back->attributes.dpo_beta *= 2;
  return back != NULL;
}

static bool other_documents_backward(ls_program *program) {
  ls_instruction *back = find(program, LS_OP_PAIR_LOSS_BWD);
  if (back) back->in[2] = back->in[1];
  return back != NULL;
}

static bool rewards_by_the_reference(ls_program *program) {
  ls_instruction *told = find(program, LS_OP_PAIR_REWARDS);
  if (told) told->in[0] = program->reference;
  return told != NULL;
}

static bool no_reference(ls_program *program) { /* what backward reads stands in its place */
  ls_instruction *loss = find(program, LS_OP_PAIR_LOSS);
  if (loss) loss->in[5] = loss->out[1];
  return loss != NULL;
}

static bool tokens_counted(ls_program *program) {
  ls_instruction *count = find(program, LS_OP_COUNT_PAIRS);
  if (!count) return false;
  count->kind = LS_OP_COUNT_VALID;
  count->inputs = 1;
  count->attributes.sequence = 0;
  return true;
}

/* The last microbatch's pairs are held against the first one's reference. */
static bool another_pairs_reference(ls_program *program) {
  const int storage = program->values.items[program->reference].storage;
  const int wanted = program->storages.items[storage].buffer_group;
  bool changed = false;
  for (int a = 0; a < program->actions.count; a++) {
    const ls_program_action *action = &program->actions.items[a];
    const ls_body *body = &program->bodies.items[action->body];
    if (action->action.microbatch < 1) continue;
    for (int g = 0; g < body->buffer_groups.count; g++) {
      if (body->buffer_groups.items[g] != wanted) continue;
      action->live_intervals[g] -= action->action.microbatch;
      changed = true;
    }
  }
  return changed;
}

static const struct fault {
  bool (*alter)(ls_program *program);
  const char *said;
} faults[] = {
    {pairs_of_other_documents, "pair_loss"},
    {pairs_of_other_lengths, "sequence"},
    {another_beta_backward, "settings"},
    {other_documents_backward, "operands"},
    {rewards_by_the_reference, "pair_rewards"},
    {no_reference, ""},
    {tokens_counted, ""},
    {another_pairs_reference, "microbatch"},
};

static void the_proof_sees_faults(void **state) {
  (void)state;
  for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = config_of(arena, 0);
    ls_layout layout = layout_of(&cases[10]);
    layout.tp = 1;
    ls_graph *graph = graph_of(arena, &config, &layout, 0);
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
      fail_msg("fault %zu: %s", f, status == LS_OK ? "proved" : error.text);
    print_message("%s\n", error.text);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_proof_sees_faults),
      cmocka_unit_test(every_layout_equals_one_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
