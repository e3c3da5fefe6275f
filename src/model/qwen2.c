#include "model/family.h"

/* Qwen2 and 2.5: Llama with biases on queries, keys and values, and windows in upper layers. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 151936},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 4096},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 22016},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 32},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 32},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 32768},
    {"rms_norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-6},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 0},
    {0}};

static const char *const others[] = {
    "num_key_value_heads", "hidden_act",  "use_sliding_window", "sliding_window",
    "max_window_layers",   "layer_types", LS_ROPE_KEYS,         NULL};

static ls_status read_qwen2(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                            ls_error *error) {
  config->attention_bias = true;
  LS_TRY(ls_read_activation(json, "hidden_act", "silu", 1u << LS_SILU, config, error));
  LS_TRY(ls_read_heads(json, config->heads % 32 == 0 ? 32 : 0, 0, config, error));
  LS_TRY(ls_read_upper_window(arena, json, config, error));
  return ls_read_rope(arena, json, 1e4, -1, config, error);
}

const ls_family ls_family_qwen2 = {.name = "qwen2",
                                   .architecture = "Qwen2ForCausalLM",
                                   .keys = keys,
                                   .others = others,
                                   .begin_fallback = -1,
                                   .end_fallback = -1,
                                   .read = read_qwen2,
                                   .decoder = {.output_unbiased = true}};
