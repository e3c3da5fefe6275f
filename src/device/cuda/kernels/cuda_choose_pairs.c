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

ls_status ls_cuda_choose_pairs(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error) {
  const bool first = kind == LS_OP_COUNT_PAIRS || kind == LS_OP_PAIR_SHARES;
  const int labels = kind == LS_OP_PAIR_LOSS ? 3 : first ? 0 : 1;
  const ls_view *ids = &args->in[labels];
  const int64_t sequence = args->attributes->sequence;
  if (sequence <= 0) return ls_fail(error, LS_INTERNAL, "pairs of sequences without a length");
  ls_cuda_pairs with = {.labels = ids->data,
                        .positions = args->in[labels + 1].data,
                        .beta = args->attributes->dpo_beta,
                        .smoothing = args->attributes->smoothing,
                        .own = args->attributes->scale,
                        .tokens = ids->valid[0],
                        .sequence = sequence,
                        .sequences = ls_cuda_divide_up(ids->valid[0], sequence)};
  for (int i = 0; i < 2; i++)
    LS_TRY(ls_cuda_expect(&args->in[labels + i], LS_I32, "labels and positions", error));
  if (kind == LS_OP_COUNT_PAIRS) return add_sums(args, &with, 1, "ls_count_pairs", launches, error);
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
