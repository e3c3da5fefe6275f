// Vectors of texts, told apart (device/reference/texts.c). A warp has 256 columns of a text's sum,
// a block a text that asks or an answer: cosines are a warp's each and go to no memory, so going
// back makes them again. Sums have one order; all but tokens and their gradients are fp32.
#include "device/cuda/kernels/cuda_device.cuh"

// The row that a token's text has; -1: none here.
__device__ inline int64_t ls_text_row(const ls_cuda_texts &args, int32_t label) {
  if (label == -1) return -1;
  const int32_t number = label >= 0 ? label : -2 - label;
  const int32_t text = number % args.texts, pair = number / args.texts % args.pairs;
  if ((text > 0) != (args.answers > 0)) return -1;
  const int64_t of = static_cast<int64_t>(pair) * args.answers + text - 1;
  const int64_t row = (args.answers > 0 ? of : pair) - args.start;
  return row >= 0 && row < args.rows ? row : -1;
}

// Of each row the first token and the one behind the last.
LS_KERNEL(ls_text_bounds, ls_cuda_texts, 256) {
  const int warps = blockDim.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  for (int64_t r = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / LS_CUDA_WARP;
       r < args.rows; r += static_cast<int64_t>(gridDim.x) * warps) {
    int64_t first = args.tokens, end = 0;
    for (int64_t n = lane; n < args.tokens; n += LS_CUDA_WARP)
      if (ls_text_row(args, args.labels[n]) == r) {
        if (first == args.tokens) first = n;
        end = n + 1;
      }
    for (int step = LS_CUDA_WARP / 2; step; step /= 2) {
      const int64_t other = __shfl_xor_sync(LS_ALL_LANES, first, step);
      const int64_t beyond = __shfl_xor_sync(LS_ALL_LANES, end, step);
      first = other < first ? other : first;
      end = beyond > end ? beyond : end;
    }
    if (lane > 0) continue;
    args.bounds[2 * r] = static_cast<int32_t>(first);
    args.bounds[2 * r + 1] = static_cast<int32_t>(end);
  }
}

template <class T>
__device__ inline void ls_text_sums_of(const ls_cuda_texts &args) {
  const int64_t warps = blockDim.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const int64_t across =
      (args.out[0].stride + LS_CUDA_WARP * LS_CUDA_PACK - 1) / (LS_CUDA_WARP * LS_CUDA_PACK);
  for (int64_t turn = blockIdx.x * warps + threadIdx.x / LS_CUDA_WARP; turn < args.rows * across;
       turn += gridDim.x * warps) {
    const int64_t row = turn / across, c = (turn % across * LS_CUDA_WARP + lane) * LS_CUDA_PACK;
    const int count = ls_at_most_pack(args.columns - c);
    const int stored = ls_at_most_pack(args.out[0].stride - c);
    const int64_t first = args.bounds[2 * row], end = args.bounds[2 * row + 1];
    ls_pack sum = {};
    for (int64_t from = first; from < end; from += LS_CUDA_WARP) {
      const int64_t n = from + lane;
      const bool own = n < end && ls_text_row(args, args.labels[n]) == row;
      for (uint32_t left = __ballot_sync(LS_ALL_LANES, own); left; left &= left - 1) {
        const int64_t token = from + __ffs(static_cast<int>(left)) - 1;
        const ls_pack pack = ls_load(ls_row_of<T>(args.in[0], token) + c, count, args.wide);
#pragma unroll
        for (int i = 0; i < LS_CUDA_PACK; i++) sum.at[i] += pack.at[i];
      }
    }
    ls_store(ls_row_of<float>(args.out[0], row) + c, sum, stored, args.wide, args.out[0].add);
  }
}
LS_KERNELS(ls_text_sums, ls_cuda_texts, 256, ls_text_sums_of)

template <class T>
__device__ inline void ls_text_sums_back(const ls_cuda_texts &args) {
  const int64_t warps = blockDim.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  for (int64_t n = blockIdx.x * warps + threadIdx.x / LS_CUDA_WARP; n < args.tokens;
       n += gridDim.x * warps) {
    const int64_t row = ls_text_row(args, args.labels[n]);
    if (row < 0 && args.out[0].add) continue;
    for (int64_t c = lane * LS_CUDA_PACK; c < args.out[0].stride;
         c += LS_CUDA_WARP * LS_CUDA_PACK) {
      const int count = row < 0 ? 0 : ls_at_most_pack(args.columns - c);
      ls_pack pack = {};
      if (count) pack = ls_load(ls_row_of<float>(args.in[0], row) + c, count, args.wide);
      ls_store(ls_row_of<T>(args.out[0], n) + c, pack, ls_at_most_pack(args.out[0].stride - c),
               args.wide, args.out[0].add);
    }
  }
}
LS_KERNELS(ls_text_sums_bwd, ls_cuda_texts, 256, ls_text_sums_back)

