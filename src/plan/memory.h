/* What a device needs for a layout, without the layout being compiled whole.
 *
 *   ls_plan_memory *memory;
 *   LS_TRY(ls_plan_memory_make(arena, &problem, &memory, error));
 *   const int64_t bytes = ls_plan_memory_of(memory, &layout);
 *
 * It is meant never to be less than the compiled programs need, and seldom 5 % more: memory_test
 * and memory_slow_test count both on random layouts. What is made may be asked by many threads. */
#ifndef LS_PLAN_MEMORY_H
#define LS_PLAN_MEMORY_H

#include "plan/plan.h"

typedef struct ls_plan_memory ls_plan_memory;

/* In the arena; the problem must outlive it. LS_INPUT: the model cannot be built. */
LS_CHECKED ls_status ls_plan_memory_make(ls_arena *arena, const ls_plan_problem *problem,
                                         ls_plan_memory **memory, ls_error *error);

/* Bytes of a device of the stage that needs most; -1: the compiler refuses the layout, or something
 * is frozen, so that layers are not alike. */
int64_t ls_plan_memory_of(const ls_plan_memory *memory, const ls_layout *layout);

#endif
