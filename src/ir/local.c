#include "ir/program.h"

/* Of a parameter's range: how wide a row is that the rank has, and which of the whole's rows and
 * columns it begins with. */
static void find_rows(const ls_program *program, int rank, const ls_value *value, ls_local *local) {
  if (!value->flat_rows) return;
  const ls_axes across = ls_placement_axes(&program->mesh, &value->placement, LS_SHARDED, 1);
  const ls_axis_order order = ls_placement_order(&value->placement, across);
  local->dims[1] = local->valid[1] = value->flat_row_elements;
  local->start[1] =
      ls_mesh_part(&program->mesh, rank, &value->placement, 0, value->flat_rows).start;
  local->start[2] = ls_mesh_index(&program->mesh, rank, order) * value->flat_row_elements;
}

/* The end of a flat range on this rank: a parameter's rows of padding lie behind it. */
static int64_t flat_end(const ls_program *program, int rank, const ls_value *value) {
  if (!value->flat_rows) return value->flat_offset + value->global[0];
  const ls_part part = ls_mesh_part(&program->mesh, rank, &value->placement, 0, value->flat_rows);
  return value->flat_offset + part.valid * value->flat_row_elements;
}

ls_axes ls_value_flat_axes(const ls_mesh *mesh, const ls_value *value) {
  return ls_placement_axes(mesh, &value->placement, LS_SHARDED_FLAT, -1);
}

int64_t ls_value_shard(const ls_mesh *mesh, const ls_value *value) {
  return value->flat_elements / ls_mesh_size(mesh, ls_value_flat_axes(mesh, value));
}

ls_axes ls_value_replicas(const ls_mesh *mesh, const ls_value *value) {
  ls_axes alike = 0;
  for (int a = 0; a < mesh->count; a++)
    if (value->placement.on[a].kind == LS_REPLICATED || mesh->axes[a].size == 1) alike |= 1u << a;
  return alike & ls_mesh_inside(mesh);
}

/* A range of a unit's flat buffer: what of it lies in this rank's shard. */
static void cut_flat(const ls_program *program, int rank, const ls_value *value, ls_local *local) {
  const ls_mesh *mesh = &program->mesh;
  const int64_t bytes = (int64_t)ls_dtype_bytes(value->dtype);
  const int64_t shard = ls_value_shard(mesh, value);
  const ls_axis_order order =
      ls_placement_order(&value->placement, ls_value_flat_axes(mesh, value));
  const int64_t begin = ls_mesh_index(mesh, rank, order) * shard;
  const bool whole = program->storages.items[value->storage].bytes >= value->flat_elements * bytes;
  int64_t first = value->flat_offset, last = flat_end(program, rank, value);
  if (first < begin) first = begin;
  if (last > begin + shard) last = begin + shard;
  if (last < first) last = first = begin;
  local->dims[0] = local->valid[0] = last - first;
  local->start[0] = last > first ? first - value->flat_offset : 0;
  local->offset += (whole ? first : first - begin) * bytes;
}

/* Of what a rank stores, the value's own rows; of these the last may not exist. */
static void cut_rows(const ls_value *value, ls_local *local) {
  const int64_t left = local->valid[0] - value->first_row;
  local->dims[0] = value->rows;
  local->valid[0] = left < 0 ? 0 : (left < value->rows ? left : value->rows);
  local->start[0] += value->first_row;
}

ls_axis_order ls_instruction_group(const ls_program *program, const ls_instruction *instruction) {
  const ls_value *values = program->values.items;
  switch (instruction->collective) {
    case LS_ALL_GATHER:
    case LS_ALL_TO_ALL:
    case LS_HAND_BACK:
      return ls_placement_order(&values[instruction->in[0]].placement, instruction->axes);
    case LS_DEAL:
    case LS_REDUCE_SCATTER:
      return ls_placement_order(&values[instruction->out[0]].placement, instruction->axes);
    default: return ls_mesh_order(instruction->axes);
  }
}

void ls_instruction_places(const ls_program *program, const ls_instruction *instruction,
                           ls_place *from, ls_place *to) {
  int axis = 0;
  while (!(ls_mesh_active(&program->mesh, instruction->axes) >> axis & 1)) axis++;
  *from = program->values.items[instruction->in[0]].placement.on[axis];
  *to = program->values.items[instruction->out[0]].placement.on[axis];
}

const ls_buffer_group *ls_program_buffer_group(const ls_program *program, int value) {
  const int storage = program->values.items[value].storage;
  return &program->buffer_groups.items[program->storages.items[storage].buffer_group];
}

ls_local ls_program_local(const ls_program *program, int rank, int index) {
  return ls_value_local(program, rank, &program->values.items[index]);
}

ls_local ls_value_local(const ls_program *program, int rank, const ls_value *value) {
  ls_local local = {.offset = program->storages.items[value->storage].offset + value->offset};
  if (value->flat_elements) {
    cut_flat(program, rank, value, &local);
    find_rows(program, rank, value, &local);
    return local;
  }
  for (int d = 0; d < value->ndim; d++) {
    const ls_part part = ls_mesh_part(&program->mesh, rank, &value->placement, d, value->global[d]);
    local.dims[d] = part.stored;
    local.valid[d] = part.valid;
    local.start[d] = part.start;
  }
  if (value->rows) cut_rows(value, &local);
  if (value->row_elements) local.dims[1] = value->row_elements;
  return local;
}
