// Rotary positions: column i of a head's turned columns is paired with column i + half, or column
// 2i with column 2i + 1.
#include "device/cuda/kernels/cuda_device.cuh"

// In double, since angles are positions times frequencies: a thousand turns at fp32 lose the place.
LS_KERNEL(ls_rope_table, ls_cuda_rope_table, 256) {
  const int64_t total = args.rows * args.count;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < total;
       at += step) {
    const int64_t row = at / args.count;
    const int i = static_cast<int>(at % args.count);
    const double angle = static_cast<double>(args.positions[row]) * args.frequencies[i];
    const int64_t place = row * args.out.stride + args.first + i;
    ls_put_any(args.out, place, static_cast<float>(args.scale * cos(angle)));
    ls_put_any(args.out, place + args.half, static_cast<float>(args.scale * sin(angle)));
  }
}

__device__ inline void ls_turn(float *a, float *b, float cosine, float sine) {
  const float before = *a;
  *a = before * cosine - *b * sine;
  *b = *b * cosine + before * sine;
}

// Eight columns of a head that are not turned, of those before and behind the turned ones.
template <class T>
__device__ inline void ls_rope_rest(const ls_cuda_rope &args, int pack, const T *from, T *to) {
  const int before = (args.first + LS_CUDA_PACK - 1) / LS_CUDA_PACK;
  const bool behind = pack >= before;
  const int64_t end = behind ? args.head_dim : args.first;
  const int64_t c =
      behind ? args.first + 2 * args.half + (pack - before) * LS_CUDA_PACK : pack * LS_CUDA_PACK;
  const int count = ls_at_most_pack(end - c);
  ls_store(to + c, ls_load(from + c, count, args.wide), count, args.wide, args.y.add);
}

// Turns the heads of a row. The output may be the input's memory: a thread reads both packs of its
// pairs before it writes them. Pairs are of two halves, or columns side by side.
template <class T, bool BESIDE>
__device__ inline void ls_rope_rows(const ls_cuda_rope &args) {
  const int turned = static_cast<int>((args.half + LS_CUDA_PACK - 1) / LS_CUDA_PACK);
  const int packs = args.packs;
  const int all = static_cast<int>(args.heads) * packs;
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x)
    for (int at = threadIdx.x; at < all; at += blockDim.x) {
      const int64_t head = at / packs * args.head_dim;
      const int pack = at % packs;
      const T *from = ls_row_of<T>(args.x, row) + head;
      T *to = ls_row_of<T>(args.y, row) + head;
      if (pack >= turned) {
        ls_rope_rest(args, pack - turned, from, to);
        continue;
      }
      const int64_t c = pack * LS_CUDA_PACK;
      const int count = ls_at_most_pack(args.half - c);
      const float *table = ls_row_of<float>(args.table, row);
      const ls_pack cosine = ls_load(table + c, count, args.wide);
      const ls_pack sine = ls_load(table + args.half + c, count, args.wide);
      const int64_t low = args.first + (BESIDE ? 2 * c : c);
      const int64_t high = low + (BESIDE ? int64_t{LS_CUDA_PACK} : args.half);
      const int lows = BESIDE ? ls_at_most_pack(2 * (args.half - c)) : count;
      const int highs = BESIDE ? ls_at_most_pack(2 * (args.half - c) - LS_CUDA_PACK) : count;
      ls_pack pair[2] = {ls_load(from + low, lows, args.wide),
                         ls_load(from + high, highs, args.wide)};
#pragma unroll
      for (int i = 0; i < LS_CUDA_PACK; i++) {
        const float x = cosine.at[i], y = args.direction * sine.at[i];
        if (BESIDE)
          ls_turn(&pair[i / 4].at[i % 4 * 2], &pair[i / 4].at[i % 4 * 2 + 1], x, y);
        else
          ls_turn(&pair[0].at[i], &pair[1].at[i], x, y);
      }
      ls_store(to + low, pair[0], lows, args.wide, args.y.add);
      ls_store(to + high, pair[1], highs, args.wide, args.y.add);
    }
}

template <class T>
__device__ void ls_rope_halves(const ls_cuda_rope &a) {
  ls_rope_rows<T, false>(a);
}
template <class T>
__device__ void ls_rope_beside(const ls_cuda_rope &a) {
  ls_rope_rows<T, true>(a);
}

LS_KERNELS(ls_rope, ls_cuda_rope, 256, ls_rope_halves)
LS_KERNELS(ls_rope_beside, ls_cuda_rope, 256, ls_rope_beside)
