/* Launches of vectors of texts. */
#include "device/cuda/kernels/cuda_choose.h"

enum { THREADS = 256, WARPS = THREADS / LS_CUDA_WARP, ROW_THREADS = 512, EACH = 8 };

/* The tokens are of any type, all else is fp32. */
static ls_status expect_floats(const ls_kernel_args *args, int inputs, ls_error *error) {
  for (int i = 0; i < inputs; i++) LS_TRY(ls_cuda_expect(&args->in[i], LS_F32, "of texts", error));
  for (int o = 0; o < args->outputs; o++)
    LS_TRY(ls_cuda_expect(&args->out[o], LS_F32, "of texts", error));
  return LS_OK;
}

static ls_cuda_texts texts_of(const ls_kernel_args *args) {
  const ls_attributes *by = args->attributes;
  ls_cuda_texts with = {
      .pairs = (int32_t)by->pairs, .texts = (int32_t)by->texts, .scale = (float)by->scale};
  for (int o = 0; o < args->outputs; o++)
    with.out[o] = ls_cuda_place_of(&args->out[o], args->accumulate[o]);
  return with;
}

static void add(const ls_kernel_args *args, const char *name, const char *suffix, int64_t wanted,
                const ls_cuda_texts *with, ls_cuda_launches *launches) {
  if (wanted == 0) return;
  ls_cuda_add_launch(launches, name, suffix, ls_cuda_blocks(args->queue->facts, wanted, EACH),
                     THREADS, sizeof *with)
      ->arguments.texts = *with;
}

ls_status ls_cuda_choose_text_sums(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error) {
  enum { COLUMNS = LS_CUDA_WARP * LS_CUDA_PACK };
  const bool back = kind == LS_OP_TEXT_SUMS_BWD;
  const ls_view *sums = back ? &args->in[0] : &args->out[0];
  const ls_view *tokens = back ? &args->out[0] : &args->in[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(tokens->dtype, &suffix, error));
  LS_TRY(ls_cuda_expect(sums, LS_F32, "sums of texts", error));
  LS_TRY(ls_cuda_expect(&args->in[1], LS_I32, "labels", error));
  ls_cuda_texts with = texts_of(args);
  if (with.texts < 1 || with.pairs < 1)
    return ls_fail(error, LS_INTERNAL, "%s of no texts", ls_op_name(kind));
  with.in[0] = ls_cuda_place_of(&args->in[0], false);
  with.labels = args->in[1].data;
  with.tokens = tokens->valid[0];
  with.rows = sums->valid[0];
  with.start = sums->start[0];
  with.columns = args->in[0].valid[1];
  with.answers = args->attributes->answers ? with.texts - 1 : 0;
  with.wide = ls_cuda_is_wide(sums) && ls_cuda_is_wide(tokens);
  if (back) {
    add(args, "ls_text_sums_bwd", suffix, ls_cuda_divide_up(with.tokens, WARPS), &with, launches);
    return LS_OK;
  }
  with.bounds = args->workspace;
  LS_TRY(ls_cuda_expect_workspace(args, (size_t)(2 * with.rows) * sizeof(int32_t), error));
  const int64_t turns = with.rows * ls_cuda_divide_up(with.out[0].stride, COLUMNS);
  add(args, "ls_text_bounds", "", ls_cuda_divide_up(with.rows, WARPS), &with, launches);
  add(args, "ls_text_sums", suffix, ls_cuda_divide_up(turns, WARPS), &with, launches);
  return LS_OK;
}

ls_status ls_cuda_choose_unit_rows(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error) {
  const bool back = kind == LS_OP_UNIT_ROWS_BWD;
  LS_TRY(expect_floats(args, args->inputs, error));
  ls_cuda_texts with = texts_of(args);
  with.rows = args->out[0].valid[0];
  with.columns = args->in[back].valid[1];
  with.wide = ls_cuda_is_wide(&args->out[0]);
  for (int i = 0; i < (back ? 2 : 1); i++) {
    with.in[i] = ls_cuda_place_of(&args->in[i], false);
    with.wide &= ls_cuda_is_wide(&args->in[i]);
  }
  if (back) with.asking = args->in[2].data;
  add(args, back ? "ls_unit_rows_bwd" : "ls_unit_rows", "", ls_cuda_divide_up(with.rows, WARPS),
      &with, launches);
  return LS_OK;
}

ls_status ls_cuda_choose_text_match(ls_op_kind kind, const ls_kernel_args *args,
                                    ls_cuda_launches *launches, ls_error *error) {
  const bool back = kind == LS_OP_TEXT_MATCH_BWD;
  LS_TRY(expect_floats(args, back ? 5 : 4, error));
  ls_cuda_texts with = texts_of(args);
  with.answers = with.texts - 1;
  if (with.answers < 1 || with.pairs < 1)
    return ls_fail(error, LS_INTERNAL, "%s of texts without answers", ls_op_name(kind));
  with.in[0] = ls_cuda_place_of(&args->in[0], false);
  with.in[1] = ls_cuda_place_of(&args->in[2], false);
  with.asking = args->in[1].data;
  with.answering = args->in[3].data;
  with.rows = args->in[0].valid[0];
  with.others = args->in[2].valid[0];
  with.start = args->in[0].start[0];
  with.columns = args->in[0].valid[1];
  with.wide = ls_cuda_is_wide(&args->in[0]) && ls_cuda_is_wide(&args->in[2]);
  if (!back) {
    add(args, "ls_text_match", "", with.rows, &with, launches);
    return LS_OK;
  }
  LS_TRY(ls_cuda_expect(&args->in[5], LS_F64, "a cell", error));
  with.sums = args->in[4].data;
  with.root = args->in[5].data;
  with.wide &= ls_cuda_is_wide(&args->out[0]) && ls_cuda_is_wide(&args->out[1]);
  add(args, "ls_text_match_asking", "", with.rows, &with, launches);
  add(args, "ls_text_match_answering", "", with.others, &with, launches);
  return LS_OK;
}

ls_status ls_cuda_choose_text_total(ls_op_kind kind, const ls_kernel_args *args,
                                    ls_cuda_launches *launches, ls_error *error) {
  const bool loss = kind == LS_OP_TEXT_LOSS;
  for (int i = 0; i < args->inputs; i++)
    LS_TRY(ls_cuda_expect(&args->in[i], LS_F32, "of texts", error));
  LS_TRY(ls_cuda_expect(&args->out[0], LS_F64, "a cell", error));
  const ls_cuda_texts with = {.sums = args->in[0].data,
                              .own = loss ? args->in[1].data : NULL,
                              .asking = loss ? args->in[2].data : NULL,
                              .rows = args->in[0].valid[0],
                              .cell = args->out[0].data,
                              .add = args->accumulate[0]};
  ls_cuda_add_launch(launches, "ls_text_total", "", 1, ROW_THREADS, sizeof with)->arguments.texts =
      with;
  return LS_OK;
}
