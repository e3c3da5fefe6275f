// Biases of experts: to each row its expert's, and the gradients of that (device/reference/
// experts.c). Rows come in the order of experts, of which a rank has some.
#include "device/cuda/kernels/cuda_device.cuh"

// The bias of the row's expert; NULL: another rank has it.
template <class T>
__device__ inline const T *ls_bias_of(const ls_cuda_expert_bias &args, int64_t row) {
  const int expert = args.experts[row] - args.first;
  return expert >= 0 && expert < args.held ? ls_row_of<T>(args.bias, expert) : nullptr;
}

// BODY(column, how many exist, how many are stored) for a thread's share of a row.
template <class BODY>
__device__ inline void ls_each_biased(const ls_cuda_expert_bias &args, BODY body) {
  for (int64_t c = static_cast<int64_t>(threadIdx.x) * LS_CUDA_PACK; c < args.out.stride;
       c += static_cast<int64_t>(blockDim.x) * LS_CUDA_PACK)
    body(c, ls_at_most_pack(args.columns - c), ls_at_most_pack(args.out.stride - c));
}

// x + bias; or that times the row's weight, and zeros for rows of others' experts. The output may
// be the input's memory.
template <class T, bool WEIGHED>
__device__ inline void ls_expert_bias_rows(const ls_cuda_expert_bias &args) {
  for (int64_t n = blockIdx.x; n < args.rows; n += gridDim.x) {
    const T *bias = ls_bias_of<T>(args, n);
    const float weight = WEIGHED ? (bias ? args.numbers[n] : 0) : 1;
    ls_each_biased(args, [&](int64_t c, int count, int stored) {
      ls_pack pack = ls_load(ls_row_of<T>(args.in[0], n) + c, count, args.wide);
      const ls_pack more = bias ? ls_load(bias + c, count, args.wide) : ls_pack{};
      for (int i = 0; i < LS_CUDA_PACK; i++)
        pack.at[i] = WEIGHED && !bias ? 0 : weight * (pack.at[i] + more.at[i]);
      ls_store(ls_row_of<T>(args.out, n) + c, pack, stored, args.wide, args.out.add);
    });
  }
}

// dy, x -> weight dy, and dy . (x + bias) of each row; zeros for rows of others' experts.
template <class T>
__device__ inline void ls_expert_weigh_bwd_rows(const ls_cuda_expert_bias &args) {
  for (int64_t n = blockIdx.x; n < args.rows; n += gridDim.x) {
    const T *bias = ls_bias_of<T>(args, n);
    const float weight = args.numbers[n];
    float sum = 0;
    ls_each_biased(args, [&](int64_t c, int count, int stored) {
      ls_pack slope = {};
      if (bias) {
        slope = ls_load(ls_row_of<T>(args.in[0], n) + c, count, args.wide);
        const ls_pack x = ls_load(ls_row_of<T>(args.in[1], n) + c, count, args.wide);
        const ls_pack more = ls_load(bias + c, count, args.wide);
        for (int i = 0; i < LS_CUDA_PACK; i++) {
          sum += slope.at[i] * (x.at[i] + more.at[i]);
          slope.at[i] *= weight;
        }
      }
      ls_store(ls_row_of<T>(args.out, n) + c, slope, stored, args.wide, args.out.add);
    });
    sum = ls_block_sum(sum);
    if (threadIdx.x == 0) args.slopes[n] = args.add_slopes ? args.slopes[n] + sum : sum;
  }
}

// Where the rows of an expert begin.
__device__ inline int64_t ls_expert_begin(const ls_cuda_expert_bias &args, int32_t expert) {
  int64_t low = 0, high = args.rows;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (args.experts[middle] < expert)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Of each expert the sum of its rows, times their weights where there are any: a block has 256
// columns, its eight warps rows in turn.
template <class T>
__device__ inline void ls_expert_sums_rows(const ls_cuda_expert_bias &args) {
  LS_SHARED(float, shared, 8 * LS_CUDA_WARP * LS_CUDA_PACK);
  const int lane = threadIdx.x % LS_CUDA_WARP, warp = threadIdx.x / LS_CUDA_WARP;
  const int expert = static_cast<int>(blockIdx.y);
  const int64_t begin = ls_expert_begin(args, args.first + expert);
  const int64_t end = ls_expert_begin(args, args.first + expert + 1);
  const int64_t c = (static_cast<int64_t>(blockIdx.x) * LS_CUDA_WARP + lane) * LS_CUDA_PACK;
  const int count = ls_at_most_pack(args.columns - c);
  ls_pack sums = {};
  if (count > 0)
    for (int64_t n = begin + warp; n < end; n += 8) {
      const ls_pack pack = ls_load(ls_row_of<T>(args.in[0], n) + c, count, args.wide);
      const float weight = args.numbers ? args.numbers[n] : 1;
      for (int i = 0; i < LS_CUDA_PACK; i++) sums.at[i] += weight * pack.at[i];
    }
  for (int i = 0; i < LS_CUDA_PACK; i++)
    shared[(warp * LS_CUDA_WARP + lane) * LS_CUDA_PACK + i] = sums.at[i];
  __syncthreads();
  const int64_t own = static_cast<int64_t>(blockIdx.x) * LS_CUDA_WARP * LS_CUDA_PACK + threadIdx.x;
  if (own >= args.bias.stride) return;
  float sum = 0;
  for (int w = 0; w < 8; w++) sum += shared[w * LS_CUDA_WARP * LS_CUDA_PACK + threadIdx.x];
  ls_put_any(args.bias, expert * args.bias.stride + own, sum);
}

template <class T>
__device__ void ls_expert_bias_of(const ls_cuda_expert_bias &a) {
  ls_expert_bias_rows<T, false>(a);
}
template <class T>
__device__ void ls_expert_weigh_of(const ls_cuda_expert_bias &a) {
  ls_expert_bias_rows<T, true>(a);
}

LS_KERNELS(ls_expert_bias, ls_cuda_expert_bias, 256, ls_expert_bias_of)
LS_KERNELS(ls_expert_weigh, ls_cuda_expert_bias, 256, ls_expert_weigh_of)
LS_KERNELS(ls_expert_weigh_bwd, ls_cuda_expert_bias, 256, ls_expert_weigh_bwd_rows)
LS_KERNELS(ls_expert_sums, ls_cuda_expert_bias, 256, ls_expert_sums_rows)
