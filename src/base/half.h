/* Elements of 16 bits, converted one at a time and inlined: what ls_convert and the vectorised
 * loops of comm and run share.
 *
 *   for (int64_t i = 0; i < count; i++) wide[i] = ls_f16_widen(narrow[i]);
 *
 * No function has a branch, so compilers turn loops over them into vector code; all of it gives
 * the bits of the processors' own conversions, NaNs included. Thread-safe: no state. */
#ifndef LS_BASE_HALF_H
#define LS_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#define LS_HALF_INLINE static inline __attribute__((always_inline))

LS_HALF_INLINE float ls_float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

LS_HALF_INLINE uint32_t ls_bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

LS_HALF_INLINE float ls_bf16_widen(uint16_t value) {
  return ls_float_of_bits((uint32_t)value << 16);
}

/* To nearest even; a NaN stays one, made quiet. */
LS_HALF_INLINE uint16_t ls_bf16_round(float value) {
  const uint32_t bits = ls_bits_of_float(value);
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return (uint16_t)((value == value ? rounded : bits | 0x400000u) >> 16);
}

/* A fraction is shifted to its place in an fp32. A normal number with its exponent raised by 224 is
 * 2^112 too large, and exponent 31 has become 255: infinities and NaNs stay what they are. A
 * subnormal one, written into the lowest bits of 0.5, is what stands there beyond 0.5. */
LS_HALF_INLINE float ls_f16_widen(uint16_t value) {
  const uint32_t sign = (uint32_t)(value & 0x8000u) << 16, magnitude = value & 0x7fffu;
  const float normal = ls_float_of_bits((magnitude << 13) + 0x70000000u) * 0x1p-112f;
  const float subnormal = ls_float_of_bits(magnitude | 0x3f000000u) - 0.5f;
  return ls_float_of_bits(sign | ls_bits_of_float(magnitude < 0x400u ? subnormal : normal));
}

/* To nearest even, beyond 65,504 to infinity; a NaN stays one, made quiet.
 *
 * The processor rounds: to 4 |x| is added the power of two whose last bit is worth the last of
 * fp16's at x, 2^15 times that of x, or of 2^-14 where x is subnormal. The sum's exponent is then
 * fp16's less 1 (modulo 32), and its lowest 12 bits are the fraction with the leading bit, which
 * makes up for the 1. Multiplying by 2^112 first makes an infinity of what is 2^16 or more. Every
 * product is exact, so it makes no difference whether the compiler fuses it with the sum. (After
 * M. Dukhan's FP16 library.) */
LS_HALF_INLINE uint16_t ls_f16_round(float value) {
  const uint32_t bits = ls_bits_of_float(value), magnitude = bits & 0x7fffffffu;
  const uint32_t exponent = magnitude & 0x7f800000u;
  const float power =
      ls_float_of_bits((exponent < 0x38800000u ? 0x38800000u : exponent) + 0x07800000u);
  const float sum = power + ls_float_of_bits(magnitude) * 0x1p112f * 0x1p-110f;
  const uint32_t rounded =
      ((ls_bits_of_float(sum) >> 13) & 0x7c00u) + (ls_bits_of_float(sum) & 0xfffu);
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  return (uint16_t)((bits >> 16 & 0x8000u) | (value == value ? rounded : nan));
}

#endif
