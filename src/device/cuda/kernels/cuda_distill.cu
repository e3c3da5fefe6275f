// Distillation over the slice of a vocabulary that a rank has, of the student's logits and of the
// teacher's alike (device/reference/distill.c): a block takes a token, and goes once over both. Of a
// teacher that is told by its likeliest ids these are searched for among the columns at hand.
#include "device/cuda/kernels/cuda_device.cuh"

// Columns of a token's sums, as LS_DISTILL_SUMS has them.
enum { LS_OF_EXP, LS_OF_TARGET, LS_OF_SOFT, LS_OF_TEACHER, LS_OF_APART, LS_OF_ALL };

__device__ inline int64_t ls_distill_target(const ls_cuda_distill &args, int32_t label) {
  const int64_t column = static_cast<int64_t>(label) - args.start;
  return label >= 0 && column >= 0 && column < args.columns ? column : -1;
}

__device__ inline const float *ls_distill_sums_at(const ls_cuda_distill &args, int64_t n) {
  return static_cast<const float *>(args.sums.data) + n * args.sums.stride;
}

template <class T>
__device__ inline void ls_distill_sum_rows(const ls_cuda_distill &args) {
  const float inverse = static_cast<float>(args.inverse);
  for (int64_t n = blockIdx.x; n < args.rows; n += gridDim.x) {
    const T *row = ls_row_of<T>(args.logits, n), *its = ls_row_of<T>(args.its, n);
    const float largest = args.largest[n], its_largest = args.its_largest[n];
    float sums[LS_OF_ALL] = {};
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * LS_CUDA_PACK; c < args.columns;
         c += static_cast<int64_t>(blockDim.x) * LS_CUDA_PACK) {
      const int count = ls_at_most_pack(args.columns - c);
      const ls_pack own = ls_load(row + c, count, args.wide);
      const ls_pack other = ls_load(its + c, count, args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++) {
        if (i >= count) continue;
        const float below = own.at[i] - largest, its_below = other.at[i] - its_largest;
        const float share = ls_exp<ls_is_narrow<T>>(inverse * its_below);
        sums[LS_OF_EXP] += ls_exp<ls_is_narrow<T>>(below);
        sums[LS_OF_SOFT] += ls_exp<ls_is_narrow<T>>(inverse * below);
        sums[LS_OF_TEACHER] += share;
        sums[LS_OF_APART] += share * inverse * (its_below - below);
      }
    }
    const int64_t target = ls_distill_target(args, args.labels[n]);
#pragma unroll
    for (int s = 0; s < LS_OF_ALL; s++) {
      float sum = 0;
      if (s != LS_OF_TARGET) sum = ls_block_sum(sums[s]);
      if (s == LS_OF_TARGET && target >= 0) sum = ls_widen(row[target]);
      if (threadIdx.x == 0) ls_put_any(args.out, n * args.out.stride + s, sum);
    }
  }
}

// The gradient may be the logits' memory: a thread reads its eight before it writes them.
template <class T>
__device__ inline void ls_distill_grad_rows(const ls_cuda_distill &args) {
  const float inverse = static_cast<float>(args.inverse);
  const float hard = static_cast<float>(*args.scale * (1 - args.share));
  const float soft = static_cast<float>(*args.scale * args.share / args.inverse);
  for (int64_t n = blockIdx.x; n < args.rows; n += gridDim.x) {
    const T *row = ls_row_of<T>(args.logits, n), *its = ls_row_of<T>(args.its, n);
    T *to = ls_row_of<T>(args.out, n);
    const bool counts = args.labels[n] >= 0;
    const int64_t target = ls_distill_target(args, args.labels[n]);
    const float largest = args.largest[n], its_largest = args.its_largest[n];
    const float *sums = ls_distill_sums_at(args, n);
    const float all = 1 / sums[LS_OF_EXP], softened = 1 / sums[LS_OF_SOFT];
    const float teacher = 1 / sums[LS_OF_TEACHER];
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * LS_CUDA_PACK; c < args.out.stride;
         c += static_cast<int64_t>(blockDim.x) * LS_CUDA_PACK) {
      const int count = counts ? ls_at_most_pack(args.columns - c) : 0;
      ls_pack own = ls_load(row + c, count, args.wide);
      const ls_pack other = ls_load(its + c, count, args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++) {
        const float below = own.at[i] - largest, its_below = other.at[i] - its_largest;
        const float share =
            ls_exp<ls_is_narrow<T>>(below) * all - static_cast<float>(c + i == target);
        const float more = ls_exp<ls_is_narrow<T>>(inverse * below) * softened -
                           ls_exp<ls_is_narrow<T>>(inverse * its_below) * teacher;
        own.at[i] = i < count ? hard * share + soft * more : 0;
      }
      ls_store(to + c, own, ls_at_most_pack(args.out.stride - c), args.wide, args.out.add);
    }
  }
}

