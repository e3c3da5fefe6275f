/* Frozen parameters: by hand against a training of everything, and programs in which one is not
 * left alone are disproved. (Every layout: matrix_options_test.) */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "lower/compile.h"
#include "store/freeze.h"
#include "support/layouts.h"
#include "support/program_faults.h"
#include "verify/equality.h"

static const char *const names[] = {"embedding", "layers.0", "*.norm"};
enum { NAMES = 3 };

static bool is_named(const char *parameter) {
  return strncmp(parameter, "embedding", 9) == 0 || strncmp(parameter, "layers.0.", 9) == 0 ||
         strstr(parameter, ".norm");
}

static void train(ls_arena *arena, const ls_model_config *config, int freeze, int steps,
                  ls_trajectory *made) {
  const ls_experiment experiment = {.config = config,
                                    .freeze = names,
                                    .freeze_count = freeze,
                                    .sequences = LS_TEST_SEQUENCES,
                                    .sequence = LS_TEST_SEQUENCE,
                                    .learning_rate = 1e-2,
                                    .seed = 5,
                                    .steps = steps};
  ls_layout layout = ls_layout_default();
  layout.compute = LS_F64;
  layout.optimizer.clip = 0;
  ls_error error = {0};
  if (ls_trajectory_run(arena, &experiment, &layout, made, &error) != LS_OK)
    fail_msg("%s", error.text);
}

/* Without clipping a step moves each parameter by its own gradient alone: those that are trained do
 * as in a training of all, and the norm is that of their gradients. */
static void a_step_is_that_of_the_others(void **state) {
  (void)state;
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
    ls_trajectory all, some;
    train(arena, &config, 0, 1, &all);
    train(arena, &config, NAMES, 3, &some);
    double squares = 0;
    int frozen = 0;
    for (int p = 0; p < all.parameters; p++) {
      const size_t bytes = sizeof(double) * (size_t)all.elements[p];
      const bool stays = is_named(all.name[p]);
      frozen += stays;
      for (int64_t i = 0; i < all.elements[p]; i++)
        if (!stays) squares += all.gradient[p][i] * all.gradient[p][i];
      for (int64_t i = 0; i < all.elements[p] && stays; i++) assert_true(some.gradient[p][i] == 0);
      if (!stays) assert_memory_equal(some.gradient[p], all.gradient[p], bytes);
      if (!stays) assert_memory_equal(some.first[p], all.first[p], bytes);
      assert_int_equal(memcmp(some.first[p], some.final[p], bytes) == 0, stays);
      if (stays) assert_memory_not_equal(some.first[p], all.first[p], bytes);
    }
    assert_true(frozen > 0 && frozen < all.parameters);
    assert_true(some.loss[0] == all.loss[0]);
    assert_true(fabs(some.norm[0] - sqrt(squares)) < 1e-14 * sqrt(squares));
    ls_arena_destroy(&arena);
  }
}

typedef struct compiled {
  ls_graph *graph;
  ls_program *program;
} compiled;

