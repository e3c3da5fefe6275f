/* What the tests of this room send around, and what must come of it: for tests only. */
#ifndef LS_COMM_TEST_VALUES_H
#define LS_COMM_TEST_VALUES_H

#include <stdlib.h>

#include "base/random.h"
#include "graph/op.h"
#include "lockstep/dtype.h"

/* Element `index` of `rank`: magnitudes differ, so that another order gives other bits. */
static inline void ls_test_value(void *data, ls_dtype dtype, int64_t at, uint64_t seed,
                                 uint64_t stream, int rank) {
  const uint64_t bits = ls_random_bits(seed, stream * 64 + (uint64_t)rank, (uint64_t)at);
  const double magnitude = (double)(1u << (bits % 12));
  const double value = ((double)(bits >> 12) * 0x1p-51 - 1.0) * magnitude;
  switch (dtype) {
    case LS_F32: ((float *)data)[at] = (float)value; break;
    case LS_BF16: ((uint16_t *)data)[at] = ls_f32_to_bf16((float)value); break;
    case LS_F16: ((uint16_t *)data)[at] = ls_f32_to_f16((float)value); break;
    case LS_F64: ((double *)data)[at] = value; break;
    case LS_I64: ((int64_t *)data)[at] = (int64_t)bits; break;
    case LS_U8: ((uint8_t *)data)[at] = (uint8_t)bits; break;
    default: ((int32_t *)data)[at] = (int32_t)bits; break;
  }
}

/* `count` elements, to be freed. */
static inline void *ls_test_values(uint64_t seed, ls_dtype dtype, int64_t count, uint64_t stream,
                                   int rank) {
  void *data = calloc((size_t)count + 1, ls_dtype_bytes(dtype));
  for (int64_t i = 0; i < count; i++) ls_test_value(data, dtype, i, seed, stream, rank);
  return data;
}

static inline float ls_test_load(const void *data, ls_dtype dtype, int64_t at) {
  switch (dtype) {
    case LS_BF16: return ls_bf16_to_f32(((const uint16_t *)data)[at]);
    case LS_F16: return ls_f16_to_f32(((const uint16_t *)data)[at]);
    default: return ((const float *)data)[at];
  }
}

/* target[i] = the inputs' element i, reduced in their order; `before` is added first of all. */
static inline void ls_test_reduce(void *target, void *const *inputs, int count, ls_dtype dtype,
                                  int64_t at, ls_reduce op, const void *before) {
  if (dtype == LS_I64) {
    uint64_t sum = ((const uint64_t *)inputs[0])[at];
    for (int r = 1; r < count; r++) {
      const uint64_t x = ((const uint64_t *)inputs[r])[at];
      sum = op == LS_SUM ? sum + x : (int64_t)x > (int64_t)sum ? x : sum;
    }
    ((uint64_t *)target)[at] = sum + (before ? ((const uint64_t *)before)[at] : 0);
  } else if (dtype == LS_F64) {
    double sum = ((const double *)inputs[0])[at];
    for (int r = 1; r < count; r++) {
      const double x = ((const double *)inputs[r])[at];
      sum = op == LS_SUM ? sum + x : x > sum ? x : sum;
    }
    ((double *)target)[at] = before ? ((const double *)before)[at] + sum : sum;
  } else {
    float sum = 0;
    for (int r = 0; r < count; r++) {
      const float x = ls_test_load(inputs[r], dtype, at);
      sum = r == 0 ? x : op == LS_SUM ? sum + x : x > sum ? x : sum;
    }
    if (before) sum += ls_test_load(before, dtype, at);
    switch (dtype) {
      case LS_BF16: ((uint16_t *)target)[at] = ls_f32_to_bf16(sum); break;
      case LS_F16: ((uint16_t *)target)[at] = ls_f32_to_f16(sum); break;
      default: ((float *)target)[at] = sum; break;
    }
  }
}

#endif
