/* Launches of norms, biases and what is near them: how wide a team of threads is, and where the
 * sums of columns are made. */
#include "device/cuda/kernels/cuda_choose.h"
#include "device/mask.h"

/* Rows of up to so many columns are a warp's: 32 columns a thread, four packs. */
enum { WARP_COLUMNS = 1024, BLOCK_THREADS = 256, MOST_THREADS = 512, EACH = 8 };

/* Sums of columns lie in shared memory up to what every architecture gives a block without being
 * asked, and for a team of a whole block up to what all give when asked: 99 KB on sm_86, 89 and 120
 * (CUDA C++ Programming Guide, compute capabilities). */
enum { SHARED_BYTES = 48 << 10, MOST_SHARED_BYTES = 96 << 10 };

/* Threads of a team, and of a block of teams, for `rows` rows. */
static uint32_t team_of(ls_cuda_rows *with) {
  if (with->columns > WARP_COLUMNS) {
    const int64_t packs = ls_cuda_divide_up(with->columns, LS_CUDA_PACK * LS_CUDA_WARP);
    with->team = (int32_t)ls_cuda_smaller(packs * LS_CUDA_WARP, MOST_THREADS);
    return (uint32_t)with->team;
  }
  with->team = LS_CUDA_WARP;
  const int64_t warps = ls_cuda_smaller(with->rows, BLOCK_THREADS / LS_CUDA_WARP);
  return (uint32_t)((warps < 1 ? 1 : warps) * LS_CUDA_WARP);
}

static ls_cuda_rows rows_of(const ls_kernel_args *args, const ls_view *x, int64_t columns) {
  ls_cuda_rows with = {.columns = columns,
                       .groups = 1,
                       .wide = true,
                       .epsilon = (float)args->attributes->epsilon,
                       .offset = (float)args->attributes->weight_offset,
                       .divisor = (float)columns};
  with.rows = x->valid[0];
  for (int i = 0; i < args->inputs; i++) {
    with.in[i] = ls_cuda_place_of(&args->in[i], false);
    with.wide &= args->in[i].dtype != x->dtype || ls_cuda_is_wide(&args->in[i]);
  }
  for (int o = 0; o < args->outputs; o++) {
    with.out[o] = ls_cuda_place_of(&args->out[o], args->accumulate[o]);
    with.wide &= o > 0 || ls_cuda_is_wide(&args->out[o]);
  }
  return with;
}

ls_status ls_cuda_choose_row(ls_op_kind kind, const ls_kernel_args *args,
                             ls_cuda_launches *launches, ls_error *error) {
  const bool back = kind == LS_OP_ROW_SQUARES_BWD, bias = kind == LS_OP_BIAS;
  const ls_view *x = &args->in[back ? 1 : 0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(x->dtype, &suffix, error));
  if (back) LS_TRY(ls_cuda_expect(&args->in[0], LS_F32, "the sums' gradient", error));
  if (bias) LS_TRY(ls_cuda_expect(&args->in[1], x->dtype, "the bias", error));
  if (bias || back) LS_TRY(ls_cuda_expect(&args->out[0], x->dtype, "the output", error));
  const int64_t columns =
      bias ? ls_cuda_smaller(args->in[1].valid[0], args->out[0].dims[1]) : x->valid[1];
  ls_cuda_rows with = rows_of(args, x, columns);
  if (back || bias) with.rows = args->out[0].valid[0];
  if (with.rows == 0) return LS_OK;
  const uint32_t threads = team_of(&with);
  const int64_t teams = threads / (uint32_t)with.team;
  const char *name = bias ? "ls_bias" : back ? "ls_row_squares_bwd" : "ls_row_squares";
  const int64_t wanted = ls_cuda_divide_up(with.rows, teams);
  ls_cuda_add_launch(launches, name, suffix, ls_cuda_blocks(args->queue->facts, wanted, EACH),
                     threads, sizeof with)
      ->arguments.rows = with;
  return LS_OK;
}

