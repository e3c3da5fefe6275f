/* Every kernel of the CPU device against the plain reference: random shapes that are multiples of
 * nothing, fp32, bf16 and fp16, one and two threads, written and added, with padding that would
 * show if it were read or written. tests/cpu_isa_test.sh repeats it under smaller instruction sets.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "device/cpu/cpu.h"
#include "device/cpu/onednn.h"
#include "device/cpu/vector_table.h"
#include "support/cpu_case.h"

static void make_linear(op_case *c) {
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

static void test_linear(void **state) {
  (void)state;
  run_made(make_linear, 16);
}

/* The three products of a weight [m, k] and n rows: in 16 bits and in fp32, by one thread and by
 * several, and in exact parts. */
static void products_of(int64_t n, int64_t m, int64_t k) {
  static const ls_op_kind kinds[] = {LS_OP_LINEAR, LS_OP_LINEAR_DX, LS_OP_LINEAR_DW};
  const operand nk = matrix_of(n, k, 0, 0), nm = matrix_of(n, m, 0, 2), mk = matrix_of(m, k, 1, 0);
  for (int i = 0; i < 3; i++) {
    op_case c = {.kind = kinds[i], .inputs = 2, .outputs = 1};
    c.in[0] = i == 0 ? nk : nm;
    c.in[1] = i == 2 ? nk : mk;
    c.out[0] = i == 0 ? nm : (i == 1 ? nk : mk);
    if (i == 2) c.out[0].kind = any_sums();
    case_run(&c, &(variant){.dtype = LS_F32, .threads = MOST_THREADS, .exact = true});
    case_run(&c, &(variant){.dtype = LS_F32, .threads = MOST_THREADS, .accumulate = true});
    case_run(&c, &(variant){.dtype = LS_F32, .threads = 1});
    for (int half = 0; half < 2; half++) {
      const ls_dtype dtype = half ? LS_F16 : LS_BF16;
      case_run(&c, &(variant){.dtype = dtype, .threads = MOST_THREADS, .exact = half});
      case_run(&c, &(variant){.dtype = dtype, .threads = 1, .accumulate = true, .exact = !half});
    }
  }
}

/* What is not multiplied as it is stored is widened in several ranges of m, and chunks of n. */
static void test_linear_ranges(void **state) {
  (void)state;
  products_of(9, 70001, 3);
  products_of(1061, 41, 700);
}

/* Targets that are divided across, down and both ways, with more of a turned operand than is copied
 * at once. */
static void test_linear_divided(void **state) {
  (void)state;
  products_of(67, 1030, 300);
  products_of(270, 1100, 17);
  products_of(260, 530, 130);
}

/* As few rows as have a kernel of their own, and one more. */
static void test_linear_few_rows(void **state) {
  (void)state;
  products_of(1, 517, 1029);
  products_of(3, 61, 5);
  products_of(7, 67, 300); /* four rows together, two, and one */
  products_of(8, 130, 200);
  products_of(9, 130, 200);
}

static void make_elementwise(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_ADD,      LS_OP_BIAS,       LS_OP_GELU,
                                     LS_OP_GELU_BWD, LS_OP_SWIGLU,     LS_OP_SWIGLU_BWD,
                                     LS_OP_SOFTCAP,  LS_OP_SOFTCAP_BWD};
  static const int inputs[] = {2, 2, 1, 2, 2, 3, 1, 2};
  const int64_t which = random_below(8), columns = random_below(4) ? any_size() : 2500;
  const operand matrix = matrix_of(any_rows(), columns, 2, random_below(4));
  c->kind = kinds[which];
  c->attributes.activation = (ls_activation)(1 + random_below(2));
  if (c->kind == LS_OP_SWIGLU || c->kind == LS_OP_SWIGLU_BWD)
    c->attributes.activation = (ls_activation)random_below(3);
  c->attributes.softcap = 1.5;
  c->inputs = inputs[which];
  c->outputs = c->kind == LS_OP_SWIGLU_BWD ? 2 : 1;
  for (int i = 0; i < c->inputs; i++) c->in[i] = matrix;
  for (int i = 0; i < c->outputs; i++) c->out[i] = matrix;
  if (c->kind == LS_OP_BIAS) c->in[1] = vector_of(COMPUTE, columns);
  c->in_place = c->kind == LS_OP_ADD || c->kind == LS_OP_BIAS || c->kind == LS_OP_GELU_BWD ||
                c->kind == LS_OP_SOFTCAP || c->kind == LS_OP_SOFTCAP_BWD;
}

