// Attention in fp32, without matrix instructions: a warp takes a row, a lane each of 32 keys. And
// what is the same in all types: dout . out, and the gradient of sinks.
#include "device/cuda/kernels/cuda_attention.cuh"

// Rows of a head as fp32 in shared memory, `stride` apart; zeros where there are none.
__device__ inline void ls_load_heads(const ls_cuda_attention &args, const ls_cuda_place &place,
                                     int64_t sequence, int first, int rows, int head, int stride,
                                     float *to) {
  for (int i = threadIdx.x; i < rows * args.head_dim; i += blockDim.x) {
    const int row = i / args.head_dim, column = i % args.head_dim;
    to[row * stride + column] =
        first + row < args.sequence
            ? *ls_head_row<float>(place, sequence + first + row,
                                  static_cast<int64_t>(head) * args.head_dim + column)
            : 0;
  }
}

// A block's rows of a sequence, and its head.
struct ls_row_place {
  int64_t sequence;
  int first, head, stride;
};

__device__ inline ls_row_place ls_row_place_of(const ls_cuda_attention &args) {
  const int tiles = static_cast<int>((args.sequence + LS_ROW_WARPS - 1) / LS_ROW_WARPS);
  return {blockIdx.x / tiles * args.sequence, static_cast<int>(blockIdx.x) % tiles * LS_ROW_WARPS,
          static_cast<int>(blockIdx.y), args.head_dim + 1};
}

LS_KERNEL(ls_attention_fp32, ls_cuda_attention, LS_ROW_WARPS *LS_CUDA_WARP) {
  LS_DYNAMIC_SHARED(float, k);
  LS_SHARED(int, starts, LS_ROW_WARPS);
  const ls_row_place at = ls_row_place_of(args);
  float *v = k + LS_ROW_KEYS * at.stride, *q = v + LS_ROW_KEYS * at.stride;
  const int warp = threadIdx.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const int query = at.first + warp, key_head = at.head / args.per_kv_head;
  const float by_distance = ls_distance_slope(args, at.head);
  const int before = ls_document_before(args, at.sequence, at.first);
  ls_document_starts(args, at.sequence, at.first, LS_ROW_WARPS, before, starts);
  ls_load_heads(args, args.q, at.sequence, at.first, LS_ROW_WARPS, at.head, at.stride, q);
  __syncthreads();
  const int begin = ls_first_key(args, at.first, starts[0], 1);
  float sums[LS_HEAD_PARTS] = {}, largest = -INFINITY, sum = 0;
  for (int first = begin; first < at.first + LS_ROW_WARPS && first < args.sequence;
       first += LS_ROW_KEYS) {
    ls_load_heads(args, args.k, at.sequence, first, LS_ROW_KEYS, key_head, at.stride, k);
    ls_load_heads(args, args.v, at.sequence, first, LS_ROW_KEYS, key_head, at.stride, v);
    __syncthreads();
    float score = -INFINITY, slope;
    if (ls_sees(args, query, first + lane, starts[warp]))
      score = ls_score<false>(args, by_distance,
                              ls_dot_of(q + warp * at.stride, k + lane * at.stride, args.head_dim),
                              query - first - lane, &slope);
    const float now = fmaxf(largest, ls_warp_max(score));
    const float level = now == -INFINITY ? 0 : now, scale = expf(largest - level);
    const float share = expf(score - level);
    sum = sum * scale + ls_warp_sum(share);
    largest = now;
    for (int p = 0; p < LS_HEAD_PARTS; p++) sums[p] *= scale;
    ls_add_rows(args, share, v, at.stride, sums);
    __syncthreads();
  }
  if (query >= args.sequence) return;
  const ls_closed row = ls_close_row(args, at.head, largest, sum);
  ls_put_head(args, args.out, at.sequence + query, at.head, sums, row.by);
  if (lane == 0)
    ls_put_any(args.log_sums, (at.sequence + query) * args.log_sums.stride + at.head, row.log_sum);
}

