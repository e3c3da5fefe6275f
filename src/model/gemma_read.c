#include <math.h>
#include <string.h>

#include "model/family.h"

/* What the second and the third Gemma read alike. */

/* A cap that is null is none; a key that is missing has Hugging Face's default. */
static ls_status read_cap(const ls_json_object *json, const char *key, double fallback, double *cap,
                          ls_error *error) {
  const json_t *value = json_object_get(json->json, key);
  *cap = 0;
  if (value && json_is_null(value)) return LS_OK;
  LS_TRY(ls_json_number_or(json, key, fallback, cap, error));
  if (*cap > 0 || (!value && fallback <= 0)) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s: found %g; expected a number above 0, or null",
                 json->where, key, *cap);
}

/* hidden_activation, which is hidden_act in files from before it: they must not contradict it. */
static ls_status read_activation(const ls_json_object *json, ls_model_config *config,
                                 ls_error *error) {
  const unsigned allowed = 1u << LS_GELU_TANH;
  if (ls_json_has(json, "hidden_act"))
    LS_TRY(ls_read_activation(json, "hidden_act", "", allowed, config, error));
  return ls_read_activation(json, "hidden_activation", "gelu_pytorch_tanh", allowed, config, error);
}

ls_status ls_read_gemma(const ls_json_object *json, double softcap, double logit_cap,
                        ls_model_config *config, ls_error *error) {
  double scalar;
  const json_t *window = json_object_get(json->json, "sliding_window");
  LS_TRY(read_activation(json, config, error));
  LS_TRY(ls_read_heads(json, config->heads % 4 == 0 ? 4 : 0, 256, config, error));
  LS_TRY(read_cap(json, "attn_logit_softcapping", softcap, &config->softcap, error));
  LS_TRY(read_cap(json, "final_logit_softcapping", logit_cap, &config->logit_cap, error));
  LS_TRY(ls_json_number_or(json, "query_pre_attn_scalar", 256, &scalar, error));
  if (!(scalar > 0))
    return ls_fail(error, LS_INPUT, "%s: query_pre_attn_scalar: found %g; expected above 0",
                   json->where, scalar);
  if (!(window && json_is_null(window)))
    LS_TRY(ls_json_count_or(json, "sliding_window", 4096, &config->window, error));
  int64_t size;
  LS_TRY(ls_json_count_or(json, "sliding_window_size", config->window, &size, error));
  if (ls_json_has(json, "sliding_window_size") && size != config->window)
    return ls_fail(
        error, LS_INPUT,
        "%s: sliding_window_size is %lld and sliding_window %lld; expected them to agree",
        json->where, (long long)size, (long long)config->window);
  config->softmax_scale = 1 / sqrt(scalar);
  config->embedding_scale = sqrt((double)config->width);
  return LS_OK;
}

ls_status ls_read_window_pattern(ls_arena *arena, const ls_json_object *json, int64_t every,
                                 ls_model_config *config, ls_error *error) {
  uint8_t *kinds = LS_NEW_ARRAY(arena, uint8_t, config->layers);
  for (int64_t l = 0; l < config->layers; l++)
    kinds[l] = config->window > 0 && (l + 1) % every != 0 ? LS_LAYER_WINDOW : 0;
  const bool both =
      ls_json_has(json, "sliding_window_pattern") || !ls_json_has(json, "layer_types");
  return ls_read_layer_types(arena, json, both ? kinds : NULL, config, error);
}
