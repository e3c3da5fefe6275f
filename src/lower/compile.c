#include "cost/cost.h"
#include "lower/lower.h"

/* The nodes that make and last read each sharded value; nodes stand in the order they run in. */
static void find_uses(const ls_sharded *sharded, int *producer, int *last_use,
                      bool *read_by_weight) {
  for (int v = 0; v < sharded->values.count; v++) producer[v] = last_use[v] = -1;
  for (int n = 0; n < sharded->nodes.count; n++) {
    const ls_shard_node *node = &sharded->nodes.items[n];
    for (int i = 0; i < node->inputs; i++) {
      last_use[node->in[i]] = n;
      read_by_weight[node->in[i]] = read_by_weight[node->in[i]] || node->weight;
    }
    for (int o = 0; o < node->outputs; o++)
      if (producer[node->out[o]] < 0) producer[node->out[o]] = n;
  }
}

int *ls_lower_body_of(const ls_lowering *lowering, const ls_action *action) {
  const int segments = lowering->sharded->graph->segments.count + 1;
  LS_ASSERT(action->segment < 0 || action->unit < 0);
  const int place = action->unit >= 0 ? segments + action->unit : action->segment + 1;
  return &lowering->bodies[(int64_t)ls_action_sort(action) * lowering->body_places + place];
}

/* The end of each collective that began. */
static void end_transfer(ls_lowering *lowering, const ls_action *action) {
  ls_program *program = lowering->program;
  ls_action beginning = *action;
  beginning.kind = LS_ACTION_BEGIN;
  const int began = *ls_lower_body_of(lowering, &beginning);
  LS_ASSERT(began >= 0);
  const ls_body begun = program->bodies.items[began];
  for (int i = begun.first; i < begun.first + begun.count; i++) {
    ls_instruction made = program->instructions.items[i];
    made.phase = LS_END;
    *LS_APPEND(program->arena, &program->instructions) = made;
  }
}

static void lower_body(ls_lowering *lowering, const ls_action *action) {
  ls_program *program = lowering->program;
  const int first = program->instructions.count;
  switch (action->kind) {
    case LS_ACTION_FORWARD:
    case LS_ACTION_RECOMPUTE:
    case LS_ACTION_BACKWARD:
    case LS_ACTION_INPUT:
    case LS_ACTION_WEIGHT: ls_lower_pass(lowering, action->kind, action->segment); break;
    case LS_ACTION_WAIT: end_transfer(lowering, action); break;
    default: ls_lower_action(lowering, action);
  }
  *LS_APPEND(program->arena, &program->bodies) =
      (ls_body){.first = first, .count = program->instructions.count - first};
}

static int find_logits(const ls_lowering *lowering) {
  const ls_sharded *sharded = lowering->sharded;
  const ls_graph *graph = sharded->graph;
  const ls_tensor_id read = graph->answers.index >= 0 ? graph->answers : graph->logits;
  for (int v = 0; v < sharded->values.count; v++)
    if (sharded->values.items[v].tensor.index == read.index)
      return lowering->slices->inside[v] ? -1 : lowering->value_of[v];
  return -1;
}

static const ls_segment_nodes *list_nodes(const ls_sharded *sharded, const ls_units *units) {
  ls_segment_nodes *lists =
      LS_NEW_ARRAY(sharded->arena, ls_segment_nodes, sharded->graph->segments.count + 1);
  for (int n = 0; n < sharded->nodes.count; n++)
    if (!units->left_out[n])
      *LS_APPEND(sharded->arena, &lists[sharded->nodes.items[n].segment]) = n;
  return lists;
}

typedef struct compilation {
  const ls_graph *graph;
  ls_program_kind kind;
  const ls_sharded *sharded;
  const ls_units *units;
  const ls_chunks *chunks;
  const ls_recompute *recompute;
  const ls_logits_slices *slices;
  ls_stage_boundaries *boundaries;
  int *producer, *last_use;
  bool *read_by_weight;
  const bool *replicable_nodes;
  const ls_segment_nodes *nodes;
  const int64_t *padded;
  double flops, recomputed_flops; /* of the program */
} compilation;

