#include "graph/ring.h"

#include <string.h>

#include "base/sets.h"
#include "lockstep/dtype.h"

static const ls_tensor_id none = {-1};

ls_graph *ls_graph_create(ls_arena *arena) {
  ls_graph *graph = LS_NEW(arena, ls_graph);
  graph->arena = arena;
  graph->op_labels = ls_op_labels_list();
  graph->ids = graph->labels = graph->positions = graph->places = graph->draws = none;
  graph->reference = graph->answers = graph->remaining = graph->types = graph->weights = none;
  graph->top_ids = graph->top_below = graph->sets = none;
  for (int r = 0; r < LS_MAX_OUTPUTS; r++) graph->rewards[r] = none;
  graph->loss_scale = graph->loss = graph->logits = none;
  return graph;
}

static int add_segment(ls_graph *graph, const char *name, int layer) {
  *LS_APPEND(graph->arena, &graph->segments) = (ls_segment){name, layer};
  return graph->segment = graph->segments.count - 1;
}

int ls_graph_segment(ls_graph *graph, const char *name) {
  return add_segment(graph, ls_arena_strdup(graph->arena, name), -1);
}

int ls_graph_layer(ls_graph *graph, int layer) {
  return add_segment(graph, ls_arena_printf(graph->arena, "layers.%d", layer), layer);
}

int64_t ls_tensor_elements(const ls_tensor *tensor) {
  int64_t elements = 1;
  for (int d = 0; d < tensor->ndim; d++) elements *= tensor->dims[d];
  return elements;
}

ls_dtype ls_precision_blocks(ls_precision precision) {
  switch (precision) {
    case LS_BLOCKS_NF4: return LS_NF4;
    case LS_BLOCKS_INT8: return LS_INT8;
    case LS_BLOCKS_FP4: return LS_FP4;
    case LS_BLOCKS_NF4_DOUBLE: return LS_NF4_DOUBLE;
    case LS_BLOCKS_FP4_DOUBLE: return LS_FP4_DOUBLE;
    default: return LS_DTYPE_COUNT;
  }
}

bool ls_precision_is_blocks(ls_precision precision) {
  return ls_precision_blocks(precision) != LS_DTYPE_COUNT;
}

ls_precision ls_precision_single(ls_precision precision) {
  switch (precision) {
    case LS_BLOCKS_NF4_DOUBLE: return LS_BLOCKS_NF4;
    case LS_BLOCKS_FP4_DOUBLE: return LS_BLOCKS_FP4;
    default: return precision;
  }
}

bool ls_precision_is_double(ls_precision precision) {
  return ls_precision_single(precision) != precision;
}

int64_t ls_precision_numbers(ls_precision precision) {
  return ls_precision_is_blocks(precision) ? LS_BLOCK_WEIGHTS : 1;
}

static ls_tensor_id add_tensor(ls_graph *graph, const ls_tensor *tensor) {
  ls_tensor *added = LS_APPEND(graph->arena, &graph->tensors);
  *added = *tensor;
  added->segment = graph->segment;
  return (ls_tensor_id){graph->tensors.count - 1};
}

static ls_tensor_id add_source(ls_graph *graph, const char *name, ls_role role,
                               ls_precision precision, int64_t rows, int64_t columns) {
  return add_tensor(graph, &(ls_tensor){.name = ls_arena_strdup(graph->arena, name),
                                        .role = role,
                                        .precision = precision,
                                        .ndim = columns ? 2 : 1,
                                        .dims = {rows, columns},
                                        .producer = -1,
                                        .parameter = -1});
}

ls_tensor_id ls_graph_input(ls_graph *graph, const char *name, int64_t count) {
  return add_source(graph, name, LS_ROLE_INPUT, LS_INDEX, count, 0);
}

ls_tensor_id ls_graph_cell(ls_graph *graph, const char *name) {
  return add_source(graph, name, LS_ROLE_CELL, LS_DOUBLE, 1, 0);
}

ls_tensor_id ls_graph_state(ls_graph *graph, const char *name, int64_t rows, int64_t columns) {
  return add_source(graph, name, LS_ROLE_STATE, LS_COMPUTE, rows, columns);
}

