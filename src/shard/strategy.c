#include "shard/strategy.h"

#include <stdio.h>
#include <string.h>

#include "ir/state.h"

static const ls_data_strategy data_strategies[] = {
#define LS_STRATEGY_ROW(name, parameters, gradients, state) {parameters, gradients, state},
    LS_DATA_STRATEGIES(LS_STRATEGY_ROW)
#undef LS_STRATEGY_ROW
};

/* A kind of sharding -> on axes of KV heads, on those of the query heads of one: the dimension, or
 * whole.
 */
enum { WHOLE = -1 };
static const signed char tensor_strategy[LS_TP_COUNT][2] = {
    [LS_TP_REPLICATED] = {WHOLE, WHOLE},
    [LS_TP_COLUMN] = {0, 0},
    [LS_TP_ROW] = {1, 1},
    [LS_TP_QUERY] = {0, 0},
    [LS_TP_KEY_VALUE] = {0, WHOLE},
    [LS_TP_HEADS_IN] = {1, 1},
    [LS_TP_VOCABULARY] = {0, 0},
    [LS_TP_EXPERTS] = {1, 1},
    [LS_TP_EXPERT_ROWS] = {WHOLE, WHOLE},
};

const ls_data_strategy *ls_data_strategy_row(int zero) {
  LS_ASSERT(zero >= 0 && zero < LS_DATA_STRATEGY_COUNT);
  return &data_strategies[zero];
}

/* Over axes that share out experts each rank has whole ones. */
ls_placement ls_parameter_placement(const ls_mesh *mesh, ls_tp_sharding sharding) {
  ls_placement placement = {0};
  for (int a = 0; a < mesh->count; a++) {
    const ls_axis *axis = &mesh->axes[a];
    if (axis->shares & LS_SHARES_ANY_EXPERTS && ls_tp_is_of_experts(sharding)) {
      placement.on[a] = ls_place_sharded(axis, LS_CUT_TOKENS, 0);
      continue;
    }
    if (axis->role != LS_MESH_TENSOR || axis->shares & LS_SHARES_TOKENS) continue;
    const int dim = tensor_strategy[sharding][(axis->shares & LS_SHARES_QUERY_HEADS) != 0];
    if (dim != WHOLE) placement.on[a] = ls_place_sharded(axis, LS_CUT_FEATURES, dim);
  }
  return placement;
}

ls_place ls_stream_place(bool sequence_parallel, const ls_axis *axis) {
  if (!sequence_parallel) return (ls_place){0};
  ls_place place = ls_place_sharded(axis, LS_CUT_TOKENS, 0);
  place.shift = (short)axis->shift;
  return place;
}

static bool tp_fits(int64_t heads, int64_t kv_heads, int64_t tp) {
  return heads % tp == 0 && (kv_heads % tp == 0 || tp % kv_heads == 0);
}

/* Ranks of tp that have other KV heads; the others of these have other queries of the one KV head
 * that each then has. 0: tp does not divide the heads. */
static int kv_ranks_for(int64_t heads, int64_t kv_heads, int64_t tp) {
  if (!tp_fits(heads, kv_heads, tp)) return 0;
  return (int)(kv_heads % tp == 0 ? tp : kv_heads);
}

/* Of both models of a distillation the same: a mesh has one such axis. */
static int kv_ranks_of(const ls_graph *graph, int tp) {
  const ls_head_counts *also = &graph->teacher;
  const int own = kv_ranks_for(graph->heads, graph->kv_heads, tp);
  return !also->heads || kv_ranks_for(also->heads, also->kv_heads, tp) == own ? own : 0;
}

