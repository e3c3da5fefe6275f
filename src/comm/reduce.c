#include "comm/reduce.h"

#include <string.h>

/* The loops below are written to become vector code, which gcc does for unknown lengths from -O3
 * on only; clang does at -O2. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

/* Elements summed at a time: the sums of one tile stay in the first-level cache while the sources
 * stream through, and a target that is a source is only written once its tile has been read. */
enum { TILE = 2048 };

bool ls_reduce_knows(ls_dtype dtype) {
  return dtype == LS_F32 || dtype == LS_BF16 || dtype == LS_F64 || dtype == LS_I64;
}

/* NaN is kept from either side, so that a fault in one rank's values is seen by all. */
#define FLOAT_MAX(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define WHOLE_MAX(a, b) ((a) > (b) ? (a) : (b))
#define PLAIN_SUM(a, b) ((a) + (b))
/* Sums wrap around, as they do in every processor; signed overflow would be undefined in C. */
#define WRAPPED_SUM(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))

/* NAME(sums, a, b, n): sums = a op b; NAME_more(sums, x, n): sums = sums op x. */
#define DEFINE_KERNEL(NAME, TYPE, COMBINE)                                                       \
  static void NAME(TYPE *restrict sums, const TYPE *restrict a, const TYPE *restrict b, int n) { \
    for (int i = 0; i < n; i++) sums[i] = COMBINE(a[i], b[i]);                                   \
  }                                                                                              \
  static void NAME##_more(TYPE *restrict sums, const TYPE *restrict x, int n) {                  \
    for (int i = 0; i < n; i++) sums[i] = COMBINE(sums[i], x[i]);                                \
  }

DEFINE_KERNEL(sum_f32, float, PLAIN_SUM)
DEFINE_KERNEL(max_f32, float, FLOAT_MAX)
DEFINE_KERNEL(sum_f64, double, PLAIN_SUM)
DEFINE_KERNEL(max_f64, double, FLOAT_MAX)
DEFINE_KERNEL(sum_i64, int64_t, WRAPPED_SUM)
DEFINE_KERNEL(max_i64, int64_t, WHOLE_MAX)

/* The sums of one tile over all sources, in order; then, where asked for, target + sums. */
#define DEFINE_TILE(NAME, TYPE, SUM, MAX)                                                 \
  static void NAME(TYPE *sums, const void *target, const void *const *sources, int count, \
                   int64_t start, int n, ls_reduce op) {                                  \
    const TYPE *first = (const TYPE *)sources[0] + start;                                 \
    if (count == 1) memcpy(sums, first, (size_t)n * sizeof *sums);                        \
    if (count > 1 && op == LS_SUM) SUM(sums, first, (const TYPE *)sources[1] + start, n); \
    if (count > 1 && op == LS_MAX) MAX(sums, first, (const TYPE *)sources[1] + start, n); \
    for (int s = 2; s < count; s++) {                                                     \
      if (op == LS_SUM) SUM##_more(sums, (const TYPE *)sources[s] + start, n);            \
      if (op == LS_MAX) MAX##_more(sums, (const TYPE *)sources[s] + start, n);            \
    }                                                                                     \
    if (target && op == LS_SUM) SUM##_more(sums, (const TYPE *)target + start, n);        \
    if (target && op == LS_MAX) MAX##_more(sums, (const TYPE *)target + start, n);        \
  }

DEFINE_TILE(tile_f32, float, sum_f32, max_f32)
DEFINE_TILE(tile_f64, double, sum_f64, max_f64)
DEFINE_TILE(tile_i64, int64_t, sum_i64, max_i64)

#define INLINE static inline __attribute__((always_inline))

/* The conversions of base, written so that the compiler turns them into vector code. */
INLINE void widen(float *restrict wide, const uint16_t *restrict narrow, int n) {
  for (int i = 0; i < n; i++) {
    const uint32_t bits = (uint32_t)narrow[i] << 16;
    memcpy(&wide[i], &bits, sizeof bits);
  }
}

