/* linear, linear_dx and linear_dw: the three products of one weight.
 *
 * Every one of them joins three matrices: n x k (x or dx), n x m (y or dy) and m x k (weight or its
 * gradient). Where oneDNN multiplies the operands as they are stored, that is one call. Where it
 * does not (bf16 or fp16 on a processor without it) they are copied as fp32, a range of m at a
 * time, so that the copies of a vocabulary's weights and logits stay small. */
#include <stdatomic.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/onednn.h"
#include "device/cpu/vector_table.h"

typedef struct linear {
  ls_op_kind kind;
  const ls_view *nk, *nm, *mk;
  int64_t n, m, k;
  bool add;
} linear;

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Reads the three views of `kind` from `args`, as many of their entries as `whole` says: those
 * stored, or those valid. */
static linear linear_read(ls_op_kind kind, const ls_kernel_args *args, bool whole) {
  linear l = {.kind = kind, .add = args->accumulate[0]};
  switch (kind) {
    case LS_OP_LINEAR: l.nk = &args->in[0], l.mk = &args->in[1], l.nm = &args->out[0]; break;
    case LS_OP_LINEAR_DX: l.nm = &args->in[0], l.mk = &args->in[1], l.nk = &args->out[0]; break;
    default: l.nm = &args->in[0], l.nk = &args->in[1], l.mk = &args->out[0]; break;
  }
  const int64_t *nk = whole ? l.nk->dims : l.nk->valid;
  const int64_t *nm = whole ? l.nm->dims : l.nm->valid;
  const int64_t *mk = whole ? l.mk->dims : l.mk->valid;
  l.n = least(nk[0], nm[0]);
  l.m = least(nm[1], mk[0]);
  l.k = least(nk[1], mk[1]);
  return l;
}

static char *element(const ls_view *view, int64_t row, int64_t column) {
  return (char *)view->data + (size_t)(row * view->dims[1] + column) * ls_dtype_bytes(view->dtype);
}

static ls_matrix matrix(const ls_view *view, bool transposed) {
  return (ls_matrix){.data = view->data,
                     .dtype = view->dtype,
                     .row_stride = transposed ? 1 : view->dims[1],
                     .column_stride = transposed ? view->dims[1] : 1};
}

/* A matrix product: target[rows, columns] from depth. */
typedef struct product_shape {
  ls_matrix target, left, right;
  int64_t rows, columns, depth;
} product_shape;

static product_shape shape_of(ls_op_kind kind, const ls_view *nk, const ls_view *nm,
                              const ls_view *mk, int64_t n, int64_t m, int64_t k) {
  switch (kind) {
    case LS_OP_LINEAR:
      return (product_shape){matrix(nm, false), matrix(nk, false), matrix(mk, true), n, m, k};
    case LS_OP_LINEAR_DX:
      return (product_shape){matrix(nk, false), matrix(nm, false), matrix(mk, false), n, k, m};
    default:
      return (product_shape){matrix(mk, false), matrix(nm, true), matrix(nk, false), m, k, n};
  }
}

static const ls_view *target_of(const linear *l) {
  if (l->kind == LS_OP_LINEAR) return l->nm;
  return l->kind == LS_OP_LINEAR_DX ? l->nk : l->mk;
}

/* A single column whose elements lie apart: oneDNN 3.7 takes vectors to be dense. */
static bool column_apart(const ls_view *view, int64_t columns) {
  return columns == 1 && view->dims[1] != 1;
}

/* Whether oneDNN multiplies these operands as they are stored, and fast. */
static bool multiplies_directly(const linear *l) {
  const product_shape p = shape_of(l->kind, l->nk, l->nm, l->mk, l->n, l->m, l->k);
  if (p.left.dtype != p.right.dtype) return false;
  if (column_apart(l->nk, l->k) || column_apart(l->nm, l->m) || column_apart(l->mk, l->k))
    return false;
  if (p.left.dtype == LS_F32 && p.target.dtype == LS_F32) return true;
  if (p.left.dtype == LS_F16) return p.target.dtype != LS_BF16 && ls_cpu_native_f16();
  return p.left.dtype == LS_BF16 && ls_cpu_native_bf16();
}