static void test_elementwise(void **state) {
  (void)state;
  run_made(make_elementwise, 26);
}

static void make_norm(op_case *c) {
  const int64_t rows = any_rows(), columns = random_below(3) ? 2 + any_size() : 2500;
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
      c->out[0] = matrix, c->out[1] = sums, c->out[2] = sums;
      break;
    default:
      c->inputs = 4, c->outputs = 2;
      c->in[0] = matrix, c->in[1] = matrix, c->in[2] = of_columns, c->in[3] = scales;
      c->out[0] = matrix, c->out[1] = sums;
      break;
  }
}

static void test_norm(void **state) {
  (void)state;
  run_made(make_norm, 20);
}

/* Heads' norms: rows of whole heads, which are not padded. */
static void make_headnorm(op_case *c) {
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
  c->in[0] = c->in[1] = matrix, c->in[2] = of_columns, c->in[3] = of_heads;
  c->out[1] = vector_of(any_sums(), d);
}

static void test_headnorm(void **state) {
  (void)state;
  run_made(make_headnorm, 12);
}

/* The norm in two ops, of rows whose columns are cut. */
static void make_row(op_case *c) {
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

static void test_row(void **state) {
  (void)state;
  run_made(make_row, 16);
}

static void make_embedding(op_case *c) {
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

static void test_embedding(void **state) {
  (void)state;
  run_made(make_embedding, 14);
}

static void make_bias_db(op_case *c) {
  const int64_t columns = random_below(3) ? any_size() : 2100;
  c->kind = LS_OP_BIAS_DB;
  c->inputs = c->outputs = 1;
  c->in[0] = matrix_of(any_rows(), columns, 1, random_below(3));
  c->out[0] = vector_of(any_sums(), columns);
}

static void test_bias_db(void **state) {
  (void)state;
  run_made(make_bias_db, 8);
}

static void make_rope(op_case *c) {
  static const int64_t head_dims[] = {2, 6, 32, 64, 128, 2048};
  const int64_t rows = any_rows(), head_dim = pick(head_dims, 6), heads = 1 + random_below(5);
  c->kind = random_below(2) ? LS_OP_ROPE : LS_OP_ROPE_BWD;
  c->attributes.head_dim = head_dim;
  c->inputs = 2, c->outputs = 1;
  c->in[0] = c->out[0] = matrix_of(rows, heads * head_dim, 1, 0);
  c->in[1] =
      matrix_of(rows, random_below(2) ? head_dim : 2 * (1 + random_below(head_dim / 2)), 1, 0);
  c->in[1].kind = SUMS;
  c->in_place = true;
}

static void test_rope(void **state) {
  (void)state;
  run_made(make_rope, 10);
}

static void make_cross_entropy(op_case *c) {
  const int64_t rows = any_rows(), columns = random_below(3) ? any_size() : 2500;
  operand logits = matrix_of(rows, columns, 1, random_below(4)), labels = vector_of(INDEX, rows);
  logits.start[1] = random_below(20);
  labels.range = columns + 30;
  const operand sums = vector_of(SUMS, rows);
  c->in[0] = logits;
  c->out[0] = sums;
  c->inputs = 1, c->outputs = 1;
  c->kind = (ls_op_kind[]){LS_OP_XENT_MAX, LS_OP_XENT_SUM, LS_OP_XENT_GRAD}[random_below(3)];
  switch (c->kind) {
    case LS_OP_XENT_MAX: c->no_add = true; break;
    case LS_OP_XENT_SUM:
      c->inputs = 3, c->outputs = 2;
      c->in[1] = sums, c->in[2] = labels;
      c->out[1] = sums;
      break;
    default:
      c->inputs = 5;
      c->in[1] = sums, c->in[2] = vector_of(POSITIVE, rows), c->in[3] = labels;
      c->in[4] = cell_of(0.37);
      c->out[0] = logits;
      c->in_place = true;
      break;
  }
}

static void test_cross_entropy(void **state) {
  (void)state;
  run_made(make_cross_entropy, 18);
}

static void make_optimizer(op_case *c) {
  const int64_t count = random_below(3) ? any_size() : 20001;
  const bool flat = random_below(2);
  operand gradient = flat ? vector_of(SUMS, count) : matrix_of(any_rows(), 67, 2, 3);
  gradient.kind = SUMS;
  operand positive = gradient;
  positive.kind = POSITIVE;
  c->attributes = (ls_attributes){
      .epsilon = 1e-8, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1, .weight = 0.25};
  c->in[0] = gradient;
  c->in[0].kind = any_sums();
  c->kind = (ls_op_kind[]){LS_OP_SQUARED_NORM, LS_OP_ADAMW, LS_OP_SGD, LS_OP_ADAMW_AHEAD,
                           LS_OP_SGD_AHEAD}[random_below(5)];
  if (c->kind == LS_OP_SQUARED_NORM) {
    c->inputs = 1, c->outputs = 1;
    c->out[0] = cell_of(3.5);
    return;
  }
  const bool ahead = c->kind == LS_OP_ADAMW_AHEAD || c->kind == LS_OP_SGD_AHEAD;
  c->in[1] = cell_of(3e-3), c->in[2] = cell_of((double)(1 + random_below(50)));
  c->in[3] = cell_of(ahead || random_below(4) ? 0.7 : 0);
  c->no_add = true;
  if (ahead) {
    c->inputs = c->kind == LS_OP_ADAMW_AHEAD ? 7 : 6, c->outputs = 1;
    c->in[4] = c->in[5] = gradient, c->in[6] = positive;
    c->out[0] = gradient;
    c->out[0].kind = random_below(2) ? SUMS : COMPUTE;
    return;
  }
  c->inputs = 4, c->outputs = c->kind == LS_OP_ADAMW ? 3 : 2;
  c->out[0] = c->out[1] = gradient;
  c->out[2] = positive;
  c->updates = true;
}

static void test_optimizer(void **state) {
  (void)state;
  run_made(make_optimizer, 24);
}

static void make_move(op_case *c) {
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

static void test_move(void **state) {
  (void)state;
  run_made(make_move, 16);
}

/* Windows, caps and slopes by distance, alone and together; the rank's heads begin at the third. */
static void bend_attention(op_case *c, operand *q) {
  static const int64_t windows[] = {1, 5, 63, 64, 100};
  if (random_below(2)) c->attributes.window = pick(windows, 5);
  if (random_below(3) == 0) c->attributes.softcap = 2;
  if (random_below(3)) return;
  c->attributes.alibi = 0.5;
  c->attributes.heads = 11;
  q->start[1] = 2 * c->attributes.head_dim;
}

/* The op's operands, for `sequences` of `length` tokens. */
static void attention_operands(op_case *c, ls_op_kind kind, int64_t length, int64_t sequences,
                               int64_t head_dim, int64_t kv_heads, int64_t group) {
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

static void make_attention(op_case *c) {
  static const int64_t head_dims[] = {3, 16, 32, 48, 64, 72, 128};
  static const int64_t lengths[] = {1, 3, 17, 64, 65, 130};
  const ls_op_kind kind = random_below(2) ? LS_OP_ATTENTION : LS_OP_ATTENTION_BWD;
  attention_operands(c, kind, pick(lengths, 6), random_below(8) ? 1 + random_below(3) : 0,
                     pick(head_dims, 7), 1 + random_below(2), 1 + random_below(3));
}

static void test_attention(void **state) {
  (void)state;
  run_made(make_attention, 20);
}

/* Where the processor has the dot product of pairs of bf16, the set that is made of it is asked,
 * whether or not it is the faster one here. */
static void ask_for_pairs(void) {
#if defined(__x86_64__)
  if (ls_onednn_effective_isa().bf16) case_set = &ls_vector_set_avx512_bf16;
#endif
}

/* Pairs that end within a column, a query or a key, and lengths about those of blocks and strips,
 * in bf16. */
static void test_attention_pairs(void **state) {
  (void)state;
  enum { HEAD_DIMS = 8, LENGTHS = 8 };
  static const int64_t head_dims[HEAD_DIMS] = {1, 3, 16, 33, 64, 72, 80, 128};
  static const int64_t lengths[LENGTHS] = {1, 2, 15, 63, 64, 65, 130, 195};
  ask_for_pairs();
  for (int i = 0; i < 2 * HEAD_DIMS * LENGTHS; i++) {
    op_case c = {0};
    const ls_op_kind kind = i % 2 ? LS_OP_ATTENTION : LS_OP_ATTENTION_BWD;
    attention_operands(&c, kind, lengths[i / 2 % LENGTHS], 2, head_dims[i / 2 / LENGTHS],
                       1 + random_below(2), 1 + random_below(3));
    /* Maxima that rise by so much that what was summed before is next to nothing. */
    if (kind == LS_OP_ATTENTION && random_below(2)) c.attributes.softmax_scale *= 8;
    if (kind == LS_OP_ATTENTION_BWD)
      for (int o = 0; o < 3; o++) c.out[o].kind = random_below(2) ? COMPUTE : SUMS;
    case_run(&c, &(variant){.dtype = LS_BF16,
                            .threads = 1 + (int)random_below(MOST_THREADS),
                            .accumulate = random_below(2),
                            .given_workspace = random_below(2)});
  }
  case_set = NULL;
}

/* More tokens and heads than a block of queries holds, caches shorter and longer than one of keys.
 */
static void make_cached_attention(op_case *c) {
  static const int64_t head_dims[] = {3, 16, 64, 72, 128};
  static const int64_t counts[] = {0, 1, 1, 5, 33, 130};
  const int64_t d = pick(head_dims, 5), tokens = pick(counts, 6);
  const int64_t rows = 1 + tokens + random_below(150);
  const int64_t kv_heads = 1 + random_below(3), heads = kv_heads * (1 + random_below(4));
  c->attributes.head_dim = d;
  c->attributes.softmax_scale = 1 / sqrt((double)d);
  c->kind = LS_OP_CACHED_ATTENTION;
  c->inputs = 6, c->outputs = 1;
  operand q = matrix_of(tokens, heads * d, 1, 0);
  bend_attention(c, &q);
  c->in[0] = c->out[0] = q;
  c->in[1] = c->in[2] = matrix_of(tokens, kv_heads * d, 1, 0);
  c->in[3] = c->in[4] = matrix_of(rows, kv_heads * d, 2, 0);
  c->in[5] = vector_of(INDEX, tokens);
}

static void test_cached_attention(void **state) {
  (void)state;
  run_made(make_cached_attention, 20);
}

/* As many queries as go by pairs, at and about the ends of blocks of them and of keys. */
static void test_cached_attention_pairs(void **state) {
  (void)state;
  ask_for_pairs();
  for (int i = 0; i < 60; i++) {
    op_case c = {0};
    make_cached_attention(&c);
    if (random_below(2)) c.attributes.softmax_scale *= 8; /* see test_attention_pairs */
    case_run(&c, &(variant){.dtype = LS_BF16,
                            .threads = 1 + (int)random_below(MOST_THREADS),
                            .accumulate = random_below(2),
                            .given_workspace = random_below(2)});
  }
  case_set = NULL;
}

static void test_cached_attention_refuses(void **state) {
  (void)state;
  ls_kernel_table table;
  ls_error error = {0};
  assert_int_equal(ls_cpu_kernels(&table, LS_F16, &error), LS_OK);
  uint16_t rows[2 * 4] = {0}, cache[3 * 4] = {0}, narrow[3 * 3] = {0};
  int32_t positions[2] = {2, 3};
  const ls_attributes attributes = {.head_dim = 4, .softmax_scale = 0.5};
  const operand tokens = matrix_of(2, 4, 0, 0), kept = matrix_of(3, 4, 0, 0);
  const operand thin = matrix_of(3, 3, 0, 0), at_rows = vector_of(INDEX, 2);
  ls_kernel_args args = {.attributes = &attributes, .inputs = 6, .outputs = 1, .threads = 1};
  for (int i = 0; i < 3; i++) args.in[i] = view_of(&tokens, LS_F16, rows);
  for (int i = 3; i < 5; i++) args.in[i] = view_of(&kept, LS_F16, cache);
  args.in[5] = view_of(&at_rows, LS_I32, positions);
  args.out[0] = view_of(&tokens, LS_F16, rows);
  const ls_kernel kernel = table.kernel[LS_OP_CACHED_ATTENTION];
  assert_int_equal(kernel(&args, &error), LS_INTERNAL);
  assert_string_equal(error.text, "position 3 lies outside a cache of 3 rows");
  positions[1] = -1;
  assert_int_equal(kernel(&args, &error), LS_INTERNAL);
  positions[1] = 1;
  assert_int_equal(kernel(&args, &error), LS_OK);
  args.in[4] = view_of(&thin, LS_F16, narrow);
  assert_int_equal(kernel(&args, &error), LS_INTERNAL);
  args.in[4] = view_of(&kept, LS_BF16, cache);
  assert_int_equal(kernel(&args, &error), LS_INTERNAL);
  assert_string_equal(error.text, "a cache of 4 columns of bf16 for rows of 4 of fp16");
}

/* Products of a 16-bit type as oneDNN makes them itself, also where fp32 would be faster. */
static void half_products(ls_dtype half) {
  for (int i = 0; i < 20; i++) {
    const int64_t rows = any_size(), columns = any_size(), depth = any_size();
    const operand left = matrix_of(rows, depth, 0, 3), right = matrix_of(columns, depth, 0, 3);
    const int64_t padding = columns == 1 ? 0 : 3, stride = columns + padding;
    operand target = matrix_of(rows, columns, 0, padding);
    if (i & 1) target.kind = SUMS;
    const ls_dtype dtype = dtype_of(&target, half);
    void *a = operand_make(&left, half, false), *b = operand_make(&right, half, false);
    void *c = operand_make(&target, dtype, false);
    float *wide_a = reference_copy(&left, half, a), *wide_b = reference_copy(&right, half, b);
    float *wanted = reference_copy(&target, dtype, c);
    for (int64_t j = 0; j < rows * columns; j++) {
      const int64_t row = j / columns, column = j % columns;
      double sum = 0;
      for (int64_t k = 0; k < depth; k++) {
        sum += (double)wide_a[row * (depth + 3) + k] * (double)wide_b[column * (depth + 3) + k];
      }
      wanted[row * stride + column] += (float)sum;
    }
    const ls_matrix to = {c, dtype, stride, 1}, from = {a, half, depth + 3, 1};
    const ls_matrix turned = {b, half, 1, depth + 3};
    const ls_kernel_args args = {.threads = 1 + i % MOST_THREADS};
    ls_error error = {0};
    assert_int_equal(
        ls_onednn_multiply(&to, &from, &turned, rows, columns, depth, true, &args, &error), LS_OK);
    const op_case named = {.kind = LS_OP_LINEAR, .out = {target}};
    const ls_view got = view_of(&target, dtype, c), reference = view_of(&target, LS_F32, wanted);
    output_compare(&named, &(variant){.dtype = half}, 0, &got, &reference);
    free(a), free(b), free(c), free(wide_a), free(wide_b), free(wanted);
  }
}

static void test_bf16_products(void **state) {
  (void)state;
  if (!ls_onednn_effective_isa().bf16) skip();
  half_products(LS_BF16);
}

static void test_fp16_products(void **state) {
  (void)state;
  if (!ls_onednn_effective_isa().fp16) skip();
  half_products(LS_F16);
}

int main(void) {
  const char *given = getenv("LS_TEST_SEED");
  const uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
  random_state = seed;
  print_message("seed %llu (LS_TEST_SEED), %s, kernels for %s\n", (unsigned long long)seed,
                ls_cpu_isa_name(), ls_cpu_vector_set());
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear),
      cmocka_unit_test(test_linear_ranges),
      cmocka_unit_test(test_linear_divided),
      cmocka_unit_test(test_linear_few_rows),
      cmocka_unit_test(test_elementwise),
      cmocka_unit_test(test_norm),
      cmocka_unit_test(test_headnorm),
      cmocka_unit_test(test_row),
      cmocka_unit_test(test_embedding),
      cmocka_unit_test(test_bias_db),
      cmocka_unit_test(test_rope),
      cmocka_unit_test(test_cross_entropy),
      cmocka_unit_test(test_optimizer),
      cmocka_unit_test(test_move),
      cmocka_unit_test(test_attention),
      cmocka_unit_test(test_attention_pairs),
      cmocka_unit_test(test_cached_attention),
      cmocka_unit_test(test_cached_attention_pairs),
      cmocka_unit_test(test_cached_attention_refuses),
      cmocka_unit_test(test_bf16_products),
      cmocka_unit_test(test_fp16_products),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
