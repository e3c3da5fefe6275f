/* Numbers of fp32, bf16 and fp16 in memory, as the stand-ins of libraries that compute take them.
 */
#ifndef LS_STAND_IN_NUMBERS_H
#define LS_STAND_IN_NUMBERS_H

#include <stdint.h>
#include <string.h>

typedef enum stand_in_type { STAND_IN_FP32, STAND_IN_BF16, STAND_IN_FP16 } stand_in_type;

static inline float number_at(const void *data, stand_in_type type, int64_t at) {
  if (type == STAND_IN_FP32) return ((const float *)data)[at];
  const uint16_t bits = ((const uint16_t *)data)[at];
  if (type == STAND_IN_FP16) {
    _Float16 half;
    memcpy(&half, &bits, sizeof half);
    return (float)half;
  }
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static inline void put_number(void *data, stand_in_type type, int64_t at, float value) {
  if (type == STAND_IN_FP32) {
    ((float *)data)[at] = value;
  } else if (type == STAND_IN_FP16) {
    const _Float16 half = (_Float16)value;
    memcpy((uint16_t *)data + at, &half, sizeof half);
  } else {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
      bits |= 0x400000; /* stays no number */
    else
      bits += 0x7fff + (bits >> 16 & 1);
    ((uint16_t *)data)[at] = (uint16_t)(bits >> 16);
  }
}

#endif
