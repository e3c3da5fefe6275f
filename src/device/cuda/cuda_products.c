/* Products by cuBLASLt. It has matrices by columns, so ours are its transposes: of y = x w^T it is
 * given y^T = w x^T. */
#include <stdatomic.h>
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
  PRODUCT_SCALE_A = 17, /* where it lies */
  PRODUCT_SCALE_B = 18,
  PRODUCT_FAST_SUMS = 25,
  PRODUCT_SCALES_OF_A = 31, /* what it is: 1 number, or one for each row */
  PRODUCT_SCALES_OF_B = 32,
  PREFERENCE_WORKSPACE = 1,
  PREFERENCE_REDUCTION = 3,
  REDUCED_IN_FP32 = 2, /* CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE */
  ADD_BIAS = 4,        /* CUBLASLT_EPILOGUE_BIAS */
  OF_EACH_ROW = 3,     /* CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F */
  INVALID_VALUE = 7,   /* CUBLAS_STATUS_... */
  NOT_SUPPORTED = 15
};

enum { MOST_SHAPES = 1024 }; /* of all programs of a rank */

/* What a product is to the library. */
typedef struct shape {
  int64_t rows, columns, depth; /* of the library's result, rows x columns */
  int64_t stride_a, stride_b, stride_out;
  size_t workspace;
  bool transpose_a, transpose_b, biased;
  bool scaled; /* by vectors of its rows and columns */
  ls_dtype in, out;
  ls_fp8 a, b; /* of codes; else none */
} shape;

typedef struct prepared {
  shape of;
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t a, b, out;
  cublasLtMatmulAlgo_t algo;
  ls_cuda_ways ways; /* the best by the library's guess first; of codes it may have none */
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

/* Once a process, since all ranks would say the same. */
static void say_none(const shape *of) {
  static atomic_flag said = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&said))
    ls_warn("cuBLASLt has no product of %lld x %lld x %lld codes of 8 bits: it is done in bf16",
            (long long)of->rows, (long long)of->columns, (long long)of->depth);
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

static cublasEnum type_of_codes(ls_fp8 format, ls_dtype otherwise) {
  return format == LS_FP8_E4M3   ? 28 /* CUDA_R_8F_E4M3 */
         : format == LS_FP8_E5M2 ? 29 /* CUDA_R_8F_E5M2 */
                                 : type_of(otherwise);
}

static ls_status add_layout(bool transposed, int64_t rows, int64_t columns, int64_t stride,
                            cublasEnum type, cublasLtMatrixLayout_t *layout, ls_error *error) {
  return did(
      library()->cublasLtMatrixLayoutCreate(layout, type, (uint64_t)(transposed ? columns : rows),
                                            (uint64_t)(transposed ? rows : columns), stride),
      "cublasLtMatrixLayoutCreate", error);
}

static ls_status set(const prepared *made, cublasEnum attribute, const void *value, size_t bytes,
                     ls_error *error) {
  return did(library()->cublasLtMatmulDescSetAttribute(made->product, attribute, value, bytes),
             "cublasLtMatmulDescSetAttribute", error);
}

/* What a call has and a shape has not. */
static ls_status point(const prepared *made, const void *bias, const float *a_scales,
                       const float *b_scales, ls_error *error) {
  if (made->of.biased) LS_TRY(set(made, PRODUCT_BIAS, &bias, sizeof bias, error));
  if (!made->of.scaled) return LS_OK;
  LS_TRY(set(made, PRODUCT_SCALE_A, &a_scales, sizeof a_scales, error));
  return set(made, PRODUCT_SCALE_B, &b_scales, sizeof b_scales, error);
}

