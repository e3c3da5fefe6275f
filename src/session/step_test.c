/* What a step driver does where gradients are not finite: a step done again, left out, or explained
 * though its update was speculated and the next step's inputs are in place. Orders without that are
 * held by the equality tests. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "lower/compile.h"
#include "run/rank_parameters.h"
#include "run/rank_threads.h"
#include "session/step.h"
#include "support/layouts.h"

enum { SEQUENCES = 4, SEED = 20261123, BAD_TOKEN = 40, BAD_STEP = 2, FINAL = 8192 };

/* What is done to token 40, which step 3 alone has: its embedding is a NaN; or its logit, which
 * step 3 has as a label, is so far below the others that the loss is infinite, but no gradient is.
 */
typedef enum bad_kind { NOTHING_BAD = 0, BAD_EMBEDDING, BAD_LOSS } bad_kind;

typedef struct job {
  ls_program *stages[2];
  ls_device device;
  ls_steps_policy policy;
  double scale;
  int64_t steps;
  bad_kind bad;
  ls_steps end; /* rank 0's */
  double step_cell, norm;
  float final[FINAL]; /* the last parameter but one, after it all */
  int64_t count;
} job;

static ls_status take_tokens(void *context, int64_t step, int64_t first, int64_t count,
                             const ls_batch *batch, ls_error *error) {
  (void)context, (void)error;
  for (int64_t i = 0; i < count; i++) {
    const uint64_t bits = ls_random_bits(SEED, (uint64_t)step, (uint64_t)(first + i));
    batch->ids[i] = step == BAD_STEP && first + i == 0 ? BAD_TOKEN : (int32_t)(bits % BAD_TOKEN);
    batch->labels[i] =
        step == BAD_STEP && first + i == 0 ? BAD_TOKEN : (int32_t)((bits >> 20) % BAD_TOKEN);
    batch->positions[i] = (int32_t)((first + i) % LS_TEST_SEQUENCE);
  }
  return LS_OK;
}

static double rate_at(const void *context, int64_t step) {
  (void)context, (void)step;
  return 0.01;
}

/* Of a logit below all floats: a first column that no layer changes by much, times -1e38. */
static double value_of(const ls_program_parameter *parameter, int p, int64_t i, bad_kind bad) {
  const int64_t columns = parameter->ndim > 1 ? parameter->dims[1] : 1, row = i / columns;
  const double value = 0.3 * ls_random_normal(SEED, (uint64_t)p, (uint64_t)i);
  const bool embedding = strcmp(parameter->name, "embedding.token") == 0;
  const bool first = parameter->ndim == 2 && i % columns == 0;
  if (bad == BAD_EMBEDDING && embedding && row == BAD_TOKEN) return NAN;
  if (bad != BAD_LOSS) return value;
  if (parameter->ndim == 1) return 1;
  if (embedding && first) return 1e6;
  return strcmp(parameter->name, "head.weight") == 0 && first && row == BAD_TOKEN ? -1e38 : value;
}

static ls_status fill_parameters(ls_rank *rank, const job *work, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, 0);
  for (int p = 0; p < program->parameter_count; p++) {
    const int64_t count = ls_program_parameter_elements(&program->parameters[p]);
    for (int64_t i = 0; i < count; i++) {
      const double value = value_of(&program->parameters[p], p, i, work->bad);
      LS_TRY(
          ls_rank_write_parameter(rank, program, p, LS_PART_MASTER, i, 1, &value, LS_F64, error));
    }
  }
  return LS_OK;
}

static ls_status run_steps(ls_steps *steps, const job *work, ls_error *error) {
  while (steps->step + steps->open < work->steps) {
    LS_TRY(ls_steps_begin(steps, error));
    if (steps->open) LS_TRY(ls_steps_finish(steps, error));
    LS_TRY(ls_steps_passes(steps, false, error));
    if (ls_steps_validates(steps))
      LS_TRY(ls_steps_speculate(steps, error));
    else
      LS_TRY(ls_steps_finish(steps, error));
  }
  return LS_OK;
}

static ls_status run_rank(ls_rank *rank, job *work, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, 0);
  const ls_inputs inputs = {.take = take_tokens, .context = NULL};
  ls_steps steps = ls_steps_of(rank, &inputs, rate_at, NULL);
  steps.policy = work->policy;
  steps.speculates_always = true;
  if (work->scale > 0) steps.scale.scale = work->scale;
  LS_TRY(fill_parameters(rank, work, error));
  const ls_status status = run_steps(&steps, work, error);
  const int p = program->parameter_count - 2;
  const int64_t count = ls_program_parameter_elements(&program->parameters[p]);
  float values[FINAL];
  LS_ASSERT(count <= FINAL);
  ls_error unread = {0};
  LS_TRY(
      ls_rank_read_parameter(rank, program, p, LS_PART_MASTER, 0, count, values, LS_F32, &unread));
  if (ls_rank_number(rank) != 0) return status;
  work->end = steps;
  work->step_cell = ls_rank_cell(rank, LS_CELL_STEP);
  work->norm = ls_rank_cell(rank, LS_CELL_NORM);
  work->count = count;
  memcpy(work->final, values, sizeof *values * (size_t)count);
  return status;
}

static ls_status rank_body(ls_comm *comm, void *context, ls_error *error) {
  job *work = context;
  ls_rank *rank;
  const ls_program *const program = work->stages[work->stages[1] ? ls_comm_rank(comm) : 0];
  const ls_rank_options options = {
      .programs = &program, .program_count = 1, .device = &work->device};
  LS_TRY(ls_rank_create(comm, &options, &rank, error));
  const ls_status status = run_rank(rank, work, error);
  ls_rank_destroy(&rank);
  return status;
}

