/* Rows of ops that are done once a step: counts, norms, updates. Labels as in op_table.c. */
#include "graph/op_flops.h"
#include "graph/op_table.h"

const ls_op ls_step_ops[LS_OP_COUNT] = {
    /* labels -> how many tokens have one */
    [LS_OP_COUNT_VALID] = {.labels = "n -> 1",
                           .duty = LS_DUTY_COUNT,
                           .shardable = "n",
                           .precision = {LS_DOUBLE},
                           .indices = "0"},
    /* numbers -> as many zeros, in their place */
    [LS_OP_ZERO] = {.labels = "e -> e", .duty = LS_DUTY_ZERO},
    /* cells: count, scale -> scale / count; of a count of 0 the scale */
    [LS_OP_RECIPROCAL] = {.labels = "1, 1 -> 1", .duty = LS_DUTY_SCALE},
    /* gradients -> weight * sum of squares */
    [LS_OP_SQUARED_NORM] = {.labels = "e -> 1", .duty = LS_DUTY_NORM},
    /* cells: squared norm of scaled gradients, loss sum, count, scale -> norm, factor, mean loss;
     * the factor undoes the scale, and is 0 where the norm is not finite */
    [LS_OP_CLIP_FACTOR] = {.labels = "1, 1, 1, 1 -> 1, 1, 1", .duty = LS_DUTY_CLIP},
    /* gradient, learning rate, step, clip factor -> master, first moment, second moment (all
     * updated in place; where the factor is 0, nothing is) */
    [LS_OP_ADAMW] = {.labels = "e, 1, 1, 1 -> e, e, e", .updates = true},
    /* gradient, learning rate, step, clip factor -> master, momentum (updated in place, likewise)
     */
    [LS_OP_SGD] = {.labels = "e, 1, 1, 1 -> e, e", .updates = true},
    /* likewise, by the sign of a mean of gradient and momentum */
    [LS_OP_LION] = {.labels = "e, 1, 1, 1 -> e, e", .updates = true},
    /* gradient, learning rate, step, clip factor, master, first moment, second moment -> the
     * weights that ADAMW would make of these, which stay as they are; factor 0: not finite ones */
    [LS_OP_ADAMW_SPECULATE] = {.labels = "e, 1, 1, 1, e, e, e -> e"},
    /* gradient, learning rate, step, clip factor, master, momentum -> likewise of SGD */
    [LS_OP_SGD_SPECULATE] = {.labels = "e, 1, 1, 1, e, e -> e"},
    [LS_OP_LION_SPECULATE] = {.labels = "e, 1, 1, 1, e, e -> e"},
    /* gradient, clip factor, codes of both moments, largest of their blocks -> the largest of each
     * block of the moments that ADAMW8 would make, of what the rank has of it */
    [LS_OP_ADAMW8_LARGEST] = {.labels = "e, 1, e, e, f -> f"},
    /* gradient, learning rate, step, clip factor, largest of blocks before and after -> master,
     * codes of both moments (updated in place; where the factor is 0, nothing is) */
    [LS_OP_ADAMW8] = {.labels = "e, 1, 1, 1, f, f -> e, e, e", .updates = true},
    /* largest of blocks, clip factor -> as the state keeps it, likewise */
    [LS_OP_ADAMW8_KEEP] = {.labels = "f, 1 -> f", .updates = true},
    /* gradient, clip factor -> momentum (in place, likewise), and what Muon makes orthogonal of it
     * and the gradient (Nesterov's) */
    [LS_OP_MUON_MOMENTUM] = {.labels = "e, 1 -> e, e", .updates = true},
    /* all elements of a matrix, or none -> nearly its orthogonal factor, and memory to work in */
    [LS_OP_ORTHOGONALISE] = {.labels = "e -> e, m k, f p", .flops = ls_orthogonalise_flops},
    /* elements of an orthogonal matrix, learning rate, clip factor -> master (in place, likewise)
     */
    [LS_OP_MUON] = {.labels = "e, 1, 1 -> e", .updates = true},
    /* gradient, learning rate, step, clip factor -> master, offset, second moment (in place,
     * likewise) */
    [LS_OP_SCHEDULEFREE] = {.labels = "e, 1, 1, 1 -> e, e, e", .updates = true},
    /* master, offset -> the weights that the gradient is taken at */
    [LS_OP_SCHEDULEFREE_POINT] = {.labels = "e, e -> e"},
    /* gradient, clip factor -> sums of squares of the rows and then of the columns of a matrix, of
     * what the rank has of it */
    [LS_OP_ADAFACTOR_SUMS] = {.labels = "e, 1 -> f"},
    /* these sums of all ranks, step, clip factor -> means as the state keeps them (in place,
     * likewise) */
    [LS_OP_ADAFACTOR_KEEP] = {.labels = "f, 1, 1 -> f", .updates = true},
    /* gradient, clip factor, means of rows and columns, master -> gradient over the root of the
     * second moment; weight * sums of squares of that and of the master weights */
    [LS_OP_ADAFACTOR_DIRECTION] = {.labels = "e, 1, f, e -> e, 1, 1"},
    /* gradient, step, clip factor -> second moment (in place, likewise) */
    [LS_OP_ADAFACTOR_SECOND] = {.labels = "e, 1, 1 -> e", .updates = true},
    /* gradient, clip factor, second moment, master -> as ADAFACTOR_DIRECTION */
    [LS_OP_ADAFACTOR_DIVIDE] = {.labels = "e, 1, e, e -> e, 1, 1"},
    /* that gradient, both means of squares, learning rate, clip factor -> master (in place,
     * likewise) */
    [LS_OP_ADAFACTOR] = {.labels = "e, 1, 1, 1, 1 -> e", .updates = true},
};
