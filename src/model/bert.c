#include <math.h>
#include <string.h>

#include "model/family.h"

/* BERT, RoBERTa and DistilBERT as transformers builds them: encoders, whose tokens see those behind
 * them; learned positions and types of sentences, norms behind each sum, biases everywhere, and a
 * head of its own before the tied one (BertForMaskedLM). Poolers and heads of next sentences are
 * not built. RoBERTa leaves the first rows of its positions to padding; DistilBERT has no types. */

#define KEY(key, alias, kind, field, fallback) \
  { key, alias, kind, offsetof(ls_model_config, field), fallback }

static const ls_config_key keys[] = {
    KEY("vocab_size", NULL, LS_KEY_COUNT, vocabulary, 30522),
    KEY("hidden_size", NULL, LS_KEY_COUNT, width, 768),
    KEY("num_hidden_layers", NULL, LS_KEY_COUNT, layers, 12),
    KEY("num_attention_heads", NULL, LS_KEY_COUNT, heads, 12),
    KEY("intermediate_size", NULL, LS_KEY_COUNT, mlp_width, 3072),
    KEY("max_position_embeddings", NULL, LS_KEY_COUNT, positions, 512),
    KEY("type_vocab_size", NULL, LS_KEY_COUNT, types, 2),
    KEY("layer_norm_eps", NULL, LS_KEY_NUMBER, epsilon, 1e-12),
    KEY("initializer_range", NULL, LS_KEY_NUMBER, initializer_range, 0.02),
    KEY("tie_word_embeddings", NULL, LS_KEY_BOOL, tied, 1),
    {0}};

static const ls_config_key distilbert_keys[] = {
    KEY("vocab_size", NULL, LS_KEY_COUNT, vocabulary, 30522),
    KEY("dim", "hidden_size", LS_KEY_COUNT, width, 768),
    KEY("n_layers", "num_hidden_layers", LS_KEY_COUNT, layers, 6),
    KEY("n_heads", "num_attention_heads", LS_KEY_COUNT, heads, 12),
    KEY("hidden_dim", NULL, LS_KEY_COUNT, mlp_width, 3072),
    KEY("max_position_embeddings", NULL, LS_KEY_COUNT, positions, 512),
    KEY("initializer_range", NULL, LS_KEY_NUMBER, initializer_range, 0.02),
    KEY("tie_word_embeddings", NULL, LS_KEY_BOOL, tied, 1),
    {0}};

static const ls_config_guard guards[] = {
    {"position_embedding_type", "\"absolute\""}, {"is_decoder", "false"}, {0}};

static const ls_config_guard distilbert_guards[] = {{"sinusoidal_pos_embds", "false"}, {0}};

static const char *const others[] = {"hidden_act", NULL};
static const char *const distilbert_others[] = {"activation", "seq_classif_dropout", NULL};

/* Of heads for other tasks. */
static const char *const distilbert_unused[] = {"qa_dropout", "tie_weights_", NULL};

static const char *const dropout_keys[] = {"hidden_dropout_prob", "attention_probs_dropout_prob",
                                           NULL};
static const char *const distilbert_dropout_keys[] = {"dropout", "attention_dropout", NULL};

static ls_status read_shape(const ls_json_object *json, const char *activation,
                            ls_model_config *config, ls_error *error) {
  LS_TRY(ls_read_activation(json, activation, "gelu", 1u << LS_GELU_TANH | 1u << LS_GELU_ERF,
                            config, error));
  if (config->width % config->heads != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: a width of %lld over %lld heads; expected a multiple of the heads",
                   json->where, (long long)config->width, (long long)config->heads);
  config->kv_heads = config->heads;
  config->head_dim = config->width / config->heads;
  config->softmax_scale = 1 / sqrt((double)config->head_dim);
  config->attention_bias = config->mlp_bias = true;
  config->dropout.embedding = config->dropout.hidden;
  return LS_OK;
}

static ls_status read_bert(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                           ls_error *error) {
  (void)arena;
  return read_shape(json, "hidden_act", config, error);
}

static ls_status read_distilbert(ls_arena *arena, const ls_json_object *json,
                                 ls_model_config *config, ls_error *error) {
  (void)arena;
  config->epsilon = 1e-12;
  return read_shape(json, "activation", config, error);
}

/* Positions count from the row behind that of padding. */
static ls_status read_roberta(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                              ls_error *error) {
  (void)arena;
  int64_t padding;
  LS_TRY(ls_json_int_or(json, "pad_token_id", 1, &padding, error));
  if (padding < 0 || padding >= config->positions - 1)
    return ls_fail(
        error, LS_INPUT,
        "%s: pad_token_id is %lld and max_position_embeddings %lld; expected an id below "
        "that by two or more",
        json->where, (long long)padding, (long long)config->positions);
  config->skipped_positions = padding + 1;
  config->positions -= config->skipped_positions;
  return read_shape(json, "hidden_act", config, error);
}

