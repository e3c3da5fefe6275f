#include <math.h>
#include <string.h>

#include "model/family.h"

/* BLOOM: GPT-2's block with layer norms and biases, scores that fall with distance (ALiBi), and a
 * norm over the embedding. There is no longest sequence; seq_length is what it was trained with. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 250880},
    {"n_layer", "num_hidden_layers", LS_KEY_COUNT, offsetof(ls_model_config, layers), 2},
    {"n_head", "num_attention_heads", LS_KEY_COUNT, offsetof(ls_model_config, heads), 8},
    {"layer_norm_epsilon", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-5},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 1},
    {0}};

static const ls_config_guard guards[] = {{"apply_residual_connection_post_layernorm", "false"},
                                         {0}};

static const char *const others[] = {"hidden_size", "n_embed", NULL};

/* How Megatron-LM trained it, and with what. */
static const char *const unused[] = {"attention_softmax_in_fp32",
                                     "bias_dropout_fusion",
                                     "masked_softmax_fusion",
                                     "offset_alibi",
                                     "seq_length",
                                     "skip_bias_add",
                                     "skip_bias_add_qkv",
                                     "slow_but_exact",
                                     "n_inner",
                                     "unk_token_id",
                                     NULL};

static const char *const dropout_keys[] = {"attention_dropout", "hidden_dropout", NULL};

static ls_status read_bloom(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                            ls_error *error) {
  (void)arena;
  if (ls_json_has(json, "hidden_size") && ls_json_has(json, "n_embed"))
    return ls_fail(error, LS_INPUT,
                   "%s: hidden_size and n_embed, which mean the same; expected one of them",
                   json->where);
  LS_TRY(ls_json_count_or(json, "hidden_size", 64, &config->width, error));
  LS_TRY(ls_json_count_or(json, "n_embed", config->width, &config->width, error));
  LS_TRY(ls_read_heads(json, 0, 0, config, error));
  config->kv_heads = config->heads;
  config->mlp_width = 4 * config->width;
  config->positions = INT32_MAX;
  config->activation = LS_GELU_TANH;
  config->attention_bias = config->mlp_bias = true;
  return LS_OK;
}

const ls_family ls_family_bloom = {
    .name = "bloom",
    .architecture = "BloomForCausalLM",
    .keys = keys,
    .guards = guards,
    .others = others,
    .unused = unused,
    .dropout_keys = dropout_keys,
    .begin_fallback = 1,
    .end_fallback = 2,
    .read = read_bloom,
    .decoder = {.norm = LS_NORM_LAYER, .plain_mlp = true, .embedding_norm = true, .alibi = true},
    .classes = {.dropout = -1}};
