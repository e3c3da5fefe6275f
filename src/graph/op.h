/* The op table: one row for each kind of computation a training step is made of.
 *
 * A row is data: names of dimensions in the manner of einsum, from which `shard` derives every
 * placement and every collective; and functions for shapes, gradients and costs. To add an op:
 * add its name to LS_OPS, its row to op_table.c, its reference kernel to device/reference.
 *
 * Labels: operands are separated by commas, inputs from outputs by "->", the dimensions of an
 * operand by blanks. A dimension may be a product of labels, major first: "gr" is KV-head groups
 * times query heads per group. "1" is a dimension of one element that nothing cuts. "n?" is an
 * operand that a node may be without; it comes last among the inputs.
 * A label that stands in an input and in no output is contracted: cut it, and each output is
 * partial (P) on that axis, to be reduced by the row's `reduce`. */
#ifndef LS_GRAPH_OP_H
#define LS_GRAPH_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "lockstep/dtype.h"

enum { LS_MAX_DIMS = 3, LS_MAX_INPUTS = 7, LS_MAX_OUTPUTS = 3, LS_MAX_GRADIENT_RULES = 2 };

/* enum suffix, printed name */
#define LS_OPS(X)                         \
  /* forward */                           \
  X(EMBEDDING, "embedding")               \
  X(LINEAR, "linear")                     \
  X(BIAS, "bias")                         \
  X(ADD, "add")                           \
  X(LAYERNORM, "layernorm")               \
  X(RMSNORM, "rmsnorm")                   \
  X(HEADNORM, "headnorm")                 \
  X(ROW_SQUARES, "row_squares")           \
  X(ROW_SCALE, "row_scale")               \
  X(ROPE_TABLE, "rope_table")             \
  X(ROPE, "rope")                         \
  X(ATTENTION, "attention")               \
  X(CACHED_ATTENTION, "cached_attention") \
  X(GELU, "gelu")                         \
  X(SWIGLU, "swiglu")                     \
  X(SOFTCAP, "softcap")                   \
  X(XENT_MAX, "xent_max")                 \
  X(XENT_SUM, "xent_sum")                 \
  X(XENT_LOSS, "xent_loss")               \
  /* backward */                          \
  X(EMBEDDING_DW, "embedding_dw")         \
  X(LINEAR_DX, "linear_dx")               \
  X(LINEAR_DW, "linear_dw")               \
  X(BIAS_DB, "bias_db")                   \
  X(LAYERNORM_BWD, "layernorm_bwd")       \
  X(RMSNORM_BWD, "rmsnorm_bwd")           \
  X(HEADNORM_BWD, "headnorm_bwd")         \
  X(ROW_SQUARES_BWD, "row_squares_bwd")   \
  X(ROW_SCALE_BWD, "row_scale_bwd")       \
  X(ROPE_BWD, "rope_bwd")                 \
  X(ATTENTION_BWD, "attention_bwd")       \
  X(GELU_BWD, "gelu_bwd")                 \
  X(SWIGLU_BWD, "swiglu_bwd")             \
  X(SOFTCAP_BWD, "softcap_bwd")           \
  X(XENT_GRAD, "xent_grad")               \
  /* the step around them */              \
  X(COUNT_VALID, "count_valid")           \
  X(ZERO, "zero")                         \
  X(RECIPROCAL, "reciprocal")             \
  X(SQUARED_NORM, "squared_norm")         \
  X(CLIP_FACTOR, "clip_factor")           \
  X(ADAMW, "adamw")                       \
  X(SGD, "sgd")                           \
  X(ADAMW_AHEAD, "adamw_ahead")           \
  X(SGD_AHEAD, "sgd_ahead")               \
  X(CAST, "cast")                         \
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

/* gelu_tanh is the approximation that Hugging Face calls gelu_new too. */
typedef enum ls_activation { LS_SILU = 0, LS_GELU_TANH, LS_GELU_ERF } ls_activation;

/* What a node knows beyond its tensors: type, name. Zero where it means nothing, or asks for
 * nothing. The struct has them as fields, and comparing, saving and reading go through them. */
