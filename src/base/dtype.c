#include "lockstep/dtype.h"

#include <string.h>

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
  uint32_t bits = (uint32_t)value << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

uint16_t ls_f32_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float ls_f16_to_f32(uint16_t value) {
  uint32_t sign = (uint32_t)(value & 0x8000u) << 16;
  uint32_t exponent = (value >> 10) & 0x1fu;
  uint32_t fraction = value & 0x3ffu;
  uint32_t bits;
  if (exponent == 31) {
    bits = sign | 0x7f800000u | (fraction << 13);
  } else if (exponent) {
    bits = sign | ((exponent + 112) << 23) | (fraction << 13);
  } else {
    float magnitude = (float)fraction * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

static double load(const void *data, ls_dtype dtype, int64_t i) {
  switch (dtype) {
    case LS_F32: return (double)((const float *)data)[i];
    case LS_BF16: return (double)ls_bf16_to_f32(((const uint16_t *)data)[i]);
    case LS_F16: return (double)ls_f16_to_f32(((const uint16_t *)data)[i]);
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
      case LS_BF16: ((uint16_t *)target)[i] = ls_f32_to_bf16((float)value); break;
      default: break;
    }
  }
}
