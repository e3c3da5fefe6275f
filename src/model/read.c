#include <math.h>
#include <string.h>

#include "model/family.h"

/* What several families read from config.json alike. */

ls_status ls_read_heads(const ls_json_object *json, int64_t kv_fallback, int64_t head_fallback,
                        ls_model_config *config, ls_error *error) {
  LS_TRY(ls_json_count_or(json, "num_key_value_heads", kv_fallback ? kv_fallback : config->heads,
                          &config->kv_heads, error));
  if (!ls_json_has(json, "head_dim") && !head_fallback && config->width % config->heads != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: hidden_size is %lld and num_attention_heads %lld; expected a multiple of "
                   "it, or head_dim",
                   json->where, (long long)config->width, (long long)config->heads);
  LS_TRY(ls_json_count_or(json, "head_dim",
                          head_fallback ? head_fallback : config->width / config->heads,
                          &config->head_dim, error));
  if (config->heads % config->kv_heads != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: num_attention_heads is %lld and num_key_value_heads %lld; expected a "
                   "multiple of it",
                   json->where, (long long)config->heads, (long long)config->kv_heads);
  config->softmax_scale = 1 / sqrt((double)config->head_dim);
  return LS_OK;
}

/* The names under which transformers has our activations; the first of each is the usual one. */
static const struct {
  const char *name;
  ls_activation activation;
} activations[] = {{"silu", LS_SILU},
                   {"swish", LS_SILU},
                   {"gelu_new", LS_GELU_TANH},
                   {"gelu_pytorch_tanh", LS_GELU_TANH},
                   {"gelu_python_tanh", LS_GELU_TANH},
                   {"gelu_fast", LS_GELU_TANH},
                   {"gelu_accurate", LS_GELU_TANH},
                   {"gelu", LS_GELU_ERF},
                   {"gelu_python", LS_GELU_ERF}};

static const char *allowed_text(unsigned allowed) {
  switch (allowed) {
    case 1u << LS_SILU: return "silu";
    case 1u << LS_GELU_TANH: return "gelu_pytorch_tanh";
    case 1u << LS_GELU_TANH | 1u << LS_GELU_ERF:
      return "gelu_new or gelu (their other names are known as well)";
    default: return "silu, gelu_new or gelu (their other names are known as well)";
  }
}

ls_status ls_read_activation(const ls_json_object *json, const char *key, const char *fallback,
                             unsigned allowed, ls_model_config *config, ls_error *error) {
  const char *name;
  LS_TRY(ls_json_string_or(json, key, fallback, &name, error));
  for (size_t i = 0; i < sizeof activations / sizeof *activations; i++) {
    config->activation = activations[i].activation;
    if (strcmp(name, activations[i].name) == 0 && (allowed >> config->activation & 1)) return LS_OK;
  }
  return ls_fail(error, LS_INPUT, "%s: %s: found \"%s\"; expected %s", json->where, key, name,
                 allowed_text(allowed));
}

/* Every layer with the window, or every one without, needs no list. */
static void keep_kinds(const uint8_t *kinds, ls_model_config *config) {
  bool with = config->window > 0, without = true;
  for (int64_t l = 0; l < config->layers; l++) {
    with = with && kinds[l] == LS_LAYER_WINDOW;
    without = without && kinds[l] == 0;
  }
  config->layer_kinds = with || without ? NULL : kinds;
  if (without) config->window = 0;
}

ls_status ls_read_layer_types(ls_arena *arena, const ls_json_object *json, const uint8_t *expected,
                              ls_model_config *config, ls_error *error) {
  const char **types;
  int count;
  if (!ls_json_has(json, "layer_types")) {
    keep_kinds(expected, config);
    return LS_OK;
  }
  LS_TRY(ls_json_strings(arena, json, "layer_types", &types, &count, error));
  if (count != config->layers)
    return ls_fail(error, LS_INPUT, "%s: layer_types has %d entries; expected %lld, one a layer",
                   json->where, count, (long long)config->layers);
  uint8_t *kinds = LS_NEW_ARRAY(arena, uint8_t, count);
  for (int l = 0; l < count; l++) {
    const bool window = strcmp(types[l], "sliding_attention") == 0;
    if (!window && strcmp(types[l], "full_attention") != 0)
      return ls_fail(error, LS_INPUT,
                     "%s: layer_types: found \"%.60s\"; expected full_attention or "
                     "sliding_attention",
                     json->where, types[l]);
    if (window && config->window == 0)
      return ls_fail(error, LS_INPUT,
                     "%s: layer_types: layer %d is sliding_attention, and no sliding_window is "
                     "in use; expected full_attention, or the window",
                     json->where, l);
    kinds[l] = (uint8_t)(window ? LS_LAYER_WINDOW : 0);
    if (expected && kinds[l] != (expected[l] & LS_LAYER_WINDOW))
      return ls_fail(error, LS_INPUT,
                     "%s: layer_types: layer %d is %s, which the other keys contradict; expected "
                     "them to agree",
                     json->where, l, types[l]);
    if (expected) kinds[l] |= expected[l];
  }
  keep_kinds(kinds, config);
  return LS_OK;
}

ls_status ls_read_upper_window(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                               ls_error *error) {
  bool use;
  int64_t first;
  LS_TRY(ls_json_bool_or(json, "use_sliding_window", false, &use, error));
  LS_TRY(ls_json_int_or(json, "max_window_layers", 28, &first, error));
  const json_t *window = json_object_get(json->json, "sliding_window");
  if (use && !(window && json_is_null(window)))
    LS_TRY(ls_json_count_or(json, "sliding_window", 4096, &config->window, error));
  uint8_t *kinds = LS_NEW_ARRAY(arena, uint8_t, config->layers);
  for (int64_t l = 0; l < config->layers; l++)
    kinds[l] = (uint8_t)(config->window > 0 && l >= first ? LS_LAYER_WINDOW : 0);
  return ls_read_layer_types(arena, json, kinds, config, error);
}