static ls_status run(job *work, const ls_layout *layout, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
  const ls_build_options options = {.tokens = SEQUENCES / layout->microbatches * LS_TEST_SEQUENCE,
                                    .sequence = LS_TEST_SEQUENCE};
  const ls_device_options device = {.compute = layout->compute};
  ls_graph *graph;
  ls_world *world;
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, error), LS_OK);
  ls_graph_backward(graph);
  if (ls_program_compile(graph, layout, LS_PROGRAM_STEP, work->stages, error) != LS_OK)
    fail_msg("%s", error->text);
  assert_int_equal(ls_device_open(&device, &work->device, error), LS_OK);
  assert_int_equal(ls_world_create_threads(ls_layout_ranks(layout), &world, error), LS_OK);
  const ls_status status = ls_rank_threads_run(world, rank_body, work, error);
  ls_world_destroy(&world);
  ls_arena_destroy(&arena);
  return status;
}

static ls_layout half(void) {
  ls_layout layout = ls_layout_default();
  layout.compute = LS_F16;
  return layout;
}

static void test_a_repeated_step_is_the_one_at_its_scale(void **state) {
  (void)state;
  static job again, once;
  const ls_layout layout = half();
  ls_error error = {0};
  again = (job){.policy = LS_STEPS_REPEAT, .scale = 0x1p60, .steps = 1};
  assert_int_equal(run(&again, &layout, &error), LS_OK);
  print_message("%lld times, at last with %g\n", (long long)again.end.scale.skipped,
                again.end.scale.scale);
  assert_true(again.end.scale.skipped > 0);
  assert_true(again.step_cell == 1);
  once = (job){.policy = LS_STEPS_REPEAT, .scale = again.end.scale.scale, .steps = 1};
  assert_int_equal(run(&once, &layout, &error), LS_OK);
  assert_int_equal(once.end.scale.skipped, 0);
  assert_memory_equal(again.final, once.final, sizeof(float) * (size_t)once.count);
}

static void test_a_step_left_out_changes_and_counts_nothing(void **state) {
  (void)state;
  static job start, first, later;
  const ls_layout layout = half();
  ls_error error = {0};
  start = (job){.policy = LS_STEPS_SKIP};
  first = (job){.policy = LS_STEPS_SKIP, .scale = 0x1p60, .steps = 1};
  later = (job){.policy = LS_STEPS_SKIP, .scale = 0x1p60, .steps = 60};
  assert_int_equal(run(&start, &layout, &error), LS_OK);
  assert_int_equal(run(&first, &layout, &error), LS_OK);
  assert_int_equal(run(&later, &layout, &error), LS_OK);
  assert_true(first.end.overflowed && first.end.step == 1);
  assert_memory_equal(first.final, start.final, sizeof(float) * (size_t)start.count);
  assert_true(later.end.scale.skipped > 0 && !later.end.overflowed);
  assert_true(later.step_cell == (double)(later.end.step - later.end.scale.skipped));
}

static ls_layout speculating(void) {
  ls_layout layout = ls_layout_default();
  layout.compute = LS_F32;
  layout.pp = 2;
  layout.schedule = "zbh1";
  layout.microbatches = 4;
  layout.post_validation = true;
  return layout;
}

static void test_a_nan_under_a_speculation_is_found_in_its_own_step(void **state) {
  (void)state;
  static job bad;
  const ls_layout layout = speculating();
  ls_error error = {0};
  bad = (job){.policy = LS_STEPS_SKIP, .steps = 5, .bad = BAD_EMBEDDING};
  assert_int_equal(run(&bad, &layout, &error), LS_FAILED);
  print_message("%s\n", error.text);
  assert_non_null(strstr(error.text, "step 3: "));
  assert_non_null(strstr(error.text, "made a NaN or an infinity in embedding"));
  assert_int_equal(bad.end.step, BAD_STEP);
  for (int64_t i = 0; i < bad.count; i++) assert_true(isfinite(bad.final[i]));
}

/* The norm is finite, so its factor is not 0: taking the speculation back must not be an update. */
static void test_an_infinite_loss_of_finite_gradients_changes_nothing(void **state) {
  (void)state;
  static job bad, before;
  const ls_layout layout = speculating();
  ls_error error = {0};
  before = (job){.policy = LS_STEPS_SKIP, .steps = BAD_STEP + 1, .bad = BAD_LOSS};
  bad = (job){.policy = LS_STEPS_SKIP, .steps = 5, .bad = BAD_LOSS};
  assert_int_equal(run(&before, &layout, &error), LS_OK);
  assert_true(before.end.open && before.end.step == BAD_STEP);
  assert_int_equal(run(&bad, &layout, &error), LS_FAILED);
  print_message("%s\n", error.text);
  assert_true(isfinite(bad.norm));
  assert_non_null(strstr(error.text, "step 3: "));
  assert_non_null(strstr(error.text, "made a NaN or an infinity in head"));
  assert_memory_equal(bad.final, before.final, sizeof(float) * (size_t)bad.count);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_repeated_step_is_the_one_at_its_scale),
      cmocka_unit_test(test_a_step_left_out_changes_and_counts_nothing),
      cmocka_unit_test(test_a_nan_under_a_speculation_is_found_in_its_own_step),
      cmocka_unit_test(test_an_infinite_loss_of_finite_gradients_changes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
