#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "graph/graph.h"

enum { TOKENS = 6, WIDTH = 4, HIDDEN = 8, VOCABULARY = 10 };

static ls_tensor_id parameter(ls_graph *graph, const char *name, int64_t rows, int64_t columns) {
  return ls_graph_parameter(
      graph, &(ls_parameter){.name = name, .ndim = columns ? 2 : 1, .dims = {rows, columns}});
}

/* Embedding, norm, two products with what lies between them, loss; parameters in this order. */
enum { TABLE, NORM, UP, UP_BIAS, DOWN, PARAMETERS };

static ls_graph *make_model(ls_arena *arena) {
  ls_graph *graph = ls_graph_create(arena);
  ls_graph_segment(graph, "embedding");
  graph->ids = ls_graph_input(graph, "ids", TOKENS);
  graph->labels = ls_graph_input(graph, "labels", TOKENS);
  ls_tensor_id x =
      ls_graph_embedding(graph, parameter(graph, "table", VOCABULARY, WIDTH), graph->ids, 1);
  ls_graph_layer(graph, 0);
  x = ls_graph_rmsnorm(graph, x, parameter(graph, "norm", WIDTH, 0), 1e-5, 0);
  x = ls_graph_linear(graph, x, parameter(graph, "up", HIDDEN, WIDTH));
  x = ls_graph_bias(graph, x, parameter(graph, "up.bias", HIDDEN, 0));
  x = ls_graph_gelu(graph, x, LS_GELU_TANH);
  ls_graph_segment(graph, "head");
  ls_graph_cross_entropy(graph,
                         ls_graph_linear(graph, x, parameter(graph, "down", VOCABULARY, HIDDEN)));
  return graph;
}

/* The ops of the nodes from `first` on, in order. */
static const char *list_nodes(const ls_graph *graph, int first) {
  const char *list = "";
  for (int n = first; n < graph->nodes.count; n++)
    list = ls_arena_printf(graph->arena, "%s%s%s", list, *list ? " " : "",
                           ls_op_name(graph->nodes.items[n].kind));
  return list;
}

/* The backward nodes of the model with these parameters frozen, a bit each. */
static void expect_backward(unsigned frozen, const char *expected) {
  ls_arena *arena = ls_arena_create();
  ls_graph *graph = make_model(arena);
  const int forward = graph->nodes.count;
  for (int p = 0; p < PARAMETERS; p++) graph->parameters.items[p].trainable = !(frozen >> p & 1);
  ls_graph_backward(graph);
  assert_string_equal(list_nodes(graph, forward), expected);
  for (int p = 0; p < PARAMETERS; p++) {
    const ls_tensor_id gradient = graph->parameters.items[p].gradient;
    assert_int_equal(gradient.index < 0, frozen >> p & 1);
    if (gradient.index < 0) continue;
    const ls_tensor *made = ls_graph_tensor(graph, gradient);
    assert_true(made->role == LS_ROLE_GRADIENT && made->parameter == p);
    assert_true(made->precision == LS_ACCUMULATE);
  }
  ls_arena_destroy(&arena);
}

static void frozen_parameters_have_no_backward(void **state) {
  (void)state;
  expect_backward(0,
                  "xent_grad linear_dx linear_dw gelu_bwd bias_db linear_dx linear_dw rmsnorm_bwd "
                  "embedding_dw");
  expect_backward(1 << TABLE,
                  "xent_grad linear_dx linear_dw gelu_bwd bias_db linear_dx linear_dw rmsnorm_bwd");
  /* The norm still makes the gradient of its input; what it makes for its weight is nobody's. */
  expect_backward(1 << NORM,
                  "xent_grad linear_dx linear_dw gelu_bwd bias_db linear_dx linear_dw rmsnorm_bwd "
                  "embedding_dw");
  expect_backward(1 << TABLE | 1 << NORM,
                  "xent_grad linear_dx linear_dw gelu_bwd bias_db linear_dw");
  expect_backward(1 << UP | 1 << DOWN,
                  "xent_grad linear_dx gelu_bwd bias_db linear_dx rmsnorm_bwd embedding_dw");
  expect_backward(1 << TABLE | 1 << NORM | 1 << UP | 1 << UP_BIAS, "xent_grad linear_dw");
  expect_backward((1 << PARAMETERS) - 1, "");
}

