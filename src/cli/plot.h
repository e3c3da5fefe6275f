/* Runs over each other, for commands that show several.
 *
 *   LS_TRY(ls_plot_runs(arena, folders, count, "plot.svg", error));
 *
 * Of one thread. */
#ifndef LS_CLI_PLOT_H
#define LS_CLI_PLOT_H

#include "base/arena.h"
#include "train/metrics_read.h"

/* Draws what `lockstep plot` draws of the folders of runs, over steps. LS_INPUT: one of them has no
 * metrics. */
LS_CHECKED ls_status ls_plot_runs(ls_arena *arena, const char *const *folders, int count,
                                  const char *picture, ls_error *error);

/* Of the tokens a second of a run's steps; NaN where there are none. */
double ls_plot_median_speed(ls_arena *arena, const ls_metrics_rows *rows);

#endif