ls_tensor_id ls_graph_parameter(ls_graph *graph, const ls_parameter *about) {
  ls_tensor tensor = {.name = ls_arena_strdup(graph->arena, about->name),
                      .role = LS_ROLE_PARAMETER,
                      .precision = about->precision,
                      .ndim = about->ndim,
                      .producer = -1,
                      .parameter = graph->parameters.count};
  memcpy(tensor.dims, about->dims, sizeof tensor.dims);
  ls_parameter_record *added = LS_APPEND(graph->arena, &graph->parameters);
  added->about = *about;
  added->about.name = tensor.name;
  added->gradient = none;
  added->trainable = !ls_precision_is_blocks(about->precision);
  added->settings = (ls_parameter_settings){.rate = 1, .weight_decay = -1};
  ls_tensor_id id = add_tensor(graph, &tensor);
  graph->parameters.items[tensor.parameter].tensor = id;
  return id;
}

ls_tensor_id ls_graph_stream(ls_graph *graph, ls_tensor_id tensor) {
  ls_graph_tensor(graph, tensor)->stream = true;
  return tensor;
}

/* The size of a dimension by its labels and rule, from the node's inputs, or -1: none says. */
static int64_t dim_size(const ls_graph *graph, const ls_node *node, const ls_op_labels *labels,
                        const ls_operand_labels *operand, int dim) {
  const char *label = operand->dim[dim];
  if (strcmp(label, "1") == 0) return 1;
  const int64_t divisor = ls_operand_divisor(operand, dim, &node->attributes);
  int64_t scaled = -1; /* by an input that is scaled itself, where no other says */
  for (int i = 0; i < node->inputs; i++)
    for (int d = 0; d < labels->in[i].ndim; d++) {
      if (strcmp(labels->in[i].dim[d], label) != 0) continue;
      const int64_t of = ls_operand_divisor(&labels->in[i], d, &node->attributes);
      const int64_t size = ls_graph_tensor(graph, node->in[i])->dims[d];
      if (of == 1) return size % divisor == 0 ? size / divisor : -1;
      if (scaled < 0) scaled = size * of / divisor;
    }
  return scaled;
}

static ls_tensor output_tensor(const ls_graph *graph, const ls_node *node,
                               const ls_op_labels *labels, int output, const int64_t *extra) {
  const ls_op *row = ls_op_row(node->kind);
  const bool unnested = row->unnests && output == 0;
  ls_tensor tensor = {
      .precision = unnested ? ls_precision_single(ls_graph_tensor(graph, node->in[0])->precision)
                            : row->precision[output],
      .ndim = labels->out[output].ndim,
      .producer = graph->nodes.count,
      .parameter = -1};
  for (int d = 0; d < tensor.ndim; d++) {
    int64_t size = dim_size(graph, node, labels, &labels->out[output], d);
    if (size < 0) {
      LS_ASSERT(extra);
      size = extra[d];
    }
    tensor.dims[d] = size;
  }
  return tensor;
}

static void check_written(const ls_graph *graph, const ls_node *node) {
  const char *writes = ls_op_row(node->kind)->writes;
  for (; writes && *writes; writes++)
    LS_ASSERT(ls_graph_tensor(graph, node->in[*writes - '0'])->role == LS_ROLE_STATE);
}

static void check_inputs(const ls_graph *graph, const ls_node *node, const ls_op_labels *labels) {
  for (int i = 0; i < node->inputs; i++) {
    const ls_tensor *tensor = ls_graph_tensor(graph, node->in[i]);
    const bool index = ls_op_reads_indices(ls_op_row(node->kind), i);
    const bool blocks = ls_op_reads_blocks(ls_op_row(node->kind), i);
    LS_ASSERT(tensor->ndim == labels->in[i].ndim && index == (tensor->precision == LS_INDEX));
    LS_ASSERT(blocks == ls_precision_is_blocks(tensor->precision));
    for (int d = 0; d < tensor->ndim; d++) {
      const int64_t size = dim_size(graph, node, labels, &labels->in[i], d);
      if (size != tensor->dims[d])
        ls_panic("%s: %s has %lld where label %s says %lld", ls_op_name(node->kind), tensor->name,
                 (long long)tensor->dims[d], labels->in[i].dim[d], (long long)size);
    }
  }
}

static bool exists(ls_tensor_id id) {
  return id.index >= 0;
}

/* Nothing comes between forward and backward of the segment that makes the last root: its gradients
 * are of its forward pass, so that what is large there need not outlive it. */
static bool of_backward_pass(const ls_graph *graph) {
  return graph->in_backward && graph->segment != graph->root_segment;
}

