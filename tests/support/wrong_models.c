#include "support/wrong_models.h"

#include <string.h>

#include "base/random.h"

static ls_node *node_at(const ls_graph *graph, int n) {
  return &graph->nodes.items[n];
}

/* A node that satisfies `wanted`; -1: there is none. */
static int pick(const ls_graph *graph, uint64_t seed, bool (*wanted)(const ls_graph *, int)) {
  const int count = graph->nodes.count;
  const int start = (int)(ls_random_bits(seed, 43, 0) % (uint64_t)count);
  for (int i = 0; i < count; i++)
    if (wanted(graph, (start + i) % count)) return (start + i) % count;
  return -1;
}

static bool same(ls_tensor_id a, ls_tensor_id b) {
  return a.index == b.index;
}

/* Whoever reads the one from node `first` on reads the other. */
static void redirect(ls_graph *graph, int first, ls_tensor_id from, ls_tensor_id to) {
  for (int n = first; n < graph->nodes.count; n++)
    for (int i = 0; i < node_at(graph, n)->inputs; i++)
      if (same(node_at(graph, n)->in[i], from)) node_at(graph, n)->in[i] = to;
}

static void note_producers(ls_graph *graph) {
  for (int n = 0; n < graph->nodes.count; n++)
    for (int o = 0; o < node_at(graph, n)->outputs; o++)
      ls_graph_tensor(graph, node_at(graph, n)->out[o])->producer = n;
}

/* Takes a node to another place of the list. */
static void move_node(ls_graph *graph, int from, int to) {
  const ls_node moved = *node_at(graph, from);
  for (int n = from; n < to; n++) *node_at(graph, n) = *node_at(graph, n + 1);
  for (int n = from; n > to; n--) *node_at(graph, n) = *node_at(graph, n - 1);
  *node_at(graph, to) = moved;
  note_producers(graph);
}

static void remove_node(ls_graph *graph, int n) {
  move_node(graph, n, graph->nodes.count - 1);
  graph->nodes.count--;
}

static bool is(const ls_graph *graph, int n, ls_op_kind kind) {
  return node_at(graph, n)->kind == kind;
}

static bool is_made_by(const ls_graph *graph, ls_tensor_id tensor, ls_op_kind kind) {
  const int producer = ls_graph_tensor(graph, tensor)->producer;
  return producer >= 0 && is(graph, producer, kind);
}

static bool is_norm(const ls_graph *graph, int n) {
  return is(graph, n, LS_OP_LAYERNORM) || is(graph, n, LS_OP_RMSNORM);
}

/* Of a stream and a branch. */
static bool is_residual(const ls_graph *graph, int n) {
  return is(graph, n, LS_OP_ADD) && !is_made_by(graph, node_at(graph, n)->in[1], LS_OP_EMBEDDING);
}

/* The residual that the norm's branch is added to; -1: none is. */
static int residual_of(const ls_graph *graph, int norm) {
  for (int n = norm; n < graph->nodes.count; n++)
    if (is_residual(graph, n) && same(node_at(graph, n)->in[0], node_at(graph, norm)->in[0]))
      return n;
  return -1;
}

static bool is_branch_norm(const ls_graph *graph, int n) {
  return is_norm(graph, n) && residual_of(graph, n) >= 0;
}

static bool drop_residual(ls_graph *graph, uint64_t seed) {
  const int n = pick(graph, seed, is_residual);
  if (n < 0) return false;
  redirect(graph, n + 1, node_at(graph, n)->out[0], node_at(graph, n)->in[1]);
  remove_node(graph, n);
  return true;
}

static bool norm_behind(ls_graph *graph, uint64_t seed) {
  const int n = pick(graph, seed, is_branch_norm);
  if (n < 0) return false;
  const int add = residual_of(graph, n);
  const ls_tensor_id normed = node_at(graph, n)->out[0];
  redirect(graph, n + 1, normed, node_at(graph, n)->in[0]);
  node_at(graph, n)->in[0] = node_at(graph, add)->in[1];
  node_at(graph, add)->in[1] = ls_graph_stream(graph, normed);
  node_at(graph, n)->segment = node_at(graph, add)->segment;
  move_node(graph, n, add - 1);
  return true;
}

