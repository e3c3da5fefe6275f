/* Launches of mixtures of experts: rows there and back, and products of them. */
#include "device/cuda/kernels/cuda_choose.h"

enum { TILE = 256, EACH = 8 };

static const char *routed_name(ls_op_kind kind) {
  switch (kind) {
    case LS_OP_DISPATCH:
    case LS_OP_COMBINE_BWD:
    case LS_OP_TO_SLOTS:
    case LS_OP_FROM_SLOTS_BWD:
    case LS_OP_ARRIVE:
    case LS_OP_LEAVE_BWD: return "ls_spread";
    case LS_OP_DISPATCH_BWD:
    case LS_OP_COMBINE:
    case LS_OP_TO_SLOTS_BWD:
    case LS_OP_FROM_SLOTS:
    case LS_OP_ARRIVE_BWD:
    case LS_OP_LEAVE: return "ls_collect";
    case LS_OP_WEIGH: return "ls_weigh";
    default: return "ls_weigh_bwd";
  }
}

/* Slots by rank are rows one after the other. */
static ls_view as_rows(const ls_view *view) {
  ls_view rows = *view;
  if (view->ndim < 3) return rows;
  rows.ndim = 2;
  rows.dims[0] = rows.valid[0] = view->dims[0] * view->dims[1];
  rows.dims[1] = rows.valid[1] = view->dims[2];
  return rows;
}

static void add_routed(const ls_kernel_args *args, const char *name, const char *suffix,
                       const ls_cuda_routed *with, ls_cuda_launches *launches) {
  const int64_t packs = ls_cuda_divide_up(with->out.stride, LS_CUDA_PACK * LS_CUDA_WARP);
  const int64_t threads = ls_cuda_smaller((packs < 1 ? 1 : packs) * LS_CUDA_WARP, TILE);
  if (with->rows == 0) return;
  ls_cuda_add_launch(launches, name, suffix, ls_cuda_blocks(args->queue->facts, with->rows, EACH),
                     (uint32_t)threads, sizeof *with)
      ->arguments.routed = *with;
}

/* What rows are weighed by, and going back what they were. */
static ls_status weights_of(ls_op_kind kind, const ls_kernel_args *args, ls_cuda_routed *with,
                            ls_error *error) {
  const bool back = kind == LS_OP_WEIGH_BWD;
  const ls_view *numbers = &args->in[back ? 2 : 1];
  LS_TRY(ls_cuda_expect(numbers, LS_F32, "the weights of rows", error));
  with->numbers = numbers->data;
  if (!back) return LS_OK;
  LS_TRY(ls_cuda_expect(&args->in[1], args->in[0].dtype, "the rows", error));
  LS_TRY(ls_cuda_expect(&args->out[1], LS_F32, "the weights' gradient", error));
  with->in[1] = ls_cuda_place_of(&args->in[1], false);
  with->wide &= ls_cuda_is_wide(&args->in[1]);
  with->slopes = args->out[1].data;
  with->add_slopes = args->accumulate[1];
  return LS_OK;
}

ls_status ls_cuda_choose_routed(ls_op_kind kind, const ls_kernel_args *args,
                                ls_cuda_launches *launches, ls_error *error) {
  const ls_view in = as_rows(&args->in[0]), out = as_rows(&args->out[0]);
  const char *suffix;
  LS_TRY(ls_cuda_suffix(in.dtype, &suffix, error));
  LS_TRY(ls_cuda_expect(&out, in.dtype, "the output", error));
  ls_cuda_routed with = {.in = {ls_cuda_place_of(&in, false)},
                         .out = ls_cuda_place_of(&out, args->accumulate[0]),
                         .rows = out.valid[0],
                         .columns = ls_cuda_smaller(in.dims[1], out.dims[1]),
                         .wide = ls_cuda_is_wide(&in) && ls_cuda_is_wide(&out)};
  if (kind == LS_OP_WEIGH || kind == LS_OP_WEIGH_BWD) {
    LS_TRY(weights_of(kind, args, &with, error));
    add_routed(args, routed_name(kind), suffix, &with, launches);
    return LS_OK;
  }
  const bool fills = kind == LS_OP_TO_SLOTS || kind == LS_OP_FROM_SLOTS_BWD;
  if (fills && !args->accumulate[0]) add_routed(args, "ls_clear", suffix, &with, launches);
  const ls_view *places = &args->in[1];
  const bool moves = kind == LS_OP_ARRIVE || kind == LS_OP_ARRIVE_BWD || kind == LS_OP_LEAVE ||
                     kind == LS_OP_LEAVE_BWD; /* a row of each slot */
  LS_TRY(ls_cuda_expect(places, LS_I32, "the routed rows", error));
  with.places = places->data;
  with.chosen = moves ? 1 : (int32_t)places->dims[1];
  with.rows = moves ? places->dims[0] * places->dims[1] : places->valid[0];
  add_routed(args, routed_name(kind), suffix, &with, launches);
  return LS_OK;
}