int ls_graph_node(ls_graph *graph, ls_op_kind kind, const ls_attributes *attributes,
                  const ls_tensor_id *inputs, int needed, const int64_t *extra) {
  const ls_op_labels *labels = &graph->op_labels[kind];
  const int least = labels->outputs - labels->optional_outputs;
  ls_node node = {.kind = kind,
                  .segment = graph->segment,
                  .backward = of_backward_pass(graph),
                  .inputs = labels->inputs,
                  .outputs = needed > labels->outputs ? labels->outputs
                             : needed < least         ? least
                                                      : needed};
  if (attributes) node.attributes = *attributes;
  while (!exists(inputs[node.inputs - 1])) node.inputs--;
  LS_ASSERT(ls_op_labels_allow(labels, node.inputs, node.outputs));
  memcpy(node.in, inputs, sizeof *inputs * (size_t)node.inputs);
  check_inputs(graph, &node, labels);
  check_written(graph, &node);
  LS_ASSERT(ls_op_has_divisors(kind, &node.attributes));
  for (int o = 0; o < node.outputs; o++) {
    ls_tensor tensor = output_tensor(graph, &node, labels, o, extra);
    tensor.name =
        ls_arena_printf(graph->arena, "%s%s.%d.%s%s",
                        graph->segments.count ? graph->segments.items[graph->segment].name : "",
                        graph->in_backward ? ".grad" : "", graph->nodes.count, ls_op_name(kind),
                        o ? (o == 1 ? ".1" : ".2") : "");
    node.out[o] = add_tensor(graph, &tensor);
  }
  *LS_APPEND(graph->arena, &graph->nodes) = node;
  return graph->nodes.count - 1;
}

double ls_node_flops(const ls_graph *graph, const ls_node *node) {
  static const int64_t nothing[LS_MAX_DIMS] = {0};
  const int64_t *dims[2] = {nothing, nothing};
  for (int i = 0; i < 2 && i < node->inputs; i++)
    dims[i] = ls_graph_tensor(graph, node->in[i])->dims;
  return ls_op_flops(node->kind, &node->attributes, dims[0], dims[1]);
}

ls_tensor_id ls_graph_first_output(ls_graph *graph, ls_op_kind kind,
                                   const ls_attributes *attributes, const ls_tensor_id *inputs,
                                   const int64_t *extra) {
  int node = ls_graph_node(graph, kind, attributes, inputs, LS_MAX_OUTPUTS, extra);
  return graph->nodes.items[node].out[0];
}

ls_tensor_id ls_graph_embedding(ls_graph *graph, ls_tensor_id table, ls_tensor_id ids,
                                double scale) {
  return ls_graph_first_output(graph, LS_OP_EMBEDDING, &(ls_attributes){.scale = scale},
                               (ls_tensor_id[]){table, ids}, NULL);
}

ls_tensor_id ls_graph_skipped_embedding(ls_graph *graph, ls_tensor_id table, ls_tensor_id ids,
                                        int64_t skipped) {
  return ls_graph_first_output(graph, LS_OP_EMBEDDING,
                               &(ls_attributes){.scale = 1, .skipped = skipped},
                               (ls_tensor_id[]){table, ids}, NULL);
}

ls_tensor_id ls_graph_restore_scales(ls_graph *graph, ls_tensor_id blocks, ls_tensor_id scales) {
  const ls_tensor *stored = ls_graph_tensor(graph, blocks);
  LS_ASSERT(ls_precision_is_double(stored->precision) &&
            ls_graph_tensor(graph, scales)->precision == LS_SCALES);
  return ls_graph_first_output(graph, LS_OP_RESTORE_SCALES,
                               &(ls_attributes){.columns = stored->dims[1]},
                               (ls_tensor_id[]){blocks, scales}, NULL);
}

ls_tensor_id ls_graph_dequantize(ls_graph *graph, ls_tensor_id blocks) {
  return ls_graph_first_output(graph, LS_OP_DEQUANTIZE, NULL, &blocks, NULL);
}

ls_tensor_id ls_graph_linear(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight) {
  const bool blocks = ls_precision_is_blocks(ls_graph_tensor(graph, weight)->precision);
  return ls_graph_first_output(graph, blocks ? LS_OP_LINEAR_BLOCKS : LS_OP_LINEAR, NULL,
                               (ls_tensor_id[]){x, weight}, NULL);
}

ls_tensor_id ls_graph_fp8_rows(ls_graph *graph, ls_tensor_id x, ls_fp8 format) {
  for (int n = graph->nodes.count - 1; n >= 0; n--) {
    const ls_node *node = &graph->nodes.items[n];
    if (node->segment != graph->segment || node->backward != of_backward_pass(graph)) break;
    if (node->kind == LS_OP_ROW_FP8 && node->in[0].index == x.index &&
        node->attributes.fp8 == format)
      return node->out[0];
  }
  ls_tensor_id amax = ls_graph_first_output(graph, LS_OP_ROW_AMAX, NULL, &x, NULL);
  return ls_graph_first_output(graph, LS_OP_ROW_FP8, &(ls_attributes){.fp8 = format},
                               (ls_tensor_id[]){x, amax}, NULL);
}

