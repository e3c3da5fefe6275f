/* Vectors of texts, told apart: under every strategy the training equals that of one device, in
 * fp64, with answers among which a text is to find its own on all ranks; a program that reads other
 * answers, or in which what they learn does not come home, is not proved. What the loss is, is held
 * to PyTorch's in texts_trace_test.c. */
#include <string.h>

#include "support/layouts.h"
#include "support/mutate.h"
#include "support/program_faults.h"

enum { SEQUENCES = 12 };

static ls_model_config config_of(ls_arena *arena, int shape) {
  static const ls_test_shape bert = {
      "bert",
      "{\"model_type\": \"bert\", \"vocab_size\": 37, \"max_position_embeddings\": 16, "
      "\"hidden_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 6, "
      "\"intermediate_size\": 23, \"type_vocab_size\": 2, \"hidden_dropout_prob\": 0.1, "
      "\"attention_probs_dropout_prob\": 0.1}"};
  static const ls_test_shape mixture = {
      "mixtral",
      "{\"model_type\": \"mixtral\", \"vocab_size\": 41, \"hidden_size\": 16, "
      "\"intermediate_size\": 13, \"num_hidden_layers\": 2, \"num_attention_heads\": 8, "
      "\"num_key_value_heads\": 2, \"max_position_embeddings\": 16, "
      "\"num_local_experts\": 6, \"num_experts_per_tok\": 2}"};
  const ls_test_shape *others[] = {&bert, &mixture};
  ls_model_config config = ls_test_shape_config(
      arena, shape < LS_TEST_SHAPES ? &ls_test_shapes[shape] : others[shape - LS_TEST_SHAPES]);
  config.vectors = true;
  return config;
}

/* Of as many tokens as the model is made for, at most. */
static ls_experiment experiment_of(const ls_model_config *config, const ls_text_pairs *texts) {
  return (ls_experiment){.config = config,
                         .sequences = SEQUENCES,
                         .sequence = config->positions < 12 ? config->positions : 12,
                         .documents = true,
                         .texts = *texts,
                         .learning_rate = 1e-2,
                         .seed = 7,
                         .saved = true,
                         .deadline_s = 60,
                         .steps = 2};
}

/* By shape. */
enum { RUN = 23, MOST_ROWS = 8, SHAPES = LS_TEST_SHAPES + 2 };
static const struct {
  ls_text_pairs texts;
  int count;
  ls_layout rows[MOST_ROWS];
} cases[SHAPES] = {
    {{2, 2, SEQUENCES, 20},
     3,
     {{.dp_replicate = 3},
      {.dp_replicate = 2, .dp_shard = 2, .zero = 3},
      {PIPE(2, "1f1b"), .dp_shard = 2, .zero = 3, EVERY}}},
    {{2, 3, 4, 5},
     8,
     {{.dp_shard = 2, .zero = 1},
      {.dp_shard = 4, .zero = 2, .microbatches = 3},
      {.tp = 2, .microbatches = 3, SP, EVERY},
      {.cp = 2},
      {.cp = 3, .tp = 2, .microbatches = 3},
      {.dp_shard = 2, .cp = 2, .tp = 2, .zero = 3, SP, EVERY},
      {PIPE(2, "zbh1"), .dp_shard = 2, .zero = 1, .microbatches = 3, .post_validation = true},
      {PIPE(2, "zbh2"), .cp = 2, .tp = 2, .microbatches = 3, SP}}},
    {{1, 3, 6, 20},
     3,
     {{.dp_shard = 3, .zero = 2, .microbatches = 2},
      {.dp_shard = 2, .tp = 3, .zero = 3, SP},
      {.dp_shard = 2, .offload = {.optimizer = LS_TIER_HOST, .activations = LS_TIER_HOST}}}},
    {{3, 2, 2, 20},
     4,
     {{.dp_shard = 2, .zero = 3, .microbatches = 3},
      {.cp = 2, .dp_replicate = 2, .microbatches = 2},
      {.tp = 2, SP, EVERY},
      {.dp_shard = 4, .microbatches = 3}}},
    {{2, 2, 6, 20},
     5,
     {{.dp_shard = 2, .ep = 2, .zero = 1},
      {.dp_shard = 2, .tp = 2, .ep = 2, .microbatches = 2},
      {.dp_replicate = 2, .dp_shard = 3, .ep = 3, .zero = 3},
      {.dp_shard = 2, .cp = 2, .ep = 2, .zero = 2, .microbatches = 2},
      {.cp = 2, .tp = 2, .ep = 2, SP}}},
};

