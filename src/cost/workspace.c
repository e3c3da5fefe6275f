/* What kernels are told of an instruction's operands, and the workspace they want for it. */
#include <string.h>

#include "cost/cost.h"

ls_view ls_program_view(const ls_program *program, int rank, int index) {
  const ls_value *value = &program->values.items[index];
  const ls_local local = ls_program_local(program, rank, index);
  ls_view view = {.dtype = value->dtype, .ndim = value->ndim};
  memcpy(view.dims, local.dims, sizeof view.dims);
  memcpy(view.valid, local.valid, sizeof view.valid);
  memcpy(view.start, local.start, sizeof view.start);
  return view;
}

static ls_kernel_args args_of(const ls_program *program, int rank,
                              const ls_instruction *instruction) {
  ls_kernel_args args = {.attributes = &instruction->attributes,
                         .inputs = instruction->inputs,
                         .outputs = instruction->outputs};
  for (int i = 0; i < args.inputs; i++)
    args.in[i] = ls_program_view(program, rank, instruction->in[i]);
  for (int o = 0; o < args.outputs; o++)
    args.out[o] = ls_program_view(program, rank, instruction->out[o]);
  return args;
}

int64_t ls_program_workspace(const ls_device_facts *facts, const ls_program *program, int rank) {
  size_t most = 0;
  const ls_instruction *all = program->instructions.items;
  for (int b = 0; b < program->bodies.count; b++) {
    const ls_body *body = &program->bodies.items[b];
    const int like = ls_body_like(program, b);
    const ls_instruction *before = like < 0 ? NULL : &all[program->bodies.items[like].first];
    for (int i = 0; i < body->count; i++) {
      const ls_instruction *each = &all[body->first + i];
      if (each->collective != LS_COLLECTIVE_NONE) continue;
      if (before && ls_instructions_alike(program, each, &before[i])) continue;
      const ls_kernel_args args = args_of(program, rank, each);
      const size_t bytes = ls_device_workspace(facts, each->kind, &args);
      if (bytes > most) most = bytes;
    }
  }
  return (int64_t)most;
}

int ls_program_fp8_products(const ls_device_facts *facts, const ls_program *program, int rank,
                            int *codes) {
  int products = 0;
  *codes = 0;
  for (int i = 0; i < program->instructions.count; i++) {
    const ls_instruction *each = &program->instructions.items[i];
    const bool summed = each->kind == LS_OP_LINEAR || each->kind == LS_OP_LINEAR_DX;
    if (each->collective != LS_COLLECTIVE_NONE || !summed || !each->attributes.fp8) continue;
    ls_kernel_args args = args_of(program, rank, each);
    args.accumulate[0] = each->write[0] != LS_WRITE;
    products++;
    *codes += facts->takes_codes && facts->takes_codes(facts, each->kind, &args);
  }
  return products;
}

ls_status ls_program_check_alignment(const ls_device_facts *facts, const ls_program *program,
                                     ls_error *error) {
  if (program->alignment % facts->alignment == 0) return LS_OK;
  return ls_fail(
      error, LS_INPUT,
      "the program's tensors lie at multiples of %lld bytes, and kernels of %s (%s) want "
      "multiples of %lld: compile it for that device",
      (long long)program->alignment, facts->name, facts->set, (long long)facts->alignment);
}
