/* Launches of Adafactor. */
#include "device/cuda/kernels/cuda_choose.h"

enum { THREADS = 256, WARPS = THREADS / LS_CUDA_WARP, ROW_THREADS = 512, EACH = 8 };

static bool is_aligned(const void *data) {
  return (uintptr_t)data % sizeof(uint64_t[2]) == 0;
}

static ls_status expect_floats(const ls_view *view, ls_error *error) {
  return ls_cuda_expect(view, LS_F32, "an optimizer's state", error);
}

/* Where the elements of a range lie in the whole matrix of so many lines. */
static ls_status place_range(const ls_kernel_args *args, const ls_view *range, const ls_view *lines,
                             ls_cuda_adafactor *with, ls_error *error) {
  const int64_t stride = range->dims[1] > 0 ? range->dims[1] : 1, start = range->start[0];
  LS_TRY(expect_floats(lines, error));
  with->columns = args->attributes->columns;
  with->rows = lines->valid[0] - with->columns;
  if (with->columns <= 0 || with->rows <= 0)
    return ls_fail(error, LS_INTERNAL, "means of %lld rows and %lld columns", (long long)with->rows,
                   (long long)with->columns);
  with->lines = lines->data;
  with->count = range->valid[0];
  with->start = start;
  with->stride = stride;
  with->row = range->start[1];
  with->column = range->start[2];
  with->first = start / stride;
  with->range_rows = with->count ? (start + with->count - 1) / stride - with->first + 1 : 0;
  with->range_columns = ls_cuda_smaller(stride, with->columns - with->column);
  with->wide = with->wide && start % LS_CUDA_PACK == 0 && stride % LS_CUDA_PACK == 0;
  with->lines_wide = is_aligned(with->lines + with->rows + with->column);
  return LS_OK;
}

static ls_cuda_launch *add(const ls_kernel_args *args, const char *name, int64_t wanted,
                           const ls_cuda_adafactor *with, ls_cuda_launches *launches) {
  ls_cuda_launch *launch = ls_cuda_add_launch(
      launches, name, "", ls_cuda_blocks(args->queue->facts, wanted, EACH), THREADS, sizeof *with);
  launch->arguments.adafactor = *with;
  return launch;
}

static ls_status sums(const ls_kernel_args *args, ls_cuda_adafactor *with,
                      ls_cuda_launches *launches, ls_error *error) {
  LS_TRY(place_range(args, &args->in[0], &args->out[0], with, error));
  const int64_t parts = ls_cuda_divide_up(with->range_rows, WARPS);
  with->part_count = (int32_t)ls_cuda_smaller(parts, LS_CUDA_LINE_PARTS);
  with->part_sums = args->workspace;
  LS_TRY(ls_cuda_expect_workspace(
      args, (size_t)(with->part_count * with->range_columns) * sizeof(float), error));
  add(args, "ls_adafactor_rows", ls_cuda_divide_up(with->rows, WARPS), with, launches);
  if (with->part_count > 0) {
    ls_cuda_launch *launch = ls_cuda_add_launch(
        launches, "ls_adafactor_parts", "",
        (uint32_t)ls_cuda_divide_up(with->range_columns, LS_CUDA_WARP * LS_CUDA_PACK), THREADS,
        sizeof *with);
    launch->grid[1] = (uint32_t)with->part_count;
    launch->arguments.adafactor = *with;
  }
  add(args, "ls_adafactor_columns", ls_cuda_divide_up(with->columns, THREADS), with, launches);
  return LS_OK;
}

