/* Conversions between placements: what they cost and which collectives make them. */
#ifndef LS_SHARD_CONVERT_H
#define LS_SHARD_CONVERT_H

#include "shard/shard.h"

/* One step of a conversion; a slice is local. */
typedef struct ls_conversion_step {
  ls_collective collective; /* NONE: a local slice */
  ls_axes axes;
  ls_placement after;
} ls_conversion_step;

enum { LS_MAX_CONVERSION_STEPS = 4 };

/* The steps from one placement of an activation to another; -1 where no sequence of collectives on
 * contiguous memory makes it (columns are never gathered, data axes never converted). */
int ls_conversion_plan(const ls_mesh *mesh, const ls_placement *from, const ls_placement *to,
                       ls_conversion_step steps[LS_MAX_CONVERSION_STEPS]);

/* Bytes a rank sends for the conversion of a tensor of these global dims and element size (ring
 * formulas: all-reduce 2K(n-1)/n, the others K(n-1)/n); negative: impossible. */
double ls_conversion_bytes(const ls_mesh *mesh, const ls_placement *from, const ls_placement *to,
                           const ls_tensor *tensor, size_t element_bytes);

/* Stored elements of a rank's part of a tensor. */
int64_t ls_placement_elements(const ls_mesh *mesh, const ls_placement *placement,
                              const ls_tensor *tensor);

#endif