/* What is added to is the normed stream. */
static bool residual_of_normed(ls_graph *graph, uint64_t seed) {
  const int n = pick(graph, seed, is_branch_norm);
  if (n < 0) return false;
  node_at(graph, residual_of(graph, n))->in[0] = ls_graph_stream(graph, node_at(graph, n)->out[0]);
  return true;
}

static bool is_second_branch(const ls_graph *graph, int n) {
  return is_branch_norm(graph, n) && is_made_by(graph, node_at(graph, n)->in[0], LS_OP_ADD) &&
         is_residual(graph, ls_graph_tensor(graph, node_at(graph, n)->in[0])->producer);
}

/* A branch reads what the one before it read. */
static bool branches_side_by_side(ls_graph *graph, uint64_t seed) {
  const int n = pick(graph, seed, is_second_branch);
  if (n < 0) return false;
  const int before = ls_graph_tensor(graph, node_at(graph, n)->in[0])->producer;
  node_at(graph, n)->in[0] = node_at(graph, before)->in[0];
  return true;
}

/* A parameter for the other wherever it stands; each belongs to where it is used. */
static void swap_parameters(ls_graph *graph, ls_tensor_id a, ls_tensor_id b) {
  for (int n = 0; n < graph->nodes.count; n++)
    for (int i = 0; i < node_at(graph, n)->inputs; i++) {
      ls_tensor_id *in = &node_at(graph, n)->in[i];
      if (same(*in, a) || same(*in, b)) *in = same(*in, a) ? b : a;
    }
  ls_tensor *x = ls_graph_tensor(graph, a), *y = ls_graph_tensor(graph, b);
  const int segment = x->segment;
  x->segment = y->segment;
  y->segment = segment;
}

static bool swap_layers(ls_graph *graph, uint64_t seed) {
  (void)seed;
  int swapped = 0;
  for (int a = 0; a < graph->parameters.count; a++)
    for (int b = 0; b < graph->parameters.count; b++) {
      const ls_parameter_record *x = &graph->parameters.items[a], *y = &graph->parameters.items[b];
      if (strncmp(x->about.name, "layers.0.", 9) != 0 ||
          strncmp(y->about.name, "layers.1.", 9) != 0 ||
          strcmp(x->about.name + 9, y->about.name + 9) != 0)
        continue;
      swap_parameters(graph, x->tensor, y->tensor);
      swapped++;
    }
  return swapped > 0;
}

/* Two parameters of one size in one layer. */
static bool swap_weights(ls_graph *graph, uint64_t seed) {
  const int count = graph->parameters.count;
  const int start = (int)(ls_random_bits(seed, 43, 1) % (uint64_t)count);
  for (int a = start; a < count; a++)
    for (int b = a + 1; b < count; b++) {
      const ls_tensor_id x = graph->parameters.items[a].tensor;
      const ls_tensor_id y = graph->parameters.items[b].tensor;
      const ls_tensor *of_x = ls_graph_tensor(graph, x), *of_y = ls_graph_tensor(graph, y);
      if (of_x->segment != of_y->segment || of_x->ndim != of_y->ndim ||
          memcmp(of_x->dims, of_y->dims, sizeof of_x->dims) != 0 ||
          graph->parameters.items[a].about.sharding != graph->parameters.items[b].about.sharding)
        continue;
      swap_parameters(graph, x, y);
      return true;
    }
  return false;
}

static bool is_attention(const ls_graph *graph, int n) {
  return is(graph, n, LS_OP_ATTENTION);
}
static bool has_activation(const ls_graph *graph, int n) {
  return is(graph, n, LS_OP_GELU) || is(graph, n, LS_OP_SWIGLU);
}
static bool is_rope(const ls_graph *graph, int n) {
  return is(graph, n, LS_OP_ROPE);
}
static bool is_rope_table(const ls_graph *graph, int n) {
  return is(graph, n, LS_OP_ROPE_TABLE);
}
static bool is_embedding(const ls_graph *graph, int n) {
  return is(graph, n, LS_OP_EMBEDDING);
}
static bool is_swiglu(const ls_graph *graph, int n) {
  return is(graph, n, LS_OP_SWIGLU);
}
static bool is_bias(const ls_graph *graph, int n) {
  return is(graph, n, LS_OP_BIAS);
}
static bool reads_positions(const ls_graph *graph, int n) {
  return (is_rope_table(graph, n) && same(node_at(graph, n)->in[0], graph->positions)) ||
         (is_embedding(graph, n) && same(node_at(graph, n)->in[1], graph->positions));
}

