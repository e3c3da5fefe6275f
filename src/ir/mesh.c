#include "ir/mesh.h"

#include <string.h>

void ls_mesh_add(ls_mesh *mesh, const ls_axis *axis) {
  LS_ASSERT(mesh->count < LS_MAX_AXES);
  mesh->of_role[axis->role] |= 1u << mesh->count;
  mesh->axes[mesh->count++] = *axis;
}

ls_mesh ls_mesh_make(const int sizes[LS_MESH_ROWS]) {
  static const ls_axis rows[LS_MESH_ROWS] = {
      [LS_AXIS_PP] = {"pp", "pp", LS_MESH_STAGE, LS_SHARES_STAGES, 1},
      [LS_AXIS_DP_REPLICATE] = {"dp_replicate", "dp_replicate", LS_MESH_REPLICATE,
                                LS_SHARES_SEQUENCES, 1},
      [LS_AXIS_DP_SHARD] = {"dp_shard", "dp_shard", LS_MESH_SHARD, LS_SHARES_SEQUENCES, 1},
      [LS_AXIS_TP_KV] = {"tp_kv", "tp", LS_MESH_TENSOR, LS_SHARES_KV_HEADS, 1},
      [LS_AXIS_TP_GROUP] = {"tp_group", "tp", LS_MESH_TENSOR, LS_SHARES_QUERY_HEADS, 1},
  };
  ls_mesh mesh = {0};
  for (int a = 0; a < LS_MESH_ROWS; a++) {
    ls_mesh_add(&mesh, &rows[a]);
    mesh.axes[a].size = sizes[a];
  }
  return mesh;
}

ls_axes ls_mesh_axes(const ls_mesh *mesh, ls_axis_role role) {
  return mesh->of_role[role];
}

ls_axes ls_mesh_data(const ls_mesh *mesh) {
  return mesh->of_role[LS_MESH_REPLICATE] | mesh->of_role[LS_MESH_SHARD];
}

ls_axes ls_mesh_all(const ls_mesh *mesh) {
  return (1u << mesh->count) - 1;
}

ls_axes ls_mesh_inside(const ls_mesh *mesh) {
  return ls_mesh_all(mesh) & ~mesh->of_role[LS_MESH_STAGE];
}

int ls_mesh_size(const ls_mesh *mesh, ls_axes axes) {
  int size = 1;
  for (int a = 0; a < mesh->count; a++)
    if (axes >> a & 1) size *= mesh->axes[a].size;
  return size;
}

int ls_mesh_ranks(const ls_mesh *mesh) {
  return ls_mesh_size(mesh, ls_mesh_all(mesh));
}

int ls_mesh_stages(const ls_mesh *mesh) {
  return ls_mesh_size(mesh, mesh->of_role[LS_MESH_STAGE]);
}

int ls_mesh_stage_ranks(const ls_mesh *mesh) {
  return ls_mesh_size(mesh, ls_mesh_inside(mesh));
}

ls_axes ls_mesh_active(const ls_mesh *mesh, ls_axes axes) {
  ls_axes active = 0;
  for (int a = 0; a < mesh->count; a++)
    if ((axes >> a & 1) && mesh->axes[a].size > 1) active |= 1u << a;
  return active;
}

int ls_mesh_coordinate(const ls_mesh *mesh, int rank, int axis) {
  for (int a = mesh->count - 1; a > axis; a--) rank /= mesh->axes[a].size;
  return rank % mesh->axes[axis].size;
}

int ls_mesh_stage(const ls_mesh *mesh, int rank) {
  return rank / ls_mesh_stage_ranks(mesh);
}

int ls_mesh_index(const ls_mesh *mesh, int rank, ls_axes axes) {
  int index = 0, stride = 1;
  for (int a = mesh->count - 1; a >= 0 && axes & ((2u << a) - 1); a--) {
    const int size = mesh->axes[a].size;
    if (size > 1 && axes >> a & 1) {
      index += rank % size * stride;
      stride *= size;
    }
    if (size > 1) rank /= size;
  }
  return index;
}