ls_tensor_id ls_graph_fp8_linear(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight) {
  const ls_attributes attributes = {.fp8 = LS_FP8_E4M3};
  ls_tensor_id rows = ls_graph_fp8_rows(graph, x, LS_FP8_E4M3);
  ls_tensor_id amax = ls_graph_first_output(graph, LS_OP_AMAX, NULL, &weight, NULL);
  weight =
      ls_graph_first_output(graph, LS_OP_FP8, &attributes, (ls_tensor_id[]){weight, amax}, NULL);
  return ls_graph_first_output(graph, LS_OP_LINEAR, &attributes, (ls_tensor_id[]){rows, weight},
                               NULL);
}

const bool *ls_graph_rounded(const ls_graph *graph) {
  bool *rounded = LS_NEW_ARRAY(graph->arena, bool, graph->parameters.count + 1);
  bool *read = LS_NEW_ARRAY(graph->arena, bool, graph->parameters.count + 1); /* as it is */
  for (int n = 0; n < graph->nodes.count; n++) {
    const ls_node *node = &graph->nodes.items[n];
    const bool rounds = node->kind == LS_OP_FP8 && node->attributes.fp8 == LS_FP8_E4M3;
    for (int i = 0; i < node->inputs; i++) {
      const ls_tensor *tensor = ls_graph_tensor(graph, node->in[i]);
      if (tensor->role != LS_ROLE_PARAMETER) continue;
      rounded[tensor->parameter] |= rounds;
      read[tensor->parameter] |= !rounds && node->kind != LS_OP_AMAX;
    }
  }
  for (int p = 0; p < graph->parameters.count; p++) rounded[p] &= !read[p];
  return rounded;
}

ls_tensor_id ls_graph_bias(ls_graph *graph, ls_tensor_id x, ls_tensor_id bias) {
  return ls_graph_first_output(graph, LS_OP_BIAS, NULL, (ls_tensor_id[]){x, bias}, NULL);
}

ls_tensor_id ls_graph_add(ls_graph *graph, ls_tensor_id a, ls_tensor_id b) {
  return ls_graph_first_output(graph, LS_OP_ADD, NULL, (ls_tensor_id[]){a, b}, NULL);
}

ls_tensor_id ls_graph_scale(ls_graph *graph, ls_tensor_id x, double scale) {
  return ls_graph_first_output(graph, LS_OP_SCALE, &(ls_attributes){.scale = scale}, &x, NULL);
}

ls_tensor_id ls_graph_layernorm(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight,
                                ls_tensor_id bias, double epsilon) {
  return ls_graph_first_output(graph, LS_OP_LAYERNORM, &(ls_attributes){.epsilon = epsilon},
                               (ls_tensor_id[]){x, weight, bias}, NULL);
}

ls_tensor_id ls_graph_rmsnorm(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight, double epsilon,
                              double offset) {
  const ls_attributes attributes = {.epsilon = epsilon, .weight_offset = offset};
  return ls_graph_first_output(graph, LS_OP_RMSNORM, &attributes, (ls_tensor_id[]){x, weight},
                               NULL);
}

ls_tensor_id ls_graph_headnorm(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight, double epsilon,
                               double offset) {
  const ls_attributes attributes = {.head_dim = ls_graph_tensor(graph, weight)->dims[0],
                                    .epsilon = epsilon,
                                    .weight_offset = offset};
  return ls_graph_first_output(graph, LS_OP_HEADNORM, &attributes, (ls_tensor_id[]){x, weight},
                               NULL);
}

ls_tensor_id ls_graph_cut_rmsnorm(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight,
                                  double epsilon) {
  const ls_attributes attributes = {.epsilon = epsilon,
                                    .columns = ls_graph_tensor(graph, x)->dims[1]};
  ls_tensor_id squares = ls_graph_first_output(graph, LS_OP_ROW_SQUARES, NULL, &x, NULL);
  return ls_graph_first_output(graph, LS_OP_ROW_SCALE, &attributes,
                               (ls_tensor_id[]){x, weight, squares}, NULL);
}

