/* What the vectorised kernels are written with: rows in pieces of LS_PIECE fp32 numbers, whatever
 * they are stored as, and the mathematics of a piece's elements.
 *
 *   float buffer[LS_PIECE];
 *   const float *x = piece_load(view, row, at, count, buffer);   // in place where it is fp32
 *
 * Files named vector_*.c are compiled once for each instruction set, with LS_ISA set to its name;
 * LS_VECTOR(name) gives what they share a name of its own in each. Loops are plain C that the
 * compiler vectorises. */
#ifndef LS_DEVICE_CPU_VECTOR_H
#define LS_DEVICE_CPU_VECTOR_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "base/half.h"
#include "device/cpu/cpu.h"

#ifndef LS_ISA
#error "compile with -DLS_ISA=plain, avx2, avx512, avx512_bf16 or avx512_amx"
#endif
#define LS_JOIN_(a, b) a##_##b
#define LS_JOIN(a, b) LS_JOIN_(a, b)
#define LS_VECTOR(name) LS_JOIN(name, LS_ISA)

/* The widest vectors of the set. */
#if defined(__AVX512F__)
enum { LS_LANES = 16 };
#elif defined(__AVX2__)
enum { LS_LANES = 8 };
#else
enum { LS_LANES = 4 };
#endif

/* Five pieces this long, with what they are read from and written to, fit a first-level cache. */
enum { LS_PIECE = 512 };

/* Marks what is inlined into loops, so that they are vectorised. */
#define LS_INLINE static inline __attribute__((always_inline))

LS_INLINE int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* A view of one dimension is one row; dimensions after the second belong to a row's columns. */
LS_INLINE int64_t view_inner(const ls_view *view) {
  return view->ndim > 2 ? view->dims[2] : 1;
}
LS_INLINE int64_t view_rows(const ls_view *view) {
  return view->ndim > 1 ? view->valid[0] : 1;
}
LS_INLINE int64_t view_columns(const ls_view *view) {
  return view->ndim > 1 ? view->valid[1] * view_inner(view) : view->valid[0];
}
LS_INLINE int64_t view_stride(const ls_view *view) {
  return view->ndim > 1 ? view->dims[1] * view_inner(view) : 0;
}

LS_INLINE int64_t view_pieces(const ls_view *view) { /* of each row */
  return (view_columns(view) + LS_PIECE - 1) / LS_PIECE;
}

LS_INLINE void *view_at(const ls_view *view, int64_t row, int64_t column) {
  return (char *)view->data +
         (size_t)(row * view_stride(view) + column) * ls_dtype_bytes(view->dtype);
}

/* fp16, a vector at a time where there are instructions that convert it: one of them does what
 * takes a dozen in plain C, with the same bits. */
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
LS_INLINE void f16_widen_row(float *target, const uint16_t *source, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 some = (__mmask16)(count - i < 16 ? (1u << (count - i)) - 1u : 0xffffu);
    const __m256i narrow = _mm256_maskz_loadu_epi16(some, source + i);
    _mm512_mask_storeu_ps(target + i, some, _mm512_cvtph_ps(narrow));
  }
}

LS_INLINE void f16_narrow_row(uint16_t *target, const float *source, int64_t count, bool add) {
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 some = (__mmask16)(count - i < 16 ? (1u << (count - i)) - 1u : 0xffffu);
    __m512 wide = _mm512_maskz_loadu_ps(some, source + i);
    if (add) {
      const __m256i before = _mm256_maskz_loadu_epi16(some, target + i);
      wide = _mm512_add_ps(wide, _mm512_cvtph_ps(before));
    }
    _mm256_mask_storeu_epi16(target + i, some, _mm512_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT));
  }
}
#else
LS_INLINE void f16_widen_row(float *target, const uint16_t *source, int64_t count) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    const __m128i narrow = _mm_loadu_si128((const __m128i *)(const void *)(source + i));
    _mm256_storeu_ps(target + i, _mm256_cvtph_ps(narrow));
  }
#endif
#pragma omp simd
  for (int64_t j = i; j < count; j++) target[j] = ls_f16_widen(source[j]);
}

