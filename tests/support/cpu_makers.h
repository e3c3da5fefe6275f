/* A random case of every op that the CPU device has a kernel for: shapes that are multiples of
 * nothing, with padding. For tests that include support/cpu_case.h.
 *
 *   op_case c = {0};
 *   make_norm(&c);
 *   case_run_all(&c);
 */
#ifndef LS_TESTS_CPU_MAKERS_H
#define LS_TESTS_CPU_MAKERS_H

#include "base/sets.h"
#include "support/cpu_case.h"
#include "support/fp8_makers.h"

static inline void make_linear(op_case *c) {
  const int64_t n = any_rows(), m = any_size(), k = any_size(), pad = random_below(5);
  const operand nk = matrix_of(n, k, 2, pad), nm = matrix_of(n, m, 2, random_below(5));
  const operand mk = matrix_of(m, k, random_below(3), pad);
  c->kind = (ls_op_kind[]){LS_OP_LINEAR, LS_OP_LINEAR_DX, LS_OP_LINEAR_DW}[random_below(3)];
  c->inputs = 2, c->outputs = 1;
  switch (c->kind) {
    case LS_OP_LINEAR: c->in[0] = nk, c->in[1] = mk, c->out[0] = nm; break;
    case LS_OP_LINEAR_DX: c->in[0] = nm, c->in[1] = mk, c->out[0] = nk; break;
    default: c->in[0] = nm, c->in[1] = nk, c->out[0] = mk, c->out[0].kind = any_sums(); break;
  }
}

/* Products of weights in blocks; some of more weights than one panel has. */
static inline void make_linear_blocks(op_case *c) {
  const bool large = random_below(8) == 0;
  const int64_t n = large ? 9 : any_rows(), pad = random_below(5);
  const int64_t m = large ? 1300 + random_below(9) : any_size();
  const int64_t blocks = large ? 17 : 1 + random_below(5), k = blocks * LS_BLOCK_WEIGHTS;
  const operand nk = matrix_of(n, k, 2, pad), nm = matrix_of(n, m, 2, random_below(5));
  const bool forward = random_below(2);
  c->kind = forward ? LS_OP_LINEAR_BLOCKS : LS_OP_LINEAR_BLOCKS_DX;
  c->inputs = 2, c->outputs = 1;
  c->in[0] = forward ? nk : nm, c->out[0] = forward ? nm : nk;
  c->in[1] = matrix_of(m, blocks, random_below(3), random_below(2));
  c->in[1].kind = (operand_kind)(NF4_BLOCKS + random_below(3));
}

static inline void make_elementwise(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_ADD,       LS_OP_BIAS,        LS_OP_GELU,
                                     LS_OP_GELU_BWD,  LS_OP_SWIGLU,      LS_OP_SWIGLU_BWD,
                                     LS_OP_SOFTCAP,   LS_OP_SOFTCAP_BWD, LS_OP_SCALE,
                                     LS_OP_SCALE_BWD, LS_OP_DROPOUT,     LS_OP_DROPOUT_BWD};
  static const int inputs[] = {2, 2, 1, 2, 2, 3, 1, 2, 1, 1, 2, 2};
  const int64_t which = random_below(12), columns = random_below(4) ? any_size() : 2500;
  const operand matrix = matrix_of(any_rows(), columns, 2, random_below(4));
  c->kind = kinds[which];
  c->attributes.activation = (ls_activation)(1 + random_below(LS_ACTIVATION_COUNT - 1));
  if (c->kind == LS_OP_SWIGLU || c->kind == LS_OP_SWIGLU_BWD)
    c->attributes.activation = (ls_activation)random_below(LS_RELU); /* gates of the others */
  c->attributes.softcap = 1.5;
  c->attributes.scale = 1.7;
  c->inputs = inputs[which];
  c->outputs = c->kind == LS_OP_SWIGLU_BWD ? 2 : 1;
  for (int i = 0; i < c->inputs; i++) c->in[i] = matrix;
  for (int i = 0; i < c->outputs; i++) c->out[i] = matrix;
  if (c->kind == LS_OP_BIAS) c->in[1] = vector_of(COMPUTE, columns);
  const bool drops = c->kind == LS_OP_DROPOUT || c->kind == LS_OP_DROPOUT_BWD;
  if (drops) c->in[1] = vector_of(INDEX, matrix.dims[0]);
  c->attributes.dropout = 0.3;
  c->attributes.site = 1 + random_below(5);
  c->in_place = c->kind == LS_OP_ADD || c->kind == LS_OP_BIAS || c->kind == LS_OP_GELU_BWD ||
                c->kind == LS_OP_SOFTCAP || c->kind == LS_OP_SOFTCAP_BWD ||
                c->kind == LS_OP_SCALE || c->kind == LS_OP_SCALE_BWD || drops;
}

