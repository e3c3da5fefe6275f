#include "cost/cost.h"

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

static double smaller(double a, double b) {
  return a < b ? a : b;
}

/* Of the table, the rows of the tokens, which are as many bytes as the other matrix has at its own
 * type; never more than there are. */
static double rows_of(const ls_program *program, int rank, int table, int tokens) {
  const double scale = (double)ls_dtype_bytes(program->values.items[table].dtype) /
                       (double)ls_dtype_bytes(program->values.items[tokens].dtype);
  return smaller(bytes_of(program, rank, table), bytes_of(program, rank, tokens) * scale);
}

double ls_instruction_bytes(const ls_program *program, int rank, const ls_instruction *instruction,
                            bool first) {
  if (instruction->collective != LS_COLLECTIVE_NONE) return 0;
  const ls_op_kind kind = instruction->kind;
  const bool updates = kind == LS_OP_ADAMW || kind == LS_OP_SGD;
  double bytes = 0;
  for (int o = 0; o < instruction->outputs; o++) {
    const double all = bytes_of(program, rank, instruction->out[o]);
    const ls_write_mode write = instruction->write[o];
    const bool adds = write == LS_ADD || (write == LS_ADD_AFTER_FIRST && !first);
    if (adds && kind == LS_OP_EMBEDDING_DW)
      bytes += 2 * rows_of(program, rank, instruction->out[o], instruction->in[0]);
    else
      bytes += adds || updates ? 2 * all : all;
  }
  if (is_skipped(program, rank, instruction)) return bytes;
  for (int i = 0; i < instruction->inputs; i++)
    bytes += kind == LS_OP_EMBEDDING && i == 0
                 ? rows_of(program, rank, instruction->in[0], instruction->out[0])
                 : bytes_of(program, rank, instruction->in[i]);
  return bytes;
}