LS_INLINE void f16_narrow_row(uint16_t *target, const float *source, int64_t count, bool add) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    __m128i *place = (__m128i *)(void *)(target + i);
    __m256 wide = _mm256_loadu_ps(source + i);
    if (add) wide = _mm256_add_ps(wide, _mm256_cvtph_ps(_mm_loadu_si128(place)));
    _mm_storeu_si128(place, _mm256_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  if (add) {
#pragma omp simd
    for (int64_t j = i; j < count; j++) {
      target[j] = ls_f16_round(source[j] + ls_f16_widen(target[j]));
    }
  } else {
#pragma omp simd
    for (int64_t j = i; j < count; j++) target[j] = ls_f16_round(source[j]);
  }
}
#endif

/* bf16 likewise. The instruction that narrows makes 0 of what is below fp32's normal numbers. */
LS_INLINE void bf16_widen_row(float *target, const uint16_t *source, int64_t count) {
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= count; i += 16) {
    const __m256i narrow = _mm256_loadu_si256((const __m256i *)(const void *)(source + i));
    const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16);
    _mm512_storeu_si512(target + i, wide);
  }
#endif
#pragma omp simd
  for (int64_t j = i; j < count; j++) target[j] = ls_bf16_widen(source[j]);
}

LS_INLINE void bf16_narrow_row(uint16_t *target, const float *source, int64_t count) {
  int64_t i = 0;
#if defined(__AVX512BF16__)
  for (; i + 16 <= count; i += 16) {
    const __m256bh narrow = _mm512_cvtneps_pbh(_mm512_loadu_ps(source + i));
    memcpy(target + i, &narrow, sizeof narrow);
  }
#endif
#pragma omp simd
  for (int64_t j = i; j < count; j++) target[j] = ls_bf16_round(source[j]);
}

/* bf16 or fp16 to fp32. */
LS_INLINE void widen(float *target, const void *source, ls_dtype dtype, int64_t count) {
  if (dtype == LS_F16)
    f16_widen_row(target, source, count);
  else
    bf16_widen_row(target, source, count);
}

/* And back, adding to what the target holds when `add`. */
LS_INLINE void narrow(void *target, ls_dtype dtype, const float *source, int64_t count, bool add) {
  uint16_t *to = target;
  if (dtype == LS_F16) {
    f16_narrow_row(to, source, count, add);
  } else if (add) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) to[i] = ls_bf16_round(source[i] + ls_bf16_widen(to[i]));
  } else {
    bf16_narrow_row(to, source, count);
  }
}

/* Asks for a piece that is going to be read: processors fetch ahead within a page only. */
LS_INLINE void piece_expect(const void *piece, size_t bytes) {
#pragma GCC unroll 4
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch((const char *)piece + at, 0, 2);
}

/* Asks for a piece that is going to be written, while its numbers are being worked out. */
LS_INLINE void piece_claim(const void *piece, size_t bytes) {
#pragma GCC unroll 4
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch((const char *)piece + at, 1, 3);
}

/* `count` elements of a row from column `at` on, as fp32: where they lie, or in `buffer`. */
LS_INLINE const float *piece_here(const ls_view *view, int64_t row, int64_t at, int64_t count,
                                  float *buffer) {
  const void *source = view_at(view, row, at);
  if (view->dtype == LS_F32) return source;
  widen(buffer, source, view->dtype, count);
  return buffer;
}

/* Likewise, asking for the piece after the next: the work on one is done before memory answers. */
LS_INLINE const float *piece_load(const ls_view *view, int64_t row, int64_t at, int64_t count,
                                  float *buffer) {
  piece_expect(view_at(view, row, at + 2 * count), (size_t)count * ls_dtype_bytes(view->dtype));
  return piece_here(view, row, at, count, buffer);
}

/* Where a piece's results are to be written: the place itself, or `buffer`. */
LS_INLINE float *piece_target(const ls_view *view, int64_t row, int64_t at, int64_t count, bool add,
                              float *buffer) {
  void *place = view_at(view, row, at);
  if (view->dtype == LS_F32 && !add) return place;
  piece_claim(place, (size_t)count * ls_dtype_bytes(view->dtype));
  return buffer;
}

