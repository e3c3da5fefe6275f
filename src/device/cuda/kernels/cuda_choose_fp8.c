/* Launches of roundings to fp8, and of the largest magnitudes that they go by. */
#include "base/fp8.h"

#include <math.h>

#include "device/cuda/kernels/cuda_choose.h"

enum { THREADS = 256, WARPS = THREADS / LS_CUDA_WARP, EACH = 8 };

static void add(const ls_kernel_args *args, const char *name, const char *suffix, int64_t wanted,
                const ls_cuda_fp8 *with, ls_cuda_launches *launches) {
  ls_cuda_add_launch(launches, name, suffix, ls_cuda_blocks(args->queue->facts, wanted, EACH),
                     THREADS, sizeof *with)
      ->arguments.fp8 = *with;
}

ls_status ls_cuda_choose_amax(ls_op_kind kind, const ls_kernel_args *args,
                              ls_cuda_launches *launches, ls_error *error) {
  const ls_view *x = &args->in[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(x->dtype, &suffix, error));
  LS_TRY(ls_cuda_expect(&args->out[0], LS_F32, "the largest magnitude", error));
  ls_cuda_fp8 with = {.in = ls_cuda_place_of(x, false),
                      .made = args->out[0].data,
                      .rows = x->valid[0],
                      .columns = x->valid[1],
                      .wide = ls_cuda_is_wide(x)};
  const int64_t wanted = ls_cuda_divide_up(with.rows, WARPS);
  if (kind == LS_OP_ROW_AMAX) {
    if (with.rows > 0) add(args, "ls_row_amax", suffix, wanted, &with, launches);
    return LS_OK;
  }
  const int64_t parts = ls_cuda_blocks(args->queue->facts, wanted, EACH);
  LS_TRY(ls_cuda_expect_workspace(args, (size_t)parts * sizeof(float), error));
  with.made = args->workspace;
  add(args, "ls_amax_parts", suffix, wanted, &with, launches);
  with = (ls_cuda_fp8){.amax = args->workspace, .made = args->out[0].data, .rows = parts};
  add(args, "ls_amax", "", 1, &with, launches);
  return LS_OK;
}

ls_status ls_cuda_choose_fp8(ls_op_kind kind, const ls_kernel_args *args,
                             ls_cuda_launches *launches, ls_error *error) {
  const ls_view *x = &args->in[0], *y = &args->out[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(y->dtype, &suffix, error));
  LS_TRY(ls_cuda_expect(x, y->dtype, "what is rounded", error));
  LS_TRY(ls_cuda_expect(&args->in[1], LS_F32, "the largest magnitude", error));
  const ls_fp8_grid grid = ls_fp8_grid_of(args->attributes->fp8);
  ls_cuda_fp8 with = {.in = ls_cuda_place_of(x, false),
                      .out = ls_cuda_place_of(y, args->accumulate[0]),
                      .amax = args->in[1].data,
                      .rows = y->valid[0],
                      .columns = ls_cuda_smaller(x->valid[1], y->dims[1]),
                      .dropped = grid.dropped,
                      .least = grid.least,
                      .magic = grid.magic,
                      .most = grid.most,
                      .infinity = args->attributes->fp8 == LS_FP8_E5M2,
                      .own = kind == LS_OP_ROW_FP8,
                      .wide = ls_cuda_is_wide(x) && ls_cuda_is_wide(y)};
  frexpf(with.most, &with.exponent);
  if (with.rows == 0) return LS_OK;
  const int64_t packs = with.rows * ls_cuda_divide_up(with.out.stride, LS_CUDA_PACK);
  add(args, "ls_fp8", suffix, ls_cuda_divide_up(packs, THREADS), &with, launches);
  return LS_OK;
}
