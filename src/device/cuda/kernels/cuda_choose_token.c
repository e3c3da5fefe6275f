/* Launches of what goes by tokens: rotary positions, embeddings, cross-entropy. */
#include "device/cuda/kernels/cuda_choose.h"

enum { THREADS = 256, ROW_THREADS = 512, EACH = 8 };

ls_status ls_cuda_choose_rope(ls_op_kind kind, const ls_kernel_args *args,
                              ls_cuda_launches *launches, ls_error *error) {
  const ls_view *x = &args->in[0], *table = &args->in[1], *y = &args->out[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(x->dtype, &suffix, error));
  LS_TRY(ls_cuda_expect(table, LS_F32, "the rope table", error));
  LS_TRY(ls_cuda_expect(y, x->dtype, "rope's output", error));
  ls_cuda_rope with = {.x = ls_cuda_place_of(x, false),
                       .table = ls_cuda_place_of(table, false),
                       .y = ls_cuda_place_of(y, args->accumulate[0]),
                       .rows = y->valid[0],
                       .head_dim = args->attributes->head_dim,
                       .half = table->dims[1] / 2,
                       .first = (int32_t)args->attributes->rope_first,
                       .direction = kind == LS_OP_ROPE ? 1 : -1};
  if (with.head_dim <= 0 || table->dims[1] % 2 || 2 * with.half > with.head_dim - with.first ||
      y->dims[1] % with.head_dim || x->dims[1] != y->dims[1])
    return ls_fail(error, LS_INTERNAL, "rope of %lld columns in heads of %lld with a table of %lld",
                   (long long)y->dims[1], (long long)with.head_dim, (long long)table->dims[1]);
  const size_t bytes = ls_dtype_bytes(x->dtype);
  with.heads = y->dims[1] / with.head_dim;
  with.wide = ls_cuda_is_wide(x) && ls_cuda_is_wide(table) && ls_cuda_is_wide(y) &&
              (size_t)with.half * bytes % 16 == 0 && (size_t)with.head_dim * bytes % 16 == 0 &&
              with.half % 4 == 0 && (size_t)with.first * bytes % 16 == 0;
  with.packs =
      (int32_t)(ls_cuda_divide_up(with.half, LS_CUDA_PACK) +
                ls_cuda_divide_up(with.first, LS_CUDA_PACK) +
                ls_cuda_divide_up(with.head_dim - with.first - 2 * with.half, LS_CUDA_PACK));
  if (with.rows == 0) return LS_OK;
  /* A block is no wider than a row: no thread is idle in all of them. */
  const int64_t warps = ls_cuda_divide_up(with.heads * with.packs, LS_CUDA_WARP);
  const uint32_t threads = (uint32_t)ls_cuda_smaller(warps * LS_CUDA_WARP, THREADS);
  ls_cuda_add_launch(launches, args->attributes->rope_neighbours ? "ls_rope_beside" : "ls_rope",
                     suffix,
                     ls_cuda_blocks(args->queue->facts, with.rows, EACH * THREADS / (int)threads),
                     threads, sizeof with)
      ->arguments.rope = with;
  return LS_OK;
}

