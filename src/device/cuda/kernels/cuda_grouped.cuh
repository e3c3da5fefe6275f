// Products of rows of experts with their experts' matrices (device/reference/experts.c), on matrix
// instructions in bf16 and fp16. Which rows are whose is data: a block finds its expert from where
// rows of each begin, so a launch says nothing of it and one graph serves every step.
//
// A block has 128 x 128 numbers of the result, four warps of 64 x 64, and goes over what is
// contracted 32 at a time, of which two loads are under way while one is multiplied.
#pragma once

#include "device/cuda/kernels/cuda_group.cuh"
#include "device/cuda/kernels/cuda_matrix.cuh"

enum {
  LS_GROUP_TILE = 128,
  LS_GROUP_DEPTH = 32,
  LS_GROUP_STAGES = 3,
  LS_GROUP_THREADS = 128,
  LS_GROUP_DEEP = LS_GROUP_DEPTH + 8,  // strides of rows in shared memory: in other banks
  LS_GROUP_LONG = LS_GROUP_TILE + 8,
  LS_GROUP_PLACE = LS_GROUP_TILE * LS_GROUP_DEEP,  // of one operand, either way: the larger
};

// ROWS x COLUMNS of a matrix to shared memory; zeros beyond `rows` and `columns`.
template <class T, int ROWS, int COLUMNS>
__device__ inline void ls_group_load(const T *from, int64_t stride, int64_t rows, int64_t columns,
                                     bool wide, T *to) {
  constexpr int STRIDE = COLUMNS + 8;
#pragma unroll
  for (int i = 0; i < ROWS * COLUMNS / LS_CUDA_PACK; i += LS_GROUP_THREADS) {
    const int at = i + static_cast<int>(threadIdx.x);
    const int row = at / (COLUMNS / LS_CUDA_PACK), column = at % (COLUMNS / LS_CUDA_PACK) * 8;
    const bool here = row < rows && column < columns;
    const T *place = from + (here ? row * stride + column : 0);
    T *own = to + row * STRIDE + column;
    if (wide) {
      ls_copy_begin(own, place, here);
      continue;
    }
    for (int e = 0; e < LS_CUDA_PACK; e++) own[e] = here && column + e < columns ? place[e] : T{0};
  }
}

// The next 32 of what is contracted, from `k` on.
template <class T, int FORM>
__device__ inline void ls_group_load_both(const ls_group_work<T> &work, int64_t k, T *a, T *b) {
  const int64_t left = work.depth - k;
  if (FORM == LS_GROUP_SUMS)
    ls_group_load<T, LS_GROUP_DEPTH, LS_GROUP_TILE>(work.a + k * work.a_stride, work.a_stride, left,
                                                    work.rows, work.wide, a);
  else
    ls_group_load<T, LS_GROUP_TILE, LS_GROUP_DEPTH>(work.a + k, work.a_stride, work.rows, left,
                                                    work.wide, a);
  if (FORM == LS_GROUP_TURNED)
    ls_group_load<T, LS_GROUP_TILE, LS_GROUP_DEPTH>(work.b + k, work.b_stride, work.columns, left,
                                                    work.wide, b);
  else
    ls_group_load<T, LS_GROUP_DEPTH, LS_GROUP_TILE>(work.b + k * work.b_stride, work.b_stride, left,
                                                    work.columns, work.wide, b);
}

// sums += A B for a warp's 64 x 64 numbers and 32 of what is contracted.
template <class T, int FORM>
__device__ inline void ls_group_multiply(float (&sums)[4][8][4], const T *a, const T *b) {
  const int lane = threadIdx.x % LS_CUDA_WARP, warp = threadIdx.x / LS_CUDA_WARP;
  const int row = warp / 2 * 64, column = warp % 2 * 64;
#pragma unroll
  for (int k = 0; k < LS_GROUP_DEPTH; k += 16) {
    uint32_t left[4][4];
#pragma unroll
    for (int m = 0; m < 4; m++) {
      if (FORM == LS_GROUP_SUMS)
        ls_load_matrices_turned(left[m], a + (k + lane % 8 + lane / 16 * 8) * LS_GROUP_LONG + row +
                                             m * 16 + lane / 8 % 2 * 8);
      else
        ls_load_matrices(left[m],
                         a + (row + m * 16 + lane % 16) * LS_GROUP_DEEP + k + lane / 16 * 8);
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
      uint32_t right[4];
      if (FORM == LS_GROUP_TURNED)
        ls_load_matrices(right, b + (column + n * 16 + lane % 8 + lane / 16 * 8) * LS_GROUP_DEEP +
                                    k + lane / 8 % 2 * 8);
      else
        ls_load_matrices_turned(
            right, b + (k + lane % 16) * LS_GROUP_LONG + column + n * 16 + lane / 16 * 8);
#pragma unroll
      for (int m = 0; m < 4; m++) {
        ls_multiply(sums[m][2 * n], left[m], right[0], right[1], T());
        ls_multiply(sums[m][2 * n + 1], left[m], right[2], right[3], T());
      }
    }
  }
}