ls_tensor_id ls_graph_rope_table(ls_graph *graph, ls_tensor_id positions,
                                 const ls_attributes *attributes) {
  return ls_graph_first_output(graph, LS_OP_ROPE_TABLE, attributes, &positions,
                               (int64_t[]){0, 2 * attributes->rope_pairs});
}

ls_tensor_id ls_graph_rope(ls_graph *graph, ls_tensor_id x, ls_tensor_id table, int64_t head_dim) {
  return ls_graph_rope_columns(graph, x, table, &(ls_attributes){.head_dim = head_dim});
}

ls_tensor_id ls_graph_rope_columns(ls_graph *graph, ls_tensor_id x, ls_tensor_id table,
                                   const ls_attributes *attributes) {
  return ls_graph_first_output(graph, LS_OP_ROPE, attributes, (ls_tensor_id[]){x, table}, NULL);
}

ls_tensor_id ls_graph_heads(ls_graph *graph, ls_tensor_id x, ls_tensor_id shared, int64_t head_dim,
                            int64_t columns) {
  const int64_t before = ls_graph_tensor(graph, x)->dims[1];
  LS_ASSERT(before % head_dim == 0);
  return ls_graph_first_output(
      graph, LS_OP_HEADS, &(ls_attributes){.head_dim = head_dim, .columns = columns},
      (ls_tensor_id[]){x, shared}, (int64_t[]){0, before / head_dim * columns});
}

ls_tensor_id ls_graph_heads_up(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight,
                               int64_t head_dim) {
  const int64_t heads = ls_graph_tensor(graph, x)->dims[1] / head_dim;
  const int64_t *dims = ls_graph_tensor(graph, weight)->dims;
  const int64_t columns = dims[1] + head_dim - dims[0] / heads;
  LS_ASSERT(dims[0] % heads == 0 && dims[0] / heads <= head_dim);
  return ls_graph_first_output(graph, LS_OP_HEADS_UP,
                               &(ls_attributes){.head_dim = head_dim, .columns = columns},
                               (ls_tensor_id[]){x, weight}, (int64_t[]){0, heads * columns});
}

ls_tensor_id ls_graph_heads_down(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight,
                                 int64_t head_dim) {
  LS_ASSERT(ls_graph_tensor(graph, weight)->dims[1] <= head_dim);
  return ls_graph_first_output(graph, LS_OP_HEADS_DOWN, &(ls_attributes){.head_dim = head_dim},
                               (ls_tensor_id[]){x, weight}, NULL);
}

ls_tensor_id ls_graph_attention(ls_graph *graph, ls_tensor_id q, ls_tensor_id k, ls_tensor_id v,
                                const ls_attributes *attributes) {
  return ls_graph_placed_attention(graph, q, k, v, none, none, attributes);
}

ls_tensor_id ls_graph_document_attention(ls_graph *graph, ls_tensor_id q, ls_tensor_id k,
                                         ls_tensor_id v, ls_tensor_id positions,
                                         const ls_attributes *attributes) {
  return ls_graph_placed_attention(graph, q, k, v, positions, none, attributes);
}

ls_tensor_id ls_graph_placed_attention(ls_graph *graph, ls_tensor_id q, ls_tensor_id k,
                                       ls_tensor_id v, ls_tensor_id positions, ls_tensor_id places,
                                       const ls_attributes *attributes) {
  return ls_graph_sink_attention(graph, q, k, v, none, positions, places, attributes);
}

ls_tensor_id ls_graph_sink_attention(ls_graph *graph, ls_tensor_id q, ls_tensor_id k,
                                     ls_tensor_id v, ls_tensor_id sinks, ls_tensor_id positions,
                                     ls_tensor_id places, const ls_attributes *attributes) {
  if (graph->turns > 0 && exists(places))
    return ls_graph_ring_attention(graph, q, k, v, sinks, positions, places, attributes);
  ls_attributes with = *attributes;
  if (with.dropout > 0) with.site = ++graph->dropouts;
  const ls_tensor_id draws = with.dropout > 0 ? graph->draws : none;
  LS_ASSERT(!with.two_way || exists(places) == exists(graph->remaining));
  const ls_tensor_id behind = with.two_way && exists(places) ? graph->remaining : draws;
  const ls_tensor_id in[] = {q,         k,      v,      sinks,
                             positions, places, behind, with.two_way ? draws : none};
  if (exists(sinks)) return ls_graph_first_output(graph, LS_OP_SINK_ATTENTION, &with, in, NULL);
  const ls_tensor_id plain[] = {q, k, v, in[4], in[5], in[6], in[7]};
  return ls_graph_first_output(graph, LS_OP_ATTENTION, &with, plain, NULL);
}

