/* Launches of what makes weights of blocks, and blocks of those whose scales have 8 bits. */
#include <string.h>

#include "base/blocks.h"
#include "base/codes.h"
#include "device/cuda/kernels/cuda_choose.h"

enum { THREADS = 256, EACH = 8, WORD = 4 };

ls_status ls_cuda_choose_dequantize(ls_op_kind kind, const ls_kernel_args *args,
                                    ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  const ls_view *in = &args->in[0], *out = &args->out[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(out->dtype, &suffix, error));
  const float *values = ls_blocks_values(in->dtype);
  if (!values) LS_TRY(ls_cuda_expect(in, LS_INT8, "what is dequantised", error));
  if (out->valid[1] != in->valid[1] * LS_BLOCK_WEIGHTS || args->accumulate[0])
    return ls_fail(error, LS_INTERNAL, "%lld blocks of a row are to make %lld weights",
                   (long long)in->valid[1], (long long)out->valid[1]);
  const int64_t words = (int64_t)ls_dtype_bytes(in->dtype) / WORD;
  ls_cuda_weight_blocks with = {.blocks = in->data,
                                .out = ls_cuda_place_of(out, false),
                                .rows = out->valid[0],
                                .columns = out->valid[1],
                                .row_words = in->dims[1] * words,
                                .block_words = (int32_t)words,
                                .four_bits = values != NULL,
                                .wide = ls_cuda_is_wide(out)};
  if (with.rows == 0) return LS_OK;
  if (values) memcpy(with.values, values, sizeof with.values);
  const ls_device_facts *facts = args->queue->facts;
  const int64_t across = ls_cuda_divide_up(ls_cuda_stride(out), (int64_t)THREADS * LS_CUDA_PACK);
  ls_cuda_launch *launch = ls_cuda_add_launch(
      launches, "ls_dequantize", suffix, ls_cuda_blocks(facts, across, EACH), THREADS, sizeof with);
  const int64_t left = (int64_t)facts->processors * EACH / launch->grid[0];
  launch->grid[1] = (uint32_t)(left < 1 ? 1 : ls_cuda_smaller(with.rows, left));
  launch->arguments.blocks = with;
  return LS_OK;
}

ls_status ls_cuda_choose_restore_scales(ls_op_kind kind, const ls_kernel_args *args,
                                        ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  const ls_view *in = &args->in[0], *out = &args->out[0];
  const int64_t words = (int64_t)sizeof(ls_four_bit_block) / WORD;
  LS_TRY(ls_kernel_check_scales(args, error));
  ls_cuda_scales with = {.blocks = in->data,
                         .nested = args->in[1].data,
                         .made = out->data,
                         .rows = out->valid[0],
                         .across = out->valid[1],
                         .row_bytes = in->dims[1] * (int64_t)sizeof(ls_double_block),
                         .row_words = out->dims[1] * words,
                         .first = ls_kernel_first_scale(args, 0),
                         .columns = args->attributes->columns};
  if (with.rows == 0) return LS_OK;
  memcpy(with.codes, ls_codes_signed, sizeof with.codes);
  const ls_device_facts *facts = args->queue->facts;
  const int64_t across = ls_cuda_divide_up(with.across * words, THREADS);
  ls_cuda_launch *launch = ls_cuda_add_launch(
      launches, "ls_restore_scales", "", ls_cuda_blocks(facts, across, EACH), THREADS, sizeof with);
  const int64_t left = (int64_t)facts->processors * EACH / launch->grid[0];
  launch->grid[1] = (uint32_t)(left < 1 ? 1 : ls_cuda_smaller(with.rows, left));
  launch->arguments.scales = with;
  return LS_OK;
}
