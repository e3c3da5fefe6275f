/* Every row of the op table that has a gradient: a small graph with the op is differentiated, both
 * run on the reference kernels in fp64, and each gradient is compared with finite differences of
 * what the graph computes. The graphs are made from the rows, so a new row is here by itself.
 * LS_SEED=N repeats a run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/blocks.h"
#include "base/random.h"
#include "device/kernel.h"
#include "graph/graph.h"
#include "graph/labels.h"
#include "graph/ring.h"
#include "support/test_seed.h"

enum { ROUNDS = 8 };

static uint64_t run_seed;

typedef struct subject {
  ls_op_kind kind;
  uint64_t seed;
  ls_arena *arena;
  ls_graph *graph;
  int forward; /* nodes */
  LS_LIST(ls_root) roots;
  ls_view *views; /* by tensor; a parameter's gradient is added to */
} subject;

static int64_t draw(const subject *s, char what, int64_t low, int64_t high) {
  return low + (int64_t)(ls_random_bits(s->seed, (uint64_t)what, 0) % (uint64_t)(high - low + 1));
}

static int64_t label_size(const subject *s, char label) {
  const int64_t head_dim = 2 * draw(s, 'd', 1, 3);
  switch (label) {
    case '1': return 1;
    case 'n': return draw(s, 'T', 1, 5) * draw(s, 'B', 1, 3);
    case 'b': return draw(s, 'B', 1, 3);
    case 't':
    case 's': return draw(s, 'T', 1, 5);
    case 'd': return head_dim;
    case 'g': return draw(s, 'g', 1, 2) * head_dim;
    case 'r': return draw(s, 'r', 1, 3);
    case 'h': return draw(s, 'h', 1, 2) * head_dim;
    case 'i': return draw(s, 'g', 1, 2) * draw(s, 'r', 1, 3);
    case 'c': return draw(s, 'c', 4, 9) * (s->kind == LS_OP_PAIRED_GLU ? 2 : 1);
    case 'w': return draw(s, 'h', 1, 2) * draw(s, 'c', 4, 9);
    case 'p': return draw(s, 'p', 1, 5);
    case 'x': return draw(s, 'x', 3, 5);
    case 'j': return draw(s, 'j', 1, 3);
    case 'o': return label_size(s, 'n') * label_size(s, 'j');
    case 'q': return LS_BLOCK_WEIGHTS * draw(s, 'q', 1, 2);
    default: return draw(s, label, 4, 9);
  }
}

/* Windows, caps and slopes of attention, each in some rounds. */
static ls_attributes attributes_of(const subject *s) {
  const bool gelu = s->kind == LS_OP_GELU;
  return (ls_attributes){
      .sequence = draw(s, 'T', 1, 5),
      .head_dim = 2 * draw(s, 'd', 1, 3),
      .kv_heads = draw(s, 'g', 1, 2),
      .heads = draw(s, 'g', 1, 2) * draw(s, 'r', 1, 3),
      .columns = draw(s, 'c', 4, 9),
      .rope_neighbours = s->seed / 2 % 2,
      .experts = draw(s, 'x', 3, 5),
      .renormalise = s->seed % 2,
      .sigmoid = s->seed / 4 % 2,
      .groups = s->seed / 8 % 2 ? draw(s, 'x', 3, 5) : 0,
      .top_groups = 3,
      .z_scale = 0.3,
      .window = s->seed / 6 % 3 == 0 ? draw(s, 'w', 1, 6) : 0,
      .softcap = s->kind == LS_OP_SOFTCAP || s->seed / 2 % 3 == 0 ? 1.5 : 0,
      .alibi = s->seed / 18 % 3 == 0 ? 0.5 : 0,
      .epsilon = 1e-5,
      .weight_offset = s->seed % 3 == 0,
      .dropout = 0.3,
      .site = 1 + (int64_t)(s->seed % 5),
      .softmax_scale = 0.7,
      .gate_limit = 0.6,
      .gate_slope = 1.7,
      .scale = s->seed % 2 ? 1.75 : 0,
      .activation = gelu ? (ls_activation)(1 + s->seed % (LS_ACTIVATION_COUNT - 1))
                         : (ls_activation)(s->seed % LS_ACTIVATION_COUNT)};
}

