/* Products by cuBLASLt. It has matrices by columns, so ours are its transposes: of y = x w^T it is
 * given y^T = w x^T. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda_gpu.h"
#include "device/cuda/cuda_recipe.h"
#include "device/cuda/cuda_tuning.h"

/* Facts: cublasLt.h, cublas_api.h and library_types.h of CUDA 13.0. */
enum {
  CUBLAS_COMPUTE_FP32 = 68,
  CUBLAS_TRANSPOSED = 1,
  PRODUCT_TRANSPOSE_A = 3,
  PRODUCT_TRANSPOSE_B = 4,
  PRODUCT_EPILOGUE = 7,
  PRODUCT_BIAS = 8,
  PREFERENCE_WORKSPACE = 1,
  PREFERENCE_REDUCTION = 3,
  REDUCED_IN_FP32 = 2, /* CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE */
  ADD_BIAS = 4,        /* CUBLASLT_EPILOGUE_BIAS */
};

enum { MOST_SHAPES = 1024 }; /* of all programs of a rank */

/* What a product is to the library. */
typedef struct shape {
  int64_t rows, columns, depth; /* of the library's result, rows x columns */
  int64_t stride_a, stride_b, stride_out;
  size_t workspace;
  bool transpose_a, transpose_b, biased;
  ls_dtype in, out;
} shape;

typedef struct prepared {
  shape of;
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t a, b, out;
  cublasLtMatmulAlgo_t algo;
  ls_cuda_ways ways; /* what the library has for it, the best by its own guess first */
  bool adds;         /* a loaded call adds to what is there */
} prepared;

struct ls_cuda_products {
  cublasLtHandle_t handle;
  prepared *items[MOST_SHAPES];
  int count;
};

static const ls_cublaslt_calls *library(void) {
  return &ls_cuda_opened()->cublaslt;
}

static ls_status did(cublasStatus_t status, const char *call, ls_error *error) {
  if (!status) return LS_OK;
  return ls_fail(error, LS_FAILED, "%s: %s", call, library()->cublasLtGetStatusString(status));
}

ls_status ls_cuda_products_create(ls_cuda_products **products, ls_error *error) {
  ls_cuda_products *made = *products = calloc(1, sizeof *made);
  if (!made) return ls_fail(error, LS_FAILED, "out of memory for products");
  return did(library()->cublasLtCreate(&made->handle), "cublasLtCreate", error);
}

static void destroy(prepared *of) {
  if (of->a) (void)library()->cublasLtMatrixLayoutDestroy(of->a);
  if (of->b) (void)library()->cublasLtMatrixLayoutDestroy(of->b);
  if (of->out) (void)library()->cublasLtMatrixLayoutDestroy(of->out);
  if (of->product) (void)library()->cublasLtMatmulDescDestroy(of->product);
  free(of);
}

void ls_cuda_products_destroy(ls_cuda_products **products) {
  if (!*products) return;
  for (int i = 0; i < (*products)->count; i++) destroy((*products)->items[i]);
  if ((*products)->handle) (void)library()->cublasLtDestroy((*products)->handle);
  free(*products);
  *products = NULL;
}