static ls_tensor_id embed(ls_builder *builder) {
  const ls_model_config *config = builder->config;
  ls_graph *graph = builder->graph;
  const double deviation = config->initializer_range;
  builder->table = ls_builder_weight(builder, "token", config->vocabulary, config->width,
                                     LS_TP_VOCABULARY, deviation);
  const int64_t skipped = config->skipped_positions;
  ls_tensor_id position = ls_builder_weight(builder, "position", config->positions + skipped,
                                            config->width, LS_TP_REPLICATED, deviation);
  ls_tensor_id x = ls_graph_embedding(graph, builder->table, graph->ids, 1);
  x = ls_graph_add(graph, x,
                   ls_graph_skipped_embedding(graph, position, graph->positions, skipped));
  if (config->types > 0) {
    ls_tensor_id type = ls_builder_weight(builder, "type", config->types, config->width,
                                          LS_TP_REPLICATED, deviation);
    x = ls_graph_add(graph, x, ls_graph_embedding(graph, type, graph->types, 1));
  }
  x = ls_builder_norm(builder, "norm", ls_graph_stream(graph, x));
  return ls_builder_embedded(builder, x);
}

/* The norm of the stream with what a branch adds to it. */
static ls_tensor_id add_norm(ls_builder *builder, const char *name, ls_tensor_id x,
                             ls_tensor_id y) {
  ls_graph *graph = builder->graph;
  y = ls_builder_branch(builder, y);
  x = ls_graph_stream(graph, ls_graph_add(graph, x, y));
  return ls_graph_stream(graph, ls_builder_norm(builder, name, x));
}

static ls_tensor_id block(ls_builder *builder, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  const int64_t width = config->width;
  const double deviation = config->initializer_range;
  ls_tensor_id q =
      ls_builder_project(builder, x, "attention.query", width, LS_TP_QUERY, true, deviation);
  ls_tensor_id k =
      ls_builder_project(builder, x, "attention.key", width, LS_TP_KEY_VALUE, true, deviation);
  ls_tensor_id v =
      ls_builder_project(builder, x, "attention.value", width, LS_TP_KEY_VALUE, true, deviation);
  ls_tensor_id y = ls_builder_attend(builder, q, k, v);
  y = ls_builder_project(builder, y, "attention.output", width, LS_TP_HEADS_IN, true, deviation);
  x = add_norm(builder, "norm1", x, y);
  return add_norm(builder, "norm2", x, ls_decoder_mlp(builder, x));
}

/* What stands before the product with the vocabulary. */
static ls_tensor_id transform(ls_builder *builder, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  if (config->classes || config->vectors) return x;
  ls_tensor_id y = ls_builder_project(builder, x, "dense", config->width, LS_TP_REPLICATED, true,
                                      config->initializer_range);
  y = ls_graph_gelu(builder->graph, y, config->activation);
  return ls_builder_norm(builder, "norm", ls_graph_stream(builder->graph, y));
}

#define ENCODER                                                                      \
  .begin_fallback = -1, .end_fallback = -1, .dropout_fallback = 0.1, .embed = embed, \
  .block = block, .final_norm = transform,                                           \
  .decoder = {.norm = LS_NORM_LAYER, .plain_mlp = true, .head_bias = true, .two_way = true}

const ls_family ls_family_bert = {.name = "bert",
                                  .architecture = "BertForMaskedLM",
                                  .keys = keys,
                                  .guards = guards,
                                  .others = others,
                                  .dropout_keys = dropout_keys,
                                  .read = read_bert,
                                  .classes = {.pair_ends = 1,
                                              .pooling = LS_POOLING_FIRST,
                                              .before = LS_BEFORE_TANH,
                                              .bias = true,
                                              .dropout_key = "classifier_dropout",
                                              .dropout = -1},
                                  ENCODER};

const ls_family ls_family_roberta = {.name = "roberta",
                                     .architecture = "RobertaForMaskedLM",
                                     .keys = keys,
                                     .guards = guards,
                                     .others = others,
                                     .dropout_keys = dropout_keys,
                                     .read = read_roberta,
                                     .classes = {.pooling = LS_POOLING_FIRST,
                                                 .before = LS_BEFORE_TANH,
                                                 .bias = true,
                                                 .drops_twice = true,
                                                 .pair_ends = 2,
                                                 .dropout_key = "classifier_dropout",
                                                 .dropout = -1},
                                     ENCODER};

const ls_family ls_family_distilbert = {.name = "distilbert",
                                        .architecture = "DistilBertForMaskedLM",
                                        .keys = distilbert_keys,
                                        .guards = distilbert_guards,
                                        .others = distilbert_others,
                                        .unused = distilbert_unused,
                                        .dropout_keys = distilbert_dropout_keys,
                                        .read = read_distilbert,
                                        .classes = {.pair_ends = 1,
                                                    .pooling = LS_POOLING_FIRST,
                                                    .before = LS_BEFORE_RELU,
                                                    .bias = true,
                                                    .dropout_key = "seq_classif_dropout",
                                                    .dropout = 0.2,
                                                    .dropout_of_texts = true},
                                        ENCODER};
