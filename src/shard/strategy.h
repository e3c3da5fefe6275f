/* Strategies as rows of placements.
 *
 * A data strategy (LS_DATA_STRATEGIES in ir/layout.h) says what dp_shard shards; the tensor
 * strategy says what each kind of sharding becomes on the two tp sub-axes, and where the residual
 * stream lies. A new strategy is a new row. */
#ifndef LS_SHARD_STRATEGY_H
#define LS_SHARD_STRATEGY_H

#include "graph/graph.h"
#include "ir/layout.h"
#include "ir/mesh.h"

/* Where the parts of a unit lie on dp_shard: a row of LS_DATA_STRATEGIES (ir/layout.h). */
typedef struct ls_data_strategy {
  ls_place_kind parameters; /* as stored between steps; used whole */
  ls_place_kind gradients; /* as added up over microbatches: LS_PARTIAL until the end of the step */
  ls_place_kind state;     /* master weights and moments, and so the reduced gradient */
} ls_data_strategy;

const ls_data_strategy *ls_data_strategy_row(int zero);

/* Where a parameter lies on the tensor axes when it is used. */
ls_placement ls_parameter_placement(const ls_mesh *mesh, ls_tp_sharding sharding);

/* Where the residual stream lies on a tensor axis. */
ls_place ls_stream_place(bool sequence_parallel, const ls_axis *axis);

/* Checks that the layout fits the model and makes the mesh; the refusal (LS_INPUT) names the key,
 * the reason and the nearest legal choice. */
LS_CHECKED ls_status ls_layout_mesh(const ls_layout *layout, const ls_graph *graph, ls_mesh *mesh,
                                    ls_error *error);

#endif
