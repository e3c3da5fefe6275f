// Attention on matrix instructions, in bf16 and fp16, forward and backward, without T x T numbers
// in memory (Dao: "FlashAttention-2", 2023). A block of four warps takes 64 rows of one head, 16 a
// warp.
//
// Heads are D columns of shared memory, of which head_dim exist and the rest are zero. Backward is
// two kernels, one for dk and dv and one for dq, so that every sum has one order and one owner: the
// products of scores are made twice for it.
#pragma once

#include "device/cuda/kernels/cuda_attention.cuh"
#include "device/cuda/kernels/cuda_matrix.cuh"

enum { LS_FLASH_ROWS = 64, LS_FLASH_THREADS = 128 };

// The part of a sequence and of the heads that a block has.
struct ls_flash_place {
  int64_t sequence;  // its first token
  int first;         // of the block's rows
  int head;
};

// Late rows have the most keys, so blocks begin with them; going by keys, with the early ones.
__device__ inline ls_flash_place ls_flash_place_of(const ls_cuda_attention &args, bool late_first) {
  const int tiles = static_cast<int>((args.sequence + LS_FLASH_ROWS - 1) / LS_FLASH_ROWS);
  const int tile = static_cast<int>(blockIdx.x) % tiles;
  return {blockIdx.x / tiles * args.sequence,
          (late_first ? tiles - 1 - tile : tile) * LS_FLASH_ROWS, static_cast<int>(blockIdx.y)};
}

// ROWS rows of a head from token `first` on to shared memory; zeros where there are none.
template <class T, int D, int ROWS>
__device__ inline void ls_flash_load(const ls_cuda_attention &args, const ls_cuda_place &place,
                                     int64_t sequence, int first, int head, T *to) {
  constexpr int STRIDE = D + 8;
  for (int i = threadIdx.x * LS_CUDA_PACK; i < ROWS * D; i += LS_FLASH_THREADS * LS_CUDA_PACK) {
    const int row = i / D, column = i % D;
    const bool here = first + row < args.sequence && column < args.head_dim;
    const T *from =
        ls_head_row<T>(place, sequence + (here ? first + row : 0),
                       static_cast<int64_t>(head) * args.head_dim + (here ? column : 0));
    if (args.wide) {
      ls_copy_begin(to + row * STRIDE + column, from, here);
      continue;
    }
    for (int e = 0; e < LS_CUDA_PACK; e++) {
      const bool exists = here && column + e < args.head_dim;
      to[row * STRIDE + column + e] = exists ? from[e] : T{0};
    }
  }
  ls_copies_commit();
}

// A warp's 16 rows of sums, from column `from` on, as a product has them.
template <class OUT, int COLUMNS>
__device__ inline void ls_flash_store_as(const ls_cuda_attention &args, const ls_cuda_place &to,
                                         const ls_flash_place &at, int head, int from,
                                         const float (&sums)[COLUMNS / 8][4],
                                         const float (&by)[2]) {
  const int lane = threadIdx.x % LS_CUDA_WARP;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = at.first + static_cast<int>(threadIdx.x) / LS_CUDA_WARP * 16 + lane / 4;
    const int own = row + half * 8, first = from + lane % 4 * 2;
    if (own >= args.sequence) continue;
    OUT *out =
        ls_head_row<OUT>(to, at.sequence + own, static_cast<int64_t>(head) * args.head_dim + first);
#pragma unroll
    for (int c = 0; c < COLUMNS; c += 8)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        if (first + c + i >= args.head_dim) continue;
        const float value = sums[c / 8][2 * half + i] * by[half];
        ls_round(&out[c + i], to.add ? value + ls_widen(out[c + i]) : value);
      }
  }
}

template <class T, int COLUMNS>
__device__ inline void ls_flash_store(const ls_cuda_attention &args, const ls_cuda_place &to,
                                      const ls_flash_place &at, int head, int from,
                                      const float (&sums)[COLUMNS / 8][4], const float (&by)[2]) {
  if (to.dtype == LS_F32)
    ls_flash_store_as<float, COLUMNS>(args, to, at, head, from, sums, by);
  else
    ls_flash_store_as<T, COLUMNS>(args, to, at, head, from, sums, by);
}

