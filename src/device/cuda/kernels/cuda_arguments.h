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
  LS_CUDA_LOAD_SLOTS = 4096, /* choices that a block counts, in at most so many parts a sequence */
  LS_CUDA_LOAD_PARTS = 32,
  LS_CUDA_LINE_PARTS = 32, /* of rows, in at most so many of which columns are summed */
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
  float number;       /* scale's factor, softcap's cap or the limit of gates */
  float slope;        /* of gates */
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
  int32_t first;   /* columns of a head before those that are turned */
  int32_t packs;   /* of a head: of its pairs, then of the columns before these, then behind */
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
  /* Several labels: of each token a row of so many words, what classes weigh that are in it (NULL:
   * 1), and the share of a class in a token's mean. */
  const int32_t *sets;
  const double *weights;
  int64_t words;
  float class_share;
  int32_t add_shares, add_targets, wide;
} ls_cuda_cross_entropy;

/* Sums over tokens that have a label. */
typedef struct ls_cuda_tokens {
  const float *largest, *sums, *targets; /* NULL: tokens are counted */
  const float *means;                    /* or these added up */
  const double *weights, *scale;         /* weights: of tokens; NULL: each counts once */
  float *slopes;
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
  double warmup;                                     /* schedule-free: steps */
  int32_t wide;
} ls_cuda_optimizer;

/* AdamW whose moments are of 8 bits, in blocks of the whole parameter; see cuda_codes.cu. */
typedef struct ls_cuda_codes {
  const double *rate, *step, *factor;
  ls_cuda_place gradient;
  float *master;
  uint8_t *firsts, *seconds;
  const float *before, *largest; /* of blocks: as the state has them, and of the new moments */
  float *made;
  /* A rank has `count` elements from place `start` on in rows of `stride`, which begin at this row
   * and column of the whole; of it rows have `columns`. */
  int64_t count, start, stride, row, column, columns, blocks;
  double beta1, beta2, epsilon, weight_decay, times;
  float maps[2][256]; /* what codes stand for: of first moments, of second */
} ls_cuda_codes;

/* Muon; see cuda_muon.cu. */
typedef struct ls_cuda_muon {
  const double *factor, *rate; /* factor: of gradients; or the square of the matrix's norm */
  ls_cuda_place gradient;
  float *matrix, *state; /* state: momentum, master weights, or the scaled matrix */
  int64_t elements;
  double momentum, times, weight_decay, share;
} ls_cuda_muon;

/* A matrix by rows, whose elements are `apart` from row to row and `along` in a row. */
typedef struct ls_cuda_muon_operand {
  const float *data;
  int64_t apart, along;
} ls_cuda_muon_operand;

/* out = alpha base + beta left right^T, both operands by what is contracted. */
typedef struct ls_cuda_muon_product {
  ls_cuda_muon_operand left, right;
  const float *base;
  float *out;
  int64_t rows, columns, depth, apart, along; /* apart, along: of base and out */
  float alpha, beta;
} ls_cuda_muon_product;

/* Adafactor; see cuda_adafactor.cu. A rank has `count` elements from place `start` on in rows of
 * `stride`, of which the first begins at this row and column of the whole, and `range_columns` are
 * no padding. */
typedef struct ls_cuda_adafactor {
  const double *factor, *step, *rate, *squares[2]; /* squares: means, of the step and of weights */
  ls_cuda_place gradient;
  const float *sums, *master; /* sums: of lines; or what the weights are to step by */
  float *lines;               /* of all rows, then of all columns; or the second moment */
  float *state, *made, *part_sums;
  double *mean, *parts;
  int64_t count, start, stride, row, column, rows, columns; /* rows, columns: of the whole */
  int64_t first, range_rows, range_columns;                 /* rows of the range, from its first */
  double weight, times, weight_decay;
  int32_t part_count, by_weights, wide, lines_wide;
} ls_cuda_adafactor;

/* Vectors of texts; see cuda_texts.cu. `in` are tokens, sums, or vectors of texts that ask and of
 * answers; `asking` and `answering` are 1 / length of these. */
typedef struct ls_cuda_texts {
  ls_cuda_place in[2], out[3];
  const int32_t *labels;
  int32_t *bounds; /* of each row, its tokens */
  const float *asking, *answering, *sums, *own;
  const double *root; /* the loss's gradient */
  double *cell;
  int64_t tokens, rows, others, columns;
  int64_t start;        /* number of the first row */
  int32_t texts, pairs; /* of a pair; of a sequence or a group */
  int32_t answers;      /* of a pair; 0: rows are texts that ask */
  float scale;
  int32_t wide, add;
} ls_cuda_texts;

