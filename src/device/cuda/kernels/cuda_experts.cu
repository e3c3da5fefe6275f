// Mixtures of experts: where tokens go, and their rows there and back (device/reference/experts.c).
// Rows are numbered by counting: of each 256 choices in a tile how many are of each expert, then
// where each tile's begin, then each choice by its rank in its tile; so their order is that of
// tokens, whatever the order of threads.
#include "device/cuda/kernels/cuda_experts.cuh"

enum { LS_ROUTE_TILE = 256 };

// Rises as experts are chosen less: by the logit, of equal ones by the number. No two are equal,
// and none is 0.
__device__ inline uint64_t ls_route_key(float logit, int expert) {
  const uint32_t bits = ls_float_bits(logit == 0 ? 0.0f : logit);
  const uint32_t rising = bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
  return static_cast<uint64_t>(rising) << 32 | (0xffffffffu - static_cast<uint32_t>(expert));
}

// -1 - expert of each choice, and its weight.
template <class T>
__device__ inline void ls_route_choose(const ls_cuda_route &args) {
  const int lane = threadIdx.x % LS_CUDA_WARP;
  for (int64_t n = ls_warp_first(); n < args.tokens; n += ls_warp_step()) {
    const T *logits = ls_row_of<T>(args.of.logits, n);
    int32_t *places = args.places + n * args.chosen;
    uint64_t last = ~uint64_t{0};
    float most = 0, sum = 0;
    for (int j = 0; j < args.chosen; j++) {
      uint64_t best = 0;
      for (int e = lane; e < args.experts; e += LS_CUDA_WARP) {
        const uint64_t key = ls_route_key(ls_widen(logits[e]), e);
        if (key < last && key > best) best = key;
      }
      last = ls_warp_most(best);
      const int expert = static_cast<int>(0xffffffffu - static_cast<uint32_t>(last));
      const float logit = ls_widen(logits[expert]);
      if (j == 0) most = logit;
      sum += expf(logit - most);
      if (j % LS_CUDA_WARP == lane) places[j] = -1 - expert;
    }
    if (!args.renormalise) sum = ls_sum_of_exponentials(logits, args.experts, most);
    for (int j = lane; j < args.chosen; j += LS_CUDA_WARP)  // a lane reads what it wrote
      args.slot_weights[n * args.chosen + j] =
          args.scale * expf(ls_widen(logits[-1 - places[j]]) - most) / sum;
  }
}

// The same by scores, a row of shared memory for each warp.
template <class T>
__device__ inline void ls_route_choose_scores(const ls_cuda_route &args) {
  LS_DYNAMIC_SHARED(uint64_t, shared);
  uint64_t *keys = shared + threadIdx.x / LS_CUDA_WARP * args.of.experts;
  const int lane = threadIdx.x % LS_CUDA_WARP;
  for (int64_t n = ls_warp_first(); n < args.tokens; n += ls_warp_step()) {
    const T *logits = ls_row_of<T>(args.of.logits, n);
    int32_t *places = args.places + n * args.chosen;
    float most = -INFINITY, sum = 0;
    ls_make_keys(args.of, logits, keys);
    for (int j = 0; j < args.chosen; j++) {
      const int expert = ls_next_choice(args.of, keys);
      if (j % LS_CUDA_WARP == lane) places[j] = -1 - expert;
    }
    for (int j = lane; j < args.chosen; j += LS_CUDA_WARP)  // a lane reads what it wrote
      most = ls_larger(ls_widen(logits[-1 - places[j]]), most);
    most = ls_warp_max(most);
    for (int j = lane; j < args.chosen; j += LS_CUDA_WARP)
      sum += ls_router_term(args.of, ls_widen(logits[-1 - places[j]]), most);
    sum = ls_router_sum(args, logits, most, ls_warp_sum(sum));
    for (int j = lane; j < args.chosen; j += LS_CUDA_WARP)
      args.slot_weights[n * args.chosen + j] =
          args.scale * ls_router_term(args.of, ls_widen(logits[-1 - places[j]]), most) / sum;
  }
}

// Of a tile's choices the rank among those of the same expert, and whether it is the last. For all
// threads; experts below 0 are none.
struct ls_route_rank {
  int32_t expert, rank;
  bool last;
};

__device__ inline ls_route_rank ls_rank_in_tile(const ls_cuda_route &args) {
  LS_SHARED(int32_t, experts, LS_ROUTE_TILE);
  const int64_t slot = static_cast<int64_t>(blockIdx.x) * LS_ROUTE_TILE + threadIdx.x;
  ls_route_rank own = {slot < args.tokens * args.chosen ? -1 - args.places[slot] : -1, 0, true};
  experts[threadIdx.x] = own.expert;
  __syncthreads();
  const int thread = threadIdx.x;
  for (int i = 0; i < LS_ROUTE_TILE; i++) {
    const bool same = experts[i] == own.expert;
    own.rank += same && i < thread;
    own.last = own.last && !(same && i > thread);
  }
  return own;
}