/* Two results of one input, whose gradients come from outside: what they give the input adds up. */
static void several_roots(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_graph *graph = ls_graph_create(arena);
  ls_graph_layer(graph, 0);
  ls_tensor_id ids = ls_graph_input(graph, "ids", TOKENS);
  ls_tensor_id x = ls_graph_embedding(graph, parameter(graph, "table", VOCABULARY, WIDTH), ids, 1);
  ls_tensor_id left = ls_graph_linear(graph, x, parameter(graph, "left", HIDDEN, WIDTH));
  ls_tensor_id right = ls_graph_linear(graph, x, parameter(graph, "right", WIDTH, WIDTH));
  const ls_root roots[] = {{right, ls_graph_state(graph, "dright", TOKENS, WIDTH)},
                           {left, ls_graph_state(graph, "dleft", TOKENS, HIDDEN)}};
  const int forward = graph->nodes.count;
  ls_graph_differentiate(graph, roots, 2);
  assert_string_equal(list_nodes(graph, forward),
                      "linear_dx linear_dw linear_dx add linear_dw embedding_dw");
  for (int p = 0; p < graph->parameters.count; p++)
    assert_true(graph->parameters.items[p].gradient.index >= 0);
  ls_arena_destroy(&arena);
}

/* x is rounded once for both, a gradient once for each; going back weights are rounded again, and
 * what is made for them is their parameters' gradient. A frozen one has none. */
static void products_in_fp8(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_graph *graph = ls_graph_create(arena);
  ls_graph_layer(graph, 0);
  ls_tensor_id ids = ls_graph_input(graph, "ids", TOKENS);
  ls_tensor_id x = ls_graph_embedding(graph, parameter(graph, "table", VOCABULARY, WIDTH), ids, 1);
  ls_tensor_id left = ls_graph_fp8_linear(graph, x, parameter(graph, "left", HIDDEN, WIDTH));
  ls_tensor_id right = ls_graph_fp8_linear(graph, x, parameter(graph, "right", WIDTH, WIDTH));
  assert_string_equal(list_nodes(graph, 1), "row_amax row_fp8 amax fp8 linear amax fp8 linear");
  graph->parameters.items[1].trainable = false;
  const ls_root roots[] = {{right, ls_graph_state(graph, "dright", TOKENS, WIDTH)},
                           {left, ls_graph_state(graph, "dleft", TOKENS, HIDDEN)}};
  const int forward = graph->nodes.count;
  ls_graph_differentiate(graph, roots, 2);
  assert_string_equal(list_nodes(graph, forward),
                      "row_amax row_fp8 fp8 linear_dx linear_dw row_amax row_fp8 fp8 linear_dx add "
                      "embedding_dw");
  for (int n = forward; n < graph->nodes.count; n++) {
    const ls_node *node = &graph->nodes.items[n];
    if (node->kind == LS_OP_ROW_FP8) assert_int_equal(node->attributes.fp8, LS_FP8_E5M2);
    if (node->kind != LS_OP_LINEAR_DX && node->kind != LS_OP_LINEAR_DW) continue;
    for (int i = 0; i < node->inputs; i++) {
      const int producer = ls_graph_tensor(graph, node->in[i])->producer;
      const ls_op_kind by = graph->nodes.items[producer].kind;
      assert_true(by == LS_OP_ROW_FP8 || by == LS_OP_FP8);
    }
  }
  const ls_parameter_record *frozen = &graph->parameters.items[1], *other = frozen + 1;
  assert_true(frozen->gradient.index < 0 && other->gradient.index >= 0);
  const int made = ls_graph_tensor(graph, other->gradient)->producer;
  assert_int_equal(graph->nodes.items[made].kind, LS_OP_LINEAR_DW);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(frozen_parameters_have_no_backward),
                                     cmocka_unit_test(several_roots),
                                     cmocka_unit_test(products_in_fp8)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
