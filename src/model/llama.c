#include "model/family.h"

/* Llama 1 to 3.2 and what is built like them (TinyLlama, SmolLM2): rotary positions, RMS norms,
 * grouped-query attention, a gated MLP.
 *
 * pad_token_id is not read: transformers gives that row of the embedding no gradient, but no batch
 * here holds padding. */

static const ls_config_key keys[] = {
    {"vocab_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, vocabulary), 32000},
    {"hidden_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, width), 4096},
    {"intermediate_size", NULL, LS_KEY_COUNT, offsetof(ls_model_config, mlp_width), 11008},
    {"num_hidden_layers", NULL, LS_KEY_COUNT, offsetof(ls_model_config, layers), 32},
    {"num_attention_heads", NULL, LS_KEY_COUNT, offsetof(ls_model_config, heads), 32},
    {"max_position_embeddings", NULL, LS_KEY_COUNT, offsetof(ls_model_config, positions), 2048},
    {"rms_norm_eps", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, epsilon), 1e-6},
    {"initializer_range", NULL, LS_KEY_NUMBER, offsetof(ls_model_config, initializer_range), 0.02},
    {"tie_word_embeddings", NULL, LS_KEY_BOOL, offsetof(ls_model_config, tied), 0},
    {"attention_bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, attention_bias), 0},
    {"mlp_bias", NULL, LS_KEY_BOOL, offsetof(ls_model_config, mlp_bias), 0},
    {0}};

static const ls_config_guard guards[] = {
    {"rope_interleaved", "false"}, {"use_sliding_window", "false"}, {0}};

static const char *const others[] = {"num_key_value_heads", "head_dim", "hidden_act", LS_ROPE_KEYS,
                                     NULL};

/* SmolLM2 says that it is a Llama; the first Llamas say their positions twice. */
static const char *const unused[] = {"is_llama_config", "max_sequence_length", NULL};

static ls_status read_llama(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                            ls_error *error) {
  LS_TRY(ls_read_activation(json, "hidden_act", "silu", 1u << LS_SILU, config, error));
  LS_TRY(ls_read_heads(json, 0, 0, config, error));
  return ls_read_rope(arena, json, 1e4, -1, config, error);
}

const ls_family ls_family_llama = {.name = "llama",
                                   .architecture = "LlamaForCausalLM",
                                   .keys = keys,
                                   .guards = guards,
                                   .others = others,
                                   .unused = unused,
                                   .begin_fallback = 1,
                                   .end_fallback = 2,
                                   .read = read_llama};