#define LS_ATTRIBUTES(X)                                                                           \
  X(int64_t, sequence)     /* T: rows of dimension 0 are whole sequences of this many tokens */    \
  X(int64_t, head_dim)     /* columns of one head (attention, rope) */                             \
  X(int64_t, kv_heads)     /* global count of KV heads: how many values label g has */             \
  X(int64_t, heads)        /* attention with ALiBi: global count of query heads */                 \
  X(int64_t, window)       /* attention: a token sees itself and window - 1 before it; 0: all */   \
  X(int64_t, columns)      /* row_scale: global count of columns whose squares were summed */      \
  X(double, epsilon)       /* norms, adamw */                                                      \
  X(double, weight_offset) /* rmsnorm, headnorm: added to the weights, 1 in Gemma */               \
  X(double, softmax_scale) /* attention: usually 1/sqrt(head_dim) */                               \
  X(double, softcap)     /* attention's scores and softcap: x becomes softcap tanh(x / softcap) */ \
  X(double, alibi)       /* attention: factor of ls_alibi_slope; 0: no bias by distance */         \
  X(double, scale)       /* embedding: rows are multiplied by it; 0: not */                        \
  X(double, rope_scale)  /* rope_table: cosines and sines are multiplied by it; 0: not */          \
  X(int64_t, rope_pairs) /* rope_table: of columns */                                              \
  X(ls_activation, activation) /* gelu: which; swiglu: of the gate */                              \
  X(double, beta1)             /* adamw; sgd: the momentum */                                      \
  X(double, beta2)             /* adamw */                                                         \
  X(double, weight_decay)      /* adamw, sgd: decoupled */                                         \
  X(double, clip)              /* clip_factor: largest global norm; 0: none */                     \
  X(double, weight)            /* squared_norm: how often a value counts */

typedef struct ls_attributes {
#define LS_ATTRIBUTE_OF(type, name) type name;
  LS_ATTRIBUTES(LS_ATTRIBUTE_OF)
#undef LS_ATTRIBUTE_OF
  /* rope_table: angle per position of each pair of columns. Borrowed; outlives the node. */
  const double *rope_frequencies;
} ls_attributes;

/* How a node's output that lost a cut label is still to be reduced. */
typedef enum ls_reduce { LS_SUM = 0, LS_MAX } ls_reduce;

/* Which type a tensor is stored in: the layout decides what COMPUTE and ACCUMULATE are. */
typedef enum ls_precision {
  LS_COMPUTE = 0, /* bf16, fp16, fp32 or fp64 */
  LS_ACCUMULATE,  /* fp32; fp64 where compute is fp64; gradients of parameters may be bf16 */
  LS_INDEX,       /* int32 */
  LS_DOUBLE,      /* fp64: cells */
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
  LS_AGAIN_CHEAP, /* much memory, next to no work: norms, activations */
} ls_again;

typedef struct ls_op {
  const char *labels;
  const char *cut;        /* labels that may be cut over any axis */
  const char *batch_only; /* labels that may be cut over batch axes only (whole sequences) */
  /* Inputs, as a string of digits, in which the op is linear together: where all of them are P(sum)
   * and the others R, its outputs are P(sum). NULL: in none. */
  const char *linear;
  ls_reduce reduce;
  int in_place; /* 1 + input whose memory output 0 may take when that is its last use; 0: none */
  ls_precision precision[LS_MAX_OUTPUTS];
  ls_again again;
  const char *passes; /* inputs, as digits, whose gradient is that of output 0; NULL: none */
  ls_gradient_rule gradients[LS_MAX_GRADIENT_RULES]; /* `in` of those behind the last is NULL */
} ls_op;

/* How much the score of a key falls with each token between it and the query, in head `head` of
 * `heads`: powers of 2^(-8/n) for the first n heads, n the largest power of two among counts of
 * heads, and every other power of its root for the rest (Press, Smith, Lewis: "Train Short, Test
 * Long", 2022, and its code). */
double ls_alibi_slope(int64_t head, int64_t heads);

/* Floating-point operations of an op whose first two inputs have these sizes, which may be those of
 * the whole or of one rank's part: matrix products and causal attention; the rest counts 0, as MFU
 * does. */
double ls_op_flops(ls_op_kind kind, const ls_attributes *attributes, const int64_t *first,
                   const int64_t *second);

/* The first setting that is not the same in both, lists by what they hold, and what it is in each;
 * NULL: there is none. */
const char *ls_attributes_differ(const ls_attributes *a, const ls_attributes *b, double of[2]);
bool ls_attributes_equal(const ls_attributes *a, const ls_attributes *b);

/* The row of `kind`. Static storage. */
const ls_op *ls_op_row(ls_op_kind kind);
const char *ls_op_name(ls_op_kind kind);

/* The op of this name, or LS_OP_COUNT. */
ls_op_kind ls_op_find(const char *name);

/* The ops that are cheap to run again. */
ls_op_set ls_op_set_cheap(void);

/* Whether the row gives this input of a node a gradient, where the node's outputs have theirs. */
bool ls_op_gives_gradient(ls_op_kind kind, int input);

#endif
