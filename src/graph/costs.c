#include "graph/graph.h"

static double dim(const ls_graph *graph, const ls_node *node, int input, int d) {
  return (double)ls_graph_tensor(graph, node->in[input])->dims[d];
}

/* Keys that a query sees on average: half of the sequence, or less with a window. */
static double mean_keys(const ls_attributes *attributes) {
  const double sequence = (double)attributes->sequence, window = (double)attributes->window;
  if (window < 1 || window >= sequence) return sequence / 2;
  return window - window * window / (2 * sequence);
}

/* A product of matrices costs 2 x the product of its three labels' sizes. Causal attention sees
 * half of T x T: each of its products costs 2 x n x T / 2 x the columns of the query; forward has
 * two (scores, values), backward four (dq, dk, dv and the slope of the softmax). What backward
 * computes again is not counted. */
double ls_node_flops(const ls_graph *graph, const ls_node *node) {
  switch (node->kind) {
    case LS_OP_LINEAR: /* n k, m k */
      return 2 * dim(graph, node, 0, 0) * dim(graph, node, 0, 1) * dim(graph, node, 1, 0);
    case LS_OP_LINEAR_DX: /* n m, m k */
    case LS_OP_LINEAR_DW: /* n m, n k */
      return 2 * dim(graph, node, 0, 0) * dim(graph, node, 0, 1) * dim(graph, node, 1, 1);
    case LS_OP_ATTENTION:
    case LS_OP_ATTENTION_BWD: {
      const double products = node->kind == LS_OP_ATTENTION ? 2 : 4;
      const double keys = mean_keys(&node->attributes);
      return products * 2 * dim(graph, node, 0, 0) * keys * dim(graph, node, 0, 1);
    }
    default: return 0;
  }
}
