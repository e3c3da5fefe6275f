/* How the optimizer treats each parameter of a run: optimizer.groups and optimizer.layer_decay.
 *
 *   LS_TRY(ls_parameter_groups_apply(run, &config, graph, error));
 *   ls_graph_backward(graph);
 *
 * Thread-safe: no state. */
#ifndef LS_SESSION_PARAMETER_GROUPS_H
#define LS_SESSION_PARAMETER_GROUPS_H

#include "graph/graph.h"
#include "model/model.h"
#include "text/run_file.h"

/* Sets `settings` of the graph's trainable parameters. A parameter is of the first group that
 * covers it; the names are those that ls_parameter_names_cover takes. Of N layers layer i (from 0)
 * learns at layer_decay^(N - i) of the rate, what is before the layers at layer_decay^(N + 1), what
 * is behind them at the whole rate (as BEiT and timm do), on top of its group's. Needs train.lr.
 * LS_INPUT: a group covers nothing, or nothing that is trained and of no earlier group. */
LS_CHECKED ls_status ls_parameter_groups_apply(const ls_run_file *run,
                                               const ls_model_config *config, ls_graph *graph,
                                               ls_error *error);

#endif
