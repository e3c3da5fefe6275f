/* Launches of attention: on matrix instructions in bf16 and fp16, a warp a row in fp32. */
#include "device/cuda/kernels/cuda_choose.h"

/* Rows of a block, and keys or queries at a time, by head size: as in cuda_flash.cuh. */
enum { FLASH_ROWS = 64, FLASH_THREADS = 128, PAD = 8 };

typedef struct flash_size {
  int64_t columns; /* of shared memory; heads up to so many */
  const char *forward, *queries, *keys;
  int64_t forward_keys, queries_keys, keys_queries;
  uint32_t parts; /* of the columns of dk and dv, in blocks of their own */
} flash_size;

static const flash_size flash_sizes[] = {
    {64, "ls_flash_64", "ls_flash_queries_64", "ls_flash_keys_64", 64, 32, 32, 1},
    {128, "ls_flash_128", "ls_flash_queries_128", "ls_flash_keys_128", 64, 32, 32, 1},
    {256, "ls_flash_256", "ls_flash_queries_256", "ls_flash_keys_256", 32, 16, 16, 2}};

/* A warp a row: as in cuda_attention.cu. */
enum { ROW_WARPS = 8, ROW_KEYS = 32, ROW_THREADS = ROW_WARPS * LS_CUDA_WARP };

static bool head_is_wide(const ls_view *view, int64_t head_dim) {
  return ls_cuda_is_wide(view) && (size_t)head_dim * ls_dtype_bytes(view->dtype) % 16 == 0;
}

ls_status ls_cuda_attention_of(const ls_kernel_args *args, int first, int64_t most,
                               ls_cuda_attention *with, ls_error *error) {
  const ls_attributes *attributes = args->attributes;
  const ls_view *q = &args->in[first], *k = q + 1, *v = q + 2;
  const int64_t head_dim = attributes->head_dim;
  if (head_dim <= 0 || head_dim > most || q->dims[1] % head_dim || k->dims[1] % head_dim ||
      k->dims[1] == 0 || q->dims[1] % k->dims[1])
    return ls_fail(error, LS_INTERNAL,
                   "attention of %lld query and %lld key columns in heads of %lld; expected whole "
                   "heads of at most %lld, query heads a multiple of key heads",
                   (long long)q->dims[1], (long long)k->dims[1], (long long)head_dim,
                   (long long)most);
  *with = (ls_cuda_attention){
      .q = ls_cuda_place_of(q, false),
      .k = ls_cuda_place_of(k, false),
      .v = ls_cuda_place_of(v, false),
      .tokens = q->valid[0],
      .sequence = attributes->sequence,
      .heads = (int32_t)(q->dims[1] / head_dim),
      .per_kv_head = (int32_t)(q->dims[1] / k->dims[1]),
      .head_dim = (int32_t)head_dim,
      .first_head = (int32_t)(q->start[1] / head_dim),
      .all_heads = (int32_t)attributes->heads,
      .window = (int32_t)attributes->window,
      .wide = head_is_wide(q, head_dim) && head_is_wide(k, head_dim) && head_is_wide(v, head_dim),
      .scale = (float)attributes->softmax_scale,
      .softcap = (float)attributes->softcap,
      .alibi = (float)attributes->alibi};
  LS_TRY(ls_cuda_expect(k, q->dtype, "attention's keys", error));
  return ls_cuda_expect(v, q->dtype, "attention's values", error);
}

/* What attention makes is of the type that it computes in, or fp32. */
static ls_status expect_made(const ls_view *made, ls_dtype dtype, ls_error *error) {
  return made->dtype == LS_F32 ? LS_OK : ls_cuda_expect(made, dtype, "what attention makes", error);
}

static ls_status expect_sequences(const ls_cuda_attention *with, ls_error *error) {
  if (with->sequence > 0 && with->tokens % with->sequence == 0) return LS_OK;
  return ls_fail(error, LS_INTERNAL,
                 "attention of %lld tokens in sequences of %lld; expected whole sequences",
                 (long long)with->tokens, (long long)with->sequence);
}

static const flash_size *flash_size_of(int64_t head_dim) {
  const flash_size *size = flash_sizes;
  while (size->columns < head_dim) size++;
  return size;
}

