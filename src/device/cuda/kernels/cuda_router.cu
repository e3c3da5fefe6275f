// How many tokens go to each expert, and what that costs; gates of one column
// (device/reference/router.c). A warp has a token; counts are whole numbers, sums of losses are
// made in the order of blocks.
#include "device/cuda/kernels/cuda_experts.cuh"

template <class T>
__device__ inline void ls_loads_choose_rows(const ls_cuda_router &args) {
  LS_DYNAMIC_SHARED(uint64_t, shared);
  uint64_t *keys = shared + threadIdx.x / LS_CUDA_WARP * args.of.experts;
  const int lane = threadIdx.x % LS_CUDA_WARP;
  for (int64_t n = ls_warp_first(); n < args.tokens; n += ls_warp_step()) {
    const bool labelled = args.labels[n] >= 0;
    if (labelled) ls_make_keys(args.of, ls_row_of<T>(args.of.logits, n), keys);
    for (int j = 0; j < args.chosen; j++) {
      const int expert = labelled ? ls_next_choice(args.of, keys) : -1;
      if (j % LS_CUDA_WARP == lane) args.choices[n * args.chosen + j] = expert;
    }
  }
}

// Block (part, sequence).
LS_KERNEL(ls_loads_count, ls_cuda_router, 256) {
  LS_DYNAMIC_SHARED(int32_t, counts);
  const int64_t sequence = blockIdx.y, slots = args.each * args.chosen;
  const int64_t share = (slots + args.part_count - 1) / args.part_count;
  const int64_t first = blockIdx.x * share, end = first + share < slots ? first + share : slots;
  for (int e = threadIdx.x; e < args.of.experts; e += blockDim.x) counts[e] = 0;
  __syncthreads();
  for (int64_t s = first + threadIdx.x; s < end; s += blockDim.x) {
    const int32_t expert = args.choices[sequence * slots + s];
    if (expert >= 0) atomicAdd(&counts[expert], 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < args.of.experts; e += blockDim.x)
    args.counts[(sequence * args.part_count + blockIdx.x) * args.of.experts + e] = counts[e];
}

__device__ inline void ls_put_load(const ls_cuda_place &loads, int64_t at, int64_t count) {
  if (loads.dtype == LS_F64)
    static_cast<double *>(loads.data)[at] = static_cast<double>(count);
  else
    static_cast<float *>(loads.data)[at] = static_cast<float>(count);
}

LS_KERNEL(ls_loads_put, ls_cuda_router, 256) {
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       e < args.loads.stride; e += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    int64_t all = 0;
    for (int64_t s = 0; s < args.sequences; s++) {
      int64_t own = 0;
      for (int p = 0; p < args.part_count && e < args.of.experts; p++)
        own += args.counts[(s * args.part_count + p) * args.of.experts + e];
      ls_put_load(args.loads, s * args.loads.stride + e, own);
      all += own;
    }
    ls_put_cell(&args.told[e], static_cast<double>(all), args.add);
  }
}

LS_KERNEL(ls_loads_total, ls_cuda_router, 256) {
  const double *own = static_cast<const double *>(args.loads.data);
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       e < args.loads.stride; e += static_cast<int64_t>(gridDim.x) * blockDim.x)
    args.told[e] = own[e] + (args.root ? args.root[e] : 0);
}

__device__ inline double ls_load_at(const ls_cuda_place &loads, int64_t row, int64_t e) {
  const int64_t at = row * loads.stride + e;
  return loads.dtype == LS_F64 ? static_cast<const double *>(loads.data)[at]
                               : static_cast<double>(static_cast<const float *>(loads.data)[at]);
}

// What the loss of a token is made of.
struct ls_penalty {
  float most, sum;    // of all experts' terms
  float sum_of_exps;  // of logits, over that of the largest
  float log_sum_exp;
  double loads;  // their sum; 0: nothing is balanced
  float mean;    // of loads over their sum, by probability
};

