/* What differs between families of models: one row each. Internal to this room.
 *
 * The keys of config.json are a table, so that reading, writing and the defaults agree.
 * Thread-safe: rows are constant. */
#ifndef LS_MODEL_FAMILY_H
#define LS_MODEL_FAMILY_H

#include "model/model.h"
#include "text/json.h"

typedef enum ls_key_kind { LS_KEY_COUNT = 0, LS_KEY_NUMBER, LS_KEY_BOOL } ls_key_kind;

/* A key whose value is one field of ls_model_config. */
typedef struct ls_config_key {
  const char *key;
  const char *alias; /* another name that Hugging Face takes for it; NULL: none */
  ls_key_kind kind;
  size_t offset;   /* of the field: int64_t, double or bool */
  double fallback; /* Hugging Face's default */
} ls_config_key;

/* A key that changes the mathematics in a way that is not built: any value but those is refused. */
typedef struct ls_config_guard {
  const char *key;
  const char
      *allowed; /* JSON of the one value that changes nothing; a missing or null key is fine */
} ls_config_guard;

typedef enum ls_norm_kind {
  LS_NORM_RMS = 0,
  LS_NORM_RMS_OFFSET, /* its weights are what they differ from 1 by */
  LS_NORM_LAYER,
  LS_NORM_LAYER_UNBIASED,
} ls_norm_kind;

/* Where a block's norms stand: before each branch, behind it, or both. */
typedef enum ls_norm_place { LS_NORM_BEFORE = 0, LS_NORM_BEHIND, LS_NORM_AROUND } ls_norm_place;

/* Of queries and keys: each head's columns by themselves, or all heads' together. */
typedef enum ls_query_norm {
  LS_QUERY_NORM_NONE = 0,
  LS_QUERY_NORM_HEAD,
  LS_QUERY_NORM_ALL
} ls_query_norm;

/* What the families built from decoder.c's block differ in; what a file decides is in
 * ls_model_config. Zero is Llama. */
typedef struct ls_decoder {
  ls_norm_kind norm;
  ls_norm_place norm_place;
  ls_query_norm query_norm;
  bool plain_mlp;       /* activation(up), no gate */
  bool output_unbiased; /* attention_bias means queries, keys and values alone */
  bool head_bias;       /* the logits have a bias */
  bool embedding_norm;  /* the stream begins with a norm */
  bool first_unnormed;  /* the first layer's attention takes the embedding, which has its norm */
  bool two_way;         /* an encoder: tokens see those behind them too */
  bool paired_experts;  /* their gates and ups stand in turns; they and their router have biases */
  bool sinks;           /* each head has a logit that joins its scores and has no value */
  bool alibi;           /* scores fall with distance; nothing is turned */
} ls_decoder;

/* A head over classes: what stands before the product that makes logits. Zero is that of decoders,
 * the product alone, of a text's last token; of tokens with a bias, behind dropout. Before classes
 * of tokens there is no pooler: of an encoder's own only what stands before its head of tokens too
 * (LS_BEFORE_GELU_NORM). */
typedef struct ls_class_form {
  ls_pooling pooling;
  enum { LS_BEFORE_NOTHING = 0, LS_BEFORE_TANH, LS_BEFORE_RELU, LS_BEFORE_GELU_NORM } before;
  bool bias;        /* of the product that makes logits */
  bool drops_twice; /* before both products */
  int pair_ends;    /* end tokens between two texts, and nothing more; 0: each is as it is alone */
  const char *dropout_key; /* in config.json; NULL: nothing is dropped */
  double dropout; /* where it has none, of decoders' tokens 0.1; below 0: as of hidden states */
  bool dropout_of_texts; /* of tokens' classes the rate is that of hidden states */
  bool of_texts_alone;   /* transformers has no head of tokens for it */
} ls_class_form;

typedef struct ls_family ls_family;

