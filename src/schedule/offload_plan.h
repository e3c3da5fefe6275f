/* Where things wait: the tier of each unit's parameters and optimizer state, and the activations
 * that leave the device between forward and backward. In the arena of the sharded graph. */
#ifndef LS_SCHEDULE_OFFLOAD_PLAN_H
#define LS_SCHEDULE_OFFLOAD_PLAN_H

#include "schedule/recompute.h"
#include "schedule/units.h"

typedef struct ls_moved {
  int *items;
  int count, capacity;
} ls_moved;

typedef struct ls_offload_plan {
  ls_tier *state, *parameters; /* by unit */
  bool one_copy; /* master weights are the stored parameters where both are in one tier */
  ls_tier activations;
  int *moved;  /* by sharded value: kept for backward elsewhere, out after this segment's forward
                  pass and in before its backward pass; -1: stays */
  bool *moves; /* by segment: there is such a value */
  ls_moved *moved_of; /* by segment: all such values */
} ls_offload_plan;

/* Whether some unit's gradient waits in a file, as its state does: then the norm is summed unit by
 * unit. */
bool ls_offload_plan_files(const ls_offload_plan *offload_plan, const ls_units *units);

/* Of one stage, whose units are `present`. Of the optimizer's state the first units stay on the
 * device, as far as the layout's fraction allows. Activations move where one segment alone reads
 * them in backward and is the last to read them in forward, and no other stage takes them.
 * `recompute` may be NULL: nothing is made again. */
ls_offload_plan *ls_offload_plan_make(const ls_sharded *sharded, const ls_units *units,
                                      const ls_chunks *chunks, const ls_recompute *recompute,
                                      const bool *present, int stage);

#endif
