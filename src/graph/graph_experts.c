/* Nodes of mixtures of experts: choices, rows that are sent to their experts, their products. */
#include "graph/graph.h"

static const ls_tensor_id none = {-1};

static ls_attributes choosing(const ls_choice *choice) {
  const bool groups = choice->groups > 1 && choice->top_groups < choice->groups;
  LS_ASSERT(choice->groups <= 64 && choice->top_groups <= choice->groups);
  return (ls_attributes){.sigmoid = choice->sigmoid,
                         .groups = groups ? choice->groups : 0,
                         .top_groups = groups ? choice->top_groups : 0};
}

ls_routing ls_graph_route(ls_graph *graph, ls_tensor_id logits, const ls_choice *choice) {
  const int64_t *dims = ls_graph_tensor(graph, logits)->dims;
  LS_ASSERT(choice->count > 0 && choice->count <= dims[1]);
  ls_attributes attributes = choosing(choice);
  attributes.renormalise = choice->renormalise;
  attributes.scale = choice->scale;
  const int node =
      ls_graph_node(graph, LS_OP_ROUTE, &attributes, (ls_tensor_id[]){logits, choice->added},
                    LS_MAX_OUTPUTS, (int64_t[]){dims[0] * choice->count, choice->count});
  const ls_tensor_id *out = graph->nodes.items[node].out;
  return (ls_routing){out[0], out[1], out[2], 0};
}

ls_routing ls_graph_row_sigmoid(ls_graph *graph, ls_tensor_id x) {
  return (ls_routing){none, none, ls_graph_first_output(graph, LS_OP_ROW_SIGMOID, NULL, &x, NULL),
                      0};
}

ls_tensor_id ls_graph_router_loads(ls_graph *graph, ls_tensor_id logits, const ls_choice *choice,
                                   bool each) {
  ls_attributes attributes = choosing(choice);
  attributes.chosen = choice->count;
  const int node =
      ls_graph_node(graph, each ? LS_OP_ROUTER_LOADS_EACH : LS_OP_ROUTER_LOADS, &attributes,
                    (ls_tensor_id[]){logits, graph->labels, choice->added}, LS_MAX_OUTPUTS,
                    (int64_t[]){graph->tokens / graph->sequence});
  const ls_tensor_id *out = graph->nodes.items[node].out;
  *LS_APPEND(graph->arena, &graph->loads) = out[0];
  return out[1];
}

ls_tensor_id ls_graph_router_total(ls_graph *graph, ls_tensor_id loads, ls_tensor_id before) {
  return ls_graph_first_output(graph, LS_OP_ROUTER_TOTAL, NULL, (ls_tensor_id[]){loads, before},
                               NULL);
}

void ls_graph_router_loss(ls_graph *graph, ls_tensor_id logits, ls_tensor_id loads, bool sigmoid,
                          double scale, double z_scale, ls_tensor_id counts) {
  const bool each = ls_graph_tensor(graph, loads)->precision == LS_ACCUMULATE;
  const ls_attributes attributes = {.sigmoid = sigmoid, .scale = scale, .z_scale = z_scale};
  *LS_APPEND(graph->arena, &graph->losses) =
      ls_graph_first_output(graph, each ? LS_OP_ROUTER_LOSS_EACH : LS_OP_ROUTER_LOSS, &attributes,
                            (ls_tensor_id[]){logits, graph->labels, loads, counts}, NULL);
}

ls_tensor_id ls_graph_pair_shares(ls_graph *graph) {
  return ls_graph_first_output(
      graph, LS_OP_PAIR_SHARES, &(ls_attributes){.sequence = graph->sequence},
      (ls_tensor_id[]){graph->labels, graph->positions, ls_graph_token_rows(graph)}, NULL);
}

ls_tensor_id ls_graph_dispatch(ls_graph *graph, ls_tensor_id x, const ls_routing *routing) {
  return ls_graph_first_output(graph, LS_OP_DISPATCH, NULL, (ls_tensor_id[]){x, routing->rows},
                               ls_graph_tensor(graph, routing->experts)->dims);
}

ls_tensor_id ls_graph_combine(ls_graph *graph, ls_tensor_id y, const ls_routing *routing) {
  return ls_graph_first_output(graph, LS_OP_COMBINE, NULL, (ls_tensor_id[]){y, routing->rows},
                               NULL);
}

ls_routing ls_graph_keep(ls_graph *graph, const ls_routing *routing, int64_t slots,
                         int64_t experts) {
  const ls_attributes attributes = {
      .experts = experts, .slots = slots, .sequence = graph->sequence};
  LS_ASSERT(slots > 0);
  const ls_tensor_id choices = ls_graph_first_output(
      graph, LS_OP_CHOICES, &attributes, (ls_tensor_id[]){routing->rows, routing->experts}, NULL);
  const int held = ls_graph_node(graph, LS_OP_CAPACITY, &attributes,
                                 (ls_tensor_id[]){choices, graph->labels, graph->places},
                                 LS_MAX_OUTPUTS, (int64_t[]){1, experts});
  *LS_APPEND(graph->arena, &graph->loads) = graph->nodes.items[held].out[0];
  const int node = ls_graph_node(
      graph, LS_OP_KEEP, &attributes,
      (ls_tensor_id[]){routing->rows, routing->weights, graph->nodes.items[held].out[1]},
      LS_MAX_OUTPUTS, ls_graph_tensor(graph, routing->experts)->dims);
  const ls_tensor_id *out = graph->nodes.items[node].out;
  const double sequences = (double)(graph->tokens / graph->sequence);
  const double most = sequences * (double)(slots * experts);
  const double rows = (double)ls_graph_tensor(graph, out[1])->dims[0];
  return (ls_routing){out[0], out[1], out[2], most < rows ? most / rows : 0};
}

