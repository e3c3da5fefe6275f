#include "cost/cost.h"
#include "graph/labels.h"

/* Ranks that are not the first of some axes write zeros in place of the result. */
static bool is_skipped(const ls_program *program, int rank, const ls_instruction *instruction) {
  return instruction->first_only && ls_mesh_index(&program->mesh, rank, instruction->first_only);
}

double ls_instruction_flops(const ls_program *program, int rank,
                            const ls_instruction *instruction) {
  if (instruction->collective != LS_COLLECTIVE_NONE || is_skipped(program, rank, instruction))
    return 0;
  ls_local parts[2] = {0};
  for (int i = 0; i < 2 && i < instruction->inputs; i++)
    parts[i] = ls_program_local(program, rank, instruction->in[i]);
  return ls_op_flops(instruction->kind, &instruction->attributes, parts[0].valid, parts[1].valid);
}

static double bytes_of(const ls_program *program, int rank, int index) {
  const ls_value *value = &program->values.items[index];
  const ls_local local = ls_program_local(program, rank, index);
  double bytes = (double)ls_dtype_bytes(value->dtype);
  for (int d = 0; d < (value->flat_elements ? 1 : value->ndim); d++)
    bytes *= (double)local.valid[d];
  return bytes;
}

/* Of an operand whose entries tokens pick, as many as there are tokens; never more than there are.
 */
static double touched_bytes(const ls_program *program, int rank, const ls_instruction *instruction,
                            int index, const ls_operand_labels *operand,
                            const ls_op_labels *labels) {
  const double all = bytes_of(program, rank, index);
  const char label = ls_op_row(instruction->kind)->picked;
  const int picked = label ? ls_operand_dim(operand, label) : -1;
  if (picked < 0) return all;
  const double entries = (double)ls_program_local(program, rank, index).valid[picked];
  double tokens = 0;
  for (int i = 0; i < instruction->inputs; i++)
    if (ls_operand_dim(&labels->in[i], 'n') == 0)
      tokens = (double)ls_program_local(program, rank, instruction->in[i]).valid[0];
  return tokens < entries ? all / entries * tokens : all;
}

double ls_instruction_bytes(const ls_program *program, int rank, const ls_instruction *instruction,
                            bool first) {
  if (instruction->collective != LS_COLLECTIVE_NONE) return 0;
  const ls_op *row = ls_op_row(instruction->kind);
  const ls_op_labels labels =
      row->picked ? ls_op_labels_read(instruction->kind) : (ls_op_labels){0};
  double bytes = 0;
  for (int o = 0; o < instruction->outputs; o++) {
    const ls_write_mode write = instruction->write[o];
    const int out = instruction->out[o];
    if (write == LS_ADD || (write == LS_ADD_AFTER_FIRST && !first))
      bytes += 2 * touched_bytes(program, rank, instruction, out, &labels.out[o], &labels);
    else
      bytes += (row->updates ? 2 : 1) * bytes_of(program, rank, out);
  }
  if (is_skipped(program, rank, instruction)) return bytes;
  for (int i = 0; i < instruction->inputs; i++)
    bytes += touched_bytes(program, rank, instruction, instruction->in[i], &labels.in[i], &labels);
  return bytes;
}
