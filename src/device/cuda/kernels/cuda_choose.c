/* Which launches serve which op: the table, what all choosers share, and functions of elements. */
#include "device/cuda/kernels/cuda_choose.h"

_Static_assert(sizeof(ls_cuda_arguments) <= 4096, "CUDA before 12.1 takes 4 KiB of arguments");

/* Products of matrices are the library's; an op without a row here has no kernel. */
static const ls_cuda_chooser choosers[LS_OP_COUNT] = {
    [LS_OP_EMBEDDING] = ls_cuda_choose_embedding,
    [LS_OP_RESTORE_SCALES] = ls_cuda_choose_restore_scales,
    [LS_OP_DEQUANTIZE] = ls_cuda_choose_dequantize,
    [LS_OP_BIAS] = ls_cuda_choose_row,
    [LS_OP_ADD] = ls_cuda_choose_pointwise,
    [LS_OP_SCALE] = ls_cuda_choose_pointwise,
    [LS_OP_LAYERNORM] = ls_cuda_choose_norm,
    [LS_OP_RMSNORM] = ls_cuda_choose_norm,
    [LS_OP_HEADNORM] = ls_cuda_choose_norm,
    [LS_OP_ROW_SQUARES] = ls_cuda_choose_row,
    [LS_OP_ROW_SCALE] = ls_cuda_choose_norm,
    [LS_OP_ROPE_TABLE] = ls_cuda_choose_rope_table,
    [LS_OP_ROPE] = ls_cuda_choose_rope,
    [LS_OP_HEADS] = ls_cuda_choose_heads,
    [LS_OP_HEADS_UP] = ls_cuda_choose_heads_product,
    [LS_OP_HEADS_DOWN] = ls_cuda_choose_heads_product,
    [LS_OP_ATTENTION] = ls_cuda_choose_attention,
    [LS_OP_SINK_ATTENTION] = ls_cuda_choose_attention,
    [LS_OP_SINK_BWD] = ls_cuda_choose_sink_bwd,
    [LS_OP_RING_ATTENTION] = ls_cuda_choose_ring,
    [LS_OP_RING_END] = ls_cuda_choose_ring,
    [LS_OP_CACHED_ATTENTION] = ls_cuda_choose_cached_attention,
    [LS_OP_CACHED_PART] = ls_cuda_choose_cached_part,
    [LS_OP_CACHED_END] = ls_cuda_choose_cached_end,
    [LS_OP_GELU] = ls_cuda_choose_pointwise,
    [LS_OP_SWIGLU] = ls_cuda_choose_pointwise,
    [LS_OP_SOFTCAP] = ls_cuda_choose_pointwise,
    [LS_OP_DROPOUT] = ls_cuda_choose_dropout,
    [LS_OP_DROPOUT_BWD] = ls_cuda_choose_dropout,
    [LS_OP_AMAX] = ls_cuda_choose_amax,
    [LS_OP_FP8] = ls_cuda_choose_fp8,
    [LS_OP_ROW_AMAX] = ls_cuda_choose_amax,
    [LS_OP_ROW_FP8] = ls_cuda_choose_fp8,
    [LS_OP_RANGE_AMAX] = ls_cuda_choose_weight_codes,
    [LS_OP_FP8_CODES] = ls_cuda_choose_weight_codes,
    [LS_OP_FP8_DECODE] = ls_cuda_choose_weight_codes,
    [LS_OP_ROUTE] = ls_cuda_choose_route,
    [LS_OP_ROUTER_LOADS] = ls_cuda_choose_loads,
    [LS_OP_ROUTER_LOADS_EACH] = ls_cuda_choose_loads,
    [LS_OP_ROUTER_TOTAL] = ls_cuda_choose_loads_total,
    [LS_OP_ROUTER_LOSS] = ls_cuda_choose_router_loss,
    [LS_OP_ROUTER_LOSS_EACH] = ls_cuda_choose_router_loss,
    [LS_OP_ROW_SIGMOID] = ls_cuda_choose_row_sigmoid,
    [LS_OP_PAIRED_GLU] = ls_cuda_choose_paired,
    [LS_OP_GROUPED_BIAS] = ls_cuda_choose_expert_bias,
    [LS_OP_GROUPED_WEIGH] = ls_cuda_choose_expert_bias,
    [LS_OP_CHOICES] = ls_cuda_choose_choices,
    [LS_OP_CAPACITY] = ls_cuda_choose_choices,
    [LS_OP_KEEP] = ls_cuda_choose_choices,
    [LS_OP_SLOTS] = ls_cuda_choose_choices,
    [LS_OP_LEFT_OUT] = ls_cuda_choose_choices,
    [LS_OP_ARRIVALS] = ls_cuda_choose_choices,
    [LS_OP_TO_SLOTS] = ls_cuda_choose_routed,
    [LS_OP_FROM_SLOTS] = ls_cuda_choose_routed,
    [LS_OP_ARRIVE] = ls_cuda_choose_routed,
    [LS_OP_LEAVE] = ls_cuda_choose_routed,
    [LS_OP_DISPATCH] = ls_cuda_choose_routed,
    [LS_OP_GROUPED_UP] = ls_cuda_choose_grouped,
    [LS_OP_GROUPED_DOWN] = ls_cuda_choose_grouped,
    [LS_OP_WEIGH] = ls_cuda_choose_routed,
    [LS_OP_COMBINE] = ls_cuda_choose_routed,
    [LS_OP_XENT_MAX] = ls_cuda_choose_cross_entropy,
    [LS_OP_XENT_SUM] = ls_cuda_choose_cross_entropy,
    [LS_OP_XENT_LOSS] = ls_cuda_choose_tokens,
    [LS_OP_XENT_SUM_EACH] = ls_cuda_choose_cross_entropy,
    [LS_OP_XENT_LOSS_EACH] = ls_cuda_choose_tokens,
    [LS_OP_BCE_SUM] = ls_cuda_choose_several,
    [LS_OP_BCE_LOSS] = ls_cuda_choose_tokens,
    [LS_OP_DISTILL_SUM] = ls_cuda_choose_distill,
    [LS_OP_DISTILL_TOP_SUM] = ls_cuda_choose_distill,
    [LS_OP_DISTILL_LOSS] = ls_cuda_choose_distill,
    [LS_OP_TEXT_SUMS] = ls_cuda_choose_text_sums,
    [LS_OP_UNIT_ROWS] = ls_cuda_choose_unit_rows,
    [LS_OP_TEXT_MATCH] = ls_cuda_choose_text_match,
    [LS_OP_TEXT_LOSS] = ls_cuda_choose_text_total,
    [LS_OP_TEXT_FOUND] = ls_cuda_choose_text_total,
    [LS_OP_TOKEN_ROWS] = ls_cuda_choose_pairs,
    [LS_OP_PAIR_LOSS] = ls_cuda_choose_pairs,
    [LS_OP_PAIR_SHARES] = ls_cuda_choose_pairs,
    [LS_OP_PAIR_REWARDS] = ls_cuda_choose_pairs,
    [LS_OP_EMBEDDING_DW] = ls_cuda_choose_embedding,
    [LS_OP_BIAS_DB] = ls_cuda_choose_bias_db,
    [LS_OP_LAYERNORM_BWD] = ls_cuda_choose_norm,
    [LS_OP_RMSNORM_BWD] = ls_cuda_choose_norm,
    [LS_OP_HEADNORM_BWD] = ls_cuda_choose_norm,
    [LS_OP_ROW_SQUARES_BWD] = ls_cuda_choose_row,
    [LS_OP_ROW_SCALE_BWD] = ls_cuda_choose_norm,
    [LS_OP_ROPE_BWD] = ls_cuda_choose_rope,
    [LS_OP_HEADS_BWD] = ls_cuda_choose_heads,
    [LS_OP_HEADS_SHARED_BWD] = ls_cuda_choose_heads,
    [LS_OP_ATTENTION_BWD] = ls_cuda_choose_attention_bwd,
    [LS_OP_RING_BWD] = ls_cuda_choose_ring,
    [LS_OP_RING_END_BWD] = ls_cuda_choose_ring,
    [LS_OP_SCALE_BWD] = ls_cuda_choose_pointwise,
    [LS_OP_GELU_BWD] = ls_cuda_choose_pointwise,
    [LS_OP_SWIGLU_BWD] = ls_cuda_choose_pointwise,
    [LS_OP_SOFTCAP_BWD] = ls_cuda_choose_pointwise,
    [LS_OP_ROUTE_BWD] = ls_cuda_choose_route_bwd,
    [LS_OP_ROUTER_LOSS_BWD] = ls_cuda_choose_router_loss,
    [LS_OP_ROUTER_LOSS_EACH_BWD] = ls_cuda_choose_router_loss,
    [LS_OP_ROW_SIGMOID_BWD] = ls_cuda_choose_row_sigmoid,
    [LS_OP_PAIRED_GLU_BWD] = ls_cuda_choose_paired,
    [LS_OP_GROUPED_BIAS_DB] = ls_cuda_choose_expert_bias,
    [LS_OP_GROUPED_WEIGH_BWD] = ls_cuda_choose_expert_bias,
    [LS_OP_KEEP_BWD] = ls_cuda_choose_choices,
    [LS_OP_SLOTS_BWD] = ls_cuda_choose_choices,
    [LS_OP_ARRIVALS_BWD] = ls_cuda_choose_choices,
    [LS_OP_TO_SLOTS_BWD] = ls_cuda_choose_routed,
    [LS_OP_FROM_SLOTS_BWD] = ls_cuda_choose_routed,
    [LS_OP_ARRIVE_BWD] = ls_cuda_choose_routed,
    [LS_OP_LEAVE_BWD] = ls_cuda_choose_routed,
    [LS_OP_DISPATCH_BWD] = ls_cuda_choose_routed,
    [LS_OP_GROUPED_UP_DX] = ls_cuda_choose_grouped,
    [LS_OP_GROUPED_UP_DW] = ls_cuda_choose_grouped,
    [LS_OP_GROUPED_DOWN_DX] = ls_cuda_choose_grouped,
    [LS_OP_GROUPED_DOWN_DW] = ls_cuda_choose_grouped,
    [LS_OP_WEIGH_BWD] = ls_cuda_choose_routed,
    [LS_OP_COMBINE_BWD] = ls_cuda_choose_routed,
    [LS_OP_XENT_GRAD] = ls_cuda_choose_cross_entropy,
    [LS_OP_XENT_GRAD_EACH] = ls_cuda_choose_cross_entropy,
    [LS_OP_XENT_LOSS_EACH_BWD] = ls_cuda_choose_tokens,
    [LS_OP_BCE_GRAD] = ls_cuda_choose_several,
    [LS_OP_DISTILL_GRAD] = ls_cuda_choose_distill,
    [LS_OP_DISTILL_TOP_GRAD] = ls_cuda_choose_distill,
    [LS_OP_COUNT_WEIGHTS] = ls_cuda_choose_tokens,
    [LS_OP_TEXT_SUMS_BWD] = ls_cuda_choose_text_sums,
    [LS_OP_UNIT_ROWS_BWD] = ls_cuda_choose_unit_rows,
    [LS_OP_TEXT_MATCH_BWD] = ls_cuda_choose_text_match,
    [LS_OP_PAIR_LOSS_BWD] = ls_cuda_choose_pairs,
    [LS_OP_COUNT_VALID] = ls_cuda_choose_tokens,
    [LS_OP_ZERO] = ls_cuda_choose_cells,
    [LS_OP_RECIPROCAL] = ls_cuda_choose_cells,
    [LS_OP_SQUARED_NORM] = ls_cuda_choose_squares,
    [LS_OP_CLIP_FACTOR] = ls_cuda_choose_cells,
    [LS_OP_ADAMW] = ls_cuda_choose_optimizer,
    [LS_OP_SGD] = ls_cuda_choose_optimizer,
    [LS_OP_LION] = ls_cuda_choose_optimizer,
    [LS_OP_LION_SPECULATE] = ls_cuda_choose_optimizer,
    [LS_OP_ADAMW_SPECULATE] = ls_cuda_choose_optimizer,
    [LS_OP_SGD_SPECULATE] = ls_cuda_choose_optimizer,
    [LS_OP_ADAMW8_LARGEST] = ls_cuda_choose_codes,
    [LS_OP_ADAMW8] = ls_cuda_choose_codes,
    [LS_OP_ADAMW8_KEEP] = ls_cuda_choose_codes,
    [LS_OP_SCHEDULEFREE] = ls_cuda_choose_optimizer,
    [LS_OP_SCHEDULEFREE_POINT] = ls_cuda_choose_point,
    [LS_OP_MUON_MOMENTUM] = ls_cuda_choose_muon,
    [LS_OP_ORTHOGONALISE] = ls_cuda_choose_orthogonalise,
    [LS_OP_MUON] = ls_cuda_choose_muon,
    [LS_OP_ADAFACTOR_SUMS] = ls_cuda_choose_adafactor,
    [LS_OP_ADAFACTOR_KEEP] = ls_cuda_choose_adafactor,
    [LS_OP_ADAFACTOR_DIRECTION] = ls_cuda_choose_adafactor,
    [LS_OP_ADAFACTOR_SECOND] = ls_cuda_choose_adafactor,
    [LS_OP_ADAFACTOR_DIVIDE] = ls_cuda_choose_adafactor,
    [LS_OP_ADAFACTOR] = ls_cuda_choose_adafactor,
    [LS_OP_CAST] = ls_cuda_choose_move,
    [LS_OP_COPY] = ls_cuda_choose_move,
};