ls_tensor_id ls_graph_cached_attention(ls_graph *graph, ls_tensor_id q, ls_tensor_id k,
                                       ls_tensor_id v, ls_tensor_id sinks, ls_tensor_id cache_k,
                                       ls_tensor_id cache_v, ls_tensor_id positions,
                                       ls_tensor_id places, const ls_attributes *attributes) {
  LS_ASSERT(!exists(sinks) || exists(places));
  const ls_tensor_id in[] = {q, k, v, cache_k, cache_v, positions, places, sinks};
  if (attributes->turns < 2)
    return ls_graph_first_output(graph, LS_OP_CACHED_ATTENTION, attributes, in, NULL);
  const int node = ls_graph_node(graph, LS_OP_CACHED_PART, attributes, in, LS_MAX_OUTPUTS,
                                 (int64_t[]){attributes->turns});
  const ls_tensor_id *parts = graph->nodes.items[node].out;
  return ls_graph_first_output(graph, LS_OP_CACHED_END, attributes,
                               (ls_tensor_id[]){parts[0], parts[1], sinks}, NULL);
}

ls_tensor_id ls_graph_gelu(ls_graph *graph, ls_tensor_id x, ls_activation which) {
  return ls_graph_first_output(graph, LS_OP_GELU, &(ls_attributes){.activation = which}, &x, NULL);
}

ls_tensor_id ls_graph_swiglu(ls_graph *graph, ls_tensor_id gate, ls_tensor_id up,
                             ls_activation of_gate) {
  return ls_graph_first_output(graph, LS_OP_SWIGLU, &(ls_attributes){.activation = of_gate},
                               (ls_tensor_id[]){gate, up}, NULL);
}

ls_tensor_id ls_graph_paired_glu(ls_graph *graph, ls_tensor_id x, double limit, double slope) {
  LS_ASSERT(limit > 0);
  return ls_graph_first_output(graph, LS_OP_PAIRED_GLU,
                               &(ls_attributes){.gate_limit = limit, .gate_slope = slope}, &x,
                               NULL);
}

ls_tensor_id ls_graph_softcap(ls_graph *graph, ls_tensor_id x, double cap) {
  return ls_graph_first_output(graph, LS_OP_SOFTCAP, &(ls_attributes){.softcap = cap}, &x, NULL);
}

ls_tensor_id ls_graph_dropout(ls_graph *graph, ls_tensor_id x, double rate) {
  if (!(rate > 0)) return x;
  LS_ASSERT(exists(graph->draws));
  return ls_graph_first_output(graph, LS_OP_DROPOUT,
                               &(ls_attributes){.dropout = rate, .site = ++graph->dropouts},
                               (ls_tensor_id[]){x, graph->draws}, NULL);
}

/* What a loss is a mean over: what an op counts of labels and, where there is one, another input.
 */
static void count_by(ls_graph *graph, ls_op_kind kind, ls_tensor_id second) {
  graph->counting =
      (ls_node){.kind = kind, .inputs = second.index < 0 ? 1 : 2, .in = {graph->labels, second}};
  graph->loss_scale = ls_graph_cell(graph, "loss_scale");
}

void ls_graph_cross_entropy(ls_graph *graph, ls_tensor_id logits) {
  ls_tensor_id labels = graph->labels;
  ls_tensor_id max = ls_graph_first_output(graph, LS_OP_XENT_MAX, NULL, &logits, NULL);
  int sums = ls_graph_node(graph, LS_OP_XENT_SUM, NULL, (ls_tensor_id[]){logits, max, labels},
                           LS_MAX_OUTPUTS, NULL);
  const ls_node *node = &graph->nodes.items[sums];
  ls_tensor_id sum = node->out[0], target = node->out[1];
  graph->logits = logits;
  graph->loss = ls_graph_first_output(graph, LS_OP_XENT_LOSS, NULL,
                                      (ls_tensor_id[]){max, sum, target, labels}, NULL);
  count_by(graph, LS_OP_COUNT_VALID, none);
}

