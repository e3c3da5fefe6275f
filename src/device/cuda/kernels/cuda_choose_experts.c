/* Launches of mixtures of experts. */
#include "device/cuda/kernels/cuda_choose.h"

enum { TILE = 256, SUMS_THREADS = 1024, WARPS = 8, EACH = 8 };

static int64_t warps_blocks(const ls_kernel_args *args, int64_t tokens) {
  return ls_cuda_blocks(args->queue->facts, ls_cuda_divide_up(tokens, WARPS), EACH);
}

static void add_route(ls_cuda_launches *launches, const char *name, const char *suffix,
                      int64_t blocks, uint32_t threads, const ls_cuda_route *with) {
  ls_cuda_add_launch(launches, name, suffix, (uint32_t)blocks, threads, sizeof *with)
      ->arguments.route = *with;
}

static ls_status expect_rows(const ls_view *places, const ls_view *of_row, ls_error *error) {
  LS_TRY(ls_cuda_expect(places, LS_I32, "the routed rows", error));
  if (!of_row) return LS_OK;
  return ls_cuda_expect(of_row, LS_I32, "the experts of rows", error);
}

/* Softmax over all experts alone: the models that route otherwise have other ops that GPUs lack, by
 * which they are refused before a run. */
static ls_status expect_softmax(const ls_kernel_args *args, bool biased, ls_error *error) {
  const ls_attributes *by = args->attributes;
  if (!biased && !by->sigmoid && by->groups <= 1 && (by->scale == 0 || by->scale == 1))
    return LS_OK;
  return ls_fail(error, LS_INTERNAL, "GPUs route by a softmax over all experts alone");
}

ls_status ls_cuda_choose_route(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  const ls_view *logits = &args->in[0], *places = &args->out[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(logits->dtype, &suffix, error));
  LS_TRY(expect_softmax(args, args->inputs > 1, error));
  LS_TRY(expect_rows(places, &args->out[1], error));
  LS_TRY(ls_cuda_expect(&args->out[2], LS_F32, "the weights of rows", error));
  for (int o = 0; o < 3; o++)
    if (args->accumulate[o])
      return ls_fail(error, LS_INTERNAL, "a routing cannot be accumulated into");
  ls_cuda_route with = {.logits = ls_cuda_place_of(logits, false),
                        .places = places->data,
                        .expert_of_row = args->out[1].data,
                        .weights = args->out[2].data,
                        .tokens = places->valid[0],
                        .experts = (int32_t)logits->valid[1],
                        .chosen = (int32_t)places->dims[1],
                        .renormalise = args->attributes->renormalise != 0};
  const int64_t slots = with.tokens * with.chosen, tiles = ls_cuda_divide_up(slots, TILE);
  with.tiles = (int32_t)tiles;
  with.counts = args->workspace;
  with.bases = with.counts + tiles * with.experts;
  with.slot_weights = (float *)(with.bases + with.experts);
  LS_TRY(ls_cuda_expect_workspace(
      args, (size_t)((tiles + 1) * with.experts + slots) * sizeof(int32_t), error));
  if (slots == 0) return LS_OK;
  add_route(launches, "ls_route_choose", suffix, warps_blocks(args, with.tokens),
            WARPS * LS_CUDA_WARP, &with);
  add_route(launches, "ls_route_count", "", tiles, TILE, &with);
  add_route(launches, "ls_route_sums", "", 1, SUMS_THREADS, &with);
  add_route(launches, "ls_route_place", "", tiles, TILE, &with);
  return LS_OK;
}

ls_status ls_cuda_choose_route_bwd(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  const ls_view *logits = &args->in[1], *places = &args->in[2], *out = &args->out[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(logits->dtype, &suffix, error));
  LS_TRY(expect_softmax(args, false, error));
  LS_TRY(expect_rows(places, &args->in[3], error));
  LS_TRY(ls_cuda_expect(&args->in[0], LS_F32, "the weights' gradient", error));
  LS_TRY(ls_cuda_expect(out, logits->dtype, "the logits' gradient", error));
  const ls_cuda_route with = {.logits = ls_cuda_place_of(logits, false),
                              .out = ls_cuda_place_of(out, args->accumulate[0]),
                              .places = places->data,
                              .expert_of_row = args->in[3].data,
                              .dweights = args->in[0].data,
                              .tokens = out->valid[0],
                              .experts = (int32_t)out->valid[1],
                              .chosen = (int32_t)places->dims[1],
                              .renormalise = args->attributes->renormalise != 0};
  if (with.tokens == 0) return LS_OK;
  add_route(launches, "ls_route_bwd", suffix, warps_blocks(args, with.tokens), WARPS * LS_CUDA_WARP,
            &with);
  return LS_OK;
}

static const char *routed_name(ls_op_kind kind) {
  switch (kind) {
    case LS_OP_DISPATCH:
    case LS_OP_COMBINE_BWD: return "ls_spread";
    case LS_OP_DISPATCH_BWD:
    case LS_OP_COMBINE: return "ls_collect";
    case LS_OP_WEIGH: return "ls_weigh";
    default: return "ls_weigh_bwd";
  }
}

ls_status ls_cuda_choose_routed(ls_op_kind kind, const ls_kernel_args *args,
                                ls_cuda_launches *launches, ls_error *error) {
  const ls_view *in = &args->in[0], *out = &args->out[0];
  const bool back = kind == LS_OP_WEIGH_BWD, weighs = back || kind == LS_OP_WEIGH;
  const char *suffix;
  LS_TRY(ls_cuda_suffix(in->dtype, &suffix, error));
  LS_TRY(ls_cuda_expect(out, in->dtype, "the output", error));
  ls_cuda_routed with = {.in = {ls_cuda_place_of(in, false)},
                         .out = ls_cuda_place_of(out, args->accumulate[0]),
                         .rows = out->valid[0],
                         .columns = ls_cuda_smaller(in->dims[1], out->dims[1]),
                         .wide = ls_cuda_is_wide(in) && ls_cuda_is_wide(out)};
  if (weighs) {
    const ls_view *numbers = &args->in[back ? 2 : 1];
    LS_TRY(ls_cuda_expect(numbers, LS_F32, "the weights of rows", error));
    with.numbers = numbers->data;
  } else {
    LS_TRY(expect_rows(&args->in[1], NULL, error));
    with.places = args->in[1].data;
    with.chosen = (int32_t)args->in[1].dims[1];
    with.rows = args->in[1].valid[0];
  }
  if (back) {
    LS_TRY(ls_cuda_expect(&args->in[1], in->dtype, "the rows", error));
    LS_TRY(ls_cuda_expect(&args->out[1], LS_F32, "the weights' gradient", error));
    with.in[1] = ls_cuda_place_of(&args->in[1], false);
    with.wide &= ls_cuda_is_wide(&args->in[1]);
    with.slopes = args->out[1].data;
    with.add_slopes = args->accumulate[1];
  }
  if (with.rows == 0) return LS_OK;
  const int64_t packs = ls_cuda_divide_up(ls_cuda_stride(out), LS_CUDA_PACK * LS_CUDA_WARP);
  const int64_t threads = ls_cuda_smaller((packs < 1 ? 1 : packs) * LS_CUDA_WARP, TILE);
  ls_cuda_add_launch(launches, routed_name(kind), suffix,
                     ls_cuda_blocks(args->queue->facts, with.rows, EACH), (uint32_t)threads,
                     sizeof with)
      ->arguments.routed = with;
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