bool ls_cuda_serves(ls_op_kind kind) {
  return choosers[kind] != NULL;
}

ls_status ls_cuda_choose(ls_op_kind kind, const ls_kernel_args *args, ls_cuda_launches *launches,
                         ls_error *error) {
  launches->count = 0;
  if (choosers[kind]) return choosers[kind](kind, args, launches, error);
  return ls_fail(error, LS_INTERNAL, "%s has no CUDA kernel", ls_op_name(kind));
}

ls_cuda_launch *ls_cuda_add_launch(ls_cuda_launches *launches, const char *name, const char *suffix,
                                   uint32_t blocks, uint32_t threads, size_t argument_bytes) {
  LS_ASSERT(launches->count < LS_CUDA_MAX_LAUNCHES);
  ls_cuda_launch *launch = &launches->launch[launches->count++];
  *launch = (ls_cuda_launch){.name = {name, suffix},
                             .grid = {blocks, 1, 1},
                             .block = threads,
                             .argument_bytes = argument_bytes};
  return launch;
}

ls_status ls_cuda_suffix(ls_dtype dtype, const char **suffix, ls_error *error) {
  switch (dtype) {
    case LS_F32: *suffix = "_fp32"; return LS_OK;
    case LS_BF16: *suffix = "_bf16"; return LS_OK;
    case LS_F16: *suffix = "_fp16"; return LS_OK;
    default: break;
  }
  return ls_fail(error, LS_INTERNAL, "CUDA kernels compute in fp32, bf16 and fp16, not in %s",
                 ls_dtype_name(dtype));
}

