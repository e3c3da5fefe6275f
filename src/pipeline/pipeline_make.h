/* What the makers of pipeline schedules share; inside this room only.
 *
 *   ls_pipeline_append(arena, pipeline, stage, LS_PASS_FORWARD, chunk, microbatch);
 *
 * A maker fills the lists of a pipeline whose sizes and placement are set. Threads: as pipeline.h.
 */
#ifndef LS_PIPELINE_PIPELINE_MAKE_H
#define LS_PIPELINE_PIPELINE_MAKE_H

#include "pipeline/pipeline.h"

typedef void ls_pipeline_maker(ls_arena *arena, ls_pipeline *pipeline);

ls_pipeline_maker ls_pipeline_make_sequential, ls_pipeline_make_gpipe, ls_pipeline_make_1f1b,
    ls_pipeline_make_interleaved, ls_pipeline_make_zbh1, ls_pipeline_make_zbh2,
    ls_pipeline_make_zbv, ls_pipeline_make_vhalf, ls_pipeline_make_vmin, ls_pipeline_make_dualpipev;

/* A pipeline without passes, its chunks laid in a loop or folded. */
ls_pipeline *ls_pipeline_new(ls_arena *arena, const char *name, int stages, int chunks,
                             int microbatches, bool folded);

void ls_pipeline_append(ls_arena *arena, ls_pipeline *pipeline, int stage, ls_pass_kind kind,
                        int chunk, int microbatch);

/* The W of the oldest I of a stage that is still without; `place` is 0 at first and keeps where in
 * the list to go on looking. */
void ls_pipeline_append_weight(ls_arena *arena, ls_pipeline *pipeline, int stage, int *place);

/* Where the passes of a file stand. */
typedef struct ls_pipeline_place {
  int line, column;
} ls_pipeline_place;

/* ls_pipeline_check with the places of a file's passes, [stage][place in its list]; or NULL. */
LS_CHECKED ls_status ls_pipeline_check_at(const ls_pipeline *pipeline,
                                          ls_pipeline_place *const *places, ls_error *error);

/* Whether the lists, sound otherwise, can be executed in their order. */
LS_CHECKED ls_status ls_pipeline_executes(ls_arena *arena, const ls_pipeline *pipeline,
                                          ls_pipeline_place *const *places, ls_error *error);

#endif
