#include "graph/op_table.h"

/* Losses that classes have beside the cross-entropy. */
const ls_op ls_class_ops[LS_OP_COUNT] = {
    /* max, sum, target, labels, weights -> xent_loss where each token's counts as often as its
     * weight */
    [LS_OP_XENT_LOSS_EACH] = {.labels = "n, n, n, n, n -> 1",
                              .duty = LS_DUTY_LOSS,
                              .shardable = "n",
                              .precision = {LS_DOUBLE},
                              .gradients = {{LS_OP_XENT_LOSS_EACH_BWD, "34a", "1"}},
                              .indices = "3"},
    /* labels, weights, scale -> how often each token's loss counts: xent_grad_each scales by it */
    [LS_OP_XENT_LOSS_EACH_BWD] = {.labels = "n, n, 1 -> n",
                                  .shardable = "n",
                                  .precision = {LS_ACCUMULATE},
                                  .indices = "0"},
    /* labels, weights -> the sum of the weights of tokens that have a label */
    [LS_OP_COUNT_WEIGHTS] = {.labels = "n, n -> 1",
                             .duty = LS_DUTY_COUNT,
                             .shardable = "n",
                             .precision = {LS_DOUBLE},
                             .indices = "0"},
};
