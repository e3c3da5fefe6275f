#include "model/family.h"

/* Phi-1, 1.5 and 2: attention and MLP side by side behind one layer norm, part of each head turned,
 * biases everywhere, the head's among them. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 51200},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 2048},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 8192},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 24},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 32},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 2048},
    {"layer_norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-5},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 0},
    {0}};

static const ls_config_guard guards[] = {{"qk_layernorm", "false"}, {0}};

static const char *const others[] = {"num_key_value_heads", "hidden_act", LS_ROPE_KEYS, NULL};

static const char *const dropout_keys[] = {"attention_dropout", "embd_pdrop", "resid_pdrop", NULL};

static ls_status read_phi(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                          ls_error *error) {
  config->attention_bias = config->mlp_bias = config->parallel = config->shared_norm = true;
  LS_TRY(ls_read_activation(json, "hidden_act", "gelu_new", 1u << LS_GELU_TANH | 1u << LS_GELU_ERF,
                            config, error));
  LS_TRY(ls_read_heads(json, 0, 0, config, error));
  return ls_read_rope(arena, json, 1e4, 0.5, config, error);
}

const ls_family ls_family_phi = {
    .name = "phi",
    .architecture = "PhiForCausalLM",
    .keys = keys,
    .guards = guards,
    .others = others,
    .dropout_keys = dropout_keys,
    .begin_fallback = 1,
    .end_fallback = 2,
    .read = read_phi,
    .decoder = {.norm = LS_NORM_LAYER, .plain_mlp = true, .head_bias = true}};
