#include "store/names_table.h"

#include <string.h>

static const ls_name_rule gpt2_rules[] = {
    {"embedding.token", "wte.weight", LS_NAME_PLAIN},
    {"embedding.position", "wpe.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.weight", "h.*.ln_1.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.bias", "h.*.ln_1.bias", LS_NAME_PLAIN},
    {"layers.*.attention.query.weight", "h.*.attn.c_attn.weight", LS_NAME_TRANSPOSED},
    {"layers.*.attention.query.bias", "h.*.attn.c_attn.bias", LS_NAME_PLAIN},
    {"layers.*.attention.key.weight", "h.*.attn.c_attn.weight", LS_NAME_TRANSPOSED},
    {"layers.*.attention.key.bias", "h.*.attn.c_attn.bias", LS_NAME_PLAIN},
    {"layers.*.attention.value.weight", "h.*.attn.c_attn.weight", LS_NAME_TRANSPOSED},
    {"layers.*.attention.value.bias", "h.*.attn.c_attn.bias", LS_NAME_PLAIN},
    {"layers.*.attention.output.weight", "h.*.attn.c_proj.weight", LS_NAME_TRANSPOSED},
    {"layers.*.attention.output.bias", "h.*.attn.c_proj.bias", LS_NAME_PLAIN},
    {"layers.*.norm2.weight", "h.*.ln_2.weight", LS_NAME_PLAIN},
    {"layers.*.norm2.bias", "h.*.ln_2.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.up.weight", "h.*.mlp.c_fc.weight", LS_NAME_TRANSPOSED},
    {"layers.*.mlp.up.bias", "h.*.mlp.c_fc.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.down.weight", "h.*.mlp.c_proj.weight", LS_NAME_TRANSPOSED},
    {"layers.*.mlp.down.bias", "h.*.mlp.c_proj.bias", LS_NAME_PLAIN},
    {"head.norm.weight", "ln_f.weight", LS_NAME_PLAIN},
    {"head.norm.bias", "ln_f.bias", LS_NAME_PLAIN},
    {0}};

static const char *const gpt2_ignored[] = {"h.*.attn.bias", "h.*.attn.masked_bias", NULL};

/* Llama and those that kept its names; rules for what a family lacks are never asked for. */
static const ls_name_rule llama_rules[] = {
    {"embedding.token", "embed_tokens.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.weight", "layers.*.input_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.attention.query.weight", "layers.*.self_attn.q_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.query.bias", "layers.*.self_attn.q_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.key.weight", "layers.*.self_attn.k_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.key.bias", "layers.*.self_attn.k_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.value.weight", "layers.*.self_attn.v_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.value.bias", "layers.*.self_attn.v_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.output.weight", "layers.*.self_attn.o_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.output.bias", "layers.*.self_attn.o_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.query_norm.weight", "layers.*.self_attn.q_norm.weight", LS_NAME_PLAIN},
    {"layers.*.attention.key_norm.weight", "layers.*.self_attn.k_norm.weight", LS_NAME_PLAIN},
    {"layers.*.norm2.weight", "layers.*.post_attention_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.gate.weight", "layers.*.mlp.gate_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.gate.bias", "layers.*.mlp.gate_proj.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.up.weight", "layers.*.mlp.up_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.up.bias", "layers.*.mlp.up_proj.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.down.weight", "layers.*.mlp.down_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.down.bias", "layers.*.mlp.down_proj.bias", LS_NAME_PLAIN},
    {"head.norm.weight", "norm.weight", LS_NAME_PLAIN},
    {0}};

/* Llama's, with a mixture of experts in the MLP's place: `router`, then `name` of each expert's
 * gate, up and down. */
#define MIXTURE_RULES(router, gate, up, down, shared)                                              \
  {"embedding.token", "embed_tokens.weight", LS_NAME_PLAIN},                                       \
      {"layers.*.norm1.weight", "layers.*.input_layernorm.weight", LS_NAME_PLAIN},                 \
      {"layers.*.attention.query.weight", "layers.*.self_attn.q_proj.weight", LS_NAME_PLAIN},      \
      {"layers.*.attention.query.bias", "layers.*.self_attn.q_proj.bias", LS_NAME_PLAIN},          \
      {"layers.*.attention.key.weight", "layers.*.self_attn.k_proj.weight", LS_NAME_PLAIN},        \
      {"layers.*.attention.key.bias", "layers.*.self_attn.k_proj.bias", LS_NAME_PLAIN},            \
      {"layers.*.attention.value.weight", "layers.*.self_attn.v_proj.weight", LS_NAME_PLAIN},      \
      {"layers.*.attention.value.bias", "layers.*.self_attn.v_proj.bias", LS_NAME_PLAIN},          \
      {"layers.*.attention.output.weight", "layers.*.self_attn.o_proj.weight", LS_NAME_PLAIN},     \
      {"layers.*.attention.output.bias", "layers.*.self_attn.o_proj.bias", LS_NAME_PLAIN},         \
      {"layers.*.attention.query_norm.weight", "layers.*.self_attn.q_norm.weight", LS_NAME_PLAIN}, \
      {"layers.*.attention.key_norm.weight", "layers.*.self_attn.k_norm.weight", LS_NAME_PLAIN},   \
      {"layers.*.norm2.weight", "layers.*.post_attention_layernorm.weight", LS_NAME_PLAIN},        \
      {"layers.*.router.weight", "layers.*." router ".weight", LS_NAME_PLAIN},                     \
      {"layers.*.experts.gate.weight", "layers.*." gate ".weight", LS_NAME_EXPERT_TRANSPOSED},     \
      {"layers.*.experts.up.weight", "layers.*." up ".weight", LS_NAME_EXPERT_TRANSPOSED},         \
      {"layers.*.experts.down.weight", "layers.*." down ".weight", LS_NAME_EXPERT},                \
      {"layers.*.mlp.gate.weight", "layers.*.mlp.gate_proj.weight", LS_NAME_PLAIN},                \
      {"layers.*.mlp.up.weight", "layers.*.mlp.up_proj.weight", LS_NAME_PLAIN},                    \
      {"layers.*.mlp.down.weight", "layers.*.mlp.down_proj.weight", LS_NAME_PLAIN},                \
      {"layers.*.shared.gate.weight", "layers.*.mlp." shared ".gate_proj.weight", LS_NAME_PLAIN},  \
      {"layers.*.shared.up.weight", "layers.*.mlp." shared ".up_proj.weight", LS_NAME_PLAIN},      \
      {"layers.*.shared.down.weight", "layers.*.mlp." shared ".down_proj.weight", LS_NAME_PLAIN},  \
      {"layers.*.shared.router.weight", "layers.*.mlp.shared_expert_gate.weight", LS_NAME_PLAIN},  \
  {                                                                                                \
    "head.norm.weight", "norm.weight", LS_NAME_PLAIN                                               \
  }

