#include "graph/op_table.h"

#include <stdatomic.h>

#include "graph/op_flops.h"

#define RING_DIVIDES                                                                         \
  (1u << LS_ATTRIBUTE_head_dim | 1u << LS_ATTRIBUTE_kv_heads | 1u << LS_ATTRIBUTE_sequence | \
   1u << LS_ATTRIBUTE_turns)

#define ATTENTION_DIVIDES \
  (1u << LS_ATTRIBUTE_head_dim | 1u << LS_ATTRIBUTE_kv_heads | 1u << LS_ATTRIBUTE_sequence)

#define BY_HEADS                                                                       \
  {                                                                                    \
    {'b', LS_SHARES_SEQUENCES}, {'t', LS_SHARES_QUERIES}, {'g', LS_SHARES_KV_HEADS}, { \
      'r', LS_SHARES_QUERY_HEADS                                                       \
    }                                                                                  \
  }

/* Of grouped products, and of biases behind them. */
#define BY_EXPERTS                            \
  {                                           \
    {'n', LS_SHARES_ROUTED}, {                \
      'x', LS_SHARES_EXPERTS | LS_SHARES_SENT \
    }                                         \
  }

#define HEADS_DIVIDES (1u << LS_ATTRIBUTE_head_dim | 1u << LS_ATTRIBUTE_columns)

/* Order of operands is part of the row: kernels and gradients rely on it.
 *
 * n tokens (B x T flattened)   k, m, c features   v vocabulary   h columns of heads
 * w, a columns of heads of another size   p columns that heads share
 * z rows of all heads' matrices   y their columns
 * g KV heads   r query heads per KV head   d one head's columns   l cache rows   e flat elements
 * f sums of a distilled token   u parts that cache rows are dealt to   i query heads, of all ranks
 * b sequences   t queries of one   s keys of one: bt and bs are n, where attention tells them apart
 * x experts   j experts that a token goes to, or ids that a teacher finds likeliest
 * o routed rows: n x j, those of one expert after those of another; each rank routes its own
 * tokens, so there are as many whatever the routing.
 * p slots of rows that are sent
 * Grouped products have them as n. Over axes that share out experts each rank routes the tokens of
 * all and has of the routed rows those of its experts, and zeros elsewhere; or, where rows are
 * sent, these alone, so that rows are cut where experts are. */
