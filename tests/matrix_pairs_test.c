/* A loss over pairs of answers: under every strategy the training equals that of one device, in
 * fp64, with and without adapters; the programs are proved; and the proof sees a pair's operands
 * exchanged. What the loss is, is held to PyTorch's in pairs_trace_test.c. */
#include "support/layouts.h"
#include "support/program_faults.h"

enum { SEQUENCE = 8, SEQUENCES = 12 };

/* By shape; the last are odds ratios, of the first shape again. */
static const ls_model_pairs pairs[] = {
    {.beta = 0.3}, {.beta = 0.3, .smoothing = 0.2}, {.beta = 0.5}, {.beta = 0.3, .odds = true}};
enum { CASES = sizeof pairs / sizeof *pairs };

/* Of the last shape adapters are trained alone. */
static ls_model_config config_of(ls_arena *arena, int shape) {
  ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
  if (shape != LS_TEST_SHAPES - 1) return config;
  config.lora_rank = 3;
  config.lora_alpha = 5;
  config.lora_targets = (1 << LS_MODEL_LINEARS) - 1;
  return config;
}

static const ls_layout rows[] = {
    {.dp_replicate = 3},
    {.dp_shard = 2, .zero = 1, .microbatches = 2},
    {.dp_shard = 3, .zero = 2, .microbatches = 2},
    {.dp_shard = 4, .zero = 3},
    {.dp_replicate = 2, .dp_shard = 2, .zero = 3, .microbatches = 3},
    {.tp = 2},
    {.tp = 2, .microbatches = 2, SP, EVERY},
    {.tp = 3, SP},
    {.dp_shard = 2, .tp = 2, .zero = 3, .microbatches = 2, SP},
    {PIPE(2, "1f1b"), .microbatches = 4},
    {PIPE(2, "1f1b"), .dp_shard = 2, .zero = 3, .microbatches = 2, EVERY},
    {PIPE(2, "gpipe"), .tp = 2, .microbatches = 2, SP},
    {PIPE(2, "zbh1"), .dp_shard = 2, .zero = 1, .microbatches = 3, .post_validation = true},
    {PIPE(2, "zbh2"), .tp = 2, .microbatches = 4, SP},
    /* ranks have parts of answers */
    {.cp = 2},
    {.cp = 2, .dp_replicate = 3, .microbatches = 2},
    {.cp = 2, .tp = 2, .microbatches = 2, SP, EVERY},
    {.cp = 2, .dp_shard = 2, .zero = 3, .context = LS_CONTEXT_RING},
    {.cp = 2, PIPE(2, "1f1b"), .dp_shard = 2, .zero = 2, .microbatches = 2},
    {.cp = 2, PIPE(2, "zbh1"), .microbatches = 3, .context = LS_CONTEXT_ULYSSES},
};
/* The heads of the second shape do not allow tp 3, of the third tp 2. */
enum { ROWS = sizeof rows / sizeof *rows, RUN = 70, REFUSED = CASES * ROWS - RUN };

static ls_experiment experiment_of(const ls_model_config *config, int which) {
  return (ls_experiment){.config = config,
                         .sequences = SEQUENCES,
                         .sequence = SEQUENCE,
                         .pairs = pairs[which],
                         .learning_rate = 1e-2,
                         .seed = 7,
                         .saved = true,
                         .deadline_s = 60};
}

static void every_layout_equals_one_device(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int which = 0; which < CASES; which++) {
    const int shape = which % LS_TEST_SHAPES;
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = config_of(arena, shape);
    const ls_experiment experiment = experiment_of(&config, which);
    ls_test_equal_layouts(&tally, &experiment, rows, ROWS, ls_test_shapes[shape].name);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, RUN, REFUSED);
}

static void exchange(int *a, int *b) {
  const int kept = *a;
  *a = *b;
  *b = kept;
}

/* Each alters a program of the step; false: there is nothing to alter. */
static bool pairs_of_other_documents(ls_program *program) { /* begun where labels are, not */
  ls_instruction *loss = ls_test_find(program, LS_OP_PAIR_LOSS, 0);
  if (loss) exchange(&loss->in[3], &loss->in[4]);
  return loss;
}

static bool pairs_of_other_lengths(ls_program *program) {
  ls_instruction *loss = ls_test_find(program, LS_OP_PAIR_LOSS, 0);
  if (loss) loss->attributes.sequence = SEQUENCE / 2;
  return loss;
}

static bool another_beta_backward(ls_program *program) {
  ls_instruction *back = ls_test_find(program, LS_OP_PAIR_LOSS_BWD, 0);
  if (back) back->attributes.dpo_beta *= 2;
  return back;
}

static bool other_documents_backward(ls_program *program) {
  ls_instruction *back = ls_test_find(program, LS_OP_PAIR_LOSS_BWD, 0);
  if (back) back->in[2] = back->in[1];
  return back;
}

static bool rewards_by_the_reference(ls_program *program) {
  ls_instruction *told = ls_test_find(program, LS_OP_PAIR_REWARDS, 0);
  if (told) told->in[0] = program->reference;
  return told;
}

static bool no_reference(ls_program *program) { /* what backward reads stands in its place */
  ls_instruction *loss = ls_test_find(program, LS_OP_PAIR_LOSS, 0);
  if (loss) loss->in[5] = loss->out[1];
  return loss;
}

static bool tokens_counted(ls_program *program) {
  ls_instruction *count = ls_test_find(program, LS_OP_COUNT_WEIGHTS, 0);
  if (!count) return false;
  count->kind = LS_OP_COUNT_VALID;
  count->inputs = 1;
  return true;
}

/* The last microbatch's pairs are held against the first one's reference. */
static bool another_pairs_reference(ls_program *program) {
  return program->reference >= 0 && ls_test_of_first_microbatch(program, program->reference);
}

static bool differences_backward(ls_program *program) { /* in place of odds */
  ls_instruction *back = ls_test_find(program, LS_OP_PAIR_LOSS_BWD, 0);
  if (back) back->attributes.scale = 0;
  return back;
}

static const ls_test_fault of_odds = {"differences backward", differences_backward, "settings",
                                      false};

static const ls_test_fault faults[] = {
    {"pairs of other documents", pairs_of_other_documents, "pair_loss", false},
    {"pairs of other lengths", pairs_of_other_lengths, "sequence", false},
    {"another beta backward", another_beta_backward, "settings", false},
    {"other documents backward", other_documents_backward, "operands", false},
    {"rewards by the reference", rewards_by_the_reference, "pair_rewards", false},
    {"no reference", no_reference, NULL, false},
    {"tokens counted", tokens_counted, NULL, false},
    {"another pairs' reference", another_pairs_reference, "microbatch", false},
};

static void the_proof_sees_faults(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = config_of(arena, 0);
  const ls_experiment experiment = experiment_of(&config, 0);
  const ls_layout layout = ls_test_layout_of(&rows[10]);
  ls_test_refute(&experiment, &layout, faults, sizeof faults / sizeof *faults);
  const ls_experiment odds = experiment_of(&config, CASES - 1);
  ls_test_refute(&odds, &layout, &of_odds, 1);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_proof_sees_faults),
      cmocka_unit_test(every_layout_equals_one_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
