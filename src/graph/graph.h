/* The graph of one training step of one microbatch: tensors with global shapes, and nodes.
 *
 * Nothing here knows a device. A model builds the forward part with the functions below, in
 * order; ls_graph_backward adds the gradient of the loss for every parameter. Matrices of tokens
 * are [n, c] where n = B x T, sequences one after the other.
 *
 *   ls_graph *graph = ls_graph_create(arena);
 *   int segment = ls_graph_layer(graph, 0);
 *   ls_tensor_id w = ls_graph_parameter(graph, &(ls_parameter){.name = "layers.0.mlp.up", ...});
 *   ls_tensor_id y = ls_graph_linear(graph, x, w);
 *
 * Shape errors here are faults of ours (a model file that is wrong): they panic. */
#ifndef LS_GRAPH_GRAPH_H
#define LS_GRAPH_GRAPH_H

#include "base/arena.h"
#include "graph/labels.h"
#include "lockstep/dtype.h"

typedef struct ls_tensor_id {
  int index; /* -1: none */
} ls_tensor_id;

typedef enum ls_role {
  LS_ROLE_VALUE = 0,
  LS_ROLE_INPUT, /* tokens, labels, positions: filled before the step */
  LS_ROLE_CELL,  /* one fp64 number that changes between steps */
  LS_ROLE_PARAMETER,
  LS_ROLE_GRADIENT, /* of a parameter */
  LS_ROLE_STATE,    /* persistent between programs: the caches of decoding */
} ls_role;

/* How tensor parallelism may shard a parameter; a strategy's row says what each becomes. */
typedef enum ls_tp_sharding {
  LS_TP_REPLICATED = 0, /* norms, biases after a row-sharded product */
  LS_TP_COLUMN,         /* weight[out, in] or bias[out], sharded on out */
  LS_TP_ROW,            /* weight[out, in], sharded on in */
  LS_TP_QUERY,          /* out = query heads */
  LS_TP_KEY_VALUE,      /* out = KV heads: sharded as far as they go, replicated beyond */
  LS_TP_HEADS_IN,       /* weight[out, in], in = query heads */
  LS_TP_VOCABULARY,     /* [vocabulary, c], sharded on the vocabulary */
  LS_TP_EXPERTS,        /* rows of one expert after another, sharded on the columns */
  LS_TP_EXPERT_ROWS,    /* a row for each expert, whole */
  LS_TP_COUNT
} ls_tp_sharding;

/* Whether its rows are experts', or of one expert after another. */
static inline bool ls_tp_is_of_experts(ls_tp_sharding sharding) {
  return sharding == LS_TP_EXPERTS || sharding == LS_TP_EXPERT_ROWS;
}

typedef enum ls_init { LS_INIT_NORMAL = 0, LS_INIT_UNIFORM, LS_INIT_ONES, LS_INIT_ZEROS } ls_init;

typedef struct ls_parameter {
  const char *name; /* ours, unfused: "layers.3.attention.query" */
  int ndim;
  int64_t dims[LS_MAX_DIMS];
  ls_tp_sharding sharding;
  ls_init init;
  double deviation; /* of LS_INIT_NORMAL; the bound of LS_INIT_UNIFORM, on both sides of 0 */
  bool adapter;     /* of another parameter, which it is beside */
  int module;       /* of a head over classes: that it is of (ls_head_module); else 0 */
  bool teacher;     /* of a model beside the one that is trained: it is called "teacher.NAME" */
  /* LS_COMPUTE, or that of blocks: then dims count these, and it is never trainable. */
  ls_precision precision;
} ls_parameter;

/* Whether no gradient reaches it, as a router's correction or what scales of blocks are made of:
 * LS_ACCUMULATE or LS_SCALES, and never trainable. */
static inline bool ls_parameter_is_constant(const ls_parameter *about) {
  return about->precision == LS_ACCUMULATE || about->precision == LS_SCALES;
}