/* Rows with their experts' biases, of which the rank has some. */
static ls_status biased_of(const ls_kernel_args *args, const ls_view *bias, const ls_view *experts,
                           ls_cuda_expert_bias *with, ls_error *error) {
  const ls_view *x = &args->in[0];
  const ls_held_experts held = ls_held_experts_of(bias, 1);
  LS_TRY(ls_cuda_expect(experts, LS_I32, "the experts of rows", error));
  *with = (ls_cuda_expert_bias){.in = {ls_cuda_place_of(x, false)},
                                .bias = ls_cuda_place_of(bias, false),
                                .experts = experts->data,
                                .rows = x->valid[0],
                                .columns = ls_cuda_smaller(x->dims[1], bias->dims[1]),
                                .held = (int32_t)held.count,
                                .first = (int32_t)held.first,
                                .wide = ls_cuda_is_wide(x)};
  return LS_OK;
}

static void add_biased(const ls_kernel_args *args, const char *name, const char *suffix,
                       const ls_cuda_expert_bias *with, ls_cuda_launches *launches) {
  const int64_t packs = ls_cuda_divide_up(with->out.stride, LS_CUDA_PACK * LS_CUDA_WARP);
  const int64_t threads = ls_cuda_smaller((packs < 1 ? 1 : packs) * LS_CUDA_WARP, TILE);
  if (with->rows == 0) return;
  ls_cuda_add_launch(launches, name, suffix, ls_cuda_blocks(args->queue->facts, with->rows, EACH),
                     (uint32_t)threads, sizeof *with)
      ->arguments.expert_bias = *with;
}

/* The biases' gradient: of each expert the sum of its rows. */
static void add_bias_sums(const char *suffix, const ls_cuda_expert_bias *with,
                          ls_cuda_launches *launches) {
  if (with->held == 0 || with->bias.stride == 0) return;
  const int64_t across = ls_cuda_divide_up(with->bias.stride, LS_CUDA_WARP * LS_CUDA_PACK);
  ls_cuda_launch *launch =
      ls_cuda_add_launch(launches, "ls_expert_sums", suffix, (uint32_t)across, TILE, sizeof *with);
  launch->grid[1] = (uint32_t)with->held;
  launch->arguments.expert_bias = *with;
}

static ls_status bias_back(ls_op_kind kind, const ls_kernel_args *args, const char *suffix,
                           ls_cuda_launches *launches, ls_error *error) {
  const bool weighs = kind == LS_OP_GROUPED_WEIGH_BWD;
  const ls_view *dy = &args->in[0], *sums = weighs ? &args->out[2] : &args->out[0];
  ls_cuda_expert_bias with;
  if (!weighs || args->outputs > 2) { /* before dx, which may take the place of dy */
    LS_TRY(biased_of(args, sums, &args->in[weighs ? 3 : 1], &with, error));
    with.bias.add = args->accumulate[weighs ? 2 : 0];
    with.numbers = weighs ? args->in[4].data : NULL;
    add_bias_sums(suffix, &with, launches);
  }
  if (!weighs) return LS_OK;
  LS_TRY(biased_of(args, &args->in[2], &args->in[3], &with, error));
  for (int i = 1; i < 3; i++) LS_TRY(ls_cuda_expect(&args->in[i], dy->dtype, "the rows", error));
  LS_TRY(ls_cuda_expect(&args->in[4], LS_F32, "the weights of rows", error));
  LS_TRY(ls_cuda_expect(&args->out[0], dy->dtype, "the rows' gradient", error));
  LS_TRY(ls_cuda_expect(&args->out[1], LS_F32, "the weights' gradient", error));
  with.in[1] = ls_cuda_place_of(&args->in[1], false);
  with.out = ls_cuda_place_of(&args->out[0], args->accumulate[0]);
  with.numbers = args->in[4].data;
  with.slopes = args->out[1].data;
  with.add_slopes = args->accumulate[1];
  with.wide &= ls_cuda_is_wide(&args->in[1]) && ls_cuda_is_wide(&args->in[2]) &&
               ls_cuda_is_wide(&args->out[0]);
  add_biased(args, "ls_expert_weigh_bwd", suffix, &with, launches);
  return LS_OK;
}

ls_status ls_cuda_choose_expert_bias(ls_op_kind kind, const ls_kernel_args *args,
                                     ls_cuda_launches *launches, ls_error *error) {
  const ls_view *x = &args->in[0];
  const char *suffix;
  ls_cuda_expert_bias with;
  LS_TRY(ls_cuda_suffix(x->dtype, &suffix, error));
  if (kind == LS_OP_GROUPED_BIAS_DB || kind == LS_OP_GROUPED_WEIGH_BWD)
    return bias_back(kind, args, suffix, launches, error);
  LS_TRY(biased_of(args, &args->in[1], &args->in[2], &with, error));
  LS_TRY(ls_cuda_expect(&args->in[1], x->dtype, "the biases of experts", error));
  LS_TRY(ls_cuda_expect(&args->out[0], x->dtype, "the output", error));
  with.out = ls_cuda_place_of(&args->out[0], args->accumulate[0]);
  with.rows = args->out[0].valid[0];
  with.wide &= ls_cuda_is_wide(&args->in[1]) && ls_cuda_is_wide(&args->out[0]);
  if (kind == LS_OP_GROUPED_WEIGH) {
    LS_TRY(ls_cuda_expect(&args->in[3], LS_F32, "the weights of rows", error));
    with.numbers = args->in[3].data;
  }
  add_biased(args, with.numbers ? "ls_expert_weigh" : "ls_expert_bias", suffix, &with, launches);
  return LS_OK;
}

