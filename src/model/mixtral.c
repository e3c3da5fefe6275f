#include "model/family.h"

/* Mixtral: Mistral with a mixture of experts in the MLP's place. The weights of a token's experts
 * are a softmax over these alone. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 32000},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 4096},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 14336},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 32},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 32},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions),
     4096 * 32},
    {"num_local_experts", "num_experts", LS_KEY_COUNT, offsetof(ls_model_config, experts), 8},
    {"num_experts_per_tok", NULL, LS_KEY_COUNT, offsetof(ls_model_config, experts_per_token), 2},
    {"rms_norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-5},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 0},
    {0}};

static const ls_config_guard guards[] = {{"router_jitter_noise", "0"}, {0}};

static const char *const others[] = {
    "num_key_value_heads", "head_dim",   "hidden_act", "sliding_window",
    LS_EXPERT_KEYS,        LS_ROPE_KEYS, NULL};

static ls_status read_mixtral(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                              ls_error *error) {
  config->renormalise = true;
  LS_TRY(ls_read_experts(json, config, 0.001, error));
  LS_TRY(ls_read_activation(json, "hidden_act", "silu", 1u << LS_SILU, config, error));
  LS_TRY(ls_read_heads(json, config->heads % 8 == 0 ? 8 : 0, 0, config, error));
  if (ls_json_has(json, "sliding_window"))
    LS_TRY(ls_json_count_or(json, "sliding_window", 0, &config->window, error));
  return ls_read_rope(arena, json, 1e6, -1, config, error);
}

const ls_family ls_family_mixtral = {.name = "mixtral",
                                     .architecture = "MixtralForCausalLM",
                                     .keys = keys,
                                     .guards = guards,
                                     .others = others,
                                     .begin_fallback = 1,
                                     .end_fallback = 2,
                                     .read = read_mixtral};