typedef struct ls_tensor {
  const char *name;
  ls_role role;
  ls_precision precision;
  int ndim;
  int64_t dims[LS_MAX_DIMS];
  bool stream;   /* on the residual stream (or its gradient): the row pins its placement */
  bool whole;    /* an input that is of no tokens: every rank has all of it */
  int segment;   /* where it is made; a parameter: where it is first used */
  int producer;  /* node; -1 for inputs and parameters */
  int parameter; /* index into graph->parameters for parameters and their gradients; else -1 */
} ls_tensor;

typedef struct ls_node {
  ls_op_kind kind;
  ls_attributes attributes;
  int segment;
  bool backward; /* of its segment's backward pass; that of the loss is of its forward pass */
  int inputs, outputs;
  ls_tensor_id in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS];
} ls_node;

/* How the optimizer treats a parameter. */
typedef struct ls_parameter_settings {
  double rate;         /* the learning rate counts so many times */
  double weight_decay; /* in place of the optimizer's; below 0: that, and of vectors none */
} ls_parameter_settings;

typedef struct ls_parameter_record {
  ls_parameter about;
  ls_parameter_settings settings; /* {1, -1} when made */
  ls_tensor_id tensor;
  ls_tensor_id gradient; /* -1: none, as before ls_graph_backward and where it is not trainable */
  bool trainable;        /* set when made; cleared before ls_graph_backward: it is frozen */
} ls_parameter_record;

/* What of a model its heads and experts are cut by; experts 0: none. */
typedef struct ls_head_counts {
  int64_t kv_heads, heads, experts;
} ls_head_counts;

/* A part that weights are gathered for. */
typedef struct ls_segment {
  const char *name;
  int layer; /* of the model; -1: what is before or behind them */
} ls_segment;

typedef struct ls_graph {
  ls_arena *arena;
  const ls_op_labels *op_labels; /* by op */
  LS_LIST(ls_tensor) tensors;
  LS_LIST(ls_node) nodes;
  LS_LIST(ls_parameter_record) parameters;
  LS_LIST(ls_segment) segments;
  int segment; /* the one being built */
  bool in_backward;
  int root_segment;         /* in backward: that of the last root */
  int64_t tokens, sequence; /* n = B x T of one microbatch over the whole mesh; T */
  int64_t turns;            /* of rings that keys go round; 0: attention has all keys at once */
  int64_t cache_rows;       /* of the caches of decoding; 0: there are none */
  int64_t kv_heads, heads, head_dim, vocabulary;
  int64_t dropouts; /* so many there are: each has a number, by which its mask differs */
  int64_t experts;  /* of each layer; 0: none */
  ls_head_counts
      teacher; /* of a second model, which is cut as the first is; all 0: there is none */
  /* Inputs [n], int32. label < 0: none. places, where tokens lie in an order of their own: which
   * token of the microbatch each row is. draws, with dropout: a random number of each token. */
  ls_tensor_id ids, labels, positions, places, draws;
  /* Likewise, of encoders: how many tokens of its document (or sequence) lie behind each, where
   * they lie in an order of their own; and which of a pair of sentences each is of. */
  ls_tensor_id remaining, types;
  ls_tensor_id reference; /* input [n], fp64, of pairs: log-probabilities of a reference's labels */
  /* Input, fp64: [n] how often a token's label counts, 0 without a label; of pairs of answers 1 at
   * the first label of each pair, 0 elsewhere; of sets of classes, [classes], how often each counts
   * where it is in a set. */
  ls_tensor_id weights;
  ls_tensor_id sets; /* input [n, words], int32: the classes of tokens with a label, as bits */
  /* Inputs [n, k], of a teacher that is told by the k ids it finds likeliest: these, int32,
   * ascending, those below 0 none; and how far below the likeliest one's logit each one's is. */
  ls_tensor_id top_ids, top_below;
  ls_tensor_id loss_scale; /* cell: 1 / valid tokens of the step */
  ls_tensor_id loss;       /* cell: sum of the tokens' losses */
  ls_node
      counting; /* what the loss is a mean over, of inputs: no node of the list; inputs 0: none */
  /* Other sums of tokens' losses, that go to the same cell; and what is told of experts, by layer
   * that has them: their loads, and what they drop, each [1, experts]. */
  LS_LIST(ls_tensor_id) losses, loads;
  ls_tensor_id logits; /* [n, vocabulary] */
  /* Of pairs: by token its document's log-probability beyond the reference's, which is read after a
   * program in place of logits; and what is told of them (pair_rewards). */
  ls_tensor_id answers, rewards[LS_MAX_OUTPUTS];
} ls_graph;

