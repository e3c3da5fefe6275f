#include "graph/op_table.h"

/* Losses of a model that learns of a teacher. */
const ls_op ls_distill_ops[LS_OP_COUNT] = {
    /* Distillation (Hinton, Vinyals, Dean, 2015): with p and q the softmax of a teacher's logits
     * and of a student's, both times softmax_scale = 1 / T, a token's loss is 1 - scale of its
     * cross-entropy plus scale of T^2 KL(p || q). The sums behind it are columns of one tensor
     * (LS_DISTILL_SUMS), and its parts differentiate together, as those of the cross-entropy do;
     * the teacher's logits have no gradient.
     * logits, max, teacher's logits, their max, labels -> sums */
    [LS_OP_DISTILL_SUM] = {.labels = "n v, n, n v, n, n -> n f",
                           .shardable = "nv",
                           .precision = {LS_ACCUMULATE},
                           .gradients = {{LS_OP_DISTILL_GRAD, "0123A4a", "0"}},
                           .divides = 1u << LS_ATTRIBUTE_softmax_scale,
                           .indices = "4"},
    /* The same of a teacher that is told by the ids it finds likeliest, ascending and each once,
     * and by how far each one's logit lies below the likeliest one's: p is the softmax over these
     * alone, q as ever that over the vocabulary. An id below 0 is none. logits, max, ids, how far
     * below, labels -> sums */
    [LS_OP_DISTILL_TOP_SUM] = {.labels = "n v, n, n j, n j, n -> n f",
                               .shardable = "nv",
                               .precision = {LS_ACCUMULATE},
                               .gradients = {{LS_OP_DISTILL_TOP_GRAD, "0123A4a", "0"}},
                               .divides = 1u << LS_ATTRIBUTE_softmax_scale,
                               .indices = "24"},
    /* max, sums, labels -> over tokens with a label the sum of the loss; what is told with it: of
     * the cross-entropy, and of KL(p || q) */
    [LS_OP_DISTILL_LOSS] = {.labels = "n, n f, n -> 1, 1, 1",
                            .duty = LS_DUTY_LOSS,
                            .shardable = "n",
                            .precision = {LS_DOUBLE, LS_DOUBLE, LS_DOUBLE},
                            .passes = "1",
                            .divides = 1u << LS_ATTRIBUTE_softmax_scale,
                            .indices = "2"},
    /* logits, max, teacher's logits, their max, sums, labels, scale -> dlogits */
    [LS_OP_DISTILL_GRAD] = {.labels = "n v, n, n v, n, n f, n, 1 -> n v",
                            .shardable = "nv",
                            .in_place = 1,
                            .divides = 1u << LS_ATTRIBUTE_softmax_scale,
                            .indices = "5"},
    /* logits, max, ids, how far below, sums, labels, scale -> dlogits */
    [LS_OP_DISTILL_TOP_GRAD] = {.labels = "n v, n, n j, n j, n f, n, 1 -> n v",
                                .shardable = "nv",
                                .in_place = 1,
                                .divides = 1u << LS_ATTRIBUTE_softmax_scale,
                                .indices = "25"},
};
