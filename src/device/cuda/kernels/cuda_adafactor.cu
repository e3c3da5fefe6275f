// Adafactor (device/reference/adafactor.c). What is factored lies in rows of a whole matrix, of
// which a rank has some: sums of rows are a warp's each, those of columns are made by parts of the
// rows and then added up in their order. Sums are fp32, squares that become one number fp64.
#include "device/cuda/kernels/cuda_device.cuh"

// How much of the mean was there before.
__device__ inline double ls_adafactor_decay(const ls_cuda_adafactor &args) {
  return 1 - pow(*args.step, -0.8);
}

// Eight elements of a row of the range, of which [skip, count) are the rank's; `at` is the first's
// place among the rank's, which may lie before them.
struct ls_adafactor_pack {
  int64_t at;
  int skip, count;
};

// Of row `row` of the range the elements from column `column` on, up to column `end`.
__device__ inline ls_adafactor_pack ls_adafactor_pack_of(const ls_cuda_adafactor &args, int64_t row,
                                                         int64_t column, int64_t end) {
  const int64_t at = row * args.stride + column - args.start, left = args.count - at;
  const int exist = ls_at_most_pack(end - column < left ? end - column : left);
  return {at, at < 0 ? ls_at_most_pack(-at) : 0, exist};
}

template <class LOAD>
__device__ inline ls_pack ls_adafactor_load(const ls_adafactor_pack &of, LOAD load) {
  if (of.skip == 0) return load(of.at, of.count);
  ls_pack pack = {};
#pragma unroll
  for (int i = 0; i < LS_CUDA_PACK; i++)
    if (i >= of.skip && i < of.count) pack.at[i] = load(of.at + i, 1).at[0];
  return pack;
}

__device__ inline ls_pack ls_adafactor_gradient(const ls_cuda_adafactor &args,
                                                const ls_adafactor_pack &of) {
  return ls_adafactor_load(
      of, [&](int64_t at, int count) { return ls_load_any(args.gradient, at, count, args.wide); });
}

__device__ inline ls_pack ls_adafactor_floats(const ls_cuda_adafactor &args, const float *from,
                                              const ls_adafactor_pack &of) {
  return ls_adafactor_load(
      of, [&](int64_t at, int count) { return ls_load(from + at, count, args.wide); });
}

// The sum of squares of each row of the whole: of its elements that the rank has.
LS_KERNEL(ls_adafactor_rows, ls_cuda_adafactor, 256) {
  const int warps = blockDim.x / LS_CUDA_WARP, lane = threadIdx.x % LS_CUDA_WARP;
  const float factor = static_cast<float>(*args.factor);
  for (int64_t r = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / LS_CUDA_WARP;
       r < args.rows; r += static_cast<int64_t>(gridDim.x) * warps) {
    const int64_t row = r - args.row;
    const bool here = row >= args.first && row < args.first + args.range_rows && factor != 0;
    float sum = 0;
    for (int64_t c = static_cast<int64_t>(lane) * LS_CUDA_PACK; here && c < args.range_columns;
         c += LS_CUDA_WARP * LS_CUDA_PACK) {
      const ls_adafactor_pack of = ls_adafactor_pack_of(args, row, c, args.range_columns);
      if (of.skip >= of.count) continue;
      const ls_pack pack = ls_adafactor_gradient(args, of);
#pragma unroll
      for (int i = 0; i < LS_CUDA_PACK; i++) {
        const float gradient = factor * pack.at[i];
        sum += gradient * gradient;
      }
    }
    sum = ls_warp_sum(sum);
    if (lane == 0) args.lines[r] = sum;
  }
}