// The product of two rows, in all lanes of a warp. SUM is double where what is left of a difference
// may be small.
template <class SUM>
__device__ inline SUM ls_text_product(const ls_cuda_texts &args, const float *a, const float *b) {
  const int lane = threadIdx.x % LS_CUDA_WARP;
  SUM sum = 0;
  for (int64_t c = static_cast<int64_t>(lane) * LS_CUDA_PACK; c < args.columns;
       c += LS_CUDA_WARP * LS_CUDA_PACK) {
    const int count = ls_at_most_pack(args.columns - c);
    const ls_pack left = ls_load(a + c, count, args.wide), right = ls_load(b + c, count, args.wide);
#pragma unroll
    for (int i = 0; i < LS_CUDA_PACK; i++)
      sum += static_cast<SUM>(left.at[i]) * static_cast<SUM>(right.at[i]);
  }
  return ls_warp_sum(sum);
}

// Forward y = x / length and 1 / length; back dx = (dy - y (y . dy)) / length.
template <bool BACK>
__device__ inline void ls_unit_rows_of(const ls_cuda_texts &args) {
  const int64_t warps = blockDim.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  for (int64_t n = blockIdx.x * warps + threadIdx.x / LS_CUDA_WARP; n < args.rows;
       n += gridDim.x * warps) {
    const float *x = ls_row_of<float>(args.in[0], n);
    const float *y = BACK ? ls_row_of<float>(args.in[1], n) : x;
    const double product = ls_text_product<double>(args, x, y);
    const double made = product > 0 || product != product ? 1 / sqrt(product) : 0;
    const double inverse = BACK ? static_cast<double>(args.asking[n]) : made;
    const double along = BACK ? product : 0;
    for (int64_t c = lane * LS_CUDA_PACK; c < args.out[0].stride;
         c += LS_CUDA_WARP * LS_CUDA_PACK) {
      const int count = ls_at_most_pack(args.columns - c);
      ls_pack pack = ls_load(x + c, count, args.wide);
      const ls_pack unit = ls_load(y + c, BACK ? count : 0, BACK && args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++) {
        const double across =
            static_cast<double>(pack.at[i]) - static_cast<double>(unit.at[i]) * along;
        pack.at[i] = i < count ? static_cast<float>(across * inverse) : 0;
      }
      ls_store(ls_row_of<float>(args.out[0], n) + c, pack, ls_at_most_pack(args.out[0].stride - c),
               args.wide, args.out[0].add);
    }
    if (!BACK && lane == 0) ls_put_any(args.out[1], n, static_cast<float>(inverse));
  }
}
LS_KERNEL(ls_unit_rows, ls_cuda_texts, 256) {
  ls_unit_rows_of<false>(args);
}
LS_KERNEL(ls_unit_rows_bwd, ls_cuda_texts, 256) {
  ls_unit_rows_of<true>(args);
}

// The answers of a text's group, its own among them.
struct ls_group_answers {
  int64_t own, first, end;
};

__device__ inline ls_group_answers ls_answers_of(const ls_cuda_texts &args, int64_t n) {
  const int64_t pair = args.start + n, first = pair / args.pairs * args.pairs * args.answers;
  const int64_t end = first + static_cast<int64_t>(args.pairs) * args.answers;
  return {pair * args.answers, first, end < args.others ? end : args.others};
}

__device__ inline float ls_text_score(const ls_cuda_texts &args, int64_t n, int64_t k) {
  return args.scale * ls_text_product<float>(args, ls_row_of<float>(args.in[0], n),
                                             ls_row_of<float>(args.in[1], k));
}

// A block has a text that asks; its warps take answers in turn.
LS_KERNEL(ls_text_match, ls_cuda_texts, 256) {
  LS_SHARED(float, largest, LS_CUDA_WARP);
  LS_SHARED(double, sums, LS_CUDA_WARP);
  LS_SHARED(int, founds, LS_CUDA_WARP);
  const int warps = blockDim.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const int warp = threadIdx.x / LS_CUDA_WARP;
  for (int64_t n = blockIdx.x; n < args.rows; n += gridDim.x) {
    const ls_group_answers of = ls_answers_of(args, n);
    const bool asks = args.asking[n] != 0 && of.own < of.end;
    const float own = asks ? ls_text_score(args, n, of.own) : 0;
    float max = own;
    double sum = 0;
    bool found = asks;
    for (int64_t k = of.first + warp; asks && k < of.end; k += warps) {
      if (k != of.own && args.answering[k] == 0) continue;
      const float score = k == of.own ? own : ls_text_score(args, n, k);
      found = found && (k < of.own ? score < own : score <= own);
      if (score > max) {
        sum *= static_cast<double>(expf(max - score));
        max = score;
      }
      sum += static_cast<double>(expf(score - max));
    }
    __syncthreads();  // the last text's have been read
    if (lane == 0) {
      largest[warp] = max;
      sums[warp] = sum;
      founds[warp] = found;
    }
    __syncthreads();
    if (threadIdx.x > 0) continue;
    for (int w = 0; w < warps; w++) max = largest[w] > max ? largest[w] : max;
    double total = 0;
    for (int w = 0; w < warps; w++) {
      total += sums[w] * static_cast<double>(expf(largest[w] - max));
      found = found && founds[w];
    }
    ls_put_any(args.out[0], n, asks ? max + static_cast<float>(log(total)) : 0);
    ls_put_any(args.out[1], n, own);
    ls_put_any(args.out[2], n, found ? 1 : 0);
  }
}

