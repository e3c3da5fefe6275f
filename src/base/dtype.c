#include "lockstep/dtype.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

size_t ls_dtype_bytes(ls_dtype dtype) {
  static const size_t bytes[LS_DTYPE_COUNT] = {
      [LS_F32] = 4,
      [LS_BF16] = 2,
      [LS_F16] = 2,
      [LS_F64] = 8,
      [LS_I32] = 4,
      [LS_I64] = 8,
      [LS_U8] = 1,
      [LS_NF4] = sizeof(float) + LS_BLOCK_WEIGHTS / 2,
      [LS_INT8] = sizeof(float) + LS_BLOCK_WEIGHTS,
      [LS_FP4] = sizeof(float) + LS_BLOCK_WEIGHTS / 2,
      [LS_NF4_DOUBLE] = 1 + LS_BLOCK_WEIGHTS / 2,
      [LS_FP4_DOUBLE] = 1 + LS_BLOCK_WEIGHTS / 2,
  };
  return bytes[dtype];
}

const char *ls_dtype_name(ls_dtype dtype) {
  static const char *const names[LS_DTYPE_COUNT] = {
      [LS_F32] = "fp32",
      [LS_BF16] = "bf16",
      [LS_F16] = "fp16",
      [LS_F64] = "fp64",
      [LS_I32] = "int32",
      [LS_I64] = "int64",
      [LS_U8] = "uint8",
      [LS_NF4] = "nf4",
      [LS_INT8] = "int8",
      [LS_FP4] = "fp4",
      [LS_NF4_DOUBLE] = "nf4-double",
      [LS_FP4_DOUBLE] = "fp4-double",
  };
  return names[dtype];
}

int64_t ls_dtype_numbers(ls_dtype dtype) {
  switch (dtype) {
    case LS_NF4:
    case LS_INT8:
    case LS_FP4:
    case LS_NF4_DOUBLE:
    case LS_FP4_DOUBLE: return LS_BLOCK_WEIGHTS;
    default: return 1;
  }
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

/* What checkpoints are made of: loops that compilers turn into vector code. */
#define CONVERT_PAIR(name, from_type, to_type, value)                        \
  static void name(void *target, const void *source, int64_t count) {        \
    const from_type *restrict from = source;                                 \
    to_type *restrict to = target;                                           \
    _Pragma("omp simd") for (int64_t i = 0; i < count; i++) to[i] = (value); \
  }
CONVERT_PAIR(widen_bf16, uint16_t, float, ls_bf16_widen(from[i]))
CONVERT_PAIR(widen_f16, uint16_t, float, ls_f16_widen(from[i]))
CONVERT_PAIR(widen_f32, float, double, (double)from[i])
CONVERT_PAIR(round_bf16, float, uint16_t, ls_bf16_round(from[i]))
CONVERT_PAIR(round_f16, float, uint16_t, ls_f16_round(from[i]))
CONVERT_PAIR(round_f64, double, float, (float)from[i])

static void (*find_pair(ls_dtype target, ls_dtype source))(void *, const void *, int64_t) {
  if (source == LS_F64) return target == LS_F32 ? round_f64 : NULL;
  if (target == LS_F64) return source == LS_F32 ? widen_f32 : NULL;
  if (target == LS_F32) return source == LS_BF16 ? widen_bf16 : source == LS_F16 ? widen_f16 : NULL;
  if (source != LS_F32) return NULL;
  return target == LS_BF16 ? round_bf16 : target == LS_F16 ? round_f16 : NULL;
}

void ls_convert(void *target, ls_dtype target_dtype, const void *source, ls_dtype source_dtype,
                int64_t count) {
  if (target_dtype == source_dtype) {
    memcpy(target, source, (size_t)count * ls_dtype_bytes(source_dtype));
    return;
  }
  void (*const pair)(void *, const void *, int64_t) = find_pair(target_dtype, source_dtype);
  if (pair) {
    pair(target, source, count);
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
