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
__device__ inline int ls_scale_to_fp8(int most_exponent, float largest) {
  enum { MOST_SCALE = 126 };
  if (!(largest > 0) || largest == INFINITY) return 0;
  const bool small = largest < 0x1p-100f;
  const uint32_t bits = ls_float_bits(small ? largest * 0x1p100f : largest);
  const int exponent = static_cast<int>(bits >> 23) - 126 - (small ? 100 : 0);
  const bool beyond = (bits & 0x7fffffu) > 0x600000u;  // 0.875 of a power of two
  const int scale = most_exponent - (beyond ? 1 : 0) - exponent;
  return scale < MOST_SCALE ? scale : MOST_SCALE;
}

__device__ inline float ls_power_of_two(int exponent) {
  return ls_bits_float(static_cast<uint32_t>(127 + exponent) << 23);
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
    const int scale = ls_scale_to_fp8(args.exponent, args.amax[args.own ? row : 0]);
    const float up = ls_power_of_two(scale), down = ls_power_of_two(-scale);
    ls_pack pack = ls_load(ls_row_of<T>(args.in, row) + c, count, args.wide);
#pragma unroll
    for (int i = 0; i < LS_CUDA_PACK; i++)
      pack.at[i] = ls_round_to_fp8(args, pack.at[i] * up) * down;
    ls_store(ls_row_of<T>(args.out, row) + c, pack, ls_at_most_pack(args.out.stride - c), args.wide,
             args.out.add);
  }
}
LS_KERNELS(ls_fp8, ls_cuda_fp8, 256, ls_fp8_of)

// ---- weights that are gathered as codes of E4M3 -----------------------------------------------

// The largest of a range of elements, by blocks.
template <class T>
__device__ inline void ls_range_amax_parts_of(const ls_cuda_fp8 &args) {
  const T *from = static_cast<const T *>(args.in.data);
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x * LS_CUDA_PACK;
  float largest = 0;
  for (int64_t c = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * LS_CUDA_PACK;
       c < args.columns; c += step) {
    const ls_pack pack = ls_load(from + c, ls_at_most_pack(args.columns - c), args.wide);
#pragma unroll
    for (int i = 0; i < LS_CUDA_PACK; i++) largest = fmaxf(largest, fabsf(pack.at[i]));
  }
  largest = ls_block_max(largest);
  if (threadIdx.x == 0) args.made[blockIdx.x] = largest;
}
LS_KERNELS(ls_range_amax_parts, ls_cuda_fp8, 256, ls_range_amax_parts_of)

// ls_e4m3_code
__device__ inline uint32_t ls_code_of_e4m3(float value) {
  const uint32_t bits = ls_float_bits(value), magnitude = bits & 0x7fffffffu;
  const float size = ls_bits_float(magnitude);
  const uint32_t number =
      size < 0x1p-6f ? static_cast<uint32_t>(size * 0x1p9f) : (magnitude >> 20) - (120u << 3);
  return (bits >> 24 & 0x80u) | (magnitude < 0x7f800000u ? number : 0x7fu);
}

// ls_e4m3_value
__device__ inline float ls_value_of_e4m3(uint32_t code) {
  const uint32_t number = code & 0x7fu, sign = (code & 0x80u) << 24;
  if (number == 0x7fu) return NAN;
  const uint32_t size = number < 8 ? ls_float_bits(static_cast<float>(number) * 0x1p-9f)
                                   : (number + (120u << 3)) << 20;
  return ls_bits_float(sign | size);
}

