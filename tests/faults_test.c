/* The equality tests can fail: each deliberate fault is caught by its named smallest case, and with
 * LS_FAULTS_MATRIX=1 (an hour) those of flat meshes by the whole matrix, which then says where. And
 * the proof of programs rejects each, so none of them would have run.
 * LS_FAULT=TEXT: only faults whose name has TEXT. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "support/faults.h"
#include "support/layouts.h"
#include "support/mutate.h"
#include "verify/equality.h"

/* What an unaltered layout must stay under, and what counts as caught. AdamW makes a step of a
 * gradient that is nothing but rounding: over ten seeds fp64 comes to 2e-10. In bf16 it is the
 * rounding of weights and activations to 8 bits, grown over five steps. */
static const double fp64_tolerance = 5e-10, fp64_caught = 1e-8;
static const double bf16_tolerance = 0.005, bf16_caught = 0.05;

/* Of what is compared with the references, which have none: a power of 2, so that undoing it leaves
 * no trace. */
static const double loss_scale = 1024;

enum { SMALL_SEQUENCES = 12, SEED = 20261121 };

typedef struct bench {
  ls_arena *arena;
  ls_model_config configs[LS_TEST_SHAPES];
  ls_trajectory references[LS_TEST_SHAPES]; /* one device, fp64 */
  ls_trajectory unclipped[LS_TEST_SHAPES];  /* the same where the norm clips nothing */
  int64_t sequences;
} bench;

typedef struct verdict {
  ls_status status;
  double difference;
  char where[160];
  ls_status proved;
  ls_error rejected; /* why */
} verdict;

enum { MOST_STAGES = 4 };

typedef struct alteration {
  const ls_fault *fault; /* NULL: none */
  const ls_graph *model;
  const ls_layout *layout;
  const ls_program *stages[MOST_STAGES];
  int count;
  ls_status proved;
  ls_error error;
} alteration;

static bool alter(ls_program *program, void *context) {
  alteration *with = context;
  const bool altered = !with->fault || with->fault->inject(program) > 0;
  ls_refresh_lives(program);
  with->stages[with->count++] = program;
  if (with->count == program->layout.pp)
    with->proved = ls_check(with->model, with->layout, with->stages, NULL, &with->error);
  return altered;
}

static ls_experiment experiment_of(const bench *with, int shape) {
  return (ls_experiment){.config = &with->configs[shape],
                         .sequences = with->sequences,
                         .sequence = LS_TEST_SEQUENCE,
                         .seed = SEED,
                         .learning_rate = 0.01,
                         .offload_path = "/tmp",
                         .deadline_s = 60};
}

static void set_up(bench *with, int64_t sequences) {
  *with = (bench){.arena = ls_arena_create(), .sequences = sequences};
  for (int m = 0; m < LS_TEST_SHAPES; m++) {
    ls_error error = {0};
    ls_layout one = ls_test_layout_default();
    one.compute = LS_F64;
    with->configs[m] = ls_test_shape_config(with->arena, &ls_test_shapes[m]);
    const ls_experiment experiment = experiment_of(with, m);
    if (ls_trajectory_run(with->arena, &experiment, &one, &with->references[m], &error) != LS_OK)
      fail_msg("%s on one device: %s", ls_test_shapes[m].name, error.text);
    one.optimizer.clip = 0;
    if (ls_trajectory_run(with->arena, &experiment, &one, &with->unclipped[m], &error) != LS_OK)
      fail_msg("%s on one device: %s", ls_test_shapes[m].name, error.text);
  }
}

/* `fault` NULL: the layout as it should be. */
static verdict run(const bench *with, const ls_fault *fault, int shape, const ls_layout *layout) {
  ls_arena *arena = ls_arena_create();
  verdict found = {.status = LS_OK};
  ls_error error = {0};
  ls_experiment experiment = experiment_of(with, shape);
  alteration with_fault = {.fault = fault,
                           .layout = layout,
                           .model = ls_test_model(arena, experiment.config, layout,
                                                  experiment.sequences, experiment.sequence)};
  experiment.device.kind = layout->compute == LS_BF16 ? "cpu" : NULL;
  experiment.loss_scale = loss_scale;
  experiment.alter = alter;
  experiment.alter_context = &with_fault;
  ls_trajectory trajectory;
  const char *where = error.text;
  found.status = ls_trajectory_run(arena, &experiment, layout, &trajectory, &error);
  if (found.status == LS_OK) {
    const ls_trajectory *reference =
        layout->optimizer.clip > 0 ? &with->references[shape] : &with->unclipped[shape];
    found.difference = layout->compute == LS_BF16
                           ? ls_trajectory_loss_difference(&trajectory, reference, &where)
                           : ls_trajectory_difference(&trajectory, reference, &where);
  }
  snprintf(found.where, sizeof found.where, "%s", where);
  found.proved = with_fault.proved;
  found.rejected = with_fault.error;
  ls_arena_destroy(&arena);
  return found;
}