static inline void make_norm_of(op_case *c, int64_t rows, int64_t columns) {
  const operand matrix = matrix_of(rows, columns, 1, random_below(3));
  const operand of_columns = vector_of(COMPUTE, columns), sums = vector_of(any_sums(), columns);
  const operand of_rows = vector_of(SUMS, rows), scales = vector_of(POSITIVE, rows);
  static const ls_op_kind kinds[] = {LS_OP_LAYERNORM, LS_OP_RMSNORM, LS_OP_LAYERNORM_BWD,
                                     LS_OP_RMSNORM_BWD};
  c->attributes.epsilon = 1e-5;
  c->kind = kinds[random_below(4)];
  if (c->kind == LS_OP_RMSNORM || c->kind == LS_OP_RMSNORM_BWD)
    c->attributes.weight_offset = (double)random_below(2);
  switch (c->kind) {
    case LS_OP_LAYERNORM:
      c->inputs = 3, c->outputs = 3;
      c->in[0] = matrix, c->in[1] = of_columns, c->in[2] = of_columns;
      c->out[0] = matrix, c->out[1] = of_rows, c->out[2] = of_rows;
      break;
    case LS_OP_RMSNORM:
      c->inputs = 2, c->outputs = 2;
      c->in[0] = matrix, c->in[1] = of_columns;
      c->out[0] = matrix, c->out[1] = of_rows;
      break;
    case LS_OP_LAYERNORM_BWD:
      c->inputs = 5, c->outputs = 3;
      c->in[0] = matrix, c->in[1] = matrix, c->in[2] = of_columns;
      c->in[3] = of_rows, c->in[4] = scales;
      c->outputs -= (int)random_below(3); /* without what is frozen */
      c->out[0] = matrix, c->out[1] = sums, c->out[2] = sums;
      break;
    default:
      c->inputs = 4, c->outputs = 2 - (int)random_below(2);
      c->in[0] = matrix, c->in[1] = matrix, c->in[2] = of_columns, c->in[3] = scales;
      c->out[0] = matrix, c->out[1] = sums;
      break;
  }
}

static inline void make_norm(op_case *c) {
  const int64_t rows = any_rows();
  make_norm_of(c, rows, random_below(3) ? 2 + any_size() : 2500);
}

/* Heads' norms: rows of whole heads, which are not padded. */
static inline void make_headnorm(op_case *c) {
  static const int64_t head_dims[] = {2, 20, 64, 129};
  const int64_t rows = any_rows(), d = pick(head_dims, 4), heads = 1 + random_below(5);
  const operand matrix = matrix_of(rows, heads * d, 1, 0), of_columns = vector_of(COMPUTE, d);
  operand of_heads = matrix_of(rows, heads, 1, 0);
  of_heads.kind = SUMS;
  c->attributes.epsilon = 1e-5;
  c->attributes.weight_offset = (double)random_below(2);
  c->kind = random_below(2) ? LS_OP_HEADNORM : LS_OP_HEADNORM_BWD;
  c->outputs = 2;
  c->out[0] = matrix;
  if (c->kind == LS_OP_HEADNORM) {
    c->inputs = 2;
    c->in[0] = matrix, c->in[1] = of_columns;
    c->out[1] = of_heads;
    return;
  }
  of_heads.kind = POSITIVE;
  c->inputs = 4;
  c->outputs -= (int)random_below(2);
  c->in[0] = c->in[1] = matrix, c->in[2] = of_columns, c->in[3] = of_heads;
  c->out[1] = vector_of(any_sums(), d);
}

/* The norm in two ops, of rows whose columns are cut. */
static inline void make_row(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_ROW_SQUARES, LS_OP_ROW_SQUARES_BWD, LS_OP_ROW_SCALE,
                                     LS_OP_ROW_SCALE_BWD};
  const int64_t rows = any_rows(), columns = random_below(3) ? any_size() : 1300;
  const operand matrix = matrix_of(rows, columns, 1, random_below(3));
  const operand of_columns = vector_of(COMPUTE, columns), of_rows = vector_of(SUMS, rows);
  c->kind = kinds[random_below(4)];
  c->attributes.epsilon = 1e-5;
  c->attributes.columns = 2 * columns;
  c->outputs = 1;
  c->out[0] = matrix;
  switch (c->kind) {
    case LS_OP_ROW_SQUARES:
      c->inputs = 1;
      c->in[0] = matrix, c->out[0] = of_rows;
      break;
    case LS_OP_ROW_SQUARES_BWD:
      c->inputs = 2;
      c->in[0] = of_rows, c->in[1] = matrix;
      break;
    case LS_OP_ROW_SCALE:
      c->inputs = 3;
      c->in[0] = matrix, c->in[1] = of_columns, c->in[2] = vector_of(POSITIVE, rows);
      break;
    default:
      c->inputs = 4, c->outputs = 3;
      c->in[0] = c->in[1] = matrix, c->in[2] = of_columns, c->in[3] = vector_of(POSITIVE, rows);
      c->out[1] = vector_of(any_sums(), columns), c->out[2] = of_rows;
  }
}