typedef struct ls_builder {
  ls_graph *graph;
  const ls_model_config *config;
  const ls_build_options *options;
  const ls_family *family;
  ls_tensor_id rope;             /* table of this step's positions; only where the family has one */
  ls_tensor_id local_rope;       /* the one of layers with a window, where they have their own */
  ls_tensor_id table;            /* token embedding: the head of a tied model */
  ls_dropout dropout;            /* none but in training */
  ls_tensor_id loads;            /* of the layers built, where they are balanced together */
  LS_LIST(ls_tensor_id) routers; /* logits of these layers */
  bool teacher;                  /* it is one: ls_model_teacher */
  ls_tensor_id low;              /* what the last adapter made that is one's own or shared */
  int module;                    /* of a head over classes that is being built; else 0 */
  const char *part;              /* name of the segment being built, as parameters have it */
  int layer;
} ls_builder;

struct ls_family {
  const char *name, *architecture;
  const ls_config_key *keys;       /* up to one whose key is NULL */
  const ls_config_guard *guards;   /* likewise, or NULL; those of config.c hold for all families */
  const char *const *others;       /* keys that `read` looks at, up to NULL */
  const char *const *unused;       /* that say nothing about the mathematics, likewise; or NULL */
  const char *const *dropout_keys; /* likewise; NULL: attention_dropout */
  double dropout_fallback;         /* Hugging Face's default for each of them */
  int64_t begin_fallback, end_fallback;
  /* What the tables cannot say: activation, rope, scales, and checks between fields. */
  ls_status (*read)(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                    ls_error *error);
  ls_tensor_id (*embed)(ls_builder *builder); /* NULL: this and the next two are decoder.c's */
  ls_tensor_id (*block)(ls_builder *builder, ls_tensor_id x);
  ls_tensor_id (*final_norm)(ls_builder *builder, ls_tensor_id x);
  ls_decoder decoder;
  ls_class_form classes;
};

extern const ls_family ls_family_bert, ls_family_distilbert, ls_family_modernbert,
    ls_family_roberta, ls_family_bloom, ls_family_deepseek_v2, ls_family_deepseek_v3,
    ls_family_falcon, ls_family_gemma, ls_family_gemma2, ls_family_gemma3, ls_family_glm4_moe,
    ls_family_gpt2, ls_family_gpt_neox, ls_family_gpt_oss, ls_family_llama, ls_family_mistral,
    ls_family_mixtral, ls_family_olmo2, ls_family_olmoe, ls_family_qwen2_moe, ls_family_phi,
    ls_family_phi3, ls_family_qwen2, ls_family_qwen3, ls_family_qwen3_moe, ls_family_smollm3,
    ls_family_starcoder2;

/* The row called `name`; NULL where there is none. */
const ls_family *ls_family_find(const char *name);

/* "gpt2, llama". */
const char *ls_family_names(ls_arena *arena);

/* A matrix and a vector among the parameters, called PART.NAME. */
ls_tensor_id ls_builder_weight(ls_builder *builder, const char *name, int64_t out, int64_t in,
                               ls_tp_sharding sharding, double deviation);
ls_tensor_id ls_builder_vector(ls_builder *builder, const char *name, int64_t count,
                               ls_tp_sharding sharding, ls_init init);

/* A row for each of a layer's experts. */
ls_tensor_id ls_builder_expert_rows(ls_builder *builder, const char *name, int64_t columns,
                                    ls_tp_sharding sharding);

/* The weight of a product of a block, which may be stored as blocks of its rows. */
ls_tensor_id ls_builder_product_weight(ls_builder *builder, const char *name, int64_t out,
                                       int64_t in, ls_tp_sharding sharding, double deviation);

/* A vector likewise that no gradient reaches, of zeros at first and in the type of sums. */
ls_tensor_id ls_builder_constant(ls_builder *builder, const char *name, int64_t count);

/* x times the parameter PART.NAME.weight, plus PART.NAME.bias where `bias`. The bias of a product
 * whose weight is cut on its input is whole. */
ls_tensor_id ls_builder_project(ls_builder *builder, ls_tensor_id x, const char *name, int64_t out,
                                ls_tp_sharding sharding, bool bias, double deviation);

/* Attention of q, k and v as the layer being built has it, through caches where the mode is
 * decoding. */
ls_tensor_id ls_builder_attend(ls_builder *builder, ls_tensor_id q, ls_tensor_id k, ls_tensor_id v);

