/* What a model is: its shape, read from a Hugging Face config.json or taken from a preset, and the
 * graph it becomes. Knows nothing of devices, files of weights or how the work is laid out.
 *
 *   ls_model_config config;
 *   LS_TRY(ls_model_find(arena, "llama-3m", &config, error));
 *   ls_graph *graph;
 *   LS_TRY(ls_model_build(arena, &config,
 *                         &(ls_build_options){.tokens = 4 * 256, .sequence = 256}, &graph, error));
 *   ls_graph_backward(graph);
 *
 * A key of config.json that changes the mathematics is applied or refused by name, never ignored.
 * To add a family: one file like qwen3.c with its row, that row in the table of family.c, and the
 * names of its tensors in store/names_table.c. Thread-safe: no state. */
#ifndef LS_MODEL_MODEL_H
#define LS_MODEL_MODEL_H

#include "base/arena.h"
#include "graph/graph.h"
#include "lockstep/dtype.h"

enum { LS_MAX_END_IDS = 8, LS_MOST_CLASSES = 1 << 16 };

/* HF's rope_type: "default" and the others by name. */
typedef enum ls_rope_scaling {
  LS_ROPE_PLAIN = 0,
  LS_ROPE_LINEAR,
  LS_ROPE_DYNAMIC,
  LS_ROPE_YARN,
  LS_ROPE_LONGROPE,
  LS_ROPE_LLAMA3,
} ls_rope_scaling;

/* What a layer does otherwise than the family's plain one: bits of ls_model_config.layer_kinds. */
enum { LS_LAYER_WINDOW = 1, LS_LAYER_NO_ROPE = 2, LS_LAYER_DENSE = 4 };

/* Every number of a model that its mathematics depends on: type, name, what a message calls it. The
 * struct has them as fields, and ls_model_config_compare goes through them. */
