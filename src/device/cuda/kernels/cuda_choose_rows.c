/* Launches of norms, biases and what is near them: how wide a team of threads is, and where the
 * sums of columns are made. */
#include "device/cuda/kernels/cuda_choose.h"
#include "device/mask.h"

/* Rows of up to so many columns are a warp's, which waits for nobody: rows of one length have sums
 * of one order however many there are. */
enum { WARP_COLUMNS = 8192, BLOCK_THREADS = 256, MOST_THREADS = 512, EACH = 8 };

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

/* Of rows that a warp's registers hold: up to so many columns, by the packs of a lane. */
enum { NEVER_HELD = 512, HELD_8 = 2048, HELD_16 = 4096 };

typedef struct norm_names {
  const char *any, *held_8, *held_16;
} norm_names;

#define NAMES(name) \
  { name, name "_8", name "_16" }
static const norm_names *names_of(ls_op_kind kind) {
  static const norm_names layernorm = NAMES("ls_layernorm"), rmsnorm = NAMES("ls_rmsnorm"),
                          scale = NAMES("ls_row_scale"), layernorm_bwd = NAMES("ls_layernorm_bwd"),
                          rmsnorm_bwd = NAMES("ls_rmsnorm_bwd"),
                          scale_bwd = NAMES("ls_row_scale_bwd");
  switch (kind) {
    case LS_OP_LAYERNORM: return &layernorm;
    case LS_OP_ROW_SCALE: return &scale;
    case LS_OP_LAYERNORM_BWD: return &layernorm_bwd;
    case LS_OP_ROW_SCALE_BWD: return &scale_bwd;
    case LS_OP_RMSNORM:
    case LS_OP_HEADNORM: return &rmsnorm;
    default: return &rmsnorm_bwd;
  }
}

static const char *norm_name(ls_op_kind kind, const ls_kernel_args *args,
                             const ls_cuda_rows *with) {
  const norm_names *names = names_of(kind);
  const bool may = with->wide && with->groups == 1 && args->in[0].dtype != LS_F32 &&
                   with->columns % LS_CUDA_PACK == 0 && with->out[0].stride == with->columns;
  if (!may || with->columns <= NEVER_HELD || with->columns > HELD_16) return names->any;
  return with->columns <= HELD_8 ? names->held_8 : names->held_16;
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

static const char *parts_name(ls_op_kind kind) {
  if (kind == LS_OP_LAYERNORM_BWD) return "ls_layernorm_parts";
  return kind == LS_OP_ROW_SCALE_BWD ? "ls_row_scale_parts" : "ls_rmsnorm_parts";
}

/* Sums of columns in as many parts as fill the multiprocessors and the workspace has room for. */
static ls_status add_norm_parts(ls_op_kind kind, const ls_kernel_args *args, const char *suffix,
                                const ls_cuda_rows *of, ls_cuda_launches *launches,
                                ls_error *error) {
  ls_cuda_rows with = *of;
  const size_t part_bytes = (size_t)(with.sums * with.columns) * sizeof(float);
  with.team = 1;
  while (with.team < LS_CUDA_WARP && with.team * LS_CUDA_PACK < with.columns) with.team *= 2;
  const int64_t across = ls_cuda_divide_up(with.columns, with.team * LS_CUDA_PACK);
  const int64_t turns = BLOCK_THREADS / with.team;
  int64_t parts = ls_cuda_divide_up((int64_t)args->queue->facts->processors * EACH, across);
  parts = ls_cuda_smaller(parts, ls_cuda_divide_up(with.rows, turns));
  parts = ls_cuda_smaller(parts, (int64_t)(args->workspace_bytes / part_bytes));
  if (parts < 1) parts = 1;
  LS_TRY(ls_cuda_expect_workspace(args, (size_t)parts * part_bytes, error));
  with.parts = args->workspace;
  ls_cuda_launch *launch = ls_cuda_add_launch(launches, parts_name(kind), suffix, (uint32_t)across,
                                              BLOCK_THREADS, sizeof with);
  launch->grid[1] = (uint32_t)parts;
  launch->arguments.rows = with;
  const ls_cuda_columns first = {.parts = with.parts,
                                 .columns = with.columns,
                                 .part_stride = with.sums * with.columns,
                                 .part_count = (int32_t)parts};
  const ls_view *outs[] = {&args->out[1], &args->out[2]};
  add_column_sums(launches, &first, with.sums, outs, args->accumulate + 1);
  return LS_OK;
}

/* Sums of columns first: dx may take the place of dy. */
static ls_status add_norm_bwd(ls_op_kind kind, const ls_kernel_args *args, const char *suffix,
                              ls_cuda_rows *with, ls_cuda_launches *launches, ls_error *error) {
  with->sums = kind == LS_OP_ROW_SCALE_BWD ? 1 : args->outputs - 1;
  if (with->sums) LS_TRY(add_norm_parts(kind, args, suffix, with, launches, error));
  if (with->rows == 0) return LS_OK;
  const uint32_t threads = team_of(with);
  const int64_t wanted = ls_cuda_divide_up(with->rows, threads / (uint32_t)with->team);
  ls_cuda_add_launch(launches, norm_name(kind, args, with), suffix,
                     ls_cuda_blocks(args->queue->facts, wanted, EACH), threads, sizeof *with)
      ->arguments.rows = *with;
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
  ls_cuda_add_launch(launches, norm_name(kind, args, &with), suffix,
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