/* Everything below allocates in the graph's arena. */
ls_graph *ls_graph_create(ls_arena *arena);

/* Opens a segment: nodes and parameters made from here on belong to it. "embedding", "layers.0"
 * ... "head". Returns its index. */
int ls_graph_segment(ls_graph *graph, const char *name);

/* The same of a layer of the model: "layers.N". */
int ls_graph_layer(ls_graph *graph, int layer);

ls_tensor_id ls_graph_input(ls_graph *graph, const char *name, int64_t count);
ls_tensor_id ls_graph_cell(ls_graph *graph, const char *name);
ls_tensor_id ls_graph_state(ls_graph *graph, const char *name, int64_t rows, int64_t columns);
ls_tensor_id ls_graph_parameter(ls_graph *graph, const ls_parameter *about);

/* Marks a tensor as lying on the residual stream. Returns it. */
ls_tensor_id ls_graph_stream(ls_graph *graph, ls_tensor_id tensor);

/* Rows of the table, times `scale`. */
ls_tensor_id ls_graph_embedding(ls_graph *graph, ls_tensor_id table, ls_tensor_id ids,
                                double scale);
/* The same of a table whose first `skipped` rows no id names. */
ls_tensor_id ls_graph_skipped_embedding(ls_graph *graph, ls_tensor_id table, ls_tensor_id ids,
                                        int64_t skipped);
/* A parameter of blocks with scales of 8 bits, and the one behind it, as blocks with scales in
 * fp32. Backward makes them again before each use. */
ls_tensor_id ls_graph_restore_scales(ls_graph *graph, ls_tensor_id blocks, ls_tensor_id scales);
/* A parameter of blocks as a matrix. Backward makes it again before each use. */
ls_tensor_id ls_graph_dequantize(ls_graph *graph, ls_tensor_id blocks);
/* x times a matrix or a parameter of blocks, turned. */
ls_tensor_id ls_graph_linear(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight);
/* The same of operands rounded to E4M3, and in backward of gradients rounded to E5M2. */
ls_tensor_id ls_graph_fp8_linear(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight);

/* By parameter: whether all that reads it rounds it to E4M3. In the graph's arena. */
const bool *ls_graph_rounded(const ls_graph *graph);
/* Rows rounded to the format, each by its own largest magnitude. Of the segment's pass that is
 * being built, made once. */
ls_tensor_id ls_graph_fp8_rows(ls_graph *graph, ls_tensor_id x, ls_fp8 format);
ls_tensor_id ls_graph_bias(ls_graph *graph, ls_tensor_id x, ls_tensor_id bias);
ls_tensor_id ls_graph_add(ls_graph *graph, ls_tensor_id a, ls_tensor_id b);
/* x times `scale`, which is not 0. */
ls_tensor_id ls_graph_scale(ls_graph *graph, ls_tensor_id x, double scale);
/* `bias` may be {-1}. */
ls_tensor_id ls_graph_layernorm(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight,
                                ls_tensor_id bias, double epsilon);
/* `offset` is added to the weights. */
ls_tensor_id ls_graph_rmsnorm(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight, double epsilon,
                              double offset);
/* The same of each head's columns by themselves: as many as the weight has. */
ls_tensor_id ls_graph_headnorm(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight, double epsilon,
                               double offset);
/* rmsnorm of rows whose columns tensor parallelism may cut. */
ls_tensor_id ls_graph_cut_rmsnorm(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight,
                                  double epsilon);
/* attributes: the rope_ fields; the table has 2 x rope_pairs columns. */
ls_tensor_id ls_graph_rope_table(ls_graph *graph, ls_tensor_id positions,
                                 const ls_attributes *attributes);
