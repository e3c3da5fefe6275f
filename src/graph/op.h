/* The op table: one row for each kind of computation a training step is made of.
 *
 * A row is data: names of dimensions in the manner of einsum, from which `shard` derives every
 * placement, every collective and every shape; which ops make its gradients; and where it costs
 * work, a function that counts it. To add an op: add its name to LS_OPS, its row to op_table.c, its
 * reference kernel to device/reference. docs/extending.md has the rest.
 *
 * Labels: operands are separated by commas, inputs from outputs by "->", the dimensions of an
 * operand by blanks. A dimension may be a product of labels, major first: "gr" is KV-head groups
 * times query heads per group. "1" is a dimension of one element that nothing shards. "n?" is an
 * operand that a node may be without; it comes last among the inputs, or among the outputs: what
 * nobody needs is then not made.
 * A label that stands in an input and in no output is contracted: shard it, and each output is
 * partial (P) on that axis, to be reduced by the row's `reduce`.
 * Behind its labels a dimension may say more of itself:
 *   k/64, gr/head_dim   scaled: one element for each 64 of k, or for as many of gr as the attribute
 *                       says; it is sharded with them, into whole elements
 *   t~n                 tied: of its own length, sharded where n is
 *   s~t+turn            tied, and its shards have gone round: where a rank has shard c of t, it has
 *                       shard c + turn of s, as the attribute says */
#ifndef LS_GRAPH_OP_H
#define LS_GRAPH_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/attributes.h"

enum { LS_MAX_DIMS = 3, LS_MAX_INPUTS = 10, LS_MAX_OUTPUTS = 3, LS_MAX_GRADIENT_RULES = 2 };

/* Columns of the sums that the distillation of a token is made of: over the vocabulary the sum of
 * exp(logit - max); the label's logit; the sum of exp((logit - max) / T); the same of the teacher's
 * logits; and of these exponentials times how much further below its max, over T, the student's
 * logit is than the teacher's. */
enum {
  LS_DISTILL_EXP = 0,
  LS_DISTILL_TARGET,
  LS_DISTILL_SOFT,
  LS_DISTILL_TEACHER,
  LS_DISTILL_APART,
  LS_DISTILL_SUMS
};

