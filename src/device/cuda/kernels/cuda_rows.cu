// Functions of rows: norms and what is near them. A team of threads, a warp or the block, takes a
// row (or the columns of one head), sums over it, and goes over it again from the cache.
#include "device/cuda/kernels/cuda_rows.cuh"
#include "device/mask.h"

// x, weight, bias or squares -> y, statistics. A layer norm may be without a bias.
template <class T, ls_norm NORM>
__device__ inline void ls_norm_forward(const ls_cuda_rows &args) {
  const ls_team team = ls_team_of(args);
  for (int64_t row = team.row; row < args.rows; row += team.step) {
    const T *x = ls_group_of<T>(args, args.in[0], row);
    const T *weight = static_cast<const T *>(args.in[1].data);
    T *y = ls_group_of<T>(args, args.out[0], row);
    float mean = 0, squares = 0;
    if (NORM == LS_NORM_LAYER) {
      ls_each_pack(args, team.thread, args.columns, [&](int64_t c, int count, int) {
        const ls_pack pack = ls_load(x + c, count, args.wide);
        for (int i = 0; i < LS_CUDA_PACK; i++) mean += pack.at[i];
      });
      mean = ls_team_sum(args, mean) / static_cast<float>(args.columns);
    }
    if (NORM != LS_NORM_SCALE) {
      ls_each_pack(args, team.thread, args.columns, [&](int64_t c, int count, int) {
        const ls_pack pack = ls_load(x + c, count, args.wide);
        for (int i = 0; i < LS_CUDA_PACK; i++)
          if (i < count) squares += (pack.at[i] - mean) * (pack.at[i] - mean);
      });
      squares = ls_team_sum(args, squares);
    } else {
      squares = static_cast<const float *>(args.in[2].data)[row];
    }
    const float inverse = ls_row_inverse(args, squares);
    ls_each_pack(args, team.thread, ls_stored(args, args.out[0], row),
                 [&](int64_t c, int count, int stored) {
                   ls_pack pack = ls_load(x + c, count, args.wide);
                   const ls_pack by = ls_load(weight + c, count, args.wide);
                   for (int i = 0; i < LS_CUDA_PACK; i++)
                     pack.at[i] =
                         i < count ? (pack.at[i] - mean) * inverse * (by.at[i] + args.offset) : 0;
                   if (NORM == LS_NORM_LAYER) {
                     const T *bias = static_cast<const T *>(args.in[2].data);
                     const ls_pack more = bias ? ls_load(bias + c, count, args.wide) : ls_pack{};
                     for (int i = 0; i < LS_CUDA_PACK; i++) pack.at[i] += more.at[i];
                   }
                   ls_store(y + c, pack, stored, args.wide, args.out[0].add);
                 });
    if (team.thread == 0) {
      if (NORM == LS_NORM_LAYER) ls_put_any(args.out[1], row, mean);
      if (NORM != LS_NORM_SCALE) ls_put_any(args.out[NORM == LS_NORM_LAYER ? 2 : 1], row, inverse);
    }
  }
}

// dy, x, weight, statistics -> dx.
template <class T, ls_norm NORM>
__device__ inline void ls_norm_row(const ls_cuda_rows &args, const ls_team &team, int64_t row) {
  const T *dy = ls_group_of<T>(args, args.in[0], row), *x = ls_group_of<T>(args, args.in[1], row);
  const T *weight = static_cast<const T *>(args.in[2].data);
  T *dx = ls_group_of<T>(args, args.out[0], row);
  float mean, inverse, plain = 0, along = 0;
  ls_norm_statistics<NORM>(args, row, &mean, &inverse);
  ls_each_pack(args, team.thread, args.columns, [&](int64_t c, int count, int) {
    const ls_pack slope = ls_load(dy + c, count, args.wide),
                  from = ls_load(x + c, count, args.wide);
    const ls_pack by = ls_load(weight + c, count, args.wide);
    for (int i = 0; i < LS_CUDA_PACK; i++) {
      const float g = slope.at[i] * (by.at[i] + args.offset);
      plain += g;
      along += g * (from.at[i] - mean) * inverse;
    }
  });
  along = ls_team_sum(args, along);
  if (NORM == LS_NORM_LAYER) plain = ls_team_sum(args, plain) / static_cast<float>(args.columns);
  if (NORM == LS_NORM_SCALE && team.thread == 0)
    ls_put_any(args.out[2], row, -0.5f * along * inverse * inverse / args.divisor);
  const float taken = NORM == LS_NORM_SCALE ? 0 : along / static_cast<float>(args.columns);
  const float level = NORM == LS_NORM_LAYER ? plain : 0;
  ls_each_pack(args, team.thread, ls_stored(args, args.out[0], row),
               [&](int64_t c, int count, int stored) {
                 const ls_pack slope = ls_load(dy + c, count, args.wide),
                               from = ls_load(x + c, count, args.wide);
                 const ls_pack by = ls_load(weight + c, count, args.wide);
                 ls_pack out;
                 for (int i = 0; i < LS_CUDA_PACK; i++) {
                   const float unit = (from.at[i] - mean) * inverse;
                   const float g = slope.at[i] * (by.at[i] + args.offset);
                   out.at[i] = i < count ? (g - level - unit * taken) * inverse : 0;
                 }
                 ls_store(dx + c, out, stored, args.wide, args.out[0].add);
               });
}

