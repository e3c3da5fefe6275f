/* A head over classes of texts: under every strategy the training equals that of one device, in
 * fp64, with texts side by side in masked sequences; a program whose
 * loss reads other labels is not proved. What the loss is, is held to PyTorch's in
 * classes_trace_slow_test.c. */
#include "support/layouts.h"
#include "support/program_faults.h"

enum { SEQUENCE = 8, SEQUENCES = 12 };

static ls_model_config config_of(ls_arena *arena, int shape) {
  static const char *const names[] = {"no", "perhaps", "yes"};
  ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
  ls_model_set_classes(arena, &config, names, 3 - shape % 2);
  return config;
}

/* By shape. */
enum { MOST_ROWS = 6, ROWS = 11 };
static const struct {
  int count;
  ls_layout rows[MOST_ROWS];
} layouts[LS_TEST_SHAPES] = {
    {3,
     {{.dp_replicate = 3},
      {.dp_replicate = 2, .dp_shard = 2, .zero = 3, .microbatches = 3},
      {PIPE(2, "1f1b"), .dp_shard = 2, .zero = 3, .microbatches = 2, EVERY}}},
    {6,
     {{.dp_shard = 2, .zero = 1, .microbatches = 2},
      {.tp = 2, .microbatches = 2, SP, EVERY},
      {.cp = 2},
      {.dp_shard = 2, .cp = 2, .tp = 2, .zero = 3, SP, EVERY},
      {PIPE(2, "zbh1"), .dp_shard = 2, .zero = 1, .microbatches = 3, .post_validation = true},
      {PIPE(2, "zbh2"), .cp = 2, .tp = 2, .microbatches = 4, SP}}},
    {2, {{.dp_shard = 3, .zero = 2, .microbatches = 2}, {.dp_shard = 2, .tp = 3, .zero = 3, SP}}},
};

static ls_experiment experiment_of(const ls_model_config *config) {
  return (ls_experiment){.config = config,
                         .sequences = SEQUENCES,
                         .sequence = SEQUENCE,
                         .documents = true,
                         .learning_rate = 1e-2,
                         .seed = 7,
                         .saved = true,
                         .deadline_s = 60,
                         .steps = 2};
}

static void every_layout_equals_one_device(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = config_of(arena, shape);
    const ls_experiment experiment = experiment_of(&config);
    ls_test_equal_layouts(&tally, &experiment, layouts[shape].rows, layouts[shape].count,
                          ls_test_shapes[shape].name);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, ROWS, 0);
}

static bool classes_of_another_input(ls_program *program) {
  ls_instruction *loss = ls_test_find(program, LS_OP_XENT_LOSS, 0);
  if (loss) loss->in[3] = program->positions;
  return loss;
}

static void the_proof_sees_other_labels(void **state) {
  (void)state;
  static const ls_test_fault fault = {"classes of another input", classes_of_another_input, NULL,
                                      false};
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = config_of(arena, 1);
  const ls_experiment experiment = experiment_of(&config);
  const ls_layout layout = ls_test_layout_of(&layouts[1].rows[1]);
  ls_test_refute(&experiment, &layout, &fault, 1);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_proof_sees_other_labels),
      cmocka_unit_test(every_layout_equals_one_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
