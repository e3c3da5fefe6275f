#include "lower/lower.h"
#include "schedule/offload_copies.h"
#include "shard/resolve.h"

/* The instructions of actions on units and on the whole step. */

static ls_instruction *with(ls_instruction *made, int inputs, const int *in, int outputs,
                            const int *out) {
  made->inputs = inputs;
  made->outputs = outputs;
  for (int i = 0; i < inputs; i++) made->in[i] = in[i];
  for (int o = 0; o < outputs; o++) made->out[o] = out[o];
  return made;
}

/* Numbers that each rank has its part of, summed up. */
static void reduce_numbers_of(ls_lowering *lowering, int value, int64_t numbers, ls_axes axes,
                              const char *what) {
  const ls_mesh *mesh = &lowering->program->mesh;
  ls_placement sum = {0};
  for (int a = 0; a < mesh->count; a++)
    if (axes >> a & 1) sum.on[a] = (ls_place){.kind = LS_PARTIAL};
  ls_resolve_step steps[LS_MAX_RESOLVE_STEPS];
  const int count = ls_resolve(mesh, &sum, &(ls_placement){0}, steps);
  for (int s = 0; s < count; s++)
    ls_lower_collective(lowering, steps[s].collective, steps[s].axes, value, value, numbers,
                        ls_resolve_reason(lowering->program->arena, mesh, what, &steps[s]));
}

static void reduce_number(ls_lowering *lowering, int value, ls_axes axes, const char *what) {
  reduce_numbers_of(lowering, value, 1, axes, what);
}

static void lower_count(ls_lowering *lowering) {
  ls_program *program = lowering->program;
  const ls_node *counting = &lowering->sharded->graph->counting;
  int in[LS_MAX_INPUTS];
  for (int i = 0; i < counting->inputs; i++) in[i] = ls_lower_input(lowering, counting->in[i]);
  ls_instruction *made = ls_lower_op(lowering, counting->kind);
  with(made, counting->inputs, in, 1, &program->cell[LS_CELL_VALID_TOKENS]);
  made->attributes = counting->attributes;
  made->write[0] = LS_ADD_AFTER_FIRST;
}

static void lower_total(ls_lowering *lowering) {
  ls_program *program = lowering->program;
  reduce_number(lowering, program->cell[LS_CELL_VALID_TOKENS], ls_mesh_data(&program->mesh),
                "valid tokens of the step");
  with(ls_lower_op(lowering, LS_OP_RECIPROCAL), 2,
       (int[]){program->cell[LS_CELL_VALID_TOKENS], program->cell[LS_CELL_SCALE]}, 1,
       &program->cell[LS_CELL_LOSS_SCALE]);
}

/* A unit's buffer, or a range of it, on its way from one placement to another. */
typedef struct passage {
  int unit;
  const char *what; /* "gradient" */
  ls_dtype dtype;
  int from, to; /* storages: the same, or what the first gather or scatter fills */
  int64_t offset, elements;
  ls_write_mode write; /* of that */
} passage;

static void resolve(ls_lowering *lowering, const passage *of, const ls_placement *from,
                    const ls_placement *to) {
  ls_arena *arena = lowering->program->arena;
  const ls_mesh *mesh = &lowering->program->mesh;
  const ls_unit *unit = &lowering->units->items[of->unit];
  ls_resolve_step steps[LS_MAX_RESOLVE_STEPS];
  const int count = ls_resolve(mesh, from, to, steps);
  LS_ASSERT(count >= 0);
  const ls_placement *now = from;
  int storage = of->from;
  for (int s = 0; s < count; now = &steps[s++].after) {
    const ls_resolve_step *step = &steps[s];
    const bool in_place = step->collective == LS_ALL_REDUCE;
    const bool pair = step->axes == ls_mesh_axes(mesh, LS_MESH_STAGE); /* of two uses */
    const char *name = ls_arena_printf(arena, "%s of %s", of->what, unit->name);
    const char *whose = name;
    if (pair)
      whose =
          ls_arena_printf(arena, "%s, stages %d and %d", name, unit->stages[0], unit->stages[1]);
    const int source = ls_lower_range(lowering, name, storage, of->dtype, of->unit, of->offset,
                                      of->elements, in_place ? &step->after : now);
    int target = source;
    if (!in_place) {
      storage = of->to;
      target = ls_lower_range(lowering, name, storage, of->dtype, of->unit, of->offset,
                              of->elements, &step->after);
    }
    const bool shard = in_place && of->elements == unit->elements;
    ls_instruction *made =
        ls_lower_collective(lowering, step->collective, step->axes, source, target,
                            shard ? ls_unit_elements(mesh, unit, &step->after) : of->elements,
                            ls_resolve_reason(arena, mesh, whose, step));
    if (!in_place) made->write[0] = of->write;
    if (pair) made->peer = unit->stages[lowering->stage == unit->stages[0]];
  }
}

