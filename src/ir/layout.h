/* The layout a user asked for: sizes of the mesh and the choices of strategy.
 *
 *   ls_layout layout = ls_layout_default();
 *   layout.dp_shard = 4;
 *
 * Values only; thread-safe. */
#ifndef LS_IR_LAYOUT_H
#define LS_IR_LAYOUT_H

#include "base/arena.h"
#include "graph/op.h"
#include "lockstep/dtype.h"

/* When the gradient of a unit is reduced over dp_shard (and its weights gathered). */
typedef enum ls_when { LS_WHEN_AUTO = 0, LS_WHEN_MICROBATCH, LS_WHEN_STEP } ls_when;

/* How ranks of cp come by all keys of their sequences; in the order of the words of `context`. */
typedef enum ls_context {
  LS_CONTEXT_GATHER = 0, /* each gathers them for its queries */
  LS_CONTEXT_RING,       /* a block at a time, which goes round */
  LS_CONTEXT_ULYSSES,    /* tokens change for heads, of which each then has all tokens */
  LS_CONTEXT_HYBRID,     /* both: neighbours change tokens for heads, whose keys then go round */
  LS_CONTEXT_COUNT
} ls_context;

const char *ls_context_name(ls_context context); /* "gather" */

/* How tokens come to experts of other ranks, with ep > 1; in the order of the words of
 * experts.exchange. */
typedef enum ls_expert_exchange {
  LS_EXCHANGE_AUTO = 0, /* until a run file is resolved; else the first */
  LS_EXCHANGE_GATHER,   /* each rank gathers the tokens of all, and does the rows of its experts */
  LS_EXCHANGE_ALL_TO_ALL, /* rows go to the rank of their expert, in slots, and back */
  LS_EXCHANGE_COUNT
} ls_expert_exchange;

/* In the order of the words of optimizer.name; what each is, is its row (ir/state.h). */
typedef enum ls_optimizer_kind {
  LS_OPTIMIZER_ADAMW = 0,
  LS_OPTIMIZER_SGD,
  LS_OPTIMIZER_LION,
  LS_OPTIMIZER_ADAMW8BIT,
  LS_OPTIMIZER_MUON,
  LS_OPTIMIZER_SCHEDULEFREE,
  LS_OPTIMIZER_ADAFACTOR,
  LS_OPTIMIZER_ADAFACTOR_WHOLE, /* what ADAFACTOR does not factor; no word */
  LS_OPTIMIZER_COUNT
} ls_optimizer_kind;

typedef struct ls_optimizer {
  ls_optimizer_kind kind;
  const struct ls_optimizer_row *row; /* in place of that of `kind`; NULL: that. Not owned */
  double beta1, beta2, epsilon, weight_decay, momentum;
  double warmup;          /* schedulefree: steps until the learning rate is whole */
  double clip;            /* largest global norm; 0: none */
  double matrix_scale;    /* muon: of the root of the larger dimension; 0: as torch's "original" */
  double parameter_scale; /* adafactor: 1: rates count times a parameter's root mean square; 0 */
} ls_optimizer;

/* Where something waits until it is needed. */
typedef enum ls_tier {
  LS_TIER_DEVICE = 0,
  LS_TIER_HOST, /* the machine's memory */
  LS_TIER_NVME, /* a file */
  LS_TIER_COUNT
} ls_tier;

const char *ls_tier_name(ls_tier tier);

/* The data strategies, in the order of the numbers of `zero`: name; then where on dp_shard
 * parameters lie between steps, gradients while they are added up over microbatches (LS_PARTIAL:
 * reduced at the end of the step alone), and master weights and moments, and so the reduced
 * gradient. */
#define LS_DATA_STRATEGIES(X)                                  \
  X("ddp", LS_REPLICATED, LS_PARTIAL, LS_REPLICATED)           \
  X("zero-1", LS_REPLICATED, LS_PARTIAL, LS_SHARDED_FLAT)      \
  X("zero-2", LS_REPLICATED, LS_SHARDED_FLAT, LS_SHARDED_FLAT) \
  X("zero-3", LS_SHARDED_FLAT, LS_SHARDED_FLAT, LS_SHARDED_FLAT)

#define LS_COUNT_STRATEGY(name, parameters, gradients, state) +1
enum { LS_DATA_STRATEGY_COUNT = LS_DATA_STRATEGIES(LS_COUNT_STRATEGY) };
#undef LS_COUNT_STRATEGY

/* What waits outside the device, by tier. */
typedef struct ls_offload {
  ls_tier optimizer;         /* master weights and moments; updated by the host */
  double optimizer_fraction; /* how much of them, of a stage's bytes; whole units */
  ls_tier parameters;        /* fetched around use */
  ls_tier activations;       /* that are kept for the backward pass */
} ls_offload;

