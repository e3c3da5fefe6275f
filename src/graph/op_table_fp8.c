/* Rows of ops that round operands of products to fp8 (docs/fp8.md): each is multiplied by a power
 * of two, as large as its largest magnitude allows, rounded to numbers of 8 bits and divided by
 * that again. A weight has one such power, tokens one each: so what they become depends on no cut
 * of tokens, and on cuts of columns by a maximum alone. Labels as in op_table.c. */
#include "graph/op_table.h"

const ls_op ls_fp8_ops[LS_OP_COUNT] = {
    /* weight -> its largest magnitude */
    [LS_OP_AMAX] = {.labels = "m k -> 1",
                    .shardable = "mk",
                    .reduce = LS_MAX,
                    .precision = {LS_ACCUMULATE},
                    .again = LS_AGAIN_MAY},
    /* weight, that -> weight, rounded. The gradient of what it gives is the weight's own. */
    [LS_OP_FP8] = {.labels = "m k, 1 -> m k",
                   .shardable = "mk",
                   .passes = "0",
                   .again = LS_AGAIN_ALWAYS},
    /* x, or a gradient -> the largest magnitude of each row */
    [LS_OP_ROW_AMAX] = {.labels = "n k -> n",
                        .shardable = "nk",
                        .reduce = LS_MAX,
                        .precision = {LS_ACCUMULATE},
                        .again = LS_AGAIN_CHEAP,
                        .duty = LS_DUTY_AMAX},
    /* x, that -> x, rounded */
    [LS_OP_ROW_FP8] = {.labels = "n k, n -> n k",
                       .shardable = "nk",
                       .passes = "0",
                       .again = LS_AGAIN_CHEAP,
                       .duty = LS_DUTY_FP8},
    /* Of weights that are gathered as codes, in place of AMAX and FP8 and to the same bits:
     * a shard -> its largest magnitude; shard, the whole weight's -> codes in E4M3, 8 bits each;
     * codes of the whole weight, that -> weight, rounded */
    [LS_OP_RANGE_AMAX] = {.labels = "e -> 1",
                          .reduce = LS_MAX,
                          .precision = {LS_ACCUMULATE},
                          .duty = LS_DUTY_LARGEST},
    [LS_OP_FP8_CODES] = {.labels = "e, 1 -> e", .duty = LS_DUTY_CODES},
    [LS_OP_FP8_DECODE] = {.labels = "m k, 1 -> m k", .shardable = "mk", .duty = LS_DUTY_DECODE},
};