INLINE void widen_sum(float *restrict sums, const uint16_t *restrict narrow, int n) {
  for (int i = 0; i < n; i++) {
    const uint32_t bits = (uint32_t)narrow[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof bits);
    sums[i] += value;
  }
}

INLINE void widen_max(float *restrict sums, const uint16_t *restrict narrow, int n) {
  for (int i = 0; i < n; i++) {
    const uint32_t bits = (uint32_t)narrow[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof bits);
    sums[i] = FLOAT_MAX(sums[i], value);
  }
}

INLINE void narrow_all(uint16_t *restrict narrow, const float *restrict wide, int n) {
  for (int i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, &wide[i], sizeof bits);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    narrow[i] = (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
}

INLINE void convert_and_sum(uint16_t *narrow, const void *target, const void *const *sources,
                            int count, int64_t start, int n, ls_reduce op) {
  float sums[TILE];
  widen(sums, (const uint16_t *)sources[0] + start, n);
  for (int s = 1; s < count; s++) {
    const uint16_t *source = (const uint16_t *)sources[s] + start;
    if (op == LS_SUM) widen_sum(sums, source, n);
    if (op == LS_MAX) widen_max(sums, source, n);
  }
  if (target && op == LS_SUM) widen_sum(sums, (const uint16_t *)target + start, n);
  if (target && op == LS_MAX) widen_max(sums, (const uint16_t *)target + start, n);
  narrow_all(narrow, sums, n);
}

/* Converting is more work than adding, so that wider vectors pay here and nowhere else; all give
 * the same bits. */
#define DEFINE_BF16_TILE(NAME, TARGET)                                                      \
  TARGET static void NAME(uint16_t *narrow, const void *target, const void *const *sources, \
                          int count, int64_t start, int n, ls_reduce op) {                  \
    convert_and_sum(narrow, target, sources, count, start, n, op);                          \
  }

DEFINE_BF16_TILE(tile_bf16_plain, )
#if defined(__x86_64__)
DEFINE_BF16_TILE(tile_bf16_avx2, __attribute__((target("avx2"))))
DEFINE_BF16_TILE(tile_bf16_avx512, __attribute__((target("avx512f,avx512bw,avx512vl"))))
#endif

static void tile_bf16(uint16_t *narrow, const void *target, const void *const *sources, int count,
                      int64_t start, int n, ls_reduce op) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    tile_bf16_avx512(narrow, target, sources, count, start, n, op);
    return;
  }
  if (__builtin_cpu_supports("avx2")) {
    tile_bf16_avx2(narrow, target, sources, count, start, n, op);
    return;
  }
#endif
  tile_bf16_plain(narrow, target, sources, count, start, n, op);
}

void ls_reduce_range(void *const *targets, int target_count, const void *const *sources,
                     int source_count, int64_t count, ls_dtype dtype, ls_reduce op,
                     bool accumulate) {
  const void *added = accumulate ? targets[0] : NULL;
  const size_t width = ls_dtype_bytes(dtype);
  union {
    float f32[TILE];
    double f64[TILE];
    int64_t i64[TILE];
    uint16_t bf16[TILE];
  } tile;
  for (int64_t start = 0; start < count; start += TILE) {
    const int n = count - start < TILE ? (int)(count - start) : TILE;
    switch (dtype) {
      case LS_F32: tile_f32(tile.f32, added, sources, source_count, start, n, op); break;
      case LS_F64: tile_f64(tile.f64, added, sources, source_count, start, n, op); break;
      case LS_I64: tile_i64(tile.i64, added, sources, source_count, start, n, op); break;
      case LS_BF16: tile_bf16(tile.bf16, added, sources, source_count, start, n, op); break;
      default: return;
    }
    for (int t = 0; t < target_count; t++) {
      memcpy((char *)targets[t] + (size_t)start * width, &tile, (size_t)n * width);
    }
  }
}