static const ls_name_rule mixtral_rules[] = {
    MIXTURE_RULES("block_sparse_moe.gate", "block_sparse_moe.experts.#.w1",
                  "block_sparse_moe.experts.#.w3", "block_sparse_moe.experts.#.w2",
                  "shared_expert"),
    {0}};

static const ls_name_rule qwen3_moe_rules[] = {
    MIXTURE_RULES("mlp.gate", "mlp.experts.#.gate_proj", "mlp.experts.#.up_proj",
                  "mlp.experts.#.down_proj", "shared_expert"),
    {0}};

static const ls_name_rule gpt_oss_rules[] = {
    {"layers.*.attention.sinks", "layers.*.self_attn.sinks", LS_NAME_PLAIN},
    {"layers.*.router.weight", "layers.*.mlp.router.weight", LS_NAME_PLAIN},
    {"layers.*.router.bias", "layers.*.mlp.router.bias", LS_NAME_PLAIN},
    {"layers.*.experts.gate_up.weight", "layers.*.mlp.experts.gate_up_proj", LS_NAME_STACK},
    {"layers.*.experts.gate_up.bias", "layers.*.mlp.experts.gate_up_proj_bias", LS_NAME_PLAIN},
    {"layers.*.experts.down.weight", "layers.*.mlp.experts.down_proj", LS_NAME_STACK_TRANSPOSED},
    {"layers.*.experts.down.bias", "layers.*.mlp.experts.down_proj_bias", LS_NAME_PLAIN},
    MIXTURE_RULES("mlp.gate", "mlp.experts.#.gate_proj", "mlp.experts.#.up_proj",
                  "mlp.experts.#.down_proj", "shared_expert"),
    {0}};

/* As they are published: MXFP4, whose blocks are of rows of [out, in]. */
static const ls_name_rule gpt_oss_mxfp4_rules[] = {
    {"layers.*.experts.gate_up.weight", "layers.*.mlp.experts.gate_up_proj_blocks",
     LS_NAME_STACK_TRANSPOSED},
    {"layers.*.experts.down.weight", "layers.*.mlp.experts.down_proj_blocks", LS_NAME_STACK},
    {0}};

/* As other trainers save them, and as Phi-3 has them. */
static const ls_name_rule fused_rules[] = {
    {"layers.*.attention.query.weight", "layers.*.self_attn.qkv_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.query.bias", "layers.*.self_attn.qkv_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.key.weight", "layers.*.self_attn.qkv_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.key.bias", "layers.*.self_attn.qkv_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.value.weight", "layers.*.self_attn.qkv_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.value.bias", "layers.*.self_attn.qkv_proj.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.gate.weight", "layers.*.mlp.gate_up_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.gate.bias", "layers.*.mlp.gate_up_proj.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.up.weight", "layers.*.mlp.gate_up_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.up.bias", "layers.*.mlp.gate_up_proj.bias", LS_NAME_PLAIN},
    {0}};

static const ls_name_rule split_rules[] = {
    {"layers.*.attention.query.weight", "layers.*.self_attn.q_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.query.bias", "layers.*.self_attn.q_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.key.weight", "layers.*.self_attn.k_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.key.bias", "layers.*.self_attn.k_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.value.weight", "layers.*.self_attn.v_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.value.bias", "layers.*.self_attn.v_proj.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.gate.weight", "layers.*.mlp.gate_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.gate.bias", "layers.*.mlp.gate_proj.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.up.weight", "layers.*.mlp.up_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.up.bias", "layers.*.mlp.up_proj.bias", LS_NAME_PLAIN},
    {0}};

