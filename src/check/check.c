#include "check/check.h"

#include <stdarg.h>
#include <stdio.h>

#include "check/proof.h"

static bool ended(const ls_stage *stage) {
  return stage->action >= stage->program->actions.count;
}

ls_place_in_program ls_proof_place(const ls_stage *stage) {
  if (ended(stage)) return (ls_place_in_program){stage->number, stage->action, -1};
  const ls_body *body = &stage->program->bodies.items[ls_proof_action(stage)->body];
  return (ls_place_in_program){stage->number, stage->action, body->first + stage->at};
}

ls_status ls_proof_fail(const ls_stage *stage, ls_error *error, const char *format, ...) {
  char text[768];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const ls_place_in_program place = ls_proof_place(stage);
  if (place.instruction < 0) return ls_fail(error, LS_REFUTED, "stage %d: %s", stage->number, text);
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const int value = instruction->outputs ? instruction->out[0] : instruction->in[0];
  const char *what = instruction->collective == LS_COLLECTIVE_NONE
                         ? ls_op_name(instruction->kind)
                         : ls_collective_name(instruction->collective);
  return ls_fail(error, LS_REFUTED, "stage %d action %d instruction %d (%s%s of %s): %s",
                 place.stage, place.action, place.instruction, ls_phase_name(instruction->phase),
                 what, stage->program->values.items[value].name, text);
}

static ls_status run_one(ls_stage *stage, bool *blocked, ls_error *error) {
  *blocked = false;
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const bool is_op = instruction->collective == LS_COLLECTIVE_NONE;
  if (instruction->first_only && !(is_op && ls_op_row(instruction->kind)->duty == LS_DUTY_NORM))
    return ls_proof_fail(stage, error, "runs on some ranks only: expected all");
  if (instruction->collective == LS_MOVE) return ls_run_move(stage, error);
  ls_note_beside(stage);
  bool *known = &stage->in_one_memory[instruction - stage->program->instructions.items];
  if (!*known) LS_TRY(ls_check_tiers(stage, error));
  *known = true;
  if (is_op && instruction->phase != LS_WHOLE)
    return ls_proof_fail(stage, error, "is a part of an op: expected all of it");
  if (is_op) return ls_run_op(stage, error);
  if (ls_collective_is_message(instruction->collective))
    return ls_run_message(stage, blocked, error);
  if (instruction->collective == LS_SUM_NUMBERS && instruction->phase == LS_BEGIN)
    return ls_run_sum_begin(stage, error);
  *blocked = ls_is_join(stage);
  if (*blocked) return LS_OK;
  return instruction->phase == LS_END ? ls_end_transfer(stage, error)
                                      : ls_run_collective(stage, error);
}

/* Goes on until the stage must wait for another. */
static ls_status run_stage(ls_stage *stage, bool *progress, ls_error *error) {
  ls_proof *proof = stage->proof;
  while (!ended(stage)) {
    const ls_body *body = &stage->program->bodies.items[ls_proof_action(stage)->body];
    if (stage->at >= body->count) {
      stage->action++;
      stage->at = 0;
      *progress = true;
      if (!ended(stage)) LS_TRY(ls_proof_enter(stage, error));
      continue;
    }
    bool blocked;
    LS_TRY(run_one(stage, &blocked, error));
    if (blocked) return LS_OK;
    stage->at++;
    proof->report.instructions++;
    *progress = true;
  }
  return LS_OK;
}

static ls_status run_all(ls_proof *proof, ls_error *error) {
  bool progress = true;
  while (progress) {
    progress = false;
    for (int s = 0; s < proof->count; s++) LS_TRY(run_stage(&proof->stages[s], &progress, error));
    LS_TRY(ls_run_joins(proof, &progress, error));
  }
  return ls_name_circle(proof, error);
}

