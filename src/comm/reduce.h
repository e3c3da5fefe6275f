/* Arithmetic of the collectives: the sum or maximum of one range of several ranks' buffers.
 *
 *   const void *sources[2] = {mine, theirs};
 *   ls_reduce_range(targets, 1, sources, 2, count, LS_F32, LS_SUM, false);
 *
 * Not communication: the caller sees to it that nobody else touches the ranges meanwhile. The
 * order of the sources is the order of the additions, whatever the length and the alignment, so
 * the bits depend on nothing else. Thread-safe: no state. */
#ifndef LS_COMM_REDUCE_H
#define LS_COMM_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/op.h"
#include "lockstep/dtype.h"

/* Whether values of `dtype` can be reduced: LS_F32, LS_BF16, LS_F16, LS_F64, LS_I64. */
bool ls_reduce_knows(ls_dtype dtype);

/* Each of targets[target_count] receives sources[0][i] + sources[1][i] + ... in this order (bf16
 * and fp16: added in fp32 and rounded once); with `accumulate`, targets[0][i] + (that sum). A
 * target may be one of the sources or overlap none of them. LS_MAX keeps a NaN. */
void ls_reduce_range(void *const *targets, int target_count, const void *const *sources,
                     int source_count, int64_t count, ls_dtype dtype, ls_reduce op,
                     bool accumulate);

#endif
