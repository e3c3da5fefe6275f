/* Numbers of 8 bits, as the Open Compute Project's OFP8 has them (revision 1.0, 2023): E4M3 with 4
 * bits of exponent and 3 of mantissa, up to 448, without infinities; E5M2 with 5 and 2, up to
 * 57,344. What a number is rounded to is held as a wider one, which has all of them exactly.
 *
 *   const int scale = ls_fp8_scale(LS_FP8_E4M3, largest);
 *   value = ldexp(ls_fp8_round(LS_FP8_E4M3, ldexp(value, scale)), -scale);
 *
 * Values only; thread-safe. */
#ifndef LS_BASE_FP8_H
#define LS_BASE_FP8_H

#include "base/half.h"

typedef enum ls_fp8 { LS_FP8_NONE = 0, LS_FP8_E4M3, LS_FP8_E5M2 } ls_fp8;
enum { LS_FP8_COUNT = LS_FP8_E5M2 + 1 };

/* To nearest even. What is beyond the largest number becomes that; a NaN stays one, and so in E4M3
 * becomes an infinity, which in E5M2 stays what it is. */
double ls_fp8_round(ls_fp8 format, double value);

/* The exponent of the largest power of two times which `largest` is still a number of the format,
 * at most 126, so that fp32 has its reciprocal too. 0 where `largest` is 0 or not finite. */
int ls_fp8_scale(ls_fp8 format, double largest);

/* What the branchless form needs of a format. */
typedef struct ls_fp8_grid {
  uint32_t dropped;   /* the lowest bits of an fp32's mantissa that it has not */
  float least, magic; /* its least normal number; what has its least number as last bit */
  float most;         /* its largest */
  uint32_t infinity;  /* bits of a NaN that an infinity becomes; of an infinity: it stays one */
} ls_fp8_grid;

static inline ls_fp8_grid ls_fp8_grid_of(ls_fp8 format) {
  return format == LS_FP8_E4M3 ? (ls_fp8_grid){20, 0x1p-6f, 0x1p14f, 448.0f, 0x7fc00000u}
                               : (ls_fp8_grid){21, 0x1p-14f, 0x1p7f, 57344.0f, 0x7f800000u};
}

/* ls_fp8_round of an fp32, which compilers turn into vector code. */
LS_HALF_INLINE float ls_fp8_round_f32(const ls_fp8_grid *grid, float value) {
  const uint32_t bits = ls_bits_of_float(value), sign = bits & 0x80000000u, magnitude = bits ^ sign;
  const uint32_t half = (1u << (grid->dropped - 1)) - 1u, last = magnitude >> grid->dropped & 1u;
  const float size = ls_float_of_bits(magnitude);
  const float small = (size + grid->magic) - grid->magic;
  const float normal = ls_float_of_bits((magnitude + half + last) & ~((1u << grid->dropped) - 1u));
  const float rounded = size < grid->least ? small : normal;
  const uint32_t kept = ls_bits_of_float(rounded < grid->most ? rounded : grid->most);
  const uint32_t infinite = magnitude == 0x7f800000u ? grid->infinity : magnitude;
  return ls_float_of_bits(sign | (magnitude < 0x7f800000u ? kept : infinite));
}

/* The 8 bits of a number that E4M3 has, and the number of such a code. */
LS_HALF_INLINE uint8_t ls_e4m3_code(float value) {
  enum { LESS = (127 - 7) << 3 }; /* what fp32 adds to exponents, in eighths */
  const uint32_t bits = ls_bits_of_float(value), magnitude = bits & 0x7fffffffu;
  const float size = ls_float_of_bits(magnitude);
  const uint32_t small = (uint32_t)(int32_t)(size < 0x1p-6f ? size * 0x1p9f : 0.0f);
  const uint32_t number = size < 0x1p-6f ? small : (magnitude >> 20) - LESS;
  return (uint8_t)((bits >> 24 & 0x80u) | (magnitude < 0x7f800000u ? number : 0x7fu));
}

LS_HALF_INLINE float ls_e4m3_value(uint8_t code) {
  const uint32_t number = code & 0x7fu, sign = (uint32_t)(code & 0x80u) << 24;
  const float small = (float)(int32_t)number * 0x1p-9f;
  const float size = number < 8 ? small : ls_float_of_bits((number + 960u) << 20);
  return ls_float_of_bits(sign | (number < 0x7fu ? ls_bits_of_float(size) : 0x7fc00000u));
}

#endif
