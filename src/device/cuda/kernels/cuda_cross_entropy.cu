// Cross-entropy over the slice of a vocabulary that a rank has: a block takes a token. What each
// kernel leaves is reduced over ranks before the next one needs it.
#include "device/cuda/kernels/cuda_device.cuh"

// The column of a label in this slice, or -1.
__device__ inline int64_t ls_label_column(const ls_cuda_cross_entropy &args, int32_t label) {
  const int64_t column = static_cast<int64_t>(label) - args.start;
  return label >= 0 && column >= 0 && column < args.columns ? column : -1;
}

template <class BODY>
__device__ inline void ls_each_of_row(int64_t columns, BODY body) {
  for (int64_t c = static_cast<int64_t>(threadIdx.x) * LS_CUDA_PACK; c < columns;
       c += static_cast<int64_t>(blockDim.x) * LS_CUDA_PACK)
    body(c, ls_at_most_pack(columns - c));
}

template <class T>
__device__ inline void ls_xent_max_rows(const ls_cuda_cross_entropy &args) {
  for (int64_t n = blockIdx.x; n < args.rows; n += gridDim.x) {
    const T *row = ls_row_of<T>(args.logits, n);
    float largest = -INFINITY;
    ls_each_of_row(args.columns, [&](int64_t c, int count) {
      const ls_pack pack = ls_load(row + c, count, args.wide);
      for (int i = 0; i < count; i++) largest = ls_larger(pack.at[i], largest);
    });
    largest = ls_block_max(largest);
    if (threadIdx.x == 0) args.maxima[n] = largest;
  }
}

template <class T>
__device__ inline void ls_xent_sum_rows(const ls_cuda_cross_entropy &args) {
  for (int64_t n = blockIdx.x; n < args.rows; n += gridDim.x) {
    const T *row = ls_row_of<T>(args.logits, n);
    const float largest = args.largest[n];
    float sum = 0;
    ls_each_of_row(args.columns, [&](int64_t c, int count) {
      const ls_pack pack = ls_load(row + c, count, args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++)
        if (i < count) sum += ls_exp<ls_is_narrow<T>>(pack.at[i] - largest);
    });
    sum = ls_block_sum(sum);
    if (threadIdx.x > 0) continue;
    const int64_t column = ls_label_column(args, args.labels[n]);
    const float target = column < 0 ? 0 : ls_widen(row[column]);
    args.shares[n] = args.add_shares ? args.shares[n] + sum : sum;
    args.targets[n] = args.add_targets ? args.targets[n] + target : target;
  }
}

// The gradient may be the logits' memory: a thread reads its eight before it writes them.
template <class T>
__device__ inline void ls_xent_grad_rows(const ls_cuda_cross_entropy &args) {
  const float all = args.each ? 0 : static_cast<float>(*args.scale);
  for (int64_t n = blockIdx.x; n < args.rows; n += gridDim.x) {
    const float scale = args.each ? args.each[n] : all;
    const T *row = ls_row_of<T>(args.logits, n);
    T *to = ls_row_of<T>(args.out, n);
    const bool counts = args.labels[n] >= 0;
    const int64_t target = ls_label_column(args, args.labels[n]);
    const float largest = args.largest[n], inverse = 1 / args.sums[n];
    ls_each_of_row(args.out.stride, [&](int64_t c, int stored) {
      const int count = counts ? ls_at_most_pack(args.columns - c) : 0;
      ls_pack pack = ls_load(row + c, count, args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++) {
        const float share = i < count ? ls_exp<ls_is_narrow<T>>(pack.at[i] - largest) * inverse : 0;
        pack.at[i] = i < count ? scale * (c + i == target ? share - 1 : share) : 0;
      }
      ls_store(to + c, pack, stored, args.wide, args.out.add);
    });
  }
}

LS_KERNELS(ls_xent_max, ls_cuda_cross_entropy, 512, ls_xent_max_rows)
LS_KERNELS(ls_xent_sum, ls_cuda_cross_entropy, 512, ls_xent_sum_rows)
LS_KERNELS(ls_xent_grad, ls_cuda_cross_entropy, 512, ls_xent_grad_rows)