// Sums of squares by column of the range: of each part of its rows, a lane's of eight columns.
LS_KERNEL(ls_adafactor_parts, ls_cuda_adafactor, 256) {
  constexpr int COLUMNS = LS_CUDA_WARP * LS_CUDA_PACK, WARPS = 256 / LS_CUDA_WARP;
  LS_SHARED(float, shared, WARPS *COLUMNS);
  const int lane = threadIdx.x % LS_CUDA_WARP, warp = threadIdx.x / LS_CUDA_WARP;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * COLUMNS, c = first + lane * LS_CUDA_PACK;
  const float factor = static_cast<float>(*args.factor);
  ls_pack sums = {};
  for (int64_t r = static_cast<int64_t>(blockIdx.y) * WARPS + warp;
       r < args.range_rows && factor != 0; r += static_cast<int64_t>(gridDim.y) * WARPS) {
    const ls_adafactor_pack of = ls_adafactor_pack_of(args, args.first + r, c, args.range_columns);
    if (of.skip >= of.count) continue;
    const ls_pack pack = ls_adafactor_gradient(args, of);
#pragma unroll
    for (int i = 0; i < LS_CUDA_PACK; i++) {
      const float gradient = factor * pack.at[i];
      sums.at[i] += gradient * gradient;
    }
  }
  ls_store(&shared[warp * COLUMNS + lane * LS_CUDA_PACK], sums, LS_CUDA_PACK, true, false);
  __syncthreads();
  const int64_t own = first + threadIdx.x;
  if (own >= args.range_columns) return;
  float sum = 0;
  for (int w = 0; w < WARPS; w++) sum += shared[w * COLUMNS + threadIdx.x];
  args.part_sums[blockIdx.y * args.range_columns + own] = sum;
}

LS_KERNEL(ls_adafactor_columns, ls_cuda_adafactor, 256) {
  for (int64_t c = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; c < args.columns;
       c += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t own = c - args.column;
    float sum = 0;
    for (int p = 0; own >= 0 && own < args.range_columns && p < args.part_count; p++)
      sum += args.part_sums[p * args.range_columns + own];
    args.lines[args.rows + c] = sum;
  }
}

LS_KERNEL(ls_adafactor_keep, ls_cuda_adafactor, 256) {
  const double decay = ls_adafactor_decay(args);
  if (*args.factor == 0) return;  // the gradients are not finite
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < args.rows + args.columns; i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const double others = static_cast<double>(i < args.rows ? args.columns : args.rows);
    const double mean = static_cast<double>(args.sums[i]) / others + 1e-30;
    args.lines[i] =
        static_cast<float>(decay * static_cast<double>(args.lines[i]) + (1 - decay) * mean);
  }
}

// The mean of the lines of rows, of one block.
LS_KERNEL(ls_adafactor_mean, ls_cuda_adafactor, 512) {
  double sum = 0;
  for (int64_t r = threadIdx.x; r < args.rows; r += blockDim.x)
    sum += static_cast<double>(args.lines[r]);
  sum = ls_block_sum(sum);
  if (threadIdx.x == 0) *args.mean = sum / static_cast<double>(args.rows);
}

// A block's share of the sums of squares: of what is made, and of the master weights.
__device__ inline void ls_adafactor_put(const ls_cuda_adafactor &args, double of_made,
                                        double of_masters) {
  of_made = ls_block_sum(of_made);
  of_masters = ls_block_sum(of_masters);
  if (threadIdx.x > 0) return;
  args.parts[blockIdx.x] = args.weight * of_made;
  args.parts[gridDim.x + blockIdx.x] = args.weight * of_masters;
}

__device__ inline double ls_adafactor_squares(const ls_pack &pack) {
  float squares = 0;
#pragma unroll
  for (int i = 0; i < LS_CUDA_PACK; i++) squares += pack.at[i] * pack.at[i];
  return static_cast<double>(squares);
}

