#include "graph/labels.h"

#include <string.h>

#include "base/arena.h"

static const char *read_operand(const char *at, ls_operand_labels *operand) {
  memset(operand, 0, sizeof *operand);
  while (*at == ' ') at++;
  while (*at && *at != ',' && strncmp(at, "->", 2) != 0) {
    LS_ASSERT(operand->ndim < LS_MAX_DIMS);
    char *dim = operand->dim[operand->ndim++];
    int length = 0;
    while (*at && *at != ' ' && *at != ',') {
      LS_ASSERT(length < LS_MAX_LABEL_CHARACTERS - 1);
      dim[length++] = *at++;
    }
    while (*at == ' ') at++;
  }
  return at;
}

ls_op_labels ls_op_labels_read(ls_op_kind kind) {
  ls_op_labels labels = {0};
  const char *at = ls_op_row(kind)->labels;
  for (;;) {
    LS_ASSERT(labels.inputs < LS_MAX_INPUTS);
    at = read_operand(at, &labels.in[labels.inputs++]);
    if (*at != ',') break;
    at++;
  }
  LS_ASSERT(strncmp(at, "->", 2) == 0);
  at += 2;
  for (;;) {
    LS_ASSERT(labels.outputs < LS_MAX_OUTPUTS);
    at = read_operand(at, &labels.out[labels.outputs++]);
    if (*at != ',') break;
    at++;
  }
  LS_ASSERT(!*at);
  return labels;
}

int ls_operand_dim(const ls_operand_labels *operand, char label) {
  for (int d = 0; d < operand->ndim; d++)
    if (strchr(operand->dim[d], label)) return d;
  return -1;
}
