/* Layers are alike: what was found of an instruction of one holds for the others'. */
#include <string.h>

#include "cost/cost.h"

int ls_body_like(const ls_program *program, int body) {
  enum { LOOKED_AT = 8 }; /* beside a layer's passes are the transfers of its unit */
  const ls_body *of = &program->bodies.items[body];
  for (int b = body - 1; b >= 0 && b >= body - LOOKED_AT; b--)
    if (program->bodies.items[b].count == of->count) return b;
  return -1;
}

static bool values_alike(const ls_program *program, int one, int other) {
  const ls_value *a = &program->values.items[one], *b = &program->values.items[other];
  return !a->flat_elements && !b->flat_elements && a->dtype == b->dtype && a->ndim == b->ndim &&
         a->first_row == b->first_row && a->rows == b->rows && a->row_elements == b->row_elements &&
         memcmp(a->global, b->global, sizeof a->global) == 0 &&
         memcmp(&a->placement, &b->placement, sizeof a->placement) == 0 &&
         ls_program_buffer_group(program, one)->pool ==
             ls_program_buffer_group(program, other)->pool;
}

bool ls_instructions_alike(const ls_program *program, const ls_instruction *a,
                           const ls_instruction *b) {
  if (a->collective || b->collective || a->kind != b->kind || a->inputs != b->inputs ||
      a->outputs != b->outputs || a->first_only != b->first_only ||
      memcmp(&a->attributes, &b->attributes, sizeof a->attributes) != 0 ||
      memcmp(a->write, b->write, sizeof a->write) != 0)
    return false;
  for (int i = 0; i < a->inputs; i++)
    if (!values_alike(program, a->in[i], b->in[i])) return false;
  for (int o = 0; o < a->outputs; o++)
    if (!values_alike(program, a->out[o], b->out[o])) return false;
  return true;
}
