#include "device/cpu/linear_plan.h"

#include "device/cpu/cpu.h"
#include "device/cpu/vector_table.h"

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

ls_linear ls_linear_read(ls_op_kind kind, const ls_kernel_args *args, bool whole) {
  ls_linear l = {.kind = kind, .add = args->accumulate[0]};
  if (kind == LS_OP_LINEAR_BLOCKS) l.kind = LS_OP_LINEAR;
  if (kind == LS_OP_LINEAR_BLOCKS_DX) l.kind = LS_OP_LINEAR_DX;
  switch (l.kind) {
    case LS_OP_LINEAR: l.nk = &args->in[0], l.mk = &args->in[1], l.nm = &args->out[0]; break;
    case LS_OP_LINEAR_DX: l.nm = &args->in[0], l.mk = &args->in[1], l.nk = &args->out[0]; break;
    default: l.nm = &args->in[0], l.nk = &args->in[1], l.mk = &args->out[0]; break;
  }
  const int64_t *nk = whole ? l.nk->dims : l.nk->valid;
  const int64_t *nm = whole ? l.nm->dims : l.nm->valid;
  const int64_t *mk = whole ? l.mk->dims : l.mk->valid;
  l.n = least(nk[0], nm[0]);
  l.m = least(nm[1], mk[0]);
  l.k = least(nk[1], mk[1] * ls_dtype_numbers(l.mk->dtype));
  return l;
}

static ls_matrix matrix(const ls_view *view, bool transposed) {
  return (ls_matrix){.data = view->data,
                     .dtype = view->dtype,
                     .row_stride = transposed ? 1 : view->dims[1],
                     .column_stride = transposed ? view->dims[1] : 1};
}

ls_product ls_product_of(ls_op_kind kind, const ls_view *nk, const ls_view *nm, const ls_view *mk,
                         int64_t n, int64_t m, int64_t k) {
  switch (kind) {
    case LS_OP_LINEAR:
      return (ls_product){matrix(nm, false), matrix(nk, false), matrix(mk, true), n, m, k};
    case LS_OP_LINEAR_DX:
      return (ls_product){matrix(nk, false), matrix(nm, false), matrix(mk, false), n, k, m};
    default: return (ls_product){matrix(mk, false), matrix(nm, true), matrix(nk, false), m, k, n};
  }
}

ls_matrix ls_matrix_from(const ls_matrix *whole, int64_t row, int64_t column) {
  const int64_t skipped = row * whole->row_stride + column * whole->column_stride;
  ls_matrix part = *whole;
  if (part.data) part.data = (char *)part.data + (size_t)skipped * ls_dtype_bytes(part.dtype);
  return part;
}

ls_product ls_product_part(const ls_product *whole, int64_t row, int64_t rows, int64_t column,
                           int64_t columns) {
  return (ls_product){.target = ls_matrix_from(&whole->target, row, column),
                      .left = ls_matrix_from(&whole->left, row, 0),
                      .right = ls_matrix_from(&whole->right, 0, column),
                      .rows = rows,
                      .columns = columns,
                      .depth = whole->depth};
}

/* A single column whose elements lie apart: oneDNN 3.7 takes vectors to be dense. */
static bool column_apart(const ls_view *view, int64_t columns) {
  return columns == 1 && view->dims[1] != 1;
}

static ls_product product_of(const ls_linear *l) {
  return ls_product_of(l->kind, l->nk, l->nm, l->mk, l->n, l->m, l->k);
}

bool ls_linear_is_direct(const ls_device_facts *facts, const ls_linear *l) {
  const ls_product p = product_of(l);
  if (p.left.dtype != p.right.dtype) return false;
  if (column_apart(l->nk, l->k) || column_apart(l->nm, l->m) || column_apart(l->mk, l->k))
    return false;
  if (p.left.dtype == LS_F32 && p.target.dtype == LS_F32) return true;
  if (p.left.dtype == LS_F16)
    return p.target.dtype != LS_BF16 && ls_device_multiplies(facts, LS_F16);
  return p.left.dtype == LS_BF16 && ls_device_multiplies(facts, LS_BF16);
}

static bool is_turned(const ls_product *p) {
  return p->left.column_stride != 1;
}

bool ls_product_is_copied(const ls_product *p) {
  return is_turned(p) && p->left.dtype == LS_F32;
}

static double round_up(int64_t length) {
  return (double)((length + 63) / 64 * 64);
}

/* oneDNN copies blocks of both operands and keeps blocks of sums, for each thread as much as its
 * second-level cache holds: brgemm_matmul_utils.cpp, init_scratchpad, alike in 2.6 and 3.7. Where
 * it turns an operand it takes gemm_bf16_matmul.cpp, which keeps all sums in fp32. */
