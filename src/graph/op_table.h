/* The op table's parts that are in files of their own. Internal to this room; constant. */
#ifndef LS_GRAPH_OP_TABLE_H
#define LS_GRAPH_OP_TABLE_H

#include "graph/op.h"

/* By kind; without labels where the row is another part's. */
extern const ls_op ls_step_ops[LS_OP_COUNT];
extern const ls_op ls_capacity_ops[LS_OP_COUNT];
extern const ls_op ls_class_ops[LS_OP_COUNT];
extern const ls_op ls_distill_ops[LS_OP_COUNT];
extern const ls_op ls_fp8_ops[LS_OP_COUNT];
extern const ls_op ls_text_ops[LS_OP_COUNT];

#endif
