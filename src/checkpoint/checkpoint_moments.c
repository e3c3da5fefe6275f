#include "checkpoint/checkpoint_moments.h"

int ls_checkpoint_moments(const ls_program *program, int parameter) {
  if (!program->parameters[parameter].trainable) return 0;
  return program->layout.optimizer.kind == LS_OPTIMIZER_ADAMW ? 2 : 1;
}

int ls_checkpoint_moments_of_all(const ls_program *program) {
  int count = 0;
  for (int p = 0; p < program->parameter_count; p++) count += ls_checkpoint_moments(program, p);
  return count;
}

const ls_stored_layout *ls_checkpoint_moment(ls_arena *arena, const ls_program *program,
                                             int parameter, int moment) {
  const ls_program_parameter *about = &program->parameters[parameter];
  ls_stored_layout *made = LS_NEW(arena, ls_stored_layout);
  made->name = made->plain = ls_arena_printf(arena, "moment%d.%s", moment + 1, about->name);
  made->ndim = about->ndim;
  for (int d = 0; d < about->ndim; d++) made->dims[d] = about->dims[d];
  *LS_APPEND(arena, &made->pieces) = (ls_weight_piece){.parameter = parameter,
                                                       .rows = about->dims[0],
                                                       .block = about->dims[0],
                                                       .period = about->dims[0]};
  return made;
}
