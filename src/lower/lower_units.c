#include <string.h>

#include "ir/owners.h"
#include "lower/lower.h"
#include "schedule/offload_copies.h"

int ls_lower_storage(ls_lowering *lowering, const char *name, ls_pool pool, ls_category category,
                     int64_t bytes) {
  ls_program *program = lowering->program;
  ls_storage *storage = LS_APPEND(program->arena, &program->storages);
  *storage = (ls_storage){.name = name, .buffer_group = -1, .bytes = bytes};
  *LS_APPEND(program->arena, &lowering->plans) = (ls_storage_plan){pool, category, false};
  return program->storages.count - 1;
}

int ls_lower_value(ls_lowering *lowering, const ls_value *value) {
  ls_program *program = lowering->program;
  *LS_APPEND(program->arena, &program->values) = *value;
  return program->values.count - 1;
}

int ls_lower_range(ls_lowering *lowering, const char *name, int storage, ls_dtype dtype, int unit,
                   int64_t offset, int64_t elements, const ls_placement *placement) {
  return ls_lower_value(lowering,
                        &(ls_value){.name = name,
                                    .dtype = dtype,
                                    .ndim = 1,
                                    .global = {elements},
                                    .placement = *placement,
                                    .storage = storage,
                                    .flat_elements = lowering->units->items[unit].elements,
                                    .flat_offset = offset});
}

bool ls_lower_differ(const ls_lowering *lowering, const ls_placement *from,
                     const ls_placement *to) {
  return !ls_placement_equal(&lowering->sharded->mesh, from, to,
                             ls_mesh_all(&lowering->sharded->mesh));
}

const ls_placement *ls_lower_placement(const ls_lowering *lowering, int unit, ls_state_part part) {
  const ls_unit *about = &lowering->units->items[unit];
  switch (part) {
    case LS_PART_USED: return &about->used;
    case LS_PART_STORED: return &about->stored;
    case LS_PART_RAW_GRADIENT: return &about->raw;
    default: return &about->state;
  }
}

ls_dtype ls_lower_dtype(const ls_lowering *lowering, int unit, ls_state_part part) {
  const ls_unit *about = &lowering->units->items[unit];
  if (part == LS_PART_USED && about->codes) return LS_U8;
  return ls_state_dtype(&lowering->sharded->layout, part, about->precision);
}

/* Numbers of a unit's blocks: of the parameters before entry `end`, each from a multiple on that
 * kernels want. */
static int64_t blocks_before(const ls_lowering *lowering, int unit, ls_state_part part, int end) {
  const ls_graph *graph = lowering->sharded->graph;
  const ls_unit *about = &lowering->units->items[unit];
  int64_t numbers = 0;
  for (int e = 0; e < end; e++) {
    const ls_parameter *each = &graph->parameters.items[about->entries.items[e].parameter].about;
    const int64_t own = ls_state_size_of(part, each->ndim, each->dims).rows;
    numbers += (own + LS_UNIT_ALIGNMENT - 1) / LS_UNIT_ALIGNMENT * LS_UNIT_ALIGNMENT;
  }
  return numbers;
}

static int64_t all_blocks(const ls_lowering *lowering, int unit, ls_state_part part) {
  return blocks_before(lowering, unit, part, lowering->units->items[unit].entries.count);
}

int64_t ls_lower_unit_elements(const ls_lowering *lowering, int unit, ls_state_part part,
                               const ls_placement *placement) {
  if (ls_state_row_of(part)->whole) return all_blocks(lowering, unit, part);
  return ls_unit_elements(&lowering->sharded->mesh, &lowering->units->items[unit], placement);
}

/* Numbers of blocks, which every rank has all. */
static int block_range(ls_lowering *lowering, const char *name, int storage, int unit,
                       ls_state_part part, int64_t offset, int64_t numbers) {
  return ls_lower_value(lowering, &(ls_value){.name = name,
                                              .dtype = ls_lower_dtype(lowering, unit, part),
                                              .ndim = 1,
                                              .global = {numbers},
                                              .storage = storage,
                                              .flat_elements = all_blocks(lowering, unit, part),
                                              .flat_offset = offset});
}