/* What a user lays out: sizes of the mesh and the choices of strategy. */
typedef struct ls_layout {
  int pp, dp_replicate, dp_shard, cp, tp;
  int ep;             /* ranks of dp_shard x cp that share out experts */
  bool whole_experts; /* of dp_shard x cp x tp: an expert is not cut; with sequence_parallel */
  ls_expert_exchange exchange;
  /* all-to-all: slots of a rank for each other one, in hundredths of the rows that an even routing
   * sends there; 0: for all that there may be. A step that needs more is void, and made again with
   * `expert_again` in its place. */
  int64_t expert_bound, expert_again;
  const struct ls_mesh *mesh; /* other axes of the same products; NULL: the usual. Not owned */
  const char *schedule;       /* of the pipeline: a row's name, or that of a CSV; NULL: 1f1b */
  const char *csv;            /* its text, which is not saved; NULL: a row */
  size_t csv_bytes;
  const char *stages; /* layers of each chunk by hand, "0-6, 7-13"; NULL: cut by cost */
  int chunks;         /* of each stage; 0: as the schedule usually has */
  /* Update before the global norm is known, and validate after the next step's first passes. */
  bool post_validation;
  ls_context context; /* with cp > 1 */
  int ulysses;        /* hybrid: ranks of cp, side by side, that change tokens for heads */
  int zero;           /* row of LS_DATA_STRATEGIES */
  bool sequence_parallel;
  int microbatches;
  int layers_per_unit; /* 0: one */
  /* Rows of logits that a rank makes at once, of those it has of a microbatch; 0: by their size. */
  int64_t logits_rows;
  /* Of the device, which ls_compile_graph asks: bytes of logits by whose size that is (0: 64 MiB),
   * and what the stored columns of a row of them are a multiple of (0: 1). */
  int64_t logits_bytes, logits_multiple;
  ls_when gather, reduce;
  int prefetch;         /* passes over segments by which a unit's gather begins before its use */
  ls_op_set recompute;  /* ops whose results backward makes again */
  int recompute_layers; /* run again together, from what enters the first of them; 0: one */
  /* By segment of the graph, in place of `recompute`; none: that holds for all. Not owned. */
  const ls_op_set *recompute_of;
  int recompute_of_count;
  ls_dtype compute;    /* LS_F32, LS_BF16, LS_F16 or LS_F64 */
  ls_dtype grad_dtype; /* of gradients added up and reduced: LS_F32 or LS_BF16; fp64 under fp64 */
  ls_optimizer optimizer;
  ls_offload offload;
} ls_layout;

/* The axes that a layout gives sizes of, outermost first, by the names of their keys in a run file:
 * "pp", ... Who needs all of them, or what their sizes come to, asks here. */
enum {
  LS_LAYOUT_PP = 0,
  LS_LAYOUT_DP_REPLICATE,
  LS_LAYOUT_DP_SHARD,
  LS_LAYOUT_CP,
  LS_LAYOUT_TP,
  LS_LAYOUT_AXES
};
const char *ls_layout_axis(int axis);
int ls_layout_size(const ls_layout *layout, int axis);
void ls_layout_set_size(ls_layout *layout, int axis, int size);

/* Ranks of the whole mesh; of them those among which a batch is divided by sequences; those of
 * dp_shard; and those of dp_shard and cp, among which the data strategy shards. */
int ls_layout_ranks(const ls_layout *layout);
int ls_layout_data_ranks(const ls_layout *layout);
int ls_layout_shards(const ls_layout *layout);
int ls_layout_state_ranks(const ls_layout *layout);
void ls_layout_set_data_ranks(ls_layout *layout, int replicas, int shards);

/* Ranks that send each other rows of tokens, for their experts; 0: each gathers the tokens of all.
 */
int ls_layout_senders(const ls_layout *layout);

/* Of the ranks that share out experts those inside of dp_shard's: of cp, and of tp where experts
 * are whole. */
int ls_layout_expert_ranks_inside(const ls_layout *layout);

/* Parts in which ranks of one place in tp have the experts: ep, or with whole experts ep / tp. */
int ls_layout_expert_cuts(const ls_layout *layout);

/* Ranks that tokens are shared out over; and over which tokens that experts take are. */
int ls_layout_token_ranks(const ls_layout *layout);
int ls_layout_routing_ranks(const ls_layout *layout);

/* Ranks of cp that change tokens for heads; 1: none do. */
int ls_layout_head_ranks(const ls_layout *layout);

/* Blocks of keys of a ring; 0: attention has all keys at once. */
int ls_layout_turns(const ls_layout *layout);

/* Whether `layout->gather` or `layout->reduce` comes to once a step: of a pipeline, with several
 * microbatches under way on a stage, that is the least traffic. With gradients so, ZeRO-2 is
 * ZeRO-1. */
bool ls_layout_once_a_step(const ls_layout *layout, ls_when when);

/* What a tensor of this precision is stored in. */
ls_dtype ls_layout_dtype(const ls_layout *layout, ls_precision precision);

/* The name of a row of LS_DATA_STRATEGIES: "ddp" for 0. */
const char *ls_zero_name(int zero);

/* One device, fp32, one microbatch, AdamW with the run file's defaults. */
ls_layout ls_layout_default(void);

/* "pp 2 (zbv), dp_replicate 1, dp_shard 4, cp 2, tp 2, zero-3", in the arena; pp and cp where
 * above 1, ep likewise. */
const char *ls_layout_print(ls_arena *arena, const ls_layout *layout);

/* Parts of that: "cp 4 (ring), " and "ep 8 (all-to-all), "; "" where the axis has one rank. */
const char *ls_layout_print_context(ls_arena *arena, const ls_layout *layout);
const char *ls_layout_print_experts(ls_arena *arena, const ls_layout *layout);

#endif
