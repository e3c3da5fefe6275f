#include <math.h>

#include "model/family.h"

/* A mixture of experts in the MLP's place: of each token the MLPs of its experts, by its router's
 * weights, beside an MLP that all tokens share; and the losses that keep routers in order. */

int64_t ls_model_expert_width(const ls_model_config *config) {
  return config->expert_width ? config->expert_width : config->mlp_width;
}

static ls_choice choice_of(const ls_builder *builder) {
  const ls_model_config *config = builder->config;
  return (ls_choice){.count = config->experts_per_token,
                     .renormalise = config->renormalise,
                     .sigmoid = config->sigmoid_router,
                     .groups = config->expert_groups,
                     .top_groups = config->top_groups,
                     .scale = config->route_scale,
                     .added = {-1}};
}

/* Loads are counted and routers pay in training alone. Loads of all layers together are known
 * behind the last: then it pays for each. */
static void balance(ls_builder *builder, ls_tensor_id logits, const ls_choice *choice) {
  const ls_balance *of = &builder->config->balance;
  ls_graph *graph = builder->graph;
  const bool pays = of->aux > 0 || of->z > 0;
  if (builder->options->mode != LS_MODEL_TRAIN || (!pays && !of->loads)) return;
  const bool each = of->aux <= 0 || of->form == LS_BALANCE_SEQUENCE;
  ls_tensor_id loads = ls_graph_router_loads(graph, logits, choice, each);
  if (!pays) return;
  if (of->aux > 0 && of->form == LS_BALANCE_MODEL) {
    builder->loads = ls_graph_router_total(graph, loads, builder->loads);
    *LS_APPEND(graph->arena, &builder->routers) = logits;
    return;
  }
  if (!each) loads = ls_graph_router_total(graph, loads, (ls_tensor_id){-1});
  const double scale = of->aux * (double)builder->config->experts;
  const bool pairs = builder->options->pairs.beta > 0;
  ls_graph_router_loss(graph, logits, loads, choice->sigmoid, scale, of->z,
                       pairs ? ls_graph_pair_shares(graph) : (ls_tensor_id){-1});
}

/* transformers' load_balancing_loss_func: the rows of all layers are one list. */
void ls_builder_balance(ls_builder *builder) {
  const ls_model_config *config = builder->config;
  const int layers = builder->routers.count;
  const double scale = config->balance.aux * (double)config->experts *
                       (double)config->experts_per_token / (double)layers;
  for (int l = 0; l < layers; l++)
    ls_graph_router_loss(builder->graph, builder->routers.items[l], builder->loads,
                         choice_of(builder).sigmoid, scale, config->balance.z, (ls_tensor_id){-1});
}

/* Whether rows are sent. A layout whose ranks share out neither is refused where its mesh is made.
 */
static bool sends(const ls_builder *builder) {
  const ls_build_options *options = builder->options;
  return options->expert_ranks > 0 && builder->config->experts % options->expert_ranks == 0 &&
         options->token_ranks > 0 && options->tokens % options->token_ranks == 0;
}

/* Rows of a sequence that an expert takes; 0: all. */
static int64_t capacity_of(const ls_builder *builder) {
  const ls_model_config *config = builder->config;
  if (builder->options->mode != LS_MODEL_TRAIN || config->balance.drop <= 0) return 0;
  const double rows = (double)(builder->options->sequence * config->experts_per_token);
  const double even = config->balance.drop * rows / (double)config->experts;
  return (int64_t)ceil(even * (1 - 1e-12)); /* what is whole may come out a rounding above */
}

/* Of how many sequences a rank's tokens are at most, which follow one another: of each it may have
 * all that its rank of the context has, or where tp shares these out a part. */
static int64_t sequences_of(const ls_build_options *options, int64_t tokens) {
  const int64_t run = options->sequence / options->parts;
  return (tokens + run - 1) / run + (tokens % run != 0 && run % tokens != 0);
}