#define LS_MODEL_NUMBERS(X)                                                                        \
  X(int64_t, vocabulary, "vocab_size")                                                             \
  X(int64_t, width, "hidden_size")                                                                 \
  X(int64_t, layers, "layers")                                                                     \
  X(int64_t, heads, "heads")                                                                       \
  X(int64_t, kv_heads, "key/value heads")                                                          \
  X(int64_t, head_dim, "head_dim")                                                                 \
  /* keys and values are made of so many columns (MLA); 0: of the stream itself */                 \
  X(int64_t, latent, "kv_lora_rank")                                                               \
  X(int64_t, query_latent, "q_lora_rank")   /* likewise queries */                                 \
  X(int64_t, plain_dim, "qk_nope_head_dim") /* MLA: columns of a head that do not turn */          \
  X(int64_t, value_dim, "v_head_dim")       /* MLA: of a value; head_dim has room for both */      \
  X(int64_t, mlp_width, "intermediate_size")                                                       \
  X(int64_t, positions, "positions")                                                               \
  /* of a mixture, each with an MLP of mlp_width; 0: there is one MLP, for all tokens */           \
  X(int64_t, experts, "experts")                                                                   \
  X(int64_t, experts_per_token, "experts of a token")                                              \
  X(bool, renormalise, "norm_topk_prob")            /* weights of a token's experts sum to 1 */    \
  X(int64_t, expert_width, "moe_intermediate_size") /* 0: mlp_width */                             \
  /* of an MLP beside them that all tokens share; 0: none */                                       \
  X(int64_t, shared_width, "width of the shared experts")                                          \
  X(bool, shared_gate, "gate of the shared expert")                                                \
  X(double, gate_limit, "swiglu_limit") /* of experts whose gates and ups stand in turns */        \
  X(double, gate_slope, "swiglu_alpha") /* likewise: of the sigmoid */                             \
  X(bool, sigmoid_router, "scoring_func")                                                          \
  X(bool, router_bias, "e_score_correction_bias")                                                  \
  X(int64_t, expert_groups, "n_group") /* 0: none */                                               \
  X(int64_t, top_groups, "topk_group")                                                             \
  X(double, route_scale, "routed_scaling_factor") /* 0: 1 */                                       \
  /* of the table of positions rows before that of position 0 (RoBERTa) */                         \
  X(int64_t, skipped_positions, "pad_token_id + 1")                                                \
  X(int64_t, types, "type_vocab_size") /* kinds of sentences that tokens are of; 0: none */        \
  X(double, epsilon, "epsilon of the norms")                                                       \
  X(double, softmax_scale, "scale of the attention scores")                                        \
  X(ls_activation, activation, "activation")                                                       \
  X(bool, tied, "tie_word_embeddings") /* the head is the token embedding */                       \
  X(bool, attention_bias, "bias of the attention")                                                 \
  X(bool, unnormed_queries, "use_qk_norm") /* and keys, of a family that may norm them */          \
  X(bool, mlp_bias, "bias of the MLP")                                                             \
  X(bool, parallel, "attention beside the MLP") /* both read the same stream */                    \
  X(bool, shared_norm, "one norm for both")     /* parallel: attention's and the MLP's */          \
  /* keys that a query sees, in layers that have LS_LAYER_WINDOW; 0: all */                        \
  X(int64_t, window, "window")                                                                     \
  X(double, softcap, "soft cap of the attention scores")      /* 0: none */                        \
  X(double, logit_cap, "soft cap of the logits")              /* 0: none */                        \
  X(double, embedding_scale, "scale of the embedding")        /* 0: none */                        \
  X(int64_t, rotary_dim, "columns of a head that are turned") /* 0: all */                         \
  X(bool, rope_neighbours, "rope_interleave")                 /* pairs are columns side by side */ \
  X(double, rope_theta, "rope_theta")                                                              \
  /* of layers with the window, which have no scaling then; 0: the same */                         \
  X(double, rope_local_theta, "rope_theta in layers with a window")                                \
  X(ls_rope_scaling, rope_scaling, "kind of rope_scaling")                                         \
  X(double, rope_factor, "factor of rope_scaling")                                                 \
  X(double, rope_low_freq_factor, "low_freq_factor of rope_scaling")                               \
  X(double, rope_high_freq_factor, "high_freq_factor of rope_scaling")                             \
  X(double, rope_original_positions, "original positions of rope_scaling")                         \
  X(double, rope_beta_fast, "beta_fast of rope_scaling") /* yarn */                                \
  X(double, rope_beta_slow, "beta_slow of rope_scaling") /* yarn */                                \
  /* yarn: its two limits are not rounded to pairs */                                              \
  X(bool, rope_exact_range, "truncate of rope_scaling")                                            \
  /* yarn, longrope: of cosines and sines */                                                       \
  X(double, rope_attention_factor, "attention_factor of rope_scaling")                             \
  X(int64_t, lora_rank, "rank of the adapters") /* 0: none, and all weights are trained */         \
  X(double, lora_alpha, "alpha of the adapters")                                                   \
  X(bool, lora_rslora, "rslora of the adapters")     /* divided by the root of the rank */         \
  X(int64_t, lora_targets, "products with adapters") /* bits by ls_model_linears */                \
  /* Likewise those that share the first adapter of the one before: one tensor of files */         \
  X(int64_t, lora_fused, "products that share adapters")                                           \
  /* modules of a head over classes that are trained and kept with adapters, bits: ls_head_module  \
   */                                                                                              \
  X(int64_t, lora_modules, "modules_to_save of the adapters")                                      \
  X(ls_precision, blocks, "quantize") /* of weights of a block's products; LS_COMPUTE: not */      \
  /* that the head tells apart, of a text by its last token; 0: the head is of tokens */           \
  X(int64_t, classes, "classes")                                                                   \
  X(ls_pooling, pooling, "classifier_pooling") /* with classes: what of a text they are told by */ \
  X(bool, several, "problem_type")             /* a text may have any of the classes */            \
  X(bool, vectors, "head") /* it has none: what it makes of a text is a vector */

/* The products of a block that adapters can be beside: by the name that their weights have. */
enum { LS_MODEL_LINEARS = 7 };
extern const char *const ls_model_linears[LS_MODEL_LINEARS];

/* What of a text a head over classes reads. */
typedef enum ls_pooling {
  LS_POOLING_LAST = 0, /* its last token */
  LS_POOLING_FIRST,    /* its first, [CLS] say */
  LS_POOLING_MEAN,     /* the mean of all */
  LS_POOLING_EACH,     /* each of its tokens, which have classes of their own */
  LS_POOLING_COUNT
} ls_pooling;

