// Kernels that are wrong on purpose, each in a way that the shim must catch, and some that are not.
#include "cuda/shim.h"

#include "cuda/wrong_kernels.h"
#include "device/cuda/kernels/cuda_device.cuh"

// Each thread gives the block's other end its number, but for a barrier between.
LS_KERNEL(ls_wrong_barrier_missing, ls_wrong_arguments, 64) {
  LS_SHARED(float, numbers, 64);
  numbers[threadIdx.x] = static_cast<float>(threadIdx.x);
  args.out[threadIdx.x] = numbers[blockDim.x - 1 - threadIdx.x];
}

LS_KERNEL(ls_right_barrier, ls_wrong_arguments, 64) {
  LS_SHARED(float, numbers, 64);
  numbers[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncthreads();
  args.out[threadIdx.x] = numbers[blockDim.x - 1 - threadIdx.x];
}

// The second warp waits elsewhere.
LS_KERNEL(ls_wrong_barrier_divergent, ls_wrong_arguments, 64) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  args.out[threadIdx.x] = 0;
}

LS_KERNEL(ls_wrong_barrier_left, ls_wrong_arguments, 64) {
  if (threadIdx.x == 7) return;
  __syncthreads();
  args.out[threadIdx.x] = 0;
}

LS_KERNEL(ls_wrong_lane_outside, ls_wrong_arguments, 64) {
  const float own = static_cast<float>(threadIdx.x);
  args.out[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, own, 1);
}

LS_KERNEL(ls_wrong_lane_missing, ls_wrong_arguments, 64) {
  const float own = static_cast<float>(threadIdx.x);
  args.out[threadIdx.x] = threadIdx.x % 32 == 3 ? own : __shfl_xor_sync(LS_ALL_LANES, own, 1);
}

// What half of the lanes shuffle, the other half is counted on for.
LS_KERNEL(ls_wrong_lane_source, ls_wrong_arguments, 64) {
  const float own = static_cast<float>(threadIdx.x);
  args.out[threadIdx.x] =
      threadIdx.x % 32 < 16 ? __shfl_sync(0x0000ffffu, own, 20) : 20 + own - own;
}

// Votes and matches of each warp, halves apart.
LS_KERNEL(ls_right_votes, ls_wrong_arguments, 64) {
  const uint32_t lane = threadIdx.x % 32, half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  const uint32_t odd = __ballot_sync(half, lane & 1), same = __match_any_sync(half, lane / 4);
  const uint32_t sum = __reduce_add_sync(half, lane), most = __reduce_max_sync(half, lane);
  const float down = __shfl_down_sync(LS_ALL_LANES, static_cast<float>(lane), 3, 8);
  const float up = __shfl_up_sync(LS_ALL_LANES, static_cast<float>(lane), 3, 8);
  const bool right = odd == (0xaaaaaaaau & half) && same == 0xfu << lane / 4 * 4 &&
                     sum == (lane < 16 ? 120 : 376) && most == (lane < 16 ? 15u : 31u) &&
                     down == static_cast<float>(lane % 8 < 5 ? lane + 3 : lane) &&
                     up == static_cast<float>(lane % 8 > 2 ? lane - 3 : lane) &&
                     __any_sync(LS_ALL_LANES, lane == 9) && !__all_sync(LS_ALL_LANES, lane != 9);
  args.out[threadIdx.x] = right;
}

LS_KERNEL(ls_right_atomics, ls_wrong_arguments, 64) {
  if (threadIdx.x == 0) atomicExch(&args.out[1], 0.0f);
  __syncthreads();
  atomicAdd(&args.out[1], 1.0f);
  atomicMax(&args.out[2], __ldcs(&args.out[3]) + static_cast<float>(threadIdx.x));
}
