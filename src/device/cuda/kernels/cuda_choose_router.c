/* Launches of routers of experts: where tokens go, how many to each, and what that costs. */
#include "device/cuda/kernels/cuda_choose.h"

enum { TILE = 256, SUMS_THREADS = 1024, WARPS = 8, EACH = 8, SHARED = 48 << 10 };

static int64_t warps_blocks(const ls_kernel_args *args, int64_t tokens, int64_t warps) {
  return ls_cuda_blocks(args->queue->facts, ls_cuda_divide_up(tokens, warps), EACH);
}

/* Warps whose scores, a number for each expert, shared memory has room for. */
static ls_status expect_room(const ls_cuda_scores *of, int64_t *warps, ls_error *error) {
  const int64_t room = SHARED / (int64_t)sizeof(uint64_t);
  *warps = of->experts > 0 ? ls_cuda_smaller(room / of->experts, WARPS) : WARPS;
  if (*warps > 0) return LS_OK;
  return ls_fail(error, LS_INTERNAL, "scores of %d experts; a GPU chooses among at most %lld",
                 (int)of->experts, (long long)room);
}

static ls_status scores_of(const ls_kernel_args *args, const ls_view *logits, const ls_view *added,
                           ls_cuda_scores *of, ls_error *error) {
  enum { MOST_GROUPS = 64 };
  const ls_attributes *by = args->attributes;
  *of = (ls_cuda_scores){.logits = ls_cuda_place_of(logits, false),
                         .experts = (int32_t)logits->valid[1],
                         .sigmoid = by->sigmoid != 0};
  if (added) {
    LS_TRY(ls_cuda_expect(added, LS_F32, "what is added to scores", error));
    of->added = added->data;
  }
  if (by->groups < 2 || by->top_groups >= by->groups) return LS_OK;
  if (by->groups > MOST_GROUPS)
    return ls_fail(error, LS_INTERNAL, "%lld groups of experts; expected at most %d",
                   (long long)by->groups, (int)MOST_GROUPS);
  of->groups = (int32_t)by->groups;
  of->top_groups = (int32_t)by->top_groups;
  return LS_OK;
}

static void add_route(ls_cuda_launches *launches, const char *name, const char *suffix,
                      int64_t blocks, uint32_t threads, const ls_cuda_route *with) {
  ls_cuda_add_launch(launches, name, suffix, (uint32_t)blocks, threads, sizeof *with)
      ->arguments.route = *with;
}

static ls_status expect_rows(const ls_view *places, const ls_view *of_row, ls_error *error) {
  LS_TRY(ls_cuda_expect(places, LS_I32, "the routed rows", error));
  return ls_cuda_expect(of_row, LS_I32, "the experts of rows", error);
}

ls_status ls_cuda_number_rows(const ls_kernel_args *args, ls_cuda_route *with, ls_error *error) {
  const int64_t slots = with->tokens * with->chosen, tiles = ls_cuda_divide_up(slots, TILE);
  for (int o = 0; o < 3; o++)
    if (args->accumulate[o])
      return ls_fail(error, LS_INTERNAL, "a routing cannot be accumulated into");
  LS_TRY(expect_rows(&args->out[0], &args->out[1], error));
  LS_TRY(ls_cuda_expect(&args->out[2], LS_F32, "the weights of rows", error));
  with->places = args->out[0].data;
  with->expert_of_row = args->out[1].data;
  with->weights = args->out[2].data;
  with->tiles = (int32_t)tiles;
  with->counts = args->workspace;
  with->bases = with->counts + tiles * with->experts;
  with->slot_weights = (float *)(with->bases + with->experts);
  return ls_cuda_expect_workspace(
      args, (size_t)((tiles + 1) * with->experts + slots) * sizeof(int32_t), error);
}

void ls_cuda_add_numbers(const ls_cuda_route *with, ls_cuda_launches *launches) {
  add_route(launches, "ls_route_count", "", with->tiles, TILE, with);
  add_route(launches, "ls_route_sums", "", 1, SUMS_THREADS, with);
  add_route(launches, "ls_route_place", "", with->tiles, TILE, with);
}

static float scale_of(const ls_attributes *by) {
  return by->scale > 0 ? (float)by->scale : 1;
}