ls_status ls_cuda_choose_rope_table(ls_op_kind kind, const ls_kernel_args *args,
                                    ls_cuda_launches *launches, ls_error *error) {
  (void)kind;
  const ls_view *table = &args->out[0];
  const ls_attributes *attributes = args->attributes;
  const int64_t half = table->dims[1] / 2;
  LS_TRY(ls_cuda_expect(table, LS_F32, "the rope table", error));
  if (attributes->rope_pairs != half || table->dims[1] % 2 ||
      half > (int64_t)LS_CUDA_FREQUENCIES * LS_CUDA_MAX_LAUNCHES)
    return ls_fail(error, LS_INTERNAL, "a rope table of %lld columns for %lld frequencies",
                   (long long)table->dims[1], (long long)attributes->rope_pairs);
  for (int64_t first = 0; first < half && table->valid[0] > 0; first += LS_CUDA_FREQUENCIES) {
    const int64_t count = ls_cuda_smaller(half - first, LS_CUDA_FREQUENCIES);
    const int64_t wanted = ls_cuda_divide_up(table->valid[0] * count, THREADS);
    ls_cuda_launch *launch = ls_cuda_add_launch(launches, "ls_rope_table", "",
                                                ls_cuda_blocks(args->queue->facts, wanted, EACH),
                                                THREADS, sizeof(ls_cuda_rope_table));
    ls_cuda_rope_table *with = &launch->arguments.rope_table;
    *with = (ls_cuda_rope_table){.positions = args->in[0].data,
                                 .out = ls_cuda_place_of(table, args->accumulate[0]),
                                 .rows = table->valid[0],
                                 .half = half,
                                 .first = first,
                                 .count = (int32_t)count,
                                 .scale = attributes->rope_scale > 0 ? attributes->rope_scale : 1};
    for (int64_t i = 0; i < count; i++)
      with->frequencies[i] = attributes->rope_frequencies[first + i];
  }
  return LS_OK;
}

/* Backward: clear the lists, make them, sum along each. */
static ls_status add_embedding_dw(const ls_kernel_args *args, ls_cuda_embedding *with,
                                  const char *suffix, ls_cuda_launches *launches, ls_error *error) {
  const ls_device_facts *facts = args->queue->facts;
  const size_t bytes = (size_t)(with->table_rows + with->tokens) * sizeof(int32_t);
  LS_TRY(ls_cuda_expect_workspace(args, bytes, error));
  with->first = args->workspace;
  with->next = with->first + with->table_rows;
  with->stored_rows = with->out.add ? with->table_rows : args->out[0].dims[0];
  if (with->stored_rows == 0) return LS_OK;
  const int64_t lists = with->table_rows + with->tokens;
  ls_cuda_add_launch(launches, "ls_embedding_clear", "",
                     ls_cuda_blocks(facts, ls_cuda_divide_up(lists, THREADS), EACH), THREADS,
                     sizeof *with)
      ->arguments.embedding = *with;
  if (with->tokens > 0)
    ls_cuda_add_launch(launches, "ls_embedding_lists", "",
                       (uint32_t)ls_cuda_divide_up(with->tokens, THREADS), THREADS, sizeof *with)
        ->arguments.embedding = *with;
  ls_cuda_add_launch(launches, "ls_embedding_dw", suffix,
                     ls_cuda_blocks(facts, with->stored_rows, EACH), THREADS, sizeof *with)
      ->arguments.embedding = *with;
  return LS_OK;
}

ls_status ls_cuda_choose_embedding(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error) {
  const bool back = kind == LS_OP_EMBEDDING_DW;
  const ls_view *from = &args->in[0], *out = &args->out[0], *table = back ? out : from;
  const char *suffix;
  LS_TRY(ls_cuda_suffix(from->dtype, &suffix, error));
  LS_TRY(ls_cuda_expect(&args->in[1], LS_I32, "the ids", error));
  if (!back) LS_TRY(ls_cuda_expect(out, from->dtype, "the embedding's output", error));
  ls_cuda_embedding with = {
      .table = ls_cuda_place_of(from, false),
      .out = ls_cuda_place_of(out, args->accumulate[0]),
      .ids = args->in[1].data,
      .tokens = back ? from->valid[0] : out->valid[0],
      .start = table->start[0] - args->attributes->skipped,
      .table_rows = table->valid[0],
      .columns = ls_cuda_smaller(from->dims[1], out->dims[1]),
      .scale = args->attributes->scale > 0 ? (float)args->attributes->scale : 1,
      .wide = ls_cuda_is_wide(from) && ls_cuda_is_wide(out)};
  if (back) return add_embedding_dw(args, &with, suffix, launches, error);
  if (with.tokens == 0) return LS_OK;
  ls_cuda_add_launch(launches, "ls_embedding", suffix,
                     ls_cuda_blocks(args->queue->facts, with.tokens, EACH), THREADS, sizeof with)
      ->arguments.embedding = with;
  return LS_OK;
}