/* As many rows as one rank's tokens may have for the experts of another, which take no more of a
 * sequence than their capacity; or a bound below: then *bounded. */
static ls_row_sending sending_of(const ls_builder *builder, bool *bounded) {
  const ls_build_options *options = builder->options;
  const ls_model_config *config = builder->config;
  const int64_t chosen = config->experts_per_token, held = config->experts / options->expert_ranks;
  const int64_t tokens = options->tokens / options->token_ranks;
  const int64_t even = 100 * options->expert_ranks; /* of which an even routing sends one there */
  const int64_t bound = (tokens * chosen * options->expert_bound + even - 1) / even;
  ls_row_sending sending = {.ranks = options->expert_ranks,
                            .senders = options->token_ranks,
                            .together = options->stream_ranks,
                            .slots = tokens * (chosen < held ? chosen : held)};
  const int64_t most = sequences_of(options, tokens) * held * capacity_of(builder);
  if (most > 0 && most < sending.slots) sending.slots = most;
  *bounded = bound > 0 && bound < sending.slots;
  if (*bounded) sending.slots = bound;
  return sending;
}

/* What a layer's experts are, one after another: their gates, ups and downs; or where gates and ups
 * stand in turns these, then downs, and biases of both. */
typedef struct expert_parameters {
  ls_tensor_id weights[3], biases[2];
} expert_parameters;

static expert_parameters make_experts(ls_builder *builder) {
  const ls_model_config *config = builder->config;
  const int64_t rows = config->experts * config->width, columns = ls_model_expert_width(config);
  const double deviation = config->initializer_range;
  expert_parameters made = {0};
  if (builder->family->decoder.paired_experts) {
    made.weights[0] = ls_builder_weight(builder, "experts.gate_up.weight", rows, 2 * columns,
                                        LS_TP_EXPERTS, deviation);
    made.weights[1] =
        ls_builder_weight(builder, "experts.down.weight", rows, columns, LS_TP_EXPERTS, deviation);
    made.biases[0] =
        ls_builder_expert_rows(builder, "experts.gate_up.bias", 2 * columns, LS_TP_EXPERTS);
    made.biases[1] =
        ls_builder_expert_rows(builder, "experts.down.bias", config->width, LS_TP_EXPERT_ROWS);
    return made;
  }
  static const char *const names[] = {"experts.gate.weight", "experts.up.weight",
                                      "experts.down.weight"};
  for (int i = 0; i < 3; i++)
    made.weights[i] = ls_builder_weight(builder, names[i], rows, columns, LS_TP_EXPERTS, deviation);
  return made;
}

/* Behind a bias there is nothing to be summed over ranks, so that weights come last, with it. */
static ls_tensor_id multiply_paired(ls_builder *builder, ls_tensor_id rows,
                                    const expert_parameters *of, const ls_routing *routing) {
  const ls_model_config *config = builder->config;
  ls_graph *graph = builder->graph;
  ls_tensor_id x = ls_graph_grouped_up(graph, rows, of->weights[0], routing);
  x = ls_graph_grouped_bias(graph, x, of->biases[0], routing);
  x = ls_graph_paired_glu(graph, x, config->gate_limit, config->gate_slope);
  x = ls_graph_grouped_down(graph, x, of->weights[1], config->experts, routing);
  return ls_graph_grouped_weigh(graph, x, of->biases[1], routing);
}

/* Weights are given before the last product, which then is linear in all that is still to be summed
 * over ranks, and so that what it makes need not be kept. */
static ls_tensor_id multiply(ls_builder *builder, ls_tensor_id rows, const expert_parameters *of,
                             const ls_routing *routing) {
  const ls_model_config *config = builder->config;
  ls_graph *graph = builder->graph;
  if (builder->family->decoder.paired_experts) return multiply_paired(builder, rows, of, routing);
  const ls_tensor_id gate = ls_graph_grouped_up(graph, rows, of->weights[0], routing);
  const ls_tensor_id up = ls_graph_grouped_up(graph, rows, of->weights[1], routing);
  const ls_tensor_id y = ls_graph_swiglu(graph, gate, up, config->activation);
  const ls_tensor_id weighed = ls_graph_weigh(graph, y, routing);
  return ls_graph_grouped_down(graph, weighed, of->weights[2], config->experts, routing);
}