// What the score of a text that asks with an answer is to change by; 0 where one is none.
__device__ inline float ls_text_slope(const ls_cuda_texts &args, int64_t n, int64_t k) {
  const int64_t own = (args.start + n) * args.answers;
  if (args.asking[n] == 0 || (k != own && args.answering[k] == 0)) return 0;
  const float share = expf(ls_text_score(args, n, k) - args.sums[n]) - (k == own ? 1.0f : 0.0f);
  return share * static_cast<float>(static_cast<double>(args.scale) * *args.root);
}

// A block has a row of one side, whose gradient is made of rows [first, end) of the other: of so
// many at a time the slopes, and then all columns.
template <bool ASKS>
__device__ inline void ls_text_row_back(const ls_cuda_texts &args, int64_t row, int64_t first,
                                        int64_t end, float *slopes) {
  const ls_cuda_place &out = args.out[ASKS ? 0 : 1];
  float *to = ls_row_of<float>(out, row);
  if (!out.add)
    for (int64_t c = threadIdx.x; c < out.stride; c += blockDim.x) to[c] = 0;
  for (int64_t from = first; from < end; from += blockDim.x) {
    const int warps = blockDim.x / LS_CUDA_WARP, warp = threadIdx.x / LS_CUDA_WARP;
    const int count = static_cast<int>(end - from < blockDim.x ? end - from : blockDim.x);
    __syncthreads();  // the last slopes have been read, what was written is seen
    for (int i = warp; i < count; i += warps) {
      const float slope =
          ASKS ? ls_text_slope(args, row, from + i) : ls_text_slope(args, from + i, row);
      if (threadIdx.x % LS_CUDA_WARP == 0) slopes[i] = slope;
    }
    __syncthreads();
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * LS_CUDA_PACK; c < args.columns;
         c += static_cast<int64_t>(blockDim.x) * LS_CUDA_PACK) {
      const int packed = ls_at_most_pack(args.columns - c);
      ls_pack sum = {};
      for (int i = 0; i < count; i++) {
        if (slopes[i] == 0) continue;
        const ls_pack other =
            ls_load(ls_row_of<float>(args.in[ASKS ? 1 : 0], from + i) + c, packed, args.wide);
#pragma unroll
        for (int j = 0; j < LS_CUDA_PACK; j++) sum.at[j] += slopes[i] * other.at[j];
      }
      ls_store(to + c, sum, packed, args.wide, true);
    }
  }
}

LS_KERNEL(ls_text_match_asking, ls_cuda_texts, 256) {
  LS_SHARED(float, slopes, 256);
  for (int64_t n = blockIdx.x; n < args.rows; n += gridDim.x) {
    const ls_group_answers of = ls_answers_of(args, n);
    ls_text_row_back<true>(args, n, of.first, args.asking[n] != 0 ? of.end : of.first, slopes);
  }
}

LS_KERNEL(ls_text_match_answering, ls_cuda_texts, 256) {
  LS_SHARED(float, slopes, 256);
  for (int64_t k = blockIdx.x; k < args.others; k += gridDim.x) {
    const int64_t first = k / args.answers / args.pairs * args.pairs - args.start;
    const int64_t end = first + args.pairs < args.rows ? first + args.pairs : args.rows;
    ls_text_row_back<false>(args, k, first > 0 ? first : 0, end, slopes);
  }
}

// The sum of sums, less `own` where that is given, of the texts that are there; of one block.
LS_KERNEL(ls_text_total, ls_cuda_texts, 512) {
  double total = 0;
  for (int64_t n = threadIdx.x; n < args.rows; n += blockDim.x) {
    if (args.asking && args.asking[n] == 0) continue;
    const double own = args.own ? static_cast<double>(args.own[n]) : 0;
    total += static_cast<double>(args.sums[n]) - own;
  }
  total = ls_block_sum(total);
  if (threadIdx.x == 0) ls_put_cell(args.cell, total, args.add);
}
