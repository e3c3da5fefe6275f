// Blocks of quantised weights as matrices (base/blocks.h), with its arithmetic and so its bits.
// Memory is the floor: a thread writes eight weights and reads their codes, 4 or 8 bytes.
#include "device/cuda/kernels/cuda_device.cuh"

// The numbers of codes of 4 bits into shared memory: codes of a warp ask for sixteen words of other
// banks.
__device__ inline void ls_codes_table(const ls_cuda_weight_blocks &args, float *values) {
  if (threadIdx.x < LS_CUDA_CODES) values[threadIdx.x] = args.values[threadIdx.x];
  __syncthreads();
}

// Eight weights of a block from the `eighth` eight of its codes on; a block is words of 32 bits, of
// which the first is its scale.
__device__ inline ls_pack ls_restore(const uint32_t *block, int eighth, bool four_bits,
                                     const float *values) {
  const float scale = ls_bits_float(block[0]);
  ls_pack pack;
  if (four_bits) {
    const uint32_t codes = block[1 + eighth];
#pragma unroll
    for (int i = 0; i < LS_CUDA_PACK; i++)  // of a byte's two, the upper half comes first
      pack.at[i] = values[codes >> (i / 2 * 8 + (i % 2 ? 0 : 4)) & 15] * scale;
    return pack;
  }
  const uint32_t codes[2] = {block[1 + 2 * eighth], block[2 + 2 * eighth]};
#pragma unroll
  for (int i = 0; i < LS_CUDA_PACK; i++)
    pack.at[i] = static_cast<float>(static_cast<int8_t>(codes[i / 4] >> i % 4 * 8 & 255)) * scale;
  return pack;
}

template <class T>
__device__ inline void ls_dequantize_rows(const ls_cuda_weight_blocks &args) {
  LS_SHARED(float, values, LS_CUDA_CODES);
  ls_codes_table(args, values);
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y) {
    const uint32_t *blocks = args.blocks + row * args.row_words;
    T *to = ls_row_of<T>(args.out, row);
    for (int64_t c = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * LS_CUDA_PACK;
         c < args.out.stride; c += static_cast<int64_t>(gridDim.x) * blockDim.x * LS_CUDA_PACK) {
      ls_pack pack = {};
      if (c < args.columns)
        pack = ls_restore(blocks + c / LS_BLOCK_WEIGHTS * args.block_words,
                          static_cast<int>(c % LS_BLOCK_WEIGHTS) / LS_CUDA_PACK, args.four_bits,
                          values);
      ls_store(to + c, pack, ls_at_most_pack(args.out.stride - c), args.wide, false);
    }
  }
}

LS_KERNELS(ls_dequantize, ls_cuda_weight_blocks, 256, ls_dequantize_rows)

// A thread makes a word of a block: its scale, or four bytes of codes, which begin at any byte. The
// product is exact in fp64, so that it is rounded to fp32 by itself, and then the sum.
LS_KERNEL(ls_restore_scales, ls_cuda_scales, 256) {
  constexpr int kWords = 1 + LS_BLOCK_WEIGHTS / 8, kBytes = 1 + LS_BLOCK_WEIGHTS / 2;
  LS_SHARED(float, codes, LS_CUDA_SCALE_CODES);
  for (int i = threadIdx.x; i < LS_CUDA_SCALE_CODES; i += blockDim.x) codes[i] = args.codes[i];
  __syncthreads();
  const float mean = args.nested[0];
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y) {
    const uint8_t *blocks = args.blocks + row * args.row_bytes;
    uint32_t *made = args.made + row * args.row_words;
    for (int64_t w = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
         w < args.across * kWords; w += static_cast<int64_t>(gridDim.x) * blockDim.x) {
      const int64_t b = w / kWords;
      const int part = static_cast<int>(w % kWords);
      const uint8_t *block = blocks + b * kBytes;
      if (part) {
        const uint8_t *from = block + 1 + 4 * (part - 1);
        made[w] = from[0] | from[1] << 8 | from[2] << 16 | static_cast<uint32_t>(from[3]) << 24;
        continue;
      }
      const float largest = args.nested[1 + (args.first + row * args.columns + b) / 256];
      const float distance =
          static_cast<float>(static_cast<double>(codes[*block]) * static_cast<double>(largest));
      made[w] = ls_float_bits(distance + mean);
    }
  }
}
