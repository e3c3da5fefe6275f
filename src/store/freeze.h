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
 * A name is ours or Hugging Face's, with or without the family's prefix, whole or up to a point
 * ("layers.0.mlp", "model.layers.0"); "*" stands for any letters, "0-3" between points for each of
 * these numbers, and a number behind letters may be left out ("*.norm" covers norm1 and norm2). Of
 * a fused tensor's name all parts are covered. LS_INPUT: a name covers nothing, with the nearest
 * that does, or all parameters are covered. */
LS_CHECKED ls_status ls_freeze(const ls_model_config *config, ls_graph *graph,
                               const char *const *names, int count, ls_error *error);

#endif
