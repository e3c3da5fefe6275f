#include "comm/reduce.h"

#include <string.h>

#include "base/half.h"

/* The loops below are written to become vector code, which gcc does for unknown lengths from -O3
 * on only; clang does at -O2. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

/* Elements summed at a time: the sums of one tile stay in the first-level cache while the sources
 * stream through, and a target that is a source is only written once its tile has been read. */
enum { TILE = 2048 };

bool ls_reduce_knows(ls_dtype dtype) {
  return dtype == LS_F32 || dtype == LS_BF16 || dtype == LS_F16 || dtype == LS_F64 ||
         dtype == LS_I64;
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

/* Of bf16 or fp16; type and operation are constants wherever these are inlined. */
INLINE float widen(ls_dtype dtype, uint16_t value) {
  return dtype == LS_F16 ? ls_f16_widen(value) : ls_bf16_widen(value);
}

INLINE uint16_t narrow(ls_dtype dtype, float value) {
  return dtype == LS_F16 ? ls_f16_round(value) : ls_bf16_round(value);
}

INLINE float combine(ls_reduce op, float a, float b) {
  return op == LS_SUM ? a + b : FLOAT_MAX(a, b);
}

/* The source at `term`: those of the ranks, then the target where it is added to. */
INLINE const uint16_t *source_at(const void *const *sources, int count, const void *target,
                                 int term, int64_t start) {
  return (const uint16_t *)(term < count ? sources[term] : target) + start;
}

/* A tile of 16-bit elements, whose sums are made in fp32. Two terms, the commonest case, need no
 * sums in between; of more, the last is added as the result is rounded. */
INLINE void convert_and_sum(ls_dtype dtype, ls_reduce op, uint16_t *restrict results,
                            const void *target, const void *const *sources, int count,
                            int64_t start, int n) {
  const int terms = count + (target != NULL);
  const uint16_t *first = source_at(sources, count, target, 0, start);
  if (terms == 1) {
    for (int i = 0; i < n; i++) results[i] = narrow(dtype, widen(dtype, first[i]));
    return;
  }
  const uint16_t *last = source_at(sources, count, target, terms - 1, start);
  if (terms == 2) {
    for (int i = 0; i < n; i++)
      results[i] = narrow(dtype, combine(op, widen(dtype, first[i]), widen(dtype, last[i])));
    return;
  }
  float sums[TILE];
  for (int i = 0; i < n; i++) sums[i] = widen(dtype, first[i]);
  for (int t = 1; t < terms - 1; t++) {
    const uint16_t *next = source_at(sources, count, target, t, start);
    for (int i = 0; i < n; i++) sums[i] = combine(op, sums[i], widen(dtype, next[i]));
  }
  for (int i = 0; i < n; i++)
    results[i] = narrow(dtype, combine(op, sums[i], widen(dtype, last[i])));
}

/* Converting is more work than adding, so that wider vectors pay here and nowhere else; all give
 * the same bits. */
#define DEFINE_HALF_TILE(NAME, TARGET)                                                 \
  TARGET static void NAME(uint16_t *results, ls_dtype dtype, const void *target,       \
                          const void *const *sources, int count, int64_t start, int n, \
                          ls_reduce op) {                                              \
    if (dtype == LS_BF16 && op == LS_SUM)                                              \
      convert_and_sum(LS_BF16, LS_SUM, results, target, sources, count, start, n);     \
    if (dtype == LS_BF16 && op == LS_MAX)                                              \
      convert_and_sum(LS_BF16, LS_MAX, results, target, sources, count, start, n);     \
    if (dtype == LS_F16 && op == LS_SUM)                                               \
      convert_and_sum(LS_F16, LS_SUM, results, target, sources, count, start, n);      \
    if (dtype == LS_F16 && op == LS_MAX)                                               \
      convert_and_sum(LS_F16, LS_MAX, results, target, sources, count, start, n);      \
  }

DEFINE_HALF_TILE(tile_half_plain, )
#if defined(__x86_64__)
DEFINE_HALF_TILE(tile_half_avx2, __attribute__((target("avx2"))))
DEFINE_HALF_TILE(tile_half_avx512, __attribute__((target("avx512f,avx512bw,avx512vl"))))
#endif

static void tile_half(uint16_t *results, ls_dtype dtype, const void *target,
                      const void *const *sources, int count, int64_t start, int n, ls_reduce op) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    tile_half_avx512(results, dtype, target, sources, count, start, n, op);
    return;
  }
  if (__builtin_cpu_supports("avx2")) {
    tile_half_avx2(results, dtype, target, sources, count, start, n, op);
    return;
  }
#endif
  tile_half_plain(results, dtype, target, sources, count, start, n, op);
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
    uint16_t half[TILE];
  } tile;
  for (int64_t start = 0; start < count; start += TILE) {
    const int n = count - start < TILE ? (int)(count - start) : TILE;
    switch (dtype) {
      case LS_F32: tile_f32(tile.f32, added, sources, source_count, start, n, op); break;
      case LS_F64: tile_f64(tile.f64, added, sources, source_count, start, n, op); break;
      case LS_I64: tile_i64(tile.i64, added, sources, source_count, start, n, op); break;
      case LS_BF16:
      case LS_F16: tile_half(tile.half, dtype, added, sources, source_count, start, n, op); break;
      default: return;
    }
    for (int t = 0; t < target_count; t++) {
      memcpy((char *)targets[t] + (size_t)start * width, &tile, (size_t)n * width);
    }
  }
}