int ls_mesh_rank_at(const ls_mesh *mesh, ls_axes axes, int index) {
  int rank = 0, stride = 1;
  for (int a = mesh->count - 1; a >= 0; a--) {
    if (axes >> a & 1) {
      rank += index % mesh->axes[a].size * stride;
      index /= mesh->axes[a].size;
    }
    stride *= mesh->axes[a].size;
  }
  return rank;
}

void ls_mesh_group(const ls_mesh *mesh, int rank, ls_axes axes, int *members) {
  const int size = ls_mesh_size(mesh, axes);
  const int others = rank - ls_mesh_rank_at(mesh, axes, ls_mesh_index(mesh, rank, axes));
  for (int index = 0; index < size; index++)
    members[index] = others + ls_mesh_rank_at(mesh, axes, index);
}

const char *ls_axes_print(ls_arena *arena, const ls_mesh *mesh, ls_axes axes) {
  const char *text = "";
  for (int a = 0; a < mesh->count; a++)
    if (axes >> a & 1)
      text = ls_arena_printf(arena, "%s%s%s", text, *text ? " x " : "", mesh->axes[a].name);
  return text;
}

bool ls_place_equal(ls_place a, ls_place b) {
  if (a.kind != b.kind) return false;
  if (a.kind == LS_SHARDED) return a.dim == b.dim;
  return a.kind != LS_PARTIAL || a.reduce == b.reduce;
}

bool ls_placement_equal(const ls_mesh *mesh, const ls_placement *a, const ls_placement *b,
                        ls_axes axes) {
  for (int i = 0; i < mesh->count; i++)
    if ((axes >> i & 1) && mesh->axes[i].size > 1 && !ls_place_equal(a->on[i], b->on[i]))
      return false;
  return true;
}

ls_axes ls_placement_axes(const ls_mesh *mesh, const ls_placement *placement, ls_place_kind kind,
                          int dim) {
  ls_axes axes = 0;
  for (int a = 0; a < mesh->count; a++) {
    const ls_place place = placement->on[a];
    if (mesh->axes[a].size < 2 || place.kind != kind) continue;
    if (kind == LS_SHARDED && dim >= 0 && place.dim != dim) continue;
    axes |= 1u << a;
  }
  return axes;
}

ls_part ls_mesh_part(const ls_mesh *mesh, int rank, const ls_placement *placement, int dim,
                     int64_t global) {
  const ls_axes axes = ls_placement_axes(mesh, placement, LS_SHARDED, dim);
  if (axes == 0) return (ls_part){.stored = global, .valid = global};
  const ls_axes data = axes & ls_mesh_data(mesh), tensor = axes & ~data;
  const int64_t share = global / ls_mesh_size(mesh, data);
  const int64_t ranks = ls_mesh_size(mesh, tensor);
  ls_part part = {.stored = (share + ranks - 1) / ranks};
  const int64_t offset = ls_mesh_index(mesh, rank, tensor) * part.stored;
  part.start = ls_mesh_index(mesh, rank, data) * share + offset;
  part.valid = share - offset;
  if (part.valid > part.stored) part.valid = part.stored;
  if (part.valid < 0) part.valid = 0;
  return part;
}

const char *ls_place_print(ls_arena *arena, ls_place place) {
  if (place.kind == LS_REPLICATED) return "R";
  if (place.kind == LS_SHARDED_FLAT) return "S(flat)";
  if (place.kind == LS_SHARDED) return ls_arena_printf(arena, "S(%d)", place.dim);
  return place.reduce == LS_MAX ? "P(max)" : "P(sum)";
}

const char *ls_placement_print(ls_arena *arena, const ls_mesh *mesh,
                               const ls_placement *placement) {
  const char *text = "";
  for (int a = 0; a < mesh->count; a++) {
    if (mesh->axes[a].size < 2 || placement->on[a].kind == LS_REPLICATED) continue;
    text = ls_arena_printf(arena, "%s%s%s on %s", text, *text ? ", " : "",
                           ls_place_print(arena, placement->on[a]), mesh->axes[a].name);
  }
  return *text ? text : "R";
}
