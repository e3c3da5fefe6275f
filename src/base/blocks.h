/* Blocks of quantised weights: elements of LS_NF4, LS_FP4 and LS_INT8.
 *
 *   ls_blocks_quantise(LS_NF4, weights, 2, blocks);  // 128 fp32 numbers, two elements
 *
 * A block is a scale and codes, which stand for numbers that times the scale are the weights. Codes
 * of NF4 (T. Dettmers et al., arXiv 2305.14314) and of FP4 are of 4 bits, an even weight's in the
 * upper half of a byte, and stand for the 16 numbers of ls_blocks_values; the scale is the largest
 * magnitude of the weights, and the nearest code is taken, as bitsandbytes takes it on CPUs. INT8's
 * are whole numbers from -127 to 127; the scale is the largest magnitude / 127. All arithmetic is
 * fp32 and rounds each weight once, so that any code that does the same has the same bits.
 * Thread-safe: no state.
 */
#ifndef LS_BASE_BLOCKS_H
#define LS_BASE_BLOCKS_H

#include "lockstep/dtype.h"

enum { LS_FOUR_BIT_CODES = 16, LS_INT8_MOST = 127 };

typedef struct ls_four_bit_block {
  float scale;
  uint8_t codes[LS_BLOCK_WEIGHTS / 2];
} ls_four_bit_block;

typedef struct ls_int8_block {
  float scale;
  int8_t codes[LS_BLOCK_WEIGHTS];
} ls_int8_block;

/* The LS_FOUR_BIT_CODES numbers that codes of LS_NF4 or LS_FP4 stand for, with bitsandbytes' bits:
 * NF4's in rising order, FP4's as its bits are sign, exponent and fraction. NULL: of another type.
 */
const float *ls_blocks_values(ls_dtype dtype);

/* `blocks` elements of `dtype` from and to LS_BLOCK_WEIGHTS numbers each; they do not overlap.
 * Weights are finite: who reads them sees to it. */
void ls_blocks_quantise(ls_dtype dtype, const float *weights, int64_t blocks, void *elements);
void ls_blocks_restore(ls_dtype dtype, const void *elements, int64_t blocks, float *weights);

#endif
