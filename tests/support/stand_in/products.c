/* cuBLASLt's products, with its rules of layouts, in plain loops on the driver's stand-in. With
 * ways=8 a product has several (see `ways` below), whose times events tell: one fails, one takes
 * more workspace than there is, some round differently. disagree=1: other GPUs find another one the
 * fastest; product_fail=N: the Nth product fails. codes=none: it finds no product of 8 bits;
 * codes=found: it finds them and refuses them; fail_codes=N: the Nth of these fails. They are
 * counted as "products of codes", and what is asked for ways as "products described". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cublaslt_calls.h"
#include "support/stand_in/driver.h"
#include "support/stand_in/numbers.h"
#include "support/stand_in/stand_in.h"

/* CUBLAS_STATUS_INVALID_VALUE, _EXECUTION_FAILED, _NOT_SUPPORTED */
enum { WRONG = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { EPILOGUE = 7, BIAS_POINTER = 8, ADD_BIAS = 4 };
enum { SCALE_POINTER = 17, FAST_SUMS = 25, SCALE_MODE = 31, EACH_ROW = 3 }; /* + 1: of B */
enum { WORKSPACE = 1, REDUCTION = 3, ALL_REDUCTIONS = 7, REDUCED_IN_OUTPUT = 4 };
enum { BF16 = 14, FP16 = 2, FP32 = 0, E4M3 = 28, E5M2 = 29, COMPUTE_FP32 = 68 };

size_t cublasLtGetVersion(void);

/* Its names of types as the numbers that stand-ins share. */
static stand_in_type type_of(cublasEnum type) {
  switch (type) {
    case BF16: return STAND_IN_BF16;
    case FP16: return STAND_IN_FP16;
    case E4M3: return STAND_IN_E4M3;
    case E5M2: return STAND_IN_E5M2;
    default: return STAND_IN_FP32;
  }
}

struct cublasLtMatmulDescOpaque {
  int transposed[2];
  uint32_t epilogue; /* 0: none was set */
  const void *bias;
  const float *scales[2]; /* of A and of B */
  int scale_modes[2];
};

struct cublasLtMatrixLayoutOpaque {
  cublasEnum type;
  uint64_t rows, columns;
  int64_t stride;
};

struct cublasLtMatmulPreferenceOpaque {
  uint64_t workspace;
  uint32_t reductions;
};

/* What a way is, the best by the library's guess first. */
static const struct {
  double time, unlike; /* for each operation, of real numbers in a cold cache, and of others */
  enum { RUNS, FAILS, HAS_NO_STATE, TAKES_MORE, ADDS_IN_OUTPUT } what;
  int parts; /* that the depth is summed in */
} ways[] = {{1.00, 1.00, RUNS, 1},           {0.90, 0.90, RUNS, 2}, {0.10, 0.10, FAILS, 1},
            {0.20, 0.20, TAKES_MORE, 1},     {0.80, 0.80, RUNS, 3}, {0.05, 0.05, HAS_NO_STATE, 1},
            {0.70, 0.70, ADDS_IN_OUTPUT, 1}, {1.20, 0.30, RUNS, 1}, {0.85, 0.85, RUNS, 5}};
enum { WAYS = sizeof ways / sizeof *ways };

/* What a call of each is counted by: "way 2 on GPU 0". */
static char names[STAND_IN_GPUS][WAYS][32];

__attribute__((constructor)) static void name_ways(void) {
  for (int g = 0; g < STAND_IN_GPUS; g++)
    for (int w = 0; w < WAYS; w++)
      snprintf(names[g][w], sizeof names[g][w], "way %d on GPU %d", w + 1, g);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  *handle = malloc(1);
  return 0;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  free(handle);
  return 0;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *product, cublasEnum compute,
                                        cublasEnum scale) {
  if (compute != COMPUTE_FP32 || scale != FP32) return NOT_SUPPORTED;
  *product = calloc(1, sizeof **product);
  return 0;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  free(product);
  return 0;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasEnum attribute,
                                              const void *value, size_t bytes) {
  int32_t set;
  if (attribute == EPILOGUE && bytes == sizeof product->epilogue) {
    memcpy(&product->epilogue, value, bytes);
    return product->epilogue == ADD_BIAS ? 0 : NOT_SUPPORTED;
  }
  if (attribute == BIAS_POINTER && bytes == sizeof product->bias) {
    memcpy(&product->bias, value, bytes);
    return 0;
  }
  if ((attribute == SCALE_POINTER || attribute == SCALE_POINTER + 1) && bytes == sizeof(void *)) {
    memcpy(&product->scales[attribute - SCALE_POINTER], value, bytes);
    return 0;
  }
  if (attribute == FAST_SUMS && bytes == 1) return *(const int8_t *)value ? NOT_SUPPORTED : 0;
  if ((attribute == SCALE_MODE || attribute == SCALE_MODE + 1) && bytes == sizeof set) {
    memcpy(&set, value, bytes);
    product->scale_modes[attribute - SCALE_MODE] = set;
    if (cublasLtGetVersion() < 120800) return WRONG; /* it has no modes */
    return set == 0 || set == EACH_ROW ? 0 : NOT_SUPPORTED;
  }
  if (attribute < 3 || attribute > 4 || bytes != sizeof set) return WRONG;
  memcpy(&set, value, sizeof set);
  if (set != 0 && set != 1) return NOT_SUPPORTED;
  product->transposed[attribute - 3] = set;
  return 0;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cublasEnum type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  if (!rows || !columns || stride < (int64_t)rows) return WRONG;
  if (type != BF16 && type != FP16 && type != FP32 && type != E4M3 && type != E5M2)
    return NOT_SUPPORTED;
  *layout = malloc(sizeof **layout);
  **layout = (struct cublasLtMatrixLayoutOpaque){type, rows, columns, stride};
  return 0;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  free(layout);
  return 0;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
  *preference = calloc(1, sizeof **preference);
  (*preference)->reductions = ALL_REDUCTIONS;
  return 0;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  free(preference);
  return 0;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasEnum attribute, const void *value,
                                                    size_t bytes) {
  if (attribute == REDUCTION && bytes == sizeof preference->reductions) {
    memcpy(&preference->reductions, value, bytes);
    return preference->reductions > ALL_REDUCTIONS ? WRONG : 0;
  }
  if (attribute != WORKSPACE || bytes != sizeof preference->workspace) return WRONG;
  memcpy(&preference->workspace, value, bytes);
  return 0;
}

typedef struct sides {
  uint64_t rows, columns, depth;
  bool codes;
} sides;

static bool is_code(cublasLtMatrixLayout_t of) {
  return of->type == E4M3 || of->type == E5M2;
}

/* FP8 kernels (cuBLAS documentation, cublasLtMatmul, and its release notes): architecture and
 * version; E5M2 by itself there is none; A transposed and B not; 16 bytes of dimensions and
 * strides; scales of rows of both, on Hopper alone. On Blackwell layouts are freer, which nobody is
 * to need.
 */
static bool has_codes(cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                      cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t d, uint64_t depth) {
  const long cc = stand_in_number("cc", 90);
  const size_t version = cublasLtGetVersion(), least = cc < 90     ? 120103
                                                       : cc >= 100 ? 120800
                                                                   : 120000;
  const uint64_t wide = d->type == FP32 ? 4 : 2;
  const bool rows = product->scale_modes[0] == EACH_ROW;
  return cc >= 89 && version >= least && is_code(a) && is_code(b) &&
         (a->type == E4M3 || b->type == E4M3) && product->transposed[0] &&
         !product->transposed[1] && depth % 16 == 0 && d->rows * wide % 16 == 0 &&
         a->stride % 16 == 0 && b->stride % 16 == 0 && (uint64_t)d->stride * wide % 16 == 0 &&
         product->scale_modes[0] == product->scale_modes[1] &&
         (!rows || (cc == 90 && version >= 120900));
}

/* Vectors of scales are where the product says so, and already when it is asked for ways: else
 * "The scaling mode for A scale requires a custom pointer for A scale", CUBLAS_STATUS_INVALID_VALUE
 * (NVIDIA/CUDALibrarySamples, issue 274). */
static bool has_scales(cublasLtMatmulDesc_t product) {
  for (int i = 0; i < 2; i++)
    if (product->scale_modes[i] == EACH_ROW && !product->scales[i]) return false;
  return true;
}

/* What is multiplied; rows of 0: the layouts do not fit each other. */
static sides sides_of(cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                      cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                      cublasLtMatrixLayout_t d) {
  const uint64_t rows = product->transposed[0] ? a->columns : a->rows;
  const uint64_t depth = product->transposed[0] ? a->rows : a->columns;
  const uint64_t columns = product->transposed[1] ? b->rows : b->columns;
  const uint64_t other = product->transposed[1] ? b->columns : b->rows;
  const int types = is_code(a) || is_code(b)
                        ? d->type == BF16 || d->type == FP32
                        : a->type == b->type && (d->type == a->type || d->type == FP32);
  const int fits = depth == other && d->rows == rows && d->columns == columns &&
                   memcmp(c, d, sizeof *c) == 0 && types;
  return (sides){fits ? rows : 0, columns, depth, is_code(a) || is_code(b)};
}

static uint64_t mark_of(cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                        cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t d) {
  const uint64_t of[] = {a->type,
                         a->rows,
                         a->columns,
                         (uint64_t)a->stride,
                         b->type,
                         b->rows,
                         b->columns,
                         (uint64_t)b->stride,
                         d->type,
                         d->rows,
                         d->columns,
                         (uint64_t)d->stride,
                         (uint64_t)product->transposed[0],
                         (uint64_t)product->transposed[1],
                         (uint64_t)product->scale_modes[0],
                         (uint64_t)product->scale_modes[1],
                         product->epilogue};
  uint64_t mark = 1;
  for (size_t i = 0; i < sizeof of / sizeof *of; i++)
    mark = (mark ^ of[i]) * UINT64_C(0x100000001b3);
  return mark;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t *results,
                                              int *count) {
  *count = 0;
  const sides of = sides_of(product, a, b, c, d);
  stand_in_count("products described");
  if (!handle || most < 1 || !of.rows || !has_scales(product)) return WRONG;
  if (of.codes && (stand_in_is("codes", "none") || !has_codes(product, a, b, d, of.depth)))
    return NOT_SUPPORTED;
  const long there = stand_in_number("ways", 1);
  for (long w = 0; w < there && w < WAYS && *count < most; w++) {
    if (ways[w].what == ADDS_IN_OUTPUT && !(preference->reductions & REDUCED_IN_OUTPUT)) continue;
    cublasLtMatmulHeuristicResult_t *made = &results[(*count)++];
    memset(made, 0, sizeof *made);
    made->workspaceSize = preference->workspace + (ways[w].what == TAKES_MORE);
    made->state = ways[w].what == HAS_NO_STATE ? NOT_SUPPORTED : 0;
    made->algo.data[0] = (uint64_t)w + 1;
    made->algo.data[1] = mark_of(product, a, b, d);
    made->algo.data[2] = preference->workspace;
  }
  return 0;
}

/* A way is of the product that it was asked for, and no other. */
static bool fits(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulDesc_t product,
                 cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t d) {
  return algo && algo->data[0] && algo->data[0] <= WAYS &&
         algo->data[1] == mark_of(product, a, b, d);
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result) {
  memset(result, 0, sizeof *result);
  const sides of = sides_of(product, a, b, c, d);
  if (!handle || !of.rows || !has_scales(product)) return WRONG;
  if (!fits(algo, product, a, b, d)) return NOT_SUPPORTED;
  if (of.codes && !has_codes(product, a, b, d, of.depth)) return NOT_SUPPORTED;
  result->workspaceSize = algo->data[2];
  return 0;
}

typedef struct multiplication {
  sides of;
  struct cublasLtMatrixLayoutOpaque a, b, d;
  int transposed[2];
  float alpha, beta;
  const void *left, *right, *bias;
  const float *scales[2];
  int each_row;
  void *result;
  int way, gpu;
} multiplication;

/* Of A's rows and of B's, which are columns of the result; or of all. */
static float scale_of(const multiplication *m, int which, uint64_t row) {
  return !m->scales[which] ? 1 : m->scales[which][m->each_row ? row : 0];
}

/* What the driver's stand-in has. */
static void *of_driver(const char *name) {
  return dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name);
}

