#include "lower/lower.h"

/* What goes from stage to stage: found from where values are made and where they are read. */

static bool is_free(const ls_sharded *sharded, const ls_shard_node *node, const int *producer,
                    const bool *replicable_nodes) {
  if (node->backward || node->collective != LS_COLLECTIVE_NONE) return false;
  for (int i = 0; i < node->inputs; i++) {
    const ls_tensor_id id = sharded->values.items[node->in[i]].tensor;
    const int made_by = producer[node->in[i]];
    const bool input = ls_graph_tensor(sharded->graph, id)->role == LS_ROLE_INPUT;
    if (made_by < 0 ? !input : !replicable_nodes[made_by]) return false;
  }
  return node->inputs > 0;
}

const bool *ls_lower_replicable_nodes(const ls_sharded *sharded, const int *producer) {
  bool *replicable_nodes = LS_NEW_ARRAY(sharded->arena, bool, sharded->nodes.count + 1);
  for (int n = 0; n < sharded->nodes.count; n++) /* what they read is made before them */
    replicable_nodes[n] = is_free(sharded, &sharded->nodes.items[n], producer, replicable_nodes);
  return replicable_nodes;
}

static bool listed(const int *items, int count, int value) {
  for (int i = 0; i < count; i++)
    if (items[i] == value) return true;
  return false;
}

/* A value that a node of another chunk reads: it crosses the boundary between the two. What goes to
 * the chunk before is a gradient. */
static ls_status cross(const ls_sharded *sharded, const ls_chunks *chunks,
                       ls_stage_boundary *boundaries, int from, int to, int value,
                       ls_error *error) {
  if (chunks->pipeline->stage_of[from] == chunks->pipeline->stage_of[to]) return LS_OK;
  const bool backward = to < from;
  if (to != (backward ? from - 1 : from + 1)) {
    const ls_tensor_id id = sharded->values.items[value].tensor;
    return ls_fail(error, LS_INTERNAL, "%s goes from chunk %d of the pipeline to chunk %d",
                   ls_graph_tensor(sharded->graph, id)->name, from, to);
  }
  ls_stage_boundary *at = &boundaries[backward ? to : from];
  if (backward && !listed(at->gradients.items, at->gradients.count, value))
    *LS_APPEND(sharded->arena, &at->gradients) = value;
  if (!backward && !listed(at->values.items, at->values.count, value))
    *LS_APPEND(sharded->arena, &at->values) = value;
  return LS_OK;
}

ls_status ls_stage_boundaries_make(const ls_sharded *sharded, const ls_chunks *chunks,
                                   const int *producer, const bool *replicable_nodes,
                                   ls_stage_boundaries **boundaries, ls_error *error) {
  ls_stage_boundaries *made = LS_NEW(sharded->arena, ls_stage_boundaries);
  made->items = LS_NEW_ARRAY(sharded->arena, ls_stage_boundary, chunks->count);
  for (int n = 0; n < sharded->nodes.count; n++) {
    const ls_shard_node *node = &sharded->nodes.items[n];
    const int to = chunks->chunk_of[node->segment];
    for (int i = 0; i < node->inputs; i++) {
      const int by = producer[node->in[i]];
      if (by < 0 || replicable_nodes[by]) continue;
      const int from = chunks->chunk_of[sharded->nodes.items[by].segment];
      if (from != to) LS_TRY(cross(sharded, chunks, made->items, from, to, node->in[i], error));
    }
  }
  *boundaries = made;
  return LS_OK;
}

static const char *reason_of(const ls_lowering *lowering, const ls_action *action, bool back) {
  const ls_graph *graph = lowering->sharded->graph;
  const int first = lowering->chunks->first_segment[action->segment + 1];
  return ls_arena_printf(lowering->program->arena,
                         back ? "gradient of what %s gives to %s" : "what %s gives to %s",
                         graph->segments.items[first - 1].name, graph->segments.items[first].name);
}

void ls_lower_message(ls_lowering *lowering, const ls_action *action) {
  const bool back = action->payload == LS_PAYLOAD_GRADIENTS,
             sends = action->transfer == LS_TRANSFER_SEND;
  const ls_stage_boundary *crossing = &lowering->boundaries->items[action->segment];
  const int count = back ? crossing->gradients.count : crossing->values.count;
  const int *values = back ? crossing->gradients.items : crossing->values.items;
  const int other = sends == back ? action->segment : action->segment + 1;
  for (int i = 0; i < count; i++) {
    int *value = &lowering->value_of[values[i]];
    if (!sends) {
      const int last = lowering->last_use[values[i]];
      const bool kept = !back && lowering->sharded->nodes.items[last].backward;
      *value = ls_lower_tensor(lowering, values[i], kept);
    }
    ls_instruction *made = ls_lower_collective(
        lowering, sends ? LS_SEND : LS_RECEIVE,
        ls_mesh_axes(&lowering->program->mesh, LS_MESH_STAGE), *value, *value,
        ls_lower_elements(lowering->sharded, values[i]), reason_of(lowering, action, back));
    made->peer = lowering->chunks->pipeline->stage_of[other];
    made->inputs = sends;
    made->outputs = !sends;
  }
}