static cublasEnum type_of(ls_dtype dtype) {
  return dtype == LS_BF16 ? 14 : dtype == LS_F16 ? 2 : 0; /* CUDA_R_16BF, _16F, _32F */
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* The recipe's, whatever else a rank's workspace is as large for: ranks of other programs then
 * choose alike. */
static size_t workspace_of(const ls_kernel_args *args) {
  const size_t most = ls_cuda_product_bytes(args->queue->facts);
  return args->workspace_bytes < most ? args->workspace_bytes : most;
}

/* y = x w^T, dx = dy w, dw = dy^T x. Depths go over padding, which is zero; rows that do not exist
 * are never read. */
static shape shape_of(ls_op_kind kind, const ls_kernel_args *args) {
  const ls_view *in = args->in, *out = &args->out[0];
  shape made;
  memset(&made, 0, sizeof made); /* compared as bytes */
  made.stride_out = out->dims[1];
  made.in = in[0].dtype;
  made.out = out->dtype;
  made.workspace = workspace_of(args);
  made.columns = out->valid[0];
  switch (kind) {
    case LS_OP_LINEAR:
      made.rows = smaller(in[1].valid[0], out->dims[1]);
      made.depth = smaller(in[0].dims[1], in[1].dims[1]);
      made.transpose_a = true;
      break;
    case LS_OP_LINEAR_DX:
      made.rows = smaller(in[1].dims[1], out->dims[1]);
      made.depth = smaller(in[0].valid[1], in[1].valid[0]);
      break;
    default:
      made.rows = smaller(in[1].dims[1], out->dims[1]);
      made.depth = smaller(in[0].valid[0], in[1].valid[0]);
      made.transpose_b = true;
  }
  made.stride_a = in[1].dims[1];
  made.stride_b = in[0].dims[1];
  return made;
}

static ls_status add_layout(bool transposed, int64_t rows, int64_t columns, int64_t stride,
                            ls_dtype dtype, cublasLtMatrixLayout_t *layout, ls_error *error) {
  return did(library()->cublasLtMatrixLayoutCreate(layout, type_of(dtype),
                                                   (uint64_t)(transposed ? columns : rows),
                                                   (uint64_t)(transposed ? rows : columns), stride),
             "cublasLtMatrixLayoutCreate", error);
}

static ls_status describe(prepared *made, ls_error *error) {
  const shape *of = &made->of;
  const ls_cublaslt_calls *calls = library();
  const int32_t transposed = CUBLAS_TRANSPOSED;
  LS_TRY(did(calls->cublasLtMatmulDescCreate(&made->product, CUBLAS_COMPUTE_FP32, type_of(LS_F32)),
             "cublasLtMatmulDescCreate", error));
  if (of->transpose_a)
    LS_TRY(did(calls->cublasLtMatmulDescSetAttribute(made->product, PRODUCT_TRANSPOSE_A,
                                                     &transposed, sizeof transposed),
               "cublasLtMatmulDescSetAttribute", error));
  if (of->transpose_b)
    LS_TRY(did(calls->cublasLtMatmulDescSetAttribute(made->product, PRODUCT_TRANSPOSE_B,
                                                     &transposed, sizeof transposed),
               "cublasLtMatmulDescSetAttribute", error));
  const uint32_t epilogue = ADD_BIAS;
  if (of->biased)
    LS_TRY(did(calls->cublasLtMatmulDescSetAttribute(made->product, PRODUCT_EPILOGUE, &epilogue,
                                                     sizeof epilogue),
               "cublasLtMatmulDescSetAttribute", error));
  LS_TRY(add_layout(of->transpose_a, of->rows, of->depth, of->stride_a, of->in, &made->a, error));
  LS_TRY(
      add_layout(of->transpose_b, of->depth, of->columns, of->stride_b, of->in, &made->b, error));
  return add_layout(false, of->rows, of->columns, of->stride_out, of->out, &made->out, error);
}

/* What the library is to choose by. Parts of a sum are never added up in 16 bits. */
static ls_status prefer(const shape *of, cublasLtMatmulPreference_t preference, ls_error *error) {
  const uint64_t bytes = of->workspace;
  const uint32_t reduced = REDUCED_IN_FP32;
  LS_TRY(did(library()->cublasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_WORKSPACE,
                                                             &bytes, sizeof bytes),
             "cublasLtMatmulPreferenceSetAttribute", error));
  if (of->out == LS_F32) return LS_OK;
  return did(library()->cublasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_REDUCTION,
                                                             &reduced, sizeof reduced),
             "cublasLtMatmulPreferenceSetAttribute", error);
}

