/* Cases of ops whose operands are of three dimensions or whose numbers fit one another: choices
 * among experts, kept or dropped, in slots by rank; caches whose rows are dealt to ranks. For the
 * tests that include support/cuda_case.h. */
#ifndef LS_TESTS_CUDA_SLOTS_H
#define LS_TESTS_CUDA_SLOTS_H

#include "support/cpu_makers.h"

static inline bool slots_fill(ls_op_kind kind) {
  return kind == LS_OP_TO_SLOTS || kind == LS_OP_FROM_SLOTS_BWD;
}

static inline bool slots_collect(ls_op_kind kind) {
  return kind == LS_OP_TO_SLOTS_BWD || kind == LS_OP_FROM_SLOTS;
}

/* Each slot to its row. */
static inline bool slots_arrive(ls_op_kind kind) {
  return kind == LS_OP_ARRIVE || kind == LS_OP_LEAVE_BWD;
}

static inline bool slots_leave(ls_op_kind kind) {
  return kind == LS_OP_LEAVE || kind == LS_OP_ARRIVE_BWD;
}

/* Rows of slots become [ranks, slots, columns], those of parts of a cache [parts, tokens, columns].
 */
static inline void slots_shape(const op_case *c, ls_kernel_args *args) {
  const bool dealt = c->kind == LS_OP_CACHED_PART || c->kind == LS_OP_CACHED_END;
  const bool in = slots_collect(c->kind) || slots_arrive(c->kind) || c->kind == LS_OP_CACHED_END;
  const bool out = slots_fill(c->kind) || slots_leave(c->kind) || c->kind == LS_OP_CACHED_PART;
  for (int i = 0; i < (dealt ? 2 : 1) && (in || out); i++) {
    ls_view *view = in ? &args->in[i] : &args->out[i];
    const int64_t slots = c->attributes.slots, columns = view->dims[1];
    view->ndim = 3;
    view->dims[0] = view->valid[0] = view->dims[0] / slots;
    view->dims[1] = view->valid[1] = slots;
    view->dims[2] = view->valid[2] = columns;
  }
}

/* The operand whose numbers are made here: of experts of choices, or of slots; -1: none. */
static inline int slots_numbers(ls_op_kind kind) {
  if (kind == LS_OP_CAPACITY || kind == LS_OP_ARRIVALS) return 0;
  if (kind == LS_OP_KEEP) return 2;
  if (kind == LS_OP_KEEP_BWD) return 3;
  return slots_fill(kind) || slots_collect(kind) ? 1 : -1;
}

/* Sequences begin with the first rank; some tokens have no row of any part, and some parts have
 * none that a query sees. */
static inline void dealt_prepare(const op_case *c, ls_kernel_args *device,
                                 ls_kernel_args *reference) {
  const int at = c->kind == LS_OP_CACHED_PART ? 6 : c->kind == LS_OP_CACHED_END ? 1 : -1;
  for (int64_t i = 0; at >= 0 && i < stored_count(&c->in[at]); i++) {
    if (at == 6) {
      int32_t *position = (int32_t *)device->in[5].data + i;
      const int32_t begin = ((int32_t *)device->in[6].data)[i] - *position;
      *position += begin % (int32_t)c->attributes.turns;
      ((int32_t *)reference->in[5].data)[i] = *position;
    }
    if (random_below(5)) continue;
    if (at == 6)
      ((int32_t *)device->in[6].data)[i] = ((int32_t *)reference->in[6].data)[i] = -1;
    else
      ((float *)device->in[1].data)[i] = ((float *)reference->in[1].data)[i] = -INFINITY;
  }
}

/* A token has each expert once; of slots each is one choice's, and some choices have none. Places
 * are of whole sequences in another order than the rows. */