ls_status ls_cuda_choose_dropout(ls_op_kind kind, const ls_kernel_args *args,
                                 ls_cuda_launches *launches, ls_error *error) {
  const ls_view *x = &args->in[0];
  const char *suffix;
  (void)kind;
  LS_TRY(ls_cuda_suffix(x->dtype, &suffix, error));
  LS_TRY(ls_cuda_expect(&args->in[1], LS_I32, "the draws", error));
  LS_TRY(ls_cuda_expect(&args->out[0], x->dtype, "the output", error));
  ls_cuda_rows with = rows_of(args, x, x->valid[1]);
  if (with.rows == 0) return LS_OK;
  with.site = args->attributes->site;
  with.first_column = x->start[1];
  with.limit = ls_mask_limit(args->attributes->dropout);
  with.kept = (float)(1 / (1 - args->attributes->dropout));
  const uint32_t threads = team_of(&with);
  const int64_t wanted = ls_cuda_divide_up(with.rows, threads / (uint32_t)with.team);
  ls_cuda_add_launch(launches, "ls_dropout", suffix,
                     ls_cuda_blocks(args->queue->facts, wanted, EACH), threads, sizeof with)
      ->arguments.rows = with;
  return LS_OK;
}

static const char *norm_name(ls_op_kind kind) {
  switch (kind) {
    case LS_OP_LAYERNORM: return "ls_layernorm";
    case LS_OP_ROW_SCALE: return "ls_row_scale";
    case LS_OP_LAYERNORM_BWD: return "ls_layernorm_bwd";
    case LS_OP_ROW_SCALE_BWD: return "ls_row_scale_bwd";
    case LS_OP_RMSNORM:
    case LS_OP_HEADNORM: return "ls_rmsnorm";
    default: return "ls_rmsnorm_bwd";
  }
}

/* Statistics are fp32, the rest but for sums of columns is of the type that is computed in. */
static ls_status expect_norm(ls_op_kind kind, const ls_kernel_args *args, bool back,
                             ls_error *error) {
  const ls_dtype dtype = args->in[0].dtype;
  const bool scale = kind == LS_OP_ROW_SCALE;
  for (int i = 0; i < args->inputs; i++) {
    const bool statistic = back ? i > 2 : scale && i == 2;
    LS_TRY(ls_cuda_expect(&args->in[i], statistic ? LS_F32 : dtype, "a norm's input", error));
  }
  LS_TRY(ls_cuda_expect(&args->out[0], dtype, "a norm's output", error));
  for (int o = 1; o < args->outputs; o++)
    if (!back || (kind == LS_OP_ROW_SCALE_BWD && o == 2))
      LS_TRY(ls_cuda_expect(&args->out[o], LS_F32, "a norm's statistic", error));
  return LS_OK;
}

/* The second launch of sums over rows: out[i] is the sum of what blocks left of sum i. */
static void add_column_sums(ls_cuda_launches *launches, const ls_cuda_columns *first, int sums,
                            const ls_view *const *outs, const bool *adds) {
  for (int s = 0; s < sums; s++) {
    ls_cuda_columns with = *first;
    with.parts += s * with.columns;
    with.out = ls_cuda_place_of(outs[s], adds[s]);
    const int64_t wanted = ls_cuda_divide_up(with.columns, LS_CUDA_WARP);
    ls_cuda_add_launch(launches, "ls_column_sums", "", (uint32_t)wanted, BLOCK_THREADS, sizeof with)
        ->arguments.columns = with;
  }
}

