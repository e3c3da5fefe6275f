#include "ir/mesh.h"

#include <string.h>

void ls_mesh_add(ls_mesh *mesh, const ls_axis *axis) {
  LS_ASSERT(mesh->count < LS_MAX_AXES);
  mesh->of_role[axis->role] |= 1u << mesh->count;
  mesh->axes[mesh->count++] = *axis;
}

void ls_mesh_split(ls_mesh *mesh, int axis, const char *name, int ranks) {
  const ls_mesh whole = *mesh;
  *mesh = (ls_mesh){0};
  for (int a = 0; a < whole.count; a++) {
    ls_axis each = whole.axes[a];
    if (a == axis) each.size /= ranks;
    ls_mesh_add(mesh, &each);
    if (a != axis) continue;
    each.name = name;
    each.size = ranks;
    ls_mesh_add(mesh, &each);
  }
}

ls_mesh ls_mesh_make(const int sizes[LS_MESH_ROWS]) {
  static const ls_axis rows[LS_MESH_ROWS] = {
      [LS_AXIS_PP] = {.name = "pp", .part = "pp", .role = LS_MESH_STAGE},
      [LS_AXIS_DP_REPLICATE] = {.name = "dp_replicate",
                                .part = "dp_replicate",
                                .role = LS_MESH_REPLICATE,
                                .shares = LS_SHARES_SEQUENCES},
      [LS_AXIS_DP_SHARD] = {.name = "dp_shard",
                            .part = "dp_shard",
                            .role = LS_MESH_SHARD,
                            .shares = LS_SHARES_SEQUENCES},
      [LS_AXIS_CP] = {.name = "cp",
                      .part = "cp",
                      .role = LS_MESH_SHARD,
                      .shares = LS_SHARES_TOKENS | LS_SHARES_QUERIES,
                      .order = {[LS_CUT_FEATURES] = 1}}, /* heads: inside of tensor parallelism */
      [LS_AXIS_TP_KV] = {.name = "tp_kv",
                         .part = "tp",
                         .role = LS_MESH_TENSOR,
                         .shares = LS_SHARES_KV_HEADS},
      [LS_AXIS_TP_GROUP] = {.name = "tp_group",
                            .part = "tp",
                            .role = LS_MESH_TENSOR,
                            .shares = LS_SHARES_QUERY_HEADS},
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

ls_axes ls_mesh_context(const ls_mesh *mesh) {
  ls_axes axes = 0;
  for (int a = 0; a < mesh->count; a++)
    if (mesh->axes[a].shares & LS_SHARES_TOKENS) axes |= 1u << a;
  return axes & ls_mesh_data(mesh);
}

ls_axes ls_mesh_experts(const ls_mesh *mesh) {
  ls_axes axes = 0;
  for (int a = 0; a < mesh->count; a++)
    if (mesh->axes[a].shares & LS_SHARES_ANY_EXPERTS) axes |= 1u << a;
  return axes;
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

/* From rank to rank along an axis. */
static int stride_of(const ls_mesh *mesh, int axis) {
  int stride = 1;
  for (int a = axis + 1; a < mesh->count; a++) stride *= mesh->axes[a].size;
  return stride;
}

int ls_mesh_coordinate(const ls_mesh *mesh, int rank, int axis) {
  return rank / stride_of(mesh, axis) % mesh->axes[axis].size;
}

int ls_mesh_stage(const ls_mesh *mesh, int rank) {
  return rank / ls_mesh_stage_ranks(mesh);
}

ls_axis_order ls_mesh_order(ls_axes axes) {
  return ls_placement_order(&(ls_placement){0}, axes);
}

int ls_axis_order_next(ls_axis_order *order) {
  const int axis = (int)(order->axes & 15) - 1;
  order->axes >>= 4;
  return axis;
}

int ls_mesh_index(const ls_mesh *mesh, int rank, ls_axis_order axes) {
  int index = 0, coordinates[LS_MAX_AXES];
  for (int a = mesh->count - 1; a >= 0 && axes.axes; a--) {
    const int size = mesh->axes[a].size;
    coordinates[a] = size > 1 ? rank % size : 0;
    if (size > 1) rank /= size;
  }
  for (int a; (a = ls_axis_order_next(&axes)) >= 0;)
    index = index * mesh->axes[a].size + coordinates[a];
  return index;
}

int ls_mesh_member(const ls_mesh *mesh, int rank, ls_axis_order axes, int index) {
  int inside = 1, member = rank;
  for (ls_axis_order each = axes; each.axes;) inside *= mesh->axes[ls_axis_order_next(&each)].size;
  for (int a; (a = ls_axis_order_next(&axes)) >= 0;) {
    const int size = mesh->axes[a].size, stride = stride_of(mesh, a);
    inside /= size;
    member += (index / inside % size - rank / stride % size) * stride;
  }
  return member;
}

int ls_mesh_group(const ls_mesh *mesh, int rank, ls_axis_order axes, int *members) {
  int count = 1;
  for (ls_axis_order each = axes; each.axes;) count *= mesh->axes[ls_axis_order_next(&each)].size;
  for (int i = 0; i < count; i++) members[i] = ls_mesh_member(mesh, rank, axes, i);
  return count;
}

const char *ls_axes_print(ls_arena *arena, const ls_mesh *mesh, ls_axes axes) {
  const char *text = "";
  for (int a = 0; a < mesh->count; a++)
    if (axes >> a & 1)
      text = ls_arena_printf(arena, "%s%s%s", text, *text ? " x " : "", mesh->axes[a].name);
  return text;
}

ls_place ls_place_sharded(const ls_axis *axis, ls_cut cut, int dim) {
  return (ls_place){.kind = LS_SHARDED, .dim = (short)dim, .order = (short)axis->order[cut]};
}

ls_place ls_place_flat(const ls_axis *axis) {
  return (ls_place){.kind = LS_SHARDED_FLAT, .order = (short)axis->order[LS_CUT_FLAT]};
}

bool ls_place_equal(ls_place a, ls_place b) {
  if (a.kind != b.kind || a.order != b.order || a.shift != b.shift) return false;
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

ls_axis_order ls_placement_order(const ls_placement *placement, ls_axes axes) {
  int order[LS_MAX_AXES], count = 0;
  for (int a = 0; axes >> a; a++) {
    if (!(axes >> a & 1)) continue;
    int at = count++;
    for (; at > 0 && placement->on[order[at - 1]].order > placement->on[a].order; at--)
      order[at] = order[at - 1];
    order[at] = a;
  }
  ls_axis_order made = {0};
  while (count > 0) made.axes = made.axes << 4 | (uint32_t)(order[--count] + 1);
  return made;
}

ls_part ls_mesh_part(const ls_mesh *mesh, int rank, const ls_placement *placement, int dim,
                     int64_t global) {
  const ls_axes axes = ls_placement_axes(mesh, placement, LS_SHARDED, dim);
  const ls_axes data = ls_mesh_data(mesh);
  ls_part part = {.stored = global, .valid = global};
  if (!axes) return part;
  ls_axis_order order = ls_placement_order(placement, axes);
  for (int a = ls_axis_order_next(&order); a >= 0;) {
    const bool evenly = data >> a & 1;
    int64_t ranks = 1, index = 0;
    for (; a >= 0 && (data >> a & 1) == evenly; a = ls_axis_order_next(&order)) {
      const int size = mesh->axes[a].size;
      ranks *= size;
      index = index * size + (ls_mesh_coordinate(mesh, rank, a) + placement->on[a].shift) % size;
    }
    part.stored = evenly ? part.stored / ranks : (part.stored + ranks - 1) / ranks;
    part.start += index * part.stored;
    part.valid -= index * part.stored;
    if (part.valid > part.stored) part.valid = part.stored;
    if (part.valid < 0) part.valid = 0;
  }
  return part;
}

const char *ls_place_print(ls_arena *arena, ls_place place) {
  if (place.kind == LS_REPLICATED) return "R";
  static const char *const sums[] = {
      [LS_SUM] = "P(sum)", [LS_MAX] = "P(max)", [LS_MASK] = "P(mask)"};
  if (place.kind == LS_PARTIAL) return sums[place.reduce];
  const char *text =
      place.kind == LS_SHARDED ? ls_arena_printf(arena, "S(%d)", place.dim) : "S(flat)";
  if (place.order) text = ls_arena_printf(arena, "%s#%d", text, place.order);
  return place.shift ? ls_arena_printf(arena, "%s+%d", text, place.shift) : text;
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
