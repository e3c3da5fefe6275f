/* Resolving one placement into another: the collectives that do it, why, and what they cost.
 *
 *   ls_resolve_step steps[LS_MAX_RESOLVE_STEPS];
 *   const int count = ls_resolve(mesh, &gradient, &state, steps);
 *
 * The same for every tensor (activation, parameter, gradient) and every axis (data axes and stages
 * included). Values only; thread-safe. */
#ifndef LS_SHARD_RESOLVE_H
#define LS_SHARD_RESOLVE_H

#include "graph/graph.h"
#include "ir/collective.h"
#include "ir/mesh.h"

/* One step on the way; all its axes go from one place to another. A slice is local. */
typedef struct ls_resolve_step {
  ls_collective collective; /* NONE: a local slice */
  ls_axes axes;
  ls_place from, to;
  ls_placement after;
} ls_resolve_step;

enum { LS_MAX_RESOLVE_STEPS = 3 * LS_MAX_AXES };

/* The steps from one placement to another, or -1 where no collectives on contiguous memory make it:
 * columns are neither gathered nor scattered, a maximum is not scattered, and axes that cut a
 * dimension do not change places. Sums are scattered
 * before others are added up, which then are of a shard. */
int ls_resolve(const ls_mesh *mesh, const ls_placement *from, const ls_placement *to,
               ls_resolve_step steps[LS_MAX_RESOLVE_STEPS]);

/* "gradient of layers.0: P(sum) on AXES -> S(flat)", from the step's two places. */
const char *ls_resolve_reason(ls_arena *arena, const ls_mesh *mesh, const char *what,
                              const ls_resolve_step *step);

/* Bytes a rank sends for a tensor of these global dims and element size (ring formulas: all-reduce
 * 2K(n-1)/n, all-to-all K(n-1)/n^2, permute K/n, the others K(n-1)/n); negative: impossible. */
double ls_resolve_bytes(const ls_mesh *mesh, const ls_placement *from, const ls_placement *to,
                        const ls_tensor *tensor, size_t element_bytes);

/* Stored elements of a rank's part of a tensor. */
int64_t ls_placement_elements(const ls_mesh *mesh, const ls_placement *placement,
                              const ls_tensor *tensor);

#endif
