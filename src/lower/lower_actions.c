#include "lower/lower.h"
#include "schedule/offload_copies.h"

/* The instructions of actions on units and on the whole step. */

static ls_instruction *with(ls_instruction *made, int inputs, const int *in, int outputs,
                            const int *out) {
  made->inputs = inputs;
  made->outputs = outputs;
  for (int i = 0; i < inputs; i++) made->in[i] = in[i];
  for (int o = 0; o < outputs; o++) made->out[o] = out[o];
  return made;
}

static void reduce_cell(ls_lowering *lowering, ls_cell cell, ls_axes axes, const char *reason) {
  axes = ls_mesh_active(&lowering->program->mesh, axes);
  if (!axes) return;
  const int value = lowering->program->cell[cell];
  ls_lower_collective(lowering, LS_ALL_REDUCE, axes, value, value, 1, reason);
}

static void lower_count(ls_lowering *lowering) {
  ls_program *program = lowering->program;
  ls_instruction *made = ls_lower_op(lowering, LS_OP_COUNT_VALID);
  with(made, 1, &program->labels, 1, &program->cell[LS_CELL_VALID_TOKENS]);
  made->write[0] = LS_ADD_AFTER_FIRST;
}

static void lower_total(ls_lowering *lowering) {
  ls_program *program = lowering->program;
  reduce_cell(lowering, LS_CELL_VALID_TOKENS, LS_AXES_DATA,
              "valid tokens of the step: P(sum) -> R");
  with(ls_lower_op(lowering, LS_OP_RECIPROCAL), 2,
       (int[]){program->cell[LS_CELL_VALID_TOKENS], program->cell[LS_CELL_SCALE]}, 1,
       &program->cell[LS_CELL_LOSS_SCALE]);
}

static void lower_gather(ls_lowering *lowering, int unit, bool publish) {
  const ls_unit *about = &lowering->units->items[unit];
  const ls_unit_memory *memory = &lowering->memory[unit];
  const ls_dtype compute = lowering->sharded->layout.compute;
  ls_arena *arena = lowering->program->arena;
  const char *name = ls_arena_printf(arena, "%s piece", about->name);
  const int piece = ls_lower_range(lowering, name, publish ? memory->stored : memory->source,
                                   compute, unit, 0, about->elements, true);
  const int whole = ls_lower_range(lowering, about->name, publish ? memory->stored : memory->used,
                                   compute, unit, 0, about->elements, false);
  const char *reason = ls_arena_printf(arena, "parameters of %s: S(flat) on dp_shard -> R for %s",
                                       about->name, publish ? "storing them whole" : "use");
  ls_lower_collective(lowering, LS_ALL_GATHER, 1u << LS_AXIS_DP_SHARD, piece, whole,
                      about->elements, reason);
}

/* Gradients partial on tp lie last in the unit, together by axes: one all-reduce for each range. */
static void reduce_partial(ls_lowering *lowering, int unit) {
  const ls_unit *about = &lowering->units->items[unit];
  ls_arena *arena = lowering->program->arena;
  for (int e = 0; e < about->entries.count;) {
    const ls_unit_entry *first = &about->entries.items[e];
    int next = e + 1;
    while (next < about->entries.count && about->entries.items[next].partial == first->partial)
      next++;
    const ls_unit_entry *last = &about->entries.items[next - 1];
    e = next;
    if (!first->partial) continue;
    const int64_t elements = last->offset + last->elements - first->offset;
    const char *name = ls_arena_printf(arena, "gradient of %s, partial on tp", about->name);
    const int range = ls_lower_range(lowering, name, lowering->memory[unit].raw, lowering->gradient,
                                     unit, first->offset, elements, false);
    const char *reason = ls_arena_printf(arena, "gradient of %s, P(sum) on %s -> R", about->name,
                                         ls_axes_print(arena, first->partial));
    ls_lower_collective(lowering, LS_ALL_REDUCE, first->partial, range, range, elements, reason);
  }
}

static void scatter_gradient(ls_lowering *lowering, int unit, ls_write_mode write) {
  const ls_unit *about = &lowering->units->items[unit];
  const ls_unit_memory *memory = &lowering->memory[unit];
  ls_arena *arena = lowering->program->arena;
  const char *name = ls_arena_printf(arena, "gradient of %s", about->name);
  const int raw = ls_lower_range(lowering, name, memory->raw, lowering->gradient, unit, 0,
                                 about->elements, false);
  const int piece = ls_lower_range(lowering, name, memory->reduced, lowering->gradient, unit, 0,
                                   about->elements, true);
  const char *reason =
      ls_arena_printf(arena, "gradient of %s, P(sum) on dp_shard -> S(flat)", about->name);
  ls_lower_collective(lowering, LS_REDUCE_SCATTER, 1u << LS_AXIS_DP_SHARD, raw, piece,
                      about->elements, reason)
      ->write[0] = write;
}

