/* Launches of attention by places: of shares of sequences, of blocks of keys that go round a ring,
 * and with probabilities that are dropped. */
#include "device/cuda/kernels/cuda_choose.h"
#include "device/mask.h"

/* By head size, rows of a block and keys or queries at a time: as in cuda_placed_flash.cuh. */
enum { ROWS = 64, FLASH_THREADS = 128, PAD = 8 };

typedef struct placed_size {
  int64_t columns; /* of shared memory; heads up to so many */
  const char *forward, *queries, *keys;
  int64_t forward_keys, queries_keys, keys_queries;
  uint32_t parts; /* of the columns of dk and dv, in blocks of their own */
} placed_size;

static const placed_size sizes[] = {
    {64, "ls_placed_64", "ls_placed_queries_64", "ls_placed_keys_64", 64, 32, 32, 1},
    {128, "ls_placed_128", "ls_placed_queries_128", "ls_placed_keys_128", 64, 32, 16, 1},
    {256, "ls_placed_256", "ls_placed_queries_256", "ls_placed_keys_256", 32, 16, 16, 2}};

/* In fp32 a warp takes a row: as in cuda_placed.cu. */
enum { ROW_WARPS = 8, ROW_KEYS = 32, THREADS = 256, EACH = 8 };

static const placed_size *size_of(int64_t head_dim) {
  const placed_size *size = sizes;
  while (size->columns < head_dim) size++;
  return size;
}

static int64_t tiles_of(const ls_cuda_placed *with) {
  return ls_cuda_divide_up(with->of.tokens, ROWS) + ls_cuda_divide_up(with->keys, ROWS);
}

/* Ranges, and behind them where documents end, from `at` on in the workspace. */
static ls_status place_ranges(const ls_kernel_args *args, int64_t at, ls_cuda_placed *with,
                              ls_error *error) {
  const bool ends = with->two_way && with->of.positions && !with->behind;
  const int64_t ranges = 2 * tiles_of(with);
  with->ranges = (int32_t *)args->workspace + at;
  with->lasts = ends ? with->ranges + ranges : NULL;
  return ls_cuda_expect_workspace(
      args, (size_t)(at + ranges + (ends ? with->of.tokens : 0)) * sizeof *with->ranges, error);
}

/* What all of them are given; q, k and v are inputs from `first` on, `positions` that operand. */
static ls_status placed_of(const ls_kernel_args *args, int first, int positions, bool ring,
                           ls_cuda_placed *with, ls_error *error) {
  const ls_view *q = &args->in[first], *k = q + 1, *places = &args->in[positions + 1];
  const ls_attributes *attributes = args->attributes;
  *with = (ls_cuda_placed){.keys = k->valid[0], .ring = ring, .two_way = attributes->two_way != 0};
  LS_TRY(ls_cuda_attention_of(args, first, LS_CUDA_MOST_HEAD, &with->of, error));
  if (attributes->sequence <= 0 || attributes->sequence > INT32_MAX)
    return ls_fail(error, LS_INTERNAL, "attention by places in sequences of %lld",
                   (long long)attributes->sequence);
  for (int i = positions; i < args->inputs && i < positions + 2; i++)
    LS_TRY(ls_cuda_expect(&args->in[i], LS_I32, "positions and places", error));
  if (args->inputs > positions) with->of.positions = args->in[positions].data;
  if (args->inputs > positions + 1) {
    const int32_t *all = places->data;
    with->query_places = all + (q->start[0] - (ring ? places : k)->start[0]);
    with->key_places = all + (ring ? k->start[0] - places->start[0] : 0);
  }
  if (ring) return LS_OK;
  const int behind = positions + 2, draws = behind + with->two_way;
  if (with->two_way && args->inputs > behind) {
    LS_TRY(ls_cuda_expect(&args->in[behind], LS_I32, "the tokens behind", error));
    with->behind = args->in[behind].data;
  }
  if (args->inputs <= draws) return LS_OK;
  LS_TRY(ls_cuda_expect(&args->in[draws], LS_I32, "the draws", error));
  with->draws = args->in[draws].data;
  with->site = attributes->site;
  with->limit = ls_mask_limit(attributes->dropout);
  with->kept = (float)(1 / (1 - attributes->dropout));
  return LS_OK;
}

