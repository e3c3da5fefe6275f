/* In which order the tokens of sequences lie over the ranks of the context axes: the order in which
 * the host fills inputs, and nothing else. Attention is told each token's place.
 *
 * A sequence is cut into two chunks for each rank, of which rank r has the r-th from the front and
 * the r-th from the back: under a causal mask all ranks then have equal work. A rank has its chunks
 * of the first sequence, then of the second. No state; thread-safe. */
#ifndef LS_SESSION_TOKEN_ORDER_H
#define LS_SESSION_TOKEN_ORDER_H

#include <stdint.h>

/* Which token, of the rows of all `ranks` together, is row `row` of rank `rank`. `sequence` is a
 * multiple of 2 x ranks; with one rank each row is its token. */
int64_t ls_token_order(int64_t row, int64_t sequence, int ranks, int rank);

#endif
