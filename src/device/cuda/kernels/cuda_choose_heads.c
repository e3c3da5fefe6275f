/* Launches of heads made wider or narrower, and of distillation. */
#include "device/cuda/kernels/cuda_choose.h"

enum { THREADS = 256, ROW_THREADS = 512, EACH = 8 };

static ls_status expect_same(const ls_kernel_args *args, ls_error *error) {
  for (int i = 0; i < args->inputs; i++)
    LS_TRY(ls_cuda_expect(&args->in[i], args->out[0].dtype, "a head's operand", error));
  return LS_OK;
}

/* `wide`: the side that has `columns` to a head. */
static ls_status heads_of(const ls_kernel_args *args, const ls_view *wide, int64_t shared,
                          ls_cuda_heads *with, ls_error *error) {
  const int64_t head_dim = args->attributes->head_dim, columns = args->attributes->columns;
  LS_TRY(expect_same(args, error));
  if (head_dim <= 0 || columns <= 0 || wide->dims[1] % columns)
    return ls_fail(error, LS_INTERNAL,
                   "heads of %lld columns in %lld; expected whole heads of at least one",
                   (long long)columns, (long long)wide->dims[1]);
  const int64_t own = ls_cuda_smaller(head_dim, columns);
  *with = (ls_cuda_heads){.x = ls_cuda_place_of(&args->in[0], false),
                          .out = ls_cuda_place_of(&args->out[0], args->accumulate[0]),
                          .tokens = args->out[0].valid[0],
                          .heads = (int32_t)(wide->dims[1] / columns),
                          .head_dim = (int32_t)head_dim,
                          .columns = (int32_t)columns,
                          .own = (int32_t)own,
                          .shared_columns = (int32_t)ls_cuda_smaller(shared, columns - own)};
  return LS_OK;
}

static ls_cuda_launch *add_heads(ls_cuda_launches *launches, const char *name, const char *suffix,
                                 int64_t blocks, const ls_cuda_heads *with) {
  ls_cuda_launch *launch =
      ls_cuda_add_launch(launches, name, suffix, (uint32_t)blocks, THREADS, sizeof *with);
  launch->arguments.heads = *with;
  return launch;
}

ls_status ls_cuda_choose_heads(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error) {
  const bool forward = kind == LS_OP_HEADS, shares = kind == LS_OP_HEADS_SHARED_BWD;
  const int64_t shared = shares                        ? args->out[0].dims[1]
                         : forward && args->inputs > 1 ? args->in[1].dims[1]
                                                       : 0;
  const char *suffix;
  ls_cuda_heads with;
  LS_TRY(ls_cuda_suffix(args->out[0].dtype, &suffix, error));
  LS_TRY(heads_of(args, forward ? &args->out[0] : &args->in[0], shared, &with, error));
  if (forward && args->inputs > 1) with.shared = ls_cuda_place_of(&args->in[1], false);
  if (with.tokens == 0) return LS_OK;
  add_heads(launches,
            forward  ? "ls_heads"
            : shares ? "ls_heads_shared_bwd"
                     : "ls_heads_bwd",
            suffix, ls_cuda_blocks(args->queue->facts, with.tokens, EACH), &with);
  return LS_OK;
}

ls_status ls_cuda_choose_heads_product(ls_op_kind kind, const ls_kernel_args *args,
                                       ls_cuda_launches *launches, ls_error *error) {
  enum { TOKENS = 8, WARPS = THREADS / LS_CUDA_WARP, MOST_BLOCKS = 65535 }; /* cuda_heads.cu */
  const bool up = kind == LS_OP_HEADS_UP;
  const ls_view *x = &args->in[0], *weight = &args->in[1], *y = &args->out[0];
  const int64_t head_dim = args->attributes->head_dim;
  const int64_t heads = head_dim > 0 ? x->dims[1] / head_dim : 0;
  const int64_t rows = heads > 0 ? weight->dims[0] / heads : 0, width = weight->dims[1];
  const int64_t columns = up ? args->attributes->columns : rows; /* of a head of y */
  const char *suffix;
  LS_TRY(ls_cuda_suffix(y->dtype, &suffix, error));
  LS_TRY(expect_same(args, error));
  const bool fits = up ? rows <= head_dim && columns == width + head_dim - rows : width <= head_dim;
  const int64_t turns = ls_cuda_divide_up(y->valid[0], TOKENS);
  if (heads == 0 || x->dims[1] != heads * head_dim || weight->dims[0] != heads * rows || !fits ||
      y->dims[1] != heads * columns || turns > MOST_BLOCKS)
    return ls_fail(error, LS_INTERNAL,
                   "matrices of %lld rows and %lld columns for %lld columns in heads of %lld; "
                   "expected whole heads, each with as many rows",
                   (long long)weight->dims[0], (long long)width, (long long)x->dims[1],
                   (long long)head_dim);
  const ls_cuda_heads with = {.x = ls_cuda_place_of(x, false),
                              .weight = ls_cuda_place_of(weight, false),
                              .out = ls_cuda_place_of(y, args->accumulate[0]),
                              .tokens = y->valid[0],
                              .heads = (int32_t)heads,
                              .head_dim = (int32_t)head_dim,
                              .columns = (int32_t)columns,
                              .rows = (int32_t)rows,
                              .weight_columns = (int32_t)width};
  if (with.tokens == 0 || columns == 0) return LS_OK;
  ls_cuda_launch *launch =
      add_heads(launches, up ? "ls_heads_up" : "ls_heads_down", suffix,
                up ? ls_cuda_divide_up(columns, THREADS) : ls_cuda_divide_up(rows, WARPS), &with);
  launch->grid[1] = (uint32_t)heads;
  launch->grid[2] = (uint32_t)turns;
  return LS_OK;
}