int ls_lower_unit_part(ls_lowering *lowering, const char *name, int storage, int unit,
                       ls_state_part part, const ls_placement *placement) {
  if (ls_state_row_of(part)->whole)
    return block_range(lowering, name, storage, unit, part, 0, all_blocks(lowering, unit, part));
  return ls_lower_range(lowering, name, storage, ls_lower_dtype(lowering, unit, part), unit, 0,
                        lowering->units->items[unit].elements, placement);
}

/* Of a part's type. */
static int unit_storage(ls_lowering *lowering, int unit, ls_state_part part, const char *what,
                        ls_pool pool, ls_category category, const ls_placement *placement) {
  const ls_unit *about = &lowering->units->items[unit];
  const char *name = ls_arena_printf(lowering->program->arena, "%s %s", about->name, what);
  const int64_t elements = ls_lower_unit_elements(lowering, unit, part, placement);
  return ls_lower_storage(lowering, name, pool, category,
                          elements * (int64_t)ls_dtype_bytes(ls_lower_dtype(lowering, unit, part)));
}

ls_pool ls_lower_state_pool(ls_tier tier) {
  static const ls_pool pools[] = {LS_POOL_STATE, LS_POOL_HOST_STATE, LS_POOL_FILE_STATE};
  return pools[tier];
}

ls_pool ls_lower_work_pool(ls_tier tier) {
  static const ls_pool pools[] = {LS_POOL_WORK, LS_POOL_HOST_WORK, LS_POOL_FILE_WORK};
  return pools[tier];
}

static void place_parameters(ls_lowering *lowering, int unit) {
  const ls_unit *about = &lowering->units->items[unit];
  const ls_tier tier = lowering->offload_plan->parameters[unit];
  ls_unit_memory *memory = &lowering->memory[unit];
  int *part = memory->part;
  part[LS_PART_STORED] =
      unit_storage(lowering, unit, LS_PART_STORED, "parameters", ls_lower_state_pool(tier),
                   LS_CATEGORY_PARAMETERS, &about->stored);
  memory->source = part[LS_PART_STORED];
  if (tier)
    memory->source = unit_storage(lowering, unit, LS_PART_STORED, "fetched parameters",
                                  LS_POOL_WORK, LS_CATEGORY_GATHERED, &about->stored);
  if (about->codes) {
    ls_lower_place_codes(lowering, unit);
    memory->source = memory->codes;
  }
  part[LS_PART_USED] = memory->source;
  if (ls_lower_differ(lowering, &about->stored, &about->used))
    part[LS_PART_USED] = unit_storage(lowering, unit, LS_PART_USED, "gathered parameters",
                                      LS_POOL_WORK, LS_CATEGORY_GATHERED, &about->used);
}

static bool keeps(const ls_lowering *lowering, int unit, int part) {
  return ls_optimizer_keeps(&lowering->sharded->layout.optimizer,
                            lowering->units->items[unit].update, (ls_state_part)part);
}

/* Evaluation shares the region that the step keeps the optimizer's state in. */
static void place_state(ls_lowering *lowering, int unit) {
  const ls_offload_plan *offload_plan = lowering->offload_plan;
  const bool one =
      offload_plan->one_copy && offload_plan->state[unit] == offload_plan->parameters[unit];
  int *part = lowering->memory[unit].part;
  for (int i = 0; i < LS_PART_COUNT; i++) {
    if (!keeps(lowering, unit, i)) continue;
    const ls_state_row *row = ls_state_row_of((ls_state_part)i);
    part[i] = i == LS_PART_MASTER && one
                  ? part[LS_PART_STORED]
                  : unit_storage(lowering, unit, (ls_state_part)i, row->name,
                                 ls_lower_state_pool(offload_plan->state[unit]), row->category,
                                 ls_lower_placement(lowering, unit, (ls_state_part)i));
  }
}