template <class T>
__device__ inline void ls_distill_top_sum_rows(const ls_cuda_distill &args) {
  const float inverse = static_cast<float>(args.inverse);
  for (int64_t n = blockIdx.x; n < args.rows; n += gridDim.x) {
    const T *row = ls_row_of<T>(args.logits, n);
    const float largest = args.largest[n];
    float sums[LS_OF_ALL] = {};
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * LS_CUDA_PACK; c < args.columns;
         c += static_cast<int64_t>(blockDim.x) * LS_CUDA_PACK) {
      const int count = ls_at_most_pack(args.columns - c);
      const ls_pack own = ls_load(row + c, count, args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++) {
        if (i >= count) continue;
        const float below = own.at[i] - largest;
        sums[LS_OF_EXP] += ls_exp<ls_is_narrow<T>>(below);
        sums[LS_OF_SOFT] += ls_exp<ls_is_narrow<T>>(inverse * below);
      }
    }
    for (int64_t j = threadIdx.x; j < args.top; j += blockDim.x) {
      const int64_t column = ls_distill_target(args, args.ids[n * args.top + j]);
      if (column < 0) continue;
      const float below = ls_widen(row[column]) - largest, its_below = args.below[n * args.top + j];
      const float share = ls_exp<ls_is_narrow<T>>(inverse * its_below);
      sums[LS_OF_TEACHER] += share;
      sums[LS_OF_APART] += share * inverse * (its_below - below);
    }
    const int64_t target = ls_distill_target(args, args.labels[n]);
#pragma unroll
    for (int s = 0; s < LS_OF_ALL; s++) {
      float sum = 0;
      if (s != LS_OF_TARGET) sum = ls_block_sum(sums[s]);
      if (s == LS_OF_TARGET && target >= 0) sum = ls_widen(row[target]);
      if (threadIdx.x == 0) ls_put_any(args.out, n * args.out.stride + s, sum);
    }
  }
}

// Of ascending ids the first that is at least `id`.
__device__ inline int64_t ls_distill_first(const int32_t *ids, int64_t count, int64_t id) {
  int64_t low = 0;
  while (low < count) {
    const int64_t middle = low + (count - low) / 2;
    if (ids[middle] < id)
      low = middle + 1;
    else
      count = middle;
  }
  return low;
}

template <class T>
__device__ inline void ls_distill_top_grad_rows(const ls_cuda_distill &args) {
  const float inverse = static_cast<float>(args.inverse);
  const float hard = static_cast<float>(*args.scale * (1 - args.share));
  const float soft = static_cast<float>(*args.scale * args.share / args.inverse);
  for (int64_t n = blockIdx.x; n < args.rows; n += gridDim.x) {
    const T *row = ls_row_of<T>(args.logits, n);
    T *to = ls_row_of<T>(args.out, n);
    const bool counts = args.labels[n] >= 0;
    const int64_t target = ls_distill_target(args, args.labels[n]);
    const int32_t *ids = args.ids + n * args.top;
    const float *its_below = args.below + n * args.top;
    const float largest = args.largest[n], *sums = ls_distill_sums_at(args, n);
    const float all = 1 / sums[LS_OF_EXP], softened = 1 / sums[LS_OF_SOFT];
    const float teacher = 1 / sums[LS_OF_TEACHER];
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * LS_CUDA_PACK; c < args.out.stride;
         c += static_cast<int64_t>(blockDim.x) * LS_CUDA_PACK) {
      const int count = counts ? ls_at_most_pack(args.columns - c) : 0;
      int64_t at = ls_distill_first(ids, args.top, args.start + c);
      ls_pack own = ls_load(row + c, count, args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++) {
        const float below = own.at[i] - largest;
        float its = 0;
        if (at < args.top && ids[at] == args.start + c + i)
          its = ls_exp<ls_is_narrow<T>>(inverse * its_below[at++]) * teacher;
        const float share =
            ls_exp<ls_is_narrow<T>>(below) * all - static_cast<float>(c + i == target);
        const float more = ls_exp<ls_is_narrow<T>>(inverse * below) * softened - its;
        own.at[i] = i < count ? hard * share + soft * more : 0;
      }
      ls_store(to + c, own, ls_at_most_pack(args.out.stride - c), args.wide, args.out.add);
    }
  }
}

LS_KERNELS(ls_distill_sum, ls_cuda_distill, 512, ls_distill_sum_rows)
LS_KERNELS(ls_distill_grad, ls_cuda_distill, 512, ls_distill_grad_rows)
LS_KERNELS(ls_distill_top_sum, ls_cuda_distill, 512, ls_distill_top_sum_rows)
LS_KERNELS(ls_distill_top_grad, ls_cuda_distill, 512, ls_distill_top_grad_rows)

// The loss, and what it is made of: one block, in double.
LS_KERNEL(ls_distill_loss, ls_cuda_distill, 512) {
  double all = 0, apart = 0;
  for (int64_t n = threadIdx.x; n < args.rows; n += blockDim.x) {
    if (args.labels[n] < 0) continue;
    const float *sums = ls_distill_sums_at(args, n);
    const double teacher = static_cast<double>(sums[LS_OF_TEACHER]);
    all += log(static_cast<double>(sums[LS_OF_EXP])) + static_cast<double>(args.largest[n]) -
           static_cast<double>(sums[LS_OF_TARGET]);
    apart += static_cast<double>(sums[LS_OF_APART]) / teacher - log(teacher) +
             log(static_cast<double>(sums[LS_OF_SOFT]));
  }
  all = ls_block_sum(all);
  apart = ls_block_sum(apart);
  if (threadIdx.x > 0) return;
  ls_put_cell(args.cells[0],
              (1 - args.share) * all + args.share / (args.inverse * args.inverse) * apart,
              args.add[0]);
  ls_put_cell(args.cells[1], all, args.add[1]);
  ls_put_cell(args.cells[2], apart, args.add[2]);
}