static inline void slots_prepare(const op_case *c, ls_kernel_args *device,
                                 ls_kernel_args *reference) {
  const int at = slots_numbers(c->kind);
  if (at < 0) return;
  const ls_view *of = &device->in[at];
  const int64_t count = of->dims[0] * (of->ndim > 1 ? of->dims[1] : 1);
  const int64_t experts = c->attributes.experts, chosen = of->dims[1];
  const bool filled = slots_fill(c->kind) || slots_collect(c->kind);
  const int64_t slots = filled ? (slots_fill(c->kind) ? c->out[0] : c->in[0]).dims[0] : 0;
  int32_t *numbers = of->data;
  for (int64_t s = 0, first = 0; s < count; s++) {
    if (s % chosen == 0) first = random_below(experts);
    if (filled)
      numbers[s] = s < slots && random_below(4) ? (int32_t)(slots - 1 - s) : -1;
    else if (c->kind == LS_OP_CAPACITY)
      numbers[s] = (int32_t)((first + s % chosen) % experts);
    else
      numbers[s] = (int32_t)random_below(experts + 1);
  }
  memcpy(reference->in[at].data, numbers, (size_t)count * sizeof *numbers);
  if (c->kind != LS_OP_CAPACITY || c->inputs < 3) return;
  const int64_t tokens = c->in[2].valid[0], length = c->attributes.sequence, all = tokens / length;
  int32_t *places = device->in[2].data;
  for (int64_t n = 0; n < tokens; n++) /* of each sequence one row in turn, from the back */
    places[n] = (int32_t)(n % all * length + length - 1 - n / all);
  memcpy(reference->in[2].data, places, (size_t)tokens * sizeof *places);
}

/* Whole numbers of any kind. */
static inline operand numbers_of(int64_t rows, int64_t columns, int64_t range) {
  operand o = matrix_of(rows, columns, 0, 0);
  o.kind = INDEX;
  o.range = range;
  return o;
}

static inline operand sums_of(int64_t rows, int64_t columns) {
  operand o = matrix_of(rows, columns, 0, 0);
  o.kind = SUMS;
  return o;
}

static inline void make_kept(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_CHOICES, LS_OP_CAPACITY, LS_OP_KEEP, LS_OP_KEEP_BWD};
  static const int64_t lengths[] = {1, 7, 65, 130}, counts[] = {3, 16, 130};
  const int64_t length = pick(lengths, 4), tokens = length * (1 + random_below(3));
  const int64_t experts = pick(counts, 3), chosen = 1 + random_below(3), all = tokens * chosen;
  operand rows = matrix_of(tokens, chosen, 0, 0), of_row = vector_of(EXPERTS, all);
  rows.kind = ROUTED, of_row.range = experts + 1;
  const operand choices = numbers_of(tokens, chosen, experts), weights = vector_of(SUMS, all);
  c->kind = kinds[random_below(4)];
  c->attributes.experts = experts;
  c->attributes.sequence = length;
  c->attributes.slots = 1 + random_below(2 + length * chosen / experts);
  c->no_add = c->kind != LS_OP_KEEP_BWD;
  c->inputs = c->kind == LS_OP_CHOICES ? 2 : 3;
  c->outputs = 1;
  c->in[0] = rows, c->in[1] = of_row, c->out[0] = choices;
  switch (c->kind) {
    case LS_OP_CAPACITY:
      c->inputs = 2 + (int)random_below(2), c->outputs = 2;
      c->in[0] = c->out[1] = choices;
      c->in[1] = vector_of(INDEX, tokens), c->in[1].range = 3;
      c->in[2] = vector_of(INDEX, tokens);
      c->out[0] = matrix_of(1, experts, 0, 0);
      c->out[0].kind = CELL, c->out[0].value = 2;
      break;
    case LS_OP_KEEP:
      c->outputs = 3;
      c->in[1] = weights, c->in[2] = choices;
      c->out[0] = rows, c->out[1] = of_row, c->out[2] = weights;
      break;
    case LS_OP_KEEP_BWD:
      c->inputs = 4;
      c->in[0] = c->out[0] = weights, c->in[1] = c->in[2] = rows, c->in[3] = choices;
      break;
    default: break;
  }
}

