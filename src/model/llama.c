#include <math.h>
#include <string.h>

#include "model/family.h"

/* Llama 1 to 3.2 and what is built like them (TinyLlama, SmolLM2): rotary positions, RMS norms,
 * grouped-query attention, a gated MLP.
 *
 * pad_token_id is not read: transformers gives that row of the embedding no gradient, but no batch
 * here holds padding. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 32000},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 4096},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 11008},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 32},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 32},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 2048},
    {"rms_norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-6},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 0},
    {"attention_bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, attention_bias), 0},
    {"mlp_bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, mlp_bias), 0},
    {0}};

static const ls_config_guard guards[] = {{"rope_interleaved", "false"},
                                         {"partial_rotary_factor", "1.0"},
                                         {"sliding_window", "null"},
                                         {"use_sliding_window", "false"},
                                         {"attn_logit_softcapping", "null"},
                                         {"final_logit_softcapping", "null"},
                                         {"add_cross_attention", "false"},
                                         {"is_encoder_decoder", "false"},
                                         {"is_causal", "true"},
                                         {"quantization_config", "null"},
                                         {"pruned_heads", "{}"},
                                         {0}};

static const char *const dropout_keys[] = {"attention_dropout", NULL};

/* transformers 5 writes the rotary numbers, theta included, as rope_parameters. */
static ls_status find_rope(ls_arena *arena, const ls_json_object *json, ls_json_object *rope,
                           ls_error *error) {
  const bool scaling = ls_json_has(json, "rope_scaling");
  if (scaling && ls_json_has(json, "rope_parameters"))
    return ls_fail(error, LS_INPUT, "%s: rope_scaling and rope_parameters; expected one of them",
                   json->where);
  return ls_json_child_or(arena, json, scaling ? "rope_scaling" : "rope_parameters", rope, error);
}

/* A key that is not known here may change the mathematics (YaRN's numbers, tables by layer type).
 */
static ls_status check_rope_keys(const ls_json_object *rope, ls_error *error) {
  static const char *const known[] = {"rope_type",
                                      "type",
                                      "rope_theta",
                                      "factor",
                                      "low_freq_factor",
                                      "high_freq_factor",
                                      "original_max_position_embeddings",
                                      "partial_rotary_factor"};
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)rope->json, key, value) {
    bool found = json_is_null(value);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
      found = found || strcmp(key, known[i]) == 0;
    if (!found)
      return ls_fail(error, LS_INPUT,
                     "%s: %.60s is not known here; expected rope_type default, linear or llama3 "
                     "and its numbers",
                     rope->where, key);
  }
  return LS_OK;
}

static ls_status check_positive(const ls_json_object *json, const char *key, double value,
                                ls_error *error) {
  if (value > 0) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s: found %g; expected a number above 0", json->where, key,
                 value);
}

static ls_status read_llama3_rope(const ls_json_object *rope, ls_model_config *config,
                                  ls_error *error) {
  LS_TRY(ls_json_number(rope, "low_freq_factor", &config->rope_low_freq_factor, error));
  LS_TRY(ls_json_number(rope, "high_freq_factor", &config->rope_high_freq_factor, error));
  int64_t original;
  LS_TRY(ls_json_count_or(rope, "original_max_position_embeddings", config->positions, &original,
                          error));
  config->rope_original_positions = (double)original;
  LS_TRY(check_positive(rope, "low_freq_factor", config->rope_low_freq_factor, error));
  if (config->rope_high_freq_factor > config->rope_low_freq_factor) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: high_freq_factor: found %g; expected above low_freq_factor",
                 rope->where, config->rope_high_freq_factor);
}