template <class T, ls_norm NORM>
__device__ inline void ls_norm_backward(const ls_cuda_rows &args) {
  const ls_team team = ls_team_of(args);
  for (int64_t row = team.row; row < args.rows; row += team.step)
    ls_norm_row<T, NORM>(args, team, row);
}

// The gradients of weight and bias by column, over the rows of each part, which ls_column_sums adds
// up in the order of parts. `team` threads go over the packs of a row, the others of the block over
// other rows: each keeps the sums of its eight columns.
template <class T, ls_norm NORM>
__device__ inline void ls_norm_parts(const ls_cuda_rows &args) {
  LS_SHARED(float, shared, 256 * LS_CUDA_PACK);
  const int across = args.team, own = threadIdx.x % across, turn = threadIdx.x / across;
  const int turns = blockDim.x / across;
  const int64_t c = (static_cast<int64_t>(blockIdx.x) * across + own) * LS_CUDA_PACK;
  const int count = ls_at_most_pack(args.columns - c);
  ls_pack slopes = {}, levels = {};
  if (count > 0) {
#pragma unroll 4
    for (int64_t row = static_cast<int64_t>(blockIdx.y) * turns + turn; row < args.rows;
         row += static_cast<int64_t>(gridDim.y) * turns) {
      float mean, inverse;
      ls_norm_statistics<NORM>(args, row, &mean, &inverse);
      const ls_pack slope = ls_load(ls_group_of<T>(args, args.in[0], row) + c, count, args.wide);
      const ls_pack from = ls_load(ls_group_of<T>(args, args.in[1], row) + c, count, args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++) {
        slopes.at[i] += slope.at[i] * (from.at[i] - mean) * inverse;
        levels.at[i] += slope.at[i];
      }
    }
  }
#pragma unroll
  for (int s = 0; s < 2; s++) {
    if (s == args.sums) break;
    const ls_pack &sums = s == 0 ? slopes : levels;
    __syncthreads();  // the first sums have been read
    for (int i = 0; i < LS_CUDA_PACK; i++)
      shared[(turn * across + own) * LS_CUDA_PACK + i] = sums.at[i];
    __syncthreads();
    const int64_t column = static_cast<int64_t>(blockIdx.x) * across * LS_CUDA_PACK + threadIdx.x;
    if (threadIdx.x >= static_cast<unsigned>(across) * LS_CUDA_PACK || column >= args.columns)
      continue;
    float sum = 0;
    for (int t = 0; t < turns; t++) sum += shared[t * across * LS_CUDA_PACK + threadIdx.x];
    args.parts[(static_cast<int64_t>(blockIdx.y) * args.sums + s) * args.columns + column] = sum;
  }
}

// x -> sum of the squares of each row.
template <class T>
__device__ inline void ls_row_squares(const ls_cuda_rows &args) {
  const ls_team team = ls_team_of(args);
  for (int64_t row = team.row; row < args.rows; row += team.step) {
    const T *x = ls_row_of<T>(args.in[0], row);
    float squares = 0;
    ls_each_pack(args, team.thread, args.columns, [&](int64_t c, int count, int) {
      const ls_pack pack = ls_load(x + c, count, args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++) squares += pack.at[i] * pack.at[i];
    });
    squares = ls_team_sum(args, squares);
    if (team.thread == 0) ls_put_any(args.out[0], row, squares);
  }
}

