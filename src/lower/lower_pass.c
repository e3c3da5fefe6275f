#include <string.h>

#include "lower/lower.h"
#include "shard/resolve.h"

ls_instruction *ls_lower_op(ls_lowering *lowering, ls_op_kind kind) {
  ls_program *program = lowering->program;
  ls_instruction *made = LS_APPEND(program->arena, &program->instructions);
  *made = (ls_instruction){.kind = kind, .peer = -1, .wait = -1};
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

/* Whether operand `i` of a node in slices, inputs first, has tokens and so rows of the slice. */
static bool has_tokens(const ls_lowering *lowering, const ls_shard_node *node, int i) {
  if (node->collective != LS_COLLECTIVE_NONE) return true;
  const ls_op_labels *labels = &lowering->sharded->graph->op_labels[node->kind];
  const ls_operand_labels *operand =
      i < node->inputs ? &labels->in[i] : &labels->out[i - node->inputs];
  return ls_operand_dim(operand, 'n') == 0;
}

/* The rows of the slice at hand, of a value that holds all or has held those of the first. */
static int rows_of(ls_lowering *lowering, int sharded_value) {
  int *made = &lowering->of_slice[sharded_value];
  if (*made >= 0) return *made;
  ls_value value = lowering->program->values.items[lowering->value_of[sharded_value]];
  if (!value.rows) {
    const ls_local local =
        ls_program_local(lowering->program, 0, lowering->value_of[sharded_value]);
    int64_t row = (int64_t)ls_dtype_bytes(value.dtype);
    for (int d = 1; d < value.ndim; d++) row *= local.dims[d];
    value.offset += lowering->first_row * row;
  }
  value.first_row = lowering->first_row;
  value.rows = lowering->rows;
  *made = ls_lower_value(lowering, &value);
  return *made;
}

static ls_dtype value_dtype(const ls_lowering *lowering, const ls_tensor *tensor) {
  return ls_layout_dtype(&lowering->sharded->layout, tensor->precision);
}

int64_t ls_lower_elements(const ls_sharded *sharded, int sharded_value) {
  const ls_shard_value *value = &sharded->values.items[sharded_value];
  return ls_placement_elements(&sharded->mesh, &value->placement,
                               ls_graph_tensor(sharded->graph, value->tensor));
}

/* Elements a collective moves: pieces are whole rows of the cut tensor, the last ones padded, so
 * that every piece has the same length and the rows of the whole stay contiguous. */
static int64_t collective_count(const ls_sharded *sharded, const ls_shard_node *node) {
  const int64_t ranks = ls_mesh_size(&sharded->mesh, node->axes);
  switch (node->collective) {
    case LS_REDUCE_SCATTER: return ranks * ls_lower_elements(sharded, node->out[0]);
    case LS_ALL_GATHER:
    case LS_ALL_TO_ALL: return ranks * ls_lower_elements(sharded, node->in[0]);
    default: return ls_lower_elements(sharded, node->in[0]);
  }
}

const int64_t *ls_lower_padded(const ls_sharded *sharded) {
  int64_t *elements = LS_NEW_ARRAY(sharded->arena, int64_t, sharded->values.count + 1);
  for (int v = 0; v < sharded->values.count; v++) elements[v] = ls_lower_elements(sharded, v);
  for (int n = 0; n < sharded->nodes.count; n++) {
    const ls_shard_node *node = &sharded->nodes.items[n];
    if (node->collective != LS_REDUCE_SCATTER && node->collective != LS_ALL_GATHER) continue;
    const int whole = node->collective == LS_REDUCE_SCATTER ? node->in[0] : node->out[0];
    const int64_t count = collective_count(sharded, node);
    if (count > elements[whole]) elements[whole] = count;
  }
  return elements;
}

static bool kept_for_backward(const ls_lowering *lowering, int sharded_value, bool backward) {
  if (lowering->recompute->dropped[sharded_value] && !lowering->again) return false;
  if (lowering->recompute->read[sharded_value]) return true;
  const int last = lowering->last_use[sharded_value];
  return !backward && last >= 0 && lowering->sharded->nodes.items[last].backward;
}

/* The storage of the node's input that output 0 may take over, or -1. */
static int reuses_input_buffer(const ls_lowering *lowering, const ls_shard_node *node, int n,
                               int64_t bytes) {
  int input = ls_op_row(node->kind)->in_place - 1;
  if (node->collective == LS_ALL_REDUCE)
    input = 0;
  else if (node->collective != LS_COLLECTIVE_NONE)
    return -1;
  if (input < 0 || lowering->last_use[node->in[input]] != n) return -1;
  if (lowering->slices->before[n]) return -1; /* it may not be the last to run */
  /* Other nodes, of before in the list, may run after all slices. */
  if (lowering->rows && !lowering->slices->inside[node->in[input]]) return -1;
  if (lowering->halves[node->segment] && lowering->read_by_weight[node->in[input]]) return -1;
  if (lowering->recompute->read[node->in[input]]) return -1;
  const int value = lowering->value_of[node->in[input]];
  const ls_value *from = &lowering->program->values.items[value];
  const ls_storage_plan *plan = &lowering->plans.items[from->storage];
  const bool activation =
      plan->category == LS_CATEGORY_TEMPORARIES || plan->category == LS_CATEGORY_ACTIVATIONS;
  const bool fits = lowering->program->storages.items[from->storage].bytes == bytes;
  return plan->pool == LS_POOL_WORK && activation && fits ? from->storage : -1;
}

/* Stored elements of a row of logits; 0: as many as the rank's columns, as of any other value. */
static int64_t row_elements(const ls_lowering *lowering, int sharded_value) {
  const ls_sharded *sharded = lowering->sharded;
  const ls_shard_value *about = &sharded->values.items[sharded_value];
  if (!lowering->slices->wide[sharded_value]) return 0;
  const int64_t columns = ls_mesh_part(&sharded->mesh, 0, &about->placement, 1,
                                       ls_graph_tensor(sharded->graph, about->tensor)->dims[1])
                              .stored;
  const int64_t stored = ls_logits_row_elements(columns, &sharded->layout);
  return stored == columns ? 0 : stored;
}

static int add_tensor(ls_lowering *lowering, int sharded_value, int storage) {
  const ls_shard_value *about = &lowering->sharded->values.items[sharded_value];
  const ls_tensor *tensor = ls_graph_tensor(lowering->sharded->graph, about->tensor);
  ls_value value = {.name = tensor->name,
                    .dtype = value_dtype(lowering, tensor),
                    .ndim = tensor->ndim,
                    .placement = about->placement,
                    .storage = storage};
  memcpy(value.global, tensor->dims, sizeof value.global);
  if (lowering->slices->inside[sharded_value]) {
    value.first_row = lowering->first_row;
    value.rows = lowering->rows;
    value.row_elements = row_elements(lowering, sharded_value);
  }
  return ls_lower_value(lowering, &value);
}

static int64_t tensor_bytes(const ls_lowering *lowering, int sharded_value) {
  const ls_tensor_id id = lowering->sharded->values.items[sharded_value].tensor;
  const ls_tensor *tensor = ls_graph_tensor(lowering->sharded->graph, id);
  const size_t bytes = ls_dtype_bytes(value_dtype(lowering, tensor));
  if (lowering->slices->inside[sharded_value]) {
    const int64_t padded = row_elements(lowering, sharded_value);
    const int64_t columns =
        ls_lower_elements(lowering->sharded, sharded_value) / lowering->slices->all;
    return (padded ? padded : columns) * lowering->rows * (int64_t)bytes;
  }
  return lowering->padded[sharded_value] * (int64_t)bytes;
}

int ls_lower_tensor(ls_lowering *lowering, int sharded_value, bool kept) {
  const ls_tensor_id id = lowering->sharded->values.items[sharded_value].tensor;
  const int storage =
      ls_lower_storage(lowering, ls_graph_tensor(lowering->sharded->graph, id)->name, LS_POOL_WORK,
                       kept ? LS_CATEGORY_ACTIVATIONS : LS_CATEGORY_TEMPORARIES,
                       tensor_bytes(lowering, sharded_value));
  lowering->plans.items[storage].moves = lowering->offload_plan->moved[sharded_value] >= 0;
  return add_tensor(lowering, sharded_value, storage);
}

/* The cell that the step's microbatches add a tensor up in; -1: none. */
static int cell_of(const ls_lowering *lowering, ls_tensor_id id) {
  const ls_graph *graph = lowering->sharded->graph;
  bool loss = id.index == graph->loss.index;
  for (int l = 0; l < graph->losses.count; l++) loss |= id.index == graph->losses.items[l].index;
  if (loss) return lowering->program->cell[LS_CELL_LOSS_SUM];
  for (int l = 0; l < graph->loads.count; l++)
    if (id.index == graph->loads.items[l].index) return lowering->program->loads.items[l];
  for (int r = 0; r < LS_MAX_OUTPUTS; r++)
    if (id.index == graph->rewards[r].index)
      return lowering->program->cell[LS_CELL_REWARD_CHOSEN + r];
  return -1;
}

static int make_value(ls_lowering *lowering, const ls_shard_node *node, int n, int output) {
  const int value = node->out[output];
  const int cell = cell_of(lowering, lowering->sharded->values.items[value].tensor);
  if (cell >= 0) return cell;
  const bool kept = kept_for_backward(lowering, value, node->backward);
  const int storage =
      output == 0 ? reuses_input_buffer(lowering, node, n, tensor_bytes(lowering, value)) : -1;
  if (storage < 0) return ls_lower_tensor(lowering, value, kept);
  if (kept) lowering->plans.items[storage].category = LS_CATEGORY_ACTIVATIONS;
  if (lowering->offload_plan->moved[value] >= 0) lowering->plans.items[storage].moves = true;
  return add_tensor(lowering, value, storage);
}

static void lower_node(ls_lowering *lowering, int n);

/* What nothing lowered before has made: cells and caches, which exist from outside, and what needs
 * nothing but inputs, of which each stage makes its own. */
static int source_value(ls_lowering *lowering, int sharded_value) {
  const int producer = lowering->producer[sharded_value];
  if (producer >= 0) {
    LS_ASSERT(lowering->replicable_nodes[producer]);
    const int64_t rows = lowering->rows;
    lowering->rows = 0;
    lower_node(lowering, producer);
    lowering->rows = rows;
    return lowering->value_of[sharded_value];
  }
  const ls_shard_value *about = &lowering->sharded->values.items[sharded_value];
  const ls_tensor *tensor = ls_graph_tensor(lowering->sharded->graph, about->tensor);
  if (tensor->role == LS_ROLE_CELL) return lowering->program->cell[LS_CELL_LOSS_SCALE];
  LS_ASSERT(tensor->role == LS_ROLE_STATE);
  const int64_t bytes = ls_lower_elements(lowering->sharded, sharded_value) *
                        (int64_t)ls_dtype_bytes(value_dtype(lowering, tensor));
  return add_tensor(
      lowering, sharded_value,
      ls_lower_storage(lowering, tensor->name, LS_POOL_STATE, LS_CATEGORY_CACHES, bytes));
}

/* Which layer's loads these are; -1: they are none. */
static int layer_of_loads(const ls_graph *graph, ls_tensor_id id) {
  for (int l = 0; l < graph->loads.count; l++)
    if (id.index == graph->loads.items[l].index) return l;
  return -1;
}

/* Several nodes of a stage may make losses. */
static ls_write_mode write_to_cell(ls_lowering *lowering, int cell, ls_tensor_id id) {
  const int layer = layer_of_loads(lowering->sharded->graph, id);
  const bool loss = cell == lowering->program->cell[LS_CELL_LOSS_SUM], adds = lowering->pays;
  if (layer >= 0) lowering->loaded[layer] = true;
  if (!loss) return LS_ADD_AFTER_FIRST;
  lowering->pays = true;
  return adds ? LS_ADD : LS_ADD_AFTER_FIRST;
}

/* The first node of this stage that has a part in a gradient writes it, the others add. */
static ls_write_mode write_mode(ls_lowering *lowering, const ls_shard_node *node, int output) {
  const ls_graph *graph = lowering->sharded->graph;
  const ls_tensor_id id = lowering->sharded->values.items[node->out[output]].tensor;
  const int cell = cell_of(lowering, id);
  if (cell >= 0) return write_to_cell(lowering, cell, id);
  const ls_tensor *tensor = ls_graph_tensor(graph, id);
  if (tensor->role != LS_ROLE_GRADIENT) return LS_WRITE;
  if (lowering->contributed[tensor->parameter]) return LS_ADD;
  lowering->contributed[tensor->parameter] = true;
  const ls_units *units = lowering->units;
  const ls_unit *unit = &units->items[units->of_parameter[tensor->parameter]];
  return ls_lower_differ(lowering, &unit->raw, &unit->gradient) ? LS_WRITE : LS_ADD_AFTER_FIRST;
}

static int storage_of(const ls_lowering *lowering, int value) {
  return lowering->program->values.items[value].storage;
}

/* Whether an instruction touches what a collective fills, or writes what it reads. */
static bool meets(const ls_lowering *lowering, const ls_instruction *begun,
                  const ls_instruction *other) {
  const int from = storage_of(lowering, begun->in[0]), to = storage_of(lowering, begun->out[0]);
  for (int i = 0; i < other->inputs; i++)
    if (storage_of(lowering, other->in[i]) == to) return true;
  for (int o = 0; o < other->outputs; o++) {
    const int written = storage_of(lowering, other->out[o]);
    if (written == from || written == to) return true;
  }
  return false;
}

/* Ends a collective, or begins and ends it at once where no op would run beside it. */
static void end_collective(ls_lowering *lowering, int begun) {
  ls_program *program = lowering->program;
  bool beside = false;
  for (int i = begun + 1; i < program->instructions.count; i++)
    beside |= program->instructions.items[i].collective == LS_COLLECTIVE_NONE;
  if (!beside) {
    program->instructions.items[begun].phase = LS_WHOLE;
    return;
  }
  ls_instruction end = program->instructions.items[begun];
  end.phase = LS_END;
  *LS_APPEND(program->arena, &program->instructions) = end;
}

/* Ends collectives that `next` cannot run beside; NULL: all. */
static void end_collectives(ls_lowering *lowering, const ls_instruction *next) {
  int left = 0;
  for (int t = 0; t < lowering->under_way.count; t++) {
    const int begun = lowering->under_way.items[t];
    if (next && !meets(lowering, &lowering->program->instructions.items[begun], next))
      lowering->under_way.items[left++] = begun;
    else
      end_collective(lowering, begun);
  }
  lowering->under_way.count = left;
}

static void lower_node(ls_lowering *lowering, int n) {
  const ls_shard_node *node = &lowering->sharded->nodes.items[n];
  ls_instruction made = {.collective = node->collective,
                         .kind = ls_lower_decodes(lowering, node) ? LS_OP_FP8_DECODE : node->kind,
                         .attributes = *node->attributes,
                         .axes = node->axes,
                         .reduce = node->reduce,
                         .peer = -1,
                         .wait = -1,
                         .inputs = node->inputs,
                         .outputs = node->outputs,
                         .reason = node->reason};
  if (node->collective != LS_COLLECTIVE_NONE) {
    made.queue = LS_QUEUE_COMMUNICATE;
    made.count = collective_count(lowering->sharded, node);
    if (lowering->rows) made.count = made.count / lowering->slices->all * lowering->rows;
  }
  for (int i = 0; i < node->inputs; i++) {
    if (lowering->value_of[node->in[i]] < 0)
      lowering->value_of[node->in[i]] = source_value(lowering, node->in[i]);
    made.in[i] = lowering->value_of[node->in[i]];
    if (lowering->rows && has_tokens(lowering, node, i))
      made.in[i] = rows_of(lowering, node->in[i]);
  }
  for (int o = 0; o < node->outputs; o++) {
    int *value = &lowering->value_of[node->out[o]];
    if (*value < 0) *value = make_value(lowering, node, n, o);
    made.out[o] = *value;
    if (lowering->rows && has_tokens(lowering, node, node->inputs + o))
      made.out[o] = rows_of(lowering, node->out[o]);
    made.write[o] = write_mode(lowering, node, o);
  }
  end_collectives(lowering, &made);
  if (made.collective != LS_COLLECTIVE_NONE && !lowering->rows) {
    made.phase = LS_BEGIN;
    *LS_APPEND(lowering->program->arena, &lowering->under_way) =
        lowering->program->instructions.count;
  }
  *LS_APPEND(lowering->program->arena, &lowering->program->instructions) = made;
}

static bool belongs(const ls_shard_node *node, ls_action_kind kind) {
  switch (kind) {
    case LS_ACTION_FORWARD: return !node->backward;
    case LS_ACTION_INPUT: return node->backward && !node->weight;
    case LS_ACTION_WEIGHT: return node->weight;
    default: return node->backward;
  }
}

/* What the nodes make is a new value each: backward reads these. */
static void lower_again(ls_lowering *lowering, int segment) {
  lowering->again = true;
  const ls_segment_nodes *nodes = &lowering->nodes[segment];
  for (int i = 0; i < nodes->count; i++) {
    const int n = nodes->items[i];
    const ls_shard_node *node = &lowering->sharded->nodes.items[n];
    if (!lowering->recompute->nodes[n]) continue;
    for (int o = 0; o < node->outputs; o++) lowering->value_of[node->out[o]] = -1;
    lower_node(lowering, n);
  }
  lowering->again = false;
}

/* All slices in turn. The first has the most rows: what is only there in slices is as large. */
static void lower_slices(ls_lowering *lowering) {
  const ls_logits_slices *slices = lowering->slices;
  for (int n = slices->first; n <= slices->last; n++)
    if (slices->before[n]) lower_node(lowering, n);
  for (int64_t row = 0; row < slices->all; row += slices->rows) {
    const int64_t left = slices->all - row;
    lowering->first_row = row;
    lowering->rows = left < slices->rows ? left : slices->rows;
    for (int v = 0; v < lowering->sharded->values.count; v++) lowering->of_slice[v] = -1;
    for (int n = slices->first; n <= slices->last; n++)
      if (slices->nodes[n]) lower_node(lowering, n);
  }
  lowering->rows = 0;
}

static void lower_nodes(ls_lowering *lowering, ls_action_kind kind, int segment) {
  const ls_segment_nodes *nodes = &lowering->nodes[segment];
  for (int i = 0; i < nodes->count; i++) {
    const int n = nodes->items[i];
    if (!belongs(&lowering->sharded->nodes.items[n], kind)) continue;
    if (n == lowering->slices->first && lowering->slices->rows)
      lower_slices(lowering);
    else if (!lowering->slices->nodes[n] && !lowering->slices->before[n])
      lower_node(lowering, n);
  }
}

void ls_lower_pass(ls_lowering *lowering, ls_action_kind kind, int segment) {
  if (kind == LS_ACTION_RECOMPUTE)
    lower_again(lowering, segment);
  else
    lower_nodes(lowering, kind, segment);
  end_collectives(lowering, NULL);
}
