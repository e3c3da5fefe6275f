// Largest magnitudes, and rounding to numbers of 8 bits by them (base/fp8.h), which the output
// holds as wider ones. A NaN is no largest magnitude.
#include "device/cuda/kernels/cuda_device.cuh"

// The largest magnitude of a lane's share of a row.
template <class T>
__device__ inline float ls_largest_of_row(const ls_cuda_fp8 &args, int64_t row) {
  const int lane = threadIdx.x % LS_CUDA_WARP;
  const T *from = ls_row_of<T>(args.in, row);
  float largest = 0;
  for (int64_t c = static_cast<int64_t>(lane) * LS_CUDA_PACK; c < args.columns;
       c += LS_CUDA_WARP * LS_CUDA_PACK) {
    const ls_pack pack = ls_load(from + c, ls_at_most_pack(args.columns - c), args.wide);
#pragma unroll
    for (int i = 0; i < LS_CUDA_PACK; i++) largest = fmaxf(largest, fabsf(pack.at[i]));
  }
  return largest;
}

// A warp has a row.
template <class T>
__device__ inline void ls_row_amax_of(const ls_cuda_fp8 &args) {
  const int warps = blockDim.x / LS_CUDA_WARP, warp = threadIdx.x / LS_CUDA_WARP;
  for (int64_t r = static_cast<int64_t>(blockIdx.x) * warps + warp; r < args.rows;
       r += static_cast<int64_t>(gridDim.x) * warps) {
    const float largest = ls_warp_max(ls_largest_of_row<T>(args, r));
    if (threadIdx.x % LS_CUDA_WARP == 0) args.made[r] = largest;
  }
}
LS_KERNELS(ls_row_amax, ls_cuda_fp8, 256, ls_row_amax_of)

// The largest of all rows, by blocks and then of those.
template <class T>
__device__ inline void ls_amax_parts_of(const ls_cuda_fp8 &args) {
  const int warps = blockDim.x / LS_CUDA_WARP, warp = threadIdx.x / LS_CUDA_WARP;
  float largest = 0;
  for (int64_t r = static_cast<int64_t>(blockIdx.x) * warps + warp; r < args.rows;
       r += static_cast<int64_t>(gridDim.x) * warps)
    largest = fmaxf(largest, ls_largest_of_row<T>(args, r));
  largest = ls_block_max(largest);
  if (threadIdx.x == 0) args.made[blockIdx.x] = largest;
}
LS_KERNELS(ls_amax_parts, ls_cuda_fp8, 256, ls_amax_parts_of)

LS_KERNEL(ls_amax, ls_cuda_fp8, 256) {
  float largest = 0;
  for (int64_t p = threadIdx.x; p < args.rows; p += blockDim.x)
    largest = fmaxf(largest, args.amax[p]);
  largest = ls_block_max(largest);
  if (threadIdx.x == 0) *args.made = largest;
}

// ls_fp8_scale
__device__ inline int ls_scale_to_fp8(const ls_cuda_fp8 &args, float largest) {
  enum { MOST_SCALE = 126 };
  if (!(largest > 0) || largest == INFINITY) return 0;
  const bool small = largest < 0x1p-100f;
  const uint32_t bits = ls_float_bits(small ? largest * 0x1p100f : largest);
  const int exponent = static_cast<int>(bits >> 23) - 126 - (small ? 100 : 0);
  const bool beyond = (bits & 0x7fffffu) > 0x600000u;  // 0.875 of a power of two
  const int scale = args.exponent - (beyond ? 1 : 0) - exponent;
  return scale < MOST_SCALE ? scale : MOST_SCALE;
}

// ls_fp8_round_f32
__device__ inline float ls_round_to_fp8(const ls_cuda_fp8 &args, float value) {
  const uint32_t bits = ls_float_bits(value), sign = bits & 0x80000000u, magnitude = bits ^ sign;
  if (magnitude >= 0x7f800000u) return magnitude == 0x7f800000u && args.infinity ? value : NAN;
  const uint32_t half = (1u << (args.dropped - 1)) - 1u, last = magnitude >> args.dropped & 1u;
  const float size = ls_bits_float(magnitude);
  const float small = (size + args.magic) - args.magic;
  const float normal = ls_bits_float((magnitude + half + last) & ~((1u << args.dropped) - 1u));
  const float rounded = size < args.least ? small : normal;
  return ls_bits_float(sign | ls_float_bits(rounded < args.most ? rounded : args.most));
}

// Each row by a number of its own, or all by one; eight elements a thread.
template <class T>
__device__ inline void ls_fp8_of(const ls_cuda_fp8 &args) {
  const int64_t packs = (args.out.stride + LS_CUDA_PACK - 1) / LS_CUDA_PACK;
  for (int64_t p = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       p < args.rows * packs; p += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t row = p / packs, c = p % packs * LS_CUDA_PACK;
    const int count = ls_at_most_pack(args.columns - c);
    const int scale = ls_scale_to_fp8(args, args.amax[args.own ? row : 0]);
    const float up = ls_bits_float(static_cast<uint32_t>(127 + scale) << 23);
    const float down = ls_bits_float(static_cast<uint32_t>(127 - scale) << 23);
    ls_pack pack = ls_load(ls_row_of<T>(args.in, row) + c, count, args.wide);
#pragma unroll
    for (int i = 0; i < LS_CUDA_PACK; i++)
      pack.at[i] = ls_round_to_fp8(args, pack.at[i] * up) * down;
    ls_store(ls_row_of<T>(args.out, row) + c, pack, ls_at_most_pack(args.out.stride - c), args.wide,
             args.out.add);
  }
}
LS_KERNELS(ls_fp8, ls_cuda_fp8, 256, ls_fp8_of)
