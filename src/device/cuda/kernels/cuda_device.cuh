// What CUDA kernels are written with. Kernels name no type or header of CUDA's: 16-bit numbers are
// structs of their bits, PTX stands behind functions, and what the compiler for a GPU gives (thread
// numbers, barriers, shuffles) a test can give on a CPU, by defining LS_SHIM and those names before
// this file is included (tests/cuda/shim.h).
#pragma once

#include "device/cuda/kernels/cuda_arguments.h"

#ifndef LS_SHIM
#define LS_KERNEL(name, arguments, threads)                \
  extern "C" __global__ void __launch_bounds__(threads, 1) \
      name(const __grid_constant__ arguments args)
// Shared memory of a block: an array, and what the launch asks for.
#define LS_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define LS_DYNAMIC_SHARED(type, name)                              \
  extern __shared__ __align__(16) unsigned char ls_shared_bytes[]; \
  type *const name = reinterpret_cast<type *>(ls_shared_bytes)
#endif

// The same kernel for each type that a device computes in; BODY is a template of the type.
#define LS_KERNELS(name, arguments, threads, body) \
  LS_KERNEL(name##_fp32, arguments, threads) {     \
    body<float>(args);                             \
  }                                                \
  LS_KERNEL(name##_bf16, arguments, threads) {     \
    body<ls_bits_bf16>(args);                      \
  }                                                \
  LS_KERNEL(name##_fp16, arguments, threads) {     \
    body<ls_bits_fp16>(args);                      \
  }

struct ls_bits_bf16 {
  uint16_t bits;
};
struct ls_bits_fp16 {
  uint16_t bits;
};
struct alignas(16) ls_words {
  uint32_t word[4];
};

__device__ inline float ls_bits_float(uint32_t bits) {
#ifdef LS_SHIM
  return ls_shim::as<float>(bits);
#else
  return __uint_as_float(bits);
#endif
}

__device__ inline uint32_t ls_float_bits(float value) {
#ifdef LS_SHIM
  return ls_shim::as<uint32_t>(value);
#else
  return __float_as_uint(value);
#endif
}

__device__ inline double ls_bits_double(uint64_t bits) {
#ifdef LS_SHIM
  return ls_shim::as<double>(bits);
#else
  return __longlong_as_double(static_cast<long long>(bits));
#endif
}

__device__ inline uint64_t ls_double_bits(double value) {
#ifdef LS_SHIM
  return ls_shim::as<uint64_t>(value);
#else
  return static_cast<uint64_t>(__double_as_longlong(value));
#endif
}

__device__ inline float ls_widen(float value) {
  return value;
}
__device__ inline float ls_widen(ls_bits_bf16 value) {
  return ls_bits_float(static_cast<uint32_t>(value.bits) << 16);
}
__device__ inline float ls_widen(ls_bits_fp16 value) {
#ifdef LS_SHIM
  return ls_f16_to_f32(value.bits);
#else
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#endif
}

__device__ inline void ls_round(float *to, float value) {
  *to = value;
}
__device__ inline void ls_round(ls_bits_bf16 *to, float value) {
#ifdef LS_SHIM
  to->bits = ls_f32_to_bf16(value);
#else
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to->bits) : "f"(value));
#endif
}
__device__ inline void ls_round(ls_bits_fp16 *to, float value) {
#ifdef LS_SHIM
  to->bits = ls_f32_to_f16(value);
#else
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(value));
#endif
}

// Two elements that lie in one word, the first in its low half.
__device__ inline void ls_widen_two(float *to, uint32_t word, ls_bits_bf16) {
  to[0] = ls_bits_float(word << 16);
  to[1] = ls_bits_float(word & 0xffff0000u);
}
__device__ inline void ls_widen_two(float *to, uint32_t word, ls_bits_fp16) {
  to[0] = ls_widen(ls_bits_fp16{static_cast<uint16_t>(word)});
  to[1] = ls_widen(ls_bits_fp16{static_cast<uint16_t>(word >> 16)});
}
__device__ inline uint32_t ls_round_two(const float *from, ls_bits_bf16) {
#ifdef LS_SHIM
  return ls_f32_to_bf16(from[0]) | static_cast<uint32_t>(ls_f32_to_bf16(from[1])) << 16;
#else
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(from[1]), "f"(from[0]));
  return word;