static const ls_name_rule phi3_rules[] = {
    {"embedding.token", "embed_tokens.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.weight", "layers.*.input_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.attention.query.weight", "layers.*.self_attn.qkv_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.query.bias", "layers.*.self_attn.qkv_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.key.weight", "layers.*.self_attn.qkv_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.key.bias", "layers.*.self_attn.qkv_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.value.weight", "layers.*.self_attn.qkv_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.value.bias", "layers.*.self_attn.qkv_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.output.weight", "layers.*.self_attn.o_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.output.bias", "layers.*.self_attn.o_proj.bias", LS_NAME_PLAIN},
    {"layers.*.norm2.weight", "layers.*.post_attention_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.gate.weight", "layers.*.mlp.gate_up_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.gate.bias", "layers.*.mlp.gate_up_proj.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.up.weight", "layers.*.mlp.gate_up_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.up.bias", "layers.*.mlp.gate_up_proj.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.down.weight", "layers.*.mlp.down_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.down.bias", "layers.*.mlp.down_proj.bias", LS_NAME_PLAIN},
    {"head.norm.weight", "norm.weight", LS_NAME_PLAIN},
    {0}};

/* Norms on both sides: Gemma 2 and 3; behind alone: OLMo 2. */
static const ls_name_rule around_rules[] = {
    {"embedding.token", "embed_tokens.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.weight", "layers.*.input_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.attention.query.weight", "layers.*.self_attn.q_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.query.bias", "layers.*.self_attn.q_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.key.weight", "layers.*.self_attn.k_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.key.bias", "layers.*.self_attn.k_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.value.weight", "layers.*.self_attn.v_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.value.bias", "layers.*.self_attn.v_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.output.weight", "layers.*.self_attn.o_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.output.bias", "layers.*.self_attn.o_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.query_norm.weight", "layers.*.self_attn.q_norm.weight", LS_NAME_PLAIN},
    {"layers.*.attention.key_norm.weight", "layers.*.self_attn.k_norm.weight", LS_NAME_PLAIN},
    {"layers.*.behind1.weight", "layers.*.post_attention_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.norm2.weight", "layers.*.pre_feedforward_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.gate.weight", "layers.*.mlp.gate_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.gate.bias", "layers.*.mlp.gate_proj.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.up.weight", "layers.*.mlp.up_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.up.bias", "layers.*.mlp.up_proj.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.down.weight", "layers.*.mlp.down_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.down.bias", "layers.*.mlp.down_proj.bias", LS_NAME_PLAIN},
    {"layers.*.behind2.weight", "layers.*.post_feedforward_layernorm.weight", LS_NAME_PLAIN},
    {"head.norm.weight", "norm.weight", LS_NAME_PLAIN},
    {0}};

static const char *const llama_ignored[] = {"layers.*.self_attn.rotary_emb.inv_freq",
                                            "rotary_emb.inv_freq", NULL};

static const ls_name_rule phi_rules[] = {
    {"embedding.token", "embed_tokens.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.weight", "layers.*.input_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.bias", "layers.*.input_layernorm.bias", LS_NAME_PLAIN},
    {"layers.*.attention.query.weight", "layers.*.self_attn.q_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.query.bias", "layers.*.self_attn.q_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.key.weight", "layers.*.self_attn.k_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.key.bias", "layers.*.self_attn.k_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.value.weight", "layers.*.self_attn.v_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.value.bias", "layers.*.self_attn.v_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.output.weight", "layers.*.self_attn.dense.weight", LS_NAME_PLAIN},
    {"layers.*.attention.output.bias", "layers.*.self_attn.dense.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.up.weight", "layers.*.mlp.fc1.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.up.bias", "layers.*.mlp.fc1.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.down.weight", "layers.*.mlp.fc2.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.down.bias", "layers.*.mlp.fc2.bias", LS_NAME_PLAIN},
    {"head.norm.weight", "final_layernorm.weight", LS_NAME_PLAIN},
    {"head.norm.bias", "final_layernorm.bias", LS_NAME_PLAIN},
    {0}};

static const ls_name_rule gpt_neox_rules[] = {
    {"embedding.token", "embed_in.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.weight", "layers.*.input_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.bias", "layers.*.input_layernorm.bias", LS_NAME_PLAIN},
    {"layers.*.attention.query.weight", "layers.*.attention.query_key_value.weight",
     LS_NAME_BY_HEAD},
    {"layers.*.attention.query.bias", "layers.*.attention.query_key_value.bias", LS_NAME_BY_HEAD},
    {"layers.*.attention.key.weight", "layers.*.attention.query_key_value.weight", LS_NAME_BY_HEAD},
    {"layers.*.attention.key.bias", "layers.*.attention.query_key_value.bias", LS_NAME_BY_HEAD},
    {"layers.*.attention.value.weight", "layers.*.attention.query_key_value.weight",
     LS_NAME_BY_HEAD},
    {"layers.*.attention.value.bias", "layers.*.attention.query_key_value.bias", LS_NAME_BY_HEAD},
    {"layers.*.attention.output.weight", "layers.*.attention.dense.weight", LS_NAME_PLAIN},
    {"layers.*.attention.output.bias", "layers.*.attention.dense.bias", LS_NAME_PLAIN},
    {"layers.*.norm2.weight", "layers.*.post_attention_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.norm2.bias", "layers.*.post_attention_layernorm.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.up.weight", "layers.*.mlp.dense_h_to_4h.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.up.bias", "layers.*.mlp.dense_h_to_4h.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.down.weight", "layers.*.mlp.dense_4h_to_h.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.down.bias", "layers.*.mlp.dense_4h_to_h.bias", LS_NAME_PLAIN},
    {"head.norm.weight", "final_layer_norm.weight", LS_NAME_PLAIN},
    {"head.norm.bias", "final_layer_norm.bias", LS_NAME_PLAIN},
    {0}};

