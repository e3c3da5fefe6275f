/* What CUDA kernels are given: one struct by value each, filled by the host (cuda_launch.h) and
 * read by the kernel, so this header is C17 and C++17 alike.
 *
 * Counts and strides are elements. `wide` says that every row of every tensor begins at a multiple
 * of 16 bytes, so that eight elements are one access (two of fp32). A pointer that a kernel is to
 * do without is NULL. */
#ifndef LS_DEVICE_CUDA_KERNELS_CUDA_ARGUMENTS_H
#define LS_DEVICE_CUDA_KERNELS_CUDA_ARGUMENTS_H

#include <stdint.h>

#include "lockstep/dtype.h"

enum {
  LS_CUDA_PACK = 8,          /* elements that a thread takes at once */
  LS_CUDA_WARP = 32,         /* threads of a warp */
  LS_CUDA_FREQUENCIES = 256, /* of a rope table in one launch: 2 KiB of the 4 KiB of arguments */
  LS_CUDA_MOST_RANKS = 64,   /* whose buffers one launch adds up */
};

typedef struct ls_cuda_place {
  void *data;
  int64_t stride; /* from row to row */
  int32_t dtype;  /* an ls_dtype */
  int32_t add;    /* of an output: add to what is there */
} ls_cuda_place;

/* Functions of elements at one place, padding included, so that rows need not be told apart. */
typedef struct ls_cuda_pointwise {
  ls_cuda_place in[3], out[2];
  int64_t count;
  float number;       /* scale's factor or softcap's cap */
  int32_t activation; /* an ls_activation */
  int32_t wide;
} ls_cuda_pointwise;

/* Functions of a row at a time, or of a group of its columns: norms, their parts, biases. Teams of
 * `team` threads, a warp or the block, take a row each. */
typedef struct ls_cuda_rows {
  ls_cuda_place in[5], out[3];
  float *parts; /* backward: for each block of rows, their sums by column, `sums` of them */
  int64_t rows; /* groups of all tokens */
  int64_t columns, groups;
  int32_t team, wide;
  int32_t sums; /* over rows: 0, 1 (of the weight) or 2 (of the bias as well) */
  float epsilon, offset;
  float divisor; /* columns of the whole row, by which squares are divided */
  /* Dropout: see device/mask.h; what is kept is multiplied by `kept`. */
  int64_t site, first_column;
  uint32_t limit;
  float kept;
} ls_cuda_rows;

/* Sums over rows by column, of each of `parts` ranges of rows; then the sum of the parts. */
typedef struct ls_cuda_columns {
  ls_cuda_place in; /* first launch */
  float *parts;
  ls_cuda_place out; /* second launch */
  int64_t rows, columns;
  int64_t part_stride; /* from part to part, where several sums are kept side by side */
  int32_t part_count, wide;
} ls_cuda_columns;

typedef struct ls_cuda_rope {
  ls_cuda_place x, table, y;
  int64_t rows, heads, head_dim, half;
  int32_t packs;   /* of a head: of its pairs, then of the columns that are not turned */
  float direction; /* 1, or -1 to turn back */
  int32_t wide;
} ls_cuda_rope;

typedef struct ls_cuda_rope_table {
  const int32_t *positions;
  ls_cuda_place out;
  int64_t rows, half;
  int64_t first; /* column of the first frequency given here */
  int32_t count;
  double scale;
  double frequencies[LS_CUDA_FREQUENCIES];
} ls_cuda_rope_table;

/* Rows of a table that is the slice [start, start + table_rows) of a vocabulary, by token. */
typedef struct ls_cuda_embedding {
  ls_cuda_place table, out; /* backward: out is the table's gradient and `table` that of rows */
  const int32_t *ids;
  int32_t *first, *next; /* backward: a list of each row's tokens, in order; -1 ends it */
  int64_t tokens, start, table_rows, columns;
  int64_t stored_rows; /* backward: rows that are written */
  float scale;
  int32_t wide;
} ls_cuda_embedding;

typedef struct ls_cuda_cross_entropy {
  ls_cuda_place logits, out; /* out: of the gradient */
  const float *largest, *sums;
  float *maxima, *shares, *targets;
  const int32_t *labels;
  const double *scale;
  const float *each; /* of each token, in its place; NULL: all tokens' */
  int64_t rows, columns, start;
  int32_t add_shares, add_targets, wide;
} ls_cuda_cross_entropy;

/* Sums over tokens that have a label. */
typedef struct ls_cuda_tokens {
  const float *largest, *sums, *targets; /* NULL: tokens are counted */
  const int32_t *labels;
  double *cell;
  int64_t count;
  int32_t add;
} ls_cuda_tokens;

typedef struct ls_cuda_cells {
  const double *in[4];
  double *out[3];
  double clip;
  int32_t add;
} ls_cuda_cells;

/* The sum of squares, in one partial sum a block and then the sum of those. */
typedef struct ls_cuda_squares {
  ls_cuda_place in;
  double *parts, *cell;
  double weight;
  int64_t rows, columns;
  int32_t part_count, wide, add;
} ls_cuda_squares;

