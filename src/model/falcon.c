#include <math.h>
#include <string.h>

#include "model/family.h"

/* Falcon: layer norms, attention and MLP side by side behind one norm (7B) or behind two
 * (new_decoder_architecture: 40B, 180B), or one behind the other; one KV head for all, or several.
 *
 * With alibi, transformers rounds slopes and distances to bfloat16 whatever the model computes in,
 * which is another model than the formula's: it is refused. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 65024},
    {"num_hidden_layers", "n_layer", LS_KEY_COUNT, offsetof(ls_model_config, layers), 32},
    {"num_attention_heads", "n_head", LS_KEY_COUNT, offsetof(ls_model_config, heads), 71},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 2048},
    {"layer_norm_epsilon", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-5},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 1},
    {"bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, attention_bias), 0},
    {0}};

static const ls_config_guard guards[] = {{"alibi", "false"}, {0}};

static const char *const others[] = {"hidden_size",
                                     "n_embed",
                                     "num_kv_heads",
                                     "n_head_kv",
                                     "ffn_hidden_size",
                                     "activation",
                                     "new_decoder_architecture",
                                     "multi_query",
                                     "parallel_attn",
                                     "num_ln_in_parallel_attn",
                                     LS_ROPE_KEYS,
                                     NULL};

static const char *const unused[] = {"apply_residual_connection_post_layernorm", "ff_factor", NULL};

static const char *const dropout_keys[] = {"attention_dropout", "hidden_dropout", NULL};

/* A count under one of two names. */
static ls_status read_count(const ls_json_object *json, const char *key, const char *old,
                            int64_t fallback, int64_t *value, ls_error *error) {
  if (ls_json_has(json, key) && ls_json_has(json, old))
    return ls_fail(error, LS_INPUT, "%s: %s and %s, which mean the same; expected one of them",
                   json->where, key, old);
  return ls_json_count_or(json, ls_json_has(json, old) ? old : key, fallback, value, error);
}

/* Which norms there are, and how many KV heads. */
static ls_status read_form(const ls_json_object *json, ls_model_config *config, ls_error *error) {
  bool grouped, single;
  int64_t norms;
  LS_TRY(ls_json_bool_or(json, "new_decoder_architecture", false, &grouped, error));
  LS_TRY(ls_json_bool_or(json, "multi_query", true, &single, error));
  LS_TRY(ls_json_bool_or(json, "parallel_attn", true, &config->parallel, error));
  if (grouped && !config->parallel)
    return ls_fail(error, LS_INPUT,
                   "%s: new_decoder_architecture without parallel_attn; expected both",
                   json->where);
  LS_TRY(ls_json_count_or(json, "num_ln_in_parallel_attn", grouped ? 2 : 1, &norms, error));
  if (norms > 2 || (norms == 2 && !grouped))
    return ls_fail(error, LS_INPUT,
                   "%s: num_ln_in_parallel_attn: found %lld; expected 1, or 2 with "
                   "new_decoder_architecture",
                   json->where, (long long)norms);
  config->shared_norm = config->parallel && norms == 1;
  LS_TRY(read_count(json, "num_kv_heads", "n_head_kv", config->heads, &config->kv_heads, error));
  if (!grouped && !single && config->kv_heads != config->heads)
    return ls_fail(error, LS_INPUT,
                   "%s: num_kv_heads is %lld and num_attention_heads %lld, without multi_query and "
                   "new_decoder_architecture; expected them to agree",
                   json->where, (long long)config->kv_heads, (long long)config->heads);
  if (!grouped) config->kv_heads = single ? 1 : config->heads;
  return LS_OK;
}

static ls_status read_falcon(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                             ls_error *error) {
  LS_TRY(read_count(json, "hidden_size", "n_embed", 4544, &config->width, error));
  LS_TRY(ls_json_count_or(json, "ffn_hidden_size", 4 * config->width, &config->mlp_width, error));
  LS_TRY(ls_read_activation(json, "activation", "gelu", 1u << LS_GELU_TANH | 1u << LS_GELU_ERF,
                            config, error));
  LS_TRY(ls_read_heads(json, 0, 0, config, error));
  LS_TRY(read_form(json, config, error));
  if (config->heads % config->kv_heads != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: num_attention_heads is %lld and num_kv_heads %lld; expected a multiple of "
                   "it",
                   json->where, (long long)config->heads, (long long)config->kv_heads);
  config->mlp_bias = config->attention_bias;
  return ls_read_rope(arena, json, 1e4, -1, config, error);
}

const ls_family ls_family_falcon = {.name = "falcon",
                                    .architecture = "FalconForCausalLM",
                                    .keys = keys,
                                    .guards = guards,
                                    .others = others,
                                    .unused = unused,
                                    .dropout_keys = dropout_keys,
                                    .begin_fallback = 11,
                                    .end_fallback = 11,
                                    .read = read_falcon,
                                    .decoder = {.norm = LS_NORM_LAYER, .plain_mlp = true},
                                    .classes = {.dropout = -1}};
