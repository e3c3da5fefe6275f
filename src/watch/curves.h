/* Curves of runs over their steps as SVG: panels side by side, a colour for each run.
 *
 *   ls_curves curves = {.arena = arena, .title = "llama-3m", .x_name = "step", .runs = names,
 *                       .run_count = 2};
 *   ls_curves_panel *loss = LS_APPEND(arena, &curves.panels);
 *   *loss = (ls_curves_panel){.title = "loss"};
 *   *LS_APPEND(arena, &loss->curves) = (ls_curve){.run = 0, .x = x, .y = y, .count = 100};
 *   ls_curves_svg(&curves, stream);
 *
 * Thread-safe as long as no two threads share an arena. */
#ifndef LS_WATCH_CURVES_H
#define LS_WATCH_CURVES_H

#include <stdio.h>

#include "base/arena.h"

typedef enum ls_curve_kind {
  LS_CURVE_LINE,
  LS_CURVE_FAINT, /* what a smooth line is made of */
  LS_CURVE_MARKED /* few points, each marked: a validation loss */
} ls_curve_kind;

typedef struct ls_curve {
  int run;
  ls_curve_kind kind;
  const double *x, *y; /* `count`, borrowed; a y that is not finite leaves a gap */
  int count;
} ls_curve;

typedef struct ls_curves_panel {
  const char *title;
  LS_LIST(ls_curve) curves;
} ls_curves_panel;

typedef struct ls_curves {
  ls_arena *arena;
  const char *title, *x_name;
  const char *const *runs;
  int run_count;
  LS_LIST(ls_curves_panel) panels;
} ls_curves;

/* A panel without a finite value says so. A curve of more points than pixels keeps the least and
 * the most of each pixel. In light and dark, as the reader has it. */
void ls_curves_svg(const ls_curves *curves, FILE *stream);

/* The exponential moving average that TensorBoard draws: weight 0 is y itself, 0.9 looks back some
 * ten points; not biased towards 0 at its beginning. Gaps stay. In the arena. */
double *ls_curve_smooth(ls_arena *arena, const double *y, int count, double weight);

#endif