static inline void make_slots(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_SLOTS, LS_OP_SLOTS_BWD, LS_OP_LEFT_OUT, LS_OP_ARRIVALS,
                                     LS_OP_ARRIVALS_BWD};
  const int64_t tokens = any_rows(), chosen = 1 + random_below(3), all = tokens * chosen;
  const int64_t ranks = 1 + random_below(4), held = 1 + random_below(3);
  const int64_t slots = 1 + random_below(2 * all / ranks + 2);
  operand rows = matrix_of(tokens, chosen, 0, 0), of_row = vector_of(EXPERTS, all);
  rows.kind = ROUTED, of_row.range = ranks * held + 1;
  operand of_slot = matrix_of(ranks, slots, 0, 0);
  of_slot.kind = ROUTED;
  const operand numbers = sums_of(ranks, slots);
  c->kind = kinds[random_below(5)];
  c->attributes = (ls_attributes){.experts = ranks * held, .held = held, .slots = slots};
  c->no_add = c->kind == LS_OP_SLOTS || c->kind == LS_OP_ARRIVALS;
  c->inputs = 3, c->outputs = 1;
  switch (c->kind) {
    case LS_OP_SLOTS:
      c->outputs = 3;
      c->in[0] = rows, c->in[1] = of_row, c->in[2] = vector_of(SUMS, all);
      c->out[0] = rows, c->out[1] = of_slot, c->out[2] = numbers;
      break;
    case LS_OP_SLOTS_BWD:
      c->in[0] = numbers, c->in[1] = rows, c->out[0] = vector_of(SUMS, all);
      c->in[2] = numbers_of(tokens, chosen, ranks * slots);
      break;
    case LS_OP_LEFT_OUT:
      c->inputs = 1;
      c->attributes.turns = random_below(2) * chosen; /* ranks, each with as many rows */
      c->in[0] = of_row, c->out[0] = cell_of(1.5);
      break;
    case LS_OP_ARRIVALS:
      c->inputs = 2, c->outputs = 3;
      c->in[0] = numbers_of(ranks, slots, 1), c->in[1] = numbers;
      c->out[0] = of_slot, c->out[1] = vector_of(EXPERTS, ranks * slots);
      c->out[1].range = ranks * held, c->out[2] = vector_of(SUMS, ranks * slots);
      break;
    default:
      c->inputs = 2;
      c->in[0] = vector_of(SUMS, ranks * slots), c->in[1] = of_slot, c->out[0] = numbers;
  }
}

/* Rows of tokens to slots and from them, and of slots to where experts have them. */
static inline void make_sent(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_TO_SLOTS,       LS_OP_TO_SLOTS_BWD, LS_OP_FROM_SLOTS,
                                     LS_OP_FROM_SLOTS_BWD, LS_OP_ARRIVE,       LS_OP_ARRIVE_BWD,
                                     LS_OP_LEAVE,          LS_OP_LEAVE_BWD};
  const int64_t tokens = any_rows(), chosen = 1 + random_below(3), pad = random_below(3);
  const int64_t columns = random_below(3) ? any_size() : 1300, ranks = 1 + random_below(3);
  const int64_t slots = 1 + random_below(2 * tokens * chosen / ranks + 2);
  const operand in_slots = matrix_of(ranks * slots, columns, 0, pad);
  const operand own = matrix_of(tokens, columns, 0, pad);
  c->kind = kinds[random_below(8)];
  c->attributes = (ls_attributes){.experts = 5, .slots = slots};
  c->inputs = 2, c->outputs = 1;
  const bool by_slot = slots_arrive(c->kind) || slots_leave(c->kind);
  const bool from = slots_collect(c->kind) || slots_arrive(c->kind);
  const operand other = by_slot ? matrix_of(ranks * slots, columns, 0, pad) : own;
  c->in[0] = from ? in_slots : other, c->out[0] = from ? other : in_slots;
  c->in[1] = by_slot ? matrix_of(ranks, slots, 0, 0) : numbers_of(tokens, chosen, 1);
  if (by_slot) c->in[1].kind = ROUTED;
}

/* A cache of which the device has some of the parts, and what all of them gave. */
static inline void make_dealt(op_case *c) {
  do {
    *c = (op_case){0};
    make_cached_attention(c);
  } while (c->inputs < 7 || c->in[0].valid[0] == 0);
  const int64_t ranks = 1 + random_below(4), parts = 1 + random_below(ranks);
  const int64_t tokens = c->in[0].valid[0], columns = c->in[0].dims[1];
  const int64_t rows = c->in[3].valid[0], heads = columns / c->attributes.head_dim;
  operand sums = sums_of(parts * tokens, heads);
  c->attributes.turns = ranks;
  c->attributes.slots = tokens; /* of slots_shape */
  if (random_below(2)) {
    c->kind = LS_OP_CACHED_PART;
    c->outputs = 2;
    c->in[0].dims[0] = tokens;
    c->in[3] = c->in[4] = matrix_of(parts * rows, c->in[3].dims[1], 0, 0);
    c->out[0] = sums_of(parts * tokens, columns), c->out[1] = sums;
    c->out[0].start[0] = random_below(ranks - parts + 1);
    c->no_add = true;
    return;
  }
  const operand o = matrix_of(tokens, columns, 1, 0);
  c->kind = LS_OP_CACHED_END;
  c->inputs = 2;
  c->in[0] = sums_of(parts * tokens, columns), c->in[1] = sums, c->out[0] = o;
  if (random_below(2)) return;
  c->inputs = 3;
  c->in[2] = vector_of(COMPUTE, heads + 3);
  c->out[0].start[1] = 2 * c->attributes.head_dim;
}

#endif