template <class T>
__device__ inline ls_penalty ls_penalty_of(const ls_cuda_router &args, const T *logits,
                                           int64_t row) {
  const int lane = threadIdx.x % LS_CUDA_WARP;
  ls_penalty of = {-INFINITY, 0, 0, 0, 0, 0};
  for (int e = lane; e < args.of.experts; e += LS_CUDA_WARP)
    of.most = ls_larger(ls_widen(logits[e]), of.most);
  of.most = ls_warp_max(of.most);
  for (int e = lane; e < args.of.experts; e += LS_CUDA_WARP) {
    const float logit = ls_widen(logits[e]);
    of.sum += ls_router_term(args.of, logit, of.most);
    of.sum_of_exps += expf(logit - of.most);
    of.loads += ls_load_at(args.loads, row, e);
  }
  of.sum = ls_warp_sum(of.sum);
  of.sum_of_exps = ls_warp_sum(of.sum_of_exps);
  of.loads = ls_warp_sum(of.loads);
  for (int e = lane; e < args.of.experts && of.loads > 0; e += LS_CUDA_WARP)
    of.mean += static_cast<float>(ls_load_at(args.loads, row, e) / of.loads) *
               ls_router_term(args.of, ls_widen(logits[e]), of.most) / of.sum;
  of.mean = ls_warp_sum(of.mean);
  of.log_sum_exp = of.most + logf(of.sum_of_exps);
  return of;
}

// A block's part of the sum; ls_square_sum adds them up.
template <class T>
__device__ inline void ls_router_loss_rows(const ls_cuda_router &args) {
  double sum = 0;
  for (int64_t n = ls_warp_first(); n < args.tokens; n += ls_warp_step()) {
    if (args.labels[n] < 0) continue;
    const ls_penalty of = ls_penalty_of(args, ls_row_of<T>(args.of.logits, n), n / args.each);
    const double level = static_cast<double>(of.log_sum_exp);
    const double own = args.scale * static_cast<double>(of.mean) + args.z_scale * level * level;
    sum += own * static_cast<double>(args.weights ? args.weights[n] : 1);
  }
  sum = ls_block_sum(threadIdx.x % LS_CUDA_WARP == 0 ? sum : 0);
  if (threadIdx.x == 0) args.parts[blockIdx.x] = sum;
}

template <class T>
__device__ inline void ls_router_loss_bwd_rows(const ls_cuda_router &args) {
  const float scale = static_cast<float>(args.scale), z_scale = static_cast<float>(args.z_scale);
  for (int64_t n = ls_warp_first(); n < args.tokens; n += ls_warp_step()) {
    const T *logits = ls_row_of<T>(args.of.logits, n);
    T *to = ls_row_of<T>(args.out, n);
    const int64_t row = n / args.each;
    const bool labelled = args.labels[n] >= 0;
    const ls_penalty of = ls_penalty_of(args, logits, row);
    const double counts = static_cast<double>(args.weights ? args.weights[n] : 1);
    const float root = static_cast<float>(*args.root * counts);
    const float level = 2 * z_scale * of.log_sum_exp / of.sum_of_exps;
    for (int e = threadIdx.x % LS_CUDA_WARP; e < args.out.stride; e += LS_CUDA_WARP) {
      float made = 0;
      if (e < args.of.experts && labelled) {
        const float logit = ls_widen(logits[e]), term = ls_router_term(args.of, logit, of.most);
        made = level * expf(logit - of.most);
        if (of.loads > 0)
          made += scale * (args.of.sigmoid ? 1 - term : 1) * term / of.sum *
                  (static_cast<float>(ls_load_at(args.loads, row, e) / of.loads) - of.mean);
        made *= root;
      }
      ls_round(&to[e], args.out.add ? made + ls_widen(to[e]) : made);
    }
  }
}

// A gate's logit, a column by itself -> its sigmoid, in fp32.
template <class T>
__device__ inline void ls_row_sigmoid_rows(const ls_cuda_router &args) {
  for (int64_t n = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; n < args.tokens;
       n += static_cast<int64_t>(gridDim.x) * blockDim.x)
    ls_put_any(args.out, n, 1 / (1 + expf(-ls_widen(*ls_row_of<T>(args.of.logits, n)))));
}

template <class T>
__device__ inline void ls_row_sigmoid_bwd_rows(const ls_cuda_router &args) {
  for (int64_t n = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; n < args.tokens;
       n += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const float own = 1 / (1 + expf(-ls_widen(*ls_row_of<T>(args.of.logits, n))));
    const float value = args.weights[n] * own * (1 - own);
    T *to = ls_row_of<T>(args.out, n);
    ls_round(to, args.out.add ? value + ls_widen(*to) : value);
  }
}

LS_KERNELS(ls_loads_choose, ls_cuda_router, 256, ls_loads_choose_rows)
LS_KERNELS(ls_router_loss, ls_cuda_router, 256, ls_router_loss_rows)
LS_KERNELS(ls_router_loss_bwd, ls_cuda_router, 256, ls_router_loss_bwd_rows)
LS_KERNELS(ls_row_sigmoid, ls_cuda_router, 256, ls_row_sigmoid_rows)
LS_KERNELS(ls_row_sigmoid_bwd, ls_cuda_router, 256, ls_row_sigmoid_bwd_rows)