static ls_attributes *settings(ls_graph *graph, uint64_t seed,
                               bool (*wanted)(const ls_graph *, int)) {
  const int n = pick(graph, seed, wanted);
  return n < 0 ? NULL : &node_at(graph, n)->attributes;
}

static bool other_epsilon(ls_graph *graph, uint64_t seed) {
  ls_attributes *of = settings(graph, seed, is_norm);
  if (of) of->epsilon *= 10;
  return of;
}

static bool norm_adds_one(ls_graph *graph, uint64_t seed) {
  const int n = pick(graph, seed, is_norm);
  if (n < 0 || !is(graph, n, LS_OP_RMSNORM)) return false;
  node_at(graph, n)->attributes.weight_offset += 1;
  return true;
}

static bool other_activation(ls_graph *graph, uint64_t seed) {
  ls_attributes *of = settings(graph, seed, has_activation);
  if (of) of->activation = of->activation == LS_GELU_ERF ? LS_GELU_TANH : LS_GELU_ERF;
  return of;
}

static bool unscaled_scores(ls_graph *graph, uint64_t seed) {
  ls_attributes *of = settings(graph, seed, is_attention);
  if (!of || of->softmax_scale == 1) return false;
  of->softmax_scale = 1;
  return true;
}

static bool windowed(ls_graph *graph, uint64_t seed) {
  ls_attributes *of = settings(graph, seed, is_attention);
  if (of) of->window = of->window ? 0 : 3;
  return of;
}

static bool capped(ls_graph *graph, uint64_t seed) {
  ls_attributes *of = settings(graph, seed, is_attention);
  if (of) of->softcap = of->softcap > 0 ? 0 : 30;
  return of;
}

/* Half as wide heads, twice as many: a query head reads another KV head. */
static bool other_heads(ls_graph *graph, uint64_t seed) {
  const int n = pick(graph, seed, is_attention);
  if (n < 0 || node_at(graph, n)->attributes.head_dim % 2) return false;
  node_at(graph, n)->attributes.head_dim /= 2;
  node_at(graph, n)->attributes.kv_heads *= 2;
  ls_graph_tensor(graph, node_at(graph, n)->out[1])->dims[1] *= 2;
  return true;
}

static bool scaled_embedding(ls_graph *graph, uint64_t seed) {
  ls_attributes *of = settings(graph, seed, is_embedding);
  if (of) of->scale = of->scale == 2 ? 0 : 2;
  return of;
}

static bool other_theta(ls_graph *graph, uint64_t seed) {
  ls_attributes *of = settings(graph, seed, is_rope_table);
  if (!of) return false;
  double *turned = LS_NEW_ARRAY(graph->arena, double, of->rope_pairs);
  for (int64_t p = 0; p < of->rope_pairs; p++)
    turned[p] = of->rope_frequencies[p] * (1 + (double)p) / 2;
  of->rope_frequencies = turned;
  return true;
}

static bool unturned(ls_graph *graph, uint64_t seed) {
  const int n = pick(graph, seed, is_rope);
  if (n < 0) return false;
  redirect(graph, n + 1, node_at(graph, n)->out[0], node_at(graph, n)->in[0]);
  remove_node(graph, n);
  return true;
}

static bool drops(const ls_graph *graph, int n) {
  return node_at(graph, n)->attributes.dropout > 0 && !node_at(graph, n)->backward;
}

static bool other_rate(ls_graph *graph, uint64_t seed) {
  ls_attributes *of = settings(graph, seed, drops);
  if (of) of->dropout /= 2;
  return of;
}