/* Room for one parameter's at a time. */
static int whole_storage(ls_lowering *lowering, int unit, ls_update_source from, const char *what,
                         ls_pool pool) {
  const ls_unit *about = &lowering->units->items[unit];
  int64_t most = 0;
  for (int e = 0; e < about->entries.count; e++) {
    const ls_parameter *each =
        &lowering->sharded->graph->parameters.items[about->entries.items[e].parameter].about;
    int64_t dims[LS_MAX_DIMS], elements = 1;
    const int ndim = ls_update_dims(from, each->ndim, each->dims, dims);
    for (int d = 0; d < ndim; d++) elements *= dims[d];
    if (elements > most) most = elements;
  }
  return ls_lower_storage(
      lowering, ls_arena_printf(lowering->program->arena, "%s %s", about->name, what), pool,
      LS_CATEGORY_TEMPORARIES,
      most * (int64_t)ls_dtype_bytes(ls_lower_dtype(lowering, unit, LS_PART_MASTER)));
}

/* Elements in place of which a node makes others, or themselves. */
static int lies_with(const ls_optimizer_row *row, int temporary) {
  for (int n = 0; n < row->nodes; n++) {
    const ls_update_node *node = &row->node[n];
    if (node->owners && node->out[0].index == temporary) return node->in[0].index;
  }
  return temporary;
}

/* What the host would do of an update, owners do on the device, where ranks meet. */
static ls_pool pool_of_temporary(const ls_lowering *lowering, int unit, ls_update_source from) {
  const bool room = from == LS_FROM_MATRIX || from == LS_FROM_SQUARES;
  if (!lowering->offload_plan->state[unit]) return LS_POOL_WORK;
  return room && ls_owner_axes(&lowering->program->mesh) ? LS_POOL_WORK : LS_POOL_HOST_WORK;
}

/* What nodes of the update make for later ones, beside the state. */
static void place_temporaries(ls_lowering *lowering, int unit) {
  static const char *const names[LS_UPDATE_SOURCE_COUNT] = {[LS_FROM_ELEMENTS] = "temporary",
                                                            [LS_FROM_MATRIX] = "matrix",
                                                            [LS_FROM_SQUARES] = "squares",
                                                            [LS_FROM_BLOCKS] = "largest of blocks",
                                                            [LS_FROM_LINES] = "sums of lines"};
  const ls_unit *about = &lowering->units->items[unit];
  const ls_optimizer *optimizer = &lowering->sharded->layout.optimizer;
  const ls_optimizer_row *row = ls_optimizer_update(optimizer, about->update);
  for (int from = 0; from < LS_UPDATE_SOURCE_COUNT; from++) {
    if (!names[from]) continue;
    const int count = ls_optimizer_temporaries(optimizer, about->update, (ls_update_source)from);
    const ls_pool pool = pool_of_temporary(lowering, unit, (ls_update_source)from);
    for (int t = 0; t < count; t++) {
      int *made = lowering->memory[unit].temporary[from];
      const int with = from == LS_FROM_ELEMENTS ? lies_with(row, t) : t;
      const char *what =
          ls_arena_printf(lowering->program->arena, "update's %s %d", names[from], t);
      made[t] = with < t ? made[with]
                : from == LS_FROM_ELEMENTS
                    ? unit_storage(lowering, unit, LS_PART_MASTER, what, pool,
                                   LS_CATEGORY_TEMPORARIES, &about->state)
                    : whole_storage(lowering, unit, (ls_update_source)from, what, pool);
    }
  }
}

int ls_lower_meeting(ls_lowering *lowering, int unit, ls_update_source from) {
  static const char *const what = "update's, of all ranks";
  int *made = &lowering->memory[unit].meeting[from];
  if (*made < 0)
    *made = from == LS_FROM_ELEMENTS
                ? unit_storage(lowering, unit, LS_PART_MASTER, what, LS_POOL_WORK,
                               LS_CATEGORY_TEMPORARIES, &lowering->units->items[unit].state)
                : whole_storage(lowering, unit, from, what, LS_POOL_WORK);
  return *made;
}

