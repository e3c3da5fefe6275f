/* Recomputation that fits a budget: what each layer keeps is chosen so that every stage's program
 * fits the bytes a device has, at the least extra time.
 *
 *   LS_TRY(ls_budget_choose(graph, &layout, &budget, &error));
 *   LS_TRY(ls_program_compile(graph, &layout, LS_PROGRAM_STEP, stages, &error));
 *
 * Each layer of a stage takes one row of a menu of ops to run again, with the bytes it then keeps,
 * those it makes again and the extra work. What is alive while a microbatch is in a layer is what
 * the layers up to it keep, what that layer makes again and the rest, measured on the program in
 * which nothing runs again; the least work under a limit on all of these is found exactly by
 * dynamic programming over the layers (a multiple-choice knapsack with a limit at each item; states
 * that another betters are left out; Kellerer, Pferschy, Pisinger, Knapsack Problems, 2004, chapter
 * 11). With several microbatches under way the bytes of those that wait are one more unknown, of
 * which 32 values are tried. The arena is not that sum to the byte, so programs are compiled for
 * limits about the budget, by halving, and the cheapest that fits is taken. tests/budget_test.c
 * says how far from the best of all choices that is. Time is estimated from what instructions cost
 * and the device's rates. */
#ifndef LS_LOWER_BUDGET_H
#define LS_LOWER_BUDGET_H

#include "cost/cost.h"
#include "lower/compile.h"

/* What a device has. */
typedef struct ls_budget {
  int64_t bytes;         /* that it may use */
  const int64_t *beside; /* [pp] those of them that a stage needs beside its program; NULL: none */
  ls_work_rates rates;   /* of which the ratios matter */
} ls_budget;

/* Sets layout->recompute_of, in the graph's arena. `graph` has its backward part. LS_REFUTED: no
 * choice fits, with the least bytes found and what else would help. */
LS_CHECKED ls_status ls_budget_choose(const ls_graph *graph, ls_layout *layout,
                                      const ls_budget *budget, ls_error *error);

/* The estimate that is made least: the extra seconds of a microbatch under a layout's choice. */
LS_CHECKED ls_status ls_budget_seconds(const ls_graph *graph, const ls_layout *layout,
                                       const ls_work_rates *rates, double *seconds,
                                       ls_error *error);

/* The choice in words, "layers 0-3: nothing; 4-7: attention": in the arena. */
const char *ls_budget_print(ls_arena *arena, const ls_graph *graph, const ls_layout *layout);

#endif
