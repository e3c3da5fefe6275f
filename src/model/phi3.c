#include "model/family.h"

/* Phi-3 and 3.5 and Phi-4-mini: Llama, stored with its products fused, with a window, part of a
 * head turned and long positions where asked for. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 32064},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 3072},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 8192},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 32},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 32},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 4096},
    {"rms_norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-5},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 0},
    {0}};

static const ls_config_guard guards[] = {
    {"attention_bias", "false"}, {"full_attn_mod", "1"}, {"interpolate_factor", "1"}, {0}};

static const char *const others[] = {"num_key_value_heads", "hidden_act", "sliding_window",
                                     LS_ROPE_KEYS, NULL};

static const char *const dropout_keys[] = {"attention_dropout", "embd_pdrop", "resid_pdrop", NULL};

/* transformers turns Phi-3 in these two ways alone, and takes it to be trained for 4096 positions
 * where the file itself does not say. */
static ls_status check_rope(ls_arena *arena, const ls_json_object *json,
                            const ls_model_config *config, ls_error *error) {
  static const char *const original = "original_max_position_embeddings";
  ls_json_object rope;
  if (config->rope_scaling == LS_ROPE_PLAIN) return LS_OK;
  LS_TRY(ls_find_rope(arena, json, &rope, error));
  if (config->rope_scaling != LS_ROPE_LONGROPE)
    return ls_fail(error, LS_INPUT, "%s: rope_type: found another; expected default or longrope",
                   rope.where);
  if (ls_json_has(json, original)) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: no %s; expected it beside longrope", json->where, original);
}

static ls_status read_phi3(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                           ls_error *error) {
  LS_TRY(ls_read_activation(json, "hidden_act", "silu", 1u << LS_SILU, config, error));
  LS_TRY(ls_read_heads(json, 0, 0, config, error));
  if (ls_json_has(json, "sliding_window"))
    LS_TRY(ls_json_count(json, "sliding_window", &config->window, error));
  LS_TRY(ls_read_rope(arena, json, 1e4, 1, config, error));
  return check_rope(arena, json, config, error);
}

const ls_family ls_family_phi3 = {.name = "phi3",
                                  .architecture = "Phi3ForCausalLM",
                                  .keys = keys,
                                  .guards = guards,
                                  .others = others,
                                  .dropout_keys = dropout_keys,
                                  .begin_fallback = 1,
                                  .end_fallback = 32000,
                                  .read = read_phi3};
