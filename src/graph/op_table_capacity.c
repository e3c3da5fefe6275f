/* Rows of ops that hold experts to a capacity: between a routing and what takes it, of which what
 * is dropped becomes rows of no expert. Labels as in op_table.c. */
#include "graph/op_table.h"

/* As a routing's: where experts gather tokens, each rank has the choices of all. */
#define BY_ROUTING             \
  {                            \
    {'n', LS_SHARES_ROUTED}, { \
      '.', LS_SHARES_EXPERTS   \
    }                          \
  }

const ls_op ls_capacity_ops[LS_OP_COUNT] = {
    /* routed rows, their experts -> the expert of each choice */
    [LS_OP_CHOICES] = {.labels = "n j, o~n -> n j",
                       .only = BY_ROUTING,
                       .precision = {LS_INDEX},
                       .indices = "01"},
    /* the experts of whole sequences' choices, labels, [places] -> how many choices of tokens with
     * a label are dropped, by expert; the experts again, and of what is dropped one behind all. An
     * expert takes `slots` rows of a sequence: those of the first places. */
    [LS_OP_CAPACITY] = {.labels = "bs j, bs, bs? -> 1 x, bs j",
                        .duty = LS_DUTY_DROPPED,
                        .only = {{'b', LS_SHARES_SEQUENCES}, {'.', LS_SHARES_EXPERTS}},
                        .precision = {LS_DOUBLE, LS_INDEX},
                        .divides = 1u << LS_ATTRIBUTE_sequence,
                        .indices = "012"},
    /* routed rows, their weights, the experts of choices that are kept -> the same, their experts,
     * their weights: kept rows in the order of experts, then those of no expert, which weigh 0 */
    [LS_OP_KEEP] = {.labels = "n j, o~n, n j -> n j, o~n, o~n",
                    .only = BY_ROUTING,
                    .precision = {LS_INDEX, LS_INDEX, LS_ACCUMULATE},
                    .gradients = {{LS_OP_KEEP_BWD, "c0A2", "1"}},
                    .indices = "02"},
    /* dweights of kept rows, routed rows, kept rows, the experts of choices that are kept ->
     * dweights of routed rows */
    [LS_OP_KEEP_BWD] = {.labels = "o~n, n j, n j, n j -> o~n",
                        .only = {{'n', LS_SHARES_ROUTED}},
                        .linear = "0",
                        .masked = "0",
                        .precision = {LS_ACCUMULATE},
                        .divides = 1u << LS_ATTRIBUTE_experts,
                        .indices = "123"},
};