ls_status ls_cuda_choose_route(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  const ls_view *logits = &args->in[0], *places = &args->out[0];
  const char *suffix;
  ls_cuda_route with = {.tokens = places->valid[0],
                        .experts = (int32_t)logits->valid[1],
                        .chosen = (int32_t)places->dims[1],
                        .renormalise = args->attributes->renormalise != 0,
                        .scale = scale_of(args->attributes)};
  LS_TRY(ls_cuda_suffix(logits->dtype, &suffix, error));
  LS_TRY(scores_of(args, logits, args->inputs > 1 ? &args->in[1] : NULL, &with.of, error));
  LS_TRY(ls_cuda_number_rows(args, &with, error));
  if (with.tiles == 0) return LS_OK;
  if (with.of.sigmoid || with.of.added || with.of.groups) {
    int64_t warps;
    LS_TRY(expect_room(&with.of, &warps, error));
    add_route(launches, "ls_route_choose_scores", suffix, warps_blocks(args, with.tokens, warps),
              (uint32_t)warps * LS_CUDA_WARP, &with);
    launches->launch[launches->count - 1].shared_bytes =
        (uint32_t)(warps * with.of.experts) * (uint32_t)sizeof(uint64_t);
  } else {
    add_route(launches, "ls_route_choose", suffix, warps_blocks(args, with.tokens, WARPS),
              WARPS * LS_CUDA_WARP, &with);
  }
  ls_cuda_add_numbers(&with, launches);
  return LS_OK;
}

ls_status ls_cuda_choose_route_bwd(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  const ls_view *logits = &args->in[1], *places = &args->in[2], *out = &args->out[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(logits->dtype, &suffix, error));
  LS_TRY(expect_rows(places, &args->in[3], error));
  LS_TRY(ls_cuda_expect(&args->in[0], LS_F32, "the weights' gradient", error));
  LS_TRY(ls_cuda_expect(out, logits->dtype, "the logits' gradient", error));
  ls_cuda_route with = {.out = ls_cuda_place_of(out, args->accumulate[0]),
                        .places = places->data,
                        .expert_of_row = args->in[3].data,
                        .dweights = args->in[0].data,
                        .tokens = out->valid[0],
                        .experts = (int32_t)out->valid[1],
                        .chosen = (int32_t)places->dims[1],
                        .renormalise = args->attributes->renormalise != 0,
                        .scale = scale_of(args->attributes)};
  LS_TRY(scores_of(args, logits, NULL, &with.of, error));
  if (with.tokens == 0) return LS_OK;
  add_route(launches, "ls_route_bwd", suffix, warps_blocks(args, with.tokens, WARPS),
            WARPS * LS_CUDA_WARP, &with);
  return LS_OK;
}

static ls_cuda_launch *add_router(ls_cuda_launches *launches, const char *name, const char *suffix,
                                  int64_t blocks, uint32_t threads, const ls_cuda_router *with) {
  ls_cuda_launch *launch =
      ls_cuda_add_launch(launches, name, suffix, (uint32_t)blocks, threads, sizeof *with);
  launch->arguments.router = *with;
  return launch;
}

/* Loads of all tokens, or of each sequence. */
static ls_status loads_of(const ls_view *loads, bool add, ls_cuda_router *with, ls_error *error) {
  if (loads->dtype != LS_F64) LS_TRY(ls_cuda_expect(loads, LS_F32, "the loads of experts", error));
  with->loads = ls_cuda_place_of(loads, add);
  with->sequences = loads->valid[0] > 0 ? loads->valid[0] : 1;
  with->each = with->tokens > with->sequences ? with->tokens / with->sequences : 1;
  return LS_OK;
}

ls_status ls_cuda_choose_loads(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  const ls_view *logits = &args->in[0], *told = &args->out[0];
  const char *suffix;
  int64_t warps;
  ls_cuda_router with = {.labels = args->in[1].data,
                         .told = told->data,
                         .tokens = logits->valid[0],
                         .chosen = (int32_t)args->attributes->chosen,
                         .add = args->accumulate[0]};
  LS_TRY(ls_cuda_suffix(logits->dtype, &suffix, error));
  LS_TRY(scores_of(args, logits, args->inputs > 2 ? &args->in[2] : NULL, &with.of, error));
  LS_TRY(expect_room(&with.of, &warps, error));
  LS_TRY(ls_cuda_expect(&args->in[1], LS_I32, "the labels", error));
  LS_TRY(ls_cuda_expect(told, LS_F64, "the loads that are told", error));
  LS_TRY(loads_of(&args->out[1], false, &with, error));
  if (args->accumulate[1])
    return ls_fail(error, LS_INTERNAL, "loads of a microbatch cannot be accumulated into");
  const int64_t slots = with.tokens * with.chosen;
  with.part_count = (int32_t)ls_cuda_smaller(
      ls_cuda_divide_up(with.each * with.chosen, LS_CUDA_LOAD_SLOTS), LS_CUDA_LOAD_PARTS);
  const int64_t counts = with.sequences * with.part_count * with.of.experts;
  with.choices = args->workspace;
  with.counts = with.choices + slots;
  LS_TRY(ls_cuda_expect_workspace(args, (size_t)(slots + counts) * sizeof(int32_t), error));
  if (with.tokens > 0) {
    add_router(launches, "ls_loads_choose", suffix, warps_blocks(args, with.tokens, warps),
               (uint32_t)warps * LS_CUDA_WARP, &with)
        ->shared_bytes = (uint32_t)(warps * with.of.experts) * (uint32_t)sizeof(uint64_t);
    ls_cuda_launch *count =
        add_router(launches, "ls_loads_count", "", with.part_count, TILE, &with);
    count->grid[1] = (uint32_t)with.sequences;
    count->shared_bytes = (uint32_t)with.of.experts * (uint32_t)sizeof(int32_t);
  } else {
    with.part_count = 0;
  }
  add_router(launches, "ls_loads_put", "", ls_cuda_divide_up(with.loads.stride, TILE), TILE, &with);
  return LS_OK;
}

