/* An axis of a picture: which part of it a value is at, and where its ticks are.
 *
 *   const ls_axis x = ls_axis_of(0.2, 40, true);
 *   left + ls_axis_at(&x, 5) * wide;
 *   ls_axis_ticks(&x, wide, draw_tick, &panel);
 *
 * Thread-safe: no state. */
#ifndef LS_WATCH_AXIS_H
#define LS_WATCH_AXIS_H

#include <stdbool.h>

typedef struct ls_axis {
  double low, high; /* logarithms where it is one of powers */
  bool powers;
} ls_axis;

/* From `least` to `most` with a margin, not below 0 where `least` is not. With `may_be_powers` it
 * is one of powers where its values are positive and far apart. Where least > most there is no
 * value, and it is an axis of any. */
ls_axis ls_axis_of(double least, double most, bool may_be_powers);

/* 0 at its low end, 1 at its high end. */
double ls_axis_at(const ls_axis *axis, double value);

/* Calls `draw` for each tick along `pixels`: 1, 2 and 5 times powers of ten, or round steps. */
void ls_axis_ticks(const ls_axis *axis, double pixels, void (*draw)(void *context, double value),
                   void *context);

/* "0.005", "20000", "800k", "1.5M", "25B", "15T": a number beside a tick, as --tokens has them. */
enum { LS_TICK_TEXT = 24 };
void ls_axis_number(char text[LS_TICK_TEXT], double value);

#endif
