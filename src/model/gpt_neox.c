#include "model/family.h"

/* GPT-NeoX and Pythia: layer norms, attention and MLP side by side unless use_parallel_residual is
 * off, part of each head turned. rotary_pct and rotary_emb_base are the names of
 * partial_rotary_factor and rope_theta from before transformers 4.48. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 50432},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 6144},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 24576},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 44},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 64},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 2048},
    {"layer_norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-5},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 0},
    {"attention_bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, attention_bias), 1},
    {"use_parallel_residual", NULL, LS_KEY_BOOL, offsetof(ls_model_config, parallel), 1},
    {0}};

static const char *const others[] = {"hidden_act", "rotary_pct", "rotary_emb_base", LS_ROPE_KEYS,
                                     NULL};

/* Which transformers reads in no GPT-NeoX. */
static const char *const unused[] = {"attention_probs_dropout_prob", "hidden_dropout_prob", NULL};

static const char *const dropout_keys[] = {"attention_dropout", "hidden_dropout", NULL};

static ls_status read_old(const ls_json_object *json, const char *old, const char *name,
                          double fallback, double *value, ls_error *error) {
  if (ls_json_has(json, old) && ls_json_has(json, name))
    return ls_fail(error, LS_INPUT, "%s: %s and %s, which mean the same; expected one of them",
                   json->where, old, name);
  return ls_json_number_or(json, old, fallback, value, error);
}

static ls_status read_gpt_neox(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                               ls_error *error) {
  double theta, partial;
  config->mlp_bias = true;
  config->dropout.embedding = config->dropout.hidden; /* hidden_dropout is of both */
  LS_TRY(ls_read_activation(json, "hidden_act", "gelu", 1u << LS_GELU_TANH | 1u << LS_GELU_ERF,
                            config, error));
  LS_TRY(ls_read_heads(json, 0, 0, config, error));
  LS_TRY(read_old(json, "rotary_emb_base", "rope_theta", 1e4, &theta, error));
  LS_TRY(read_old(json, "rotary_pct", "partial_rotary_factor", 0.25, &partial, error));
  return ls_read_rope(arena, json, theta, partial, config, error);
}

const ls_family ls_family_gpt_neox = {.name = "gpt_neox",
                                      .architecture = "GPTNeoXForCausalLM",
                                      .keys = keys,
                                      .others = others,
                                      .unused = unused,
                                      .dropout_keys = dropout_keys,
                                      .begin_fallback = 0,
                                      .end_fallback = 2,
                                      .read = read_gpt_neox,
                                      .decoder = {.norm = LS_NORM_LAYER, .plain_mlp = true}};