int ls_lower_whole(ls_lowering *lowering, int p, ls_update_operand of, int storage,
                   const ls_placement *placement) {
  const ls_program_parameter *about = &lowering->program->parameters[p];
  ls_value value = {.name = about->name,
                    .dtype = ls_lower_dtype(lowering, about->unit, LS_PART_MASTER),
                    .placement = *placement,
                    .storage = storage};
  value.ndim = ls_update_dims(of.from, about->ndim, about->dims, value.global);
  return ls_lower_value(lowering, &value);
}

/* What an update works on, where that is not what stays between steps. */
static void place_update(ls_lowering *lowering, int unit) {
  const ls_offload_plan *offload_plan = lowering->offload_plan;
  const ls_placement *state = &lowering->units->items[unit].state;
  ls_unit_memory *memory = &lowering->memory[unit];
  if (lowering->program->kind != LS_PROGRAM_STEP) return;
  place_temporaries(lowering, unit);
  for (int i = 0; i < LS_PART_COUNT; i++) {
    if (!keeps(lowering, unit, i)) continue;
    const ls_state_row *row = ls_state_row_of((ls_state_part)i);
    memory->at[i] = memory->part[i];
    if (offload_plan->state[unit] == LS_TIER_NVME)
      memory->at[i] =
          unit_storage(lowering, unit, (ls_state_part)i,
                       ls_arena_printf(lowering->program->arena, "loaded %s", row->name),
                       LS_POOL_HOST_WORK, row->category, state);
  }
  memory->at[LS_PART_STORED] = memory->at[LS_PART_MASTER];
  if (ls_offload_returns(offload_plan, unit) && !offload_plan->one_copy)
    memory->at[LS_PART_STORED] =
        unit_storage(lowering, unit, LS_PART_STORED, "updated parameters",
                     offload_plan->state[unit] ? LS_POOL_HOST_WORK : LS_POOL_WORK,
                     LS_CATEGORY_PARAMETERS, state);
}

static void place_unit(ls_lowering *lowering, int unit) {
  ls_unit_memory *memory = &lowering->memory[unit];
  memory->source = memory->reduced = memory->owned = memory->codes = memory->largest = -1;
  for (int f = 0; f < LS_UPDATE_SOURCE_COUNT; f++) memory->meeting[f] = -1;
  for (int i = 0; i < LS_PART_COUNT; i++) memory->part[i] = memory->at[i] = -1;
  if (!lowering->present[unit]) return;
  place_parameters(lowering, unit);
  if (lowering->units->items[unit].frozen) return;
  place_state(lowering, unit);
  place_update(lowering, unit);
}

static int gradient_storage(ls_lowering *lowering, int unit, const char *what, ls_pool pool,
                            const ls_placement *placement) {
  return unit_storage(lowering, unit, LS_PART_GRADIENT, what, pool, LS_CATEGORY_GRADIENTS,
                      placement);
}

static void place_gradients(ls_lowering *lowering, int unit) {
  const ls_unit *about = &lowering->units->items[unit];
  ls_unit_memory *memory = &lowering->memory[unit];
  if (lowering->program->kind != LS_PROGRAM_STEP || !lowering->present[unit] || about->frozen)
    return;
  const ls_tier tier = lowering->offload_plan->state[unit];
  /* A shard where the whole lies is aligned to no block of a file. */
  const bool apart =
      ls_lower_differ(lowering, &about->raw, &about->gradient) ||
      (ls_unit_elements(&lowering->sharded->mesh, about, &about->state) < about->elements &&
       tier == LS_TIER_NVME);
  int *part = memory->part;
  part[LS_PART_RAW_GRADIENT] =
      gradient_storage(lowering, unit, "gradient", LS_POOL_WORK, &about->raw);
  memory->reduced = part[LS_PART_RAW_GRADIENT];
  if (apart)
    memory->reduced =
        gradient_storage(lowering, unit, "reduced gradient", LS_POOL_WORK, &about->state);
  part[LS_PART_GRADIENT] = memory->reduced;
  if (tier)
    part[LS_PART_GRADIENT] =
        gradient_storage(lowering, unit, "given gradient", ls_lower_work_pool(tier), &about->state);
  memory->at[LS_PART_GRADIENT] = part[LS_PART_GRADIENT];
  if (tier == LS_TIER_NVME)
    memory->at[LS_PART_GRADIENT] =
        gradient_storage(lowering, unit, "taken gradient", LS_POOL_HOST_WORK, &about->state);
}

