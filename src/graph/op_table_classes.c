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
    /* Several labels: a token that has a label has a set of classes, class c being bit c % 32 of
     * its word c / 32. Logits, labels, sets; where classes weigh, how often each counts where it is
     * in the set -> the mean over the classes, of which `scale` is one's share, of the binary
     * cross-entropies; its parts differentiate together, as those of the cross-entropy do */
    [LS_OP_BCE_SUM] = {.labels = "n v, n, n w, v? -> n",
                       .shardable = "nv",
                       .precision = {LS_ACCUMULATE},
                       .gradients = {{LS_OP_BCE_GRAD, "012a3", "0"}},
                       .indices = "12"},
    /* means, labels -> their sum over tokens with a label */
    [LS_OP_BCE_LOSS] = {.labels = "n, n -> 1",
                        .duty = LS_DUTY_LOSS,
                        .shardable = "n",
                        .precision = {LS_DOUBLE},
                        .passes = "0",
                        .indices = "1"},
    /* logits, labels, sets, scale, what classes weigh -> dlogits */
    [LS_OP_BCE_GRAD] = {.labels = "n v, n, n w, 1, v? -> n v",
                        .shardable = "nv",
                        .in_place = 1,
                        .indices = "12"},
};