/* Products of rows of several experts, some of which have none. */
static inline void make_grouped(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_GROUPED_UP,      LS_OP_GROUPED_UP_DX,
                                     LS_OP_GROUPED_UP_DW,   LS_OP_GROUPED_DOWN,
                                     LS_OP_GROUPED_DOWN_DX, LS_OP_GROUPED_DOWN_DW};
  const int64_t rows = any_rows(), whole = any_size(), cut = any_size(), pad = random_below(4);
  const int64_t experts = 1 + random_below(6), held = 1 + random_below(experts);
  const operand wide = matrix_of(rows, whole, 0, 0), narrow = matrix_of(rows, cut, 0, pad);
  operand weights = matrix_of(held * whole, cut, 0, pad);
  weights.start[0] = random_below(experts - held + 1) * whole;
  c->kind = kinds[random_below(6)];
  c->attributes.experts = experts;
  c->inputs = 3, c->outputs = 1;
  c->in[2] = vector_of(EXPERTS, rows);
  c->in[2].range = experts;
  switch (c->kind) {
    case LS_OP_GROUPED_UP:
    case LS_OP_GROUPED_DOWN_DX: c->in[0] = wide, c->in[1] = weights, c->out[0] = narrow; break;
    case LS_OP_GROUPED_UP_DX:
    case LS_OP_GROUPED_DOWN: c->in[0] = narrow, c->in[1] = weights, c->out[0] = wide; break;
    default: c->in[0] = wide, c->in[1] = narrow, c->out[0] = weights; c->out[0].kind = any_sums();
  }
}

/* Where tokens go, and the gradient of that. */
static inline void make_route(op_case *c) {
  static const int64_t counts[] = {1, 3, 16, 128, 515};
  const int64_t tokens = any_rows(), experts = pick(counts, 5);
  const int64_t chosen = 1 + random_below(experts < 8 ? experts : 8);
  operand logits = matrix_of(tokens, experts, 2, 0), rows = matrix_of(tokens, chosen, 0, 0);
  operand of_row = vector_of(EXPERTS, tokens * chosen);
  rows.kind = ROUTED;
  of_row.range = experts;
  c->attributes.renormalise = random_below(2);
  if (experts % 4 == 0 && random_below(2)) {
    c->attributes.groups = 4;
    c->attributes.top_groups = 3;
    c->attributes.scale = 2.5;
  }
  c->kind = LS_OP_ROUTE;
  if (random_below(2) && chosen == 1) { /* of several a token has each expert once */
    c->kind = LS_OP_ROUTE_BWD;
    c->attributes.sigmoid = random_below(2); /* of which two are equal by chance */
    c->inputs = 4, c->outputs = 1;
    c->in[0] = vector_of(SUMS, tokens * chosen), c->in[1] = logits;
    c->in[2] = rows, c->in[3] = of_row;
    c->out[0] = logits;
    c->floor = 1e-6; /* of one expert alone: 0 */
    return;
  }
  c->inputs = 1, c->outputs = 3, c->no_add = true;
  c->in[0] = logits;
  c->out[0] = rows, c->out[1] = of_row, c->out[2] = vector_of(SUMS, tokens * chosen);
}

/* What routers pay, by loads of each sequence; and gates of one column. */
static inline void make_router(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_ROUTER_LOSS_EACH, LS_OP_ROUTER_LOSS_EACH_BWD,
                                     LS_OP_ROW_SIGMOID, LS_OP_ROW_SIGMOID_BWD};
  static const int64_t counts[] = {1, 3, 16, 128, 515};
  const int64_t sequences = 1 + random_below(3), tokens = sequences * (1 + random_below(40));
  const int64_t experts = pick(counts, 5);
  const operand logits = matrix_of(tokens, experts, 0, 0), column = matrix_of(tokens, 1, 0, 0);
  operand labels = vector_of(INDEX, tokens), loads = matrix_of(sequences, experts, 0, 0);
  operand weights = vector_of(SUMS, tokens);
  labels.range = 9;
  loads.kind = weights.kind = POSITIVE;
  c->kind = kinds[random_below(4)];
  c->attributes.sigmoid = random_below(2);
  c->attributes.scale = 0.7;
  c->attributes.z_scale = 0.1;
  c->floor = 1e-6; /* of one expert alone: 0 */
  c->outputs = 1;
  switch (c->kind) {
    case LS_OP_ROUTER_LOSS_EACH:
      c->inputs = 3 + (int)random_below(2);
      c->in[0] = logits, c->in[1] = labels, c->in[2] = loads, c->out[0] = cell_of(1.25);
      c->in[3] = weights;
      break;
    case LS_OP_ROUTER_LOSS_EACH_BWD:
      c->inputs = 4 + (int)random_below(2);
      c->in[0] = logits, c->in[1] = labels, c->in[2] = loads, c->in[3] = cell_of(0.5);
      c->in[4] = weights;
      c->out[0] = logits;
      break;
    case LS_OP_ROW_SIGMOID:
      c->inputs = 1;
      c->in[0] = column, c->out[0] = vector_of(SUMS, tokens);
      break;
    default:
      c->inputs = 2;
      c->in[0] = vector_of(SUMS, tokens), c->in[1] = column, c->out[0] = column;
  }
}