/* A parameter or its gradient as kernels see it, inside its unit's whole buffer. */
static int whole_tensor(ls_lowering *lowering, int parameter, ls_state_part part,
                        const char *name) {
  const int of = lowering->units->of_parameter[parameter];
  const ls_dtype dtype = ls_lower_dtype(lowering, of, part);
  const ls_sharded *sharded = lowering->sharded;
  const ls_unit *unit = &lowering->units->items[of];
  const ls_unit_entry *entry = &unit->entries.items[lowering->units->entry_of[parameter]];
  const ls_tensor *tensor =
      ls_graph_tensor(sharded->graph, sharded->graph->parameters.items[parameter].tensor);
  const int *same =
      part == LS_PART_RAW_GRADIENT ? sharded->gradient_value : sharded->parameter_value;
  ls_value value = {.name = name,
                    .dtype = dtype,
                    .ndim = tensor->ndim,
                    .placement = sharded->values.items[same[parameter]].placement,
                    .storage = lowering->memory[of].part[part],
                    .offset = entry->offset * (int64_t)ls_dtype_bytes(dtype)};
  memcpy(value.global, tensor->dims, sizeof value.global);
  return ls_lower_value(lowering, &value);
}

int ls_lower_parameter(ls_lowering *lowering, int p, ls_state_part part, const char *name,
                       int storage, const ls_placement *placement) {
  const ls_sharded *sharded = lowering->sharded;
  const ls_program_parameter *about = &lowering->program->parameters[p];
  const int at = lowering->units->entry_of[p];
  const ls_unit_entry *entry = &lowering->units->items[about->unit].entries.items[at];
  if (ls_state_row_of(part)->whole)
    return block_range(lowering, name, storage, about->unit, part,
                       blocks_before(lowering, about->unit, part, at),
                       ls_state_size_of(part, about->ndim, about->dims).rows);
  const int made =
      ls_lower_range(lowering, name, storage, ls_lower_dtype(lowering, about->unit, part),
                     about->unit, entry->offset, entry->elements, placement);
  ls_value *value = &lowering->program->values.items[made];
  const ls_placement *used = &sharded->values.items[sharded->parameter_value[p]].placement;
  for (int a = 0; a < sharded->mesh.count; a++)
    if (used->on[a].kind != LS_REPLICATED) value->placement.on[a] = used->on[a];
  value->flat_rows = about->dims[0];
  value->flat_row_elements = 1;
  if (about->ndim > 1)
    value->flat_row_elements =
        ls_mesh_part(&sharded->mesh, 0, &value->placement, 1, about->dims[1]).stored;
  return made;
}

static int describe_part(ls_lowering *lowering, int p, ls_state_part part) {
  const int unit = lowering->units->of_parameter[p];
  const int storage = lowering->memory[unit].part[part];
  const ls_state_row *row = ls_state_row_of(part);
  const char *name = lowering->program->parameters[p].name;
  if (storage < 0) return -1;
  if (row->type == LS_TYPE_GRADIENT)
    name = ls_arena_printf(lowering->program->arena, "gradient of %s", name);
  if (!row->range && !row->whole) return whole_tensor(lowering, p, part, name);
  return ls_lower_parameter(lowering, p, part, name, storage,
                            ls_lower_placement(lowering, unit, part));
}

