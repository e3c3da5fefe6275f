/* Post-validation: a stage runs the actions before its replay boundary again, before and after the
 * update of the step before, and may have speculated that update. The program is interpreted in the
 * order of its list, where the speculation is made and then overwritten; here is what makes the
 * other order, SPECULATE, the next step's PROLOGUE, VALIDATE, UPDATE and perhaps PROLOGUE again,
 * the same step:
 *
 *   what VALIDATE, UPDATE and SPECULATE touch shares no memory with anything that PROLOGUE touches;
 *   PROLOGUE only writes memory of its own, and adds to none of it, so it can run twice;
 *   no transfer of any stage is under way at the boundary, and what is sent before it is taken
 * before it; SPECULATE makes all stored parameters anew and nothing else. */
#include "check/proof.h"

static ls_status fail_at(const ls_stage *stage, int action, ls_error *error, const char *what) {
  return ls_fail(error, LS_REFUTED, "stage %d action %d: %s", stage->number, action, what);
}

static const ls_body *body_of(const ls_stage *stage, int action) {
  return &stage->program->bodies.items[stage->program->actions.items[action].body];
}

/* The one action that has sums of numbers in this phase; -1: none has; -2: several have. */
static int find_sum(const ls_stage *stage, ls_phase phase) {
  int found = -1;
  for (int a = 0; a < stage->program->actions.count; a++) {
    const ls_body *body = body_of(stage, a);
    bool has = false;
    for (int i = body->first; i < body->first + body->count; i++)
      has = has || (stage->program->instructions.items[i].collective == LS_SUM_NUMBERS &&
                    stage->program->instructions.items[i].phase == phase);
    if (has) found = found == -1 ? a : -2;
  }
  return found;
}

static bool speculates(const ls_stage *stage, const ls_instruction *each) {
  const ls_op_kind kind = ls_optimizer_row_of(&stage->proof->layout->optimizer)->speculative;
  return each->collective == LS_COLLECTIVE_NONE && kind && each->kind == kind;
}

static ls_status find_parts(ls_stage *stage, ls_error *error) {
  const ls_program *program = stage->program;
  stage->norm = find_sum(stage, LS_BEGIN);
  stage->validate = find_sum(stage, LS_END);
  const bool validates = program->replay_boundary >= 0;
  const bool asked = stage->proof->layout->post_validation && program->kind == LS_PROGRAM_STEP;
  if (validates != asked || validates != (stage->proof->stages[0].program->replay_boundary >= 0))
    return fail_at(stage, 0, error, "has a replay boundary or not: expected what its layout says");
  if (!validates && stage->norm == -1 && stage->validate == -1) return LS_OK;
  if (!validates || stage->norm < 0 || stage->validate <= stage->norm ||
      program->replay_boundary > stage->norm || stage->proof->count < 2 ||
      program->actions.items[stage->norm].action.kind != LS_ACTION_NORM ||
      program->actions.items[stage->validate].action.kind != LS_ACTION_VALIDATE)
    return fail_at(
        stage, 0, error,
        "sums over stages in halves: expected a replay boundary, then the norm, then its end, once "
        "each");
  for (int a = stage->norm + 1; a < program->actions.count; a++) {
    const ls_action_kind kind = program->actions.items[a].action.kind;
    if (kind == LS_ACTION_NORM || (kind == LS_ACTION_VALIDATE) != (a == stage->validate))
      return fail_at(stage, a, error, "is a second norm or end of it: expected one");
  }
  return LS_OK;
}

static ls_status check_prologue(const ls_stage *stage, const bool *tail, ls_error *error) {
  const ls_program *program = stage->program;
  for (int a = 0; a < program->replay_boundary; a++) {
    const ls_body *body = body_of(stage, a);
    for (int f = 0; f < body->buffer_groups.count; f++) {
      const int i = program->actions.items[a].live_intervals[f];
      const ls_pool pool =
          program->buffer_groups.items[program->live_intervals.items[i].buffer_group].pool;
      if (tail[i] && ls_pool_is_work(pool))
        return fail_at(stage, a, error, "touches what the update before it needs: expected not");
    }
    for (int i = body->first; i < body->first + body->count; i++) {
      const ls_instruction *each = &program->instructions.items[i];
      if (ls_stage_joins(stage, each) || each->collective == LS_MOVE)
        return fail_at(stage, a, error, "cannot be run again: expected it after the boundary");
      for (int o = 0; o < each->outputs; o++) {
        const ls_pool pool = ls_program_buffer_group(program, each->out[o])->pool;
        if (each->write[o] != LS_WRITE || !ls_pool_is_work(pool))
          return fail_at(
              stage, a, error,
              "adds to something or changes what is kept before the boundary: expected it "
              "after the boundary");
      }
    }
  }
  return LS_OK;
}