static ls_tensor_id parameter(subject *s, const char *name, int64_t rows, int64_t columns) {
  return ls_graph_parameter(
      s->graph, &(ls_parameter){.name = name, .ndim = columns ? 2 : 1, .dims = {rows, columns}});
}

/* Matrices of tokens are rows of a parameter, so that they have gradients from several sides; what
 * has none in the row is given. */
static ls_tensor_id make_input(subject *s, int input, const ls_operand_labels *labels,
                               const ls_attributes *attributes) {
  int64_t dims[LS_MAX_DIMS] = {0};
  for (int d = 0; d < labels->ndim; d++) {
    dims[d] = 1;
    for (const char *label = labels->dim[d]; *label; label++) dims[d] *= label_size(s, *label);
    dims[d] /= ls_operand_divisor(labels, d, attributes);
  }
  const char *name = ls_arena_printf(s->arena, "input %d", input);
  if (ls_op_reads_indices(ls_op_row(s->kind), input)) {
    ls_tensor_id made = ls_graph_input(s->graph, name, dims[0]);
    ls_graph_tensor(s->graph, made)->ndim = labels->ndim;
    ls_graph_tensor(s->graph, made)->dims[1] = dims[1];
    return made;
  }
  if (!ls_op_gives_gradient(s->kind, input)) {
    const ls_tensor_id given = ls_graph_state(s->graph, name, dims[0], dims[1]);
    if (ls_op_reads_blocks(ls_op_row(s->kind), input))
      ls_graph_tensor(s->graph, given)->precision = LS_BLOCKS_NF4;
    return given;
  }
  ls_tensor_id made = parameter(s, name, dims[0], dims[1]);
  if (!ls_label_has_tokens(labels->dim[0][0]) || labels->ndim < 2) return made;
  return ls_graph_embedding(s->graph, made, ls_graph_input(s->graph, "rows", dims[0]), 0);
}

static bool reads_gradient(const ls_op *row, int output) {
  for (int i = 0; i < LS_MAX_INPUTS; i++)
    if (ls_op_passes(row, i) == output) return true;
  for (int r = 0; r < LS_MAX_GRADIENT_RULES; r++)
    if (row->gradients[r].in && strchr(row->gradients[r].in, 'a' + output)) return true;
  return false;
}

static void make_op(subject *s) {
  const ls_op_labels labels = ls_op_labels_read(s->kind);
  const ls_attributes attributes = attributes_of(s);
  ls_tensor_id inputs[LS_MAX_INPUTS];
  for (int i = 0; i < LS_MAX_INPUTS; i++) inputs[i].index = -1;
  const int count = labels.inputs - (int)draw(s, '?', 0, labels.optional);
  for (int i = 0; i < count; i++) inputs[i] = make_input(s, i, &labels.in[i], &attributes);
  const char second = s->kind == LS_OP_ROUTE ? 'j' : s->kind == LS_OP_HEADS ? 'w' : 'm';
  const int64_t extra[LS_MAX_DIMS] = {label_size(s, 'o'), label_size(s, second)};
  const int index = ls_graph_node(s->graph, s->kind, &attributes, inputs, LS_MAX_OUTPUTS, extra);
  const ls_node *node = &s->graph->nodes.items[index];
  for (int o = 0; o < labels.outputs; o++) {
    if (!reads_gradient(ls_op_row(s->kind), o)) continue;
    const ls_tensor *made = ls_graph_tensor(s->graph, node->out[o]);
    const ls_root root = {node->out[o],
                          ls_graph_state(s->graph, "slope", made->dims[0], made->dims[1])};
    *LS_APPEND(s->arena, &s->roots) = root;
  }
}