static ls_status multiply(const product_shape *p, bool add, const ls_kernel_args *args,
                          ls_error *error) {
  return ls_onednn_multiply(&p->target, &p->left, &p->right, p->rows, p->columns, p->depth, add,
                            args, error);
}

/* Rows and columns of the output that have no product: padding columns, or all of it where the
 * contracted dimension is empty. */
static void clear_output(const linear *l, bool empty) {
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

/* Floats of a row of a copy: not a multiple of 2 KB, where rows would evict each other. */
static int64_t dense_stride(int64_t columns) {
  return columns % 512 == 0 ? columns + 16 : columns;
}

static ls_view dense(float *data, int64_t rows, int64_t columns) {
  return (ls_view){.data = data,
                   .dtype = LS_F32,
                   .ndim = 2,
                   .dims = {rows, dense_stride(columns)},
                   .valid = {rows, columns}};
}

/* Floats of a copy, so that the next one begins on a cache line. */
static int64_t dense_floats(int64_t rows, int64_t columns) {
  return (rows * dense_stride(columns) + 15) / 16 * 16;
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

/* A product by way of fp32 copies. m is gone through in ranges, so that the copy of a vocabulary's
 * weights stays small, and n in chunks of rows that a thread widens, multiplies by itself and
 * narrows while they are in its cache. A gradient that is stored in fp32 is its own copy. */
typedef struct widening {
  const linear *l;
  int64_t range, rows;   /* of m, and of n, at a time */
  int64_t part_floats;   /* of each thread's chunk: rows of nk and of nm */
  float *nk, *mk, *part; /* copies: all of dx where ranges add up to it; a range; the chunks */
  int64_t m0, count;     /* the range at hand */
  atomic_bool *failed;
} widening;

enum { RANGE_FLOATS = 1 << 22, RANGE_MOST = 2048, CHUNK_FLOATS = 1 << 20, CHUNK_ROWS = 512 };

static widening widening_of(const linear *l) {
  widening w = {.l = l};
  const int64_t range = least(RANGE_FLOATS / l->k, RANGE_MOST);
  w.range = least(l->m, range < 64 ? 64 : range - range % 64);
  const int64_t rows = CHUNK_FLOATS / (w.range + l->k);
  w.rows = least(l->n, rows < 64 ? 64 : least(rows - rows % 16, CHUNK_ROWS));
  w.part_floats = dense_floats(w.rows, l->k) + dense_floats(w.rows, w.range);
  return w;
}

static bool copies_nk(const linear *l) {
  return l->kind == LS_OP_LINEAR_DX && l->nk->dtype != LS_F32;
}

static bool copies_mk(const linear *l) {
  return l->kind != LS_OP_LINEAR_DW || l->mk->dtype != LS_F32;
}

static int64_t shared_floats(const widening *w) {
  const linear *l = w->l;
  return (copies_nk(l) ? dense_floats(l->n, l->k) : 0) +
         (copies_mk(l) ? dense_floats(w->range, l->k) : 0);
}

static void chunk_multiply(const widening *w, const ls_view *nk, const ls_view *nm,
                           const ls_view *mk, int64_t n, int64_t m, bool add) {
  const product_shape p = shape_of(w->l->kind, nk, nm, mk, n, m, w->l->k);
  ls_error error;
  if (ls_onednn_multiply_alone(&p.target, &p.left, &p.right, p.rows, p.columns, p.depth, add,
                               &error) != LS_OK)
    atomic_store(w->failed, true);
}

static void range_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const widening *w = work;
  const ls_view rows = dense(w->mk + begin * dense_stride(w->l->k), end - begin, w->l->k);
  widen(&rows, w->l->mk, w->m0 + begin, 0);
}

/* linear: rows [begin, end) of y. */
static void linear_turns(const void *work, int part, int64_t begin, int64_t end) {
  const widening *w = work;
  const linear *l = w->l;
  const ls_view mk = dense(w->mk, w->count, l->k);
  float *chunk = w->part + part * w->part_floats;
  for (int64_t row = begin; row < end; row += w->rows) {
    const int64_t rows = least(w->rows, end - row);
    const ls_view nk = dense(chunk, rows, l->k);
    const ls_view nm = dense(chunk + dense_floats(w->rows, l->k), rows, w->count);
    widen(&nk, l->nk, row, 0);
    chunk_multiply(w, &nk, &nm, &mk, rows, w->count, false);
    narrow(l->nm, row, w->m0, &nm, l->add);
  }
}

/* linear_dx: what the range gives to rows [begin, end) of dx. */
static void dx_turns(const void *work, int part, int64_t begin, int64_t end) {
  const widening *w = work;
  const linear *l = w->l;
  const ls_view mk = dense(w->mk, w->count, l->k);
  float *chunk = w->part + part * w->part_floats;
  for (int64_t row = begin; row < end; row += w->rows) {
    const int64_t rows = least(w->rows, end - row);
    const ls_view nk = w->nk ? dense(w->nk + row * dense_stride(l->k), rows, l->k)
                             : slice(l->nk, row, rows, 0, l->k);
    const ls_view nm = dense(chunk, rows, w->count);
    widen(&nm, l->nm, row, w->m0);
    chunk_multiply(w, &nk, &nm, &mk, rows, w->count, w->m0 > 0 || (l->add && !w->nk));
    if (w->nk && w->m0 + w->count == l->m) narrow(l->nk, row, 0, &nk, l->add);
  }
}

/* linear_dw: rows [begin, end) of the range, to which chunk after chunk of tokens is added. */
static void dw_turns(const void *work, int part, int64_t begin, int64_t end) {
  const widening *w = work;
  const linear *l = w->l;
  const int64_t count = end - begin, first = w->m0 + begin;
  if (count == 0) return;
  const ls_view mk = w->mk ? dense(w->mk + begin * dense_stride(l->k), count, l->k)
                           : slice(l->mk, first, count, 0, l->k);
  float *chunk = w->part + part * w->part_floats;
  for (int64_t row = 0; row < l->n; row += w->rows) {
    const int64_t rows = least(w->rows, l->n - row);
    const ls_view nk = dense(chunk, rows, l->k);
    const ls_view nm = dense(chunk + dense_floats(w->rows, l->k), rows, count);
    widen(&nk, l->nk, row, 0);
    widen(&nm, l->nm, row, first);
    chunk_multiply(w, &nk, &nm, &mk, rows, count, row > 0 || (l->add && !w->mk));
  }
  if (w->mk) narrow(l->mk, first, 0, &mk, l->add);
}

static ls_status widened(const linear *l, const ls_kernel_args *args, ls_error *error) {
  widening w = widening_of(l);
  const int parts = ls_cpu_parts(args, l->n * l->m);
  const size_t bytes = (size_t)(shared_floats(&w) + parts * w.part_floats) * sizeof(float);
  float *scratch = ls_cpu_scratch(args, bytes);
  if (!scratch) return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", bytes);
  atomic_bool failed = false;
  w.failed = &failed;
  if (copies_nk(l)) w.nk = scratch, scratch += dense_floats(l->n, l->k);
  if (copies_mk(l)) w.mk = scratch, scratch += dense_floats(w.range, l->k);
  w.part = scratch;
  for (w.m0 = 0; w.m0 < l->m; w.m0 += w.range) {
    w.count = least(w.range, l->m - w.m0);
    if (l->kind == LS_OP_LINEAR_DW) {
      ls_cpu_share(args->threads, parts, w.count, dw_turns, &w);
      continue;
    }
    ls_cpu_share(args->threads, parts, w.count, range_turns, &w);
    ls_cpu_share(args->threads, parts, l->n, l->kind == LS_OP_LINEAR ? linear_turns : dx_turns, &w);
  }
  if (failed) return ls_fail(error, LS_FAILED, "oneDNN: a product of fp32 copies failed");
  return LS_OK;
}

/* Few rows of x: what memory gives of the weights is all there is to have, so they are read once,
 * as they are stored. Each sum is one thread's, so this is exact as well. */
static bool has_few_rows(const linear *l) {
  return l->kind == LS_OP_LINEAR && l->n <= LS_FEW_ROWS && l->mk->dtype != LS_F16;
}

static size_t few_rows_bytes(const linear *l) {
  return (size_t)(l->n * (l->k + l->m) + 32) * sizeof(float);
}

static void few_rows_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  ls_cpu_vectors()->rows_multiply(work, begin, end);
}