ls_status ls_cuda_expect(const ls_view *view, ls_dtype dtype, const char *what, ls_error *error) {
  if (view->dtype == dtype) return LS_OK;
  return ls_fail(error, LS_INTERNAL, "%s is %s; the CUDA kernel expects %s", what,
                 ls_dtype_name(view->dtype), ls_dtype_name(dtype));
}

ls_status ls_cuda_expect_workspace(const ls_kernel_args *args, size_t bytes, ls_error *error) {
  if (bytes <= args->workspace_bytes) return LS_OK;
  return ls_fail(error, LS_INTERNAL, "a CUDA kernel wants %zu bytes of workspace and is given %zu",
                 bytes, args->workspace_bytes);
}

int64_t ls_cuda_stride(const ls_view *view) {
  int64_t columns = 1;
  for (int d = 1; d < view->ndim; d++) columns *= view->dims[d];
  return columns;
}

ls_cuda_place ls_cuda_place_of(const ls_view *view, bool add) {
  return (ls_cuda_place){.data = view->data,
                         .stride = ls_cuda_stride(view),
                         .dtype = (int32_t)view->dtype,
                         .add = add};
}

bool ls_cuda_is_wide(const ls_view *view) {
  enum { WORDS = 16 };
  const size_t row = (size_t)ls_cuda_stride(view) * ls_dtype_bytes(view->dtype);
  return (uintptr_t)view->data % WORDS == 0 && (view->ndim == 1 || row % WORDS == 0);
}

