#include "shard/convert.h"

typedef struct change {
  ls_axes reduce, scatter, gather, slice;
  bool impossible;
} change;

static change find_change(const ls_mesh *mesh, const ls_placement *from, const ls_placement *to) {
  change found = {0};
  for (int a = 0; a < LS_AXIS_COUNT; a++) {
    const ls_place was = from->on[a], is = to->on[a];
    if (mesh->size[a] < 2 || ls_place_equal(was, is)) continue;
    const ls_axes bit = 1u << a;
    const bool to_rows = is.kind == LS_SHARDED && is.dim == 0;
    if (bit & LS_AXES_DATA)
      found.impossible = true;
    else if (was.kind == LS_PARTIAL && is.kind == LS_REPLICATED)
      found.reduce |= bit;
    else if (was.kind == LS_PARTIAL && was.reduce == LS_SUM && to_rows)
      found.scatter |= bit;
    else if (was.kind == LS_SHARDED && was.dim == 0 && is.kind == LS_REPLICATED)
      found.gather |= bit;
    else if (was.kind == LS_REPLICATED && to_rows)
      found.slice |= bit;
    else
      found.impossible = true;
  }
  return found;
}

/* Rows are contiguous only if every tensor axis that cuts them takes part. */
static bool contiguous(const ls_mesh *mesh, const change *found, const ls_placement *from,
                       const ls_placement *to) {
  const ls_axes rows_before = ls_placement_axes(mesh, from, LS_SHARDED, 0) & LS_AXES_TENSOR;
  const ls_axes rows_after = ls_placement_axes(mesh, to, LS_SHARDED, 0) & LS_AXES_TENSOR;
  if (found->gather && found->gather != rows_before) return false;
  const ls_axes made = found->scatter | found->slice;
  if (found->scatter && found->slice) return false;
  return !made || made == rows_after;
}

static void add_step(ls_conversion_step *steps, int *count, ls_collective collective, ls_axes axes,
                     const ls_placement *to, ls_placement *now) {
  if (!axes) return;
  for (int a = 0; a < LS_AXIS_COUNT; a++)
    if (axes >> a & 1) now->on[a] = to->on[a];
  steps[(*count)++] = (ls_conversion_step){collective, axes, *now};
}

int ls_conversion_plan(const ls_mesh *mesh, const ls_placement *from, const ls_placement *to,
                       ls_conversion_step steps[LS_MAX_CONVERSION_STEPS]) {
  const change found = find_change(mesh, from, to);
  if (found.impossible || !contiguous(mesh, &found, from, to)) return -1;
  ls_placement now = *from;
  int count = 0;
  add_step(steps, &count, LS_ALL_REDUCE, found.reduce, to, &now);
  add_step(steps, &count, LS_REDUCE_SCATTER, found.scatter, to, &now);
  add_step(steps, &count, LS_ALL_GATHER, found.gather, to, &now);
  add_step(steps, &count, LS_COLLECTIVE_NONE, found.slice, to, &now);
  return count;
}

int64_t ls_placement_elements(const ls_mesh *mesh, const ls_placement *placement,
                              const ls_tensor *tensor) {
  int64_t elements = 1;
  for (int d = 0; d < tensor->ndim; d++)
    elements *= ls_mesh_part(mesh, 0, placement, d, tensor->dims[d]).stored;
  return elements;
}

double ls_conversion_bytes(const ls_mesh *mesh, const ls_placement *from, const ls_placement *to,
                           const ls_tensor *tensor, size_t element_bytes) {
  ls_conversion_step steps[LS_MAX_CONVERSION_STEPS];
  const int count = ls_conversion_plan(mesh, from, to, steps);
  if (count < 0) return -1;
  double bytes = 0;
  ls_placement now = *from;
  for (int s = 0; s < count; s++) {
    const double ranks = ls_mesh_size(mesh, steps[s].axes);
    const bool grows = steps[s].collective == LS_ALL_GATHER;
    const double whole =
        (double)ls_placement_elements(mesh, grows ? &steps[s].after : &now, tensor);
    const double share = whole * (double)element_bytes * (ranks - 1) / ranks;
    if (steps[s].collective == LS_ALL_REDUCE)
      bytes += 2 * share;
    else if (steps[s].collective != LS_COLLECTIVE_NONE)
      bytes += share;
    now = steps[s].after;
  }
  return bytes;
}
