// Muon (device/reference/muon.c): momentum, the matrix made of it nearly to its orthogonal factor,
// and that into the master weights. All in fp32:
// products are plain multiplication on tiles of 128 x 128, with matrices of any strides, so that of
// a tall one the turned one is taken as it lies.
#include "device/cuda/kernels/cuda_device.cuh"

// Calls BODY(element) for all that the rank has.
template <class BODY>
__device__ inline void ls_each_of_muon(const ls_cuda_muon &args, BODY body) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.elements;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    body(i);
}

LS_KERNEL(ls_muon_momentum, ls_cuda_muon, 256) {
  const bool left = *args.factor == 0;  // the gradients are not finite
  const float factor = static_cast<float>((1 - args.momentum) * *args.factor);
  const float momentum = static_cast<float>(args.momentum);
  ls_each_of_muon(args, [&](int64_t i) {
    args.matrix[i] = 0;
    if (left) return;
    const float gradient = factor * ls_load_any(args.gradient, i, 1, false).at[0];
    args.state[i] = momentum * args.state[i] + gradient;
    args.matrix[i] = gradient + momentum * args.state[i];
  });
}

LS_KERNEL(ls_muon, ls_cuda_muon, 256) {
  if (*args.factor == 0) return;
  const double rate = *args.rate * args.times;
  const float keep = static_cast<float>(1 - rate * args.weight_decay);
  const float along = static_cast<float>(rate * args.share);
  ls_each_of_muon(
      args, [&](int64_t i) { args.state[i] = keep * args.state[i] - along * args.matrix[i]; });
}

// The matrix over its norm, of which the square is in a cell.
LS_KERNEL(ls_muon_scale, ls_cuda_muon, 256) {
  const double norm = sqrt(*args.factor);
  const float inverse = static_cast<float>(1 / (norm > 1e-7 ? norm : 1e-7));
  ls_each_of_muon(args, [&](int64_t i) { args.state[i] = args.matrix[i] * inverse; });
}

enum { LS_MUON_TILE = 128, LS_MUON_DEPTH = 16, LS_MUON_THREADS = 256, LS_MUON_EACH = 8 };

// A tile's part of an operand, [depth, tile] in shared memory: zeros where there is none. Threads
// that follow each other take elements that do in memory.
__device__ inline void ls_muon_load(const ls_cuda_muon_operand &from, int64_t first, int64_t rows,
                                    int64_t k, int64_t depth, float *to) {
  for (int i = threadIdx.x; i < LS_MUON_TILE * LS_MUON_DEPTH; i += LS_MUON_THREADS) {
    const bool deep = from.along == 1;
    const int row = deep ? i / LS_MUON_DEPTH : i % LS_MUON_TILE;
    const int d = deep ? i % LS_MUON_DEPTH : i / LS_MUON_TILE;
    const bool here = first + row < rows && k + d < depth;
    to[d * (LS_MUON_TILE + 4) + row] =
        here ? from.data[(first + row) * from.apart + (k + d) * from.along] : 0;
  }
}

// out = alpha base + beta left right, of which a block has 128 x 128 and a thread 8 x 8.
LS_KERNEL(ls_muon_product, ls_cuda_muon_product, LS_MUON_THREADS) {
  LS_SHARED(float, left, LS_MUON_DEPTH *(LS_MUON_TILE + 4));
  LS_SHARED(float, right, LS_MUON_DEPTH *(LS_MUON_TILE + 4));
  constexpr int ACROSS = LS_MUON_TILE / LS_MUON_EACH;
  const int64_t row = static_cast<int64_t>(blockIdx.y) * LS_MUON_TILE;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * LS_MUON_TILE;
  const int own_row = threadIdx.x / ACROSS, own_column = threadIdx.x % ACROSS;
  float sums[LS_MUON_EACH][LS_MUON_EACH] = {};
  for (int64_t k = 0; k < args.depth; k += LS_MUON_DEPTH) {
    __syncthreads();  // the last part has been read
    ls_muon_load(args.left, row, args.rows, k, args.depth, left);
    ls_muon_load(args.right, column, args.columns, k, args.depth, right);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < LS_MUON_DEPTH; d++) {
      float a[LS_MUON_EACH], b[LS_MUON_EACH];
#pragma unroll
      for (int i = 0; i < LS_MUON_EACH; i++) {
        a[i] = left[d * (LS_MUON_TILE + 4) + own_row + i * ACROSS];
        b[i] = right[d * (LS_MUON_TILE + 4) + own_column + i * ACROSS];
      }
#pragma unroll
      for (int i = 0; i < LS_MUON_EACH; i++)
#pragma unroll
        for (int j = 0; j < LS_MUON_EACH; j++) sums[i][j] += a[i] * b[j];
    }
  }
#pragma unroll
  for (int i = 0; i < LS_MUON_EACH; i++)
#pragma unroll
    for (int j = 0; j < LS_MUON_EACH; j++) {
      const int64_t r = row + own_row + i * ACROSS, c = column + own_column + j * ACROSS;
      if (r >= args.rows || c >= args.columns) continue;
      const int64_t at = r * args.apart + c * args.along;
      const float before = args.base ? args.alpha * args.base[at] : 0;
      args.out[at] = before + args.beta * sums[i][j];
    }
}