/* Asks for all ways and takes the first. */
static ls_status choose(const ls_cuda_products *products, prepared *made, ls_error *error) {
  const ls_cublaslt_calls *calls = library();
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t found[LS_CUDA_MOST_WAYS];
  int count = 0;
  LS_TRY(did(calls->cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate",
             error));
  ls_status status = prefer(&made->of, preference, error);
  if (status == LS_OK)
    status = did(calls->cublasLtMatmulAlgoGetHeuristic(products->handle, made->product, made->a,
                                                       made->b, made->out, made->out, preference,
                                                       LS_CUDA_MOST_WAYS, found, &count),
                 "cublasLtMatmulAlgoGetHeuristic", error);
  (void)calls->cublasLtMatmulPreferenceDestroy(preference);
  LS_TRY(status);
  for (int f = 0; f < count; f++)
    if (!found[f].state && found[f].workspaceSize <= made->of.workspace)
      made->ways.of[made->ways.count++] = found[f].algo;
  if (!made->ways.count)
    return ls_fail(error, LS_FAILED, "cuBLASLt has no product of %lld x %lld x %lld in %s",
                   (long long)made->of.rows, (long long)made->of.columns, (long long)made->of.depth,
                   ls_dtype_name(made->of.in));
  made->algo = made->ways.of[0];
  return LS_OK;
}

static ls_status prepare(ls_cuda_products *products, const shape *of, prepared **found,
                         ls_error *error) {
  for (int i = 0; i < products->count; i++)
    if (memcmp(&products->items[i]->of, of, sizeof *of) == 0) {
      *found = products->items[i];
      return LS_OK;
    }
  if (products->count == MOST_SHAPES)
    return ls_fail(error, LS_INTERNAL, "more than %d shapes of products", MOST_SHAPES);
  prepared *made = calloc(1, sizeof *made);
  if (!made) return ls_fail(error, LS_FAILED, "out of memory for a product");
  made->of = *of;
  ls_status status = describe(made, error);
  if (status == LS_OK) status = choose(products, made, error);
  if (status != LS_OK) {
    destroy(made);
    return status;
  }
  *found = products->items[products->count++] = made;
  return LS_OK;
}

/* Columns of the result that no row of the weight makes are zero. */
static ls_status clear_padding(const ls_cuda_stream *stream, const shape *of, const ls_view *out,
                               ls_error *error) {
  const size_t width = ls_dtype_bytes(out->dtype);
  const int64_t first = of->depth ? of->rows : 0; /* a sum of nothing is zero */
  if (first >= out->dims[1] || !of->columns) return LS_OK;
  return ls_cuda_gpu_did(
      stream->on,
      ls_cuda_opened()->driver.cuMemsetD2D8Async(
          (CUdeviceptr)(uintptr_t)out->data + (size_t)first * width, (size_t)out->dims[1] * width,
          0, (size_t)(out->dims[1] - first) * width, (size_t)of->columns, stream->compute),
      "cuMemsetD2D8Async", error);
}

/* Where the operands of a product begin; bias: NULL where none is added. */
static ls_status run(const ls_cuda_stream *stream, const prepared *made,
                     const cublasLtMatmulAlgo_t *way, const ls_cuda_operands *at, bool add,
                     cublasStatus_t *answer, ls_error *error) {
  const float one = 1, kept = add ? 1 : 0;
  if (at->bias)
    LS_TRY(did(library()->cublasLtMatmulDescSetAttribute(made->product, PRODUCT_BIAS, &at->bias,
                                                         sizeof at->bias),
               "cublasLtMatmulDescSetAttribute", error));
  *answer = library()->cublasLtMatmul(stream->products->handle, made->product, &one, at->a, made->a,
                                      at->b, made->b, &kept, at->out, made->out, at->out, made->out,
                                      way, at->workspace, at->workspace_bytes, stream->compute);
  return LS_OK;
}

/* The library is several times as slow where rows or depth of a product in 16 bits are no multiple
 * of 8, as those of a vocabulary of 50,257 (H200: 94 TFLOP/s, 620 beside them): as much as is
 * one, and the few that are left. */
static int64_t whole_part(const shape *of, int64_t count) {
  enum { LEAST = 512, MULTIPLE = 64 };
  if (of->in == LS_F32 || count % 8 == 0 || count < LEAST) return count;
  return count / MULTIPLE * MULTIPLE;
}

/* What one call of the library does of a product, and where in each operand it begins, in bytes. */
typedef struct part {
  shape of;
  int64_t a, b, bias, out;
  bool add;
} part;

