#include "schedule/recompute.h"

#include <string.h>

#include "graph/ring.h"

typedef struct planner {
  const ls_sharded *sharded;
  const ls_chunks *chunks;
  ls_recompute *out;
  int *producer; /* by value: node; -1 */
  int *group;    /* by segment; -1: its forward pass never runs again */
} planner;

static const ls_op_set *ops_of(const ls_layout *layout, int segment) {
  return layout->recompute_of_count ? &layout->recompute_of[segment] : &layout->recompute;
}

static bool may_run_again(const ls_shard_node *node) {
  return node->collective != LS_COLLECTIVE_NONE || ls_op_row(node->kind)->again != LS_AGAIN_NEVER;
}

/* Groups of layers that lie in one chunk. */
static void find_groups(planner *p) {
  const ls_graph *graph = p->sharded->graph;
  const int most =
      p->sharded->layout.recompute_layers > 0 ? p->sharded->layout.recompute_layers : 1;
  int groups = 0, members = 0;
  for (int s = 0; s < graph->segments.count; s++) {
    p->group[s] = -1;
    if (graph->segments.items[s].layer < 0) continue;
    const bool follows = s > 0 && p->group[s - 1] >= 0 &&
                         p->chunks->chunk_of[s] == p->chunks->chunk_of[s - 1] && members < most;
    if (!follows) {
      groups++;
      members = 0;
    }
    p->group[s] = groups - 1;
    members++;
  }
}

static int group_of(const planner *p, int node) {
  return p->group[p->sharded->nodes.items[node].segment];
}

/* Values that backward reads and that are read in their own group alone. */
static void find_dropped(planner *p) {
  const ls_sharded *sharded = p->sharded;
  bool *outside = LS_NEW_ARRAY(sharded->arena, bool, sharded->values.count + 1);
  bool *backward = LS_NEW_ARRAY(sharded->arena, bool, sharded->values.count + 1);
  for (int n = 0; n < sharded->nodes.count; n++) {
    const ls_shard_node *node = &sharded->nodes.items[n];
    for (int i = 0; i < node->inputs; i++) {
      const int by = p->producer[node->in[i]];
      if (by < 0 || sharded->nodes.items[by].backward) continue;
      if (group_of(p, by) != group_of(p, n)) outside[node->in[i]] = true;
      if (node->backward) backward[node->in[i]] = true;
    }
  }
  for (int v = 0; v < sharded->values.count; v++) {
    const int by = p->producer[v];
    if (by < 0 || group_of(p, by) < 0 || !backward[v] || outside[v]) continue;
    const ls_shard_node *node = &sharded->nodes.items[by];
    p->out->dropped[v] = may_run_again(node) &&
                         ops_of(&sharded->layout, node->segment)->has[ls_ring_named(node->kind)];
  }
}

/* Back from what is dropped, through what nobody keeps. */
static void find_nodes(planner *p) {
  const ls_sharded *sharded = p->sharded;
  bool *kept = LS_NEW_ARRAY(sharded->arena, bool, sharded->values.count + 1);
  for (int n = 0; n < sharded->nodes.count; n++) {
    const ls_shard_node *node = &sharded->nodes.items[n];
    for (int i = 0; i < node->inputs; i++) {
      const int by = p->producer[node->in[i]];
      if (by < 0) continue;
      const bool leaves = group_of(p, by) != group_of(p, n);
      if ((node->backward && !p->out->dropped[node->in[i]]) || leaves) kept[node->in[i]] = true;
    }
  }
  bool *wanted = LS_NEW_ARRAY(sharded->arena, bool, sharded->values.count + 1);
  memcpy(wanted, p->out->dropped, (size_t)sharded->values.count * sizeof *wanted);
  for (int n = sharded->nodes.count - 1; n >= 0; n--) {
    const ls_shard_node *node = &sharded->nodes.items[n];
    if (node->backward || group_of(p, n) < 0) continue;
    for (int o = 0; o < node->outputs; o++) p->out->nodes[n] |= wanted[node->out[o]];
    for (int i = 0; i < node->inputs && p->out->nodes[n]; i++) {
      const int by = p->producer[node->in[i]];
      if (by < 0) continue;
      if (kept[node->in[i]] || group_of(p, by) != group_of(p, n) ||
          !may_run_again(&sharded->nodes.items[by]))
        p->out->read[node->in[i]] = true;
      else
        wanted[node->in[i]] = true;
    }
  }
}

ls_recompute *ls_recompute_make(const ls_sharded *sharded, const ls_chunks *chunks) {
  ls_arena *arena = sharded->arena;
  const int segments = sharded->graph->segments.count;
  planner p = {.sharded = sharded, .chunks = chunks, .out = LS_NEW(arena, ls_recompute)};
  p.out->nodes = LS_NEW_ARRAY(arena, bool, sharded->nodes.count + 1);
  p.out->dropped = LS_NEW_ARRAY(arena, bool, sharded->values.count + 1);
  p.out->read = LS_NEW_ARRAY(arena, bool, sharded->values.count + 1);
  p.out->group_last = LS_NEW_ARRAY(arena, int, segments + 1);
  p.out->group_first = LS_NEW_ARRAY(arena, int, segments + 1);
  for (int s = 0; s < segments; s++) {
    p.out->group_last[s] = -1;
    p.out->group_first[s] = s;
  }
  if (ls_op_set_is_empty(&sharded->layout.recompute) && !sharded->layout.recompute_of_count)
    return p.out;
  p.producer = LS_NEW_ARRAY(arena, int, sharded->values.count + 1);
  p.group = LS_NEW_ARRAY(arena, int, segments + 1);
  for (int v = 0; v < sharded->values.count; v++) p.producer[v] = -1;
  for (int n = sharded->nodes.count - 1; n >= 0; n--)
    for (int o = 0; o < sharded->nodes.items[n].outputs; o++)
      p.producer[sharded->nodes.items[n].out[o]] = n;
  find_groups(&p);
  find_dropped(&p);
  find_nodes(&p);
  for (int s = 1; s < segments; s++)
    if (p.group[s] >= 0 && p.group[s] == p.group[s - 1])
      p.out->group_first[s] = p.out->group_first[s - 1];
  int *last = LS_NEW_ARRAY(arena, int, segments + 1);
  for (int s = segments - 1; s >= 0; s--)
    last[s] = s + 1 < segments && p.group[s + 1] == p.group[s] ? last[s + 1] : s;
  for (int n = 0; n < sharded->nodes.count; n++) {
    const int segment = sharded->nodes.items[n].segment;
    if (p.out->nodes[n]) p.out->group_last[segment] = last[segment];
  }
  return p.out;
}

double ls_recompute_flops(const ls_sharded *sharded, const ls_recompute *recompute) {
  double flops = 0;
  for (int n = 0; n < sharded->nodes.count; n++) {
    const int node = sharded->nodes.items[n].node;
    if (recompute->nodes[n] && node >= 0)
      flops += ls_node_flops(sharded->graph, &sharded->graph->nodes.items[node]);
  }
  return flops;
}
