/* Cases of roundings to fp8, of largest magnitudes and of codes; see support/cpu_case.h. */
#ifndef LS_TESTS_FP8_MAKERS_H
#define LS_TESTS_FP8_MAKERS_H

#include "support/cpu_case.h"

/* Rounding to fp8, by numbers that some of what is rounded is larger than. */
static inline void make_fp8(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_AMAX, LS_OP_FP8, LS_OP_ROW_AMAX, LS_OP_ROW_FP8};
  const int64_t rows = any_rows(), columns = random_below(3) ? any_size() : 1300;
  const operand matrix = matrix_of(rows, columns, 1, random_below(3));
  c->kind = kinds[random_below(4)];
  const bool own = c->kind == LS_OP_ROW_AMAX || c->kind == LS_OP_ROW_FP8;
  const bool rounds = c->kind == LS_OP_FP8 || c->kind == LS_OP_ROW_FP8;
  const operand amax = vector_of(rounds ? POSITIVE : SUMS, own ? rows : 1);
  c->attributes.fp8 = (ls_fp8)(LS_FP8_E4M3 + random_below(2));
  c->inputs = rounds ? 2 : 1, c->outputs = 1;
  c->in[0] = matrix, c->in[1] = amax, c->out[0] = rounds ? matrix : amax;
  c->no_add = !rounds;
}

/* Weights that are gathered as codes: ranges of them, which may be empty, and codes of numbers. */
static inline void make_weight_codes(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_RANGE_AMAX, LS_OP_FP8_CODES, LS_OP_FP8_DECODE};
  static const int64_t counts[] = {0, 1, 64, 513, 20003};
  const int64_t rows = any_rows(), columns = random_below(3) ? any_size() : 1300;
  const int64_t count = pick(counts, 5);
  c->kind = kinds[random_below(3)];
  c->attributes.fp8 = LS_FP8_E4M3;
  c->inputs = c->kind == LS_OP_RANGE_AMAX ? 1 : 2, c->outputs = 1;
  c->in[0] = vector_of(COMPUTE, count), c->in[1] = vector_of(POSITIVE, 1);
  c->out[0] = c->kind == LS_OP_RANGE_AMAX ? vector_of(SUMS, 1) : vector_of(CODES, count);
  c->no_add = c->kind != LS_OP_FP8_DECODE;
  if (c->kind != LS_OP_FP8_DECODE) return;
  c->out[0] = c->in[0] = matrix_of(rows, columns, 1, random_below(3));
  c->in[0].kind = CODES;
  c->in[0].range = 0x7f; /* none of a NaN */
}

#endif
