/* Which parameters a run leaves as they are, by name: those of train.freeze.
 *
 *   const char *const names[] = {"embedding", "layers.0-3", "*.norm", "lm_head"};
 *   LS_TRY(ls_freeze(&config, graph, names, 4, error));
 *   ls_graph_backward(graph);
 *
 * Thread-safe: no state. */
#ifndef LS_STORE_FREEZE_H
#define LS_STORE_FREEZE_H

#include "graph/graph.h"
#include "model/model.h"

/* Clears `trainable` of the parameters that the names cover, in a graph without its backward part.
 * Names are as ls_parameter_names_cover takes them (parameter_names.h). LS_INPUT: a name covers
 * nothing, with the nearest that does, or all parameters are covered. */
LS_CHECKED ls_status ls_freeze(const ls_model_config *config, ls_graph *graph,
                               const char *const *names, int count, ls_error *error);

#endif