/* Turns the first columns of each head, as many as the table has; the others stay. */
ls_tensor_id ls_graph_rope(ls_graph *graph, ls_tensor_id x, ls_tensor_id table, int64_t head_dim);
/* The same of other columns, or of pairs of neighbours. attributes: head_dim, rope_first,
 * rope_neighbours. */
ls_tensor_id ls_graph_rope_columns(ls_graph *graph, ls_tensor_id x, ls_tensor_id table,
                                   const ls_attributes *attributes);
/* x [n, heads x head_dim] as heads of `columns`: each has its own columns, then those of `shared`
 * [n, p], which may be {-1}, then zeros; what is beyond `columns` is left out. */
ls_tensor_id ls_graph_heads(ls_graph *graph, ls_tensor_id x, ls_tensor_id shared, int64_t head_dim,
                            int64_t columns);
/* Each head's first columns times its rows of the matrix [heads x rows, columns], then the head's
 * others; and each head's first columns times the same transposed. Without gradients. */
ls_tensor_id ls_graph_heads_up(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight,
                               int64_t head_dim);
ls_tensor_id ls_graph_heads_down(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight,
                                 int64_t head_dim);
/* attributes: sequence, head_dim, kv_heads, softmax_scale; where wanted heads and alibi, window,
 * softcap, two_way. Causal without that. q [n, heads x head_dim]. */
ls_tensor_id ls_graph_attention(ls_graph *graph, ls_tensor_id q, ls_tensor_id k, ls_tensor_id v,
                                const ls_attributes *attributes);
/* The same inside each document, whose tokens the positions count from 0. */
ls_tensor_id ls_graph_document_attention(ls_graph *graph, ls_tensor_id q, ls_tensor_id k,
                                         ls_tensor_id v, ls_tensor_id positions,
                                         const ls_attributes *attributes);
/* The same of tokens in an order of their own: row i is token places[i]. Positions count from the
 * beginning of what a token sees: its document, or its sequence; with two_way graph->remaining
 * counts to its end. With graph->draws the part attributes->dropout of the probabilities is
 * dropped. */
ls_tensor_id ls_graph_placed_attention(ls_graph *graph, ls_tensor_id q, ls_tensor_id k,
                                       ls_tensor_id v, ls_tensor_id positions, ls_tensor_id places,
                                       const ls_attributes *attributes);
/* The same with a learned logit for each head, one more score of every query that has no value:
 * sinks [heads]. {-1}: there are none. */
ls_tensor_id ls_graph_sink_attention(ls_graph *graph, ls_tensor_id q, ls_tensor_id k,
                                     ls_tensor_id v, ls_tensor_id sinks, ls_tensor_id positions,
                                     ls_tensor_id places, const ls_attributes *attributes);
/* Of new tokens, whose keys and values the caches have from then on. With attributes->turns above 1
 * rows of the caches are dealt to so many ranks in turn. Sinks likewise; with them there are
 * places. */
ls_tensor_id ls_graph_cached_attention(ls_graph *graph, ls_tensor_id q, ls_tensor_id k,
                                       ls_tensor_id v, ls_tensor_id sinks, ls_tensor_id cache_k,
                                       ls_tensor_id cache_v, ls_tensor_id positions,
                                       ls_tensor_id places, const ls_attributes *attributes);
ls_tensor_id ls_graph_gelu(ls_graph *graph, ls_tensor_id x, ls_activation which);
ls_tensor_id ls_graph_swiglu(ls_graph *graph, ls_tensor_id gate, ls_tensor_id up,
                             ls_activation of_gate);
/* Of columns that are a gate and its up in turns: see LS_OP_PAIRED_GLU. */
ls_tensor_id ls_graph_paired_glu(ls_graph *graph, ls_tensor_id x, double limit, double slope);
ls_tensor_id ls_graph_softcap(ls_graph *graph, ls_tensor_id x, double cap);
/* x [n, c] without the part `rate` of its elements, from 0 to below 1; the others are divided by
 * 1 - rate. Needs graph->draws, unless the rate is 0. */
