/* What follows from the rows of ops. */
#include "graph/op.h"

#include <string.h>

#include "lockstep/dtype.h"

static const char *const names[LS_OP_COUNT] = {
#define LS_OP_NAME(suffix, name) [LS_OP_##suffix] = name,
    LS_OPS(LS_OP_NAME)
#undef LS_OP_NAME
};

const char *ls_op_name(ls_op_kind kind) {
  return names[kind];
}

bool ls_op_may_shard(const ls_op *row, char label, ls_shares axis) {
  for (int r = 0; r < LS_MAX_LABEL_RULES; r++)
    if (row->only[r].axes & axis & LS_SHARES_ANY_EXPERTS) return row->only[r].label == label;
  if (row->shardable && strchr(row->shardable, label)) return true;
  for (int r = 0; r < LS_MAX_LABEL_RULES; r++)
    if (row->only[r].label == label && (row->only[r].axes & axis)) return true;
  return false;
}

bool ls_op_takes_rows(const ls_op *row) {
  return row->shardable && strchr(row->shardable, 'n');
}

bool ls_op_reads_whole(const ls_op *row, int input) {
  return row->whole && strchr(row->whole, '0' + input);
}

bool ls_op_reads_indices(const ls_op *row, int input) {
  return row->indices && strchr(row->indices, '0' + input);
}

bool ls_op_reads_blocks(const ls_op *row, int input) {
  return row->blocks && strchr(row->blocks, '0' + input);
}

int ls_op_passes(const ls_op *row, int input) {
  int output = 0;
  for (const char *of = row->passes; of && *of; of++) {
    if (*of == ',') output++;
    if (*of == '0' + input) return output;
  }
  return -1;
}

bool ls_op_gives_gradient(ls_op_kind kind, int input) {
  const ls_op *row = ls_op_row(kind);
  if (ls_op_passes(row, input) >= 0) return true;
  for (int r = 0; r < LS_MAX_GRADIENT_RULES; r++)
    if (row->gradients[r].in && strchr(row->gradients[r].out, '0' + input)) return true;
  return false;
}

ls_op_kind ls_op_find(const char *name) {
  ls_op_kind kind = 0;
  while (kind < LS_OP_COUNT && strcmp(ls_op_name(kind), name) != 0) kind++;
  return kind;
}

bool ls_op_set_equal(const ls_op_set *a, const ls_op_set *b) {
  return memcmp(a, b, sizeof *a) == 0;
}

bool ls_op_set_is_empty(const ls_op_set *set) {
  return ls_op_set_equal(set, &(ls_op_set){{false}});
}

ls_op_set ls_op_set_cheap(void) {
  ls_op_set set;
  for (int k = 0; k < LS_OP_COUNT; k++)
    set.has[k] = ls_op_row((ls_op_kind)k)->again == LS_AGAIN_CHEAP;
  return set;
}

bool ls_op_has_divisors(ls_op_kind kind, const ls_attributes *attributes) {
  for (int f = 0; f < LS_ATTRIBUTE_COUNT; f++)
    if ((ls_op_row(kind)->divides >> f & 1) && ls_attribute_get(attributes, f) <= 0) return false;
  return true;
}

double ls_op_flops(ls_op_kind kind, const ls_attributes *attributes, const int64_t *first,
                   const int64_t *second) {
  const ls_op *row = ls_op_row(kind);
  const bool stacked = row->product == 1 && row->divides >> LS_ATTRIBUTE_experts & 1;
  const bool blocks = row->product == 2 && ls_op_reads_blocks(row, 1);
  if (row->product)
    return 2 * (double)first[0] * (double)first[1] * (double)second[row->product - 1] *
           (blocks ? LS_BLOCK_WEIGHTS : 1) / (double)(stacked ? attributes->experts : 1) *
           (attributes->filled > 0 ? attributes->filled : 1);
  return row->flops ? row->flops(attributes, first, second) : 0;
}
