/* config.json: every published one of the families reads as its publisher means it; what changes
 * the mathematics and is not built is refused by name; what is written reads back. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "model/model.h"

#define CONFIGS "../shared/data/configs/"

static ls_arena *arena;

static int make_arena(void **state) {
  (void)state;
  arena = ls_arena_create();
  return 0;
}

static int drop_arena(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return 0;
}

static ls_status parse(const char *text, ls_model_config *config, ls_error *error) {
  return ls_model_config_parse(arena, "config.json", text, strlen(text), config, error);
}

typedef struct published {
  const char *file;
  int64_t parameters, kv_heads, head_dim;
} published;

static void published_files_parse(void **state) {
  (void)state;
  static const published cases[] = {
      {"gpt2.json", 124439808, 12, 64},
      {"gpt2-large.json", 774030080, 20, 64},
      {"TheBloke--Llama-2-7B-fp16.json", 6738415616, 32, 128},
      {"TinyLlama--TinyLlama-1.1B-Chat-v1.0.json", 1100048384, 4, 64},
      {"HuggingFaceTB--SmolLM2-135M.json", 134515008, 3, 64},
      {"meta-llama--Meta-Llama-3.1-8B.json", 8030261248, 8, 128},
      {"meta-llama--Meta-Llama-3.1-70B.json", 70553706496, 8, 128},
      {"mistralai--Mistral-7B-v0.1.json", 7241732096, 8, 128},
      {"Qwen--Qwen2.5-0.5B-Instruct.json", 494032768, 2, 64},
      {"Qwen--Qwen3-0.6B.json", 596049920, 8, 128},
      {"Qwen--Qwen3-8B.json", 8190735360, 8, 128},
      {"microsoft--phi-2.json", 2779683840, 32, 80},
  };
  if (!ls_directory_exists(CONFIGS)) skip();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_model_config config;
    ls_error error = {0};
    const char *path = ls_arena_printf(arena, CONFIGS "%s", cases[i].file);
    if (ls_model_config_read(arena, path, &config, &error) != LS_OK) fail_msg("%s", error.text);
    assert_int_equal(ls_model_parameters(&config), cases[i].parameters);
    assert_int_equal(config.kv_heads, cases[i].kv_heads);
    assert_int_equal(config.head_dim, cases[i].head_dim);
    assert_string_equal(config.source, path);
  }
}

static void llama31_has_its_rope(void **state) {
  (void)state;
  ls_model_config config;
  ls_error error = {0};
  if (!ls_directory_exists(CONFIGS)) skip();
  assert_int_equal(
      ls_model_config_read(arena, CONFIGS "meta-llama--Meta-Llama-3.1-8B.json", &config, &error),
      LS_OK);
  assert_int_equal(config.rope_scaling, LS_ROPE_LLAMA3);
  assert_true(config.rope_theta == 5e5);
  assert_true(config.rope_factor == 8);
  assert_true(config.rope_low_freq_factor == 1);
  assert_true(config.rope_high_freq_factor == 4);
  assert_true(config.rope_original_positions == 8192);
  assert_int_equal(config.begin_id, 128000);
  assert_int_equal(config.end_count, 1);
  assert_int_equal(config.end_ids[0], 128001);
  assert_true(config.dropout.attention == 0);
}

static void others_are_refused_by_name(void **state) {
  (void)state;
  ls_model_config config;
  ls_error error = {0};
  assert_int_equal(parse("{\"model_type\": \"rwkv\"}", &config, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "\"rwkv\"; expected one of bert, bloom, deepseek_v2"));
  static const char *const two_streams[] = {
      "{\"model_type\": \"t5\", \"d_model\": 512, \"num_decoder_layers\": 6}",
      "{\"model_type\": \"blenderbot\", \"is_encoder_decoder\": true}"};
  for (int t = 0; t < 2; t++) {
    assert_int_equal(parse(two_streams[t], &config, &error), LS_INPUT);
    assert_non_null(strstr(error.text, "an encoder whose tokens a decoder attends to, which is "));
    assert_non_null(strstr(error.text, "expected a decoder (llama, qwen3, gemma2, ...) for text"));
  }
  if (!ls_directory_exists(CONFIGS)) skip();
  assert_int_equal(
      ls_model_config_read(arena, CONFIGS "deepseek-ai--DeepSeek-V3.json", &config, &error),
      LS_INPUT);
  assert_non_null(strstr(error.text, "quantization_config"));
}

/* Latent attention: its sizes, the columns that attention is given, and the scale of its scores. */
static void latents_are_read(void **state) {
  (void)state;
  ls_model_config config;
  ls_error error = {0};
  const char *lite =
      "{\"model_type\": \"deepseek_v2\", \"n_routed_experts\": null, \"q_lora_rank\": null, "
      "\"v_head_dim\": 200}";
  assert_int_equal(parse(lite, &config, &error), LS_OK);
  assert_int_equal(config.query_latent, 0);
  assert_int_equal(config.latent, 512);
  assert_int_equal(config.plain_dim, 128);
  assert_int_equal(config.rotary_dim, 64);
  assert_int_equal(config.head_dim, 200);
  assert_int_equal(config.kv_heads, 32);
  assert_true(config.rope_neighbours);
  assert_true(config.softmax_scale == 1 / sqrt(192));
  /* 128 heads: q_a, q_b, kv_a, kv_b, o and two norms; an MLP of 18432; two norms of the block. */
  const int64_t attention =
      7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 7168 * 128 * 128 + 1536 + 512;
  const char *dense =
      "{\"model_type\": \"deepseek_v3\", \"num_hidden_layers\": 3, \"rope_interleave\": false, "
      "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, \"mscale\": 1.0, "
      "\"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 4096}}";
  assert_int_equal(parse(dense, &config, &error), LS_OK);
  assert_int_equal(config.query_latent, 1536);
  assert_int_equal(config.head_dim, 192);
  assert_false(config.rope_neighbours);
  assert_true(config.rope_attention_factor == 1);
  const double grown = 0.1 * log(40) + 1;
  assert_true(fabs(config.softmax_scale * sqrt(192) / (grown * grown) - 1) < 1e-15);
  assert_int_equal(ls_model_parameters(&config), 3 * (attention + 3 * 7168 * 18432 + 2 * 7168) +
                                                     7168 + 2 * INT64_C(7168) * 129280);
}

