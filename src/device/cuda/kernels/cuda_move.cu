// Moving rows: between types, between slices of one tensor; and the sum of what ranks have.
#include "device/cuda/kernels/cuda_device.cuh"

// Rows converted, and added where that is asked; zeros behind the columns that there are.
LS_KERNEL(ls_convert_rows, ls_cuda_move, 256) {
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y)
    for (int64_t c = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * LS_CUDA_PACK;
         c < args.stored; c += static_cast<int64_t>(gridDim.x) * blockDim.x * LS_CUDA_PACK) {
      const ls_pack pack = ls_load_any(args.in, row * args.in.stride + c,
                                       ls_at_most_pack(args.columns - c), args.wide);
      ls_store_any(args.out, row * args.out.stride + c, pack, ls_at_most_pack(args.stored - c),
                   args.wide);
    }
}

// Rows of bytes as they are, whatever they hold; counts and strides are bytes, 16 at once.
LS_KERNEL(ls_copy_rows, ls_cuda_move, 256) {
  enum { BYTES = sizeof(ls_words) };
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y)
    for (int64_t c = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * BYTES;
         c < args.stored; c += static_cast<int64_t>(gridDim.x) * blockDim.x * BYTES) {
      const unsigned char *from = ls_row_of<unsigned char>(args.in, row) + c;
      unsigned char *to = ls_row_of<unsigned char>(args.out, row) + c;
      if (args.wide && c + BYTES <= args.columns) {
        *reinterpret_cast<ls_words *>(to) = *reinterpret_cast<const ls_words *>(from);
        continue;
      }
      for (int64_t i = 0; i < BYTES && c + i < args.stored; i++)
        to[i] = c + i < args.columns ? from[i] : 0;
    }
}

// Added in rank order, in fp32, and rounded once, as the engines of the host do. A NaN stays the
// largest.
template <class T>
__device__ inline void ls_rank_sum_of(const ls_cuda_rank_sum &args) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x * LS_CUDA_PACK;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * LS_CUDA_PACK;
       i < args.count; i += step) {
    const int count = ls_at_most_pack(args.count - i);
    ls_pack sum = ls_load(static_cast<const T *>(args.in[0]) + i, count, args.wide);
    for (int r = 1; r < args.ranks; r++) {
      const ls_pack more = ls_load(static_cast<const T *>(args.in[r]) + i, count, args.wide);
      for (int e = 0; e < LS_CUDA_PACK; e++)
        sum.at[e] = args.largest ? ls_larger(more.at[e], sum.at[e]) : sum.at[e] + more.at[e];
    }
    ls_store(static_cast<T *>(args.out.data) + i, sum, count, args.wide, args.out.add);
  }
}

LS_KERNELS(ls_rank_sum, ls_cuda_rank_sum, 256, ls_rank_sum_of)

LS_KERNEL(ls_rank_sum_fp64, ls_cuda_rank_sum, 256) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.count;
       i += step) {
    double sum = static_cast<const double *>(args.in[0])[i];
    for (int r = 1; r < args.ranks; r++) {
      const double more = static_cast<const double *>(args.in[r])[i];
      sum = !args.largest ? sum + more : more > sum || more != more ? more : sum;
    }
    ls_put_cell(static_cast<double *>(args.out.data) + i, sum, args.out.add);
  }
}
