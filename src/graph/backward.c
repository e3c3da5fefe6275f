#include <string.h>

#include "graph/graph.h"

/* Reverse-mode differentiation on the global graph. A gradient rule says which nodes make the
 * gradients of a node's inputs from those of its outputs; the tensors it names are what must be
 * kept from forward to backward. */

typedef struct rule_context {
  ls_graph *graph;
  ls_node node;            /* the forward node; a copy: the list moves as it grows */
  ls_tensor_id dy;         /* gradient of output 0 */
  ls_tensor_id *of_tensor; /* gradient so far, by tensor index; -1: none yet */
} rule_context;

static bool needs_gradient(const ls_graph *graph, ls_tensor_id id) {
  const ls_tensor *tensor = ls_graph_tensor(graph, id);
  return tensor->role == LS_ROLE_PARAMETER || tensor->producer >= 0;
}

/* A parameter has one gradient tensor; each node that contributes to it adds to it. */
static void contribute_to_parameter(ls_graph *graph, ls_tensor_id parameter, int node, int output) {
  int index = ls_graph_tensor(graph, parameter)->parameter;
  ls_parameter_record *about = &graph->parameters.items[index];
  ls_tensor_id *made = &graph->nodes.items[node].out[output];
  if (about->gradient.index >= 0) {
    *made = about->gradient;
    return;
  }
  about->gradient = *made;
  ls_tensor *gradient = ls_graph_tensor(graph, *made);
  gradient->role = LS_ROLE_GRADIENT;
  gradient->parameter = index;
  gradient->name = ls_arena_printf(graph->arena, "gradient of %s", about->about.name);
}

static void contribute(rule_context *context, ls_tensor_id to, ls_tensor_id gradient) {
  ls_graph *graph = context->graph;
  if (!needs_gradient(graph, to)) return;
  ls_tensor_id *so_far = &context->of_tensor[to.index];
  if (ls_graph_tensor(graph, to)->stream) ls_graph_stream(graph, gradient);
  if (so_far->index < 0) {
    *so_far = gradient;
    return;
  }
  *so_far = ls_graph_add(graph, *so_far, gradient);
  if (ls_graph_tensor(graph, to)->stream) ls_graph_stream(graph, *so_far);
}

/* Adds a node whose output 0 is the gradient of `to`. */
static int contribute_node(rule_context *context, ls_tensor_id to, ls_op_kind kind,
                           const ls_tensor_id *inputs) {
  int node = ls_graph_node(context->graph, kind, &context->node.attributes, inputs, NULL);
  contribute(context, to, context->graph->nodes.items[node].out[0]);
  return node;
}

static void parameter_node(rule_context *context, ls_tensor_id parameter, ls_op_kind kind,
                           ls_tensor_id other, const int64_t *extra) {
  int node = ls_graph_node(context->graph, kind, &context->node.attributes,
                           (ls_tensor_id[]){context->dy, other}, extra);
  contribute_to_parameter(context->graph, parameter, node, 0);
}

static void embedding_rule(rule_context *context) {
  ls_tensor_id table = context->node.in[0];
  parameter_node(context, table, LS_OP_EMBEDDING_DW, context->node.in[1],
                 ls_graph_tensor(context->graph, table)->dims);
}

static void linear_rule(rule_context *context) {
  ls_tensor_id x = context->node.in[0], weight = context->node.in[1];
  contribute_node(context, x, LS_OP_LINEAR_DX, (ls_tensor_id[]){context->dy, weight});
  parameter_node(context, weight, LS_OP_LINEAR_DW, x, NULL);
}

static void bias_rule(rule_context *context) {
  contribute(context, context->node.in[0], context->dy);
  parameter_node(context, context->node.in[1], LS_OP_BIAS_DB, (ls_tensor_id){-1}, NULL);
}

static void add_rule(rule_context *context) {
  contribute(context, context->node.in[0], context->dy);
  contribute(context, context->node.in[1], context->dy);
}

static void layernorm_rule(rule_context *context) {
  const ls_node *node = &context->node;
  int made = contribute_node(
      context, node->in[0], LS_OP_LAYERNORM_BWD,
      (ls_tensor_id[]){context->dy, node->in[0], node->in[1], node->out[1], node->out[2]});
  /* An add for a second use of x may stand behind it. */
  contribute_to_parameter(context->graph, node->in[1], made, 1);
  contribute_to_parameter(context->graph, node->in[2], made, 2);
}

static void rmsnorm_rule(rule_context *context) {
  const ls_node *node = &context->node;
  int made = contribute_node(context, node->in[0], LS_OP_RMSNORM_BWD,
                             (ls_tensor_id[]){context->dy, node->in[0], node->in[1], node->out[1]});
  contribute_to_parameter(context->graph, node->in[1], made, 1);
}

