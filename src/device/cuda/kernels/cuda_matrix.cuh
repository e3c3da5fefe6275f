// Instructions that multiply matrices and move them, each behind a function with two bodies: PTX,
// and a twin for the CPU by the layouts that the PTX ISA document gives ("Matrix fragments for
// mma.m16n8k16", "ldmatrix", "cp.async"). The twin adds in another order than the hardware does;
// and kernel and twin may share one misreading of a layout, which only a GPU tells.
//
// A lane's place: g = lane / 4, t = lane % 4. Of a 16 x 8 product it has rows g and g + 8, columns
// 2 t and 2 t + 1.
#pragma once

#include "device/cuda/kernels/cuda_device.cuh"

#ifdef LS_SHIM
namespace ls_shim {

// Register r of a lane as the two numbers of 16 bits that it holds, lower first.
template <class T>
inline float fragment_at(const slot &of, int word, int half) {
  T value;
  value.bits = static_cast<uint16_t>(of.word[word] >> 16 * half);
  return ls_widen(value);
}

// What lanes bring: words 0 to 3 are A's, 4 and 5 B's. What they get: the product's four numbers.
template <class T>
void resolve_product(slot *slots, uint32_t) {
  float a[16][16], b[16][8], product[16][8] = {};
  for (int lane = 0; lane < LANES; lane++) {
    const int g = lane / 4, t = lane % 4;
    for (int half = 0; half < 2; half++) {
      for (int word = 0; word < 4; word++)
        a[g + word % 2 * 8][2 * t + half + word / 2 * 8] = fragment_at<T>(slots[lane], word, half);
      for (int word = 0; word < 2; word++)
        b[2 * t + half + word * 8][g] = fragment_at<T>(slots[lane], 4 + word, half);
    }
  }
  for (int row = 0; row < 16; row++)
    for (int k = 0; k < 16; k++)
      for (int column = 0; column < 8; column++)
        product[row][column] += a[row][k] * b[k][column];
  for (int lane = 0; lane < LANES; lane++)
    for (int upper = 0; upper < 2; upper++)
      memcpy(slots[lane].word + 2 * upper, &product[lane / 4 + upper * 8][lane % 4 * 2],
             2 * sizeof(float));
}

// Lane 8 m + r brings the address of row r of matrix m; each gets two numbers of each matrix: of
// row g, or, transposed, of column g.
template <bool TURNED>
void resolve_matrices(slot *slots, uint32_t) {
  uint16_t rows[4][8][8];
  for (int lane = 0; lane < LANES; lane++)
    memcpy(rows[lane / 8][lane % 8], from_slot<const void *>(slots[lane]), 16);
  for (int lane = 0; lane < LANES; lane++)
    for (int m = 0; m < 4; m++) {
      const int g = lane / 4, t = lane % 4;
      const uint32_t low = TURNED ? rows[m][2 * t][g] : rows[m][g][2 * t];
      const uint32_t high = TURNED ? rows[m][2 * t + 1][g] : rows[m][g][2 * t + 1];
      slots[lane].word[m] = low | high << 16;
    }
}

template <bool TURNED>
void load_matrices(uint32_t (&to)[4], const void *row, site at) {
  to_slot(warp_bring(LS_ALL_LANES, at), row);
  memcpy(to, warp_take(resolve_matrices<TURNED>)->word, sizeof to);
}

template <class T>
void multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, site at) {
  slot *own = warp_bring(LS_ALL_LANES, at);
  memcpy(own->word, a, sizeof a);
  own->word[4] = b0;
  own->word[5] = b1;
  float product[4];
  memcpy(product, warp_take(resolve_product<T>)->word, sizeof product);
  for (int i = 0; i < 4; i++) sum[i] += product[i];
}

}  // namespace ls_shim