static void lower_gather(ls_lowering *lowering, int unit, bool publish) {
  const ls_unit *about = &lowering->units->items[unit];
  const ls_unit_memory *memory = &lowering->memory[unit];
  const passage of = {
      .unit = unit,
      .what = about->codes && !publish ? "codes" : "parameters",
      .dtype = ls_lower_dtype(lowering, unit, publish ? LS_PART_STORED : LS_PART_USED),
      .from = publish ? memory->part[LS_PART_STORED] : memory->source,
      .to = memory->part[publish ? LS_PART_STORED : LS_PART_USED],
      .elements = about->elements};
  if (publish)
    resolve(lowering, &of, &about->state, &about->stored);
  else
    resolve(lowering, &of, &about->stored, &about->used);
}

/* Gradients partial on tp lie last in the unit, together by axes: one all-reduce for each range. */
static void reduce_partial(ls_lowering *lowering, int unit) {
  const ls_unit *about = &lowering->units->items[unit];
  const int raw = lowering->memory[unit].part[LS_PART_RAW_GRADIENT];
  for (int e = 0; e < about->entries.count;) {
    const ls_unit_entry *first = &about->entries.items[e];
    int next = e + 1;
    while (next < about->entries.count && about->entries.items[next].partial == first->partial)
      next++;
    const ls_unit_entry *last = &about->entries.items[next - 1];
    e = next;
    const passage of = {.unit = unit,
                        .what = "gradient",
                        .dtype = ls_lower_dtype(lowering, unit, LS_PART_GRADIENT),
                        .from = raw,
                        .to = raw,
                        .offset = first->offset,
                        .elements = last->offset + last->elements - first->offset};
    ls_placement partial = about->raw;
    for (int a = 0; a < lowering->program->mesh.count; a++)
      if (first->partial >> a & 1) partial.on[a] = (ls_place){.kind = LS_PARTIAL};
    resolve(lowering, &of, &partial, &about->raw);
  }
}

static void reduce_gradient(ls_lowering *lowering, int unit, int storage, const ls_placement *from,
                            const ls_placement *to, ls_write_mode write) {
  const passage of = {.unit = unit,
                      .what = "gradient",
                      .dtype = ls_lower_dtype(lowering, unit, LS_PART_GRADIENT),
                      .from = storage,
                      .to = lowering->memory[unit].reduced,
                      .elements = lowering->units->items[unit].elements,
                      .write = write};
  resolve(lowering, &of, from, to);
}

static void lower_reduce(ls_lowering *lowering, int unit) {
  const ls_unit *about = &lowering->units->items[unit];
  reduce_partial(lowering, unit);
  reduce_gradient(lowering, unit, lowering->memory[unit].part[LS_PART_RAW_GRADIENT], &about->raw,
                  &about->gradient, LS_ADD_AFTER_FIRST);
}