/* What a head over classes is of, besides norms that any head has. */
typedef enum ls_head_module {
  LS_HEAD_CLASSES = 1, /* the product that makes logits: "score", "classifier" */
  LS_HEAD_BEFORE = 2,  /* what stands before it: BERT's pooler, say */
  LS_HEAD_ALL = LS_HEAD_CLASSES | LS_HEAD_BEFORE,
} ls_head_module;

/* The part of elements that training drops, from 0 to below 1: of the embedding, of what each
 * attention and each MLP adds to the stream, of attention's probabilities, and of what adapters are
 * given. */
typedef struct ls_dropout {
  double embedding, hidden, attention, adapter;
  double head; /* of what a head over classes reads, where its family drops any */
} ls_dropout;

/* Over which tokens the loss that balances experts counts loads. */
typedef enum ls_balance_form {
  LS_BALANCE_MODEL = 0, /* of a microbatch, in all layers together, as transformers does */
  LS_BALANCE_LAYER,     /* of a microbatch, in each layer by itself, as Megatron-LM does */
  LS_BALANCE_SEQUENCE,  /* of each sequence in each layer: DeepSeek-V3's */
} ls_balance_form;

/* What training adds to the loss of routers, and tells of them. */
typedef struct ls_balance {
  double aux, z; /* factors of the loss that balances loads, and of the z-loss; 0: none */
  ls_balance_form form;
  bool loads; /* of experts are told */
  /* What a step adds to the correction bias of each expert that had fewer tokens than the mean, and
   * takes from the others'; 0: it stays as it is. Needs loads. */
  double bias_rate;
  double drop; /* rows that an expert takes of a sequence, over an even routing's; 0: all */
} ls_balance;

/* Of two adapters beside a product: rows of the first, and what both count by. */
typedef struct ls_lora_size {
  int64_t rank;
  double alpha;
} ls_lora_size;

/* Lists are of the arena that the configuration was read into; they are NULL where a family has
 * none. Fields that a family has no use for are 0. */
typedef struct ls_model_config {
  const char *family; /* HF's model_type: "gpt2", "llama", "qwen3" ... */
  const char *source; /* the file it was read from, or the preset's name: for messages */
  const char *text;   /* of config.json as read; NULL: its numbers were changed since */
  const char *base;   /* with adapters: the folder of the weights they are beside; NULL: none */
  bool teacher;       /* its parameters are those of a graph that are a teacher's */
#define LS_MODEL_FIELD(type, name, words) type name;
  LS_MODEL_NUMBERS(LS_MODEL_FIELD)
#undef LS_MODEL_FIELD
  int64_t stored_layers;      /* that its files have, its own first; 0: its own */
  int64_t next_layers;        /* behind those in its files, for further tokens: not of this model */
  const uint8_t *layer_kinds; /* by layer; NULL: every layer has the window, if there is one */
  const double *rope_short, *rope_long; /* longrope: by pair of columns */
  const ls_lora_size *lora_sizes; /* [layers x LS_MODEL_LINEARS]; NULL: all are of lora_rank and
                                   * lora_alpha */
  const char *const *class_names; /* [classes]; NULL: there are none */
  bool draws_head; /* classes that were given to a model without: weights have no head for them */
  double initializer_range;
  bool fp8; /* operands of layers' products are rounded to numbers of 8 bits */
  ls_dropout dropout;
  ls_balance balance;
  int64_t begin_id; /* bos; -1: none */
  int64_t end_ids[LS_MAX_END_IDS];
  int end_count;
} ls_model_config;

/* LS_INPUT names the first thing in which the mathematics of `found` and `expected` differ, as
 * "WHAT: found 1; expected 2". Initial weights, dropout and special tokens are none. */
LS_CHECKED ls_status ls_model_config_compare(const ls_model_config *found,
                                             const ls_model_config *expected, ls_error *error);

/* Has weights of a block's products stored as blocks of this precision, or with LS_COMPUTE as they
 * are. LS_INPUT: those of a mixture's experts, or rows that are no whole blocks. */
LS_CHECKED ls_status ls_model_quantize(ls_model_config *config, ls_precision precision,
                                       ls_error *error);

/* Has operands of layers' products rounded to fp8. LS_INPUT: a mixture of experts, or weights in
 * blocks. */
LS_CHECKED ls_status ls_model_set_fp8(ls_model_config *config, ls_error *error);

