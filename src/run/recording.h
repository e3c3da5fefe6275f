/* When every rank executed each instruction of one step, brought together on rank 0.
 *
 *   LS_TRY(ls_rank_record_room(rank, program, error));
 *   ls_rank_record(rank, true);
 *   ... a step ...
 *   ls_rank_record(rank, false);
 *   LS_TRY(ls_recording_gather(arena, rank, step, &recording, error));
 *
 * `trace: true` records the step after LS_RECORDING_WARM_STEPS of a start of the run. */
#ifndef LS_RUN_RECORDING_H
#define LS_RUN_RECORDING_H

#include "run/rank.h"

/* Steps before it, in which libraries fill their caches and memory is first touched. */
enum { LS_RECORDING_WARM_STEPS = 2 };

/* Ranks of one machine share a clock. Those of others are shifted so that a barrier, which all
 * leave here, ends everywhere at the same time: within the time a message takes. *recording is in
 * the arena on rank 0 and NULL elsewhere. Collective: all ranks. */
LS_CHECKED ls_status ls_recording_gather(ls_arena *arena, ls_rank *rank, int64_t step,
                                         ls_recording **recording, ls_error *error);

#endif