static const bool *find_halves(const ls_sharded *sharded, const ls_schedule *schedule) {
  bool *halves = LS_NEW_ARRAY(sharded->arena, bool, sharded->graph->segments.count + 1);
  for (int a = 0; a < schedule->count; a++)
    if (schedule->items[a].kind == LS_ACTION_INPUT) halves[schedule->items[a].segment] = true;
  return halves;
}

static void lower_actions(ls_lowering *lowering, const ls_schedule *schedule) {
  ls_program *program = lowering->program;
  lowering->body_places = lowering->sharded->graph->segments.count + 1 + lowering->units->count;
  const int64_t cells = (int64_t)LS_ACTION_SORTS * lowering->body_places;
  lowering->bodies = LS_NEW_ARRAY(program->arena, int, cells);
  for (int64_t i = 0; i < cells; i++) lowering->bodies[i] = -1;
  for (int a = 0; a < schedule->count; a++) {
    const ls_action *action = &schedule->items[a];
    int *body = ls_lower_body_of(lowering, action);
    if (*body < 0) {
      *body = program->bodies.count;
      lower_body(lowering, action);
    }
    *LS_APPEND(program->arena, &program->actions) =
        (ls_program_action){.action = *action, .body = *body};
  }
}

/* What readers of a program call its segments and units by. */
static void name_parts(const compilation *c, ls_program *program) {
  const ls_graph *graph = c->graph;
  program->chunks = c->chunks->pipeline->chunks;
  for (int u = 0; u < c->units->count; u++)
    *LS_APPEND(program->arena, &program->units) = c->units->items[u].name;
  for (int s = 0; s < graph->segments.count; s++)
    *LS_APPEND(program->arena, &program->segments) = (ls_program_segment){
        .name = graph->segments.items[s].name, .chunk = c->chunks->chunk_of[s], .unit = -1};
  for (int p = 0; p < graph->parameters.count; p++) {
    const int unit = c->units->of_parameter[p];
    const int segment = ls_graph_tensor(graph, graph->parameters.items[p].tensor)->segment;
    int *own = &program->segments.items[segment].unit; /* before one that two stages share */
    if (*own < 0 || c->units->items[unit].stages[0] < 0) *own = unit;
  }
}

static int64_t alignment_of(const ls_offload *offload) {
  const bool file = offload->optimizer == LS_TIER_NVME || offload->parameters == LS_TIER_NVME ||
                    offload->activations == LS_TIER_NVME;
  return file ? LS_FILE_ALIGNMENT : LS_STORAGE_ALIGNMENT;
}

/* Room for as much as another stage's program has. */
static void reserve_as(ls_program *made, const ls_program *other) {
  LS_RESERVE(made->arena, &made->storages, other->storages.count);
  LS_RESERVE(made->arena, &made->values, other->values.count);
  LS_RESERVE(made->arena, &made->instructions, other->instructions.count);
  LS_RESERVE(made->arena, &made->bodies, other->bodies.count);
  LS_RESERVE(made->arena, &made->actions, other->actions.count);
}