/* The shared expert up to its last product. */
static ls_tensor_id shared_up(ls_builder *builder, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  ls_graph *graph = builder->graph;
  const int64_t columns = config->shared_width;
  const double deviation = config->initializer_range;
  const ls_tensor_id gate =
      ls_builder_project(builder, x, "shared.gate", columns, LS_TP_COLUMN, false, deviation);
  const ls_tensor_id up =
      ls_builder_project(builder, x, "shared.up", columns, LS_TP_COLUMN, false, deviation);
  const ls_tensor_id y = ls_graph_swiglu(graph, gate, up, config->activation);
  if (!config->shared_gate) return y;
  const ls_tensor_id logit =
      ls_builder_project(builder, x, "shared.router", 1, LS_TP_REPLICATED, false, deviation);
  const ls_routing weight = ls_graph_row_sigmoid(graph, logit);
  return ls_graph_weigh(graph, y, &weight);
}

static ls_tensor_id shared_down(ls_builder *builder, ls_tensor_id y) {
  const ls_model_config *config = builder->config;
  return ls_builder_project(builder, y, "shared.down", config->width, LS_TP_ROW, false,
                            config->initializer_range);
}

/* What of the shared expert comes after an exchange in the graph is done while rows are sent: its
 * first products while they go to the experts, the last while they come home. */
static ls_tensor_id exchanged(ls_builder *builder, ls_tensor_id x, const ls_routing *routing,
                              const expert_parameters *of) {
  ls_graph *graph = builder->graph;
  const int64_t experts = builder->config->experts;
  const bool shared = builder->config->shared_width > 0;
  ls_tensor_id beside = {-1};
  bool bounded;
  const ls_row_sending sending = sending_of(builder, &bounded);
  if (bounded) ls_graph_left_out(graph, routing, &sending, experts);
  const ls_routing slots = ls_graph_slots(graph, routing, &sending, experts);
  const ls_tensor_id sent = ls_graph_to_slots(graph, x, &slots);
  if (shared) beside = shared_up(builder, x);
  const ls_routing arrivals = ls_graph_arrivals(graph, &slots);
  const ls_tensor_id came = ls_graph_arrive(graph, sent, &arrivals);
  const ls_tensor_id y = multiply(builder, came, of, &arrivals);
  const ls_tensor_id home = ls_graph_leave(graph, y, &arrivals);
  if (shared) beside = shared_down(builder, beside);
  const ls_tensor_id sum = ls_graph_from_slots(graph, home, &slots);
  return shared ? ls_graph_add(graph, sum, beside) : sum;
}

ls_tensor_id ls_decoder_experts(ls_builder *builder, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  ls_graph *graph = builder->graph;
  ls_choice choice = choice_of(builder);
  if (config->router_bias)
    choice.added = ls_builder_constant(builder, "router_bias", config->experts);
  const ls_tensor_id logits =
      ls_builder_project(builder, x, "router", config->experts, LS_TP_REPLICATED,
                         builder->family->decoder.paired_experts, config->initializer_range);
  ls_routing routing = ls_graph_route(graph, logits, &choice);
  balance(builder, logits, &choice);
  const int64_t capacity = capacity_of(builder);
  if (capacity) routing = ls_graph_keep(graph, &routing, capacity, config->experts);
  const expert_parameters of = make_experts(builder);
  if (sends(builder)) return exchanged(builder, x, &routing, &of);
  const ls_tensor_id spread = ls_graph_dispatch(graph, x, &routing);
  const ls_tensor_id y =
      ls_graph_combine(graph, multiply(builder, spread, &of, &routing), &routing);
  return config->shared_width ? ls_graph_add(graph, y, shared_down(builder, shared_up(builder, x)))
                              : y;
}