// dout . out of each token and head, a warp each.
template <class T>
__device__ inline void ls_row_dots_of(const ls_cuda_attention &args) {
  const int warps = blockDim.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const int64_t total = args.tokens * args.heads;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / LS_CUDA_WARP;
       at < total; at += static_cast<int64_t>(gridDim.x) * warps) {
    const int64_t token = at / args.heads, column = at % args.heads * args.head_dim;
    const T *dout = ls_head_row<T>(args.dout, token, column);
    const T *out = ls_head_row<T>(args.out, token, column);
    float sum = 0;
    for (int c = lane; c < args.head_dim; c += LS_CUDA_WARP)
      sum += ls_widen(dout[c]) * ls_widen(out[c]);
    sum = ls_warp_sum(sum);
    if (lane == 0) args.row_dots[at] = sum;
  }
}

LS_KERNELS(ls_row_dots, ls_cuda_attention, 256, ls_row_dots_of)

LS_KERNEL(ls_attention_queries_fp32, ls_cuda_attention, LS_ROW_WARPS *LS_CUDA_WARP) {
  LS_DYNAMIC_SHARED(float, k);
  LS_SHARED(int, starts, LS_ROW_WARPS);
  const ls_row_place at = ls_row_place_of(args);
  float *v = k + LS_ROW_KEYS * at.stride, *q = v + LS_ROW_KEYS * at.stride;
  float *dout = q + LS_ROW_WARPS * at.stride;
  const int warp = threadIdx.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const int query = at.first + warp, key_head = at.head / args.per_kv_head;
  const float by_distance = ls_distance_slope(args, at.head);
  const int before = ls_document_before(args, at.sequence, at.first);
  ls_document_starts(args, at.sequence, at.first, LS_ROW_WARPS, before, starts);
  ls_load_heads(args, args.q, at.sequence, at.first, LS_ROW_WARPS, at.head, at.stride, q);
  ls_load_heads(args, args.dout, at.sequence, at.first, LS_ROW_WARPS, at.head, at.stride, dout);
  __syncthreads();
  const int begin = ls_first_key(args, at.first, starts[0], 1);
  const bool here = query < args.sequence;
  const float log_sum = here ? *ls_head_row<float>(args.log_sums, at.sequence + query, at.head) : 0;
  const float dot = here ? args.row_dots[(at.sequence + query) * args.heads + at.head] : 0;
  float sums[LS_HEAD_PARTS] = {};
  for (int first = begin; first < at.first + LS_ROW_WARPS && first < args.sequence;
       first += LS_ROW_KEYS) {
    ls_load_heads(args, args.k, at.sequence, first, LS_ROW_KEYS, key_head, at.stride, k);
    ls_load_heads(args, args.v, at.sequence, first, LS_ROW_KEYS, key_head, at.stride, v);
    __syncthreads();
    float dscore = 0, slope;
    if (here && ls_sees(args, query, first + lane, starts[warp])) {
      const float product = ls_dot_of(q + warp * at.stride, k + lane * at.stride, args.head_dim);
      const float score = ls_score<false>(args, by_distance, product, query - first - lane, &slope);
      const float dshare = ls_dot_of(dout + warp * at.stride, v + lane * at.stride, args.head_dim);
      dscore = slope * expf(score - log_sum) * (dshare - dot);
    }
    ls_add_rows(args, dscore, k, at.stride, sums);
    __syncthreads();
  }
  if (here) ls_put_head(args, args.dq, at.sequence + query, at.head, sums, 1);
}