static ls_status check_speculation(const ls_stage *stage, ls_error *error) {
  for (int a = 0; a < stage->program->actions.count; a++) {
    const bool inside = a > stage->norm && a < stage->validate;
    const ls_body *body = body_of(stage, a);
    for (int i = body->first; i < body->first + body->count; i++) {
      const ls_instruction *each = &stage->program->instructions.items[i];
      if (speculates(stage, each) && !inside)
        return fail_at(stage, a, error,
                       "speculates weights: expected that between norm and its end");
      if (inside && !speculates(stage, each) && each->collective != LS_ALL_GATHER)
        return fail_at(stage, a, error,
                       "is no speculation of weights: expected none else before the norm has come");
    }
  }
  return LS_OK;
}

ls_status ls_proof_ahead(ls_stage *stage, ls_error *error) {
  LS_TRY(find_parts(stage, error));
  LS_TRY(check_speculation(stage, error));
  const ls_program *program = stage->program;
  stage->outlives = LS_NEW_ARRAY(stage->proof->arena, bool, program->live_intervals.count + 1);
  if (program->replay_boundary < 0) return LS_OK;
  for (int a = stage->norm; a < program->actions.count; a++)
    for (int f = 0; f < body_of(stage, a)->buffer_groups.count; f++)
      stage->outlives[program->actions.items[a].live_intervals[f]] = true;
  return check_prologue(stage, stage->outlives, error);
}

/* Before an action: what must hold there. */
ls_status ls_proof_enter(ls_stage *stage, ls_error *error) {
  if (stage->program->replay_boundary < 0) return LS_OK;
  if (stage->action == stage->program->replay_boundary)
    LS_TRY(ls_check_none_under_way(stage, "comes to its replay boundary", error));
  if (stage->action != stage->validate) return LS_OK;
  for (int p = 0; p < stage->program->parameter_count; p++)
    if (stage->program->parameters[p].present && stage->program->parameters[p].trainable)
      LS_TRY(ls_proof_speculated(stage, p, error));
  return LS_OK;
}

static bool before_boundary(const ls_stage *stage, int action) {
  return action < stage->program->replay_boundary;
}

ls_status ls_proof_same_side(const ls_stage *stage, const ls_message *message, ls_error *error) {
  const ls_stage *from = &stage->proof->stages[message->place.stage];
  if (before_boundary(from, message->place.action) == before_boundary(stage, stage->action))
    return LS_OK;
  return ls_proof_fail(
      stage, error,
      "takes on one side of the boundary what stage %d sends on the other: expected it "
      "on the same",
      message->place.stage);
}

ls_status ls_run_sum_begin(ls_stage *stage, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  if (instruction->inputs != 1 || instruction->outputs != 0 || instruction->count != 1 ||
      instruction->axes != ls_mesh_axes(&stage->proof->mesh, LS_MESH_STAGE) ||
      instruction->peer >= 0)
    return ls_proof_fail(stage, error, "has other operands: expected one number, over pp");
  ls_operand operand;
  const ls_content *content;
  LS_TRY(ls_operand_find(stage, instruction->in[0], &operand, error));
  LS_TRY(ls_memory_read(stage, &operand, &content, error));
  if (content->kind != LS_CONTENT_SUM)
    return ls_proof_fail(stage, error, "sums over stages what is no sum: expected one");
  for (int t = 0; t < stage->open.count; t++)
    if (stage->open.items[t].reads && ls_operands_overlap(&stage->open.items[t].from, &operand))
      return ls_proof_fail(stage, error, "begins a sum twice: expected its end between");
  return ls_begin_transfer(stage, error);
}
