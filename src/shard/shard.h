/* Lays a graph over a mesh: one device's graph, with collectives where placements meet.
 *
 * Every rank runs the same list; what differs by coordinates is worked out from a value's
 * placement. Parameters stay in their used placement; gathering them is the schedule's. The
 * gradients of parameters come out partial on the axes their operands were cut on: resolving that
 * is the schedule's too. */
#ifndef LS_SHARD_SHARD_H
#define LS_SHARD_SHARD_H

#include "graph/graph.h"
#include "ir/collective.h"
#include "shard/strategy.h"

/* A tensor in one placement. */
typedef struct ls_shard_value {
  ls_tensor_id tensor;
  ls_placement placement;
} ls_shard_value;

typedef struct ls_shard_node {
  ls_collective collective; /* NONE: the op `kind`; COPY with no collective is a local slice */
  ls_op_kind kind;
  const ls_attributes *attributes; /* the graph's node's */
  ls_axes axes;                    /* of the collective */
  ls_reduce reduce;
  int node; /* of the graph; -1: a conversion */
  int segment;
  bool backward;
  bool weight; /* backward: makes gradients of parameters and nothing else */
  int inputs, outputs;
  int in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS]; /* values */
  const char *reason;                         /* why a collective is here */
} ls_shard_node;

typedef struct ls_sharded {
  ls_arena *arena;
  const ls_graph *graph;
  ls_mesh mesh;
  ls_layout layout;
  LS_LIST(ls_shard_value) values;
  LS_LIST(ls_shard_node) nodes;
  int *parameter_value; /* by parameter: its value as used */
  int *gradient_value;  /* by parameter: its gradient of one microbatch, -1 without backward */
} ls_sharded;

/* Derives placements by fewest bytes, ties to the choice that cuts less. LS_INPUT where the layout
 * cannot be. The result refers to `graph` and lives in its arena. */
LS_CHECKED ls_status ls_shard(const ls_graph *graph, const ls_layout *layout, ls_sharded **sharded,
                              ls_error *error);

#endif