static void describe_parameter(ls_lowering *lowering, int p) {
  ls_program *program = lowering->program;
  const ls_parameter_record *record = &lowering->sharded->graph->parameters.items[p];
  const ls_parameter *about = &record->about;
  const int unit = lowering->units->of_parameter[p];
  const int home = lowering->units->items[unit].stages[0];
  ls_program_parameter *made = &program->parameters[p];
  *made = (ls_program_parameter){
      .name = about->name,
      .present = lowering->present[unit],
      .owner = lowering->present[unit] && (home < 0 || home == program->stage),
      .trainable = record->trainable,
      .sharding = about->sharding,
      .precision = about->precision,
      .ndim = about->ndim,
      .unit = unit,
      .update = lowering->units->items[unit].update,
      .owned = -1};
  memcpy(made->dims, about->dims, sizeof made->dims);
  for (int part = 0; part < LS_PART_COUNT; part++)
    made->part[part] = describe_part(lowering, p, (ls_state_part)part);
}

static void make_cells(ls_lowering *lowering) {
  static const char *const names[LS_CELL_COUNT] = {
      "learning_rate", "step",          "valid_tokens",    "loss_scale", "loss_sum",
      "squared_norm",  "norm",          "clip_factor",     "mean_loss",  "scale",
      "stop",          "reward_chosen", "reward_rejected", "preferred"};
  int own = LS_CELL_REWARD_CHOSEN;
  while (own < LS_CELL_COUNT &&
         lowering->sharded->graph->rewards[own - LS_CELL_REWARD_CHOSEN].index >= 0)
    own++;
  int numbers = 0;
  for (int update = 0; update < LS_UPDATE_COUNT; update++) {
    const int made =
        ls_optimizer_temporaries(&lowering->sharded->layout.optimizer, update, LS_FROM_NUMBER);
    if (made > numbers) numbers = made;
  }
  const int storage = ls_lower_storage(lowering, "cells", LS_POOL_CELL, LS_CATEGORY_INPUTS,
                                       (int64_t)(own + numbers) * LS_CELL_BYTES);
  for (int c = own; c < LS_CELL_COUNT; c++) lowering->program->cell[c] = -1;
  for (int c = 0; c < own + numbers; c++) {
    int *value = c < own ? &lowering->program->cell[c] : &lowering->number[c - own];
    *value = ls_lower_value(lowering, &(ls_value){.name = c < own ? names[c] : "update's number",
                                                  .dtype = LS_F64,
                                                  .ndim = 1,
                                                  .global = {1},
                                                  .storage = storage,
                                                  .offset = (int64_t)c * LS_CELL_BYTES});
  }
}

static void make_loads(ls_lowering *lowering) {
  const ls_graph *graph = lowering->sharded->graph;
  const int64_t bytes = graph->experts * (int64_t)sizeof(double);
  const int64_t each = (bytes + LS_CELL_BYTES - 1) / LS_CELL_BYTES * LS_CELL_BYTES;
  const int storage = graph->loads.count
                          ? ls_lower_storage(lowering, "loads of experts", LS_POOL_CELL,
                                             LS_CATEGORY_INPUTS, graph->loads.count * each)
                          : -1;
  for (int l = 0; l < graph->loads.count; l++)
    *LS_APPEND(lowering->program->arena, &lowering->program->loads) = ls_lower_value(
        lowering, &(ls_value){.name = ls_graph_tensor(graph, graph->loads.items[l])->name,
                              .dtype = LS_F64,
                              .ndim = 2,
                              .global = {1, graph->experts},
                              .storage = storage,
                              .offset = l * each});
}

/* The sharded value that an input is. */
static int sharded_input(const ls_lowering *lowering, ls_tensor_id id) {
  int value = 0;
  while (lowering->sharded->values.items[value].tensor.index != id.index) value++;
  return value;
}

int ls_lower_input(const ls_lowering *lowering, ls_tensor_id id) {
  return lowering->value_of[sharded_input(lowering, id)];
}

