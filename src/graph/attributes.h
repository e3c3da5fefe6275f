/* What a node knows beyond its tensors: one list, from which equality, saving and loading follow.
 * Values only; thread-safe. */
#ifndef LS_GRAPH_ATTRIBUTES_H
#define LS_GRAPH_ATTRIBUTES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fp8.h"

/* gelu_tanh is the approximation that Hugging Face calls gelu_new too. A new activation is a value
 * here, not an op: gelu takes it alone, swiglu with a gate. */
typedef enum ls_activation { LS_SILU = 0, LS_GELU_TANH, LS_GELU_ERF, LS_RELU } ls_activation;
enum { LS_ACTIVATION_COUNT = LS_RELU + 1 };

/* type, name. Zero where it means nothing, or asks for nothing. */
#define LS_ATTRIBUTES(X)                                                                          \
  X(int64_t, sequence)         /* T: rows of dimension 0 are whole sequences of so many tokens */ \
  X(int64_t, head_dim)         /* columns of one head (attention, rope) */                        \
  X(int64_t, kv_heads)         /* global count of KV heads: how many values label g has */        \
  X(int64_t, heads)            /* attention with ALiBi: global count of query heads */            \
  X(int64_t, window)           /* attention: a token sees itself and window - 1 before; 0: all */ \
  X(int64_t, two_way)          /* attention: 1: and window - 1 behind it, or all; 0: none */      \
  X(int64_t, turn)             /* ring_attention: how far round the ring keys have come */        \
  X(int64_t, turns)            /* ring_attention: ranks of the ring; each has T / turns rows.     \
                                * cached_part: ranks that rows are dealt to. left_out: ranks that \
                                * rows are of, one's after another's; 0: one */                   \
  X(int64_t, experts)          /* grouped products: of how many experts the weights are */        \
  X(int64_t, held)             /* slots: experts of each rank that rows are sent to */            \
  X(int64_t, slots)            /* left_out: slots that a rank has for each of these ranks.        \
                                * capacity: rows of a sequence that an expert takes */            \
  X(double, filled)            /* grouped products: the part of the rows that are some expert's,  \
                                * were the routing even; 0: all */                                \
  X(int64_t, renormalise)      /* route: 1: weights of the chosen experts sum to 1; 0: of all */  \
  X(int64_t, sigmoid)          /* route: 1: scores are sigmoids of logits, not a softmax */       \
  X(int64_t, groups)           /* route: experts are in so many groups; 0: in one */              \
  X(int64_t, top_groups)       /* route: of these a token's experts come */                       \
  X(int64_t, chosen)           /* router_loads: experts of a token */                             \
  X(int64_t, columns)          /* row_scale: global count of those summed; heads: of one made;    \
                                * restore_scales: of a row's blocks */                            \
  X(double, epsilon)           /* norms, adamw */                                                 \
  X(double, weight_offset)     /* rmsnorm, headnorm: added to the weights, 1 in Gemma */          \
  X(double, softmax_scale)     /* attention: usually 1/sqrt(head_dim). distillation: 1 / T */     \
  X(double, softcap)           /* attention's scores, softcap: x is softcap tanh(x / softcap) */  \
  X(double, alibi)             /* attention: factor of ls_alibi_slope; 0: no bias by distance */  \
  X(int64_t, skipped)          /* embedding: rows of the table before that of id 0 */             \
  X(double, scale)             /* embedding: of rows; route: of weights; 0: none. scale: of all   \
                                * elements. router_loss: of the loss that balances loads.         \
                                * distillation: the teacher's share of the loss. pair_loss: of    \
                                * the chosen's own, with odds ratios; 0: with a reference.        \
                                * text_match: of cosines */                                       \
  X(double, z_scale)           /* router_loss: of squares of the logits' log-sum-exp */           \
  X(double, dropout)           /* dropout, attention: the part that is dropped */                 \
  X(int64_t, site)             /* with dropout: which of the model it is */                       \
  X(double, rope_scale)        /* rope_table: cosines and sines are multiplied by it; 0: not */   \
  X(int64_t, rope_pairs)       /* rope_table: pairs of columns */                                 \
  X(int64_t, rope_first)       /* rope: columns of a head before those that are turned */         \
  X(int64_t, rope_neighbours)  /* rope: 1: pairs are columns side by side; 0: of two halves */    \
  X(ls_activation, activation) /* gelu: which; swiglu: of the gate */                             \
  X(double, gate_limit)        /* paired_glu: of gates and ups */                                 \
  X(double, gate_slope)        /* paired_glu: by which the gate is multiplied in its sigmoid */   \
  X(double, dpo_beta)          /* pairs: of differences of log-probabilities */                   \
  X(int64_t, pairs)            /* text_sums: of the microbatch; text_match: of a group, whose     \
                                * answers are told apart */                                       \
  X(int64_t, texts)            /* of such a pair: what asks, its answer, and wrong ones */        \
  X(int64_t, answers)          /* text_sums: 1: of all texts but those that ask; 0: of these */   \
  X(double, smoothing)         /* pair_loss: the share of pairs that are the wrong way round */   \
  X(double, beta1)             /* adamw, lion; sgd: the momentum */                               \
  X(double, beta2)             /* adamw, lion */                                                  \
  X(double, warmup)            /* schedulefree: steps until the learning rate is whole */         \
  X(double, weight_decay)      /* adamw, sgd, lion: decoupled */                                  \
  X(double, rate)              /* optimizers: the learning rate counts so many times */           \
  X(double, clip)              /* clip_factor: largest global norm; 0: none */                    \
  X(double, weight)            /* squared_norm: how often a value counts */                       \
  X(ls_fp8, fp8)               /* fp8, row_fp8: to which it rounds. linear: E4M3: operands are    \
                                * rounded to that, and its gradient is rounded to E5M2 */

typedef struct ls_attributes {
#define LS_ATTRIBUTE_FIELD(type, name) type name;
  LS_ATTRIBUTES(LS_ATTRIBUTE_FIELD)
#undef LS_ATTRIBUTE_FIELD
  /* rope_table: angle per position of each of its pairs. Borrowed; outlives the node. */
  const double *rope_frequencies;
} ls_attributes;

/* Fields by their place in the list. */
enum {
#define LS_ATTRIBUTE_NUMBER(type, name) LS_ATTRIBUTE_##name,
  LS_ATTRIBUTES(LS_ATTRIBUTE_NUMBER)
#undef LS_ATTRIBUTE_NUMBER
      LS_ATTRIBUTE_COUNT
};

const char *ls_attribute_name(int field);
double ls_attribute_get(const ls_attributes *attributes, int field);
/* `number` is one that ls_attribute_can_be says the field can be. */
void ls_attribute_set(ls_attributes *attributes, int field, double number);
bool ls_attribute_can_be(int field, double number);

/* The first setting that is not the same in both, lists by what they hold, and what it is in each;
 * NULL: there is none. */
const char *ls_attributes_differ(const ls_attributes *a, const ls_attributes *b, double of[2]);
bool ls_attributes_equal(const ls_attributes *a, const ls_attributes *b);

/* How much the score of a key falls with each token between it and the query, in head `head` of
 * `heads`: powers of 2^(-8/n) for the first n heads, n the largest power of two among counts of
 * heads, and every other power of its root for the rest (Press, Smith, Lewis: "Train Short, Test
 * Long", 2022, and its code). */
double ls_alibi_slope(int64_t head, int64_t heads);

#endif
