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

static bool in_words(const ls_view *codes) {
  enum { WORD = 8 };
  return (uintptr_t)codes->data % WORD == 0 && (codes->ndim == 1 || codes->dims[1] % WORD == 0);
}

static ls_status choose_range_amax(const ls_kernel_args *args, ls_cuda_launches *launches,
                                   ls_error *error) {
  const ls_view *x = &args->in[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(x->dtype, &suffix, error));
  LS_TRY(ls_cuda_expect(&args->out[0], LS_F32, "the largest magnitude", error));
  ls_cuda_fp8 with = {.in = ls_cuda_place_of(x, false),
                      .made = args->workspace,
                      .columns = x->valid[0],
                      .wide = ls_cuda_is_wide(x)};
  const int64_t wanted = ls_cuda_divide_up(with.columns, (int64_t)THREADS * LS_CUDA_PACK);
  const int64_t parts = ls_cuda_blocks(args->queue->facts, wanted, EACH);
  LS_TRY(ls_cuda_expect_workspace(args, (size_t)parts * sizeof(float), error));
  add(args, "ls_range_amax_parts", suffix, wanted, &with, launches);
  with = (ls_cuda_fp8){.amax = args->workspace, .made = args->out[0].data, .rows = parts};
  add(args, "ls_amax", "", 1, &with, launches);
  return LS_OK;
}

ls_status ls_cuda_choose_weight_codes(ls_op_kind kind, const ls_kernel_args *args,
                                      ls_cuda_launches *launches, ls_error *error) {
  if (kind == LS_OP_RANGE_AMAX) return choose_range_amax(args, launches, error);
  const bool decodes = kind == LS_OP_FP8_DECODE;
  const ls_view *in = &args->in[0], *out = &args->out[0];
  const ls_view *numbers = decodes ? out : in, *codes = decodes ? in : out;
  const char *suffix;
  LS_TRY(ls_cuda_suffix(numbers->dtype, &suffix, error));
  LS_TRY(ls_cuda_expect(codes, LS_U8, "codes", error));
  LS_TRY(ls_cuda_expect(&args->in[1], LS_F32, "the largest magnitude", error));
  const ls_fp8_grid grid = ls_fp8_grid_of(LS_FP8_E4M3);
  ls_cuda_fp8 with = {.in = ls_cuda_place_of(in, false),
                      .out = ls_cuda_place_of(out, args->accumulate[0]),
                      .amax = args->in[1].data,
                      .rows = decodes ? out->valid[0] : 1,
                      .columns = decodes ? in->valid[1] : in->valid[0],
                      .dropped = grid.dropped,
                      .least = grid.least,
                      .magic = grid.magic,
                      .most = grid.most,
                      .wide = ls_cuda_is_wide(numbers),
                      .words = in_words(codes)};
  frexpf(with.most, &with.exponent);
  const int64_t row = decodes ? with.out.stride : with.columns;
  const int64_t packs = with.rows * ls_cuda_divide_up(row, LS_CUDA_PACK);
  if (packs > 0)
    add(args, decodes ? "ls_fp8_decode" : "ls_fp8_codes", suffix, ls_cuda_divide_up(packs, THREADS),
        &with, launches);
  return LS_OK;
}

int64_t ls_cuda_coding_parts(const ls_device_facts *facts) {
  return (int64_t)facts->processors * EACH + 1; /* and the largest of them */
}

static ls_cuda_fp8_codes codes_of(const ls_cuda_coding *coding) {
  const ls_fp8_grid grid = ls_fp8_grid_of(coding->format);
  const uint32_t first = 1u << (23 - grid.dropped); /* the code of the least normal number */
  ls_cuda_fp8_codes with = {.in = ls_cuda_place_of(coding->from, false),
                            .codes = coding->codes,
                            .scales = coding->scales,
                            .amax = coding->parts,
                            .rows = coding->rows,
                            .columns = coding->columns,
                            .stored = coding->stored,
                            .stride = coding->stride,
                            .dropped = grid.dropped,
                            .offset = (ls_bits_of_float(grid.least) >> grid.dropped) - first,
                            .least = grid.least,
                            .times = (float)first / grid.least,
                            .infinity = coding->format == LS_FP8_E5M2,
                            .wide = ls_cuda_is_wide(coding->from)};
  frexpf(grid.most, &with.exponent);
  return with;
}

ls_status ls_cuda_choose_coding(const ls_device_facts *facts, const ls_cuda_coding *coding,
                                ls_cuda_launches *launches, ls_error *error) {
  enum { ROWS = 128, COLUMNS = 64 };
  LS_TRY(ls_cuda_expect(coding->from, LS_BF16, "what codes are made of", error));
  const ls_cuda_fp8_codes with = codes_of(coding);
  launches->count = 0;
  if (!coding->turned) {
    if (with.stored > 0)
      ls_cuda_add_launch(launches, "ls_fp8_row_codes", "", ls_cuda_blocks(facts, with.stored, EACH),
                         THREADS, sizeof with)
          ->arguments.fp8_codes = with;
    return LS_OK;
  }
  const uint32_t parts = ls_cuda_blocks(facts, ls_cuda_divide_up(with.rows, WARPS), EACH);
  const ls_cuda_fp8 largest = {.in = with.in,
                               .made = coding->parts + 1,
                               .rows = with.rows,
                               .columns = with.columns,
                               .wide = with.wide};
  ls_cuda_add_launch(launches, "ls_amax_parts", "_bf16", parts, THREADS, sizeof largest)
      ->arguments.fp8 = largest;
  ls_cuda_add_launch(launches, "ls_amax", "", 1, THREADS, sizeof largest)->arguments.fp8 =
      (ls_cuda_fp8){.amax = coding->parts + 1, .made = coding->parts, .rows = parts};
  const int64_t tiles =
      ls_cuda_divide_up(with.stored, COLUMNS) * ls_cuda_divide_up(with.stride, ROWS);
  ls_cuda_add_launch(launches, "ls_fp8_turned_codes", "", ls_cuda_blocks(facts, tiles, EACH),
                     THREADS, sizeof with)
      ->arguments.fp8_codes = with;
  return LS_OK;
}

ls_status ls_cuda_choose_rescaling(const ls_device_facts *facts, const ls_view *product,
                                   int64_t columns, const float *row_scales,
                                   const float *column_scales, const void *bias,
                                   ls_cuda_launches *launches, ls_error *error) {
  LS_TRY(ls_cuda_expect(product, LS_BF16, "a product of codes", error));
  const ls_cuda_fp8_scales with = {.out = ls_cuda_place_of(product, false),
                                   .row_scales = row_scales,
                                   .column_scales = column_scales,
                                   .bias = bias,
                                   .rows = product->valid[0],
                                   .columns = columns,
                                   .wide = ls_cuda_is_wide(product)};
  launches->count = 0;
  const int64_t packs = with.rows * ls_cuda_divide_up(columns, LS_CUDA_PACK);
  if (packs > 0)
    ls_cuda_add_launch(launches, "ls_fp8_rescale", "",
                       ls_cuda_blocks(facts, ls_cuda_divide_up(packs, THREADS), EACH), THREADS,
                       sizeof with)
        ->arguments.fp8_scales = with;
  return LS_OK;
}
