#include "base/blocks.h"

#include <math.h>
#include <string.h>

#include "base/scales.h"

_Static_assert(sizeof(ls_four_bit_block) == 36 && sizeof(ls_int8_block) == 68 &&
                   sizeof(ls_double_block) == 33,
               "elements have no gaps");

/* Of codes of 4 bits: the numbers they stand for; in rising order of these the numbers halfway
 * between neighbours, and the codes. bitsandbytes has the same bits of all. */
typedef struct code_table {
  float values[LS_FOUR_BIT_CODES], halves[LS_FOUR_BIT_CODES - 1];
  uint8_t rising[LS_FOUR_BIT_CODES];
} code_table;

static const code_table of_nf4 = {
    .values = {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
               -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
               0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f,
               0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f,
               1.0f},
    .halves = {-0.8480964004993439f, -0.6106329262256622f, -0.4599952697753906f,
               -0.33967943489551544f, -0.23460740596055984f, -0.13791173323988914f,
               -0.045525018125772476f, 0.03979014977812767f, 0.1202552504837513f,
               0.2035212516784668f, 0.2920137718319893f, 0.3893125355243683f, 0.5016634166240692f,
               0.6427869200706482f, 0.8614784178118011f},
    .rising = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};

/* Twelfths. What is above zero and next to it takes the code 8, a zero too, as there. */
#define HALF(a, b) (((a) / 12.0f + (b) / 12.0f) / 2.0f)
static const code_table of_fp4 = {
    .values = {0.0f, 0.0625f / 12.0f, 8.0f / 12.0f, 1.0f, 4.0f / 12.0f, 6.0f / 12.0f, 2.0f / 12.0f,
               3.0f / 12.0f, 0.0f, -0.0625f / 12.0f, -8.0f / 12.0f, -1.0f, -4.0f / 12.0f,
               -6.0f / 12.0f, -2.0f / 12.0f, -3.0f / 12.0f},
    .halves = {-HALF(12.0f, 8.0f), -HALF(8.0f, 6.0f), -HALF(6.0f, 4.0f), -HALF(4.0f, 3.0f),
               -HALF(3.0f, 2.0f), -HALF(2.0f, 0.0625f), -HALF(0.0625f, 0.0f), 0.0f,
               HALF(0.0f, 0.0625f), HALF(0.0625f, 2.0f), HALF(2.0f, 3.0f), HALF(3.0f, 4.0f),
               HALF(4.0f, 6.0f), HALF(6.0f, 8.0f), HALF(8.0f, 12.0f)},
    .rising = {11, 10, 13, 12, 15, 14, 9, 0, 8, 1, 6, 7, 4, 5, 2, 3}};

static const code_table *table_of(ls_dtype dtype) {
  return dtype == LS_NF4 ? &of_nf4 : dtype == LS_FP4 ? &of_fp4 : NULL;
}

ls_dtype ls_blocks_single(ls_dtype dtype) {
  return dtype == LS_NF4_DOUBLE ? LS_NF4 : dtype == LS_FP4_DOUBLE ? LS_FP4 : dtype;
}

const float *ls_blocks_values(ls_dtype dtype) {
  const code_table *table = table_of(dtype);
  return table ? table->values : NULL;
}

/* The least scale that is divided by, as there. */
static const float least_scale = 1e-38f;

static float largest(const float *weights) {
  float most = 0;
  for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) most = fmaxf(most, fabsf(weights[i]));
  return most;
}

/* Halfway goes to the lower one, as there. */
static unsigned nearest(const code_table *table, float share) {
  unsigned at = 0;
  for (int i = 0; i < LS_FOUR_BIT_CODES - 1; i++) at += share > table->halves[i];
  return table->rising[at];
}

static void quantise_four_bits(const code_table *table, const float *weights,
                               ls_four_bit_block *block) {
  block->scale = largest(weights);
  const float inverse = 1.0f / fmaxf(block->scale, least_scale); /* of which 0 times it is 0 */
  for (int i = 0; i < LS_BLOCK_WEIGHTS; i += 2)
    block->codes[i / 2] = (uint8_t)(nearest(table, weights[i] * inverse) << 4 |
                                    nearest(table, weights[i + 1] * inverse));
}

static void quantise_int8(const float *weights, ls_int8_block *block) {
  const float most = largest(weights), inverse = most > 0 ? LS_INT8_MOST / most : 0;
  block->scale = most * (1.0f / LS_INT8_MOST);
  for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) block->codes[i] = (int8_t)lrintf(weights[i] * inverse);
}

void ls_blocks_quantise(ls_dtype dtype, const float *weights, int64_t blocks, void *elements) {
  const code_table *table = table_of(dtype);
  for (int64_t b = 0; b < blocks; b++, weights += LS_BLOCK_WEIGHTS)
    if (table)
      quantise_four_bits(table, weights, (ls_four_bit_block *)elements + b);
    else
      quantise_int8(weights, (ls_int8_block *)elements + b);
}

static void restore_four_bits(const float *values, const ls_four_bit_block *block, float *weights) {
  for (int i = 0; i < LS_BLOCK_WEIGHTS; i += 2) {
    weights[i] = values[block->codes[i / 2] >> 4] * block->scale;
    weights[i + 1] = values[block->codes[i / 2] & 15] * block->scale;
  }
}

static void restore_int8(const ls_int8_block *block, float *weights) {
  for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) weights[i] = (float)block->codes[i] * block->scale;
}

void ls_blocks_restore(ls_dtype dtype, const void *elements, int64_t blocks, float *weights) {
  const float *values = ls_blocks_values(dtype);
  for (int64_t b = 0; b < blocks; b++, weights += LS_BLOCK_WEIGHTS)
    if (values)
      restore_four_bits(values, (const ls_four_bit_block *)elements + b, weights);
    else
      restore_int8((const ls_int8_block *)elements + b, weights);
}

void ls_blocks_scales(const float *weights, int64_t blocks, float *scales) {
  for (int64_t b = 0; b < blocks; b++) scales[b] = largest(weights + b * LS_BLOCK_WEIGHTS);
}

void ls_blocks_nest(const ls_four_bit_block *blocks, const float *nested, int64_t first,
                    int64_t count, ls_double_block *made) {
  for (int64_t b = 0; b < count; b++) {
    made[b].scale = ls_scale_code(blocks[b].scale, nested, first + b);
    memcpy(made[b].codes, blocks[b].codes, sizeof made[b].codes);
  }
}

void ls_blocks_unnest(const ls_double_block *blocks, const float *nested, int64_t first,
                      int64_t count, ls_four_bit_block *made) {
  for (int64_t b = 0; b < count; b++) {
    made[b].scale = ls_scale_of(blocks[b].scale, nested, first + b);
    memcpy(made[b].codes, blocks[b].codes, sizeof made[b].codes);
  }
}
