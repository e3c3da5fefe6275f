/* Launches of choices among experts: which are kept, and which slot each has. */
#include "device/cuda/kernels/cuda_choose.h"

enum { TILE = 256, EACH = 8, SHARED = 48 << 10 };

static ls_cuda_launch *add_slots(const ls_kernel_args *args, const char *name, int64_t count,
                                 const ls_cuda_slots *with, ls_cuda_launches *launches) {
  ls_cuda_launch *launch = ls_cuda_add_launch(
      launches, name, "", ls_cuda_blocks(args->queue->facts, ls_cuda_divide_up(count, TILE), EACH),
      TILE, sizeof *with);
  launch->arguments.slots = *with;
  return launch;
}

/* Whole numbers are int32, weights and their gradients fp32: one letter each, 'i' and 'r'; of what
 * is made nothing can be added to but the last. */
static ls_status expect_types(const ls_kernel_args *args, const char *in, const char *out,
                              ls_error *error) {
  for (int i = 0; in[i]; i++)
    LS_TRY(ls_cuda_expect(&args->in[i], in[i] == 'i' ? LS_I32 : LS_F32, "a choice", error));
  for (int o = 0; out[o]; o++) {
    const bool number = out[o] == 'i';
    LS_TRY(ls_cuda_expect(&args->out[o], number ? LS_I32 : LS_F32, "a choice", error));
    if (args->accumulate[o] && (number || out[1]))
      return ls_fail(error, LS_INTERNAL, "choices cannot be accumulated into");
  }
  return LS_OK;
}

static int64_t whole_count(const ls_view *view) {
  return view->dims[0] * (view->ndim > 1 ? view->dims[1] : 1);
}

static ls_status choices(const ls_kernel_args *args, ls_cuda_launches *launches, ls_error *error) {
  const ls_view *rows = &args->in[0];
  LS_TRY(expect_types(args, "ii", "i", error));
  const ls_cuda_slots with = {.rows = rows->data,
                              .experts = args->in[1].data,
                              .out_choices = args->out[0].data,
                              .choices = rows->valid[0] * rows->dims[1]};
  if (with.choices > 0) add_slots(args, "ls_choices", with.choices, &with, launches);
  return LS_OK;
}

static ls_status capacity(const ls_kernel_args *args, ls_cuda_launches *launches, ls_error *error) {
  const ls_attributes *by = args->attributes;
  const ls_view *of = &args->in[0], *dropped = &args->out[0];
  for (int i = 0; i < args->inputs; i++)
    LS_TRY(ls_cuda_expect(&args->in[i], LS_I32, "a choice", error));
  LS_TRY(ls_cuda_expect(dropped, LS_F64, "what is dropped", error));
  LS_TRY(ls_cuda_expect(&args->out[1], LS_I32, "a choice", error));
  if (args->accumulate[1]) return ls_fail(error, LS_INTERNAL, "choices cannot be accumulated into");
  const int64_t tokens = of->valid[0];
  const size_t shared = 2 * (size_t)by->experts * sizeof(int32_t);
  if (by->sequence <= 0 || tokens % by->sequence || shared > SHARED)
    return ls_fail(error, LS_INTERNAL,
                   "a capacity of %lld experts for %lld tokens in sequences of %lld; expected "
                   "whole sequences and at most %d experts",
                   (long long)by->experts, (long long)tokens, (long long)by->sequence,
                   SHARED / 2 / (int)sizeof(int32_t));
  const int64_t sequences = tokens / by->sequence;
  int32_t *workspace = args->workspace;
  const bool placed = args->inputs > 2;
  const ls_cuda_slots with = {
      .experts = of->data,
      .labels = args->in[1].data,
      .places = placed ? args->in[2].data : NULL,
      .out_choices = args->out[1].data,
      .cells = dropped->data,
      .dropped = workspace,
      .sequences = workspace + sequences * by->experts,
      .tokens_in_order = placed ? workspace + sequences * (by->experts + 1) : NULL,
      .tokens = tokens,
      .sequence = by->sequence,
      .slots = by->slots,
      .cell_count = dropped->dims[1],
      .chosen = (int32_t)of->dims[1],
      .none = (int32_t)by->experts,
      .add = args->accumulate[0]};
  LS_TRY(ls_cuda_expect_workspace(
      args, (size_t)(sequences * (by->experts + 1) + tokens) * sizeof(int32_t), error));
  if (tokens > 0 && placed) {
    add_slots(args, "ls_capacity_sequences", 1, &with, launches);
    add_slots(args, "ls_capacity_tokens", tokens, &with, launches);
  }
  if (tokens > 0) {
    ls_cuda_launch *take = add_slots(args, "ls_capacity_take", 1, &with, launches);
    take->grid[0] = (uint32_t)sequences;
    take->shared_bytes = (uint32_t)shared;
  }
  add_slots(args, "ls_capacity_dropped", with.cell_count, &with, launches);
  return LS_OK;
}

