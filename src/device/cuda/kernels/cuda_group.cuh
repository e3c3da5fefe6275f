// What grouped products share: where each expert's rows begin, and which part of a result a block
// has.
//
// Groups are the rows of experts before those that the rank has, then of each that it has, then of
// those behind: groups 0 and held + 1 are others', of which results are zeros.
#pragma once

#include "device/cuda/kernels/cuda_device.cuh"

// Of rows x what product: y = x W and y = x W^T, of each row with its expert's W; and of each
// expert the sum of a^T b over its rows.
enum { LS_GROUP_ROWS, LS_GROUP_TURNED, LS_GROUP_SUMS };

struct ls_group_place {
  int32_t group;       // -1: the block has nothing
  int32_t first;       // of rows of a, or for sums of rows of the expert's matrix
  int64_t rows;        // of the result that are this group's, from `first` on
  int64_t begin, end;  // the group's rows
  int64_t out_row, column;
};

// The tile blockIdx.y of all groups' rows, `tile` rows each. For all threads.
__device__ inline void ls_group_find(const ls_cuda_grouped &args, int tile, int32_t *found) {
  if (threadIdx.x < LS_CUDA_WARP) {
    const int lane = threadIdx.x, wanted = static_cast<int>(blockIdx.y);
    const int groups = args.held + 2;
    int before = 0;
    if (lane == 0) found[0] = -1;
    __syncwarp();
    for (int first = 0; first < groups; first += LS_CUDA_WARP) {
      const int g = first + lane;
      const int32_t begin = g < groups ? args.bounds[g] : 0;
      const int32_t end = g < groups ? args.bounds[g + 1] : 0;
      const int tiles = (end - begin + tile - 1) / tile;
      int up_to = tiles;
      for (int step = 1; step < LS_CUDA_WARP; step *= 2) {
        const int more = __shfl_up_sync(LS_ALL_LANES, up_to, step);
        if (lane >= step) up_to += more;
      }
      const int own = wanted - before - (up_to - tiles);
      const bool here = own >= 0 && own < tiles;
      if (here) found[0] = g, found[1] = begin + own * tile, found[2] = begin, found[3] = end;
      if (__any_sync(LS_ALL_LANES, here)) break;
      before += __shfl_sync(LS_ALL_LANES, up_to, LS_CUDA_WARP - 1);
    }
  }
  __syncthreads();
}

template <int FORM, int TILE>
__device__ inline ls_group_place ls_group_place_of(const ls_cuda_grouped &args) {
  ls_group_place at = {};
  at.column = static_cast<int64_t>(blockIdx.x) * TILE;
  if (FORM == LS_GROUP_SUMS) {
    const int tiles = static_cast<int>((args.matrix_rows + TILE - 1) / TILE);
    const int tile = static_cast<int>(blockIdx.y);
    at.group = tile / tiles + 1;
    at.first = tile % tiles * TILE;
    at.begin = args.bounds[at.group], at.end = args.bounds[at.group + 1];
    at.rows = args.matrix_rows - at.first;
    at.out_row = (at.group - 1) * args.matrix_rows + at.first;
    return at;
  }
  LS_SHARED(int32_t, found, 4);
  ls_group_find(args, TILE, found);
  at.group = found[0];
  at.first = found[1], at.begin = found[2], at.end = found[3];
  at.rows = at.end - at.first;
  at.out_row = at.first;
  return at;
}

// The operands of a block's part, from its first row and column on. A group of others has nothing
// that is contracted.
template <class T>
struct ls_group_work {
  const T *a, *b;
  int64_t a_stride, b_stride;
  int64_t rows, columns, depth;
  bool wide;
};

template <class T, int FORM>
__device__ inline ls_group_work<T> ls_group_work_of(const ls_cuda_grouped &args,
                                                    const ls_group_place &at) {
  ls_group_work<T> work;
  work.a_stride = args.a.stride, work.b_stride = args.b.stride;
  work.wide = args.wide;
  work.rows = at.rows;
  work.columns = args.columns - at.column;
  if (FORM == LS_GROUP_SUMS) {
    work.a = ls_row_of<T>(args.a, at.begin) + at.first;
    work.b = ls_row_of<T>(args.b, at.begin) + at.column;
    work.depth = at.end - at.begin;
    return work;
  }
  const bool others = at.group == 0 || at.group > args.held;
  const T *matrix = ls_row_of<T>(args.b, others ? 0 : (at.group - 1) * args.matrix_rows);
  work.a = ls_row_of<T>(args.a, at.first);
  work.b = matrix + (FORM == LS_GROUP_ROWS ? at.column : at.column * args.b.stride);
  work.depth = others ? 0 : args.depth;
  return work;
}