static ls_status refuse_tp(const ls_graph *graph, int tp, ls_error *error) {
  char legal[256] = "";
  size_t used = 0;
  for (int64_t t = 1; t <= graph->heads && used < sizeof legal - 24; t++)
    if (kv_ranks_of(graph, (int)t))
      used += (size_t)snprintf(legal + used, sizeof legal - used, "%s%lld", used ? ", " : "",
                               (long long)t);
  char *last = strrchr(legal, ',');
  if (last) {
    char tail[64];
    snprintf(tail, sizeof tail, " or%.*s", (int)sizeof tail - 8, last + 1);
    snprintf(last, sizeof legal - (size_t)(last - legal), "%s", tail);
  }
  char also[96] = "";
  if (graph->teacher.heads)
    snprintf(also, sizeof also, ", and a teacher with %lld heads, %lld KV heads",
             (long long)graph->teacher.heads, (long long)graph->teacher.kv_heads);
  return ls_fail(error, LS_INPUT, "tp=%d and %lld heads, %lld KV heads%s: use tp=%s", tp,
                 (long long)graph->heads, (long long)graph->kv_heads, also, legal);
}

static ls_status check_post_validation(const ls_layout *layout, ls_error *error) {
  const ls_offload *offload = &layout->offload;
  if (!layout->post_validation) return LS_OK;
  if (layout->expert_bound > 0 && ls_layout_senders(layout))
    return ls_fail(error, LS_INPUT,
                   "post_validation=true with experts.bound, a step of which may be void: use "
                   "post_validation=false, or experts.bound=auto");
  if (layout->pp < 2)
    return ls_fail(error, LS_INPUT,
                   "post_validation=true with mesh.pp=%d, where no other stage is waited for: use "
                   "post_validation=false, or a pipeline",
                   layout->pp);
  if (!ls_optimizer_row_of(&layout->optimizer)->speculative)
    return ls_fail(
        error, LS_INPUT,
        "post_validation=true with optimizer.name=%s, whose update cannot be speculated: "
        "use post_validation=false",
        ls_optimizer_row_of(&layout->optimizer)->name);
  if (!offload->optimizer && !offload->parameters && !offload->activations) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "post_validation=true with %s, whose transfers cannot be begun twice: use "
                 "post_validation=false, or leave offload out",
                 offload->optimizer    ? "offload.optimizer"
                 : offload->parameters ? "offload.parameters"
                                       : "offload.activations");
}

static ls_status check_point(const ls_layout *layout, ls_error *error) {
  const ls_optimizer_row *row = ls_optimizer_row_of(&layout->optimizer);
  const ls_offload *offload = &layout->offload;
  if (!row->point.outputs || (!offload->optimizer && !offload->parameters)) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "optimizer.name=%s with %s, whose weights are made of its state on the device: "
                 "use %s=none",
                 row->name, offload->optimizer ? "offload.optimizer" : "offload.parameters",
                 offload->optimizer ? "offload.optimizer" : "offload.parameters");
}

/* Decoding: each rank has as many new tokens, and parts of the caches. */
static ls_status check_decoding(const ls_layout *layout, const ls_graph *graph, ls_error *error) {
  const int64_t parts = graph->turns > 1 ? graph->turns : 1;
  if (graph->tokens % layout->cp == 0 && parts % layout->cp == 0) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "mesh.cp=%d with %lld tokens to decode and caches in %lld parts: expected "
                 "multiples of it",
                 layout->cp, (long long)graph->tokens, (long long)parts);
}

/* Each rank has two chunks of every sequence, an early and a late one. */
static ls_status check_context(const ls_layout *layout, const ls_graph *graph, ls_error *error) {
  if (layout->cp == 1) return LS_OK;
  if (graph->cache_rows) return check_decoding(layout, graph, error);
  const int64_t chunks = 2 * (int64_t)layout->cp, sequence = graph->sequence;
  if (graph->places.index < 0)
    return ls_fail(error, LS_INPUT,
                   "mesh.cp=%d with a model that takes tokens in their order: use mesh.cp=1",
                   layout->cp);
  if (sequence % chunks == 0) return LS_OK;
  const int64_t below = sequence / chunks * chunks;
  char shorter[32] = "";
  if (below) snprintf(shorter, sizeof shorter, "%lld or ", (long long)below);
  return ls_fail(error, LS_INPUT,
                 "sequences of %lld tokens over mesh.cp=%d, of which each rank has two chunks: use "
                 "data.seq_len=%s%lld, a multiple of %lld",
                 (long long)sequence, layout->cp, shorter, (long long)(below + chunks),
                 (long long)chunks);
}