static bool makes_sums(ls_op_kind kind) {
  return kind == LS_OP_XENT_SUM || kind == LS_OP_XENT_SUM_EACH;
}

/* Threads for a row of logits, a block's. */
static uint32_t row_threads(const ls_view *logits) {
  const int64_t packs = ls_cuda_divide_up(ls_cuda_stride(logits), LS_CUDA_PACK * LS_CUDA_WARP);
  return (uint32_t)ls_cuda_smaller((packs < 1 ? 1 : packs) * LS_CUDA_WARP, ROW_THREADS);
}

static ls_status expect_sums(const ls_kernel_args *args, ls_op_kind kind, ls_error *error) {
  const int sums_in = kind == LS_OP_XENT_MAX ? 0 : makes_sums(kind) ? 1 : 2;
  for (int i = 0; i < sums_in; i++)
    LS_TRY(ls_cuda_expect(&args->in[1 + i], LS_F32, "a token's sum", error));
  if (sums_in > 0) LS_TRY(ls_cuda_expect(&args->in[1 + sums_in], LS_I32, "the labels", error));
  if (kind == LS_OP_XENT_GRAD_EACH)
    LS_TRY(ls_cuda_expect(&args->in[4], LS_F32, "what tokens count", error));
  if (sums_in == 2) return ls_cuda_expect(&args->out[0], args->in[0].dtype, "the gradient", error);
  for (int o = 0; o < args->outputs; o++)
    LS_TRY(ls_cuda_expect(&args->out[o], LS_F32, "a token's sum", error));
  return LS_OK;
}

ls_status ls_cuda_choose_cross_entropy(ls_op_kind kind, const ls_kernel_args *args,
                                       ls_cuda_launches *launches, ls_error *error) {
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const char *suffix, *name = "ls_xent_max";
  LS_TRY(ls_cuda_suffix(logits->dtype, &suffix, error));
  LS_TRY(expect_sums(args, kind, error));
  ls_cuda_cross_entropy with = {.logits = ls_cuda_place_of(logits, false),
                                .rows = out->valid[0],
                                .columns = logits->valid[1],
                                .start = logits->start[1],
                                .wide = ls_cuda_is_wide(logits)};
  if (kind == LS_OP_XENT_MAX) {
    with.maxima = out->data;
  } else if (makes_sums(kind)) {
    name = "ls_xent_sum";
    with.largest = args->in[1].data, with.labels = args->in[2].data;
    with.shares = out->data, with.targets = args->out[1].data;
    with.add_shares = args->accumulate[0], with.add_targets = args->accumulate[1];
  } else {
    name = "ls_xent_grad";
    with.largest = args->in[1].data, with.sums = args->in[2].data;
    with.labels = args->in[3].data;
    if (kind == LS_OP_XENT_GRAD)
      with.scale = args->in[4].data;
    else
      with.each = args->in[4].data;
    with.out = ls_cuda_place_of(out, args->accumulate[0]);
    with.columns = ls_cuda_smaller(logits->valid[1], out->dims[1]);
    with.wide &= ls_cuda_is_wide(out);
  }
  if (with.rows == 0) return LS_OK;
  ls_cuda_add_launch(launches, name, suffix, ls_cuda_blocks(args->queue->facts, with.rows, EACH),
                     row_threads(logits), sizeof with)
      ->arguments.cross_entropy = with;
  return LS_OK;
}