typedef struct ls_cuda_optimizer {
  const double *rate, *step, *factor;
  ls_cuda_place gradient, master, first, second; /* second: of AdamW alone */
  ls_cuda_place out;                             /* speculation: the weights; else NULL */
  int64_t rows, columns;
  double beta1, beta2, epsilon, weight_decay, times; /* times: of the rate */
  int32_t wide;
} ls_cuda_optimizer;

/* Rows from one place to another: converted or added, or as bytes. */
typedef struct ls_cuda_move {
  ls_cuda_place in, out;
  int64_t rows, columns;
  int64_t stored; /* columns of `out` that are written: zeros behind `columns` */
  int32_t wide;
} ls_cuda_move;

/* One buffer of each rank, in rank order; the result is rounded once. */
typedef struct ls_cuda_rank_sum {
  const void *in[LS_CUDA_MOST_RANKS];
  ls_cuda_place out;
  int64_t count;
  int32_t ranks, largest, wide; /* largest: the maximum in place of the sum */
} ls_cuda_rank_sum;

/* Blocks of quantised weights, as words of 32 bits; see cuda_blocks.cu. */
typedef struct ls_cuda_weight_blocks {
  const uint32_t *blocks;
  ls_cuda_place out;
  int64_t rows, columns, row_words;
  int32_t block_words, nf4, wide;
} ls_cuda_weight_blocks;

/* Pairs of answers; see cuda_pairs.cu. */
typedef struct ls_cuda_pairs {
  const int32_t *labels, *positions;
  const float *largest, *sums, *targets;
  const double *reference, *scale;
  double *answers; /* by token, its document's */
  float *slopes;   /* how often each token's loss counts */
  double *parts;   /* of each sequence, for each cell */
  double *cells[3];
  double beta, smoothing, own; /* own: with odds ratios, how often the chosen's own loss counts */
  int64_t tokens, sequence, sequences;
  int32_t add[3], add_slopes;
} ls_cuda_pairs;

/* Where tokens go among experts; see cuda_experts.cu. */
typedef struct ls_cuda_route {
  ls_cuda_place logits, out; /* out: of their gradient */
  int32_t *places, *expert_of_row;
  float *weights, *slot_weights; /* by row; by token and choice */
  const float *dweights;
  int32_t *counts, *bases; /* of each tile by expert; where each expert's rows begin */
  int64_t tokens;
  int32_t experts, chosen, renormalise, tiles;
} ls_cuda_route;

/* Rows of tokens to experts and back, and weighed. */
typedef struct ls_cuda_routed {
  ls_cuda_place in[2], out;
  const int32_t *places;
  const float *numbers; /* by row */
  float *slopes;        /* of those */
  int64_t rows, columns;
  int32_t chosen, wide, add_slopes;
} ls_cuda_routed;

/* Products of rows of experts; see cuda_group.cuh. */
typedef struct ls_cuda_grouped {
  ls_cuda_place a, b, out;
  const int32_t *experts; /* of each row, rising */
  int32_t *bounds;        /* held + 3: where each group's rows begin */
  int64_t rows, matrix_rows, columns, depth;
  int32_t held, first_expert; /* experts whose matrices the rank has */
  int32_t wide, out_wide;
} ls_cuda_grouped;

/* Attention over rows of heads; see cuda_attention.cu. */
typedef struct ls_cuda_attention {
  ls_cuda_place q, k, v, out, log_sums;
  ls_cuda_place dout, dq, dk, dv; /* backward */
  float *row_dots;                /* backward: dout . out by token and head */
  ls_cuda_place cache_k, cache_v; /* cached: rows of all tokens before, and then of these */
  const int32_t *positions;       /* documents; or in a cached sequence */
  const int32_t *places;          /* cached: the rows of a cache; without sequences the positions */
  int64_t tokens, sequence;
  int32_t heads, per_kv_head, head_dim;
  int32_t first_head, all_heads; /* ALiBi: of this rank's first, and of all */
  int32_t window, wide;
  int32_t parts;      /* cached: of each query's keys */
  int32_t cache_rows; /* cached */
  float *part_sums;   /* cached: for each part, query and head: head_dim sums, maximum, sum */
  float scale, softcap, alibi;
} ls_cuda_attention;

/* Attention of tokens that have places; see cuda_placed.cuh. `of` has queries as tokens, and of a
 * ring's blocks the sum as log_sums. */
typedef struct ls_cuda_placed {
  ls_cuda_attention of;
  ls_cuda_place values, largest, sums; /* what blocks before have come to */
  ls_cuda_place largest_out;
  ls_cuda_place dots; /* backward: dout . out by token and head */
  const int32_t *query_places, *key_places, *draws;
  int32_t *ranges; /* of each 64 queries, and then of each 64 keys: least and last place */
  int64_t keys, site;
  uint32_t limit; /* dropout: see device/mask.h; what is kept is multiplied by `kept` */
  float kept;
  int32_t ring, begun; /* sums are not divided; and go on */
} ls_cuda_placed;

#endif
