#include <string.h>

#include "graph/graph.h"

/* Reverse-mode differentiation on the global graph. A row's gradient rules say which nodes make the
 * gradients of a node's inputs from those of its outputs; the tensors they name are what must be
 * kept from forward to backward. */

typedef struct differentiator {
  ls_graph *graph;
  const bool *wanted;     /* by tensor, as ls_graph_wanted has it */
  ls_tensor_id *gradient; /* by tensor: so far; -1: none */
} differentiator;

int64_t ls_graph_frozen(const ls_graph *graph) {
  int64_t frozen = 0;
  for (int p = 0; p < graph->parameters.count; p++) {
    const ls_parameter_record *parameter = &graph->parameters.items[p];
    if (!parameter->trainable && !parameter->about.teacher &&
        !ls_parameter_is_constant(&parameter->about))
      frozen += ls_tensor_elements(ls_graph_tensor(graph, parameter->tensor)) *
                ls_precision_numbers(parameter->about.precision);
  }
  return frozen;
}

const bool *ls_graph_wanted(const ls_graph *graph) {
  bool *wanted = LS_NEW_ARRAY(graph->arena, bool, graph->tensors.count);
  for (int p = 0; p < graph->parameters.count; p++)
    wanted[graph->parameters.items[p].tensor.index] = graph->parameters.items[p].trainable;
  for (int n = 0; n < graph->nodes.count; n++) {
    const ls_node *node = &graph->nodes.items[n];
    bool any = false;
    for (int i = 0; i < node->inputs; i++)
      any |= wanted[node->in[i].index] && ls_op_gives_gradient(node->kind, i);
    for (int o = 0; o < node->outputs; o++) wanted[node->out[o].index] = any;
  }
  return wanted;
}

/* A parameter has one gradient tensor; each node that contributes to it adds to it. */
static void contribute_to_parameter(ls_graph *graph, int parameter, ls_tensor_id *made) {
  ls_parameter_record *about = &graph->parameters.items[parameter];
  if (about->gradient.index >= 0) {
    *made = about->gradient;
    return;
  }
  about->gradient = *made;
  ls_tensor *gradient = ls_graph_tensor(graph, *made);
  gradient->role = LS_ROLE_GRADIENT;
  gradient->parameter = parameter;
  gradient->name = ls_arena_printf(graph->arena, "gradient of %s", about->about.name);
}

static void contribute(differentiator *d, ls_tensor_id to, ls_tensor_id gradient) {
  ls_graph *graph = d->graph;
  ls_tensor_id *so_far = &d->gradient[to.index];
  if (ls_graph_tensor(graph, to)->stream) ls_graph_stream(graph, gradient);
  if (so_far->index < 0) {
    *so_far = gradient;
    return;
  }
  *so_far = ls_graph_add(graph, *so_far, gradient);
  if (ls_graph_tensor(graph, to)->stream) ls_graph_stream(graph, *so_far);
}

static bool is_wanted(const differentiator *d, const ls_node *node, char input) {
  return input - '0' < node->inputs && d->wanted[node->in[input - '0'].index];
}

/* What backward reads of forward: the tensor, or where that is always made again another one. */
static ls_tensor_id kept(ls_graph *graph, ls_tensor_id id) {
  const int producer = ls_graph_tensor(graph, id)->producer;
  if (producer < 0) return id;
  const ls_node by = graph->nodes.items[producer];
  if (ls_op_row(by.kind)->again != LS_AGAIN_ALWAYS) return id;
  ls_tensor_id of[LS_MAX_INPUTS];
  for (int i = 0; i < LS_MAX_INPUTS; i++)
    of[i] = i < by.inputs ? kept(graph, by.in[i]) : (ls_tensor_id){-1};
  const int made = ls_graph_node(graph, by.kind, &by.attributes, of, by.outputs, NULL);
  for (int o = 0; o < by.outputs; o++)
    if (by.out[o].index == id.index) return graph->nodes.items[made].out[o];
  return id;
}

/* What has the gradient of an input: of what is always made again, the parameter it is made of. */
static ls_tensor_id receiver(const ls_graph *graph, ls_tensor_id id) {
  const int producer = ls_graph_tensor(graph, id)->producer;
  if (producer < 0) return id;
  const ls_node *by = &graph->nodes.items[producer];
  const ls_op *row = ls_op_row(by->kind);
  return row->again == LS_AGAIN_ALWAYS && ls_op_passes(row, 0) == 0 ? by->in[0] : id;
}

