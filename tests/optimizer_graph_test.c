/* An optimizer that the product has no row for: a graph of four nodes with a temporary of elements
 * and two numbers, one of which is the norm of a whole parameter's gradient, so that it is not
 * element-wise. Nothing outside of its row knows of it: in every layout here it is lowered, proved,
 * and the same training as on one device. And what is not the row's update is disproved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "check/check.h"
#include "lower/compile.h"
#include "support/layouts.h"
#include "support/program_faults.h"
#include "verify/equality.h"

enum { STEPS = 3, MOST_STAGES = 2, MOST_LAYOUTS = 24 };

static const double tolerance = 1e-10;

#define PART(part) \
  { LS_FROM_PART, LS_PART_##part }
#define CELL(cell) \
  { LS_FROM_CELL, LS_CELL_##cell }
#define SETTING(from, to, key) \
  { offsetof(ls_optimizer, from), offsetof(ls_attributes, to), key }

/* SGD by a gradient that is clipped by its parameter's own norm, and of what that would make of the
 * weights again SGD: the second goes down by the weights, as decay does. */
static const ls_optimizer_row twice = {
    .name = "clipped one by one",
    .nodes = 4,
    .node = {{.op = LS_OP_SQUARED_NORM,
              .inputs = 1,
              .in = {PART(GRADIENT)},
              .outputs = 1,
              .out = {{LS_FROM_NUMBER, 0}},
              .attributes = {.weight = 1}},
             {.op = LS_OP_CLIP_FACTOR,
              .inputs = 4,
              .in = {{LS_FROM_NUMBER, 0}, CELL(LOSS_SUM), CELL(VALID_TOKENS), CELL(SCALE)},
              .outputs = 3,
              .out = {{LS_FROM_NUMBER, 1}, {LS_FROM_NUMBER, 2}, {LS_FROM_NUMBER, 3}},
              .settings = 1,
              .setting = {SETTING(clip, clip, "train.clip")}},
             {.op = LS_OP_SGD_SPECULATE,
              .inputs = 6,
              .in = {PART(GRADIENT),
                     CELL(LEARNING_RATE),
                     CELL(STEP),
                     {LS_FROM_NUMBER, 2},
                     PART(MASTER),
                     PART(MOMENT1)},
              .outputs = 1,
              .out = {{LS_FROM_ELEMENTS, 0}},
              .settings = 1,
              .setting = {SETTING(momentum, beta1, "optimizer.momentum")}},
             {.op = LS_OP_SGD,
              .inputs = 4,
              .in = {{LS_FROM_ELEMENTS, 0}, CELL(LEARNING_RATE), CELL(STEP), CELL(CLIP_FACTOR)},
              .outputs = 2,
              .out = {PART(MASTER), PART(MOMENT1)},
              .settings = 1,
              .setting = {SETTING(momentum, beta1, "optimizer.momentum")}}}};

static ls_layout layout_of(const ls_optimizer_row *row) {
  ls_layout layout = ls_layout_default();
  layout.compute = LS_F64;
  layout.optimizer.row = row;
  layout.optimizer.momentum = 0.9;
  layout.optimizer.clip = 0.05; /* below the norm of most parameters' gradients */
  return layout;
}

typedef struct compiled {
  ls_graph *graph;
  ls_layout layout;
  ls_program *stages[MOST_STAGES];
} compiled;

static compiled compile(ls_arena *arena, const ls_model_config *config, const ls_layout *layout) {
  compiled made = {.layout = *layout};
  ls_error error = {0};
  made.graph = ls_test_model(arena, config, layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
  ls_graph_backward(made.graph);
  if (ls_program_compile(made.graph, layout, LS_PROGRAM_STEP, made.stages, &error) != LS_OK)
    fail_msg("%s", error.text);
  return made;
}

static bool proves(const compiled *of, const char *expected) {
  const ls_program *programs[MOST_STAGES];
  ls_error error = {0};
  for (int s = 0; s < of->layout.pp; s++) programs[s] = of->stages[s];
  const ls_status status = ls_check(of->graph, &of->layout, programs, NULL, &error);
  if (expected && !strstr(error.text, expected)) fail_msg("%s: %s", expected, error.text);
  if (!expected && status != LS_OK) fail_msg("%s", error.text);
  return status == LS_OK;
}

static int list_layouts(ls_layout *layouts, int tp) {
  int count = 0;
  for (int zero = 0; zero < 4; zero++)
    for (int kind = 0; kind < 5; kind++) {
      ls_layout *layout = &layouts[count++];
      *layout = layout_of(&twice);
      layout->zero = zero;
      layout->dp_shard = kind == 1 ? 3 : 2;
      layout->tp = kind == 2 || kind == 3 ? tp : 1;
      layout->sequence_parallel = kind == 3;
      layout->dp_replicate = kind == 3 ? 2 : 1;
      layout->pp = kind == 1 ? 2 : 1;
      layout->microbatches = kind == 1 ? 4 : 1;
      if (kind == 4)
        layout->offload = (ls_offload){LS_TIER_HOST, 0.5, LS_TIER_DEVICE, LS_TIER_DEVICE};
      if (kind == 4 && zero == 3) layout->offload.optimizer = LS_TIER_NVME;
    }
  return count;
}

static void test_every_layout_is_the_same_training(void **state) {
  (void)state;
  char folder[] = "/tmp/lockstep-optimizer-XXXXXX";
  assert_non_null(mkdtemp(folder));
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
    const ls_experiment experiment = {.config = &config,
                                      .sequences = LS_TEST_SEQUENCES,
                                      .sequence = LS_TEST_SEQUENCE,
                                      .learning_rate = 1e-2,
                                      .offload_path = folder,
                                      .seed = 7,
                                      .steps = STEPS};
    ls_trajectory one, many, usual;
    ls_error error = {0};
    ls_layout layouts[MOST_LAYOUTS], single = layout_of(&twice), sgd = layout_of(NULL);
    sgd.optimizer.kind = LS_OPTIMIZER_SGD;
    assert_int_equal(ls_trajectory_run(arena, &experiment, &single, &one, &error), LS_OK);
    assert_int_equal(ls_trajectory_run(arena, &experiment, &sgd, &usual, &error), LS_OK);
    const char *where;
    assert_true(ls_trajectory_difference(&usual, &one, &where) > 1e-4);
    const int count = list_layouts(layouts, config.kv_heads % 2 == 0 ? 2 : 3);
    for (int l = 0; l < count; l++) {
      const char *name = ls_test_layout_print(arena, &layouts[l], ls_test_shapes[shape].name);
      const compiled made = compile(arena, &config, &layouts[l]);
      assert_true(proves(&made, NULL));
      if (ls_trajectory_run(arena, &experiment, &layouts[l], &many, &error) != LS_OK)
        fail_msg("%s: %s", name, error.text);
      const double difference = ls_trajectory_difference(&many, &one, &where);
      if (!(difference <= tolerance)) fail_msg("%s: %.3g in %s", name, difference, where);
    }
    ls_arena_destroy(&arena);
  }
  rmdir(folder);
}