ls_routing ls_graph_slots(ls_graph *graph, const ls_routing *routing, const ls_row_sending *sending,
                          int64_t experts) {
  LS_ASSERT(sending->ranks > 0 && experts % sending->ranks == 0 && sending->slots > 0);
  const int node = ls_graph_node(
      graph, LS_OP_SLOTS, &(ls_attributes){.experts = experts, .held = experts / sending->ranks},
      (ls_tensor_id[]){routing->rows, routing->experts, routing->weights}, LS_MAX_OUTPUTS,
      (int64_t[]){sending->ranks, sending->senders * sending->slots});
  const ls_tensor_id *out = graph->nodes.items[node].out;
  const double rows = (double)ls_graph_tensor(graph, routing->experts)->dims[0];
  const double slots = (double)ls_tensor_elements(ls_graph_tensor(graph, out[1]));
  return (ls_routing){out[0], out[1], out[2], rows < slots ? rows / slots : 0};
}

void ls_graph_left_out(ls_graph *graph, const ls_routing *routing, const ls_row_sending *sending,
                       int64_t experts) {
  const ls_attributes attributes = {.experts = experts,
                                    .held = experts / sending->ranks,
                                    .slots = sending->slots,
                                    .turns = sending->together};
  *LS_APPEND(graph->arena, &graph->losses) =
      ls_graph_first_output(graph, LS_OP_LEFT_OUT, &attributes, &routing->experts, NULL);
}

/* The settings of the node that made the slots or their arrivals. */
static const ls_attributes *sending_of(const ls_graph *graph, const ls_routing *slots) {
  return &graph->nodes.items[ls_graph_tensor(graph, slots->rows)->producer].attributes;
}

ls_routing ls_graph_arrivals(ls_graph *graph, const ls_routing *slots) {
  const ls_attributes attributes = *sending_of(graph, slots);
  const int64_t rows = ls_tensor_elements(ls_graph_tensor(graph, slots->experts));
  const int node = ls_graph_node(graph, LS_OP_ARRIVALS, &attributes,
                                 (ls_tensor_id[]){slots->experts, slots->weights}, LS_MAX_OUTPUTS,
                                 (int64_t[]){rows});
  const ls_tensor_id *out = graph->nodes.items[node].out;
  return (ls_routing){out[0], out[1], out[2], slots->filled};
}

ls_tensor_id ls_graph_to_slots(ls_graph *graph, ls_tensor_id x, const ls_routing *slots) {
  return ls_graph_first_output(graph, LS_OP_TO_SLOTS, sending_of(graph, slots),
                               (ls_tensor_id[]){x, slots->rows},
                               ls_graph_tensor(graph, slots->experts)->dims);
}

ls_tensor_id ls_graph_arrive(ls_graph *graph, ls_tensor_id sent, const ls_routing *arrivals) {
  return ls_graph_first_output(graph, LS_OP_ARRIVE, sending_of(graph, arrivals),
                               (ls_tensor_id[]){sent, arrivals->rows},
                               ls_graph_tensor(graph, arrivals->experts)->dims);
}

ls_tensor_id ls_graph_leave(ls_graph *graph, ls_tensor_id y, const ls_routing *arrivals) {
  return ls_graph_first_output(graph, LS_OP_LEAVE, sending_of(graph, arrivals),
                               (ls_tensor_id[]){y, arrivals->rows}, NULL);
}

ls_tensor_id ls_graph_from_slots(ls_graph *graph, ls_tensor_id sent, const ls_routing *slots) {
  return ls_graph_first_output(graph, LS_OP_FROM_SLOTS, sending_of(graph, slots),
                               (ls_tensor_id[]){sent, slots->rows}, NULL);
}

ls_tensor_id ls_graph_grouped_up(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight,
                                 const ls_routing *routing) {
  const int64_t in = ls_graph_tensor(graph, x)->dims[1];
  const int64_t rows = ls_graph_tensor(graph, weight)->dims[0];
  LS_ASSERT(rows % in == 0);
  return ls_graph_first_output(graph, LS_OP_GROUPED_UP,
                               &(ls_attributes){.experts = rows / in, .filled = routing->filled},
                               (ls_tensor_id[]){x, weight, routing->experts}, NULL);
}

ls_tensor_id ls_graph_grouped_down(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight,
                                   int64_t experts, const ls_routing *routing) {
  const int64_t rows = ls_graph_tensor(graph, weight)->dims[0];
  LS_ASSERT(rows % experts == 0);
  return ls_graph_first_output(
      graph, LS_OP_GROUPED_DOWN, &(ls_attributes){.experts = experts, .filled = routing->filled},
      (ls_tensor_id[]){x, weight, routing->experts}, (int64_t[]){0, rows / experts});
}

ls_tensor_id ls_graph_grouped_bias(ls_graph *graph, ls_tensor_id x, ls_tensor_id bias,
                                   const ls_routing *routing) {
  return ls_graph_first_output(graph, LS_OP_GROUPED_BIAS, NULL,
                               (ls_tensor_id[]){x, bias, routing->experts}, NULL);
}

ls_tensor_id ls_graph_grouped_weigh(ls_graph *graph, ls_tensor_id x, ls_tensor_id bias,
                                    const ls_routing *routing) {
  return ls_graph_first_output(graph, LS_OP_GROUPED_WEIGH, NULL,
                               (ls_tensor_id[]){x, bias, routing->experts, routing->weights}, NULL);
}

ls_tensor_id ls_graph_weigh(ls_graph *graph, ls_tensor_id x, const ls_routing *routing) {
  return ls_graph_first_output(graph, LS_OP_WEIGH, NULL, (ls_tensor_id[]){x, routing->weights},
                               NULL);
}
