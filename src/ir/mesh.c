#include "ir/mesh.h"

#include <string.h>

static const char *const names[LS_AXIS_COUNT] = {"pp", "dp_replicate", "dp_shard", "tp_kv",
                                                 "tp_group"};

const char *ls_axis_name(ls_axis axis) {
  return names[axis];
}

ls_shares ls_axis_shares(ls_axis axis) {
  static const ls_shares shares[LS_AXIS_COUNT] = {[LS_AXIS_DP_REPLICATE] = LS_SHARES_SEQUENCES,
                                                  [LS_AXIS_DP_SHARD] = LS_SHARES_SEQUENCES,
                                                  [LS_AXIS_TP_KV] = LS_SHARES_KV_HEADS,
                                                  [LS_AXIS_TP_GROUP] = LS_SHARES_QUERY_HEADS};
  return shares[axis];
}

int ls_mesh_size(const ls_mesh *mesh, ls_axes axes) {
  int size = 1;
  for (int a = 0; a < LS_AXIS_COUNT; a++)
    if (axes >> a & 1) size *= mesh->size[a];
  return size;
}

ls_axes ls_mesh_active(const ls_mesh *mesh, ls_axes axes) {
  ls_axes active = 0;
  for (int a = 0; a < LS_AXIS_COUNT; a++)
    if ((axes >> a & 1) && mesh->size[a] > 1) active |= 1u << a;
  return active;
}

int ls_mesh_coordinate(const ls_mesh *mesh, int rank, ls_axis axis) {
  for (int a = LS_AXIS_COUNT - 1; a > (int)axis; a--) rank /= mesh->size[a];
  return rank % mesh->size[axis];
}

int ls_mesh_index(const ls_mesh *mesh, int rank, ls_axes axes) {
  int index = 0;
  for (int a = 0; a < LS_AXIS_COUNT; a++)
    if (axes >> a & 1) index = index * mesh->size[a] + ls_mesh_coordinate(mesh, rank, (ls_axis)a);
  return index;
}

void ls_mesh_group(const ls_mesh *mesh, int rank, ls_axes axes, int *members) {
  const int size = ls_mesh_size(mesh, axes);
  for (int index = 0; index < size; index++) {
    int left = index, stride = 1, member = 0;
    for (int a = LS_AXIS_COUNT - 1; a >= 0; a--) {
      int coordinate = ls_mesh_coordinate(mesh, rank, (ls_axis)a);
      if (axes >> a & 1) {
        coordinate = left % mesh->size[a];
        left /= mesh->size[a];
      }
      member += coordinate * stride;
      stride *= mesh->size[a];
    }
    members[index] = member;
  }
}

const char *ls_axes_print(ls_arena *arena, ls_axes axes) {
  const char *text = "";
  for (int a = 0; a < LS_AXIS_COUNT; a++)
    if (axes >> a & 1) text = ls_arena_printf(arena, "%s%s%s", text, *text ? " x " : "", names[a]);
  return text;
}

bool ls_place_equal(ls_place a, ls_place b) {
  if (a.kind != b.kind) return false;
  if (a.kind == LS_SHARDED) return a.dim == b.dim;
  return a.kind != LS_PARTIAL || a.reduce == b.reduce;
}

bool ls_placement_equal(const ls_mesh *mesh, const ls_placement *a, const ls_placement *b,
                        ls_axes axes) {
  for (int i = 0; i < LS_AXIS_COUNT; i++)
    if ((axes >> i & 1) && mesh->size[i] > 1 && !ls_place_equal(a->on[i], b->on[i])) return false;
  return true;
}

ls_axes ls_placement_axes(const ls_mesh *mesh, const ls_placement *placement, ls_place_kind kind,
                          int dim) {
  ls_axes axes = 0;
  for (int a = 0; a < LS_AXIS_COUNT; a++) {
    const ls_place place = placement->on[a];
    if (mesh->size[a] < 2 || place.kind != kind) continue;
    if (kind == LS_SHARDED && dim >= 0 && place.dim != dim) continue;
    axes |= 1u << a;
  }
  return axes;
}

ls_part ls_mesh_part(const ls_mesh *mesh, int rank, const ls_placement *placement, int dim,
                     int64_t global) {
  const ls_axes axes = ls_placement_axes(mesh, placement, LS_SHARDED, dim);
  const ls_axes data = axes & LS_AXES_DATA, tensor = axes & LS_AXES_TENSOR;
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
  for (int a = 0; a < LS_AXIS_COUNT; a++) {
    if (mesh->size[a] < 2 || placement->on[a].kind == LS_REPLICATED) continue;
    text = ls_arena_printf(arena, "%s%s%s on %s", text, *text ? ", " : "",
                           ls_place_print(arena, placement->on[a]), names[a]);
  }
  return *text ? text : "R";
}
