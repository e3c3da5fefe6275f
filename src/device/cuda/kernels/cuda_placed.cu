// Attention by places in fp32, a warp a row as in cuda_attention.cu; which places each 64 rows
// have; and the end of a ring, of whose blocks the sums are divided.
#include "device/cuda/kernels/cuda_placed.cuh"

// The last token of each one's document, whose positions follow each other.
LS_KERNEL(ls_place_lasts, ls_cuda_placed, 256) {
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       row < args.of.tokens; row += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t end = row - row % args.of.sequence + args.of.sequence - 1;
    int64_t last = row;
    while (last < end && args.of.positions[last + 1] == args.of.positions[last] + 1) last++;
    args.lasts[row] = static_cast<int32_t>(last);
  }
}

// A warp has 64 rows.
LS_KERNEL(ls_place_ranges, ls_cuda_placed, 256) {
  const int64_t query_tiles = ls_placed_tiles(args.of.tokens);
  const int64_t tiles = query_tiles + ls_placed_tiles(args.keys);
  const int warps = blockDim.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  for (int64_t tile = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / LS_CUDA_WARP;
       tile < tiles; tile += static_cast<int64_t>(gridDim.x) * warps) {
    int least = LS_NO_PLACE, last = -1;
    for (int r = lane; r < LS_PLACED_ROWS; r += LS_CUDA_WARP) {
      if (tile < query_tiles) {
        const int64_t row = tile * LS_PLACED_ROWS + r;
        const ls_sight of = ls_sight_of(args, row, 0);
        if (row >= args.of.tokens) continue;
        least = of.first < least ? of.first : least;
        last = of.last > last ? of.last : last;
      } else {
        const int64_t row = (tile - query_tiles) * LS_PLACED_ROWS + r;
        if (row >= args.keys) continue;
        const int place = ls_key_place(args, row);
        least = place < least ? place : least;
        last = place > last ? place : last;
      }
    }
    for (int step = LS_CUDA_WARP / 2; step; step /= 2) {
      const int lower = __shfl_xor_sync(LS_ALL_LANES, least, step);
      const int later = __shfl_xor_sync(LS_ALL_LANES, last, step);
      least = lower < least ? lower : least;
      last = later > last ? later : last;
    }
    if (lane == 0) args.ranges[2 * tile] = least, args.ranges[2 * tile + 1] = last;
  }
}

// Rows of a head as fp32 in shared memory, `stride` apart; zeros where there are none.
__device__ inline void ls_placed_heads(const ls_cuda_attention &args, const ls_cuda_place &place,
                                       int64_t all, int64_t first, int rows, int head, float *to) {
  const int stride = args.head_dim + 1;
  for (int i = threadIdx.x; i < rows * args.head_dim; i += blockDim.x) {
    const int row = i / args.head_dim, column = i % args.head_dim;
    to[row * stride + column] =
        first + row < all ? *ls_head_row<float>(place, first + row,
                                                static_cast<int64_t>(head) * args.head_dim + column)
                          : 0;
  }
}

__device__ inline int64_t ls_placed_first() {
  return static_cast<int64_t>(blockIdx.x) * LS_ROW_WARPS;
}

// What blocks of keys before have come to, of a row for each warp.
__device__ inline void ls_placed_before(const ls_cuda_placed &args, int64_t query, int head,
                                        float (&sums)[LS_HEAD_PARTS], float *largest, float *sum) {
  const int lane = threadIdx.x % LS_CUDA_WARP;
#pragma unroll
  for (int p = 0; p < LS_HEAD_PARTS; p++) {
    const int c = lane + p * LS_CUDA_WARP;
    if (c < args.of.head_dim)
      sums[p] = *ls_head_row<float>(args.values, query,
                                    static_cast<int64_t>(head) * args.of.head_dim + c);
  }
  *largest = *ls_head_row<float>(args.largest, query, head) / LS_LOG2_E;
  *sum = *ls_head_row<float>(args.sums, query, head);
}

