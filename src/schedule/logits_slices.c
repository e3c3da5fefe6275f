#include "schedule/logits_slices.h"

#include <string.h>

/* Bytes of a slice of logits, fewest rows and most slices. A slice goes through the head's weight
 * twice and adds to all of its gradient: with few rows that takes longer than the products. */
enum { SLICE_BYTES = 64 << 20, LEAST_ROWS = 512, MOST_SLICES = 64 };

typedef struct slicer {
  const ls_sharded *sharded;
  ls_logits_slices *out;
  bool *wide; /* by tensor of the graph */
} slicer;

static bool same_labels(const ls_operand_labels *a, const ls_operand_labels *b) {
  return a->ndim == 2 && b->ndim == 2 && strcmp(a->dim[0], "n") == 0 &&
         strcmp(b->dim[0], "n") == 0 && strcmp(a->dim[1], b->dim[1]) == 0;
}

/* Operands of the same labels as a wide one are as wide. True: another was found. */
static bool spread(slicer *s, const ls_node *node) {
  const ls_op_labels *labels = &s->sharded->graph->op_labels[node->kind];
  const int count = node->inputs + node->outputs;
  bool found = false;
  for (int i = 0; i < count; i++) {
    const ls_tensor_id from = i < node->inputs ? node->in[i] : node->out[i - node->inputs];
    for (int j = 0; j < count && s->wide[from.index]; j++) {
      const ls_tensor_id to = j < node->inputs ? node->in[j] : node->out[j - node->inputs];
      const ls_operand_labels *a =
          i < node->inputs ? &labels->in[i] : &labels->out[i - node->inputs];
      const ls_operand_labels *b =
          j < node->inputs ? &labels->in[j] : &labels->out[j - node->inputs];
      if (s->wide[to.index] || !same_labels(a, b)) continue;
      s->wide[to.index] = found = true;
    }
  }
  return found;
}

/* Logits and what has their shape, of the same segment. */
static void find_wide(slicer *s) {
  const ls_graph *graph = s->sharded->graph;
  const int segment = ls_graph_tensor(graph, graph->logits)->segment;
  s->wide = LS_NEW_ARRAY(s->sharded->arena, bool, graph->tensors.count + 1);
  s->wide[graph->logits.index] = true;
  for (bool found = true; found;) {
    found = false;
    for (int n = 0; n < graph->nodes.count; n++)
      if (graph->nodes.items[n].segment == segment) found |= spread(s, &graph->nodes.items[n]);
  }
}

static bool uses_wide(const slicer *s, const ls_shard_node *node) {
  for (int i = 0; i < node->inputs + node->outputs; i++) {
    const int value = i < node->inputs ? node->in[i] : node->out[i - node->inputs];
    if (s->wide[s->sharded->values.items[value].tensor.index]) return true;
  }
  return false;
}

/* Nodes that use a wide value, and those between two of them: on a path from what one makes to what
 * another reads. What one of them reads that is made in between of other things is made before. */
static void find_nodes(slicer *s) {
  const ls_sharded *sharded = s->sharded;
  ls_logits_slices *out = s->out;
  bool *from = LS_NEW_ARRAY(sharded->arena, bool, sharded->values.count + 1);
  bool *to = LS_NEW_ARRAY(sharded->arena, bool, sharded->values.count + 1);
  bool *behind = LS_NEW_ARRAY(sharded->arena, bool, sharded->nodes.count + 1);
  out->first = -1;
  for (int n = 0; n < sharded->nodes.count; n++) {
    const ls_shard_node *node = &sharded->nodes.items[n];
    out->nodes[n] = behind[n] = uses_wide(s, node);
    for (int i = 0; i < node->inputs; i++) behind[n] |= from[node->in[i]];
    for (int o = 0; o < node->outputs; o++) from[node->out[o]] = behind[n];
    if (!out->nodes[n]) continue;
    if (out->first < 0) out->first = n;
    out->last = n;
  }
  for (int n = out->last; n >= out->first; n--) {
    const ls_shard_node *node = &sharded->nodes.items[n];
    bool needed = out->nodes[n];
    for (int o = 0; o < node->outputs; o++) needed |= to[node->out[o]];
    if (!needed) continue;
    out->nodes[n] = behind[n];
    out->before[n] = !behind[n];
    for (int i = 0; i < node->inputs; i++) to[node->in[i]] = true;
  }
}

static int64_t stored_rows(const ls_sharded *sharded, int value) {
  const ls_shard_value *about = &sharded->values.items[value];
  const ls_tensor *tensor = ls_graph_tensor(sharded->graph, about->tensor);
  return ls_mesh_part(&sharded->mesh, 0, &about->placement, 0, tensor->dims[0]).stored;
}

/* Whether the node may run for some rows: its op takes tokens one by one, and a rank has as many of
 * each operand. What is reduced is reduced row by row. */
