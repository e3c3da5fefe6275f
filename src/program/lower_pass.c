#include <string.h>

#include "program/lower.h"

ls_instruction *ls_lower_op(ls_lowering *lowering, ls_op_kind kind) {
  ls_program *program = lowering->program;
  ls_instruction *made = LS_APPEND(program->arena, &program->instructions);
  *made = (ls_instruction){.kind = kind, .wait = -1};
  return made;
}

ls_instruction *ls_lower_collective(ls_lowering *lowering, ls_collective collective, ls_axes axes,
                                    int source, int target, int64_t count, const char *reason) {
  ls_instruction *made = ls_lower_op(lowering, LS_OP_COPY);
  made->collective = collective;
  made->axes = axes;
  made->count = count;
  made->queue = LS_QUEUE_COMMUNICATE;
  made->inputs = made->outputs = 1;
  made->in[0] = source;
  made->out[0] = target;
  made->reason = reason;
  return made;
}

static ls_dtype value_dtype(const ls_lowering *lowering, const ls_tensor *tensor) {
  switch (tensor->precision) {
    case LS_COMPUTE: return lowering->sharded->layout.compute;
    case LS_ACCUMULATE: return lowering->accumulate;
    case LS_INDEX: return LS_I32;
    case LS_DOUBLE: break;
  }
  return LS_F64;
}

static int64_t stored_elements(const ls_lowering *lowering, int sharded_value) {
  const ls_shard_value *value = &lowering->sharded->values.items[sharded_value];
  const ls_tensor *tensor = ls_graph_tensor(lowering->sharded->graph, value->tensor);
  int64_t elements = 1;
  for (int d = 0; d < tensor->ndim; d++)
    elements *=
        ls_mesh_part(&lowering->sharded->mesh, 0, &value->placement, d, tensor->dims[d]).stored;
  return elements;
}

/* Elements a collective moves: pieces are whole rows of the cut tensor, the last ones padded, so
 * that every piece has the same length and the rows of the whole stay contiguous. */
static int64_t collective_count(const ls_lowering *lowering, const ls_shard_node *node) {
  const int64_t ranks = ls_mesh_size(&lowering->sharded->mesh, node->axes);
  switch (node->collective) {
    case LS_REDUCE_SCATTER: return ranks * stored_elements(lowering, node->out[0]);
    case LS_ALL_GATHER: return ranks * stored_elements(lowering, node->in[0]);
    default: return stored_elements(lowering, node->in[0]);
  }
}

/* The largest use of a value's memory by a collective, padding included. */
static int64_t padded_bytes(const ls_lowering *lowering, int sharded_value, size_t element_bytes) {
  int64_t elements = stored_elements(lowering, sharded_value);
  for (int n = 0; n < lowering->sharded->nodes.count; n++) {
    const ls_shard_node *node = &lowering->sharded->nodes.items[n];
    if (node->collective == LS_COLLECTIVE_NONE) continue;
    if (node->in[0] != sharded_value && node->out[0] != sharded_value) continue;
    const bool whole = (node->collective == LS_REDUCE_SCATTER && node->in[0] == sharded_value) ||
                       (node->collective == LS_ALL_GATHER && node->out[0] == sharded_value);
    const int64_t count = collective_count(lowering, node);
    if (whole && count > elements) elements = count;
  }
  return elements * (int64_t)element_bytes;
}

static bool kept_for_backward(const ls_lowering *lowering, int sharded_value, bool backward) {
  const int last = lowering->last_use[sharded_value];
  return !backward && last >= 0 && lowering->sharded->nodes.items[last].backward;
}

/* The storage of the node's input that output 0 may take over, or -1. */
static int taken_over(const ls_lowering *lowering, const ls_shard_node *node, int n,
                      int64_t bytes) {
  int input = ls_op_row(node->kind)->in_place - 1;
  if (node->collective == LS_ALL_REDUCE)
    input = 0;
  else if (node->collective != LS_COLLECTIVE_NONE)
    return -1;
  if (input < 0 || lowering->last_use[node->in[input]] != n) return -1;
  const int value = lowering->value_of[node->in[input]];
  const ls_value *from = &lowering->program->values.items[value];
  const ls_storage_plan *plan = &lowering->plans.items[from->storage];
  const bool activation =
      plan->category == LS_CATEGORY_TEMPORARIES || plan->category == LS_CATEGORY_ACTIVATIONS;
  const bool fits = lowering->program->storages.items[from->storage].bytes == bytes;
  return plan->pool == LS_POOL_WORK && activation && fits ? from->storage : -1;
}

