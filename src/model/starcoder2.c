#include "model/family.h"

/* StarCoder2: Llama's order with layer norms, a plain MLP, biases, and a window where asked for. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 49152},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 3072},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 12288},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 30},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 24},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 4096},
    {"norm_epsilon", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-5},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range),
     0.018042},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 1},
    {"use_bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, attention_bias), 1},
    {0}};

static const char *const others[] = {"num_key_value_heads", "hidden_act", "sliding_window",
                                     "layer_types",         LS_ROPE_KEYS, NULL};

/* What its files say of the form that this family has anyway. */
static const ls_config_guard guards[] = {{"mlp_type", "\"default\""},
                                         {"norm_type", "\"layer_norm\""},
                                         {"scale_attn_weights", "true"},
                                         {0}};

/* Left by GPT-BigCode, which it followed; transformers reads them in no StarCoder2. */
static const char *const unused[] = {"activation_function", "attention_softmax_in_fp32",
                                     "layer_norm_epsilon", "scale_attention_softmax_in_fp32", NULL};

static const char *const dropout_keys[] = {"attention_dropout", "residual_dropout",
                                           "embedding_dropout", NULL};

static ls_status read_starcoder2(ls_arena *arena, const ls_json_object *json,
                                 ls_model_config *config, ls_error *error) {
  config->mlp_bias = config->attention_bias;
  LS_TRY(ls_read_activation(json, "hidden_act", "gelu_pytorch_tanh",
                            1u << LS_GELU_TANH | 1u << LS_GELU_ERF, config, error));
  LS_TRY(ls_read_heads(json, config->heads % 2 == 0 ? 2 : 0, 0, config, error));
  if (ls_json_has(json, "sliding_window"))
    LS_TRY(ls_json_count(json, "sliding_window", &config->window, error));
  uint8_t *kinds = LS_NEW_ARRAY(arena, uint8_t, config->layers);
  for (int64_t l = 0; l < config->layers; l++) kinds[l] = config->window ? LS_LAYER_WINDOW : 0;
  LS_TRY(ls_read_layer_types(arena, json, kinds, config, error));
  return ls_read_rope(arena, json, 1e4, -1, config, error);
}

const ls_family ls_family_starcoder2 = {.name = "starcoder2",
                                        .architecture = "Starcoder2ForCausalLM",
                                        .keys = keys,
                                        .guards = guards,
                                        .others = others,
                                        .unused = unused,
                                        .dropout_keys = dropout_keys,
                                        .begin_fallback = 50256,
                                        .end_fallback = 50256,
                                        .read = read_starcoder2,
                                        .decoder = {.norm = LS_NORM_LAYER, .plain_mlp = true}};