/* The gradient over the root of its second moment, and the two sums of squares. */
static ls_status direction(ls_op_kind kind, const ls_kernel_args *args, ls_cuda_adafactor *with,
                           ls_cuda_launches *launches, ls_error *error) {
  const bool factored = kind == LS_OP_ADAFACTOR_DIRECTION;
  const ls_view *made = &args->out[0], *second = &args->in[2], *master = &args->in[3];
  LS_TRY(expect_floats(made, error));
  LS_TRY(expect_floats(second, error));
  LS_TRY(expect_floats(master, error));
  with->made = made->data;
  with->master = master->data;
  with->lines = second->data;
  with->count = made->valid[0];
  with->weight = args->attributes->weight;
  with->wide = with->wide && is_aligned(with->made) && is_aligned(with->master) &&
               (factored || is_aligned(with->lines));
  if (factored) LS_TRY(place_range(args, made, second, with, error));
  const int64_t packs = factored ? with->range_rows * ls_cuda_divide_up(with->stride, LS_CUDA_PACK)
                                 : ls_cuda_divide_up(with->count, LS_CUDA_PACK);
  const int64_t wanted = ls_cuda_divide_up(packs, THREADS);
  const int64_t blocks = ls_cuda_blocks(args->queue->facts, wanted, EACH);
  with->mean = args->workspace;
  with->parts = with->mean + 1;
  LS_TRY(ls_cuda_expect_workspace(args, (size_t)(2 * blocks + 1) * sizeof(double), error));
  if (factored)
    ls_cuda_add_launch(launches, "ls_adafactor_mean", "", 1, ROW_THREADS, sizeof *with)
        ->arguments.adafactor = *with;
  add(args, factored ? "ls_adafactor_direction" : "ls_adafactor_divide", wanted, with, launches);
  for (int o = 0; o < 2; o++)
    ls_cuda_add_parts(launches, with->parts + o * blocks, blocks, args->out[1 + o].data, false);
  return LS_OK;
}

static ls_status keep(const ls_kernel_args *args, ls_cuda_launches *launches, ls_error *error) {
  LS_TRY(expect_floats(&args->in[0], error));
  LS_TRY(expect_floats(&args->out[0], error));
  const ls_cuda_adafactor with = {.sums = args->in[0].data,
                                  .step = args->in[1].data,
                                  .factor = args->in[2].data,
                                  .lines = args->out[0].data,
                                  .rows = args->out[0].valid[0] - args->attributes->columns,
                                  .columns = args->attributes->columns};
  add(args, "ls_adafactor_keep", ls_cuda_divide_up(with.rows + with.columns, THREADS), &with,
      launches);
  return LS_OK;
}

static ls_status step(const ls_kernel_args *args, ls_cuda_launches *launches, ls_error *error) {
  LS_TRY(expect_floats(&args->in[0], error));
  LS_TRY(expect_floats(&args->out[0], error));
  const ls_cuda_adafactor with = {
      .sums = args->in[0].data,
      .squares = {args->in[1].data, args->in[2].data},
      .rate = args->in[3].data,
      .factor = args->in[4].data,
      .state = args->out[0].data,
      .count = args->out[0].valid[0],
      .times = args->attributes->rate,
      .weight_decay = args->attributes->weight_decay,
      .by_weights = args->attributes->scale > 0,
      .wide = is_aligned(args->in[0].data) && is_aligned(args->out[0].data)};
  if (with.count == 0) return LS_OK;
  add(args, "ls_adafactor", ls_cuda_divide_up(with.count, THREADS * LS_CUDA_PACK), &with, launches);
  return LS_OK;
}

ls_status ls_cuda_choose_adafactor(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error) {
  if (kind == LS_OP_ADAFACTOR_KEEP) return keep(args, launches, error);
  if (kind == LS_OP_ADAFACTOR) return step(args, launches, error);
  const ls_view *gradient = &args->in[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(gradient->dtype, &suffix, error));
  ls_cuda_adafactor with = {.gradient = ls_cuda_place_of(gradient, false),
                            .wide = is_aligned(gradient->data)};
  if (kind != LS_OP_ADAFACTOR_SECOND) with.factor = args->in[1].data;
  if (kind == LS_OP_ADAFACTOR_SUMS) return sums(args, &with, launches, error);
  if (kind != LS_OP_ADAFACTOR_SECOND) return direction(kind, args, &with, launches, error);
  LS_TRY(expect_floats(&args->out[0], error));
  with.step = args->in[1].data;
  with.factor = args->in[2].data;
  with.state = args->out[0].data;
  with.count = args->out[0].valid[0];
  with.wide = with.wide && is_aligned(with.state);
  if (with.count == 0) return LS_OK;
  add(args, "ls_adafactor_second", ls_cuda_divide_up(with.count, THREADS * LS_CUDA_PACK), &with,
      launches);
  return LS_OK;
}
