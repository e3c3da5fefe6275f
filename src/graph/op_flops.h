/* Rules of the op table that count floating-point operations, of ops that are no single product. */
#ifndef LS_GRAPH_OP_FLOPS_H
#define LS_GRAPH_OP_FLOPS_H

#include "graph/op.h"

ls_flops_rule ls_attention_flops;
ls_flops_rule ls_attention_bwd_flops;
ls_flops_rule ls_ring_flops;
ls_flops_rule ls_ring_bwd_flops;
ls_flops_rule ls_orthogonalise_flops;

#endif
