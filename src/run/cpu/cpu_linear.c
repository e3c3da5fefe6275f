/* linear, linear_dx and linear_dw: the three products of one weight.
 *
 * Every one of them joins three matrices: n x k (x or dx), n x m (y or dy) and m x k (weight or its
 * gradient). Where oneDNN multiplies the operands as they are stored, that is one call. Where it
 * does not (bf16 or fp16 on a processor without it) they are copied as fp32, a range of m at a
 * time, so that the copies of a vocabulary's weights and logits stay small. */
#include <string.h>

#include "run/cpu/cpu.h"
#include "run/cpu/onednn.h"
#include "run/cpu/vector_table.h"

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

/* Rows that go between what is stored, from (row, column) on, and a dense fp32 matrix. */
typedef struct row_copy {
  const ls_view *dense, *stored;
  int64_t row, column;
  bool add; /* to what is stored */
} row_copy;

static void widen_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const row_copy *copy = work;
  const ls_vector_set *vectors = ls_cpu_vectors();
  const ls_dtype dtype = copy->stored->dtype;
  const int64_t columns = copy->dense->valid[1];
  for (int64_t i = begin; i < end; i++) {
    const void *from = element(copy->stored, copy->row + i, copy->column);
    float *to = (float *)copy->dense->data + i * copy->dense->dims[1];
    if (dtype == LS_F32) {
      memcpy(to, from, (size_t)columns * sizeof(float));
    } else {
      vectors->widen(to, from, dtype, columns);
    }
  }
}

/* Fills a dense fp32 matrix from what is stored at (row, column) of `source`. */
static void widen(const ls_view *target, const ls_view *source, int64_t row, int64_t column,
                  int parts) {
  const row_copy copy = {.dense = target, .stored = source, .row = row, .column = column};
  ls_cpu_share(parts, target->valid[0], widen_turns, &copy);
}

static void narrow_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const row_copy *copy = work;
  const ls_vector_set *vectors = ls_cpu_vectors();
  const ls_dtype dtype = copy->stored->dtype;
  const int64_t columns = copy->dense->valid[1];
  for (int64_t i = begin; i < end; i++) {
    const float *from = (const float *)copy->dense->data + i * copy->dense->dims[1];
    void *to = element(copy->stored, copy->row + i, copy->column);
    if (dtype != LS_F32) {
      vectors->narrow(to, dtype, from, columns, copy->add);
      continue;
    }
    float *sums = to;
    for (int64_t j = 0; j < columns; j++) sums[j] = from[j] + (copy->add ? sums[j] : 0.0f);
  }
}

/* The way back, adding to what is stored when `add`. */
static void narrow(const ls_view *target, int64_t row, int64_t column, const ls_view *source,
                   bool add, int parts) {
  const row_copy copy = {source, target, row, column, add};
  ls_cpu_share(parts, source->valid[0], narrow_turns, &copy);
}

