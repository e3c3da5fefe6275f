/* Numbers of fp32, bf16 and fp16 in memory, and codes of 8 bits, as the stand-ins of libraries that
 * compute take them. */
#ifndef LS_STAND_IN_NUMBERS_H
#define LS_STAND_IN_NUMBERS_H

#include <stdint.h>
#include <string.h>

typedef enum stand_in_type {
  STAND_IN_FP32,
  STAND_IN_BF16,
  STAND_IN_FP16,
  STAND_IN_E4M3,
  STAND_IN_E5M2
} stand_in_type;

/* By OFP8: E4M3 has no infinities, and one NaN of each sign. */
static inline float number_of_code(unsigned code, stand_in_type type) {
  const int mantissa = type == STAND_IN_E4M3 ? 3 : 2, bias = type == STAND_IN_E4M3 ? 7 : 15;
  const int exponent = (int)(code & 0x7f) >> mantissa, most = type == STAND_IN_E4M3 ? 15 : 31;
  const unsigned rest = code & ((1u << mantissa) - 1);
  float value = (float)(exponent ? rest + (1u << mantissa) : rest);
  if (exponent == most && (type == STAND_IN_E5M2 || rest == 7))
    value = type == STAND_IN_E5M2 && !rest ? __builtin_inff() : __builtin_nanf("");
  for (int e = (exponent ? exponent : 1) - bias - mantissa; e; e += e < 0 ? 1 : -1)
    value *= e < 0 ? 0.5f : 2;
  return code & 0x80 ? -value : value;
}

static inline float number_at(const void *data, stand_in_type type, int64_t at) {
  if (type == STAND_IN_FP32) return ((const float *)data)[at];
  if (type >= STAND_IN_E4M3) return number_of_code(((const uint8_t *)data)[at], type);
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