static const char *const gpt_neox_ignored[] = {
    "layers.*.attention.bias", "layers.*.attention.masked_bias",
    "layers.*.attention.rotary_emb.inv_freq", "rotary_emb.inv_freq", NULL};

static const ls_name_rule bloom_rules[] = {
    {"embedding.token", "word_embeddings.weight", LS_NAME_PLAIN},
    {"embedding.norm.weight", "word_embeddings_layernorm.weight", LS_NAME_PLAIN},
    {"embedding.norm.bias", "word_embeddings_layernorm.bias", LS_NAME_PLAIN},
    {"layers.*.norm1.weight", "h.*.input_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.bias", "h.*.input_layernorm.bias", LS_NAME_PLAIN},
    {"layers.*.attention.query.weight", "h.*.self_attention.query_key_value.weight",
     LS_NAME_BY_HEAD},
    {"layers.*.attention.query.bias", "h.*.self_attention.query_key_value.bias", LS_NAME_BY_HEAD},
    {"layers.*.attention.key.weight", "h.*.self_attention.query_key_value.weight", LS_NAME_BY_HEAD},
    {"layers.*.attention.key.bias", "h.*.self_attention.query_key_value.bias", LS_NAME_BY_HEAD},
    {"layers.*.attention.value.weight", "h.*.self_attention.query_key_value.weight",
     LS_NAME_BY_HEAD},
    {"layers.*.attention.value.bias", "h.*.self_attention.query_key_value.bias", LS_NAME_BY_HEAD},
    {"layers.*.attention.output.weight", "h.*.self_attention.dense.weight", LS_NAME_PLAIN},
    {"layers.*.attention.output.bias", "h.*.self_attention.dense.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.up.weight", "h.*.mlp.dense_h_to_4h.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.up.bias", "h.*.mlp.dense_h_to_4h.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.down.weight", "h.*.mlp.dense_4h_to_h.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.down.bias", "h.*.mlp.dense_4h_to_h.bias", LS_NAME_PLAIN},
    {"layers.*.norm2.weight", "h.*.post_attention_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.norm2.bias", "h.*.post_attention_layernorm.bias", LS_NAME_PLAIN},
    {"head.norm.weight", "ln_f.weight", LS_NAME_PLAIN},
    {"head.norm.bias", "ln_f.bias", LS_NAME_PLAIN},
    {0}};

static const ls_name_rule falcon_rules[] = {
    {"embedding.token", "word_embeddings.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.weight", "h.*.input_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.bias", "h.*.input_layernorm.bias", LS_NAME_PLAIN},
    {"layers.*.attention.query.weight", "h.*.self_attention.query_key_value.weight",
     LS_NAME_BY_HEAD},
    {"layers.*.attention.query.bias", "h.*.self_attention.query_key_value.bias", LS_NAME_BY_HEAD},
    {"layers.*.attention.key.weight", "h.*.self_attention.query_key_value.weight", LS_NAME_BY_HEAD},
    {"layers.*.attention.key.bias", "h.*.self_attention.query_key_value.bias", LS_NAME_BY_HEAD},
    {"layers.*.attention.value.weight", "h.*.self_attention.query_key_value.weight",
     LS_NAME_BY_HEAD},
    {"layers.*.attention.value.bias", "h.*.self_attention.query_key_value.bias", LS_NAME_BY_HEAD},
    {"layers.*.attention.output.weight", "h.*.self_attention.dense.weight", LS_NAME_PLAIN},
    {"layers.*.attention.output.bias", "h.*.self_attention.dense.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.up.weight", "h.*.mlp.dense_h_to_4h.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.up.bias", "h.*.mlp.dense_h_to_4h.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.down.weight", "h.*.mlp.dense_4h_to_h.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.down.bias", "h.*.mlp.dense_4h_to_h.bias", LS_NAME_PLAIN},
    {"layers.*.norm2.weight", "h.*.post_attention_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.norm2.bias", "h.*.post_attention_layernorm.bias", LS_NAME_PLAIN},
    {"head.norm.weight", "ln_f.weight", LS_NAME_PLAIN},
    {"head.norm.bias", "ln_f.bias", LS_NAME_PLAIN},
    {0}};

/* Falcon with two norms side by side. */
static const ls_name_rule falcon_pair_rules[] = {
    {"layers.*.norm1.weight", "h.*.ln_attn.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.bias", "h.*.ln_attn.bias", LS_NAME_PLAIN},
    {"layers.*.norm2.weight", "h.*.ln_mlp.weight", LS_NAME_PLAIN},
    {"layers.*.norm2.bias", "h.*.ln_mlp.bias", LS_NAME_PLAIN},
    {0}};

static const char *const block_ignored[] = {"h.*.self_attention.rotary_emb.inv_freq",
                                            "rotary_emb.inv_freq", NULL};