/* Blocks by rows of all sequences and by heads, with `held` rows of a head in shared memory. */
static void add_flash(ls_cuda_launches *launches, const char *name, const char *suffix,
                      const ls_cuda_attention *with, int32_t heads, int64_t held) {
  const int64_t tiles = ls_cuda_divide_up(with->sequence, FLASH_ROWS);
  const int64_t columns = flash_size_of(with->head_dim)->columns + PAD;
  ls_cuda_launch *launch = ls_cuda_add_launch(launches, name, suffix,
                                              (uint32_t)(tiles * (with->tokens / with->sequence)),
                                              FLASH_THREADS, sizeof *with);
  launch->grid[1] = (uint32_t)heads;
  launch->shared_bytes = (uint32_t)(held * columns) * (uint32_t)sizeof(uint16_t);
  launch->arguments.attention = *with;
}

static void add_rows(ls_cuda_launches *launches, const char *name, const ls_cuda_attention *with,
                     int32_t heads, int64_t held) {
  const int64_t tiles = ls_cuda_divide_up(with->sequence, ROW_WARPS);
  ls_cuda_launch *launch = ls_cuda_add_launch(launches, name, "_fp32",
                                              (uint32_t)(tiles * (with->tokens / with->sequence)),
                                              ROW_THREADS, sizeof *with);
  launch->grid[1] = (uint32_t)heads;
  launch->shared_bytes = (uint32_t)(held * (with->head_dim + 1)) * (uint32_t)sizeof(float);
  launch->arguments.attention = *with;
}

ls_status ls_cuda_choose_attention(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error) {
  const int positions = kind == LS_OP_SINK_ATTENTION ? 4 : 3;
  if (args->inputs > positions + 1 || args->attributes->two_way)
    return ls_cuda_choose_placed(kind, args, launches, error);
  const char *suffix;
  ls_cuda_attention with;
  LS_TRY(ls_cuda_suffix(args->in[0].dtype, &suffix, error));
  LS_TRY(ls_cuda_attention_of(args, 0, LS_CUDA_MOST_HEAD, &with, error));
  LS_TRY(expect_sequences(&with, error));
  LS_TRY(ls_cuda_expect(&args->out[1], LS_F32, "attention's log-sum-exp", error));
  LS_TRY(expect_made(&args->out[0], args->in[0].dtype, error));
  with.out = ls_cuda_place_of(&args->out[0], args->accumulate[0]);
  with.log_sums = ls_cuda_place_of(&args->out[1], args->accumulate[1]);
  with.positions = args->inputs > positions ? args->in[positions].data : NULL;
  if (positions > 3) with.sinks = ls_cuda_place_of(&args->in[3], false);
  if (with.tokens == 0) return LS_OK;
  if (args->in[0].dtype == LS_F32) {
    add_rows(launches, "ls_attention", &with, with.heads, 2 * ROW_KEYS + ROW_WARPS);
    return LS_OK;
  }
  const flash_size *size = flash_size_of(with.head_dim);
  add_flash(launches, size->forward, suffix, &with, with.heads,
            FLASH_ROWS + 2 * size->forward_keys);
  return LS_OK;
}

ls_status ls_cuda_choose_attention_bwd(ls_op_kind kind, const ls_kernel_args *args,
                                       ls_cuda_launches *launches, ls_error *error) {
  if (args->inputs > 7 || args->attributes->two_way)
    return ls_cuda_choose_placed_bwd(kind, args, launches, error);
  const ls_view *dout = &args->in[0], *out = &args->in[4];
  const char *suffix;
  ls_cuda_attention with;
  LS_TRY(ls_cuda_suffix(dout->dtype, &suffix, error));
  LS_TRY(ls_cuda_attention_of(args, 1, LS_CUDA_MOST_HEAD, &with, error));
  LS_TRY(expect_sequences(&with, error));
  LS_TRY(ls_cuda_expect(out, dout->dtype, "attention's output", error));
  LS_TRY(ls_cuda_expect(&args->in[1], dout->dtype, "attention's queries", error));
  LS_TRY(ls_cuda_expect(&args->in[5], LS_F32, "attention's log-sum-exp", error));
  for (int o = 0; o < 3; o++) LS_TRY(expect_made(&args->out[o], dout->dtype, error));
  with.dout = ls_cuda_place_of(dout, false);
  with.out = ls_cuda_place_of(out, false);
  with.log_sums = ls_cuda_place_of(&args->in[5], false);
  with.dq = ls_cuda_place_of(&args->out[0], args->accumulate[0]);
  with.dk = ls_cuda_place_of(&args->out[1], args->accumulate[1]);
  with.dv = ls_cuda_place_of(&args->out[2], args->accumulate[2]);
  with.positions = args->inputs > 6 ? args->in[6].data : NULL;
  with.row_dots = args->workspace;
  with.wide &= head_is_wide(dout, with.head_dim);
  LS_TRY(ls_cuda_expect_workspace(args, (size_t)(with.tokens * with.heads) * sizeof *with.row_dots,
                                  error));
  if (with.tokens == 0) return LS_OK;
  enum { DOTS_WARPS = 8, EACH = 8 };
  const int64_t wanted = ls_cuda_divide_up(with.tokens * with.heads, DOTS_WARPS);
  ls_cuda_add_launch(launches, "ls_row_dots", suffix,
                     ls_cuda_blocks(args->queue->facts, wanted, EACH), DOTS_WARPS * LS_CUDA_WARP,
                     sizeof with)
      ->arguments.attention = with;
  const int32_t key_heads = with.heads / with.per_kv_head;
  if (dout->dtype == LS_F32) {
    add_rows(launches, "ls_attention_keys", &with, key_heads, 2 * ROW_KEYS + 2 * ROW_WARPS);
    add_rows(launches, "ls_attention_queries", &with, with.heads, 2 * ROW_KEYS + 2 * ROW_WARPS);
    return LS_OK;
  }
  const flash_size *size = flash_size_of(with.head_dim);
  add_flash(launches, size->keys, suffix, &with, key_heads,
            2 * FLASH_ROWS + 2 * size->keys_queries);
  launches->launch[launches->count - 1].grid[2] = size->parts;
  add_flash(launches, size->queries, suffix, &with, with.heads,
            2 * FLASH_ROWS + 2 * size->queries_keys);
  return LS_OK;
}

