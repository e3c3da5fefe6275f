/* The edges that a shrunk form keeps, as a table. */
#include "pipeline/stages.h"
#include "schedule/chunks.h"
#include "schedule/logits_slices.h"
#include "verify/shrink_parts.h"

static int64_t chain(const ls_form *form) {
  return form->pp * form->chunks;
}

/* Whether some ranks have none of what is cut evenly, as far as that goes. */
static bool leaves_none(int64_t count, int64_t ranks) {
  return (count + ranks - 1) / ranks * (ranks - 1) >= count;
}

/* -1, 0, 1. */
static int64_t sign(int64_t a, int64_t b) {
  return (a > b) - (a < b);
}

/* Groups of `size` among `count` layers. 0: none; 1: each alone; 2: one group of all; 3: groups of
 * one size; 4: a last one that is smaller. */
static int64_t group_side(int64_t size, int64_t count) {
  if (size <= 1) return size;
  if (size >= count) return 2;
  return count % size ? 4 : 3;
}

/* 0: logits are made at once; 1: in slices of one size; 2: of which the last is shorter. */
static int64_t slice_side(const ls_form *form) {
  if (!form->logits_rows) return 0;
  return form->sequences * form->sequence % form->logits_rows ? 2 : 1;
}

int64_t ls_form_expert_ranks_inside(const ls_form *form) {
  return form->cp * (form->whole_experts ? form->tp : 1);
}

int64_t ls_form_expert_shards(const ls_form *form) {
  return form->ep > 1 ? form->ep / ls_form_expert_ranks_inside(form) : 1;
}

#define EDGE(name, ...)                      \
  static int64_t name(const ls_form *form) { \
    return (__VA_ARGS__);                    \
  }

EDGE(stages, form->pp > 1)
EDGE(replicas, form->replicas > 1)
EDGE(shards, form->shards > 1)
EDGE(context_ranks, form->cp > 1)
EDGE(expert_shards, ls_form_expert_shards(form) > 1)
EDGE(expert_replicas, form->ep > 1 && form->shards > ls_form_expert_shards(form))
EDGE(tensor_ranks, form->tp > 1)
/* Of two, the next is the one before, and the first and the rest are the first and the last. */
EDGE(third_shard, form->shards > 2)
EDGE(third_context_rank, form->cp > 2)
EDGE(third_replica, form->replicas > 2)
EDGE(third_tensor_rank, form->tp > 2)
EDGE(third_stage, form->pp > 2)
EDGE(several_microbatches, form->microbatches > 1)
EDGE(several_chunks, form->chunks > 1)
EDGE(kv_below_tp, form->kv_heads < form->tp)
EDGE(queries_over_context, form->head_ranks > 1 && (form->kv_heads < form->tp ||
                                                    form->kv_heads / form->tp < form->head_ranks))
EDGE(grouped_heads, form->heads > form->kv_heads)
EDGE(vocabulary_over_tp, form->vocabulary % form->tp != 0)
EDGE(mlp_over_tp, form->mlp_width % form->tp != 0)
EDGE(several_layers, form->layers > 1)
EDGE(layers_away, form->offloads && form->layers >= 2 * chain(form))
EDGE(layers_over_chunks, !form->by_hand && form->layers % chain(form) != 0)
EDGE(cut_by_hand, form->by_hand)
EDGE(microbatches_over_stages, form->microbatches % form->pp != 0)
EDGE(tokens_over_tp, form->sequence_parallel && form->sequences * form->sequence % form->tp != 0)
EDGE(several_sequences, form->sequences > 1)
/* What is partial over tp is summed before a product or after it, whichever is smaller. */
EDGE(tokens_to_width, form->tp > 1 && form->sequences * form->sequence > form->width)
EDGE(slices, slice_side(form))
EDGE(layers_to_chunks, form->by_hand ? 0 : sign(form->layers, chain(form)))
EDGE(units, group_side(form->wrap, form->layers))
EDGE(recomputed, group_side(form->recompute, form->layers))
EDGE(microbatches_to_stages, sign(form->microbatches, form->pp))
EDGE(several_kv_heads, form->kv_heads > 1)
EDGE(kv_heads_each, form->kv_heads > form->tp)
EDGE(heads_each, form->heads > form->tp)
EDGE(shorter_than_positions, form->sequence < form->positions)
EDGE(width_of_heads, sign(form->width, form->heads * form->head_dim))
EDGE(steady, form->microbatches >= 2 * form->pp - 1)
EDGE(vocabulary_everywhere, leaves_none(form->vocabulary, form->tp))
EDGE(mlp_everywhere, leaves_none(form->mlp_width, form->tp))
EDGE(units_in_chunks, form->layers >= chain(form) * form->wrap)
EDGE(recomputed_in_chunks, form->layers >= chain(form) * form->recompute)