/* What REDUCE has left to do. Two stages that use a parameter add up last, what each then has. */
static void lower_finish(ls_lowering *lowering, int unit) {
  const ls_unit *about = &lowering->units->items[unit];
  const ls_unit_memory *memory = &lowering->memory[unit];
  const bool begun = ls_lower_differ(lowering, &about->raw, &about->gradient);
  ls_placement own = about->state;
  const ls_mesh *mesh = &lowering->program->mesh;
  for (int a = 0; a < mesh->count; a++)
    if (ls_mesh_axes(mesh, LS_MESH_STAGE) >> a & 1) own.on[a] = about->gradient.on[a];
  if (!begun) reduce_partial(lowering, unit);
  reduce_gradient(lowering, unit, begun ? memory->reduced : memory->part[LS_PART_RAW_GRADIENT],
                  &about->gradient, &own, LS_WRITE);
  reduce_gradient(lowering, unit, memory->reduced, &own, &about->state, LS_WRITE);
}

/* A part of a parameter where it is updated. */
static int updated(ls_lowering *lowering, int p, ls_state_part part) {
  const ls_program_parameter *parameter = &lowering->program->parameters[p];
  const ls_unit_memory *memory = &lowering->memory[parameter->unit];
  const int waiting = parameter->part[part];
  if (waiting < 0 || memory->part[part] == memory->at[part]) return waiting;
  return ls_lower_parameter(lowering, p, part, lowering->program->values.items[waiting].name,
                            memory->at[part], &lowering->units->items[parameter->unit].state);
}

/* Ranks along these have other parts of some gradient. */
static ls_axes norm_axes(const ls_lowering *lowering) {
  const ls_mesh *mesh = &lowering->program->mesh;
  ls_axes axes = ls_mesh_axes(mesh, LS_MESH_STAGE) | ls_mesh_axes(mesh, LS_MESH_TENSOR);
  for (int u = 0; u < lowering->units->count; u++) {
    const ls_unit *unit = &lowering->units->items[u];
    axes |= unit->held | ls_placement_axes(mesh, &unit->state, LS_SHARDED_FLAT, -1);
  }
  return axes;
}

/* `axes`: those of the norm. */
static void sum_squares(ls_lowering *lowering, int p, ls_axes axes) {
  const ls_program *program = lowering->program;
  if (!program->parameters[p].owner || !program->parameters[p].trainable) return;
  const int gradient = updated(lowering, p, LS_PART_GRADIENT);
  const ls_axes replicas = ls_value_replicas(&program->mesh, &program->values.items[gradient]);
  ls_instruction *made = ls_lower_op(lowering, LS_OP_SQUARED_NORM);
  made->attributes.weight = 1;
  made->first_only = ls_mesh_active(&program->mesh, axes & replicas);
  with(made, 1, &gradient, 1, &program->cell[LS_CELL_SQUARED_NORM])->write[0] =
      lowering->summed ? LS_ADD : LS_WRITE;
  lowering->summed = true;
}

static void sum_unit(ls_lowering *lowering, int unit) {
  const ls_units *units = lowering->units;
  const ls_axes axes = norm_axes(lowering);
  for (int i = units->first[unit]; i < units->first[unit + 1]; i++)
    sum_squares(lowering, units->parameters[i], axes);
}

/* Between stages in halves: nobody waits until the sum is asked for. */
static void sum_stages(ls_lowering *lowering, ls_phase phase, ls_cell cell, const char *what) {
  const int value = lowering->program->cell[cell];
  const ls_mesh *mesh = &lowering->program->mesh;
  const ls_resolve_step step = {.axes = ls_mesh_axes(mesh, LS_MESH_STAGE),
                                .from = {.kind = LS_PARTIAL}};
  ls_instruction *made =
      ls_lower_collective(lowering, LS_SUM_NUMBERS, step.axes, value, value, 1,
                          ls_resolve_reason(lowering->program->arena, mesh, what, &step));
  made->phase = phase;
  if (phase == LS_BEGIN) made->outputs = 0;
}

static bool validates(const ls_lowering *lowering) {
  return lowering->sharded->layout.post_validation && lowering->program->kind == LS_PROGRAM_STEP;
}