/* Two of the model drop the same columns of each token. */
static bool other_mask(ls_graph *graph, uint64_t seed) {
  ls_attributes *of = settings(graph, seed, drops);
  if (of) of->site++;
  return of;
}

static bool positions_for_draws(ls_graph *graph, uint64_t seed) {
  const int n = pick(graph, seed, drops);
  if (n < 0) return false;
  for (int i = 0; i < node_at(graph, n)->inputs; i++)
    if (same(node_at(graph, n)->in[i], graph->draws)) node_at(graph, n)->in[i] = graph->positions;
  return true;
}

static bool is_dropout(const ls_graph *graph, int n) {
  return is(graph, n, LS_OP_DROPOUT);
}

static bool undropped(ls_graph *graph, uint64_t seed) {
  const int n = pick(graph, seed, is_dropout);
  if (n < 0) return false;
  redirect(graph, n + 1, node_at(graph, n)->out[0], node_at(graph, n)->in[0]);
  remove_node(graph, n);
  return true;
}

static bool positions_by_tokens(ls_graph *graph, uint64_t seed) {
  const int n = pick(graph, seed, reads_positions);
  if (n >= 0) node_at(graph, n)->in[is_embedding(graph, n)] = graph->ids;
  return n >= 0;
}

static bool swap_inputs(ls_graph *graph, int n, int a, int b) {
  const ls_tensor_id first = node_at(graph, n)->in[a], second = node_at(graph, n)->in[b];
  if (ls_graph_tensor(graph, first)->dims[1] != ls_graph_tensor(graph, second)->dims[1])
    return false;
  node_at(graph, n)->in[a] = second;
  node_at(graph, n)->in[b] = first;
  return true;
}

static bool keys_for_values(ls_graph *graph, uint64_t seed) {
  const int n = pick(graph, seed, is_attention);
  return n >= 0 && swap_inputs(graph, n, 1, 2);
}

static bool gate_for_up(ls_graph *graph, uint64_t seed) {
  const int n = pick(graph, seed, is_swiglu);
  return n >= 0 && swap_inputs(graph, n, 0, 1);
}

/* Missing where it belongs, and added to another product of its layer and size. */
static bool misplaced_bias(ls_graph *graph, uint64_t seed) {
  const int n = pick(graph, seed, is_bias);
  for (int m = n + 1; n >= 0 && m < graph->nodes.count; m++) {
    const ls_node *other = node_at(graph, m);
    if (!is_bias(graph, m) || other->segment != node_at(graph, n)->segment ||
        ls_graph_tensor(graph, other->in[1])->dims[0] !=
            ls_graph_tensor(graph, node_at(graph, n)->in[1])->dims[0])
      continue;
    redirect(graph, n + 1, node_at(graph, n)->out[0], node_at(graph, n)->in[0]);
    redirect(graph, m + 1, other->out[0], node_at(graph, n)->out[0]);
    node_at(graph, n)->in[0] = other->out[0];
    move_node(graph, n, m);
    return true;
  }
  return false;
}

/* What nothing reads any more has no gradient. */
static void freeze_unread(ls_graph *graph) {
  for (int p = 0; p < graph->parameters.count; p++) {
    bool read = false;
    for (int n = 0; n < graph->nodes.count; n++)
      for (int i = 0; i < node_at(graph, n)->inputs; i++)
        read |= same(node_at(graph, n)->in[i], graph->parameters.items[p].tensor);
    graph->parameters.items[p].trainable &= read;
  }
}

/* Takes the node's input for its output. */
static bool leave_out(ls_graph *graph, int n) {
  if (n < 0) return false;
  redirect(graph, n + 1, node_at(graph, n)->out[0], node_at(graph, n)->in[0]);
  remove_node(graph, n);
  freeze_unread(graph);
  return true;
}

static bool missing_bias(ls_graph *graph, uint64_t seed) {
  return leave_out(graph, pick(graph, seed, is_bias));
}

static bool missing_norm(ls_graph *graph, uint64_t seed) {
  return leave_out(graph, pick(graph, seed, is_norm));
}