ls_cuda_extent ls_cuda_extent_of(const ls_view *view, bool whole) {
  if (view->ndim == 1) return (ls_cuda_extent){1, view->valid[0]};
  int64_t columns = view->valid[1];
  for (int d = 2; d < view->ndim; d++) columns *= view->dims[d];
  if (whole && columns == ls_cuda_stride(view))
    return (ls_cuda_extent){1, view->valid[0] * columns};
  return (ls_cuda_extent){view->valid[0], columns};
}

uint32_t ls_cuda_blocks(const ls_device_facts *facts, int64_t wanted, int each) {
  const int64_t most = (int64_t)facts->processors * each;
  return (uint32_t)(wanted < 1 ? 1 : ls_cuda_smaller(wanted, most));
}

ls_status ls_cuda_choose_paired(ls_op_kind kind, const ls_kernel_args *args,
                                ls_cuda_launches *launches, ls_error *error) {
  enum { THREADS = 256, EACH = 8 };
  const bool back = kind == LS_OP_PAIRED_GLU_BWD;
  const ls_view *made = back ? &args->in[0] : &args->out[0], *pairs = &args->in[back ? 1 : 0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(pairs->dtype, &suffix, error));
  ls_cuda_pointwise with = {.count = args->out[0].valid[0] * ls_cuda_stride(made),
                            .number = (float)args->attributes->gate_limit,
                            .slope = (float)args->attributes->gate_slope,
                            .out = {ls_cuda_place_of(&args->out[0], args->accumulate[0])},
                            .wide = (uintptr_t)args->out[0].data % sizeof(uint64_t[2]) == 0};
  LS_TRY(ls_cuda_expect(&args->out[0], pairs->dtype, "an operand", error));
  for (int i = 0; i < args->inputs; i++) {
    LS_TRY(ls_cuda_expect(&args->in[i], pairs->dtype, "an operand", error));
    with.in[i] = ls_cuda_place_of(&args->in[i], false);
    with.wide &= (uintptr_t)args->in[i].data % sizeof(uint64_t[2]) == 0;
  }
  if (ls_cuda_stride(pairs) != 2 * ls_cuda_stride(made))
    return ls_fail(error, LS_INTERNAL, "%s of %lld columns and %lld made; expected half as many",
                   ls_op_name(kind), (long long)ls_cuda_stride(pairs),
                   (long long)ls_cuda_stride(made));
  if (with.count == 0) return LS_OK;
  const int64_t wanted = ls_cuda_divide_up(with.count, (int64_t)THREADS * LS_CUDA_PACK);
  ls_cuda_add_launch(launches, back ? "ls_paired_glu_bwd" : "ls_paired_glu", suffix,
                     ls_cuda_blocks(args->queue->facts, wanted, EACH), THREADS, sizeof with)
      ->arguments.pointwise = with;
  return LS_OK;
}