/* The operand of a rule; {-1} where the node is without it, or its gradient is not there. */
static ls_tensor_id operand(const differentiator *d, const ls_node *node, char of) {
  if (of >= 'a') return d->gradient[node->out[of - 'a'].index];
  if (of >= 'A') return node->out[of - 'A'];
  return of - '0' < node->inputs ? node->in[of - '0'] : (ls_tensor_id){-1};
}

static void apply(differentiator *d, const ls_node *node, const ls_gradient_rule *rule) {
  ls_graph *graph = d->graph;
  ls_tensor_id inputs[LS_MAX_INPUTS];
  int needed = 0;
  for (int i = 0; i < LS_MAX_INPUTS; i++) inputs[i].index = -1;
  for (int i = 0; rule->in[i]; i++) {
    inputs[i] = operand(d, node, rule->in[i]);
    if (rule->in[i] >= 'a' && inputs[i].index < 0) return;
  }
  for (int o = 0; rule->out[o]; o++)
    if (is_wanted(d, node, rule->out[o])) needed = o + 1;
  if (!needed) return;
  for (int i = 0; rule->in[i]; i++)
    if (rule->in[i] < 'a' && inputs[i].index >= 0) inputs[i] = kept(graph, inputs[i]);
  const int made = ls_graph_node(graph, rule->op, &node->attributes, inputs, needed,
                                 ls_graph_tensor(graph, node->in[rule->out[0] - '0'])->dims);
  for (int o = 0; rule->out[o]; o++) {
    if (!is_wanted(d, node, rule->out[o])) continue;
    const ls_tensor_id to = receiver(graph, node->in[rule->out[o] - '0']);
    /* The list of nodes moves as it grows. */
    ls_tensor_id *gradient = &graph->nodes.items[made].out[o];
    if (ls_graph_tensor(graph, to)->role == LS_ROLE_PARAMETER)
      contribute_to_parameter(graph, ls_graph_tensor(graph, to)->parameter, gradient);
    else
      contribute(d, to, *gradient);
  }
}

static void differentiate_node(differentiator *d, const ls_node *node) {
  const ls_op *row = ls_op_row(node->kind);
  for (int i = 0; i < node->inputs; i++) {
    const int output = ls_op_passes(row, i);
    if (output < 0 || !d->wanted[node->in[i].index]) continue;
    const ls_tensor_id dy = d->gradient[node->out[output].index];
    if (dy.index < 0) continue;
    LS_ASSERT(ls_graph_tensor(d->graph, node->in[i])->role != LS_ROLE_PARAMETER);
    contribute(d, node->in[i], dy);
  }
  ls_tensor_id *dy = &d->gradient[node->out[0].index];
  if (row->product && node->attributes.fp8 && dy->index >= 0)
    *dy = ls_graph_fp8_rows(d->graph, *dy, LS_FP8_E5M2);
  for (int r = 0; r < LS_MAX_GRADIENT_RULES && row->gradients[r].in; r++)
    apply(d, node, &row->gradients[r]);
}

void ls_graph_differentiate(ls_graph *graph, const ls_root *roots, int count) {
  const int nodes = graph->nodes.count, tensors = graph->tensors.count;
  differentiator d = {.graph = graph,
                      .wanted = ls_graph_wanted(graph),
                      .gradient = LS_NEW_ARRAY(graph->arena, ls_tensor_id, tensors)};
  for (int t = 0; t < tensors; t++) d.gradient[t].index = -1;
  LS_RESERVE(graph->arena, &graph->nodes, 3 * nodes);
  LS_RESERVE(graph->arena, &graph->tensors, 3 * tensors);
  graph->in_backward = true;
  for (int r = 0; r < count; r++) {
    const int segment = ls_graph_tensor(graph, roots[r].tensor)->segment;
    if (r == 0 || segment > graph->root_segment) graph->root_segment = segment;
    d.gradient[roots[r].tensor.index] = roots[r].gradient;
  }
  for (int n = nodes - 1; n >= 0; n--) {
    const ls_node node = graph->nodes.items[n];
    graph->segment = node.segment;
    differentiate_node(&d, &node);
  }
  graph->in_backward = false;
}

void ls_graph_backward(ls_graph *graph) {
  const int count = 1 + graph->losses.count;
  ls_root *roots = LS_NEW_ARRAY(graph->arena, ls_root, count);
  for (int r = 0; r < count; r++)
    roots[r] = (ls_root){r ? graph->losses.items[r - 1] : graph->loss, graph->loss_scale};
  ls_graph_differentiate(graph, roots, count);
}