static void headnorm_rule(rule_context *context) {
  const ls_node *node = &context->node;
  int made = contribute_node(context, node->in[0], LS_OP_HEADNORM_BWD,
                             (ls_tensor_id[]){context->dy, node->in[0], node->in[1], node->out[1]});
  contribute_to_parameter(context->graph, node->in[1], made, 1);
}

static void row_squares_rule(rule_context *context) {
  contribute_node(context, context->node.in[0], LS_OP_ROW_SQUARES_BWD,
                  (ls_tensor_id[]){context->dy, context->node.in[0]});
}

static void row_scale_rule(rule_context *context) {
  const ls_node *node = &context->node;
  int made = contribute_node(context, node->in[0], LS_OP_ROW_SCALE_BWD,
                             (ls_tensor_id[]){context->dy, node->in[0], node->in[1], node->in[2]});
  contribute_to_parameter(context->graph, node->in[1], made, 1);
  contribute(context, node->in[2], context->graph->nodes.items[made].out[2]);
}

static void softcap_rule(rule_context *context) {
  contribute_node(context, context->node.in[0], LS_OP_SOFTCAP_BWD,
                  (ls_tensor_id[]){context->dy, context->node.out[0]});
}

static void rope_rule(rule_context *context) {
  contribute_node(context, context->node.in[0], LS_OP_ROPE_BWD,
                  (ls_tensor_id[]){context->dy, context->node.in[1]});
}

static void attention_rule(rule_context *context) {
  const ls_node *node = &context->node;
  int made = ls_graph_node(
      context->graph, LS_OP_ATTENTION_BWD, &node->attributes,
      (ls_tensor_id[]){context->dy, node->in[0], node->in[1], node->in[2], node->out[0],
                       node->out[1], node->inputs > 3 ? node->in[3] : (ls_tensor_id){-1}},
      NULL);
  for (int i = 0; i < 3; i++)
    contribute(context, node->in[i], context->graph->nodes.items[made].out[i]);
}

static void gelu_rule(rule_context *context) {
  contribute_node(context, context->node.in[0], LS_OP_GELU_BWD,
                  (ls_tensor_id[]){context->dy, context->node.in[0]});
}

static void swiglu_rule(rule_context *context) {
  const ls_node *node = &context->node;
  int made = ls_graph_node(context->graph, LS_OP_SWIGLU_BWD, &node->attributes,
                           (ls_tensor_id[]){context->dy, node->in[0], node->in[1]}, NULL);
  for (int i = 0; i < 2; i++)
    contribute(context, node->in[i], context->graph->nodes.items[made].out[i]);
}

/* The three parts of the cross-entropy differentiate together: softmax minus one-hot, scaled. */
static void xent_loss_rule(rule_context *context) {
  const ls_graph *graph = context->graph;
  const ls_node *node = &context->node;
  ls_tensor_id logits = graph->logits, max = node->in[0], sum = node->in[1], labels = node->in[3];
  contribute_node(context, logits, LS_OP_XENT_GRAD,
                  (ls_tensor_id[]){logits, max, sum, labels, graph->loss_scale});
}

static void (*const rules[LS_OP_COUNT])(rule_context *) = {
    [LS_OP_EMBEDDING] = embedding_rule, [LS_OP_LINEAR] = linear_rule,
    [LS_OP_BIAS] = bias_rule,           [LS_OP_ADD] = add_rule,
    [LS_OP_LAYERNORM] = layernorm_rule, [LS_OP_RMSNORM] = rmsnorm_rule,
    [LS_OP_ROPE] = rope_rule,           [LS_OP_ATTENTION] = attention_rule,
    [LS_OP_GELU] = gelu_rule,           [LS_OP_SWIGLU] = swiglu_rule,
    [LS_OP_HEADNORM] = headnorm_rule,   [LS_OP_ROW_SQUARES] = row_squares_rule,
    [LS_OP_ROW_SCALE] = row_scale_rule, [LS_OP_SOFTCAP] = softcap_rule,
    [LS_OP_XENT_LOSS] = xent_loss_rule,
};

void ls_graph_backward(ls_graph *graph) {
  const int forward_nodes = graph->nodes.count;
  /* Gradients of gradients are not asked for, so the forward tensors are all that need a place. */
  const int tensors = graph->tensors.count;
  ls_tensor_id *of_tensor = LS_NEW_ARRAY(graph->arena, ls_tensor_id, tensors);
  for (int t = 0; t < tensors; t++) of_tensor[t].index = -1;
  graph->in_backward = true;
  for (int n = forward_nodes - 1; n >= 0; n--) {
    rule_context context = {graph, graph->nodes.items[n], {-1}, of_tensor};
    context.dy = of_tensor[context.node.out[0].index];
    bool is_loss = context.node.out[0].index == graph->loss.index;
    if (!rules[context.node.kind] || (context.dy.index < 0 && !is_loss)) continue;
    graph->segment = context.node.segment;
    rules[context.node.kind](&context);
  }
  graph->in_backward = false;
}