static ls_status distill_loss(const ls_kernel_args *args, ls_cuda_launches *launches,
                              ls_error *error) {
  const ls_view *sums = &args->in[1];
  ls_cuda_distill with = {.largest = args->in[0].data,
                          .sums = ls_cuda_place_of(sums, false),
                          .labels = args->in[2].data,
                          .rows = args->in[0].valid[0],
                          .inverse = args->attributes->softmax_scale,
                          .share = args->attributes->scale};
  for (int i = 0; i < 2; i++) LS_TRY(ls_cuda_expect(&args->in[i], LS_F32, "a token's sum", error));
  LS_TRY(ls_cuda_expect(&args->in[2], LS_I32, "the labels", error));
  for (int o = 0; o < 3; o++) {
    LS_TRY(ls_cuda_expect(&args->out[o], LS_F64, "a cell", error));
    with.cells[o] = args->out[o].data;
    with.add[o] = args->accumulate[o];
  }
  ls_cuda_add_launch(launches, "ls_distill_loss", "", 1, ROW_THREADS, sizeof with)
      ->arguments.distill = with;
  return LS_OK;
}

/* What the teacher says: logits of its own with their max, or the ids it finds likeliest. */
static ls_status set_teacher(const ls_kernel_args *args, bool top, ls_cuda_distill *with,
                             ls_error *error) {
  const ls_view *logits = &args->in[0], *its = &args->in[2], *beside = &args->in[3];
  LS_TRY(ls_cuda_expect(beside, LS_F32, "what the teacher says", error));
  if (!top) {
    LS_TRY(ls_cuda_expect(its, logits->dtype, "the teacher's logits", error));
    with->its = ls_cuda_place_of(its, false);
    with->its_largest = beside->data;
    with->wide = ls_cuda_is_wide(logits) && ls_cuda_is_wide(its);
    return LS_OK;
  }
  LS_TRY(ls_cuda_expect(its, LS_I32, "the teacher's likeliest ids", error));
  with->ids = its->data;
  with->below = beside->data;
  with->top = its->dims[1];
  with->wide = ls_cuda_is_wide(logits);
  if (beside->dims[1] == with->top && its->valid[1] == with->top) return LS_OK;
  return ls_fail(error, LS_INTERNAL, "%lld ids of a teacher with %lld logits; expected as many",
                 (long long)with->top, (long long)beside->dims[1]);
}

ls_status ls_cuda_choose_distill(ls_op_kind kind, const ls_kernel_args *args,
                                 ls_cuda_launches *launches, ls_error *error) {
  if (kind == LS_OP_DISTILL_LOSS) return distill_loss(args, launches, error);
  const bool back = kind == LS_OP_DISTILL_GRAD || kind == LS_OP_DISTILL_TOP_GRAD;
  const bool top = kind == LS_OP_DISTILL_TOP_SUM || kind == LS_OP_DISTILL_TOP_GRAD;
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const int labels = back ? 5 : 4;
  const char *suffix;
  LS_TRY(ls_cuda_suffix(logits->dtype, &suffix, error));
  LS_TRY(ls_cuda_expect(out, back ? logits->dtype : LS_F32, "a token's sums", error));
  LS_TRY(ls_cuda_expect(&args->in[1], LS_F32, "a token's largest logit", error));
  LS_TRY(ls_cuda_expect(&args->in[labels], LS_I32, "the labels", error));
  ls_cuda_distill with = {.logits = ls_cuda_place_of(logits, false),
                          .out = ls_cuda_place_of(out, args->accumulate[0]),
                          .largest = args->in[1].data,
                          .labels = args->in[labels].data,
                          .rows = out->valid[0],
                          .columns = logits->valid[1],
                          .start = logits->start[1],
                          .inverse = args->attributes->softmax_scale,
                          .share = args->attributes->scale};
  LS_TRY(set_teacher(args, top, &with, error));
  if (back) {
    LS_TRY(ls_cuda_expect(&args->in[4], LS_F32, "a token's sums", error));
    LS_TRY(ls_cuda_expect(&args->in[6], LS_F64, "the loss's gradient", error));
    with.sums = ls_cuda_place_of(&args->in[4], false);
    with.scale = args->in[6].data;
    with.columns = ls_cuda_smaller(logits->valid[1], out->dims[1]);
    with.wide &= ls_cuda_is_wide(out);
  }
  if (with.rows == 0) return LS_OK;
  static const char *const names[2][2] = {{"ls_distill_sum", "ls_distill_grad"},
                                          {"ls_distill_top_sum", "ls_distill_top_grad"}};
  const int64_t packs = ls_cuda_divide_up(ls_cuda_stride(logits), LS_CUDA_PACK * LS_CUDA_WARP);
  const int64_t threads = ls_cuda_smaller((packs < 1 ? 1 : packs) * LS_CUDA_WARP, ROW_THREADS);
  ls_cuda_add_launch(launches, names[top][back], suffix,
                     ls_cuda_blocks(args->queue->facts, with.rows, EACH), (uint32_t)threads,
                     sizeof with)
      ->arguments.distill = with;
  return LS_OK;
}
