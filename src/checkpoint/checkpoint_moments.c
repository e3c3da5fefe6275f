#include "checkpoint/checkpoint_moments.h"

bool ls_checkpoint_has(const ls_program *program, int parameter, ls_state_part part) {
  const char *saved = ls_state_row_of(part)->saved;
  return saved && *saved && program->parameters[parameter].trainable &&
         ls_optimizer_keeps(&program->layout.optimizer, part);
}

int ls_checkpoint_moments(const ls_program *program, int parameter) {
  int count = 0;
  for (int part = 0; part < LS_PART_COUNT; part++)
    count += ls_checkpoint_has(program, parameter, (ls_state_part)part);
  return count;
}

int ls_checkpoint_moments_of_all(const ls_program *program) {
  int count = 0;
  for (int p = 0; p < program->parameter_count; p++) count += ls_checkpoint_moments(program, p);
  return count;
}

const ls_stored_layout *ls_checkpoint_moment(ls_arena *arena, const ls_program *program,
                                             int parameter, ls_state_part part) {
  const ls_program_parameter *about = &program->parameters[parameter];
  ls_stored_layout *made = LS_NEW(arena, ls_stored_layout);
  made->name = made->plain =
      ls_arena_printf(arena, "%s%s", ls_state_row_of(part)->saved, about->name);
  made->ndim = about->ndim;
  for (int d = 0; d < about->ndim; d++) made->dims[d] = about->dims[d];
  *LS_APPEND(arena, &made->pieces) = (ls_weight_piece){.parameter = parameter,
                                                       .rows = about->dims[0],
                                                       .block = about->dims[0],
                                                       .period = about->dims[0]};
  return made;
}
