/* Strategies that no row of the product has: an axis that cuts tokens
 * everywhere but inside of attention, which it gives heads of all tokens
 * (DeepSpeed-Ulysses), so that placements ask for all-to-alls; and one on which
 * the residual stream's shards have gone round by one, so that they ask for
 * permutes. Over 2, 3, 5 and 8 ranks they are the same training as one device,
 * gradients included, in fp64 on the real collectives; their programs are
 * proved, and run with a thread for each queue; a wrong dimension is rejected,
 * and so is a wrong shift, or it changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "lower/compile.h"
#include "support/layouts.h"
#include "support/queue_device.h"
#include "verify/equality.h"

enum { STEPS = 2, MOST_STAGES = 2 };

static const double tolerance = 1e-10;

/* As many KV heads as eight ranks want. */
static const ls_test_shape eight = {
    "llama-8-kv",
    "{\"model_type\": \"llama\", \"vocab_size\": 41, \"hidden_size\": 32,"
    " \"intermediate_size\": 45, \"num_hidden_layers\": 2, "
    "\"num_attention_heads\": 16,"
    " \"num_key_value_heads\": 8, \"max_position_embeddings\": 16, "
    "\"rms_norm_eps\": 1e-5,"
    " \"tie_word_embeddings\": false}"};

typedef struct strategy {
  const ls_test_shape *shape;
  int ranks, shift, shards, zero, pp, microbatches;
} strategy;

/* 2, 3, 5 and 8 ranks; the last over two shards and two stages each. */
static const strategy strategies[] = {
    {&ls_test_shapes[0], 2, 0, 1, 1, 1, 1},
    {&ls_test_shapes[0], 3, 0, 2, 3, 1, 1},
    {&ls_test_shapes[0], 5, 0, 1, 1, 1, 3},
    {&eight, 8, 0, 1, 1, 1, 1},
    {&ls_test_shapes[0], 2, 1, 2, 2, 1, 3},
    {&ls_test_shapes[0], 3, 2, 1, 1, 1, 1},
    {&ls_test_shapes[0], 5, 3, 1, 1, 1, 1},
    {&eight, 8, 5, 1, 1, 1, 1},
    {&eight, 4, 0, 2, 3, 2, 3},
    {&eight, 2, 1, 2, 3, 2, 3},
};
enum { STRATEGIES = sizeof strategies / sizeof *strategies };

typedef struct made {
  ls_model_config config;
  ls_mesh mesh;
  ls_layout layout;
  const char *name;
  const ls_graph *graph;
  ls_program *stages[MOST_STAGES];
} made;