/* Experts: their counts, how their weights are made, and what of them is not built. */
static void mixtures_are_read(void **state) {
  (void)state;
  ls_model_config config;
  ls_error error = {0};
  assert_int_equal(parse("{\"model_type\": \"mixtral\"}", &config, &error), LS_OK);
  assert_int_equal(config.experts, 8);
  assert_int_equal(config.experts_per_token, 2);
  assert_true(config.renormalise);
  assert_int_equal(config.window, 0);
  assert_int_equal(ls_model_parameters(&config), 46702792704);
  assert_int_equal(parse("{\"model_type\": \"qwen3_moe\"}", &config, &error), LS_OK);
  assert_int_equal(config.experts, 128);
  assert_int_equal(ls_model_expert_width(&config), 768);
  assert_false(config.renormalise);
  static const char *const refused[][2] = {
      {"{\"model_type\": \"mixtral\", \"router_aux_loss_coef\": -1}",
       "router_aux_loss_coef: found -1; expected 0 or more"},
      {"{\"model_type\": \"mixtral\", \"num_experts_per_tok\": 9}",
       "num_experts_per_tok: found 9; expected at most the 8 experts"},
      {"{\"model_type\": \"mixtral\", \"router_jitter_noise\": 0.1}", "router_jitter_noise"},
      {"{\"model_type\": \"qwen3_moe\", \"mlp_only_layers\": [24]}",
       "mlp_only_layers: found 24; expected layers from 0 to 23"},
      {"{\"model_type\": \"qwen3_moe\", \"use_sliding_window\": true}", "use_sliding_window"}};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    assert_int_equal(parse(refused[i][0], &config, &error), LS_INPUT);
    if (!strstr(error.text, refused[i][1])) fail_msg("%s", error.text);
  }
}

/* DeepSeek-V3, of 671 billion parameters. */
static void routers_by_sigmoids_are_read(void **state) {
  (void)state;
  ls_model_config config;
  ls_error error = {0};
  const char *v3 =
      "{\"model_type\": \"deepseek_v3\", \"n_group\": 8, \"topk_group\": 4, \"n_shared_experts\": "
      "1, "
      "\"routed_scaling_factor\": 2.5}";
  assert_int_equal(parse(v3, &config, &error), LS_OK);
  assert_true(config.sigmoid_router && config.router_bias && !config.shared_gate);
  assert_true(config.expert_groups == 8 && config.top_groups == 4 && config.route_scale == 2.5);
  assert_int_equal(config.layer_kinds[2], LS_LAYER_DENSE);
  assert_int_equal(config.layer_kinds[3], 0);
  assert_int_equal(ls_model_parameters(&config), 671026419200);
}

/* As transformers 4 and 5 write it. */
static void modernbert_is_read(void **state) {
  (void)state;
  ls_model_config config;
  ls_error error = {0};
  static const uint8_t few[] = {0, LS_LAYER_WINDOW, 0, LS_LAYER_WINDOW};
  static const uint8_t listed[] = {0, LS_LAYER_WINDOW, LS_LAYER_WINDOW, LS_LAYER_WINDOW};
#define MODERNBERT "{\"model_type\": \"modernbert\", \"num_hidden_layers\": 4, "
#define TYPES                                                     \
  "\"layer_types\": [\"full_attention\", \"sliding_attention\", " \
  "\"sliding_attention\", \"sliding_attention\"]"
  assert_int_equal(parse(MODERNBERT "\"global_attn_every_n_layers\": 2,"
                                    " \"local_rope_theta\": 9.0}",
                         &config, &error),
                   LS_OK);
  assert_memory_equal(config.layer_kinds, few, sizeof few);
  assert_true(config.rope_theta == 160000 && config.rope_local_theta == 9);
  assert_int_equal(
      parse(MODERNBERT TYPES
            ", \"rope_parameters\": {"
            " \"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": 8.0},"
            " \"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 7.0}}}",
            &config, &error),
      LS_OK);
  assert_memory_equal(config.layer_kinds, listed, sizeof listed);
  assert_true(config.rope_theta == 8 && config.rope_local_theta == 7 && config.window == 65);
  assert_int_equal(parse(MODERNBERT TYPES ", \"global_attn_every_n_layers\": 2}", &config, &error),
                   LS_INPUT);
  assert_non_null(
      strstr(error.text, "layer 2 is sliding_attention, which the other keys contradict"));
}

