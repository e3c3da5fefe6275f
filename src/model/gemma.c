#include <math.h>
#include <string.h>

#include "model/family.h"

/* Gemma 1: Llama with an MLP gated by GELU, norms whose weights are kept less 1, and an embedding
 * times the square root of its width.
 *
 * hidden_act "gelu" in the first files means the tanh form, as transformers reads it too. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 256000},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 3072},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 24576},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 28},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 16},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 8192},
    {"rms_norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-6},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 1},
    {"attention_bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, attention_bias), 0},
    {0}};

static const char *const others[] = {"num_key_value_heads", "head_dim",   "hidden_act",
                                     "hidden_activation",   LS_ROPE_KEYS, NULL};

static ls_status read_gemma(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                            ls_error *error) {
  const json_t *old = json_object_get(json->json, "hidden_act");
  if (!(json_is_string(old) && strcmp(json_string_value(old), "gelu") == 0))
    LS_TRY(ls_read_activation(json, "hidden_act", "gelu_pytorch_tanh", 1u << LS_GELU_TANH, config,
                              error));
  LS_TRY(ls_read_activation(json, "hidden_activation", "gelu_pytorch_tanh", 1u << LS_GELU_TANH,
                            config, error));
  LS_TRY(ls_read_heads(json, config->heads % 16 == 0 ? 16 : 0, 256, config, error));
  config->embedding_scale = sqrt((double)config->width);
  return ls_read_rope(arena, json, 1e4, -1, config, error);
}

const ls_family ls_family_gemma = {.name = "gemma",
                                   .architecture = "GemmaForCausalLM",
                                   .keys = keys,
                                   .others = others,
                                   .begin_fallback = 2,
                                   .end_fallback = 1,
                                   .read = read_gemma,
                                   .decoder = {.norm = LS_NORM_RMS_OFFSET}};