/* `other`: that of a stage before; NULL: there is none. */
static ls_program *compile_stage(const compilation *c, int stage, const ls_program *other) {
  const ls_sharded *sharded = c->sharded;
  ls_arena *arena = c->graph->arena;
  ls_program *made = LS_NEW(arena, ls_program);
  *made = (ls_program){.arena = arena,
                       .kind = c->kind,
                       .mesh = sharded->mesh,
                       .stage = stage,
                       .layout = sharded->layout,
                       .alignment = alignment_of(&sharded->layout.offload),
                       .tokens = c->graph->tokens,
                       .sequence = c->graph->sequence};
  if (other) reserve_as(made, other);
  name_parts(c, made);
  const bool *present = ls_schedule_units_present(sharded, c->units, c->chunks, stage);
  const ls_offload_plan *offload_plan =
      ls_offload_plan_make(sharded, c->units, c->chunks, c->recompute, present, stage);
  ls_lowering lowering = {.program = made,
                          .sharded = sharded,
                          .units = c->units,
                          .chunks = c->chunks,
                          .boundaries = c->boundaries,
                          .recompute = c->recompute,
                          .slices = c->slices,
                          .stage = stage,
                          .offload_plan = offload_plan,
                          .present = present,
                          .value_of = LS_NEW_ARRAY(arena, int, sharded->values.count),
                          .of_slice = LS_NEW_ARRAY(arena, int, sharded->values.count),
                          .away = LS_NEW_ARRAY(arena, int, sharded->values.count),
                          .producer = c->producer,
                          .last_use = c->last_use,
                          .read_by_weight = c->read_by_weight,
                          .replicable_nodes = c->replicable_nodes,
                          .nodes = c->nodes,
                          .padded = c->padded,
                          .loaded = LS_NEW_ARRAY(arena, bool, c->graph->loads.count + 1),
                          .contributed = LS_NEW_ARRAY(arena, bool, c->graph->parameters.count + 1)};
  for (int v = 0; v < sharded->values.count; v++) lowering.value_of[v] = lowering.away[v] = -1;
  ls_lower_units(&lowering);
  const ls_schedule schedule =
      c->kind == LS_PROGRAM_STEP
          ? ls_schedule_step(sharded, c->units, c->chunks, c->recompute, offload_plan, stage)
          : ls_schedule_forward(sharded, c->units, c->chunks, offload_plan, stage);
  lowering.halves = find_halves(sharded, &schedule);
  made->replay_boundary = schedule.replay_boundary;
  lower_actions(&lowering, &schedule);
  made->logits = find_logits(&lowering);
  made->flops = c->flops;
  made->recomputed_flops = c->recomputed_flops;
  ls_lower_buffer_groups(&lowering);
  ls_lower_live_intervals(made);
  return made;
}

static ls_status prepare(const ls_graph *graph, const ls_layout *layout, ls_program_kind kind,
                         compilation *made, ls_error *error) {
  ls_sharded *sharded;
  ls_chunks *chunks;
  LS_TRY(ls_shard(graph, layout, &sharded, error));
  LS_TRY(ls_chunks_make(sharded, kind == LS_PROGRAM_FORWARD, &chunks, error));
  *made = (compilation){.graph = graph, .kind = kind, .sharded = sharded, .chunks = chunks};
  made->producer = LS_NEW_ARRAY(graph->arena, int, sharded->values.count + 1);
  made->last_use = LS_NEW_ARRAY(graph->arena, int, sharded->values.count + 1);
  made->read_by_weight = LS_NEW_ARRAY(graph->arena, bool, sharded->values.count + 1);
  find_uses(sharded, made->producer, made->last_use, made->read_by_weight);
  made->replicable_nodes = ls_lower_replicable_nodes(sharded, made->producer);
  LS_TRY(ls_stage_boundaries_make(sharded, chunks, made->producer, made->replicable_nodes,
                                  &made->boundaries, error));
  made->units = ls_units_make(sharded, chunks);
  made->recompute = ls_recompute_make(sharded, chunks);
  made->slices = ls_logits_slices_make(sharded);
  made->nodes = list_nodes(sharded, made->units);
  made->padded = ls_lower_padded(sharded);
  const int microbatches = kind == LS_PROGRAM_STEP ? layout->microbatches : 1;
  made->flops = ls_graph_flops(graph) * microbatches;
  made->recomputed_flops = ls_recompute_flops(sharded, made->recompute) * microbatches;
  return LS_OK;
}

ls_status ls_program_compile_some(const ls_graph *graph, const ls_layout *layout,
                                  ls_program_kind kind, const bool *wanted, ls_program **stages,
                                  ls_error *error) {
  compilation c;
  LS_TRY(prepare(graph, layout, kind, &c, error));
  const ls_program *last = NULL;
  for (int s = 0; s < layout->pp; s++) {
    stages[s] = !wanted || wanted[s] ? compile_stage(&c, s, last) : NULL;
    if (stages[s]) last = stages[s];
  }
  return LS_OK;
}

ls_status ls_program_compile(const ls_graph *graph, const ls_layout *layout, ls_program_kind kind,
                             ls_program **stages, ls_error *error) {
  return ls_program_compile_some(graph, layout, kind, NULL, stages, error);
}