/* Loads, which are whole numbers, and losses by those of all. */
static inline void make_loads(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_ROUTER_LOADS, LS_OP_ROUTER_LOADS_EACH,
                                     LS_OP_ROUTER_TOTAL, LS_OP_ROUTER_LOSS, LS_OP_ROUTER_LOSS_BWD};
  static const int64_t counts[] = {3, 16, 128};
  const int64_t sequences = 1 + random_below(3), tokens = sequences * (1 + random_below(40));
  const int64_t experts = pick(counts, 3);
  const operand logits = matrix_of(tokens, experts, 0, 0);
  operand labels = vector_of(INDEX, tokens), loads = matrix_of(1, experts, 0, 0);
  labels.range = 9;
  loads.kind = CELL, loads.value = 1.5;
  c->kind = kinds[random_below(5)];
  c->attributes.chosen = 1 + random_below(3);
  if (experts % 4 == 0 && random_below(2)) c->attributes.groups = 4, c->attributes.top_groups = 2;
  c->attributes.scale = 0.7;
  c->attributes.z_scale = 0.1;
  c->inputs = c->outputs = 2;
  c->no_add = c->kind != LS_OP_ROUTER_LOSS && c->kind != LS_OP_ROUTER_LOSS_BWD;
  c->in[0] = logits, c->in[1] = labels, c->out[0] = c->out[1] = loads;
  if (c->kind == LS_OP_ROUTER_LOADS_EACH) {
    c->out[1] = matrix_of(sequences, experts, 0, 0);
    c->out[1].kind = SUMS;
  }
  if (c->kind == LS_OP_ROUTER_TOTAL) c->in[0] = c->in[1] = loads, c->outputs = 1;
  if (c->no_add) return;
  c->inputs = c->kind == LS_OP_ROUTER_LOSS ? 3 : 4;
  c->outputs = 1;
  c->in[2] = loads, c->in[3] = cell_of(0.5);
  c->out[0] = c->kind == LS_OP_ROUTER_LOSS ? cell_of(1.25) : logits;
}

/* Rows of tokens to experts and back, and their weights. */
static inline void make_routed(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_DISPATCH,    LS_OP_DISPATCH_BWD, LS_OP_COMBINE,
                                     LS_OP_COMBINE_BWD, LS_OP_WEIGH,        LS_OP_WEIGH_BWD};
  const int64_t tokens = any_rows(), columns = random_below(3) ? any_size() : 1300;
  const int64_t chosen = 1 + random_below(4), pad = random_below(3);
  const operand own = matrix_of(tokens, columns, 0, pad);
  const operand routed = matrix_of(tokens * chosen, columns, 0, pad);
  c->kind = kinds[random_below(6)];
  c->inputs = 2, c->outputs = 1;
  c->in[1] = matrix_of(tokens, chosen, 0, 0);
  c->in[1].kind = ROUTED;
  const bool spreads = c->kind == LS_OP_DISPATCH || c->kind == LS_OP_COMBINE_BWD;
  c->in[0] = spreads ? own : routed;
  c->out[0] = spreads ? routed : own;
  if (c->kind == LS_OP_WEIGH) {
    c->in[1] = vector_of(SUMS, tokens * chosen);
    c->out[0] = routed;
    c->in_place = true;
  }
  if (c->kind == LS_OP_WEIGH_BWD) {
    c->inputs = 3, c->outputs = 2;
    c->in[1] = c->out[0] = routed;
    c->in[2] = c->out[1] = vector_of(SUMS, tokens * chosen);
  }
}

static inline void make_embedding(op_case *c) {
  const int64_t tokens = any_rows(), columns = random_below(3) ? any_size() : 1100;
  const int64_t vocabulary = any_size();
  operand table = matrix_of(vocabulary, columns, random_below(3), 0),
          ids = vector_of(INDEX, tokens);
  table.start[0] = random_below(20);
  ids.range = vocabulary + 30;
  const operand matrix = matrix_of(tokens, columns, 2, 0);
  c->inputs = 2, c->outputs = 1;
  c->attributes.scale = random_below(2) ? 6.5 : 0;
  c->in[1] = ids;
  if (random_below(2)) {
    c->kind = LS_OP_EMBEDDING;
    c->in[0] = table, c->out[0] = matrix;
  } else {
    c->kind = LS_OP_EMBEDDING_DW;
    c->in[0] = matrix, c->out[0] = table;
    c->out[0].kind = any_sums();
    c->writes_all = true;
  }
}

static inline void make_bias_db(op_case *c) {
  const int64_t columns = random_below(3) ? any_size() : 2100;
  c->kind = LS_OP_BIAS_DB;
  c->inputs = c->outputs = 1;
  c->in[0] = matrix_of(any_rows(), columns, 1, random_below(3));
  c->out[0] = vector_of(any_sums(), columns);
}

static inline void make_rope(op_case *c) {
  static const int64_t head_dims[] = {2, 6, 32, 64, 128, 2048};
  const int64_t rows = any_rows(), head_dim = pick(head_dims, 6), heads = 1 + random_below(5);
  c->kind = random_below(2) ? LS_OP_ROPE : LS_OP_ROPE_BWD;
  const int64_t turned = random_below(2) ? head_dim : 2 * (1 + random_below(head_dim / 2));
  c->attributes.head_dim = head_dim;
  c->inputs = 2, c->outputs = 1;
  c->in[0] = c->out[0] = matrix_of(rows, heads * head_dim, 1, 0);
  c->in[1] = matrix_of(rows, turned, 1, 0);
  c->in[1].kind = SUMS;
  c->in_place = true;
}

/* Other columns of each head than the first, or neighbours. */
static inline void make_rope_columns(op_case *c) {
  make_rope(c);
  c->attributes.rope_first = random_below(c->attributes.head_dim - c->in[1].valid[1] + 1);
  c->attributes.rope_neighbours = random_below(2);
}

