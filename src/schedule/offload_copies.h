/* Norm and updates in the order of units, and beside each what goes for the units around it: moves
 * to and from the tiers where things wait, and updated weights to ranks that store them otherwise.
 * Each transfer is two actions, a beginning and an end, with work between them. */
#ifndef LS_SCHEDULE_OFFLOAD_COPIES_H
#define LS_SCHEDULE_OFFLOAD_COPIES_H

#include "schedule/schedule.h"

/* Appends the sums of squares of the gradients of units that are `trained`, where some wait in a
 * file: in the order of parameters, each taken one ahead. */
void ls_offload_norm(const ls_sharded *sharded, const ls_units *units, const bool *trained,
                     int stage, const ls_offload_plan *offload_plan, ls_schedule *schedule);

/* Appends the weights that the program reads of the units that are `present`: made of the state and
 * published where the unit is `trained` and the optimizer takes gradients elsewhere than at its
 * master weights, and of units that are gathered as codes these. */
void ls_schedule_point(const ls_sharded *sharded, const ls_units *units, const bool *present,
                       const bool *trained, const ls_offload_plan *offload_plan,
                       ls_schedule *schedule);

/* Appends the speculated weights of the units that are `trained`, each published beside those that
 * follow. */
void ls_schedule_speculate(const ls_sharded *sharded, const ls_units *units, const bool *trained,
                           const ls_offload_plan *offload_plan, ls_schedule *schedule);

/* Appends the updates of the units that are `trained`: the state of unit i + 1 is read and that of
 * unit i - 1 written back and published while unit i is updated. */
void ls_offload_update(const ls_sharded *sharded, const ls_units *units, const bool *trained,
                       const ls_offload_plan *offload_plan, ls_schedule *schedule);

/* Whether updated parameters lie elsewhere than where they wait, so that they must move there. */
bool ls_offload_returns(const ls_offload_plan *offload_plan, int unit);

#endif