/* What `ranks` that change tokens for heads share out of those of a rank of tp: its KV heads, each
 * with its queries; or where that is one, which each of them then has, the query heads; 0: these do
 * not divide. */
static ls_shares shares_of(const ls_layout *layout, int tp_kv, int64_t all_kv_heads, int64_t heads,
                           int ranks) {
  const int64_t kv_heads = all_kv_heads / tp_kv;
  const int64_t queries = heads / all_kv_heads / (layout->tp / tp_kv);
  if (kv_heads % ranks == 0) return LS_SHARES_KV_HEADS;
  return kv_heads == 1 && queries % ranks == 0 ? LS_SHARES_QUERY_HEADS : 0;
}

/* Of both models of a distillation the same. */
static ls_shares head_shares(const ls_layout *layout, const ls_graph *graph, int ranks) {
  const int tp_kv = kv_ranks_of(graph, layout->tp);
  const ls_head_counts *also = &graph->teacher;
  const ls_shares own = shares_of(layout, tp_kv, graph->kv_heads, graph->heads, ranks);
  if (!also->heads || shares_of(layout, tp_kv, also->kv_heads, also->heads, ranks) == own)
    return own;
  return 0;
}

/* Some ranks change tokens for heads, and more than one such group pass keys round. */
static bool is_hybrid(const ls_layout *layout, const ls_graph *graph, int ulysses) {
  return ulysses > 1 && ulysses < layout->cp && layout->cp % ulysses == 0 &&
         head_shares(layout, graph, ulysses);
}

static ls_status check_hybrid(const ls_layout *layout, const ls_graph *graph, ls_error *error) {
  if (is_hybrid(layout, graph, layout->ulysses)) return LS_OK;
  int nearest = layout->ulysses < layout->cp ? layout->ulysses : layout->cp;
  while (nearest > 1 && !is_hybrid(layout, graph, nearest)) nearest--;
  for (int more = layout->ulysses; nearest < 2 && more < layout->cp; more++)
    if (is_hybrid(layout, graph, more)) nearest = more;
  char use[64] = "context=ring";
  if (nearest > 1) snprintf(use, sizeof use, "ulysses_degree=%d, or context=ring", nearest);
  return ls_fail(error, LS_INPUT,
                 "context=hybrid with mesh.cp=%d and ulysses_degree=%d: expected a divisor of cp "
                 "between 1 and that, which divides the heads of a rank of mesh.tp=%d: use %s",
                 layout->cp, layout->ulysses, layout->tp, use);
}

static ls_status check_heads(const ls_layout *layout, const ls_graph *graph, ls_error *error) {
  if (layout->cp > 1 && layout->context == LS_CONTEXT_HYBRID)
    return check_hybrid(layout, graph, error);
  if (layout->context != LS_CONTEXT_ULYSSES || head_shares(layout, graph, layout->cp)) return LS_OK;
  int nearest = layout->cp;
  while (!head_shares(layout, graph, nearest)) nearest--;
  const int tp_kv = kv_ranks_of(graph, layout->tp);
  return ls_fail(error, LS_INPUT,
                 "mesh.cp=%d with context=ulysses, and %lld KV heads of %lld query heads each on a "
                 "rank of mesh.tp=%d: use mesh.cp=%d, or context=gather",
                 layout->cp, (long long)graph->kv_heads / tp_kv,
                 (long long)graph->heads / graph->kv_heads / (layout->tp / tp_kv), layout->tp,
                 nearest);
}

