/* What stages may do of a step before they know the gradient norm of the step before it.
 *
 * A step's update needs the norm over all stages: a barrier. With post-validation (Qi et al., "Zero
 * Bubble Pipeline Parallelism", 2024, section 4) each stage speculates that nothing is clipped,
 * goes on with the weights which that gives, and validates when the norm has come; where the
 * speculation was wrong it updates again and repeats what it did. What may be repeated are the
 * first forward passes of each stage, up to a replay boundary that no message crosses.
 *
 *   const int *passes = ls_replay_boundary_passes(arena, pipeline);   // by stage: passes before it
 *
 * Thread-safe as long as no two threads share an arena. */
#ifndef LS_PIPELINE_REPLAY_BOUNDARY_H
#define LS_PIPELINE_REPLAY_BOUNDARY_H

#include "pipeline/pipeline.h"

/* By stage: how many passes of its list come before the boundary. They are forward passes, none of
 * the last chunk, whose loss is a sum of the step; what each takes is sent before the boundary too,
 * and what each but the last makes is taken before it. Owned by the arena. */
int *ls_replay_boundary_passes(ls_arena *arena, const ls_pipeline *pipeline);

/* Whether what the pass at `place` of the stage's list sends is taken before the boundary. */
bool ls_replay_boundary_sends(const ls_pipeline *pipeline, const int *passes, int stage, int place);

#endif