// A range of elements to codes, eight a thread.
template <class T>
__device__ inline void ls_fp8_codes_of_range(const ls_cuda_fp8 &args) {
  const T *from = static_cast<const T *>(args.in.data);
  uint8_t *codes = static_cast<uint8_t *>(args.out.data);
  const float up = ls_power_of_two(ls_scale_to_fp8(args.exponent, *args.amax));
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x * LS_CUDA_PACK;
  for (int64_t c = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * LS_CUDA_PACK;
       c < args.columns; c += step) {
    const int count = ls_at_most_pack(args.columns - c);
    const ls_pack pack = ls_load(from + c, count, args.wide);
    uint32_t words[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < LS_CUDA_PACK; i++)
      words[i / 4] |= ls_code_of_e4m3(ls_round_to_fp8(args, pack.at[i] * up)) << (8 * (i % 4));
    if (args.words && count == LS_CUDA_PACK) {
      *reinterpret_cast<uint64_t *>(codes + c) = words[0] | static_cast<uint64_t>(words[1]) << 32;
      continue;
    }
#pragma unroll
    for (int i = 0; i < LS_CUDA_PACK; i++)
      if (i < count) codes[c + i] = static_cast<uint8_t>(words[i / 4] >> (8 * (i % 4)));
  }
}
LS_KERNELS(ls_fp8_codes, ls_cuda_fp8, 256, ls_fp8_codes_of_range)

// Rows of codes to what they stand for, eight a thread.
template <class T>
__device__ inline void ls_fp8_decode_of(const ls_cuda_fp8 &args) {
  const int64_t packs = (args.out.stride + LS_CUDA_PACK - 1) / LS_CUDA_PACK;
  const float down = ls_power_of_two(-ls_scale_to_fp8(args.exponent, *args.amax));
  for (int64_t p = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       p < args.rows * packs; p += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t row = p / packs, c = p % packs * LS_CUDA_PACK;
    const int count = ls_at_most_pack(args.columns - c);
    const uint8_t *codes = ls_row_of<uint8_t>(args.in, row) + c;
    uint64_t word = 0;
    if (args.words && count == LS_CUDA_PACK) {
      word = *reinterpret_cast<const uint64_t *>(codes);
    } else {
#pragma unroll
      for (int i = 0; i < LS_CUDA_PACK; i++)
        if (i < count) word |= static_cast<uint64_t>(codes[i]) << (8 * i);
    }
    ls_pack pack;
#pragma unroll
    for (int i = 0; i < LS_CUDA_PACK; i++)
      pack.at[i] = ls_value_of_e4m3(static_cast<uint32_t>(word >> (8 * i)) & 0xffu) * down;
    ls_store(ls_row_of<T>(args.out, row) + c, pack, ls_at_most_pack(args.out.stride - c), args.wide,
             args.out.add);
  }
}
LS_KERNELS(ls_fp8_decode, ls_cuda_fp8, 256, ls_fp8_decode_of)

// ---- codes of 8 bits --------------------------------------------------------------------------
// Of numbers that have been rounded: each is one of the format divided by a power of two. The scale
// that their own largest magnitude allows is that power or a larger one, so all have a code.

// The code of a number that the format has.
__device__ inline uint32_t ls_fp8_code(const ls_cuda_fp8_codes &args, float value) {
  const uint32_t bits = ls_float_bits(value), sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const float size = ls_bits_float(magnitude);
  uint32_t code = size < args.least ? static_cast<uint32_t>(size * args.times)
                                    : (magnitude >> args.dropped) - args.offset;
  if (magnitude >= 0x7f800000u) code = magnitude == 0x7f800000u && args.infinity ? 0x7cu : 0x7fu;
  return sign | code;
}

// The codes of eight numbers of a row, in order; 0 where none exists.
__device__ inline uint64_t ls_fp8_codes_of(const ls_cuda_fp8_codes &args, int64_t row, int64_t c,
                                           float up) {
  const int count = row < args.rows ? ls_at_most_pack(args.columns - c) : 0;
  uint32_t words[2] = {0, 0};
  if (count == 0) return 0;
  const ls_pack pack = ls_load(ls_row_of<ls_bits_bf16>(args.in, row) + c, count, args.wide);
#pragma unroll
  for (int i = 0; i < LS_CUDA_PACK; i++)
    words[i / 4] |= ls_fp8_code(args, pack.at[i] * up) << (8 * (i % 4));
  return words[0] | static_cast<uint64_t>(words[1]) << 32;
}