static const ls_op rows[LS_OP_COUNT] = {
    /* table, ids */
    [LS_OP_EMBEDDING] = {.labels = "v c, n -> n c",
                         .shardable = "nv",
                         .gradients = {{LS_OP_EMBEDDING_DW, "a1", "0"}},
                         .again = LS_AGAIN_MAY,
                         .picked = 'v',
                         .indices = "1"},
    /* blocks with scales of 8 bits, what these stand for */
    [LS_OP_RESTORE_SCALES] = {.labels = "m c, k -> m c",
                              .shardable = "mc",
                              .again = LS_AGAIN_ALWAYS,
                              .blocks = "0",
                              .unnests = true},
    /* blocks of LS_BLOCK_WEIGHTS weights, each of one row */
    [LS_OP_DEQUANTIZE] = {.labels = "m q/64 -> m q",
                          .shardable = "mq",
                          .again = LS_AGAIN_ALWAYS,
                          .blocks = "0"},
    /* x, weight[out, in] */
    [LS_OP_LINEAR] = {.labels = "n k, m k -> n m",
                      .shardable = "nmk",
                      .linear = "0",
                      .gradients = {{LS_OP_LINEAR_DX, "a1", "0"}, {LS_OP_LINEAR_DW, "a0", "1"}},
                      .again = LS_AGAIN_MAY,
                      .product = 1},
    /* x, blocks of weight[out, in]: the product of what dequantize makes of them */
    [LS_OP_LINEAR_BLOCKS] = {.labels = "n q, m q/64 -> n m",
                             .shardable = "nmq",
                             .linear = "0",
                             .gradients = {{LS_OP_LINEAR_BLOCKS_DX, "a1", "0"}},
                             .again = LS_AGAIN_MAY,
                             .product = 1,
                             .blocks = "1"},
    /* x, bias */
    [LS_OP_BIAS] = {.labels = "n c, c -> n c",
                    .shardable = "nc",
                    .in_place = 1,
                    .passes = "0",
                    .gradients = {{LS_OP_BIAS_DB, "a", "1"}},
                    .again = LS_AGAIN_MAY},
    [LS_OP_ADD] = {.labels = "n c, n c -> n c",
                   .shardable = "nc",
                   .linear = "01",
                   .masked = "01",
                   .in_place = 1,
                   .passes = "01",
                   .again = LS_AGAIN_MAY},
    [LS_OP_SCALE] = {.labels = "n c -> n c",
                     .shardable = "nc",
                     .linear = "0",
                     .in_place = 1,
                     .gradients = {{LS_OP_SCALE_BWD, "a", "0"}},
                     .again = LS_AGAIN_MAY},
    /* x, weight, bias -> y, mean, 1/deviation */
    [LS_OP_LAYERNORM] = {.labels = "n c, c, c? -> n c, n, n",
                         .shardable = "n",
                         .precision = {LS_COMPUTE, LS_ACCUMULATE, LS_ACCUMULATE},
                         .gradients = {{LS_OP_LAYERNORM_BWD, "a01BC", "012"}},
                         .again = LS_AGAIN_CHEAP},
    /* x, weight -> y, 1/rms */
    [LS_OP_RMSNORM] = {.labels = "n c, c -> n c, n",
                       .shardable = "n",
                       .precision = {LS_COMPUTE, LS_ACCUMULATE},
                       .gradients = {{LS_OP_RMSNORM_BWD, "a01B", "01"}},
                       .again = LS_AGAIN_CHEAP},
    /* x in heads of d columns, weight -> y, 1/rms of each head */
    [LS_OP_HEADNORM] = {.labels = "n hd, d -> n hd, n hd/head_dim",
                        .shardable = "nh",
                        .precision = {LS_COMPUTE, LS_ACCUMULATE},
                        .gradients = {{LS_OP_HEADNORM_BWD, "a01B", "01"}},
                        .again = LS_AGAIN_CHEAP,
                        .divides = 1u << LS_ATTRIBUTE_head_dim},
    /* x -> sum of the squares of each row; with row_scale an RMS norm whose columns may be cut */
    [LS_OP_ROW_SQUARES] = {.labels = "n c -> n",
                           .shardable = "nc",
                           .precision = {LS_ACCUMULATE},
                           .gradients = {{LS_OP_ROW_SQUARES_BWD, "a0", "0"}},
                           .again = LS_AGAIN_MAY},
    /* x, weight, sum of squares -> x weight / sqrt(sum / columns + epsilon) */
    [LS_OP_ROW_SCALE] = {.labels = "n c, c, n -> n c",
                         .shardable = "nc",
                         .gradients = {{LS_OP_ROW_SCALE_BWD, "a012", "012"}},
                         .again = LS_AGAIN_CHEAP,
                         .divides = 1u << LS_ATTRIBUTE_columns},
    /* positions -> cosines (first half of the columns), sines (second half) */
    [LS_OP_ROPE_TABLE] = {.labels = "n -> n d",
                          .shardable = "n",
                          .precision = {LS_ACCUMULATE},
                          .again = LS_AGAIN_MAY,
                          .indices = "0"},
    /* x, table */
    [LS_OP_ROPE] = {.labels = "n h, n d -> n h",
                    .shardable = "nh",
                    .linear = "0",
                    .in_place = 1,
                    .gradients = {{LS_OP_ROPE_BWD, "a1", "0"}},
                    .again = LS_AGAIN_CHEAP,
                    .divides = 1u << LS_ATTRIBUTE_head_dim},
    /* x in heads of head_dim columns; columns that all heads share -> heads of `columns`: x's own,
     * then those shared, then zeros, as far as there is room */
    [LS_OP_HEADS] = {.labels = "n h, n p? -> n w~h",
                     .shardable = "nh",
                     .linear = "01",
                     .gradients = {{LS_OP_HEADS_BWD, "a", "0"}, {LS_OP_HEADS_SHARED_BWD, "a", "1"}},
                     .again = LS_AGAIN_CHEAP,
                     .divides = HEADS_DIVIDES},
    /* x in heads of head_dim columns, of each head a matrix [its rows, y] -> heads of `columns`:
     * the product of as many of x's columns as the matrix has rows, then the others */
    [LS_OP_HEADS_UP] = {.labels = "n h, z~h y -> n a~h",
                        .shardable = "nh",
                        .divides = HEADS_DIVIDES},
    /* The same matrices the other way: of each head the product of x's first y columns, as many as
     * the matrix has rows */
    [LS_OP_HEADS_DOWN] = {.labels = "n h, z~h y -> n z~h",
                          .shardable = "nh",
                          .divides = 1u << LS_ATTRIBUTE_head_dim},
    /* q, k, v; positions, which count a document's tokens from 0: none sees another document;
     * places, where tokens lie in an order of their own: which token each row is, counted through
     * the microbatch; with two_way and places how many tokens of its document lie behind each;
     * draws, with dropout of probabilities -> o, log-sum-exp per token and head */
    [LS_OP_ATTENTION] = {.labels = "bt gr, bs g, bs g, bt?, bs?, bt?, bt? -> bt gr, "
                                   "bt gr/head_dim",
                         .only = BY_HEADS,
                         .precision = {LS_COMPUTE, LS_ACCUMULATE},
                         .gradients = {{LS_OP_ATTENTION_BWD, "a012AB3456", "012"}},
                         .again = LS_AGAIN_MAY,
                         .flops = ls_attention_flops,
                         .divides = ATTENTION_DIVIDES,
                         .indices = "3456"},
    /* The same with a logit for each head behind the values, which is one more score of every query
     * and has no value. With what then comes out, going back is as without it. */
    [LS_OP_SINK_ATTENTION] = {.labels = "bt gr, bs g, bs g, i, bt?, bs?, bt?, bt? -> bt gr, "
                                        "bt gr/head_dim",
                              .only = BY_HEADS,
                              .precision = {LS_COMPUTE, LS_ACCUMULATE},
                              .gradients = {{LS_OP_ATTENTION_BWD, "a012AB4567", "012"},
                                            {LS_OP_SINK_BWD, "aAB3", "3"}},
                              .again = LS_AGAIN_MAY,
                              .flops = ls_attention_flops,
                              .divides = ATTENTION_DIVIDES,
                              .indices = "4567"},
    /* Queries and one block of keys, `turn` ranks on, in an order of their own; and what blocks
     * before have come to. Sums are of exp(score - max): the parts of a ring differentiate
     * together, and what goes back in place of the gradients of max and sum is what all blocks need
     * of the whole, its log-sum-exp and do . o. q, k, v, positions, places, [sum of values, max,
     * sum] -> sum of values, max, sum */
    [LS_OP_RING_ATTENTION] = {.labels = "bt gr, bs~t+turn g, bs~t+turn g, bt, bs, bt gr?, "
                                        "bt gr/head_dim?, bt gr/head_dim? -> bt gr, "
                                        "bt gr/head_dim, bt gr/head_dim",
                              .only = BY_HEADS,
                              .in_place = 6,
                              .precision = {LS_ACCUMULATE, LS_ACCUMULATE, LS_ACCUMULATE},
                              .passes = "5,6,7",
                              .gradients = {{LS_OP_RING_BWD, "a012bc34", "012"}},
                              .again = LS_AGAIN_MAY,
                              .flops = ls_ring_flops,
                              .divides = RING_DIVIDES,
                              .indices = "34"},
    /* sum of values, max, sum, [a logit for each head: see sink_attention] -> o */
    [LS_OP_RING_END] = {.labels = "n gr, n gr/head_dim, n gr/head_dim, i? -> n gr",
                        .shardable = "n",
                        .only = {{'g', LS_SHARES_KV_HEADS}, {'r', LS_SHARES_QUERY_HEADS}},
                        .passes = "0",
                        .gradients = {{LS_OP_RING_END_BWD, "aA123", "123"}},
                        .again = LS_AGAIN_MAY,
                        .divides = 1u << LS_ATTRIBUTE_head_dim | 1u << LS_ATTRIBUTE_kv_heads},
    /* q, k, v of new tokens, cache of k, cache of v, positions; places, where tokens are of several
     * sequences: each token's row of the caches, where its own are written. Its sequence begins as
     * many rows before as its position says. Without places that is the position. A logit for each
     * head, as sink_attention has it. */
    [LS_OP_CACHED_ATTENTION] = {.labels = "n gr, n g, n g, l g, l g, n, n?, i? -> n gr",
                                .only = {{'g', LS_SHARES_KV_HEADS}, {'r', LS_SHARES_QUERY_HEADS}},
                                .writes = "34",
                                .divides =
                                    1u << LS_ATTRIBUTE_head_dim | 1u << LS_ATTRIBUTE_kv_heads,
                                .indices = "56"},
    /* The same of caches whose rows are dealt to `turns` ranks in turn: the row of a place is row
     * place / turns of part place % turns, and parts lie one behind the other. A token whose place
     * is -1 has no row and sees none. Of each part what attention over its rows alone gives -> o,
     * log-sum-exp, which is -infinity where a query sees none of its rows */
    [LS_OP_CACHED_PART] = {.labels = "n gr, n g, n g, l g, l g, n, n -> u~l n gr, "
                                     "u~l n gr/head_dim",
                           .only = {{'l', LS_SHARES_TOKENS},
                                    {'g', LS_SHARES_KV_HEADS},
                                    {'r', LS_SHARES_QUERY_HEADS}},
                           .writes = "34",
                           .precision = {LS_ACCUMULATE, LS_ACCUMULATE},
                           .divides = 1u << LS_ATTRIBUTE_head_dim | 1u << LS_ATTRIBUTE_kv_heads |
                                      1u << LS_ATTRIBUTE_turns,
                           .indices = "56"},
    /* o of parts, their log-sum-exp, sinks -> o of all rows, 0 where no part has any that is seen
     */
    [LS_OP_CACHED_END] = {.labels = "u n gr, u n gr/head_dim, i? -> n gr",
                          .shardable = "n",
                          .only = {{'g', LS_SHARES_KV_HEADS}, {'r', LS_SHARES_QUERY_HEADS}},
                          .divides = 1u << LS_ATTRIBUTE_head_dim | 1u << LS_ATTRIBUTE_kv_heads},
    [LS_OP_GELU] = {.labels = "n c -> n c",
                    .shardable = "nc",
                    .gradients = {{LS_OP_GELU_BWD, "a0", "0"}},
                    .again = LS_AGAIN_CHEAP},
    /* gate, up -> activation(gate) * up */
    [LS_OP_SWIGLU] = {.labels = "n c, n c -> n c",
                      .shardable = "nc",
                      .masked = "01",
                      .gradients = {{LS_OP_SWIGLU_BWD, "a01", "01"}},
                      .again = LS_AGAIN_CHEAP},
    /* columns that are a gate and its up in turns: with both at most gate_limit, and the up at
     * least -gate_limit -> gate sigmoid(gate_slope gate) (up + 1) */
    [LS_OP_PAIRED_GLU] = {.labels = "n c -> n c/2",
                          .shardable = "nc",
                          .masked = "0",
                          .gradients = {{LS_OP_PAIRED_GLU_BWD, "a0", "0"}},
                          .again = LS_AGAIN_CHEAP},
    [LS_OP_SOFTCAP] = {.labels = "n c -> n c",
                       .shardable = "nc",
                       .in_place = 1,
                       .gradients = {{LS_OP_SOFTCAP_BWD, "aA", "0"}}},
    /* x, a draw for each token -> x without the elements that it drops, the others larger by as
     * much (device/mask.h) */
    [LS_OP_DROPOUT] = {.labels = "n c, n -> n c",
                       .shardable = "nc",
                       .linear = "0",
                       .in_place = 1,
                       .gradients = {{LS_OP_DROPOUT_BWD, "a1", "0"}},
                       .again = LS_AGAIN_CHEAP,
                       .indices = "1"},
    /* Experts. logits, [what is added to scores before choosing] -> the routed row of each token's
     * choices, the expert of each routed row, and its weight: the router's probability */
    [LS_OP_ROUTE] = {.labels = "n x, x? -> n j, o~n, o~n",
                     .only = {{'n', LS_SHARES_ROUTED}, {'.', LS_SHARES_EXPERTS}},
                     .precision = {LS_INDEX, LS_INDEX, LS_ACCUMULATE},
                     .gradients = {{LS_OP_ROUTE_BWD, "c0AB", "0"}}},
    /* x, routed rows -> a copy of the token's row for each of its experts */
    [LS_OP_DISPATCH] = {.labels = "n c, n j -> o~n c",
                        .only = {{'n', LS_SHARES_ROUTED}, {'.', LS_SHARES_EXPERTS}},
                        .linear = "0",
                        .gradients = {{LS_OP_DISPATCH_BWD, "a1", "0"}},
                        .again = LS_AGAIN_CHEAP,
                        .indices = "1"},
    /* x, weights[in, out] of one expert after another, expert of each row */
    [LS_OP_GROUPED_UP] = {.labels = "n~x k, xk m, n~x -> n~x m",
                          .shardable = "m",
                          .only = BY_EXPERTS,
                          .linear = "0",
                          .masked = "0",
                          .gradients = {{LS_OP_GROUPED_UP_DX, "a12", "0"},
                                        {LS_OP_GROUPED_UP_DW, "0a2", "1"}},
                          .again = LS_AGAIN_MAY,
                          .product = 2,
                          .divides = 1u << LS_ATTRIBUTE_experts,
                          .indices = "2"},
    /* x, weights[out, in] likewise, expert of each row */
    [LS_OP_GROUPED_DOWN] = {.labels = "n~x k, xm k, n~x -> n~x m",
                            .shardable = "k",
                            .only = BY_EXPERTS,
                            .linear = "0",
                            .masked = "0",
                            .gradients = {{LS_OP_GROUPED_DOWN_DX, "a12", "0"},
                                          {LS_OP_GROUPED_DOWN_DW, "a02", "1"}},
                            .again = LS_AGAIN_MAY,
                            .product = 1,
                            .divides = 1u << LS_ATTRIBUTE_experts,
                            .indices = "2"},
    /* x, a row of each expert, expert of each row of x -> x plus that */
    [LS_OP_GROUPED_BIAS] = {.labels = "n~x m, x m, n~x -> n~x m",
                            .shardable = "m",
                            .only = BY_EXPERTS,
                            .masked = "0",
                            .in_place = 1,
                            .passes = "0",
                            .gradients = {{LS_OP_GROUPED_BIAS_DB, "a2", "1"}},
                            .again = LS_AGAIN_MAY,
                            .indices = "2"},
    /* likewise, and a number for each row, times which it is; rows of others' experts are zeros */
    [LS_OP_GROUPED_WEIGH] = {.labels = "n~x m, x m, n~x, n~x -> n~x m",
                             .shardable = "m",
                             .only = BY_EXPERTS,
                             .masked = "0",
                             .in_place = 1,
                             .gradients = {{LS_OP_GROUPED_WEIGH_BWD, "a0123", "031"}},
                             .again = LS_AGAIN_MAY,
                             .indices = "2"},
    /* x, a number for each row */
    [LS_OP_WEIGH] = {.labels = "n c, n -> n c",
                     .shardable = "nc",
                     .linear = "0",
                     .masked = "0",
                     .in_place = 1,
                     .gradients = {{LS_OP_WEIGH_BWD, "a01", "01"}},
                     .again = LS_AGAIN_CHEAP},
    /* routed rows' results, routed rows -> the sum of each token's */
    [LS_OP_COMBINE] = {.labels = "o~n c, n j -> n c",
                       .only = {{'n', LS_SHARES_ROUTED}},
                       .linear = "0",
                       .gradients = {{LS_OP_COMBINE_BWD, "a1", "0"}},
                       .again = LS_AGAIN_MAY,
                       .indices = "1"},
    /* Rows sent to the ranks of their experts, x/held of them, and back: a rank has p slots for
     * each of them, and as many come to it from all, of which it makes rows in the order of
     * experts. So slots are cut by tokens where they are filled, by experts where they arrive.
     * routed rows, their experts, their weights -> the slot of each choice, expert and weight of
     * each slot; a slot that no choice has is of no expert: one behind all */
    [LS_OP_SLOTS] = {.labels = "n j, o~n, o~n -> n j, x/held p~n, x/held p~n",
                     .only = {{'n', LS_SHARES_ROUTED}},
                     .precision = {LS_INDEX, LS_INDEX, LS_ACCUMULATE},
                     .gradients = {{LS_OP_SLOTS_BWD, "c0A", "2"}},
                     .divides = 1u << LS_ATTRIBUTE_held,
                     .indices = "01"},
    /* x, the slot of each choice -> a copy of the token's row in each, zeros in the others */
    [LS_OP_TO_SLOTS] = {.labels = "n c, n j -> x/held p~n c",
                        .only = {{'n', LS_SHARES_ROUTED}},
                        .linear = "0",
                        .gradients = {{LS_OP_TO_SLOTS_BWD, "a1", "0"}},
                        .again = LS_AGAIN_CHEAP,
                        .divides = 1u << LS_ATTRIBUTE_held,
                        .indices = "1"},
    /* expert of each slot, its weight -> the row of each slot, expert and weight of each row */
    [LS_OP_ARRIVALS] = {.labels = "x/held p~n, x/held p~n -> x/held p~n, n~x, n~x",
                        .only = {{'n', LS_SHARES_ROUTED}, {'x', LS_SHARES_SENT}},
                        .precision = {LS_INDEX, LS_INDEX, LS_ACCUMULATE},
                        .gradients = {{LS_OP_ARRIVALS_BWD, "cA", "1"}},
                        .divides = 1u << LS_ATTRIBUTE_held,
                        .indices = "0"},
    /* slots, the row of each -> rows */
    [LS_OP_ARRIVE] = {.labels = "x/held p~n c, x/held p~n -> n~x c",
                      .only = {{'n', LS_SHARES_ROUTED}, {'x', LS_SHARES_SENT}},
                      .linear = "0",
                      .gradients = {{LS_OP_ARRIVE_BWD, "a1", "0"}},
                      .again = LS_AGAIN_MAY,
                      .divides = 1u << LS_ATTRIBUTE_held,
                      .indices = "1"},
    /* rows, the row of each slot -> slots */
    [LS_OP_LEAVE] = {.labels = "n~x c, x/held p~n -> x/held p~n c",
                     .only = {{'n', LS_SHARES_ROUTED}, {'x', LS_SHARES_SENT}},
                     .linear = "0",
                     .gradients = {{LS_OP_LEAVE_BWD, "a1", "0"}},
                     .again = LS_AGAIN_MAY,
                     .divides = 1u << LS_ATTRIBUTE_held,
                     .indices = "1"},
    /* slots, the slot of each choice -> the sum of each token's */
    [LS_OP_FROM_SLOTS] = {.labels = "x/held p~n c, n j -> n c",
                          .only = {{'n', LS_SHARES_ROUTED}},
                          .linear = "0",
                          .gradients = {{LS_OP_FROM_SLOTS_BWD, "a1", "0"}},
                          .again = LS_AGAIN_MAY,
                          .divides = 1u << LS_ATTRIBUTE_held,
                          .indices = "1"},
    /* experts of routed rows, of one rank or of several -> infinity where more of one are for one
     * rank than it has slots for, else 0: a loss of which no update is made */
    [LS_OP_LEFT_OUT] = {.labels = "o~n -> 1",
                        .duty = LS_DUTY_LOSS,
                        .only = {{'n', LS_SHARES_SEQUENCES | LS_SHARES_TOKENS}},
                        .precision = {LS_DOUBLE},
                        .divides = 1u << LS_ATTRIBUTE_held,
                        .indices = "0"},
    /* x of one column -> its sigmoid, a number for each row */
    [LS_OP_ROW_SIGMOID] = {.labels = "n 1 -> n",
                           .shardable = "n",
                           .precision = {LS_ACCUMULATE},
                           .gradients = {{LS_OP_ROW_SIGMOID_BWD, "a0", "0"}},
                           .again = LS_AGAIN_CHEAP},
    /* How many choices of the tokens with a label each expert is. logits, labels, [what is added to
     * scores before choosing] -> these, told; the same, for what needs them */
    [LS_OP_ROUTER_LOADS] = {.labels = "n x, n, x? -> 1 x, 1 x",
                            .duty = LS_DUTY_LOADS,
                            .only = {{'n', LS_SHARES_ROUTED}},
                            .precision = {LS_DOUBLE, LS_DOUBLE},
                            .indices = "1"},
    /* likewise; the second of each sequence by itself */
    [LS_OP_ROUTER_LOADS_EACH] = {.labels = "bt x, bt, x? -> 1 x, b x",
                                 .duty = LS_DUTY_LOADS,
                                 .only = {{'b', LS_SHARES_SEQUENCES}, {'t', LS_SHARES_TOKENS}},
                                 .precision = {LS_DOUBLE, LS_ACCUMULATE},
                                 .indices = "1"},
    /* loads of a layer, of layers before it -> their sum, of the whole microbatch */
    [LS_OP_ROUTER_TOTAL] = {.labels = "1 x, 1 x? -> 1 x", .whole = "01", .precision = {LS_DOUBLE}},
    /* logits, labels, loads -> sum over tokens with a label of scale times the mean probability of
     * a load's expert, and of z_scale times the square of the log-sum-exp. Loads count as numbers.
     */
    [LS_OP_ROUTER_LOSS] = {.labels = "n x, n, 1 x -> 1",
                           .duty = LS_DUTY_LOSS,
                           .only = {{'n', LS_SHARES_SEQUENCES | LS_SHARES_TOKENS}},
                           .precision = {LS_DOUBLE},
                           .gradients = {{LS_OP_ROUTER_LOSS_BWD, "012a", "0"}},
                           .indices = "1"},
    /* likewise by the loads of the token's sequence; [how often the token counts] */
    [LS_OP_ROUTER_LOSS_EACH] = {.labels = "bt x, bt, b x, bt? -> 1",
                                .duty = LS_DUTY_LOSS,
                                .only = {{'b', LS_SHARES_SEQUENCES}, {'t', LS_SHARES_TOKENS}},
                                .precision = {LS_DOUBLE},
                                .gradients = {{LS_OP_ROUTER_LOSS_EACH_BWD, "012a3", "0"}},
                                .indices = "1"},
    /* logits -> largest logit of each token */
    [LS_OP_XENT_MAX] = {.labels = "n v -> n",
                        .shardable = "nv",
                        .reduce = LS_MAX,
                        .precision = {LS_ACCUMULATE}},
    /* logits, max, labels -> sum of exp(logit - max), the label's logit */
    [LS_OP_XENT_SUM] = {.labels = "n v, n, n -> n, n",
                        .shardable = "nv",
                        .precision = {LS_ACCUMULATE, LS_ACCUMULATE},
                        .gradients = {{LS_OP_XENT_GRAD, "01A2a", "0"}},
                        .indices = "2"},
    /* The parts of the cross-entropy differentiate together: what this one passes to the sum is the
     * loss's own gradient, of which XENT_SUM's rule makes softmax minus one-hot, scaled.
     * max, sum, target, labels -> sum over tokens with a label of log(sum) + max - target */
    [LS_OP_XENT_LOSS] = {.labels = "n, n, n, n -> 1",
                         .duty = LS_DUTY_LOSS,
                         .shardable = "n",
                         .precision = {LS_DOUBLE},
                         .passes = "1",
                         .indices = "3"},
    /* xent_sum where each token's loss counts as often as the gradient of its sum says */
    [LS_OP_XENT_SUM_EACH] = {.labels = "n v, n, n -> n, n",
                             .shardable = "nv",
                             .precision = {LS_ACCUMULATE, LS_ACCUMULATE},
                             .gradients = {{LS_OP_XENT_GRAD_EACH, "01A2a", "0"}},
                             .indices = "2"},
    /* places of the tokens of whole sequences, which lie in an order of their own -> of each token
     * in turn which row it is */
    [LS_OP_TOKEN_ROWS] = {.labels = "n -> n",
                          .only = {{'n', LS_SHARES_SEQUENCES}},
                          .precision = {LS_INDEX},
                          .again = LS_AGAIN_MAY,
                          .indices = "0"},
    /* Pairs of answers. A sequence holds documents, whose tokens the positions count from 0: the
     * first two are a pair, what was chosen and what was rejected, then the next two; a pair
     * without labels is none. Of a document counts the log-probability of its labels, beyond that
     * of a reference. max, sum, target, labels, positions, reference's log-probabilities, [rows of
     * tokens] -> sum over pairs of -log sigmoid(dpo_beta (chosen - rejected)); by token, its
     * document's. With `scale` (odds ratios) counts the mean of a document's labels, without a
     * reference: a pair's loss is -scale chosen - dpo_beta log sigmoid(how much larger the log odds
     * of the chosen are). Ranks that share sequences have each all of their tokens, a few numbers
     * of each. */
    [LS_OP_PAIR_LOSS] = {.labels = "n, n, n, n, n, n, n? -> 1, n",
                         .duty = LS_DUTY_LOSS,
                         .only = {{'n', LS_SHARES_SEQUENCES}},
                         .precision = {LS_DOUBLE, LS_DOUBLE},
                         .gradients = {{LS_OP_PAIR_LOSS_BWD, "B34a6", "1"}},
                         .divides = 1u << LS_ATTRIBUTE_sequence,
                         .indices = "346"},
    /* documents' log-probabilities beyond the reference's, labels, positions, [rows of tokens] ->
     * sums over pairs of dpo_beta times the chosen one's, of that of the rejected, and of 1 where
     * the first is larger */
    [LS_OP_PAIR_REWARDS] = {.labels = "n, n, n, n? -> 1, 1, 1",
                            .duty = LS_DUTY_REWARDS,
                            .only = {{'n', LS_SHARES_SEQUENCES}},
                            .precision = {LS_DOUBLE, LS_DOUBLE, LS_DOUBLE},
                            .divides = 1u << LS_ATTRIBUTE_sequence,
                            .indices = "123"},
    /* labels, positions, [rows of tokens] -> by token with a label how many pairs its sequence has,
     * over how many such tokens; 0 of others: so that a sequence counts once for each of its pairs
     */
    [LS_OP_PAIR_SHARES] = {.labels = "n, n, n? -> n",
                           .only = {{'n', LS_SHARES_SEQUENCES}},
                           .precision = {LS_ACCUMULATE},
                           .divides = 1u << LS_ATTRIBUTE_sequence,
                           .indices = "012"},

    /* dy, ids */
    [LS_OP_EMBEDDING_DW] = {.labels = "n c, n -> v c",
                            .shardable = "nv",
                            .linear = "0",
                            .precision = {LS_ACCUMULATE},
                            .picked = 'v',
                            .indices = "1"},
    /* dy, weight */
    [LS_OP_LINEAR_DX] = {.labels = "n m, m k -> n k",
                         .shardable = "nmk",
                         .linear = "0",
                         .product = 2},
    /* dy, weight as blocks */
    [LS_OP_LINEAR_BLOCKS_DX] = {.labels = "n m, m q/64 -> n q",
                                .shardable = "nmq",
                                .linear = "0",
                                .product = 2,
                                .blocks = "1"},
    /* dy, x */
    [LS_OP_LINEAR_DW] = {.labels = "n m, n k -> m k",
                         .shardable = "nmk",
                         .linear = "0",
                         .precision = {LS_ACCUMULATE},
                         .product = 2},
    [LS_OP_BIAS_DB] = {.labels = "n c -> c",
                       .shardable = "nc",
                       .linear = "0",
                       .precision = {LS_ACCUMULATE}},
    /* dy */
    [LS_OP_SCALE_BWD] = {.labels = "n c -> n c", .shardable = "nc", .linear = "0", .in_place = 1},
    /* dy, x, weight, mean, 1/deviation -> dx, dweight, dbias */
    [LS_OP_LAYERNORM_BWD] = {.labels = "n c, n c, c, n, n -> n c, c?, c?",
                             .shardable = "n",
                             .precision = {LS_COMPUTE, LS_ACCUMULATE, LS_ACCUMULATE}},
    /* dy, x, weight, 1/rms -> dx, dweight */
    [LS_OP_RMSNORM_BWD] = {.labels = "n c, n c, c, n -> n c, c?",
                           .shardable = "n",
                           .precision = {LS_COMPUTE, LS_ACCUMULATE}},
    /* dy, x, weight, 1/rms -> dx, dweight */
    [LS_OP_HEADNORM_BWD] = {.labels = "n hd, n hd, d, n hd/head_dim -> n hd, d?",
                            .shardable = "nh",
                            .linear = "0",
                            .precision = {LS_COMPUTE, LS_ACCUMULATE},
                            .divides = 1u << LS_ATTRIBUTE_head_dim},
    /* dsum, x */
    [LS_OP_ROW_SQUARES_BWD] = {.labels = "n, n c -> n c", .shardable = "nc", .linear = "0"},
    /* dy, x, weight, sum -> dx, dweight, dsum */
    [LS_OP_ROW_SCALE_BWD] = {.labels = "n c, n c, c, n -> n c, c, n",
                             .shardable = "nc",
                             .linear = "0",
                             .precision = {LS_COMPUTE, LS_ACCUMULATE, LS_ACCUMULATE},
                             .divides = 1u << LS_ATTRIBUTE_columns},
    /* dy, table */
    [LS_OP_ROPE_BWD] = {.labels = "n h, n d -> n h",
                        .shardable = "nh",
                        .linear = "0",
                        .in_place = 1,
                        .divides = 1u << LS_ATTRIBUTE_head_dim},
    /* dy -> dx */
    [LS_OP_HEADS_BWD] = {.labels = "n w -> n h~w",
                         .shardable = "nw",
                         .linear = "0",
                         .divides = HEADS_DIVIDES},
    /* dy -> the gradient of what heads share: a sum over them */
    [LS_OP_HEADS_SHARED_BWD] = {.labels = "n w -> n p",
                                .shardable = "nw",
                                .linear = "0",
                                .divides = HEADS_DIVIDES},
    /* do, q, k, v, o, log-sum-exp; as attention has them positions, places, how many lie behind,
     * draws -> dq, dk, dv */
    [LS_OP_ATTENTION_BWD] = {.labels = "bt gr, bt gr, bs g, bs g, bt gr, bt gr/head_dim, bt?, bs?, "
                                       "bt?, bt? -> bt gr, bs g, bs g",
                             .only = BY_HEADS,
                             .flops = ls_attention_bwd_flops,
                             .divides = ATTENTION_DIVIDES,
                             .indices = "6789"},
    /* do, o, log-sum-exp, sinks -> dsinks */
    [LS_OP_SINK_BWD] = {.labels = "n gr, n gr, n gr/head_dim, i -> i",
                        .shardable = "n",
                        .only = {{'g', LS_SHARES_KV_HEADS}, {'r', LS_SHARES_QUERY_HEADS}},
                        .precision = {LS_ACCUMULATE},
                        .divides = 1u << LS_ATTRIBUTE_head_dim | 1u << LS_ATTRIBUTE_kv_heads},
    /* do, q, k, v of a block, log-sum-exp and do . o of the whole, positions, places -> of the
     * block dq, dk, dv */
    [LS_OP_RING_BWD] = {.labels = "bt gr, bt gr, bs~t+turn g, bs~t+turn g, "
                                  "bt gr/head_dim, bt gr/head_dim, bt, bs -> bt gr, "
                                  "bs~t+turn g, bs~t+turn g",
                        .only = BY_HEADS,
                        .flops = ls_ring_bwd_flops,
                        .divides = RING_DIVIDES,
                        .indices = "67"},
    /* do, o, max, sum, [sinks] -> log-sum-exp, do . o, dsinks */
    [LS_OP_RING_END_BWD] = {.labels = "n gr, n gr, n gr/head_dim, n gr/head_dim, i? -> "
                                      "n gr/head_dim, n gr/head_dim, i?",
                            .shardable = "n",
                            .only = {{'g', LS_SHARES_KV_HEADS}, {'r', LS_SHARES_QUERY_HEADS}},
                            .precision = {LS_ACCUMULATE, LS_ACCUMULATE, LS_ACCUMULATE},
                            .divides = 1u << LS_ATTRIBUTE_head_dim | 1u << LS_ATTRIBUTE_kv_heads},
    /* dy, x */
    [LS_OP_GELU_BWD] = {.labels = "n c, n c -> n c", .shardable = "nc", .in_place = 1},
    /* dy, gate, up -> dgate, dup */
    [LS_OP_SWIGLU_BWD] = {.labels = "n c, n c, n c -> n c, n c",
                          .shardable = "nc",
                          .masked = "012"},
    /* dy, x */
    [LS_OP_PAIRED_GLU_BWD] = {.labels = "n c/2, n c -> n c", .shardable = "nc", .masked = "01"},
    /* dy, y */
    [LS_OP_SOFTCAP_BWD] = {.labels = "n c, n c -> n c", .shardable = "nc", .in_place = 1},
    /* dy, draws */
    [LS_OP_DROPOUT_BWD] = {.labels = "n c, n -> n c",
                           .shardable = "nc",
                           .linear = "0",
                           .in_place = 1,
                           .indices = "1"},
    /* dweights, logits, routed rows, expert of each routed row -> dlogits */
    [LS_OP_ROUTE_BWD] = {.labels = "o~n, n x, n j, o~n -> n x",
                         .only = {{'n', LS_SHARES_ROUTED}},
                         .linear = "0",
                         .indices = "23"},
    /* dy, routed rows */
    [LS_OP_DISPATCH_BWD] = {.labels = "o~n c, n j -> n c",
                            .only = {{'n', LS_SHARES_ROUTED}},
                            .linear = "0",
                            .indices = "1"},
    /* dy, weights, expert of each row */
    [LS_OP_GROUPED_UP_DX] = {.labels = "n~x m, xk m, n~x -> n~x k",
                             .shardable = "m",
                             .only = BY_EXPERTS,
                             .linear = "0",
                             .masked = "0",
                             .product = 1,
                             .divides = 1u << LS_ATTRIBUTE_experts,
                             .indices = "2"},
    /* x, dy, expert of each row */
    [LS_OP_GROUPED_UP_DW] = {.labels = "n~x k, n~x m, n~x -> xk m",
                             .shardable = "m",
                             .only = BY_EXPERTS,
                             .linear = "1",
                             .masked = "01",
                             .precision = {LS_ACCUMULATE},
                             .product = 2,
                             .divides = 1u << LS_ATTRIBUTE_experts,
                             .indices = "2"},
    /* dy, weights, expert of each row */
    [LS_OP_GROUPED_DOWN_DX] = {.labels = "n~x m, xm k, n~x -> n~x k",
                               .shardable = "k",
                               .only = BY_EXPERTS,
                               .linear = "0",
                               .masked = "0",
                               .product = 2,
                               .divides = 1u << LS_ATTRIBUTE_experts,
                               .indices = "2"},
    /* dy, x, expert of each row */
    [LS_OP_GROUPED_DOWN_DW] = {.labels = "n~x m, n~x k, n~x -> xm k",
                               .shardable = "k",
                               .only = BY_EXPERTS,
                               .linear = "0",
                               .masked = "01",
                               .precision = {LS_ACCUMULATE},
                               .product = 2,
                               .divides = 1u << LS_ATTRIBUTE_experts,
                               .indices = "2"},
    /* dy, expert of each row */
    [LS_OP_GROUPED_BIAS_DB] = {.labels = "n~x m, n~x -> x m",
                               .shardable = "m",
                               .only = BY_EXPERTS,
                               .linear = "0",
                               .masked = "0",
                               .precision = {LS_ACCUMULATE},
                               .indices = "1"},
    /* dy, x, bias, expert of each row, a number for each -> dx, dnumber, dbias */
    [LS_OP_GROUPED_WEIGH_BWD] = {.labels = "n~x m, n~x m, x m, n~x, n~x -> n~x m, n~x, x m?",
                                 .shardable = "m",
                                 .only = BY_EXPERTS,
                                 .linear = "0",
                                 .masked = "01",
                                 .precision = {LS_COMPUTE, LS_ACCUMULATE, LS_ACCUMULATE},
                                 .indices = "3"},
    /* dy, x, a number for each row -> dx, dnumber */
    [LS_OP_WEIGH_BWD] = {.labels = "n c, n c, n -> n c, n",
                         .shardable = "nc",
                         .linear = "0",
                         .masked = "01",
                         .precision = {LS_COMPUTE, LS_ACCUMULATE}},
    /* dy, routed rows */
    [LS_OP_COMBINE_BWD] = {.labels = "n c, n j -> o~n c",
                           .only = {{'n', LS_SHARES_ROUTED}, {'.', LS_SHARES_EXPERTS}},
                           .linear = "0",
                           .indices = "1"},
    /* dweights of slots, routed rows, the slot of each choice -> dweights of routed rows */
    [LS_OP_SLOTS_BWD] = {.labels = "x/held p~n, n j, n j -> o~n",
                         .only = {{'n', LS_SHARES_ROUTED}},
                         .linear = "0",
                         .precision = {LS_ACCUMULATE},
                         .divides = 1u << LS_ATTRIBUTE_held,
                         .indices = "12"},
    /* dslots, the slot of each choice */
    [LS_OP_TO_SLOTS_BWD] = {.labels = "x/held p~n c, n j -> n c",
                            .only = {{'n', LS_SHARES_ROUTED}},
                            .linear = "0",
                            .divides = 1u << LS_ATTRIBUTE_held,
                            .indices = "1"},
    /* dweights of rows, the row of each slot */
    [LS_OP_ARRIVALS_BWD] = {.labels = "n~x, x/held p~n -> x/held p~n",
                            .only = {{'n', LS_SHARES_ROUTED}, {'x', LS_SHARES_SENT}},
                            .linear = "0",
                            .precision = {LS_ACCUMULATE},
                            .divides = 1u << LS_ATTRIBUTE_held,
                            .indices = "1"},
    /* drows, the row of each slot */
    [LS_OP_ARRIVE_BWD] = {.labels = "n~x c, x/held p~n -> x/held p~n c",
                          .only = {{'n', LS_SHARES_ROUTED}, {'x', LS_SHARES_SENT}},
                          .linear = "0",
                          .divides = 1u << LS_ATTRIBUTE_held,
                          .indices = "1"},
    /* dslots, the row of each slot */
    [LS_OP_LEAVE_BWD] = {.labels = "x/held p~n c, x/held p~n -> n~x c",
                         .only = {{'n', LS_SHARES_ROUTED}, {'x', LS_SHARES_SENT}},
                         .linear = "0",
                         .divides = 1u << LS_ATTRIBUTE_held,
                         .indices = "1"},
    /* dy, the slot of each choice */
    [LS_OP_FROM_SLOTS_BWD] = {.labels = "n c, n j -> x/held p~n c",
                              .only = {{'n', LS_SHARES_ROUTED}},
                              .linear = "0",
                              .divides = 1u << LS_ATTRIBUTE_held,
                              .indices = "1"},
    /* dnumber, x */
    [LS_OP_ROW_SIGMOID_BWD] = {.labels = "n, n 1 -> n 1", .shardable = "n", .linear = "0"},
    /* logits, labels, loads, scale -> dlogits */
    [LS_OP_ROUTER_LOSS_BWD] = {.labels = "n x, n, 1 x, 1 -> n x",
                               .only = {{'n', LS_SHARES_SEQUENCES | LS_SHARES_TOKENS}},
                               .indices = "1"},
    [LS_OP_ROUTER_LOSS_EACH_BWD] = {.labels = "bt x, bt, b x, 1, bt? -> bt x",
                                    .only = {{'b', LS_SHARES_SEQUENCES}, {'t', LS_SHARES_TOKENS}},
                                    .indices = "1"},
    /* logits, max, sum, labels, scale -> dlogits */
    [LS_OP_XENT_GRAD] = {.labels = "n v, n, n, n, 1 -> n v",
                         .shardable = "nv",
                         .in_place = 1,
                         .indices = "3"},
    /* logits, max, sum, labels, scale of each token -> dlogits */
    [LS_OP_XENT_GRAD_EACH] = {.labels = "n v, n, n, n, n -> n v",
                              .shardable = "nv",
                              .in_place = 1,
                              .indices = "3"},
    /* documents' log-probabilities beyond the reference's, labels, positions, scale, [rows of
     * tokens] -> how often the loss of each token counts: that of the chosen answer's by how far
     * the pair is from being told apart, the other's as often below 0 */
    [LS_OP_PAIR_LOSS_BWD] = {.labels = "n, n, n, 1, n? -> n",
                             .only = {{'n', LS_SHARES_SEQUENCES}},
                             .precision = {LS_ACCUMULATE},
                             .divides = 1u << LS_ATTRIBUTE_sequence,
                             .indices = "124"},

    [LS_OP_CAST] = {.labels = "e -> e", .duty = LS_DUTY_ROUND},
    [LS_OP_COPY] = {.labels = "n c -> n c",
                    .duty = LS_DUTY_COPY,
                    .shardable = "n",
                    .again = LS_AGAIN_MAY},
};

const ls_op *ls_op_row(ls_op_kind kind) {
  enum { PARTS = 6 };
  static const ls_op *const parts[PARTS] = {ls_step_ops, ls_class_ops,   ls_capacity_ops,
                                            ls_fp8_ops,  ls_distill_ops, ls_text_ops};
  static _Atomic(const ls_op *) known[LS_OP_COUNT]; /* rows are asked for by every instruction */
  const ls_op *row = atomic_load_explicit(&known[kind], memory_order_relaxed);
  if (row) return row;
  row = &rows[kind];
  for (int p = 0; p < PARTS; p++)
    if (parts[p][kind].labels) row = &parts[p][kind];
  atomic_store_explicit(&known[kind], row, memory_order_relaxed);
  return row;
}
