/* linear, linear_dx and linear_dw: the three products of one weight, as linear_plan.h has them.
 *
 * Where bf16 or fp16 are not multiplied as they are stored, they are copied as fp32, a range of m
 * at a time, so that the copies of a vocabulary's weights and logits stay small. */
#include <string.h>

#include "base/blocks.h"
#include "device/cpu/cpu.h"
#include "device/cpu/linear_plan.h"
#include "device/cpu/vector_table.h"

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static char *element(const ls_view *view, int64_t row, int64_t column) {
  return (char *)view->data + (size_t)(row * view->dims[1] + column) * ls_dtype_bytes(view->dtype);
}

static const ls_view *target_of(const ls_linear *l) {
  if (l->kind == LS_OP_LINEAR) return l->nm;
  return l->kind == LS_OP_LINEAR_DX ? l->nk : l->mk;
}

static size_t scratch_of(const ls_product *p, bool add, int threads) {
  return ls_onednn_scratch_bytes(&p->target, &p->left, &p->right, p->rows, p->columns, p->depth,
                                 add, threads);
}

/* Whether oneDNN keeps to the recipe's scratch; the smallest products are made as they are. */
static bool keeps_to_recipe(const ls_product *p, bool add, const ls_device_facts *facts) {
  if (p->left.dtype == LS_F32 || (p->rows <= 64 && p->columns <= 64)) return true;
  return scratch_of(p, add, facts->threads) <= ls_product_scratch(p, facts->threads);
}

/* The first or the second half of a product along its target's longer side. */
static ls_product half_of(const ls_product *p, bool second) {
  const bool tall = p->rows > p->columns;
  const int64_t length = tall ? p->rows : p->columns, middle = (length / 2 + 63) / 64 * 64;
  const int64_t begin = second ? middle : 0, count = second ? length - middle : middle;
  return tall ? ls_product_part(p, begin, count, 0, p->columns)
              : ls_product_part(p, 0, p->rows, begin, count);
}

static ls_status multiply(const ls_product *p, bool add, const ls_kernel_args *args,
                          ls_error *error) {
  if (keeps_to_recipe(p, add, args->queue->facts))
    return ls_onednn_multiply(&p->target, &p->left, &p->right, p->rows, p->columns, p->depth, add,
                              args, error);
  const ls_product first = half_of(p, false), second = half_of(p, true);
  LS_TRY(multiply(&first, add, args, error));
  return multiply(&second, add, args, error);
}

/* What oneDNN wants for a product that is made like this. */
static size_t wanted(const ls_product *p, bool add, const ls_device_facts *facts) {
  if (keeps_to_recipe(p, add, facts)) return scratch_of(p, add, facts->threads);
  const ls_product first = half_of(p, false), second = half_of(p, true);
  const size_t a = wanted(&first, add, facts), b = wanted(&second, add, facts);
  return a > b ? a : b;
}

/* Rows and columns of the output that have no product: padding columns, or all of it where the
 * contracted dimension is empty. */
static void clear_output(const ls_linear *l, bool empty) {
  if (l->add) return;
  const ls_view *target = target_of(l);
  const int64_t rows = l->kind == LS_OP_LINEAR_DW ? l->m : l->n;
  const int64_t columns = empty ? 0 : (l->kind == LS_OP_LINEAR ? l->m : l->k);
  const size_t bytes = (size_t)(target->dims[1] - columns) * ls_dtype_bytes(target->dtype);
  if (bytes == 0) return;
  for (int64_t row = 0; row < rows; row++) memset(element(target, row, columns), 0, bytes);
}

/* Fills a dense fp32 matrix from what is stored at (row, column) of `source`. */
static void widen(const ls_view *target, const ls_view *source, int64_t row, int64_t column) {
  const ls_vector_set *vectors = ls_cpu_vectors();
  const int64_t columns = target->valid[1];
  for (int64_t i = 0; i < target->valid[0]; i++) {
    const void *from = element(source, row + i, column);
    float *to = (float *)target->data + i * target->dims[1];
    if (source->dtype == LS_F32) {
      memcpy(to, from, (size_t)columns * sizeof(float));
    } else {
      vectors->widen(to, from, source->dtype, columns);
    }
  }
}

