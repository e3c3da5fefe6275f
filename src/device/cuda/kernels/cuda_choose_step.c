/* Launches of the step around the layers: cells, norms of gradients, optimizers, moves, and the
 * sums of what ranks have. */
#include "device/cuda/kernels/cuda_choose.h"

enum { THREADS = 256, ROW_THREADS = 512, EACH = 8, WORDS = 16 };

ls_status ls_cuda_choose_cells(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error) {
  ls_cuda_cells with = {.clip = args->attributes->clip, .add = args->accumulate[0]};
  for (int i = 0; i < args->inputs; i++) {
    LS_TRY(ls_cuda_expect(&args->in[i], LS_F64, "a cell", error));
    with.in[i] = args->in[i].data;
  }
  for (int o = 0; o < args->outputs; o++) {
    LS_TRY(ls_cuda_expect(&args->out[o], LS_F64, "a cell", error));
    with.out[o] = args->out[o].data;
  }
  const char *name = kind == LS_OP_ZERO         ? "ls_zero"
                     : kind == LS_OP_RECIPROCAL ? "ls_reciprocal"
                                                : "ls_clip_factor";
  ls_cuda_add_launch(launches, name, "", 1, LS_CUDA_WARP, sizeof with)->arguments.cells = with;
  return LS_OK;
}

/* Blocks over rows of columns: across them, and rows in turn by the rest. */
static void grid_of(const ls_device_facts *facts, int64_t rows, int64_t columns, int threads,
                    uint32_t grid[2]) {
  const int64_t across = ls_cuda_divide_up(columns, (int64_t)threads * LS_CUDA_PACK);
  grid[0] = ls_cuda_blocks(facts, across, EACH);
  const int64_t left = (int64_t)facts->processors * EACH / grid[0];
  grid[1] = (uint32_t)(rows < 1 || left < 1 ? 1 : ls_cuda_smaller(rows, left));
}

void ls_cuda_add_parts(ls_cuda_launches *launches, double *parts, int64_t count, double *cell,
                       bool add) {
  const ls_cuda_squares with = {
      .parts = parts, .cell = cell, .weight = 1, .part_count = (int32_t)count, .add = add};
  ls_cuda_add_launch(launches, "ls_square_sum", "", 1, ROW_THREADS, sizeof with)
      ->arguments.squares = with;
}

ls_status ls_cuda_choose_squares(ls_op_kind kind, const ls_kernel_args *args,
                                 ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  const ls_view *in = &args->in[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(in->dtype, &suffix, error));
  const ls_cuda_extent extent = ls_cuda_extent_of(in, true);
  ls_cuda_squares with = {.in = ls_cuda_place_of(in, false),
                          .parts = args->workspace,
                          .cell = args->out[0].data,
                          .weight = args->attributes->weight,
                          .rows = extent.rows,
                          .columns = extent.columns,
                          .wide = ls_cuda_is_wide(in),
                          .add = args->accumulate[0]};
  uint32_t grid[2];
  grid_of(args->queue->facts, extent.rows, extent.columns, ROW_THREADS, grid);
  with.part_count = (int32_t)(grid[0] * grid[1]);
  LS_TRY(ls_cuda_expect_workspace(args, (size_t)with.part_count * sizeof(double), error));
  ls_cuda_launch *launch =
      ls_cuda_add_launch(launches, "ls_square_parts", "", grid[0], ROW_THREADS, sizeof with);
  launch->grid[1] = grid[1];
  launch->arguments.squares = with;
  ls_cuda_add_launch(launches, "ls_square_sum", "", 1, ROW_THREADS, sizeof with)
      ->arguments.squares = with;
  return LS_OK;
}