// The four lanes that have a row's columns.
__device__ inline float ls_quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(LS_ALL_LANES, value, 1));
  return fmaxf(value, __shfl_xor_sync(LS_ALL_LANES, value, 2));
}
__device__ inline float ls_quad_sum(float value) {
  value += __shfl_xor_sync(LS_ALL_LANES, value, 1);
  return value + __shfl_xor_sync(LS_ALL_LANES, value, 2);
}

// Scores become exponentials, less the largest so far; what was summed before is scaled to match.
template <int N, int D>
__device__ inline void ls_flash_softmax(float (&scores)[N / 8][4], float (&out)[D / 8][4],
                                        float (&largest)[2], float (&sum)[2]) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float now = largest[half];
#pragma unroll
    for (int n = 0; n < N / 8; n++)
      now = fmaxf(now, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
    now = ls_quad_max(now);
    const float level = now == -INFINITY ? 0 : now;  // a row that sees none of these keys
    const float scale = __expf(largest[half] - level);
    float added = 0;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; i++) {
        scores[n][i] = __expf(scores[n][i] - level);
        added += scores[n][i];
      }
    largest[half] = now;
    sum[half] = sum[half] * scale + added;
#pragma unroll
    for (int c = 0; c < D / 8; c++) {
      out[c][2 * half] *= scale;
      out[c][2 * half + 1] *= scale;
    }
  }
}