static void all_reduce_gradient(ls_lowering *lowering, int unit, ls_axes axes, bool piece) {
  axes = ls_mesh_active(&lowering->program->mesh, axes);
  if (!axes) return;
  const ls_unit *about = &lowering->units->items[unit];
  ls_arena *arena = lowering->program->arena;
  const char *name = ls_arena_printf(arena, "gradient of %s", about->name);
  const int range = ls_lower_range(lowering, name, lowering->memory[unit].reduced,
                                   lowering->gradient, unit, 0, about->elements, piece);
  const char *reason = ls_arena_printf(arena, "gradient of %s, P(sum) on %s -> R", about->name,
                                       ls_axes_print(arena, axes));
  ls_lower_collective(lowering, LS_ALL_REDUCE, axes, range, range,
                      piece ? about->chunk : about->elements, reason);
}

/* A parameter that two stages use: each has the gradient of its own use. */
static void add_stages(ls_lowering *lowering, int unit, bool piece) {
  const ls_unit *about = &lowering->units->items[unit];
  if (about->stages[0] < 0) return;
  ls_arena *arena = lowering->program->arena;
  const char *name = ls_arena_printf(arena, "gradient of %s", about->name);
  const int range = ls_lower_range(lowering, name, lowering->memory[unit].reduced,
                                   lowering->gradient, unit, 0, about->elements, piece);
  const char *reason = ls_arena_printf(arena, "gradient of %s, P(sum) on stages %d and %d -> R",
                                       about->name, about->stages[0], about->stages[1]);
  ls_lower_collective(lowering, LS_ALL_REDUCE, LS_AXES_STAGE, range, range,
                      piece ? about->chunk : about->elements, reason)
      ->peer = about->stages[lowering->stage == about->stages[0] ? 1 : 0];
}

static void lower_finish(ls_lowering *lowering, int unit) {
  const ls_sharded *sharded = lowering->sharded;
  const bool sharded_state = ls_schedule_state_sharded(sharded);
  if (!ls_schedule_reduces_each(sharded)) {
    reduce_partial(lowering, unit);
    if (sharded_state) scatter_gradient(lowering, unit, LS_WRITE);
  }
  all_reduce_gradient(lowering, unit, sharded_state ? 1u << LS_AXIS_DP_REPLICATE : LS_AXES_DATA,
                      sharded_state);
  add_stages(lowering, unit, sharded_state);
}

/* A part of a parameter where it is updated. */
static int updated(ls_lowering *lowering, int p, int waiting, int home, int at, ls_dtype dtype) {
  if (waiting < 0 || home == at) return waiting;
  return ls_lower_parameter(lowering, p, lowering->program->values.items[waiting].name, at, dtype,
                            ls_schedule_state_sharded(lowering->sharded));
}

static int gradient_of(ls_lowering *lowering, int p) {
  const ls_program_parameter *parameter = &lowering->program->parameters[p];
  const ls_unit_memory *memory = &lowering->memory[parameter->unit];
  return updated(lowering, p, parameter->gradient, memory->given, memory->taken,
                 lowering->gradient);
}

static void sum_squares(ls_lowering *lowering, int p) {
  const ls_program *program = lowering->program;
  if (!program->parameters[p].gives) return;
  const ls_unit *unit = &lowering->units->items[program->parameters[p].unit];
  const int gradient = gradient_of(lowering, p);
  ls_instruction *made = ls_lower_op(lowering, LS_OP_SQUARED_NORM);
  made->attributes.weight = 1;
  made->first_only = unit->entries.items[lowering->units->entry_of[p]].replicated;
  with(made, 1, &gradient, 1, &program->cell[LS_CELL_SQUARED_NORM])->write[0] =
      lowering->summed ? LS_ADD : LS_WRITE;
  lowering->summed = true;
}

static void sum_unit(ls_lowering *lowering, int unit) {
  const ls_units *units = lowering->units;
  for (int i = units->first[unit]; i < units->first[unit + 1]; i++)
    sum_squares(lowering, units->parameters[i]);
}