/* A cell's sum over axes of which pp is one; `zero`: nothing of it is of this stage. */
static void reduce_stages(ls_lowering *lowering, ls_cell cell, bool zero, ls_axes axes,
                          const char *what) {
  const int *value = &lowering->program->cell[cell];
  const bool begins = validates(lowering);
  if (zero) with(ls_lower_op(lowering, LS_OP_ZERO), 1, value, 1, value);
  const ls_axes inside = zero ? 0 : axes & ls_mesh_inside(&lowering->program->mesh);
  reduce_number(lowering, *value, begins ? inside : axes, what);
  if (begins) sum_stages(lowering, LS_BEGIN, cell, what);
}

static void lower_norm(ls_lowering *lowering) {
  const bool summed =
      ls_offload_plan_files(lowering->offload_plan, lowering->units); /* unit by unit */
  const ls_axes axes = norm_axes(lowering);
  for (int p = 0; p < lowering->program->parameter_count && !summed; p++)
    sum_squares(lowering, p, axes);
  reduce_stages(lowering, LS_CELL_SQUARED_NORM, !lowering->summed, axes, "squared gradient norm");
}

static void lower_factor(ls_lowering *lowering) {
  ls_instruction *made = ls_lower_op(lowering, LS_OP_CLIP_FACTOR);
  made->attributes.clip = lowering->sharded->layout.optimizer.clip;
  const int *cell = lowering->program->cell;
  with(made, 4,
       (int[]){cell[LS_CELL_SQUARED_NORM], cell[LS_CELL_LOSS_SUM], cell[LS_CELL_VALID_TOKENS],
               cell[LS_CELL_SCALE]},
       3, (int[]){cell[LS_CELL_NORM], cell[LS_CELL_CLIP_FACTOR], cell[LS_CELL_MEAN_LOSS]});
}

enum { REWARDS = LS_CELL_COUNT - LS_CELL_REWARD_CHOSEN };

static ls_cell reward(int number) {
  return (ls_cell)((int)LS_CELL_REWARD_CHOSEN + number);
}

/* The axes that a tensor is to be summed over, and that of stages. */
static ls_axes sum_axes(const ls_lowering *lowering, ls_tensor_id id) {
  const ls_mesh *mesh = &lowering->program->mesh;
  int value = 0; /* as made */
  while (lowering->sharded->values.items[value].tensor.index != id.index) value++;
  return ls_mesh_axes(mesh, LS_MESH_STAGE) |
         ls_placement_axes(mesh, &lowering->sharded->values.items[value].placement, LS_PARTIAL, -1);
}

/* Of experts each stage has its own layers'. */
static void lower_loads(ls_lowering *lowering) {
  const ls_graph *graph = lowering->sharded->graph;
  for (int l = 0; l < graph->loads.count; l++) {
    const int *value = &lowering->program->loads.items[l];
    if (!lowering->loaded[l]) with(ls_lower_op(lowering, LS_OP_ZERO), 1, value, 1, value);
    reduce_numbers_of(lowering, *value, graph->experts, sum_axes(lowering, graph->loads.items[l]),
                      "loads of experts");
  }
}

/* With post-validation the factor is a speculation until VALIDATE: that of this stage's part of the
 * norm.
 */
static void lower_loss(ls_lowering *lowering) {
  const ls_mesh *mesh = &lowering->program->mesh;
  const ls_graph *graph = lowering->sharded->graph;
  const ls_node *last = &graph->nodes.items[ls_graph_tensor(graph, graph->loss)->producer];
  const bool elsewhere = ls_chunks_stage(lowering->chunks, last->segment) != lowering->stage;
  const ls_axes axes = sum_axes(lowering, graph->loss);
  for (int l = 0; l < graph->losses.count; l++)
    LS_ASSERT(ls_mesh_active(mesh, sum_axes(lowering, graph->losses.items[l])) ==
              ls_mesh_active(mesh, axes));
  reduce_stages(lowering, LS_CELL_LOSS_SUM, !lowering->pays, axes, "loss");
  lower_loads(lowering);
  for (int r = 0; r < REWARDS && graph->rewards[r].index >= 0; r++)
    reduce_stages(lowering, reward(r), elsewhere, axes, "rewards");
  if (validates(lowering))
    reduce_stages(lowering, LS_CELL_STOP, false, ls_mesh_all(mesh), "wishes to stop");
  lower_factor(lowering);
}