static ls_status add_norm_bwd(ls_op_kind kind, const ls_kernel_args *args, const char *suffix,
                              ls_cuda_rows *with, ls_cuda_launches *launches, ls_error *error) {
  with->sums = kind == LS_OP_ROW_SCALE_BWD ? 1 : args->outputs - 1;
  uint32_t threads = team_of(with);
  const size_t row_bytes = (size_t)(with->sums * with->columns) * sizeof(float);
  const size_t most = with->team == LS_CUDA_WARP ? SHARED_BYTES : MOST_SHARED_BYTES;
  while (threads > (uint32_t)with->team && threads / (uint32_t)with->team * row_bytes > most)
    threads -= (uint32_t)with->team;
  const size_t shared = threads / (uint32_t)with->team * row_bytes;
  with->in_shared = with->sums > 0 && shared <= most;
  const int64_t wanted = ls_cuda_divide_up(with->rows, threads / (uint32_t)with->team);
  const uint32_t blocks = ls_cuda_blocks(args->queue->facts, wanted, with->sums ? 1 : EACH);
  with->parts = args->workspace;
  LS_TRY(ls_cuda_expect_workspace(args, blocks * row_bytes, error));
  if (with->rows == 0 && with->sums == 0) return LS_OK;
  ls_cuda_launch *launch =
      ls_cuda_add_launch(launches, norm_name(kind), suffix, blocks, threads, sizeof *with);
  launch->shared_bytes = with->in_shared ? (uint32_t)shared : 0;
  launch->arguments.rows = *with;
  const ls_cuda_columns first = {.parts = with->parts,
                                 .columns = with->columns,
                                 .part_stride = with->sums * with->columns,
                                 .part_count = (int32_t)blocks};
  const ls_view *outs[] = {&args->out[1], &args->out[2]};
  add_column_sums(launches, &first, with->sums, outs, args->accumulate + 1);
  return LS_OK;
}

ls_status ls_cuda_choose_norm(ls_op_kind kind, const ls_kernel_args *args,
                              ls_cuda_launches *launches, ls_error *error) {
  const bool back = kind == LS_OP_LAYERNORM_BWD || kind == LS_OP_RMSNORM_BWD ||
                    kind == LS_OP_HEADNORM_BWD || kind == LS_OP_ROW_SCALE_BWD;
  const ls_view *x = &args->in[back ? 1 : 0], *weight = &args->in[back ? 2 : 1];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(x->dtype, &suffix, error));
  LS_TRY(expect_norm(kind, args, back, error));
  ls_cuda_rows with = rows_of(args, x, weight->valid[0]);
  if (kind == LS_OP_HEADNORM || kind == LS_OP_HEADNORM_BWD) {
    with.groups = x->valid[1] / with.columns;
    with.rows *= with.groups;
    with.wide &= (size_t)with.columns * ls_dtype_bytes(x->dtype) % 16 == 0;
  }
  if (kind == LS_OP_ROW_SCALE || kind == LS_OP_ROW_SCALE_BWD)
    with.divisor = (float)args->attributes->columns;
  if (back) return add_norm_bwd(kind, args, suffix, &with, launches, error);
  if (with.rows == 0) return LS_OK;
  const uint32_t threads = team_of(&with);
  const int64_t wanted = ls_cuda_divide_up(with.rows, threads / (uint32_t)with.team);
  ls_cuda_add_launch(launches, norm_name(kind), suffix,
                     ls_cuda_blocks(args->queue->facts, wanted, EACH), threads, sizeof with)
      ->arguments.rows = with;
  return LS_OK;
}

ls_status ls_cuda_choose_bias_db(ls_op_kind kind, const ls_kernel_args *args,
                                 ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  const ls_view *dy = &args->in[0], *out = &args->out[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(dy->dtype, &suffix, error));
  ls_cuda_columns with = {.in = ls_cuda_place_of(dy, false),
                          .parts = args->workspace,
                          .rows = dy->valid[0],
                          .columns = ls_cuda_smaller(dy->dims[1], out->valid[0]),
                          .wide = ls_cuda_is_wide(dy)};
  with.part_stride = with.columns;
  const uint32_t across = (uint32_t)ls_cuda_divide_up(with.columns, LS_CUDA_WARP * LS_CUDA_PACK);
  const int64_t down = ls_cuda_divide_up(with.rows, BLOCK_THREADS / LS_CUDA_WARP);
  with.part_count = (int32_t)ls_cuda_blocks(args->queue->facts, down, 1);
  LS_TRY(ls_cuda_expect_workspace(args, (size_t)(with.part_count * with.columns) * sizeof(float),
                                  error));
  if (with.columns == 0) return LS_OK;
  ls_cuda_launch *launch =
      ls_cuda_add_launch(launches, "ls_column_parts", suffix, across, BLOCK_THREADS, sizeof with);
  launch->grid[1] = (uint32_t)with.part_count;
  launch->arguments.columns = with;
  add_column_sums(launches, &with, 1, &out, args->accumulate);
  return LS_OK;
}