/* Puts what piece_target's buffer holds where it belongs. */
LS_INLINE void piece_store(const ls_view *view, int64_t row, int64_t at, int64_t count, bool add,
                           const float *buffer) {
  void *place = view_at(view, row, at);
  if (view->dtype != LS_F32) {
    narrow(place, view->dtype, buffer, count, add);
  } else if (add) {
    float *target = place;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) target[i] += buffer[i];
  }
}

/* Zeroes the columns of a written row that do not exist. */
LS_INLINE void row_clear_tail(const ls_view *view, int64_t row, bool add) {
  const int64_t tail = view_stride(view) - view_columns(view);
  if (add || view->ndim < 2 || tail == 0) return;
  memset(view_at(view, row, view_columns(view)), 0, (size_t)tail * ls_dtype_bytes(view->dtype));
}

/* 2^x within 2 units in the last place; 0 below 2^-126. The magic number 1.5 * 2^23 rounds to
 * whole numbers and leaves them in the low bits. */
LS_INLINE float exp2_of(float x) {
  const float bounded = x > 128.0f ? 128.0f : (x < -127.0f ? -127.0f : x);
  const float shifted = bounded + 12582912.0f;
  const float f = bounded - (shifted - 12582912.0f);
  float p = 1.5403530e-4f;
  p = p * f + 1.3333558e-3f;
  p = p * f + 9.6181291e-3f;
  p = p * f + 5.5504109e-2f;
  p = p * f + 2.4022651e-1f;
  p = p * f + 6.9314718e-1f;
  p = p * f + 1.0f;
  /* Exponents run from -127, whose bits are those of 0, to 128, whose bits are infinity. */
  return p * ls_float_of_bits((ls_bits_of_float(shifted) + 127u) << 23);
}

LS_INLINE float exp_of(float x) {
  const float bounded = x > 89.0f ? 89.0f : (x < -88.0f ? -88.0f : x);
  const float shifted = bounded * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (bounded - n * 0.693145752f) - n * 1.42860677e-6f;
  float p = 1.3888889e-3f;
  p = p * r + 8.3333333e-3f;
  p = p * r + 4.1666667e-2f;
  p = p * r + 1.6666667e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * ls_float_of_bits((ls_bits_of_float(shifted) + 127u) << 23);
}

LS_INLINE float sigmoid_of(float x) {
  return 1.0f / (1.0f + exp_of(-x));
}

/* tanh: a quotient of polynomials (Lambert's continued fraction, cut off) near 0, where the other
 * form would lose the small digits. */
LS_INLINE float tanh_of(float x) {
  const float t = x < 0.0f ? -x : x;
  const float s = x * x;
  const float above = x * (135135.0f + s * (17325.0f + s * (378.0f + s)));
  const float below = 135135.0f + s * (62370.0f + s * (3150.0f + s * 28.0f));
  const float far = 1.0f - 2.0f / (1.0f + exp_of(2.0f * t));
  return t > 1.0f ? (x < 0.0f ? -far : far) : above / below;
}

/* erf within 1.5 units in the last place: a polynomial near 0, 1 - exp(polynomial) elsewhere. */
LS_INLINE float erf_of(float x) {
  const float t = x < 0.0f ? -x : x;
  const float s = x * x;
  float far = -1.72853470e-5f * t + 3.83197126e-4f;
  far = far * s + (-3.88396438e-3f * t + 2.42546219e-2f);
  far = far * t - 1.06777877e-1f;
  far = far * t - 6.34846687e-1f;
  far = far * t - 1.28717512e-1f;
  far = 1.0f - exp_of(far * t - t);
  float near = -5.96761703e-4f;
  near = near * s + 4.99119423e-3f;
  near = near * s - 2.67681349e-2f;
  near = near * s + 1.12819925e-1f;
  near = near * s - 3.76125336e-1f;
  near = near * s + 1.28379166e-1f;
  near = near * x + x;
  return t > 0.927734375f ? (x < 0.0f ? -far : far) : near;
}

#endif