static void lower_validation(ls_lowering *lowering) {
  sum_stages(lowering, LS_END, LS_CELL_SQUARED_NORM, "squared gradient norm");
  sum_stages(lowering, LS_END, LS_CELL_LOSS_SUM, "loss");
  for (int r = 0; r < REWARDS && lowering->sharded->graph->rewards[r].index >= 0; r++)
    sum_stages(lowering, LS_END, reward(r), "rewards");
  sum_stages(lowering, LS_END, LS_CELL_STOP, "wishes to stop");
  lower_factor(lowering);
}

/* Stored weights are written as the state is placed. */
static int update_operand(ls_lowering *lowering, int p, ls_update_operand of) {
  const ls_program_parameter *parameter = &lowering->program->parameters[p];
  const ls_unit_memory *memory = &lowering->memory[parameter->unit];
  if (of.from == LS_FROM_CELL) return lowering->program->cell[of.index];
  if (of.from == LS_FROM_NUMBER) return lowering->number[of.index];
  if (of.from >= LS_FROM_MATRIX)
    return ls_lower_whole(lowering, p, of, memory->temporary[of.from][of.index],
                          &(ls_placement){0});
  if (of.from == LS_FROM_PART && of.index != LS_PART_STORED)
    return updated(lowering, p, (ls_state_part)of.index);
  const bool weights = of.from == LS_FROM_PART;
  return ls_lower_parameter(
      lowering, p, weights ? LS_PART_STORED : LS_PART_MASTER, parameter->name,
      weights ? memory->part[LS_PART_STORED] : memory->temporary[of.from][of.index],
      &lowering->units->items[parameter->unit].state);
}

/* Axes along which a node has shards of what it reads. */
static ls_axes shard_axes(const ls_lowering *lowering, int inputs, const int *in) {
  const ls_program *program = lowering->program;
  ls_axes axes = 0;
  for (int i = 0; i < inputs; i++) {
    const ls_placement *placement = &program->values.items[in[i]].placement;
    axes |= ls_placement_axes(&program->mesh, placement, LS_SHARDED, -1) |
            ls_placement_axes(&program->mesh, placement, LS_SHARDED_FLAT, -1);
  }
  return ls_mesh_active(&program->mesh, axes);
}

/* What each rank has its part of, on these axes. */
static ls_placement partial_on(ls_axes axes, ls_reduce reduce) {
  ls_placement made = {0};
  for (int a = 0; a < LS_MAX_AXES; a++)
    if (axes >> a & 1) made.on[a] = (ls_place){.kind = LS_PARTIAL, .reduce = reduce};
  return made;
}

static ls_reduce reduce_of(ls_update_operand of) {
  return of.from == LS_FROM_BLOCKS ? LS_MAX : LS_SUM;
}

/* A whole temporary, made of every rank's part of it: on the device, where ranks meet. */
static void reduce_whole(ls_lowering *lowering, int p, ls_update_operand of, ls_axes axes,
                         int partial, const char *what) {
  const ls_program *program = lowering->program;
  const int unit = program->parameters[p].unit, own = program->values.items[partial].storage;
  const bool away = lowering->offload_plan->state[unit];
  const int storage = away ? ls_lower_meeting(lowering, unit, of.from) : own;
  const ls_placement from = partial_on(axes, reduce_of(of)), whole = {0};
  ls_resolve_step steps[LS_MAX_RESOLVE_STEPS];
  const int count = ls_resolve(&program->mesh, &from, &whole, steps);
  LS_ASSERT(count >= 0);
  int64_t elements = 1;
  for (int d = 0; d < program->values.items[partial].ndim; d++)
    elements *= program->values.items[partial].global[d];
  int source = partial;
  if (away) {
    source = ls_lower_whole(lowering, p, of, storage, &from);
    ls_lower_move_now(lowering, partial, source, elements, what);
  }
  for (int s = 0; s < count; s++) {
    const int target = ls_lower_whole(lowering, p, of, storage, &steps[s].after);
    ls_lower_collective(lowering, steps[s].collective, steps[s].axes, source, target, elements,
                        ls_resolve_reason(program->arena, &program->mesh, what, &steps[s]))
        ->reduce = steps[s].from.reduce;
    source = target;
  }
  if (away)
    ls_lower_move_now(lowering, source, ls_lower_whole(lowering, p, of, own, &whole), elements,
                      what);
}

