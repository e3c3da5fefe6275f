#include <string.h>

#include "lower/lower.h"
#include "schedule/offload_copies.h"

int ls_lower_storage(ls_lowering *lowering, const char *name, ls_pool pool, ls_category category,
                     int64_t bytes) {
  ls_program *program = lowering->program;
  ls_storage *storage = LS_APPEND(program->arena, &program->storages);
  *storage = (ls_storage){.name = name, .frame = -1, .bytes = bytes};
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

static int unit_storage(ls_lowering *lowering, int unit, const char *what, ls_pool pool,
                        ls_category category, ls_dtype dtype, const ls_placement *placement) {
  const ls_unit *about = &lowering->units->items[unit];
  const char *name = ls_arena_printf(lowering->program->arena, "%s %s", about->name, what);
  const int64_t elements = ls_unit_elements(&lowering->sharded->mesh, about, placement);
  return ls_lower_storage(lowering, name, pool, category,
                          elements * (int64_t)ls_dtype_bytes(dtype));
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
  const ls_dtype compute = lowering->sharded->layout.compute;
  const ls_unit *about = &lowering->units->items[unit];
  const ls_tier tier = lowering->homes->parameters[unit];
  ls_unit_memory *memory = &lowering->memory[unit];
  memory->stored = unit_storage(lowering, unit, "parameters", ls_lower_state_pool(tier),
                                LS_CATEGORY_PARAMETERS, compute, &about->stored);
  memory->source = memory->stored;
  if (tier)
    memory->source = unit_storage(lowering, unit, "fetched parameters", LS_POOL_WORK,
                                  LS_CATEGORY_GATHERED, compute, &about->stored);
  memory->used = memory->source;
  if (ls_lower_differ(lowering, &about->stored, &about->used))
    memory->used = unit_storage(lowering, unit, "gathered parameters", LS_POOL_WORK,
                                LS_CATEGORY_GATHERED, compute, &about->used);
}

/* Evaluation shares the region that the step keeps the optimizer's state in. */
static void place_state(ls_lowering *lowering, int unit) {
  const ls_sharded *sharded = lowering->sharded;
  const ls_homes *homes = lowering->homes;
  const ls_placement *state = &lowering->units->items[unit].state;
  const ls_pool pool = ls_lower_state_pool(homes->state[unit]);
  ls_unit_memory *memory = &lowering->memory[unit];
  memory->master = memory->stored;
  if (!homes->one_copy || homes->state[unit] != homes->parameters[unit])
    memory->master = unit_storage(lowering, unit, "master weights", pool, LS_CATEGORY_MASTER,
                                  lowering->accumulate, state);
  memory->moment1 = unit_storage(lowering, unit, "first moments", pool, LS_CATEGORY_MOMENTS,
                                 lowering->accumulate, state);
  if (sharded->layout.optimizer.kind == LS_OPTIMIZER_ADAMW)
    memory->moment2 = unit_storage(lowering, unit, "second moments", pool, LS_CATEGORY_MOMENTS,
                                   lowering->accumulate, state);
}

/* What an update works on, where that is not what stays between steps. */
static void place_update(ls_lowering *lowering, int unit) {
  const ls_homes *homes = lowering->homes;
  const ls_placement *state = &lowering->units->items[unit].state;
  ls_unit_memory *memory = &lowering->memory[unit];
  memory->master_at = memory->master;
  memory->moment1_at = memory->moment1;
  memory->moment2_at = memory->moment2;
  if (lowering->program->kind != LS_PROGRAM_STEP) return;
  if (homes->state[unit] == LS_TIER_NVME) {
    memory->master_at = unit_storage(lowering, unit, "loaded master weights", LS_POOL_HOST_WORK,
                                     LS_CATEGORY_MASTER, lowering->accumulate, state);
    memory->moment1_at = unit_storage(lowering, unit, "loaded first moments", LS_POOL_HOST_WORK,
                                      LS_CATEGORY_MOMENTS, lowering->accumulate, state);
    if (memory->moment2 >= 0)
      memory->moment2_at = unit_storage(lowering, unit, "loaded second moments", LS_POOL_HOST_WORK,
                                        LS_CATEGORY_MOMENTS, lowering->accumulate, state);
  }
  memory->fresh = memory->master_at;
  if (ls_offload_returns(homes, unit) && !homes->one_copy)
    memory->fresh = unit_storage(lowering, unit, "updated parameters",
                                 homes->state[unit] ? LS_POOL_HOST_WORK : LS_POOL_WORK,
                                 LS_CATEGORY_PARAMETERS, lowering->sharded->layout.compute, state);
}

static void place_unit(ls_lowering *lowering, int unit) {
  lowering->memory[unit] = (ls_unit_memory){-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  if (!lowering->here[unit]) return;
  place_parameters(lowering, unit);
  if (lowering->units->items[unit].frozen) return;
  place_state(lowering, unit);
  place_update(lowering, unit);
}

static void place_gradients(ls_lowering *lowering, int unit) {
  const ls_unit *about = &lowering->units->items[unit];
  ls_unit_memory *memory = &lowering->memory[unit];
  if (lowering->program->kind != LS_PROGRAM_STEP || !lowering->here[unit] ||
      lowering->units->items[unit].frozen)
    return;
  const ls_tier tier = lowering->homes->state[unit];
  /* A shard where the whole lies is aligned to no block of a file. */
  const bool apart =
      ls_lower_differ(lowering, &about->raw, &about->gradient) ||
      (ls_unit_elements(&lowering->sharded->mesh, about, &about->state) < about->elements &&
       tier == LS_TIER_NVME);
  memory->raw = unit_storage(lowering, unit, "gradient", LS_POOL_WORK, LS_CATEGORY_GRADIENTS,
                             lowering->gradient, &about->raw);
  memory->reduced = memory->raw;
  if (apart)
    memory->reduced = unit_storage(lowering, unit, "reduced gradient", LS_POOL_WORK,
                                   LS_CATEGORY_GRADIENTS, lowering->gradient, &about->state);
  memory->given = memory->reduced;
  if (tier)
    memory->given = unit_storage(lowering, unit, "given gradient", ls_lower_work_pool(tier),
                                 LS_CATEGORY_GRADIENTS, lowering->gradient, &about->state);
  memory->taken = memory->given;
  if (tier == LS_TIER_NVME)
    memory->taken = unit_storage(lowering, unit, "taken gradient", LS_POOL_HOST_WORK,
                                 LS_CATEGORY_GRADIENTS, lowering->gradient, &about->state);
}

/* A parameter or its gradient as kernels see it, inside its unit's whole buffer. */
static int whole_tensor(ls_lowering *lowering, int parameter, int storage, ls_dtype dtype,
                        const char *name) {
  const ls_sharded *sharded = lowering->sharded;
  const ls_unit *unit = &lowering->units->items[lowering->units->of_parameter[parameter]];
  const ls_unit_entry *entry = &unit->entries.items[lowering->units->entry_of[parameter]];
  const ls_tensor *tensor =
      ls_graph_tensor(sharded->graph, sharded->graph->parameters.items[parameter].tensor);
  ls_value value = {
      .name = name,
      .dtype = dtype,
      .ndim = tensor->ndim,
      .placement = sharded->values.items[sharded->parameter_value[parameter]].placement,
      .storage = storage,
      .offset = entry->offset * (int64_t)ls_dtype_bytes(dtype)};
  memcpy(value.global, tensor->dims, sizeof value.global);
  return ls_lower_value(lowering, &value);
}

int ls_lower_parameter(ls_lowering *lowering, int p, const char *name, int storage, ls_dtype dtype,
                       const ls_placement *placement) {
  const ls_sharded *sharded = lowering->sharded;
  const ls_program_parameter *about = &lowering->program->parameters[p];
  const ls_unit_entry *entry =
      &lowering->units->items[about->unit].entries.items[lowering->units->entry_of[p]];
  const int made = ls_lower_range(lowering, name, storage, dtype, about->unit, entry->offset,
                                  entry->elements, placement);
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

static void describe_parameter(ls_lowering *lowering, int p) {
  ls_program *program = lowering->program;
  const ls_sharded *sharded = lowering->sharded;
  const ls_parameter *about = &sharded->graph->parameters.items[p].about;
  const int unit = lowering->units->of_parameter[p];
  const ls_unit_memory *memory = &lowering->memory[unit];
  const ls_dtype compute = sharded->layout.compute, accumulate = lowering->accumulate;
  const ls_unit *of = &lowering->units->items[unit];
  const int home = of->stages[0];
  ls_program_parameter *made = &program->parameters[p];
  *made =
      (ls_program_parameter){.name = about->name,
                             .here = lowering->here[unit],
                             .gives = lowering->here[unit] && (home < 0 || home == program->stage),
                             .trainable = sharded->graph->parameters.items[p].trainable,
                             .cut = about->cut,
                             .ndim = about->ndim,
                             .unit = unit,
                             .used = -1,
                             .stored = -1,
                             .gradient = -1,
                             .master = -1,
                             .moment1 = -1,
                             .moment2 = -1,
                             .raw_gradient = -1};
  memcpy(made->dims, about->dims, sizeof made->dims);
  if (!made->here) return;
  const char *name = about->name;
  made->used = whole_tensor(lowering, p, memory->used, compute, name);
  made->stored = ls_lower_parameter(lowering, p, name, memory->stored, compute, &of->stored);
  if (!made->trainable) return;
  made->master = ls_lower_parameter(lowering, p, name, memory->master, accumulate, &of->state);
  made->moment1 = ls_lower_parameter(lowering, p, name, memory->moment1, accumulate, &of->state);
  if (memory->moment2 >= 0)
    made->moment2 = ls_lower_parameter(lowering, p, name, memory->moment2, accumulate, &of->state);
  if (memory->raw < 0) return;
  const char *gradient = ls_arena_printf(program->arena, "gradient of %s", name);
  made->raw_gradient = whole_tensor(lowering, p, memory->raw, lowering->gradient, gradient);
  program->values.items[made->raw_gradient].placement =
      sharded->values.items[sharded->gradient_value[p]].placement;
  made->gradient =
      ls_lower_parameter(lowering, p, gradient, memory->given, lowering->gradient, &of->state);
}

static void make_cells(ls_lowering *lowering) {
  static const char *const names[LS_CELL_COUNT] = {
      "learning_rate", "step",        "valid_tokens", "loss_scale", "loss_sum", "squared_norm",
      "norm",          "clip_factor", "mean_loss",    "scale",      "stop"};
  const int storage = ls_lower_storage(lowering, "cells", LS_POOL_CELL, LS_CATEGORY_INPUTS,
                                       (int64_t)LS_CELL_COUNT * LS_CELL_BYTES);
  for (int c = 0; c < LS_CELL_COUNT; c++)
    lowering->program->cell[c] =
        ls_lower_value(lowering, &(ls_value){.name = names[c],
                                             .dtype = LS_F64,
                                             .ndim = 1,
                                             .global = {1},
                                             .storage = storage,
                                             .offset = (int64_t)c * LS_CELL_BYTES});
}

static int make_input(ls_lowering *lowering, ls_tensor_id id) {
  if (id.index < 0) return -1;
  const ls_sharded *sharded = lowering->sharded;
  const ls_tensor *tensor = ls_graph_tensor(sharded->graph, id);
  int value = 0;
  while (sharded->values.items[value].tensor.index != id.index) value++;
  const ls_placement *placement = &sharded->values.items[value].placement;
  const int64_t rows = ls_mesh_part(&sharded->mesh, 0, placement, 0, tensor->dims[0]).stored;
  const int storage =
      ls_lower_storage(lowering, tensor->name, LS_POOL_INPUT, LS_CATEGORY_INPUTS, rows * 4);
  lowering->value_of[value] = ls_lower_value(lowering, &(ls_value){.name = tensor->name,
                                                                   .dtype = LS_I32,
                                                                   .ndim = 1,
                                                                   .global = {tensor->dims[0]},
                                                                   .placement = *placement,
                                                                   .storage = storage});
  return lowering->value_of[value];
}

void ls_lower_units(ls_lowering *lowering) {
  ls_program *program = lowering->program;
  const ls_graph *graph = lowering->sharded->graph;
  make_cells(lowering);
  program->ids = make_input(lowering, graph->ids);
  program->labels = make_input(lowering, graph->labels);
  program->positions = make_input(lowering, graph->positions);
  lowering->memory = LS_NEW_ARRAY(program->arena, ls_unit_memory, lowering->units->count);
  for (int u = 0; u < lowering->units->count; u++) place_unit(lowering, u);
  for (int u = 0; u < lowering->units->count; u++) place_gradients(lowering, u);
  program->parameter_count = graph->parameters.count;
  program->parameters = LS_NEW_ARRAY(program->arena, ls_program_parameter, graph->parameters.count);
  for (int p = 0; p < graph->parameters.count; p++) {
    describe_parameter(lowering, p);
    lowering->value_of[lowering->sharded->parameter_value[p]] = program->parameters[p].used;
    if (lowering->sharded->gradient_value[p] >= 0)
      lowering->value_of[lowering->sharded->gradient_value[p]] =
          program->parameters[p].raw_gradient;
  }
}
