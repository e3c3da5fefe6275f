/* Parts of the recipe of CUDA devices that their products keep to. No library is needed. */
#ifndef LS_DEVICE_CUDA_CUDA_RECIPE_H
#define LS_DEVICE_CUDA_CUDA_RECIPE_H

#include "base/fp8.h"
#include "device/facts.h"

/* What cuBLASLt is given for a product. */
size_t ls_cuda_product_bytes(const ls_device_facts *facts);

/* The weights of a product of blocks, which come before that. */
size_t ls_cuda_restored_bytes(const ls_kernel_args *args);

/* How GPUs of an architecture multiply codes of 8 bits with a version of cuBLASLt, as
 * cublasLtGetVersion has it: `fp8`, `fp8_why` and `takes_codes` of the facts. */
void ls_cuda_set_fp8(ls_device_facts *facts, size_t version);
enum { LS_CUDA_ANY_VERSION = 999999 };

/* Where a product of codes has them in its workspace, in bytes: of the first operand, of the
 * weight, their rows' scales, and numbers to work in; what the library is given lies behind. */
typedef struct ls_cuda_fp8_room {
  ls_fp8 format;  /* of the first operand; the weight's is E4M3 */
  int64_t rows;   /* of the weight's codes: columns of the output that are made */
  int64_t depth;  /* codes of a row */
  int64_t summed; /* of these that exist */
  size_t codes, weight_codes, scales, weight_scales, parts, bytes;
} ls_cuda_fp8_room;

ls_cuda_fp8_room ls_cuda_fp8_room_of(const ls_device_facts *facts, ls_op_kind kind,
                                     const ls_kernel_args *args);

#endif