/* enum suffix, printed name */
#define LS_OPS(X)                                 \
  /* forward */                                   \
  X(EMBEDDING, "embedding")                       \
  X(RESTORE_SCALES, "restore_scales")             \
  X(DEQUANTIZE, "dequantize")                     \
  X(AMAX, "amax")                                 \
  X(FP8, "fp8")                                   \
  X(ROW_AMAX, "row_amax")                         \
  X(ROW_FP8, "row_fp8")                           \
  X(RANGE_AMAX, "range_amax")                     \
  X(FP8_CODES, "fp8_codes")                       \
  X(FP8_DECODE, "fp8_decode")                     \
  X(LINEAR, "linear")                             \
  X(LINEAR_BLOCKS, "linear_blocks")               \
  X(BIAS, "bias")                                 \
  X(ADD, "add")                                   \
  X(SCALE, "scale")                               \
  X(LAYERNORM, "layernorm")                       \
  X(RMSNORM, "rmsnorm")                           \
  X(HEADNORM, "headnorm")                         \
  X(ROW_SQUARES, "row_squares")                   \
  X(ROW_SCALE, "row_scale")                       \
  X(ROPE_TABLE, "rope_table")                     \
  X(ROPE, "rope")                                 \
  X(HEADS, "heads")                               \
  X(HEADS_UP, "heads_up")                         \
  X(HEADS_DOWN, "heads_down")                     \
  X(ATTENTION, "attention")                       \
  X(SINK_ATTENTION, "sink_attention")             \
  X(RING_ATTENTION, "ring_attention")             \
  X(RING_END, "ring_end")                         \
  X(CACHED_ATTENTION, "cached_attention")         \
  X(CACHED_PART, "cached_part")                   \
  X(CACHED_END, "cached_end")                     \
  X(GELU, "gelu")                                 \
  X(SWIGLU, "swiglu")                             \
  X(PAIRED_GLU, "paired_glu")                     \
  X(SOFTCAP, "softcap")                           \
  X(DROPOUT, "dropout")                           \
  X(ROUTE, "route")                               \
  X(DISPATCH, "dispatch")                         \
  X(GROUPED_UP, "grouped_up")                     \
  X(GROUPED_DOWN, "grouped_down")                 \
  X(GROUPED_BIAS, "grouped_bias")                 \
  X(GROUPED_WEIGH, "grouped_weigh")               \
  X(WEIGH, "weigh")                               \
  X(COMBINE, "combine")                           \
  X(CHOICES, "choices")                           \
  X(CAPACITY, "capacity")                         \
  X(KEEP, "keep")                                 \
  X(SLOTS, "slots")                               \
  X(TO_SLOTS, "to_slots")                         \
  X(ARRIVALS, "arrivals")                         \
  X(ARRIVE, "arrive")                             \
  X(LEAVE, "leave")                               \
  X(FROM_SLOTS, "from_slots")                     \
  X(LEFT_OUT, "left_out")                         \
  X(ROW_SIGMOID, "row_sigmoid")                   \
  X(ROUTER_LOADS, "router_loads")                 \
  X(ROUTER_LOADS_EACH, "router_loads_each")       \
  X(ROUTER_TOTAL, "router_total")                 \
  X(ROUTER_LOSS, "router_loss")                   \
  X(ROUTER_LOSS_EACH, "router_loss_each")         \
  X(XENT_MAX, "xent_max")                         \
  X(XENT_SUM, "xent_sum")                         \
  X(XENT_LOSS, "xent_loss")                       \
  X(XENT_SUM_EACH, "xent_sum_each")               \
  X(XENT_LOSS_EACH, "xent_loss_each")             \
  X(BCE_SUM, "bce_sum")                           \
  X(BCE_LOSS, "bce_loss")                         \
  X(DISTILL_SUM, "distill_sum")                   \
  X(DISTILL_TOP_SUM, "distill_top_sum")           \
  X(DISTILL_LOSS, "distill_loss")                 \
  X(TOKEN_ROWS, "token_rows")                     \
  X(PAIR_LOSS, "pair_loss")                       \
  X(PAIR_REWARDS, "pair_rewards")                 \
  X(PAIR_SHARES, "pair_shares")                   \
  X(TEXT_SUMS, "text_sums")                       \
  X(UNIT_ROWS, "unit_rows")                       \
  X(TEXT_MATCH, "text_match")                     \
  X(TEXT_LOSS, "text_loss")                       \
  X(TEXT_FOUND, "text_found")                     \
  /* backward */                                  \
  X(EMBEDDING_DW, "embedding_dw")                 \
  X(LINEAR_DX, "linear_dx")                       \
  X(LINEAR_BLOCKS_DX, "linear_blocks_dx")         \
  X(LINEAR_DW, "linear_dw")                       \
  X(BIAS_DB, "bias_db")                           \
  X(SCALE_BWD, "scale_bwd")                       \
  X(LAYERNORM_BWD, "layernorm_bwd")               \
  X(RMSNORM_BWD, "rmsnorm_bwd")                   \
  X(HEADNORM_BWD, "headnorm_bwd")                 \
  X(ROW_SQUARES_BWD, "row_squares_bwd")           \
  X(ROW_SCALE_BWD, "row_scale_bwd")               \
  X(ROPE_BWD, "rope_bwd")                         \
  X(HEADS_BWD, "heads_bwd")                       \
  X(HEADS_SHARED_BWD, "heads_shared_bwd")         \
  X(ATTENTION_BWD, "attention_bwd")               \
  X(SINK_BWD, "sink_bwd")                         \
  X(RING_BWD, "ring_bwd")                         \
  X(RING_END_BWD, "ring_end_bwd")                 \
  X(GELU_BWD, "gelu_bwd")                         \
  X(SWIGLU_BWD, "swiglu_bwd")                     \
  X(PAIRED_GLU_BWD, "paired_glu_bwd")             \
  X(SOFTCAP_BWD, "softcap_bwd")                   \
  X(DROPOUT_BWD, "dropout_bwd")                   \
  X(ROUTE_BWD, "route_bwd")                       \
  X(DISPATCH_BWD, "dispatch_bwd")                 \
  X(GROUPED_UP_DX, "grouped_up_dx")               \
  X(GROUPED_UP_DW, "grouped_up_dw")               \
  X(GROUPED_DOWN_DX, "grouped_down_dx")           \
  X(GROUPED_DOWN_DW, "grouped_down_dw")           \
  X(GROUPED_BIAS_DB, "grouped_bias_db")           \
  X(GROUPED_WEIGH_BWD, "grouped_weigh_bwd")       \
  X(WEIGH_BWD, "weigh_bwd")                       \
  X(COMBINE_BWD, "combine_bwd")                   \
  X(KEEP_BWD, "keep_bwd")                         \
  X(SLOTS_BWD, "slots_bwd")                       \
  X(TO_SLOTS_BWD, "to_slots_bwd")                 \
  X(ARRIVALS_BWD, "arrivals_bwd")                 \
  X(ARRIVE_BWD, "arrive_bwd")                     \
  X(LEAVE_BWD, "leave_bwd")                       \
  X(FROM_SLOTS_BWD, "from_slots_bwd")             \
  X(ROW_SIGMOID_BWD, "row_sigmoid_bwd")           \
  X(ROUTER_LOSS_BWD, "router_loss_bwd")           \
  X(ROUTER_LOSS_EACH_BWD, "router_loss_each_bwd") \
  X(XENT_GRAD, "xent_grad")                       \
  X(XENT_GRAD_EACH, "xent_grad_each")             \
  X(XENT_LOSS_EACH_BWD, "xent_loss_each_bwd")     \
  X(BCE_GRAD, "bce_grad")                         \
  X(DISTILL_GRAD, "distill_grad")                 \
  X(DISTILL_TOP_GRAD, "distill_top_grad")         \
  X(PAIR_LOSS_BWD, "pair_loss_bwd")               \
  X(TEXT_SUMS_BWD, "text_sums_bwd")               \
  X(UNIT_ROWS_BWD, "unit_rows_bwd")               \
  X(TEXT_MATCH_BWD, "text_match_bwd")             \
  /* the step around them */                      \
  X(COUNT_VALID, "count_valid")                   \
  X(COUNT_WEIGHTS, "count_weights")               \
  X(ZERO, "zero")                                 \
  X(RECIPROCAL, "reciprocal")                     \
  X(SQUARED_NORM, "squared_norm")                 \
  X(CLIP_FACTOR, "clip_factor")                   \
  X(ADAMW, "adamw")                               \
  X(SGD, "sgd")                                   \
  X(LION, "lion")                                 \
  X(ADAMW_SPECULATE, "adamw_speculate")           \
  X(SGD_SPECULATE, "sgd_speculate")               \
  X(LION_SPECULATE, "lion_speculate")             \
  X(ADAMW8_LARGEST, "adamw8_largest")             \
  X(ADAMW8, "adamw8")                             \
  X(ADAMW8_KEEP, "adamw8_keep")                   \
  X(MUON_MOMENTUM, "muon_momentum")               \
  X(ORTHOGONALISE, "orthogonalise")               \
  X(MUON, "muon")                                 \
  X(SCHEDULEFREE, "schedulefree")                 \
  X(SCHEDULEFREE_POINT, "schedulefree_point")     \
  X(ADAFACTOR_SUMS, "adafactor_sums")             \
  X(ADAFACTOR_KEEP, "adafactor_keep")             \
  X(ADAFACTOR_DIRECTION, "adafactor_direction")   \
  X(ADAFACTOR_SECOND, "adafactor_second")         \
  X(ADAFACTOR_DIVIDE, "adafactor_divide")         \
  X(ADAFACTOR, "adafactor")                       \
  X(CAST, "cast")                                 \
  X(COPY, "copy")