static compiled compile(ls_arena *arena, int freeze) {
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
  ls_layout layout = ls_layout_default();
  layout.dp_shard = 2;
  compiled made;
  ls_error error = {0};
  made.graph = ls_test_model(arena, &config, &layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
  if (ls_freeze(&config, made.graph, names, freeze, &error) != LS_OK) fail_msg("%s", error.text);
  ls_graph_backward(made.graph);
  if (ls_program_compile(made.graph, &layout, LS_PROGRAM_STEP, &made.program, &error) != LS_OK)
    fail_msg("%s", error.text);
  return made;
}

static bool proves(const compiled *of, const char *expected) {
  const ls_program *const stages[] = {of->program};
  ls_error error = {0};
  const ls_status status = ls_check(of->graph, &of->program->layout, stages, NULL, &error);
  if (expected && !strstr(error.text, expected)) fail_msg("%s: %s", expected, error.text);
  return status == LS_OK;
}

static int find_parameter(const ls_program *program, bool trainable) {
  for (int p = 0; p < program->parameter_count; p++)
    if (program->parameters[p].trainable == trainable && program->parameters[p].ndim == 2) return p;
  return -1;
}

/* A gradient that is summed, an update, or a mark that is another than the model's. */
static void what_is_not_left_alone_is_disproved(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  compiled made = compile(arena, NAMES);
  ls_program_parameter *parameters = made.program->parameters;
  const int frozen = find_parameter(made.program, false),
            trained = find_parameter(made.program, true);
  assert_true(proves(&made, NULL));
  parameters[frozen].trainable = true;
  assert_false(proves(&made, "is trainable: expected it frozen"));
  parameters[frozen].trainable = false;
  parameters[trained].trainable = false;
  assert_false(proves(&made, "is frozen: expected it trainable"));
  parameters[trained].trainable = true;
  parameters[frozen].part[LS_PART_MOMENT1] = parameters[trained].part[LS_PART_MOMENT1];
  assert_false(proves(&made, "is frozen, but has first moments"));
  parameters[frozen].part[LS_PART_MOMENT1] = -1;
  ls_instruction *update = ls_test_need(made.program, LS_OP_ADAMW, 0);
  const int was = update->out[0];
  update->out[0] = parameters[frozen].part[LS_PART_STORED];
  assert_false(proves(&made, NULL));
  update->out[0] = was;
  assert_true(proves(&made, NULL));
  made.graph = compile(arena, 1).graph;
  assert_false(proves(&made, "is frozen: expected it trainable"));
  ls_arena_destroy(&arena);
}

static int count_norms(const ls_program *program, int outputs) {
  int count = 0;
  for (int i = 0; i < program->instructions.count; i++)
    count += program->instructions.items[i].collective == LS_COLLECTIVE_NONE &&
             program->instructions.items[i].kind == LS_OP_RMSNORM_BWD &&
             program->instructions.items[i].outputs == outputs;
  return count;
}

/* The gradient of a norm's weight is not made where the weight is frozen, though that of what it
 * reads is. */
static void a_frozen_norm_makes_one_gradient(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_program *all = compile(arena, 0).program, *some = compile(arena, NAMES).program;
  assert_int_equal(count_norms(all, 1), 0);
  assert_int_equal(count_norms(all, 2), 5); /* two a layer, and the last */
  assert_int_equal(count_norms(some, 2), 0);
  assert_int_equal(count_norms(some, 1), 2); /* the last, and what layers.1's MLP reads */
  ls_arena_destroy(&arena);
}

/* A unit is all of one kind; moments are of what is trained alone. */
static void frozen_parameters_take_their_weights_alone(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_program *all = compile(arena, 0).program, *some = compile(arena, NAMES).program;
  int64_t before[LS_CATEGORY_COUNT], after[LS_CATEGORY_COUNT], left = 0;
  ls_program_peak(all, before);
  ls_program_peak(some, after);
  for (int p = 0; p < some->parameter_count; p++) {
    const ls_program_parameter *one = &some->parameters[p];
    assert_int_equal(one->trainable, !is_named(one->name));
    for (int q = 0; q < p; q++)
      if (some->parameters[q].unit == one->unit)
        assert_int_equal(some->parameters[q].trainable, one->trainable);
    int64_t elements = 1;
    for (int d = 0; d < one->ndim; d++) elements *= one->dims[d];
    if (one->trainable) left += elements;
  }
  assert_true(after[LS_CATEGORY_MOMENTS] >= left / 2 * 2 * 4);
  assert_true(after[LS_CATEGORY_MOMENTS] < before[LS_CATEGORY_MOMENTS] * 3 / 4);
  assert_true(after[LS_CATEGORY_GRADIENTS] < before[LS_CATEGORY_GRADIENTS]);
  assert_true(after[LS_CATEGORY_ACTIVATIONS] < before[LS_CATEGORY_ACTIVATIONS]);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_step_is_that_of_the_others),
      cmocka_unit_test(what_is_not_left_alone_is_disproved),
      cmocka_unit_test(a_frozen_norm_makes_one_gradient),
      cmocka_unit_test(frozen_parameters_take_their_weights_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