/* The time of it, by the way: quicker for zeros, and where the cache has the operands. */
static void take_time(const multiplication *m) {
  bool (*is_cold)(void) = (bool (*)(void))of_driver("stand_in_is_cold");
  void (*lasts)(double) = (void (*)(double))of_driver("stand_in_lasts");
  const bool cold = is_cold();
  bool zeros = true;
  for (uint64_t i = 0; i < m->a.rows && zeros; i++)
    zeros = number_at(m->left, type_of(m->a.type), (int64_t)i) == 0;
  const bool disagrees = stand_in_number("disagree", 0) && m->gpu > 0 && m->way == 1;
  const double each = disagrees ? 0.6 : cold && !zeros ? ways[m->way].time : ways[m->way].unlike;
  lasts(1e-6 * each * (double)(m->of.rows * m->of.columns * m->of.depth));
}

static float sum_of(const float *left, const float *right, size_t k, size_t end) {
  float sums[8] = {0}, sum = 0;
  for (; k + 8 <= end; k += 8)
    for (size_t i = 0; i < 8; i++) sums[i] += left[k + i] * right[k + i];
  for (; k < end; k++) sum += left[k] * right[k];
  for (int i = 0; i < 8; i++) sum += sums[i];
  return sum;
}

static CUresult multiply(void *data) {
  const multiplication *m = data;
  const size_t depth = m->of.depth, parts = (size_t)ways[m->way].parts;
  take_time(m);
  float *left = malloc(depth * sizeof *left * m->of.rows), *right = malloc(depth * sizeof *right);
  for (uint64_t r = 0; r < m->of.rows; r++)
    for (size_t k = 0; k < depth; k++)
      left[r * depth + k] = number_at(m->left, type_of(m->a.type),
                                      m->transposed[0] ? (int64_t)(r * (uint64_t)m->a.stride + k)
                                                       : (int64_t)(k * (uint64_t)m->a.stride + r));
  for (uint64_t c = 0; c < m->of.columns; c++) {
    for (size_t k = 0; k < depth; k++)
      right[k] = number_at(m->right, type_of(m->b.type),
                           m->transposed[1] ? (int64_t)(k * (uint64_t)m->b.stride + c)
                                            : (int64_t)(c * (uint64_t)m->b.stride + k));
    for (uint64_t r = 0; r < m->of.rows; r++) {
      float sum = 0;
      for (size_t p = 0; p < parts; p++)
        sum += sum_of(left + r * depth, right, p * depth / parts, (p + 1) * depth / parts);
      const int64_t at = (int64_t)(c * (uint64_t)m->d.stride + r);
      const float before = m->beta ? m->beta * number_at(m->result, type_of(m->d.type), at) : 0;
      const float added = m->bias ? number_at(m->bias, type_of(m->d.type), (int64_t)r) : 0;
      put_number(m->result, type_of(m->d.type), at,
                 m->alpha * scale_of(m, 0, r) * scale_of(m, 1, c) * sum + before + added);
    }
  }
  free(left);
  free(right);
  return CUDA_SUCCESS;
}

