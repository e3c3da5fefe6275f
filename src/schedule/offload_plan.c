#include "schedule/offload_plan.h"

#include "ir/state.h"

static void place_state(const ls_sharded *sharded, const ls_units *units, const bool *present,
                        ls_offload_plan *offload_plan) {
  const ls_offload *offload = &sharded->layout.offload;
  double all = 0, stays = 0;
  for (int u = 0; u < units->count; u++)
    if (present[u] && !units->items[u].frozen) all += (double)units->items[u].elements;
  const double may_stay = (1 - offload->optimizer_fraction) * all;
  for (int u = 0; u < units->count; u++) {
    offload_plan->parameters[u] = offload->parameters;
    if (!present[u] || units->items[u].frozen || offload->optimizer == LS_TIER_DEVICE) continue;
    stays += (double)units->items[u].elements;
    if (stays > may_stay) offload_plan->state[u] = offload->optimizer;
  }
}

bool ls_offload_plan_files(const ls_offload_plan *offload_plan, const ls_units *units) {
  for (int u = 0; u < units->count; u++)
    if (offload_plan->state[u] == LS_TIER_NVME) return true;
  return false;
}

/* Who reads a value on the stage at hand, as segments. */
typedef struct readers {
  int made_by;                   /* node of the forward pass; -1: none */
  int last_forward;              /* -1: none */
  int first_back, last_back;     /* backward nodes, and those of forward that run again */
  bool back, again, other_stage; /* read in backward; by a node that runs again; elsewhere */
} readers;

static void note_back(readers *of, int segment) {
  if (of->last_back < 0 || segment < of->first_back) of->first_back = segment;
  if (segment > of->last_back) of->last_back = segment;
}

static void note_node(const ls_sharded *sharded, const ls_recompute *recompute, int n, bool ours,
                      readers *by_value) {
  const ls_shard_node *node = &sharded->nodes.items[n];
  for (int o = 0; o < node->outputs && !node->backward; o++) {
    readers *of = &by_value[node->out[o]];
    of->made_by = n;
    if (ours && node->segment > of->last_forward) of->last_forward = node->segment;
  }
  for (int i = 0; i < node->inputs; i++) {
    readers *of = &by_value[node->in[i]];
    if (!ours && !node->backward) of->other_stage = true;
    if (!ours) continue;
    if (!node->backward && node->segment > of->last_forward) of->last_forward = node->segment;
    if (node->backward) of->back = true;
    if (!node->backward && recompute && recompute->nodes[n]) of->again = true;
    if (node->backward || (recompute && recompute->nodes[n])) note_back(of, node->segment);
  }
}

static int segment_of(const ls_sharded *sharded, const ls_units *units, const ls_chunks *chunks,
                      const ls_recompute *recompute, int v, const readers *of, int stage) {
  if (of->made_by < 0 || of->last_back < 0 || units->left_out[of->made_by]) return -1;
  const ls_tensor_id id = sharded->values.items[v].tensor;
  if (id.index == sharded->graph->loss.index) return -1;
  const int made_in = sharded->nodes.items[of->made_by].segment;
  if (ls_chunks_stage(chunks, made_in) == stage && of->other_stage) return -1; /* it is sent */
  if (recompute && recompute->nodes[of->made_by]) return -1;
  const bool dropped = recompute && recompute->dropped[v];
  const bool kept = (of->back && !dropped) || (recompute && recompute->read[v] && of->again);
  if (!kept || of->first_back != of->last_back || of->last_forward != of->last_back) return -1;
  return of->last_back;
}

static void place_activations(const ls_sharded *sharded, const ls_units *units,
                              const ls_chunks *chunks, const ls_recompute *recompute, int stage,
                              ls_offload_plan *offload_plan) {
  const int count = sharded->values.count;
  readers *by_value = LS_NEW_ARRAY(sharded->arena, readers, count + 1);
  for (int v = 0; v < count; v++)
    by_value[v] = (readers){.made_by = -1, .last_forward = -1, .first_back = -1, .last_back = -1};
  for (int n = 0; n < sharded->nodes.count; n++) {
    const int segment = sharded->nodes.items[n].segment;
    note_node(sharded, recompute, n, ls_chunks_stage(chunks, segment) == stage, by_value);
  }
  for (int v = 0; v < count; v++) {
    offload_plan->moved[v] = segment_of(sharded, units, chunks, recompute, v, &by_value[v], stage);
    if (offload_plan->moved[v] < 0) continue;
    offload_plan->moves[offload_plan->moved[v]] = true;
    *LS_APPEND(sharded->arena, &offload_plan->moved_of[offload_plan->moved[v]]) = v;
  }
}

ls_offload_plan *ls_offload_plan_make(const ls_sharded *sharded, const ls_units *units,
                                      const ls_chunks *chunks, const ls_recompute *recompute,
                                      const bool *present, int stage) {
  ls_arena *arena = sharded->arena;
  ls_offload_plan *offload_plan = LS_NEW(arena, ls_offload_plan);
  offload_plan->state = LS_NEW_ARRAY(arena, ls_tier, units->count + 1);
  offload_plan->parameters = LS_NEW_ARRAY(arena, ls_tier, units->count + 1);
  const bool wide = sharded->layout.compute == LS_F32 || sharded->layout.compute == LS_F64;
  /* Weights that are speculated, or taken elsewhere, lie apart. */
  offload_plan->one_copy = wide && !sharded->layout.post_validation &&
                           !ls_optimizer_row_of(&sharded->layout.optimizer)->point.outputs;
  offload_plan->activations = sharded->layout.offload.activations;
  offload_plan->moved = LS_NEW_ARRAY(arena, int, sharded->values.count + 1);
  offload_plan->moves = LS_NEW_ARRAY(arena, bool, sharded->graph->segments.count + 1);
  offload_plan->moved_of = LS_NEW_ARRAY(arena, ls_moved, sharded->graph->segments.count + 1);
  for (int v = 0; v < sharded->values.count; v++) offload_plan->moved[v] = -1;
  place_state(sharded, units, present, offload_plan);
  if (offload_plan->activations)
    place_activations(sharded, units, chunks, recompute, stage, offload_plan);
  return offload_plan;
}
