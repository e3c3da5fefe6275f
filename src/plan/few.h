/* A step of few microbatches that tells of one of many.
 *
 *   ls_plan_few few;
 *   if (ls_plan_few_of(training, layout, fewer, &few)) ... few.training, few.layout, few.repeat
 *
 * A schedule goes through many microbatches in periods that are all alike; a step with fewer of
 * these holds as much and, once it repeats in simulation, takes so much less (sim/sim.h). */
#ifndef LS_PLAN_FEW_H
#define LS_PLAN_FEW_H

#include "lower/training.h"
#include "sim/sim.h"

typedef struct ls_plan_few {
  ls_training training;
  ls_layout layout;
  ls_sim_repeat repeat; /* what is left out */
} ls_plan_few;

/* At least how many microbatches a step of a layout may be told by, at first. */
int ls_plan_few_at_least(const ls_layout *layout);

/* The same for a proof, which asks of memory alone that it is handed on in periods. */
int ls_plan_few_proved_at_least(const ls_layout *layout);

/* With the fewest microbatches that are at least so many. false: the step is not longer by half, or
 * its stages go through all microbatches in another way than through few and more periods between.
 * Texts of the layout are borrowed. */
bool ls_plan_few_of(const ls_training *training, const ls_layout *layout, int at_least,
                    ls_plan_few *few);

#endif