static int make_value(ls_lowering *lowering, const ls_shard_node *node, int n, int output) {
  ls_program *program = lowering->program;
  const int sharded_value = node->out[output];
  const ls_shard_value *about = &lowering->sharded->values.items[sharded_value];
  const ls_graph *graph = lowering->sharded->graph;
  const ls_tensor *tensor = ls_graph_tensor(graph, about->tensor);
  if (about->tensor.index == graph->loss.index) return program->cell[LS_CELL_LOSS_SUM];
  ls_value value = {.name = tensor->name,
                    .dtype = value_dtype(lowering, tensor),
                    .ndim = tensor->ndim,
                    .placement = about->placement};
  memcpy(value.global, tensor->dims, sizeof value.global);
  const int64_t bytes = padded_bytes(lowering, sharded_value, ls_dtype_bytes(value.dtype));
  const bool kept = kept_for_backward(lowering, sharded_value, node->backward);
  value.storage = output == 0 ? taken_over(lowering, node, n, bytes) : -1;
  if (value.storage < 0)
    value.storage =
        ls_lower_storage(lowering, tensor->name, LS_POOL_WORK,
                         kept ? LS_CATEGORY_ACTIVATIONS : LS_CATEGORY_TEMPORARIES, bytes);
  else if (kept)
    lowering->plans.items[value.storage].category = LS_CATEGORY_ACTIVATIONS;
  return ls_lower_value(lowering, &value);
}

/* Inputs that are neither parameters nor model inputs exist from outside: cells and caches. */
static int source_value(ls_lowering *lowering, int sharded_value) {
  const ls_shard_value *about = &lowering->sharded->values.items[sharded_value];
  const ls_tensor *tensor = ls_graph_tensor(lowering->sharded->graph, about->tensor);
  if (tensor->role == LS_ROLE_CELL) return lowering->program->cell[LS_CELL_LOSS_SCALE];
  LS_ASSERT(tensor->role == LS_ROLE_STATE);
  ls_value value = {.name = tensor->name,
                    .dtype = value_dtype(lowering, tensor),
                    .ndim = tensor->ndim,
                    .placement = about->placement};
  memcpy(value.global, tensor->dims, sizeof value.global);
  value.storage = ls_lower_storage(
      lowering, tensor->name, LS_POOL_STATE, LS_CATEGORY_CACHES,
      stored_elements(lowering, sharded_value) * (int64_t)ls_dtype_bytes(value.dtype));
  return ls_lower_value(lowering, &value);
}

static ls_write_mode write_mode(const ls_lowering *lowering, const ls_shard_node *node,
                                int output) {
  const ls_graph *graph = lowering->sharded->graph;
  const ls_tensor_id id = lowering->sharded->values.items[node->out[output]].tensor;
  if (id.index == graph->loss.index) return LS_ADD_AFTER_FIRST;
  if (ls_graph_tensor(graph, id)->role != LS_ROLE_GRADIENT) return LS_WRITE;
  if (node->accumulate[output]) return LS_ADD;
  return ls_schedule_reduces_each(lowering->sharded) ? LS_WRITE : LS_ADD_AFTER_FIRST;
}

static void lower_node(ls_lowering *lowering, int n) {
  const ls_shard_node *node = &lowering->sharded->nodes.items[n];
  ls_instruction made = {.collective = node->collective,
                         .kind = node->kind,
                         .attributes = node->attributes,
                         .axes = node->axes,
                         .reduce = node->reduce,
                         .wait = -1,
                         .inputs = node->inputs,
                         .outputs = node->outputs,
                         .reason = node->reason};
  if (node->collective != LS_COLLECTIVE_NONE) {
    made.queue = LS_QUEUE_COMMUNICATE;
    made.count = collective_count(lowering, node);
  }
  for (int i = 0; i < node->inputs; i++) {
    int *value = &lowering->value_of[node->in[i]];
    if (*value < 0) *value = source_value(lowering, node->in[i]);
    made.in[i] = *value;
  }
  for (int o = 0; o < node->outputs; o++) {
    int *value = &lowering->value_of[node->out[o]];
    if (*value < 0) *value = make_value(lowering, node, n, o);
    made.out[o] = *value;
    made.write[o] = write_mode(lowering, node, o);
  }
  *LS_APPEND(lowering->program->arena, &lowering->program->instructions) = made;
}

void ls_lower_pass(ls_lowering *lowering, int segment, bool backward) {
  for (int n = 0; n < lowering->sharded->nodes.count; n++) {
    const ls_shard_node *node = &lowering->sharded->nodes.items[n];
    if (node->segment == segment && node->backward == backward) lower_node(lowering, n);
  }
}
