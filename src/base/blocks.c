#include "base/blocks.h"

#include <math.h>

_Static_assert(sizeof(ls_nf4_block) == 36 && sizeof(ls_int8_block) == 68, "elements have no gaps");

/* bitsandbytes' table and the numbers halfway between its neighbours, as its kernels have both. */
const float ls_nf4_values[LS_NF4_CODES] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};
static const float halves[LS_NF4_CODES - 1] = {
    -0.8480964004993439f,  -0.6106329262256622f,  -0.4599952697753906f,   -0.33967943489551544f,
    -0.23460740596055984f, -0.13791173323988914f, -0.045525018125772476f, 0.03979014977812767f,
    0.1202552504837513f,   0.2035212516784668f,   0.2920137718319893f,    0.3893125355243683f,
    0.5016634166240692f,   0.6427869200706482f,   0.8614784181118011f,
};

static float largest(const float *weights) {
  float most = 0;
  for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) most = fmaxf(most, fabsf(weights[i]));
  return most;
}

/* Halfway goes to the lower one, as there. */
static unsigned nearest(float share) {
  unsigned code = 0;
  for (int i = 0; i < LS_NF4_CODES - 1; i++) code += share > halves[i];
  return code;
}

static void quantise_nf4(const float *weights, ls_nf4_block *block) {
  block->scale = largest(weights);
  const float inverse = block->scale > 0 ? 1.0f / block->scale : 0;
  for (int i = 0; i < LS_BLOCK_WEIGHTS; i += 2)
    block->codes[i / 2] =
        (uint8_t)(nearest(weights[i] * inverse) << 4 | nearest(weights[i + 1] * inverse));
}

static void quantise_int8(const float *weights, ls_int8_block *block) {
  const float most = largest(weights), inverse = most > 0 ? LS_INT8_MOST / most : 0;
  block->scale = most * (1.0f / LS_INT8_MOST);
  for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) block->codes[i] = (int8_t)lrintf(weights[i] * inverse);
}

void ls_blocks_quantise(ls_dtype dtype, const float *weights, int64_t blocks, void *elements) {
  for (int64_t b = 0; b < blocks; b++, weights += LS_BLOCK_WEIGHTS)
    if (dtype == LS_NF4)
      quantise_nf4(weights, (ls_nf4_block *)elements + b);
    else
      quantise_int8(weights, (ls_int8_block *)elements + b);
}

static void restore_nf4(const ls_nf4_block *block, float *weights) {
  for (int i = 0; i < LS_BLOCK_WEIGHTS; i += 2) {
    weights[i] = ls_nf4_values[block->codes[i / 2] >> 4] * block->scale;
    weights[i + 1] = ls_nf4_values[block->codes[i / 2] & 15] * block->scale;
  }
}

static void restore_int8(const ls_int8_block *block, float *weights) {
  for (int i = 0; i < LS_BLOCK_WEIGHTS; i++) weights[i] = (float)block->codes[i] * block->scale;
}

void ls_blocks_restore(ls_dtype dtype, const void *elements, int64_t blocks, float *weights) {
  for (int64_t b = 0; b < blocks; b++, weights += LS_BLOCK_WEIGHTS)
    if (dtype == LS_NF4)
      restore_nf4((const ls_nf4_block *)elements + b, weights);
    else
      restore_int8((const ls_int8_block *)elements + b, weights);
}