size_t ls_product_scratch(const ls_product *p, int threads) {
  enum { BOOKS = 1 << 14, MOST = 1 << 20 };
  if (p->left.dtype == LS_F32) return 0; /* its gemm keeps its own */
  const double rows = round_up(p->rows), columns = round_up(p->columns), depth = round_up(p->depth);
  const double whole = 2 * depth * (rows + columns) + 4 * rows * columns + BOOKS;
  const double sums = is_turned(p) && p->target.dtype != LS_F32 ? 4 * rows * columns : 0;
  return (size_t)((whole < MOST ? whole : MOST) * (threads > 1 ? threads : 1) + sums);
}

static bool reads_bf16(const ls_linear *l) {
  return l->nk->dtype == LS_BF16 && l->nm->dtype == LS_BF16;
}

bool ls_linear_is_few_rows(const ls_linear *l) {
  return l->kind == LS_OP_LINEAR && l->n <= LS_FEW_ROWS && l->mk->dtype != LS_F16;
}

size_t ls_few_rows_bytes(const ls_linear *l) {
  return (size_t)(l->n * (l->k + l->m) + 32) * sizeof(float);
}

size_t ls_few_sums_bytes(const ls_linear *l) {
  enum { FEW = 2 * LS_FEW_SUMS_UNIT };
  const int64_t few = least(l->m, l->k);
  if (l->kind != LS_OP_LINEAR_DW || few > FEW || l->mk->dtype != LS_F32 || !reads_bf16(l)) return 0;
  return (size_t)ls_few_sums_words(least(l->n, LS_FEW_SUMS_TOKENS), few) * sizeof(uint32_t);
}

enum {
  SPLIT_UNIT = 16, /* parts begin at multiples: what kernels have as one */
  PACKING = 4      /* packing a unit of an operand takes as long as so many units of target */
};

static int64_t units_of(int64_t length) {
  return length < SPLIT_UNIT ? 1 : length / SPLIT_UNIT;
}

/* Divides the target so that the largest part, with the packing of its operands, is least. */
static void split_grid(ls_split_product *split) {
  const int64_t rows = units_of(split->whole->rows), columns = units_of(split->whole->columns);
  int64_t best = INT64_MAX;
  for (int down = 1; down <= split->parts; down++) {
    if (split->parts % down != 0) continue;
    const int across = split->parts / down;
    const int64_t high = (rows + down - 1) / down, wide = (columns + across - 1) / across;
    const int64_t cost = high * wide + PACKING * (high + wide);
    if (cost >= best) continue;
    best = cost;
    split->down = down;
    split->across = across;
  }
}

/* Where part `index` of `parts` begins in `length`; the last one takes what is no whole unit. */
static int64_t split_at(int64_t length, int index, int parts) {
  return index == parts ? length : units_of(length) * index / parts * SPLIT_UNIT;
}

ls_product ls_split_part(const ls_split_product *split, int part) {
  const ls_product *whole = split->whole;
  const int i = part / split->across, j = part % split->across;
  const int64_t row = split_at(whole->rows, i, split->down);
  const int64_t column = split_at(whole->columns, j, split->across);
  return ls_product_part(whole, row, split_at(whole->rows, i + 1, split->down) - row, column,
                         split_at(whole->columns, j + 1, split->across) - column);
}

static size_t part_bytes(const ls_product *p) {
  if (p->rows == 0 || p->columns == 0) return 0;
  if (ls_product_is_copied(p))
    return (size_t)(LS_TURNED_DEPTH * ls_dense_stride(least(p->rows, LS_TURNED_ROWS))) *
           sizeof(float);
  return ls_product_scratch(p, 1);
}

ls_split_product ls_product_split(const ls_device_facts *facts, const ls_product *whole, bool add) {
  enum { PRODUCTS_AS_ELEMENT = 32 }; /* so many take as long as an element of other kernels */
  const double products = (double)whole->rows * (double)whole->columns * (double)whole->depth;
  ls_split_product split = {.whole = whole, .add = add};
  split.parts = ls_cpu_parts(facts, (int64_t)(products / PRODUCTS_AS_ELEMENT));
  if (is_turned(whole) && !ls_product_is_copied(whole) && split.parts == 1)
    split.parts = 2; /* see ls_product_splits */
  split_grid(&split);
  for (int i = 0; i < split.parts; i++) {
    const ls_product p = ls_split_part(&split, i);
    const size_t bytes = part_bytes(&p);
    if (bytes > split.part_bytes) split.part_bytes = bytes;
  }
  split.part_bytes = (split.part_bytes + 127) / 64 * 64; /* room to align it */
  return split;
}

