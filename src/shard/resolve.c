#include "shard/resolve.h"

#include "cost/cost.h"

/* What takes a tensor from one place to another on an axis, in the order in which steps are taken:
 * what makes it smaller first. */
typedef enum change { SCATTER, REDUCE, GATHER, SLICE, CHANGES, IMPOSSIBLE = CHANGES } change;

static bool is_contiguous(ls_place place) {
  return place.kind == LS_SHARDED_FLAT || (place.kind == LS_SHARDED && place.dim == 0);
}

static change change_of(ls_place from, ls_place to) {
  if (from.kind == LS_PARTIAL && to.kind == LS_REPLICATED) return REDUCE;
  if (from.kind == LS_PARTIAL && from.reduce == LS_SUM && is_contiguous(to)) return SCATTER;
  if (is_contiguous(from) && to.kind == LS_REPLICATED) return GATHER;
  if (from.kind == LS_REPLICATED && is_contiguous(to)) return SLICE;
  return IMPOSSIBLE;
}

/* Shards of one dimension lie one after the other only if no axis inside of those that are gathered
 * or made cuts it too; and uneven shards are padded over all tensor axes together. */
static bool shards_follow(const ls_mesh *mesh, const ls_placement *cut, ls_place place,
                          ls_axes axes) {
  const ls_axes all = ls_placement_axes(mesh, cut, place.kind, place.dim);
  ls_axes inside = 0;
  for (int a = mesh->count - 1; a >= 0 && inside != axes; a--) inside |= all & 1u << a;
  return inside == axes && !(all & ~axes & ls_mesh_axes(mesh, LS_MESH_TENSOR));
}

/* The axes that change alike, from the first of them on. */
static bool next_step(const ls_mesh *mesh, const ls_placement *now, const ls_placement *to,
                      change wanted, ls_resolve_step *step) {
  step->axes = 0;
  for (int a = 0; a < mesh->count; a++) {
    const ls_place was = now->on[a], is = to->on[a];
    if (mesh->axes[a].size < 2 || ls_place_equal(was, is)) continue;
    if (change_of(was, is) != wanted) continue;
    if (step->axes && !(ls_place_equal(was, step->from) && ls_place_equal(is, step->to))) continue;
    step->from = was;
    step->to = is;
    step->axes |= 1u << a;
  }
  return step->axes != 0;
}

int ls_resolve(const ls_mesh *mesh, const ls_placement *from, const ls_placement *to,
               ls_resolve_step steps[LS_MAX_RESOLVE_STEPS]) {
  static const ls_collective collectives[CHANGES] = {LS_REDUCE_SCATTER, LS_ALL_REDUCE,
                                                     LS_ALL_GATHER, LS_COLLECTIVE_NONE};
  bool changes[CHANGES + 1] = {false};
  for (int a = 0; a < mesh->count; a++)
    if (mesh->axes[a].size > 1 && !ls_place_equal(from->on[a], to->on[a]))
      changes[change_of(from->on[a], to->on[a])] = true;
  if (changes[IMPOSSIBLE]) return -1;
  ls_placement now = *from;
  int count = 0;
  for (change wanted = SCATTER; wanted < CHANGES; wanted++) {
    ls_resolve_step step = {.collective = collectives[wanted]};
    while (changes[wanted] && next_step(mesh, &now, to, wanted, &step)) {
      step.after = now;
      for (int a = 0; a < mesh->count; a++)
        if (step.axes >> a & 1) step.after.on[a] = step.to;
      const bool ordered = wanted == GATHER ? shards_follow(mesh, &now, step.from, step.axes)
                                            : wanted == REDUCE || shards_follow(mesh, &step.after,
                                                                                step.to, step.axes);
      if (!ordered) return -1;
      now = step.after;
      steps[count++] = step;
    }
  }
  return count;
}

const char *ls_resolve_reason(ls_arena *arena, const ls_mesh *mesh, const char *what,
                              const ls_resolve_step *step) {
  return ls_arena_printf(arena, "%s: %s on %s -> %s", what, ls_place_print(arena, step->from),
                         ls_axes_print(arena, mesh, step->axes), ls_place_print(arena, step->to));
}

int64_t ls_placement_elements(const ls_mesh *mesh, const ls_placement *placement,
                              const ls_tensor *tensor) {
  int64_t elements = 1;
  for (int d = 0; d < tensor->ndim; d++)
    elements *= ls_mesh_part(mesh, 0, placement, d, tensor->dims[d]).stored;
  return elements;
}

double ls_resolve_bytes(const ls_mesh *mesh, const ls_placement *from, const ls_placement *to,
                        const ls_tensor *tensor, size_t element_bytes) {
  ls_resolve_step steps[LS_MAX_RESOLVE_STEPS];
  const int count = ls_resolve(mesh, from, to, steps);
  if (count < 0) return -1;
  double bytes = 0;
  const ls_placement *now = from;
  for (int s = 0; s < count; s++) {
    const bool grows = steps[s].collective == LS_ALL_GATHER;
    const double whole = (double)ls_placement_elements(mesh, grows ? &steps[s].after : now, tensor);
    bytes += ls_collective_bytes(steps[s].collective, whole * (double)element_bytes,
                                 ls_mesh_size(mesh, steps[s].axes));
    now = &steps[s].after;
  }
  return bytes;
}
