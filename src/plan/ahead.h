/* What a search will ask for next, measured on other threads before it asks.
 *
 *   ls_plan_ahead *ahead = ls_plan_ahead_start(arena, &problem, memory);
 *   ls_plan_ahead_expect(ahead, asks, count);
 *   status = ls_plan_ahead_measure(ahead, &layout, INFINITY, &row);
 *   ls_plan_ahead_stop(ahead);
 *
 * An answer is the same whether it was expected or not, and so is a search: only its seconds depend
 * on threads. All calls are of one thread, and of the one that started it; what is expected and
 * never asked for is lost work. */
#ifndef LS_PLAN_AHEAD_H
#define LS_PLAN_AHEAD_H

#include "plan/memory.h"

typedef struct ls_plan_ahead ls_plan_ahead;

/* A layout that may be asked for, as it will be. */
typedef struct ls_plan_ask {
  ls_layout layout;
  double most; /* bytes; what needs more is not simulated. INFINITY: all is */
  bool sized;  /* its size is asked for first, and where that is above `most` nothing else */
} ls_plan_ask;

/* With as many threads as there are cores, the caller's among them. In the arena, which must
 * outlive it as problem and memory must. */
ls_plan_ahead *ls_plan_ahead_start(ls_arena *arena, const ls_plan_problem *problem,
                                   const ls_plan_memory *memory);

/* What is expected from now on, in this order; what was before, and nobody began, is not. */
void ls_plan_ahead_expect(ls_plan_ahead *ahead, const ls_plan_ask *asks, int count);

/* ls_plan_memory_of, and ls_plan_measure_within. */
int64_t ls_plan_ahead_size(ls_plan_ahead *ahead, const ls_layout *layout);
LS_CHECKED ls_status ls_plan_ahead_measure(ls_plan_ahead *ahead, const ls_layout *layout,
                                           double most, ls_plan_row *row);

/* Waits for what is under way. */
void ls_plan_ahead_stop(ls_plan_ahead *ahead);

/* Runs `turn` for [0, count) on all cores; each gets `work` and its number. One that memory lacks
 * for is not done to its end: who needs it does it again. */
void ls_plan_share(int count, void (*turn)(void *work, int at), void *work);

#endif
