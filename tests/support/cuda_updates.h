/* Cases of updates that know where in the whole parameter their elements lie: moments of 8 bits,
 * Muon, Adafactor. For the tests that include support/cuda_case.h. */
#ifndef LS_TESTS_CUDA_UPDATES_H
#define LS_TESTS_CUDA_UPDATES_H

#include "support/cpu_makers.h"

/* A rank's elements of a matrix of `rows` x `columns`: some of its rows, or of its columns, in rows
 * that may be padded. */
static inline operand range_of(operand_kind kind, int64_t rows, int64_t columns) {
  operand o = {.kind = kind, .ndim = 1};
  const int64_t first = random_below(rows), column = random_below(columns);
  const bool cut = random_below(2);
  const int64_t stride = cut ? columns - column + random_below(3) : columns;
  const int64_t all = (rows - first) * stride, begin = random_below(all);
  o.start[0] = begin, o.start[1] = first, o.start[2] = cut ? column : 0;
  o.dims[0] = o.valid[0] = 1 + random_below(all - begin);
  o.dims[1] = o.valid[1] = stride;
  return o;
}

/* The same elements of another part of the state. */
static inline operand range_as(operand o, operand_kind kind) {
  o.kind = kind;
  return o;
}

static inline void make_codes(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_ADAMW8_LARGEST, LS_OP_ADAMW8, LS_OP_ADAMW8_KEEP};
  const int64_t rows = 1 + random_below(60), columns = 1 + random_below(70);
  const operand of = range_of(any_sums(), rows, columns), codes = range_as(of, CODES);
  const int64_t blocks = (rows * columns + 255) / 256;
  const operand largest = vector_of(POSITIVE, 2 * blocks);
  c->kind = kinds[random_below(3)];
  c->attributes = (ls_attributes){.epsilon = 1e-8,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .weight_decay = 0.1,
                                  .rate = 0.5,
                                  .columns = columns};
  c->no_add = true;
  const operand factor = cell_of(random_below(4) ? 0.7 : 0);
  switch (c->kind) {
    case LS_OP_ADAMW8_LARGEST:
      c->inputs = 5, c->outputs = 1;
      c->in[0] = of, c->in[1] = factor, c->in[2] = c->in[3] = codes, c->in[4] = largest;
      c->out[0] = vector_of(SUMS, 2 * blocks);
      break;
    case LS_OP_ADAMW8:
      c->inputs = 6, c->outputs = 3, c->updates = true;
      c->in[0] = of, c->in[1] = cell_of(3e-3), c->in[2] = cell_of((double)(1 + random_below(50)));
      c->in[3] = factor, c->in[4] = c->in[5] = largest;
      c->out[0] = range_as(of, SUMS), c->out[1] = c->out[2] = codes;
      break;
    default:
      c->inputs = 2, c->outputs = 1, c->updates = true;
      c->in[0] = vector_of(SUMS, 2 * blocks), c->in[1] = factor, c->out[0] = largest;
  }
}

static inline void make_muon(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_MUON_MOMENTUM, LS_OP_MUON, LS_OP_ORTHOGONALISE};
  static const int64_t sides[] = {1, 7, 40, 130};
  const int64_t rows = pick(sides, 4), columns = pick(sides, 4);
  const int64_t least = rows < columns ? rows : columns;
  const operand of = range_of(any_sums(), rows, columns);
  operand matrix = matrix_of(rows, columns, 0, 0), owned = vector_of(SUMS, rows * columns);
  matrix.kind = SUMS;
  owned.dims[1] = owned.valid[1] = columns;
  c->kind = kinds[random_below(3)];
  c->attributes = (ls_attributes){.beta1 = 0.95,
                                  .weight_decay = 0.1,
                                  .rate = 0.5,
                                  .scale = random_below(2) ? 0.2 : 1,
                                  .columns = columns};
  c->no_add = true;
  const operand factor = cell_of(random_below(4) ? 0.7 : 0);
  switch (c->kind) {
    case LS_OP_MUON_MOMENTUM:
      c->inputs = c->outputs = 2, c->updates = true;
      c->in[0] = of, c->in[1] = factor, c->out[0] = c->out[1] = range_as(of, SUMS);
      break;
    case LS_OP_MUON:
      c->inputs = 3, c->outputs = 1, c->updates = true;
      c->in[0] = range_as(of, SUMS), c->in[1] = cell_of(0.02), c->in[2] = factor;
      c->out[0] = range_as(of, SUMS);
      break;
    default:
      c->inputs = 1, c->outputs = 3;
      c->in[0] = c->out[0] = owned, c->out[1] = matrix;
      c->out[2] = matrix_of(2 * least, least, 0, 0);
      c->out[2].kind = SUMS;
      c->floor = 1e-5; /* steps of an iteration, each rounded */
  }
}

/* Of what is factored the lines of all rows and columns; of what is not as many elements. */
static inline void make_adafactor(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_ADAFACTOR_SUMS,      LS_OP_ADAFACTOR_KEEP,
                                     LS_OP_ADAFACTOR_DIRECTION, LS_OP_ADAFACTOR_SECOND,
                                     LS_OP_ADAFACTOR_DIVIDE,    LS_OP_ADAFACTOR};
  static const int64_t sides[] = {1, 8, 40, 130, 600};
  const int64_t rows = pick(sides, 5),
                columns = random_below(2) ? pick(sides, 5) : 1 + random_below(70);
  operand of = range_of(any_sums(), rows, columns);
  if (random_below(3) == 0) of.start[0] = 0; /* rows at multiples of 16 bytes */
  const operand lines = vector_of(POSITIVE, rows + columns), floats = range_as(of, SUMS);
  const operand factor = cell_of(random_below(4) ? 0.7 : 0),
                step = cell_of(1 + (double)random_below(9));
  c->kind = kinds[random_below(6)];
  c->attributes = (ls_attributes){.weight_decay = 0.1,
                                  .rate = 0.5,
                                  .scale = (double)random_below(2),
                                  .weight = 0.01,
                                  .columns = columns};
  c->no_add = true;
  c->outputs = 1;
  switch (c->kind) {
    case LS_OP_ADAFACTOR_SUMS:
      c->inputs = 2;
      c->in[0] = of, c->in[1] = factor, c->out[0] = vector_of(SUMS, rows + columns);
      break;
    case LS_OP_ADAFACTOR_KEEP:
      c->inputs = 3, c->updates = true;
      c->in[0] = c->out[0] = lines, c->in[1] = step, c->in[2] = factor;
      break;
    case LS_OP_ADAFACTOR_SECOND:
      c->inputs = 3, c->updates = true;
      c->in[0] = of, c->in[1] = step, c->in[2] = factor, c->out[0] = range_as(of, POSITIVE);
      break;
    case LS_OP_ADAFACTOR:
      c->inputs = 5, c->updates = true;
      c->in[0] = c->out[0] = floats, c->in[1] = cell_of(0.5 + (double)random_below(2));
      c->in[2] = cell_of(random_below(2) ? 0.3 : 1e-8), c->in[3] = cell_of(0.02), c->in[4] = factor;
      break;
    default:
      c->inputs = 4, c->outputs = 3;
      c->in[0] = of, c->in[1] = factor, c->in[3] = c->out[0] = floats;
      c->in[2] = c->kind == LS_OP_ADAFACTOR_DIVIDE ? range_as(of, POSITIVE) : lines;
      c->out[1] = c->out[2] = cell_of(7);
  }
}

#endif