/* Its parts differentiate together. */
static void make_cross_entropy(subject *s) {
  const int64_t tokens = label_size(s, 'n');
  s->graph->labels = ls_graph_input(s->graph, "labels", tokens);
  ls_graph_cross_entropy(
      s->graph, ls_graph_embedding(s->graph, parameter(s, "logits", tokens, label_size(s, 'v')),
                                   ls_graph_input(s->graph, "rows", tokens), 0));
  *LS_APPEND(s->arena, &s->roots) = (ls_root){s->graph->loss, s->graph->loss_scale};
}

static void make_weighted(subject *s) {
  const int64_t tokens = label_size(s, 'n');
  s->graph->labels = ls_graph_input(s->graph, "labels", tokens);
  ls_graph_weighted_cross_entropy(
      s->graph, ls_graph_embedding(s->graph, parameter(s, "logits", tokens, label_size(s, 'v')),
                                   ls_graph_input(s->graph, "rows", tokens), 0));
  *LS_APPEND(s->arena, &s->roots) = (ls_root){s->graph->loss, s->graph->loss_scale};
}

static void make_several(subject *s) {
  const int64_t tokens = label_size(s, 'n');
  s->graph->labels = ls_graph_input(s->graph, "labels", tokens);
  ls_graph_binary_cross_entropy(
      s->graph,
      ls_graph_embedding(s->graph, parameter(s, "logits", tokens, label_size(s, 'v')),
                         ls_graph_input(s->graph, "rows", tokens), 0),
      s->seed % 2);
  *LS_APPEND(s->arena, &s->roots) = (ls_root){s->graph->loss, s->graph->loss_scale};
}

/* Of a teacher's logits, or of its likeliest ids. */
static void make_distillation(subject *s, bool top) {
  const int64_t tokens = label_size(s, 'n'), vocabulary = label_size(s, 'v');
  const double temperature = s->seed % 2 ? 1 : 2.5, share = s->seed % 3 ? 0.7 : 1;
  s->graph->labels = ls_graph_input(s->graph, "labels", tokens);
  const ls_tensor_id logits =
      ls_graph_embedding(s->graph, parameter(s, "logits", tokens, vocabulary),
                         ls_graph_input(s->graph, "rows", tokens), 0);
  if (top)
    ls_graph_distillation_of_top(s->graph, logits, label_size(s, 'j'), temperature, share);
  else
    ls_graph_distillation(s->graph, logits, ls_graph_state(s->graph, "teacher", tokens, vocabulary),
                          temperature, share);
  *LS_APPEND(s->arena, &s->roots) = (ls_root){s->graph->loss, s->graph->loss_scale};
}

static void make_preferences(subject *s) {
  const int64_t tokens = label_size(s, 'n');
  s->graph->sequence = draw(s, 'T', 1, 5);
  s->graph->labels = ls_graph_input(s->graph, "labels", tokens);
  s->graph->positions = ls_graph_input(s->graph, "positions", tokens);
  const ls_tensor_id logits =
      ls_graph_embedding(s->graph, parameter(s, "logits", tokens, label_size(s, 'v')),
                         ls_graph_input(s->graph, "rows", tokens), 0);
  if (s->seed % 3 == 0)
    ls_graph_odds(s->graph, logits, 0.7);
  else
    ls_graph_preferences(s->graph, logits, 0.7, s->seed % 2 ? 0.1 : 0);
  *LS_APPEND(s->arena, &s->roots) = (ls_root){s->graph->loss, s->graph->loss_scale};
}