static ls_status read_rope(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                           ls_error *error) {
  ls_json_object rope;
  const char *type;
  double rotated;
  LS_TRY(find_rope(arena, json, &rope, error));
  LS_TRY(ls_json_number_or(json, "rope_theta", 1e4, &config->rope_theta, error));
  if (!rope.json) return check_positive(json, "rope_theta", config->rope_theta, error);
  LS_TRY(ls_json_number_or(&rope, "rope_theta", config->rope_theta, &config->rope_theta, error));
  LS_TRY(check_positive(json, "rope_theta", config->rope_theta, error));
  LS_TRY(ls_json_number_or(&rope, "partial_rotary_factor", 1, &rotated, error));
  if (rotated < 1 || rotated > 1)
    return ls_fail(error, LS_INPUT, "%s: partial_rotary_factor: found %g; expected 1", rope.where,
                   rotated);
  LS_TRY(ls_json_string_or(&rope, "type", "default", &type, error));
  LS_TRY(ls_json_string_or(&rope, "rope_type", type, &type, error));
  if (strcmp(type, "default") == 0) return check_rope_keys(&rope, error);
  const bool llama3 = strcmp(type, "llama3") == 0;
  if (!llama3 && strcmp(type, "linear") != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: rope_type: found \"%s\"; expected default, linear or llama3", rope.where,
                   type);
  LS_TRY(check_rope_keys(&rope, error));
  config->rope_scaling = llama3 ? LS_ROPE_LLAMA3 : LS_ROPE_LINEAR;
  LS_TRY(ls_json_number(&rope, "factor", &config->rope_factor, error));
  LS_TRY(check_positive(&rope, "factor", config->rope_factor, error));
  return llama3 ? read_llama3_rope(&rope, config, error) : LS_OK;
}

static ls_status read_heads(const ls_json_object *json, ls_model_config *config, ls_error *error) {
  LS_TRY(ls_json_count_or(json, "num_key_value_heads", config->heads, &config->kv_heads, error));
  if (!ls_json_has(json, "head_dim") && config->width % config->heads != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: hidden_size is %lld and num_attention_heads %lld; expected a multiple of "
                   "it, or head_dim",
                   json->where, (long long)config->width, (long long)config->heads);
  LS_TRY(
      ls_json_count_or(json, "head_dim", config->width / config->heads, &config->head_dim, error));
  if (config->heads % config->kv_heads != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: num_attention_heads is %lld and num_key_value_heads %lld; expected a "
                   "multiple of it",
                   json->where, (long long)config->heads, (long long)config->kv_heads);
  if (config->head_dim % 2 != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: head_dim: found %lld; expected an even number, as rotary positions need",
                   json->where, (long long)config->head_dim);
  config->softmax_scale = 1 / sqrt((double)config->head_dim);
  return LS_OK;
}

static ls_status read_llama(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                            ls_error *error) {
  const char *activation;
  LS_TRY(ls_json_string_or(json, "hidden_act", "silu", &activation, error));
  if (strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0)
    return ls_fail(error, LS_INPUT, "%s: hidden_act: found \"%s\"; expected silu", json->where,
                   activation);
  config->activation = LS_SILU;
  LS_TRY(read_heads(json, config, error));
  return read_rope(arena, json, config, error);
}

static json_t *rope_object(const ls_model_config *config) {
  if (config->rope_scaling == LS_ROPE_PLAIN) return json_null();
  if (config->rope_scaling == LS_ROPE_LINEAR)
    return json_pack("{s:s, s:f}", "rope_type", "linear", "factor", config->rope_factor);
  return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor",
                   config->rope_factor, "low_freq_factor", config->rope_low_freq_factor,
                   "high_freq_factor", config->rope_high_freq_factor,
                   "original_max_position_embeddings", (json_int_t)config->rope_original_positions);
}

static int write_llama(json_t *json, const ls_model_config *config) {
  int failed = json_object_set_new(json, "hidden_act", json_string("silu"));
  failed |= json_object_set_new(json, "num_key_value_heads", json_integer(config->kv_heads));
  failed |= json_object_set_new(json, "head_dim", json_integer(config->head_dim));
  failed |= json_object_set_new(json, "rope_theta", json_real(config->rope_theta));
  failed |= json_object_set_new(json, "rope_scaling", rope_object(config));
  return failed;
}

static ls_tensor_id norm(ls_builder *builder, const char *name, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  ls_tensor_id weight = ls_builder_vector(builder, name, config->width, LS_CUT_NONE, LS_INIT_ONES);
  return ls_graph_rmsnorm(builder->graph, x, weight, config->epsilon);
}