/* The way back, adding to what is stored when `add`. */
static void narrow(const ls_view *target, int64_t row, int64_t column, const ls_view *source,
                   bool add) {
  const ls_vector_set *vectors = ls_cpu_vectors();
  const int64_t columns = source->valid[1];
  for (int64_t i = 0; i < source->valid[0]; i++) {
    const float *from = (const float *)source->data + i * source->dims[1];
    void *to = element(target, row + i, column);
    if (target->dtype != LS_F32) {
      vectors->narrow(to, target->dtype, from, columns, add);
      continue;
    }
    float *sums = to;
    for (int64_t j = 0; j < columns; j++) sums[j] = from[j] + (add ? sums[j] : 0.0f);
  }
}

static ls_view dense(float *data, int64_t rows, int64_t columns) {
  return (ls_view){.data = data,
                   .dtype = LS_F32,
                   .ndim = 2,
                   .dims = {rows, ls_dense_stride(columns)},
                   .valid = {rows, columns}};
}

/* Rows [row, row + rows) and columns [column, column + columns) of a matrix, where they lie. */
static ls_view slice(const ls_view *view, int64_t row, int64_t rows, int64_t column,
                     int64_t columns) {
  ls_view part = *view;
  part.data = element(view, row, column);
  part.valid[0] = rows;
  part.valid[1] = columns;
  return part;
}

static void chunk_multiply(const ls_widening *w, const ls_view *nk, const ls_view *nm,
                           const ls_view *mk, int64_t n, int64_t m, bool add) {
  const ls_product p = ls_product_of(w->l->kind, nk, nm, mk, n, m, w->l->k);
  ls_error error;
  if (ls_onednn_multiply_alone(&p.target, &p.left, &p.right, p.rows, p.columns, p.depth, add,
                               &error) != LS_OK)
    atomic_store(w->failed, true);
}

static void range_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_widening *w = work;
  const ls_view rows = dense(w->mk + begin * ls_dense_stride(w->l->k), end - begin, w->l->k);
  widen(&rows, w->l->mk, w->m0 + begin, 0);
}

/* linear: rows [begin, end) of y. */
static void linear_turns(const void *work, int part, int64_t begin, int64_t end) {
  const ls_widening *w = work;
  const ls_linear *l = w->l;
  const ls_view mk = dense(w->mk, w->count, l->k);
  float *chunk = w->part + part * w->part_floats;
  for (int64_t row = begin; row < end; row += w->rows) {
    const int64_t rows = least(w->rows, end - row);
    const ls_view nk = dense(chunk, rows, l->k);
    const ls_view nm = dense(chunk + ls_dense_floats(w->rows, l->k), rows, w->count);
    widen(&nk, l->nk, row, 0);
    chunk_multiply(w, &nk, &nm, &mk, rows, w->count, false);
    narrow(l->nm, row, w->m0, &nm, l->add);
  }
}

/* linear_dx: what the range gives to rows [begin, end) of dx. */
static void dx_turns(const void *work, int part, int64_t begin, int64_t end) {
  const ls_widening *w = work;
  const ls_linear *l = w->l;
  const ls_view mk = dense(w->mk, w->count, l->k);
  float *chunk = w->part + part * w->part_floats;
  for (int64_t row = begin; row < end; row += w->rows) {
    const int64_t rows = least(w->rows, end - row);
    const ls_view nk = w->nk ? dense(w->nk + row * ls_dense_stride(l->k), rows, l->k)
                             : slice(l->nk, row, rows, 0, l->k);
    const ls_view nm = dense(chunk, rows, w->count);
    widen(&nm, l->nm, row, w->m0);
    chunk_multiply(w, &nk, &nm, &mk, rows, w->count, w->m0 > 0 || (l->add && !w->nk));
    if (w->nk && w->m0 + w->count == l->m) narrow(l->nk, row, 0, &nk, l->add);
  }
}