LS_KERNEL(ls_route_count, ls_cuda_route, LS_ROUTE_TILE) {
  int32_t *counts = args.counts + static_cast<int64_t>(blockIdx.x) * args.experts;
  for (int e = threadIdx.x; e < args.experts; e += LS_ROUTE_TILE) counts[e] = 0;
  const ls_route_rank own = ls_rank_in_tile(args);  // in which threads meet
  if (own.expert >= 0 && own.last) counts[own.expert] = own.rank + 1;
}

__device__ inline int32_t ls_warp_prefix(int32_t value) {
  const int lane = threadIdx.x % LS_CUDA_WARP;
#pragma unroll
  for (int step = 1; step < LS_CUDA_WARP; step *= 2) {
    const int32_t before = __shfl_up_sync(LS_ALL_LANES, value, step);
    if (lane >= step) value += before;
  }
  return value;
}

// `count` numbers, `stride` apart, become the sums of those before them; returns that of all. For a
// warp.
__device__ inline int32_t ls_sums_before(int32_t *numbers, int64_t count, int64_t stride) {
  const int lane = threadIdx.x % LS_CUDA_WARP;
  int32_t sum = 0;
  for (int64_t first = 0; first < count; first += LS_CUDA_WARP) {
    const int64_t at = first + lane;
    const int32_t own = at < count ? numbers[at * stride] : 0, prefix = ls_warp_prefix(own);
    if (at < count) numbers[at * stride] = sum + prefix - own;
    sum += __shfl_sync(LS_ALL_LANES, prefix, LS_CUDA_WARP - 1);
  }
  return sum;
}

// One block: a warp has an expert, and one of them all experts.
LS_KERNEL(ls_route_sums, ls_cuda_route, 1024) {
  const int warp = threadIdx.x / LS_CUDA_WARP, warps = blockDim.x / LS_CUDA_WARP;
  for (int e = warp; e < args.experts; e += warps) {
    const int32_t all = ls_sums_before(args.counts + e, args.tiles, args.experts);
    if (threadIdx.x % LS_CUDA_WARP == 0) args.bases[e] = all;
  }
  __syncthreads();
  if (warp == 0) (void)ls_sums_before(args.bases, args.experts, 1);
}

LS_KERNEL(ls_route_place, ls_cuda_route, LS_ROUTE_TILE) {
  const ls_route_rank own = ls_rank_in_tile(args);
  if (own.expert < 0) return;
  const int64_t slot = static_cast<int64_t>(blockIdx.x) * LS_ROUTE_TILE + threadIdx.x;
  const int32_t before = args.counts[static_cast<int64_t>(blockIdx.x) * args.experts + own.expert];
  const int32_t row = args.bases[own.expert] + before + own.rank;
  args.places[slot] = row;
  args.expert_of_row[row] = own.expert;
  args.weights[row] = args.slot_weights[slot];
}

// A token's choices in turn, a lane each.
template <class BODY>
__device__ inline void ls_each_choice(const ls_cuda_route &args, int64_t token, BODY body) {
  for (int j = threadIdx.x % LS_CUDA_WARP; j < args.chosen; j += LS_CUDA_WARP) {
    const int32_t row = args.places[token * args.chosen + j];
    body(args.expert_of_row[row], args.dweights[row]);
  }
}

// With p the weights over what counts, d their gradient and s how much a term changes by itself,
// p s (d - sum of p d); the sum is 0 where weights do not depend on each other.
template <class T>
__device__ inline void ls_route_bwd_rows(const ls_cuda_route &args) {
  const int lane = threadIdx.x % LS_CUDA_WARP;
  const bool all = !args.renormalise && !args.of.sigmoid, depends = args.renormalise || all;
  for (int64_t n = ls_warp_first(); n < args.tokens; n += ls_warp_step()) {
    const T *logits = ls_row_of<T>(args.of.logits, n);
    T *to = ls_row_of<T>(args.out, n);
    float most = -INFINITY, sum = 0, mean = 0;
    ls_each_choice(args, n, [&](int32_t e, float) { most = ls_larger(ls_widen(logits[e]), most); });
    most = ls_warp_max(most);
    ls_each_choice(args, n, [&](int32_t e, float slope) {
      const float share = ls_router_term(args.of, ls_widen(logits[e]), most);
      sum += share;
      mean += share * slope;
    });
    sum = ls_router_sum(args, logits, most, ls_warp_sum(sum));
    mean = depends ? ls_warp_sum(mean) / sum : 0;
    for (int first = 0; first < args.out.stride; first += LS_CUDA_WARP) {
      const int e = first + lane;
      float own = 0;
      bool chosen = false;
      for (int j = 0; j < args.chosen && !chosen; j++) {
        const int32_t row = args.places[n * args.chosen + j];
        chosen = args.expert_of_row[row] == e;
        if (chosen) own = args.dweights[row];
      }
      if (e >= args.out.stride) continue;
      float value = 0;
      if (e < args.experts && (chosen || all)) {
        const float term = ls_router_term(args.of, ls_widen(logits[e]), most);
        const float slope = args.of.sigmoid ? 1 - term : 1;
        value = args.scale * slope * term / sum * (own - mean);
      }
      ls_round(&to[e], args.out.add ? value + ls_widen(to[e]) : value);
    }
  }
}