/* Between stages in halves: nobody waits until the sum is asked for. */
static void sum_stages(ls_lowering *lowering, ls_collective half, ls_cell cell,
                       const char *reason) {
  const int value = lowering->program->cell[cell];
  ls_instruction *made =
      ls_lower_collective(lowering, half, LS_AXES_STAGE, value, value, 1, reason);
  if (half == LS_SUM_BEGIN) made->outputs = 0;
}

static bool validates(const ls_lowering *lowering) {
  return lowering->sharded->layout.post_validation && lowering->program->kind == LS_PROGRAM_STEP;
}

/* A cell's sum over axes of which pp is one; `zero`: nothing of it is of this stage. */
static void reduce_stages(ls_lowering *lowering, ls_cell cell, bool zero, ls_axes axes,
                          const char *reason) {
  const int *value = &lowering->program->cell[cell];
  const bool begins = validates(lowering);
  if (zero) with(ls_lower_op(lowering, LS_OP_ZERO), 1, value, 1, value);
  const ls_axes inside = zero ? 0 : axes & (LS_AXES_ALL ^ LS_AXES_STAGE);
  reduce_cell(lowering, cell, begins ? inside : axes, reason);
  if (begins) sum_stages(lowering, LS_SUM_BEGIN, cell, reason);
}