typedef enum ls_op_kind {
#define LS_OP_ENUM(suffix, name) LS_OP_##suffix,
  LS_OPS(LS_OP_ENUM)
#undef LS_OP_ENUM
      LS_OP_COUNT
} ls_op_kind;

/* Some of the ops: {.has = {[LS_OP_GELU] = true}}. */
typedef struct ls_op_set {
  bool has[LS_OP_COUNT];
} ls_op_set;

#define LS_OP_IN_SET(suffix, name) [LS_OP_##suffix] = true,
#define LS_EVERY_OP                 \
  {                                 \
    .has = { LS_OPS(LS_OP_IN_SET) } \
  }

bool ls_op_set_equal(const ls_op_set *a, const ls_op_set *b);
bool ls_op_set_is_empty(const ls_op_set *set);

/* How a node's output that lost a sharded label is still to be reduced. */
typedef enum __attribute__((packed)) ls_reduce {
  LS_SUM = 0,
  LS_MAX,
  LS_MASK, /* a sum of which each row is one rank's, and of zeros elsewhere: of routed rows, where
              ranks have other experts */
} ls_reduce;

/* Which type a tensor is stored in: the layout decides what COMPUTE and ACCUMULATE are. */
typedef enum ls_precision {
  LS_COMPUTE = 0,       /* bf16, fp16, fp32 or fp64 */
  LS_ACCUMULATE,        /* fp32; fp64 where compute is fp64; gradients of parameters may be bf16 */
  LS_INDEX,             /* int32 */
  LS_DOUBLE,            /* fp64: cells */
  LS_BLOCKS_NF4,        /* weights of a frozen parameter, LS_BLOCK_WEIGHTS to an element */
  LS_BLOCKS_INT8,       /* likewise */
  LS_BLOCKS_FP4,        /* likewise */
  LS_BLOCKS_NF4_DOUBLE, /* likewise, whose scales the next parameter, of LS_SCALES, is of */
  LS_BLOCKS_FP4_DOUBLE, /* likewise */
  LS_SCALES,            /* fp32: what the 8 bits of scales of the parameter before stand for */
  LS_PRECISION_COUNT
} ls_precision;

