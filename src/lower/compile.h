/* From a graph and a layout to the programs of all stages.
 *
 *   ls_program *stages[PP];
 *   LS_TRY(ls_program_compile(graph, &layout, LS_PROGRAM_STEP, stages, error));
 */
#ifndef LS_LOWER_COMPILE_H
#define LS_LOWER_COMPILE_H

#include "ir/program.h"

/* Compiles a graph (with its backward part for LS_PROGRAM_STEP) under a layout: the program of each
 * stage, stages[layout->pp]. In the graph's arena. LS_INPUT: the layout cannot be, with the reason
 * and the nearest legal one. */
LS_CHECKED ls_status ls_program_compile(const ls_graph *graph, const ls_layout *layout,
                                        ls_program_kind kind, ls_program **stages, ls_error *error);

/* The same of the `wanted` stages alone, NULL: all; the others are NULL. */
LS_CHECKED ls_status ls_program_compile_some(const ls_graph *graph, const ls_layout *layout,
                                             ls_program_kind kind, const bool *wanted,
                                             ls_program **stages, ls_error *error);

#endif