typedef ls_status (*part_visitor)(const ls_kernel_args *args, const part *of, ls_error *error);

static ls_status each_part(ls_op_kind kind, const ls_kernel_args *args, part_visitor visit,
                           ls_error *error) {
  const shape all = shape_of(kind, args);
  if (!all.rows || !all.columns || !all.depth) return LS_OK;
  const int64_t rows = whole_part(&all, all.rows), depth = whole_part(&all, all.depth);
  const int64_t in = (int64_t)ls_dtype_bytes(all.in), out = (int64_t)ls_dtype_bytes(all.out);
  const int64_t a_row = in * (all.transpose_a ? all.stride_a : 1);
  const int64_t a_deep = in * (all.transpose_a ? 1 : all.stride_a);
  const int64_t b_deep = in * (all.transpose_b ? all.stride_b : 1);
  for (int64_t row = 0; row < all.rows; row += rows)
    for (int64_t deep = 0; deep < all.depth; deep += depth) {
      part each = {all,       row * a_row + deep * a_deep,    deep * b_deep, row * out,
                   row * out, args->accumulate[0] || deep > 0};
      each.of.rows = smaller(rows, all.rows - row);
      each.of.depth = smaller(depth, all.depth - deep);
      each.of.biased = args->inputs > 2 && deep == 0;
      LS_TRY(visit(args, &each, error));
    }
  return LS_OK;
}

static ls_status multiply_part(const ls_kernel_args *args, const part *of, ls_error *error) {
  const ls_cuda_stream *stream = args->queue->stream;
  const ls_cuda_operands at = {(const char *)args->in[1].data + of->a,
                               (const char *)args->in[0].data + of->b,
                               of->of.biased ? (const char *)args->in[2].data + of->bias : NULL,
                               (char *)args->out[0].data + of->out,
                               args->workspace,
                               args->workspace_bytes};
  prepared *made = NULL;
  cublasStatus_t answer;
  LS_TRY(prepare(stream->products, &of->of, &made, error));
  LS_TRY(run(stream, made, &made->algo, &at, of->add, &answer, error));
  return did(answer, "cublasLtMatmul", error);
}

ls_status ls_cuda_multiply(ls_op_kind kind, const ls_kernel_args *args, ls_error *error) {
  const shape all = shape_of(kind, args);
  if (!args->accumulate[0]) LS_TRY(clear_padding(args->queue->stream, &all, &args->out[0], error));
  return each_part(kind, args, multiply_part, error);
}

/* Products of blocks: the weights are made in the workspace first, as the matrix that the library
 * takes. */
static ls_kernel_args of_restored(const ls_kernel_args *args) {
  const ls_view *blocks = &args->in[1];
  ls_kernel_args product = *args;
  ls_view *weights = &product.in[1];
  *weights = (ls_view){.data = args->workspace, .dtype = args->in[0].dtype, .ndim = 2};
  for (int d = 0; d < 2; d++) {
    weights->dims[d] = blocks->dims[d] * (d ? LS_BLOCK_WEIGHTS : 1);
    weights->valid[d] = blocks->valid[d] * (d ? LS_BLOCK_WEIGHTS : 1);
  }
  product.workspace = (char *)args->workspace + ls_cuda_restored_bytes(args);
  product.workspace_bytes = ls_cuda_product_bytes(args->queue->facts);
  return product;
}

ls_status ls_cuda_multiply_blocks(ls_op_kind kind, const ls_kernel_args *args, ls_error *error) {
  const bool forward = kind == LS_OP_LINEAR_BLOCKS;
  const size_t bytes = ls_cuda_restored_bytes(args);
  if (args->workspace_bytes < bytes)
    return ls_fail(error, LS_INTERNAL, "a workspace of %zu bytes: expected %zu and more",
                   args->workspace_bytes, bytes);
  const ls_kernel_args product = of_restored(args);
  ls_kernel_args restored = {.queue = args->queue, .inputs = 1, .outputs = 1};
  restored.in[0] = args->in[1];
  restored.out[0] = product.in[1];
  ls_cuda_launches launches;
  LS_TRY(ls_cuda_choose(LS_OP_DEQUANTIZE, &restored, &launches, error));
  LS_TRY(ls_cuda_launch_all(args->queue->stream, &launches, error));
  return ls_cuda_multiply(forward ? LS_OP_LINEAR : LS_OP_LINEAR_DX, &product, error);
}