template <class OUT>
struct alignas(2 * sizeof(OUT)) ls_two {
  OUT at[2];
};

template <class OUT>
__device__ inline void ls_group_put(OUT *to, float low, float high, int count, bool wide,
                                    bool add) {
  if (wide && count > 1) {
    ls_two<OUT> two;
    if (add) {
      two = *reinterpret_cast<const ls_two<OUT> *>(to);
      low += ls_widen(two.at[0]);
      high += ls_widen(two.at[1]);
    }
    ls_round(&two.at[0], low);
    ls_round(&two.at[1], high);
    *reinterpret_cast<ls_two<OUT> *>(to) = two;
    return;
  }
  if (count > 0) ls_round(&to[0], add ? low + ls_widen(to[0]) : low);
  if (count > 1) ls_round(&to[1], add ? high + ls_widen(to[1]) : high);
}

template <class OUT>
__device__ inline void ls_group_store(const ls_cuda_grouped &args, const ls_group_place &at,
                                      int64_t rows, const float (&sums)[4][8][4]) {
  const int lane = threadIdx.x % LS_CUDA_WARP, warp = threadIdx.x / LS_CUDA_WARP;
#pragma unroll
  for (int m = 0; m < 4; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = warp / 2 * 64 + m * 16 + half * 8 + lane / 4;
      if (row >= rows) continue;
      OUT *to = ls_row_of<OUT>(args.out, at.out_row + row);
#pragma unroll
      for (int n = 0; n < 8; n++) {
        const int64_t column = at.column + warp % 2 * 64 + n * 8 + lane % 4 * 2;
        const int64_t left = args.out.stride - column;
        ls_group_put(to + column, sums[m][n][2 * half], sums[m][n][2 * half + 1],
                     left < 2 ? static_cast<int>(left) : 2, args.out_wide, args.out.add);
      }
    }
}

template <class T, int FORM>
__device__ inline void ls_grouped_of(const ls_cuda_grouped &args) {
  LS_DYNAMIC_SHARED(T, memory);
  const ls_group_place at = ls_group_place_of<FORM, LS_GROUP_TILE>(args);
  if (at.group < 0) return;
  const ls_group_work<T> work = ls_group_work_of<T, FORM>(args, at);
  float sums[4][8][4] = {};
  const int64_t steps = (work.depth + LS_GROUP_DEPTH - 1) / LS_GROUP_DEPTH;
#pragma unroll
  for (int s = 0; s < LS_GROUP_STAGES - 1; s++) {
    T *a = memory + 2 * s * LS_GROUP_PLACE;
    if (s < steps)
      ls_group_load_both<T, FORM>(work, static_cast<int64_t>(s) * LS_GROUP_DEPTH, a,
                                  a + LS_GROUP_PLACE);
    ls_copies_commit();
  }
  int own = 0, ahead = LS_GROUP_STAGES - 1;
  for (int64_t step = 0; step < steps; step++) {
    ls_copies_wait<LS_GROUP_STAGES - 2>();
    __syncthreads();  // this step's are here, and the last step's have been read
    T *next = memory + 2 * ahead * LS_GROUP_PLACE;
    const int64_t then = step + LS_GROUP_STAGES - 1;
    if (then < steps)
      ls_group_load_both<T, FORM>(work, then * LS_GROUP_DEPTH, next, next + LS_GROUP_PLACE);
    ls_copies_commit();
    const T *a = memory + 2 * own * LS_GROUP_PLACE;
    ls_group_multiply<T, FORM>(sums, a, a + LS_GROUP_PLACE);
    own = own + 1 == LS_GROUP_STAGES ? 0 : own + 1;
    ahead = ahead + 1 == LS_GROUP_STAGES ? 0 : ahead + 1;
  }
  ls_copies_wait<0>();
  switch (args.out.dtype) {
    case LS_BF16: ls_group_store<ls_bits_bf16>(args, at, at.rows, sums); break;
    case LS_F16: ls_group_store<ls_bits_fp16>(args, at, at.rows, sums); break;
    default: ls_group_store<float>(args, at, at.rows, sums); break;
  }
}

#define LS_GROUPED(type, suffix)                                            \
  LS_KERNEL(ls_grouped_rows##suffix, ls_cuda_grouped, LS_GROUP_THREADS) {   \
    ls_grouped_of<type, LS_GROUP_ROWS>(args);                               \
  }                                                                         \
  LS_KERNEL(ls_grouped_turned##suffix, ls_cuda_grouped, LS_GROUP_THREADS) { \
    ls_grouped_of<type, LS_GROUP_TURNED>(args);                             \
  }                                                                         \
  LS_KERNEL(ls_grouped_sums##suffix, ls_cuda_grouped, LS_GROUP_THREADS) {   \
    ls_grouped_of<type, LS_GROUP_SUMS>(args);                               \
  }
