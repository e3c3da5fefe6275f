/* Launches of AdamW whose moments are of 8 bits. */
#include <string.h>

#include "base/codes.h"
#include "device/cuda/kernels/cuda_choose.h"
#include "ir/state.h"

enum { THREADS = 256, WARPS = THREADS / LS_CUDA_WARP, EACH = 8 };

_Static_assert(LS_STATE_BLOCK == 256 && LS_CODES == 256, "cuda_codes.cu has the same numbers");

/* Where the elements of a range lie in the whole parameter. */
static void place_range(const ls_kernel_args *args, const ls_view *range, ls_cuda_codes *with) {
  with->count = range->valid[0];
  with->start = range->start[0];
  with->stride = range->dims[1] > 0 ? range->dims[1] : 1;
  with->row = range->start[1];
  with->column = range->start[2];
  with->columns = args->attributes->columns;
}

static void add_codes(const ls_kernel_args *args, const char *name, int64_t blocks,
                      const ls_cuda_codes *with, ls_cuda_launches *launches) {
  if (blocks == 0) return;
  ls_cuda_add_launch(launches, name, "", ls_cuda_blocks(args->queue->facts, blocks, EACH), THREADS,
                     sizeof *with)
      ->arguments.codes = *with;
}

static ls_status keep(const ls_kernel_args *args, ls_cuda_launches *launches, ls_error *error) {
  const ls_cuda_codes with = {.largest = args->in[0].data,
                              .factor = args->in[1].data,
                              .made = args->out[0].data,
                              .count = args->out[0].valid[0]};
  LS_TRY(ls_cuda_expect(&args->in[0], LS_F32, "the largest of blocks", error));
  LS_TRY(ls_cuda_expect(&args->out[0], LS_F32, "the largest of blocks", error));
  add_codes(args, "ls_adamw8_keep", ls_cuda_divide_up(with.count, THREADS), &with, launches);
  return LS_OK;
}

ls_status ls_cuda_choose_codes(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error) {
  if (kind == LS_OP_ADAMW8_KEEP) return keep(args, launches, error);
  const bool updates = kind == LS_OP_ADAMW8;
  const ls_attributes *by = args->attributes;
  const ls_view *codes = updates ? &args->out[1] : &args->in[2], *before = &args->in[4];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(args->in[0].dtype, &suffix, error));
  for (int i = 0; i < 2; i++) LS_TRY(ls_cuda_expect(&codes[i], LS_U8, "moments", error));
  LS_TRY(ls_cuda_expect(before, LS_F32, "the largest of blocks", error));
  ls_cuda_codes with = {.factor = args->in[updates ? 3 : 1].data,
                        .gradient = ls_cuda_place_of(&args->in[0], false),
                        .firsts = codes[0].data,
                        .seconds = codes[1].data,
                        .before = before->data,
                        .blocks = before->valid[0] / 2,
                        .beta1 = by->beta1,
                        .beta2 = by->beta2,
                        .epsilon = by->epsilon,
                        .weight_decay = by->weight_decay,
                        .times = by->rate};
  memcpy(with.maps[0], ls_codes_signed, sizeof with.maps[0]);
  memcpy(with.maps[1], ls_codes_positive, sizeof with.maps[1]);
  place_range(args, updates ? &args->out[0] : &args->in[0], &with);
  if (with.columns <= 0)
    return ls_fail(error, LS_INTERNAL, "moments of a parameter without columns");
  LS_TRY(ls_cuda_expect(&args->out[0], LS_F32, "an optimizer's state", error));
  if (updates) {
    LS_TRY(ls_cuda_expect(&args->in[5], LS_F32, "the largest of blocks", error));
    with.rate = args->in[1].data, with.step = args->in[2].data;
    with.largest = args->in[5].data;
    with.master = args->out[0].data;
  } else {
    with.made = args->out[0].data;
  }
  add_codes(args, updates ? "ls_adamw8" : "ls_adamw8_largest",
            ls_cuda_divide_up(with.blocks, WARPS), &with, launches);
  return LS_OK;
}