/* Attention whose queries, keys and values are made of narrow latents (latent.c). */
ls_tensor_id ls_builder_latent_attention(ls_builder *builder, ls_tensor_id x);

/* Whether the layer being built has the bit of layer_kinds. */
bool ls_builder_layer_has(const ls_builder *builder, int kind);

/* The stream as it begins, and what a branch adds to it: marked as lying there, and dropped as the
 * model says. */
ls_tensor_id ls_builder_embedded(ls_builder *builder, ls_tensor_id x);
ls_tensor_id ls_builder_branch(ls_builder *builder, ls_tensor_id y);

/* The norm of the family over the stream, with parameters called PART.NAME. */
ls_tensor_id ls_builder_norm(ls_builder *builder, const char *name, ls_tensor_id x);

/* The block of all families but GPT-2. */
ls_tensor_id ls_decoder_embed(ls_builder *builder);
ls_tensor_id ls_decoder_block(ls_builder *builder, ls_tensor_id x);
ls_tensor_id ls_decoder_final_norm(ls_builder *builder, ls_tensor_id x);
ls_tensor_id ls_decoder_mlp(ls_builder *builder, ls_tensor_id x);
ls_tensor_id ls_decoder_experts(ls_builder *builder, ls_tensor_id x);

/* What a head over classes makes logits of, of the normed stream, and the logits (class_head.c). */
ls_tensor_id ls_builder_pooled(ls_builder *builder, ls_tensor_id x);
ls_tensor_id ls_builder_classes(ls_builder *builder, ls_tensor_id x);

/* The loss that balances the experts of all layers together, behind the last. */
void ls_builder_balance(ls_builder *builder);

/* Parts of `read` that families share; each fails as the getters of text/json.h do. */

/* num_key_value_heads (`kv_fallback` where it is missing; 0: as many as heads) and head_dim
 * (`head_fallback`; 0: width / heads); softmax_scale follows. */
LS_CHECKED ls_status ls_read_heads(const ls_json_object *json, int64_t kv_fallback,
                                   int64_t head_fallback, ls_model_config *config, ls_error *error);

/* Sets config->blocks by "quantization_config", whose absence says nothing. LS_INPUT: another kind
 * than is built. */
LS_CHECKED ls_status ls_config_read_blocks(ls_arena *arena, const ls_json_object *json,
                                           ls_model_config *config, ls_error *error);

/* Sets config->classes and their names where "architectures" says ...ForSequenceClassification.
 * LS_INPUT: labels that are no list, or another problem than one of single labels. */
LS_CHECKED ls_status ls_config_read_classes(ls_arena *arena, const ls_json_object *json,
                                            ls_model_config *config, ls_error *error);

/* Sets config->vectors where config.json says that it makes vectors of texts (set_vectors). */
LS_CHECKED ls_status ls_config_read_vectors(const ls_json_object *json, ls_model_config *config,
                                            ls_error *error);

/* A config.json's text with a "quantization_config" where the precision is that of blocks, and
 * without one where not. One that is there stays, unless it is told of `others`. */
const char *ls_config_with_blocks(ls_arena *arena, const char *text, ls_precision precision,
                                  const char *const *others, int count);

/* With as few digits as bring every number back; the caller frees it. NULL: no memory. */
char *ls_config_dump(const json_t *json);

/* The text of a config.json with these keys, which are valid and have a known model_type, and with
 * no special tokens and no dropout. */
const char *ls_config_complete(ls_arena *arena, const char *keys);

/* The activation named by `key`, one of those whose bit 1 << ls_activation is in `allowed`. */
LS_CHECKED ls_status ls_read_activation(const ls_json_object *json, const char *key,
                                        const char *fallback, unsigned allowed,
                                        ls_model_config *config, ls_error *error);

/* The keys that ls_read_rope reads. */
#define LS_ROPE_KEYS                                                        \
  "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", \
      "original_max_position_embeddings"

/* rope_theta, whose fallback is `theta`; rope_scaling or rope_parameters; partial_rotary_factor,
 * whose fallback is `partial`, negative where the family turns whole heads only. Needs positions
 * and head_dim. */
