/* The planner: which layout of so many devices is the best for a training.
 *
 *   ls_plan_problem problem = {.training = &training, .base = layout, .facts = facts,
 *                              .performance = &performance, .devices = 64, .limit = bytes};
 *   ls_plan *plan;
 *   LS_TRY(ls_plan_make(arena, &problem, &plan, error));
 *   if (plan->rows.count) printf("%.3f s\n", plan->rows.items[0].seconds);
 *
 * Every candidate has a cost by its class: a model of one and of two layers, compiled and simulated
 * alone. The best by that are compiled and simulated whole, then the neighbours of the best of
 * these until none is better. Where the best lack memory for what they make again, that is chosen
 * by layer. What a row says is of its compiled programs, never of an estimate. All cores work on it
 * (plan/ahead.h), and what is found does not depend on how many. Thread-safe as long as no two
 * threads share an arena. */
#ifndef LS_PLAN_PLAN_H
#define LS_PLAN_PLAN_H

#include "lower/training.h"
#include "sim/sim.h"

typedef enum ls_plan_objective {
  LS_PLAN_TIME = 0,
  LS_PLAN_MONEY, /* of devices by the hour: their number is given, so this is time too */
  LS_PLAN_MEMORY
} ls_plan_objective;

/* What a candidate has as `base` says, in place of all that can be. */
typedef struct ls_plan_held {
  bool axis[LS_LAYOUT_AXES];
  bool zero, schedule, chunks, recompute, offload, prefetch, gather, reduce, sequence_parallel;
  bool ep, whole_experts, context;
  int64_t micro_batch, microbatches; /* 0: free */
} ls_plan_held;

typedef struct ls_plan_problem {
  const ls_training *training;
  ls_layout base; /* what no candidate changes, and what is held */
  ls_plan_held held;
  const ls_device_facts *facts;
  const ls_performance *performance;
  int devices;
  int64_t limit;      /* bytes of a device; 0: not known, all fit */
  int64_t host_limit; /* likewise of a host's memory, for each of its devices */
  ls_plan_objective objective;
  int compiled_first; /* candidates that are compiled whole before neighbours; 0: as usual */
  bool all;           /* compile every candidate */
  bool whole;         /* and every microbatch, where few tell of all (plan/few.h) */
  bool only_fitting;  /* where none fits, the smallest is not asked for */
} ls_plan_problem;

/* Where the seconds of a step go, in the mean of the stages; they add up to the step. */
#define LS_PLAN_TERMS(X)                        \
  X(FORWARD, "forward")                         \
  X(BACKWARD, "backward")                       \
  X(RECOMPUTE, "recomputation")                 \
  X(UPDATE, "update and norm")                  \
  X(TENSOR, "waiting for tensor parallelism")   \
  X(CONTEXT, "waiting for context parallelism") \
  X(EXPERTS, "waiting for expert parallelism")  \
  X(DATA, "waiting for data parallelism")       \
  X(STAGES, "waiting for other stages")         \
  X(TIERS, "waiting for host or drive")         \
  X(IDLE, "done before the last stage")
typedef enum ls_plan_term {
#define LS_PLAN_ENUM(suffix, name) LS_PLAN_##suffix,
  LS_PLAN_TERMS(LS_PLAN_ENUM)
#undef LS_PLAN_ENUM
      LS_PLAN_TERM_COUNT
} ls_plan_term;

const char *ls_plan_term_name(ls_plan_term term);

/* A layout whose programs were compiled and simulated. */
typedef struct ls_plan_row {
  ls_layout layout;
  int64_t micro_batch;
  double seconds; /* of a step */
  double flops;   /* of it, of all devices */
  double terms[LS_PLAN_TERM_COUNT];
  /* Until it is proved, what its step needs; evaluation seldom needs more. */
  int64_t bytes; /* of a device of the stage that needs most */
  int stage;
  int64_t host_bytes; /* of a host, for a device of the stage that needs most there */
  bool fits;
  bool proved;        /* check says that its programs are this model's */
  bool moved;         /* its proof found other bytes: it is not yet where these belong */
  double estimated_s; /* before it was compiled; 0: it was not estimated */
  int64_t estimated_bytes;
  int64_t work; /* instructions and actions of all its microbatches */
  int64_t done; /* that were compiled for it: of few, where these tell */
  int few;      /* microbatches that tell of all (plan/few.h), or all of them */
} ls_plan_row;

typedef struct ls_plan {
  ls_arena *arena;                /* its own */
  LS_LIST(ls_plan_row) rows;      /* that fit, best first */
  LS_LIST(ls_plan_row) too_large; /* that do not, the smallest first */
  int64_t candidates;             /* that the numbers allow */
  int64_t estimated;              /* of them; the others' state alone is too large */
  int classes, compiled;          /* that were costed; layouts that were compiled whole */
  int64_t work, done;             /* instructions and actions of these, likewise */
  int refuted;                    /* rows that check refused, which are left out */
  ls_error refutation;            /* of the first of these: why */
} ls_plan;

/* LS_INPUT: no layout of so many devices has what is held; says which key cannot be. Where none
 * fits, `rows` is empty. In the arena. */
LS_CHECKED ls_status ls_plan_make(ls_arena *arena, const ls_plan_problem *problem, ls_plan **plan,
                                  ls_error *error);

/* The same layout compiled, its step alone, and simulated. `faster` may be NULL: options of the
 * simulation. LS_INPUT: the compiler refuses it. Layout texts are borrowed. */