/* Heads made wider, with and without what they share, or narrower. */
static inline void make_heads(op_case *c) {
  static const int64_t sizes[] = {1, 6, 64, 129, 1100};
  static const ls_op_kind kinds[] = {LS_OP_HEADS, LS_OP_HEADS_BWD, LS_OP_HEADS_SHARED_BWD};
  const int64_t rows = any_rows(), heads = 1 + random_below(5);
  const int64_t own = pick(sizes, 5), columns = pick(sizes, 5), shared = pick(sizes, 4);
  const operand x = matrix_of(rows, heads * own, 1, 0), y = matrix_of(rows, heads * columns, 1, 0);
  c->kind = kinds[random_below(3)];
  c->attributes.head_dim = own;
  c->attributes.columns = columns;
  c->inputs = c->outputs = 1;
  c->in[0] = c->kind == LS_OP_HEADS ? x : y;
  c->out[0] = c->kind == LS_OP_HEADS ? y : x;
  if (c->kind == LS_OP_HEADS_SHARED_BWD) c->out[0] = matrix_of(rows, shared, 1, 0);
  if (c->kind != LS_OP_HEADS || random_below(3) == 0) return;
  c->inputs = 2;
  c->in[1] = matrix_of(rows, shared, 1, 0);
}

/* Products of each head with a matrix of its own. */
static inline void make_heads_product(op_case *c) {
  static const int64_t rows_of[] = {1, 5, 70}, columns_of[] = {1, 6, 65, 530};
  const int64_t rows = any_rows(), heads = 1 + random_below(3);
  const int64_t own = pick(rows_of, 3), columns = pick(columns_of, 4), more = random_below(3) * 20;
  const operand weight = matrix_of(heads * own, columns, 0, 0);
  c->inputs = 2, c->outputs = 1;
  c->in[1] = weight;
  if (random_below(2)) {
    c->kind = LS_OP_HEADS_UP;
    c->attributes.head_dim = own + more;
    c->attributes.columns = columns + more;
    c->in[0] = matrix_of(rows, heads * (own + more), 1, 0);
    c->out[0] = matrix_of(rows, heads * (columns + more), 1, 0);
    return;
  }
  c->kind = LS_OP_HEADS_DOWN;
  c->attributes.head_dim = columns + more;
  c->in[0] = matrix_of(rows, heads * (columns + more), 1, 0);
  c->out[0] = matrix_of(rows, heads * own, 1, 0);
}

static inline void make_cross_entropy(op_case *c) {
  const int64_t rows = any_rows(), columns = random_below(3) ? any_size() : 2500;
  operand logits = matrix_of(rows, columns, 1, random_below(4)), labels = vector_of(INDEX, rows);
  logits.start[1] = random_below(20);
  labels.range = columns + 30;
  const operand sums = vector_of(SUMS, rows);
  c->in[0] = logits;
  c->out[0] = sums;
  c->inputs = 1, c->outputs = 1;
  c->kind = (ls_op_kind[]){LS_OP_XENT_MAX, LS_OP_XENT_SUM, LS_OP_XENT_GRAD, LS_OP_XENT_SUM_EACH,
                           LS_OP_XENT_GRAD_EACH}[random_below(5)];
  switch (c->kind) {
    case LS_OP_XENT_MAX: c->no_add = true; break;
    case LS_OP_XENT_SUM:
    case LS_OP_XENT_SUM_EACH:
      c->inputs = 3, c->outputs = 2;
      c->in[1] = sums, c->in[2] = labels;
      c->out[1] = sums;
      break;
    default:
      c->inputs = 5;
      c->in[1] = sums, c->in[2] = vector_of(POSITIVE, rows), c->in[3] = labels;
      c->in[4] = c->kind == LS_OP_XENT_GRAD ? cell_of(0.37) : sums;
      c->out[0] = logits;
      c->in_place = true;
      break;
  }
}

static inline void make_several(op_case *c) {
  const int64_t rows = any_rows(), columns = 1 + random_below(random_below(4) ? 20 : 700);
  operand logits = matrix_of(rows, columns, 1, random_below(4)), labels = vector_of(INDEX, rows);
  logits.start[1] = random_below(70);
  labels.range = 3;
  operand sets = matrix_of(rows, ls_set_words(logits.start[1] + columns), 0, 0);
  sets.kind = INDEX;
  sets.range = INT32_MAX;
  c->kind = random_below(2) ? LS_OP_BCE_SUM : LS_OP_BCE_GRAD;
  c->attributes = (ls_attributes){.scale = 1.0 / 31};
  const bool back = c->in_place = c->kind == LS_OP_BCE_GRAD;
  c->in[0] = logits, c->in[1] = labels, c->in[2] = sets, c->in[3] = cell_of(0.37);
  c->in[3 + back] = vector_of(DOUBLES, columns);
  c->outputs = 1;
  c->inputs = 3 + back + (int)random_below(2);
  c->out[0] = back ? logits : vector_of(SUMS, rows);
}

/* Of texts the sums of tokens, here of a part of the rows; and scores of those that ask with the
 * answers of their group, which begins before. */