/* Roundings to fp8 and largest magnitudes; see cuda_fp8.cu. */
typedef struct ls_cuda_fp8 {
  ls_cuda_place in, out;
  const float *amax; /* of each row or of all; or what blocks found */
  float *made;
  int64_t rows, columns;
  uint32_t dropped; /* from here on as ls_fp8_grid has it */
  float least, magic, most;
  int32_t exponent;  /* of `most`, which is 0.875 of that power of two */
  int32_t infinity;  /* the format has it */
  int32_t own, wide; /* own: each row by its own */
  int32_t words;     /* of codes, read or made: a row's begin at multiples of 8 bytes */
} ls_cuda_fp8;

/* Codes of 8 bits of numbers that have been rounded to fp8; see cuda_fp8.cu. */
typedef struct ls_cuda_fp8_codes {
  ls_cuda_place in;
  uint8_t *codes;
  float *scales;            /* of each row of codes: what a code times it is the number */
  const float *amax;        /* of all of `in`, where it is turned */
  int64_t rows, columns;    /* of `in` that exist */
  int64_t stored, stride;   /* rows of codes, and codes of a row: zero where nothing exists */
  uint32_t dropped, offset; /* of the bits of a fp32: that a code has not, and what is taken off */
  float least, times;       /* least normal number; one over the least of all */
  int32_t exponent, infinity, wide; /* as above */
} ls_cuda_fp8_codes;

typedef struct ls_cuda_fp8_scales {
  ls_cuda_place out;
  const float *row_scales, *column_scales;
  const void *bias; /* of the output's type; NULL: none */
  int64_t rows, columns;
  int32_t wide;
} ls_cuda_fp8_scales;

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

/* Blocks of quantised weights, as words of 32 bits, and what their codes stand for where these are
 * of 4 bits; see cuda_blocks.cu. */
enum { LS_CUDA_CODES = 16 };
typedef struct ls_cuda_weight_blocks {
  const uint32_t *blocks;
  ls_cuda_place out;
  int64_t rows, columns, row_words;
  int32_t block_words, four_bits, wide;
  float values[LS_CUDA_CODES];
} ls_cuda_weight_blocks;

/* Blocks with scales of 8 bits, and as words those with scales in fp32; see cuda_blocks.cu. */
enum { LS_CUDA_SCALE_CODES = 256 };
typedef struct ls_cuda_scales {
  const uint8_t *blocks;
  const float *nested;
  uint32_t *made;
  int64_t rows, across; /* blocks of a row that exist */
  int64_t row_bytes, row_words;
  int64_t first, columns; /* which scale is the first one, and how far apart those of rows are */
  float codes[LS_CUDA_SCALE_CODES];
} ls_cuda_scales;

/* Pairs of answers; see cuda_pairs.cu. */
typedef struct ls_cuda_pairs {
  const int32_t *labels, *positions;
  const int32_t *row_of_token; /* NULL: the same */
  const int32_t *places;       /* of tokens; out_rows takes each one's row, from token `start` on */
  int32_t *out_rows;
  const float *largest, *sums, *targets;
  const double *reference, *scale;
  double *answers; /* by token, its document's */
  float *slopes;   /* how often each token's loss counts; or its share of its sequence's pairs */
  double *parts;   /* of each sequence, for each cell */
  double *cells[3];
  double beta, smoothing, own; /* own: with odds ratios, how often the chosen's own loss counts */
  int64_t tokens, sequence, sequences, start;
  int32_t add[3], add_slopes;
} ls_cuda_pairs;

/* What a token's experts are chosen by; see cuda_experts.cuh. */
typedef struct ls_cuda_scores {
  ls_cuda_place logits;
  const float *added; /* to each expert's score; NULL: nothing is */
  int32_t experts, sigmoid;
  int32_t groups, top_groups; /* groups: 0 where all experts may be chosen */
} ls_cuda_scores;

/* Distillation of the logits of another model, `its`; or of what it says of `top` ids a token,
 * which ascend. See cuda_distill.cu. */
typedef struct ls_cuda_distill {
  ls_cuda_place logits, its, sums, out; /* sums: LS_DISTILL_SUMS of each token */
  const float *largest, *its_largest;
  const int32_t *ids;
  const float *below;
  const int32_t *labels;
  const double *scale;
  double *cells[3];
  int64_t rows, columns, start, top;
  double inverse, share; /* 1 / T; the teacher's of the loss */
  int32_t wide, add[3];
} ls_cuda_distill;

/* Heads made wider or narrower, and their products with matrices of their own; see cuda_heads.cu.
 */
typedef struct ls_cuda_heads {
  ls_cuda_place x, shared, weight, out;
  int64_t tokens;
  int32_t heads, head_dim, columns; /* columns: of a head on the wide side */
  int32_t own, shared_columns;      /* of these a head's own, and behind them the shared */
  int32_t rows, weight_columns;     /* of a head's matrix */
} ls_cuda_heads;

/* Where tokens go among experts; see cuda_experts.cu. */
typedef struct ls_cuda_route {
  ls_cuda_scores of;
  ls_cuda_place out; /* of the logits' gradient */
  int32_t *places, *expert_of_row;
  float *weights, *slot_weights; /* by row; by token and choice */
  const float *dweights;
  int32_t *counts, *bases; /* of each tile by expert; where each expert's rows begin */
  int64_t tokens;
  int32_t experts, chosen, renormalise, tiles; /* experts: that rows are sorted by */
  float scale;
} ls_cuda_route;