/* Gives the model a head over these classes (names of the arena's, in the order of their numbers),
 * and its config.json what transformers writes of them. It had none. */
void ls_model_set_classes(ls_arena *arena, ls_model_config *config, const char *const *names,
                          int64_t count);

/* Has a text any of the model's classes, and not one; so config.json says. */
void ls_model_set_several(ls_arena *arena, ls_model_config *config);

/* Has a head over classes read this of a text; config.json says so where that is not what its
 * family does. */
void ls_model_set_pooling(ls_arena *arena, ls_model_config *config, ls_pooling pooling);

/* How a model makes vectors of texts: what of a text ("last", "cls", "mean"), and behind what it
 * was trained to be asked and to answer; the longest text in tokens. */
typedef struct ls_text_vectors {
  const char *pooling, *query_prompt, *answer_prompt;
  int64_t longest;
} ls_text_vectors;

/* Takes the head from a model that has one of tokens, so that it makes vectors of texts;
 * config.json says so and how. */
void ls_model_set_vectors(ls_arena *arena, ls_model_config *config, const ls_text_vectors *told);

/* What config.json says of that, in the arena; false: nothing, and *told is as before. */
bool ls_model_text_vectors(ls_arena *arena, const ls_model_config *config, ls_text_vectors *told);

/* End tokens that stand between two texts told together; 0: each is as it is alone. */
int ls_model_pair_ends(const ls_model_config *config);

/* Whether a text's class is asked of its first token; else of its last. Of an encoder's tokens each
 * has the mean of all. */
bool ls_model_asks_first(const ls_model_config *config);

/* Names under "id2label" that a model without a head over classes has: those that were given and
 * not made up ("LABEL_0"). NULL, and *count 0: there are none. In the arena. */
const char *const *ls_model_class_names(ls_arena *arena, const ls_model_config *config,
                                        int64_t *count);

/* Reads config.json at `path` (the file, or a folder that holds it). */
LS_CHECKED ls_status ls_model_config_read(ls_arena *arena, const char *path,
                                          ls_model_config *config, ls_error *error);

/* The same from text in memory; `name` stands for the file in errors. For tests and fuzzing. */
LS_CHECKED ls_status ls_model_config_parse(ls_arena *arena, const char *name, const char *text,
                                           size_t bytes, ls_model_config *config, ls_error *error);

/* A model of models.json, which is built in. */
typedef struct ls_preset {
  const char *name, *title;
  const char *parameters; /* billions, with the digits that were published */
  const char **also;      /* other names, up to NULL */
  const char *hub;        /* ORG/NAME on the Hugging Face hub; NULL: none */
  const char *source;     /* of its shape */
  const char *notes;      /* NULL: none */
  const char *counted;    /* billions that the shape has, where others were published; or NULL */
  const char *not_built;  /* what it has that cannot be built; NULL: it can be */
  const char *config;     /* the keys of a config.json that say its shape; NULL: not built */
} ls_preset;

/* All of them, in the arena; *count of them. */
const ls_preset *ls_model_presets(ls_arena *arena, int *count);

/* Whether `name` is one of its names, but for case and punctuation. */
bool ls_preset_is_called(const ls_preset *preset, const char *name);

/* A preset, or a config.json or a folder with one: a file goes before a preset whose name differs
 * in case or punctuation. LS_INPUT: the nearest names, or why the preset cannot be built. */
LS_CHECKED ls_status ls_model_find(ls_arena *arena, const char *model, ls_model_config *config,
                                   ls_error *error);

/* The text of a config.json for a checkpoint whose tensors are of type `dtype`: as it was read, but
 * for torch_dtype, and for quantization_config where that is not how `config` has it. */
const char *ls_model_config_text(ls_arena *arena, const ls_model_config *config, ls_dtype dtype);

/* The same beside tensors that are stored as config->blocks; `others` are those that are not, as
 * modules: for readers that take each product for one that is. */
const char *ls_model_config_quantised(ls_arena *arena, const ls_model_config *config,
                                      ls_dtype dtype, const char *const *others, int count);

typedef enum ls_model_mode {
  LS_MODEL_TRAIN = 0, /* ends with the loss; the caller adds the backward part */
  LS_MODEL_FORWARD,   /* ends with the loss */
  LS_MODEL_DECODE,    /* key and value caches, ends with the logits */
} ls_model_mode;