static inline void make_texts(op_case *c) {
  const int64_t pairs = 1 + random_below(9), texts = 2 + random_below(2),
                groups = 1 + random_below(3);
  const int64_t columns = random_below(4) ? any_size() : 2500, rows = 1 + random_below(pairs);
  const int64_t answers = groups * pairs * (texts - 1);
  static const ls_op_kind kinds[] = {LS_OP_TEXT_SUMS, LS_OP_TEXT_SUMS_BWD, LS_OP_TEXT_MATCH,
                                     LS_OP_TEXT_MATCH_BWD};
  c->kind = kinds[random_below(4)];
  c->attributes = (ls_attributes){.pairs = pairs,
                                  .texts = texts,
                                  .answers = random_below(2),
                                  .scale = 2 / sqrt((double)columns)};
  operand tokens = matrix_of(any_rows(), columns, 2, random_below(4));
  operand asking = matrix_of(rows, columns, 0, 0), all = matrix_of(answers, columns, 0, 0);
  operand labels = vector_of(INDEX, tokens.dims[0]);
  labels.range = 3 * pairs * texts;
  asking.kind = all.kind = SUMS;
  asking.start[0] = random_below(groups * pairs - rows + 1);
  const bool back = c->kind == LS_OP_TEXT_SUMS_BWD;
  c->inputs = 2, c->outputs = 1;
  c->in[0] = back ? asking : tokens, c->in[1] = labels, c->out[0] = back ? tokens : asking;
  if (c->kind == LS_OP_TEXT_SUMS || back) return;
  const operand each = vector_of(SUMS, rows);
  c->inputs = 4, c->outputs = 3;
  c->in[0] = asking, c->in[1] = each, c->in[2] = all, c->in[3] = vector_of(SUMS, answers);
  for (int o = 0; o < 3; o++) c->out[o] = each;
  if (c->kind == LS_OP_TEXT_MATCH) return;
  c->inputs = 6, c->outputs = 2;
  c->in[4] = vector_of(POSITIVE, rows), c->in[5] = cell_of(0.37);
  c->out[0] = asking, c->out[1] = all;
}

/* Of a teacher's logits, or of its likeliest ids. */
static inline void make_distillation(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_DISTILL_SUM, LS_OP_DISTILL_GRAD, LS_OP_DISTILL_TOP_SUM,
                                     LS_OP_DISTILL_TOP_GRAD};
  const int64_t rows = any_rows(), columns = random_below(3) ? any_size() : 2500;
  const int64_t top = 1 + random_below(columns + 30 < 70 ? columns + 30 : 70);
  operand logits = matrix_of(rows, columns, 1, random_below(4)), labels = vector_of(INDEX, rows);
  operand sums = matrix_of(rows, LS_DISTILL_SUMS, 1, 0);
  logits.start[1] = random_below(20);
  labels.range = columns + 30;
  c->kind = kinds[random_below(4)];
  c->attributes = (ls_attributes){.softmax_scale = random_below(2) ? 1 : 0.4,
                                  .scale = random_below(3) ? 0.3 : 1};
  c->in[0] = c->in[2] = logits;
  c->in[1] = c->in[3] = vector_of(SUMS, rows);
  c->inputs = 5, c->outputs = 1;
  if (c->kind == LS_OP_DISTILL_TOP_SUM || c->kind == LS_OP_DISTILL_TOP_GRAD) {
    c->in[2] = c->in[3] = matrix_of(rows, top, 1, 0);
    c->in[2].kind = ASCENDING, c->in[3].kind = SUMS;
    c->in[2].range = columns + 30;
  }
  if (c->kind == LS_OP_DISTILL_SUM || c->kind == LS_OP_DISTILL_TOP_SUM) {
    c->in[4] = labels;
    sums.kind = SUMS;
    c->out[0] = sums;
    return;
  }
  sums.kind = POSITIVE;
  c->inputs = 7;
  c->in[4] = sums, c->in[5] = labels, c->in[6] = cell_of(0.37);
  c->out[0] = logits;
  c->in_place = true;
  c->floor = 1e-6; /* of one column alone: shares of 1 less 1 */
}

static inline void make_optimizer(op_case *c) {
  const int64_t count = random_below(3) ? any_size() : 20001;
  const bool flat = random_below(2);
  operand gradient = flat ? vector_of(SUMS, count) : matrix_of(any_rows(), 67, 2, 3);
  gradient.kind = SUMS;
  operand positive = gradient;
  positive.kind = POSITIVE;
  c->attributes = (ls_attributes){.epsilon = 1e-8,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .weight_decay = 0.1,
                                  .rate = 0.5,
                                  .weight = 0.25};
  c->in[0] = gradient;
  c->in[0].kind = any_sums();
  c->kind = (ls_op_kind[]){LS_OP_SQUARED_NORM,  LS_OP_ADAMW,           LS_OP_SGD,
                           LS_OP_LION,          LS_OP_ADAMW_SPECULATE, LS_OP_SGD_SPECULATE,
                           LS_OP_LION_SPECULATE}[random_below(7)];
  if (c->kind == LS_OP_SQUARED_NORM) {
    c->inputs = 1, c->outputs = 1;
    c->out[0] = cell_of(3.5);
    return;
  }
  const bool ahead = !ls_op_row(c->kind)->updates;
  operand moment = gradient;
  if (c->kind == LS_OP_LION || c->kind == LS_OP_LION_SPECULATE) moment.kind = SIGNED;
  c->in[1] = cell_of(3e-3), c->in[2] = cell_of((double)(1 + random_below(50)));
  c->in[3] = cell_of(ahead || random_below(4) ? 0.7 : 0);
  c->no_add = true;
  if (ahead) {
    c->inputs = c->kind == LS_OP_ADAMW_SPECULATE ? 7 : 6, c->outputs = 1;
    c->in[4] = gradient, c->in[5] = moment, c->in[6] = positive;
    c->out[0] = gradient;
    c->out[0].kind = random_below(2) ? SUMS : COMPUTE;
    return;
  }
  c->inputs = 4, c->outputs = c->kind == LS_OP_ADAMW ? 3 : 2;
  c->out[0] = gradient, c->out[1] = moment, c->out[2] = positive;
  c->updates = true;
}

