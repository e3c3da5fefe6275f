#include <math.h>
#include <string.h>

#include "model/family.h"

/* The block of Llama and of all that came after it: a stream to which attention and an MLP are
 * added, with norms before or behind them. What differs is ls_decoder, by family, and
 * ls_model_config, by file. */

bool ls_builder_layer_has(const ls_builder *builder, int kind) {
  const uint8_t *kinds = builder->config->layer_kinds;
  return kinds ? kinds[builder->layer] & kind : kind == LS_LAYER_WINDOW;
}

ls_tensor_id ls_builder_norm(ls_builder *builder, const char *name, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  ls_graph *graph = builder->graph;
  const ls_norm_kind kind = builder->family->decoder.norm;
  const bool offset = kind == LS_NORM_RMS_OFFSET;
  ls_tensor_id weight =
      ls_builder_vector(builder, ls_arena_printf(graph->arena, "%s.weight", name), config->width,
                        LS_TP_REPLICATED, offset ? LS_INIT_ZEROS : LS_INIT_ONES);
  if (kind == LS_NORM_LAYER_UNBIASED)
    return ls_graph_layernorm(graph, x, weight, (ls_tensor_id){-1}, config->epsilon);
  if (kind != LS_NORM_LAYER) return ls_graph_rmsnorm(graph, x, weight, config->epsilon, offset);
  ls_tensor_id bias = ls_builder_vector(builder, ls_arena_printf(graph->arena, "%s.bias", name),
                                        config->width, LS_TP_REPLICATED, LS_INIT_ZEROS);
  return ls_graph_layernorm(graph, x, weight, bias, config->epsilon);
}

static ls_tensor_id rope_table(ls_builder *builder, bool local) {
  const ls_model_config *config = builder->config;
  ls_graph *graph = builder->graph;
  const ls_build_options *options = builder->options;
  /* Decoding turns all keys of a sequence alike: as the longest it may become asks for. */
  const int64_t longest =
      options->mode == LS_MODEL_DECODE ? options->cache_rows : options->sequence;
  const int64_t columns = config->rotary_dim ? config->rotary_dim : config->head_dim;
  ls_attributes attributes = {.rope_pairs = columns / 2};
  attributes.rope_frequencies =
      ls_rope_frequencies(graph->arena, config, local, longest, &attributes.rope_scale);
  return ls_graph_rope_table(graph, graph->positions, &attributes);
}

/* Whether the layer being built turns by the base of layers with a window. */
static bool turns_locally(const ls_builder *builder) {
  const ls_model_config *config = builder->config;
  return config->rope_local_theta > 0 && config->window > 0 &&
         ls_builder_layer_has(builder, LS_LAYER_WINDOW);
}

/* The tables that layers need. */
static void make_rope_tables(ls_builder *builder) {
  bool needed[2] = {false, false};
  ls_builder each = *builder;
  for (each.layer = 0; each.layer < each.config->layers; each.layer++)
    if (!ls_builder_layer_has(&each, LS_LAYER_NO_ROPE)) needed[turns_locally(&each)] = true;
  if (builder->family->decoder.alibi) return;
  if (needed[0]) builder->rope = rope_table(builder, false);
  if (needed[1]) builder->local_rope = rope_table(builder, true);
}

ls_tensor_id ls_decoder_embed(ls_builder *builder) {
  const ls_model_config *config = builder->config;
  const ls_decoder *decoder = &builder->family->decoder;
  ls_graph *graph = builder->graph;
  make_rope_tables(builder);
  builder->table = ls_builder_weight(builder, "token", config->vocabulary, config->width,
                                     LS_TP_VOCABULARY, config->initializer_range);
  ls_tensor_id x = ls_graph_stream(
      graph, ls_graph_embedding(graph, builder->table, graph->ids, config->embedding_scale));
  if (decoder->embedding_norm) x = ls_builder_norm(builder, "norm", x);
  return ls_builder_embedded(builder, x);
}

/* Queries or keys, normed and turned. */
static ls_tensor_id place_heads(ls_builder *builder, ls_tensor_id x, const char *name,
                                ls_tp_sharding sharding) {
  const ls_model_config *config = builder->config;
  const ls_decoder *decoder = &builder->family->decoder;
  ls_graph *graph = builder->graph;
  name = ls_arena_printf(graph->arena, "attention.%s_norm.weight", name);
  const bool offset = decoder->norm == LS_NORM_RMS_OFFSET;
  const ls_init init = offset ? LS_INIT_ZEROS : LS_INIT_ONES;
  const int64_t columns = ls_graph_tensor(graph, x)->dims[1];
  if (decoder->query_norm == LS_QUERY_NORM_HEAD && !config->unnormed_queries) {
    ls_tensor_id weight =
        ls_builder_vector(builder, name, config->head_dim, LS_TP_REPLICATED, init);
    x = ls_graph_headnorm(graph, x, weight, config->epsilon, offset);
  }
  if (decoder->query_norm == LS_QUERY_NORM_ALL) {
    ls_tensor_id weight = ls_builder_vector(builder, name, columns, sharding, init);
    x = ls_graph_cut_rmsnorm(graph, x, weight, config->epsilon);
  }
  if (decoder->alibi || ls_builder_layer_has(builder, LS_LAYER_NO_ROPE)) return x;
  return ls_graph_rope(graph, x, turns_locally(builder) ? builder->local_rope : builder->rope,
                       config->head_dim);
}

