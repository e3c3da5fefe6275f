#include "model/family.h"

/* Mistral: Llama with eight KV heads and a window that every layer has, unless it is null. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 32000},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 4096},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 14336},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 32},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 32},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions),
     4096 * 32},
    {"rms_norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-6},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 0},
    {0}};

static const char *const others[] = {
    "num_key_value_heads", "head_dim",   "hidden_act", "sliding_window",
    "layer_types",         LS_ROPE_KEYS, NULL};

static ls_status read_mistral(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                              ls_error *error) {
  const json_t *window = json_object_get(json->json, "sliding_window");
  LS_TRY(ls_read_activation(json, "hidden_act", "silu", 1u << LS_SILU, config, error));
  LS_TRY(ls_read_heads(json, config->heads % 8 == 0 ? 8 : 0, 0, config, error));
  if (!(window && json_is_null(window)))
    LS_TRY(ls_json_count_or(json, "sliding_window", 4096, &config->window, error));
  uint8_t *kinds = LS_NEW_ARRAY(arena, uint8_t, config->layers);
  for (int64_t l = 0; l < config->layers; l++) kinds[l] = config->window ? LS_LAYER_WINDOW : 0;
  LS_TRY(ls_read_layer_types(arena, json, kinds, config, error));
  return ls_read_rope(arena, json, 1e4, -1, config, error);
}

const ls_family ls_family_mistral = {.name = "mistral",
                                     .architecture = "MistralForCausalLM",
                                     .keys = keys,
                                     .others = others,
                                     .begin_fallback = 1,
                                     .end_fallback = 2,
                                     .read = read_mistral};
