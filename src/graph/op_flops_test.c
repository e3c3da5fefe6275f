#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "graph/graph.h"

enum { TOKENS = 12, SEQUENCE = 6, WIDTH = 10, HIDDEN = 7, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 3 };

static ls_tensor_id weight(ls_graph *graph, const char *name, int64_t out, int64_t in) {
  return ls_graph_parameter(graph, &(ls_parameter){.name = name, .ndim = 2, .dims = {out, in}});
}

/* A kind's flops, summed over the graph. */
static double total(const ls_graph *graph, ls_op_kind kind) {
  double sum = 0;
  for (int n = 0; n < graph->nodes.count; n++)
    if (graph->nodes.items[n].kind == kind) sum += ls_node_flops(graph, &graph->nodes.items[n]);
  return sum;
}

static void products_and_attention_are_counted(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_graph *graph = ls_graph_create(arena);
  ls_graph_layer(graph, 0);
  const ls_attributes attributes = {
      .sequence = SEQUENCE, .head_dim = HEAD_DIM, .kv_heads = KV_HEADS, .softmax_scale = 1};
  ls_tensor_id x = ls_graph_embedding(graph, weight(graph, "table", 5, WIDTH),
                                      ls_graph_input(graph, "ids", TOKENS), 1);
  ls_tensor_id q = ls_graph_linear(graph, x, weight(graph, "q", HEADS * HEAD_DIM, WIDTH));
  ls_tensor_id k = ls_graph_linear(graph, x, weight(graph, "k", KV_HEADS * HEAD_DIM, WIDTH));
  ls_tensor_id out = ls_graph_attention(graph, q, k, k, &attributes);
  ls_tensor_id hidden = ls_graph_linear(graph, out, weight(graph, "up", HIDDEN, HEADS * HEAD_DIM));
  graph->labels = ls_graph_input(graph, "labels", TOKENS);
  ls_graph_cross_entropy(graph, ls_graph_gelu(graph, hidden, LS_GELU_TANH));
  ls_graph_backward(graph);
  const double products = 2.0 * TOKENS * (WIDTH * 12 + WIDTH * 6 + 12 * HIDDEN);
  assert_true(total(graph, LS_OP_LINEAR) == products);
  assert_true(total(graph, LS_OP_LINEAR_DW) == products);
  assert_true(total(graph, LS_OP_LINEAR_DX) == products);
  const double attention = 2.0 * 2 * TOKENS * (SEQUENCE / 2.0) * HEADS * HEAD_DIM;
  assert_true(total(graph, LS_OP_ATTENTION) == attention);
  assert_true(total(graph, LS_OP_ATTENTION_BWD) == 2 * attention);
  assert_true(total(graph, LS_OP_GELU) == 0 && total(graph, LS_OP_EMBEDDING) == 0 &&
              total(graph, LS_OP_XENT_GRAD) == 0);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(products_and_attention_are_counted)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
