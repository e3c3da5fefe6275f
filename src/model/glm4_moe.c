#include "model/family.h"

/* GLM-4.5 and 4.6: Llama's block with part of each head turned, where use_qk_norm says so with
 * norms of queries and keys; layers from first_k_dense_replace on have DeepSeek-V3's experts. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 151552},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 4096},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 10944},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 46},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 96},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 131072},
    {"rms_norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-5},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 0},
    {"attention_bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, attention_bias), 0},
    {0}};

static const char *const others[] = {
    "num_key_value_heads",   "head_dim",     "hidden_act", "use_qk_norm",
    LS_DEEPSEEK_EXPERT_KEYS, LS_EXPERT_KEYS, LS_ROPE_KEYS, NULL};

static const char *const unused[] = {LS_NEXT_LAYERS_KEY, NULL};

static ls_status read_glm4_moe(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                               ls_error *error) {
  static const ls_expert_fallbacks fallbacks = {128, 1408, 1, 1, "sigmoid"};
  bool normed;
  LS_TRY(ls_json_bool_or(json, "use_qk_norm", false, &normed, error));
  config->unnormed_queries = !normed;
  LS_TRY(ls_read_deepseek_experts(arena, json, &fallbacks, config, error));
  LS_TRY(ls_read_activation(json, "hidden_act", "silu", 1u << LS_SILU, config, error));
  LS_TRY(ls_read_heads(json, config->heads % 8 == 0 ? 8 : 0, 128, config, error));
  return ls_read_rope(arena, json, 1e4, 0.5, config, error);
}

const ls_family ls_family_glm4_moe = {
    .name = "glm4_moe",
    .architecture = "Glm4MoeForCausalLM",
    .keys = keys,
    .others = others,
    .unused = unused,
    .begin_fallback = -1,
    .end_fallback = -1,
    .read = read_glm4_moe,
    .decoder = {.query_norm = LS_QUERY_NORM_HEAD, .output_unbiased = true},
    .classes = {.of_texts_alone = true}};