/* How many tokens go to each expert, and what that costs; see cuda_router.cu. */
typedef struct ls_cuda_router {
  ls_cuda_scores of;
  ls_cuda_place out;   /* of the logits' gradient, or of gates */
  ls_cuda_place loads; /* of each sequence by expert, in fp32 or fp64 */
  const int32_t *labels;
  const float *weights;            /* how often each token counts; NULL: once */
  const double *root;              /* the loss's gradient; or loads that are added */
  double *told;                    /* loads of all sequences */
  double *parts;                   /* of the loss, a block each */
  int32_t *choices;                /* of each token; -1 where it has no label */
  int32_t *counts;                 /* of each sequence and part of its tokens, by expert */
  int64_t tokens, each, sequences; /* each: tokens of a sequence */
  double scale, z_scale;
  int32_t chosen, part_count, add;
} ls_cuda_router;

/* Rows of tokens to experts and back, and weighed. */
typedef struct ls_cuda_routed {
  ls_cuda_place in[2], out;
  const int32_t *places;
  const float *numbers; /* by row */
  float *slopes;        /* of those */
  int64_t rows, columns;
  int32_t chosen, wide, add_slopes;
} ls_cuda_routed;

/* Choices among experts: which are kept, which slot each has; see cuda_slots.cu. Of each choice
 * `rows` has its routed row, `experts` its expert or that of each row, `kept` a row or slot. */
typedef struct ls_cuda_slots {
  const int32_t *rows, *experts, *kept, *labels, *places;
  const float *numbers; /* weights or their gradient */
  int32_t *out_choices, *out_experts;
  float *out_numbers;
  double *cells;                        /* what is dropped by expert; or the loss */
  int32_t *sequences, *tokens_in_order; /* of places; NULL: tokens are in order */
  int32_t *dropped;                     /* of each sequence by expert */
  int64_t choices, tokens, sequence, slots, cell_count;
  int32_t chosen, none, held, ranks, add; /* none: behind the last expert */
} ls_cuda_slots;

/* Biases of experts, by the expert of each row, and weights of rows; see cuda_expert_bias.cu. */
typedef struct ls_cuda_expert_bias {
  ls_cuda_place in[2], bias, out;
  const int32_t *experts; /* of each row, rising */
  const float *numbers;   /* by row; NULL: rows are not weighed */
  float *slopes;          /* of those */
  int64_t rows, columns;
  int32_t held, first; /* experts whose biases the rank has */
  int32_t wide, add_slopes;
} ls_cuda_expert_bias;

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
  ls_cuda_place sinks;            /* of all heads; without data: there are none */
  const int32_t *positions;       /* documents; or in a cached sequence */
  int64_t tokens, sequence;
  int32_t heads, per_kv_head, head_dim;
  int32_t first_head, all_heads; /* ALiBi, sinks: of this rank's first, and of all */
  int32_t window, wide;
  int32_t parts;    /* sinks' gradient: of tokens */
  float *part_sums; /* of each and head */
  float scale, softcap, alibi;
} ls_cuda_attention;

/* Attention over a cache; see cuda_cached.cu. */
typedef struct ls_cuda_cached {
  ls_cuda_attention of;
  ls_cuda_place cache_k, cache_v; /* rows of all tokens before, and then of these */
  const int32_t *places;          /* of tokens; without sequences their positions */
  float *part_sums; /* of each part, query, head and share: head_dim sums, maximum, sum */
  int64_t out_part, log_sums_part; /* elements from part to part */
  int32_t parts;                   /* shares of each query's keys */
  int32_t ranks, number;           /* places go round so many parts, of which the first is here */
  int32_t cache_parts, part_rows;
} ls_cuda_cached;

/* Attention of tokens that have places; see cuda_placed.cuh. `of` has queries as tokens, and of a
 * ring's blocks the sum as log_sums. */
typedef struct ls_cuda_placed {
  ls_cuda_attention of;
  ls_cuda_place values, largest, sums; /* what blocks before have come to */
  ls_cuda_place largest_out;
  ls_cuda_place dots;                       /* backward: dout . out by token and head */
  const int32_t *query_places, *key_places; /* NULL: a row's place is its number */
  const int32_t *draws;
  const int32_t *behind; /* two_way: tokens of its document behind each; NULL: not told */
  int32_t *lasts;        /* and then the last of each, where documents are */
  int32_t *ranges;       /* of each 64 queries, and then of each 64 keys: least and last place */
  int64_t keys, site;
  uint32_t limit; /* dropout: see device/mask.h; what is kept is multiplied by `kept` */
  float kept;
  int32_t ring, begun; /* sums are not divided; and go on */
  int32_t two_way;
} ls_cuda_placed;

#endif