#undef EDGE

const ls_form_edge ls_form_edges[] = {
    {"more than one stage", LS_SHRINK_MESH, stages},
    {"more than one replica", LS_SHRINK_MESH, replicas},
    {"more than one shard", LS_SHRINK_MESH, shards},
    {"more than one context-parallel rank", LS_SHRINK_MESH, context_ranks},
    {"more than one tensor-parallel rank", LS_SHRINK_MESH, tensor_ranks},
    {"shards that share out experts", LS_SHRINK_MESH, expert_shards},
    {"shards that have the same experts", LS_SHRINK_MESH, expert_replicas},
    {"more than one microbatch", LS_SHRINK_MICROBATCHES, several_microbatches},
    {"more than one chunk on a stage", LS_SHRINK_CHUNKS, several_chunks},
    {"KV heads fewer than tp", LS_SHRINK_HEADS, kv_below_tp},
    {"KV heads fewer than tp x cp, which share out heads", LS_SHRINK_HEADS, queries_over_context},
    {"several query heads for a KV head", LS_SHRINK_HEADS, grouped_heads},
    {"more than one KV head", LS_SHRINK_HEADS, several_kv_heads},
    {"vocabulary over tp", LS_SHRINK_VOCABULARY, vocabulary_over_tp},
    {"MLP width over tp", LS_SHRINK_MLP, mlp_over_tp},
    {"more than one layer", LS_SHRINK_LAYERS, several_layers},
    {"layers that keep nothing on the device", LS_SHRINK_LAYERS, layers_away},
    {"layers over chunks", LS_SHRINK_LAYERS, layers_over_chunks},
    {"chunks cut by hand, empty and unlike ones", LS_SHRINK_LAYERS, cut_by_hand},
    {"microbatches over stages", LS_SHRINK_MICROBATCHES, microbatches_over_stages},
    {"tokens over tp", LS_SHRINK_TOKENS, tokens_over_tp},
    {"more tokens than width", LS_SHRINK_TOKENS, tokens_to_width},
    {"more than one sequence at a time", LS_SHRINK_TOKENS, several_sequences},
    {"logits in slices, the last one shorter", LS_SHRINK_TOKENS, slices},
    {"fewer or more layers than chunks", LS_SHRINK_LAYERS, layers_to_chunks},
    {"units of layers, the last one smaller", LS_SHRINK_LAYERS, units},
    {"groups of recomputed layers, the last one smaller", LS_SHRINK_LAYERS, recomputed},
    {"fewer or more microbatches than stages", LS_SHRINK_MICROBATCHES, microbatches_to_stages},
    {"more than one KV head on a rank", LS_SHRINK_HEADS, kv_heads_each},
    {"more than one head on a rank", LS_SHRINK_HEADS, heads_each},
    {"sequences shorter than the model's longest", LS_SHRINK_TOKENS, shorter_than_positions},
    {"width other than heads x head size", LS_SHRINK_HEADS, width_of_heads},
    {"microbatches enough for a steady state", LS_SHRINK_MICROBATCHES, steady},
    {"more than two shards", LS_SHRINK_MESH, third_shard},
    {"more than two replicas", LS_SHRINK_MESH, third_replica},
    {"more than two context-parallel ranks", LS_SHRINK_MESH, third_context_rank},
    {"ranks without a row of the vocabulary", LS_SHRINK_VOCABULARY, vocabulary_everywhere},
    {"ranks without a row of the MLP", LS_SHRINK_MLP, mlp_everywhere},
    {"whole units in a chunk", LS_SHRINK_LAYERS, units_in_chunks},
    {"whole groups of recomputed layers in a chunk", LS_SHRINK_LAYERS, recomputed_in_chunks},
    {"more than two tensor-parallel ranks", LS_SHRINK_MESH, third_tensor_rank},
    {"more than two stages", LS_SHRINK_MESH, third_stage},
};
const int ls_form_edge_count = sizeof ls_form_edges / sizeof *ls_form_edges;