LS_CHECKED ls_status ls_read_rope(ls_arena *arena, const ls_json_object *json, double theta,
                                  double partial, ls_model_config *config, ls_error *error);

/* The object with the rotary numbers, under either of its names; its json is NULL where there is
 * none. */
LS_CHECKED ls_status ls_find_rope(ls_arena *arena, const ls_json_object *json, ls_json_object *rope,
                                  ls_error *error);

/* ls_read_rope with that object found. */
LS_CHECKED ls_status ls_read_rope_object(ls_arena *arena, const ls_json_object *file,
                                         const ls_json_object *object, double theta, double partial,
                                         ls_model_config *config, ls_error *error);

/* transformers 5 has an object for each type of layer, `both`: full_attention, whose base's
 * fallback is `theta`, and sliding_attention, which sets rope_local_theta. */
LS_CHECKED ls_status ls_read_two_ropes(ls_arena *arena, const ls_json_object *json,
                                       const ls_json_object *both, double theta,
                                       ls_model_config *config, ls_error *error);

/* layer_types, which must be what `expected` says where both are given: window or not, by layer.
 * `expected` NULL: layer_types alone says it. */
LS_CHECKED ls_status ls_read_layer_types(ls_arena *arena, const ls_json_object *json,
                                         const uint8_t *expected, ls_model_config *config,
                                         ls_error *error);

/* sliding_window where use_sliding_window is on (or that key is not the family's), in layers from
 * max_window_layers on, or as layer_types says: Qwen 2 and 3. */
LS_CHECKED ls_status ls_read_upper_window(ls_arena *arena, const ls_json_object *json,
                                          ls_model_config *config, ls_error *error);

/* What Gemma 2 and 3 share: activation, heads, window, query_pre_attn_scalar, the embedding's
 * scale, and caps, whose fallbacks are given. */
LS_CHECKED ls_status ls_read_gemma(const ls_json_object *json, double softcap, double logit_cap,
                                   ls_model_config *config, ls_error *error);

/* The window in all layers but every `every`-th, or as layer_types says. */
LS_CHECKED ls_status ls_read_window_pattern(ls_arena *arena, const ls_json_object *json,
                                            int64_t every, ls_model_config *config,
                                            ls_error *error);

/* The keys that ls_read_experts reads. */
#define LS_EXPERT_KEYS "output_router_logits", "router_aux_loss_coef"

/* Checks the counts of experts, which are read; with output_router_logits the loss that balances
 * them. */
LS_CHECKED ls_status ls_read_experts(const ls_json_object *json, ls_model_config *config,
                                     double fallback, ls_error *error);

/* Marks the layers that have an MLP in place of experts: mlp_only_layers, and those whose number,
 * from 1, is no multiple of decoder_sparse_step. */
LS_CHECKED ls_status ls_read_sparse_layers(ls_arena *arena, const ls_json_object *json,
                                           ls_model_config *config, ls_error *error);

/* What a family's files mean where they say nothing: Hugging Face's defaults. */
typedef struct ls_expert_fallbacks {
  int64_t experts, width, shared;
  int64_t dense; /* first layers, which have none */
  const char *scores;
} ls_expert_fallbacks;

/* DeepSeek's keys of experts: n_routed_experts (null: none), num_experts_per_tok,
 * moe_intermediate_size, n_shared_experts, first_k_dense_replace, moe_layer_freq, scoring_func,
 * topk_method, n_group, topk_group, norm_topk_prob, routed_scaling_factor; and how many layers
 * for further tokens its files have, which transformers leaves out, too. */
#define LS_NEXT_LAYERS_KEY "num_nextn_predict_layers"
#define LS_DEEPSEEK_EXPERT_KEYS                                                            \
  "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts",  \
      "first_k_dense_replace", "moe_layer_freq", "scoring_func", "topk_method", "n_group", \
      "topk_group", "norm_topk_prob", "routed_scaling_factor"
LS_CHECKED ls_status ls_read_deepseek_experts(ls_arena *arena, const ls_json_object *json,
                                              const ls_expert_fallbacks *fallbacks,
                                              ls_model_config *config, ls_error *error);

/* The family's dropout_keys. */
const char *const *ls_family_dropout_keys(const ls_family *family);

#endif