// A block has a row, and each row a scale of its own.
LS_KERNEL(ls_fp8_row_codes, ls_cuda_fp8_codes, 256) {
  const int64_t first = static_cast<int64_t>(threadIdx.x) * LS_CUDA_PACK;
  const int64_t step = static_cast<int64_t>(blockDim.x) * LS_CUDA_PACK;
  for (int64_t r = blockIdx.x; r < args.stored; r += gridDim.x) {
    float largest = 0;
    for (int64_t c = first; r < args.rows && c < args.columns; c += step) {
      const ls_pack pack = ls_load(ls_row_of<ls_bits_bf16>(args.in, r) + c,
                                   ls_at_most_pack(args.columns - c), args.wide);
#pragma unroll
      for (int i = 0; i < LS_CUDA_PACK; i++) largest = fmaxf(largest, fabsf(pack.at[i]));
    }
    const int scale = ls_scale_to_fp8(args.exponent, ls_block_max(largest));
    const float up = ls_power_of_two(scale);
    uint8_t *to = args.codes + r * args.stride;
    for (int64_t c = first; c < args.stride; c += step)
      *reinterpret_cast<uint64_t *>(to + c) = ls_fp8_codes_of(args, r, c, up);
    if (threadIdx.x == 0) args.scales[r] = ls_power_of_two(-scale);
  }
}

// Columns become rows of codes, by tiles in shared memory; all have one scale.
LS_KERNEL(ls_fp8_turned_codes, ls_cuda_fp8_codes, 256) {
  enum { ROWS = 128, COLUMNS = 64, STRIDE = ROWS + 4, PACK = LS_CUDA_PACK };
  LS_SHARED(uint32_t, words, COLUMNS * STRIDE / 4);
  uint8_t *const tile = reinterpret_cast<uint8_t *>(words);
  const int64_t across = (args.stored + COLUMNS - 1) / COLUMNS;
  const int64_t tiles = across * ((args.stride + ROWS - 1) / ROWS);
  const int scale = ls_scale_to_fp8(args.exponent, *args.amax), thread = threadIdx.x;
  const float up = ls_power_of_two(scale);
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t column = t % across * COLUMNS, row = t / across * ROWS;
    for (int i = thread; i < ROWS * COLUMNS / PACK; i += blockDim.x) {
      const int r = i / (COLUMNS / PACK), c = i % (COLUMNS / PACK) * PACK;
      const uint64_t codes = ls_fp8_codes_of(args, row + r, column + c, up);
#pragma unroll
      for (int e = 0; e < PACK; e++)
        tile[(c + e) * STRIDE + r] = static_cast<uint8_t>(codes >> (8 * e));
    }
    __syncthreads();
    for (int i = thread; i < ROWS * COLUMNS / PACK; i += blockDim.x) {
      const int c = i / (ROWS / PACK), r = i % (ROWS / PACK) * PACK;
      if (column + c >= args.stored || row + r >= args.stride) continue;
      const uint32_t *from = words + (c * STRIDE + r) / 4;
      *reinterpret_cast<uint64_t *>(args.codes + (column + c) * args.stride + row + r) =
          from[0] | static_cast<uint64_t>(from[1]) << 32;
    }
    if (row == 0 && thread < COLUMNS && column + thread < args.stored)
      args.scales[column + thread] = ls_power_of_two(-scale);
    __syncthreads();
  }
}

// What a product of codes stands for: each number times the scales of its row and its column, and a
// bias that is added then.
LS_KERNEL(ls_fp8_rescale, ls_cuda_fp8_scales, 256) {
  const int64_t packs = (args.columns + LS_CUDA_PACK - 1) / LS_CUDA_PACK;
  for (int64_t p = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       p < args.rows * packs; p += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t row = p / packs, c = p % packs * LS_CUDA_PACK;
    const int count = ls_at_most_pack(args.columns - c);
    ls_bits_bf16 *to = ls_row_of<ls_bits_bf16>(args.out, row) + c;
    const ls_pack by = ls_load(args.column_scales + c, count, args.wide);
    const float down = args.row_scales[row];
    ls_pack pack = ls_load(to, count, args.wide), bias = {};
    if (args.bias)
      bias = ls_load(static_cast<const ls_bits_bf16 *>(args.bias) + c, count, args.wide);
#pragma unroll
    for (int i = 0; i < LS_CUDA_PACK; i++) pack.at[i] = pack.at[i] * down * by.at[i] + bias.at[i];
    ls_store(to, pack, count, args.wide, false);
  }
}
