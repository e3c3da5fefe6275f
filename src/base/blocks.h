/* Blocks of quantised weights: elements of LS_NF4, LS_FP4 and LS_INT8; and of LS_NF4_DOUBLE and
 * LS_FP4_DOUBLE, whose scales are quantised again.
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

#include <stdbool.h>

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

typedef struct ls_double_block {
  uint8_t scale;
  uint8_t codes[LS_BLOCK_WEIGHTS / 2];
} ls_double_block;

/* The type of the same codes with scales in fp32: LS_NF4 of LS_NF4_DOUBLE, LS_FP4 of
 * LS_FP4_DOUBLE; of any other itself. */
ls_dtype ls_blocks_single(ls_dtype dtype);

/* The LS_FOUR_BIT_CODES numbers that codes of LS_NF4 or LS_FP4 stand for, with bitsandbytes' bits:
 * NF4's in rising order, FP4's as its bits are sign, exponent and fraction. NULL: of another type.
 */
const float *ls_blocks_values(ls_dtype dtype);

/* `blocks` elements of `dtype`, whose scales are in fp32, from and to LS_BLOCK_WEIGHTS numbers
 * each; they do not overlap. Weights are finite: who reads them sees to it. */
void ls_blocks_quantise(ls_dtype dtype, const float *weights, int64_t blocks, void *elements);
void ls_blocks_restore(ls_dtype dtype, const void *elements, int64_t blocks, float *weights);

/* The scales of the same blocks. */
void ls_blocks_scales(const float *weights, int64_t blocks, float *scales);

/* Blocks number `first` and on of a matrix between scales of 8 bits and of fp32: their codes are
 * the same. `nested` are the numbers of all the matrix' scales (base/scales.h). */
void ls_blocks_nest(const ls_four_bit_block *blocks, const float *nested, int64_t first,
                    int64_t count, ls_double_block *made);
void ls_blocks_unnest(const ls_double_block *blocks, const float *nested, int64_t first,
                      int64_t count, ls_four_bit_block *made);

#endif