/* What a node makes of shards, but for shards of its own, is each rank's part of it. */
static void reduce_made(ls_lowering *lowering, int p, const ls_update_node *node, const int *out,
                        ls_axes axes) {
  const ls_program *program = lowering->program;
  const char *what = ls_arena_printf(program->arena, "%s of %s", ls_op_name(node->op),
                                     program->parameters[p].name);
  for (int o = 0; o < node->outputs && axes; o++) {
    if (node->out[o].from == LS_FROM_NUMBER) reduce_number(lowering, out[o], axes, what);
    if (node->out[o].from >= LS_FROM_BLOCKS)
      reduce_whole(lowering, p, node->out[o], axes, out[o], what);
  }
}

/* What owners do they do with the matrices that they have. */
static int node_operand(ls_lowering *lowering, int p, const ls_update_node *node,
                        ls_update_operand of) {
  const int unit = lowering->program->parameters[p].unit;
  if (node->owners && of.from == LS_FROM_ELEMENTS && lowering->memory[unit].owned >= 0)
    return ls_lower_owned(lowering, p);
  return update_operand(lowering, p, of);
}

/* A node of the optimizer's update of a parameter. */
static void lower_node(ls_lowering *lowering, int p, const ls_update_node *node) {
  int in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS];
  for (int i = 0; i < node->inputs; i++) in[i] = node_operand(lowering, p, node, node->in[i]);
  const ls_axes axes = shard_axes(lowering, node->inputs, in);
  for (int o = 0; o < node->outputs; o++) {
    const ls_placement part = partial_on(axes, reduce_of(node->out[o]));
    out[o] = node_operand(lowering, p, node, node->out[o]);
    if (node->out[o].from >= LS_FROM_BLOCKS)
      lowering->program->values.items[out[o]].placement = part;
  }
  ls_instruction *made =
      with(ls_lower_op(lowering, node->op), node->inputs, in, node->outputs, out);
  made->attributes = ls_optimizer_attributes(&lowering->sharded->layout.optimizer, node,
                                             &lowering->sharded->graph->parameters.items[p]);
  reduce_made(lowering, p, node, out, axes);
}

static void lower_nodes(ls_lowering *lowering, int unit, const ls_update_node *nodes, int count) {
  const ls_units *units = lowering->units;
  for (int i = units->first[unit]; i < units->first[unit + 1]; i++)
    for (int n = 0; n < count; n++) lower_node(lowering, units->parameters[i], &nodes[n]);
}

/* A node of owners begins when all matrices are with theirs. */
static void lower_row(ls_lowering *lowering, int unit, const ls_optimizer_row *row) {
  int first = 0;
  for (int n = 0; n < row->nodes; n++) {
    const ls_update_node *node = &row->node[n];
    if (!node->owners) continue;
    lower_nodes(lowering, unit, row->node + first, n - first);
    ls_lower_deal(lowering, unit, node);
    lower_nodes(lowering, unit, node, 1);
    ls_lower_hand_back(lowering, unit, node);
    first = n + 1;
  }
  lower_nodes(lowering, unit, row->node + first, row->nodes - first);
}

/* Weights as the update will make them where the factor is what it is now. */
static void lower_speculation(ls_lowering *lowering, int unit) {
  const ls_update_node node = ls_optimizer_speculation(&lowering->sharded->layout.optimizer);
  lower_nodes(lowering, unit, &node, 1);
}

