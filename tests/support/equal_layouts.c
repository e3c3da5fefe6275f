#include "support/equal_layouts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "support/layouts.h"

static const double usual_tolerance = 1e-10;

ls_layout ls_test_layout_of(const ls_layout *row) {
  const ls_layout usual = ls_test_layout_default();
  ls_layout layout = *row;
  for (int axis = 0; axis < LS_LAYOUT_AXES; axis++)
    if (!ls_layout_size(row, axis)) ls_layout_set_size(&layout, axis, 1);
  if (!layout.ep) layout.ep = 1;
  if (!layout.ulysses) layout.ulysses = 1;
  if (!layout.microbatches) layout.microbatches = 1;
  if (!layout.layers_per_unit) layout.layers_per_unit = usual.layers_per_unit;
  if (layout.offload.optimizer_fraction == 0) layout.offload.optimizer_fraction = 1;
  if (layout.optimizer.beta1 == 0) layout.optimizer = usual.optimizer;
  layout.compute = LS_F64;
  return layout;
}

ls_test_step ls_test_compile(ls_arena *arena, const ls_experiment *experiment,
                             const ls_layout *layout) {
  ls_test_step made = {.layout = *layout, .stages = LS_NEW_ARRAY(arena, ls_program *, layout->pp)};
  ls_error error = {0};
  if (ls_experiment_compile(arena, experiment, layout, LS_PROGRAM_STEP, &made.graph, made.stages,
                            &error) != LS_OK)
    fail_msg("%s: %s", ls_layout_print(arena, layout), error.text);
  return made;
}

ls_status ls_test_check(const ls_test_step *step, ls_error *error) {
  return ls_check(step->graph, &step->layout, (const ls_program *const *)step->stages, NULL, error);
}

/* What was seen of a run's programs, and whether it is proved. */
typedef struct proof {
  ls_arena *arena;
  const ls_experiment *experiment;
  ls_test_step of;
  int seen; /* stages */
  ls_status status;
  ls_error error;
} proof;

/* Of programs that were compiled, against the model built anew. */
static void prove(proof *self, ls_program_kind kind) {
  self->status = ls_experiment_graph(self->arena, self->experiment, &self->of.layout, kind,
                                     &self->of.graph, &self->error);
  if (self->status == LS_OK) self->status = ls_test_check(&self->of, &self->error);
}

/* Sees what is about to run, stage by stage, and alters nothing. */
static bool see(ls_program *program, void *context) {
  proof *self = context;
  self->of.stages[self->seen++] = program;
  if (self->seen == self->of.layout.pp) prove(self, LS_PROGRAM_STEP);
  return true;
}

static void prove_evaluation(proof *self) {
  self->status =
      ls_experiment_compile(self->arena, self->experiment, &self->of.layout, LS_PROGRAM_FORWARD,
                            &self->of.graph, self->of.stages, &self->error);
  if (self->status == LS_OK) prove(self, LS_PROGRAM_FORWARD);
}

void ls_test_one_device(ls_arena *arena, const ls_experiment *experiment, const char *name,
                        ls_trajectory *reference) {
  ls_experiment plain = *experiment;
  ls_layout one = ls_test_layout_default();
  ls_error error = {0};
  plain.alter = NULL;
  plain.saved = false;
  plain.device.kind = NULL;
  one.compute = LS_F64;
  if (ls_trajectory_run(arena, &plain, &one, reference, &error) != LS_OK)
    fail_msg("%s on one device: %s", name, error.text);
}

static double allowed(const ls_test_tally *tally) {
  if (tally->to_the_bit) return 0;
  return tally->tolerance > 0 ? tally->tolerance : usual_tolerance;
}

void ls_test_tally_layout(ls_test_tally *tally, const ls_experiment *experiment,
                          const ls_trajectory *reference, const ls_layout *layout,
                          const char *name) {
  const char *only = getenv("LS_CASE"), *where = "";
  if (only && !strstr(name, only)) return;
  LS_ASSERT(!experiment->alter);
  ls_arena *arena = ls_arena_create();
  ls_experiment seen = *experiment;
  ls_trajectory found;
  ls_error error = {0};
  proof proved = {arena, experiment, {.layout = *layout}, .status = LS_REFUTED};
  proved.of.stages = LS_NEW_ARRAY(arena, ls_program *, layout->pp);
  seen.alter = see;
  seen.alter_context = &proved;
  const ls_status status = ls_trajectory_run(arena, &seen, layout, &found, &error);
  tally->refused += status == LS_INPUT;
  if (status != LS_INPUT) {
    tally->run++;
    if (status == LS_OK && proved.status == LS_OK) prove_evaluation(&proved);
    const double difference =
        status == LS_OK ? ls_trajectory_difference(&found, reference, &where) : INFINITY;
    tally->worst = fmax(tally->worst, difference);
    if (status == LS_OK) tally->repeated += found.repeated;
    if (proved.status != LS_OK || !(difference <= allowed(tally))) {
      print_message("%s: %.3g in %s; %s; %s\n", name, difference, where, error.text,
                    proved.error.text);
      tally->failed++;
    }
  }
  ls_arena_destroy(&arena);
}

void ls_test_equal_layout(ls_test_tally *tally, const ls_experiment *experiment,
                          const ls_layout *layout, const char *name) {
  ls_arena *arena = ls_arena_create();
  ls_trajectory reference;
  ls_test_one_device(arena, experiment, name, &reference);
  ls_test_tally_layout(tally, experiment, &reference, layout,
                       ls_test_layout_print(arena, layout, name));
  ls_arena_destroy(&arena);
}

void ls_test_equal_layouts(ls_test_tally *tally, const ls_experiment *experiment,
                           const ls_layout *rows, int count, const char *name) {
  ls_arena *arena = ls_arena_create();
  ls_trajectory reference;
  ls_test_one_device(arena, experiment, name, &reference);
  for (int row = 0; row < count; row++) {
    const ls_layout layout = ls_test_layout_of(&rows[row]);
    ls_test_tally_layout(tally, experiment, &reference, &layout,
                         ls_test_layout_print(arena, &layout, name));
  }
  ls_arena_destroy(&arena);
}

void ls_test_expect_tally(const ls_test_tally *tally, const ls_test_count *counts) {
  print_message("%d layouts run, %d refused, %d failed, worst difference %.3g\n", tally->run,
                tally->refused, tally->failed, tally->worst);
  assert_int_equal(tally->failed, 0);
  if (!getenv("LS_CASE")) ls_test_expect_counts(counts, 2);
}