ls_tensor_id ls_graph_dropout(ls_graph *graph, ls_tensor_id x, double rate);

/* Where tokens go: see LS_OP_ROUTE. */
typedef struct ls_routing {
  ls_tensor_id rows, experts, weights;
  double filled; /* the part of the rows that are some token's; 0: all */
} ls_routing;

/* How a token's experts are chosen and weighed: the `count` with the largest scores, of equals the
 * first. Scores are logits or sigmoids of them, and `added` to each expert's. With groups, as many
 * experts in each, they are of the `top_groups` with the largest: those of sigmoids by the sum of
 * the two best. Weights are a softmax of the logits over all experts, or their sigmoids; with
 * `renormalise` over the sum of the chosen ones'; and times `scale`. */
typedef struct ls_choice {
  int64_t count;
  bool renormalise, sigmoid;
  int64_t groups, top_groups; /* 0: there are none; at most 64 */
  double scale;               /* 0: 1 */
  ls_tensor_id added;         /* [experts]; -1: nothing is */
} ls_choice;

ls_routing ls_graph_route(ls_graph *graph, ls_tensor_id logits, const ls_choice *choice);

/* Sigmoids of x [n, 1], as a routing of n rows: for ls_graph_weigh. */
ls_routing ls_graph_row_sigmoid(ls_graph *graph, ls_tensor_id x);

/* How many choices of the microbatch's tokens with a label each expert is, [1, experts], or with
 * `each` of every sequence by itself, [sequences, experts]. What the step's microbatches have
 * together is told: graph->loads. */
ls_tensor_id ls_graph_router_loads(ls_graph *graph, ls_tensor_id logits, const ls_choice *choice,
                                   bool each);
/* Loads of all tokens [1, experts], finished, plus those of layers before, if there are any. */
ls_tensor_id ls_graph_router_total(ls_graph *graph, ls_tensor_id loads, ls_tensor_id before);
/* Adds to the loss `scale` times the sum over tokens with a label of the part of the loads that
 * their probabilities' experts have, and `z_scale` times the sum of squares of the logits'
 * log-sum-exp. Loads are finished, or those of each sequence. `counts`, with these: how often each
 * token counts, as ls_graph_pair_shares has it; -1: once. */
void ls_graph_router_loss(ls_graph *graph, ls_tensor_id logits, ls_tensor_id loads, bool sigmoid,
                          double scale, double z_scale, ls_tensor_id counts);
/* By token, of pairs of answers: what makes a sum over tokens one over pairs, see
 * LS_OP_PAIR_SHARES. */
ls_tensor_id ls_graph_pair_shares(ls_graph *graph);

/* Of the tokens of whole sequences in turn which rows they are; {-1} where they lie in turn. */
ls_tensor_id ls_graph_token_rows(ls_graph *graph);

/* The routing without what is above the capacity of experts: each takes `slots` rows of a sequence,
 * those of the first places. What is dropped are rows behind all others, of no expert, that weigh
 * nothing. How many they are of tokens with a label is told, too. */
ls_routing ls_graph_keep(ls_graph *graph, const ls_routing *routing, int64_t slots,
                         int64_t experts);

/* x [n, c] as routed rows [n x count, c], and the sum of each token's. */
ls_tensor_id ls_graph_dispatch(ls_graph *graph, ls_tensor_id x, const ls_routing *routing);
ls_tensor_id ls_graph_combine(ls_graph *graph, ls_tensor_id y, const ls_routing *routing);
/* Products of routed rows, each with its expert's matrix: weights [experts x in, out], and
 * [experts x out, in]. */
ls_tensor_id ls_graph_grouped_up(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight,
                                 const ls_routing *routing);
ls_tensor_id ls_graph_grouped_down(ls_graph *graph, ls_tensor_id x, ls_tensor_id weight,
                                   int64_t experts, const ls_routing *routing);
