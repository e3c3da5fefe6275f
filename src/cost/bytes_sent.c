#include "cost/cost.h"

double ls_instruction_bytes_sent(const ls_program *program, const ls_instruction *instruction) {
  if (instruction->collective == LS_COLLECTIVE_NONE || instruction->inputs == 0 ||
      instruction->phase == LS_END || ls_collective_moves(instruction->collective))
    return 0;
  const double whole = (double)instruction->count *
                       (double)ls_dtype_bytes(program->values.items[instruction->in[0]].dtype);
  if (instruction->collective == LS_SEND) return whole;
  const double ranks = instruction->peer >= 0 ? 2 : ls_mesh_size(&program->mesh, instruction->axes);
  if (instruction->collective == LS_SUM_NUMBERS) return whole * (ranks - 1);
  const double bytes = whole * (ranks - 1) / ranks;
  return instruction->collective == LS_ALL_REDUCE ? 2 * bytes : bytes;
}

double ls_program_bytes_sent(const ls_program *program, int *collectives) {
  double bytes = 0;
  *collectives = 0;
  for (int a = 0; a < program->actions.count; a++) {
    const ls_body *body = &program->bodies.items[program->actions.items[a].body];
    for (int i = 0; i < body->count; i++) {
      const ls_instruction *instruction = &program->instructions.items[body->first + i];
      const ls_collective kind = instruction->collective;
      *collectives += kind != LS_COLLECTIVE_NONE && kind != LS_RECEIVE &&
                      !ls_collective_moves(kind) && instruction->phase != LS_END;
      bytes += ls_instruction_bytes_sent(program, instruction);
    }
  }
  return bytes;
}
