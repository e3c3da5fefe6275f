/* The evaluation is a program of its own over the region the step keeps its parameters in: under
 * every strategy, before and after updates, it gives the loss that the step gives. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "lower/compile.h"
#include "run/rank_parameters.h"
#include "run/rank_threads.h"
#include "session/inputs.h"
#include "support/layouts.h"

enum { SEQUENCES = 12, STEPS = 2, SEED = 20261121 };

typedef struct job {
  const ls_program *programs[2]; /* step, evaluation */
  ls_device device;
  double step_loss[STEPS], evaluation_loss[STEPS];
} job;

static ls_status take_tokens(void *context, int64_t step, int64_t first, int64_t count,
                             const ls_batch *batch, ls_error *error) {
  (void)step, (void)error;
  const ls_program *program = context;
  for (int64_t at = first; at < first + count; at++) {
    batch->ids[at - first] = (int32_t)(at * 7 % 37);
    batch->labels[at - first] = at % 5 ? (int32_t)(at * 11 % 37) : -1;
    batch->positions[at - first] = (int32_t)(at % program->sequence);
  }
  return LS_OK;
}

static ls_status fill_parameters(ls_rank *rank, const ls_program *program, ls_error *error) {
  for (int p = 0; p < program->parameter_count; p++) {
    const int64_t count = ls_program_parameter_elements(&program->parameters[p]);
    for (int64_t i = 0; i < count; i++) {
      const double value = 0.3 * ls_random_normal(SEED, (uint64_t)p, (uint64_t)i);
      LS_TRY(
          ls_rank_write_parameter(rank, program, p, LS_PART_MASTER, i, 1, &value, LS_F64, error));
    }
  }
  return LS_OK;
}

static ls_status train_and_evaluate(ls_rank *rank, job *work, ls_error *error) {
  const ls_inputs inputs = {.take = take_tokens, .context = (void *)work->programs[0]};
  LS_TRY(fill_parameters(rank, work->programs[0], error));
  ls_rank_set_cell(rank, LS_CELL_LEARNING_RATE, 0.01);
  for (int s = 0; s < STEPS; s++) {
    LS_TRY(ls_inputs_fill(&inputs, rank, 1, 0, s, error));
    LS_TRY(ls_rank_run(rank, 1, error));
    const double evaluated = ls_rank_cell(rank, LS_CELL_MEAN_LOSS);
    LS_TRY(ls_inputs_fill(&inputs, rank, 0, 0, s, error));
    ls_rank_set_cell(rank, LS_CELL_STEP, s + 1);
    LS_TRY(ls_rank_run(rank, 0, error));
    if (ls_rank_number(rank) != 0) continue;
    work->evaluation_loss[s] = evaluated;
    work->step_loss[s] = ls_rank_cell(rank, LS_CELL_MEAN_LOSS);
  }
  return LS_OK;
}

static ls_status rank_body(ls_comm *comm, void *context, ls_error *error) {
  job *work = context;
  ls_rank *rank;
  const ls_rank_options options = {
      .programs = work->programs, .program_count = 2, .device = &work->device};
  LS_TRY(ls_rank_create(comm, &options, &rank, error));
  const ls_status status = train_and_evaluate(rank, work, error);
  ls_rank_destroy(&rank);
  return status;
}

static const ls_program *compile(ls_arena *arena, const ls_test_shape *shape,
                                 const ls_layout *layout, bool step) {
  ls_model_config config = ls_test_shape_config(arena, shape);
  config.dropout = (ls_dropout){0}; /* which evaluation is without */
  const ls_build_options options = {.mode = step ? LS_MODEL_TRAIN : LS_MODEL_FORWARD,
                                    .tokens = SEQUENCES * LS_TEST_SEQUENCE,
                                    .sequence = LS_TEST_SEQUENCE};
  ls_graph *graph;
  ls_program *program;
  ls_error error = {0};
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
  if (step) ls_graph_backward(graph);
  if (ls_program_compile(graph, layout, step ? LS_PROGRAM_STEP : LS_PROGRAM_FORWARD, &program,
                         &error) != LS_OK)
    fail_msg("%s", error.text);
  return program;
}

static void check(const ls_test_shape *shape, const ls_layout *layout) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_world *world;
  job work = {
      .programs = {compile(arena, shape, layout, true), compile(arena, shape, layout, false)}};
  const ls_device_options device = {.kind = "reference", .compute = layout->compute};
  assert_int_equal(ls_device_open(&device, &work.device, &error), LS_OK);
  assert_int_equal(ls_world_create_threads(ls_layout_ranks(layout), &world, &error), LS_OK);
  if (ls_rank_threads_run(world, rank_body, &work, &error) != LS_OK) fail_msg("%s", error.text);
  ls_world_destroy(&world);
  for (int s = 0; s < STEPS; s++) {
    if (work.step_loss[s] != work.evaluation_loss[s])
      fail_msg("%s: step %d has loss %.17g, its evaluation %.17g",
               ls_test_layout_print(arena, layout, shape->name), s, work.step_loss[s],
               work.evaluation_loss[s]);
    assert_true(work.step_loss[s] > 1);
  }
  assert_true(work.step_loss[0] != work.step_loss[1]);
  ls_arena_destroy(&arena);
}

static void test_evaluation_gives_the_loss_of_the_step(void **state) {
  (void)state;
  static const int meshes[][4] = {/* shape, dp_replicate, dp_shard, tp */
                                  {0, 1, 1, 1}, {0, 2, 1, 1}, {1, 1, 2, 1}, {0, 1, 2, 3},
                                  {1, 1, 1, 2}, {1, 1, 2, 8}, {2, 1, 1, 6}, {2, 2, 2, 3}};
  for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
    for (int which = 0; which < 8; which++) {
      ls_layout layout = ls_layout_default();
      layout.dp_replicate = meshes[m][1];
      layout.dp_shard = meshes[m][2];
      layout.tp = meshes[m][3];
      layout.zero = which & 3;
      layout.sequence_parallel = which >> 2;
      layout.compute = LS_F64;
      layout.logits_rows = which & 1 ? 5 : 0;
      layout.prefetch = (which + (int)m) % 3;
      check(&ls_test_shapes[meshes[m][0]], &layout);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_evaluation_gives_the_loss_of_the_step)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
