/* What a rank saves and fills of each parameter, worked out from the placements of its parts alone:
 * whatever the layout, boxes of the same logical tensors.
 *
 *   ls_state_range ranges[LS_MOST_RANGES];
 *   const int count = ls_state_saved(&ls_state_ranges, program, rank, parameter, part, ranges);
 *
 * Ranks that hold the same elements save a part of them each. Thread-safe: no state. */
#ifndef LS_RUN_STATE_RANGES_H
#define LS_RUN_STATE_RANGES_H

#include "ir/saved_state.h"

extern const ls_state_lists ls_state_ranges;

#endif
