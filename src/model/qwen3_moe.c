#include "model/family.h"

/* Qwen3 with a mixture of experts in the MLP's place. The weights of a token's experts are a
 * softmax over all experts, or with norm_topk_prob over these alone. Layers without: as Qwen2's. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 151936},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 2048},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 6144},
    {"moe_intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, expert_width), 768},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 24},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 32},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 32768},
    {"num_experts", "num_local_experts", LS_KEY_COUNT, offsetof(ls_model_config, experts), 128},
    {"num_experts_per_tok", NULL, LS_KEY_COUNT, offsetof(ls_model_config, experts_per_token), 8},
    {"norm_topk_prob", NULL, LS_KEY_BOOL, offsetof(ls_model_config, renormalise), 0},
    {"rms_norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-6},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 0},
    {"attention_bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, attention_bias), 0},
    {0}};

static const ls_config_guard guards[] = {{"use_sliding_window", "false"}, {0}};

static const char *const others[] = {
    "num_key_value_heads", "head_dim",     "hidden_act", "decoder_sparse_step",
    "mlp_only_layers",     LS_EXPERT_KEYS, LS_ROPE_KEYS, NULL};

/* Of windows. */
static const char *const unused[] = {"sliding_window", "max_window_layers", NULL};

static ls_status read_qwen3_moe(ls_arena *arena, const ls_json_object *json,
                                ls_model_config *config, ls_error *error) {
  LS_TRY(ls_read_experts(json, config, 0.001, error));
  LS_TRY(ls_read_sparse_layers(arena, json, config, error));
  LS_TRY(ls_read_activation(json, "hidden_act", "silu", 1u << LS_SILU, config, error));
  LS_TRY(ls_read_heads(json, config->heads % 4 == 0 ? 4 : 0, 0, config, error));
  return ls_read_rope(arena, json, 1e4, -1, config, error);
}

const ls_family ls_family_qwen3_moe = {.name = "qwen3_moe",
                                       .architecture = "Qwen3MoeForCausalLM",
                                       .keys = keys,
                                       .guards = guards,
                                       .others = others,
                                       .unused = unused,
                                       .begin_fallback = -1,
                                       .end_fallback = -1,
                                       .read = read_qwen3_moe,
                                       .decoder = {.query_norm = LS_QUERY_NORM_HEAD}};