// sum += A B, of 16 x 16 and 16 x 8 numbers of type T.
inline void ls_multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                        ls_bits_bf16, LS_SITE) {
  ls_shim::multiply<ls_bits_bf16>(sum, a, b0, b1, at);
}
inline void ls_multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                        ls_bits_fp16, LS_SITE) {
  ls_shim::multiply<ls_bits_fp16>(sum, a, b0, b1, at);
}
// Four matrices of 8 x 8 from shared memory, a row of each by lane; and the same turned.
inline void ls_load_matrices(uint32_t (&to)[4], const void *row, LS_SITE) {
  ls_shim::load_matrices<false>(to, row, at);
}
inline void ls_load_matrices_turned(uint32_t (&to)[4], const void *row, LS_SITE) {
  ls_shim::load_matrices<true>(to, row, at);
}
// 16 bytes from global to shared memory, there after ls_copies_wait; zeros, if not `exists`.
inline void ls_copy_begin(void *to, const void *from, bool exists) {
  ls_shim::copy_begin(to, from, 16, exists ? 16 : 0);
}
inline void ls_copies_commit() {
  ls_shim::copy_commit();
}
// Until all but the last PENDING groups of this thread's copies have ended.
template <int PENDING>
inline void ls_copies_wait() {
  ls_shim::copy_wait(PENDING);
}
#else
#define LS_MULTIPLY_PTX(type)                                                    \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type            \
               ".f32 "                                                           \
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])          \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
__device__ inline void ls_multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                   uint32_t b1, ls_bits_bf16) {
  LS_MULTIPLY_PTX("bf16");
}
__device__ inline void ls_multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                   uint32_t b1, ls_bits_fp16) {
  LS_MULTIPLY_PTX("f16");
}
#define LS_MATRICES_PTX(turned)                                                             \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4" turned ".shared.b16 {%0, %1, %2, %3}, [%4];" \
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                         \
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))                  \
               : "memory")
__device__ inline void ls_load_matrices(uint32_t (&to)[4], const void *row) {
  LS_MATRICES_PTX("");
}
__device__ inline void ls_load_matrices_turned(uint32_t (&to)[4], const void *row) {
  LS_MATRICES_PTX(".trans");
}
__device__ inline void ls_copy_begin(void *to, const void *from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(__cvta_generic_to_global(from)), "r"(exists ? 16 : 0)
               : "memory");
}
__device__ inline void ls_copies_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int PENDING>
__device__ inline void ls_copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
#endif

// Two numbers as a register of a fragment.
template <class T>
__device__ inline uint32_t ls_pair(float low, float high) {
  T a, b;
  ls_round(&a, low);
  ls_round(&b, high);
  return a.bits | static_cast<uint32_t>(b.bits) << 16;
}

// sums += A B^T for a warp's 16 rows of A and N rows of B, both D columns of shared memory.
template <class T, int D, int N>
__device__ inline void ls_rows_by_rows(float (&sums)[N / 8][4], const T *a, const T *b) {
  constexpr int STRIDE = D + 8;  // rows begin in different banks
  const int lane = threadIdx.x % LS_CUDA_WARP;
  const T *own_a = a + lane % 16 * STRIDE + lane / 16 * 8;
  const T *own_b = b + (lane % 8 + lane / 16 * 8) * STRIDE + lane / 8 % 2 * 8;
#pragma unroll 2
  for (int k = 0; k < D; k += 16) {
    uint32_t left[4];
    ls_load_matrices(left, own_a + k);
#pragma unroll
    for (int n = 0; n < N; n += 16) {
      uint32_t right[4];
      ls_load_matrices(right, own_b + n * STRIDE + k);
      ls_multiply(sums[n / 8], left, right[0], right[1], T());
      ls_multiply(sums[n / 8 + 1], left, right[2], right[3], T());
    }
  }
}

// sums += P B for a warp's 16 rows of P, which are a product's numbers rounded to T, and N rows of
// B, of which COLUMNS are taken.
template <class T, int D, int N, int COLUMNS>
__device__ inline void ls_rows_by_columns(float (&sums)[COLUMNS / 8][4], const float (&p)[N / 8][4],
                                          const T *b) {
  constexpr int STRIDE = D + 8;
  const int lane = threadIdx.x % LS_CUDA_WARP;
  const T *own_b = b + lane % 16 * STRIDE + lane / 16 * 8;
#pragma unroll
  for (int n = 0; n < N; n += 16) {
    const uint32_t left[4] = {
        ls_pair<T>(p[n / 8][0], p[n / 8][1]), ls_pair<T>(p[n / 8][2], p[n / 8][3]),
        ls_pair<T>(p[n / 8 + 1][0], p[n / 8 + 1][1]), ls_pair<T>(p[n / 8 + 1][2], p[n / 8 + 1][3])};
#pragma unroll
    for (int c = 0; c < COLUMNS; c += 16) {
      uint32_t right[4];
      ls_load_matrices_turned(right, own_b + n * STRIDE + c);
      ls_multiply(sums[c / 8], left, right[0], right[1], T());
      ls_multiply(sums[c / 8 + 1], left, right[2], right[3], T());
    }
  }
}