// A row in turn for each block: BODY(row, column, count, stored) for eight columns.
template <class BODY>
__device__ inline void ls_each_routed(const ls_cuda_routed &args, BODY body) {
  for (int64_t n = blockIdx.x; n < args.rows; n += gridDim.x)
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * LS_CUDA_PACK; c < args.out.stride;
         c += static_cast<int64_t>(blockDim.x) * LS_CUDA_PACK)
      body(n, c, ls_at_most_pack(args.columns - c), ls_at_most_pack(args.out.stride - c));
}

// Zeros where no row may come.
template <class T>
__device__ inline void ls_clear_rows(const ls_cuda_routed &args) {
  ls_each_routed(args, [&](int64_t n, int64_t c, int, int stored) {
    ls_store(ls_row_of<T>(args.out, n) + c, ls_pack{}, stored, args.wide, false);
  });
}

// A copy of each token's row for each of its routed rows; below 0 there is none.
template <class T>
__device__ inline void ls_spread_rows(const ls_cuda_routed &args) {
  ls_each_routed(args, [&](int64_t n, int64_t c, int count, int stored) {
    const ls_pack pack = ls_load(ls_row_of<T>(args.in[0], n) + c, count, args.wide);
    for (int j = 0; j < args.chosen; j++) {
      const int32_t row = args.places[n * args.chosen + j];
      if (row < 0) continue;
      ls_store(ls_row_of<T>(args.out, row) + c, pack, stored, args.wide, args.out.add);
    }
  });
}

// The sum of each token's routed rows.
template <class T>
__device__ inline void ls_collect_rows(const ls_cuda_routed &args) {
  ls_each_routed(args, [&](int64_t n, int64_t c, int count, int stored) {
    ls_pack sum = {};
    for (int j = 0; j < args.chosen; j++) {
      const int32_t row = args.places[n * args.chosen + j];
      if (row < 0) continue;
      const ls_pack pack = ls_load(ls_row_of<T>(args.in[0], row) + c, count, args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++) sum.at[i] += pack.at[i];
    }
    ls_store(ls_row_of<T>(args.out, n) + c, sum, stored, args.wide, args.out.add);
  });
}

// The output may be the input's memory: a thread reads its eight before it writes them.
template <class T>
__device__ inline void ls_weigh_rows(const ls_cuda_routed &args) {
  ls_each_routed(args, [&](int64_t n, int64_t c, int count, int stored) {
    ls_pack pack = ls_load(ls_row_of<T>(args.in[0], n) + c, count, args.wide);
    const float weight = args.numbers[n];
    for (int i = 0; i < LS_CUDA_PACK; i++) pack.at[i] *= weight;
    ls_store(ls_row_of<T>(args.out, n) + c, pack, stored, args.wide, args.out.add);
  });
}

// dy, x, weights -> weights dy, and dy . x of each row.
template <class T>
__device__ inline void ls_weigh_bwd_rows(const ls_cuda_routed &args) {
  for (int64_t n = blockIdx.x; n < args.rows; n += gridDim.x) {
    const float weight = args.numbers[n];
    float sum = 0;
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * LS_CUDA_PACK; c < args.out.stride;
         c += static_cast<int64_t>(blockDim.x) * LS_CUDA_PACK) {
      const int count = ls_at_most_pack(args.columns - c);
      ls_pack slope = ls_load(ls_row_of<T>(args.in[0], n) + c, count, args.wide);
      const ls_pack x = ls_load(ls_row_of<T>(args.in[1], n) + c, count, args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++) {
        sum += slope.at[i] * x.at[i];
        slope.at[i] *= weight;
      }
      ls_store(ls_row_of<T>(args.out, n) + c, slope, ls_at_most_pack(args.out.stride - c),
               args.wide, args.out.add);
    }
    sum = ls_block_sum(sum);
    if (threadIdx.x == 0) args.slopes[n] = args.add_slopes ? args.slopes[n] + sum : sum;
  }
}

LS_KERNELS(ls_route_choose, ls_cuda_route, 256, ls_route_choose)
LS_KERNELS(ls_route_choose_scores, ls_cuda_route, 256, ls_route_choose_scores)
LS_KERNELS(ls_route_bwd, ls_cuda_route, 256, ls_route_bwd_rows)
LS_KERNELS(ls_clear, ls_cuda_routed, 256, ls_clear_rows)
LS_KERNELS(ls_spread, ls_cuda_routed, 256, ls_spread_rows)
LS_KERNELS(ls_collect, ls_cuda_routed, 256, ls_collect_rows)
LS_KERNELS(ls_weigh, ls_cuda_routed, 256, ls_weigh_rows)
LS_KERNELS(ls_weigh_bwd, ls_cuda_routed, 256, ls_weigh_bwd_rows)
