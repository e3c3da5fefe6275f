#include <math.h>
#include <string.h>

#include "model/family.h"

/* Gemma 2: Gemma with norms on both sides of each branch, soft caps on scores and logits, and a
 * window in every other layer, beginning with the first. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 256000},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 2304},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 9216},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 26},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 8},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 8192},
    {"rms_norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-6},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 1},
    {"attention_bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, attention_bias), 0},
    {0}};

static const char *const others[] = {"num_key_value_heads",
                                     "head_dim",
                                     "hidden_act",
                                     "hidden_activation",
                                     "query_pre_attn_scalar",
                                     "sliding_window",
                                     "sliding_window_size",
                                     "layer_types",
                                     "attn_logit_softcapping",
                                     "final_logit_softcapping",
                                     LS_ROPE_KEYS,
                                     NULL};

/* What transformers keeps keys and values in when it generates. */
static const char *const unused[] = {"cache_implementation", NULL};

static ls_status read_gemma2(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                             ls_error *error) {
  LS_TRY(ls_read_gemma(json, 50, 30, config, error));
  LS_TRY(ls_read_window_pattern(arena, json, 2, config, error));
  return ls_read_rope(arena, json, 1e4, -1, config, error);
}

const ls_family ls_family_gemma2 = {
    .name = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .keys = keys,
    .others = others,
    .unused = unused,
    .begin_fallback = 2,
    .end_fallback = 1,
    .read = read_gemma2,
    .decoder = {.norm = LS_NORM_RMS_OFFSET, .norm_place = LS_NORM_AROUND}};