ls_status ls_cuda_choose_loads_total(ls_op_kind kind, const ls_kernel_args *args,
                                     ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  for (int i = 0; i < args->inputs; i++)
    LS_TRY(ls_cuda_expect(&args->in[i], LS_F64, "the loads of experts", error));
  LS_TRY(ls_cuda_expect(&args->out[0], LS_F64, "the loads of experts", error));
  if (args->accumulate[0]) return ls_fail(error, LS_INTERNAL, "loads cannot be accumulated into");
  const ls_cuda_router with = {
      .loads = {.data = args->in[0].data, .stride = args->out[0].dims[1], .dtype = LS_F64},
      .root = args->inputs > 1 ? args->in[1].data : NULL,
      .told = args->out[0].data};
  add_router(launches, "ls_loads_total", "", ls_cuda_divide_up(with.loads.stride, TILE), TILE,
             &with);
  return LS_OK;
}

ls_status ls_cuda_choose_router_loss(ls_op_kind kind, const ls_kernel_args *args,
                                     ls_cuda_launches *launches, ls_error *error) {
  const bool back = kind == LS_OP_ROUTER_LOSS_BWD || kind == LS_OP_ROUTER_LOSS_EACH_BWD;
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const int counts = back ? 4 : 3;
  const char *suffix;
  ls_cuda_router with = {.labels = args->in[1].data,
                         .tokens = logits->valid[0],
                         .scale = args->attributes->scale,
                         .z_scale = args->attributes->z_scale};
  LS_TRY(ls_cuda_suffix(logits->dtype, &suffix, error));
  LS_TRY(scores_of(args, logits, NULL, &with.of, error));
  LS_TRY(ls_cuda_expect(&args->in[1], LS_I32, "the labels", error));
  LS_TRY(loads_of(&args->in[2], false, &with, error));
  if (args->inputs > counts) {
    LS_TRY(ls_cuda_expect(&args->in[counts], LS_F32, "what tokens count", error));
    with.weights = args->in[counts].data;
  }
  const int64_t blocks = warps_blocks(args, with.tokens, WARPS);
  if (back) {
    LS_TRY(ls_cuda_expect(&args->in[3], LS_F64, "the loss's gradient", error));
    LS_TRY(ls_cuda_expect(out, logits->dtype, "the logits' gradient", error));
    with.root = args->in[3].data;
    with.out = ls_cuda_place_of(out, args->accumulate[0]);
    if (with.tokens > 0)
      add_router(launches, "ls_router_loss_bwd", suffix, blocks, WARPS * LS_CUDA_WARP, &with);
    return LS_OK;
  }
  LS_TRY(ls_cuda_expect(out, LS_F64, "the loss", error));
  LS_TRY(ls_cuda_expect_workspace(args, (size_t)blocks * sizeof *with.parts, error));
  with.parts = args->workspace;
  add_router(launches, "ls_router_loss", suffix, blocks, WARPS * LS_CUDA_WARP, &with);
  ls_cuda_add_parts(launches, with.parts, blocks, out->data, args->accumulate[0]);
  return LS_OK;
}

ls_status ls_cuda_choose_row_sigmoid(ls_op_kind kind, const ls_kernel_args *args,
                                     ls_cuda_launches *launches, ls_error *error) {
  const bool back = kind == LS_OP_ROW_SIGMOID_BWD;
  const ls_view *logits = &args->in[back ? 1 : 0], *out = &args->out[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(logits->dtype, &suffix, error));
  LS_TRY(ls_cuda_expect(out, back ? logits->dtype : LS_F32, "a gate", error));
  if (back) LS_TRY(ls_cuda_expect(&args->in[0], LS_F32, "a gate's gradient", error));
  const ls_cuda_router with = {.of = {.logits = ls_cuda_place_of(logits, false)},
                               .out = ls_cuda_place_of(out, args->accumulate[0]),
                               .weights = back ? args->in[0].data : NULL,
                               .tokens = out->valid[0]};
  if (with.tokens == 0) return LS_OK;
  const int64_t wanted = ls_cuda_divide_up(with.tokens, TILE);
  add_router(launches, back ? "ls_row_sigmoid_bwd" : "ls_row_sigmoid", suffix,
             ls_cuda_blocks(args->queue->facts, wanted, EACH), TILE, &with);
  return LS_OK;
}
