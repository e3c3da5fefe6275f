// Attention by places on matrix instructions, in bf16 and fp16: as cuda_flash.cuh has it of whole
// sequences in their order.
#pragma once

#include "device/cuda/kernels/cuda_flash.cuh"
#include "device/cuda/kernels/cuda_placed.cuh"

// ROWS rows of a head from row `first` on to shared memory; zeros where there are none.
template <class T, int D, int ROWS>
__device__ inline void ls_placed_load(const ls_cuda_attention &args, const ls_cuda_place &place,
                                      int64_t rows, int64_t first, int head, T *to) {
  constexpr int STRIDE = D + 8;
  for (int i = threadIdx.x * LS_CUDA_PACK; i < ROWS * D; i += LS_FLASH_THREADS * LS_CUDA_PACK) {
    const int row = i / D, column = i % D;
    const bool here = first + row < rows && column < args.head_dim;
    const T *from =
        ls_head_row<T>(place, here ? first + row : 0,
                       static_cast<int64_t>(head) * args.head_dim + (here ? column : 0));
    if (args.wide) {
      ls_copy_begin(to + row * STRIDE + column, from, here);
      continue;
    }
    for (int e = 0; e < LS_CUDA_PACK; e++)
      to[row * STRIDE + column + e] = here && column + e < args.head_dim ? from[e] : T{0};
  }
  ls_copies_commit();
}

// A warp's 16 rows of sums and the columns that a lane has of them: BODY(row, column, &sum).
template <int COLUMNS, class BODY>
__device__ inline void ls_placed_each(const ls_cuda_attention &args, int64_t first, int64_t rows,
                                      int from, float (&sums)[COLUMNS / 8][4], BODY body) {
  const int lane = threadIdx.x % LS_CUDA_WARP;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int64_t row = first + threadIdx.x / LS_CUDA_WARP * 16 + lane / 4 + half * 8;
    if (row >= rows) continue;
#pragma unroll
    for (int c = 0; c < COLUMNS; c += 8)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int column = from + lane % 4 * 2 + c + i;
        if (column < args.head_dim) body(half, row, column, &sums[c / 8][2 * half + i]);
      }
  }
}

template <class OUT, int COLUMNS>
__device__ inline void ls_placed_store_as(const ls_cuda_attention &args, const ls_cuda_place &to,
                                          int64_t first, int64_t rows, int head, int from,
                                          float (&sums)[COLUMNS / 8][4], const float (&by)[2]) {
  ls_placed_each<COLUMNS>(
      args, first, rows, from, sums, [&](int half, int64_t row, int column, float *sum) {
        OUT *out = ls_head_row<OUT>(to, row, static_cast<int64_t>(head) * args.head_dim + column);
        const float value = *sum * by[half];
        ls_round(out, to.add ? value + ls_widen(*out) : value);
      });
}

template <class T, int COLUMNS>
__device__ inline void ls_placed_store(const ls_cuda_attention &args, const ls_cuda_place &to,
                                       int64_t first, int64_t rows, int head, int from,
                                       float (&sums)[COLUMNS / 8][4], const float (&by)[2]) {
  if (to.dtype == LS_F32)
    ls_placed_store_as<float, COLUMNS>(args, to, first, rows, head, from, sums, by);
  else
    ls_placed_store_as<T, COLUMNS>(args, to, first, rows, head, from, sums, by);
}

// What blocks of keys before have come to, for the two rows of a lane: its lanes' sums add up to
// the sum.
template <int D>
__device__ inline void ls_placed_begin(const ls_cuda_placed &args, int64_t first, int head,
                                       float (&out)[D / 8][4], float (&largest)[2],
                                       float (&sum)[2]) {
  const int lane = threadIdx.x % LS_CUDA_WARP;
  ls_placed_each<D>(args.of, first, args.of.tokens, 0, out,
                    [&](int, int64_t row, int column, float *value) {
                      *value = *ls_head_row<float>(
                          args.values, row, static_cast<int64_t>(head) * args.of.head_dim + column);
                    });
  for (int half = 0; half < 2; half++) {
    const int64_t row = first + threadIdx.x / LS_CUDA_WARP * 16 + lane / 4 + half * 8;
    if (row >= args.of.tokens) continue;
    largest[half] = *ls_head_row<float>(args.largest, row, head) / LS_LOG2_E;
    if (lane % 4 == 0) sum[half] = *ls_head_row<float>(args.sums, row, head);
  }
}