/* A loss over pairs of answers in place of that over tokens: ls_graph_preferences. */
typedef struct ls_model_pairs {
  double beta; /* above 0; 0: there are no pairs */
  double smoothing;
  bool odds; /* ls_graph_odds, whose lambda is beta */
} ls_model_pairs;

/* A frozen model beside the one that is trained, with the same vocabulary, whose logits it learns:
 * ls_graph_distillation. Or what one has said before, as an input: ls_graph_distillation_of_top. */
typedef struct ls_model_teacher {
  const ls_model_config *config; /* NULL: there is none. Borrowed while the graph is built */
  int64_t top;                   /* without it: the ids that each token is told of; 0: nothing is */
  double temperature, share;
} ls_model_teacher;

typedef struct ls_build_options {
  ls_model_mode mode;
  int64_t tokens;     /* n: B x T of one microbatch; decoding: new tokens, of any sequences */
  int64_t sequence;   /* T; decoding: not used */
  int64_t cache_rows; /* decoding: the longest a sequence may become */
  /* Decoding: those that the caches hold, one after another; above 1, or where rows are dealt to
   * ranks, places say which row of the caches each token has. 0: one. */
  int64_t sequences;
  bool headless;        /* decoding: fills the caches and ends there, with no logits */
  bool documents;       /* attention stays inside documents, each from a position 0 on */
  bool places;          /* tokens lie in an order of their own, of which attention is told */
  int turns;            /* with places: of rings that keys go round; 0: attention has all at once.
                         * Decoding: ranks that rows of the caches are dealt to; 0: one */
  int64_t expert_ranks; /* between which rows of tokens are sent; 0: all tokens come to them */
  int64_t token_ranks;  /* with these: over which tokens are shared out */
  int64_t stream_ranks; /* of these tensor-parallel ones, which lose as one; 0: none */
  int64_t parts;        /* likewise: ranks that have each a part of a sequence */
  int64_t expert_bound; /* and hundredths of even loads that one may send another; 0: all */
  bool weighted;        /* labels count as often as graph->weights says */
  ls_model_pairs pairs; /* with documents, two of which may be as long as the model is made for */
  ls_text_pairs texts;  /* of a model of vectors */
  ls_model_teacher teacher; /* not in decoding, nor with pairs */
} ls_build_options;

/* Decoding: rows of the caches that a sequence has, as many with each rank. */
int64_t ls_build_sequence_rows(const ls_build_options *options);

/* How fast each pair of columns turns, in radians per position, in sequences of `sequence` tokens:
 * rotary_dim / 2 numbers (transformers' modeling_rope_utils.py). `local`: with rope_local_theta.
 * *scale is what cosines and sines are multiplied by. The list is the arena's. */
const double *ls_rope_frequencies(ls_arena *arena, const ls_model_config *config, bool local,
                                  int64_t sequence, double *scale);

/* Whether tokens see those behind them: it predicts masked tokens, and continues no text. */
bool ls_model_is_encoder(const ls_model_config *config);

/* Whether transformers has a head over classes of tokens for its family. */
bool ls_model_may_class_tokens(const ls_model_config *config);

/* Builds the forward graph: segments "embedding", "layers.0" ..., "head". A teacher's layers are
 * dealt over those of the model, its parameters are frozen and called "teacher.NAME". LS_INPUT also
 * where it has another vocabulary. */
LS_CHECKED ls_status ls_model_build(ls_arena *arena, const ls_model_config *config,
                                    const ls_build_options *options, ls_graph **graph,
                                    ls_error *error);

/* Columns of an expert's MLP. */
int64_t ls_model_expert_width(const ls_model_config *config);

/* Numbers in all parameters, a shared one counted once. */
int64_t ls_model_parameters(const ls_model_config *config);

/* The place of a weight, by the name that graphs have for it ("layers.3.mlp.up.weight"), among the
 * products of layers: of ls_model_linears; -1: it is none of them. */
int ls_model_linear_find(const char *parameter, int64_t *layer);

/* Of the adapters beside a product, of ls_model_linears, of a layer. */
ls_lora_size ls_model_lora_size(const ls_model_config *config, int64_t layer, int linear);

/* What the product of two adapters is multiplied by: alpha / rank, or alpha / sqrt(rank). */
double ls_model_lora_scale(const ls_model_config *config, ls_lora_size size);

#endif
