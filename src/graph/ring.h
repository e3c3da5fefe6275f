/* Attention whose keys and values come block by block round a ring of ranks.
 *
 * A sequence is cut into two chunks for each rank, of which rank r has the r-th from the front and
 * the r-th from the back (zigzag): under a causal mask all ranks then have equal work at each turn.
 * At turn j a rank has the keys of the rank j after it. A turn at which no rank needs its block is
 * left out. No state; thread-safe. */
#ifndef LS_GRAPH_RING_H
#define LS_GRAPH_RING_H

#include "graph/graph.h"

/* Whether any token sees a key of the block of this turn, by attributes sequence, window, turns. */
bool ls_ring_needs(const ls_attributes *attributes, int64_t turn);

/* How many turns are needed. */
int64_t ls_ring_needed(const ls_attributes *attributes);

/* The op that a user names in place of this one: with sinks, and the parts of a ring, are
 * attention.
 */
ls_op_kind ls_ring_named(ls_op_kind kind);

/* As ls_graph_sink_attention, in graph->turns blocks. */
ls_tensor_id ls_graph_ring_attention(ls_graph *graph, ls_tensor_id q, ls_tensor_id k,
                                     ls_tensor_id v, ls_tensor_id sinks, ls_tensor_id positions,
                                     ls_tensor_id places, const ls_attributes *attributes);

#endif
