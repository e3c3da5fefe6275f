/* Launches of attention over a cache, whose rows may be dealt to ranks in turn. */
#include "device/cuda/kernels/cuda_choose.h"

enum { THREADS = 256, EACH = 8, MOST_HEAD = 640 }; /* as in cuda_cached.cu */

static bool head_is_wide(const ls_view *view, int64_t head_dim) {
  return ls_cuda_is_wide(view) && (size_t)head_dim * ls_dtype_bytes(view->dtype) % 16 == 0;
}

/* The caches, and which of their rows the device has. */
static ls_status caches_of(const ls_kernel_args *args, ls_cuda_cached *with, ls_error *error) {
  const ls_view *k = &args->in[3], *v = &args->in[4];
  LS_TRY(ls_cuda_attention_of(args, 0, MOST_HEAD, &with->of, error));
  for (int i = 3; i < 5; i++)
    LS_TRY(ls_cuda_expect(&args->in[i], args->in[0].dtype, "a cache", error));
  for (int i = 5; i < args->inputs && i < 7; i++)
    LS_TRY(ls_cuda_expect(&args->in[i], LS_I32, "positions and places", error));
  if (k->dims[1] != args->in[1].dims[1] || v->dims[1] != args->in[2].dims[1])
    return ls_fail(error, LS_INTERNAL, "a cache of %lld columns for keys of %lld",
                   (long long)k->dims[1], (long long)args->in[1].dims[1]);
  with->cache_k = ls_cuda_place_of(k, false);
  with->cache_v = ls_cuda_place_of(v, false);
  with->of.positions = args->in[5].data;
  with->places = args->in[args->inputs > 6 ? 6 : 5].data;
  with->of.wide &= head_is_wide(k, with->of.head_dim);
  return LS_OK;
}

static ls_status add_cached(const ls_kernel_args *args, ls_cuda_cached *with, const char *suffix,
                            ls_cuda_launches *launches, ls_error *error) {
  enum { MOST_PARTS = 32, WARPS_EACH = 16 }; /* the recipe's; warps of a busy multiprocessor */
  const int64_t rows = with->of.tokens * with->of.heads * with->cache_parts;
  const bool wide = with->of.head_dim > LS_CUDA_MOST_HEAD;
  if (rows == 0) return LS_OK;
  const int64_t fill =
      ls_cuda_divide_up((int64_t)args->queue->facts->processors * WARPS_EACH, rows);
  with->parts = (int32_t)ls_cuda_smaller(fill, MOST_PARTS);
  with->part_sums = args->workspace;
  LS_TRY(ls_cuda_expect_workspace(
      args, (size_t)(rows * with->parts * (with->of.head_dim + 2)) * sizeof *with->part_sums,
      error));
  ls_cuda_add_launch(launches, "ls_cache_rows", suffix,
                     ls_cuda_blocks(args->queue->facts, with->of.tokens, EACH), THREADS,
                     sizeof *with)
      ->arguments.cached = *with;
  ls_cuda_launch *launch =
      ls_cuda_add_launch(launches, wide ? "ls_cached_wide" : "ls_cached_part", suffix,
                         (uint32_t)with->of.tokens, LS_CUDA_WARP, sizeof *with);
  launch->grid[1] = (uint32_t)with->of.heads;
  launch->grid[2] = (uint32_t)(with->parts * with->cache_parts);
  launch->arguments.cached = *with;
  launch = ls_cuda_add_launch(launches, "ls_cached_join", "", (uint32_t)with->of.tokens, THREADS,
                              sizeof *with);
  launch->grid[1] = (uint32_t)with->of.heads;
  launch->grid[2] = (uint32_t)with->cache_parts;
  launch->arguments.cached = *with;
  return LS_OK;
}

ls_status ls_cuda_choose_cached_attention(ls_op_kind kind, const ls_kernel_args *args,
                                          ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  const char *suffix;
  ls_cuda_cached with = {.ranks = 1, .cache_parts = 1, .part_rows = (int32_t)args->in[3].valid[0]};
  LS_TRY(ls_cuda_suffix(args->in[0].dtype, &suffix, error));
  LS_TRY(caches_of(args, &with, error));
  with.of.out = ls_cuda_place_of(&args->out[0], args->accumulate[0]);
  if (args->inputs > 7) with.of.sinks = ls_cuda_place_of(&args->in[7], false);
  return add_cached(args, &with, suffix, launches, error);
}

/* Numbers of each part, one part behind the other. */
static ls_status parts_of(const ls_view *view, bool add, ls_cuda_place *place, int64_t *apart,
                          ls_error *error) {
  LS_TRY(ls_cuda_expect(view, LS_F32, "what parts of a cache give", error));
  *place = ls_cuda_place_of(view, add);
  place->stride = view->dims[2];
  *apart = view->dims[1] * view->dims[2];
  return LS_OK;
}

ls_status ls_cuda_choose_cached_part(ls_op_kind kind, const ls_kernel_args *args,
                                     ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  const int64_t parts = args->out[0].dims[0], rows = args->in[3].dims[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(args->in[0].dtype, &suffix, error));
  if (parts < 1 || rows % parts || args->attributes->turns < 1)
    return ls_fail(error, LS_INTERNAL, "a cache of %lld rows in %lld parts; expected a multiple",
                   (long long)rows, (long long)parts);
  ls_cuda_cached with = {.ranks = (int32_t)args->attributes->turns,
                         .number = (int32_t)args->out[0].start[0],
                         .cache_parts = (int32_t)parts,
                         .part_rows = (int32_t)(rows / parts)};
  LS_TRY(caches_of(args, &with, error));
  LS_TRY(parts_of(&args->out[0], args->accumulate[0], &with.of.out, &with.out_part, error));
  LS_TRY(
      parts_of(&args->out[1], args->accumulate[1], &with.of.log_sums, &with.log_sums_part, error));
  return add_cached(args, &with, suffix, launches, error);
}

ls_status ls_cuda_choose_cached_end(ls_op_kind kind, const ls_kernel_args *args,
                                    ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  const ls_view *out = &args->out[0];
  const int64_t head_dim = args->attributes->head_dim;
  const char *suffix;
  LS_TRY(ls_cuda_suffix(out->dtype, &suffix, error));
  if (head_dim <= 0 || out->dims[1] % head_dim)
    return ls_fail(error, LS_INTERNAL, "a cache's %lld columns in heads of %lld",
                   (long long)out->dims[1], (long long)head_dim);
  ls_cuda_cached with = {.of = {.out = ls_cuda_place_of(out, args->accumulate[0]),
                                .tokens = out->valid[0],
                                .head_dim = (int32_t)head_dim,
                                .first_head = (int32_t)(out->start[1] / head_dim)},
                         .cache_parts = (int32_t)args->in[0].valid[0]};
  LS_TRY(parts_of(&args->in[0], false, &with.cache_v, &with.out_part, error));
  LS_TRY(parts_of(&args->in[1], false, &with.of.log_sums, &with.log_sums_part, error));
  if (args->inputs > 2) with.of.sinks = ls_cuda_place_of(&args->in[2], false);
  if (with.of.tokens == 0) return LS_OK;
  ls_cuda_add_launch(launches, "ls_cached_end", suffix,
                     ls_cuda_blocks(args->queue->facts, with.of.tokens, EACH), THREADS, sizeof with)
      ->arguments.cached = with;
  return LS_OK;
}
