/* Floating-point operations of what is no product: what rows of the op table name. Internal to this
 * room. No state; thread-safe. */
#ifndef LS_GRAPH_OP_FLOPS_H
#define LS_GRAPH_OP_FLOPS_H

#include "graph/op.h"

double ls_attention_flops(const ls_attributes *attributes, const int64_t *query,
                          const int64_t *keys);
double ls_attention_bwd_flops(const ls_attributes *attributes, const int64_t *query,
                              const int64_t *other);
double ls_ring_flops(const ls_attributes *attributes, const int64_t *query, const int64_t *keys);
double ls_ring_bwd_flops(const ls_attributes *attributes, const int64_t *query,
                         const int64_t *other);
double ls_orthogonalise_flops(const ls_attributes *attributes, const int64_t *matrix,
                              const int64_t *other);

#endif
