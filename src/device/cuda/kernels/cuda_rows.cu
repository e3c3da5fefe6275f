// Functions of rows: norms and what is near them. A team of threads, a warp or the block, takes a
// row (or the columns of one head), sums over it, and goes over it again from the cache.
#include "device/cuda/kernels/cuda_device.cuh"
#include "device/mask.h"

enum ls_norm { LS_NORM_RMS, LS_NORM_LAYER, LS_NORM_SCALE };

// Where a team stands: which row, and which of its threads this is.
struct ls_team {
  int64_t row, step;
  int thread;
};

__device__ inline ls_team ls_team_of(const ls_cuda_rows &args) {
  const int teams = blockDim.x / args.team, own = threadIdx.x / args.team;
  return {static_cast<int64_t>(blockIdx.x) * teams + own, static_cast<int64_t>(gridDim.x) * teams,
          static_cast<int>(threadIdx.x) % args.team};
}

__device__ inline float ls_team_sum(const ls_cuda_rows &args, float value) {
  return args.team == LS_CUDA_WARP ? ls_warp_sum(value) : ls_block_sum(value);
}

// The first element of a row of groups.
template <class T>
__device__ inline T *ls_group_of(const ls_cuda_rows &args, const ls_cuda_place &place,
                                 int64_t row) {
  return ls_row_of<T>(place, row / args.groups) + row % args.groups * args.columns;
}

// Columns that a row writes: the last group of a token has the padding behind it as well.
__device__ inline int64_t ls_stored(const ls_cuda_rows &args, const ls_cuda_place &out,
                                    int64_t row) {
  const int64_t group = row % args.groups;
  return group == args.groups - 1 ? out.stride - group * args.columns : args.columns;
}

// Calls BODY(column, how many of its eight exist, how many are stored) for a team's share of a row.
template <class BODY>
__device__ inline void ls_each_pack(const ls_cuda_rows &args, int thread, int64_t stored,
                                    BODY body) {
  for (int64_t c = static_cast<int64_t>(thread) * LS_CUDA_PACK; c < stored;
       c += static_cast<int64_t>(args.team) * LS_CUDA_PACK)
    body(c, ls_at_most_pack(args.columns - c), ls_at_most_pack(stored - c));
}

// The factor of RMS norms whose sum of squares came from elsewhere.
__device__ inline float ls_row_inverse(const ls_cuda_rows &args, float squares) {
  return 1 / sqrtf(squares / args.divisor + args.epsilon);
}

// x, weight, bias or squares -> y, statistics.
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
                     const ls_pack bias =
                         ls_load(static_cast<const T *>(args.in[2].data) + c, count, args.wide);
                     for (int i = 0; i < LS_CUDA_PACK; i++) pack.at[i] += bias.at[i];
                   }
                   ls_store(y + c, pack, stored, args.wide, args.out[0].add);
                 });
    if (team.thread == 0) {
      if (NORM == LS_NORM_LAYER) ls_put_any(args.out[1], row, mean);
      if (NORM != LS_NORM_SCALE) ls_put_any(args.out[NORM == LS_NORM_LAYER ? 2 : 1], row, inverse);
    }
  }
}

// One row's gradient, and what it adds to the sums of its columns. Each thread has columns of its
// own in `sums`, for all rows of its team.
template <class T, ls_norm NORM>
__device__ inline void ls_norm_row(const ls_cuda_rows &args, const ls_team &team, int64_t row,
                                   float *sums) {
  const T *dy = ls_group_of<T>(args, args.in[0], row), *x = ls_group_of<T>(args, args.in[1], row);
  const T *weight = static_cast<const T *>(args.in[2].data);
  T *dx = ls_group_of<T>(args, args.out[0], row);
  const float kept = static_cast<const float *>(args.in[3].data)[row];
  const float mean = NORM == LS_NORM_LAYER ? kept : 0;
  const float inverse = NORM == LS_NORM_LAYER ? static_cast<const float *>(args.in[4].data)[row]
                        : NORM == LS_NORM_RMS ? kept
                                              : ls_row_inverse(args, kept);
  float plain = 0, along = 0;
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
                   if (i >= count) continue;
                   if (args.sums > 0) sums[c + i] += slope.at[i] * unit;
                   if (args.sums > 1) sums[args.columns + c + i] += slope.at[i];
                 }
                 ls_store(dx + c, out, stored, args.wide, args.out[0].add);
               });
}

// dy, x, weight, statistics -> dx, and each block's part of the sums over rows, which
// ls_column_sums adds up in the order of blocks.
template <class T, ls_norm NORM>
__device__ inline void ls_norm_backward(const ls_cuda_rows &args) {
  LS_DYNAMIC_SHARED(float, shared);
  const ls_team team = ls_team_of(args);
  const int64_t width = args.sums * args.columns;
  const int teams = blockDim.x / args.team;
  float *part = args.sums ? args.parts + blockIdx.x * width : nullptr;
  float *sums = args.in_shared ? shared + threadIdx.x / args.team * width : part;
  ls_each_pack(args, team.thread, args.columns, [&](int64_t c, int count, int) {
    for (int i = 0; i < count; i++)
      for (int s = 0; s < args.sums; s++) sums[s * args.columns + c + i] = 0;
  });
  for (int64_t row = team.row; row < args.rows; row += team.step)
    ls_norm_row<T, NORM>(args, team, row, sums);
  if (!args.in_shared) return;
  __syncthreads();
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x) {
    float sum = 0;
    for (int t = 0; t < teams; t++) sum += shared[t * width + c];
    part[c] = sum;
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

LS_KERNELS(ls_rmsnorm, ls_cuda_rows, 512, ls_rmsnorm_of)
LS_KERNELS(ls_layernorm, ls_cuda_rows, 512, ls_layernorm_of)
LS_KERNELS(ls_row_scale, ls_cuda_rows, 512, ls_row_scale_of)
LS_KERNELS(ls_rmsnorm_bwd, ls_cuda_rows, 512, ls_rmsnorm_bwd_of)
LS_KERNELS(ls_layernorm_bwd, ls_cuda_rows, 512, ls_layernorm_bwd_of)
LS_KERNELS(ls_row_scale_bwd, ls_cuda_rows, 512, ls_row_scale_bwd_of)
LS_KERNELS(ls_row_squares, ls_cuda_rows, 512, ls_row_squares)
LS_KERNELS(ls_row_squares_bwd, ls_cuda_rows, 512, ls_row_squares_bwd)
LS_KERNELS(ls_bias, ls_cuda_rows, 512, ls_bias_rows)
LS_KERNELS(ls_dropout, ls_cuda_rows, 512, ls_dropout_rows)
LS_KERNELS(ls_column_parts, ls_cuda_columns, 256, ls_column_parts)