/* How much of m is widened at a time: about 4 MB of it. */
static int64_t chunk_of(const linear *l) {
  const int64_t chunk = (1 << 20) / (l->n + l->k + 1);
  return least(l->m, chunk < 64 ? 64 : chunk - chunk % 64);
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

static size_t widened_floats(const linear *l, int64_t chunk) {
  return (size_t)(dense_floats(l->n, l->k) + dense_floats(l->n, chunk) + dense_floats(chunk, l->k));
}

/* A stored matrix from (row, column) on. */
static ls_view slice(const ls_view *view, int64_t row, int64_t column) {
  ls_view part = *view;
  part.data = element(view, row, column);
  return part;
}

/* The three matrices of the range [m0, m0 + count) of m: copies in the scratch or, of gradients
 * that are fp32, the stored matrices themselves. */
typedef struct range {
  ls_view nk, nm, mk;
  bool own_nk, own_nm, own_mk;
} range;

static range range_of(const linear *l, float *scratch, int64_t chunk, int64_t m0, int64_t count) {
  float *nm = scratch ? scratch + dense_floats(l->n, l->k) : NULL;
  float *mk = scratch ? nm + dense_floats(l->n, chunk) : NULL;
  range r = {0};
  r.own_nk = l->kind != LS_OP_LINEAR_DX || l->nk->dtype != LS_F32 || column_apart(l->nk, l->k);
  r.own_nm = l->kind == LS_OP_LINEAR || l->nm->dtype != LS_F32 || column_apart(l->nm, count);
  r.own_mk = l->kind != LS_OP_LINEAR_DW || l->mk->dtype != LS_F32 || column_apart(l->mk, l->k);
  r.nk = r.own_nk ? dense(scratch, l->n, l->k) : *l->nk;
  r.nm = r.own_nm ? dense(nm, l->n, count) : slice(l->nm, 0, m0);
  r.mk = r.own_mk ? dense(mk, count, l->k) : slice(l->mk, m0, 0);
  return r;
}

/* One range of m in the widened product. */
static ls_status widened_range(const linear *l, const range *r, const ls_kernel_args *rest,
                               int64_t m0, int64_t count, ls_error *error) {
  const int parts = ls_cpu_parts(rest, l->n * count);
  if (l->kind != LS_OP_LINEAR && r->own_nm) widen(&r->nm, l->nm, 0, m0, parts);
  if (l->kind != LS_OP_LINEAR_DW) widen(&r->mk, l->mk, m0, 0, parts);
  const product_shape p = shape_of(l->kind, &r->nk, &r->nm, &r->mk, l->n, count, l->k);
  const bool stored = !r->own_nk || !r->own_mk;
  const bool add = (stored && l->add) || (l->kind == LS_OP_LINEAR_DX && m0 > 0);
  LS_TRY(multiply(&p, add, rest, error));
  if (l->kind == LS_OP_LINEAR) narrow(l->nm, 0, m0, &r->nm, l->add, parts);
  if (l->kind == LS_OP_LINEAR_DW && r->own_mk) narrow(l->mk, m0, 0, &r->mk, l->add, parts);
  return LS_OK;
}

static size_t range_scratch(const linear *l, int64_t chunk, int64_t count, int threads) {
  const range r = range_of(l, NULL, chunk, 0, count);
  const product_shape p = shape_of(l->kind, &r.nk, &r.nm, &r.mk, l->n, count, l->k);
  size_t most = 0;
  for (int add = 0; add < 2; add++) {
    const size_t bytes = ls_onednn_scratch_bytes(&p.target, &p.left, &p.right, p.rows, p.columns,
                                                 p.depth, add, threads);
    most = bytes > most ? bytes : most;
  }
  return most;
}

/* Scratch of oneDNN itself for the widened product, whose last range may be shorter. */
static size_t inner_scratch(const linear *l, int64_t chunk, int threads) {
  const int64_t last = l->m % chunk;
  const size_t first_bytes = range_scratch(l, chunk, chunk, threads);
  const size_t last_bytes = last ? range_scratch(l, chunk, last, threads) : 0;
  return (first_bytes > last_bytes ? first_bytes : last_bytes) + 64;
}

static ls_status widened(const linear *l, const ls_kernel_args *args, ls_error *error) {
  const int64_t chunk = chunk_of(l);
  const size_t own = widened_floats(l, chunk) * sizeof(float);
  const size_t inner = inner_scratch(l, chunk, args->threads);
  char *scratch = ls_cpu_scratch(args, own + inner);
  if (!scratch) return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", own + inner);
  ls_kernel_args rest = *args;
  rest.workspace = scratch + own;
  rest.workspace_bytes = inner;
  float *copies = (float *)(void *)scratch;
  const int parts = ls_cpu_parts(args, l->n * l->k);
  range r = range_of(l, copies, chunk, 0, least(chunk, l->m));
  if (l->kind != LS_OP_LINEAR_DX) widen(&r.nk, l->nk, 0, 0, parts);
  for (int64_t m0 = 0; m0 < l->m; m0 += chunk) {
    const int64_t count = least(chunk, l->m - m0);
    r = range_of(l, copies, chunk, m0, count);
    LS_TRY(widened_range(l, &r, &rest, m0, count, error));
  }
  if (l->kind == LS_OP_LINEAR_DX && r.own_nk) narrow(l->nk, 0, 0, &r.nk, l->add, parts);
  return LS_OK;
}

static ls_status run(ls_op_kind kind, const ls_kernel_args *args, ls_error *error) {
  const linear l = linear_read(kind, args, false);
  const product_shape p = shape_of(kind, l.nk, l.nm, l.mk, l.n, l.m, l.k);
  const bool empty = p.rows <= 0 || p.columns <= 0 || p.depth <= 0;
  clear_output(&l, empty);
  if (empty) return LS_OK;
  if (!multiplies_directly(&l)) return widened(&l, args, error);
  return multiply(&p, l.add, args, error);
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
  if (!multiplies_directly(&l)) {
    const int64_t chunk = chunk_of(&l);
    return widened_floats(&l, chunk) * sizeof(float) + inner_scratch(&l, chunk, args->threads);
  }
  const product_shape p = shape_of(kind, l.nk, l.nm, l.mk, l.n, l.m, l.k);
  return ls_onednn_scratch_bytes(&p.target, &p.left, &p.right, p.rows, p.columns, p.depth, l.add,
                                 args->threads);
}

size_t ls_cpu_linear_workspace(ls_op_kind kind, const ls_kernel_args *args) {
  const size_t stored = scratch_bytes(kind, args, true);
  const size_t valid = scratch_bytes(kind, args, false);
  return stored > valid ? stored : valid;
}