void ls_graph_weighted_cross_entropy(ls_graph *graph, ls_tensor_id logits) {
  const ls_tensor_id labels = graph->labels;
  const int64_t rows = ls_graph_tensor(graph, logits)->dims[0];
  graph->weights = add_source(graph, "weights", LS_ROLE_INPUT, LS_DOUBLE, rows, 0);
  ls_tensor_id max = ls_graph_first_output(graph, LS_OP_XENT_MAX, NULL, &logits, NULL);
  int sums = ls_graph_node(graph, LS_OP_XENT_SUM_EACH, NULL, (ls_tensor_id[]){logits, max, labels},
                           LS_MAX_OUTPUTS, NULL);
  const ls_node *node = &graph->nodes.items[sums];
  ls_tensor_id sum = node->out[0], target = node->out[1];
  graph->logits = logits;
  graph->loss =
      ls_graph_first_output(graph, LS_OP_XENT_LOSS_EACH, NULL,
                            (ls_tensor_id[]){max, sum, target, labels, graph->weights}, NULL);
  count_by(graph, LS_OP_COUNT_WEIGHTS, graph->weights);
}

void ls_graph_binary_cross_entropy(ls_graph *graph, ls_tensor_id logits, bool weighted) {
  const int64_t rows = ls_graph_tensor(graph, logits)->dims[0];
  const int64_t classes = ls_graph_tensor(graph, logits)->dims[1];
  const ls_attributes attributes = {.scale = 1 / (double)classes};
  graph->sets = add_source(graph, "sets", LS_ROLE_INPUT, LS_INDEX, rows, ls_set_words(classes));
  if (weighted) {
    graph->weights = add_source(graph, "weights", LS_ROLE_INPUT, LS_DOUBLE, classes, 0);
    ls_graph_tensor(graph, graph->weights)->whole = true;
  }
  ls_tensor_id means = ls_graph_first_output(
      graph, LS_OP_BCE_SUM, &attributes,
      (ls_tensor_id[]){logits, graph->labels, graph->sets, graph->weights}, NULL);
  graph->logits = logits;
  graph->loss = ls_graph_first_output(graph, LS_OP_BCE_LOSS, NULL,
                                      (ls_tensor_id[]){means, graph->labels}, NULL);
  count_by(graph, LS_OP_COUNT_VALID, none);
}

/* The loss of sums that `kind` makes of logits, their max and what the teacher says. */
static void distill(ls_graph *graph, ls_op_kind kind, const ls_attributes *attributes,
                    const ls_tensor_id in[5]) {
  ls_tensor_id sums =
      ls_graph_first_output(graph, kind, attributes, in, (int64_t[]){0, LS_DISTILL_SUMS});
  const int loss =
      ls_graph_node(graph, LS_OP_DISTILL_LOSS, attributes,
                    (ls_tensor_id[]){in[1], sums, graph->labels}, LS_MAX_OUTPUTS, NULL);
  const ls_tensor_id *out = graph->nodes.items[loss].out;
  graph->logits = in[0];
  graph->loss = out[0];
  graph->rewards[0] = out[1];
  graph->rewards[1] = out[2];
  count_by(graph, LS_OP_COUNT_VALID, none);
}

void ls_graph_distillation(ls_graph *graph, ls_tensor_id logits, ls_tensor_id teacher,
                           double temperature, double share) {
  const ls_attributes attributes = {.softmax_scale = 1 / temperature, .scale = share};
  ls_tensor_id max = ls_graph_first_output(graph, LS_OP_XENT_MAX, NULL, &logits, NULL);
  ls_tensor_id its_max = ls_graph_first_output(graph, LS_OP_XENT_MAX, NULL, &teacher, NULL);
  distill(graph, LS_OP_DISTILL_SUM, &attributes,
          (ls_tensor_id[]){logits, max, teacher, its_max, graph->labels});
}

void ls_graph_distillation_of_top(ls_graph *graph, ls_tensor_id logits, int64_t top,
                                  double temperature, double share) {
  const ls_attributes attributes = {.softmax_scale = 1 / temperature, .scale = share};
  const int64_t rows = ls_graph_tensor(graph, logits)->dims[0];
  graph->top_ids = add_source(graph, "top_ids", LS_ROLE_INPUT, LS_INDEX, rows, top);
  graph->top_below = add_source(graph, "top_below", LS_ROLE_INPUT, LS_ACCUMULATE, rows, top);
  ls_tensor_id max = ls_graph_first_output(graph, LS_OP_XENT_MAX, NULL, &logits, NULL);
  distill(graph, LS_OP_DISTILL_TOP_SUM, &attributes,
          (ls_tensor_id[]){logits, max, graph->top_ids, graph->top_below, graph->labels});
}

ls_tensor_id ls_graph_token_rows(ls_graph *graph) {
  if (graph->places.index < 0) return none;
  return ls_graph_first_output(graph, LS_OP_TOKEN_ROWS, NULL, &graph->places, NULL);
}

