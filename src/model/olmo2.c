#include "model/family.h"

/* OLMo 2: Llama with its norms behind the branches, and queries and keys normed over all heads. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 50304},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 4096},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 11008},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 32},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 32},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 2048},
    {"rms_norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-5},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 0},
    {"attention_bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, attention_bias), 0},
    {0}};

static const char *const others[] = {"num_key_value_heads", "hidden_act", LS_ROPE_KEYS, NULL};

static ls_status read_olmo2(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                            ls_error *error) {
  LS_TRY(ls_read_activation(json, "hidden_act", "silu", 1u << LS_SILU, config, error));
  LS_TRY(ls_read_heads(json, 0, 0, config, error));
  return ls_read_rope(arena, json, 1e4, -1, config, error);
}

const ls_family ls_family_olmo2 = {
    .name = "olmo2",
    .architecture = "Olmo2ForCausalLM",
    .keys = keys,
    .others = others,
    .begin_fallback = -1,
    .end_fallback = 50279,
    .read = read_olmo2,
    .decoder = {.norm_place = LS_NORM_BEHIND, .query_norm = LS_QUERY_NORM_ALL},
    .classes = {.of_texts_alone = true}};
