/* Grouped products: of each expert's rows the product of a weight that cpu_linear.c makes, one
 * expert after another. Rows of experts that other ranks have are zeros, and so are those behind
 * all, which are of none. */
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/linear_plan.h"

static ls_view rows_of(const ls_view *view, int64_t first, int64_t rows) {
  ls_view part = *view;
  part.data = (char *)view->data + (size_t)(first * view->dims[1]) * ls_dtype_bytes(view->dtype);
  part.dims[0] = part.valid[0] = rows;
  return part;
}

/* The operands of one expert, where rows [first, end) are its own. */
static ls_kernel_args args_of(const ls_grouped *grouped, const ls_kernel_args *args,
                              ls_held_experts held, int64_t expert, int64_t first, int64_t end) {
  ls_kernel_args one = *args;
  const ls_view *weights = grouped->gradient ? &args->out[0] : &args->in[1];
  const int64_t rows = weights->dims[0] / held.count;
  const ls_view matrix = rows_of(weights, (expert - held.first) * rows, rows);
  one.inputs = 2;
  one.in[0] = rows_of(&args->in[0], first, end - first);
  one.in[1] = grouped->gradient ? rows_of(&args->in[1], first, end - first) : matrix;
  one.out[0] = grouped->gradient ? matrix : rows_of(&args->out[0], first, end - first);
  return one;
}

static void clear(const ls_view *y, int64_t first, int64_t end) {
  const ls_view rows = rows_of(y, first, end - first);
  memset(rows.data, 0, (size_t)((end - first) * y->dims[1]) * ls_dtype_bytes(y->dtype));
}

static ls_status run(ls_op_kind kind, const ls_kernel_args *args, ls_error *error) {
  const ls_grouped grouped = ls_grouped_of(kind);
  const ls_held_experts held = ls_grouped_experts(&grouped, args);
  const int32_t *experts = args->in[2].data;
  const int64_t rows = args->in[0].valid[0];
  int64_t first = 0;
  for (int64_t e = 0; e <= args->attributes->experts; e++) {
    int64_t end = first;
    while (end < rows && experts[end] == e) end++;
    const ls_kernel_args one = args_of(&grouped, args, held, e, first, end);
    if (e >= held.first && e < held.first + held.count)
      LS_TRY(ls_cpu_linear(grouped.product, &one, error));
    else if (!grouped.gradient && !args->accumulate[0])
      clear(&args->out[0], first, end);
    first = end;
  }
  if (first == rows) return LS_OK;
  return ls_fail(error, LS_INTERNAL, "row %lld is of expert %d; expected rows sorted by %lld",
                 (long long)first, (int)experts[first], (long long)args->attributes->experts);
}

static ls_status kernel_up(const ls_kernel_args *args, ls_error *error) {
  return run(LS_OP_GROUPED_UP, args, error);
}

static ls_status kernel_up_dx(const ls_kernel_args *args, ls_error *error) {
  return run(LS_OP_GROUPED_UP_DX, args, error);
}

static ls_status kernel_up_dw(const ls_kernel_args *args, ls_error *error) {
  return run(LS_OP_GROUPED_UP_DW, args, error);
}

static ls_status kernel_down(const ls_kernel_args *args, ls_error *error) {
  return run(LS_OP_GROUPED_DOWN, args, error);
}

static ls_status kernel_down_dx(const ls_kernel_args *args, ls_error *error) {
  return run(LS_OP_GROUPED_DOWN_DX, args, error);
}

static ls_status kernel_down_dw(const ls_kernel_args *args, ls_error *error) {
  return run(LS_OP_GROUPED_DOWN_DW, args, error);
}

void ls_cpu_grouped_kernels(ls_kernel_table *table) {
  table->kernel[LS_OP_GROUPED_UP] = kernel_up;
  table->kernel[LS_OP_GROUPED_UP_DX] = kernel_up_dx;
  table->kernel[LS_OP_GROUPED_UP_DW] = kernel_up_dw;
  table->kernel[LS_OP_GROUPED_DOWN] = kernel_down;
  table->kernel[LS_OP_GROUPED_DOWN_DX] = kernel_down_dx;
  table->kernel[LS_OP_GROUPED_DOWN_DW] = kernel_down_dw;
}