/* Several labels of a token: what each class's cross-entropy comes to, and its slope. */
ls_status ls_cuda_choose_several(ls_op_kind kind, const ls_kernel_args *args,
                                 ls_cuda_launches *launches, ls_error *error) {
  enum { WARPS = 8 };
  const bool back = kind == LS_OP_BCE_GRAD;
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(logits->dtype, &suffix, error));
  const int weights = back ? 4 : 3;
  LS_TRY(ls_cuda_expect(&args->in[1], LS_I32, "the labels", error));
  LS_TRY(ls_cuda_expect(&args->in[2], LS_I32, "the sets", error));
  if (args->inputs > weights)
    LS_TRY(ls_cuda_expect(&args->in[weights], LS_F64, "what classes weigh", error));
  LS_TRY(ls_cuda_expect(out, back ? logits->dtype : LS_F32, "what classes come to", error));
  ls_cuda_cross_entropy with = {.logits = ls_cuda_place_of(logits, false),
                                .out = ls_cuda_place_of(out, args->accumulate[0]),
                                .labels = args->in[1].data,
                                .rows = out->valid[0],
                                .columns = logits->valid[1],
                                .start = logits->start[1],
                                .sets = args->in[2].data,
                                .weights = args->inputs > weights ? args->in[weights].data : NULL,
                                .words = args->in[2].dims[1],
                                .class_share = (float)args->attributes->scale};
  if (back) {
    with.scale = args->in[3].data;
    with.columns = ls_cuda_smaller(logits->valid[1], out->dims[1]);
  }
  if (with.rows == 0) return LS_OK;
  ls_cuda_add_launch(launches, back ? "ls_bce_grad" : "ls_bce_sum", suffix,
                     ls_cuda_blocks(args->queue->facts, ls_cuda_divide_up(with.rows, WARPS), EACH),
                     WARPS * LS_CUDA_WARP, sizeof with)
      ->arguments.cross_entropy = with;
  return LS_OK;
}

/* How often each token's loss counts. */
static ls_status token_slopes(const ls_kernel_args *args, ls_cuda_tokens *with,
                              ls_cuda_launches *launches, ls_error *error) {
  LS_TRY(ls_cuda_expect(&args->in[1], LS_F64, "what tokens weigh", error));
  LS_TRY(ls_cuda_expect(&args->out[0], LS_F32, "what tokens count", error));
  with->weights = args->in[1].data;
  with->scale = args->in[2].data;
  with->slopes = args->out[0].data;
  with->count = args->out[0].valid[0];
  if (with->count == 0) return LS_OK;
  ls_cuda_add_launch(
      launches, "ls_token_slopes", "",
      ls_cuda_blocks(args->queue->facts, ls_cuda_divide_up(with->count, THREADS), EACH), THREADS,
      sizeof *with)
      ->arguments.tokens = *with;
  return LS_OK;
}

ls_status ls_cuda_choose_tokens(ls_op_kind kind, const ls_kernel_args *args,
                                ls_cuda_launches *launches, ls_error *error) {
  const bool weighed = kind == LS_OP_XENT_LOSS_EACH, losses = weighed || kind == LS_OP_XENT_LOSS;
  const int labels = losses ? 3 : kind == LS_OP_BCE_LOSS ? 1 : 0;
  ls_cuda_tokens with = {.labels = args->in[labels].data,
                         .cell = args->out[0].data,
                         .count = args->in[0].valid[0],
                         .add = args->accumulate[0]};
  LS_TRY(ls_cuda_expect(&args->in[labels], LS_I32, "the labels", error));
  for (int i = 0; i < labels; i++)
    LS_TRY(ls_cuda_expect(&args->in[i], LS_F32, "a token's sum", error));
  if (kind == LS_OP_XENT_LOSS_EACH_BWD) return token_slopes(args, &with, launches, error);
  if (losses) {
    with.largest = args->in[0].data, with.sums = args->in[1].data;
    with.targets = args->in[2].data;
  }
  if (kind == LS_OP_BCE_LOSS) with.means = args->in[0].data;
  if (weighed || kind == LS_OP_COUNT_WEIGHTS) {
    LS_TRY(ls_cuda_expect(&args->in[labels + 1], LS_F64, "what tokens weigh", error));
    with.weights = args->in[labels + 1].data;
  }
  ls_cuda_add_launch(launches, "ls_token_sum", "", 1, ROW_THREADS, sizeof with)->arguments.tokens =
      with;
  return LS_OK;
}
