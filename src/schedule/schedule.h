/* The order of a step: actions over segments, units and microbatches, as data.
 *
 * Which instructions an action is, is `lower`'s. */
#ifndef LS_SCHEDULE_SCHEDULE_H
#define LS_SCHEDULE_SCHEDULE_H

#include "ir/action.h"
#include "schedule/chunks.h"
#include "schedule/offload_plan.h"

typedef struct ls_schedule {
  ls_action *items;
  int count, capacity;
  int replay_boundary; /* post-validation: actions that run before the step before is settled; else
                          -1 */
} ls_schedule;

/* By unit: whether the stage has it. */
bool *ls_schedule_units_present(const ls_sharded *sharded, const ls_units *units,
                                const ls_chunks *chunks, int stage);

/* The training step of one stage: all microbatches, then the update. */
ls_schedule ls_schedule_step(const ls_sharded *sharded, const ls_units *units,
                             const ls_chunks *chunks, const ls_recompute *recompute,
                             const ls_offload_plan *offload_plan, int stage);

/* The forward pass of one microbatch and its loss; without a loss (decoding) just the pass. */
ls_schedule ls_schedule_forward(const ls_sharded *sharded, const ls_units *units,
                                const ls_chunks *chunks, const ls_offload_plan *offload_plan,
                                int stage);

#endif