/* Whether so many ranks are all those of cp, of tp where experts are whole, and some of dp_shard,
 * each with as many experts. */
static bool shares_experts(const ls_layout *layout, const ls_graph *graph, int ranks) {
  const int inner = ls_layout_expert_ranks_inside(layout);
  return (ranks == 1 && !layout->whole_experts) ||
         (ranks > 0 && graph->experts % ranks == 0 && graph->teacher.experts % ranks == 0 &&
          ranks % inner == 0 && layout->dp_shard % (ranks / inner) == 0);
}

/* The nearest number of ranks that may share out experts; 0: none. */
static int nearest_ep(const ls_layout *layout, const ls_graph *graph) {
  const int most = layout->dp_shard * ls_layout_expert_ranks_inside(layout);
  int below = layout->ep - 1, above = layout->ep + 1;
  while (below > 0 && !shares_experts(layout, graph, below)) below--;
  while (above <= most && !shares_experts(layout, graph, above)) above++;
  if (above > most) return below;
  return below == 0 || above - layout->ep < layout->ep - below ? above : below;
}

/* Experts are whole where each rank of tp has tokens of its own, and as many as the others. */
static ls_status check_whole_experts(const ls_layout *layout, const ls_graph *graph,
                                     ls_error *error) {
  const int64_t tokens = graph->tokens / layout->dp_replicate / layout->dp_shard / layout->cp;
  const int nearest = nearest_ep(layout, graph);
  char use[64] = "experts.tensor_parallel=true";
  if (!layout->sequence_parallel)
    return ls_fail(error, LS_INPUT,
                   "experts.tensor_parallel=false with sequence_parallel=false: ranks of tp send "
                   "tokens of their own to whole experts: use sequence_parallel=true, or "
                   "experts.tensor_parallel=true");
  if (!shares_experts(layout, graph, layout->ep)) {
    if (nearest) snprintf(use, sizeof use, "mesh.ep=%d, or experts.tensor_parallel=true", nearest);
    return ls_fail(error, LS_INPUT,
                   "mesh.ep=%d with %lld experts, mesh.dp_shard=%d, mesh.cp=%d, mesh.tp=%d and "
                   "experts.tensor_parallel=false: all ranks of cp and tp, and some of dp_shard, "
                   "have as many experts each: use %s",
                   layout->ep, (long long)graph->experts, layout->dp_shard, layout->cp, layout->tp,
                   use);
  }
  if (tokens % layout->tp == 0) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "experts.tensor_parallel=false with %lld tokens at a time over mesh.tp=%d: each "
                 "rank has as many: use a data.seq_len or train.micro_batch that is a multiple of "
                 "it, or experts.tensor_parallel=true",
                 (long long)tokens, layout->tp);
}

static ls_status check_experts(const ls_layout *layout, const ls_graph *graph, ls_error *error) {
  if (layout->ep == 1 && !layout->whole_experts) return LS_OK;
  if (!graph->experts && layout->ep > 1)
    return ls_fail(error, LS_INPUT, "mesh.ep=%d with a model that has no experts: use mesh.ep=1",
                   layout->ep);
  if (!graph->experts)
    return ls_fail(error, LS_INPUT,
                   "experts.tensor_parallel=false with a model that has no experts: use "
                   "experts.tensor_parallel=true");
  if (layout->whole_experts) return check_whole_experts(layout, graph, error);
  if (shares_experts(layout, graph, layout->ep)) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "mesh.ep=%d with %lld experts, mesh.dp_shard=%d and mesh.cp=%d: all ranks of cp, "
                 "and some of dp_shard, have as many experts each: use mesh.ep=%d",
                 layout->ep, (long long)graph->experts, layout->dp_shard, layout->cp,
                 nearest_ep(layout, graph));
}