// The loss, or the count, of all tokens that have a label: one block, in double.
LS_KERNEL(ls_token_sum, ls_cuda_tokens, 512) {
  double sum = 0;
  for (int64_t n = threadIdx.x; n < args.count; n += blockDim.x) {
    if (args.labels[n] < 0) continue;
    double own = args.means ? static_cast<double>(args.means[n]) : 1;
    if (args.sums)
      own = log(static_cast<double>(args.sums[n])) + static_cast<double>(args.largest[n]) -
            static_cast<double>(args.targets[n]);
    sum += args.weights ? args.weights[n] * own : own;
  }
  sum = ls_block_sum(sum);
  if (threadIdx.x == 0) ls_put_cell(args.cell, sum, args.add);
}

// How often the loss of each token counts, by its weight.
LS_KERNEL(ls_token_slopes, ls_cuda_tokens, 256) {
  for (int64_t n = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; n < args.count;
       n += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const float own = args.labels[n] < 0 ? 0 : static_cast<float>(*args.scale * args.weights[n]);
    args.slopes[n] = args.add ? args.slopes[n] + own : own;
  }
}

// Several labels, each a bit of the token's set; a warp has a token.
__device__ inline int64_t ls_token_first() {
  return static_cast<int64_t>(blockIdx.x) * (blockDim.x / LS_CUDA_WARP) +
         threadIdx.x / LS_CUDA_WARP;
}
__device__ inline int64_t ls_token_step() {
  return static_cast<int64_t>(gridDim.x) * (blockDim.x / LS_CUDA_WARP);
}
// Whether a class is in the token's set, and how often it counts then.
__device__ inline bool ls_has_class(const ls_cuda_cross_entropy &args, const int32_t *set,
                                    int64_t v) {
  const int64_t of = args.start + v;
  return static_cast<uint32_t>(set[of >> 5]) >> (of & 31) & 1;
}
__device__ inline float ls_class_weight(const ls_cuda_cross_entropy &args, int64_t v) {
  return args.weights ? static_cast<float>(args.weights[v]) : 1;
}

template <class T>
__device__ inline void ls_bce_sum_rows(const ls_cuda_cross_entropy &args) {
  const int lane = threadIdx.x % LS_CUDA_WARP;
  for (int64_t n = ls_token_first(); n < args.rows; n += ls_token_step()) {
    const T *row = ls_row_of<T>(args.logits, n);
    const int32_t *set = args.sets + n * args.words;
    float sum = 0;
    for (int64_t v = lane; v < args.columns && args.labels[n] >= 0; v += LS_CUDA_WARP) {
      const bool has = ls_has_class(args, set, v);
      const float x = has ? -ls_widen(row[v]) : ls_widen(row[v]);
      const float own = (x > 0 || x != x ? x : 0) + log1pf(expf(-fabsf(x)));
      sum += has ? ls_class_weight(args, v) * own : own;
    }
    sum = args.class_share * ls_warp_sum(sum);
    if (lane == 0) ls_put_any(args.out, n, sum);
  }
}

template <class T>
__device__ inline void ls_bce_grad_rows(const ls_cuda_cross_entropy &args) {
  const float scale = static_cast<float>(*args.scale) * args.class_share;
  for (int64_t n = ls_token_first(); n < args.rows; n += ls_token_step()) {
    const T *row = ls_row_of<T>(args.logits, n);
    T *to = ls_row_of<T>(args.out, n);
    const int32_t *set = args.sets + n * args.words;
    for (int64_t v = threadIdx.x % LS_CUDA_WARP; v < args.out.stride; v += LS_CUDA_WARP) {
      float slope = 0;
      if (args.labels[n] >= 0 && v < args.columns) {
        const float x = ls_widen(row[v]);
        slope = ls_has_class(args, set, v) ? -scale * ls_class_weight(args, v) / (1 + expf(x))
                                           : scale / (1 + expf(-x));
      }
      ls_round(&to[v], args.out.add ? slope + ls_widen(to[v]) : slope);
    }
  }
}

LS_KERNELS(ls_bce_sum, ls_cuda_cross_entropy, 256, ls_bce_sum_rows)
LS_KERNELS(ls_bce_grad, ls_cuda_cross_entropy, 256, ls_bce_grad_rows)
