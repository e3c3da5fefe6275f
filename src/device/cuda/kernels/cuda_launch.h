/* Which CUDA kernels serve an op, and how they are launched: chosen here from the operands' views
 * alone, so that what a GPU is given (cuLaunchKernelEx) and what tests run without one are the
 * same.
 *
 *   ls_cuda_launches launches;
 *   LS_TRY(ls_cuda_choose(LS_OP_RMSNORM, &args, &launches, error));
 *   for (int i = 0; i < launches.count; i++) ... launches.launch[i] on the queue's stream, in order
 *
 * A kernel takes one argument, a struct of cuda_arguments.h by value: kernelParams is the address
 * of `arguments`. More than 48 KiB of shared memory must be asked for first, as
 * CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES. Nothing is allocated and no memory is read. */
#ifndef LS_DEVICE_CUDA_KERNELS_CUDA_LAUNCH_H
#define LS_DEVICE_CUDA_KERNELS_CUDA_LAUNCH_H

#include "device/cuda/kernels/cuda_arguments.h"
#include "device/facts.h"

enum { LS_CUDA_MAX_LAUNCHES = 18 };

typedef union ls_cuda_arguments {
  ls_cuda_pointwise pointwise;
  ls_cuda_rows rows;
  ls_cuda_columns columns;
  ls_cuda_rope rope;
  ls_cuda_rope_table rope_table;
  ls_cuda_embedding embedding;
  ls_cuda_cross_entropy cross_entropy;
  ls_cuda_tokens tokens;
  ls_cuda_cells cells;
  ls_cuda_squares squares;
  ls_cuda_optimizer optimizer;
  ls_cuda_move move;
  ls_cuda_rank_sum rank_sum;
  ls_cuda_attention attention;
  ls_cuda_placed placed;
  ls_cuda_weight_blocks blocks;
  ls_cuda_scales scales;
  ls_cuda_pairs pairs;
  ls_cuda_route route;
  ls_cuda_router router;
  ls_cuda_routed routed;
  ls_cuda_grouped grouped;
  ls_cuda_slots slots;
  ls_cuda_distill distill;
  ls_cuda_heads heads;
  ls_cuda_cached cached;
  ls_cuda_codes codes;
  ls_cuda_muon muon;
  ls_cuda_adafactor adafactor;
  ls_cuda_texts texts;
  ls_cuda_fp8 fp8;
  ls_cuda_fp8_codes fp8_codes;
  ls_cuda_fp8_scales fp8_scales;
  ls_cuda_muon_product muon_product;
  ls_cuda_expert_bias expert_bias;
} ls_cuda_arguments;

typedef struct ls_cuda_launch {
  const char *name[2]; /* of the kernel, in two parts: "ls_rmsnorm", "_bf16" */
  uint32_t grid[3], block;
  uint32_t shared_bytes; /* dynamic */
  size_t argument_bytes;
  ls_cuda_arguments arguments;
} ls_cuda_launch;

typedef struct ls_cuda_launches {
  int count; /* 0: there is nothing to do */
  ls_cuda_launch launch[LS_CUDA_MAX_LAUNCHES];
} ls_cuda_launches;

/* Whether an op has kernels here; products of matrices are the library's. */
bool ls_cuda_serves(ls_op_kind kind);

/* The launches of a call, in order. `queue` of the arguments gives the device's facts. LS_INTERNAL:
 * operands that no kernel takes. */
LS_CHECKED ls_status ls_cuda_choose(ls_op_kind kind, const ls_kernel_args *args,
                                    ls_cuda_launches *launches, ls_error *error);

/* Codes of 8 bits of a matrix in bf16 that has been rounded to `format`. Its rows, each by a scale
 * of its own, or turned, its columns, all by one: so that what a product sums over lies in rows of
 * `stride` codes, a multiple of 16. Behind what exists, codes are zero. */
typedef struct ls_cuda_coding {
  const ls_view *from;
  ls_fp8 format;
  bool turned;
  int64_t rows, columns;  /* of `from` that are taken */
  int64_t stored, stride; /* rows of codes that are written, and codes of a row */
  uint8_t *codes;         /* at a multiple of 16 bytes */
  float *scales;          /* of each row of codes: what a code times it is the number */
  float *parts;           /* turned: ls_cuda_coding_parts numbers to work in */
} ls_cuda_coding;

int64_t ls_cuda_coding_parts(const ls_device_facts *facts);

/* LS_INTERNAL: it is not in bf16. */
LS_CHECKED ls_status ls_cuda_choose_coding(const ls_device_facts *facts,
                                           const ls_cuda_coding *coding, ls_cuda_launches *launches,
                                           ls_error *error);

/* Multiplies `columns` of each row of a product of codes, in bf16, by the scales of its row and of
 * its columns, and adds a bias: NULL for none. */
LS_CHECKED ls_status ls_cuda_choose_rescaling(const ls_device_facts *facts, const ls_view *product,
                                              int64_t columns, const float *row_scales,
                                              const float *column_scales, const void *bias,
                                              ls_cuda_launches *launches, ls_error *error);

/* What an engine that moves data between GPUs sums: target[i] is the sum, or the largest, of
 * sources[0][i] to sources[ranks - 1][i], added in that order in fp32 (fp64 in itself) and rounded
 * once. `accumulate`: and of what the target held. `target` may be one of the sources. */
typedef struct ls_cuda_reduction {
  void *target;
  const void *const *sources;
  int ranks;
  int64_t count;
  ls_dtype dtype; /* fp32, bf16, fp16 or fp64 */
  bool largest, accumulate;
} ls_cuda_reduction;

LS_CHECKED ls_status ls_cuda_choose_reduction(const ls_device_facts *facts,
                                              const ls_cuda_reduction *reduction,
                                              ls_cuda_launches *launches, ls_error *error);

#endif