static const ls_name_rule starcoder2_rules[] = {
    {"embedding.token", "embed_tokens.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.weight", "layers.*.input_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.bias", "layers.*.input_layernorm.bias", LS_NAME_PLAIN},
    {"layers.*.attention.query.weight", "layers.*.self_attn.q_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.query.bias", "layers.*.self_attn.q_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.key.weight", "layers.*.self_attn.k_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.key.bias", "layers.*.self_attn.k_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.value.weight", "layers.*.self_attn.v_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.value.bias", "layers.*.self_attn.v_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.output.weight", "layers.*.self_attn.o_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.output.bias", "layers.*.self_attn.o_proj.bias", LS_NAME_PLAIN},
    {"layers.*.norm2.weight", "layers.*.post_attention_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.norm2.bias", "layers.*.post_attention_layernorm.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.up.weight", "layers.*.mlp.c_fc.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.up.bias", "layers.*.mlp.c_fc.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.down.weight", "layers.*.mlp.c_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.down.bias", "layers.*.mlp.c_proj.bias", LS_NAME_PLAIN},
    {"head.norm.weight", "norm.weight", LS_NAME_PLAIN},
    {"head.norm.bias", "norm.bias", LS_NAME_PLAIN},
    {0}};

/* Of the latent and the key that heads share, and of keys and values of it, files have one tensor
 * each. */
static const ls_name_rule deepseek_rules[] = {
    {"embedding.token", "embed_tokens.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.weight", "layers.*.input_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.attention.query_latent.weight", "layers.*.self_attn.q_a_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.query_latent.bias", "layers.*.self_attn.q_a_proj.bias", LS_NAME_PLAIN},
    {"layers.*.attention.query_latent_norm.weight", "layers.*.self_attn.q_a_layernorm.weight",
     LS_NAME_PLAIN},
    {"layers.*.attention.query.weight", "layers.*.self_attn.q_b_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.latent.weight", "layers.*.self_attn.kv_a_proj_with_mqa.weight",
     LS_NAME_PLAIN},
    {"layers.*.attention.latent.bias", "layers.*.self_attn.kv_a_proj_with_mqa.bias", LS_NAME_PLAIN},
    {"layers.*.attention.shared_key.weight", "layers.*.self_attn.kv_a_proj_with_mqa.weight",
     LS_NAME_PLAIN},
    {"layers.*.attention.shared_key.bias", "layers.*.self_attn.kv_a_proj_with_mqa.bias",
     LS_NAME_PLAIN},
    {"layers.*.attention.latent_norm.weight", "layers.*.self_attn.kv_a_layernorm.weight",
     LS_NAME_PLAIN},
    {"layers.*.attention.key.weight", "layers.*.self_attn.kv_b_proj.weight", LS_NAME_BY_HEAD},
    {"layers.*.attention.value.weight", "layers.*.self_attn.kv_b_proj.weight", LS_NAME_BY_HEAD},
    {"layers.*.attention.output.weight", "layers.*.self_attn.o_proj.weight", LS_NAME_PLAIN},
    {"layers.*.attention.output.bias", "layers.*.self_attn.o_proj.bias", LS_NAME_PLAIN},
    {"layers.*.norm2.weight", "layers.*.post_attention_layernorm.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.gate.weight", "layers.*.mlp.gate_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.gate.bias", "layers.*.mlp.gate_proj.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.up.weight", "layers.*.mlp.up_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.up.bias", "layers.*.mlp.up_proj.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.down.weight", "layers.*.mlp.down_proj.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.down.bias", "layers.*.mlp.down_proj.bias", LS_NAME_PLAIN},
    {"layers.*.router.weight", "layers.*.mlp.gate.weight", LS_NAME_PLAIN},
    {"layers.*.router_bias", "layers.*.mlp.gate.e_score_correction_bias", LS_NAME_PLAIN},
    {"layers.*.experts.gate.weight", "layers.*.mlp.experts.#.gate_proj.weight",
     LS_NAME_EXPERT_TRANSPOSED},
    {"layers.*.experts.up.weight", "layers.*.mlp.experts.#.up_proj.weight",
     LS_NAME_EXPERT_TRANSPOSED},
    {"layers.*.experts.down.weight", "layers.*.mlp.experts.#.down_proj.weight", LS_NAME_EXPERT},
    {"layers.*.shared.gate.weight", "layers.*.mlp.shared_experts.gate_proj.weight", LS_NAME_PLAIN},
    {"layers.*.shared.up.weight", "layers.*.mlp.shared_experts.up_proj.weight", LS_NAME_PLAIN},
    {"layers.*.shared.down.weight", "layers.*.mlp.shared_experts.down_proj.weight", LS_NAME_PLAIN},
    {"head.norm.weight", "norm.weight", LS_NAME_PLAIN},
    {0}};

static const ls_name_rule deepseek_query_rules[] = {
    {"layers.*.attention.query.weight", "layers.*.self_attn.q_proj.weight", LS_NAME_PLAIN}, {0}};

/* Llama's attention, with norms of queries and keys, and DeepSeek's experts. */
static const ls_name_rule glm4_moe_rules[] = {
    MIXTURE_RULES("mlp.gate", "mlp.experts.#.gate_proj", "mlp.experts.#.up_proj",
                  "mlp.experts.#.down_proj", "shared_experts"),
    {"layers.*.router_bias", "layers.*.mlp.gate.e_score_correction_bias", LS_NAME_PLAIN},
    {0}};