/* As where stages are cut wrong: what comes into a layer goes out of it. */
static bool missing_layer(ls_graph *graph, uint64_t seed) {
  const int n = pick(graph, seed, is_second_branch);
  if (n < 0) return false;
  const int segment = node_at(graph, n)->segment, end = residual_of(graph, n);
  int first = n;
  while (first > 0 && node_at(graph, first - 1)->segment == segment) first--;
  redirect(graph, end + 1, node_at(graph, end)->out[0], node_at(graph, first)->in[0]);
  for (int m = end; m >= first; m--) remove_node(graph, m);
  freeze_unread(graph);
  return true;
}

/* The head of one is the other's embedding, or the first layer's weights are the second's too. */
static bool shared_weight(ls_graph *graph, uint64_t seed) {
  const int count = graph->parameters.count;
  const int start = (int)(ls_random_bits(seed, 43, 1) % (uint64_t)count);
  for (int a = start; a < count; a++)
    for (int b = a + 1; b < count; b++) {
      const ls_parameter *x = &graph->parameters.items[a].about;
      const ls_parameter *y = &graph->parameters.items[b].about;
      if (x->ndim != 2 || x->sharding != y->sharding ||
          memcmp(x->dims, y->dims, sizeof x->dims) != 0)
        continue;
      redirect(graph, 0, graph->parameters.items[b].tensor, graph->parameters.items[a].tensor);
      freeze_unread(graph);
      return true;
    }
  return false;
}

/* Each token is asked for itself, not for the one behind it. */
static bool unshifted_labels(ls_graph *graph, uint64_t seed) {
  (void)seed;
  redirect(graph, 0, graph->labels, graph->ids);
  return true;
}

#define SETTING(name) "with " name
const ls_wrong_model ls_wrong_models[] = {
    {"a residual dropped", drop_residual, "expected the model's", false},
    {"a norm behind its branch", norm_behind, "expected the model's", false},
    {"a residual of the normed stream", residual_of_normed, "expected the model's add(", false},
    {"branches side by side", branches_side_by_side, "expected the model's", false},
    {"two layers swapped", swap_layers, "layers.1.", false},
    {"two weights swapped", swap_weights, "expected the model's", false},
    {"another epsilon", other_epsilon, SETTING("epsilon"), false},
    {"a norm that adds 1 to its weight", norm_adds_one, SETTING("weight_offset"), false},
    {"another activation", other_activation, SETTING("activation"), false},
    {"scores not scaled", unscaled_scores, SETTING("softmax_scale"), false},
    {"attention in a window", windowed, SETTING("window"), false},
    {"scores capped", capped, SETTING("softcap"), false},
    {"query heads read other KV heads", other_heads, SETTING("head_dim"), false},
    {"embedding scaled", scaled_embedding, SETTING("scale"), false},
    {"another rope theta", other_theta, SETTING("rope_frequencies"), false},
    {"queries or keys not turned", unturned, "expected the model's", false},
    {"tokens for positions", positions_by_tokens, "ids): expected the model's", false},
    {"keys for values", keys_for_values, "expected the model's attention(", false},
    {"gate for up", gate_for_up, "expected the model's swiglu(", false},
    {"a bias at another product", misplaced_bias, "expected the model's", false},
    {"a bias left out", missing_bias, "expected the model's", true},
    {"a norm left out", missing_norm, "expected the model's", true},
    {"a layer left out", missing_layer, "expected the model's", true},
    {"a weight in two places", shared_weight, "expected the model's", true},
    {"another rate of dropout", other_rate, SETTING("dropout"), false},
    {"another's mask", other_mask, SETTING("site"), false},
    {"positions for draws", positions_for_draws, "positions", false},
    {"a branch not dropped", undropped, "expected the model's", false},
    {"labels not shifted", unshifted_labels, "ids): expected the model's", false},
};
const int ls_wrong_model_count = sizeof ls_wrong_models / sizeof *ls_wrong_models;

void ls_freeze_alike(ls_graph *right, const ls_graph *wrong) {
  for (int p = 0; p < right->parameters.count; p++)
    right->parameters.items[p].trainable = wrong->parameters.items[p].trainable;
}
