#include <math.h>
#include <string.h>

#include "model/family.h"

/* ModernBERT as transformers builds it: Llama's block as an encoder, with layer norms without
 * biases, of which the first layer's attention has none, local attention in all layers but every
 * few, which turn by a base of their own, and a head before the tied one. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 50368},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 768},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 1152},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 22},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 12},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 8192},
    {"norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-5},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"global_rope_theta", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, rope_theta), 160000},
    {"local_rope_theta", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, rope_local_theta), 10000},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 1},
    {0}};

static const ls_config_guard guards[] = {{"norm_bias", "false"},
                                         {"attention_bias", "false"},
                                         {"mlp_bias", "false"},
                                         {"classifier_bias", "false"},
                                         {"decoder_bias", "true"},
                                         {"classifier_activation", "\"gelu\""},
                                         {"attention_dropout", "0.0"},
                                         {"mlp_dropout", "0.0"},
                                         {"is_decoder", "false"},
                                         {"position_embedding_type", "\"absolute\""},
                                         {0}};

static const char *const others[] = {
    "hidden_activation", "local_attention", "global_attn_every_n_layers",
    "layer_types",       "rope_parameters", NULL};

/* How transformers computes the same, how it draws weights, and what its heads for other tasks do.
 */
static const char *const unused[] = {"cls_token_id",
                                     "deterministic_flash_attn",
                                     "gradient_checkpointing",
                                     "initializer_cutoff_factor",
                                     "layer_norm_eps",
                                     "mask_token_id",
                                     "reference_compile",
                                     "repad_logits_with_grad",
                                     "sparse_pred_ignore_index",
                                     "sparse_prediction",
                                     NULL};

static const char *const dropout_keys[] = {"embedding_dropout", NULL};

/* As transformers 4 says it, every few layers see all tokens; as 5 does, each layer by itself. */
static ls_status read_kinds(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                            ls_error *error) {
  int64_t every;
  ls_json_object ropes;
  const bool counted = ls_json_has(json, "global_attn_every_n_layers");
  LS_TRY(ls_json_count_or(json, "global_attn_every_n_layers", 3, &every, error));
  uint8_t *kinds = LS_NEW_ARRAY(arena, uint8_t, config->layers);
  for (int64_t l = 0; l < config->layers; l++) kinds[l] = l % every ? LS_LAYER_WINDOW : 0;
  const bool listed = ls_json_has(json, "layer_types");
  LS_TRY(ls_read_layer_types(arena, json, listed && !counted ? NULL : kinds, config, error));
  LS_TRY(ls_find_rope(arena, json, &ropes, error));
  if (!ropes.json) return LS_OK;
  return ls_read_two_ropes(arena, json, &ropes, config->rope_theta, config, error);
}

static ls_status read_modernbert(ls_arena *arena, const ls_json_object *json,
                                 ls_model_config *config, ls_error *error) {
  int64_t local;
  LS_TRY(ls_read_activation(json, "hidden_activation", "gelu",
                            1u << LS_GELU_TANH | 1u << LS_GELU_ERF, config, error));
  LS_TRY(ls_json_count_or(json, "local_attention", 128, &local, error));
  if (config->width % (2 * config->heads) != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: hidden_size is %lld and num_attention_heads %lld; expected a multiple of "
                   "twice num_attention_heads",
                   json->where, (long long)config->width, (long long)config->heads);
  config->kv_heads = config->heads;
  config->head_dim = config->width / config->heads;
  config->softmax_scale = 1 / sqrt((double)config->head_dim);
  config->window = local / 2 + 1; /* of each side, with the token itself */
  return read_kinds(arena, json, config, error);
}

static ls_tensor_id transform(ls_builder *builder, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  ls_graph *graph = builder->graph;
  x = ls_graph_stream(graph, ls_builder_norm(builder, "final_norm", x));
  if (config->classes || config->vectors) return x;
  ls_tensor_id y = ls_builder_project(builder, x, "dense", config->width, LS_TP_REPLICATED, false,
                                      config->initializer_range);
  y = ls_graph_gelu(graph, y, LS_GELU_ERF);
  return ls_builder_norm(builder, "norm", ls_graph_stream(graph, y));
}

const ls_family ls_family_modernbert = {.name = "modernbert",
                                        .architecture = "ModernBertForMaskedLM",
                                        .keys = keys,
                                        .guards = guards,
                                        .others = others,
                                        .unused = unused,
                                        .dropout_keys = dropout_keys,
                                        .begin_fallback = -1,
                                        .end_fallback = -1,
                                        .read = read_modernbert,
                                        .classes = {.pair_ends = 1,
                                                    .pooling = LS_POOLING_FIRST,
                                                    .before = LS_BEFORE_GELU_NORM,
                                                    .bias = true,
                                                    .dropout_key = "classifier_dropout"},
                                        .final_norm = transform,
                                        .decoder = {.norm = LS_NORM_LAYER_UNBIASED,
                                                    .head_bias = true,
                                                    .embedding_norm = true,
                                                    .first_unnormed = true,
                                                    .two_way = true}};