/* linear_dw: rows [begin, end) of the range, to which chunk after chunk of tokens is added. */
static void dw_turns(const void *work, int part, int64_t begin, int64_t end) {
  const ls_widening *w = work;
  const ls_linear *l = w->l;
  const int64_t count = end - begin, first = w->m0 + begin;
  if (count == 0) return;
  const ls_view mk = w->mk ? dense(w->mk + begin * ls_dense_stride(l->k), count, l->k)
                           : slice(l->mk, first, count, 0, l->k);
  float *chunk = w->part + part * w->part_floats;
  for (int64_t row = 0; row < l->n; row += w->rows) {
    const int64_t rows = least(w->rows, l->n - row);
    const ls_view nk = dense(chunk, rows, l->k);
    const ls_view nm = dense(chunk + ls_dense_floats(w->rows, l->k), rows, count);
    widen(&nk, l->nk, row, 0);
    widen(&nm, l->nm, row, first);
    chunk_multiply(w, &nk, &nm, &mk, rows, count, row > 0 || (l->add && !w->mk));
  }
  if (w->mk) narrow(l->mk, first, 0, &mk, l->add);
}

static ls_status widened(const ls_linear *l, const ls_kernel_args *args, ls_error *error) {
  ls_widening w = ls_widening_of(l);
  const int parts = ls_cpu_parts(args->queue->facts, l->n * l->m);
  const size_t bytes = ls_widening_bytes(&w, parts);
  float *scratch = ls_cpu_scratch(args, bytes);
  if (!scratch) return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", bytes);
  atomic_bool failed = false;
  w.failed = &failed;
  if (ls_widening_copies_nk(l)) w.nk = scratch, scratch += ls_dense_floats(l->n, l->k);
  if (ls_widening_copies_mk(l)) w.mk = scratch, scratch += ls_dense_floats(w.range, l->k);
  w.part = scratch;
  for (w.m0 = 0; w.m0 < l->m; w.m0 += w.range) {
    w.count = least(w.range, l->m - w.m0);
    if (l->kind == LS_OP_LINEAR_DW) {
      ls_host_split(args->queue->facts->threads, parts, w.count, dw_turns, &w);
      continue;
    }
    ls_host_split(args->queue->facts->threads, parts, w.count, range_turns, &w);
    ls_host_split(args->queue->facts->threads, parts, l->n,
                  l->kind == LS_OP_LINEAR ? linear_turns : dx_turns, &w);
  }
  if (failed) return ls_fail(error, LS_FAILED, "oneDNN: a product of fp32 copies failed");
  return LS_OK;
}

static void few_rows_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  ls_cpu_vectors()->rows_multiply(work, begin, end);
}

static void order_as_codes(float *x, int64_t count) {
  for (int64_t at = 0; at < count; at += LS_BLOCK_WEIGHTS) {
    float block[LS_BLOCK_WEIGHTS];
    memcpy(block, x + at, sizeof block);
    for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) x[at + ls_four_bit_place(i)] = block[i];
  }
}

static ls_status few_rows(const ls_linear *l, const ls_kernel_args *args, ls_error *error) {
  float *x = ls_cpu_scratch(args, ls_few_rows_bytes(l));
  if (!x)
    return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", ls_few_rows_bytes(l));
  const ls_view wide = {
      .data = x, .dtype = LS_F32, .ndim = 2, .dims = {l->n, l->k}, .valid = {l->n, l->k}};
  const ls_view sums = {.data = x + (l->n * l->k + 15) / 16 * 16,
                        .dtype = LS_F32,
                        .ndim = 2,
                        .dims = {l->n, l->m},
                        .valid = {l->n, l->m}};
  widen(&wide, l->nk, 0, 0);
  if (ls_blocks_values(l->mk->dtype)) order_as_codes(x, l->n * l->k);
  const ls_few_rows product = {.y = sums.data,
                               .x = x,
                               .weights = l->mk->data,
                               .dtype = l->mk->dtype,
                               .stride = l->mk->dims[1],
                               .rows = l->n,
                               .columns = l->m,
                               .depth = l->k};
  const int parts = ls_cpu_parts(args->queue->facts, l->m * l->k);
  ls_host_split(args->queue->facts->threads, parts, l->m, few_rows_turns, &product);
  narrow(l->nm, 0, 0, &sums, l->add);
  return LS_OK;
}

/* A turned left operand is copied to rows that do not evict each other, as much as stays in the
 * second-level cache: of operands in the cache 5 % faster over shapes of dw, a third where rows are
 * a multiple of 2 KB. */
