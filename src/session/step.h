/* Training steps of one rank: the one place that knows in which order the parts of a step run, and
 * what their cells hold.
 *
 *   ls_steps steps = ls_steps_of(rank, &inputs, rate, context);
 *   for (;;) {
 *     LS_TRY(ls_steps_begin(&steps, error));                    inputs, PROLOGUE
 *     if (steps.open) LS_TRY(ls_steps_finish(&steps, error));   VALIDATE, UPDATE of the step before
 *     LS_TRY(ls_steps_passes(&steps, false, error));            PASSES
 *     LS_TRY(last ? ls_steps_finish(&steps, error) : ls_steps_speculate(&steps, error));
 *   }
 *
 * Without post-validation every step is settled after its passes. With it a step may stay open:
 * ls_steps_speculate updates the weights as if nothing were clipped, and the step's norm comes
 * while the next has begun. Used by the rank's own thread; all functions are collective: all ranks.
 */
#ifndef LS_SESSION_STEP_H
#define LS_SESSION_STEP_H

#include "session/inputs.h"
#include "session/loads.h"
#include "session/loss_scale.h"

/* What is done where gradients are not finite. */
typedef enum ls_steps_policy {
  LS_STEPS_AS_IS = 0, /* nothing: the caller looks at them */
  LS_STEPS_REPEAT,    /* in fp16 the step is done again with a smaller scale */
  LS_STEPS_SKIP       /* in fp16 it is left out; else training ends, naming what was not finite */
} ls_steps_policy;

/* The learning rate of a step, from 0. */
typedef double (*ls_steps_rate)(const void *context, int64_t step);

typedef struct ls_steps {
  ls_rank *rank;
  ls_inputs inputs;
  ls_steps_rate rate;
  const void *context; /* of `rate` */
  ls_steps_policy policy;
  ls_loads *loads;        /* whose biases follow each update; NULL: none do */
  bool speculates_always; /* also after a norm that was clipped; else none is speculated then */
  ls_loss_scale scale;    /* its value is 1 unless compute is fp16 */
  int64_t step;           /* settled */
  bool open;              /* the passes of one more are done: its norm and its update are not */
  bool speculated;        /* weights are a speculation at that update */
  bool clipped;           /* so was the last norm that is known; at first: nothing is known */
  bool overflowed;        /* the gradients of the open step, which is left out */
  bool ahead;             /* as ls_steps_run_ahead says */
  int64_t known;          /* ahead: steps whose loss and norm were looked at */
  int again;              /* program of steps whose rows for experts find no slot; 0: none */
  int running;            /* program of the open step */
  int64_t repeated;       /* steps that were made again */
  bool ready; /* PROLOGUE of the next step is done, with the weights that it will have */
} ls_steps;

/* Of program LS_SESSION_STEP; what is not given is zero. `inputs` is copied, `context` borrowed. */
ls_steps ls_steps_of(ls_rank *rank, const ls_inputs *inputs, ls_steps_rate rate,
                     const void *context);

/* From here on nobody waits for the device within a step: loss and norm are looked at amid the next
 * one, before its update. So after ls_steps_finish the cells are those of step `known`, the one
 * before, until ls_steps_settle. Where they are not finite the weights are still what that step
 * found. Nothing on a device whose work has ended when it is put, with post-validation, or in fp16,
 * where a step's scale follows from the norm before it. */
void ls_steps_run_ahead(ls_steps *steps);

/* Whether the program can leave a step open. */
bool ls_steps_validates(const ls_steps *steps);

/* The next step's inputs and, where its weights are known or speculated, its PROLOGUE. */
LS_CHECKED ls_status ls_steps_begin(ls_steps *steps, ls_error *error);

/* PASSES of the step that was begun, while none is open. `stop`: this rank wishes to, which goes
 * to all with the norm. */
LS_CHECKED ls_status ls_steps_passes(ls_steps *steps, bool stop, ls_error *error);

/* Speculates that the open step is not clipped and updates the weights, unless the last step was.
 */
LS_CHECKED ls_status ls_steps_speculate(ls_steps *steps, ls_error *error);

/* The open step's loss, norm and gradients: cells and LS_PART_GRADIENT may be read after it. Errors
 * that the policy has: LS_FAILED. */
LS_CHECKED ls_status ls_steps_gradients(ls_steps *steps, ls_error *error);

/* Its update, after ls_steps_gradients. */
LS_CHECKED ls_status ls_steps_update(ls_steps *steps, ls_error *error);

/* Both. */
LS_CHECKED ls_status ls_steps_finish(ls_steps *steps, ls_error *error);

/* Ahead: waits for the last step; its cells, gradients and parameters may be read after it. */
LS_CHECKED ls_status ls_steps_settle(ls_steps *steps, ls_error *error);

#endif