ls_status ls_cuda_choose_optimizer(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error) {
  const bool ahead = !ls_op_row(kind)->updates;
  const bool adam = kind == LS_OP_ADAMW || kind == LS_OP_ADAMW_SPECULATE;
  const bool lion = kind == LS_OP_LION || kind == LS_OP_LION_SPECULATE;
  const bool free = kind == LS_OP_SCHEDULEFREE;
  const char *name = adam ? "ls_adamw" : lion ? "ls_lion" : free ? "ls_schedulefree" : "ls_sgd";
  const ls_view *gradient = &args->in[0], *state = ahead ? &args->in[4] : &args->out[0];
  const int parts = adam || free ? 3 : 2;
  const char *suffix;
  LS_TRY(ls_cuda_suffix(gradient->dtype, &suffix, error));
  const ls_cuda_extent extent = ls_cuda_extent_of(&args->out[0], true);
  ls_cuda_optimizer with = {.rate = args->in[1].data,
                            .step = args->in[2].data,
                            .factor = args->in[3].data,
                            .gradient = ls_cuda_place_of(gradient, false),
                            .rows = extent.rows,
                            .columns = extent.columns,
                            .beta1 = args->attributes->beta1,
                            .beta2 = args->attributes->beta2,
                            .epsilon = args->attributes->epsilon,
                            .weight_decay = args->attributes->weight_decay,
                            .times = args->attributes->rate,
                            .warmup = args->attributes->warmup,
                            .wide = ls_cuda_is_wide(gradient)};
  ls_cuda_place *places[] = {&with.master, &with.first, &with.second};
  for (int p = 0; p < parts; p++) {
    LS_TRY(ls_cuda_expect(&state[p], LS_F32, "an optimizer's state", error));
    *places[p] = ls_cuda_place_of(&state[p], false);
    with.wide &= ls_cuda_is_wide(&state[p]);
  }
  if (ahead) {
    LS_TRY(ls_cuda_suffix(args->out[0].dtype, &suffix, error));
    with.out = ls_cuda_place_of(&args->out[0], false);
    with.wide &= ls_cuda_is_wide(&args->out[0]);
  }
  if (extent.rows == 0 || extent.columns == 0) return LS_OK;
  uint32_t grid[2];
  grid_of(args->queue->facts, extent.rows, extent.columns, THREADS, grid);
  ls_cuda_launch *launch = ls_cuda_add_launch(launches, name, "", grid[0], THREADS, sizeof with);
  launch->grid[1] = grid[1];
  launch->arguments.optimizer = with;
  return LS_OK;
}

ls_status ls_cuda_choose_point(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  const ls_view *out = &args->out[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(out->dtype, &suffix, error));
  for (int i = 0; i < 2; i++)
    LS_TRY(ls_cuda_expect(&args->in[i], LS_F32, "an optimizer's state", error));
  const ls_cuda_extent extent = ls_cuda_extent_of(out, true);
  const ls_cuda_optimizer with = {.master = ls_cuda_place_of(&args->in[0], false),
                                  .first = ls_cuda_place_of(&args->in[1], false),
                                  .out = ls_cuda_place_of(out, false),
                                  .rows = extent.rows,
                                  .columns = extent.columns,
                                  .beta1 = args->attributes->beta1,
                                  .wide = ls_cuda_is_wide(&args->in[0]) &&
                                          ls_cuda_is_wide(&args->in[1]) && ls_cuda_is_wide(out)};
  if (extent.rows == 0 || extent.columns == 0) return LS_OK;
  uint32_t grid[2];
  grid_of(args->queue->facts, extent.rows, extent.columns, THREADS, grid);
  ls_cuda_launch *launch =
      ls_cuda_add_launch(launches, "ls_schedulefree_point", "", grid[0], THREADS, sizeof with);
  launch->grid[1] = grid[1];
  launch->arguments.optimizer = with;
  return LS_OK;
}

/* As bytes, what is neither converted nor added. */
static void count_bytes(ls_cuda_move *with, size_t width) {
  with->in.stride *= (int64_t)width;
  with->out.stride *= (int64_t)width;
  with->columns *= (int64_t)width;
  with->stored *= (int64_t)width;
}