bool ls_product_splits(const ls_device_facts *facts, const ls_product *p) {
  return facts->exact || p->left.dtype == LS_F32 || is_turned(p);
}

enum { RANGE_FLOATS = 1 << 22, RANGE_MOST = 2048, CHUNK_FLOATS = 1 << 20, CHUNK_ROWS = 512 };

ls_widening ls_widening_of(const ls_linear *l) {
  ls_widening w = {.l = l};
  const int64_t range = least(RANGE_FLOATS / l->k, RANGE_MOST);
  w.range = least(l->m, range < 64 ? 64 : range - range % 64);
  const int64_t rows = CHUNK_FLOATS / (w.range + l->k);
  w.rows = least(l->n, rows < 64 ? 64 : least(rows - rows % 16, CHUNK_ROWS));
  w.part_floats = ls_dense_floats(w.rows, l->k) + ls_dense_floats(w.rows, w.range);
  return w;
}

bool ls_widening_copies_nk(const ls_linear *l) {
  return l->kind == LS_OP_LINEAR_DX && l->nk->dtype != LS_F32;
}

bool ls_widening_copies_mk(const ls_linear *l) {
  return l->kind != LS_OP_LINEAR_DW || l->mk->dtype != LS_F32;
}

size_t ls_widening_bytes(const ls_widening *w, int parts) {
  const ls_linear *l = w->l;
  const int64_t shared = (ls_widening_copies_nk(l) ? ls_dense_floats(l->n, l->k) : 0) +
                         (ls_widening_copies_mk(l) ? ls_dense_floats(w->range, l->k) : 0);
  return (size_t)(shared + parts * w->part_floats) * sizeof(float);
}

static size_t scratch_of(const ls_device_facts *facts, const ls_linear *l) {
  if (!ls_linear_is_direct(facts, l)) {
    const ls_widening w = ls_widening_of(l);
    return ls_widening_bytes(&w, ls_cpu_parts(facts, INT64_MAX));
  }
  const ls_product p = product_of(l);
  if (!ls_product_splits(facts, &p)) return ls_product_scratch(&p, facts->threads);
  const ls_split_product split = ls_product_split(facts, &p, l->add);
  return split.part_bytes * (size_t)split.parts + 64;
}

bool ls_linear_has_blocks(const ls_linear *l) {
  return ls_dtype_numbers(l->mk->dtype) > 1;
}

int64_t ls_linear_columns(const ls_linear *l) {
  return l->kind == LS_OP_LINEAR ? l->m : l->k;
}

static ls_dtype panel_dtype(const ls_linear *l) {
  return l->kind == LS_OP_LINEAR ? l->nk->dtype : l->nm->dtype;
}

int64_t ls_panel_columns(const ls_device_facts *facts, const ls_linear *l) {
  enum { BYTES = 1 << 20 }; /* for each part of the product */
  const int64_t depth = l->kind == LS_OP_LINEAR ? l->k : l->m;
  const int64_t bytes = BYTES * (int64_t)ls_cpu_parts(facts, INT64_MAX);
  const int64_t columns = bytes / (depth * (int64_t)ls_dtype_bytes(panel_dtype(l)));
  return least(ls_linear_columns(l), columns < LS_BLOCK_WEIGHTS
                                         ? LS_BLOCK_WEIGHTS
                                         : columns - columns % LS_BLOCK_WEIGHTS);
}

void ls_panel_make(const ls_linear *l, int64_t first, int64_t columns, ls_panel *panel) {
  const bool forward = l->kind == LS_OP_LINEAR;
  const int64_t rows = forward ? columns : l->m, depth = forward ? l->k : columns;
  panel->l = *l;
  panel->l.mk = &panel->weights;
  panel->weights = (ls_view){.dtype = panel_dtype(l),
                             .ndim = 2,
                             .dims = {rows, ls_dense_stride(depth)},
                             .valid = {rows, depth}};
  panel->target = forward ? *l->nm : *l->nk;
  panel->target.valid[1] = columns;
  if (panel->target.data)
    panel->target.data =
        (char *)panel->target.data + (size_t)first * ls_dtype_bytes(panel->target.dtype);
  *(forward ? &panel->l.nm : &panel->l.nk) = &panel->target;
  *(forward ? &panel->l.m : &panel->l.k) = columns;
}

size_t ls_panel_bytes(const ls_panel *panel) {
  const ls_view *weights = &panel->weights;
  const size_t elements = (size_t)(weights->dims[0] * weights->dims[1]);
  return (elements * ls_dtype_bytes(weights->dtype) + 63) / 64 * 64;
}

