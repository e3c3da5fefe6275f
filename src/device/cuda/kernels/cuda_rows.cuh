// What functions of rows share: the team of threads that takes a row, and the statistics of norms.
#pragma once

#include "device/cuda/kernels/cuda_device.cuh"

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
#pragma unroll 2
  for (int64_t c = static_cast<int64_t>(thread) * LS_CUDA_PACK; c < stored;
       c += static_cast<int64_t>(args.team) * LS_CUDA_PACK)
    body(c, ls_at_most_pack(args.columns - c), ls_at_most_pack(stored - c));
}

// The factor of RMS norms whose sum of squares came from elsewhere.
__device__ inline float ls_row_inverse(const ls_cuda_rows &args, float squares) {
  return 1 / sqrtf(squares / args.divisor + args.epsilon);
}

// Statistics of a row that went forward.
template <ls_norm NORM>
__device__ inline void ls_norm_statistics(const ls_cuda_rows &args, int64_t row, float *mean,
                                          float *inverse) {
  const float kept = static_cast<const float *>(args.in[3].data)[row];
  *mean = NORM == LS_NORM_LAYER ? kept : 0;
  *inverse = NORM == LS_NORM_LAYER ? static_cast<const float *>(args.in[4].data)[row]
             : NORM == LS_NORM_RMS ? kept
                                   : ls_row_inverse(args, kept);
}