ls_status ls_cuda_choose_move(ls_op_kind kind, const ls_kernel_args *args,
                              ls_cuda_launches *launches, ls_error *error) {
  const ls_view *in = &args->in[0], *out = &args->out[0];
  const bool bytes = in->dtype == out->dtype && !args->accumulate[0];
  const size_t width = ls_dtype_bytes(in->dtype);
  const int64_t shift = kind == LS_OP_COPY ? out->start[0] - in->start[0] : 0;
  const int64_t from = ls_cuda_stride(in), to = ls_cuda_stride(out);
  const char *suffix;
  if (!bytes) {
    LS_TRY(ls_cuda_suffix(in->dtype, &suffix, error));
    LS_TRY(ls_cuda_suffix(out->dtype, &suffix, error));
  }
  if (out->valid[0] > 0 && (shift < 0 || shift + out->valid[0] > in->valid[0]))
    return ls_fail(error, LS_INTERNAL, "rows %lld to %lld are wanted of an input of %lld",
                   (long long)shift, (long long)(shift + out->valid[0]), (long long)in->valid[0]);
  ls_cuda_move with = {.in = ls_cuda_place_of(in, false),
                       .out = ls_cuda_place_of(out, args->accumulate[0]),
                       .rows = out->valid[0],
                       .columns = ls_cuda_smaller(from, to),
                       .stored = to};
  with.in.data = (char *)in->data + (size_t)(shift * from) * width;
  if (from == to) {
    with.columns *= with.rows;
    with.stored = with.columns;
    with.rows = 1;
  }
  if (with.rows == 0 || with.stored == 0) return LS_OK;
  const size_t rows[] = {(size_t)from * width, (size_t)to * ls_dtype_bytes(out->dtype)};
  const bool one = with.rows == 1;
  with.wide = ((uintptr_t)with.in.data | (uintptr_t)with.out.data) % WORDS == 0 &&
              (one || (rows[0] | rows[1]) % WORDS == 0);
  if (bytes) count_bytes(&with, width);
  uint32_t grid[2];
  grid_of(args->queue->facts, with.rows, bytes ? with.stored / 2 : with.stored, THREADS, grid);
  ls_cuda_launch *launch = ls_cuda_add_launch(launches, bytes ? "ls_copy_rows" : "ls_convert_rows",
                                              "", grid[0], THREADS, sizeof with);
  launch->grid[1] = grid[1];
  launch->arguments.move = with;
  return LS_OK;
}

ls_status ls_cuda_choose_reduction(const ls_device_facts *facts, const ls_cuda_reduction *reduction,
                                   ls_cuda_launches *launches, ls_error *error) {
  const char *suffix = "_fp64";
  if (reduction->dtype != LS_F64) LS_TRY(ls_cuda_suffix(reduction->dtype, &suffix, error));
  if (reduction->ranks < 1 || reduction->ranks > LS_CUDA_MOST_RANKS)
    return ls_fail(error, LS_INTERNAL, "a sum of %d ranks' buffers; at most %d", reduction->ranks,
                   (int)LS_CUDA_MOST_RANKS);
  launches->count = 0;
  ls_cuda_rank_sum with = {.count = reduction->count,
                           .ranks = reduction->ranks,
                           .largest = reduction->largest,
                           .wide = (uintptr_t)reduction->target % WORDS == 0};
  with.out = (ls_cuda_place){.data = reduction->target, .add = reduction->accumulate};
  for (int r = 0; r < reduction->ranks; r++) {
    with.in[r] = reduction->sources[r];
    with.wide &= (uintptr_t)with.in[r] % WORDS == 0;
  }
  if (with.count == 0) return LS_OK;
  const int64_t wanted = ls_cuda_divide_up(with.count, (int64_t)THREADS * LS_CUDA_PACK);
  ls_cuda_add_launch(launches, "ls_rank_sum", suffix, ls_cuda_blocks(facts, wanted, EACH), THREADS,
                     sizeof with)
      ->arguments.rank_sum = with;
  return LS_OK;
}
