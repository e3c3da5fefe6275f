/* What each kind of op takes on this machine, found in training steps: small models of several
 * shapes are run for some steps, on one rank with all cores and on a rank for each core, and what
 * every instruction took is kept by its sizes.
 *
 *   LS_TRY(ls_calibrate(arena, &(ls_calibrate_options){.shapes = 0}, rates, error));
 *
 * One at a time in a process: it starts worlds of its own, and keeps the cores busy. */
#ifndef LS_SESSION_CALIBRATE_H
#define LS_SESSION_CALIBRATE_H

#include "cluster/rates.h"
#include "session/repeat.h"

typedef struct ls_calibrate_options {
  int shapes; /* of models, the first ones; 0: all */
  int steps;  /* that are timed of each in both rounds; 0: 1 */
  /* Called before each model, and at the end with done = count; NULL: nobody asks. */
  void (*progress)(void *context, int done, int count, const char *what);
  void *context;
} ls_calibrate_options;

/* Puts the times in place of those that the rates have. LS_FAILED: no folder for a model's
 * configuration, or memory is short. */
LS_CHECKED ls_status ls_calibrate(ls_arena *arena, const ls_calibrate_options *options,
                                  ls_rates *rates, ls_error *error);

/* Adds what recorded steps of the programs of all stages took in each op, on ranks of so many
 * threads: the mean of a step's calls, in the step where that was least, or what the rates have of
 * them where that is less. */
void ls_calibrate_add(ls_arena *arena, const ls_program *const *stages, int threads,
                      ls_recording *const *recordings, int count, ls_rates *rates);

#endif