/* Texts, told apart, are one thing. Here each token is all of its text, and a step is this one. */
static void make_texts(subject *s) {
  const int64_t pairs = draw(s, 'p', 1, 2), texts = draw(s, 'q', 2, 3);
  const int64_t group = draw(s, 'g', 1, 2), sequences = group * draw(s, 'b', 1, 2);
  s->graph->sequence = pairs * texts;
  s->graph->tokens = sequences * s->graph->sequence;
  const int64_t tokens = s->graph->tokens;
  s->graph->labels = ls_graph_input(s->graph, "texts", tokens);
  ls_graph_tell_texts(s->graph,
                      ls_graph_embedding(s->graph, parameter(s, "x", tokens, label_size(s, 'c')),
                                         ls_graph_input(s->graph, "rows", tokens), 0),
                      &(ls_text_pairs){.pairs = pairs, .texts = texts, .group = group, .scale = 3});
  *LS_APPEND(s->arena, &s->roots) = (ls_root){s->graph->loss, s->graph->loss_scale};
}

/* A ring's parts differentiate together. Here one rank has all blocks: what a turn sees is what the
 * places say of its keys, all of them at its one turn. */
static void make_ring(subject *s) {
  const ls_op_labels labels = ls_op_labels_read(LS_OP_RING_ATTENTION);
  const ls_attributes attributes = attributes_of(s);
  ls_tensor_id in[5];
  s->kind = LS_OP_RING_ATTENTION;
  s->graph->turns = 1;
  for (int i = 0; i < 5; i++) in[i] = make_input(s, i, &labels.in[i], &attributes);
  const ls_tensor_id sinks =
      s->seed % 2 ? parameter(s, "sinks", label_size(s, 'i'), 0) : (ls_tensor_id){-1};
  const ls_tensor_id out =
      ls_graph_ring_attention(s->graph, in[0], in[1], in[2], sinks, in[3], in[4], &attributes);
  const ls_tensor *made = ls_graph_tensor(s->graph, out);
  const ls_root root = {out, ls_graph_state(s->graph, "slope", made->dims[0], made->dims[1])};
  *LS_APPEND(s->arena, &s->roots) = root;
}

/* Rows sent to the ranks of their experts and back are one thing. Here one rank has all. */
static void make_sent(subject *s) {
  const int64_t tokens = label_size(s, 'n'), experts = 4, held = 2, chosen = draw(s, 'j', 1, 3);
  const ls_tensor_id rows = ls_graph_input(s->graph, "rows", tokens);
  const ls_tensor_id x =
      ls_graph_embedding(s->graph, parameter(s, "x", tokens, label_size(s, 'c')), rows, 0);
  const ls_tensor_id logits =
      ls_graph_embedding(s->graph, parameter(s, "logits", tokens, experts), rows, 0);
  ls_routing routing = ls_graph_route(
      s->graph, logits, &(ls_choice){.count = chosen, .renormalise = true, .added = {-1}});
  if (s->kind == LS_OP_KEEP) { /* about half */
    s->graph->tokens = s->graph->sequence = tokens;
    s->graph->labels = rows;
    routing = ls_graph_keep(s->graph, &routing, (tokens * chosen + 7) / 8, experts);
  }
  const ls_row_sending sending = {experts / held, 1, tokens * (chosen < held ? chosen : held), 0};
  const ls_routing slots = ls_graph_slots(s->graph, &routing, &sending, experts);
  const ls_routing arrivals = ls_graph_arrivals(s->graph, &slots);
  const ls_tensor_id sent = ls_graph_to_slots(s->graph, x, &slots);
  const ls_tensor_id came = ls_graph_arrive(s->graph, sent, &arrivals);
  const ls_tensor_id weighed = ls_graph_weigh(s->graph, came, &arrivals);
  const ls_tensor_id home = ls_graph_leave(s->graph, weighed, &arrivals);
  const ls_tensor_id out = ls_graph_from_slots(s->graph, home, &slots);
  const ls_tensor *made = ls_graph_tensor(s->graph, out);
  const ls_root root = {out, ls_graph_state(s->graph, "slope", made->dims[0], made->dims[1])};
  *LS_APPEND(s->arena, &s->roots) = root;
}