/* Master weights to stored ones, as the state is placed. */
static void round_weights(ls_lowering *lowering, int unit, int from, int to) {
  const ls_unit *about = &lowering->units->items[unit];
  const int master =
      ls_lower_range(lowering, about->name, from, ls_lower_dtype(lowering, unit, LS_PART_MASTER),
                     unit, 0, about->elements, &about->state);
  const int stored =
      ls_lower_range(lowering, about->name, to, ls_lower_dtype(lowering, unit, LS_PART_STORED),
                     unit, 0, about->elements, &about->state);
  with(ls_lower_op(lowering, LS_OP_CAST), 1, &master, 1, &stored);
}

static void lower_update(ls_lowering *lowering, int unit) {
  const ls_optimizer_row *row = ls_optimizer_update(&lowering->sharded->layout.optimizer,
                                                    lowering->units->items[unit].update);
  lower_row(lowering, unit, row);
  const ls_unit_memory *memory = &lowering->memory[unit];
  const bool returns = ls_offload_returns(lowering->offload_plan, unit);
  const int master_at = memory->at[LS_PART_MASTER];
  if (row->point.outputs || memory->part[LS_PART_MASTER] == memory->part[LS_PART_STORED] ||
      (returns && memory->at[LS_PART_STORED] == master_at))
    return;
  round_weights(lowering, unit, master_at, (returns ? memory->at : memory->part)[LS_PART_STORED]);
}

/* A step may take its gradients at a point of its own; all else is of the master weights. */
static void lower_point(ls_lowering *lowering, int unit) {
  const ls_optimizer_row *row = ls_optimizer_row_of(&lowering->sharded->layout.optimizer);
  const ls_unit *about = &lowering->units->items[unit];
  const int *part = lowering->memory[unit].part;
  const bool made = row->point.outputs && !about->frozen;
  if (made && lowering->program->kind == LS_PROGRAM_STEP)
    lower_nodes(lowering, unit, &row->point, 1);
  else if (made)
    round_weights(lowering, unit, part[LS_PART_MASTER], part[LS_PART_STORED]);
  if (about->codes) ls_lower_codes(lowering, unit);
}

/* The collectives of a unit begin; one waits for the one before it on their queue. */
static void begin_transfer(ls_lowering *lowering, const ls_action *action) {
  const int unit = action->unit, first = lowering->program->instructions.count;
  switch (action->transfer) {
    case LS_TRANSFER_GATHER:
    case LS_TRANSFER_PUBLISH:
      lower_gather(lowering, unit, action->transfer == LS_TRANSFER_PUBLISH);
      break;
    case LS_TRANSFER_REDUCE: lower_reduce(lowering, unit); break;
    case LS_TRANSFER_FINISH: lower_finish(lowering, unit); break;
    case LS_TRANSFER_SEND:
    case LS_TRANSFER_RECEIVE: ls_lower_message(lowering, action); break;
    default: ls_lower_move(lowering, action);
  }
  for (int i = first; i < lowering->program->instructions.count; i++)
    lowering->program->instructions.items[i].phase = LS_BEGIN;
}

void ls_lower_action(ls_lowering *lowering, const ls_action *action) {
  switch (action->kind) {
    case LS_ACTION_COUNT: lower_count(lowering); break;
    case LS_ACTION_TOTAL: lower_total(lowering); break;
    case LS_ACTION_BEGIN: begin_transfer(lowering, action); break;
    case LS_ACTION_SUM: sum_unit(lowering, action->unit); break;
    case LS_ACTION_NORM:
      lower_norm(lowering);
      lower_loss(lowering);
      break;
    case LS_ACTION_SPECULATE: lower_speculation(lowering, action->unit); break;
    case LS_ACTION_VALIDATE: lower_validation(lowering); break;
    case LS_ACTION_UPDATE: lower_update(lowering, action->unit); break;
    case LS_ACTION_LOSS: lower_loss(lowering); break;
    case LS_ACTION_POINT: lower_point(lowering, action->unit); break;
    default: break; /* DROP ends a lifetime */
  }
}
