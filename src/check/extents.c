/* Where values lie, for all ranks of a stage at once. Dimensions are cut evenly over data axes and
 * into equal parts, the last ones padded, over the product of tensor axes. A rank's shard of a
 * unit's flat buffer differs by rank, but each holds its own: it is known by place in the unit. */
#include <string.h>

#include "check/proof.h"

static ls_axes cut_axes(const ls_proof *proof, const ls_placement *placement, ls_place_kind kind,
                        int dim, ls_axes family) {
  ls_axes axes = 0;
  for (int axis = 0; axis < proof->mesh.count; axis++)
    if ((proof->active & family) >> axis & 1 && placement->on[axis].kind == kind &&
        (kind != LS_SHARDED || placement->on[axis].dim == dim))
      axes |= 1u << axis;
  return axes;
}

ls_placement ls_part_placement(const ls_stage *stage, const ls_placement *placement, int value) {
  const ls_mesh *mesh = &stage->proof->mesh;
  ls_placement made = {0};
  for (int axis = 0; axis < mesh->count; axis++)
    if (mesh->axes[axis].role == LS_MESH_TENSOR || placement->on[axis].kind == LS_SHARDED)
      made.on[axis] = placement->on[axis];
    else if (stage->extents[value].flat_axes >> axis & 1)
      made.on[axis] = stage->program->values.items[value].placement.on[axis];
  return made;
}

int64_t ls_proof_group(const ls_proof *proof, ls_axes axes) {
  int64_t ranks = 1;
  for (int axis = 0; axis < proof->mesh.count; axis++)
    if (axes >> axis & 1) ranks *= proof->mesh.axes[axis].size;
  return ranks;
}

/* What a rank stores of a dimension; -1: it does not divide. */
static int64_t stored_length(const ls_proof *proof, const ls_value *value, int dim) {
  const ls_placement *placement = &value->placement;
  const int64_t data = ls_proof_group(
      proof, cut_axes(proof, placement, LS_SHARDED, dim, ls_mesh_data(&proof->mesh)));
  const int64_t tensor = ls_proof_group(
      proof,
      cut_axes(proof, placement, LS_SHARDED, dim, ls_mesh_axes(&proof->mesh, LS_MESH_TENSOR)));
  if (value->global[dim] < 0 || value->global[dim] % data != 0) return -1;
  return (value->global[dim] / data + tensor - 1) / tensor;
}

static ls_status fail_value(const ls_stage *stage, int value, ls_error *error, const char *what) {
  return ls_fail(error, LS_REFUTED, "stage %d value %d (%s): %s", stage->number, value,
                 stage->program->values.items[value].name, what);
}

static ls_status place_flat(const ls_stage *stage, int v, ls_extent *made, ls_error *error) {
  const ls_program *program = stage->program;
  const ls_value *value = &program->values.items[v];
  const ls_storage *storage = &program->storages.items[value->storage];
  const int64_t bytes = (int64_t)ls_dtype_bytes(value->dtype);
  const int64_t end = value->flat_offset + value->global[0];
  made->flat_axes =
      cut_axes(stage->proof, &value->placement, LS_SHARDED_FLAT, 0, stage->proof->active);
  const int64_t ranks = ls_proof_group(stage->proof, made->flat_axes);
  if (value->ndim != 1 || value->offset != 0 || value->rows || value->flat_offset < 0 ||
      value->global[0] < 0 || value->flat_elements < 0 || value->flat_elements % ranks != 0)
    return fail_value(stage, v, error, "is no range of a flat buffer: expected one");
  if (value->flat_elements >= INT64_C(1) << (LS_SHARD_SHIFT - 3))
    return fail_value(stage, v, error, "is of a unit of 2^44 elements or more: expected fewer");
  made->shard = value->flat_elements / ranks;
  made->of_unit = made->flat_axes && storage->bytes < value->flat_elements * bytes;
  made->elements = value->global[0];
  if (end > value->flat_elements)
    return fail_value(stage, v, error,
                      "reaches beyond its unit: expected its end "
                      "within it");
  if ((made->of_unit ? made->shard : value->flat_elements) * bytes > storage->bytes)
    return fail_value(stage, v, error, "reaches beyond its storage: expected it inside");
  const int64_t base = made->of_unit ? stage->shards[value->storage] : storage->offset;
  made->begin = base + value->flat_offset * bytes;
  made->end = base + end * bytes;
  return LS_OK;
}