static inline void make_schedulefree(op_case *c) {
  const int64_t count = random_below(3) ? any_size() : 20001;
  operand gradient = random_below(2) ? vector_of(SUMS, count) : matrix_of(any_rows(), 67, 2, 3);
  gradient.kind = SUMS;
  operand positive = gradient;
  positive.kind = POSITIVE;
  c->attributes = (ls_attributes){.epsilon = 1e-8,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .weight_decay = 0.1,
                                  .rate = 0.5,
                                  .warmup = (double)random_below(30)};
  c->no_add = true;
  c->in[0] = gradient;
  if (random_below(3) == 0) {
    c->kind = LS_OP_SCHEDULEFREE_POINT;
    c->inputs = 2, c->outputs = 1;
    c->in[1] = c->out[0] = gradient;
    c->out[0].kind = random_below(2) ? SUMS : COMPUTE;
    return;
  }
  c->kind = LS_OP_SCHEDULEFREE;
  c->in[0].kind = any_sums();
  c->in[1] = cell_of(3e-3), c->in[2] = cell_of((double)(1 + random_below(50)));
  c->in[3] = cell_of(random_below(4) ? 0.7 : 0);
  c->inputs = 4, c->outputs = 3;
  c->out[0] = c->out[1] = gradient, c->out[2] = positive;
  c->updates = true;
}

static inline void make_move(op_case *c) {
  const int64_t rows = any_rows(), columns = any_size(), skipped = random_below(3);
  c->inputs = c->outputs = 1;
  c->kind = random_below(2) ? LS_OP_COPY : LS_OP_CAST;
  if (random_below(2)) {
    c->in[0] = c->out[0] = matrix_of(rows, columns, 2, random_below(3));
  } else {
    c->in[0] = c->out[0] = vector_of(COMPUTE, random_below(2) ? 20003 : rows);
  }
  if (c->kind == LS_OP_COPY) {
    c->in[0].start[0] = 7;
    c->out[0].start[0] = 7 + skipped;
    c->in[0].dims[0] += skipped;
    c->in[0].valid[0] += skipped;
  } else {
    c->out[0].kind = random_below(2) ? SUMS : COMPUTE;
    c->in[0].kind = random_below(2) ? SUMS : COMPUTE;
  }
}

/* Windows, caps and slopes by distance, alone and together; the rank's heads begin at the third. */
static inline void bend_attention(op_case *c, operand *q) {
  static const int64_t windows[] = {1, 5, 63, 64, 100};
  if (random_below(2)) c->attributes.window = pick(windows, 5);
  if (random_below(3) == 0) c->attributes.softcap = 2;
  if (random_below(3)) return;
  c->attributes.alibi = 0.5;
  c->attributes.heads = 11;
  q->start[1] = 2 * c->attributes.head_dim;
}

/* The op's operands, for `sequences` of `length` tokens. */
static inline void attention_operands(op_case *c, ls_op_kind kind, int64_t length,
                                      int64_t sequences, int64_t head_dim, int64_t kv_heads,
                                      int64_t group) {
  const int64_t tokens = length * sequences, columns = kv_heads * head_dim;
  c->kind = kind;
  c->attributes.head_dim = head_dim;
  c->attributes.sequence = length;
  c->attributes.softmax_scale = 1 / sqrt((double)head_dim);
  operand q = matrix_of(tokens, group * columns, length, 0);
  const operand kv = matrix_of(tokens, columns, length, 0);
  bend_attention(c, &q);
  operand lse = matrix_of(tokens, group * kv_heads, length, 0);
  lse.kind = SUMS;
  if (kind == LS_OP_ATTENTION) {
    c->inputs = 3, c->outputs = 2;
    c->in[0] = q, c->in[1] = c->in[2] = kv;
    c->out[0] = q, c->out[1] = lse;
    if (random_below(4) == 0) c->out[0].kind = SUMS;
  } else {
    c->inputs = 6, c->outputs = 3;
    c->floor = 4e-6; /* one token alone: do . v is do . o */
    c->in[0] = c->in[1] = q, c->in[2] = c->in[3] = kv, c->in[4] = q, c->in[5] = lse;
    c->out[0] = q, c->out[1] = c->out[2] = kv;
  }
}

static inline void make_attention(op_case *c) {
  static const int64_t head_dims[] = {3, 16, 32, 48, 64, 72, 128};
  static const int64_t lengths[] = {1, 3, 17, 64, 65, 130};
  const ls_op_kind kind = random_below(2) ? LS_OP_ATTENTION : LS_OP_ATTENTION_BWD;
  attention_operands(c, kind, pick(lengths, 6), random_below(8) ? 1 + random_below(3) : 0,
                     pick(head_dims, 7), 1 + random_below(2), 1 + random_below(3));
  c->attributes.two_way = !(c->attributes.alibi > 0) && random_below(3) == 0;
}