static ls_status describe(prepared *made, ls_error *error) {
  const shape *of = &made->of;
  const int32_t transposed = CUBLAS_TRANSPOSED, each_row = OF_EACH_ROW;
  const uint32_t epilogue = ADD_BIAS;
  /* The library has no way of vectors that are nowhere; each call says where its own are. */
  static _Alignas(16) const float nowhere = 1;
  const int8_t fast = 0; /* sums of Hopper's tensor cores are carried on in fp32 */
  LS_TRY(
      did(library()->cublasLtMatmulDescCreate(&made->product, CUBLAS_COMPUTE_FP32, type_of(LS_F32)),
          "cublasLtMatmulDescCreate", error));
  if (of->transpose_a)
    LS_TRY(set(made, PRODUCT_TRANSPOSE_A, &transposed, sizeof transposed, error));
  if (of->transpose_b)
    LS_TRY(set(made, PRODUCT_TRANSPOSE_B, &transposed, sizeof transposed, error));
  if (of->biased) LS_TRY(set(made, PRODUCT_EPILOGUE, &epilogue, sizeof epilogue, error));
  if (of->a) LS_TRY(set(made, PRODUCT_FAST_SUMS, &fast, sizeof fast, error));
  if (of->scaled) {
    LS_TRY(set(made, PRODUCT_SCALES_OF_A, &each_row, sizeof each_row, error));
    LS_TRY(set(made, PRODUCT_SCALES_OF_B, &each_row, sizeof each_row, error));
  }
  LS_TRY(point(made, &nowhere, &nowhere, &nowhere, error));
  const cublasEnum a = type_of_codes(of->a, of->in), b = type_of_codes(of->b, of->in);
  LS_TRY(add_layout(of->transpose_a, of->rows, of->depth, of->stride_a, a, &made->a, error));
  LS_TRY(add_layout(of->transpose_b, of->depth, of->columns, of->stride_b, b, &made->b, error));
  return add_layout(false, of->rows, of->columns, of->stride_out, type_of(of->out), &made->out,
                    error);
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
  cublasStatus_t answer = 0;
  ls_status status = prefer(&made->of, preference, error);
  if (status == LS_OK)
    answer = calls->cublasLtMatmulAlgoGetHeuristic(products->handle, made->product, made->a,
                                                   made->b, made->out, made->out, preference,
                                                   LS_CUDA_MOST_WAYS, found, &count);
  (void)calls->cublasLtMatmulPreferenceDestroy(preference);
  LS_TRY(status);
  if (!made->of.a || answer != NOT_SUPPORTED)
    LS_TRY(did(answer, "cublasLtMatmulAlgoGetHeuristic", error));
  for (int f = 0; f < count; f++)
    if (!found[f].state && found[f].workspaceSize <= made->of.workspace)
      made->ways.of[made->ways.count++] = found[f].algo;
  if (!made->ways.count && made->of.a) {
    say_none(&made->of);
    return LS_OK;
  }
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

/* The library reads what is set of a product as it is called, so that one is set anew for each
 * call, within captures too. */
static ls_status run(const ls_cuda_stream *stream, const prepared *made,
                     const cublasLtMatmulAlgo_t *way, const ls_cuda_operands *at, bool add,
                     cublasStatus_t *answer, ls_error *error) {
  const float one = 1, kept = add ? 1 : 0;
  LS_TRY(point(made, at->bias, at->a_scales, at->b_scales, error));
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
  const ls_cuda_operands at = {
      .a = (const char *)args->in[1].data + of->a,
      .b = (const char *)args->in[0].data + of->b,
      .bias = of->of.biased ? (const char *)args->in[2].data + of->bias : NULL,
      .out = (char *)args->out[0].data + of->out,
      .workspace = args->workspace,
      .workspace_bytes = args->workspace_bytes};
  prepared *made = NULL;
  cublasStatus_t answer;
  LS_TRY(prepare(stream->products, &of->of, &made, error));
  LS_TRY(run(stream, made, &made->algo, &at, of->add, &answer, error));
  return did(answer, "cublasLtMatmul", error);
}

/* ---- of codes -------------------------------------------------------------------------------- */

/* What is made codes of, and what the library is given of them. */
typedef struct coded {
  shape of;
  ls_cuda_coding tokens, weight;
  ls_cuda_operands at;
  const void *added; /* a bias, by the library or by the pass behind it; NULL: none */
} coded;

static bool is_coded(ls_op_kind kind, const ls_kernel_args *args, const shape *all) {
  const ls_device_facts *facts = args->queue->facts;
  return all->rows && all->columns && all->depth && facts->takes_codes(facts, kind, args);
}

static coded coded_of(ls_op_kind kind, const ls_kernel_args *args, const shape *all) {
  const ls_device_facts *facts = args->queue->facts;
  const ls_cuda_fp8_room room = ls_cuda_fp8_room_of(facts, kind, args);
  const bool turned = kind == LS_OP_LINEAR_DX;
  char *at = args->workspace;
  const bool biased = args->inputs > 2;
  coded made = {.of = *all, .added = biased ? args->in[2].data : NULL};
  made.tokens = (ls_cuda_coding){.from = &args->in[0],
                                 .format = room.format,
                                 .rows = all->columns,
                                 .columns = room.summed,
                                 .stored = all->columns,
                                 .stride = room.depth,
                                 .codes = (uint8_t *)(at + room.codes),
                                 .scales = (float *)(void *)(at + room.scales)};
  made.weight = (ls_cuda_coding){.from = &args->in[1],
                                 .format = LS_FP8_E4M3,
                                 .turned = turned,
                                 .rows = turned ? room.summed : all->rows,
                                 .columns = turned ? all->rows : room.summed,
                                 .stored = room.rows,
                                 .stride = room.depth,
                                 .codes = (uint8_t *)(at + room.weight_codes),
                                 .scales = (float *)(void *)(at + room.weight_scales),
                                 .parts = (float *)(void *)(at + room.parts)};
  made.of.scaled = facts->fp8 == LS_FP8_IN_PRODUCT;
  made.of.biased = biased && made.of.scaled;
  made.of.rows = room.rows;
  made.of.depth = made.of.stride_a = made.of.stride_b = room.depth;
  made.of.a = LS_FP8_E4M3;
  made.of.b = room.format;
  made.of.transpose_a = true;
  made.of.transpose_b = false;
  made.of.workspace = ls_cuda_product_bytes(facts);
  made.at = (ls_cuda_operands){.a = at + room.weight_codes,
                               .b = at + room.codes,
                               .a_scales = made.weight.scales,
                               .b_scales = made.tokens.scales,
                               .bias = made.of.biased ? made.added : NULL,
                               .out = args->out[0].data,
                               .workspace = at + room.bytes,
                               .workspace_bytes = made.of.workspace};
  return made;
}

static ls_status make_codes(const ls_kernel_args *args, const ls_cuda_coding *coding,
                            ls_error *error) {
  ls_cuda_launches launches;
  LS_TRY(ls_cuda_choose_coding(args->queue->facts, coding, &launches, error));
  return ls_cuda_launch_all(args->queue->stream, &launches, error);
}

/* Operands were rounded to fp8 by ops before this one: the library is given their codes, which are
 * made in the workspace. *done is false where it has no such product. */
static ls_status multiply_codes(ls_op_kind kind, const ls_kernel_args *args, const shape *all,
                                bool *done, ls_error *error) {
  ls_cuda_stream *stream = args->queue->stream;
  const coded of = coded_of(kind, args, all);
  const bool add = args->accumulate[0];
  const size_t bytes =
      (size_t)((char *)of.at.workspace - (char *)args->workspace) + of.at.workspace_bytes;
  prepared *made = NULL;
  cublasStatus_t answer;
  ls_cuda_launches launches;
  if (args->workspace_bytes < bytes)
    return ls_fail(error, LS_INTERNAL, "a workspace of %zu bytes: expected %zu and more",
                   args->workspace_bytes, bytes);
  LS_TRY(prepare(stream->products, &of.of, &made, error));
  *done = made->ways.count > 0;
  if (!*done) return LS_OK;
  if (!add) LS_TRY(clear_padding(stream, &of.of, &args->out[0], error));
  LS_TRY(make_codes(args, &of.tokens, error));
  LS_TRY(make_codes(args, &of.weight, error));
  LS_TRY(run(stream, made, &made->algo, &of.at, add, &answer, error));
  /* Of scales that it does not take it may say so no earlier (cublasLt.h). */
  if (answer == NOT_SUPPORTED || answer == INVALID_VALUE) {
    made->ways.count = 0;
    say_none(&of.of);
    *done = false;
    return LS_OK;
  }
  LS_TRY(did(answer, "cublasLtMatmul", error));
  if (of.of.scaled) return LS_OK;
  LS_TRY(ls_cuda_choose_rescaling(args->queue->facts, &args->out[0], of.of.rows, of.tokens.scales,
                                  of.weight.scales, of.added, &launches, error));
  return ls_cuda_launch_all(stream, &launches, error);
}

/* ---- as a kernel ----------------------------------------------------------------------------- */

ls_status ls_cuda_multiply(ls_op_kind kind, const ls_kernel_args *args, ls_error *error) {
  const shape all = shape_of(kind, args);
  bool done = false;
  if (is_coded(kind, args, &all)) LS_TRY(multiply_codes(kind, args, &all, &done, error));
  if (done) return LS_OK;
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

/* What a call falls back to is prepared only where the library has none of its codes. */
static ls_status prepare_call(ls_op_kind kind, const ls_kernel_args *args, ls_error *error) {
  const ls_cuda_stream *stream = args->queue->stream;
  const shape all = shape_of(kind, args);
  if (is_coded(kind, args, &all)) {
    const coded of = coded_of(kind, args, &all);
    prepared *made = NULL;
    LS_TRY(prepare(stream->products, &of.of, &made, error));
    made->adds = made->adds || args->accumulate[0];
    if (made->ways.count) return LS_OK;
  }
  return each_part(kind, args, prepare_part, error);
}

ls_status ls_cuda_products_prepare(ls_op_kind kind, const ls_kernel_args *args, ls_error *error) {
  switch (kind) {
    case LS_OP_LINEAR:
    case LS_OP_LINEAR_DX:
    case LS_OP_LINEAR_DW: return prepare_call(kind, args, error);
    case LS_OP_LINEAR_BLOCKS:
    case LS_OP_LINEAR_BLOCKS_DX: {
      const bool forward = kind == LS_OP_LINEAR_BLOCKS;
      const ls_kernel_args product = of_restored(args);
      return prepare_call(forward ? LS_OP_LINEAR : LS_OP_LINEAR_DX, &product, error);
    }
    default: return LS_OK;
  }
}

int ls_cuda_product_count(const ls_cuda_products *products) {
  return products->count;
}

/* A matrix of the library's, which has columns `stride` apart. */
static ls_cuda_numbers numbers_of(bool transposed, int64_t rows, int64_t columns, int64_t stride,
                                  ls_dtype dtype, ls_fp8 codes) {
  const size_t each = codes ? 1 : ls_dtype_bytes(dtype);
  return (ls_cuda_numbers){.dtype = dtype,
                           .codes = codes,
                           .bytes = (size_t)((transposed ? rows : columns) * stride) * each};
}

static ls_cuda_numbers vector_of(bool exists, int64_t count, ls_dtype dtype) {
  return (ls_cuda_numbers){.dtype = dtype,
                           .bytes = exists ? (size_t)count * ls_dtype_bytes(dtype) : 0};
}

static const char *type_text(ls_fp8 codes, ls_dtype otherwise) {
  return codes == LS_FP8_E4M3 ? "e4m3" : codes ? "e5m2" : ls_dtype_name(otherwise);
}

ls_cuda_product ls_cuda_product_at(const ls_cuda_products *products, int item) {
  const prepared *made = products->items[item];
  const shape *of = &made->of;
  ls_cuda_product about = {
      .ways = &made->ways,
      .work = 2.0 * (double)of->rows * (double)of->columns * (double)of->depth,
      .a = numbers_of(of->transpose_a, of->rows, of->depth, of->stride_a, of->in, of->a),
      .b = numbers_of(of->transpose_b, of->depth, of->columns, of->stride_b, of->in, of->b),
      .out = numbers_of(false, of->rows, of->columns, of->stride_out, of->out, LS_FP8_NONE),
      .bias = vector_of(of->biased, of->rows, of->out),
      .a_scales = vector_of(of->scaled, of->rows, LS_F32),
      .b_scales = vector_of(of->scaled, of->columns, LS_F32)};
  snprintf(about.text, sizeof about.text,
           "product of %lld x %lld x %lld, %s%s%s to %s, rows of %lld, %lld, %lld%s%s%s%s, in %zu "
           "bytes",
           (long long)of->rows, (long long)of->columns, (long long)of->depth,
           type_text(of->a, of->in), of->a ? " by " : "", of->a ? type_text(of->b, of->in) : "",
           ls_dtype_name(of->out), (long long)of->stride_a, (long long)of->stride_b,
           (long long)of->stride_out, of->transpose_a ? ", a transposed" : "",
           of->transpose_b ? ", b transposed" : "", of->biased ? ", with a bias" : "",
           of->scaled ? ", with scales" : "", of->workspace);
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
