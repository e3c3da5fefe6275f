#include "graph/labels.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

static const char *read_attribute(const char *at, ls_dim_rule *rule) {
  const size_t length = strcspn(at, " ,?");
  for (int f = 0; f < LS_ATTRIBUTE_COUNT; f++)
    if (strlen(ls_attribute_name(f)) == length && strncmp(ls_attribute_name(f), at, length) == 0) {
      rule->attribute = f;
      return at + length;
    }
  ls_panic("%.*s is no attribute", (int)length, at);
}

/* A number, or the name of an attribute. */
static const char *read_divisor(const char *at, ls_dim_rule *rule) {
  char *end;
  rule->divisor = strtoll(at, &end, 10);
  if (end != at) {
    LS_ASSERT(rule->divisor > 0);
    return end;
  }
  return read_attribute(at, rule);
}

static const char *read_rule(const char *at, ls_dim_rule *rule) {
  *rule = (ls_dim_rule){.divisor = 1};
  if (*at == '/') return read_divisor(at + 1, rule);
  if (*at != '~') return at;
  rule->tied = at[1];
  rule->turned = at[2] == '+';
  return rule->turned ? read_attribute(at + 3, rule) : at + 2;
}

static const char *read_operand(const char *at, ls_operand_labels *operand, int *optional) {
  bool may_lack = false;
  memset(operand, 0, sizeof *operand);
  while (*at == ' ') at++;
  while (*at && *at != ',' && strncmp(at, "->", 2) != 0) {
    LS_ASSERT(operand->ndim < LS_MAX_DIMS);
    char *dim = operand->dim[operand->ndim];
    int length = 0;
    while (*at && !strchr(" ,?/~", *at)) {
      LS_ASSERT(length < LS_MAX_LABEL_CHARACTERS - 1);
      dim[length++] = *at++;
    }
    at = read_rule(at, &operand->rule[operand->ndim++]);
    if (*at == '?') {
      may_lack = true;
      at++;
    }
    while (*at == ' ') at++;
  }
  LS_ASSERT(may_lack || *optional == 0);
  *optional += may_lack;
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
  for (;;) {
    LS_ASSERT(labels.outputs < LS_MAX_OUTPUTS);
    at = read_operand(at, &labels.out[labels.outputs++], &labels.optional_outputs);
    if (*at != ',') break;
    at++;
  }
  LS_ASSERT(!*at);
  return labels;
}

static ls_op_labels all[LS_OP_COUNT];

static void read_all(void) {
  for (int k = 0; k < LS_OP_COUNT; k++) all[k] = ls_op_labels_read((ls_op_kind)k);
}

const ls_op_labels *ls_op_labels_list(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_all);
  return all;
}

bool ls_op_labels_allow(const ls_op_labels *labels, int inputs, int outputs) {
  return inputs <= labels->inputs && inputs >= labels->inputs - labels->optional &&
         outputs <= labels->outputs && outputs >= labels->outputs - labels->optional_outputs;
}

int ls_operand_dim(const ls_operand_labels *operand, char label) {
  for (int d = 0; d < operand->ndim; d++) {
    if (operand->rule[d].tied == label) return d;
    for (const char *of = operand->dim[d]; *of; of++)
      if (*of == label) return d;
  }
  return -1;
}

int ls_operand_own_dim(const ls_operand_labels *operand, char label) {
  for (int d = 0; d < operand->ndim; d++)
    if (*operand->dim[d] && strchr(operand->dim[d], label)) return d;
  return -1;
}

int ls_operand_shift(const ls_operand_labels *operand, char label,
                     const ls_attributes *attributes) {
  for (int d = 0; d < operand->ndim; d++) {
    if (!operand->rule[d].turned || operand->rule[d].tied != label) continue;
    const double shift = ls_attribute_get(attributes, operand->rule[d].attribute);
    return shift < INT16_MAX ? (int)shift : 0; /* no axis has so many ranks */
  }
  return 0;
}

static bool operands_turn(const ls_operand_labels *operands, int count) {
  bool any = false;
  for (int i = 0; i < count; i++)
    for (int d = 0; d < operands[i].ndim; d++) any |= operands[i].rule[d].turned;
  return any;
}

bool ls_op_labels_turn(const ls_op_labels *labels) {
  return operands_turn(labels->in, labels->inputs) || operands_turn(labels->out, labels->outputs);
}

bool ls_label_has_tokens(char label) {
  return label && strchr("nbts", label);
}

int64_t ls_operand_divisor(const ls_operand_labels *operand, int dim,
                           const ls_attributes *attributes) {
  const ls_dim_rule *rule = &operand->rule[dim];
  return rule->divisor ? rule->divisor : (int64_t)ls_attribute_get(attributes, rule->attribute);
}