/* Numbers of a result that a block has each way, in fp32 and in 16 bits; and how many of what is
 * contracted it loads at a time, by stages: as in cuda_grouped.cu and cuda_grouped.cuh. */
enum { FULL_TILE = 64, FULL_THREADS = 256, HALF_TILE = 128, HALF_THREADS = 128 };
enum { HALF_STAGES = 3, HALF_STRIDE = 40 };

typedef struct grouped_form {
  const char *name;
  bool sums; /* of a gradient of weights */
} grouped_form;

static grouped_form form_of(ls_op_kind kind) {
  switch (kind) {
    case LS_OP_GROUPED_UP:
    case LS_OP_GROUPED_DOWN_DX: return (grouped_form){"ls_grouped_rows", false};
    case LS_OP_GROUPED_DOWN:
    case LS_OP_GROUPED_UP_DX: return (grouped_form){"ls_grouped_turned", false};
    default: return (grouped_form){"ls_grouped_sums", true};
  }
}

static ls_status grouped_of(ls_op_kind kind, const ls_kernel_args *args, ls_cuda_grouped *with,
                            ls_error *error) {
  const ls_view *a = &args->in[0], *b = &args->in[1], *out = &args->out[0];
  const grouped_form form = form_of(kind);
  const bool turned = kind == LS_OP_GROUPED_DOWN || kind == LS_OP_GROUPED_UP_DX;
  const int64_t rows = turned ? out->dims[1] : a->dims[1]; /* of an expert's matrix */
  const ls_held_experts held = ls_held_experts_of(form.sums ? out : b, rows);
  LS_TRY(ls_cuda_expect(b, a->dtype, "a grouped product's second operand", error));
  LS_TRY(ls_cuda_expect(&args->in[2], LS_I32, "the experts of rows", error));
  if (!form.sums) LS_TRY(ls_cuda_expect(out, a->dtype, "a grouped product", error));
  *with = (ls_cuda_grouped){.a = ls_cuda_place_of(a, false),
                            .b = ls_cuda_place_of(b, false),
                            .out = ls_cuda_place_of(out, args->accumulate[0]),
                            .experts = args->in[2].data,
                            .bounds = args->workspace,
                            .rows = a->valid[0],
                            .matrix_rows = rows,
                            .columns = turned ? rows : ls_cuda_smaller(b->dims[1], out->dims[1]),
                            .depth = turned ? ls_cuda_smaller(a->valid[1], b->valid[1]) : rows,
                            .held = (int32_t)held.count,
                            .first_expert = (int32_t)held.first,
                            .wide = ls_cuda_is_wide(a) && ls_cuda_is_wide(b),
                            .out_wide = ls_cuda_is_wide(out)};
  return ls_cuda_expect_workspace(args, (size_t)(held.count + 3) * sizeof(int32_t), error);
}

ls_status ls_cuda_choose_grouped(ls_op_kind kind, const ls_kernel_args *args,
                                 ls_cuda_launches *launches, ls_error *error) {
  enum { MOST_TILES = 65535 };
  const grouped_form form = form_of(kind);
  const ls_device_facts *facts = args->queue->facts;
  const char *suffix;
  ls_cuda_grouped with;
  LS_TRY(ls_cuda_suffix(args->in[0].dtype, &suffix, error));
  LS_TRY(grouped_of(kind, args, &with, error));
  const bool full = args->in[0].dtype == LS_F32;
  const int64_t tile = full ? FULL_TILE : HALF_TILE;
  const int64_t tiles = form.sums ? with.held * ls_cuda_divide_up(with.matrix_rows, tile)
                                  : with.rows / tile + with.held + 2; /* at most */
  if (tiles > MOST_TILES)
    return ls_fail(error, LS_INTERNAL, "a grouped product of %lld tiles of rows; at most %d",
                   (long long)tiles, (int)MOST_TILES);
  if (with.out.stride == 0 || tiles == 0 || (with.rows == 0 && !form.sums)) return LS_OK;
  ls_cuda_add_launch(launches, "ls_group_bounds", "",
                     ls_cuda_blocks(facts, ls_cuda_divide_up(with.rows + 1, TILE), EACH), TILE,
                     sizeof with)
      ->arguments.grouped = with;
  ls_cuda_launch *launch = ls_cuda_add_launch(launches, form.name, suffix,
                                              (uint32_t)ls_cuda_divide_up(with.out.stride, tile),
                                              full ? FULL_THREADS : HALF_THREADS, sizeof with);
  launch->grid[1] = (uint32_t)tiles;
  launch->shared_bytes =
      full ? 0 : (uint32_t)(HALF_STAGES * 2 * HALF_TILE * HALF_STRIDE * sizeof(uint16_t));
  launch->arguments.grouped = with;
  return LS_OK;
}
