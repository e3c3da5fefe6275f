/* Trains a small model for a few steps under a layout, on random tokens, and keeps everything that
 * can be compared: whether two layouts are the same training. Used by `verify` and by tests.
 *
 *   ls_trajectory one, many;
 *   LS_TRY(ls_trajectory_run(arena, &experiment, &one_device, &one, error));
 *   LS_TRY(ls_trajectory_run(arena, &experiment, &layout, &many, error));
 *   if (!(ls_trajectory_difference(&many, &one, &where) < 1e-10)) ...
 *
 * A run starts one thread for each rank and ends them; apart from that one thread at a time. */
#ifndef LS_VERIFY_EQUALITY_H
#define LS_VERIFY_EQUALITY_H

#include "model/model.h"
#include "run/rank.h"

enum { LS_TRAJECTORY_STEPS = 5 };

/* What is trained on what. */
typedef struct ls_experiment {
  const ls_model_config *config;
  int64_t sequences, sequence; /* of a step */
  uint64_t seed;
  const char *const *freeze; /* what is frozen, as ls_freeze takes it */
  int freeze_count;
  const ls_parameter_settings *settings; /* by parameter, but a teacher's; NULL: as made */
  const double *weights;                 /* [classes] of labels; NULL: each counts once */
  ls_model_pairs pairs;     /* of documents, which there are then, against a reference of chance */
  ls_text_pairs texts;      /* of documents of chance, with a model of vectors */
  ls_model_teacher teacher; /* whose weights are drawn too */
  const char *zeroed;       /* what the names of parameters end in that begin at 0; NULL: none do */
  bool documents;           /* attention and positions stay inside documents of chance */
  bool saved;               /* what runs is the saved form of the programs, read back */
  /* Applied to each stage's program before it runs; NULL: none. For faults put in on purpose.
   * False of all stages: there was nothing to alter, and the program does not run. */
  bool (*alter)(ls_program *program, void *context);
  void *alter_context;
  /* That it runs on, in the layout's compute type; kind NULL: "reference". */
  ls_device_options device;
  double learning_rate;
  const char *offload_path; /* folder of the file, where the layout has one */
  double loss_scale;        /* LS_CELL_SCALE; 0: 1 */
  double deadline_s;        /* longest wait of a rank for another; 0: the default */
  int steps;                /* 0: LS_TRAJECTORY_STEPS, at most so many */
} ls_experiment;

/* The graph of a step of it under the layout, or of an evaluation (LS_PROGRAM_FORWARD), without the
 * step's backward part. */
LS_CHECKED ls_status ls_experiment_graph(ls_arena *arena, const ls_experiment *experiment,
                                         const ls_layout *layout, ls_program_kind kind,
                                         ls_graph **graph, ls_error *error);

/* The same graph, with the backward part of a step, and its programs: stages[layout->pp], not yet
 * altered. Those of a step are what ls_trajectory_run runs. LS_INPUT: the layout was refused. */
LS_CHECKED ls_status ls_experiment_compile(ls_arena *arena, const ls_experiment *experiment,
                                           const ls_layout *layout, ls_program_kind kind,
                                           ls_graph **graph, ls_program **stages, ls_error *error);

typedef struct ls_trajectory {
  double loss[LS_TRAJECTORY_STEPS], norm[LS_TRAJECTORY_STEPS]; /* 0 of steps not run */
  int parameters;
  const char **name;
  int64_t *elements;
  double **gradient;  /* [step x parameters]: of each step, before clipping */
  double **first;     /* by parameter: after the first step */
  double **final;     /* by parameter: after the last */
  int64_t repeated;   /* steps whose rows for experts found no slot, and that were made again */
  const char *unlike; /* a parameter that its replicas have different; NULL: none */
} ls_trajectory;

/* Runs it on threads; the result is owned by the arena. LS_INPUT: the layout was refused.
 * LS_REFUTED: there was nothing to alter. LS_FAILED also where ranks that hold the same parameters
 * end with different ones: then all of the result is there, with `unlike`. */
LS_CHECKED ls_status ls_trajectory_run(ls_arena *arena, const ls_experiment *experiment,
                                       const ls_layout *layout, ls_trajectory *result,
                                       ls_error *error);

/* What is compared, in the order in which it comes about. */
typedef enum ls_equality_kind {
  LS_EQUALITY_LOSS = 0,  /* of every step */
  LS_EQUALITY_GRADIENTS, /* of the first step */
  LS_EQUALITY_NORM,      /* of every step's gradients */
  LS_EQUALITY_FIRST,     /* parameters after the first step */
  LS_EQUALITY_FINAL,     /* parameters after the last */
  LS_EQUALITY_KINDS
} ls_equality_kind;

/* How large a difference may be: the least; or so many times what rounding does to the same loss or
 * tensor, where that is more. What rounding does is told by `rounded`, the reference's training in
 * another dtype. So that no lucky draw counts, it is at least the median over all tensors, the
 * largest of losses so far, and for norms, of whose errors many cancel, that of the gradients g:
 * | |rounded| - |g| | <= |rounded - g|, over |g|, the largest of steps so far. What this misses is
 * seen otherwise: in each dtype a norm is that of the same training's own gradients but for
 * LS_EQUALITY_OWN_NORM. */
typedef struct ls_equality_tolerances {
  double least;                 /* of what the first step computes ... */
  double least_later;           /* ... and of later losses and norms and final parameters */
  double multiple;              /* of what the first step computes but its loss ... */
  double later;                 /* ... and of all else: differences have grown */
  const ls_trajectory *rounded; /* NULL: the least holds for all */
} ls_equality_tolerances;

/* Norms are summed in fp64 from gradients of any dtype. */
#define LS_EQUALITY_OWN_NORM 1e-10

/* One difference: of a loss or a norm relative to the reference's; of a tensor the norm of the
 * difference over max(norm of the reference's tensor, 1e-3 x the norm of all of its kind). */
typedef struct ls_equality_gap {
  double relative, allowed; /* NaN where one is */
  int step;                 /* from 0 */
  int parameter;            /* -1: none */
  int64_t element;          /* of it: the one that differs most ... */
  double found, expected;   /* ... or the loss or norm itself */
} ls_equality_gap;

/* The gap of a kind that is largest for what is allowed. */
ls_equality_gap ls_equality_worst(const ls_trajectory *a, const ls_trajectory *reference,
                                  ls_equality_kind kind, const ls_equality_tolerances *tolerances);

/* The gap of a kind above what is allowed that comes about first: steps in their order, gradients
 * as backward makes them, from the last parameter to the first. False: there is none. */
bool ls_equality_first(const ls_trajectory *a, const ls_trajectory *reference,
                       ls_equality_kind kind, const ls_equality_tolerances *tolerances,
                       ls_equality_gap *gap);

/* The median gap of a kind over its tensors, or over steps. */
double ls_equality_median(const ls_trajectory *a, const ls_trajectory *reference,
                          ls_equality_kind kind);

/* The worst gap of all, every step's gradients among them; NaN where there is one. `where` names
 * it. */
double ls_trajectory_difference(const ls_trajectory *a, const ls_trajectory *reference,
                                const char **where);

/* The same for the first `steps` steps' losses, norms and gradients alone. */
double ls_trajectory_difference_of_steps(const ls_trajectory *a, const ls_trajectory *reference,
                                         int steps, const char **where);

/* The same for the losses alone. */
double ls_trajectory_loss_difference(const ls_trajectory *a, const ls_trajectory *reference,
                                     const char **where);

#endif
