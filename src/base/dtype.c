#include "lockstep/dtype.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

size_t ls_dtype_bytes(ls_dtype dtype) {
  static const size_t bytes[LS_DTYPE_COUNT] = {
      [LS_F32] = 4, [LS_BF16] = 2, [LS_F16] = 2, [LS_F64] = 8,
      [LS_I32] = 4, [LS_I64] = 8,  [LS_U8] = 1,
  };
  return bytes[dtype];
}

const char *ls_dtype_name(ls_dtype dtype) {
  static const char *const names[LS_DTYPE_COUNT] = {
      [LS_F32] = "fp32",  [LS_BF16] = "bf16", [LS_F16] = "fp16", [LS_F64] = "fp64",
      [LS_I32] = "int32", [LS_I64] = "int64", [LS_U8] = "uint8",
  };
  return names[dtype];
}

float ls_bf16_to_f32(uint16_t value) {
  return ls_bf16_widen(value);
}

uint16_t ls_f32_to_bf16(float value) {
  return ls_bf16_round(value);
}

float ls_f16_to_f32(uint16_t value) {
  return ls_f16_widen(value);
}

uint16_t ls_f32_to_f16(float value) {
  return ls_f16_round(value);
}

/* Of the two fp32 neighbours of a value between them the one whose last bit is 1: rounding that to
 * 16 bits gives what rounding the value itself would (S. Boldo, G. Melquiond, 2008), while rounding
 * to nearest twice may not. */
static float round_to_odd(double value) {
  const float nearest = (float)value;
  const uint32_t bits = ls_bits_of_float(nearest);
  if ((double)nearest == value || nearest != nearest || bits & 1) return nearest;
  return ls_float_of_bits(fabs((double)nearest) < fabs(value) ? bits + 1 : bits - 1);
}

static double load(const void *data, ls_dtype dtype, int64_t i) {
  switch (dtype) {
    case LS_F32: return (double)((const float *)data)[i];
    case LS_BF16: return (double)ls_bf16_widen(((const uint16_t *)data)[i]);
    case LS_F16: return (double)ls_f16_widen(((const uint16_t *)data)[i]);
    case LS_F64: return ((const double *)data)[i];
    default: return 0;
  }
}

void ls_convert(void *target, ls_dtype target_dtype, const void *source, ls_dtype source_dtype,
                int64_t count) {
  if (target_dtype == source_dtype) {
    memcpy(target, source, (size_t)count * ls_dtype_bytes(source_dtype));
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    double value = load(source, source_dtype, i);
    switch (target_dtype) {
      case LS_F32: ((float *)target)[i] = (float)value; break;
      case LS_F64: ((double *)target)[i] = value; break;
      case LS_BF16: ((uint16_t *)target)[i] = ls_bf16_round(round_to_odd(value)); break;
      case LS_F16: ((uint16_t *)target)[i] = ls_f16_round(round_to_odd(value)); break;
      default: break;
    }
  }
}
