/* Blocks of quantised weights: elements of LS_NF4 and LS_INT8.
 *
 *   ls_blocks_quantise(LS_NF4, weights, 2, blocks);  // 128 fp32 numbers, two elements
 *
 * A block is a scale and codes, which stand for numbers that times the scale are the weights. NF4's
 * codes are of 4 bits, an even weight's in the upper half of a byte, and stand for the 16 numbers
 * of ls_nf4_values (T. Dettmers et al., arXiv 2305.14314); the scale is the largest magnitude of
 * the weights, and the nearest code is taken, as bitsandbytes takes it. INT8's are whole numbers
 * from -127 to 127; the scale is the largest magnitude / 127. All arithmetic is fp32 and rounds
 * each weight once, so that any code that does the same has the same bits. Thread-safe: no state.
 */
#ifndef LS_BASE_BLOCKS_H
#define LS_BASE_BLOCKS_H

#include "lockstep/dtype.h"

enum { LS_NF4_CODES = 16, LS_INT8_MOST = 127 };

typedef struct ls_nf4_block {
  float scale;
  uint8_t codes[LS_BLOCK_WEIGHTS / 2];
} ls_nf4_block;

typedef struct ls_int8_block {
  float scale;
  int8_t codes[LS_BLOCK_WEIGHTS];
} ls_int8_block;

/* In rising order, as bitsandbytes has them. */
extern const float ls_nf4_values[LS_NF4_CODES];

/* `blocks` elements of `dtype` from and to LS_BLOCK_WEIGHTS numbers each; they do not overlap.
 * Weights are finite: who reads them sees to it. */
void ls_blocks_quantise(ls_dtype dtype, const float *weights, int64_t blocks, void *elements);
void ls_blocks_restore(ls_dtype dtype, const void *elements, int64_t blocks, float *weights);

#endif