static ls_status check_ends(ls_proof *proof, ls_error *error) {
  for (int from = 0; from < proof->count; from++)
    for (int to = 0; to < proof->count; to++) {
      const ls_proof_channel *channel = &proof->channels[from * proof->count + to];
      if (channel->taken < channel->sent.count) {
        const ls_place_in_program *place = &channel->sent.items[channel->taken].place;
        return ls_fail(error, LS_REFUTED,
                       "stage %d action %d instruction %d: sends what stage %d never takes: "
                       "expected a receive there",
                       place->stage, place->action, place->instruction, to);
      }
      if (channel->ended < channel->sent.count)
        return ls_fail(error, LS_REFUTED,
                       "stage %d: ends with a send to stage %d under way: expected its end", from,
                       to);
    }
  for (int s = 0; s < proof->count; s++)
    LS_TRY(ls_check_none_under_way(&proof->stages[s], "comes to its end", error));
  LS_TRY(ls_expected_check_end(proof, error));
  for (int s = 0; s < proof->count; s++) LS_TRY(ls_proof_end(&proof->stages[s], error));
  return LS_OK;
}

static ls_status prove_still(ls_proof *proof, ls_error *error) {
  for (int s = 0; s < proof->count; s++) {
    ls_stage *stage = &proof->stages[s];
    LS_TRY(ls_proof_structure(stage, error));
    LS_TRY(ls_proof_extents(stage, error));
    LS_TRY(ls_proof_parameters(stage, error));
    LS_TRY(ls_proof_ahead(stage, error));
    LS_TRY(ls_proof_lives(stage, error));
    LS_TRY(ls_proof_waits(stage, error));
  }
  return LS_OK;
}

static ls_status prove(ls_proof *proof, ls_error *error) {
  LS_TRY(prove_still(proof, error));
  for (int s = 0; s < proof->count; s++) {
    ls_proof_begin(&proof->stages[s]);
    proof->report.actions += proof->stages[s].program->actions.count;
  }
  LS_TRY(run_all(proof, error));
  return check_ends(proof, error);
}

ls_status ls_check(const ls_graph *graph, const ls_layout *layout, const ls_program *const *stages,
                   ls_check_report *report, ls_error *error) {
  return ls_check_on(&ls_queues_in_process, graph, layout, stages, report, error);
}

static ls_status open_proof(ls_proof *proof, const ls_program *const *stages, ls_error *error) {
  const int count = proof->layout->pp, ranks = ls_layout_ranks(proof->layout);
  if (ls_mesh_stages(&stages[0]->mesh) != count || ls_mesh_ranks(&stages[0]->mesh) != ranks)
    return ls_fail(error, LS_REFUTED,
                   "stage 0: is for %d stages of %d ranks together: expected %d of %d",
                   ls_mesh_stages(&stages[0]->mesh), ls_mesh_ranks(&stages[0]->mesh), count, ranks);
  proof->count = count;
  proof->mesh = stages[0]->mesh;
  proof->active = ls_mesh_active(&proof->mesh, ls_mesh_all(&proof->mesh));
  proof->stages = LS_NEW_ARRAY(proof->arena, ls_stage, count);
  for (int s = 0; s < count; s++)
    proof->stages[s] =
        (ls_stage){.proof = proof,
                   .program = stages[s],
                   .number = s,
                   .queues = LS_NEW_ARRAY(proof->arena, ls_message_queue, 2 * count)};
  proof->channels = LS_NEW_ARRAY(proof->arena, ls_proof_channel, count * count);
  proof->labels = ls_op_labels_list();
  proof->backward = ls_backward_list(proof->arena);
  ls_expressions_begin(&proof->expressions, proof->arena);
  ls_expected_begin(proof);
  return LS_OK;
}

ls_status ls_check_still(const ls_graph *graph, const ls_layout *layout,
                         const ls_program *const *stages, ls_error *error) {
  ls_proof proof = {.arena = ls_arena_create(),
                    .graph = graph,
                    .layout = layout,
                    .queues = &ls_queues_in_process};
  ls_status status = open_proof(&proof, stages, error);
  if (status == LS_OK) status = prove_still(&proof, error);
  ls_arena_destroy(&proof.arena);
  return status;
}

ls_status ls_check_on(const ls_queues *queues, const ls_graph *graph, const ls_layout *layout,
                      const ls_program *const *stages, ls_check_report *report, ls_error *error) {
  ls_proof proof = {.arena = ls_arena_create(), .graph = graph, .layout = layout, .queues = queues};
  ls_status status = open_proof(&proof, stages, error);
  if (status == LS_OK) status = prove(&proof, error);
  if (report) *report = proof.report;
  ls_arena_destroy(&proof.arena);
  return status;
}