static void prefer(ls_graph *graph, ls_tensor_id logits, const ls_attributes *attributes) {
  const ls_tensor_id labels = graph->labels, positions = graph->positions;
  const int64_t rows = ls_graph_tensor(graph, logits)->dims[0];
  const ls_attributes told = {.sequence = graph->sequence, .dpo_beta = attributes->dpo_beta};
  graph->reference = add_source(graph, "reference", LS_ROLE_INPUT, LS_DOUBLE, rows, 0);
  graph->weights = add_source(graph, "weights", LS_ROLE_INPUT, LS_DOUBLE, rows, 0);
  ls_tensor_id max = ls_graph_first_output(graph, LS_OP_XENT_MAX, NULL, &logits, NULL);
  int sums = ls_graph_node(graph, LS_OP_XENT_SUM_EACH, NULL, (ls_tensor_id[]){logits, max, labels},
                           LS_MAX_OUTPUTS, NULL);
  ls_tensor_id sum = graph->nodes.items[sums].out[0], target = graph->nodes.items[sums].out[1];
  const ls_tensor_id tokens = ls_graph_token_rows(graph);
  int loss =
      ls_graph_node(graph, LS_OP_PAIR_LOSS, attributes,
                    (ls_tensor_id[]){max, sum, target, labels, positions, graph->reference, tokens},
                    LS_MAX_OUTPUTS, NULL);
  graph->logits = logits;
  graph->loss = graph->nodes.items[loss].out[0];
  graph->answers = graph->nodes.items[loss].out[1];
  int rewards = ls_graph_node(graph, LS_OP_PAIR_REWARDS, &told,
                              (ls_tensor_id[]){graph->answers, labels, positions, tokens},
                              LS_MAX_OUTPUTS, NULL);
  memcpy(graph->rewards, graph->nodes.items[rewards].out, sizeof graph->rewards);
  count_by(graph, LS_OP_COUNT_WEIGHTS, graph->weights);
}

void ls_graph_preferences(ls_graph *graph, ls_tensor_id logits, double beta, double smoothing) {
  prefer(graph, logits,
         &(ls_attributes){.sequence = graph->sequence, .dpo_beta = beta, .smoothing = smoothing});
}

/* The texts' unit vectors, and 1 over their lengths. */
static void make_units(ls_graph *graph, ls_tensor_id x, const ls_text_pairs *of, bool answers,
                       ls_tensor_id units[2]) {
  const int64_t pairs = graph->tokens / graph->sequence * of->pairs;
  const ls_attributes attributes = {.pairs = pairs, .texts = of->texts, .answers = answers};
  const ls_tensor_id sums =
      ls_graph_first_output(graph, LS_OP_TEXT_SUMS, &attributes, (ls_tensor_id[]){x, graph->labels},
                            (int64_t[]){answers ? pairs * (of->texts - 1) : pairs});
  const int node = ls_graph_node(graph, LS_OP_UNIT_ROWS, NULL, &sums, LS_MAX_OUTPUTS, NULL);
  memcpy(units, graph->nodes.items[node].out, 2 * sizeof *units);
}

void ls_graph_tell_texts(ls_graph *graph, ls_tensor_id x, const ls_text_pairs *of) {
  const ls_attributes attributes = {
      .pairs = of->group * of->pairs, .texts = of->texts, .scale = of->scale};
  ls_tensor_id all[4];
  LS_ASSERT(of->texts >= 2 && graph->tokens / graph->sequence % of->group == 0);
  make_units(graph, x, of, false, all);
  make_units(graph, x, of, true, all + 2);
  const int match = ls_graph_node(graph, LS_OP_TEXT_MATCH, &attributes, all, LS_MAX_OUTPUTS, NULL);
  const ls_tensor_id sum = graph->nodes.items[match].out[0];
  const ls_tensor_id own = graph->nodes.items[match].out[1];
  const ls_tensor_id found = graph->nodes.items[match].out[2];
  graph->loss =
      ls_graph_first_output(graph, LS_OP_TEXT_LOSS, NULL, (ls_tensor_id[]){sum, own, all[1]}, NULL);
  graph->rewards[0] = ls_graph_first_output(graph, LS_OP_TEXT_FOUND, NULL, &found, NULL);
  count_by(graph, LS_OP_COUNT_VALID, none);
}

void ls_graph_odds(ls_graph *graph, ls_tensor_id logits, double lambda) {
  prefer(graph, logits,
         &(ls_attributes){.sequence = graph->sequence, .dpo_beta = lambda, .scale = 1});
}
