// AdamW whose moments are codes of 8 bits (device/reference/optimizer_blocks.c). A warp has a block
// of the whole parameter, of which a rank may have some elements: first the largest of each block's
// new moments are found, over all ranks, and then the moments become codes again.
//
// Moments are made in fp64 and rounded once, as the reference has them, so that codes are the same.
#include "device/cuda/kernels/cuda_device.cuh"

enum { LS_BLOCK_ELEMENTS = 256, LS_MAP_CODES = 256 };

struct ls_moments {
  float first, second;
};

__device__ inline ls_moments ls_new_moments(const ls_cuda_codes &args, const float *maps,
                                            int64_t block, int64_t at, double factor) {
  const double gradient =
      factor * static_cast<double>(ls_load_any(args.gradient, at, 1, false).at[0]);
  const float first = maps[args.firsts[at]] * args.before[block];
  const float second = maps[LS_MAP_CODES + args.seconds[at]] * args.before[args.blocks + block];
  return {static_cast<float>(args.beta1 * static_cast<double>(first) + (1 - args.beta1) * gradient),
          static_cast<float>(args.beta2 * static_cast<double>(second) +
                             (1 - args.beta2) * gradient * gradient)};
}

// Calls BODY(element) for a lane's elements of a block that the rank has.
template <class BODY>
__device__ inline void ls_each_of_block(const ls_cuda_codes &args, int64_t block, BODY body) {
  for (int i = threadIdx.x % LS_CUDA_WARP; i < LS_BLOCK_ELEMENTS; i += LS_CUDA_WARP) {
    const int64_t place = block * LS_BLOCK_ELEMENTS + i;
    const int64_t column = place % args.columns - args.column;
    const int64_t at = (place / args.columns - args.row) * args.stride + column - args.start;
    if (column >= 0 && column < args.stride && at >= 0 && at < args.count) body(at);
  }
}

// For all threads; they meet.
__device__ inline void ls_take_maps(const ls_cuda_codes &args, float *maps) {
  for (int i = threadIdx.x; i < 2 * LS_MAP_CODES; i += blockDim.x)
    maps[i] = args.maps[i / LS_MAP_CODES][i % LS_MAP_CODES];
  __syncthreads();
}

LS_KERNEL(ls_adamw8_largest, ls_cuda_codes, 256) {
  LS_SHARED(float, maps, 2 * LS_MAP_CODES);
  ls_take_maps(args, maps);
  const int warps = blockDim.x / LS_CUDA_WARP, warp = threadIdx.x / LS_CUDA_WARP;
  const double factor = *args.factor;
  for (int64_t b = static_cast<int64_t>(blockIdx.x) * warps + warp; b < args.blocks;
       b += static_cast<int64_t>(gridDim.x) * warps) {
    float first = 0, second = 0;
    ls_each_of_block(args, b, [&](int64_t at) {
      if (factor == 0) return;  // the gradients are not finite
      const ls_moments of = ls_new_moments(args, maps, b, at, factor);
      first = fmaxf(first, fabsf(of.first));
      second = fmaxf(second, of.second);
    });
    first = ls_warp_max(first);
    second = ls_warp_max(second);
    if (threadIdx.x % LS_CUDA_WARP) continue;
    args.made[b] = first;
    args.made[args.blocks + b] = second;
  }
}

// The code of the nearest number of a map; halfway between two, of the lower.
__device__ inline uint8_t ls_nearest_code(const float *map, float value) {
  int low = 0, high = LS_MAP_CODES - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    const double both = static_cast<double>(map[middle]) + static_cast<double>(map[middle + 1]);
    if (2 * static_cast<double>(value) > both)
      low = middle + 1;
    else
      high = middle;
  }
  return static_cast<uint8_t>(low);
}

LS_KERNEL(ls_adamw8, ls_cuda_codes, 256) {
  LS_SHARED(float, maps, 2 * LS_MAP_CODES);
  ls_take_maps(args, maps);
  const int warps = blockDim.x / LS_CUDA_WARP, warp = threadIdx.x / LS_CUDA_WARP;
  const double factor = *args.factor, rate = *args.rate * args.times, step = *args.step;
  const float keep = static_cast<float>(1 - rate * args.weight_decay);
  const float along = static_cast<float>(rate / (1 - pow(args.beta1, step)));
  const float root = static_cast<float>(sqrt(1 - pow(args.beta2, step)));
  if (factor == 0) return;
  for (int64_t b = static_cast<int64_t>(blockIdx.x) * warps + warp; b < args.blocks;
       b += static_cast<int64_t>(gridDim.x) * warps) {
    const float first = args.largest[b], second = args.largest[args.blocks + b];
    ls_each_of_block(args, b, [&](int64_t at) {
      const ls_moments of = ls_new_moments(args, maps, b, at, factor);
      const float divisor = sqrtf(of.second) / root + static_cast<float>(args.epsilon);
      args.master[at] = keep * args.master[at] - along * of.first / divisor;
      args.firsts[at] = ls_nearest_code(maps, of.first / (first > 0 ? first : 1));
      args.seconds[at] =
          ls_nearest_code(maps + LS_MAP_CODES, of.second / (second > 0 ? second : 1));
    });
  }
}

LS_KERNEL(ls_adamw8_keep, ls_cuda_codes, 256) {
  if (*args.factor == 0) return;
  for (int64_t b = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; b < args.count;
       b += static_cast<int64_t>(gridDim.x) * blockDim.x)
    args.made[b] = args.largest[b] > 0 ? args.largest[b] : 1;
}