/* More tokens and heads than a block of queries holds, caches shorter and longer than one of keys.
 */
static inline void make_cached_attention(op_case *c) {
  static const int64_t head_dims[] = {3, 16, 64, 72, 128};
  static const int64_t counts[] = {0, 1, 1, 5, 33, 130};
  const int64_t d = pick(head_dims, 5), tokens = pick(counts, 6);
  const bool placed = random_below(2);
  const int64_t rows = (1 + tokens + random_below(150)) * (placed ? 1 + random_below(3) : 1);
  const int64_t kv_heads = 1 + random_below(3), heads = kv_heads * (1 + random_below(4));
  c->attributes.head_dim = d;
  c->attributes.softmax_scale = 1 / sqrt((double)d);
  c->kind = LS_OP_CACHED_ATTENTION;
  c->inputs = 6 + placed, c->outputs = 1;
  operand q = matrix_of(tokens, heads * d, 1, 0);
  bend_attention(c, &q);
  c->in[0] = c->out[0] = q;
  c->in[1] = c->in[2] = matrix_of(tokens, kv_heads * d, 1, 0);
  c->in[3] = c->in[4] = matrix_of(rows, kv_heads * d, 2, 0);
  c->in[5] = c->in[6] = vector_of(INDEX, tokens);
}

/* Of a call of attention: sinks of all heads, of which the rank's begin at the third. */
static inline void add_sinks(op_case *c, int input) {
  const int64_t head_dim = c->attributes.head_dim;
  c->in[0].start[1] = 2 * head_dim;
  c->in[input] = vector_of(COMPUTE, 3 + c->in[0].dims[1] / head_dim);
}

static inline void make_sink_attention(op_case *c) {
  do {
    *c = (op_case){0};
    make_attention(c);
  } while (c->kind != LS_OP_ATTENTION);
  c->kind = LS_OP_SINK_ATTENTION;
  c->inputs = 4;
  add_sinks(c, 3);
}

static inline void make_cached_sinks(op_case *c) {
  do {
    *c = (op_case){0};
    make_cached_attention(c);
  } while (c->inputs < 7);
  c->inputs = 8;
  add_sinks(c, 7);
}

static inline void make_sink_bwd(op_case *c) {
  const int64_t rows = any_rows(), heads = 1 + random_below(5);
  c->kind = LS_OP_SINK_BWD;
  c->attributes.head_dim = any_size();
  c->inputs = 4, c->outputs = 1;
  c->in[0] = c->in[1] = matrix_of(rows, heads * c->attributes.head_dim, 0, 0);
  c->in[2] = matrix_of(rows, heads, 0, 0);
  c->in[2].kind = SUMS;
  add_sinks(c, 3);
  c->out[0] = c->in[3];
  c->out[0].kind = any_sums();
  c->floor = 2e-3; /* a few sums of up to 66,000 terms each, by fp32 */
}

/* Gates beside their ups, some beyond the limit. */
static inline void make_paired(op_case *c) {
  const int64_t rows = any_rows(), columns = random_below(3) ? any_size() : 1300;
  const int64_t pad = random_below(3);
  const operand pairs = matrix_of(rows, 2 * columns, 2, 2 * pad);
  const operand made = matrix_of(rows, columns, 2, pad);
  const bool back = random_below(2);
  c->kind = back ? LS_OP_PAIRED_GLU_BWD : LS_OP_PAIRED_GLU;
  c->attributes.gate_limit = 0.75;
  c->attributes.gate_slope = 1.7;
  c->inputs = 1 + back, c->outputs = 1;
  c->in[0] = back ? made : pairs, c->in[1] = pairs;
  c->out[0] = back ? pairs : made;
}

/* A rank has the biases of some experts. */
static inline void make_grouped_bias(op_case *c) {
  const int64_t rows = any_rows(), columns = random_below(3) ? any_size() : 1300;
  const int64_t experts = 1 + random_below(6), held = 1 + random_below(experts);
  const int64_t pad = random_below(4);
  operand bias = matrix_of(held, columns, 0, pad), of_rows = vector_of(EXPERTS, rows);
  bias.start[0] = random_below(experts - held + 1);
  of_rows.range = experts;
  c->outputs = 1;
  c->in[0] = matrix_of(rows, columns, 2, pad);
  const bool weighed = random_below(2), forward = random_below(2);
  if (forward) {
    c->kind = weighed ? LS_OP_GROUPED_WEIGH : LS_OP_GROUPED_BIAS;
    c->inputs = 3 + weighed;
    c->in[1] = bias, c->in[2] = of_rows, c->in[3] = vector_of(SUMS, rows);
    c->out[0] = c->in[0];
    c->in_place = true;
  } else if (weighed) {
    c->kind = LS_OP_GROUPED_WEIGH_BWD;
    c->inputs = 5, c->outputs = 2 + (int)random_below(2);
    c->in[1] = c->out[0] = c->in[0];
    c->in[2] = c->out[2] = bias, c->in[3] = of_rows;
    c->in[4] = c->out[1] = vector_of(SUMS, rows);
    c->out[2].kind = any_sums();
  } else {
    c->kind = LS_OP_GROUPED_BIAS_DB;
    c->inputs = 2;
    c->in[1] = of_rows;
    c->out[0] = bias;
    c->out[0].kind = any_sums();
  }
}

#endif