static ls_status multiply_turned(const ls_product *p, bool add, float *copy, ls_error *error) {
  for (int64_t row = 0; row < p->rows; row += LS_TURNED_ROWS) {
    const int64_t rows = least(LS_TURNED_ROWS, p->rows - row);
    const ls_matrix target = ls_matrix_from(&p->target, row, 0);
    const ls_matrix left = {copy, LS_F32, 1, ls_dense_stride(rows)};
    for (int64_t begin = 0; begin < p->depth; begin += LS_TURNED_DEPTH) {
      const int64_t depth = least(LS_TURNED_DEPTH, p->depth - begin);
      for (int64_t i = 0; i < depth; i++) {
        const ls_matrix from = ls_matrix_from(&p->left, row, begin + i);
        memcpy(copy + i * left.column_stride, from.data, (size_t)rows * sizeof(float));
      }
      const ls_matrix right = ls_matrix_from(&p->right, begin, 0);
      LS_TRY(ls_onednn_multiply_alone(&target, &left, &right, rows, p->columns, depth,
                                      add || begin > 0, error));
    }
  }
  return LS_OK;
}

static void split_turns(const void *work, int index, int64_t begin, int64_t end) {
  (void)begin, (void)end;
  const ls_split_product *split = work;
  const ls_product p = ls_split_part(split, index);
  if (p.rows == 0 || p.columns == 0) return;
  char *scratch = split->scratch + (size_t)index * split->part_bytes;
  const ls_kernel_args alone = {
      .queue = split->alone, .workspace = scratch, .workspace_bytes = split->part_bytes};
  ls_error error;
  const ls_status status = ls_product_is_copied(&p)
                               ? multiply_turned(&p, split->add, (float *)scratch, &error)
                               : multiply(&p, split->add, &alone, &error);
  if (status != LS_OK) atomic_store(split->failed, true);
}

static ls_status multiply_split(const ls_product *p, bool add, const ls_kernel_args *args,
                                ls_error *error) {
  ls_device_facts one = *args->queue->facts;
  one.threads = 1;
  const ls_device_queue alone = {.facts = &one};
  ls_split_product split = ls_product_split(args->queue->facts, p, add);
  split.alone = &alone;
  const size_t bytes = split.part_bytes * (size_t)split.parts;
  split.scratch = ls_cpu_scratch(args, bytes);
  if (!split.scratch) return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", bytes);
  atomic_bool failed = false;
  split.failed = &failed;
  ls_host_split(args->queue->facts->threads, split.parts, split.parts, split_turns, &split);
  if (failed) return ls_fail(error, LS_FAILED, "oneDNN: a part of a product failed");
  return LS_OK;
}

static void few_sums_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  ls_cpu_vectors()->few_sums_make(work, begin, end);
}

/* A gradient with few rows or columns: some tokens after others, so that scratch is bounded. */
static ls_status few_sums(const ls_linear *l, const ls_kernel_args *args, ls_error *error) {
  const bool turned = l->k < l->m;
  const int64_t few = turned ? l->k : l->m, many = turned ? l->m : l->k;
  const size_t bytes = ls_few_sums_bytes(l);
  uint32_t *pairs = ls_cpu_scratch(args, bytes);
  if (!pairs) return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", bytes);
  for (int64_t row = 0; row < l->n; row += LS_FEW_SUMS_TOKENS) {
    const ls_bf16_rows nk = {(const uint16_t *)(const void *)element(l->nk, row, 0),
                             l->nk->dims[1]};
    const ls_bf16_rows nm = {(const uint16_t *)(const void *)element(l->nm, row, 0),
                             l->nm->dims[1]};
    const ls_few_sums sums = {.y = l->mk->data,
                              .stride = l->mk->dims[1],
                              .few = turned ? nk : nm,
                              .many = turned ? nm : nk,
                              .tokens = least(LS_FEW_SUMS_TOKENS, l->n - row),
                              .few_columns = few,
                              .many_columns = many,
                              .turned = turned,
                              .add = l->add || row > 0,
                              .pairs = pairs};
    ls_cpu_vectors()->few_sums_pack(&sums);
    ls_host_split(args->queue->facts->threads, ls_cpu_parts(args->queue->facts, sums.tokens * many),
                  (many + LS_FEW_SUMS_UNIT - 1) / LS_FEW_SUMS_UNIT, few_sums_turns, &sums);
  }
  return LS_OK;
}

/* Whether x and y are bf16 that is multiplied as it is, by kernels of our own. */
static bool multiplies_pairs(const ls_linear *l, const ls_device_facts *facts) {
  return l->nk->dtype == LS_BF16 && l->nm->dtype == LS_BF16 && ls_cpu_vectors()->few_sums_make &&
         ls_device_multiplies(facts, LS_BF16);
}