LS_CHECKED ls_status ls_plan_measure(const ls_plan_problem *problem, const ls_layout *layout,
                                     const ls_sim_options *faster, ls_plan_row *row,
                                     ls_error *error);

/* The same, but what needs more bytes of a device than `most` is not simulated: it takes 0 seconds.
 */
LS_CHECKED ls_status ls_plan_measure_within(const ls_plan_problem *problem, const ls_layout *layout,
                                            double most, ls_plan_row *row, ls_error *error);

/* Proves a row's programs of step and evaluation, and that its state is saved and loaded right; its
 * bytes are of both from then on. Does nothing where that was done. LS_REFUTED: says what is
 * wrong. */
LS_CHECKED ls_status ls_plan_prove(const ls_plan_problem *problem, ls_plan_row *row,
                                   ls_error *error);

/* The same of many rows on all cores, whatever comes of it: each is `proved` or not. */
void ls_plan_prove_ahead(const ls_plan_problem *problem, ls_plan_row **rows, int count);

/* The same of a row of the plan. false: rows have changed, since it is refuted and left out of the
 * plan, or it needs more than was known and stands elsewhere. */
bool ls_plan_keep_proved(const ls_plan_problem *problem, ls_plan *plan, ls_plan_row *row);

/* Puts a copy of a row where it belongs, among those that fit or the others. */
void ls_plan_add(const ls_plan_problem *problem, ls_plan *plan, const ls_plan_row *row);

/* Proves the first `count` rows that fit: another row takes the place of one that is refuted.
 */
void ls_plan_prove_rows(const ls_plan_problem *problem, ls_plan *plan, int count);

/* Chooses by layer what a layout makes again (lower/budget.h), so that it fits a device: sets
 * recompute_of, in the arena. LS_REFUTED: it does not fit even where every layer runs again. */
LS_CHECKED ls_status ls_plan_fit_recompute(ls_arena *arena, const ls_plan_problem *problem,
                                           ls_layout *layout, ls_error *error);

/* The row that needs the least memory, whether it fits or not; NULL: there is none. */
const ls_plan_row *ls_plan_least(const ls_plan *plan);

/* A candidate before it is compiled. */
typedef struct ls_plan_candidate {
  ls_layout layout;
  int64_t micro_batch;
  double seconds; /* estimated */
  int64_t bytes;
  bool sized; /* bytes are of its stages with few layers (plan/memory.h), not of its class */
  bool done;  /* compiled, or too large for that */
} ls_plan_candidate;

/* What parameters come to, of a model that is whole on one device. */
typedef struct ls_plan_sizes {
  double bytes, trained;                /* of weights as they are stored; how many are trained */
  double expert_bytes, experts_trained; /* of these, of routed experts */
  double rounded, rounded_trained;      /* weights that products read as fp8's codes alone */
} ls_plan_sizes;

typedef struct ls_plan_candidates {
  ls_arena *arena;
  LS_LIST(ls_plan_candidate) list;
  int64_t seen; /* with those that are left out: what lasts between steps alone is too large */
  ls_plan_sizes sizes; /* of the model, to tell these; bytes 0: none is left out */
} ls_plan_candidates;

/* So many layers of a model, its last: the first of a mixture may have no experts. */
ls_model_config ls_plan_shortened(const ls_model_config *model, int64_t layers);

/* The sizes of so many layers and what is before and behind them, in the types of the problem's
 * layout. LS_INPUT: the model cannot be built. */
LS_CHECKED ls_status ls_plan_sizes_of(const ls_plan_problem *problem, int64_t layers,
                                      ls_plan_sizes *sizes, ls_error *error);

/* All layouts of the problem that its numbers allow: axes that divide devices, layers, heads and
 * batch. What else a layout must be, the compiler says. The list is made anew. */
void ls_plan_enumerate(const ls_plan_problem *problem, ls_plan_candidates *candidates);

/* Classes that were costed. */
typedef struct ls_plan_estimates ls_plan_estimates;

/* Fills seconds and bytes of every candidate, by their classes, which are costed. In the arena.
 * Leaves out candidates whose class cannot be compiled, and those that another one betters whatever
 * else is true, unless all are asked for. */
ls_plan_estimates *ls_plan_estimate(ls_arena *arena, const ls_plan_problem *problem,
                                    ls_plan_candidates *candidates);

/* How many there are. */
int ls_plan_classes(const ls_plan_estimates *estimates);

/* Fills seconds and bytes of a candidate of one of these classes. false: it is of none. */
bool ls_plan_estimate_like(const ls_plan_estimates *estimates, ls_plan_candidate *candidate);

/* Layouts that differ from this one in one choice: a prime factor of one axis on another, or of the
 * micro-batch; zero, schedule, recomputation, what waits on the host; sequence parallelism; when
 * weights are gathered and gradients reduced. */
void ls_plan_neighbours(const ls_plan_problem *problem, const ls_plan_row *of,
                        ls_plan_candidates *candidates);

/* "tp 4, pp 2 (1f1b), dp 8 (zero-1), micro-batch 2, recompute full": in the arena. */
const char *ls_plan_print(ls_arena *arena, const ls_plan_row *row);

/* "none", "selective", "full", "budget" (chosen by layer) or "ops", of a layout. */
const char *ls_plan_recompute_name(const ls_layout *layout);

bool ls_plan_same(const ls_layout *a, const ls_layout *b);

#endif
