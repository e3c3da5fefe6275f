#include <math.h>
#include <string.h>

#include "model/family.h"

/* Gemma 3, the text model: Gemma 2 whose queries and keys are normed head by head, without caps
 * unless asked for, with the window in five layers of six; those turn by a base of their own,
 * without scaling. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 262208},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 2304},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 9216},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 26},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 8},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 131072},
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
                                     "sliding_window_pattern",
                                     "layer_types",
                                     "final_logit_softcapping",
                                     "rope_local_base_freq",
                                     LS_ROPE_KEYS,
                                     NULL};

/* transformers has the key and applies no cap. */
static const ls_config_guard guards[] = {{"attn_logit_softcapping", "null"}, {0}};

static const char *const unused[] = {"cache_implementation", NULL};

static ls_status read_gemma3(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                             ls_error *error) {
  int64_t every;
  ls_json_object rope;
  LS_TRY(ls_read_gemma(json, 0, 0, config, error));
  LS_TRY(ls_json_count_or(json, "sliding_window_pattern", 6, &every, error));
  LS_TRY(ls_read_window_pattern(arena, json, every, config, error));
  LS_TRY(ls_find_rope(arena, json, &rope, error));
  if (ls_json_has(json, "rope_parameters"))
    return ls_read_two_ropes(arena, json, &rope, 1e6, config, error);
  if (rope.json && ls_json_has(&rope, "type") && !ls_json_has(&rope, "rope_type"))
    return ls_fail(error, LS_INPUT, "%s: type: expected rope_type, or transformers scales nothing",
                   rope.where);
  LS_TRY(ls_json_number_or(json, "rope_local_base_freq", 1e4, &config->rope_local_theta, error));
  if (!(config->rope_local_theta > 0))
    return ls_fail(error, LS_INPUT, "%s: rope_local_base_freq: found %g; expected above 0",
                   json->where, config->rope_local_theta);
  return ls_read_rope_object(arena, json, &rope, 1e6, -1, config, error);
}

const ls_family ls_family_gemma3 = {.name = "gemma3_text",
                                    .architecture = "Gemma3ForCausalLM",
                                    .keys = keys,
                                    .guards = guards,
                                    .others = others,
                                    .unused = unused,
                                    .begin_fallback = 2,
                                    .end_fallback = 1,
                                    .read = read_gemma3,
                                    .decoder = {.norm = LS_NORM_RMS_OFFSET,
                                                .norm_place = LS_NORM_AROUND,
                                                .query_norm = LS_QUERY_NORM_HEAD},
                                    .classes = {.of_texts_alone = true}};