// dsum, x -> 2 dsum x.
template <class T>
__device__ inline void ls_row_squares_bwd(const ls_cuda_rows &args) {
  const ls_team team = ls_team_of(args);
  for (int64_t row = team.row; row < args.rows; row += team.step) {
    const float slope = 2 * static_cast<const float *>(args.in[0].data)[row];
    ls_each_pack(args, team.thread, args.out[0].stride, [&](int64_t c, int count, int stored) {
      ls_pack pack = ls_load(ls_row_of<T>(args.in[1], row) + c, count, args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++) pack.at[i] *= slope;
      ls_store(ls_row_of<T>(args.out[0], row) + c, pack, stored, args.wide, args.out[0].add);
    });
  }
}

// x, bias -> x + bias.
template <class T>
__device__ inline void ls_bias_rows(const ls_cuda_rows &args) {
  const ls_team team = ls_team_of(args);
  const T *bias = static_cast<const T *>(args.in[1].data);
  for (int64_t row = team.row; row < args.rows; row += team.step) {
    ls_each_pack(args, team.thread, args.out[0].stride, [&](int64_t c, int count, int stored) {
      ls_pack pack = ls_load(ls_row_of<T>(args.in[0], row) + c, count, args.wide);
      const ls_pack more = ls_load(bias + c, count, args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++) pack.at[i] += more.at[i];
      ls_store(ls_row_of<T>(args.out[0], row) + c, pack, stored, args.wide, args.out[0].add);
    });
  }
}

// x, draws -> x without what its tokens' masks drop.
template <class T>
__device__ inline void ls_dropout_rows(const ls_cuda_rows &args) {
  const ls_team team = ls_team_of(args);
  const int32_t *draws = static_cast<const int32_t *>(args.in[1].data);
  for (int64_t row = team.row; row < args.rows; row += team.step) {
    const uint32_t mask = ls_mask_row(draws[row], args.site, 0);
    ls_each_pack(args, team.thread, args.out[0].stride, [&](int64_t c, int count, int stored) {
      ls_pack pack = ls_load(ls_row_of<T>(args.in[0], row) + c, count, args.wide);
      const uint32_t column = static_cast<uint32_t>(args.first_column + c);
      for (int i = 0; i < LS_CUDA_PACK; i++)
        pack.at[i] = ls_mask_keeps(mask, column + i, args.limit) ? pack.at[i] * args.kept : 0;
      ls_store(ls_row_of<T>(args.out[0], row) + c, pack, stored, args.wide, args.out[0].add);
    });
  }
}

// Sums over a range of rows by column: a warp takes 32 packs of columns of a row, the eight warps
// of a block rows in turn.
template <class T>
__device__ inline void ls_column_parts(const ls_cuda_columns &args) {
  LS_SHARED(float, shared, 8 * LS_CUDA_WARP * LS_CUDA_PACK);
  const int lane = threadIdx.x % LS_CUDA_WARP, warp = threadIdx.x / LS_CUDA_WARP;
  const int64_t c = (static_cast<int64_t>(blockIdx.x) * LS_CUDA_WARP + lane) * LS_CUDA_PACK;
  const int count = ls_at_most_pack(args.columns - c);
  ls_pack sums = {};
  if (count > 0)
    for (int64_t row = static_cast<int64_t>(blockIdx.y) * 8 + warp; row < args.rows;
         row += static_cast<int64_t>(gridDim.y) * 8) {
      const ls_pack pack = ls_load(ls_row_of<T>(args.in, row) + c, count, args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++) sums.at[i] += pack.at[i];
    }
  for (int i = 0; i < LS_CUDA_PACK; i++)
    shared[(warp * LS_CUDA_WARP + lane) * LS_CUDA_PACK + i] = sums.at[i];
  __syncthreads();
  const int64_t own = static_cast<int64_t>(blockIdx.x) * LS_CUDA_WARP * LS_CUDA_PACK + threadIdx.x;
  if (own >= args.columns) return;
  float sum = 0;
  for (int w = 0; w < 8; w++) sum += shared[w * LS_CUDA_WARP * LS_CUDA_PACK + threadIdx.x];
  args.parts[blockIdx.y * args.part_stride + own] = sum;
}