static int64_t at_least_one(int number) {
  return number > 1 ? number : 1;
}

unsigned ls_shrink_cut_like(const int *layers, int64_t chunks) {
  unsigned like = LS_FORM_BY_HAND;
  int other = 0;
  for (int64_t c = 0; c < chunks; c++) {
    if (!layers[c]) like |= LS_FORM_EMPTY_CHUNK;
    if (layers[c] && other && layers[c] != other) like |= LS_FORM_UNLIKE_CHUNKS;
    if (layers[c]) other = layers[c];
  }
  return like;
}

static ls_status read_cut(ls_arena *scratch, const char *stages, ls_form *form, ls_error *error) {
  if (!stages) return LS_OK;
  const int count = (int)chain(form);
  int *first = LS_NEW_ARRAY(scratch, int, count + 1);
  LS_TRY(ls_stages_parse(stages, (int)form->layers, count, first, error));
  for (int c = 0; c < count; c++) first[c] = first[c + 1] - first[c];
  form->by_hand = ls_shrink_cut_like(first, count);
  return LS_OK;
}

static int64_t slice_of(const ls_form *form, const ls_layout *layout) {
  const int64_t columns = (form->vocabulary + form->tp - 1) / form->tp;
  return ls_logits_slices_rows(
      form->sequences * form->sequence,
      ls_logits_row_elements(columns, layout) * (int64_t)ls_dtype_bytes(layout->compute), layout);
}

ls_status ls_form_make(const ls_model_config *config, const ls_layout *layout, int64_t batch,
                       int64_t sequence, ls_form *form, ls_error *error) {
  ls_arena *scratch = ls_arena_create();
  ls_pipeline *pipeline;
  ls_status status = ls_chunks_pipeline(scratch, layout, &pipeline, error);
  if (status == LS_OK)
    *form = (ls_form){
        .pp = layout->pp,
        .replicas = ls_layout_data_ranks(layout) / ls_layout_shards(layout),
        .shards = ls_layout_shards(layout),
        .cp = layout->cp,
        .tp = layout->tp,
        .ep = layout->ep,
        .whole_experts = layout->whole_experts,
        .chunks = pipeline->chunks,
        .microbatches = layout->microbatches,
        .layers = config->layers,
        .wrap = at_least_one(layout->layers_per_unit),
        .recompute = !ls_op_set_is_empty(&layout->recompute) || layout->recompute_of_count
                         ? at_least_one(layout->recompute_layers)
                         : 0,
        .heads = config->heads,
        .kv_heads = config->kv_heads,
        .head_dim = config->head_dim,
        .latent = config->latent > 0,
        .width = config->width,
        .mlp_width = config->mlp_width,
        .block = ls_precision_numbers(config->blocks),
        .experts = config->experts,
        .experts_per_token = config->experts_per_token,
        .vocabulary = config->vocabulary,
        .sequences = batch / ((int64_t)layout->microbatches * ls_layout_data_ranks(layout)),
        .sequence = sequence,
        .positions = config->positions,
        .sequence_parallel = layout->sequence_parallel && layout->tp > 1,
        .head_ranks = ls_layout_head_ranks(layout),
        .offloads = layout->offload.activations != LS_TIER_DEVICE};
  if (status == LS_OK) form->logits_rows = slice_of(form, layout);
  if (status == LS_OK) status = read_cut(scratch, layout->stages, form, error);
  ls_arena_destroy(&scratch);
  return status;
}