static void set(const ls_view *view, int64_t i, double value) {
  if (view->dtype == LS_I32)
    ((int32_t *)view->data)[i] = (int32_t)value;
  else
    ((double *)view->data)[i] = value;
}

static double value_of(const subject *s, const ls_tensor *tensor, int t, int64_t i) {
  const uint64_t bits = ls_random_bits(s->seed, 1000 + (uint64_t)t, (uint64_t)i);
  if (tensor->role == LS_ROLE_INPUT && strcmp(tensor->name, "rows") == 0) return (double)i;
  if (tensor->role == LS_ROLE_INPUT && strcmp(tensor->name, "texts") == 0)
    return bits % 5 == 0 ? -1 : bits % 2 ? (double)i : (double)(-2 - i);
  if (tensor->role == LS_ROLE_INPUT && strcmp(tensor->name, "labels") == 0)
    return (double)(bits % (uint64_t)(label_size(s, 'v') + 1)) - 1;
  if (tensor->role == LS_ROLE_INPUT && strcmp(tensor->name, "top_ids") == 0)
    return (double)(i % tensor->dims[1] + 1); /* ascending */
  if (tensor->role == LS_ROLE_INPUT && strcmp(tensor->name, "sets") == 0)
    return (double)(int32_t)(uint32_t)bits;
  if (tensor->role == LS_ROLE_INPUT && strcmp(tensor->name, "top_below") == 0)
    return -(double)(bits % 64) / 16;
  if (tensor->role == LS_ROLE_INPUT && s->kind == LS_OP_EMBEDDING)
    return (double)(bits % (uint64_t)label_size(s, 'v'));
  const char *places = s->kind == LS_OP_SINK_ATTENTION ? "input 5" : "input 4";
  if (tensor->role == LS_ROLE_INPUT && strcmp(tensor->name, places) == 0)
    return (double)(tensor->dims[0] - 1 - i); /* places, the last token first */
  const int64_t elements = ls_tensor_elements(tensor);
  if (tensor->role == LS_ROLE_INPUT && tensor->ndim == 2) /* where routed rows lie: each once */
    return (double)(elements - 1 - i);
  const bool of_experts = ls_op_row(s->kind)->product || s->kind == LS_OP_GROUPED_BIAS ||
                          s->kind == LS_OP_GROUPED_WEIGH;
  if (tensor->role == LS_ROLE_INPUT && of_experts) /* experts without rows too */
    return (double)(i * label_size(s, 'x') / elements / 2 * 2);
  if (tensor->role == LS_ROLE_INPUT) return (double)(bits % 3);
  const double value = (double)(bits >> 40) * 0x1p-23 - 1;
  const bool sums = s->kind == LS_OP_ROW_SCALE || s->kind == LS_OP_ROUTER_LOSS ||
                    s->kind == LS_OP_ROUTER_LOSS_EACH;
  return sums && strcmp(tensor->name, "input 2") == 0 ? value + 2 : value; /* positive */
}

static void fill_blocks(const subject *s, const ls_tensor *tensor, int t, ls_view *view) {
  const int64_t elements = ls_tensor_elements(tensor);
  ls_four_bit_block *blocks = LS_NEW_ARRAY(s->arena, ls_four_bit_block, elements);
  for (int64_t b = 0; b < elements; b++) {
    float weights[LS_BLOCK_WEIGHTS];
    for (int i = 0; i < LS_BLOCK_WEIGHTS; i++)
      weights[i] = (float)value_of(s, tensor, t, b * LS_BLOCK_WEIGHTS + i);
    ls_blocks_quantise(LS_NF4, weights, 1, &blocks[b]);
  }
  view->dtype = LS_NF4;
  view->data = blocks;
}

