#include "model/family.h"

/* SmolLM3: Llama with layers, every fourth unless no_rope_layers says which, whose queries and keys
 * are not turned. A 1 in that list is a layer that turns them. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 128256},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 2048},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 11008},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 36},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 16},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 32768},
    {"rms_norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-6},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 1},
    {"attention_bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, attention_bias), 0},
    {"mlp_bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, mlp_bias), 0},
    {0}};

static const char *const others[] = {"num_key_value_heads",
                                     "hidden_act",
                                     "no_rope_layers",
                                     "no_rope_layer_interval",
                                     "use_sliding_window",
                                     "sliding_window",
                                     "layer_types",
                                     LS_ROPE_KEYS,
                                     NULL};

/* Written by its makers' tools, read by none. */
static const char *const unused[] = {"max_window_layers", NULL};

static ls_status read_no_rope(ls_arena *arena, const ls_json_object *json, uint8_t *kinds,
                              const ls_model_config *config, ls_error *error) {
  int64_t *turned, every;
  int count;
  LS_TRY(ls_json_count_or(json, "no_rope_layer_interval", 4, &every, error));
  if (!ls_json_has(json, "no_rope_layers")) {
    for (int64_t l = 0; l < config->layers; l++)
      kinds[l] = (l + 1) % every == 0 ? LS_LAYER_NO_ROPE : 0;
    return LS_OK;
  }
  LS_TRY(ls_json_ints(arena, json, "no_rope_layers", &turned, &count, error));
  if (count != config->layers)
    return ls_fail(error, LS_INPUT, "%s: no_rope_layers has %d entries; expected %lld, one a layer",
                   json->where, count, (long long)config->layers);
  for (int l = 0; l < count; l++) kinds[l] = turned[l] ? 0 : LS_LAYER_NO_ROPE;
  return LS_OK;
}

/* A window is for the layers that turn nothing. */
static ls_status read_smollm3(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                              ls_error *error) {
  bool use;
  LS_TRY(ls_read_activation(json, "hidden_act", "silu", 1u << LS_SILU, config, error));
  LS_TRY(ls_read_heads(json, config->heads % 4 == 0 ? 4 : 0, 0, config, error));
  uint8_t *kinds = LS_NEW_ARRAY(arena, uint8_t, config->layers);
  LS_TRY(read_no_rope(arena, json, kinds, config, error));
  LS_TRY(ls_json_bool_or(json, "use_sliding_window", false, &use, error));
  if (use && ls_json_has(json, "sliding_window"))
    LS_TRY(ls_json_count(json, "sliding_window", &config->window, error));
  for (int64_t l = 0; l < config->layers; l++)
    if (config->window > 0 && (kinds[l] & LS_LAYER_NO_ROPE)) kinds[l] |= LS_LAYER_WINDOW;
  LS_TRY(ls_read_layer_types(arena, json, kinds, config, error));
  return ls_read_rope(arena, json, 2e6, -1, config, error);
}

const ls_family ls_family_smollm3 = {.name = "smollm3",
                                     .architecture = "SmolLM3ForCausalLM",
                                     .keys = keys,
                                     .others = others,
                                     .unused = unused,
                                     .begin_fallback = 128000,
                                     .end_fallback = 128001,
                                     .read = read_smollm3};