static const char *pointwise_name(ls_op_kind kind) {
  switch (kind) {
    case LS_OP_ADD: return "ls_add";
    case LS_OP_SCALE:
    case LS_OP_SCALE_BWD: return "ls_scale";
    case LS_OP_GELU: return "ls_gelu";
    case LS_OP_GELU_BWD: return "ls_gelu_bwd";
    case LS_OP_SWIGLU: return "ls_swiglu";
    case LS_OP_SWIGLU_BWD: return "ls_swiglu_bwd";
    case LS_OP_SOFTCAP: return "ls_softcap";
    default: return "ls_softcap_bwd";
  }
}

ls_status ls_cuda_choose_pointwise(ls_op_kind kind, const ls_kernel_args *args,
                                   ls_cuda_launches *launches, ls_error *error) {
  enum { THREADS = 256, EACH = 8 };
  const ls_view *out = &args->out[0];
  const char *suffix;
  LS_TRY(ls_cuda_suffix(out->dtype, &suffix, error));
  const bool scales = kind == LS_OP_SCALE || kind == LS_OP_SCALE_BWD;
  ls_cuda_pointwise with = {
      .count = out->valid[0] * ls_cuda_stride(out),
      .number = (float)(scales ? args->attributes->scale : args->attributes->softcap),
      .activation = (int32_t)args->attributes->activation,
      .wide = true};
  for (int i = 0; i < args->inputs + args->outputs; i++) {
    const ls_view *view = i < args->inputs ? &args->in[i] : &args->out[i - args->inputs];
    LS_TRY(ls_cuda_expect(view, out->dtype, "an operand", error));
    if (ls_cuda_stride(view) != ls_cuda_stride(out))
      return ls_fail(error, LS_INTERNAL, "%s of %lld and %lld columns", ls_op_name(kind),
                     (long long)ls_cuda_stride(view), (long long)ls_cuda_stride(out));
    with.wide &= (uintptr_t)view->data % sizeof(uint64_t[2]) == 0; /* one run of elements */
  }
  for (int i = 0; i < args->inputs; i++) with.in[i] = ls_cuda_place_of(&args->in[i], false);
  for (int o = 0; o < args->outputs; o++)
    with.out[o] = ls_cuda_place_of(&args->out[o], args->accumulate[o]);
  if (with.count == 0) return LS_OK;
  const int64_t wanted = ls_cuda_divide_up(with.count, (int64_t)THREADS * LS_CUDA_PACK);
  ls_cuda_add_launch(launches, pointwise_name(kind), suffix,
                     ls_cuda_blocks(args->queue->facts, wanted, EACH), THREADS, sizeof with)
      ->arguments.pointwise = with;
  return LS_OK;
}