/* Those of cp that change tokens for heads are the inner ones. */
static void share_heads(const ls_layout *layout, const ls_graph *graph, ls_mesh *mesh) {
  const int ranks = ls_layout_head_ranks(layout);
  int axis = LS_AXIS_CP;
  if (ranks == 1) return;
  if (ranks < layout->cp) ls_mesh_split(mesh, axis++, "ulysses", ranks);
  mesh->axes[axis].shares = LS_SHARES_TOKENS | head_shares(layout, graph, ranks);
}

/* Experts are shared out over cp, tp where they are whole, and the inner ranks of dp_shard. */
static void share_experts(const ls_layout *layout, ls_mesh *mesh) {
  const int ranks = layout->ep / ls_layout_expert_ranks_inside(layout);
  if (layout->ep == 1) return;
  const ls_shares shares = ls_layout_senders(layout) ? LS_SHARES_SENT : LS_SHARES_EXPERTS;
  for (int a = 0; a < mesh->count; a++) {
    if (layout->cp > 1 && ls_mesh_context(mesh) >> a & 1) mesh->axes[a].shares |= shares;
    if (layout->whole_experts && mesh->axes[a].role == LS_MESH_TENSOR)
      mesh->axes[a].shares |= shares | LS_SHARES_STREAM;
  }
  if (ranks == 1) return;
  ls_mesh_split(mesh, LS_AXIS_DP_SHARD, "ep", ranks);
  mesh->axes[LS_AXIS_DP_SHARD + 1].shares |= shares;
}

/* Blocks of a row are not cut. */
static bool cuts_blocks(const ls_layout *layout, const ls_parameter *about, int64_t tp) {
  const bool whole = layout->whole_experts && ls_tp_is_of_experts(about->sharding);
  const bool within_rows = tensor_strategy[about->sharding][0] == 1 && !whole;
  return ls_precision_is_blocks(about->precision) && within_rows && about->dims[1] % tp != 0;
}

static ls_status check_blocks(const ls_layout *layout, const ls_graph *graph, ls_error *error) {
  for (int p = 0; p < graph->parameters.count; p++) {
    const ls_parameter *about = &graph->parameters.items[p].about;
    if (!cuts_blocks(layout, about, layout->tp)) continue;
    int nearest = layout->tp;
    while (!kv_ranks_of(graph, nearest) || cuts_blocks(layout, about, nearest)) nearest--;
    return ls_fail(
        error, LS_INPUT,
        "mesh.tp=%d with quantize: a row of %s is %lld block%s of %d weights, and no block "
        "is cut: use mesh.tp=%d",
        layout->tp, about->name, (long long)about->dims[1], about->dims[1] == 1 ? "" : "s",
        (int)LS_BLOCK_WEIGHTS, nearest);
  }
  return LS_OK;
}

/* Columns of experts that are pairs of a gate and an up are cut into whole pairs. */
static bool cuts_pairs(const ls_graph *graph, const ls_node *node, int tp) {
  return node->kind == LS_OP_PAIRED_GLU && ls_graph_tensor(graph, node->out[0])->dims[1] % tp != 0;
}

static ls_status check_pairs(const ls_layout *layout, const ls_graph *graph, ls_error *error) {
  for (int n = 0; n < graph->nodes.count; n++) {
    const ls_node *node = &graph->nodes.items[n];
    if (layout->whole_experts || !cuts_pairs(graph, node, layout->tp)) continue;
    int nearest = layout->tp;
    while (!kv_ranks_of(graph, nearest) || cuts_pairs(graph, node, nearest)) nearest--;
    return ls_fail(error, LS_INPUT,
                   "mesh.tp=%d with experts of %lld gates, each beside its up: use mesh.tp=%d",
                   layout->tp, (long long)ls_graph_tensor(graph, node->out[0])->dims[1], nearest);
  }
  return LS_OK;
}