static void make_views(subject *s) {
  s->views = LS_NEW_ARRAY(s->arena, ls_view, s->graph->tensors.count);
  for (int t = 0; t < s->graph->tensors.count; t++) {
    const ls_tensor *tensor = &s->graph->tensors.items[t];
    const int64_t elements = ls_tensor_elements(tensor);
    ls_view *view = &s->views[t];
    *view = (ls_view){.dtype = tensor->precision == LS_INDEX ? LS_I32 : LS_F64,
                      .ndim = tensor->ndim,
                      .data = LS_NEW_ARRAY(s->arena, double, elements)};
    for (int d = 0; d < tensor->ndim; d++) view->dims[d] = view->valid[d] = tensor->dims[d];
    if (ls_precision_is_blocks(tensor->precision)) {
      fill_blocks(s, tensor, t, view);
      continue;
    }
    for (int64_t i = 0; i < elements && tensor->producer < 0; i++)
      set(view, i, value_of(s, tensor, t, i));
  }
}

static void run_nodes(const subject *s, int first, int end) {
  ls_kernel_table table;
  ls_reference_kernels(&table, LS_F64);
  for (int n = first; n < end; n++) {
    const ls_node *node = &s->graph->nodes.items[n];
    ls_kernel_args args = {
        .attributes = &node->attributes, .inputs = node->inputs, .outputs = node->outputs};
    for (int i = 0; i < node->inputs; i++) args.in[i] = s->views[node->in[i].index];
    for (int o = 0; o < node->outputs; o++) {
      args.out[o] = s->views[node->out[o].index];
      args.accumulate[o] = ls_graph_tensor(s->graph, node->out[o])->role == LS_ROLE_GRADIENT;
    }
    ls_error error = {0};
    if (table.kernel[node->kind](&args, &error) != LS_OK) fail_msg("%s", error.text);
  }
}

/* What backward differentiates: the sum of all roots times their gradients. A cell of a loss scales
 * it. */
static double objective(const subject *s) {
  double sum = 0;
  run_nodes(s, 0, s->forward);
  for (int r = 0; r < s->roots.count; r++) {
    const ls_root *root = &s->roots.items[r];
    const double *value = s->views[root->tensor.index].data;
    const double *slope = s->views[root->gradient.index].data;
    const int64_t elements = ls_tensor_elements(ls_graph_tensor(s->graph, root->tensor));
    for (int64_t i = 0; i < elements; i++) sum += value[i] * slope[i];
  }
  return sum;
}

static void check_parameter(const subject *s, const ls_parameter_record *about) {
  const double step = 1e-5;
  double *at = s->views[about->tensor.index].data;
  const double *gradient = s->views[about->gradient.index].data;
  const int64_t elements = ls_tensor_elements(ls_graph_tensor(s->graph, about->tensor));
  const double here = objective(s);
  double difference = 0, norm = 0;
  int64_t bent = 0;
  for (int64_t i = 0; i < elements; i++) {
    const double before = at[i];
    at[i] = before + step;
    const double above = objective(s);
    at[i] = before - step;
    const double below = objective(s);
    const double slope = (above - below) / (2 * step);
    at[i] = before;
    /* At the edge of a clamp the slopes to both sides are not one. */
    if (fabs(above + below - 2 * here) > step * (1e-2 * fabs(slope) + 1e-3) && ++bent <= 2)
      continue;
    difference += (gradient[i] - slope) * (gradient[i] - slope);
    norm += slope * slope;
  }
  if (!(sqrt(difference) <= 1e-6 * (sqrt(norm) + 1e-4)))
    fail_msg("%s: gradient of %s differs by %g of %g (LS_SEED=%llu)", ls_op_name(s->kind),
             about->about.name, sqrt(difference), sqrt(norm), (unsigned long long)run_seed);
}