/* GLM-4.5-Air; of its parameters 5,760 are corrections of routers. */
static void glm4_moe_is_read(void **state) {
  (void)state;
  ls_model_config config;
  ls_error error = {0};
  assert_int_equal(
      parse("{\"model_type\": \"glm4_moe\", \"head_dim\": 128, \"attention_bias\": true}", &config,
            &error),
      LS_OK);
  assert_true(config.sigmoid_router && config.router_bias && config.unnormed_queries);
  assert_int_equal(config.rotary_dim, 64);
  assert_int_equal(config.layer_kinds[0], LS_LAYER_DENSE);
  assert_int_equal(config.layer_kinds[1], 0);
  assert_int_equal(ls_model_parameters(&config), 106852251264);
  assert_int_equal(parse("{\"model_type\": \"glm4_moe\", \"use_qk_norm\": true}", &config, &error),
                   LS_OK);
  assert_false(config.unnormed_queries);
}

/* Layers without experts, experts of all tokens, losses; and parameters as were published. */
static void mixtures_of_other_families_are_read(void **state) {
  (void)state;
  ls_model_config config;
  ls_error error = {0};
  assert_int_equal(
      parse("{\"model_type\": \"olmoe\", \"intermediate_size\": 1024}", &config, &error), LS_OK);
  assert_int_equal(ls_model_parameters(&config), 6919161856);
  assert_true(config.balance.aux == 0);
  assert_int_equal(parse("{\"model_type\": \"qwen2_moe\"}", &config, &error), LS_OK);
  assert_int_equal(ls_model_parameters(&config), 14315784192);
  assert_true(config.shared_gate && config.layer_kinds == NULL);
  assert_int_equal(parse("{\"model_type\": \"qwen2_moe\", \"num_hidden_layers\": 5,"
                         " \"decoder_sparse_step\": 2, \"mlp_only_layers\": [3]}",
                         &config, &error),
                   LS_OK);
  static const uint8_t kinds[] = {LS_LAYER_DENSE, 0, LS_LAYER_DENSE, LS_LAYER_DENSE,
                                  LS_LAYER_DENSE};
  assert_memory_equal(config.layer_kinds, kinds, sizeof kinds);
  assert_int_equal(parse("{\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 5,"
                         " \"decoder_sparse_step\": 2, \"mlp_only_layers\": [3]}",
                         &config, &error),
                   LS_OK);
  assert_memory_equal(config.layer_kinds, kinds, sizeof kinds);
  assert_int_equal(config.mlp_width, 6144);
  assert_int_equal(parse("{\"model_type\": \"mixtral\", \"output_router_logits\": true,"
                         " \"router_aux_loss_coef\": 0.02}",
                         &config, &error),
                   LS_OK);
  assert_true(config.balance.aux == 0.02 && config.balance.form == LS_BALANCE_MODEL);
  static const char *const refused[][2] = {
      {"{\"model_type\": \"olmoe\", \"clip_qkv\": 8}", "clip_qkv: found 8"},
      {"{\"model_type\": \"qwen2_moe\", \"mlp_only_layers\": [24]}",
       "mlp_only_layers: found 24; expected layers from 0 to 23"},
      {"{\"model_type\": \"qwen2_moe\", \"num_experts_per_tok\": 61}",
       "num_experts_per_tok: found 61; expected at most the 60 experts"},
      {"{\"model_type\": \"qwen2_moe\", \"use_sliding_window\": true}", "use_sliding_window"}};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    assert_int_equal(parse(refused[i][0], &config, &error), LS_INPUT);
    if (!strstr(error.text, refused[i][1])) fail_msg("%s", error.text);
  }
}

static void missing_keys_take_the_defaults(void **state) {
  (void)state;
  ls_model_config config;
  ls_error error = {0};
  assert_int_equal(parse("{\"model_type\": \"gpt2\"}", &config, &error), LS_OK);
  assert_int_equal(ls_model_parameters(&config), 124439808);
  assert_int_equal(config.activation, LS_GELU_TANH);
  assert_true(config.dropout.embedding == 0.1 && config.dropout.hidden == 0.1);
  assert_true(config.dropout.attention == 0.1 && config.dropout.adapter == 0);
  assert_true(config.softmax_scale == 0.125);
  assert_int_equal(config.end_ids[0], 50256);
  assert_int_equal(parse("{\"model_type\": \"llama\"}", &config, &error), LS_OK);
  assert_int_equal(ls_model_parameters(&config), 6738415616);
  assert_true(config.epsilon == 1e-6);
  assert_true(config.rope_theta == 1e4);
  assert_false(config.tied);
  assert_int_equal(config.end_ids[0], 2);
}

