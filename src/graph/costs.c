#include "graph/graph.h"

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
double ls_op_flops(ls_op_kind kind, const ls_attributes *attributes, const int64_t *first,
                   const int64_t *second) {
  switch (kind) {
    case LS_OP_LINEAR: /* n k, m k */
      return 2 * (double)first[0] * (double)first[1] * (double)second[0];
    case LS_OP_LINEAR_DX: /* n m, m k */
    case LS_OP_LINEAR_DW: /* n m, n k */
      return 2 * (double)first[0] * (double)first[1] * (double)second[1];
    case LS_OP_ATTENTION:
    case LS_OP_ATTENTION_BWD: {
      const double products = kind == LS_OP_ATTENTION ? 2 : 4;
      return products * 2 * (double)first[0] * mean_keys(attributes) * (double)first[1];
    }
    default: return 0;
  }
}

double ls_node_flops(const ls_graph *graph, const ls_node *node) {
  static const int64_t none[LS_MAX_DIMS] = {0};
  const int64_t *dims[2] = {none, none};
  for (int i = 0; i < 2 && i < node->inputs; i++)
    dims[i] = ls_graph_tensor(graph, node->in[i])->dims;
  return ls_op_flops(node->kind, &node->attributes, dims[0], dims[1]);
}
