#include <math.h>
#include <string.h>

#include "model/family.h"

/* What families with mixtures of experts read from config.json alike. */

ls_status ls_read_experts(const ls_json_object *json, ls_model_config *config, double fallback,
                          ls_error *error) {
  bool balanced;
  double share;
  LS_TRY(ls_json_bool_or(json, "output_router_logits", false, &balanced, error));
  LS_TRY(ls_json_number_or(json, "router_aux_loss_coef", fallback, &share, error));
  if (config->experts_per_token > config->experts)
    return ls_fail(error, LS_INPUT,
                   "%s: num_experts_per_tok: found %lld; expected at most the %lld "
                   "experts",
                   json->where, (long long)config->experts_per_token, (long long)config->experts);
  if (!(share >= 0 && isfinite(share)))
    return ls_fail(error, LS_INPUT, "%s: router_aux_loss_coef: found %g; expected 0 or more",
                   json->where, share);
  if (balanced) config->balance.aux = share;
  return LS_OK;
}

static ls_status read_next_layers(const ls_json_object *json, ls_model_config *config,
                                  ls_error *error) {
  enum { MOST = 64 };
  LS_TRY(ls_json_int_or(json, LS_NEXT_LAYERS_KEY, 0, &config->next_layers, error));
  if (config->next_layers >= 0 && config->next_layers <= MOST) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s: found %lld; expected 0 to %d", json->where,
                 LS_NEXT_LAYERS_KEY, (long long)config->next_layers, MOST);
}

/* No list where every layer has experts. */
static void keep_dense(uint8_t *kinds, ls_model_config *config) {
  bool any = false;
  for (int64_t l = 0; l < config->layers; l++) any |= kinds[l] != 0;
  config->layer_kinds = any ? kinds : NULL;
}

ls_status ls_read_sparse_layers(ls_arena *arena, const ls_json_object *json,
                                ls_model_config *config, ls_error *error) {
  int64_t step, *only = NULL;
  int count = 0;
  LS_TRY(ls_json_count_or(json, "decoder_sparse_step", 1, &step, error));
  if (ls_json_has(json, "mlp_only_layers"))
    LS_TRY(ls_json_ints(arena, json, "mlp_only_layers", &only, &count, error));
  uint8_t *kinds = LS_NEW_ARRAY(arena, uint8_t, config->layers);
  for (int64_t l = 0; l < config->layers; l++)
    kinds[l] = (uint8_t)((l + 1) % step ? LS_LAYER_DENSE : 0);
  for (int i = 0; i < count; i++) {
    if (only[i] < 0 || only[i] >= config->layers)
      return ls_fail(error, LS_INPUT,
                     "%s: mlp_only_layers: found %lld; expected layers from 0 to %lld", json->where,
                     (long long)only[i], (long long)config->layers - 1);
    kinds[only[i]] = LS_LAYER_DENSE;
  }
  keep_dense(kinds, config);
  return LS_OK;
}

static ls_status read_groups(const ls_json_object *json, const char *fallback,
                             ls_model_config *config, ls_error *error) {
  enum { MOST_GROUPS = 64 };
  const char *scores, *method;
  LS_TRY(ls_json_string_or(json, "scoring_func", fallback, &scores, error));
  config->sigmoid_router = strcmp(scores, "sigmoid") == 0;
  if (!config->sigmoid_router && strcmp(scores, "softmax") != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: scoring_func: found \"%.60s\"; expected sigmoid or softmax", json->where,
                   scores);
  LS_TRY(ls_json_string_or(json, "topk_method", config->sigmoid_router ? "noaux_tc" : "greedy",
                           &method, error));
  config->router_bias = strcmp(method, "noaux_tc") == 0;
  const bool grouped = config->router_bias || strcmp(method, "group_limited_greedy") == 0;
  if (!grouped && strcmp(method, "greedy") != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: topk_method: found \"%.60s\"; expected noaux_tc, group_limited_greedy or "
                   "greedy",
                   json->where, method);
  if (config->router_bias != config->sigmoid_router)
    return ls_fail(
        error, LS_INPUT,
        "%s: topk_method %s with scoring_func %s; expected noaux_tc with sigmoid, others "
        "with softmax",
        json->where, method, scores);
  if (!grouped) return LS_OK;
  LS_TRY(ls_json_count_or(json, "n_group", 1, &config->expert_groups, error));
  LS_TRY(ls_json_count_or(json, "topk_group", 1, &config->top_groups, error));
  if (config->expert_groups <= MOST_GROUPS && config->experts % config->expert_groups == 0 &&
      config->top_groups <= config->expert_groups &&
      config->experts_per_token <= config->experts / config->expert_groups * config->top_groups)
    return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: n_group %lld, topk_group %lld, n_routed_experts %lld, num_experts_per_tok "
                 "%lld; expected at most %d groups of as many experts each, and enough for a token "
                 "in its groups",
                 json->where, (long long)config->expert_groups, (long long)config->top_groups,
                 (long long)config->experts, (long long)config->experts_per_token, MOST_GROUPS);
}

ls_status ls_read_deepseek_experts(ls_arena *arena, const ls_json_object *json,
                                   const ls_expert_fallbacks *fallbacks, ls_model_config *config,
                                   ls_error *error) {
  int64_t every, dense, shared = fallbacks->shared;
  const json_t *routed = json_object_get(json->json, "n_routed_experts");
  LS_TRY(read_next_layers(json, config, error));
  if (routed && json_is_null(routed)) return LS_OK;
  LS_TRY(ls_json_int_or(json, "first_k_dense_replace", fallbacks->dense, &dense, error));
  if (dense >= config->layers) return LS_OK;
  LS_TRY(ls_json_count_or(json, "n_routed_experts", fallbacks->experts, &config->experts, error));
  LS_TRY(ls_json_count_or(json, "num_experts_per_tok", 8, &config->experts_per_token, error));
  LS_TRY(ls_json_count_or(json, "moe_intermediate_size", fallbacks->width, &config->expert_width,
                          error));
  LS_TRY(ls_json_bool_or(json, "norm_topk_prob", true, &config->renormalise, error));
  LS_TRY(ls_json_number_or(json, "routed_scaling_factor", 1, &config->route_scale, error));
  LS_TRY(ls_json_count_or(json, "moe_layer_freq", 1, &every, error));
  const json_t *beside = json_object_get(json->json, "n_shared_experts");
  if (beside && json_is_null(beside)) shared = 0;
  if (beside && !json_is_null(beside))
    LS_TRY(ls_json_int_or(json, "n_shared_experts", 0, &shared, error));
  if (shared < 0 || shared > 1 << 20 || !(config->route_scale > 0) ||
      !isfinite(config->route_scale))
    return ls_fail(error, LS_INPUT,
                   "%s: n_shared_experts %lld, routed_scaling_factor %g; expected at least 0, and "
                   "above 0",
                   json->where, (long long)shared, config->route_scale);
  config->shared_width = shared * config->expert_width;
  LS_TRY(ls_read_experts(json, config, 0, error));
  LS_TRY(read_groups(json, fallbacks->scores, config, error));
  uint8_t *kinds = LS_NEW_ARRAY(arena, uint8_t, config->layers);
  for (int64_t l = 0; l < config->layers; l++)
    kinds[l] = (uint8_t)(l < dense || l % every ? LS_LAYER_DENSE : 0);
  keep_dense(kinds, config);
  return LS_OK;
}