static bool fails_of_codes(void) {
  static _Atomic long codes;
  stand_in_count("products of codes");
  return ++codes == stand_in_number("fail_codes", 0);
}

static bool is_aligned(const void *at) {
  return at && (size_t)at % 16 == 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t bytes, CUstream stream) {
  CUresult (*enqueue)(CUstream, stand_in_work, const void *, size_t) =
      (CUresult(*)(CUstream, stand_in_work, const void *, size_t))of_driver("stand_in_enqueue");
  int (*gpu)(void) = (int (*)(void))of_driver("stand_in_gpu");
  const sides of = sides_of(product, a_layout, b_layout, c_layout, d_layout);
  if (!handle || !enqueue || !of.rows || c != d || !is_aligned(a) || !is_aligned(b) ||
      !is_aligned(d) || (product->epilogue && !is_aligned(product->bias)) ||
      (bytes && (size_t)workspace % 256))
    return WRONG;
  for (int i = 0; i < 2; i++) /* numbers that are no codes have none */
    if (of.codes ? product->scales[i] && !is_aligned(product->scales[i])
                 : product->scales[i] || product->scale_modes[i])
      return WRONG;
  if (!has_scales(product) || (of.codes && stand_in_is("codes", "found"))) return WRONG;
  if (!fits(algo, product, a_layout, b_layout, d_layout) ||
      (of.codes && !has_codes(product, a_layout, b_layout, d_layout, of.depth)))
    return NOT_SUPPORTED;
  const int way = (int)algo->data[0] - 1;
  if (ways[way].what != RUNS || bytes < algo->data[2]) return NOT_SUPPORTED;
  if (of.codes && fails_of_codes()) return NOT_SUPPORTED;
  if (stand_in_fails("product_fail", names[gpu()][way])) return EXECUTION_FAILED;
  multiplication made = {.of = of,
                         .way = way,
                         .gpu = gpu(),
                         .a = *a_layout,
                         .b = *b_layout,
                         .d = *d_layout,
                         .transposed = {product->transposed[0], product->transposed[1]},
                         .left = a,
                         .right = b,
                         .bias = product->epilogue ? product->bias : NULL,
                         .scales = {product->scales[0], product->scales[1]},
                         .each_row = product->scale_modes[0] == EACH_ROW,
                         .result = d};
  memcpy(&made.alpha, alpha, sizeof made.alpha);
  memcpy(&made.beta, beta, sizeof made.beta);
  return enqueue(stream, multiply, &made, sizeof made) ? NOT_SUPPORTED : 0;
}
