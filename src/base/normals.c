/* Compiled without contraction of products and sums, so that each operation rounds once whatever
 * the instruction set. */
#include "base/normals.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

INLINE double double_of(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

INLINE uint64_t bits_of(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Exact up to 2^53. Processors before AVX-512 have no such conversion of vectors: each half is
 * written into the lowest bits of a power of two whose last bit is worth the half's. */
INLINE double widen(uint64_t integer) {
  const double high = double_of(integer >> 32 | 0x4530000000000000u);
  const double low = double_of((integer & 0xffffffffu) | 0x4330000000000000u);
  return (high - (0x1p84 + 0x1p52)) + low;
}

/* Of a normal number in (0, 1]: that is 2^e (1 + f) with 1 + f from sqrt(1/2) to sqrt(2), and with
 * s = f / (2 + f) log(1 + f) = 2 s + s^3 P(s^2) = f - s (f - s^2 P(s^2)). P is the polynomial of
 * degree 6 whose largest error is least (2^-57 of the logarithm, by Remez' method). The high part
 * of log(2) has 11 bits less than a double, so that its product with e is exact. */
INLINE double log_of(double x) {
  const uint64_t root_half = 0x3fe6a09e667f3bcdu, one = 0x3ff0000000000000u;
  const uint64_t bits = bits_of(x) + (one - root_half);
  const double e = double_of(bits >> 52 | 0x4330000000000000u) - (0x1p52 + 1023);
  const double f = double_of((bits & 0xfffffffffffffu) + root_half) - 1;
  const double s = f / (2 + f), z = s * s;
  double p = 0x1.2b5f0f3f534afp-3;
  p = p * z + 0x1.39fdc7830b50bp-3;
  p = p * z + 0x1.7462b9ba12a37p-3;
  p = p * z + 0x1.c71c62d1c25abp-3;
  p = p * z + 0x1.2492492e02b0dp-2;
  p = p * z + 0x1.999999999522ep-2;
  p = p * z + 0x1.5555555555558p-1;
  const double log2_high = 0x1.62e42fefa3800p-1, log2_low = 0x1.ef35793c76730p-45;
  return e * log2_high + (f - (s * (f - z * p) - e * log2_low));
}

/* Of a part of a full turn, a multiple of 2^-53 in [0, 1): cos(2 pi t) = sin(2 pi u) with
 * u = |t - 1/2| - 1/4, which is exact, and sin(2 pi u) = u Q(u^2), with the polynomial of degree 8
 * whose largest relative error is least (2^-61). */
INLINE double cos_of_turn(double turn) {
  const double u = fabs(turn - 0.5) - 0.25, z = u * u;
  double q = 0x1.9d1b8585e59b7p-4;
  q = q * z - 0x1.6f797703e284dp-1;
  q = q * z + 0x1.e8f35e9d2300ap+1;
  q = q * z - 0x1.e3074ddd1cb96p+3;
  q = q * z + 0x1.50783485190b6p+5;
  q = q * z - 0x1.32d2cce627542p+6;
  q = q * z + 0x1.466bc6775aa6ep+6;
  q = q * z - 0x1.4abbce625be52p+5;
  q = q * z + 0x1.921fb54442d18p+2;
  return u * q;
}

/* The radius takes a uniform in (0, 1], since log(0) is not a number. */
INLINE double normal_of(uint64_t radius_bits, uint64_t turn_bits) {
  const double radius = sqrt(-2 * log_of(widen((radius_bits >> 11) + 1) * 0x1p-53));
  return radius * cos_of_turn(widen(turn_bits >> 11) * 0x1p-53);
}

double ls_normal_of(uint64_t radius_bits, uint64_t turn_bits) {
  return normal_of(radius_bits, turn_bits);
}

/* Indices at once: what is kept of them fits the first-level cache. */
enum { AT_ONCE = 512 };

/* The bits of `count` indices from `first` on, rounded up to whole vectors. Compilers make nothing
 * good of the 32-bit products of Philox, so its vectors are written out: a word is the lower half
 * of a lane, and what the upper half holds counts for nothing. */
#define DEFINE_FILL(SET, TARGET, BYTES, MULTIPLY)                                              \
  typedef uint64_t SET##_lanes __attribute__((vector_size(BYTES)));                            \
  TARGET static void draw_##SET(uint64_t seed, uint64_t stream, uint64_t first, int count,     \
                                uint64_t radius_bits[AT_ONCE], uint64_t turn_bits[AT_ONCE]) {  \
    enum { LANES = BYTES / 8 };                                                                \
    const SET##_lanes zero = {0}, factor0 = zero + 0xD2511F53u, factor1 = zero + 0xCD9E8D57u;  \
    SET##_lanes lane;                                                                          \
    for (int l = 0; l < LANES; l++) lane[l] = (uint64_t)l;                                     \
    for (int i = 0; i < count; i += LANES) {                                                   \
      const SET##_lanes index = lane + (first + (uint64_t)i);                                  \
      SET##_lanes word0 = index, word1 = index >> 32;                                          \
      SET##_lanes word2 = zero + stream, word3 = word2 >> 32;                                  \
      uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);                           \
      for (int round = 0; round < 10; round++) {                                               \
        const SET##_lanes product0 = MULTIPLY(SET##_lanes, word0, factor0);                    \
        const SET##_lanes product1 = MULTIPLY(SET##_lanes, word2, factor1);                    \
        word0 = (product1 >> 32) ^ word1 ^ (uint64_t)key0;                                     \
        word1 = product1;                                                                      \
        word2 = (product0 >> 32) ^ word3 ^ (uint64_t)key1;                                     \
        word3 = product0;                                                                      \
        key0 += 0x9E3779B9u;                                                                   \
        key1 += 0xBB67AE85u;                                                                   \
      }                                                                                        \
      word0 = (word0 & 0xffffffffu) | word1 << 32;                                             \
      word2 = (word2 & 0xffffffffu) | word3 << 32;                                             \
      memcpy(radius_bits + i, &word0, sizeof word0);                                           \
      memcpy(turn_bits + i, &word2, sizeof word2);                                             \
    }                                                                                          \
  }                                                                                            \
  TARGET static void fill_##SET(uint64_t seed, uint64_t stream, uint64_t first, int64_t count, \
                                double *values) {                                              \
    uint64_t radius_bits[AT_ONCE], turn_bits[AT_ONCE];                                         \
    for (int64_t done = 0; done < count; done += AT_ONCE) {                                    \
      const int some = count - done < AT_ONCE ? (int)(count - done) : AT_ONCE;                 \
      draw_##SET(seed, stream, first + (uint64_t)done, some, radius_bits, turn_bits);          \
      double *restrict to = values + done;                                                     \
      _Pragma("omp simd") for (int i = 0; i < some; i++) to[i] =                               \
          normal_of(radius_bits[i], turn_bits[i]);                                             \
    }                                                                                          \
  }