/* An op that makes gradients of a node's inputs. `in` says what it reads: a, b, c are the gradients
 * of the node's outputs, digits are the node's inputs (those that it has), A, B, C its outputs.
 * `out` are the inputs, as digits, whose gradients it makes. */
typedef struct ls_gradient_rule {
  ls_op_kind op;
  const char *in, *out;
} ls_gradient_rule;

/* Whether backward may make an op's results again in place of keeping them. */
typedef enum ls_again {
  LS_AGAIN_NEVER = 0,
  LS_AGAIN_MAY,
  LS_AGAIN_CHEAP,  /* much memory, next to no work: norms, activations */
  LS_AGAIN_ALWAYS, /* and always does, just before each use: of parameters alone */
} ls_again;

/* What an op does in a step beside the model's layers and their gradients. Who interprets programs
 * asks for this, not for the op. */
typedef enum ls_duty {
  LS_DUTY_NONE = 0,
  LS_DUTY_LOSS,    /* output 0 is a loss, summed over tokens, or over pairs */
  LS_DUTY_REWARDS, /* outputs are summed over pairs (of answers, of texts), and told with the loss
                    */
  LS_DUTY_LOADS,   /* output 0 is summed over the step, and told with the loss: tokens by expert */
  LS_DUTY_DROPPED, /* likewise: choices that are dropped, by expert */
  LS_DUTY_COUNT,   /* of tokens that have a label, their weights, or pairs: what the loss is a mean
                      over */
  LS_DUTY_ZERO,    /* a cell begins at 0 */
  LS_DUTY_SCALE,   /* a count becomes what gradients begin with */
  LS_DUTY_NORM,    /* sums the squares of a gradient */
  LS_DUTY_CLIP,    /* finished sums become norm, clip factor and mean loss */
  LS_DUTY_ROUND,   /* master weights become stored ones */
  LS_DUTY_AMAX,    /* the largest magnitudes of rows, of a gradient's too */
  LS_DUTY_FP8,     /* rounds these rows by them */
  LS_DUTY_LARGEST, /* the largest magnitude of a rank's shard of a weight */
  LS_DUTY_CODES,   /* codes of that shard, by the whole weight's */
  LS_DUTY_DECODE,  /* what codes that have been gathered stand for */
  LS_DUTY_COPY,    /* any tensor, or a slice of it */
} ls_duty;

/* What an axis of the mesh shares out; a set of these: axes of several kinds. */
typedef enum ls_shares {
  LS_SHARES_STAGES = 0,           /* nothing that an op has */
  LS_SHARES_SEQUENCES = 1 << 0,   /* the batch: whole sequences */
  LS_SHARES_KV_HEADS = 1 << 1,    /* the outer tensor axis: KV heads, each with its query heads */
  LS_SHARES_QUERY_HEADS = 1 << 2, /* the inner tensor axis: the query heads of a KV head */
  LS_SHARES_TOKENS = 1 << 3,      /* tokens of a sequence, and no parameter */
  LS_SHARES_QUERIES = 1 << 4,     /* of attention the queries, each rank with all keys */
  LS_SHARES_EXPERTS = 1 << 5,     /* experts, to which each rank brings the tokens of all */
  LS_SHARES_SENT = 1 << 6,        /* experts, to which ranks send rows of their tokens */
  LS_SHARES_STREAM = 1 << 7,      /* a tensor axis with experts: tokens of the residual stream */
  LS_SHARES_ROUTED = LS_SHARES_SEQUENCES | LS_SHARES_TOKENS | LS_SHARES_STREAM /* experts' tokens */
} ls_shares;
enum { LS_SHARES_ANY_EXPERTS = LS_SHARES_EXPERTS | LS_SHARES_SENT };

/* A label that may be sharded over axes of some kinds only; '.': on these nothing is, whatever they
 * share out besides. Where a row has a rule for axes that share out experts, on these it is the
 * only one. */
