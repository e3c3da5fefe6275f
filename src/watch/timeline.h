/* Pictures of a pipeline's schedule: one lane per stage, a box per pass, colours by microbatch.
 *
 * The SVG stands alone: no script, no font of its own; every box has a tooltip. Thread-safe. */
#ifndef LS_WATCH_TIMELINE_H
#define LS_WATCH_TIMELINE_H

#include <stdio.h>

#include "schedule/pipeline.h"

/* `title` is printed above; `times` are of this pipeline, in any unit of time. */
void ls_timeline_svg(const ls_pipeline *pipeline, const ls_pipeline_times *times, const char *title,
                     FILE *stream);

#endif
