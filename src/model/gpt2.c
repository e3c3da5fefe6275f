#include <math.h>
#include <string.h>

#include "model/family.h"

/* GPT-2 as transformers builds it: learned positions, layer norms before each branch, biases
 * everywhere, a tied head. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 50257},
    {"n_positions", "max_position_embeddings", LS_KEY_COUNT, offsetof(ls_model_config, positions),
     1024},
    {"n_embd", "hidden_size", LS_KEY_COUNT, offsetof(ls_model_config, width), 768},
    {"n_layer", "num_hidden_layers", LS_KEY_COUNT, offsetof(ls_model_config, layers), 12},
    {"n_head", "num_attention_heads", LS_KEY_COUNT, offsetof(ls_model_config, heads), 12},
    {"layer_norm_epsilon", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-5},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 1},
    {0}};

static const ls_config_guard guards[] = {{"scale_attn_by_inverse_layer_idx", "false"}, {0}};

static const char *const others[] = {"activation_function", "n_inner", "scale_attn_weights", NULL};

/* How precisely transformers multiplies queries and keys in 16 bits, and what its heads for other
 * tasks do. */
static const char *const unused[] = {"n_ctx",
                                     "output_past",
                                     "predict_special_tokens",
                                     "reorder_and_upcast_attn",
                                     "summary_activation",
                                     "summary_first_dropout",
                                     "summary_proj_to_labels",
                                     "summary_type",
                                     "summary_use_proj",
                                     NULL};

static const char *const dropout_keys[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop", NULL};

static ls_status read_gpt2(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                           ls_error *error) {
  (void)arena;
  bool scaled;
  LS_TRY(ls_read_activation(json, "activation_function", "gelu_new",
                            1u << LS_GELU_TANH | 1u << LS_GELU_ERF, config, error));
  LS_TRY(ls_json_count_or(json, "n_inner", 4 * config->width, &config->mlp_width, error));
  LS_TRY(ls_json_bool_or(json, "scale_attn_weights", true, &scaled, error));
  if (config->width % config->heads != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: n_embd is %lld and n_head %lld; expected a multiple of n_head", json->where,
                   (long long)config->width, (long long)config->heads);
  config->kv_heads = config->heads;
  config->head_dim = config->width / config->heads;
  config->softmax_scale = scaled ? 1 / sqrt((double)config->head_dim) : 1;
  config->attention_bias = config->mlp_bias = true;
  return LS_OK;
}

static ls_tensor_id norm(ls_builder *builder, const char *name, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  ls_arena *arena = builder->graph->arena;
  ls_tensor_id weight = ls_builder_vector(builder, ls_arena_printf(arena, "%s.weight", name),
                                          config->width, LS_TP_REPLICATED, LS_INIT_ONES);
  ls_tensor_id bias = ls_builder_vector(builder, ls_arena_printf(arena, "%s.bias", name),
                                        config->width, LS_TP_REPLICATED, LS_INIT_ZEROS);
  return ls_graph_layernorm(builder->graph, x, weight, bias, config->epsilon);
}

static ls_tensor_id embed(ls_builder *builder) {
  const ls_model_config *config = builder->config;
  ls_graph *graph = builder->graph;
  builder->table = ls_builder_weight(builder, "token", config->vocabulary, config->width,
                                     LS_TP_VOCABULARY, config->initializer_range);
  ls_tensor_id position = ls_builder_weight(builder, "position", config->positions, config->width,
                                            LS_TP_REPLICATED, config->initializer_range);
  return ls_builder_embedded(
      builder, ls_graph_add(graph, ls_graph_embedding(graph, builder->table, graph->ids, 1),
                            ls_graph_embedding(graph, position, graph->positions, 1)));
}

static ls_tensor_id block(ls_builder *builder, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  ls_graph *graph = builder->graph;
  const int64_t width = config->width;
  const double deviation = config->initializer_range;
  /* Each layer adds two branches to the stream, so their last products start smaller. */
  const double residual = deviation / sqrt(2.0 * (double)config->layers);

  ls_tensor_id y = norm(builder, "norm1", x);
  ls_tensor_id q =
      ls_builder_project(builder, y, "attention.query", width, LS_TP_QUERY, true, deviation);
  ls_tensor_id k =
      ls_builder_project(builder, y, "attention.key", width, LS_TP_KEY_VALUE, true, deviation);
  ls_tensor_id v =
      ls_builder_project(builder, y, "attention.value", width, LS_TP_KEY_VALUE, true, deviation);
  y = ls_builder_attend(builder, q, k, v);
  y = ls_builder_branch(builder, ls_builder_project(builder, y, "attention.output", width,
                                                    LS_TP_HEADS_IN, true, residual));
  x = ls_graph_stream(graph, ls_graph_add(graph, x, y));

  y = norm(builder, "norm2", x);
  y = ls_builder_project(builder, y, "mlp.up", config->mlp_width, LS_TP_COLUMN, true, deviation);
  y = ls_graph_gelu(graph, y, config->activation);
  y = ls_builder_branch(
      builder, ls_builder_project(builder, y, "mlp.down", width, LS_TP_ROW, true, residual));
  return ls_graph_stream(graph, ls_graph_add(graph, x, y));
}

static ls_tensor_id final_norm(ls_builder *builder, ls_tensor_id x) {
  return norm(builder, "norm", x);
}

const ls_family ls_family_gpt2 = {.name = "gpt2",
                                  .architecture = "GPT2LMHeadModel",
                                  .keys = keys,
                                  .guards = guards,
                                  .others = others,
                                  .unused = unused,
                                  .dropout_keys = dropout_keys,
                                  .dropout_fallback = 0.1,
                                  .begin_fallback = 50256,
                                  .end_fallback = 50256,
                                  .read = read_gpt2,
                                  .embed = embed,
                                  .block = block,
                                  .final_norm = final_norm};