/* BERT and its head of masked language modelling. */
static const ls_name_rule bert_rules[] = {
    {"embedding.token", "embeddings.word_embeddings.weight", LS_NAME_PLAIN},
    {"embedding.position", "embeddings.position_embeddings.weight", LS_NAME_PLAIN},
    {"embedding.type", "embeddings.token_type_embeddings.weight", LS_NAME_PLAIN},
    {"layers.*.attention.query.weight", "encoder.layer.*.attention.self.query.weight",
     LS_NAME_PLAIN},
    {"layers.*.attention.query.bias", "encoder.layer.*.attention.self.query.bias", LS_NAME_PLAIN},
    {"layers.*.attention.key.weight", "encoder.layer.*.attention.self.key.weight", LS_NAME_PLAIN},
    {"layers.*.attention.key.bias", "encoder.layer.*.attention.self.key.bias", LS_NAME_PLAIN},
    {"layers.*.attention.value.weight", "encoder.layer.*.attention.self.value.weight",
     LS_NAME_PLAIN},
    {"layers.*.attention.value.bias", "encoder.layer.*.attention.self.value.bias", LS_NAME_PLAIN},
    {"layers.*.attention.output.weight", "encoder.layer.*.attention.output.dense.weight",
     LS_NAME_PLAIN},
    {"layers.*.attention.output.bias", "encoder.layer.*.attention.output.dense.bias",
     LS_NAME_PLAIN},
    {"layers.*.mlp.up.weight", "encoder.layer.*.intermediate.dense.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.up.bias", "encoder.layer.*.intermediate.dense.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.down.weight", "encoder.layer.*.output.dense.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.down.bias", "encoder.layer.*.output.dense.bias", LS_NAME_PLAIN},
    {"head.dense.weight", "/cls.predictions.transform.dense.weight", LS_NAME_PLAIN},
    {"head.dense.bias", "/cls.predictions.transform.dense.bias", LS_NAME_PLAIN},
    {"head.bias", "/cls.predictions.bias", LS_NAME_PLAIN},
    {"embedding.norm.weight", "embeddings.LayerNorm.weight", LS_NAME_PLAIN},
    {"embedding.norm.bias", "embeddings.LayerNorm.bias", LS_NAME_PLAIN},
    {"layers.*.norm1.weight", "encoder.layer.*.attention.output.LayerNorm.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.bias", "encoder.layer.*.attention.output.LayerNorm.bias", LS_NAME_PLAIN},
    {"layers.*.norm2.weight", "encoder.layer.*.output.LayerNorm.weight", LS_NAME_PLAIN},
    {"layers.*.norm2.bias", "encoder.layer.*.output.LayerNorm.bias", LS_NAME_PLAIN},
    {"head.norm.weight", "/cls.predictions.transform.LayerNorm.weight", LS_NAME_PLAIN},
    {"head.norm.bias", "/cls.predictions.transform.LayerNorm.bias", LS_NAME_PLAIN},
    {0}};

/* As its first checkpoints call the norms. */
static const ls_name_rule bert_norm_rules[] = {
    {"embedding.norm.weight", "embeddings.LayerNorm.gamma", LS_NAME_PLAIN},
    {"embedding.norm.bias", "embeddings.LayerNorm.beta", LS_NAME_PLAIN},
    {"layers.*.norm1.weight", "encoder.layer.*.attention.output.LayerNorm.gamma", LS_NAME_PLAIN},
    {"layers.*.norm1.bias", "encoder.layer.*.attention.output.LayerNorm.beta", LS_NAME_PLAIN},
    {"layers.*.norm2.weight", "encoder.layer.*.output.LayerNorm.gamma", LS_NAME_PLAIN},
    {"layers.*.norm2.bias", "encoder.layer.*.output.LayerNorm.beta", LS_NAME_PLAIN},
    {"head.norm.weight", "/cls.predictions.transform.LayerNorm.gamma", LS_NAME_PLAIN},
    {"head.norm.bias", "/cls.predictions.transform.LayerNorm.beta", LS_NAME_PLAIN},
    {0}};

/* The head's bias is there twice; the pooler and the head of next sentences are not built. */
static const char *const bert_ignored[] = {"cls.predictions.decoder.bias",
                                           "cls.seq_relationship.weight",
                                           "cls.seq_relationship.bias",
                                           "pooler.dense.weight",
                                           "pooler.dense.bias",
                                           "embeddings.position_ids",
                                           NULL};

static const ls_name_rule distilbert_rules[] = {
    {"embedding.token", "embeddings.word_embeddings.weight", LS_NAME_PLAIN},
    {"embedding.position", "embeddings.position_embeddings.weight", LS_NAME_PLAIN},
    {"embedding.norm.weight", "embeddings.LayerNorm.weight", LS_NAME_PLAIN},
    {"embedding.norm.bias", "embeddings.LayerNorm.bias", LS_NAME_PLAIN},
    {"layers.*.attention.query.weight", "transformer.layer.*.attention.q_lin.weight",
     LS_NAME_PLAIN},
    {"layers.*.attention.query.bias", "transformer.layer.*.attention.q_lin.bias", LS_NAME_PLAIN},
    {"layers.*.attention.key.weight", "transformer.layer.*.attention.k_lin.weight", LS_NAME_PLAIN},
    {"layers.*.attention.key.bias", "transformer.layer.*.attention.k_lin.bias", LS_NAME_PLAIN},
    {"layers.*.attention.value.weight", "transformer.layer.*.attention.v_lin.weight",
     LS_NAME_PLAIN},
    {"layers.*.attention.value.bias", "transformer.layer.*.attention.v_lin.bias", LS_NAME_PLAIN},
    {"layers.*.attention.output.weight", "transformer.layer.*.attention.out_lin.weight",
     LS_NAME_PLAIN},
    {"layers.*.attention.output.bias", "transformer.layer.*.attention.out_lin.bias", LS_NAME_PLAIN},
    {"layers.*.norm1.weight", "transformer.layer.*.sa_layer_norm.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.bias", "transformer.layer.*.sa_layer_norm.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.up.weight", "transformer.layer.*.ffn.lin1.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.up.bias", "transformer.layer.*.ffn.lin1.bias", LS_NAME_PLAIN},
    {"layers.*.mlp.down.weight", "transformer.layer.*.ffn.lin2.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.down.bias", "transformer.layer.*.ffn.lin2.bias", LS_NAME_PLAIN},
    {"layers.*.norm2.weight", "transformer.layer.*.output_layer_norm.weight", LS_NAME_PLAIN},
    {"layers.*.norm2.bias", "transformer.layer.*.output_layer_norm.bias", LS_NAME_PLAIN},
    {"head.dense.weight", "/vocab_transform.weight", LS_NAME_PLAIN},
    {"head.dense.bias", "/vocab_transform.bias", LS_NAME_PLAIN},
    {"head.norm.weight", "/vocab_layer_norm.weight", LS_NAME_PLAIN},
    {"head.norm.bias", "/vocab_layer_norm.bias", LS_NAME_PLAIN},
    {0}};