template <class T, int D>
__device__ inline void ls_placed_end(const ls_cuda_placed &args, int64_t first, int head,
                                     float (&out)[D / 8][4], const float (&largest)[2],
                                     float (&sum)[2]) {
  const int lane = threadIdx.x % LS_CUDA_WARP;
  float by[2] = {1, 1};
  for (int half = 0; half < 2; half++) {
    sum[half] = ls_quad_sum(sum[half]);
    const ls_closed closed = ls_close_row(args.of, head, largest[half], sum[half]);
    if (!args.ring) by[half] = closed.by;
    const int64_t row = first + threadIdx.x / LS_CUDA_WARP * 16 + lane / 4 + half * 8;
    if (lane % 4 || row >= args.of.tokens) continue;
    const ls_cuda_place &sums = args.of.log_sums;
    if (args.ring) {
      *ls_head_row<float>(args.largest_out, row, head) = largest[half] * LS_LOG2_E;
      *ls_head_row<float>(sums, row, head) = sum[half];
    } else {
      ls_put_any(sums, row * sums.stride + head, closed.log_sum);
    }
  }
  ls_placed_store<T, D>(args.of, args.of.out, first, args.of.tokens, head, 0, out, by);
}

template <class T, int D, int N>
__device__ inline void ls_placed_forward(const ls_cuda_placed &args) {
  constexpr int STRIDE = D + 8;
  LS_DYNAMIC_SHARED(T, q);
  LS_SHARED(int, places, N);
  T *k = q + LS_FLASH_ROWS * STRIDE, *v = k + N * STRIDE;
  const int warp = threadIdx.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * LS_FLASH_ROWS, keys = args.keys;
  const int head = blockIdx.y, key_head = head / args.of.per_kv_head;
  const float by_distance = ls_distance_slope(args.of, head);
  const ls_place_range range = ls_range_at(args.ranges, first);
  const int32_t *ranges = ls_key_ranges(args);
  ls_sight seen[2];
  for (int half = 0; half < 2; half++)
    seen[half] = ls_sight_of(args, first + warp * 16 + lane / 4 + half * 8, head);
  float out[D / 8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  if (args.begun) ls_placed_begin<D>(args, first, head, out, largest, sum);
  int64_t at = ls_next_placed(ranges, keys, 0, range);
  ls_placed_load<T, D, LS_FLASH_ROWS>(args.of, args.of.q, args.of.tokens, first, head, q);
  ls_placed_load<T, D, N>(args.of, args.of.k, keys, at, key_head, k);
  while (at < keys) {
    const int64_t next = ls_next_placed(ranges, keys, at + N, range);
    for (int r = threadIdx.x; r < N; r += LS_FLASH_THREADS) places[r] = ls_key_place(args, at + r);
    ls_placed_load<T, D, N>(args.of, args.of.v, keys, at, key_head, v);
    ls_copies_wait<1>();
    __syncthreads();  // keys are here
    float scores[N / 8][4] = {};
    ls_rows_by_rows<T, D, N>(scores, q + warp * 16 * STRIDE, k);
    for (int n = 0; n < N / 8; n++)
      for (int i = 0; i < 4; i++) {
        const int key = places[n * 8 + lane % 4 * 2 + i % 2];
        float slope;
        scores[n][i] = ls_sees_place(seen[i / 2], key)
                           ? ls_score<true>(args.of, by_distance, scores[n][i],
                                            seen[i / 2].place - key, &slope)
                           : -INFINITY;
      }
    ls_flash_softmax<N, D>(scores, out, largest, sum);
    if (args.draws)
      for (int n = 0; n < N / 8; n++)
        for (int i = 0; i < 4; i++)
          scores[n][i] *= ls_kept(args, seen[i / 2], places[n * 8 + lane % 4 * 2 + i % 2]);
    ls_copies_wait<0>();
    __syncthreads();  // values are here, and keys have been read
    if (next < keys) ls_placed_load<T, D, N>(args.of, args.of.k, keys, next, key_head, k);
    ls_rows_by_columns<T, D, N, D>(out, scores, v);
    __syncthreads();  // values have been read
    at = next;
  }
  ls_copies_wait<0>();
  ls_placed_end<T, D>(args, first, head, out, largest, sum);
}

// A block has 64 keys of a KV head and goes over the queries that may see them, N at a time, for
// each of its query heads.
template <class T, int D, int N, int COLUMNS>
__device__ inline void ls_placed_keys(const ls_cuda_placed &args) {
  constexpr int STRIDE = D + 8;
  LS_DYNAMIC_SHARED(T, k);
  LS_SHARED(ls_sight, sights, N);
  LS_SHARED(float, log_sums, N);
  LS_SHARED(float, dots, N);
  T *v = k + LS_FLASH_ROWS * STRIDE, *q = v + LS_FLASH_ROWS * STRIDE, *dout = q + N * STRIDE;
  const int warp = threadIdx.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * LS_FLASH_ROWS, tokens = args.of.tokens;
  const int key_head = blockIdx.y, from = static_cast<int>(blockIdx.z) * COLUMNS;
  const ls_place_range range = ls_range_at(ls_key_ranges(args), first);
  int keys[2];
  for (int half = 0; half < 2; half++)
    keys[half] = ls_key_place(args, first + warp * 16 + lane / 4 + half * 8);
  float dk[COLUMNS / 8][4] = {}, dv[COLUMNS / 8][4] = {};
  ls_placed_load<T, D, LS_FLASH_ROWS>(args.of, args.of.k, args.keys, first, key_head, k);
  ls_placed_load<T, D, LS_FLASH_ROWS>(args.of, args.of.v, args.keys, first, key_head, v);
  for (int group = 0; group < args.of.per_kv_head; group++) {
    const int head = key_head * args.of.per_kv_head + group;
    const float by_distance = ls_distance_slope(args.of, head);
    for (int64_t at = ls_next_placed(args.ranges, tokens, 0, range); at < tokens;
         at = ls_next_placed(args.ranges, tokens, at + N, range)) {
      ls_placed_load<T, D, N>(args.of, args.of.q, tokens, at, head, q);
      ls_placed_load<T, D, N>(args.of, args.of.dout, tokens, at, head, dout);
      for (int r = threadIdx.x; r < N; r += LS_FLASH_THREADS) {
        const bool here = at + r < tokens;
        sights[r] = ls_sight_of(args, at + r, head);
        log_sums[r] = here ? *ls_head_row<float>(args.of.log_sums, at + r, head) : 0;
        dots[r] = here ? *ls_head_row<float>(args.dots, at + r, head) : 0;
      }
      ls_copies_wait<0>();
      __syncthreads();
      float scores[N / 8][4] = {}, slopes[N / 8][4] = {};
      ls_rows_by_rows<T, D, N>(scores, k + warp * 16 * STRIDE, q);
      ls_rows_by_rows<T, D, N>(slopes, v + warp * 16 * STRIDE, dout);
      for (int n = 0; n < N / 8; n++)
        for (int i = 0; i < 4; i++) {
          const int own = n * 8 + lane % 4 * 2 + i % 2;
          ls_placed_slope<true>(args, by_distance, sights[own], keys[i / 2], log_sums[own],
                                dots[own], &scores[n][i], &slopes[n][i]);
        }
      ls_rows_by_columns<T, D, N, COLUMNS>(dv, scores, dout + from);
      ls_rows_by_columns<T, D, N, COLUMNS>(dk, slopes, q + from);
      __syncthreads();  // queries have been read
    }
  }
  ls_copies_wait<0>();
  const float one[2] = {1, 1};
  ls_placed_store<T, COLUMNS>(args.of, args.of.dk, first, args.keys, key_head, from, dk, one);
  ls_placed_store<T, COLUMNS>(args.of, args.of.dv, first, args.keys, key_head, from, dv, one);
}

// A block has 64 queries of a head and goes over their keys.
template <class T, int D, int N>
__device__ inline void ls_placed_queries(const ls_cuda_placed &args) {
  constexpr int STRIDE = D + 8;
  LS_DYNAMIC_SHARED(T, q);
  LS_SHARED(int, places, N);
  T *dout = q + LS_FLASH_ROWS * STRIDE, *k = dout + LS_FLASH_ROWS * STRIDE, *v = k + N * STRIDE;
  const int warp = threadIdx.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * LS_FLASH_ROWS, keys = args.keys;
  const int head = blockIdx.y, key_head = head / args.of.per_kv_head;
  const float by_distance = ls_distance_slope(args.of, head);
  const ls_place_range range = ls_range_at(args.ranges, first);
  const int32_t *ranges = ls_key_ranges(args);
  ls_sight seen[2];
  float dq[D / 8][4] = {}, log_sums[2] = {}, dots[2] = {};
  for (int half = 0; half < 2; half++) {
    const int64_t row = first + warp * 16 + lane / 4 + half * 8;
    seen[half] = ls_sight_of(args, row, head);
    if (row >= args.of.tokens) continue;
    log_sums[half] = *ls_head_row<float>(args.of.log_sums, row, head);
    dots[half] = *ls_head_row<float>(args.dots, row, head);
  }
  ls_placed_load<T, D, LS_FLASH_ROWS>(args.of, args.of.q, args.of.tokens, first, head, q);
  ls_placed_load<T, D, LS_FLASH_ROWS>(args.of, args.of.dout, args.of.tokens, first, head, dout);
  for (int64_t at = ls_next_placed(ranges, keys, 0, range); at < keys;
       at = ls_next_placed(ranges, keys, at + N, range)) {
    ls_placed_load<T, D, N>(args.of, args.of.k, keys, at, key_head, k);
    ls_placed_load<T, D, N>(args.of, args.of.v, keys, at, key_head, v);
    for (int r = threadIdx.x; r < N; r += LS_FLASH_THREADS) places[r] = ls_key_place(args, at + r);
    ls_copies_wait<0>();
    __syncthreads();
    float scores[N / 8][4] = {}, slopes[N / 8][4] = {};
    ls_rows_by_rows<T, D, N>(scores, q + warp * 16 * STRIDE, k);
    ls_rows_by_rows<T, D, N>(slopes, dout + warp * 16 * STRIDE, v);
    for (int n = 0; n < N / 8; n++)
      for (int i = 0; i < 4; i++)
        ls_placed_slope<true>(args, by_distance, seen[i / 2], places[n * 8 + lane % 4 * 2 + i % 2],
                              log_sums[i / 2], dots[i / 2], &scores[n][i], &slopes[n][i]);
    ls_rows_by_columns<T, D, N, D>(dq, slopes, k);
    __syncthreads();
  }
  ls_copies_wait<0>();
  const float one[2] = {1, 1};
  ls_placed_store<T, D>(args.of, args.of.dq, first, args.of.tokens, head, 0, dq, one);
}

// As in cuda_flash.cuh; cuda_choose_placed.c has the same numbers.
#define LS_PLACED(type, suffix, d, forward, queries, keys, columns)            \
  LS_KERNEL(ls_placed_##d##suffix, ls_cuda_placed, LS_FLASH_THREADS) {         \
    ls_placed_forward<type, d, forward>(args);                                 \
  }                                                                            \
  LS_KERNEL(ls_placed_queries_##d##suffix, ls_cuda_placed, LS_FLASH_THREADS) { \
    ls_placed_queries<type, d, queries>(args);                                 \
  }                                                                            \
  LS_KERNEL(ls_placed_keys_##d##suffix, ls_cuda_placed, LS_FLASH_THREADS) {    \
    ls_placed_keys<type, d, keys, columns>(args);                              \
  }
#define LS_PLACED_SIZES(type, suffix)           \
  LS_PLACED(type, suffix, 64, 64, 32, 32, 64)   \
  LS_PLACED(type, suffix, 128, 64, 32, 16, 128) \
  LS_PLACED(type, suffix, 256, 32, 16, 16, 128)
