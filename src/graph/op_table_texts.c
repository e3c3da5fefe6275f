#include "graph/op_table.h"

#define TEXT_DIVIDES (UINT64_C(1) << LS_ATTRIBUTE_pairs | UINT64_C(1) << LS_ATTRIBUTE_texts)

/* Vectors of texts, told apart (InfoNCE). A sequence holds so many pairs at most: a text that asks,
 * the text that answers it, and perhaps one that does not. Each text has a number in the step:
 * pairs of sequences one after another, and their texts. A token's label is the number of the text
 * that its vector is made of: as it is at one token of each text that asks, which is what a loss is
 * counted by, and as -2 - number elsewhere; -1: none. So many sequences are a group: each text that
 * asks is to find its answer among all answers of the group, wrong ones too, wherever they lie.
 *
 * Vectors are few beside tokens: they lie where their sequences do, and ranks that share these, or
 * layers, have each all of them.
 *
 * n texts as rows   u texts of a sequence   k answers of all sequences */
const ls_op ls_text_ops[LS_OP_COUNT] = {
    /* x, labels -> of each text the sum over its tokens that are told; zeros where there is none */
    [LS_OP_TEXT_SUMS] = {.labels = "bt c, bt -> u~b c",
                         .shardable = "tc",
                         .only = {{'b', LS_SHARES_SEQUENCES}, {'t', LS_SHARES_TOKENS}},
                         .precision = {LS_ACCUMULATE},
                         .gradients = {{LS_OP_TEXT_SUMS_BWD, "a1", "0"}},
                         .again = LS_AGAIN_MAY,
                         .divides = TEXT_DIVIDES,
                         .indices = "1"},
    /* x -> each row over its length, 1/length; 0 of a row of zeros */
    [LS_OP_UNIT_ROWS] = {.labels = "n c -> n c, n",
                         .only = {{'n', LS_SHARES_SEQUENCES}},
                         .precision = {LS_ACCUMULATE, LS_ACCUMULATE},
                         .gradients = {{LS_OP_UNIT_ROWS_BWD, "aAB", "0"}},
                         .again = LS_AGAIN_CHEAP},
    /* Of texts that ask and of answers the unit vectors and 1/length, by which those that are none
     * are known -> of each that asks the log of the sum of exp(scale cosine) over the answers of
     * its group, scale cosine of its own, and 1 where that is the largest, the first of equal ones.
     * Its parts and the loss's differentiate together, as those of the cross-entropy do. */
    [LS_OP_TEXT_MATCH] = {.labels = "n c, n, k c, k -> n, n, n",
                          .only = {{'n', LS_SHARES_SEQUENCES}},
                          .whole = "23",
                          .precision = {LS_ACCUMULATE, LS_ACCUMULATE, LS_ACCUMULATE},
                          .gradients = {{LS_OP_TEXT_MATCH_BWD, "0123Aa", "02"}},
                          .divides = TEXT_DIVIDES},
    /* log-sum-exp, own score, 1/length -> the sum of what asks and is there of log-sum-exp - own */
    [LS_OP_TEXT_LOSS] = {.labels = "n, n, n -> 1",
                         .duty = LS_DUTY_LOSS,
                         .only = {{'n', LS_SHARES_SEQUENCES}},
                         .precision = {LS_DOUBLE},
                         .passes = "0"},
    /* whether each has found its answer -> how many have */
    [LS_OP_TEXT_FOUND] = {.labels = "n -> 1",
                          .duty = LS_DUTY_REWARDS,
                          .only = {{'n', LS_SHARES_SEQUENCES}},
                          .precision = {LS_DOUBLE}},
    /* dsums, labels */
    [LS_OP_TEXT_SUMS_BWD] = {.labels = "u~b c, bt -> bt c",
                             .shardable = "tc",
                             .only = {{'b', LS_SHARES_SEQUENCES}, {'t', LS_SHARES_TOKENS}},
                             .linear = "0",
                             .divides = TEXT_DIVIDES,
                             .indices = "1"},
    /* dy, y, 1/length: what all sequences' texts make of an answer's vector comes home here */
    [LS_OP_UNIT_ROWS_BWD] = {.labels = "n c, n c, n -> n c",
                             .only = {{'n', LS_SHARES_SEQUENCES}},
                             .whole = "0",
                             .precision = {LS_ACCUMULATE}},
    /* unit vectors and 1/length of both, log-sum-exp, the loss's gradient -> dx of both */
    [LS_OP_TEXT_MATCH_BWD] = {.labels = "n c, n, k c, k, n, 1 -> n c, k c",
                              .only = {{'n', LS_SHARES_SEQUENCES}},
                              .whole = "23",
                              .precision = {LS_ACCUMULATE, LS_ACCUMULATE},
                              .divides = TEXT_DIVIDES},
};
