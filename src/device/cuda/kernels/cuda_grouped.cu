// Where the rows of each expert begin; grouped products in fp32, without matrix instructions. A
// block has 64 x 64 numbers of the result, a thread 4 x 4 of them.
#include "device/cuda/kernels/cuda_group.cuh"

enum { LS_FULL_TILE = 64, LS_FULL_DEPTH = 16, LS_FULL_THREADS = 256, LS_FULL_STRIDE = 68 };

__device__ inline int ls_group_of_row(const ls_cuda_grouped &args, int64_t row) {
  if (row < 0) return -1;
  if (row >= args.rows) return args.held + 2;
  const int expert = args.experts[row] - args.first_expert;
  return expert < 0 ? 0 : expert < args.held ? expert + 1 : args.held + 1;
}

// Rows are sorted by expert: each group's first row is written by the thread of that row.
LS_KERNEL(ls_group_bounds, ls_cuda_grouped, 256) {
  for (int64_t n = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; n <= args.rows;
       n += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int own = ls_group_of_row(args, n);
    for (int g = ls_group_of_row(args, n - 1) + 1; g <= own; g++)
      args.bounds[g] = static_cast<int32_t>(n);
  }
}

// 16 of what is contracted by 64 rows or columns: those lie one after another where ALONG, else
// what is contracted does.
template <bool ALONG>
__device__ inline void ls_full_load(const float *from, int64_t stride, int64_t count, int64_t depth,
                                    float *to) {
  for (int i = threadIdx.x; i < LS_FULL_DEPTH * LS_FULL_TILE; i += LS_FULL_THREADS) {
    const int k = ALONG ? i / LS_FULL_TILE : i % LS_FULL_DEPTH;
    const int own = ALONG ? i % LS_FULL_TILE : i / LS_FULL_DEPTH;
    const bool here = k < depth && own < count;
    to[k * LS_FULL_STRIDE + own] = here ? from[ALONG ? k * stride + own : own * stride + k] : 0;
  }
}

template <int FORM>
__device__ inline void ls_grouped_full(const ls_cuda_grouped &args) {
  LS_SHARED(float, a, LS_FULL_DEPTH *LS_FULL_STRIDE);
  LS_SHARED(float, b, LS_FULL_DEPTH *LS_FULL_STRIDE);
  const ls_group_place at = ls_group_place_of<FORM, LS_FULL_TILE>(args);
  if (at.group < 0) return;
  const ls_group_work<float> work = ls_group_work_of<float, FORM>(args, at);
  const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
  float sums[4][4] = {};
  for (int64_t k = 0; k < work.depth; k += LS_FULL_DEPTH) {
    constexpr bool a_along = FORM == LS_GROUP_SUMS, b_along = FORM != LS_GROUP_TURNED;
    ls_full_load<a_along>(work.a + (a_along ? k * work.a_stride : k), work.a_stride, work.rows,
                          work.depth - k, a);
    ls_full_load<b_along>(work.b + (b_along ? k * work.b_stride : k), work.b_stride, work.columns,
                          work.depth - k, b);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < LS_FULL_DEPTH; d++)
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          sums[i][j] += a[d * LS_FULL_STRIDE + row + i] * b[d * LS_FULL_STRIDE + column + j];
    __syncthreads();
  }
  for (int i = 0; i < 4 && row + i < at.rows; i++)
    for (int j = 0; j < 4; j++) {
      const int64_t c = at.column + column + j;
      if (c < args.out.stride)
        ls_put_any(args.out, (at.out_row + row + i) * args.out.stride + c, sums[i][j]);
    }
}

LS_KERNEL(ls_grouped_rows_fp32, ls_cuda_grouped, LS_FULL_THREADS) {
  ls_grouped_full<LS_GROUP_ROWS>(args);
}
LS_KERNEL(ls_grouped_turned_fp32, ls_cuda_grouped, LS_FULL_THREADS) {
  ls_grouped_full<LS_GROUP_TURNED>(args);
}
LS_KERNEL(ls_grouped_sums_fp32, ls_cuda_grouped, LS_FULL_THREADS) {
  ls_grouped_full<LS_GROUP_SUMS>(args);
}