static bool has_few_sums(const ls_linear *l, const ls_device_facts *facts) {
  return ls_few_sums_bytes(l) > 0 && multiplies_pairs(l, facts);
}

static void shallow_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  ls_cpu_vectors()->shallow_make(work, begin, end);
}

static ls_shallow shallow_of(const ls_linear *l) {
  const bool forward = l->kind == LS_OP_LINEAR;
  const ls_view *x = forward ? l->nk : l->nm, *y = forward ? l->nm : l->nk;
  const int64_t stride = l->mk->dims[1];
  return (ls_shallow){.y = y->data,
                      .stride = y->dims[1],
                      .x = {x->data, x->dims[1]},
                      .w = l->mk->data,
                      .w_row = forward ? 1 : stride,
                      .w_column = forward ? stride : 1,
                      .columns = forward ? l->m : l->k,
                      .depth = forward ? l->k : l->m,
                      .add = l->add};
}

static size_t shallow_bytes(const ls_shallow *p) {
  return (size_t)(p->depth / 2 * ls_shallow_stride(p->columns)) * sizeof(uint32_t);
}

/* A product of as few terms as an adapter has, whose copy stays within the recipe. */
static bool is_shallow(const ls_linear *l, const ls_device_facts *facts) {
  enum { MOST = 1 << 19 };
  if (l->kind == LS_OP_LINEAR_DW || l->mk->dtype != LS_BF16 || !multiplies_pairs(l, facts))
    return false;
  const ls_shallow p = shallow_of(l);
  return (p.depth == 8 || p.depth == 16 || p.depth == LS_SHALLOW) && shallow_bytes(&p) <= MOST;
}

static ls_status shallow(const ls_linear *l, const ls_kernel_args *args, ls_error *error) {
  ls_shallow product = shallow_of(l);
  product.pairs = ls_cpu_scratch(args, shallow_bytes(&product));
  if (!product.pairs)
    return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", shallow_bytes(&product));
  ls_cpu_vectors()->shallow_pack(&product);
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, l->n * product.columns), l->n, shallow_turns,
                &product);
  return LS_OK;
}

static ls_status many_rows(const ls_linear *l, const ls_kernel_args *args, ls_error *error) {
  if (!ls_linear_is_direct(args->queue->facts, l)) return widened(l, args, error);
  const ls_product p = ls_product_of(l->kind, l->nk, l->nm, l->mk, l->n, l->m, l->k);
  return (ls_product_splits(args->queue->facts, &p) ? multiply_split : multiply)(&p, l->add, args,
                                                                                 error);
}

/* Makes a panel's weights of the blocks that begin at (row, column). */
static ls_status restore(const ls_panel *panel, const ls_view *blocks, int64_t row, int64_t column,
                         const ls_kernel_args *args, ls_error *error) {
  ls_kernel_args restored = {.queue = args->queue, .inputs = 1, .outputs = 1};
  restored.in[0] = slice(blocks, row, panel->weights.valid[0], column / LS_BLOCK_WEIGHTS,
                         panel->weights.valid[1] / LS_BLOCK_WEIGHTS);
  restored.out[0] = panel->weights;
  return ls_cpu_vectors()->dequantize(&restored, error);
}

static ls_status in_panels(const ls_linear *l, const ls_kernel_args *args, ls_error *error) {
  const ls_device_facts *facts = args->queue->facts;
  const int64_t all = ls_linear_columns(l), columns = ls_panel_columns(facts, l);
  ls_panel panel;
  ls_panel_make(l, 0, columns, &panel);
  const size_t bytes = ls_panel_bytes(&panel), rest = ls_panel_scratch(facts, l);
  char *scratch = ls_cpu_scratch(args, bytes + rest);
  if (!scratch)
    return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", bytes + rest);
  ls_kernel_args within = *args;
  within.workspace = scratch + bytes;
  within.workspace_bytes = rest;
  for (int64_t first = 0; first < all; first += columns) {
    const bool forward = l->kind == LS_OP_LINEAR;
    ls_panel_make(l, first, least(columns, all - first), &panel);
    panel.weights.data = scratch;
    LS_TRY(restore(&panel, l->mk, forward ? first : 0, forward ? 0 : first, args, error));
    LS_TRY(many_rows(&panel.l, &within, error));
  }
  return LS_OK;
}

