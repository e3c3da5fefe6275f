#include <math.h>

#include "model/family.h"

/* GPT-OSS: every other layer with a window, a sink for each head, biases everywhere but of the
 * norms; the weights of a token's experts are a softmax over these alone. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 201088},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 2880},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 2880},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 36},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 64},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 131072},
    {"num_local_experts", "num_experts", LS_KEY_COUNT, offsetof(ls_model_config, experts), 128},
    {"num_experts_per_tok", NULL, LS_KEY_COUNT, offsetof(ls_model_config, experts_per_token), 4},
    {"swiglu_limit", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, gate_limit), 7},
    {"swiglu_alpha", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, gate_slope), 1.702},
    {"rms_norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-5},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 0},
    {"attention_bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, attention_bias), 1},
    {0}};

static const char *const others[] = {"num_key_value_heads", "head_dim",    "hidden_act",
                                     "sliding_window",      "layer_types", LS_EXPERT_KEYS,
                                     LS_ROPE_KEYS,          NULL};

/* Other names that published files have for what stands there too. */
static const char *const unused[] = {"experts_per_token", "initial_context_length", NULL};

/* Hugging Face's default: 4,096 positions stretched 32 times. */
static void stretch(ls_model_config *config) {
  config->rope_scaling = LS_ROPE_YARN;
  config->rope_original_positions = 4096;
  config->rope_factor = 32;
  config->rope_beta_fast = 32;
  config->rope_beta_slow = 1;
  config->rope_exact_range = true;
  config->rope_attention_factor = 0.1 * log(config->rope_factor) + 1;
}

static ls_status read_gpt_oss(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                              ls_error *error) {
  const json_t *window = json_object_get(json->json, "sliding_window");
  config->renormalise = true;
  if (!(config->gate_limit > 0))
    return ls_fail(error, LS_INPUT, "%s: swiglu_limit: found %g; expected above 0", json->where,
                   config->gate_limit);
  LS_TRY(ls_read_experts(json, config, 0.001, error));
  LS_TRY(ls_read_activation(json, "hidden_act", "silu", 1u << LS_SILU, config, error));
  LS_TRY(ls_read_heads(json, config->heads % 8 == 0 ? 8 : 0, 64, config, error));
  if (!(window && json_is_null(window)))
    LS_TRY(ls_json_count_or(json, "sliding_window", 128, &config->window, error));
  LS_TRY(ls_read_window_pattern(arena, json, 2, config, error));
  LS_TRY(ls_read_rope(arena, json, 150000, -1, config, error));
  if (!ls_json_has(json, "rope_scaling") && !ls_json_has(json, "rope_parameters")) stretch(config);
  return LS_OK;
}

const ls_family ls_family_gpt_oss = {.name = "gpt_oss",
                                     .architecture = "GptOssForCausalLM",
                                     .keys = keys,
                                     .others = others,
                                     .unused = unused,
                                     .begin_fallback = -1,
                                     .end_fallback = -1,
                                     .read = read_gpt_oss,
                                     .decoder = {.paired_experts = true, .sinks = true}};
