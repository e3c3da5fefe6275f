// Rows of a table by token, and the sums of gradients by row. The sums have one order, that of
// tokens: each row has a list of its tokens, and one block of threads follows it.
#include "device/cuda/kernels/cuda_device.cuh"

template <class T>
__device__ inline void ls_embedding_rows(const ls_cuda_embedding &args) {
  for (int64_t n = blockIdx.x; n < args.tokens; n += gridDim.x) {
    const int64_t place = args.ids[n] - args.start;
    const bool here = place >= 0 && place < args.table_rows;
    T *to = ls_row_of<T>(args.out, n);
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * LS_CUDA_PACK; c < args.out.stride;
         c += static_cast<int64_t>(blockDim.x) * LS_CUDA_PACK) {
      ls_pack pack = {};
      if (here)
        pack = ls_load(ls_row_of<T>(args.table, place) + c, ls_at_most_pack(args.columns - c),
                       args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++) pack.at[i] *= args.scale;
      ls_store(to + c, pack, ls_at_most_pack(args.out.stride - c), args.wide, args.out.add);
    }
  }
}

LS_KERNEL(ls_embedding_clear, ls_cuda_embedding, 256) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       row < args.table_rows; row += step)
    args.first[row] = -1;
  for (int64_t n = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; n < args.tokens;
       n += step)
    args.next[n] = -1;
}

// A thread for each token looks back for the last one of the same row, 256 tokens at a time, and
// puts its own behind that, or at the list's head. No two write one place.
LS_KERNEL(ls_embedding_lists, ls_cuda_embedding, 256) {
  LS_SHARED(int32_t, ids, 256);
  const int64_t n = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  const int64_t place = n < args.tokens ? args.ids[n] - args.start : -1;
  bool looking = place >= 0 && place < args.table_rows;
  const int32_t own = looking ? args.ids[n] : 0;
  for (int64_t tile = blockIdx.x; tile >= 0; tile--) {
    if (!__syncthreads_or(looking)) break;
    const int64_t at = tile * 256 + threadIdx.x;
    ids[threadIdx.x] = at < args.tokens ? args.ids[at] : -1;
    __syncthreads();
    const int before = tile == blockIdx.x ? static_cast<int>(threadIdx.x) : 256;
    for (int i = before - 1; looking && i >= 0; i--) {
      if (ids[i] != own) continue;
      args.next[tile * 256 + i] = static_cast<int32_t>(n);
      looking = false;
    }
  }
  if (looking) args.first[place] = static_cast<int32_t>(n);
}

// `table` is the gradient of the rows that were taken, `out` that of the table.
template <class T>
__device__ inline void ls_embedding_sums(const ls_cuda_embedding &args) {
  for (int64_t row = blockIdx.x; row < args.stored_rows; row += gridDim.x) {
    const int32_t first = row < args.table_rows ? args.first[row] : -1;
    if (first < 0 && args.out.add) continue;
    for (int64_t c = static_cast<int64_t>(threadIdx.x) * LS_CUDA_PACK; c < args.out.stride;
         c += static_cast<int64_t>(blockDim.x) * LS_CUDA_PACK) {
      ls_pack sums = {};
      const int count = ls_at_most_pack(args.columns - c);
      for (int32_t n = first; n >= 0; n = args.next[n]) {
        const ls_pack pack = ls_load(ls_row_of<T>(args.table, n) + c, count, args.wide);
        for (int i = 0; i < LS_CUDA_PACK; i++) sums.at[i] += args.scale * pack.at[i];
      }
      ls_store_any(args.out, row * args.out.stride + c, sums, ls_at_most_pack(args.out.stride - c),
                   args.wide);
    }
  }
}

LS_KERNELS(ls_embedding, ls_cuda_embedding, 256, ls_embedding_rows)
LS_KERNELS(ls_embedding_dw, ls_cuda_embedding, 256, ls_embedding_sums)
