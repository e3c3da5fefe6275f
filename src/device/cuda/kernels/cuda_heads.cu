// Heads made wider or narrower: each has its own columns, then those that all heads share, then
// zeros; and products of heads with matrices of their own, for decoding (device/reference/heads.c).
#include "device/cuda/kernels/cuda_device.cuh"

// BODY(token, head, column) for each of `columns` columns of every head.
template <class BODY>
__device__ inline void ls_each_head_column(const ls_cuda_heads &args, int columns, BODY body) {
  const int all = args.heads * columns;
  for (int64_t n = blockIdx.x; n < args.tokens; n += gridDim.x)
    for (int c = threadIdx.x; c < all; c += blockDim.x) body(n, c / columns, c % columns);
}

template <class T>
__device__ inline void ls_put_head_column(const ls_cuda_heads &args, int64_t n, int64_t column,
                                          float value) {
  T *to = ls_row_of<T>(args.out, n) + column;
  ls_round(to, args.out.add ? value + ls_widen(*to) : value);
}

template <class T>
__device__ inline void ls_heads_rows(const ls_cuda_heads &args) {
  ls_each_head_column(args, args.columns, [&](int64_t n, int h, int c) {
    float value = 0;
    if (c < args.own)
      value = ls_widen(ls_row_of<T>(args.x, n)[static_cast<int64_t>(h) * args.head_dim + c]);
    else if (c < args.own + args.shared_columns)
      value = ls_widen(ls_row_of<T>(args.shared, n)[c - args.own]);
    ls_put_head_column<T>(args, n, static_cast<int64_t>(h) * args.columns + c, value);
  });
}

template <class T>
__device__ inline void ls_heads_bwd_rows(const ls_cuda_heads &args) {
  ls_each_head_column(args, args.head_dim, [&](int64_t n, int h, int c) {
    const T *from = ls_row_of<T>(args.x, n) + static_cast<int64_t>(h) * args.columns;
    ls_put_head_column<T>(args, n, static_cast<int64_t>(h) * args.head_dim + c,
                          c < args.own ? ls_widen(from[c]) : 0);
  });
}

// The sum over heads of what they share.
template <class T>
__device__ inline void ls_heads_shared_bwd_rows(const ls_cuda_heads &args) {
  for (int64_t n = blockIdx.x; n < args.tokens; n += gridDim.x)
    for (int c = threadIdx.x; c < args.out.stride; c += blockDim.x) {
      const T *from = ls_row_of<T>(args.x, n) + args.own + c;
      float sum = 0;
      for (int h = 0; h < args.heads && c < args.shared_columns; h++)
        sum += ls_widen(from[static_cast<int64_t>(h) * args.columns]);
      ls_put_head_column<T>(args, n, c, sum);
    }
}

// Tokens whose products a thread makes at a time, so that a matrix is read once for them; and rows
// of the matrix that lie ready in shared memory as each token has them.
enum { LS_HEAD_TOKENS = 8, LS_HEAD_DEPTH = 128, LS_HEAD_THREADS = 256 };

// Block (columns, head, tokens): of each head x's first columns times its matrix, a thread a column
// of the result; and behind them x's others as they are.
template <class T>
__device__ inline void ls_heads_up_rows(const ls_cuda_heads &args) {
  LS_SHARED(float, x, LS_HEAD_TOKENS *LS_HEAD_DEPTH);
  const int head = static_cast<int>(blockIdx.y);
  const int c = static_cast<int>(blockIdx.x * LS_HEAD_THREADS + threadIdx.x);
  const int64_t first = static_cast<int64_t>(blockIdx.z) * LS_HEAD_TOKENS;
  const int64_t from = static_cast<int64_t>(head) * args.head_dim;
  float sums[LS_HEAD_TOKENS] = {};
  for (int row = 0; row < args.rows; row += LS_HEAD_DEPTH) {
    const int depth = args.rows - row < LS_HEAD_DEPTH ? args.rows - row : LS_HEAD_DEPTH;
    __syncthreads();  // the last rows have been read
    for (int i = threadIdx.x; i < LS_HEAD_TOKENS * LS_HEAD_DEPTH; i += LS_HEAD_THREADS) {
      const int t = i / LS_HEAD_DEPTH, r = i % LS_HEAD_DEPTH;
      const bool here = first + t < args.tokens && r < depth;
      x[i] = here ? ls_widen(ls_row_of<T>(args.x, first + t)[from + row + r]) : 0;
    }
    __syncthreads();
    if (c >= args.weight_columns) continue;
    const T *weight = ls_row_of<T>(args.weight, static_cast<int64_t>(head) * args.rows + row) + c;
    for (int r = 0; r < depth; r++) {
      const float by = ls_widen(weight[r * args.weight.stride]);
#pragma unroll
      for (int t = 0; t < LS_HEAD_TOKENS; t++) sums[t] += x[t * LS_HEAD_DEPTH + r] * by;
    }
  }
  if (c >= args.columns) return;
  const int64_t to = static_cast<int64_t>(head) * args.columns + c;
#pragma unroll
  for (int t = 0; t < LS_HEAD_TOKENS; t++) {
    if (first + t >= args.tokens) continue;
    const float value =
        c < args.weight_columns
            ? sums[t]
            : ls_widen(ls_row_of<T>(args.x, first + t)[from + args.rows + c - args.weight_columns]);
    ls_put_head_column<T>(args, first + t, to, value);
  }
}

// Block (rows, head, tokens): of each head the product of its matrix with x's first columns, a warp
// a row of the matrix.
template <class T>
__device__ inline void ls_heads_down_rows(const ls_cuda_heads &args) {
  const int head = static_cast<int>(blockIdx.y), lane = threadIdx.x % LS_CUDA_WARP;
  const int r =
      static_cast<int>(blockIdx.x * (LS_HEAD_THREADS / LS_CUDA_WARP) + threadIdx.x / LS_CUDA_WARP);
  const int64_t first = static_cast<int64_t>(blockIdx.z) * LS_HEAD_TOKENS;
  if (r >= args.rows) return;
  const T *weight = ls_row_of<T>(args.weight, static_cast<int64_t>(head) * args.rows + r);
  float sums[LS_HEAD_TOKENS] = {};
  for (int c = lane; c < args.weight_columns; c += LS_CUDA_WARP) {
    const float by = ls_widen(weight[c]);
#pragma unroll
    for (int t = 0; t < LS_HEAD_TOKENS; t++)
      if (first + t < args.tokens)
        sums[t] += by * ls_widen(ls_row_of<T>(
                            args.x, first + t)[static_cast<int64_t>(head) * args.head_dim + c]);
  }
#pragma unroll
  for (int t = 0; t < LS_HEAD_TOKENS; t++) {
    const float sum = ls_warp_sum(sums[t]);
    if (lane == 0 && first + t < args.tokens)
      ls_put_head_column<T>(args, first + t, static_cast<int64_t>(head) * args.rows + r, sum);
  }
}

LS_KERNELS(ls_heads, ls_cuda_heads, 256, ls_heads_rows)
LS_KERNELS(ls_heads_bwd, ls_cuda_heads, 256, ls_heads_bwd_rows)
LS_KERNELS(ls_heads_shared_bwd, ls_cuda_heads, 256, ls_heads_shared_bwd_rows)
LS_KERNELS(ls_heads_up, ls_cuda_heads, LS_HEAD_THREADS, ls_heads_up_rows)
LS_KERNELS(ls_heads_down, ls_cuda_heads, LS_HEAD_THREADS, ls_heads_down_rows)