static void add_ranges(const ls_kernel_args *args, const ls_cuda_placed *with,
                       ls_cuda_launches *launches) {
  const int64_t tiles = tiles_of(with), tokens = ls_cuda_divide_up(with->of.tokens, THREADS);
  if (with->lasts)
    ls_cuda_add_launch(launches, "ls_place_lasts", "",
                       ls_cuda_blocks(args->queue->facts, tokens, EACH), THREADS, sizeof *with)
        ->arguments.placed = *with;
  ls_cuda_add_launch(
      launches, "ls_place_ranges", "",
      ls_cuda_blocks(args->queue->facts, ls_cuda_divide_up(tiles, THREADS / LS_CUDA_WARP), EACH),
      THREADS, sizeof *with)
      ->arguments.placed = *with;
}

/* Blocks by rows and by heads, with `held` rows of a head in shared memory. */
static void add_flash(ls_cuda_launches *launches, const char *name, const char *suffix,
                      const ls_cuda_placed *with, int64_t rows, int32_t heads, int64_t held) {
  if (rows == 0) return;
  const int64_t columns = size_of(with->of.head_dim)->columns + PAD;
  ls_cuda_launch *launch = ls_cuda_add_launch(
      launches, name, suffix, (uint32_t)ls_cuda_divide_up(rows, ROWS), FLASH_THREADS, sizeof *with);
  launch->grid[1] = (uint32_t)heads;
  launch->shared_bytes = (uint32_t)(held * columns) * (uint32_t)sizeof(uint16_t);
  launch->arguments.placed = *with;
}

static void add_rows(ls_cuda_launches *launches, const char *name, const ls_cuda_placed *with,
                     int64_t rows, int32_t heads, int64_t held) {
  if (rows == 0) return;
  ls_cuda_launch *launch =
      ls_cuda_add_launch(launches, name, "_fp32", (uint32_t)ls_cuda_divide_up(rows, ROW_WARPS),
                         ROW_WARPS * LS_CUDA_WARP, sizeof *with);
  launch->grid[1] = (uint32_t)heads;
  launch->shared_bytes = (uint32_t)(held * (with->of.head_dim + 1)) * (uint32_t)sizeof(float);
  launch->arguments.placed = *with;
}

static ls_status add_forward(const ls_kernel_args *args, ls_cuda_placed *with,
                             ls_cuda_launches *launches, ls_error *error) {
  const char *suffix;
  LS_TRY(ls_cuda_suffix(args->in[0].dtype, &suffix, error));
  LS_TRY(place_ranges(args, 0, with, error));
  if (with->of.tokens == 0) return LS_OK;
  add_ranges(args, with, launches);
  if (args->in[0].dtype == LS_F32) {
    add_rows(launches, "ls_placed", with, with->of.tokens, with->of.heads,
             2 * ROW_KEYS + ROW_WARPS);
    return LS_OK;
  }
  const placed_size *size = size_of(with->of.head_dim);
  add_flash(launches, size->forward, suffix, with, with->of.tokens, with->of.heads,
            ROWS + 2 * size->forward_keys);
  return LS_OK;
}

static void add_backward(const ls_kernel_args *args, const ls_cuda_placed *with, const char *suffix,
                         ls_cuda_launches *launches) {
  const int32_t key_heads = with->of.heads / with->of.per_kv_head;
  const int64_t tokens = with->of.tokens;
  if (args->in[0].dtype == LS_F32) {
    const int64_t held = 2 * ROW_KEYS + 2 * ROW_WARPS;
    add_rows(launches, "ls_placed_keys", with, with->keys, key_heads, held);
    add_rows(launches, "ls_placed_queries", with, tokens, with->of.heads, held);
    return;
  }
  const placed_size *size = size_of(with->of.head_dim);
  const int before = launches->count;
  add_flash(launches, size->keys, suffix, with, with->keys, key_heads,
            2 * ROWS + 2 * size->keys_queries);
  if (launches->count > before) launches->launch[before].grid[2] = size->parts;
  add_flash(launches, size->queries, suffix, with, tokens, with->of.heads,
            2 * ROWS + 2 * size->queries_keys);
}