/* ---- before a step --------------------------------------------------------------------------- */

static ls_status prepare_part(const ls_kernel_args *args, const part *of, ls_error *error) {
  const ls_cuda_stream *stream = args->queue->stream;
  prepared *made = NULL;
  LS_TRY(prepare(stream->products, &of->of, &made, error));
  made->adds = made->adds || of->add;
  return LS_OK;
}

ls_status ls_cuda_products_prepare(ls_op_kind kind, const ls_kernel_args *args, ls_error *error) {
  switch (kind) {
    case LS_OP_LINEAR:
    case LS_OP_LINEAR_DX:
    case LS_OP_LINEAR_DW: return each_part(kind, args, prepare_part, error);
    case LS_OP_LINEAR_BLOCKS:
    case LS_OP_LINEAR_BLOCKS_DX: {
      const bool forward = kind == LS_OP_LINEAR_BLOCKS;
      const ls_kernel_args product = of_restored(args);
      return each_part(forward ? LS_OP_LINEAR : LS_OP_LINEAR_DX, &product, prepare_part, error);
    }
    default: return LS_OK;
  }
}

int ls_cuda_product_count(const ls_cuda_products *products) {
  return products->count;
}

/* Bytes of a matrix of the library's, which has columns `stride` apart. */
static size_t matrix_bytes(bool transposed, int64_t rows, int64_t columns, int64_t stride,
                           ls_dtype dtype) {
  return (size_t)((transposed ? rows : columns) * stride) * ls_dtype_bytes(dtype);
}

ls_cuda_product ls_cuda_product_at(const ls_cuda_products *products, int item) {
  const prepared *made = products->items[item];
  const shape *of = &made->of;
  ls_cuda_product about = {
      .ways = &made->ways,
      .work = 2.0 * (double)of->rows * (double)of->columns * (double)of->depth,
      .in = of->in,
      .out = of->out,
      .a_bytes = matrix_bytes(of->transpose_a, of->rows, of->depth, of->stride_a, of->in),
      .b_bytes = matrix_bytes(of->transpose_b, of->depth, of->columns, of->stride_b, of->in),
      .out_bytes = matrix_bytes(false, of->rows, of->columns, of->stride_out, of->out),
      .bias_bytes = of->biased ? (size_t)of->rows * ls_dtype_bytes(of->out) : 0,
      .workspace = of->workspace};
  snprintf(about.text, sizeof about.text,
           "product of %lld x %lld x %lld, %s to %s, rows of %lld, %lld, %lld%s%s%s, in %zu bytes",
           (long long)of->rows, (long long)of->columns, (long long)of->depth, ls_dtype_name(of->in),
           ls_dtype_name(of->out), (long long)of->stride_a, (long long)of->stride_b,
           (long long)of->stride_out, of->transpose_a ? ", a transposed" : "",
           of->transpose_b ? ", b transposed" : "", of->biased ? ", with a bias" : "",
           of->workspace);
  return about;
}

ls_status ls_cuda_product_try(const ls_cuda_stream *stream, int item,
                              const cublasLtMatmulAlgo_t *way, const ls_cuda_operands *at,
                              bool *runs, ls_error *error) {
  const prepared *made = stream->products->items[item];
  cublasStatus_t answer;
  LS_TRY(run(stream, made, way, at, made->adds, &answer, error));
  *runs = !answer;
  return LS_OK;
}

bool ls_cuda_product_take(ls_cuda_products *products, int item, const cublasLtMatmulAlgo_t *way) {
  prepared *made = products->items[item];
  cublasLtMatmulHeuristicResult_t checked = {.state = 0};
  if (library()->cublasLtMatmulAlgoCheck(products->handle, made->product, made->a, made->b,
                                         made->out, made->out, way, &checked) ||
      checked.workspaceSize > made->of.workspace)
    return false;
  made->algo = *way;
  return true;
}