static subject make_subject(ls_op_kind kind, uint64_t seed, int frozen) {
  subject s = {.kind = kind, .seed = seed, .arena = ls_arena_create()};
  s.graph = ls_graph_create(s.arena);
  ls_graph_layer(s.graph, 0);
  if (kind == LS_OP_XENT_SUM || kind == LS_OP_XENT_LOSS)
    make_cross_entropy(&s);
  else if (kind == LS_OP_XENT_LOSS_EACH)
    make_weighted(&s);
  else if (kind == LS_OP_BCE_SUM || kind == LS_OP_BCE_LOSS)
    make_several(&s);
  else if (kind == LS_OP_DISTILL_SUM || kind == LS_OP_DISTILL_LOSS)
    make_distillation(&s, false);
  else if (kind == LS_OP_DISTILL_TOP_SUM)
    make_distillation(&s, true);
  else if (kind == LS_OP_XENT_SUM_EACH || kind == LS_OP_PAIR_LOSS)
    make_preferences(&s);
  else if (kind >= LS_OP_TEXT_SUMS && kind <= LS_OP_TEXT_FOUND)
    make_texts(&s);
  else if (kind == LS_OP_RING_ATTENTION || kind == LS_OP_RING_END)
    make_ring(&s);
  else if (kind >= LS_OP_CHOICES && kind <= LS_OP_FROM_SLOTS)
    make_sent(&s);
  else
    make_op(&s);
  s.forward = s.graph->nodes.count;
  assert_true(s.graph->parameters.count > 0);
  if (frozen >= 0) s.graph->parameters.items[frozen].trainable = false;
  ls_graph_differentiate(s.graph, s.roots.items, s.roots.count);
  make_views(&s);
  run_nodes(&s, 0, s.graph->nodes.count);
  return s;
}

/* What is rounded has the gradient of what it is rounded to, and no slope. */
static bool has_gradient(ls_op_kind kind) {
  if (kind == LS_OP_FP8 || kind == LS_OP_ROW_FP8) return false;
  for (int i = 0; i < LS_MAX_INPUTS; i++)
    if (ls_op_gives_gradient(kind, i)) return true;
  return false;
}

static void test_gradients_match_differences(void **state) {
  (void)state;
  int rows = 0;
  for (ls_op_kind kind = 0; kind < LS_OP_COUNT; kind++) {
    if (!has_gradient(kind)) continue;
    rows++;
    for (uint64_t round = 0; round < ROUNDS; round++) {
      subject s = make_subject(kind, ls_random_bits(run_seed, round, 0), -1);
      for (int p = 0; p < s.graph->parameters.count; p++)
        check_parameter(&s, &s.graph->parameters.items[p]);
      ls_arena_destroy(&s.arena);
    }
  }
  print_message("%d rows have gradients\n", rows);
}

/* Freezing one parameter takes its gradient away and leaves the bits of all others. */
static void test_freezing_changes_no_other_gradient(void **state) {
  (void)state;
  for (ls_op_kind kind = 0; kind < LS_OP_COUNT; kind++) {
    if (!has_gradient(kind)) continue;
    subject all = make_subject(kind, run_seed, -1);
    for (int f = 0; f < all.graph->parameters.count; f++) {
      subject some = make_subject(kind, run_seed, f);
      for (int p = 0; p < all.graph->parameters.count; p++) {
        const ls_parameter_record *a = &all.graph->parameters.items[p];
        const ls_parameter_record *b = &some.graph->parameters.items[p];
        assert_int_equal(b->gradient.index < 0, p == f);
        if (p == f) continue;
        const int64_t elements = ls_tensor_elements(ls_graph_tensor(all.graph, a->tensor));
        assert_memory_equal(all.views[a->gradient.index].data, some.views[b->gradient.index].data,
                            (size_t)elements * sizeof(double));
      }
      ls_arena_destroy(&some.arena);
    }
    ls_arena_destroy(&all.arena);
  }
}

int main(void) {
  run_seed = test_seed(19);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients_match_differences),
                                     cmocka_unit_test(test_freezing_changes_no_other_gradient)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