static bool is_caught(const verdict *found, ls_dtype compute) {
  const double limit = compute == LS_BF16 ? bf16_caught : fp64_caught;
  return found->status == LS_FAILED || (found->status == LS_OK && !(found->difference <= limit));
}

static bool is_chosen(const ls_fault *fault) {
  const char *only = getenv("LS_FAULT");
  return !only || strstr(fault->name, only);
}

static void check_smallest(const bench *with, const ls_fault *fault) {
  const ls_layout layout = ls_fault_layout(fault);
  const verdict right = run(with, NULL, fault->shape, &layout);
  const verdict wrong = run(with, fault, fault->shape, &layout);
  const char *name =
      ls_arena_printf(with->arena, "%s, %s, %d microbatches", ls_test_shapes[fault->shape].name,
                      ls_layout_print(with->arena, &layout), layout.microbatches);
  if (wrong.status == LS_OK)
    print_message("%-60s %9.2g in place of %.1g, in %s\n", fault->name, wrong.difference,
                  right.difference, wrong.where);
  else
    print_message("%-60s %s\n", fault->name, wrong.where);
  print_message("  rejected: %s\n", wrong.rejected.text);
  if (right.status != LS_OK ||
      !(right.difference <= (fault->compute == LS_BF16 ? bf16_tolerance : fp64_tolerance)))
    fail_msg("%s as it should be: %.3g in %s", name, right.difference, right.where);
  if (right.proved != LS_OK) fail_msg("%s as it should be: %s", name, right.rejected.text);
  if (wrong.status == LS_REFUTED) fail_msg("%s: \"%s\" has nothing to change", name, fault->name);
  if (wrong.proved != LS_REFUTED) fail_msg("%s: \"%s\" accepted by check", name, fault->name);
  if (!is_caught(&wrong, fault->compute)) fail_msg("%s: \"%s\" not caught", name, fault->name);
}

static int check_faults(const bench *with, const ls_fault *faults, int count) {
  for (int f = 0; f < count; f++)
    if (is_chosen(&faults[f])) check_smallest(with, &faults[f]);
  return count;
}

static void test_smallest_case_catches_each_fault(void **state) {
  (void)state;
  bench with;
  set_up(&with, SMALL_SEQUENCES);
  const int count = check_faults(&with, ls_faults, ls_fault_count) +
                    check_faults(&with, ls_pipeline_faults, ls_pipeline_fault_count) +
                    check_faults(&with, ls_offload_faults, ls_offload_fault_count) +
                    check_faults(&with, ls_replay_boundary_faults, ls_replay_boundary_fault_count) +
                    check_faults(&with, ls_slice_faults, ls_slice_fault_count);
  print_message("%d faults\n", count);
  ls_arena_destroy(&with.arena);
}

static void check_matrix(const bench *with, const ls_fault *fault) {
  const ls_test_layouts all = ls_test_layouts_all(with->arena);
  int applied = 0, caught = 0, failed = 0;
  for (int m = 0; m < LS_TEST_SHAPES; m++)
    for (int l = 0; l < all.count; l++) {
      const verdict found = run(with, fault, m, &all.items[l]);
      if (found.status == LS_INPUT || found.status == LS_REFUTED) continue;
      applied++;
      failed += found.status == LS_FAILED;
      caught += is_caught(&found, LS_F64);
      if (!is_caught(&found, LS_F64))
        print_message("  not caught, %.2g: %s\n", found.difference,
                      ls_test_layout_print(with->arena, &all.items[l], ls_test_shapes[m].name));
    }
  print_message("%-60s caught by %d of %d layouts (%d stopped by an error)\n", fault->name, caught,
                applied, failed);
  assert_true(caught > 0);
}

static void test_matrix_catches_each_fault(void **state) {
  (void)state;
  if (!getenv("LS_FAULTS_MATRIX")) skip();
  bench with;
  set_up(&with, LS_TEST_SEQUENCES);
  for (int f = 0; f < ls_fault_count; f++)
    if (is_chosen(&ls_faults[f]) && ls_faults[f].compute == LS_F64)
      check_matrix(&with, &ls_faults[f]);
  ls_arena_destroy(&with.arena);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_smallest_case_catches_each_fault),
                                     cmocka_unit_test(test_matrix_catches_each_fault)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