typedef struct ls_label_rule {
  char label;
  ls_shares axes;
} ls_label_rule;

enum { LS_MAX_LABEL_RULES = 4 };
_Static_assert(LS_MAX_INPUTS <= 10, "rows name inputs by one digit");
_Static_assert(LS_ATTRIBUTE_COUNT <= 64, "rows name attributes by bits of 64");

/* Floating-point operations by the sizes of the first two inputs. */
typedef double ls_flops_rule(const ls_attributes *attributes, const int64_t *first,
                             const int64_t *second);

typedef struct ls_op {
  const char *labels;
  const char *shardable;                  /* labels that may be sharded over any axis */
  ls_label_rule only[LS_MAX_LABEL_RULES]; /* labels that may be sharded over some; 0 ends them */
  /* Inputs, as a string of digits, in which the op is linear together: where all of them are P(sum)
   * and the others R, its outputs are P(sum). NULL: in none. */
  const char *linear;
  /* Inputs, as a string of digits, of whose rows of zeros the op makes rows of zeros: where all of
   * them are P(mask) and the others R, so are its outputs. Where its experts are sharded, these may
   * be P(mask) or R, and what it makes of them has P(mask) in place of P(sum). NULL: none. */
  const char *masked;
  /* Inputs, as a string of digits, that are of all sequences, or sums over their tokens: over axes
   * that divide these they are gathered, or finished, too. NULL: none. */
  const char *whole;
  ls_reduce reduce;
  char picked;        /* label of whose entries only those are touched that tokens name; 0: none */
  bool updates;       /* outputs are state that is changed in place: read and written */
  const char *writes; /* inputs, as digits, that are state too and written to; NULL: none */
  uint64_t divides;   /* attributes that it divides by: 1u << LS_ATTRIBUTE_head_dim */
  /* A product of matrices: 1 + the dimension of its second input that is not contracted. Where the
   * op divides by `experts`, dimension 0 of a weight has the rows of one expert after another. */
  int product;
  ls_flops_rule *flops; /* of what is no product; NULL: none that count */
  int in_place; /* 1 + input whose memory output 0 may take when that is its last use; 0: none */
  ls_precision precision[LS_MAX_OUTPUTS];
  const char *indices; /* inputs, as digits, of whole numbers: ids, labels, positions, counts */
  const char *blocks;  /* inputs, as digits, whose elements are blocks of weights */
  bool unnests;        /* output 0 is input 0's blocks with scales in fp32 */
  ls_again again;
  ls_duty duty;
  /* Inputs, as digits, whose gradient is that of output 0; behind a comma of output 1, and so on.
   * NULL: none. */
  const char *passes;
  ls_gradient_rule gradients[LS_MAX_GRADIENT_RULES]; /* `in` of those behind the last is NULL */
} ls_op;

/* Floating-point operations of an op whose first two inputs have these sizes, which may be those of
 * the whole or of one rank's part: matrix products and causal attention; the rest counts 0, as MFU
 * does. */
double ls_op_flops(ls_op_kind kind, const ls_attributes *attributes, const int64_t *first,
                   const int64_t *second);

/* The row of `kind`. Static storage. */
const ls_op *ls_op_row(ls_op_kind kind);
const char *ls_op_name(ls_op_kind kind);

/* The op of this name, or LS_OP_COUNT. */
ls_op_kind ls_op_find(const char *name);

/* Whether the settings that the op divides by are there. */
bool ls_op_has_divisors(ls_op_kind kind, const ls_attributes *attributes);

/* The ops that are cheap to run again. */
ls_op_set ls_op_set_cheap(void);

/* Whether the label may be sharded over an axis that shares out this. */
bool ls_op_may_shard(const ls_op *row, char label, ls_shares axis);

/* Whether tokens (label n) are taken one by one, so that the op may run for some rows alone. */
bool ls_op_takes_rows(const ls_op *row);

/* Whether this input is brought together over axes that divide sequences. */
bool ls_op_reads_whole(const ls_op *row, int input);

/* Whether this input is of whole numbers. */
bool ls_op_reads_indices(const ls_op *row, int input);

/* Whether this input's elements are blocks of weights. */
bool ls_op_reads_blocks(const ls_op *row, int input);

/* The output whose gradient the input has too, or -1. */
int ls_op_passes(const ls_op *row, int input);

/* Whether the row gives this input of a node a gradient, where the node's outputs have theirs. */
bool ls_op_gives_gradient(ls_op_kind kind, int input);

#endif