static bool may_slice(const ls_sharded *sharded, const ls_shard_node *node, int64_t rows) {
  if (node->backward) return false;
  if (node->collective != LS_COLLECTIVE_NONE)
    return node->collective == LS_ALL_REDUCE && stored_rows(sharded, node->in[0]) == rows;
  const ls_op_labels *labels = &sharded->graph->op_labels[node->kind];
  const ls_op *row = ls_op_row(node->kind);
  if (node->kind == LS_OP_COPY || !ls_op_takes_rows(row)) return false;
  for (int i = 0; i < node->inputs; i++)
    if (ls_operand_dim(&labels->in[i], 'n') == 0 && stored_rows(sharded, node->in[i]) != rows)
      return false;
  return true;
}

static void find_inside(slicer *s) {
  const ls_sharded *sharded = s->sharded;
  bool *outside = LS_NEW_ARRAY(sharded->arena, bool, sharded->values.count + 1);
  for (int n = 0; n < sharded->nodes.count; n++) {
    const ls_shard_node *node = &sharded->nodes.items[n];
    const ls_op_labels *labels = &sharded->graph->op_labels[node->kind];
    for (int i = 0; i < node->inputs; i++)
      if (!s->out->nodes[n]) outside[node->in[i]] = true;
    for (int o = 0; o < node->outputs; o++) {
      const bool tokens =
          node->collective != LS_COLLECTIVE_NONE || ls_operand_dim(&labels->out[o], 'n') == 0;
      if (s->out->nodes[n] && tokens) s->out->inside[node->out[o]] = true;
    }
  }
  for (int v = 0; v < sharded->values.count; v++) {
    if (outside[v]) s->out->inside[v] = false;
    s->out->wide[v] = s->out->inside[v] && s->wide[sharded->values.items[v].tensor.index];
  }
}

/* Bytes of a row of the widest value. */
static int64_t row_bytes(const slicer *s) {
  const ls_sharded *sharded = s->sharded;
  int64_t most = 1;
  for (int v = 0; v < sharded->values.count; v++) {
    const ls_shard_value *value = &sharded->values.items[v];
    if (!s->wide[value->tensor.index]) continue;
    const ls_tensor *tensor = ls_graph_tensor(sharded->graph, value->tensor);
    const int64_t columns =
        ls_mesh_part(&sharded->mesh, 0, &value->placement, 1, tensor->dims[1]).stored;
    const int64_t bytes = ls_logits_row_elements(columns, &sharded->layout) *
                          (int64_t)ls_dtype_bytes(sharded->layout.compute);
    if (bytes > most) most = bytes;
  }
  return most;
}

int64_t ls_logits_slices_rows(int64_t all, int64_t row_bytes, const ls_layout *layout) {
  const int64_t asked = layout->logits_rows;
  const int64_t bytes = layout->logits_bytes ? layout->logits_bytes : SLICE_BYTES;
  int64_t rows = asked ? asked : LEAST_ROWS;
  while (!asked && (2 * rows * row_bytes <= bytes || rows * MOST_SLICES < all)) rows *= 2;
  return rows < all ? rows : 0;
}

int64_t ls_logits_row_elements(int64_t columns, const ls_layout *layout) {
  const int64_t multiple = layout->logits_multiple ? layout->logits_multiple : 1;
  return (columns + multiple - 1) / multiple * multiple;
}

static bool all_may_slice(const slicer *s) {
  for (int n = s->out->first; n <= s->out->last; n++)
    if (s->out->nodes[n] && !may_slice(s->sharded, &s->sharded->nodes.items[n], s->out->all))
      return false;
  return true;
}

static bool make(slicer *s) {
  const ls_graph *graph = s->sharded->graph;
  if (graph->loss.index < 0 || graph->logits.index < 0) return false;
  find_wide(s);
  find_nodes(s);
  s->out->all = stored_rows(s->sharded, s->sharded->nodes.items[s->out->first].out[0]);
  s->out->rows = ls_logits_slices_rows(s->out->all, row_bytes(s), &s->sharded->layout);
  if (!s->out->rows || !all_may_slice(s)) return false;
  find_inside(s);
  return true;
}

ls_logits_slices *ls_logits_slices_make(const ls_sharded *sharded) {
  ls_logits_slices *out = LS_NEW(sharded->arena, ls_logits_slices);
  out->nodes = LS_NEW_ARRAY(sharded->arena, bool, sharded->nodes.count + 1);
  out->before = LS_NEW_ARRAY(sharded->arena, bool, sharded->nodes.count + 1);
  out->inside = LS_NEW_ARRAY(sharded->arena, bool, sharded->values.count + 1);
  out->wide = LS_NEW_ARRAY(sharded->arena, bool, sharded->values.count + 1);
  slicer s = {.sharded = sharded, .out = out};
  if (!make(&s)) {
    out->rows = out->all = 0;
    memset(out->nodes, 0, (size_t)sharded->nodes.count * sizeof *out->nodes);
    memset(out->before, 0, (size_t)sharded->nodes.count * sizeof *out->before);
  }
  return out;
}
