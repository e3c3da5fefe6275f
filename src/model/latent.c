#include "model/family.h"

/* Multi-head latent attention (DeepSeek-V2, 2024): of the stream a narrow latent is made, of which
 * each head's key and value are products; likewise, but for the smallest models, its query. The
 * columns that positions turn are beside them: of each head's query its last ones, of keys one row
 * that all heads share.
 *
 * Values may have other columns than keys. Attention has them alike: the narrower are followed by
 * zeros, which change no score and add nothing, and are left out of what it gives. */

/* Hugging Face's, whatever rms_norm_eps says. */
static const double latent_epsilon = 1e-6;

static ls_tensor_id norm(ls_builder *builder, ls_tensor_id x, const char *name) {
  ls_graph *graph = builder->graph;
  const int64_t columns = ls_graph_tensor(graph, x)->dims[1];
  const ls_tensor_id weight =
      ls_builder_vector(builder, name, columns, LS_TP_REPLICATED, LS_INIT_ONES);
  return ls_graph_rmsnorm(graph, x, weight, latent_epsilon, 0);
}

/* Heads of so many columns as those that attention has. */
static ls_tensor_id widen(ls_builder *builder, ls_tensor_id x, int64_t columns) {
  const int64_t head_dim = builder->config->head_dim;
  if (columns == head_dim) return x;
  return ls_graph_heads(builder->graph, x, (ls_tensor_id){-1}, columns, head_dim);
}

static ls_tensor_id turn(ls_builder *builder, ls_tensor_id x, int64_t head_dim) {
  const ls_model_config *config = builder->config;
  return ls_graph_rope_columns(builder->graph, x, builder->rope,
                               &(ls_attributes){.head_dim = head_dim,
                                                .rope_first = head_dim - config->rotary_dim,
                                                .rope_neighbours = config->rope_neighbours});
}

static ls_tensor_id queries(ls_builder *builder, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  const int64_t columns = config->plain_dim + config->rotary_dim;
  const double deviation = config->initializer_range;
  if (config->query_latent) {
    x = ls_builder_project(builder, x, "attention.query_latent", config->query_latent,
                           LS_TP_REPLICATED, config->attention_bias, deviation);
    x = norm(builder, x, "attention.query_latent_norm.weight");
  }
  const ls_tensor_id q = ls_builder_project(builder, x, "attention.query", config->heads * columns,
                                            LS_TP_QUERY, false, deviation);
  return turn(builder, q, columns);
}

/* Of every head the key and the value of its own. */
static ls_tensor_id attend_heads(ls_builder *builder, ls_tensor_id q, ls_tensor_id latent,
                                 ls_tensor_id shared) {
  const ls_model_config *config = builder->config;
  ls_graph *graph = builder->graph;
  const double deviation = config->initializer_range;
  const ls_tensor_id key =
      ls_builder_project(builder, latent, "attention.key", config->heads * config->plain_dim,
                         LS_TP_QUERY, false, deviation);
  const ls_tensor_id value =
      ls_builder_project(builder, latent, "attention.value", config->heads * config->value_dim,
                         LS_TP_QUERY, false, deviation);
  const ls_tensor_id k = ls_graph_heads(graph, key, shared, config->plain_dim, config->head_dim);
  const ls_tensor_id y =
      ls_builder_attend(builder, widen(builder, q, config->plain_dim + config->rotary_dim), k,
                        widen(builder, value, config->value_dim));
  if (config->value_dim == config->head_dim) return y;
  return ls_graph_heads(graph, y, (ls_tensor_id){-1}, config->head_dim, config->value_dim);
}

/* What makes all heads' keys or values of a latent. Those of each head are multiplied apart. */
static ls_tensor_id matrix(ls_builder *builder, const char *name, int64_t out) {
  const ls_model_config *config = builder->config;
  const ls_tensor_id weight = ls_builder_product_weight(builder, name, out, config->latent,
                                                        LS_TP_QUERY, config->initializer_range);
  if (!ls_precision_is_blocks(config->blocks)) return weight;
  return ls_graph_dequantize(builder->graph, weight);
}

/* The same of latents alone, which all heads share as their key and value, so that a token's cache
 * is one latent and one turned key: what makes a head's key of it multiplies the query instead, and
 * what makes its value multiplies what attention gives. */
static ls_tensor_id attend_latents(ls_builder *builder, ls_tensor_id q, ls_tensor_id latent,
                                   ls_tensor_id shared) {
  const ls_model_config *config = builder->config;
  ls_graph *graph = builder->graph;
  const int64_t columns = config->latent + config->rotary_dim;
  const ls_tensor_id key =
      matrix(builder, "attention.key.weight", config->heads * config->plain_dim);
  const ls_tensor_id value =
      matrix(builder, "attention.value.weight", config->heads * config->value_dim);
  ls_model_config of_latents = *config;
  of_latents.head_dim = columns;
  of_latents.kv_heads = 1;
  ls_builder inner = *builder;
  inner.config = &of_latents;
  q = ls_graph_heads_up(graph, q, key, config->plain_dim + config->rotary_dim);
  const ls_tensor_id k = ls_graph_heads(graph, latent, shared, config->latent, columns);
  return ls_graph_heads_down(graph, ls_builder_attend(&inner, q, k, k), value, columns);
}

ls_tensor_id ls_builder_latent_attention(ls_builder *builder, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  const double deviation = config->initializer_range;
  const bool bias = config->attention_bias, decodes = builder->options->mode == LS_MODEL_DECODE;
  const ls_tensor_id q = queries(builder, x);
  const ls_tensor_id latent =
      norm(builder,
           ls_builder_project(builder, x, "attention.latent", config->latent, LS_TP_REPLICATED,
                              bias, deviation),
           "attention.latent_norm.weight");
  const ls_tensor_id shared =
      turn(builder,
           ls_builder_project(builder, x, "attention.shared_key", config->rotary_dim,
                              LS_TP_REPLICATED, bias, deviation),
           config->rotary_dim);
  const ls_tensor_id y = (decodes ? attend_latents : attend_heads)(builder, q, latent, shared);
  return ls_builder_project(builder, y, "attention.output", config->width, LS_TP_HEADS_IN, bias,
                            deviation);
}
