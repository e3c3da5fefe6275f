#include <math.h>

#include "model/family.h"

/* DeepSeek-V2 and V3: Llama's block with latent attention (latent.c). Layers from
 * first_k_dense_replace on have experts. */

enum { MOST_COLUMNS = 65536 }; /* of a head, and of a latent: sums of sizes stay small */

/* Hugging Face's defaults are of both: vocabulary, width and width of the MLP, layers, heads,
 * longest sequence. */
#define DEEPSEEK_KEYS(v, c, m, l, h, t)                                                         \
  {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), v},                 \
      {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), c},                 \
      {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), m},       \
      {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), l},          \
      {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), h},         \
      {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), t}, \
      {"kv_lora_rank", NULL, LS_KEY_COUNT, offsetof(ls_model_config, latent), 512},             \
      {"qk_nope_head_dim", NULL, LS_KEY_COUNT, offsetof(ls_model_config, plain_dim), 128},      \
      {"qk_rope_head_dim", NULL, LS_KEY_COUNT, offsetof(ls_model_config, rotary_dim), 64},      \
      {"v_head_dim", NULL, LS_KEY_COUNT, offsetof(ls_model_config, value_dim), 128},            \
      {"rms_norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-6},          \
      {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range),  \
       0.02},                                                                                   \
      {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 0}, {         \
    "attention_bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, attention_bias), 0           \
  }

static const ls_config_key v2_keys[] = {
    DEEPSEEK_KEYS(102400, 4096, 11008, 32, 32, 2048),
    {"mlp_bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, mlp_bias), 0},
    {0}};

static const ls_config_key v3_keys[] = {
    DEEPSEEK_KEYS(129280, 7168, 18432, 61, 128, 4096),
    {"rope_interleave", NULL, LS_KEY_BOOL, offsetof(ls_model_config, rope_neighbours), 1},
    {0}};

static const char *const others[] = {"q_lora_rank",  "num_key_value_heads", "head_dim",
                                     "qk_head_dim",  "hidden_act",          LS_DEEPSEEK_EXPERT_KEYS,
                                     LS_EXPERT_KEYS, LS_ROPE_KEYS,          NULL};

/* Of losses that transformers has not. */
static const char *const unused[] = {"aux_loss_alpha",   "seq_aux",        "ep_size",
                                     LS_NEXT_LAYERS_KEY, "num_mtp_layers", NULL};

static bool is_null(const ls_json_object *json, const char *key) {
  const json_t *value = json_object_get(json->json, key);
  return value && json_is_null(value);
}

/* A key that follows from others: transformers writes it. */
static ls_status check_follows(const ls_json_object *json, const char *key, int64_t expected,
                               ls_error *error) {
  int64_t found;
  LS_TRY(ls_json_count_or(json, key, expected, &found, error));
  if (found == expected) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s: found %lld; expected %lld, as other keys say",
                 json->where, key, (long long)found, (long long)expected);
}

static ls_status check_columns(const ls_json_object *json, const char *key, int64_t columns,
                               ls_error *error) {
  if (columns <= MOST_COLUMNS) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s: found %lld; expected at most %d", json->where, key,
                 (long long)columns, MOST_COLUMNS);
}

static ls_status read_latents(const ls_json_object *json, ls_model_config *config,
                              ls_error *error) {
  if (!is_null(json, "q_lora_rank"))
    LS_TRY(ls_json_count_or(json, "q_lora_rank", 1536, &config->query_latent, error));
  LS_TRY(check_columns(json, "q_lora_rank", config->query_latent, error));
  LS_TRY(check_columns(json, "kv_lora_rank", config->latent, error));
  LS_TRY(check_columns(json, "qk_nope_head_dim", config->plain_dim, error));
  LS_TRY(check_columns(json, "qk_rope_head_dim", config->rotary_dim, error));
  LS_TRY(check_columns(json, "v_head_dim", config->value_dim, error));
  LS_TRY(check_follows(json, "num_key_value_heads", config->heads, error));
  LS_TRY(check_follows(json, "head_dim", config->rotary_dim, error));
  LS_TRY(check_follows(json, "qk_head_dim", config->plain_dim + config->rotary_dim, error));
  config->kv_heads = config->heads;
  return LS_OK;
}

/* Scores grow where yarn makes sequences longer: by the square of what mscale_all_dim says. */
static ls_status read_scale(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                            ls_error *error) {
  ls_json_object rope;
  double all;
  config->softmax_scale = 1 / sqrt((double)(config->plain_dim + config->rotary_dim));
  if (config->rope_scaling != LS_ROPE_YARN) return LS_OK;
  LS_TRY(ls_find_rope(arena, json, &rope, error));
  LS_TRY(ls_json_number_or(&rope, "mscale_all_dim", 0, &all, error));
  if (!isfinite(all))
    return ls_fail(error, LS_INPUT, "%s: mscale_all_dim: found %g; expected a number", rope.where,
                   all);
  const double grown = config->rope_factor > 1 ? 0.1 * all * log(config->rope_factor) + 1 : 1;
  config->softmax_scale *= grown * grown;
  return LS_OK;
}

static ls_status read_deepseek(ls_arena *arena, const ls_json_object *json,
                               const ls_expert_fallbacks *fallbacks, ls_model_config *config,
                               ls_error *error) {
  LS_TRY(ls_read_deepseek_experts(arena, json, fallbacks, config, error));
  LS_TRY(ls_read_activation(json, "hidden_act", "silu", 1u << LS_SILU, config, error));
  LS_TRY(read_latents(json, config, error));
  const int64_t turned = config->rotary_dim, whole = config->plain_dim + turned;
  config->head_dim = turned; /* of which all columns turn */
  LS_TRY(ls_read_rope(arena, json, 1e4, -1, config, error));
  config->rotary_dim = turned;
  config->head_dim = whole > config->value_dim ? whole : config->value_dim;
  return read_scale(arena, json, config, error);
}

static ls_status read_v2(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                         ls_error *error) {
  config->rope_neighbours = true;
  static const ls_expert_fallbacks v2 = {64, 1407, 2, 0, "softmax"};
  return read_deepseek(arena, json, &v2, config, error);
}

static ls_status read_v3(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                         ls_error *error) {
  static const ls_expert_fallbacks v3 = {256, 2048, 1, 3, "sigmoid"};
  return read_deepseek(arena, json, &v3, config, error);
}

const ls_family ls_family_deepseek_v2 = {.name = "deepseek_v2",
                                         .architecture = "DeepseekV2ForCausalLM",
                                         .keys = v2_keys,
                                         .others = others,
                                         .unused = unused,
                                         .begin_fallback = 1,
                                         .end_fallback = 2,
                                         .read = read_v2,
                                         .classes = {.of_texts_alone = true}};

const ls_family ls_family_deepseek_v3 = {.name = "deepseek_v3",
                                         .architecture = "DeepseekV3ForCausalLM",
                                         .keys = v3_keys,
                                         .others = others,
                                         .unused = unused,
                                         .begin_fallback = 0,
                                         .end_fallback = 1,
                                         .read = read_v3};