static const ls_name_rule modernbert_rules[] = {
    {"embedding.token", "embeddings.tok_embeddings.weight", LS_NAME_PLAIN},
    {"embedding.norm.weight", "embeddings.norm.weight", LS_NAME_PLAIN},
    {"layers.*.norm1.weight", "layers.*.attn_norm.weight", LS_NAME_PLAIN},
    {"layers.*.attention.query.weight", "layers.*.attn.Wqkv.weight", LS_NAME_PLAIN},
    {"layers.*.attention.key.weight", "layers.*.attn.Wqkv.weight", LS_NAME_PLAIN},
    {"layers.*.attention.value.weight", "layers.*.attn.Wqkv.weight", LS_NAME_PLAIN},
    {"layers.*.attention.output.weight", "layers.*.attn.Wo.weight", LS_NAME_PLAIN},
    {"layers.*.norm2.weight", "layers.*.mlp_norm.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.gate.weight", "layers.*.mlp.Wi.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.up.weight", "layers.*.mlp.Wi.weight", LS_NAME_PLAIN},
    {"layers.*.mlp.down.weight", "layers.*.mlp.Wo.weight", LS_NAME_PLAIN},
    {"head.final_norm.weight", "final_norm.weight", LS_NAME_PLAIN},
    {"head.dense.weight", "/head.dense.weight", LS_NAME_PLAIN},
    {"head.norm.weight", "/head.norm.weight", LS_NAME_PLAIN},
    {0}};

/* What RoBERTa calls otherwise than BERT does. */
static const ls_name_rule roberta_rules[] = {
    {"head.dense.weight", "/lm_head.dense.weight", LS_NAME_PLAIN},
    {"head.dense.bias", "/lm_head.dense.bias", LS_NAME_PLAIN},
    {"head.norm.weight", "/lm_head.layer_norm.weight", LS_NAME_PLAIN},
    {"head.norm.bias", "/lm_head.layer_norm.bias", LS_NAME_PLAIN},
    {"head.bias", "/lm_head.bias", LS_NAME_PLAIN},
    {0}};

static const char *const no_names[] = {NULL};

static const char *const roberta_ignored[] = {"lm_head.decoder.bias", "pooler.dense.weight",
                                              "pooler.dense.bias", "embeddings.position_ids", NULL};

static const ls_name_rule score_rules[] = {{"head.weight", "/score.weight", LS_NAME_PLAIN}, {0}};
static const ls_name_rule bert_class_rules[] = {
    {"head.dense.weight", "pooler.dense.weight", LS_NAME_PLAIN},
    {"head.dense.bias", "pooler.dense.bias", LS_NAME_PLAIN},
    {"head.weight", "/classifier.weight", LS_NAME_PLAIN},
    {"head.bias", "/classifier.bias", LS_NAME_PLAIN},
    {0}};
static const ls_name_rule roberta_class_rules[] = {
    {"head.dense.weight", "/classifier.dense.weight", LS_NAME_PLAIN},
    {"head.dense.bias", "/classifier.dense.bias", LS_NAME_PLAIN},
    {"head.weight", "/classifier.out_proj.weight", LS_NAME_PLAIN},
    {"head.bias", "/classifier.out_proj.bias", LS_NAME_PLAIN},
    {0}};
static const ls_name_rule distilbert_class_rules[] = {
    {"head.dense.weight", "/pre_classifier.weight", LS_NAME_PLAIN},
    {"head.dense.bias", "/pre_classifier.bias", LS_NAME_PLAIN},
    {"head.weight", "/classifier.weight", LS_NAME_PLAIN},
    {"head.bias", "/classifier.bias", LS_NAME_PLAIN},
    {0}};
/* ModernBERT's, and over classes of tokens every encoder's and some decoders'. */
static const ls_name_rule classifier_rules[] = {
    {"head.weight", "/classifier.weight", LS_NAME_PLAIN},
    {"head.bias", "/classifier.bias", LS_NAME_PLAIN},
    {0}};

