/* Whether the lists of a program refer to what is there, before anything is made of them. */
#include "check/proof.h"

static ls_status fail_at(const ls_stage *stage, ls_error *error, const char *what, int index) {
  return ls_fail(error, LS_REFUTED,
                 "stage %d: %s %d refers to what is not there: expected indices of "
                 "its program's lists",
                 stage->number, what, index);
}

static bool within(int index, int count) {
  return index >= 0 && index < count;
}

/* What lasts between programs, or is filled before them, has the live interval that its buffer
 * group names. */
static bool buffer_group_fits(const ls_program *program, int f) {
  const ls_buffer_group *buffer_group = &program->buffer_groups.items[f];
  if (!within((int)buffer_group->pool, LS_POOL_COUNT) || buffer_group->bytes < 0) return false;
  if (ls_pool_is_work(buffer_group->pool))
    return buffer_group->live_interval < program->live_intervals.count;
  return within(buffer_group->live_interval, program->live_intervals.count) &&
         program->live_intervals.items[buffer_group->live_interval].buffer_group == f;
}

static ls_status check_memory(const ls_stage *stage, ls_error *error) {
  const ls_program *program = stage->program;
  for (int f = 0; f < program->buffer_groups.count; f++)
    if (!buffer_group_fits(program, f)) return fail_at(stage, error, "buffer_group", f);
  for (int i = 0; i < program->live_intervals.count; i++)
    if (!within(program->live_intervals.items[i].buffer_group, program->buffer_groups.count))
      return fail_at(stage, error, "live_interval", i);
  for (int s = 0; s < program->storages.count; s++)
    if (!within(program->storages.items[s].buffer_group, program->buffer_groups.count))
      return fail_at(stage, error, "storage", s);
  for (int v = 0; v < program->values.count; v++) {
    const ls_value *value = &program->values.items[v];
    if (!within(value->storage, program->storages.count) || value->ndim < 1 ||
        value->ndim > LS_MAX_DIMS || !within((int)value->dtype, LS_DTYPE_COUNT))
      return fail_at(stage, error, "value", v);
  }
  return LS_OK;
}

static bool instruction_fits(const ls_program *program, const ls_instruction *each) {
  if (!within((int)each->collective, LS_COLLECTIVE_COUNT) ||
      !within((int)each->phase, LS_PHASE_COUNT) || !within((int)each->queue, LS_QUEUE_COUNT) ||
      !within((int)each->kind, LS_OP_COUNT) || each->axes > ls_mesh_all(&program->mesh) ||
      each->first_only > ls_mesh_all(&program->mesh) || each->inputs < 0 ||
      each->inputs > LS_MAX_INPUTS || each->outputs < 0 || each->outputs > LS_MAX_OUTPUTS ||
      each->inputs + each->outputs == 0 ||
      (ls_collective_deals(each->collective) && !within(each->unit, program->units.count)))
    return false;
  for (int i = 0; i < each->inputs; i++)
    if (!within(each->in[i], program->values.count)) return false;
  for (int o = 0; o < each->outputs; o++)
    if (!within(each->out[o], program->values.count)) return false;
  return true;
}

static ls_status check_code(const ls_stage *stage, ls_error *error) {
  const ls_program *program = stage->program;
  for (int i = 0; i < program->instructions.count; i++)
    if (!instruction_fits(program, &program->instructions.items[i]))
      return fail_at(stage, error, "instruction", i);
  for (int b = 0; b < program->bodies.count; b++) {
    const ls_body *body = &program->bodies.items[b];
    if (body->first < 0 || body->count < 0 || body->first > program->instructions.count ||
        body->count > program->instructions.count - body->first)
      return fail_at(stage, error, "body", b);
    for (int f = 0; f < body->buffer_groups.count; f++)
      if (!within(body->buffer_groups.items[f], program->buffer_groups.count))
        return fail_at(stage, error, "body", b);
  }
  for (int a = 0; a < program->actions.count; a++) {
    const ls_program_action *action = &program->actions.items[a];
    if (!within(action->body, program->bodies.count)) return fail_at(stage, error, "action", a);
    const ls_body *body = &program->bodies.items[action->body];
    for (int f = 0; f < body->buffer_groups.count; f++)
      if (!within(action->live_intervals[f], program->live_intervals.count) ||
          program->live_intervals.items[action->live_intervals[f]].buffer_group !=
              body->buffer_groups.items[f])
        return ls_fail(error, LS_REFUTED,
                       "stage %d action %d: is given other memory than its body's buffer group %s: "
                       "expected a live interval of it",
                       stage->number, a,
                       program->buffer_groups.items[body->buffer_groups.items[f]].name);
  }
  return LS_OK;
}

/* Every stage's mesh has the same axes; the stages are outermost, and stages alone. */
static ls_status check_mesh(const ls_stage *stage, ls_error *error) {
  const ls_mesh *mesh = &stage->program->mesh, *first = &stage->proof->mesh;
  if (mesh->count < 1 || mesh->count > LS_MAX_AXES || mesh->count != first->count)
    return ls_fail(error, LS_REFUTED, "stage %d: its mesh has %d axes: expected those of stage 0",
                   stage->number, mesh->count);
  for (int axis = 0; axis < mesh->count; axis++) {
    const ls_axis *own = &mesh->axes[axis], *other = &first->axes[axis];
    if (own->role != other->role || own->shares != other->shares ||
        (own->role == LS_MESH_STAGE) != (axis == 0))
      return ls_fail(error, LS_REFUTED,
                     "stage %d: %s has another role in its mesh than in that of stage 0: "
                     "expected the same, stages outermost",
                     stage->number, own->name);
    if (own->size != other->size || own->size < 1)
      return ls_fail(error, LS_REFUTED, "stage %d: its mesh has %d ranks on %s: expected %d",
                     stage->number, own->size, own->name, other->size);
  }
  return LS_OK;
}

ls_status ls_proof_structure(ls_stage *stage, ls_error *error) {
  const ls_program *program = stage->program;
  LS_TRY(check_mesh(stage, error));
  if (program->stage != stage->number)
    return ls_fail(error, LS_REFUTED, "stage %d: is the program of stage %d: expected its own",
                   stage->number, program->stage);
  const ls_graph *graph = stage->proof->graph;
  if (program->tokens != graph->tokens || program->sequence != graph->sequence)
    return ls_fail(
        error, LS_REFUTED,
        "stage %d: is filled with %lld tokens in sequences of %lld: expected %lld of %lld",
        stage->number, (long long)program->tokens, (long long)program->sequence,
        (long long)graph->tokens, (long long)graph->sequence);
  int inputs[LS_INPUT_COUNT + 1];
  ls_program_inputs(program, inputs);
  inputs[LS_INPUT_COUNT] = program->logits;
  for (int i = 0; i <= LS_INPUT_COUNT; i++)
    if (inputs[i] >= program->values.count) return fail_at(stage, error, "input", i);
  for (int c = 0; c < LS_CELL_COUNT; c++)
    if (program->cell[c] >= program->values.count) return fail_at(stage, error, "cell", c);
  for (int l = 0; l < program->loads.count; l++)
    if (program->loads.items[l] >= program->values.count) return fail_at(stage, error, "loads", l);
  LS_TRY(check_memory(stage, error));
  return check_code(stage, error);
}
