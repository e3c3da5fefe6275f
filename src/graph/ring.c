#include "graph/ring.h"

#include <string.h>

/* How many chunks before its own a token may see into. */
static int64_t reach(const ls_attributes *attributes) {
  const int64_t window = attributes->window, chunks = 2 * attributes->turns;
  const int64_t tokens = attributes->sequence > chunks ? attributes->sequence / chunks : 1;
  if (window <= 0) return attributes->turns;
  return window < 2 ? 0 : (window - 2) / tokens + 1;
}

/* The chunk d before one in front is on the rank d before, the one d before one behind is d ranks
 * on; where front and back meet it is nearer. */
bool ls_ring_needs(const ls_attributes *attributes, int64_t turn) {
  const int64_t back = attributes->turns - turn;
  return turn == 0 || (turn < back ? turn : back) <= reach(attributes);
}

int64_t ls_ring_needed(const ls_attributes *attributes) {
  const int64_t either = reach(attributes);
  return either < attributes->turns / 2 ? 2 * either + 1 : attributes->turns;
}

ls_op_kind ls_ring_named(ls_op_kind kind) {
  const bool part = kind == LS_OP_RING_ATTENTION || kind == LS_OP_RING_END;
  return part || kind == LS_OP_SINK_ATTENTION ? LS_OP_ATTENTION : kind;
}

ls_tensor_id ls_graph_ring_attention(ls_graph *graph, ls_tensor_id q, ls_tensor_id k,
                                     ls_tensor_id v, ls_tensor_id sinks, ls_tensor_id positions,
                                     ls_tensor_id places, const ls_attributes *attributes) {
  ls_attributes of = *attributes;
  ls_tensor_id in[LS_MAX_INPUTS] = {q, k, v, positions, places, {-1}, {-1}, {-1}};
  of.turns = graph->turns;
  for (of.turn = 0; of.turn < of.turns; of.turn++) {
    if (!ls_ring_needs(&of, of.turn)) continue;
    const int node = ls_graph_node(graph, LS_OP_RING_ATTENTION, &of, in, LS_MAX_OUTPUTS, NULL);
    memcpy(&in[5], graph->nodes.items[node].out, 3 * sizeof *in);
  }
  in[8] = sinks;
  const int end = ls_graph_node(graph, LS_OP_RING_END, attributes, &in[5], LS_MAX_OUTPUTS, NULL);
  return graph->nodes.items[end].out[0];
}