static ls_status place_value(const ls_stage *stage, int v, ls_extent *made, ls_error *error) {
  const ls_program *program = stage->program;
  const ls_value *value = &program->values.items[v];
  const ls_storage *storage = &program->storages.items[value->storage];
  if (storage->offset < 0 || storage->bytes < 0 ||
      storage->offset + storage->bytes > program->buffer_groups.items[storage->buffer_group].bytes)
    return fail_value(stage, v, error,
                      "its storage reaches beyond its buffer group: expected it inside");
  if (value->flat_elements) return place_flat(stage, v, made, error);
  made->elements = 1;
  for (int d = 0; d < value->ndim; d++) {
    const int64_t length = stored_length(stage->proof, value, d);
    if (length < 0)
      return fail_value(stage, v, error,
                        "is cut over data axes that do not divide it: expected "
                        "equal parts");
    if (d == 1 && value->row_elements && value->row_elements < length)
      return fail_value(stage, v, error, "has rows shorter than its columns: expected all of them");
    made->elements *= d == 1 && value->row_elements ? value->row_elements : length;
    if (d == 0) made->all_rows = length;
  }
  if (value->row_elements && value->ndim != 2)
    return fail_value(stage, v, error, "has the rows of a matrix: expected two dimensions");
  if (value->first_row < 0 || value->rows < 0 || value->rows > made->all_rows - value->first_row)
    return fail_value(stage, v, error, "has rows that a rank does not store: expected some of its");
  if (value->rows) made->elements = made->elements / made->all_rows * value->rows;
  const int64_t bytes = made->elements * (int64_t)ls_dtype_bytes(value->dtype);
  made->begin = storage->offset + value->offset;
  made->end = made->begin + bytes;
  if (value->offset < 0 || value->offset + bytes > storage->bytes)
    return fail_value(stage, v, error, "reaches beyond its storage: expected it inside");
  return LS_OK;
}

ls_status ls_proof_extents(ls_stage *stage, ls_error *error) {
  const ls_program *program = stage->program;
  const int count = program->values.count;
  int *storages = LS_NEW_ARRAY(stage->proof->arena, int, program->buffer_groups.count + 1);
  stage->shards = LS_NEW_ARRAY(stage->proof->arena, int64_t, program->storages.count + 1);
  for (int s = 0; s < program->storages.count; s++)
    stage->shards[s] = (int64_t)++storages[program->storages.items[s].buffer_group]
                       << LS_SHARD_SHIFT;
  stage->extents = LS_NEW_ARRAY(stage->proof->arena, ls_extent, count + 1);
  for (int v = 0; v < count; v++) LS_TRY(place_value(stage, v, &stage->extents[v], error));
  return LS_OK;
}

bool ls_value_same_place(const ls_value *a, const ls_value *b) {
  if (a->dtype != b->dtype || a->ndim != b->ndim || a->storage != b->storage ||
      a->offset != b->offset || a->flat_elements != b->flat_elements ||
      a->flat_offset != b->flat_offset || a->flat_rows != b->flat_rows ||
      a->flat_row_elements != b->flat_row_elements || a->first_row != b->first_row ||
      a->rows != b->rows || a->row_elements != b->row_elements)
    return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->global[d] != b->global[d]) return false;
  return memcmp(&a->placement, &b->placement, sizeof a->placement) == 0;
}