ls_status ls_cuda_add_sinks(const ls_kernel_args *args, const ls_cuda_attention *of,
                            const ls_view *made, bool add, ls_cuda_launches *launches,
                            ls_error *error) {
  enum { THREADS = 256, WARPS = THREADS / LS_CUDA_WARP };
  ls_cuda_attention with = *of;
  const char *suffix;
  LS_TRY(ls_cuda_suffix(args->in[0].dtype, &suffix, error));
  if (made->dtype != LS_BF16) LS_TRY(ls_cuda_expect(made, LS_F32, "the sinks' gradient", error));
  with.parts =
      (int32_t)ls_cuda_blocks(args->queue->facts, ls_cuda_divide_up(with.tokens, WARPS), 1);
  with.part_sums = args->workspace;
  with.all_heads = (int32_t)made->dims[0];
  with.dq = ls_cuda_place_of(made, add);
  LS_TRY(ls_cuda_expect_workspace(args, (size_t)(with.parts * with.heads) * sizeof *with.part_sums,
                                  error));
  if (with.heads > 0) {
    ls_cuda_launch *parts = ls_cuda_add_launch(launches, "ls_sink_parts", suffix,
                                               (uint32_t)with.parts, THREADS, sizeof with);
    parts->grid[1] = (uint32_t)with.heads;
    parts->arguments.attention = with;
  }
  ls_cuda_add_launch(launches, "ls_sink_sums", "",
                     (uint32_t)ls_cuda_divide_up(with.all_heads, THREADS), THREADS, sizeof with)
      ->arguments.attention = with;
  return LS_OK;
}

ls_status ls_cuda_choose_sink_bwd(ls_op_kind kind, const ls_kernel_args *args,
                                  ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  const ls_view *dout = &args->in[0], *log_sums = &args->in[2];
  const int64_t head_dim = args->attributes->head_dim;
  LS_TRY(ls_cuda_expect(&args->in[1], dout->dtype, "attention's output", error));
  LS_TRY(ls_cuda_expect(log_sums, LS_F32, "attention's log-sum-exp", error));
  if (head_dim <= 0 || dout->dims[1] != log_sums->dims[1] * head_dim)
    return ls_fail(error, LS_INTERNAL, "sinks of %lld heads of %lld in %lld columns",
                   (long long)log_sums->dims[1], (long long)head_dim, (long long)dout->dims[1]);
  const ls_cuda_attention with = {.dout = ls_cuda_place_of(dout, false),
                                  .out = ls_cuda_place_of(&args->in[1], false),
                                  .log_sums = ls_cuda_place_of(log_sums, false),
                                  .sinks = ls_cuda_place_of(&args->in[3], false),
                                  .tokens = dout->valid[0],
                                  .heads = (int32_t)log_sums->dims[1],
                                  .head_dim = (int32_t)head_dim,
                                  .first_head = (int32_t)(dout->start[1] / head_dim)};
  return ls_cuda_add_sinks(args, &with, &args->out[0], args->accumulate[0], launches, error);
}