static void variants_are_read(void **state) {
  (void)state;
  ls_model_config config;
  ls_error error = {0};
  assert_int_equal(parse("{\"model_type\": \"gpt2\", \"activation_function\": \"gelu\", "
                         "\"n_inner\": 100, \"hidden_size\": 48, \"n_head\": 4, "
                         "\"scale_attn_weights\": false, \"tie_word_embeddings\": false, "
                         "\"reorder_and_upcast_attn\": true, \"eos_token_id\": null}",
                         &config, &error),
                   LS_OK);
  assert_int_equal(config.activation, LS_GELU_ERF);
  assert_int_equal(config.mlp_width, 100);
  assert_int_equal(config.width, 48);
  assert_true(config.softmax_scale == 1);
  assert_false(config.tied);
  assert_int_equal(config.end_count, 0);
  assert_int_equal(
      parse("{\"model_type\": \"llama\", \"attention_bias\": true, \"mlp_bias\": true, "
            "\"head_dim\": 32, \"num_key_value_heads\": 4, \"eos_token_id\": [7, 9], "
            "\"pretraining_tp\": 2, \"rope_interleaved\": false, \"sliding_window\": null, "
            "\"rope_parameters\": {\"rope_theta\": 5e4, \"rope_type\": \"linear\", \"factor\": 2}}",
            &config, &error),
      LS_OK);
  assert_true(config.attention_bias && config.mlp_bias);
  assert_int_equal(config.head_dim, 32);
  assert_int_equal(config.rope_scaling, LS_ROPE_LINEAR);
  assert_true(config.rope_theta == 5e4);
  assert_true(config.rope_factor == 2);
  assert_int_equal(config.end_count, 2);
  assert_int_equal(config.end_ids[1], 9);
}

typedef struct refusal {
  const char *keys, *text;
} refusal;

static void check_refusals(const char *family, const refusal *cases, size_t count) {
  for (size_t i = 0; i < count; i++) {
    ls_model_config config;
    ls_error error = {0};
    const char *text =
        ls_arena_printf(arena, "{\"model_type\": \"%s\", %s}", family, cases[i].keys);
    const ls_status status = parse(text, &config, &error);
    if (status != LS_INPUT || !strstr(error.text, cases[i].text) || strchr(error.text, '\n'))
      fail_msg("%s: status %d, \"%s\"; expected \"%s\"", cases[i].keys, status, error.text,
               cases[i].text);
  }
}

static void refusals_of_gpt2(void **state) {
  (void)state;
  static const refusal cases[] = {
      {"\"activation_function\": \"relu\"", "activation_function: found \"relu\""},
      {"\"scale_attn_by_inverse_layer_idx\": true", "scale_attn_by_inverse_layer_idx: found true"},
      {"\"add_cross_attention\": true", "add_cross_attention"},
      {"\"is_causal\": false", "is_causal"},
      {"\"quantization_config\": {\"bits\": 4}", "quantization_config"},
      {"\"n_embd\": 100, \"n_head\": 12", "n_embd is 100 and n_head 12"},
      {"\"n_embd\": 96, \"hidden_size\": 96", "n_embd and hidden_size"},
      {"\"n_layer\": 0", "n_layer"},
      {"\"n_layer\": \"12\"", "n_layer"},
      {"\"n_layer\": 1.5", "n_layer"},
      {"\"n_layer\": 100000", "100000 layers"},
      {"\"resid_pdrop\": 1", "resid_pdrop"},
      {"\"layer_norm_epsilon\": -1", "layer_norm_epsilon"},
      {"\"tie_word_embeddings\": 1", "tie_word_embeddings"},
      {"\"vocab_size\": 2000000000, \"n_embd\": 1200000", "parameters"},
  };
  check_refusals("gpt2", cases, sizeof cases / sizeof *cases);
}

static void refusals_of_llama(void **state) {
  (void)state;
  static const refusal cases[] = {
      {"\"hidden_act\": \"gelu\"", "hidden_act: found \"gelu\"; expected silu"},
      {"\"rope_scaling\": {\"type\": \"su\", \"factor\": 4}", "found \"su\""},
      {"\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 0.5}", "found 0.5"},
      {"\"rope_scaling\": {\"type\": \"yarn\", \"rope_type\": \"linear\", \"factor\": 4}",
       "rope_type is \"linear\" and type \"yarn\""},
      {"\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"beta_slow\": 0}", "beta_slow"},
      {"\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
       "\"original_max_position_embeddings\": 8}, \"original_max_position_embeddings\": 16",
       "original_max_position_embeddings is 8, and 16"},
      {"\"rope_theta\": 10, \"rope_parameters\": {\"rope_theta\": 100}", "rope_theta is 100"},
      {"\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1], \"long_factor\": [1]}",
       "short_factor has 1 numbers; expected 64"},
      {"\"residual_multiplier\": 0.22", "residual_multiplier: found 0.22; this key is not known"},
      {"\"position_embedding_type\": \"alibi\"", "position_embedding_type"},
      {"\"rms_norm_eps\": 1e999", "config.json"},
      {"\"rope_scaling\": {\"type\": \"linear\"}", "factor"},
      {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": -1}", "factor"},
      {"\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}", "low_freq_factor"},
      {"\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
       "\"high_freq_factor\": 4}",
       "high_freq_factor"},
      {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"mscale\": 3}", "mscale"},
      {"\"rope_parameters\": {\"full_attention\": {}}", "full_attention"},
      {"\"rope_parameters\": {\"partial_rotary_factor\": 0.5}", "partial_rotary_factor"},
      {"\"rope_scaling\": {\"type\": \"default\"}, \"rope_parameters\": {}", "rope_parameters"},
      {"\"rope_theta\": 0", "rope_theta"},
      {"\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
       "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 0}",
       "original_max_position_embeddings"},
      {"\"rope_interleaved\": true", "rope_interleaved"},
      {"\"partial_rotary_factor\": 0.25", "partial_rotary_factor"},
      {"\"sliding_window\": 4096", "sliding_window"},
      {"\"num_attention_heads\": 6, \"head_dim\": 64, \"num_key_value_heads\": 4",
       "num_key_value_heads 4"},
      {"\"num_attention_heads\": 7", "num_attention_heads 7"},
      {"\"head_dim\": 65", "head_dim: found 65"},
      {"\"eos_token_id\": [1,2,3,4,5,6,7,8,9]", "eos_token_id"},
      {"\"eos_token_id\": \"x\"", "eos_token_id"},
  };
  check_refusals("llama", cases, sizeof cases / sizeof *cases);
}

