// What the kernels of attention share: scores, which keys a query sees, rows of heads.
#pragma once

#include "device/cuda/kernels/cuda_device.cuh"

// How much the score of head `head` of this rank falls by token: ls_alibi_slope, times the factor.
__device__ inline float ls_distance_slope(const ls_cuda_attention &args, int head) {
  if (args.alibi <= 0) return 0;
  int power = 1;
  while (power * 2 <= args.all_heads) power *= 2;
  const int place = args.first_head + head;
  const float of_power = static_cast<float>(power);
  return args.alibi * (place < power
                           ? exp2f(-8 / of_power * static_cast<float>(place + 1))
                           : exp2f(-4 / of_power * static_cast<float>(2 * (place - power) + 1)));
}

// Within 2e-7 of tanh, which is what a score in 16 bits can be told from, in four instructions
// where tanhf has some twenty at each of a thread's scores.
__device__ inline float ls_quick_tanh(float x) {
  return 1 - 2 / (1 + __expf(2 * x));
}

// The score of a key `distance` tokens before the query from the product of the two; *slope takes
// its derivative by the product.
template <bool QUICK>
__device__ inline float ls_score(const ls_cuda_attention &args, float by_distance, float product,
                                 int distance, float *slope) {
  float score = args.scale * product;
  *slope = args.scale;
  if (args.softcap > 0) {
    const float part = score / args.softcap, share = QUICK ? ls_quick_tanh(part) : tanhf(part);
    score = args.softcap * share;
    *slope *= 1 - share * share;
  }
  return score - by_distance * static_cast<float>(distance);
}

// What the exponentials of a row come to, the sink's among them: what sums of values are multiplied
// by, and the log-sum-exp.
struct ls_closed {
  float by, log_sum;
};

__device__ inline float ls_sink_at(const ls_cuda_attention &args, int head) {
  return ls_load_any(args.sinks, args.first_head + head, 1, false).at[0];
}

__device__ inline ls_closed ls_close_row(const ls_cuda_attention &args, int head, float largest,
                                         float sum) {
  if (!args.sinks.data) return {1 / sum, largest + logf(sum)};
  const float sink = ls_sink_at(args, head), most = fmaxf(largest, sink);
  const float shrink = expf(largest - most), all = sum * shrink + expf(sink - most);
  return {shrink / all, most + logf(all)};
}

// Tokens below are counted from the beginning of their sequence.
__device__ inline bool ls_sees(const ls_cuda_attention &args, int query, int key, int start) {
  return key <= query && key >= start && (args.window == 0 || query - key < args.window);
}

// The document of the token before `first`: where it begins. For all threads of the block, of which
// the first warp looks back 32 tokens at a time for a position of 0.
__device__ inline int ls_document_before(const ls_cuda_attention &args, int64_t sequence,
                                         int first) {
  LS_SHARED(int, found, 1);
  if (threadIdx.x < LS_CUDA_WARP) {
    const int lane = threadIdx.x;
    int start = 0;
    for (int end = first; args.positions && end > 0 && start == 0; end -= LS_CUDA_WARP) {
      const int at = end - 1 - lane;
      const uint32_t zeros =
          __ballot_sync(LS_ALL_LANES, at >= 0 && args.positions[sequence + at] == 0);
      if (zeros) start = end - __ffs(static_cast<int>(zeros));
      if (zeros) break;
    }
    if (lane == 0) *found = start;
  }
  __syncthreads();
  return *found;
}

// Where the documents of tokens [first, first + count) begin, into shared memory, given where the
// one before them does; returns that of the last. For all threads; a barrier must follow before
// others' entries are read, and one must stand between two calls.
__device__ inline void ls_document_starts(const ls_cuda_attention &args, int64_t sequence,
                                          int first, int count, int before, int *starts) {
  for (int r = threadIdx.x; r < count; r += blockDim.x) {
    int start = before;
    for (int at = first + r; args.positions && at >= first; at--) {
      if (at >= args.sequence || args.positions[sequence + at] != 0) continue;
      start = at;
      break;
    }
    starts[r] = start;
  }
}

// The first key that any of a block's queries sees, down to a multiple of `step`.
__device__ inline int ls_first_key(const ls_cuda_attention &args, int first_query, int start,
                                   int step) {
  const int last_out = args.window > 0 ? first_query - args.window + 1 : 0;
  return (last_out > start ? last_out : start) / step * step;
}

// One element of a row of heads.
template <class T>
__device__ inline T *ls_head_row(const ls_cuda_place &place, int64_t token, int64_t column) {
  return static_cast<T *>(place.data) + token * place.stride + column;
}

// In fp32 a warp takes a row, a lane each of 32 keys.
enum { LS_ROW_WARPS = 8, LS_ROW_KEYS = 32, LS_HEAD_PARTS = 256 / LS_CUDA_WARP };

__device__ inline float ls_dot_of(const float *a, const float *b, int count) {
  float sum = 0;
  for (int c = 0; c < count; c++) sum += a[c] * b[c];
  return sum;
}

// sums[p] += weight of row r times its column lane + 32 p, over the 32 rows.
__device__ inline void ls_add_rows(const ls_cuda_attention &args, float weight, const float *rows,
                                   int stride, float (&sums)[LS_HEAD_PARTS]) {
  const int lane = threadIdx.x % LS_CUDA_WARP;
  for (int r = 0; r < LS_ROW_KEYS; r++) {
    const float by = __shfl_sync(LS_ALL_LANES, weight, r);
#pragma unroll
    for (int p = 0; p < LS_HEAD_PARTS; p++) {
      const int c = lane + p * LS_CUDA_WARP;
      if (c < args.head_dim) sums[p] += by * rows[r * stride + c];
    }
  }
}

__device__ inline void ls_put_head(const ls_cuda_attention &args, const ls_cuda_place &to,
                                   int64_t token, int head, const float (&sums)[LS_HEAD_PARTS],
                                   float by) {
  const int lane = threadIdx.x % LS_CUDA_WARP;
#pragma unroll
  for (int p = 0; p < LS_HEAD_PARTS; p++) {
    const int c = lane + p * LS_CUDA_WARP;
    if (c < args.head_dim)
      ls_put_any(to, token * to.stride + static_cast<int64_t>(head) * args.head_dim + c,
                 sums[p] * by);
  }
}