LS_KERNEL(ls_placed_fp32, ls_cuda_placed, LS_ROW_WARPS *LS_CUDA_WARP) {
  LS_DYNAMIC_SHARED(float, k);
  const int stride = args.of.head_dim + 1, head = blockIdx.y;
  float *v = k + LS_ROW_KEYS * stride, *q = v + LS_ROW_KEYS * stride;
  const int warp = threadIdx.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const int64_t block = ls_placed_first(), query = block + warp, tokens = args.of.tokens;
  const int key_head = head / args.of.per_kv_head;
  const float by_distance = ls_distance_slope(args.of, head);
  const ls_sight seen = ls_sight_of(args, query, head);
  const ls_place_range range = ls_range_at(args.ranges, block);
  const int32_t *ranges = ls_key_ranges(args);
  ls_placed_heads(args.of, args.of.q, tokens, block, LS_ROW_WARPS, head, q);
  float sums[LS_HEAD_PARTS] = {}, largest = -INFINITY, sum = 0;
  if (args.begun && query < tokens) ls_placed_before(args, query, head, sums, &largest, &sum);
  for (int64_t first = ls_next_placed(ranges, args.keys, 0, range); first < args.keys;
       first = ls_next_placed(ranges, args.keys, first + LS_ROW_KEYS, range)) {
    ls_placed_heads(args.of, args.of.k, args.keys, first, LS_ROW_KEYS, key_head, k);
    ls_placed_heads(args.of, args.of.v, args.keys, first, LS_ROW_KEYS, key_head, v);
    __syncthreads();
    const int key = ls_key_place(args, first + lane);
    float score = -INFINITY, slope;
    if (ls_sees_place(seen, key))
      score = ls_score<false>(args.of, by_distance,
                              ls_dot_of(q + warp * stride, k + lane * stride, args.of.head_dim),
                              seen.place - key, &slope);
    const float now = fmaxf(largest, ls_warp_max(score));
    const float level = now == -INFINITY ? 0 : now, scale = expf(largest - level);
    const float share = expf(score - level);
    sum = sum * scale + ls_warp_sum(share);
    largest = now;
    for (int p = 0; p < LS_HEAD_PARTS; p++) sums[p] *= scale;
    ls_add_rows(args.of, share * ls_kept(args, seen, key), v, stride, sums);
    __syncthreads();
  }
  if (query >= tokens) return;
  const ls_closed closed = ls_close_row(args.of, head, largest, sum);
  ls_put_head(args.of, args.of.out, query, head, sums, args.ring ? 1 : closed.by);
  if (lane) return;
  const ls_cuda_place &log_sums = args.of.log_sums;
  if (args.ring) *ls_head_row<float>(args.largest_out, query, head) = largest * LS_LOG2_E;
  if (args.ring) *ls_head_row<float>(log_sums, query, head) = sum;
  if (!args.ring) ls_put_any(log_sums, query * log_sums.stride + head, closed.log_sum);
}

LS_KERNEL(ls_placed_queries_fp32, ls_cuda_placed, LS_ROW_WARPS *LS_CUDA_WARP) {
  LS_DYNAMIC_SHARED(float, k);
  const int stride = args.of.head_dim + 1, head = blockIdx.y;
  float *v = k + LS_ROW_KEYS * stride, *q = v + LS_ROW_KEYS * stride;
  float *dout = q + LS_ROW_WARPS * stride;
  const int warp = threadIdx.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const int64_t block = ls_placed_first(), query = block + warp, tokens = args.of.tokens;
  const int key_head = head / args.of.per_kv_head;
  const float by_distance = ls_distance_slope(args.of, head);
  const ls_sight seen = ls_sight_of(args, query, head);
  const ls_place_range range = ls_range_at(args.ranges, block);
  const int32_t *ranges = ls_key_ranges(args);
  const bool here = query < tokens;
  const float log_sum = here ? *ls_head_row<float>(args.of.log_sums, query, head) : 0;
  const float dot = here ? *ls_head_row<float>(args.dots, query, head) : 0;
  ls_placed_heads(args.of, args.of.q, tokens, block, LS_ROW_WARPS, head, q);
  ls_placed_heads(args.of, args.of.dout, tokens, block, LS_ROW_WARPS, head, dout);
  float sums[LS_HEAD_PARTS] = {};
  for (int64_t first = ls_next_placed(ranges, args.keys, 0, range); first < args.keys;
       first = ls_next_placed(ranges, args.keys, first + LS_ROW_KEYS, range)) {
    ls_placed_heads(args.of, args.of.k, args.keys, first, LS_ROW_KEYS, key_head, k);
    ls_placed_heads(args.of, args.of.v, args.keys, first, LS_ROW_KEYS, key_head, v);
    __syncthreads();
    float score = ls_dot_of(q + warp * stride, k + lane * stride, args.of.head_dim);
    float dscore = ls_dot_of(dout + warp * stride, v + lane * stride, args.of.head_dim);
    ls_placed_slope<false>(args, by_distance, seen, ls_key_place(args, first + lane), log_sum, dot,
                           &score, &dscore);
    ls_add_rows(args.of, dscore, k, stride, sums);
    __syncthreads();
  }
  if (here) ls_put_head(args.of, args.of.dq, query, head, sums, 1);
}

