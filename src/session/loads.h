/* Loads of experts after a step: what is told of them and of what was dropped, and the correction
 * biases that follow them.
 *
 *   ls_loads *loads;
 *   LS_TRY(ls_loads_open(arena, rank, graph, rate, &loads, error));
 *   ... a step ...
 *   LS_TRY(ls_loads_read(loads, &told, error));
 *   LS_TRY(ls_loads_move_biases(loads, error));
 *
 * Each rank has one, used by its own thread. Loads are the same on every rank, so biases are too,
 * and nothing is sent for them. */
#ifndef LS_SESSION_LOADS_H
#define LS_SESSION_LOADS_H

#include "graph/graph.h"
#include "run/rank.h"

typedef struct ls_loads ls_loads;

typedef struct ls_loads_told {
  double fullest;  /* tokens of the fullest expert over the mean of its layer's; 0: none has any */
  int layer;       /* of the model, whose expert that is */
  double idle;     /* the share of all experts that had no token */
  bool drops;      /* experts have a capacity */
  int64_t dropped; /* choices above it, of all layers */
} ls_loads_told;

/* Of a rank whose program 0 is the step of `graph` and whose weights are there. `rate`: of the
 * biases' moves; 0: they stay. NULL where the graph counts no loads. Allocates in `arena`.
 * Collective. */
LS_CHECKED ls_status ls_loads_open(ls_arena *arena, ls_rank *rank, const ls_graph *graph,
                                   double rate, ls_loads **loads, ls_error *error);

/* Of the last step, whose work has ended. NULL tells nothing. */
LS_CHECKED ls_status ls_loads_read(const ls_loads *loads, ls_loads_told *told, ls_error *error);

/* Adds the rate to the bias of each expert that had fewer tokens than the mean of its layer's in
 * the last step, and takes it from those that had more (Wang et al., "Auxiliary-Loss-Free Load
 * Balancing Strategy for Mixture-of-Experts", 2024, algorithm 1). Every rank. */
LS_CHECKED ls_status ls_loads_move_biases(ls_loads *loads, ls_error *error);

#endif