static ls_status few_rows(const linear *l, const ls_kernel_args *args, ls_error *error) {
  float *x = ls_cpu_scratch(args, few_rows_bytes(l));
  if (!x) return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", few_rows_bytes(l));
  const ls_view wide = {
      .data = x, .dtype = LS_F32, .ndim = 2, .dims = {l->n, l->k}, .valid = {l->n, l->k}};
  const ls_view sums = {.data = x + (l->n * l->k + 15) / 16 * 16,
                        .dtype = LS_F32,
                        .ndim = 2,
                        .dims = {l->n, l->m},
                        .valid = {l->n, l->m}};
  widen(&wide, l->nk, 0, 0);
  const ls_few_rows product = {.y = sums.data,
                               .x = x,
                               .weights = l->mk->data,
                               .dtype = l->mk->dtype,
                               .stride = l->mk->dims[1],
                               .rows = l->n,
                               .columns = l->m,
                               .depth = l->k};
  const int parts = ls_cpu_parts(args, l->m * l->k);
  ls_cpu_share(args->threads, parts, l->m, few_rows_turns, &product);
  narrow(l->nm, 0, 0, &sums, l->add);
  return LS_OK;
}

/* A product of operands as they are stored, in parts of its target that threads make by
 * themselves. oneDNN's own division takes up to 10 % longer, and half as long again for few rows;
 * and with as many parts whatever the threads, the order of sums does not depend on them. */