/* Rows of tokens sent between `ranks` that share out experts: each of `senders`, the ranks that
 * tokens are shared out over, has `slots` for each of them. What is left out is told by `together`
 * of them that follow one another. */
typedef struct ls_row_sending {
  int64_t ranks, senders;
  int64_t slots, together; /* together: 0: each by itself */
} ls_row_sending;

/* Routed rows as slots, in the order of the ranks that have their experts, of each by token: rows
 * says which slot each choice has, experts and weights are those of each slot. Then, where they
 * arrive, sorted by expert: rows says which row each slot has, experts and weights are those of
 * each row, and what is no row of a token is behind all others, of no expert. */
ls_routing ls_graph_slots(ls_graph *graph, const ls_routing *routing, const ls_row_sending *sending,
                          int64_t experts);
ls_routing ls_graph_arrivals(ls_graph *graph, const ls_routing *slots);
/* A loss of 0, or of infinity where a rank has not slots enough for what its tokens choose. */
void ls_graph_left_out(ls_graph *graph, const ls_routing *routing, const ls_row_sending *sending,
                       int64_t experts);
/* x [n, c] as slots [ranks, senders x slots, c], and as rows [ranks x senders x slots, c] of the
 * experts that they have come to; these as slots again, and the sum of each token's. Between the
 * first two and between the last two ranks exchange what they hold. */
ls_tensor_id ls_graph_to_slots(ls_graph *graph, ls_tensor_id x, const ls_routing *slots);
ls_tensor_id ls_graph_arrive(ls_graph *graph, ls_tensor_id sent, const ls_routing *arrivals);
ls_tensor_id ls_graph_leave(ls_graph *graph, ls_tensor_id y, const ls_routing *arrivals);
ls_tensor_id ls_graph_from_slots(ls_graph *graph, ls_tensor_id sent, const ls_routing *slots);
/* x plus the row of bias [experts, columns] that its expert has. */
ls_tensor_id ls_graph_grouped_bias(ls_graph *graph, ls_tensor_id x, ls_tensor_id bias,
                                   const ls_routing *routing);
/* The same times its weight. */
ls_tensor_id ls_graph_grouped_weigh(ls_graph *graph, ls_tensor_id x, ls_tensor_id bias,
                                    const ls_routing *routing);
/* Rows times their weights. */
ls_tensor_id ls_graph_weigh(ls_graph *graph, ls_tensor_id x, const ls_routing *routing);

/* Sets graph->logits, loss and the cells; needs graph->labels. */
void ls_graph_cross_entropy(ls_graph *graph, ls_tensor_id logits);

/* The same, and graph->weights, of which the loss is a weighted mean. */
void ls_graph_weighted_cross_entropy(ls_graph *graph, ls_tensor_id logits);

/* The same where tokens with a label have a set of classes, and graph->sets: the mean over tokens
 * and classes of binary cross-entropies (torch.nn.BCEWithLogitsLoss). `weighted`: also
 * graph->weights, how often each class that is in a set counts, which the mean does not divide by
 * (its pos_weight). */
void ls_graph_binary_cross_entropy(ls_graph *graph, ls_tensor_id logits, bool weighted);

/* The same for pairs of answers, and graph->reference, answers and rewards; needs graph->positions
 * too. Direct preference optimization (Rafailov et al., 2023): over pairs the mean of
 * -(1 - smoothing) log sigmoid(z) - smoothing log sigmoid(-z), z = beta times how much more likely
 * than under the reference the chosen answer is, less that of the rejected one. */
void ls_graph_preferences(ls_graph *graph, ls_tensor_id logits, double beta, double smoothing);

/* The same without a reference, whose input is not read: odds ratio preference optimization (Hong,
 * Lee, Thorne, arXiv 2403.07691). With p the exponential of the mean log-probability of an answer's
 * labels, over pairs the mean of -log p(chosen) - lambda log sigmoid(log odds ratio). */
void ls_graph_odds(ls_graph *graph, ls_tensor_id logits, double lambda);

