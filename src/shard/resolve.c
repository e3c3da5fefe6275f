#include "shard/resolve.h"

#include "cost/cost.h"

/* What takes a tensor from one place to another on an axis, in the order in which steps are taken:
 * what makes it smaller first. Shards that have gone round go back before all else, and go round
 * last. */
typedef enum change {
  SCATTER,
  REDUCE,
  EXCHANGE,
  GATHER,
  SLICE,
  ROTATE,
  CHANGES,
  IMPOSSIBLE = CHANGES
} change;

static const ls_collective collectives[CHANGES] = {
    [SCATTER] = LS_REDUCE_SCATTER, [REDUCE] = LS_ALL_REDUCE,     [EXCHANGE] = LS_ALL_TO_ALL,
    [GATHER] = LS_ALL_GATHER,      [SLICE] = LS_COLLECTIVE_NONE, [ROTATE] = LS_PERMUTE};

/* Shards that lie one after the other in memory. */
static bool is_contiguous(ls_place place) {
  return place.kind == LS_SHARDED_FLAT || (place.kind == LS_SHARDED && place.dim == 0);
}

static change change_of(ls_place from, ls_place to) {
  if (from.kind == LS_PARTIAL && to.kind == LS_REPLICATED) return REDUCE;
  if (from.kind == LS_PARTIAL && from.reduce == LS_SUM && is_contiguous(to)) return SCATTER;
  if (is_contiguous(from) && to.kind == LS_REPLICATED) return GATHER;
  if (from.kind == LS_REPLICATED && is_contiguous(to)) return SLICE;
  if (from.kind != LS_SHARDED || to.kind != LS_SHARDED) return IMPOSSIBLE;
  return from.dim != to.dim ? EXCHANGE : IMPOSSIBLE;
}

/* Shards of one dimension lie one after the other only if no axis inside of those that are gathered
 * or made cuts it too; and uneven shards are padded over all tensor axes together, inside of which
 * data axes cut evenly. */
static bool shards_follow(const ls_mesh *mesh, const ls_placement *cut, ls_place place,
                          ls_axes axes) {
  const ls_axes all = ls_placement_axes(mesh, cut, place.kind, place.dim);
  ls_axes inside = 0;
  for (ls_axis_order order = ls_placement_order(cut, all); order.axes;) {
    const int a = ls_axis_order_next(&order);
    inside = axes >> a & 1 ? inside | 1u << a : 0;
  }
  const ls_axes tensor = ls_mesh_axes(mesh, LS_MESH_TENSOR);
  return inside == axes && (!(axes & tensor) || !(all & ~axes & tensor));
}

/* Whether the shards that a step takes and makes lie as its collective wants them. */
static bool is_ordered(const ls_mesh *mesh, const ls_placement *now, change wanted,
                       const ls_resolve_step *step) {
  const bool takes = wanted == GATHER || wanted == EXCHANGE,
             makes = wanted != REDUCE && wanted != GATHER;
  if (takes && !shards_follow(mesh, now, step->from, step->axes)) return false;
  if (makes && !shards_follow(mesh, &step->after, step->to, step->axes)) return false;
  return wanted != EXCHANGE || ls_placement_order(now, step->axes).axes ==
                                   ls_placement_order(&step->after, step->axes).axes;
}

static ls_place unshifted(ls_place place) {
  place.shift = 0;
  return place;
}

static bool is_alike(ls_place a, ls_place b) {
  return a.kind == b.kind && a.dim == b.dim && a.reduce == b.reduce;
}

/* Of the axes of `among` those that change alike, from the first of them on. */
static void find_alike(const ls_mesh *mesh, const ls_placement *now, const ls_placement *to,
                       change wanted, ls_axes among, ls_resolve_step *step) {
  for (int a = 0; a < mesh->count; a++) {
    const ls_place was = now->on[a], is = unshifted(to->on[a]);
    if (!(among >> a & 1) || mesh->axes[a].size < 2 || ls_place_equal(unshifted(was), is)) continue;
    if (change_of(was, is) != wanted) continue;
    if (step->axes && !(is_alike(was, step->from) && is_alike(is, step->to))) continue;
    step->from = was;
    step->to = is;
    step->axes |= 1u << a;
  }
}

/* Shards of a dimension over tensor axes are padded, so that they do not follow one another where
 * data axes are gathered or scattered over in the same step. Tensor axes cut inside of these. */
static bool next_step(const ls_mesh *mesh, const ls_placement *now, const ls_placement *to,
                      change wanted, ls_resolve_step *step) {
  const ls_axes tensor = ls_mesh_axes(mesh, LS_MESH_TENSOR), all = ls_mesh_all(mesh);
  const bool apart = wanted == GATHER || wanted == SCATTER;
  step->axes = 0;
  find_alike(mesh, now, to, wanted, !apart ? all : wanted == GATHER ? tensor : all & ~tensor, step);
  if (!step->axes) find_alike(mesh, now, to, wanted, all, step);
  step->after = *now;
  for (int a = 0; a < mesh->count; a++)
    if (step->axes >> a & 1) step->after.on[a] = unshifted(to->on[a]);
  return step->axes != 0;
}

/* A walk from one placement to another. */
typedef struct walk {
  const ls_mesh *mesh;
  ls_placement now;
  ls_resolve_step *steps;
  int count;
} walk;

/* The axis's shards go round, each axis by itself. */
static void rotate(walk *of, int axis, ls_place to) {
  ls_resolve_step *step = &of->steps[of->count++];
  *step = (ls_resolve_step){collectives[ROTATE], 1u << axis, of->now.on[axis], to, of->now};
  step->after.on[axis] = to;
  of->now = step->after;
}

/* Whether anything but its shift changes on the axis. */
static bool changes_on(const walk *of, const ls_placement *to, int axis) {
  return of->mesh->axes[axis].size > 1 &&
         !ls_place_equal(unshifted(of->now.on[axis]), unshifted(to->on[axis]));
}

int ls_resolve(const ls_mesh *mesh, const ls_placement *from, const ls_placement *to,
               ls_resolve_step steps[LS_MAX_RESOLVE_STEPS]) {
  bool changes[CHANGES + 1] = {false};
  walk of = {mesh, *from, steps, 0};
  for (int a = 0; a < mesh->count; a++)
    if (changes_on(&of, to, a)) changes[change_of(of.now.on[a], to->on[a])] = true;
  if (changes[IMPOSSIBLE]) return -1;
  for (int a = 0; a < mesh->count; a++)
    if (from->on[a].shift && changes_on(&of, to, a)) rotate(&of, a, unshifted(from->on[a]));
  for (change wanted = SCATTER; wanted < ROTATE; wanted++) {
    ls_resolve_step step = {.collective = collectives[wanted]};
    while (changes[wanted] && next_step(mesh, &of.now, to, wanted, &step)) {
      if (!is_ordered(mesh, &of.now, wanted, &step)) return -1;
      of.now = step.after;
      steps[of.count++] = step;
    }
  }
  for (int a = 0; a < mesh->count; a++)
    if (mesh->axes[a].size > 1 && !ls_place_equal(of.now.on[a], to->on[a]))
      rotate(&of, a, to->on[a]);
  return of.count;
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
    const int ranks = ls_mesh_size(mesh, steps[s].axes);
    double whole = (double)ls_placement_elements(mesh, grows ? &steps[s].after : now, tensor);
    if (steps[s].collective == LS_ALL_TO_ALL) whole *= ranks;
    bytes += ls_collective_bytes(steps[s].collective, whole * (double)element_bytes, ranks);
    now = &steps[s].after;
  }
  return bytes;
}