#endif
}
__device__ inline uint32_t ls_round_two(const float *from, ls_bits_fp16) {
#ifdef LS_SHIM
  return ls_f32_to_f16(from[0]) | static_cast<uint32_t>(ls_f32_to_f16(from[1])) << 16;
#else
  uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(from[1]), "f"(from[0]));
  return word;
#endif
}

// Functions for results that are rounded to 16 bits, and exact ones for fp32: exp to within 2e-6 of
// itself down to -20, the others to two units of fp32.
template <class T>
constexpr bool ls_is_narrow = sizeof(T) == 2;

template <bool NARROW>
__device__ inline float ls_exp(float x) {
#ifdef LS_SHIM
  return expf(x);
#else
  return NARROW ? __expf(x) : expf(x);
#endif
}
template <bool NARROW>
__device__ inline float ls_divide(float a, float b) {
#ifdef LS_SHIM
  return a / b;
#else
  return NARROW ? __fdividef(a, b) : a / b;
#endif
}
// Near 0 to within 1e-7, not to within its own last bits.
template <bool NARROW>
__device__ inline float ls_tanh(float x) {
  return NARROW ? 1 - ls_divide<true>(2, 1 + ls_exp<true>(2 * x)) : tanhf(x);
}

// Eight elements, as fp32: of `count` that exist, the others are 0.
struct ls_pack {
  float at[LS_CUDA_PACK];
};

// The eight at a multiple of 16 bytes.
__device__ inline void ls_load_words(ls_pack *pack, const float *from) {
  const ls_words *words = reinterpret_cast<const ls_words *>(from);
  const ls_words low = words[0], high = words[1];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    pack->at[i] = ls_bits_float(low.word[i]);
    pack->at[4 + i] = ls_bits_float(high.word[i]);
  }
}
template <class T>
__device__ inline void ls_load_words(ls_pack *pack, const T *from) {
  const ls_words words = *reinterpret_cast<const ls_words *>(from);
#pragma unroll
  for (int w = 0; w < 4; w++) ls_widen_two(&pack->at[2 * w], words.word[w], T{});
}
__device__ inline void ls_store_words(float *to, const ls_pack &pack) {
  ls_words words[2];
#pragma unroll
  for (int i = 0; i < LS_CUDA_PACK; i++) words[i / 4].word[i % 4] = ls_float_bits(pack.at[i]);
  reinterpret_cast<ls_words *>(to)[0] = words[0];
  reinterpret_cast<ls_words *>(to)[1] = words[1];
}
template <class T>
__device__ inline void ls_store_words(T *to, const ls_pack &pack) {
  ls_words words;
#pragma unroll
  for (int w = 0; w < 4; w++) words.word[w] = ls_round_two(&pack.at[2 * w], T{});
  *reinterpret_cast<ls_words *>(to) = words;
}

__device__ inline int ls_at_most_pack(int64_t count) {
  return count < 0 ? 0 : count < LS_CUDA_PACK ? static_cast<int>(count) : LS_CUDA_PACK;
}

template <class T>
__device__ inline ls_pack ls_load(const T *from, int count, bool wide) {
  ls_pack pack;
  if (wide && count == LS_CUDA_PACK) {
    ls_load_words(&pack, from);
    return pack;
  }
#pragma unroll
  for (int i = 0; i < LS_CUDA_PACK; i++) pack.at[i] = i < count ? ls_widen(from[i]) : 0;
  return pack;
}

