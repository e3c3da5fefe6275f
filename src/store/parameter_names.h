/* What parameters may be called, and which of them a pattern covers.
 *
 *   ls_parameter_names *names;
 *   LS_TRY(ls_parameter_names_list(arena, &config, graph, &names, error));
 *   LS_TRY(ls_parameter_names_cover(names, "*.norm", covered, error));
 *
 * A name is ours or Hugging Face's, with or without the family's prefix, whole or up to a point
 * ("layers.0.mlp", "model.layers.0"); "*" stands for any letters, "0-3" between points for each of
 * these numbers, and a number behind letters may be left out ("*.norm" covers norm1 and norm2). Of
 * a fused tensor's name all parts are covered. A list belongs to one thread at a time. */
#ifndef LS_STORE_PARAMETER_NAMES_H
#define LS_STORE_PARAMETER_NAMES_H

#include "graph/graph.h"
#include "model/model.h"

typedef struct ls_parameter_names ls_parameter_names;

/* In the arena. */
LS_CHECKED ls_status ls_parameter_names_list(ls_arena *arena, const ls_model_config *config,
                                             const ls_graph *graph, ls_parameter_names **names,
                                             ls_error *error);

/* Sets those of `covered`, by parameter of the graph, that the pattern covers. LS_INPUT: it covers
 * none, with the nearest name that would. */
LS_CHECKED ls_status ls_parameter_names_cover(const ls_parameter_names *names, const char *pattern,
                                              bool *covered, ls_error *error);

#endif