/* The first panel is the largest; the last has what is left. */
size_t ls_panel_scratch(const ls_device_facts *facts, const ls_linear *l) {
  const int64_t all = ls_linear_columns(l), columns = ls_panel_columns(facts, l);
  size_t most = 0;
  for (int last = 0; last < 2; last++) {
    ls_panel panel;
    ls_panel_make(l, 0, last ? (all - 1) % columns + 1 : columns, &panel);
    const size_t bytes = scratch_of(facts, &panel.l);
    if (bytes > most) most = bytes;
  }
  return most + 64;
}

/* Scratch for the entries that are stored or, where `whole` is false, valid. */
static size_t recipe(const ls_device_facts *facts, ls_op_kind kind, const ls_kernel_args *args,
                     bool whole) {
  const ls_linear l = ls_linear_read(kind, args, whole);
  if (l.n <= 0 || l.m <= 0 || l.k <= 0) return 0;
  if (ls_linear_is_few_rows(&l)) return ls_few_rows_bytes(&l);
  if (!ls_linear_has_blocks(&l)) {
    const size_t bytes = scratch_of(facts, &l), few = ls_few_sums_bytes(&l);
    return bytes > few ? bytes : few;
  }
  ls_panel panel;
  ls_panel_make(&l, 0, ls_panel_columns(facts, &l), &panel);
  return ls_panel_bytes(&panel) + ls_panel_scratch(facts, &l);
}

size_t ls_linear_recipe(const ls_device_facts *facts, ls_op_kind kind, const ls_kernel_args *args) {
  const size_t stored = recipe(facts, kind, args, true), valid = recipe(facts, kind, args, false);
  return stored > valid ? stored : valid;
}

ls_grouped ls_grouped_of(ls_op_kind kind) {
  switch (kind) {
    case LS_OP_GROUPED_UP:
    case LS_OP_GROUPED_DOWN_DX: return (ls_grouped){LS_OP_LINEAR_DX, false};
    case LS_OP_GROUPED_DOWN:
    case LS_OP_GROUPED_UP_DX: return (ls_grouped){LS_OP_LINEAR, false};
    default: return (ls_grouped){LS_OP_LINEAR_DW, true};
  }
}

/* One of the two operands that have rows is as wide as a matrix is high. */
ls_held_experts ls_grouped_experts(const ls_grouped *grouped, const ls_kernel_args *args) {
  const ls_view *weights = grouped->gradient ? &args->out[0] : &args->in[1];
  const bool made = grouped->product == LS_OP_LINEAR;
  return ls_held_experts_of(weights, (made ? &args->out[0] : &args->in[0])->dims[1]);
}

/* Fewer rows take no more than all of them: but for few, whose kernel is another; and in fewer,
 * larger parts, none of which is larger than the whole. */
static size_t grouped_recipe(const ls_device_facts *facts, ls_op_kind kind,
                             const ls_kernel_args *args, bool whole) {
  ls_linear l = ls_linear_read(kind, args, whole);
  const int64_t rows = l.n;
  const size_t parts = (size_t)ls_cpu_parts(facts, INT64_MAX);
  size_t few = 0;
  if (l.n <= 0 || l.m <= 0 || l.k <= 0) return 0;
  l.n = least(rows, LS_FEW_ROWS);
  if (ls_linear_is_few_rows(&l)) few = ls_few_rows_bytes(&l);
  l.n = rows;
  if (!ls_linear_is_direct(facts, &l)) {
    const ls_widening w = ls_widening_of(&l);
    const size_t bytes = ls_widening_bytes(&w, (int)parts);
    return bytes > few ? bytes : few;
  }
  const ls_product p = product_of(&l);
  const size_t apart = (part_bytes(&p) + 127) * (parts > 2 ? parts : 2) + 64;
  const size_t together = ls_product_scratch(&p, facts->threads);
  const size_t bytes = ls_product_splits(facts, &p) ? apart : together;
  return bytes > few ? bytes : few;
}

size_t ls_grouped_recipe(const ls_device_facts *facts, ls_op_kind kind,
                         const ls_kernel_args *args) {
  const ls_grouped grouped = ls_grouped_of(kind);
  ls_kernel_args one = *args;
  ls_view *matrix = grouped.gradient ? &one.out[0] : &one.in[1];
  matrix->dims[0] /= ls_grouped_experts(&grouped, args).count;
  matrix->valid[0] = matrix->dims[0];
  const size_t stored = grouped_recipe(facts, grouped.product, &one, true);
  const size_t valid = grouped_recipe(facts, grouped.product, &one, false);
  return stored > valid ? stored : valid;
}