ls_status ls_cpu_linear(ls_op_kind kind, const ls_kernel_args *args, ls_error *error) {
  const ls_linear l = ls_linear_read(kind, args, false);
  const bool empty = l.n <= 0 || l.m <= 0 || l.k <= 0;
  if (ls_linear_has_blocks(&l) && l.k != l.mk->valid[1] * LS_BLOCK_WEIGHTS)
    return ls_fail(error, LS_INTERNAL, "%lld blocks of a row are multiplied with %lld columns",
                   (long long)l.mk->valid[1], (long long)l.nk->valid[1]);
  clear_output(&l, empty);
  if (empty) return LS_OK;
  if (ls_linear_is_few_rows(&l)) return few_rows(&l, args, error);
  if (has_few_sums(&l, args->queue->facts)) return few_sums(&l, args, error);
  if (is_shallow(&l, args->queue->facts)) return shallow(&l, args, error);
  return (ls_linear_has_blocks(&l) ? in_panels : many_rows)(&l, args, error);
}

static ls_status kernel_linear(const ls_kernel_args *args, ls_error *error) {
  return ls_cpu_linear(LS_OP_LINEAR, args, error);
}

static ls_status kernel_linear_dx(const ls_kernel_args *args, ls_error *error) {
  return ls_cpu_linear(LS_OP_LINEAR_DX, args, error);
}

static ls_status kernel_linear_dw(const ls_kernel_args *args, ls_error *error) {
  return ls_cpu_linear(LS_OP_LINEAR_DW, args, error);
}

static ls_status kernel_linear_blocks(const ls_kernel_args *args, ls_error *error) {
  return ls_cpu_linear(LS_OP_LINEAR_BLOCKS, args, error);
}

static ls_status kernel_linear_blocks_dx(const ls_kernel_args *args, ls_error *error) {
  return ls_cpu_linear(LS_OP_LINEAR_BLOCKS_DX, args, error);
}

void ls_cpu_linear_kernels(ls_kernel_table *table) {
  table->kernel[LS_OP_LINEAR] = kernel_linear;
  table->kernel[LS_OP_LINEAR_DX] = kernel_linear_dx;
  table->kernel[LS_OP_LINEAR_DW] = kernel_linear_dw;
  table->kernel[LS_OP_LINEAR_BLOCKS] = kernel_linear_blocks;
  table->kernel[LS_OP_LINEAR_BLOCKS_DX] = kernel_linear_blocks_dx;
}

static size_t many_rows_want(const ls_linear *l, const ls_device_facts *facts) {
  if (!ls_linear_is_direct(facts, l)) return 0;
  const ls_product p = ls_product_of(l->kind, l->nk, l->nm, l->mk, l->n, l->m, l->k);
  if (!ls_product_splits(facts, &p)) return wanted(&p, l->add, facts);
  ls_device_facts alone = *facts;
  alone.threads = 1;
  const ls_split_product split = ls_product_split(facts, &p, l->add);
  size_t most = 0;
  for (int i = 0; i < split.parts; i++) {
    const ls_product part = ls_split_part(&split, i);
    const size_t bytes = part.rows && part.columns ? wanted(&part, l->add, &alone) : 0;
    if (bytes > most) most = bytes;
  }
  return most * (size_t)split.parts;
}

/* Of the entries that are valid: those are what is multiplied. */
size_t ls_cpu_linear_wants(ls_op_kind kind, const ls_kernel_args *args) {
  const ls_linear l = ls_linear_read(kind, args, false);
  const ls_device_facts *facts = args->queue->facts;
  if (l.n <= 0 || l.m <= 0 || l.k <= 0 || ls_linear_is_few_rows(&l)) return 0;
  if (!ls_linear_has_blocks(&l)) return many_rows_want(&l, facts);
  const int64_t all = ls_linear_columns(&l), columns = ls_panel_columns(facts, &l);
  size_t most = 0;
  for (int last = 0; last < 2; last++) {
    ls_panel panel;
    ls_panel_make(&l, 0, last ? (all - 1) % columns + 1 : columns, &panel);
    const size_t bytes = ls_panel_bytes(&panel) + many_rows_want(&panel.l, facts);
    if (bytes > most) most = bytes;
  }
  return most;
}
