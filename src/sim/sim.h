/* The simulator: when each stage does what in one step of the compiled program, without running it.
 *
 *   ls_simulation *simulation;
 *   LS_TRY(ls_simulate(arena, programs, &performance, NULL, &simulation, error));
 *   printf("%.3f s\n", simulation->seconds);
 *
 * Discrete events over the actions of one rank of each stage, where its ranks do the same at the
 * same time; where their speeds or hosts differ, of one rank of each class that does. A stage
 * computes in issue order; a transfer runs beside it from its beginning, behind those of its queue,
 * and ends no later than it is waited for. Messages queue as the device's engine has it. Links are
 * shared max-min fair: those that a device has to its peers and its host, NICs by the devices that
 * have one between them, drives by their host's. Read-only on programs; thread-safe as long as no
 * two threads share an arena. */
#ifndef LS_SIM_SIM_H
#define LS_SIM_SIM_H

#include "cost/performance.h"
#include "ir/record.h"

/* Why a stage did not compute: transfers of one kind, or others that had not begun them. */
typedef struct ls_sim_cause {
  ls_collective collective;
  ls_axes axes;   /* of a group; 0 of messages, moves and the end of the step */
  bool of_unit;   /* of weights, gradients or state, not of tokens */
  int late;       /* the place in `stage` of who had not begun it; -1: it was under way */
  double exposed; /* seconds that computing waited for them */
  double seconds; /* that they took */
  double bytes;   /* that a rank sent */
} ls_sim_cause;

/* A rank of a stage, and what it does as all of its class do. */
typedef struct ls_sim_stage {
  int stage, rank; /* the stage's number; the first rank of the class */
  int ranks;       /* of the class */
  double compute;  /* seconds, by kind of action below */
  double by_kind[LS_ACTION_COUNT_OF_KINDS];
  double end; /* of its last action */
  LS_LIST(ls_sim_cause) causes;
  LS_LIST(ls_record) records; /* in the order of their ends */
} ls_sim_stage;

typedef struct ls_simulation {
  double seconds; /* of a step */
  /* Of it, what a rank is idle because other stages are not as far: before its first pass, between
   * passes, behind its last. The mean of all ranks. */
  double bubble;
  int stages;          /* as many as there are stages, or more where ranks of a stage differ */
  ls_sim_stage *stage; /* [stages], in the order of their first ranks */
  int *of_rank;        /* [ranks] the place there */
  int64_t events;
  bool repeated; /* what was to be repeated came again, and is in all this as often as asked for */
} ls_simulation;

/* More microbatches than programs have. A period in the middle of the step, of so many of them, is
 * put in so often: once everything is as it was a period before, it is so for ever. Exact but for
 * rounding where programs of all microbatches have that period too. */
typedef struct ls_sim_repeat {
  int period, times; /* 0: as it is */
} ls_sim_repeat;

typedef struct ls_sim_options {
  bool records; /* keep them: of what is not repeated */
  ls_sim_repeat repeat;
  bool publishes_late;      /* updated weights are gathered beside the next step's forward pass */
  const double *speed_of;   /* [stages] of computing: 0.9 of a slow stage; NULL: all 1 */
  const double *rank_speed; /* [ranks] the same of each rank; NULL: all 1 */
  double link_of[LS_LINK_KINDS]; /* rates of links, times this; 0: as it is */
  /* Seconds that an action computes, in place of what its instructions cost; transfers then take
   * none. NULL: what they cost. */
  double (*seconds_of)(const void *context, const ls_program *program,
                       const ls_program_action *action);
  const void *context;
} ls_sim_options;

/* One step of the programs of all stages. `options` may be NULL. LS_FAILED: the programs do not
 * end, which `check` would have said. In the arena; borrows the programs. */
LS_CHECKED ls_status ls_simulate(ls_arena *arena, const ls_program *const *programs,
                                 const ls_performance *performance, const ls_sim_options *options,
                                 ls_simulation **simulation, ls_error *error);

/* The same as a recording of all ranks, for pictures and tables: ranks of a stage share the records
 * of one. Simulated with `records`. In the arena. */
ls_recording *ls_simulation_recording(ls_arena *arena, const ls_simulation *simulation,
                                      const ls_mesh *mesh);

#endif