typedef struct split_product {
  const product_shape *whole;
  bool add;
  int parts, down, across; /* of the target: down * across parts */
  char *scratch;
  size_t part_bytes;
  atomic_bool *failed;
} split_product;

enum {
  SPLIT_UNIT = 16, /* parts begin at multiples: what kernels have as one */
  PACKING = 4,     /* packing a unit of an operand takes as long as so many units of target */
  TURNED_ROWS = 512,
  TURNED_DEPTH = 256 /* of a turned operand at a time */
};

static bool is_turned(const product_shape *p) {
  return p->left.column_stride != 1;
}

/* In 16 bits oneDNN copies the operand itself. */
static bool is_copied(const product_shape *p) {
  return is_turned(p) && p->left.dtype == LS_F32;
}

static int64_t units_of(int64_t length) {
  return length < SPLIT_UNIT ? 1 : length / SPLIT_UNIT;
}

/* Divides the target so that the largest part, with the packing of its operands, is least. */
static void split_grid(split_product *split) {
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

/* The matrix from (row, column) on; of one without data, whose scratch is asked for, the shape. */
static ls_matrix matrix_from(const ls_matrix *whole, int64_t row, int64_t column) {
  const int64_t skipped = row * whole->row_stride + column * whole->column_stride;
  ls_matrix part = *whole;
  if (part.data) part.data = (char *)part.data + (size_t)skipped * ls_dtype_bytes(part.dtype);
  return part;
}

static product_shape part_of(const split_product *split, int part) {
  const product_shape *whole = split->whole;
  const int i = part / split->across, j = part % split->across;
  const int64_t row = split_at(whole->rows, i, split->down);
  const int64_t column = split_at(whole->columns, j, split->across);
  return (product_shape){.target = matrix_from(&whole->target, row, column),
                         .left = matrix_from(&whole->left, row, 0),
                         .right = matrix_from(&whole->right, 0, column),
                         .rows = split_at(whole->rows, i + 1, split->down) - row,
                         .columns = split_at(whole->columns, j + 1, split->across) - column,
                         .depth = whole->depth};
}

/* A turned left operand is copied to rows that do not evict each other, as much as stays in the
 * second-level cache: of operands in the cache 5 % faster over shapes of dw, a third where rows are
 * a multiple of 2 KB. */
static ls_status multiply_turned(const product_shape *p, bool add, float *copy, ls_error *error) {
  for (int64_t row = 0; row < p->rows; row += TURNED_ROWS) {
    const int64_t rows = least(TURNED_ROWS, p->rows - row);
    const ls_matrix target = matrix_from(&p->target, row, 0);
    const ls_matrix left = {copy, LS_F32, 1, dense_stride(rows)};
    for (int64_t begin = 0; begin < p->depth; begin += TURNED_DEPTH) {
      const int64_t depth = least(TURNED_DEPTH, p->depth - begin);
      for (int64_t i = 0; i < depth; i++) {
        const ls_matrix from = matrix_from(&p->left, row, begin + i);
        memcpy(copy + i * left.column_stride, from.data, (size_t)rows * sizeof(float));
      }
      const ls_matrix right = matrix_from(&p->right, begin, 0);
      LS_TRY(ls_onednn_multiply_alone(&target, &left, &right, rows, p->columns, depth,
                                      add || begin > 0, error));
    }
  }
  return LS_OK;
}

static void split_turns(const void *work, int index, int64_t begin, int64_t end) {
  (void)begin, (void)end;
  const split_product *split = work;
  const product_shape p = part_of(split, index);
  if (p.rows == 0 || p.columns == 0) return;
  char *scratch = split->scratch + (size_t)index * split->part_bytes;
  const ls_kernel_args alone = {
      .threads = 1, .workspace = scratch, .workspace_bytes = split->part_bytes};
  ls_error error;
  const ls_status status = is_copied(&p) ? multiply_turned(&p, split->add, (float *)scratch, &error)
                                         : multiply(&p, split->add, &alone, &error);
  if (status != LS_OK) atomic_store(split->failed, true);
}

static size_t part_bytes(const product_shape *p, bool add) {
  if (p->rows == 0 || p->columns == 0) return 0;
  if (is_copied(p))
    return (size_t)(TURNED_DEPTH * dense_stride(least(p->rows, TURNED_ROWS))) * sizeof(float);
  return ls_onednn_scratch_bytes(&p->target, &p->left, &p->right, p->rows, p->columns, p->depth,
                                 add, 1);
}

static split_product split_of(const product_shape *whole, bool add, const ls_kernel_args *args) {
  enum { PRODUCTS_AS_ELEMENT = 32 }; /* so many take as long as an element of other kernels */
  const double products = (double)whole->rows * (double)whole->columns * (double)whole->depth;
  split_product split = {.whole = whole, .add = add};
  split.parts = ls_cpu_parts(args, (int64_t)(products / PRODUCTS_AS_ELEMENT));
  if (is_turned(whole) && !is_copied(whole) && split.parts == 1) split.parts = 2; /* see splits */
  split_grid(&split);
  for (int i = 0; i < split.parts; i++) {
    const product_shape p = part_of(&split, i);
    const size_t bytes = part_bytes(&p, add);
    if (bytes > split.part_bytes) split.part_bytes = bytes;
  }
  split.part_bytes = (split.part_bytes + 127) / 64 * 64; /* room to align it */
  return split;
}

static ls_status multiply_split(const product_shape *p, bool add, const ls_kernel_args *args,
                                ls_error *error) {
  split_product split = split_of(p, add, args);
  const size_t bytes = split.part_bytes * (size_t)split.parts;
  split.scratch = ls_cpu_scratch(args, bytes);
  if (!split.scratch) return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", bytes);
  atomic_bool failed = false;
  split.failed = &failed;
  ls_cpu_share(args->threads, split.parts, split.parts, split_turns, &split);
  if (failed) return ls_fail(error, LS_FAILED, "oneDNN: a part of a product failed");
  return LS_OK;
}

/* 16-bit products are left to oneDNN's threads, unless the order of sums must not depend on them.
 * But it turns an operand slowly where that is dense: for parts of it it takes its gemm, which over
 * shapes of dw is 5 to 35 % faster. */
static bool splits(const product_shape *p, const ls_kernel_args *args) {
  return args->exact || p->left.dtype == LS_F32 || is_turned(p);
}

static ls_status run(ls_op_kind kind, const ls_kernel_args *args, ls_error *error) {
  const linear l = linear_read(kind, args, false);
  const product_shape p = shape_of(kind, l.nk, l.nm, l.mk, l.n, l.m, l.k);
  const bool empty = p.rows <= 0 || p.columns <= 0 || p.depth <= 0;
  clear_output(&l, empty);
  if (empty) return LS_OK;
  if (has_few_rows(&l)) return few_rows(&l, args, error);
  if (!multiplies_directly(&l)) return widened(&l, args, error);
  return (splits(&p, args) ? multiply_split : multiply)(&p, l.add, args, error);
}

static ls_status kernel_linear(const ls_kernel_args *args, ls_error *error) {
  return run(LS_OP_LINEAR, args, error);
}

static ls_status kernel_linear_dx(const ls_kernel_args *args, ls_error *error) {
  return run(LS_OP_LINEAR_DX, args, error);
}

static ls_status kernel_linear_dw(const ls_kernel_args *args, ls_error *error) {
  return run(LS_OP_LINEAR_DW, args, error);
}

void ls_cpu_linear_kernels(ls_kernel_table *table) {
  table->kernel[LS_OP_LINEAR] = kernel_linear;
  table->kernel[LS_OP_LINEAR_DX] = kernel_linear_dx;
  table->kernel[LS_OP_LINEAR_DW] = kernel_linear_dw;
}

/* Scratch for the entries that are stored or, where `whole` is false, valid. */
static size_t scratch_bytes(ls_op_kind kind, const ls_kernel_args *args, bool whole) {
  const linear l = linear_read(kind, args, whole);
  if (l.n <= 0 || l.m <= 0 || l.k <= 0) return 0;
  if (has_few_rows(&l)) return few_rows_bytes(&l);
  if (!multiplies_directly(&l)) {
    const widening w = widening_of(&l);
    return (size_t)(shared_floats(&w) + ls_cpu_parts(args, INT64_MAX) * w.part_floats) *
           sizeof(float);
  }
  const product_shape p = shape_of(kind, l.nk, l.nm, l.mk, l.n, l.m, l.k);
  if (splits(&p, args)) {
    const split_product split = split_of(&p, l.add, args);
    return split.part_bytes * (size_t)split.parts + 64;
  }
  return ls_onednn_scratch_bytes(&p.target, &p.left, &p.right, p.rows, p.columns, p.depth, l.add,
                                 args->threads);
}

size_t ls_cpu_linear_workspace(ls_op_kind kind, const ls_kernel_args *args) {
  const size_t stored = scratch_bytes(kind, args, true);
  const size_t valid = scratch_bytes(kind, args, false);
  return stored > valid ? stored : valid;
}
