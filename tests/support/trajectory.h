/* Trains a small model for a few steps under a layout and keeps everything that can be compared:
 * what tests of equality are made of. Aborts the test program on errors. */
#ifndef LS_TESTS_TRAJECTORY_H
#define LS_TESTS_TRAJECTORY_H

#include "model/model.h"
#include "run/rank.h"

enum { LS_TRAJECTORY_STEPS = 5 };

/* What is trained on what. */
typedef struct ls_experiment {
  const ls_model_config *config;
  int64_t sequences, sequence; /* of a step */
  uint64_t seed;
  bool fast_kernels; /* the CPU device's, in place of the reference */
  /* Applied to the compiled program before it runs; NULL: none. For faults put in on purpose.
   * False: there was nothing to alter, and the program does not run. */
  bool (*alter)(ls_program *program, void *context);
  void *alter_context;
  double learning_rate;
  double loss_scale; /* LS_CELL_SCALE; 0: 1 */
  double deadline_s; /* longest wait of a rank for another; 0: the default */
} ls_experiment;

typedef struct ls_trajectory {
  double loss[LS_TRAJECTORY_STEPS], norm[LS_TRAJECTORY_STEPS];
  int parameters;
  const char **name;
  int64_t *elements;
  double **gradient; /* [step x parameters]: of each step, before clipping */
  double **final;    /* by parameter */
} ls_trajectory;

/* Runs it on threads; the result is owned by the arena. LS_INPUT: the layout was refused. LS_NO:
 * there was nothing to alter. LS_FAILED also where ranks that hold the same parameters end with
 * different ones. */
ls_status ls_trajectory_run(ls_arena *arena, const ls_experiment *experiment,
                            const ls_layout *layout, ls_trajectory *result, ls_error *error);

/* The worst of all differences, each relative to max(norm of the reference tensor, 1e-3 x the
 * norm of all tensors of its kind); NaN where there is one. `where` names it. */
double ls_trajectory_difference(const ls_trajectory *a, const ls_trajectory *reference,
                                const char **where);

/* The same for the first `steps` steps' losses, norms and gradients alone. */
double ls_trajectory_difference_of_steps(const ls_trajectory *a, const ls_trajectory *reference,
                                         int steps, const char **where);

/* The same for the losses alone. */
double ls_trajectory_loss_difference(const ls_trajectory *a, const ls_trajectory *reference,
                                     const char **where);

#endif
