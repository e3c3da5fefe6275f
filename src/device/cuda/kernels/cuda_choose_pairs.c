/* Launches of the loss of pairs. */
#include "device/cuda/kernels/cuda_choose.h"

/* Sums over sequences, to the first `sums` outputs. */
static ls_status add_sums(const ls_kernel_args *args, ls_cuda_pairs *with, int sums,
                          const char *name, ls_cuda_launches *launches, ls_error *error) {
  enum { EACH = 32 };
  const int64_t sequences = with->sequences;
  LS_TRY(ls_cuda_expect_workspace(args, (size_t)(sums * sequences) * sizeof(double), error));
  with->parts = args->workspace;
  for (int o = 0; o < sums; o++) {
    LS_TRY(ls_cuda_expect(&args->out[o], LS_F64, "a cell", error));
    with->cells[o] = args->out[o].data;
    with->add[o] = args->accumulate[o];
  }
  if (sequences > 0)
    ls_cuda_add_launch(launches, name, "", ls_cuda_blocks(args->queue->facts, sequences, EACH),
                       LS_CUDA_WARP, sizeof *with)
        ->arguments.pairs = *with;
  if (sums > 0)
    ls_cuda_add_launch(launches, "ls_pair_sums", "", (uint32_t)sums, LS_CUDA_WARP, sizeof *with)
        ->arguments.pairs = *with;
  return LS_OK;
}

static ls_status token_rows(const ls_kernel_args *args, ls_cuda_launches *launches,
                            ls_error *error) {
  enum { EACH = 256 };
  const ls_view *places = &args->in[0];
  const ls_cuda_pairs with = {.places = places->data,
                              .out_rows = args->out[0].data,
                              .tokens = places->valid[0],
                              .start = places->start[0]};
  LS_TRY(ls_cuda_expect(places, LS_I32, "places", error));
  LS_TRY(ls_cuda_expect(&args->out[0], LS_I32, "rows of tokens", error));
  if (args->accumulate[0]) return ls_fail(error, LS_INTERNAL, "rows cannot be added to");
  if (with.tokens > 0)
    ls_cuda_add_launch(launches, "ls_token_rows", "",
                       ls_cuda_blocks(args->queue->facts, with.tokens, EACH), EACH, sizeof with)
        ->arguments.pairs = with;
  return LS_OK;
}

/* The input that has labels, before the positions; and that which may have tokens' rows. */
static void find_inputs(ls_op_kind kind, int *labels, int *rows) {
  *labels = kind == LS_OP_PAIR_LOSS ? 3 : kind == LS_OP_PAIR_SHARES ? 0 : 1;
  *rows = kind == LS_OP_PAIR_LOSS      ? 6
          : kind == LS_OP_PAIR_SHARES  ? 2
          : kind == LS_OP_PAIR_REWARDS ? 3
                                       : 4;
}

ls_status ls_cuda_choose_pairs(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error) {
  int labels, rows;
  if (kind == LS_OP_TOKEN_ROWS) return token_rows(args, launches, error);
  find_inputs(kind, &labels, &rows);
  const ls_view *ids = &args->in[labels];
  const int64_t sequence = args->attributes->sequence;
  if (sequence <= 0) return ls_fail(error, LS_INTERNAL, "pairs of sequences without a length");
  ls_cuda_pairs with = {.labels = ids->data,
                        .positions = args->in[labels + 1].data,
                        .row_of_token = rows < args->inputs ? args->in[rows].data : NULL,
                        .beta = args->attributes->dpo_beta,
                        .smoothing = args->attributes->smoothing,
                        .own = args->attributes->scale,
                        .tokens = ids->valid[0],
                        .sequence = sequence,
                        .sequences = ls_cuda_divide_up(ids->valid[0], sequence)};
  for (int i = 0; i < 2; i++)
    LS_TRY(ls_cuda_expect(&args->in[labels + i], LS_I32, "labels and positions", error));
  if (with.row_of_token) LS_TRY(ls_cuda_expect(&args->in[rows], LS_I32, "rows of tokens", error));
  if (kind == LS_OP_PAIR_SHARES) {
    LS_TRY(ls_cuda_expect(&args->out[0], LS_F32, "tokens' shares of pairs", error));
    with.slopes = args->out[0].data;
    with.add_slopes = args->accumulate[0];
    return add_sums(args, &with, 0, "ls_pair_shares", launches, error);
  }
  if (kind == LS_OP_PAIR_LOSS) {
    for (int i = 0; i < 3; i++)
      LS_TRY(ls_cuda_expect(&args->in[i], LS_F32, "a token's sum", error));
    LS_TRY(ls_cuda_expect(&args->in[5], LS_F64, "the reference", error));
    LS_TRY(ls_cuda_expect(&args->out[1], LS_F64, "answers", error));
    if (args->accumulate[1]) return ls_fail(error, LS_INTERNAL, "answers cannot be added to");
    with.largest = args->in[0].data, with.sums = args->in[1].data;
    with.targets = args->in[2].data, with.reference = args->in[5].data;
    with.answers = args->out[1].data;
    return add_sums(args, &with, 1, "ls_pair_loss", launches, error);
  }
  LS_TRY(ls_cuda_expect(&args->in[0], LS_F64, "answers", error));
  with.answers = args->in[0].data;
  if (kind == LS_OP_PAIR_REWARDS)
    return add_sums(args, &with, 3, "ls_pair_rewards", launches, error);
  LS_TRY(ls_cuda_expect(&args->out[0], LS_F32, "what tokens count", error));
  with.scale = args->in[3].data;
  with.slopes = args->out[0].data;
  with.add_slopes = args->accumulate[0];
  return add_sums(args, &with, 0, "ls_pair_loss_bwd", launches, error);
}
