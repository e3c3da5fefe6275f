/* Reads the labels of an op's row: "n gr, n g -> n gr". No state; thread-safe. */
#ifndef LS_GRAPH_LABELS_H
#define LS_GRAPH_LABELS_H

#include "graph/op.h"

enum { LS_MAX_LABEL_CHARACTERS = 4 };

/* The labels of each dimension of each operand of one op. */
typedef struct ls_operand_labels {
  int ndim;
  char dim[LS_MAX_DIMS][LS_MAX_LABEL_CHARACTERS]; /* NUL-terminated, major first; "1": nothing */
} ls_operand_labels;

typedef struct ls_op_labels {
  int inputs, outputs;
  int optional; /* inputs at the end that a node may be without */
  ls_operand_labels in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS];
} ls_op_labels;

/* The row's labels, taken apart. A malformed row panics. */
ls_op_labels ls_op_labels_read(ls_op_kind kind);

/* Whether a node may have so many inputs. */
bool ls_op_labels_allow(const ls_op_labels *labels, int inputs);

/* The dimension of the operand that `label` is part of, or -1. */
int ls_operand_dim(const ls_operand_labels *operand, char label);

#endif
