#include "graph/labels.h"

#include <string.h>

#include "base/arena.h"

static const char *read_operand(const char *at, ls_operand_labels *operand, int *optional) {
  memset(operand, 0, sizeof *operand);
  while (*at == ' ') at++;
  while (*at && *at != ',' && strncmp(at, "->", 2) != 0) {
    LS_ASSERT(operand->ndim < LS_MAX_DIMS);
    char *dim = operand->dim[operand->ndim++];
    int length = 0;
    while (*at && !strchr(" ,?", *at)) {
      LS_ASSERT(length < LS_MAX_LABEL_CHARACTERS - 1);
      dim[length++] = *at++;
    }
    if (*at == '?') {
      *optional += 1;
      at++;
    } else {
      LS_ASSERT(*optional == 0);
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
    at = read_operand(at, &labels.in[labels.inputs++], &labels.optional);
    if (*at != ',') break;
    at++;
  }
  LS_ASSERT(strncmp(at, "->", 2) == 0);
  at += 2;
  for (int none = 0;;) {
    LS_ASSERT(labels.outputs < LS_MAX_OUTPUTS);
    at = read_operand(at, &labels.out[labels.outputs++], &none);
    LS_ASSERT(none == 0);
    if (*at != ',') break;
    at++;
  }
  LS_ASSERT(!*at);
  return labels;
}

bool ls_op_labels_allow(const ls_op_labels *labels, int inputs) {
  return inputs <= labels->inputs && inputs >= labels->inputs - labels->optional;
}

int ls_operand_dim(const ls_operand_labels *operand, char label) {
  for (int d = 0; d < operand->ndim; d++)
    if (strchr(operand->dim[d], label)) return d;
  return -1;
}