static void lower_norm(ls_lowering *lowering) {
  const bool summed = ls_homes_files(lowering->homes, lowering->units); /* unit by unit */
  for (int p = 0; p < lowering->program->parameter_count && !summed; p++) sum_squares(lowering, p);
  const bool sharded = ls_schedule_state_sharded(lowering->sharded);
  reduce_stages(lowering, LS_CELL_SQUARED_NORM, !lowering->summed,
                LS_AXES_STAGE | LS_AXES_TENSOR | (sharded ? 1u << LS_AXIS_DP_SHARD : 0),
                "squared gradient norm: P(sum) -> R");
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

/* With post-validation the factor is a guess until SETTLE: that of this stage's part of the norm.
 */
static void lower_loss(ls_lowering *lowering) {
  const ls_graph *graph = lowering->sharded->graph;
  const ls_node *last = &graph->nodes.items[ls_graph_tensor(graph, graph->loss)->producer];
  const bool elsewhere = ls_chunks_stage(lowering->chunks, last->segment) != lowering->stage;
  reduce_stages(lowering, LS_CELL_LOSS_SUM, elsewhere, LS_AXES_STAGE | LS_AXES_DATA,
                "loss: P(sum) -> R");
  if (validates(lowering))
    reduce_stages(lowering, LS_CELL_STOP, false, LS_AXES_ALL, "wishes to stop: P(sum) -> R");
  lower_factor(lowering);
}

static void lower_settle(ls_lowering *lowering) {
  sum_stages(lowering, LS_SUM_END, LS_CELL_SQUARED_NORM, "squared gradient norm: P(sum) -> R");
  sum_stages(lowering, LS_SUM_END, LS_CELL_LOSS_SUM, "loss: P(sum) -> R");
  sum_stages(lowering, LS_SUM_END, LS_CELL_STOP, "wishes to stop: P(sum) -> R");
  lower_factor(lowering);
}

static void set_optimizer(ls_instruction *made, const ls_optimizer *optimizer, int ndim) {
  const bool adamw = optimizer->kind == LS_OPTIMIZER_ADAMW;
  made->attributes.beta1 = adamw ? optimizer->beta1 : optimizer->momentum;
  made->attributes.beta2 = optimizer->beta2;
  made->attributes.epsilon = optimizer->epsilon;
  made->attributes.weight_decay = ndim >= 2 ? optimizer->weight_decay : 0;
}

/* A parameter's weights as the update will make them where the factor is what it is now. */
static void lower_guess(ls_lowering *lowering, int p) {
  const ls_program_parameter *parameter = &lowering->program->parameters[p];
  const ls_sharded *sharded = lowering->sharded;
  const bool adamw = sharded->layout.optimizer.kind == LS_OPTIMIZER_ADAMW;
  const int *cell = lowering->program->cell;
  const int weights =
      ls_lower_parameter(lowering, p, parameter->name, lowering->memory[parameter->unit].stored,
                         sharded->layout.compute, ls_schedule_state_sharded(sharded));
  ls_instruction *made = ls_lower_op(lowering, adamw ? LS_OP_ADAMW_AHEAD : LS_OP_SGD_AHEAD);
  set_optimizer(made, &sharded->layout.optimizer, parameter->ndim);
  with(
      made, adamw ? 7 : 6,
      (int[]){gradient_of(lowering, p), cell[LS_CELL_LEARNING_RATE], cell[LS_CELL_STEP],
              cell[LS_CELL_CLIP_FACTOR], parameter->master, parameter->moment1, parameter->moment2},
      1, &weights);
}

static void lower_ahead(ls_lowering *lowering, int unit) {
  const ls_units *units = lowering->units;
  for (int i = units->first[unit]; i < units->first[unit + 1]; i++)
    lower_guess(lowering, units->parameters[i]);
}

static void lower_parameter_update(ls_lowering *lowering, int p) {
  const ls_program *program = lowering->program;
  const ls_program_parameter *parameter = &program->parameters[p];
  const ls_unit_memory *memory = &lowering->memory[parameter->unit];
  const int master = updated(lowering, p, parameter->master, memory->master, memory->master_at,
                             lowering->accumulate);
  const int moment1 = updated(lowering, p, parameter->moment1, memory->moment1, memory->moment1_at,
                              lowering->accumulate);
  const int moment2 = updated(lowering, p, parameter->moment2, memory->moment2, memory->moment2_at,
                              lowering->accumulate);
  const ls_optimizer *optimizer = &lowering->sharded->layout.optimizer;
  const bool adamw = optimizer->kind == LS_OPTIMIZER_ADAMW;
  const int gradient = gradient_of(lowering, p);
  ls_instruction *made = ls_lower_op(lowering, adamw ? LS_OP_ADAMW : LS_OP_SGD);
  set_optimizer(made, optimizer, parameter->ndim);
  const int *cell = program->cell;
  with(
      made, 4,
      (int[]){gradient, cell[LS_CELL_LEARNING_RATE], cell[LS_CELL_STEP], cell[LS_CELL_CLIP_FACTOR]},
      adamw ? 3 : 2, (int[]){master, moment1, moment2});
}

static void lower_update(ls_lowering *lowering, int unit) {
  const ls_program *program = lowering->program;
  const ls_units *units = lowering->units;
  for (int i = units->first[unit]; i < units->first[unit + 1]; i++)
    lower_parameter_update(lowering, units->parameters[i]);
  const ls_unit_memory *memory = &lowering->memory[unit];
  const bool returns = ls_offload_returns(lowering->homes, unit);
  if (memory->master == memory->stored || (returns && memory->fresh == memory->master_at)) return;
  const ls_unit *about = &lowering->units->items[unit];
  const int master = ls_lower_range(lowering, about->name, memory->master_at, lowering->accumulate,
                                    unit, 0, about->elements, true);
  const int stored = ls_lower_range(lowering, about->name, returns ? memory->fresh : memory->stored,
                                    lowering->sharded->layout.compute, unit, 0, about->elements,
                                    ls_schedule_state_sharded(lowering->sharded));
  program->values.items[master].flat_chunk =
      program->values.items[stored].flat_chunk; /* both whole, or both this rank's piece */
  with(ls_lower_op(lowering, LS_OP_CAST), 1, &master, 1, &stored);
}

void ls_lower_action(ls_lowering *lowering, const ls_action *action) {
  switch (action->kind) {
    case LS_ACTION_COUNT: lower_count(lowering); break;
    case LS_ACTION_TOTAL: lower_total(lowering); break;
    case LS_ACTION_GATHER: lower_gather(lowering, action->unit, false); break;
    case LS_ACTION_REDUCE:
      reduce_partial(lowering, action->unit);
      scatter_gradient(lowering, action->unit, LS_ADD_AFTER_FIRST);
      break;
    case LS_ACTION_FINISH: lower_finish(lowering, action->unit); break;
    case LS_ACTION_SUM: sum_unit(lowering, action->unit); break;
    case LS_ACTION_NORM:
      lower_norm(lowering);
      lower_loss(lowering);
      break;
    case LS_ACTION_AHEAD: lower_ahead(lowering, action->unit); break;
    case LS_ACTION_SETTLE: lower_settle(lowering); break;
    case LS_ACTION_UPDATE: lower_update(lowering, action->unit); break;
    case LS_ACTION_PUBLISH: lower_gather(lowering, action->unit, true); break;
    case LS_ACTION_LOSS: lower_loss(lowering); break;
    case LS_ACTION_DROP: break; /* ends a lifetime */
    default: ls_lower_move(lowering, action);
  }
}
