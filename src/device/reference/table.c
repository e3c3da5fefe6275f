#include "base/arena.h"
#include "device/reference/reference.h"

static bool is_floating(ls_dtype dtype) {
  return dtype == LS_F32 || dtype == LS_BF16 || dtype == LS_F16 || dtype == LS_F64;
}

static ls_status expect_operand(const ls_view *view, char letter, ls_dtype real, const char *side,
                                int index, ls_error *error) {
  ls_dtype wanted = real;
  switch (letter) {
    case 'i': wanted = LS_I32; break;
    case 'c':
    case 'C': wanted = LS_U8; break;
    case 'd':
    case 'D': wanted = LS_F64; break;
    case 'b':
      if (ls_dtype_numbers(view->dtype) > 1) return LS_OK;
      break;
    case '*':
      if (is_floating(view->dtype)) return LS_OK;
      break;
    default: break;
  }
  if (view->dtype == wanted) return LS_OK;
  return ls_fail(error, LS_INTERNAL, "%s %d is %s; the reference kernel expects %s", side, index,
                 ls_dtype_name(view->dtype), ls_dtype_name(wanted));
}

ls_status ls_reference_expect(const ls_kernel_args *args, ls_dtype real, const char *operands,
                              ls_error *error) {
  int inputs = 0, outputs = 0;
  const char *letter = operands;
  for (; *letter != '>'; letter++, inputs++) {
    if (inputs >= args->inputs) break;
    LS_TRY(expect_operand(&args->in[inputs], *letter, real, "input", inputs, error));
  }
  if (*letter == '>') letter++;
  for (; *letter && outputs < args->outputs; letter += 1 + (letter[1] == '?'), outputs++) {
    LS_TRY(expect_operand(&args->out[outputs], *letter, real, "output", outputs, error));
    if (args->accumulate[outputs] && (*letter == 'R' || *letter == 'D' || *letter == 'C'))
      return ls_fail(error, LS_INTERNAL, "output %d cannot be accumulated into", outputs);
  }
  while (*letter && letter[1] == '?') letter += 2;
  if (*letter || inputs != args->inputs || outputs != args->outputs)
    return ls_fail(error, LS_INTERNAL, "%d inputs and %d outputs; the reference kernel expects %s",
                   args->inputs, args->outputs, operands);
  return LS_OK;
}

void ls_reference_kernels(ls_kernel_table *table, ls_dtype dtype) {
  LS_ASSERT(dtype == LS_F32 || dtype == LS_F64);
  const bool wide = dtype == LS_F64;
  *table = (ls_kernel_table){.name = wide ? "reference fp64" : "reference fp32"};
#define LS_REFERENCE_ENTRY(suffix, name) \
  table->kernel[LS_OP_##suffix] = wide ? ls_reference_##suffix##_f64 : ls_reference_##suffix##_f32;
  LS_OPS(LS_REFERENCE_ENTRY)
#undef LS_REFERENCE_ENTRY
}