/* Of the families that followed, what each has of its own. */
static void refusals_of_the_others(void **state) {
  (void)state;
  static const struct {
    const char *family;
    refusal one;
  } cases[] = {
      {"mistral", {"\"sliding_window\": 0", "sliding_window"}},
      {"mistral",
       {"\"num_hidden_layers\": 1, \"layer_types\": [\"full_attention\"]",
        "layer 0 is full_attention, which the other keys contradict"}},
      {"qwen2", {"\"attention_bias\": true", "attention_bias: found true; this key is not known"}},
      {"qwen2",
       {"\"num_hidden_layers\": 1, \"layer_types\": [\"sliding_attention\"]",
        "no sliding_window is in use"}},
      {"qwen3", {"\"layer_types\": [\"full_attention\"]", "layer_types has 1 entries"}},
      {"qwen3",
       {"\"num_hidden_layers\": 1, \"layer_types\": [\"linear_attention\"]",
        "found \"linear_attention\""}},
      {"gemma", {"\"hidden_activation\": \"gelu\"", "hidden_activation: found \"gelu\""}},
      {"gemma", {"\"hidden_act\": \"gelu_python\"", "hidden_act: found \"gelu_python\""}},
      {"gemma2", {"\"hidden_act\": \"silu\"", "hidden_act: found \"silu\""}},
      {"gemma2", {"\"attn_logit_softcapping\": 0", "attn_logit_softcapping: found 0"}},
      {"gemma2", {"\"final_logit_softcapping\": -3", "final_logit_softcapping"}},
      {"gemma2", {"\"query_pre_attn_scalar\": 0", "query_pre_attn_scalar"}},
      {"gemma2", {"\"sliding_window_size\": 1024", "sliding_window_size is 1024"}},
      {"gemma2", {"\"use_bidirectional_attention\": true", "use_bidirectional_attention"}},
      {"gemma3_text", {"\"rope_parameters\": {\"full_attention\": {}}", "sliding_attention"}},
      {"gemma3_text",
       {"\"rope_parameters\": {\"full_attention\": {}, \"sliding_attention\": {\"rope_type\": "
        "\"linear\", \"factor\": 2}}",
        "expected default"}},
      {"gemma3_text",
       {"\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2}",
        "expected full_attention and sliding_attention"}},
      {"gemma3_text",
       {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 8}", "type: expected rope_type"}},
      {"gemma3_text",
       {"\"attn_logit_softcapping\": 50.0", "attn_logit_softcapping: found 50.0; expected null"}},
      {"gemma3_text", {"\"rope_local_base_freq\": 0", "rope_local_base_freq"}},
      {"phi", {"\"qk_layernorm\": true", "qk_layernorm: found true"}},
      {"phi", {"\"partial_rotary_factor\": 1.5", "partial_rotary_factor: found 1.5"}},
      {"phi", {"\"partial_rotary_factor\": 0.33", "of which 21 columns are turned"}},
      {"phi3", {"\"sliding_window\": -5", "sliding_window"}},
      {"phi3",
       {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", "expected default or longrope"}},
      {"phi3",
       {"\"hidden_size\": 16, \"num_attention_heads\": 4, \"rope_scaling\": {\"type\": \"su\", "
        "\"short_factor\": [1, 1], \"long_factor\": [2, 2]}",
        "no original_max_position_embeddings"}},
      {"olmo2", {"\"initializer_range\": 1e9", "initializer_range: found 1e+09"}},
      {"gpt_neox", {"\"rotary_pct\": 0.5, \"partial_rotary_factor\": 0.5", "rotary_pct and"}},
      {"olmo2", {"\"clip_qkv\": 8", "clip_qkv"}},
      {"smollm3", {"\"no_rope_layers\": [1, 0]", "no_rope_layers has 2 entries"}},
      {"bloom",
       {"\"apply_residual_connection_post_layernorm\": true",
        "apply_residual_connection_post_layernorm"}},
      {"bloom", {"\"hidden_size\": 64, \"n_embed\": 64", "hidden_size and n_embed"}},
      {"falcon", {"\"alibi\": true", "alibi: found true; expected false"}},
      {"falcon",
       {"\"new_decoder_architecture\": true, \"parallel_attn\": false, \"num_kv_heads\": 1",
        "without parallel_attn"}},
      {"falcon", {"\"multi_query\": false, \"num_kv_heads\": 8", "expected them to agree"}},
      {"falcon", {"\"num_kv_heads\": 1e18", "num_kv_heads"}},
      {"falcon", {"\"num_ln_in_parallel_attn\": 2", "num_ln_in_parallel_attn: found 2"}},
      {"starcoder2", {"\"norm_type\": \"rms_norm\"", "norm_type"}},
      {"starcoder2", {"\"num_attention_heads\": 7", "num_attention_heads 7"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    check_refusals(cases[i].family, &cases[i].one, 1);
}

/* What latent attention and its routers cannot be. */
static void latents_are_refused(void **state) {
  (void)state;
  const struct {
    const char *family;
    refusal one;
  } cases[] = {
      {"deepseek_v2",
       {"\"scoring_func\": \"sigmoid\", \"topk_method\": \"greedy\"",
        "topk_method greedy with scoring_func sigmoid; expected noaux_tc with sigmoid"}},
      {"deepseek_v3", {"\"n_group\": 7", "n_group 7, topk_group 1, n_routed_experts 256"}},
      {"deepseek_v3",
       {"\"n_routed_experts\": null, \"num_key_value_heads\": 8",
        "num_key_value_heads: found 8; expected 128"}},
      {"deepseek_v3",
       {"\"n_routed_experts\": null, \"head_dim\": 128", "head_dim: found 128; expected 64"}},
      {"deepseek_v3",
       {"\"n_routed_experts\": null, \"qk_head_dim\": 128",
        "qk_head_dim: found 128; expected 192"}},
      {"deepseek_v3",
       {"\"n_routed_experts\": null, \"qk_rope_head_dim\": 7", "of which 7 columns are turned"}},
      {"deepseek_v3", {"\"n_routed_experts\": null, \"q_lora_rank\": 0", "q_lora_rank"}},
      {"deepseek_v3",
       {"\"n_routed_experts\": null, \"kv_lora_rank\": 100000",
        "kv_lora_rank: found 100000; expected at most 65536"}},
      {"deepseek_v3", {"\"n_routed_experts\": null, \"v_head_dim\": 1e18", "v_head_dim"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    check_refusals(cases[i].family, &cases[i].one, 1);
}

/* Published shapes that are not among the files: parameters as their publishers count them. */
static void published_shapes_count(void **state) {
  (void)state;
  static const struct {
    int64_t parameters;
    const char *keys;
  } cases[] = {
      {162322944,
       "\"gpt_neox\", \"vocab_size\": 50304, \"hidden_size\": 768, "
       "\"num_hidden_layers\": 12, \"num_attention_heads\": 12, "
       "\"intermediate_size\": 3072, \"rotary_pct\": 0.25"},
      {559214592,
       "\"bloom\", \"n_embed\": 1024, \"n_layer\": 24, \"num_attention_heads\": 16, "
       "\"offset_alibi\": 100, \"seq_length\": 2048"},
      {6921720704, "\"falcon\", \"num_kv_heads\": 71"},
      {41303293952,
       "\"falcon\", \"hidden_size\": 8192, \"n_layer\": 60, \"n_head\": 128, "
       "\"n_head_kv\": 8, \"new_decoder_architecture\": true"},
      {2506172416,
       "\"gemma\", \"hidden_size\": 2048, \"intermediate_size\": 16384, "
       "\"num_hidden_layers\": 18, \"num_attention_heads\": 8, "
       "\"num_key_value_heads\": 1, \"hidden_act\": \"gelu\""},
      {2614341888, "\"gemma2\""},
      {999885952,
       "\"gemma3_text\", \"vocab_size\": 262144, \"hidden_size\": 1152, "
       "\"intermediate_size\": 6912, \"num_attention_heads\": 4, "
       "\"num_key_value_heads\": 1, \"sliding_window\": 512"},
      {3821079552, "\"phi3\", \"sliding_window\": 2047"},
      {7298617344, "\"olmo2\", \"vocab_size\": 100352"},
      {3075098624, "\"smollm3\", \"num_key_value_heads\": 4"},
      {3030371328, "\"starcoder2\", \"mlp_type\": \"default\""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_model_config config;
    ls_error error = {0};
    const char *text = ls_arena_printf(arena, "{\"model_type\": %s}", cases[i].keys);
    if (parse(text, &config, &error) != LS_OK) fail_msg("%s", error.text);
    if (ls_model_parameters(&config) != cases[i].parameters)
      fail_msg("%s: %lld parameters", text, (long long)ls_model_parameters(&config));
  }
}

/* Keys that published files have besides those of the shape. */
static void published_keys_are_known(void **state) {
  (void)state;
  static const char *const cases[] = {
      "\"gemma2\", \"hidden_act\": \"gelu_pytorch_tanh\", \"hidden_activation\": "
      "\"gelu_pytorch_tanh\", \"cache_implementation\": \"hybrid\", \"sliding_window\": 4096, "
      "\"sliding_window_size\": 4096, \"eos_token_id\": [1, 107]",
      "\"gemma3_text\", \"attn_logit_softcapping\": null, \"rope_scaling\": {\"rope_type\": "
      "\"linear\", \"factor\": 8.0}, \"rope_local_base_freq\": 10000.0, "
      "\"sliding_window_pattern\": 6",
      "\"phi3\", \"hidden_size\": 32, \"num_attention_heads\": 4, \"partial_rotary_factor\": "
      "0.75, \"full_attn_mod\": 1, \"interpolate_factor\": 1, \"lm_head_bias\": false, "
      "\"max_position_embeddings\": 131072, \"original_max_position_embeddings\": 4096, "
      "\"rope_scaling\": {\"type\": \"su\", "
      "\"short_factor\": [1, 1, 1], \"long_factor\": [1, 2, 3.5]}, \"sliding_window\": 262144",
      "\"starcoder2\", \"activation_function\": \"gelu\", \"attention_softmax_in_fp32\": true, "
      "\"layer_norm_epsilon\": 1e-05, \"scale_attn_weights\": true, \"residual_dropout\": 0.1",
      "\"smollm3\", \"max_window_layers\": 28, \"no_rope_layer_interval\": 4, "
      "\"pretraining_tp\": 2, \"use_sliding_window\": false, \"sliding_window\": null",
      "\"gpt_neox\", \"attention_probs_dropout_prob\": 0, \"hidden_dropout_prob\": 0, "
      "\"rotary_emb_base\": 10000",
      "\"llama\", \"max_sequence_length\": 2048, \"unsloth_fixed\": true",
      "\"deepseek_v3\", \"n_routed_experts\": null, \"ep_size\": 1, \"scoring_func\": \"sigmoid\", "
      "\"topk_method\": \"noaux_tc\", \"num_nextn_predict_layers\": 1, \"head_dim\": 64, "
      "\"qk_head_dim\": 192",
      "\"qwen2\", \"use_mrope\": false, \"max_window_layers\": 21, \"sliding_window\": 32768",
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_model_config config;
    ls_error error = {0};
    const char *text = ls_arena_printf(arena, "{\"model_type\": %s}", cases[i]);
    if (parse(text, &config, &error) != LS_OK) fail_msg("%s", error.text);
  }
}

/* Sizes that no model has end in one line, for every family. */
static void absurd_sizes_are_refused(void **state) {
  (void)state;
  static const char *const families[] = {
      "bloom",       "deepseek_v2", "deepseek_v3", "falcon",   "gemma",     "gemma2",
      "gemma3_text", "glm4_moe",    "gpt2",        "llama",    "mistral",   "mixtral",
      "olmo2",       "phi",         "phi3",        "qwen2",    "qwen3",     "qwen2_moe",
      "qwen3_moe",   "gpt_oss",     "smollm3",     "gpt_neox", "starcoder2"};
  static const char *const sizes[] = {
      "0", "-1", "1000000000000000000", "1e18", "NaN", "2147483648", "\"8\"", "1.5", "[]"};
  static const char *const keys[] = {"vocab_size", "num_hidden_layers", "num_attention_heads"};
  for (size_t f = 0; f < sizeof families / sizeof *families; f++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
      for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        ls_model_config config;
        ls_error error = {0};
        const char *text = ls_arena_printf(arena, "{\"model_type\": \"%s\", \"%s\": %s}",
                                           families[f], keys[k], sizes[s]);
        if (parse(text, &config, &error) != LS_INPUT || strchr(error.text, '\n'))
          fail_msg("%s: %s", text, error.text);
      }
}

static void other_files_are_refused(void **state) {
  (void)state;
  static const refusal cases[] = {
      {"", "config.json"},
      {"[1]", "config.json"},
      {"{}", "no model_type"},
      {"{\"model_type\": 3}", "model_type"},
      {"{\"model_type\": \"gpt2\",}", "config.json"},
      {"{\"model_type\": \"gpt2\", \"n_head\": 12, \"n_head\": 16}", "n_head"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_model_config config;
    ls_error error = {0};
    assert_int_equal(parse(cases[i].keys, &config, &error), LS_INPUT);
    if (!strstr(error.text, cases[i].text)) fail_msg("%s: %s", cases[i].keys, error.text);
  }
}

static void unknown_models_name_the_nearest(void **state) {
  (void)state;
  ls_model_config config;
  ls_error error = {0};
  assert_int_equal(ls_model_find(arena, "lama-3m", &config, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "\"lama-3m\""));
  assert_non_null(strstr(error.text, "the nearest are llama-3m"));
}

static void names_match_without_case_and_punctuation(void **state) {
  (void)state;
  static const char *const cases[][2] = {{"Llama-3-8B", "llama3-8b"},
                                         {"llama3-405b", "llama3.1-405b"},
                                         {"LLAMA 3.1 405B", "llama3.1-405b"},
                                         {"gpt2", "gpt2-124m"},
                                         {"qwen_2.5_7b", "qwen2.5-7b"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_model_config config;
    ls_error error = {0};
    if (ls_model_find(arena, cases[i][0], &config, &error) != LS_OK) fail_msg("%s", error.text);
    assert_string_equal(config.source, cases[i][1]);
  }
}

static void what_cannot_be_built_is_refused_with_its_reason(void **state) {
  (void)state;
  ls_model_config config;
  ls_error error = {0};
  assert_int_equal(ls_model_find(arena, "nemotron-4-340b", &config, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "nemotron-4-340b cannot be built yet: the family nemotron"));
}

/* The numbers of published files that are beside the tree. */
static void presets_are_their_published_files(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"gpt2-124m", "gpt2.json"},
      {"gpt2-774m", "gpt2-large.json"},
      {"llama3.1-8b", "meta-llama--Meta-Llama-3.1-8B.json"},
      {"llama3.1-70b", "meta-llama--Meta-Llama-3.1-70B.json"},
      {"mistral-7b-v0.1", "mistralai--Mistral-7B-v0.1.json"},
      {"qwen3-0.6b", "Qwen--Qwen3-0.6B.json"},
      {"qwen3-8b", "Qwen--Qwen3-8B.json"},
      {"phi-2", "microsoft--phi-2.json"},
      {"mixtral-8x7b", "mistralai--Mixtral-8x7B-v0.1.json"},
      {"qwen3-30b-a3b", "Qwen--Qwen3-30B-A3B.json"},
  };
  if (!ls_directory_exists(CONFIGS)) skip();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_model_config preset, file;
    ls_error error = {0};
    const char *path = ls_arena_printf(arena, CONFIGS "%s", cases[i][1]);
    if (ls_model_config_read(arena, path, &file, &error) != LS_OK ||
        ls_model_find(arena, cases[i][0], &preset, &error) != LS_OK ||
        ls_model_config_compare(&preset, &file, &error) != LS_OK)
      fail_msg("%s: %s", cases[i][0], error.text);
  }
}

/* A shape says nothing of special tokens, nor of dropout. */
static void presets_have_no_tokens_and_no_dropout(void **state) {
  (void)state;
  int count;
  const ls_preset *presets = ls_model_presets(arena, &count);
  for (int i = 0; i < count; i++) {
    ls_model_config config, again;
    ls_error error = {0};
    if (!presets[i].config) continue;
    if (ls_model_find(arena, presets[i].name, &config, &error) != LS_OK) fail_msg("%s", error.text);
    assert_true(config.begin_id == -1 && config.end_count == 0 && config.dropout.hidden == 0 &&
                config.dropout.embedding == 0 && config.dropout.attention == 0);
    const char *text = ls_model_config_text(arena, &config, LS_BF16);
    assert_non_null(strstr(text, "\"torch_dtype\": \"bfloat16\""));
    if (parse(text, &again, &error) != LS_OK ||
        ls_model_config_compare(&config, &again, &error) != LS_OK)
      fail_msg("%s: %s\n%s", presets[i].name, error.text, text);
  }
}

static void the_text_of_a_file_is_kept(void **state) {
  (void)state;
  ls_model_config config;
  ls_error error = {0};
  const char *given =
      "{\"model_type\":\"gpt2\", \"_x\": {\"dtype\": \"int8\", \"torch_dtype\": [\"a\\\"b}\"]},\n"
      " \"layer_norm_epsilon\": 1e-05,\t\"torch_dtype\" : \"float16\", \"_note\": \"dtype\"}";
  const char *expected =
      "{\"model_type\":\"gpt2\", \"_x\": {\"dtype\": \"int8\", \"torch_dtype\": [\"a\\\"b}\"]},\n"
      " \"layer_norm_epsilon\": 1e-05,\t\"torch_dtype\" : \"float32\", \"_note\": \"dtype\"}";
  assert_int_equal(parse(given, &config, &error), LS_OK);
  assert_string_equal(ls_model_config_text(arena, &config, LS_F32), expected);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(published_files_parse),
      cmocka_unit_test(llama31_has_its_rope),
      cmocka_unit_test(others_are_refused_by_name),
      cmocka_unit_test(latents_are_read),
      cmocka_unit_test(latents_are_refused),
      cmocka_unit_test(mixtures_are_read),
      cmocka_unit_test(glm4_moe_is_read),
      cmocka_unit_test(modernbert_is_read),
      cmocka_unit_test(mixtures_of_other_families_are_read),
      cmocka_unit_test(routers_by_sigmoids_are_read),
      cmocka_unit_test(missing_keys_take_the_defaults),
      cmocka_unit_test(variants_are_read),
      cmocka_unit_test(refusals_of_gpt2),
      cmocka_unit_test(refusals_of_llama),
      cmocka_unit_test(refusals_of_the_others),
      cmocka_unit_test(published_shapes_count),
      cmocka_unit_test(published_keys_are_known),
      cmocka_unit_test(absurd_sizes_are_refused),
      cmocka_unit_test(other_files_are_refused),
      cmocka_unit_test(unknown_models_name_the_nearest),
      cmocka_unit_test(names_match_without_case_and_punctuation),
      cmocka_unit_test(what_cannot_be_built_is_refused_with_its_reason),
      cmocka_unit_test(presets_are_their_published_files),
      cmocka_unit_test(presets_have_no_tokens_and_no_dropout),
      cmocka_unit_test(the_text_of_a_file_is_kept),
  };
  return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