static ls_tensor_id attention(ls_builder *builder, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  if (config->latent) return ls_builder_latent_attention(builder, x);
  const int64_t q_width = config->heads * config->head_dim;
  const int64_t kv_width = config->kv_heads * config->head_dim;
  const bool bias = config->attention_bias;
  const bool output_bias = bias && !builder->family->decoder.output_unbiased;
  const double deviation = config->initializer_range;
  ls_tensor_id q =
      ls_builder_project(builder, x, "attention.query", q_width, LS_TP_QUERY, bias, deviation);
  ls_tensor_id k =
      ls_builder_project(builder, x, "attention.key", kv_width, LS_TP_KEY_VALUE, bias, deviation);
  ls_tensor_id v =
      ls_builder_project(builder, x, "attention.value", kv_width, LS_TP_KEY_VALUE, bias, deviation);
  q = place_heads(builder, q, "query", LS_TP_QUERY);
  k = place_heads(builder, k, "key", LS_TP_KEY_VALUE);
  return ls_builder_project(builder, ls_builder_attend(builder, q, k, v), "attention.output",
                            config->width, LS_TP_HEADS_IN, output_bias, deviation);
}

ls_tensor_id ls_decoder_mlp(ls_builder *builder, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  ls_graph *graph = builder->graph;
  const bool bias = config->mlp_bias, plain = builder->family->decoder.plain_mlp;
  const double deviation = config->initializer_range;
  ls_tensor_id gate = {-1};
  if (!plain)
    gate = ls_builder_project(builder, x, "mlp.gate", config->mlp_width, LS_TP_COLUMN, bias,
                              deviation);
  ls_tensor_id up =
      ls_builder_project(builder, x, "mlp.up", config->mlp_width, LS_TP_COLUMN, bias, deviation);
  ls_tensor_id y = plain ? ls_graph_gelu(graph, up, config->activation)
                         : ls_graph_swiglu(graph, gate, up, config->activation);
  return ls_builder_project(builder, y, "mlp.down", config->width, LS_TP_ROW, bias, deviation);
}

/* Attention and MLP side by side. Without biases their sum is made before it is summed over ranks,
 * so that one collective does for both. */
static ls_tensor_id parallel_block(ls_builder *builder, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  ls_graph *graph = builder->graph;
  ls_tensor_id before = ls_builder_norm(builder, "norm1", x);
  ls_tensor_id y = attention(builder, before);
  if (config->attention_bias) ls_graph_stream(graph, y);
  y = ls_graph_dropout(graph, y, builder->dropout.hidden);
  if (!config->shared_norm) before = ls_builder_norm(builder, "norm2", x);
  ls_tensor_id z = ls_decoder_mlp(builder, before);
  if (config->mlp_bias) ls_graph_stream(graph, z);
  z = ls_graph_dropout(graph, z, builder->dropout.hidden);
  y = ls_graph_stream(graph, ls_graph_add(graph, y, z));
  return ls_graph_stream(graph, ls_graph_add(graph, x, y));
}

/* One branch with its norms, added to the stream. */
static ls_tensor_id add_branch(ls_builder *builder, ls_tensor_id x,
                               ls_tensor_id (*branch)(ls_builder *, ls_tensor_id), int number) {
  ls_graph *graph = builder->graph;
  const ls_norm_place place = builder->family->decoder.norm_place;
  const char *before = ls_arena_printf(graph->arena, "norm%d", number);
  const char *behind = ls_arena_printf(graph->arena, "behind%d", number);
  const bool unnormed =
      builder->family->decoder.first_unnormed && number == 1 && builder->layer == 0;
  const bool plain = place == LS_NORM_BEHIND || unnormed;
  ls_tensor_id y = plain ? x : ls_builder_norm(builder, before, x);
  y = ls_graph_stream(graph, branch(builder, y));
  if (place != LS_NORM_BEFORE) y = ls_graph_stream(graph, ls_builder_norm(builder, behind, y));
  y = ls_builder_branch(builder, y);
  return ls_graph_stream(graph, ls_graph_add(graph, x, y));
}

ls_tensor_id ls_decoder_block(ls_builder *builder, ls_tensor_id x) {
  if (builder->config->parallel) return parallel_block(builder, x);
  x = add_branch(builder, x, attention, 1);
  const bool dense = !builder->config->experts || ls_builder_layer_has(builder, LS_LAYER_DENSE);
  return add_branch(builder, x, dense ? ls_decoder_mlp : ls_decoder_experts, 2);
}

ls_tensor_id ls_decoder_final_norm(ls_builder *builder, ls_tensor_id x) {
  return ls_builder_norm(builder, "norm", x);
}