template <class T>
__device__ inline void ls_store(T *to, ls_pack pack, int count, bool wide, bool add) {
  if (add) {
    const ls_pack before = ls_load(to, count, wide);
#pragma unroll
    for (int i = 0; i < LS_CUDA_PACK; i++) pack.at[i] += before.at[i];
  }
  if (wide && count == LS_CUDA_PACK) {
    ls_store_words(to, pack);
    return;
  }
#pragma unroll
  for (int i = 0; i < LS_CUDA_PACK; i++)
    if (i < count) ls_round(&to[i], pack.at[i]);
}

// The same where the type is known when the kernel runs: statistics, gradients of parameters, what
// is converted. All threads of a launch take one branch.
__device__ inline ls_pack ls_load_any(const ls_cuda_place &from, int64_t offset, int count,
                                      bool wide) {
  switch (from.dtype) {
    case LS_BF16:
      return ls_load(static_cast<const ls_bits_bf16 *>(from.data) + offset, count, wide);
    case LS_F16: return ls_load(static_cast<const ls_bits_fp16 *>(from.data) + offset, count, wide);
    default: return ls_load(static_cast<const float *>(from.data) + offset, count, wide);
  }
}

__device__ inline void ls_store_any(const ls_cuda_place &to, int64_t offset, const ls_pack &pack,
                                    int count, bool wide) {
  switch (to.dtype) {
    case LS_BF16:
      ls_store(static_cast<ls_bits_bf16 *>(to.data) + offset, pack, count, wide, to.add);
      break;
    case LS_F16:
      ls_store(static_cast<ls_bits_fp16 *>(to.data) + offset, pack, count, wide, to.add);
      break;
    default: ls_store(static_cast<float *>(to.data) + offset, pack, count, wide, to.add); break;
  }
}

// One number of an output that is fp32 or 16 bits wide.
__device__ inline void ls_put_any(const ls_cuda_place &to, int64_t offset, float value) {
  ls_pack pack = {};
  pack.at[0] = value;
  ls_store_any(to, offset, pack, 1, false);
}

template <class T>
__device__ inline T *ls_row_of(const ls_cuda_place &place, int64_t row) {
  return static_cast<T *>(place.data) + row * place.stride;
}

// What one thread adds to a cell.
__device__ inline void ls_put_cell(double *cell, double value, bool add) {
  *cell = add ? *cell + value : value;
}

constexpr unsigned LS_ALL_LANES = 0xffffffffu;

template <class T>
__device__ inline T ls_warp_sum(T value) {
#pragma unroll
  for (int step = LS_CUDA_WARP / 2; step; step /= 2)
    value += __shfl_xor_sync(LS_ALL_LANES, value, step);
  return value;
}

// The sum over the threads of a block, whole warps; all threads call it and get it.
template <class T>
__device__ inline T ls_block_sum(T value) {
  LS_SHARED(T, parts, LS_CUDA_WARP);
  const int lane = threadIdx.x % LS_CUDA_WARP, warp = threadIdx.x / LS_CUDA_WARP;
  value = ls_warp_sum(value);
  __syncthreads();  // the last call's sums have been read
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  return ls_warp_sum(lane < static_cast<int>(blockDim.x / LS_CUDA_WARP) ? parts[lane] : T(0));
}

// A NaN among the two stays, unlike with fmaxf.
__device__ inline float ls_larger(float a, float b) {
  return a > b || a != a ? a : b;
}

__device__ inline float ls_warp_max(float value) {
#pragma unroll
  for (int step = LS_CUDA_WARP / 2; step; step /= 2)
    value = ls_larger(value, __shfl_xor_sync(LS_ALL_LANES, value, step));
  return value;
}

__device__ inline float ls_block_max(float value) {
  LS_SHARED(float, parts, LS_CUDA_WARP);
  const int lane = threadIdx.x % LS_CUDA_WARP, warp = threadIdx.x / LS_CUDA_WARP;
  value = ls_warp_max(value);
  __syncthreads();
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  return ls_warp_max(lane < static_cast<int>(blockDim.x / LS_CUDA_WARP) ? parts[lane] : -INFINITY);
}