/* Of tokens, of the other decoders. */
static const ls_name_rule score_each_rules[] = {{"head.weight", "/score.weight", LS_NAME_PLAIN},
                                                {"head.bias", "/score.bias", LS_NAME_PLAIN},
                                                {0}};

static const char *const bert_others[] = {"cls", NULL};
static const char *const roberta_others[] = {"lm_head", NULL};
static const char *const distilbert_others[] = {"vocab_transform", "vocab_layer_norm",
                                                "vocab_projector", NULL};
static const char *const decoder_others[] = {"decoder", NULL};

static const ls_class_head class_head_score = {score_rules, NULL, "score", NULL};
static const ls_class_head class_head_older = {score_rules, NULL, "score", NULL};
static const ls_class_head bert_classes = {bert_class_rules, bert_others, "classifier", "pooler"};
static const ls_class_head roberta_classes = {roberta_class_rules, roberta_others, "classifier",
                                              NULL};
static const ls_class_head distilbert_classes = {distilbert_class_rules, distilbert_others,
                                                 "classifier", "pre_classifier"};
static const ls_class_head modernbert_classes = {classifier_rules, decoder_others, "classifier",
                                                 "head"};

static const ls_family_tensors families[] = {
    {"bert", "bert.", "cls.predictions.decoder", bert_rules, bert_norm_rules, bert_ignored, NULL,
     &bert_classes},
    {"roberta", "roberta.", "lm_head.decoder", bert_rules, NULL, roberta_ignored, roberta_rules,
     &roberta_classes},
    {"distilbert", "distilbert.", "vocab_projector", distilbert_rules, NULL, no_names, NULL,
     &distilbert_classes},
    {"modernbert", "model.", "decoder", modernbert_rules, NULL, no_names, NULL,
     &modernbert_classes},
    {"gpt2", "transformer.", "lm_head", gpt2_rules, NULL, gpt2_ignored, NULL, &class_head_older},
    {"llama", "model.", "lm_head", llama_rules, fused_rules, llama_ignored, NULL, NULL},
    {"mistral", "model.", "lm_head", llama_rules, fused_rules, llama_ignored, NULL, NULL},
    {"mixtral", "model.", "lm_head", mixtral_rules, NULL, llama_ignored, NULL, NULL},
    {"qwen3_moe", "model.", "lm_head", qwen3_moe_rules, NULL, llama_ignored, NULL, NULL},
    {"glm4_moe", "model.", "lm_head", glm4_moe_rules, NULL, llama_ignored, NULL, NULL},
    {"gpt_oss", "model.", "lm_head", gpt_oss_rules, gpt_oss_mxfp4_rules, llama_ignored, NULL, NULL},
    {"qwen2_moe", "model.", "lm_head", qwen3_moe_rules, NULL, llama_ignored, NULL, NULL},
    {"olmoe", "model.", "lm_head", qwen3_moe_rules, NULL, llama_ignored, NULL, NULL},
    {"qwen2", "model.", "lm_head", llama_rules, fused_rules, llama_ignored, NULL, NULL},
    {"qwen3", "model.", "lm_head", llama_rules, fused_rules, llama_ignored, NULL, NULL},
    {"smollm3", "model.", "lm_head", llama_rules, fused_rules, llama_ignored, NULL, NULL},
    {"gemma", "model.", "lm_head", llama_rules, fused_rules, llama_ignored, NULL, NULL},
    {"gemma2", "model.", "lm_head", around_rules, fused_rules, llama_ignored, NULL, NULL},
    {"gemma3_text", "model.", "lm_head", around_rules, fused_rules, llama_ignored, NULL, NULL},
    {"olmo2", "model.", "lm_head", around_rules, fused_rules, llama_ignored, NULL, NULL},
    {"phi3", "model.", "lm_head", phi3_rules, split_rules, llama_ignored, NULL, NULL},
    {"phi", "model.", "lm_head", phi_rules, NULL, llama_ignored, NULL, NULL},
    {"starcoder2", "model.", "lm_head", starcoder2_rules, fused_rules, llama_ignored, NULL, NULL},
    {"gpt_neox", "gpt_neox.", "embed_out", gpt_neox_rules, NULL, gpt_neox_ignored, NULL,
     &class_head_older},
    {"bloom", "transformer.", "lm_head", bloom_rules, NULL, block_ignored, NULL, &class_head_older},
    {"deepseek_v2", "model.", "lm_head", deepseek_rules, NULL, llama_ignored, deepseek_query_rules,
     NULL},
    {"deepseek_v3", "model.", "lm_head", deepseek_rules, NULL, llama_ignored, deepseek_query_rules,
     NULL},
    {"falcon", "transformer.", "lm_head", falcon_rules, NULL, block_ignored, falcon_pair_rules,
     &class_head_older},
};

const ls_family_tensors *ls_family_tensors_find(const char *family) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (strcmp(families[i].family, family) == 0) return &families[i];
  return NULL;
}

ls_class_head ls_class_head_of(const ls_model_config *config) {
  const ls_family_tensors *family = ls_family_tensors_find(config->family);
  ls_class_head head = family && family->classes ? *family->classes : class_head_score;
  if (config->pooling != LS_POOLING_EACH) return head;
  const bool newer = !family || !family->classes; /* transformers' classes that all share */
  head.rules = newer ? score_each_rules : classifier_rules;
  head.classes = newer ? "score" : "classifier";
  if (head.before && strcmp(head.before, "head") != 0) head.before = NULL; /* of texts alone */
  return head;
}
