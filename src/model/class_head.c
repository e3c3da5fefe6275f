#include "model/family.h"

/* A head over classes: what it reads of a text, what stands before the product that makes logits,
 * and that product. All of it is made for every token, and asked at one of each text. */

/* Each token's mean of those that it sees: attention whose scores are all the same. */
static ls_tensor_id mean(ls_builder *builder, ls_tensor_id x) {
  ls_graph *graph = builder->graph;
  const ls_model_config *config = builder->config;
  const ls_attributes attributes = {.sequence = builder->options->sequence,
                                    .head_dim = config->width / config->heads,
                                    .kv_heads = config->heads,
                                    .two_way = builder->family->decoder.two_way};
  if (graph->places.index >= 0)
    x = ls_graph_placed_attention(graph, x, x, x, graph->positions, graph->places, &attributes);
  else if (builder->options->documents)
    x = ls_graph_document_attention(graph, x, x, x, graph->positions, &attributes);
  else
    x = ls_graph_attention(graph, x, x, x, &attributes);
  return ls_graph_stream(graph, x);
}

static ls_tensor_id drop(ls_builder *builder, ls_tensor_id x) {
  return ls_graph_stream(builder->graph,
                         ls_graph_dropout(builder->graph, x, builder->dropout.head));
}

/* A product with a weight and, where `bias`, a bias, whole on every rank and never quantised. */
static ls_tensor_id product(ls_builder *builder, ls_tensor_id x, const char *weight,
                            const char *bias, int64_t out) {
  const ls_model_config *config = builder->config;
  ls_tensor_id y = ls_graph_linear(builder->graph, x,
                                   ls_builder_weight(builder, weight, out, config->width,
                                                     LS_TP_REPLICATED, config->initializer_range));
  if (!bias) return y;
  return ls_graph_bias(builder->graph, y,
                       ls_builder_vector(builder, bias, out, LS_TP_REPLICATED, LS_INIT_ZEROS));
}

static ls_tensor_id before(ls_builder *builder, ls_tensor_id x) {
  const ls_class_form *form = &builder->family->classes;
  ls_graph *graph = builder->graph;
  const bool normed = form->before == LS_BEFORE_GELU_NORM;
  const bool pooler = !normed; /* which is of texts alone */
  if (form->before == LS_BEFORE_NOTHING) return x;
  if (pooler && builder->config->pooling == LS_POOLING_EACH) return x;
  if (form->drops_twice) x = drop(builder, x);
  builder->module = LS_HEAD_BEFORE;
  x = product(builder, x, "dense.weight", normed ? NULL : "dense.bias", builder->config->width);
  switch (form->before) {
    case LS_BEFORE_TANH: x = ls_graph_softcap(graph, x, 1); break;
    case LS_BEFORE_RELU: x = ls_graph_gelu(graph, x, LS_RELU); break;
    default: x = ls_graph_gelu(graph, x, LS_GELU_ERF); break;
  }
  x = ls_graph_stream(graph, x);
  if (normed) x = ls_graph_stream(graph, ls_builder_norm(builder, "norm", x));
  return x;
}

ls_tensor_id ls_builder_pooled(ls_builder *builder, ls_tensor_id x) {
  const bool each = builder->config->pooling == LS_POOLING_EACH;
  if (builder->config->pooling == LS_POOLING_MEAN) x = mean(builder, x);
  x = before(builder, x);
  return each || builder->family->classes.dropout_key ? drop(builder, x) : x;
}

ls_tensor_id ls_builder_classes(ls_builder *builder, ls_tensor_id x) {
  const bool bias = builder->family->classes.bias || builder->config->pooling == LS_POOLING_EACH;
  builder->module = LS_HEAD_CLASSES;
  x = product(builder, x, "weight", bias ? "bias" : NULL, builder->config->classes);
  builder->module = 0;
  return x;
}

int ls_model_pair_ends(const ls_model_config *config) {
  return ls_family_find(config->family)->classes.pair_ends;
}

bool ls_model_asks_first(const ls_model_config *config) {
  return config->pooling == LS_POOLING_FIRST ||
         (config->pooling == LS_POOLING_MEAN && ls_model_is_encoder(config));
}