template <class T, int D, int N>
__device__ inline void ls_flash_forward(const ls_cuda_attention &args) {
  constexpr int STRIDE = D + 8;
  LS_DYNAMIC_SHARED(T, q);
  LS_SHARED(int, starts, LS_FLASH_ROWS);
  T *k = q + LS_FLASH_ROWS * STRIDE, *v = k + N * STRIDE;
  const ls_flash_place at = ls_flash_place_of(args, true);
  const int warp = threadIdx.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const int row = warp * 16 + lane / 4, key_head = at.head / args.per_kv_head;
  const float by_distance = ls_distance_slope(args, at.head);
  const int before = ls_document_before(args, at.sequence, at.first);
  ls_document_starts(args, at.sequence, at.first, LS_FLASH_ROWS, before, starts);
  __syncthreads();
  const int begin = ls_first_key(args, at.first, starts[0], N);
  const int beyond = at.first + LS_FLASH_ROWS;
  const int end = beyond < args.sequence ? beyond : static_cast<int>(args.sequence);
  float out[D / 8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  ls_flash_load<T, D, LS_FLASH_ROWS>(args, args.q, at.sequence, at.first, at.head, q);
  ls_flash_load<T, D, N>(args, args.k, at.sequence, begin, key_head, k);
  for (int first = begin; first < end; first += N) {
    ls_flash_load<T, D, N>(args, args.v, at.sequence, first, key_head, v);
    ls_copies_wait<1>();
    __syncthreads();  // keys are here
    float scores[N / 8][4] = {};
    ls_rows_by_rows<T, D, N>(scores, q + warp * 16 * STRIDE, k);
    for (int n = 0; n < N / 8; n++)
      for (int i = 0; i < 4; i++) {
        const int own = row + i / 2 * 8, query = at.first + own;
        const int key = first + n * 8 + lane % 4 * 2 + i % 2;
        float slope;
        scores[n][i] = ls_sees(args, query, key, starts[own])
                           ? ls_score<true>(args, by_distance, scores[n][i], query - key, &slope)
                           : -INFINITY;
      }
    ls_flash_softmax<N, D>(scores, out, largest, sum);
    ls_copies_wait<0>();
    __syncthreads();  // values are here, and keys have been read
    if (first + N < end) ls_flash_load<T, D, N>(args, args.k, at.sequence, first + N, key_head, k);
    ls_rows_by_columns<T, D, N, D>(out, scores, v);
    __syncthreads();  // values have been read
  }
  float inverse[2];
  for (int half = 0; half < 2; half++) {
    sum[half] = ls_quad_sum(sum[half]);
    const ls_closed closed = ls_close_row(args, at.head, largest[half], sum[half]);
    inverse[half] = closed.by;
    const int query = at.first + row + half * 8;
    if (lane % 4 == 0 && query < args.sequence)
      ls_put_any(args.log_sums, (at.sequence + query) * args.log_sums.stride + at.head,
                 closed.log_sum);
  }
  ls_flash_store<T, D>(args, args.out, at, at.head, 0, out, inverse);
}

// p and ds of one score, in their places. `kept` are the query's log-sum-exp and dout . out.
__device__ inline void ls_flash_slope(const ls_cuda_attention &args, float by_distance, int query,
                                      int key, int start, float log_sum, float dot, float *score,
                                      float *dscore) {
  float slope, share = 0;
  if (query < args.sequence && ls_sees(args, query, key, start))
    share = __expf(ls_score<true>(args, by_distance, *score, query - key, &slope) - log_sum);
  *dscore = share == 0 ? 0 : slope * share * (*dscore - dot);
  *score = share;
}

// A block has 64 keys of a KV head and goes over the queries that may see them, N at a time, for
// each of its query heads: S^T = K Q^T, dP^T = V dO^T, dV += P^T dO, dK += dS^T Q. With D of 256 it
// has a half of the columns of dK and dV, as many as registers hold.
template <class T, int D, int N, int COLUMNS>
__device__ inline void ls_flash_keys(const ls_cuda_attention &args) {
  constexpr int STRIDE = D + 8;
  LS_DYNAMIC_SHARED(T, k);
  LS_SHARED(int, starts, N);
  LS_SHARED(float, log_sums, N);
  LS_SHARED(float, dots, N);
  T *v = k + LS_FLASH_ROWS * STRIDE, *q = v + LS_FLASH_ROWS * STRIDE, *dout = q + N * STRIDE;
  const ls_flash_place at = ls_flash_place_of(args, false);
  const int warp = threadIdx.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const int row = at.first + warp * 16 + lane / 4, from = static_cast<int>(blockIdx.z) * COLUMNS;
  float dk[COLUMNS / 8][4] = {}, dv[COLUMNS / 8][4] = {};
  ls_flash_load<T, D, LS_FLASH_ROWS>(args, args.k, at.sequence, at.first, at.head, k);
  ls_flash_load<T, D, LS_FLASH_ROWS>(args, args.v, at.sequence, at.first, at.head, v);
  const int64_t last = at.first + LS_FLASH_ROWS - 1;
  const int64_t seen =
      args.window > 0 && last + args.window < args.sequence ? last + args.window : args.sequence;
  for (int group = 0; group < args.per_kv_head; group++) {
    const int head = at.head * args.per_kv_head + group;
    const float by_distance = ls_distance_slope(args, head);
    int before = 0;  // as far as these keys are concerned
    for (int first = at.first; first < seen; first += N) {
      ls_document_starts(args, at.sequence, first, N, before, starts);
      ls_flash_load<T, D, N>(args, args.q, at.sequence, first, head, q);
      ls_flash_load<T, D, N>(args, args.dout, at.sequence, first, head, dout);
      for (int r = threadIdx.x; r < N; r += LS_FLASH_THREADS) {
        const int64_t token = at.sequence + first + r;
        const bool here = first + r < args.sequence;
        log_sums[r] = here ? *ls_head_row<float>(args.log_sums, token, head) : 0;
        dots[r] = here ? args.row_dots[token * args.heads + head] : 0;
      }
      ls_copies_wait<0>();
      __syncthreads();
      before = starts[N - 1];
      const bool none = starts[0] > last;  // nor do later ones see these keys
      float scores[N / 8][4] = {}, slopes[N / 8][4] = {};
      if (!none) {
        ls_rows_by_rows<T, D, N>(scores, k + warp * 16 * STRIDE, q);
        ls_rows_by_rows<T, D, N>(slopes, v + warp * 16 * STRIDE, dout);
        for (int n = 0; n < N / 8; n++)
          for (int i = 0; i < 4; i++) {
            const int own = n * 8 + lane % 4 * 2 + i % 2;
            ls_flash_slope(args, by_distance, first + own, row + i / 2 * 8, starts[own],
                           log_sums[own], dots[own], &scores[n][i], &slopes[n][i]);
          }
        ls_rows_by_columns<T, D, N, COLUMNS>(dv, scores, dout + from);
        ls_rows_by_columns<T, D, N, COLUMNS>(dk, slopes, q + from);
      }
      __syncthreads();  // queries have been read
      if (none) break;
    }
  }
  ls_copies_wait<0>();
  const float one[2] = {1, 1};
  ls_flash_store<T, COLUMNS>(args, args.dk, at, at.head, from, dk, one);
  ls_flash_store<T, COLUMNS>(args, args.dv, at, at.head, from, dv, one);
}

// A block has 64 queries of a head and goes over their keys: dQ += dS K.
template <class T, int D, int N>
__device__ inline void ls_flash_queries(const ls_cuda_attention &args) {
  constexpr int STRIDE = D + 8;
  LS_DYNAMIC_SHARED(T, q);
  LS_SHARED(int, starts, LS_FLASH_ROWS);
  T *dout = q + LS_FLASH_ROWS * STRIDE, *k = dout + LS_FLASH_ROWS * STRIDE, *v = k + N * STRIDE;
  const ls_flash_place at = ls_flash_place_of(args, true);
  const int warp = threadIdx.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const int row = warp * 16 + lane / 4, key_head = at.head / args.per_kv_head;
  const float by_distance = ls_distance_slope(args, at.head);
  const int before = ls_document_before(args, at.sequence, at.first);
  ls_document_starts(args, at.sequence, at.first, LS_FLASH_ROWS, before, starts);
  __syncthreads();
  const int begin = ls_first_key(args, at.first, starts[0], N);
  const int beyond = at.first + LS_FLASH_ROWS;
  const int end = beyond < args.sequence ? beyond : static_cast<int>(args.sequence);
  float dq[D / 8][4] = {}, log_sums[2] = {}, dots[2] = {};
  for (int half = 0; half < 2; half++) {
    const int query = at.first + row + half * 8;
    if (query >= args.sequence) continue;
    log_sums[half] = *ls_head_row<float>(args.log_sums, at.sequence + query, at.head);
    dots[half] = args.row_dots[(at.sequence + query) * args.heads + at.head];
  }
  ls_flash_load<T, D, LS_FLASH_ROWS>(args, args.q, at.sequence, at.first, at.head, q);
  ls_flash_load<T, D, LS_FLASH_ROWS>(args, args.dout, at.sequence, at.first, at.head, dout);
  for (int first = begin; first < end; first += N) {
    ls_flash_load<T, D, N>(args, args.k, at.sequence, first, key_head, k);
    ls_flash_load<T, D, N>(args, args.v, at.sequence, first, key_head, v);
    ls_copies_wait<0>();
    __syncthreads();
    float scores[N / 8][4] = {}, slopes[N / 8][4] = {};
    ls_rows_by_rows<T, D, N>(scores, q + warp * 16 * STRIDE, k);
    ls_rows_by_rows<T, D, N>(slopes, dout + warp * 16 * STRIDE, v);
    for (int n = 0; n < N / 8; n++)
      for (int i = 0; i < 4; i++)
        ls_flash_slope(args, by_distance, at.first + row + i / 2 * 8,
                       first + n * 8 + lane % 4 * 2 + i % 2, starts[row + i / 2 * 8],
                       log_sums[i / 2], dots[i / 2], &scores[n][i], &slopes[n][i]);
    ls_rows_by_columns<T, D, N, D>(dq, slopes, k);
    __syncthreads();
  }
  const float one[2] = {1, 1};
  ls_flash_store<T, D>(args, args.dq, at, at.head, 0, dq, one);
}

// Head sizes up to D, keys or queries at a time: as many as leave no register spilled and fit 99 KB
// of shared memory (the launch says how much: cuda_choose_attention.c has the same numbers).
#define LS_FLASH(type, suffix, d, forward, queries, keys, columns)               \
  LS_KERNEL(ls_flash_##d##suffix, ls_cuda_attention, LS_FLASH_THREADS) {         \
    ls_flash_forward<type, d, forward>(args);                                    \
  }                                                                              \
  LS_KERNEL(ls_flash_queries_##d##suffix, ls_cuda_attention, LS_FLASH_THREADS) { \
    ls_flash_queries<type, d, queries>(args);                                    \
  }                                                                              \
  LS_KERNEL(ls_flash_keys_##d##suffix, ls_cuda_attention, LS_FLASH_THREADS) {    \
    ls_flash_keys<type, d, keys, columns>(args);                                 \
  }
#define LS_FLASH_SIZES(type, suffix)           \
  LS_FLASH(type, suffix, 64, 64, 32, 32, 64)   \
  LS_FLASH(type, suffix, 128, 64, 32, 32, 128) \
  LS_FLASH(type, suffix, 256, 32, 16, 16, 128)