static bool fits(const ls_layout *layout, const ls_mesh *mesh) {
  const int sizes[LS_MESH_ROLES] = {[LS_MESH_STAGE] = layout->pp,
                                    [LS_MESH_REPLICATE] = layout->dp_replicate,
                                    [LS_MESH_SHARD] = layout->dp_shard * layout->cp,
                                    [LS_MESH_TENSOR] = layout->tp};
  for (int role = 0; role < LS_MESH_ROLES; role++)
    if (ls_mesh_size(mesh, ls_mesh_axes(mesh, (ls_axis_role)role)) != sizes[role]) return false;
  return true;
}

ls_status ls_layout_mesh(const ls_layout *layout, const ls_graph *graph, ls_mesh *mesh,
                         ls_error *error) {
  if (layout->pp < 1 || layout->dp_replicate < 1 || layout->dp_shard < 1 || layout->cp < 1 ||
      layout->tp < 1 || layout->ep < 1 || layout->microbatches < 1)
    return ls_fail(error, LS_INPUT,
                   "mesh.pp=%d, mesh.dp_replicate=%d, mesh.dp_shard=%d, mesh.cp=%d, mesh.tp=%d, "
                   "mesh.ep=%d, %d microbatches: each must be at least 1",
                   layout->pp, layout->dp_replicate, layout->dp_shard, layout->cp, layout->tp,
                   layout->ep, layout->microbatches);
  if (layout->zero < 0 || layout->zero >= LS_DATA_STRATEGY_COUNT)
    return ls_fail(error, LS_INPUT, "zero=%d: expected 0 to %d", layout->zero,
                   LS_DATA_STRATEGY_COUNT - 1);
  if (!kv_ranks_of(graph, layout->tp)) return refuse_tp(graph, layout->tp, error);
  LS_TRY(check_blocks(layout, graph, error));
  LS_TRY(check_pairs(layout, graph, error));
  LS_TRY(check_context(layout, graph, error));
  LS_TRY(check_heads(layout, graph, error));
  LS_TRY(check_experts(layout, graph, error));
  LS_TRY(check_post_validation(layout, error));
  LS_TRY(check_point(layout, error));
  if (layout->offload.parameters && layout->dp_shard * layout->cp > 1 &&
      ls_data_strategy_row(layout->zero)->parameters == LS_REPLICATED)
    return ls_fail(error, LS_INPUT,
                   "offload.parameters=%s with zero=%d, where every rank stores them whole: use "
                   "zero=3, or offload.parameters=none",
                   ls_tier_name(layout->offload.parameters), layout->zero);
  const int64_t data = (int64_t)layout->dp_replicate * layout->dp_shard;
  const int64_t sequences = graph->tokens / graph->sequence;
  if (sequences % data)
    return ls_fail(error, LS_INPUT,
                   "%lld sequences per microbatch over %lld data-parallel ranks: use a batch that "
                   "is a multiple of %lld",
                   (long long)sequences, (long long)data, (long long)(data * layout->microbatches));
  if (layout->mesh && !fits(layout, layout->mesh))
    return ls_fail(error, LS_INPUT,
                   "a mesh whose axes of a role have other products than the layout: use as many "
                   "stages, replicas, shards and tensor-parallel ranks");
  const int tp_kv = kv_ranks_of(graph, layout->tp);
  *mesh = layout->mesh ? *layout->mesh
                       : ls_mesh_make((const int[LS_MESH_ROWS]){
                             [LS_AXIS_PP] = layout->pp,
                             [LS_AXIS_DP_REPLICATE] = layout->dp_replicate,
                             [LS_AXIS_DP_SHARD] = layout->dp_shard,
                             [LS_AXIS_CP] = layout->cp,
                             [LS_AXIS_TP_KV] = tp_kv,
                             [LS_AXIS_TP_GROUP] = layout->tp / tp_kv,
                         });
  if (!layout->mesh) share_heads(layout, graph, mesh);
  if (!layout->mesh) share_experts(layout, mesh);
  return LS_OK;
}
