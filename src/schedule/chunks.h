/* How a pipeline lays a model over its stages: which segments each chunk has, and in what order a
 * stage goes through its chunks and microbatches. One stage is a pipeline too.
 *
 * In the arena of the sharded graph. */
#ifndef LS_SCHEDULE_CHUNKS_H
#define LS_SCHEDULE_CHUNKS_H

#include "pipeline/pipeline.h"
#include "shard/shard.h"

typedef struct ls_chunks {
  const ls_pipeline *pipeline;
  const ls_pipeline_times *times; /* of unit costs: the one order of all transfers */
  int count;                      /* stages x chunks of each */
  int *first_segment;             /* [count + 1] */
  int *chunk_of;                  /* by segment */
  /* By chunk x microbatches + microbatch: where its forward pass stands in its stage's list, and
   * the pass back whose result goes on to the chunk before. */
  int *forward_place, *back_place;
} ls_chunks;

/* The pipeline of the layout's schedule, chunks and microbatches. LS_INPUT as below. */
LS_CHECKED ls_status ls_chunks_pipeline(ls_arena *arena, const ls_layout *layout,
                                        ls_pipeline **pipeline, ls_error *error);

/* What chunks are cut by, of each segment: its products and attention, and a little, so that none
 * is free. In the arena. */
double *ls_chunks_costs(ls_arena *arena, const ls_graph *graph);

/* By the layout's schedule, stages and chunks; `forward`: one microbatch, without a backward pass.
 * LS_INPUT: the schedule cannot be, with the nearest that can. */
LS_CHECKED ls_status ls_chunks_make(const ls_sharded *sharded, bool forward, ls_chunks **chunks,
                                    ls_error *error);

int ls_chunks_stage(const ls_chunks *chunks, int segment);

#endif