// A warp has a key, and goes over the queries that may see it, in all heads that share it.
LS_KERNEL(ls_attention_keys_fp32, ls_cuda_attention, LS_ROW_WARPS *LS_CUDA_WARP) {
  LS_DYNAMIC_SHARED(float, q);
  LS_SHARED(int, starts, LS_ROW_KEYS);
  const ls_row_place at = ls_row_place_of(args);
  float *dout = q + LS_ROW_KEYS * at.stride, *k = dout + LS_ROW_KEYS * at.stride;
  float *v = k + LS_ROW_WARPS * at.stride;
  const int warp = threadIdx.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const int key = at.first + warp;
  ls_load_heads(args, args.k, at.sequence, at.first, LS_ROW_WARPS, at.head, at.stride, k);
  ls_load_heads(args, args.v, at.sequence, at.first, LS_ROW_WARPS, at.head, at.stride, v);
  float dk[LS_HEAD_PARTS] = {}, dv[LS_HEAD_PARTS] = {};
  for (int group = 0; group < args.per_kv_head; group++) {
    const int head = at.head * args.per_kv_head + group;
    const float by_distance = ls_distance_slope(args, head);
    int before = 0;
    for (int first = at.first; first < args.sequence; first += LS_ROW_KEYS) {
      ls_document_starts(args, at.sequence, first, LS_ROW_KEYS, before, starts);
      ls_load_heads(args, args.q, at.sequence, first, LS_ROW_KEYS, head, at.stride, q);
      ls_load_heads(args, args.dout, at.sequence, first, LS_ROW_KEYS, head, at.stride, dout);
      __syncthreads();
      before = starts[LS_ROW_KEYS - 1];
      const int query = first + lane;
      const int64_t token = at.sequence + query;
      float share = 0, dscore = 0, slope;
      if (query < args.sequence && ls_sees(args, query, key, starts[lane])) {
        const float product = ls_dot_of(q + lane * at.stride, k + warp * at.stride, args.head_dim);
        const float score = ls_score<false>(args, by_distance, product, query - key, &slope);
        const float dshare =
            ls_dot_of(dout + lane * at.stride, v + warp * at.stride, args.head_dim);
        share = expf(score - *ls_head_row<float>(args.log_sums, token, head));
        dscore = slope * share * (dshare - args.row_dots[token * args.heads + head]);
      }
      ls_add_rows(args, share, dout, at.stride, dv);
      ls_add_rows(args, dscore, q, at.stride, dk);
      __syncthreads();
    }
  }
  if (key >= args.sequence) return;
  ls_put_head(args, args.dk, at.sequence + key, at.head, dk, 1);
  ls_put_head(args, args.dv, at.sequence + key, at.head, dv, 1);
}

// The gradient of sinks: of each head the sum of -p do . o over tokens, with p the sink's
// probability. Block (part of the tokens, head), a warp a token.
template <class T>
__device__ inline void ls_sink_parts_of(const ls_cuda_attention &args) {
  const int lane = threadIdx.x % LS_CUDA_WARP, head = static_cast<int>(blockIdx.y);
  const int warps = blockDim.x / LS_CUDA_WARP;
  const int64_t column = static_cast<int64_t>(head) * args.head_dim;
  const float sink = ls_sink_at(args, head);
  float sum = 0;
  for (int64_t n = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / LS_CUDA_WARP;
       n < args.tokens; n += static_cast<int64_t>(gridDim.x) * warps) {
    const T *dout = ls_head_row<T>(args.dout, n, column),
            *out = ls_head_row<T>(args.out, n, column);
    float dot = 0;
    for (int c = lane; c < args.head_dim; c += LS_CUDA_WARP)
      dot += ls_widen(dout[c]) * ls_widen(out[c]);
    sum -= expf(sink - *ls_head_row<float>(args.log_sums, n, head)) * dot;
  }
  sum = ls_block_sum(sum);
  if (threadIdx.x == 0) args.part_sums[blockIdx.x * args.heads + head] = sum;
}

// A thread has a head of all; those that other ranks have get zeros.
LS_KERNEL(ls_sink_sums, ls_cuda_attention, 256) {
  for (int h = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); h < args.all_heads;
       h += static_cast<int>(gridDim.x * blockDim.x)) {
    const int own = h - args.first_head;
    float sum = 0;
    for (int p = 0; p < args.parts && own >= 0 && own < args.heads; p++)
      sum += args.part_sums[p * args.heads + own];
    ls_put_any(args.dq, h, sum);
  }
}

LS_KERNELS(ls_sink_parts, ls_cuda_attention, 256, ls_sink_parts_of)