ls_status ls_cuda_choose_placed(ls_op_kind kind, const ls_kernel_args *args,
                                ls_cuda_launches *launches, ls_error *error) {
  const int positions = kind == LS_OP_SINK_ATTENTION ? 4 : 3;
  ls_cuda_placed with;
  LS_TRY(placed_of(args, 0, positions, false, &with, error));
  if (positions > 3) with.of.sinks = ls_cuda_place_of(&args->in[3], false);
  LS_TRY(ls_cuda_expect(&args->out[1], LS_F32, "attention's log-sum-exp", error));
  with.of.out = ls_cuda_place_of(&args->out[0], args->accumulate[0]);
  with.of.log_sums = ls_cuda_place_of(&args->out[1], args->accumulate[1]);
  return add_forward(args, &with, launches, error);
}

/* Queries, what comes back for them, and the gradients that are made. */
static ls_status backward_of(const ls_kernel_args *args, ls_cuda_placed *with, const char **suffix,
                             ls_error *error) {
  const ls_view *dout = &args->in[0];
  LS_TRY(ls_cuda_suffix(dout->dtype, suffix, error));
  LS_TRY(ls_cuda_expect(&args->in[1], dout->dtype, "attention's queries", error));
  with->of.dout = ls_cuda_place_of(dout, false);
  with->of.wide &= ls_cuda_is_wide(dout);
  ls_cuda_place *made[] = {&with->of.dq, &with->of.dk, &with->of.dv};
  for (int o = 0; o < 3; o++) {
    if (args->out[o].dtype != LS_F32)
      LS_TRY(ls_cuda_expect(&args->out[o], dout->dtype, "what attention makes", error));
    *made[o] = ls_cuda_place_of(&args->out[o], args->accumulate[o]);
  }
  return LS_OK;
}

ls_status ls_cuda_choose_placed_bwd(ls_op_kind kind, const ls_kernel_args *args,
                                    ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  const char *suffix;
  ls_cuda_placed with;
  LS_TRY(placed_of(args, 1, 6, false, &with, error));
  LS_TRY(backward_of(args, &with, &suffix, error));
  LS_TRY(ls_cuda_expect(&args->in[4], args->in[0].dtype, "attention's output", error));
  LS_TRY(ls_cuda_expect(&args->in[5], LS_F32, "attention's log-sum-exp", error));
  with.of.out = ls_cuda_place_of(&args->in[4], false);
  with.of.log_sums = ls_cuda_place_of(&args->in[5], false);
  with.of.row_dots = args->workspace;
  const int64_t dots = with.of.tokens * with.of.heads;
  with.dots = (ls_cuda_place){.data = args->workspace, .stride = with.of.heads, .dtype = LS_F32};
  LS_TRY(place_ranges(args, dots, &with, error));
  if (with.of.tokens == 0 && with.keys == 0) return LS_OK;
  if (dots > 0)
    ls_cuda_add_launch(
        launches, "ls_row_dots", suffix,
        ls_cuda_blocks(args->queue->facts, ls_cuda_divide_up(dots, THREADS / LS_CUDA_WARP), EACH),
        THREADS, sizeof with.of)
        ->arguments.attention = with.of;
  add_ranges(args, &with, launches);
  add_backward(args, &with, suffix, launches);
  return LS_OK;
}

static ls_status expect_sums(const ls_view *views, int count, ls_error *error) {
  for (int i = 0; i < count; i++) LS_TRY(ls_cuda_expect(&views[i], LS_F32, "a ring's sums", error));
  return LS_OK;
}

static ls_status ring_attention(const ls_kernel_args *args, ls_cuda_launches *launches,
                                ls_error *error) {
  ls_cuda_placed with;
  LS_TRY(placed_of(args, 0, 3, true, &with, error));
  LS_TRY(expect_sums(args->out, 3, error));
  for (int o = 0; o < 3; o++)
    if (args->accumulate[o])
      return ls_fail(error, LS_INTERNAL, "a ring's sums cannot be accumulated into");
  with.of.out = ls_cuda_place_of(&args->out[0], false);
  with.largest_out = ls_cuda_place_of(&args->out[1], false);
  with.of.log_sums = ls_cuda_place_of(&args->out[2], false);
  with.begun = args->inputs > 5;
  if (with.begun) {
    LS_TRY(expect_sums(&args->in[5], 3, error));
    with.values = ls_cuda_place_of(&args->in[5], false);
    with.largest = ls_cuda_place_of(&args->in[6], false);
    with.sums = ls_cuda_place_of(&args->in[7], false);
  }
  return add_forward(args, &with, launches, error);
}