/* Which fault, and how `check` names it. */
typedef struct fault {
  ls_op_kind kind;
  int which, operand;
  ls_op_kind of; /* of this op's output 0 the operand becomes */
  int from;
  const char *expected;
} fault;

static void test_another_update_is_disproved(void **state) {
  (void)state;
  static const fault faults[] = {
      /* What was made of the parameter before; another number; that again; another cell. */
      {LS_OP_SGD, 2, 0, LS_OP_SGD_SPECULATE, 1, "elsewhere: expected its own place"},
      {LS_OP_SGD_SPECULATE, 0, 3, LS_OP_RECIPROCAL, 0,
       "expected what an earlier node made of the same parameter"},
      {LS_OP_SGD_SPECULATE, 2, 0, LS_OP_SGD_SPECULATE, 1, "reads no gradient of a parameter"},
      {LS_OP_SGD, 0, 3, LS_OP_RECIPROCAL, 0, "is not the cell it should be"},
  };
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
  ls_layout layout = layout_of(&twice);
  layout.dp_shard = 2;
  const compiled made = compile(arena, &config, &layout);
  for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
    ls_instruction *at = ls_test_need(made.stages[0], faults[f].kind, faults[f].which);
    const int was = at->in[faults[f].operand];
    at->in[faults[f].operand] = ls_test_need(made.stages[0], faults[f].of, faults[f].from)->out[0];
    assert_false(proves(&made, faults[f].expected));
    at->in[faults[f].operand] = was;
  }
  ls_instruction *third = ls_test_need(made.stages[0], LS_OP_SGD_SPECULATE, 0);
  third->attributes.beta1 /= 2;
  assert_false(proves(&made, "has other settings than the layout"));
  third->attributes.beta1 *= 2;
  assert_true(proves(&made, NULL));
  ls_arena_destroy(&arena);
}

/* Without the sum over shards each rank would clip by its own shard's norm. */
static void test_a_norm_of_shards_is_summed(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
  ls_layout layout = layout_of(&twice);
  layout.dp_shard = 2;
  const compiled made = compile(arena, &config, &layout);
  ls_instruction *norm = ls_test_need(made.stages[0], LS_OP_CLIP_FACTOR, 1) - 1;
  assert_int_equal(norm->collective, LS_ALL_REDUCE);
  assert_non_null(strstr(norm->reason, "squared_norm of "));
  assert_non_null(strstr(norm->reason, "P(sum) on dp_shard -> R"));
  norm->axes = 0;
  assert_false(proves(&made, "is over no axis with several ranks"));
  ls_arena_destroy(&arena);
}

static void test_post_validation_is_refused(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
  ls_layout layout = layout_of(&twice);
  layout.pp = 2;
  layout.microbatches = 4;
  layout.schedule = "zbh1";
  layout.post_validation = true;
  ls_graph *graph = ls_test_model(arena, &config, &layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
  ls_program *stages[MOST_STAGES];
  ls_error error = {0};
  ls_graph_backward(graph);
  assert_int_equal(ls_program_compile(graph, &layout, LS_PROGRAM_STEP, stages, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "optimizer.name=clipped one by one"));
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_layout_is_the_same_training),
      cmocka_unit_test(test_another_update_is_disproved),
      cmocka_unit_test(test_a_norm_of_shards_is_summed),
      cmocka_unit_test(test_post_validation_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