static void every_layout_equals_one_device(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int shape = 0; shape < SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = config_of(arena, shape);
    const ls_experiment experiment = experiment_of(&config, &cases[shape].texts);
    ls_test_equal_layouts(&tally, &experiment, cases[shape].rows, cases[shape].count,
                          config.family);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, RUN, 0);
}

static bool other_sequences_answers(ls_program *program) {
  ls_instruction *match = ls_test_find(program, LS_OP_TEXT_MATCH, 0);
  if (match) match->attributes.pairs *= 2;
  return match;
}

static bool the_texts_that_ask_answer(ls_program *program) {
  ls_instruction *sums = ls_test_find(program, LS_OP_TEXT_SUMS, 1);
  if (sums) sums->attributes.answers = !sums->attributes.answers;
  return sums;
}

static bool another_temperature(ls_program *program) {
  ls_instruction *back = ls_test_find(program, LS_OP_TEXT_MATCH_BWD, 0);
  if (back) back->attributes.scale *= 2;
  return back;
}

static void the_proof_sees_faults(void **state) {
  (void)state;
  static const ls_test_fault faults[] = {
      {"other sequences' answers", other_sequences_answers, NULL, false},
      {"the texts that ask answer", the_texts_that_ask_answer, NULL, false},
      {"another temperature", another_temperature, NULL, true},
  };
  const ls_layout layout = ls_test_layout_of(&cases[1].rows[0]);
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = config_of(arena, 1);
  const ls_experiment experiment = experiment_of(&config, &cases[1].texts);
  ls_test_refute(&experiment, &layout, faults, sizeof faults / sizeof *faults);
  ls_arena_destroy(&arena);
}

typedef struct damage {
  int kind;
  uint64_t seed;
  char what[160];
} damage;

static bool damage_program(ls_program *program, void *context) {
  damage *about = context;
  return ls_mutate(program, about->kind, about->seed, about->what);
}

/* Accepted by the proof: then it is as good as the program. */
static int run_damaged(const ls_experiment *intact, const ls_layout *layout, damage *about,
                       const ls_trajectory *expected) {
  ls_arena *arena = ls_arena_create();
  ls_experiment experiment = *intact;
  ls_trajectory made;
  ls_error error = {0};
  const char *where = "";
  experiment.alter = damage_program;
  experiment.alter_context = about;
  const bool runs = ls_trajectory_run(arena, &experiment, layout, &made, &error) == LS_OK;
  const double worst = runs ? ls_trajectory_difference(&made, expected, &where) : 1;
  if (!(worst < 1e-9))
    print_message("%s (%s, seed %llu) is proved, and off by %g in %s\n",
                  ls_mutation_names[about->kind], about->what, (unsigned long long)about->seed,
                  worst, runs ? where : error.text);
  ls_arena_destroy(&arena);
  return !(worst < 1e-9);
}

/* Over two data axes, of which vectors are gathered together. */
static void damaged_programs_are_rejected_or_harmless(void **state) {
  (void)state;
  enum { SEEDS = 6 };
  ls_arena *arena = ls_arena_create();
  const ls_layout layout =
      ls_test_layout_of(&(ls_layout){.dp_replicate = 2, .dp_shard = 2, .zero = 2});
  const ls_model_config config = config_of(arena, 1);
  const ls_experiment experiment = experiment_of(&config, &cases[1].texts);
  ls_trajectory expected;
  ls_test_one_device(arena, &experiment, "intact", &expected);
  int made = 0, rejected = 0, wrong = 0;
  for (int m = 0; m < SEEDS * ls_mutation_count; m++) {
    damage about = {.kind = m / SEEDS, .seed = (uint64_t)(1000 + m)};
    ls_arena *scratch = ls_arena_create();
    const ls_test_step step = ls_test_compile(scratch, &experiment, &layout);
    ls_error error = {0};
    const bool damaged = damage_program(step.stages[0], &about);
    const bool refused = damaged && ls_test_check(&step, &error) != LS_OK;
    ls_arena_destroy(&scratch);
    made += damaged;
    rejected += refused;
    if (damaged && !refused) wrong += run_damaged(&experiment, &layout, &about, &expected);
  }
  print_message("%d of %d damaged programs rejected\n", rejected, made);
  ls_arena_destroy(&arena);
  assert_int_equal(wrong, 0);
  assert_true(made > 3 * ls_mutation_count && rejected * 2 > made);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_proof_sees_faults),
      cmocka_unit_test(damaged_programs_are_rejected_or_harmless),
      cmocka_unit_test(every_layout_equals_one_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
