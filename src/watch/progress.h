/* The progress line of a run, on stderr.
 *
 *   ls_progress *progress = ls_progress_create(arena, stderr, terminal, first_step, steps);
 *   ls_progress_show(progress, &(ls_progress_step){.step = 1, .loss = 5.5, ...}, now_seconds);
 *   ls_progress_note(progress, "validation loss %.4f", loss);
 *   ls_progress_end(progress);
 *
 * On a terminal the line rewrites itself in place; elsewhere plain lines come at growing
 * distances in time, the first and the last step always. One thread at a time. */
#ifndef LS_WATCH_PROGRESS_H
#define LS_WATCH_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"

/* NaN stands for "not known": its part of the line is left out. */
typedef struct ls_progress_step {
  int64_t step; /* finished steps */
  double loss, learning_rate, grad_norm;
  double tokens_per_second;
  double mfu;          /* 0 to 1 */
  double memory_bytes; /* of the fullest device */
  bool pairs;          /* of answers: margin and preferred are shown */
  double margin;       /* of their rewards */
  double preferred;    /* 0 to 1 */
  bool taught;         /* by a teacher: these two are shown */
  double cross_entropy, divergence;
  double expert_load; /* of the fullest expert, over the mean; 0: left out */
  int64_t dropped;    /* choices of experts above their capacity; 0: left out */
  int64_t skipped;    /* steps without an update so far; 0: left out */
  int64_t repeated;   /* steps that were made again so far; 0: left out */
} ls_progress_step;

typedef struct ls_progress ls_progress;

/* A run that goes on after `done` steps to `steps`. `terminal`: isatty of the stream. */
ls_progress *ls_progress_create(ls_arena *arena, FILE *stream, bool terminal, int64_t done,
                                int64_t steps);

/* Shows a finished step at `now_seconds` of any steady clock, which starts when the run does. */
void ls_progress_show(ls_progress *progress, const ls_progress_step *step, double now_seconds);

/* A line of the caller's words instead, of work that is no training: `done` of the steps, in any
 * unit. */
void ls_progress_line(ls_progress *progress, int64_t done, double now_seconds, const char *format,
                      ...) LS_PRINTF(4, 5);

/* A line of its own, above the progress line. */
void ls_progress_note(ls_progress *progress, const char *format, ...) LS_PRINTF(2, 3);

/* Leaves the last line standing. */
void ls_progress_end(ls_progress *progress);

/* "45s", "4m10s", "3h05m", "2d03h". */
enum { LS_DURATION_BYTES = 24 };
void ls_duration_show(char text[LS_DURATION_BYTES], double seconds);

#endif