// The parts added up: 32 columns a block, of which eight warps take parts in turn.
LS_KERNEL(ls_column_sums, ls_cuda_columns, 256) {
  LS_SHARED(float, shared, 8 * LS_CUDA_WARP);
  const int lane = threadIdx.x % LS_CUDA_WARP, warp = threadIdx.x / LS_CUDA_WARP;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * LS_CUDA_WARP + lane;
  float sum = 0;
  if (c < args.columns)
    for (int part = warp; part < args.part_count; part += 8)
      sum += args.parts[part * args.part_stride + c];
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (warp > 0 || c >= args.columns) return;
  for (int w = 1; w < 8; w++) sum += shared[w * LS_CUDA_WARP + lane];
  ls_put_any(args.out, c, sum);
}

template <class T>
__device__ void ls_rmsnorm_of(const ls_cuda_rows &a) {
  ls_norm_forward<T, LS_NORM_RMS>(a);
}
template <class T>
__device__ void ls_layernorm_of(const ls_cuda_rows &a) {
  ls_norm_forward<T, LS_NORM_LAYER>(a);
}
template <class T>
__device__ void ls_row_scale_of(const ls_cuda_rows &a) {
  ls_norm_forward<T, LS_NORM_SCALE>(a);
}
template <class T>
__device__ void ls_rmsnorm_bwd_of(const ls_cuda_rows &a) {
  ls_norm_backward<T, LS_NORM_RMS>(a);
}
template <class T>
__device__ void ls_layernorm_bwd_of(const ls_cuda_rows &a) {
  ls_norm_backward<T, LS_NORM_LAYER>(a);
}
template <class T>
__device__ void ls_row_scale_bwd_of(const ls_cuda_rows &a) {
  ls_norm_backward<T, LS_NORM_SCALE>(a);
}
template <class T>
__device__ void ls_rmsnorm_parts_of(const ls_cuda_rows &a) {
  ls_norm_parts<T, LS_NORM_RMS>(a);
}
template <class T>
__device__ void ls_layernorm_parts_of(const ls_cuda_rows &a) {
  ls_norm_parts<T, LS_NORM_LAYER>(a);
}
template <class T>
__device__ void ls_row_scale_parts_of(const ls_cuda_rows &a) {
  ls_norm_parts<T, LS_NORM_SCALE>(a);
}

LS_KERNELS(ls_rmsnorm, ls_cuda_rows, 512, ls_rmsnorm_of)
LS_KERNELS(ls_layernorm, ls_cuda_rows, 512, ls_layernorm_of)
LS_KERNELS(ls_row_scale, ls_cuda_rows, 512, ls_row_scale_of)
LS_KERNELS(ls_rmsnorm_bwd, ls_cuda_rows, 512, ls_rmsnorm_bwd_of)
LS_KERNELS(ls_layernorm_bwd, ls_cuda_rows, 512, ls_layernorm_bwd_of)
LS_KERNELS(ls_row_scale_bwd, ls_cuda_rows, 512, ls_row_scale_bwd_of)
LS_KERNELS(ls_rmsnorm_parts, ls_cuda_rows, 256, ls_rmsnorm_parts_of)
LS_KERNELS(ls_layernorm_parts, ls_cuda_rows, 256, ls_layernorm_parts_of)
LS_KERNELS(ls_row_scale_parts, ls_cuda_rows, 256, ls_row_scale_parts_of)
LS_KERNELS(ls_row_squares, ls_cuda_rows, 512, ls_row_squares)
LS_KERNELS(ls_row_squares_bwd, ls_cuda_rows, 512, ls_row_squares_bwd)
LS_KERNELS(ls_bias, ls_cuda_rows, 512, ls_bias_rows)
LS_KERNELS(ls_dropout, ls_cuda_rows, 512, ls_dropout_rows)
LS_KERNELS(ls_column_parts, ls_cuda_columns, 256, ls_column_parts)
