// Routers of experts: what tokens are chosen by, and what a choice weighs
// (device/reference/router.c). A warp has a token.
//
// Scores that are not logits alone are fp64, as the reference has them, so that no two experts
// change places by rounding. They lie in shared memory as keys, which rise with them; 0 is an
// expert that may not be chosen.
#pragma once

#include "device/cuda/kernels/cuda_device.cuh"

__device__ inline uint64_t ls_warp_most(uint64_t value) {
#pragma unroll
  for (int step = LS_CUDA_WARP / 2; step; step /= 2) {
    const uint64_t other = __shfl_xor_sync(LS_ALL_LANES, value, step);
    value = other > value ? other : value;
  }
  return value;
}

// A token for each warp: its place among those of the grid, and what follows it.
__device__ inline int64_t ls_warp_first() {
  return static_cast<int64_t>(blockIdx.x) * (blockDim.x / LS_CUDA_WARP) +
         threadIdx.x / LS_CUDA_WARP;
}
__device__ inline int64_t ls_warp_step() {
  return static_cast<int64_t>(gridDim.x) * (blockDim.x / LS_CUDA_WARP);
}

template <class T>
__device__ inline float ls_sum_of_exponentials(const T *logits, int experts, float most) {
  float sum = 0;
  for (int e = threadIdx.x % LS_CUDA_WARP; e < experts; e += LS_CUDA_WARP)
    sum += expf(ls_widen(logits[e]) - most);
  return ls_warp_sum(sum);
}

__device__ inline uint64_t ls_score_key(double score) {
  const uint64_t bits = ls_double_bits(score == 0 ? 0.0 : score);
  const uint64_t rising = bits ^ (bits >> 63 ? ~uint64_t{0} : uint64_t{1} << 63);
  return rising ? rising : 1;
}

__device__ inline double ls_score_of(uint64_t key) {
  return ls_bits_double(key ^ (key >> 63 ? uint64_t{1} << 63 : ~uint64_t{0}));
}

// The number that has the largest key, of equal ones the smallest. Each lane brings its own best.
__device__ inline int ls_warp_best(uint64_t key, int number) {
  const uint64_t best = ls_warp_most(key);
  int least = key == best ? number : 0x7fffffff;
#pragma unroll
  for (int step = LS_CUDA_WARP / 2; step; step /= 2) {
    const int other = __shfl_xor_sync(LS_ALL_LANES, least, step);
    least = other < least ? other : least;
  }
  return least;
}

// Of a group the sum of its two best sigmoids, or its best logit.
__device__ inline uint64_t ls_group_key(const ls_cuda_scores &of, const uint64_t *keys, int group) {
  const int count = of.experts / of.groups;
  uint64_t best = 0, second = 0;
  for (int e = group * count; e < (group + 1) * count; e++) {
    const uint64_t own = keys[e];
    second = own > best ? best : own > second ? own : second;
    best = own > best ? own : best;
  }
  if (!of.sigmoid || count < 2) return best;
  return ls_score_key(ls_score_of(best) + ls_score_of(second));
}

// Experts of other groups than the best ones may not be chosen. At most 64 groups.
__device__ inline void ls_choose_groups(const ls_cuda_scores &of, uint64_t *keys) {
  const int lane = threadIdx.x % LS_CUDA_WARP, count = of.experts / of.groups;
  uint64_t first = lane < of.groups ? ls_group_key(of, keys, lane) : 0, taken = 0;
  uint64_t second =
      lane + LS_CUDA_WARP < of.groups ? ls_group_key(of, keys, lane + LS_CUDA_WARP) : 0;
  for (int g = 0; g < of.top_groups; g++) {
    const bool behind = second > first;
    const int best = ls_warp_best(behind ? second : first, behind ? lane + LS_CUDA_WARP : lane);
    taken |= uint64_t{1} << best;
    if (best == lane) first = 0;
    if (best == lane + LS_CUDA_WARP) second = 0;
  }
  for (int e = lane; e < of.experts; e += LS_CUDA_WARP)
    if (!(taken >> (e / count) & 1)) keys[e] = 0;
  __syncwarp();
}

template <class T>
__device__ inline void ls_make_keys(const ls_cuda_scores &of, const T *logits, uint64_t *keys) {
  __syncwarp();  // the last token's have been read
  for (int e = threadIdx.x % LS_CUDA_WARP; e < of.experts; e += LS_CUDA_WARP) {
    const double logit = static_cast<double>(ls_widen(logits[e]));
    const double own = of.sigmoid ? 1 / (1 + exp(-logit)) : logit;
    keys[e] = ls_score_key(own + static_cast<double>(of.added ? of.added[e] : 0));
  }
  __syncwarp();
  if (of.groups) ls_choose_groups(of, keys);
}

// The best expert, which is then none that may be chosen.
__device__ inline int ls_next_choice(const ls_cuda_scores &of, uint64_t *keys) {
  const int lane = threadIdx.x % LS_CUDA_WARP;
  uint64_t best = 0;
  int number = 0x7fffffff;
  for (int e = lane; e < of.experts; e += LS_CUDA_WARP)
    if (keys[e] > best || number == 0x7fffffff) best = keys[e], number = e;
  const int expert = ls_warp_best(best, number);
  if (expert % LS_CUDA_WARP == lane) keys[expert] = 0;  // this lane's own
  return expert;
}

// What an expert's weight is made of, over the sum of such.
__device__ inline float ls_router_term(const ls_cuda_scores &of, float logit, float most) {
  return of.sigmoid ? 1 / (1 + expf(-logit)) : expf(logit - most);
}

// That sum, where it is `chosen` over the choices.
template <class T>
__device__ inline float ls_router_sum(const ls_cuda_route &args, const T *logits, float most,
                                      float chosen) {
  if (args.renormalise) return args.of.sigmoid ? chosen + 1e-20f : chosen;
  return args.of.sigmoid ? 1 : ls_sum_of_exponentials(logits, args.of.experts, most);
}
