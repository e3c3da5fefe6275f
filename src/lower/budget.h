/* Recomputation that fits a budget: what each layer keeps is chosen so that every stage's program
 * fits the bytes a device has, at the least extra time.
 *
 *   LS_TRY(ls_budget_choose(graph, &layout, bytes, NULL, &error));
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
 * says how far from the best of all choices that is. Work is estimated: operations, and bytes moved
 * as operations. */
#ifndef LS_LOWER_BUDGET_H
#define LS_LOWER_BUDGET_H

#include "lower/compile.h"

/* Sets layout->recompute_of, in the graph's arena. `graph` has its backward part, `bytes` are what
 * a device may use, `beside` those of them that a stage needs beside its program, as workspace of
 * kernels: [pp], or NULL for none. LS_NO: no choice fits, with the least bytes found and what else
 * would help. */
LS_CHECKED ls_status ls_budget_choose(const ls_graph *graph, ls_layout *layout, int64_t bytes,
                                      const int64_t *beside, ls_error *error);

/* The estimate that is made least: the extra work of a layout's choice, in operations of a device.
 */
LS_CHECKED ls_status ls_budget_work(const ls_graph *graph, const ls_layout *layout, double *work,
                                    ls_error *error);

/* The choice in words, "layers 0-3: nothing; 4-7: attention": in the arena. */
const char *ls_budget_print(ls_arena *arena, const ls_graph *graph, const ls_layout *layout);

#endif
