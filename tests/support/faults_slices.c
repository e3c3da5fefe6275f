#include "support/faults.h"

/* Faults in slices of logits: rows of another slice, and sums over slices. */

enum { GPT2 = 0, LLAMA_FREE, LLAMA_TIED };

static ls_instruction *at(const ls_program *program, int i) {
  return &program->instructions.items[i];
}

static ls_value *value_of(const ls_program *program, int value) {
  return &program->values.items[value];
}

/* The instruction before that does the same to another slice; -1: none. */
static int earlier(const ls_program *program, int i, ls_op_kind kind) {
  const ls_instruction *each = at(program, i);
  if (each->collective != LS_COLLECTIVE_NONE || each->kind != kind ||
      !value_of(program, each->in[0])->rows)
    return -1;
  int before = i - 1;
  while (before >= 0 && (at(program, before)->collective != LS_COLLECTIVE_NONE ||
                         at(program, before)->kind != kind))
    before--;
  return before >= 0 && value_of(program, at(program, before)->in[0])->rows ? before : -1;
}

/* The input is what that instruction reads, where both are of one size. */
static int read_earlier(ls_program *program, ls_op_kind kind, int input) {
  int hits = 0;
  for (int i = program->instructions.count - 1; i >= 0; i--) {
    const int before = earlier(program, i, kind);
    if (before < 0) continue;
    const int other = at(program, before)->in[input];
    if (value_of(program, other)->rows != value_of(program, at(program, i)->in[input])->rows)
      continue;
    at(program, i)->in[input] = other;
    hits++;
  }
  return hits;
}

static int labels_of_another_slice(ls_program *program) {
  return read_earlier(program, LS_OP_XENT_GRAD, 3);
}

static int maximum_of_another_slice(ls_program *program) {
  return read_earlier(program, LS_OP_XENT_SUM, 1);
}

static int input_of_another_slice(ls_program *program) {
  return read_earlier(program, LS_OP_LINEAR_DW, 1);
}

/* It says which rows it is, and lies where those of the slice before are. */
static int input_lies_elsewhere(ls_program *program) {
  int hits = 0;
  for (int i = program->instructions.count - 1; i >= 0; i--) {
    const int before = earlier(program, i, LS_OP_LINEAR);
    if (before < 0) continue;
    value_of(program, at(program, i)->in[0])->offset =
        value_of(program, at(program, before)->in[0])->offset;
    hits++;
  }
  return hits;
}

static int gradient_lies_elsewhere(ls_program *program) {
  int hits = 0;
  for (int i = program->instructions.count - 1; i >= 0; i--) {
    const int before = earlier(program, i, LS_OP_LINEAR_DX);
    if (before < 0) continue;
    value_of(program, at(program, i)->out[0])->offset =
        value_of(program, at(program, before)->out[0])->offset;
    hits++;
  }
  return hits;
}

static int later_slice_overwrites(ls_program *program) {
  int hits = 0;
  for (int i = 0; i < program->instructions.count; i++)
    if (earlier(program, i, LS_OP_LINEAR_DW) >= 0) {
      at(program, i)->write[0] = LS_WRITE;
      hits++;
    }
  return hits;
}

/* The product that would add it adds that of the slice before once more. */
static int slice_added_twice(ls_program *program) {
  int hits = 0;
  for (int i = program->instructions.count - 1; i >= 0; i--) {
    const int before = earlier(program, i, LS_OP_LINEAR_DW);
    if (before < 0) continue;
    at(program, i)->in[0] = at(program, before)->in[0];
    at(program, i)->in[1] = at(program, before)->in[1];
    hits++;
  }
  return hits;
}

static int maximum_of_one_slice_not_reduced(ls_program *program) {
  for (int i = 0; i < program->instructions.count; i++)
    if (at(program, i)->collective == LS_ALL_REDUCE && at(program, i)->reduce == LS_MAX &&
        value_of(program, at(program, i)->in[0])->first_row) {
      at(program, i)->axes = 0;
      return 1;
    }
  return 0;
}

static const ls_fault_room slices = {.logits_rows = 5};

const ls_fault ls_slice_faults[] = {
    {"labels of another slice", labels_of_another_slice, GPT2, 1, 1, 1, 1, false, 1, LS_F64,
     &slices},
    {"maximum of another slice", maximum_of_another_slice, LLAMA_FREE, 1, 1, 1, 1, false, 1, LS_F64,
     &slices},
    {"input of another slice", input_of_another_slice, LLAMA_TIED, 1, 1, 1, 1, false, 1, LS_F64,
     &slices},
    {"input of a slice lies where another does", input_lies_elsewhere, GPT2, 1, 1, 2, 1, true, 1,
     LS_F64, &slices},
    {"gradient of a slice lies where another does", gradient_lies_elsewhere, GPT2, 1, 1, 1, 1,
     false, 1, LS_F64, &slices},
    {"gradient of a later slice overwrites", later_slice_overwrites, LLAMA_FREE, 1, 2, 1, 2, false,
     3, LS_F64, &slices},
    {"gradient of a slice added twice", slice_added_twice, LLAMA_FREE, 1, 1, 1, 1, false, 1, LS_F64,
     &slices},
    {"maximum of one slice not reduced", maximum_of_one_slice_not_reduced, GPT2, 1, 1, 2, 1, false,
     1, LS_F64, &slices},
};

const int ls_slice_fault_count = (int)(sizeof ls_slice_faults / sizeof *ls_slice_faults);