/* Pairs of texts of which each sequence has so many at most, and what is told apart. */
typedef struct ls_text_pairs {
  int64_t pairs; /* 0: there are none */
  int64_t texts; /* of each: 2, or 3 with a wrong answer */
  int64_t
      group; /* sequences, whole groups of which a microbatch has: whose answers are told apart */
  double scale; /* of cosines */
} ls_text_pairs;

/* The loss over pairs of texts, whose vectors are sums of x [n, c] over the tokens that labels name
 * (op_table_texts.c): the mean over the texts that ask of -log softmax(scale cosine) of their own
 * answer. Sets graph->loss, the cells and in place of rewards how many find theirs; no logits. */
void ls_graph_tell_texts(ls_graph *graph, ls_tensor_id x, const ls_text_pairs *of);

/* The same against a teacher's logits of as many columns, whose gradient nobody asks for:
 * 1 - share of the cross-entropy, and share of temperature^2 KL(teacher || student) with both
 * logits over the temperature, which is above 0. */
void ls_graph_distillation(ls_graph *graph, ls_tensor_id logits, ls_tensor_id teacher,
                           double temperature, double share);

/* The same against the `top` ids that a teacher finds likeliest, which are inputs: graph->top_ids
 * and top_below. The teacher's distribution is that over these ids alone. */
void ls_graph_distillation_of_top(ls_graph *graph, ls_tensor_id logits, int64_t top,
                                  double temperature, double share);

/* The type of elements that are blocks of weights; LS_DTYPE_COUNT: of this precision they are none.
 */
ls_dtype ls_precision_blocks(ls_precision precision);

/* The same blocks with scales in fp32: of LS_BLOCKS_NF4_DOUBLE LS_BLOCKS_NF4, and so on; of any
 * other precision itself. */
ls_precision ls_precision_single(ls_precision precision);
bool ls_precision_is_double(ls_precision precision);

/* Whether elements of this precision are blocks of weights; and how many numbers each is. */
bool ls_precision_is_blocks(ls_precision precision);
int64_t ls_precision_numbers(ls_precision precision);

/* Numbers of the model's parameters that could be trained and are not: neither a teacher's nor
 * constant. */
int64_t ls_graph_frozen(const ls_graph *graph);

/* By tensor: whether a trainable parameter is behind it, so that backward asks for its gradient. */
const bool *ls_graph_wanted(const ls_graph *graph);

/* A tensor that backward starts from, and its gradient: a tensor of the same shape. */
typedef struct ls_root {
  ls_tensor_id tensor, gradient;
} ls_root;

/* Adds the backward part: reverse-mode differentiation of all roots together, by the rows' gradient
 * rules. Each trainable parameter that a root depends on then has its gradient. A node gets no
 * backward node where no trainable parameter is behind its inputs. */
void ls_graph_differentiate(ls_graph *graph, const ls_root *roots, int count);

/* The same of the loss, whose gradient is loss_scale. */
void ls_graph_backward(ls_graph *graph);

static inline ls_tensor *ls_graph_tensor(const ls_graph *graph, ls_tensor_id id) {
  LS_ASSERT(id.index >= 0 && id.index < graph->tensors.count);
  return &graph->tensors.items[id.index];
}
int64_t ls_tensor_elements(const ls_tensor *tensor);

/* A node as gradient rules make them: outputs are created with the row's shapes. `extra` are the
 * dims of an output whose shape no input gives (embedding_dw, rope_table); else NULL. An
 * input that the row has as optional may be {-1}. `needed`: so many of the outputs; behind these
 * the node is without those that the row has as optional. Returns the node's index. */
int ls_graph_node(ls_graph *graph, ls_op_kind kind, const ls_attributes *attributes,
                  const ls_tensor_id *inputs, int needed, const int64_t *extra);
/* The first output of such a node. */
ls_tensor_id ls_graph_first_output(ls_graph *graph, ls_op_kind kind,
                                   const ls_attributes *attributes, const ls_tensor_id *inputs,
                                   const int64_t *extra);

/* ls_op_flops of a node on global shapes. */
double ls_node_flops(const ls_graph *graph, const ls_node *node);

#endif
