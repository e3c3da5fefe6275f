/* Which of cuBLASLt's ways of a product is the fastest: tried once, and kept. Private to
 * device/cuda.
 *
 *   LS_TRY(ls_cuda_products_prepare(LS_OP_LINEAR, &args, error));  ... as a program is loaded
 *   ls_cuda_product about = ls_cuda_product_at(stream->products, 0);
 *   LS_TRY(ls_cuda_product_try(stream, 0, &about.ways->of[2], &at, &runs, error));
 *
 * A rank's thread at a time. */
#ifndef LS_DEVICE_CUDA_CUDA_TUNING_H
#define LS_DEVICE_CUDA_CUDA_TUNING_H

#include "base/fp8.h"
#include "device/cuda/cublaslt_calls.h"
#include "device/cuda/cuda_gpu.h"

enum { LS_CUDA_MOST_WAYS = 8 };

/* The best by the library's own guess first. */
typedef struct ls_cuda_ways {
  cublasLtMatmulAlgo_t of[LS_CUDA_MOST_WAYS];
  int count;
} ls_cuda_ways;

/* An operand in memory. */
typedef struct ls_cuda_numbers {
  ls_dtype dtype;
  ls_fp8 codes; /* of 8 bits instead; else none */
  size_t bytes; /* 0: there is no such operand */
} ls_cuda_numbers;

/* A product that has been prepared. */
typedef struct ls_cuda_product {
  const ls_cuda_ways *ways; /* borrowed; none: the library has no product of these codes */
  double work;              /* floating-point operations */
  ls_cuda_numbers a, b, out, bias, a_scales, b_scales;
  char text[256]; /* all that a choice depends on but GPU and versions */
} ls_cuda_product;

/* Where its operands begin; NULL: there is none. */
typedef struct ls_cuda_operands {
  const char *a, *b, *bias;
  const float *a_scales, *b_scales; /* of the result's rows and of its columns, where codes are */
  char *out;
  void *workspace;
  size_t workspace_bytes;
} ls_cuda_operands;

/* Describes to the library what a call of such an op will ask of it, and takes its first guess.
 * Other ops: nothing. Errors: the library's. */
LS_CHECKED ls_status ls_cuda_products_prepare(ls_op_kind kind, const ls_kernel_args *args,
                                              ls_error *error);

/* Those that were prepared, in the order in which they were. */
int ls_cuda_product_count(const ls_cuda_products *products);
ls_cuda_product ls_cuda_product_at(const ls_cuda_products *products, int item);

/* Puts the product on the stream in one of its ways; *runs is false where the library refuses it.
 */
LS_CHECKED ls_status ls_cuda_product_try(const ls_cuda_stream *stream, int item,
                                         const cublasLtMatmulAlgo_t *way,
                                         const ls_cuda_operands *at, bool *runs, ls_error *error);

/* Its way from now on; false: the library has no such way of it on this GPU. */
bool ls_cuda_product_take(ls_cuda_products *products, int item, const cublasLtMatmulAlgo_t *way);

/* What ranks agree by (device.h). */
extern const ls_tuning_calls ls_cuda_tuning;

#endif