static int make_input(ls_lowering *lowering, ls_tensor_id id) {
  if (id.index < 0) return -1;
  const ls_sharded *sharded = lowering->sharded;
  const ls_tensor *tensor = ls_graph_tensor(sharded->graph, id);
  const int value = sharded_input(lowering, id);
  const ls_placement *placement = &sharded->values.items[value].placement;
  const int64_t columns = tensor->ndim > 1 ? tensor->dims[1] : 1;
  const int64_t elements =
      ls_mesh_part(&sharded->mesh, 0, placement, 0, tensor->dims[0]).stored * columns;
  const ls_dtype dtype = ls_layout_dtype(&sharded->layout, tensor->precision);
  const int storage = ls_lower_storage(lowering, tensor->name, LS_POOL_INPUT, LS_CATEGORY_INPUTS,
                                       elements * (int64_t)ls_dtype_bytes(dtype));
  lowering->value_of[value] = ls_lower_value(
      lowering, &(ls_value){.name = tensor->name,
                            .dtype = dtype,
                            .ndim = tensor->ndim,
                            .global = {tensor->dims[0], tensor->ndim > 1 ? tensor->dims[1] : 0},
                            .placement = *placement,
                            .storage = storage});
  return lowering->value_of[value];
}

static bool is_read_here(const ls_lowering *lowering, int value) {
  const ls_sharded *sharded = lowering->sharded;
  for (int n = 0; n < sharded->nodes.count; n++) {
    const ls_shard_node *node = &sharded->nodes.items[n];
    if (ls_chunks_stage(lowering->chunks, node->segment) != lowering->stage) continue;
    for (int i = 0; i < node->inputs; i++)
      if (node->in[i] == value) return true;
  }
  return false;
}

/* One of many numbers, which only stages that read it are given. */
static int make_large_input(ls_lowering *lowering, ls_tensor_id id) {
  const bool there = id.index >= 0 && is_read_here(lowering, sharded_input(lowering, id));
  return there ? make_input(lowering, id) : -1;
}

void ls_lower_units(ls_lowering *lowering) {
  ls_program *program = lowering->program;
  const ls_graph *graph = lowering->sharded->graph;
  make_cells(lowering);
  make_loads(lowering);
  program->ids = make_input(lowering, graph->ids);
  program->labels = make_input(lowering, graph->labels);
  program->positions = make_input(lowering, graph->positions);
  program->places = make_input(lowering, graph->places);
  program->draws = make_input(lowering, graph->draws);
  program->reference = make_input(lowering, graph->reference);
  program->remaining = make_input(lowering, graph->remaining);
  program->types = make_input(lowering, graph->types);
  program->weights = graph->sets.index >= 0 ? make_large_input(lowering, graph->weights)
                                            : make_input(lowering, graph->weights);
  program->sets = make_large_input(lowering, graph->sets);
  program->top_ids = make_large_input(lowering, graph->top_ids);
  program->top_below = make_large_input(lowering, graph->top_below);
  lowering->memory = LS_NEW_ARRAY(program->arena, ls_unit_memory, lowering->units->count);
  for (int u = 0; u < lowering->units->count; u++) place_unit(lowering, u);
  for (int u = 0; u < lowering->units->count; u++) place_gradients(lowering, u);
  program->parameter_count = graph->parameters.count;
  program->parameters = LS_NEW_ARRAY(program->arena, ls_program_parameter, graph->parameters.count);
  for (int p = 0; p < graph->parameters.count; p++) {
    describe_parameter(lowering, p);
    lowering->value_of[lowering->sharded->parameter_value[p]] =
        program->parameters[p].part[LS_PART_USED];
    if (lowering->sharded->gradient_value[p] >= 0)
      lowering->value_of[lowering->sharded->gradient_value[p]] =
          program->parameters[p].part[LS_PART_RAW_GRADIENT];
  }
  ls_lower_find_largest(lowering);
}