/* Choices, or slots, by their experts: rows in the order of these, none behind. */
static ls_status numbered(ls_op_kind kind, const ls_kernel_args *args, ls_cuda_launches *launches,
                          ls_error *error) {
  const bool keeps = kind == LS_OP_KEEP;
  const ls_view *experts = &args->in[keeps ? 2 : 0];
  const int32_t none = (int32_t)args->attributes->experts;
  LS_TRY(expect_types(args, keeps ? "iri" : "ir", "iir", error));
  ls_cuda_route route = {
      .tokens = keeps ? experts->valid[0] * experts->dims[1] : whole_count(experts),
      .experts = none + 1,
      .chosen = 1};
  LS_TRY(ls_cuda_number_rows(args, &route, error));
  const ls_cuda_slots with = {.rows = keeps ? args->in[0].data : NULL,
                              .experts = experts->data,
                              .numbers = args->in[1].data,
                              .out_choices = route.places,
                              .out_numbers = route.slot_weights,
                              .choices = route.tokens,
                              .none = none + !keeps}; /* slots of none weigh 0 already */
  if (route.tokens == 0) return LS_OK;
  add_slots(args, "ls_choices_begin", with.choices, &with, launches);
  ls_cuda_add_numbers(&route, launches);
  return LS_OK;
}

static ls_status numbered_back(ls_op_kind kind, const ls_kernel_args *args,
                               ls_cuda_launches *launches, ls_error *error) {
  const bool arrives = kind == LS_OP_ARRIVALS_BWD, keeps = kind == LS_OP_KEEP_BWD;
  const ls_view *of = &args->in[1];
  LS_TRY(expect_types(args, arrives ? "ri" : keeps ? "riii" : "rii", "r", error));
  const ls_cuda_slots with = {.rows = arrives ? NULL : of->data,
                              .experts = keeps ? args->in[3].data : NULL,
                              .kept = args->in[arrives ? 1 : 2].data,
                              .numbers = args->in[0].data,
                              .out_numbers = args->out[0].data,
                              .choices = arrives ? whole_count(of) : of->valid[0] * of->dims[1],
                              .none = (int32_t)args->attributes->experts,
                              .add = args->accumulate[0]};
  if (with.choices > 0) add_slots(args, "ls_choices_bwd", with.choices, &with, launches);
  return LS_OK;
}

static ls_status slots(const ls_kernel_args *args, ls_cuda_launches *launches, ls_error *error) {
  const ls_view *rows = &args->in[0], *experts = &args->out[1];
  LS_TRY(expect_types(args, "iir", "iir", error));
  const ls_cuda_slots with = {.rows = rows->data,
                              .experts = args->in[1].data,
                              .numbers = args->in[2].data,
                              .out_choices = args->out[0].data,
                              .out_experts = experts->data,
                              .out_numbers = args->out[2].data,
                              .choices = rows->valid[0] * rows->dims[1],
                              .slots = experts->dims[1],
                              .ranks = (int32_t)experts->dims[0],
                              .none = (int32_t)args->attributes->experts,
                              .held = (int32_t)args->attributes->held};
  if (whole_count(experts) > 0)
    add_slots(args, "ls_slots_clear", whole_count(experts), &with, launches);
  if (with.choices > 0) add_slots(args, "ls_slots_fill", with.choices, &with, launches);
  return LS_OK;
}

static ls_status left_out(const ls_kernel_args *args, ls_cuda_launches *launches, ls_error *error) {
  const ls_attributes *by = args->attributes;
  LS_TRY(ls_cuda_expect(&args->in[0], LS_I32, "the experts of rows", error));
  LS_TRY(ls_cuda_expect(&args->out[0], LS_F64, "the loss", error));
  const int64_t senders = by->turns > 0 ? by->turns : 1;
  const ls_cuda_slots with = {.experts = args->in[0].data,
                              .cells = args->out[0].data,
                              .choices = args->in[0].valid[0] / senders,
                              .sequence = senders,
                              .slots = by->slots,
                              .ranks = (int32_t)(by->experts / by->held),
                              .held = (int32_t)by->held,
                              .add = args->accumulate[0]};
  add_slots(args, "ls_slots_left_out", 1, &with, launches);
  return LS_OK;
}

ls_status ls_cuda_choose_choices(ls_op_kind kind, const ls_kernel_args *args,
                                 ls_cuda_launches *launches, ls_error *error) {
  switch (kind) {
    case LS_OP_CHOICES: return choices(args, launches, error);
    case LS_OP_CAPACITY: return capacity(args, launches, error);
    case LS_OP_KEEP:
    case LS_OP_ARRIVALS: return numbered(kind, args, launches, error);
    case LS_OP_SLOTS: return slots(args, launches, error);
    case LS_OP_LEFT_OUT: return left_out(args, launches, error);
    default: return numbered_back(kind, args, launches, error);
  }
}