/* The usual mesh, whose tensor axis cuts tokens and no parameter. */
static void compile(ls_arena *arena, const strategy *of, made *into) {
  into->config = ls_test_shape_config(arena, of->shape);
  into->layout = ls_test_layout_default();
  into->layout.tp = of->ranks;
  into->layout.dp_shard = of->shards;
  into->layout.zero = of->zero;
  into->layout.pp = of->pp;
  into->layout.microbatches = of->microbatches;
  into->layout.sequence_parallel = true;
  into->layout.compute = LS_F64;
  into->layout.mesh = &into->mesh;
  into->mesh = ls_mesh_make((const int[LS_MESH_ROWS]){[LS_AXIS_PP] = of->pp,
                                                      [LS_AXIS_DP_REPLICATE] = 1,
                                                      [LS_AXIS_DP_SHARD] = of->shards,
                                                      [LS_AXIS_CP] = 1,
                                                      [LS_AXIS_TP_KV] = of->ranks,
                                                      [LS_AXIS_TP_GROUP] = 1});
  ls_axis *context = &into->mesh.axes[LS_AXIS_TP_KV];
  context->name = context->part = "context";
  context->shares = LS_SHARES_TOKENS | LS_SHARES_KV_HEADS;
  context->shift = of->shift;
  into->name =
      ls_arena_printf(arena, "%s, stream moved on by %d",
                      ls_test_layout_print(arena, &into->layout, of->shape->name), of->shift);
  ls_graph *graph =
      ls_test_model(arena, &into->config, &into->layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
  ls_graph_backward(graph);
  into->graph = graph;
  ls_error error = {0};
  if (ls_program_compile(graph, &into->layout, LS_PROGRAM_STEP, into->stages, &error) != LS_OK)
    fail_msg("%s: %s", into->name, error.text);
}

static ls_status check(const made *of, ls_error *error) {
  return ls_check(of->graph, &of->layout, (const ls_program *const *)of->stages, NULL, error);
}

static int count(const made *of, ls_collective collective) {
  int found = 0;
  for (int s = 0; s < of->layout.pp; s++)
    for (int i = 0; i < of->stages[s]->instructions.count; i++) {
      const ls_instruction *each = &of->stages[s]->instructions.items[i];
      found += each->collective == collective && each->phase != LS_END;
    }
  return found;
}

/* A value whose shards an altered program has elsewhere. */
typedef struct alteration {
  int stage, value;
  ls_placement placement;
} alteration;

static bool alter(ls_program *program, void *context) {
  const alteration *of = context;
  if (program->stage != of->stage) return false;
  program->values.items[of->value].placement = of->placement;
  return true;
}

static double train(ls_arena *arena, const made *of, bool saved, const alteration *altered,
                    const char **where) {
  ls_experiment experiment = {.config = &of->config,
                              .sequences = LS_TEST_SEQUENCES,
                              .sequence = LS_TEST_SEQUENCE,
                              .seed = 20261123,
                              .learning_rate = 0.01,
                              .saved = saved,
                              .steps = STEPS};
  ls_layout one = ls_test_layout_default();
  one.compute = LS_F64;
  ls_trajectory reference, found;
  ls_error error = {0};
  if (ls_trajectory_run(arena, &experiment, &one, &reference, &error) != LS_OK)
    fail_msg("%s: %s", of->name, error.text);
  if (altered) experiment.alter = alter;
  experiment.alter_context = (void *)altered;
  if (ls_trajectory_run(arena, &experiment, &of->layout, &found, &error) != LS_OK)
    fail_msg("%s: %s", of->name, error.text);
  return ls_trajectory_difference(&found, &reference, where);
}

/* Of a layer forward: queries, keys and values go to their heads, what comes of
 * them goes back. Backward: the three and the gradient of what came of them go
 * to their heads, three gradients back, and what came of them once more for the
 * gradient of the weights behind it. */
static void test_tokens_become_heads_and_back(void **state) {
  (void)state;
  double worst = 0;
  for (int s = 0; s < STRATEGIES; s++) {
    ls_arena *arena = ls_arena_create();
    made of;
    ls_error error = {0};
    compile(arena, &strategies[s], &of);
    if (check(&of, &error) != LS_OK) fail_msg("%s: %s", of.name, error.text);
    const int exchanges = count(&of, LS_ALL_TO_ALL), permutes = count(&of, LS_PERMUTE);
    assert_int_equal(exchanges, 12 * of.config.layers);
    assert_int_equal(permutes > 0, strategies[s].shift > 0);
    const char *where;
    const double difference = train(arena, &of, s % 2, NULL, &where);
    print_message("%s: %d all-to-alls, %d permutes, %.2g\n", of.name, exchanges, permutes,
                  difference);
    if (!(difference <= tolerance)) fail_msg("%s: %.3g in %s", of.name, difference, where);
    if (difference > worst) worst = difference;
    ls_arena_destroy(&arena);
  }
  print_message("worst difference %.3g\n", worst);
}

typedef struct tally {
  int rejected, equal;
} tally;

/* Whether the program with this value elsewhere is rejected; one that is not
 * must train alike: all that reads the value may go by its place. */
static bool is_rejected(const made *of, const alteration *altered) {
  ls_placement *placement = &of->stages[altered->stage]->values.items[altered->value].placement;
  const ls_placement right = *placement;
  ls_error error = {0};
  *placement = altered->placement;
  const ls_status status = check(of, &error);
  *placement = right;
  if (status == LS_REFUTED) return true;
  const char *where;
  ls_arena *arena = ls_arena_create();
  const double difference = train(arena, of, false, altered, &where);
  if (!(difference <= tolerance))
    fail_msg("%s: accepted, and %.3g in %s", of->name, difference, where);
  ls_arena_destroy(&arena);
  return false;
}

/* Each value that a collective of this kind makes, told another place. */
static void spoil(const made *of, ls_collective collective, tally *found) {
  for (int s = 0; s < of->layout.pp; s++)
    for (int i = 0; i < of->stages[s]->instructions.count; i++) {
      const ls_instruction *each = &of->stages[s]->instructions.items[i];
      if (each->collective != collective) continue;
      alteration wrong = {s, each->out[0], of->stages[s]->values.items[each->out[0]].placement};
      ls_place *place = &wrong.placement.on[LS_AXIS_TP_KV];
      if (collective == LS_PERMUTE)
        place->shift = (short)((place->shift + 1) % of->mesh.axes[LS_AXIS_TP_KV].size);
      else
        place->dim = 1 - place->dim;
      if (is_rejected(of, &wrong))
        found->rejected++;
      else
        found->equal++;
    }
}

static void test_wrong_dimensions_and_shifts_are_rejected(void **state) {
  (void)state;
  tally dimensions = {0}, shifts = {0};
  for (int s = 0; s < STRATEGIES; s++) {
    ls_arena *arena = ls_arena_create();
    made of;
    compile(arena, &strategies[s], &of);
    spoil(&of, LS_ALL_TO_ALL, &dimensions);
    spoil(&of, LS_PERMUTE, &shifts);
    ls_arena_destroy(&arena);
  }
  print_message(
      "wrong dimensions: %d rejected, %d equal; wrong shifts: %d "
      "rejected, %d equal\n",
      dimensions.rejected, dimensions.equal, shifts.rejected, shifts.equal);
  assert_true(dimensions.rejected > 200 && dimensions.equal == 0 && shifts.rejected > 40);
}

/* All-to-alls and permutes among whatever the queues' events leave open. */
static void test_queues_may_run_in_any_order(void **state) {
  (void)state;
  enum { SEED = 20261123 };
  static const ls_order orders[] = {LS_ORDER_LATE, LS_ORDER_SEEDED, LS_ORDER_FREE};
  for (int s = 0; s < STRATEGIES; s++) {
    ls_arena *arena = ls_arena_create();
    made of;
    compile(arena, &strategies[s], &of);
    const ls_program *const *stages = (const ls_program *const *)of.stages;
    ls_queue_memory *issued = ls_queue_memory_make(arena, stages, SEED);
    ls_queue_device_run(stages, issued, LS_ORDER_ISSUED, 0);
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
      ls_queue_memory *found = ls_queue_memory_make(arena, stages, SEED);
      ls_queue_device_run(stages, found, orders[o], SEED + (uint64_t)s);
      if (!ls_queue_memory_equal(stages, issued, found))
        fail_msg("%s: other bits in order %d", of.name, (int)orders[o]);
    }
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tokens_become_heads_and_back),
      cmocka_unit_test(test_queues_may_run_in_any_order),
      cmocka_unit_test(test_wrong_dimensions_and_shifts_are_rejected)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