static ls_status ring_bwd(const ls_kernel_args *args, ls_cuda_launches *launches, ls_error *error) {
  const char *suffix;
  ls_cuda_placed with;
  LS_TRY(placed_of(args, 1, 6, true, &with, error));
  LS_TRY(backward_of(args, &with, &suffix, error));
  LS_TRY(expect_sums(&args->in[4], 2, error));
  with.of.log_sums = ls_cuda_place_of(&args->in[4], false);
  with.dots = ls_cuda_place_of(&args->in[5], false);
  LS_TRY(place_ranges(args, 0, &with, error));
  if (with.of.tokens == 0 && with.keys == 0) return LS_OK;
  add_ranges(args, &with, launches);
  add_backward(args, &with, suffix, launches);
  return LS_OK;
}

/* The end of a ring: sums are divided; or what all blocks need going back. */
static ls_status ring_end(ls_op_kind kind, const ls_kernel_args *args, ls_cuda_launches *launches,
                          ls_error *error) {
  const bool back = kind == LS_OP_RING_END_BWD;
  const ls_view *out = &args->out[0], *rows = back ? &args->in[0] : out;
  const int64_t head_dim = args->attributes->head_dim;
  const char *suffix;
  LS_TRY(ls_cuda_suffix(rows->dtype, &suffix, error));
  if (head_dim <= 0 || rows->dims[1] % head_dim)
    return ls_fail(error, LS_INTERNAL, "a ring of %lld columns in heads of %lld",
                   (long long)rows->dims[1], (long long)head_dim);
  ls_cuda_placed with = {.of = {.tokens = out->valid[0],
                                .heads = (int32_t)(rows->dims[1] / head_dim),
                                .head_dim = (int32_t)head_dim,
                                .first_head = (int32_t)(args->in[0].start[1] / head_dim)},
                         .largest = ls_cuda_place_of(&args->in[back ? 2 : 1], false),
                         .sums = ls_cuda_place_of(&args->in[back ? 3 : 2], false)};
  const int sinks = back ? 4 : 3;
  if (args->inputs > sinks) with.of.sinks = ls_cuda_place_of(&args->in[sinks], false);
  LS_TRY(expect_sums(&args->in[back ? 2 : 1], 2, error));
  if (back) {
    LS_TRY(ls_cuda_expect(&args->in[1], rows->dtype, "attention's output", error));
    LS_TRY(expect_sums(args->out, 2, error));
    with.of.dout = ls_cuda_place_of(&args->in[0], false);
    with.of.out = ls_cuda_place_of(&args->in[1], false);
    with.of.log_sums = ls_cuda_place_of(&args->out[0], false);
    with.dots = ls_cuda_place_of(&args->out[1], false);
  } else {
    LS_TRY(expect_sums(&args->in[0], 1, error));
    with.values = ls_cuda_place_of(&args->in[0], false);
    with.of.out = ls_cuda_place_of(out, false);
  }
  const int64_t wanted =
      back ? ls_cuda_divide_up(with.of.tokens * with.of.heads, THREADS / LS_CUDA_WARP)
           : with.of.tokens;
  if (wanted > 0)
    ls_cuda_add_launch(launches, back ? "ls_ring_end_bwd" : "ls_ring_end", suffix,
                       ls_cuda_blocks(args->queue->facts, wanted, EACH), THREADS, sizeof with)
        ->arguments.placed = with;
  if (!back || args->outputs < 3) return LS_OK;
  return ls_cuda_add_sinks(args, &with.of, &args->out[2], args->accumulate[2], launches, error);
}

ls_status ls_cuda_choose_ring(ls_op_kind kind, const ls_kernel_args *args,
                              ls_cuda_launches *launches, ls_error *error) {
  if (kind == LS_OP_RING_ATTENTION) return ring_attention(args, launches, error);
  if (kind == LS_OP_RING_BWD) return ring_bwd(args, launches, error);
  return ring_end(kind, args, launches, error);
}