#if defined(__x86_64__)
#define MULTIPLY_16(LANES, A, B) (LANES) _mm_mul_epu32((__m128i)(A), (__m128i)(B))
#define MULTIPLY_32(LANES, A, B) (LANES) _mm256_mul_epu32((__m256i)(A), (__m256i)(B))
#define MULTIPLY_64(LANES, A, B) (LANES) _mm512_mul_epu32((__m512i)(A), (__m512i)(B))
DEFINE_FILL(plain, , 16, MULTIPLY_16)
DEFINE_FILL(avx2, __attribute__((target("avx2"))), 32, MULTIPLY_32)
DEFINE_FILL(avx512, __attribute__((target("avx512f"))), 64, MULTIPLY_64)
#else
#define MULTIPLY_PLAIN(LANES, A, B) (((A)&0xffffffffu) * (B))
DEFINE_FILL(plain, , 16, MULTIPLY_PLAIN)
#endif

static bool runs_everywhere(void) {
  return true;
}

#if defined(__x86_64__)
static bool runs_avx2(void) {
  return __builtin_cpu_supports("avx2");
}
static bool runs_avx512(void) {
  return __builtin_cpu_supports("avx512f");
}
#endif

static const struct {
  bool (*runs)(void);
  ls_normals_set set;
} sets[] = {
#if defined(__x86_64__)
    {runs_avx512, {"avx512", fill_avx512}},
    {runs_avx2, {"avx2", fill_avx2}},
#endif
    {runs_everywhere, {"plain", fill_plain}},
};

const ls_normals_set *ls_normals_at(int index) {
  for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
    if (sets[s].runs() && index-- == 0) return &sets[s].set;
  return NULL;
}