static ls_attributes rope_attributes(const ls_model_config *config) {
  return (ls_attributes){.head_dim = config->head_dim,
                         .rope_theta = config->rope_theta,
                         .rope_scaling = config->rope_scaling,
                         .rope_factor = config->rope_factor,
                         .rope_low_freq_factor = config->rope_low_freq_factor,
                         .rope_high_freq_factor = config->rope_high_freq_factor,
                         .rope_original_positions = config->rope_original_positions};
}

static ls_tensor_id embed(ls_builder *builder) {
  const ls_model_config *config = builder->config;
  ls_graph *graph = builder->graph;
  const ls_attributes attributes = rope_attributes(config);
  builder->rope = ls_graph_rope_table(graph, graph->positions, &attributes);
  builder->table = ls_builder_weight(builder, "token", config->vocabulary, config->width,
                                     LS_CUT_VOCABULARY, config->initializer_range);
  return ls_graph_stream(graph, ls_graph_embedding(graph, builder->table, graph->ids));
}

static ls_tensor_id attention(ls_builder *builder, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  ls_graph *graph = builder->graph;
  const ls_attributes attributes = rope_attributes(config);
  const int64_t q_width = config->heads * config->head_dim;
  const int64_t kv_width = config->kv_heads * config->head_dim;
  const bool bias = config->attention_bias;
  const double deviation = config->initializer_range;
  ls_tensor_id q =
      ls_builder_project(builder, x, "attention.query", q_width, LS_CUT_QUERY, bias, deviation);
  ls_tensor_id k =
      ls_builder_project(builder, x, "attention.key", kv_width, LS_CUT_KEY_VALUE, bias, deviation);
  ls_tensor_id v = ls_builder_project(builder, x, "attention.value", kv_width, LS_CUT_KEY_VALUE,
                                      bias, deviation);
  q = ls_graph_rope(graph, q, builder->rope, &attributes);
  k = ls_graph_rope(graph, k, builder->rope, &attributes);
  return ls_builder_project(builder, ls_builder_attend(builder, q, k, v), "attention.output",
                            config->width, LS_CUT_HEADS_IN, bias, deviation);
}

static ls_tensor_id mlp(ls_builder *builder, ls_tensor_id x) {
  const ls_model_config *config = builder->config;
  const bool bias = config->mlp_bias;
  const double deviation = config->initializer_range;
  ls_tensor_id gate =
      ls_builder_project(builder, x, "mlp.gate", config->mlp_width, LS_CUT_COLUMN, bias, deviation);
  ls_tensor_id up =
      ls_builder_project(builder, x, "mlp.up", config->mlp_width, LS_CUT_COLUMN, bias, deviation);
  return ls_builder_project(builder, ls_graph_swiglu(builder->graph, gate, up), "mlp.down",
                            config->width, LS_CUT_ROW, bias, deviation);
}

static ls_tensor_id block(ls_builder *builder, ls_tensor_id x) {
  ls_graph *graph = builder->graph;
  ls_tensor_id y = attention(builder, norm(builder, "norm1.weight", x));
  x = ls_graph_stream(graph, ls_graph_add(graph, x, ls_graph_stream(graph, y)));
  y = mlp(builder, norm(builder, "norm2.weight", x));
  return ls_graph_stream(graph, ls_graph_add(graph, x, ls_graph_stream(graph, y)));
}

static ls_tensor_id final_norm(ls_builder *builder, ls_tensor_id x) {
  return norm(builder, "norm.weight", x);
}

const ls_family ls_family_llama = {.name = "llama",
                                   .architecture = "LlamaForCausalLM",
                                   .keys = keys,
                                   .guards = guards,
                                   .dropout_keys = dropout_keys,
                                   .dropout_fallback = 0,
                                   .begin_fallback = 1,
                                   .end_fallback = 2,
                                   .read = read_llama,
                                   .write = write_llama,
                                   .embed = embed,
                                   .block = block,
                                   .final_norm = final_norm};
