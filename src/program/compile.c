#include "program/lower.h"

const char *ls_pool_name(ls_pool pool) {
  static const char *const names[] = {"state", "cell", "input", "work"};
  return names[pool];
}

const char *ls_category_name(ls_category category) {
  static const char *const names[] = {
#define LS_CATEGORY_NAME(suffix, name) [LS_CATEGORY_##suffix] = name,
      LS_CATEGORIES(LS_CATEGORY_NAME)
#undef LS_CATEGORY_NAME
  };
  return names[category];
}

/* The node that last reads each sharded value; nodes stand in the order they run in. */
static void find_last_uses(ls_lowering *lowering) {
  const ls_sharded *sharded = lowering->sharded;
  lowering->last_use = LS_NEW_ARRAY(sharded->arena, int, sharded->values.count);
  for (int v = 0; v < sharded->values.count; v++) lowering->last_use[v] = -1;
  for (int n = 0; n < sharded->nodes.count; n++)
    for (int i = 0; i < sharded->nodes.items[n].inputs; i++)
      lowering->last_use[sharded->nodes.items[n].in[i]] = n;
}

static bool same_body(const ls_action *a, const ls_action *b) {
  return a->kind == b->kind && a->segment == b->segment && a->unit == b->unit;
}

static int find_body(const ls_program *program, const ls_action *action) {
  for (int a = 0; a < program->actions.count; a++)
    if (same_body(&program->actions.items[a].action, action)) return program->actions.items[a].body;
  return -1;
}

static void lower_body(ls_lowering *lowering, const ls_action *action) {
  ls_program *program = lowering->program;
  const int first = program->instructions.count;
  if (action->kind == LS_ACTION_FORWARD || action->kind == LS_ACTION_BACKWARD)
    ls_lower_pass(lowering, action->segment, action->kind == LS_ACTION_BACKWARD);
  else
    ls_lower_action(lowering, action);
  *LS_APPEND(program->arena, &program->bodies) =
      (ls_body){.first = first, .count = program->instructions.count - first};
}

static int find_logits(const ls_lowering *lowering) {
  const ls_sharded *sharded = lowering->sharded;
  for (int v = 0; v < sharded->values.count; v++)
    if (sharded->values.items[v].tensor.index == sharded->graph->logits.index)
      return lowering->value_of[v];
  return -1;
}

static double count_flops(const ls_graph *graph, int microbatches) {
  double flops = 0;
  for (int n = 0; n < graph->nodes.count; n++)
    flops += ls_node_flops(graph, &graph->nodes.items[n]);
  return flops * microbatches;
}

ls_status ls_program_compile(const ls_graph *graph, const ls_layout *layout, ls_program_kind kind,
                             ls_program **program, ls_error *error) {
  ls_sharded *sharded;
  LS_TRY(ls_shard(graph, layout, &sharded, error));
  ls_arena *arena = graph->arena;
  ls_program *made = LS_NEW(arena, ls_program);
  *made = (ls_program){.arena = arena,
                       .kind = kind,
                       .mesh = sharded->mesh,
                       .layout = *layout,
                       .tokens = graph->tokens,
                       .sequence = graph->sequence};
  ls_lowering lowering = {.program = made,
                          .sharded = sharded,
                          .units = ls_units_make(sharded),
                          .accumulate = layout->compute == LS_F64 ? LS_F64 : LS_F32,
                          .value_of = LS_NEW_ARRAY(arena, int, sharded->values.count)};
  for (int v = 0; v < sharded->values.count; v++) lowering.value_of[v] = -1;
  find_last_uses(&lowering);
  ls_lower_units(&lowering);
  const ls_schedule schedule = kind == LS_PROGRAM_STEP
                                   ? ls_schedule_step(sharded, lowering.units)
                                   : ls_schedule_forward(sharded, lowering.units);
  for (int a = 0; a < schedule.count; a++) {
    int body = find_body(made, &schedule.items[a]);
    if (body < 0) {
      lower_body(&lowering, &schedule.items[a]);
      body = made->bodies.count - 1;
    }
    *LS_APPEND(arena, &made->actions) =
        (ls_program_action){.action = schedule.items[a], .body = body};
  }
  made->logits = find_logits(&lowering);
  made->flops = count_flops(graph, kind == LS_PROGRAM_STEP ? layout->microbatches : 1);
  ls_lower_frames(&lowering);
  ls_lower_instances(made);
  *program = made;
  return LS_OK;
}
