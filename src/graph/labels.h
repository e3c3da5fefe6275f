/* Reads the labels of an op's row: "n gr, n g -> n gr". Thread-safe. */
#ifndef LS_GRAPH_LABELS_H
#define LS_GRAPH_LABELS_H

#include "graph/op.h"

enum { LS_MAX_LABEL_CHARACTERS = 4 };

/* What a dimension says of itself beyond its labels. */
typedef struct ls_dim_rule {
  int64_t
      divisor;   /* it has one element for so many of its labels'; 0: an attribute says how many */
  int attribute; /* which; or which says by how much shards of a tied one have gone round */
  char tied;     /* label that it is sharded with; 0: none */
  bool turned;   /* tied, and its shards have gone round */
} ls_dim_rule;

/* The labels of each dimension of each operand of one op. */
typedef struct ls_operand_labels {
  int ndim;
  char dim[LS_MAX_DIMS][LS_MAX_LABEL_CHARACTERS]; /* NUL-terminated, major first; "1": nothing */
  ls_dim_rule rule[LS_MAX_DIMS];
} ls_operand_labels;

typedef struct ls_op_labels {
  int inputs, outputs;
  int optional, optional_outputs; /* operands at the end that a node may be without */
  ls_operand_labels in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS];
} ls_op_labels;

/* The row's labels, taken apart. A malformed row panics. */
ls_op_labels ls_op_labels_read(ls_op_kind kind);

/* Those of all ops, by kind, which are read once. */
const ls_op_labels *ls_op_labels_list(void);

/* Whether a node may have so many operands. */
bool ls_op_labels_allow(const ls_op_labels *labels, int inputs, int outputs);

/* The dimension of the operand that is sharded where `label` is, or -1. */
int ls_operand_dim(const ls_operand_labels *operand, char label);

/* The dimension that has `label` itself, or -1: where another is sharded with it, that one is not.
 */
int ls_operand_own_dim(const ls_operand_labels *operand, char label);

/* By how much the operand's shards have gone round on an axis that cuts `label`: the rank at
 * coordinate c has shard c + this. */
int ls_operand_shift(const ls_operand_labels *operand, char label, const ls_attributes *attributes);

/* Whether any operand's shards go round. */
bool ls_op_labels_turn(const ls_op_labels *labels);

/* Whether the label counts tokens, or sequences of them. */
bool ls_label_has_tokens(char label);

/* How many of its labels' elements an element of the dimension stands for: 1 or more. */
int64_t ls_operand_divisor(const ls_operand_labels *operand, int dim,
                           const ls_attributes *attributes);

#endif