LS_KERNEL(ls_adafactor_direction, ls_cuda_adafactor, 256) {
  const float factor = static_cast<float>(*args.factor), mean = static_cast<float>(*args.mean);
  const int64_t packs = (args.stride + LS_CUDA_PACK - 1) / LS_CUDA_PACK;
  double of_made = 0, of_masters = 0;
  for (int64_t p = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       p < args.range_rows * packs; p += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t row = args.first + p / packs, c = p % packs * LS_CUDA_PACK;
    const ls_adafactor_pack stored = ls_adafactor_pack_of(args, row, c, args.stride);
    const ls_adafactor_pack of = ls_adafactor_pack_of(args, row, c, args.range_columns);
    ls_pack made = {};
    if (factor != 0 && of.skip < of.count) {
      const float by = factor / sqrtf(args.lines[args.row + row] / mean);
      const ls_pack gradient = ls_adafactor_gradient(args, of);
      const ls_pack column = ls_load(args.lines + args.rows + args.column + c,
                                     ls_at_most_pack(args.range_columns - c), args.lines_wide);
#pragma unroll
      for (int i = 0; i < LS_CUDA_PACK; i++)
        if (i >= of.skip && i < of.count) made.at[i] = gradient.at[i] * by / sqrtf(column.at[i]);
      of_made += ls_adafactor_squares(made);
      of_masters += ls_adafactor_squares(ls_adafactor_floats(args, args.master, of));
    }
    if (stored.skip == 0) {
      ls_store(args.made + stored.at, made, stored.count, args.wide, false);
      continue;
    }
#pragma unroll
    for (int i = 0; i < LS_CUDA_PACK; i++)
      if (i >= stored.skip && i < stored.count) args.made[stored.at + i] = made.at[i];
  }
  ls_adafactor_put(args, of_made, of_masters);
}

// Calls BODY(first element, how many of eight) for a thread's share of what the rank has.
template <class BODY>
__device__ inline void ls_adafactor_each(const ls_cuda_adafactor &args, BODY body) {
  for (int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * LS_CUDA_PACK;
       at < args.count; at += static_cast<int64_t>(gridDim.x) * blockDim.x * LS_CUDA_PACK)
    body(at, ls_at_most_pack(args.count - at));
}

LS_KERNEL(ls_adafactor_second, ls_cuda_adafactor, 256) {
  const float decay = static_cast<float>(ls_adafactor_decay(args)), rest = 1 - decay;
  const float factor = static_cast<float>(*args.factor);
  if (factor == 0) return;
  ls_adafactor_each(args, [&](int64_t at, int count) {
    const ls_pack gradient = ls_load_any(args.gradient, at, count, args.wide);
    ls_pack squares = ls_load(args.state + at, count, args.wide);
    for (int i = 0; i < LS_CUDA_PACK; i++) {
      const float own = factor * gradient.at[i];
      squares.at[i] = decay * squares.at[i] + rest * (own * own + 1e-30f);
    }
    ls_store(args.state + at, squares, count, args.wide, false);
  });
}

LS_KERNEL(ls_adafactor_divide, ls_cuda_adafactor, 256) {
  const float factor = static_cast<float>(*args.factor);
  double of_made = 0, of_masters = 0;
  ls_adafactor_each(args, [&](int64_t at, int count) {
    ls_pack made = {};
    if (factor != 0) {
      const ls_pack gradient = ls_load_any(args.gradient, at, count, args.wide);
      const ls_pack squares = ls_load(args.lines + at, count, args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++)
        made.at[i] = i < count ? gradient.at[i] * factor / sqrtf(squares.at[i]) : 0;
      of_made += ls_adafactor_squares(made);
      of_masters += ls_adafactor_squares(ls_load(args.master + at, count, args.wide));
    }
    ls_store(args.made + at, made, count, args.wide, false);
  });
  ls_adafactor_put(args, of_made, of_masters);
}

LS_KERNEL(ls_adafactor, ls_cuda_adafactor, 256) {
  double rate = *args.rate * args.times;
  if (args.by_weights) rate *= fmax(1e-3, sqrt(*args.squares[1]));
  const float keep = static_cast<float>(1 - rate * args.weight_decay);
  const float along = static_cast<float>(rate / fmax(1.0, sqrt(*args.squares[0])));
  if (*args.factor == 0) return;
  ls_adafactor_each(args, [&](int64_t at, int count) {
    const ls_pack made = ls_load(args.sums + at, count, args.wide);
    ls_pack master = ls_load(args.state + at, count, args.wide);
    for (int i = 0; i < LS_CUDA_PACK; i++) master.at[i] = keep * master.at[i] - along * made.at[i];
    ls_store(args.state + at, master, count, args.wide, false);
  });
}