// A warp has a key, and goes over the queries that may see it, in all heads that share it.
LS_KERNEL(ls_placed_keys_fp32, ls_cuda_placed, LS_ROW_WARPS *LS_CUDA_WARP) {
  LS_DYNAMIC_SHARED(float, q);
  const int stride = args.of.head_dim + 1, key_head = blockIdx.y;
  float *dout = q + LS_ROW_KEYS * stride, *k = dout + LS_ROW_KEYS * stride;
  float *v = k + LS_ROW_WARPS * stride;
  const int warp = threadIdx.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const int64_t block = ls_placed_first(), key = block + warp, tokens = args.of.tokens;
  const int place = ls_key_place(args, key);
  const ls_place_range range = ls_range_at(ls_key_ranges(args), block);
  ls_placed_heads(args.of, args.of.k, args.keys, block, LS_ROW_WARPS, key_head, k);
  ls_placed_heads(args.of, args.of.v, args.keys, block, LS_ROW_WARPS, key_head, v);
  float dk[LS_HEAD_PARTS] = {}, dv[LS_HEAD_PARTS] = {};
  for (int group = 0; group < args.of.per_kv_head; group++) {
    const int head = key_head * args.of.per_kv_head + group;
    const float by_distance = ls_distance_slope(args.of, head);
    for (int64_t first = ls_next_placed(args.ranges, tokens, 0, range); first < tokens;
         first = ls_next_placed(args.ranges, tokens, first + LS_ROW_KEYS, range)) {
      ls_placed_heads(args.of, args.of.q, tokens, first, LS_ROW_KEYS, head, q);
      ls_placed_heads(args.of, args.of.dout, tokens, first, LS_ROW_KEYS, head, dout);
      __syncthreads();
      const int64_t query = first + lane;
      const bool here = query < tokens;
      const float log_sum = here ? *ls_head_row<float>(args.of.log_sums, query, head) : 0;
      const float dot = here ? *ls_head_row<float>(args.dots, query, head) : 0;
      float score = ls_dot_of(q + lane * stride, k + warp * stride, args.of.head_dim);
      float dscore = ls_dot_of(dout + lane * stride, v + warp * stride, args.of.head_dim);
      ls_placed_slope<false>(args, by_distance, ls_sight_of(args, query, head), place, log_sum, dot,
                             &score, &dscore);
      ls_add_rows(args.of, score, dout, stride, dv);
      ls_add_rows(args.of, dscore, q, stride, dk);
      __syncthreads();
    }
  }
  if (key >= args.keys) return;
  ls_put_head(args.of, args.of.dk, key, key_head, dk, 1);
  ls_put_head(args.of, args.of.dv, key, key_head, dv, 1);
}

// What a ring's sums come to, the sink's among them.
__device__ inline ls_closed ls_close_ring(const ls_cuda_placed &args, int64_t token, int head) {
  const float largest = *ls_head_row<float>(args.largest, token, head) / LS_LOG2_E;
  return ls_close_row(args.of, head, largest, *ls_head_row<float>(args.sums, token, head));
}

// The sums of a ring divided: sums of values, in fp32, and of exponentials.
template <class T>
__device__ inline void ls_ring_end_rows(const ls_cuda_placed &args) {
  const int64_t columns = static_cast<int64_t>(args.of.heads) * args.of.head_dim;
  for (int64_t n = blockIdx.x; n < args.of.tokens; n += gridDim.x)
    for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
      const float by = ls_close_ring(args, n, static_cast<int>(c / args.of.head_dim)).by;
      ls_round(ls_head_row<T>(args.of.out, n, c), *ls_head_row<float>(args.values, n, c) * by);
    }
}

// Log-sum-exp, and do . o, a warp for each token and head.
template <class T>
__device__ inline void ls_ring_end_bwd_rows(const ls_cuda_placed &args) {
  const int warps = blockDim.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const int64_t total = args.of.tokens * args.of.heads;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / LS_CUDA_WARP;
       at < total; at += static_cast<int64_t>(gridDim.x) * warps) {
    const int64_t token = at / args.of.heads, head = at % args.of.heads;
    const T *dout = ls_head_row<T>(args.of.dout, token, head * args.of.head_dim);
    const T *out = ls_head_row<T>(args.of.out, token, head * args.of.head_dim);
    float sum = 0;
    for (int c = lane; c < args.of.head_dim; c += LS_CUDA_WARP)
      sum += ls_widen(dout[c]) * ls_widen(out[c]);
    sum = ls_warp_sum(sum);
    if (lane) continue;
    *ls_head_row<float>(args.dots, token, head) = sum;
    *ls_head_row<float>(args.of.log_sums, token, head) =
        ls_close_ring(args, token, static_cast<int>(head)).log_sum;
  }
}

LS_KERNELS(ls_ring_end, ls_cuda_placed, 256, ls_ring_end_rows)
LS_KERNELS(ls_ring_end_bwd, ls_cuda_placed, 256, ls_ring_end_bwd_rows)
