#include "ir/program.h"

/* The end of a flat range on this rank: a parameter's rows of padding lie behind it. */
static int64_t flat_end(const ls_program *program, int rank, const ls_value *value) {
  if (!value->flat_rows) return value->flat_offset + value->global[0];
  const ls_part part = ls_mesh_part(&program->mesh, rank, &value->placement, 0, value->flat_rows);
  return value->flat_offset + part.valid * value->flat_row_elements;
}

/* A range of a unit's flat buffer, or what of it lies in this rank's piece. */
static void cut_flat(const ls_program *program, int rank, const ls_value *value, ls_local *local) {
  const int64_t piece = ls_mesh_coordinate(&program->mesh, rank, LS_AXIS_DP_SHARD);
  const int64_t begin = piece * value->flat_chunk;
  int64_t first = value->flat_offset, last = flat_end(program, rank, value);
  if (value->flat_chunk) {
    if (first < begin) first = begin;
    if (last > begin + value->flat_chunk) last = begin + value->flat_chunk;
    if (last < first) last = first = begin;
  }
  local->dims[0] = local->valid[0] = last - first;
  local->start[0] = last > first ? first - value->flat_offset : 0;
  local->offset += (value->flat_chunk && !value->flat_whole ? first - begin : first) *
                   (int64_t)ls_dtype_bytes(value->dtype);
}

/* Of what a rank stores, the value's own rows; of these the last may not exist. */
static void cut_rows(const ls_value *value, ls_local *local) {
  const int64_t left = local->valid[0] - value->first_row;
  local->dims[0] = value->rows;
  local->valid[0] = left < 0 ? 0 : (left < value->rows ? left : value->rows);
  local->start[0] += value->first_row;
}

const ls_frame *ls_program_frame(const ls_program *program, int value) {
  const int storage = program->values.items[value].storage;
  return &program->frames.items[program->storages.items[storage].frame];
}

ls_local ls_program_local(const ls_program *program, int rank, int index) {
  const ls_value *value = &program->values.items[index];
  ls_local local = {.offset = program->storages.items[value->storage].offset + value->offset};
  if (value->flat) {
    cut_flat(program, rank, value, &local);
    return local;
  }
  for (int d = 0; d < value->ndim; d++) {
    const ls_part part = ls_mesh_part(&program->mesh, rank, &value->placement, d, value->global[d]);
    local.dims[d] = part.stored;
    local.valid[d] = part.valid;
    local.start[d] = part.start;
  }
  if (value->rows) cut_rows(value, &local);
  return local;
}
