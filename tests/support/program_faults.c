#include "support/program_faults.h"

#include <string.h>

#include "lower/compile.h"

/* A training that is further than this from another is no rounding of it. */
static const double other_training = 1e-6;

bool ls_test_is_op(const ls_instruction *instruction, ls_op_kind kind) {
  return instruction->collective == LS_COLLECTIVE_NONE && instruction->kind == kind;
}

ls_instruction *ls_test_find(ls_program *program, ls_op_kind kind, int which) {
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (ls_test_is_op(each, kind) && which-- == 0) return each;
  }
  return NULL;
}

ls_instruction *ls_test_need(ls_program *program, ls_op_kind kind, int which) {
  ls_instruction *found = ls_test_find(program, kind, which);
  if (!found) fail_msg("no %s", ls_op_name(kind));
  return found;
}

ls_node *ls_test_find_node(ls_graph *graph, ls_op_kind kind, int which) {
  for (int n = 0; n < graph->nodes.count; n++)
    if (graph->nodes.items[n].kind == kind && which-- == 0) return &graph->nodes.items[n];
  fail_msg("no %s", ls_op_name(kind));
  return NULL;
}

bool ls_test_of_first_microbatch(ls_program *program, int value) {
  const int storage = program->values.items[value].storage;
  const int group = program->storages.items[storage].buffer_group;
  bool any = false;
  for (int a = 0; a < program->actions.count; a++) {
    const ls_program_action *action = &program->actions.items[a];
    const ls_body *body = &program->bodies.items[action->body];
    if (action->action.microbatch < 1) continue;
    for (int g = 0; g < body->buffer_groups.count; g++) {
      if (body->buffer_groups.items[g] != group) continue;
      action->live_intervals[g] -= action->action.microbatch;
      any = true;
    }
  }
  return any;
}

static void expect_said(ls_status status, const ls_error *error, const char *name,
                        const char *said) {
  if (status != LS_REFUTED) fail_msg("%s: %s", name, status == LS_OK ? "proved" : error->text);
  print_message("%s: %s\n", name, error->text);
  if (said && !strstr(error->text, said)) fail_msg("%s: expected \"%s\" in it", name, said);
}

void ls_test_expect_refuted(const ls_test_step *step, const char *name, const char *said) {
  ls_error error = {0};
  const ls_status status = ls_test_check(step, &error);
  expect_said(status, &error, name, said);
}

static bool alter(ls_program *program, void *context) {
  const ls_test_fault *fault = context;
  return fault->alter(program);
}

/* Replicas that differ are another training too. */
static void expect_other_training(ls_arena *arena, const ls_experiment *experiment,
                                  const ls_layout *layout, const ls_test_fault *fault) {
  ls_experiment wrong = *experiment;
  ls_trajectory reference, found = {0};
  ls_error error = {0};
  const char *where;
  wrong.alter = alter;
  wrong.alter_context = (void *)fault;
  ls_test_one_device(arena, experiment, fault->name, &reference);
  const ls_status status = ls_trajectory_run(arena, &wrong, layout, &found, &error);
  if (status == LS_FAILED && found.unlike) return;
  if (status != LS_OK) fail_msg("%s: %s", fault->name, error.text);
  const double difference = ls_trajectory_difference(&found, &reference, &where);
  if (!(difference > other_training)) fail_msg("%s: trains to %.3g", fault->name, difference);
}

void ls_test_refute(const ls_experiment *experiment, const ls_layout *layout,
                    const ls_test_fault *faults, int count) {
  for (int f = 0; f < count; f++) {
    ls_arena *arena = ls_arena_create();
    const ls_test_step step = ls_test_compile(arena, experiment, layout);
    bool any = false;
    for (int s = 0; s < layout->pp; s++) any |= faults[f].alter(step.stages[s]);
    if (!any) fail_msg("%s: there is nothing to alter", faults[f].name);
    ls_test_expect_refuted(&step, faults[f].name, faults[f].said);
    if (faults[f].runs) expect_other_training(arena, experiment, layout, &faults[f]);
    ls_arena_destroy(&arena);
  }
}

static ls_test_step compile_model(ls_arena *arena, const ls_experiment *experiment,
                                  const ls_layout *layout, void (*change)(ls_graph *graph)) {
  ls_test_step made = {.layout = *layout, .stages = LS_NEW_ARRAY(arena, ls_program *, layout->pp)};
  ls_error error = {0};
  if (ls_experiment_graph(arena, experiment, layout, LS_PROGRAM_STEP, &made.graph, &error) != LS_OK)
    fail_msg("%s", error.text);
  change(made.graph);
  ls_graph_backward(made.graph);
  if (ls_program_compile(made.graph, layout, LS_PROGRAM_STEP, made.stages, &error) != LS_OK)
    fail_msg("%s", error.text);
  return made;
}

void ls_test_refute_models(const ls_experiment *experiment, const ls_layout *layout,
                           const ls_test_wrong_model *wrong, int count) {
  for (int w = 0; w < count; w++) {
    ls_arena *arena = ls_arena_create();
    const char *name = ls_arena_printf(arena, "wrong model %d", w);
    ls_error error = {0};
    ls_test_step step = compile_model(arena, experiment, layout, wrong[w].change);
    if (ls_test_check(&step, &error) != LS_OK) fail_msg("%s: %s", name, error.text);
    step.graph = ls_test_compile(arena, experiment, layout).graph;
    ls_test_expect_refuted(&step, name, wrong[w].said);
    ls_arena_destroy(&arena);
  }
}
