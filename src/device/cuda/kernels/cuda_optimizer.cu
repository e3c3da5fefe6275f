// Scaling, clipping and the optimizers. Only elements that exist are touched. What a step
// multiplies by is in cells, in device memory, so that a launch may be repeated for every step.
#include "device/cuda/kernels/cuda_device.cuh"

// Cells: kernels of one thread.
LS_KERNEL(ls_zero, ls_cuda_cells, 32) {
  if (threadIdx.x == 0) ls_put_cell(args.out[0], 0, args.add);
}

LS_KERNEL(ls_reciprocal, ls_cuda_cells, 32) {
  const double count = *args.in[0] > 0 ? *args.in[0] : 1.0;
  if (threadIdx.x == 0) ls_put_cell(args.out[0], *args.in[1] / count, args.add);
}

// PyTorch's clip_grad_norm_: min(1, clip / (norm + 1e-6)), of gradients without their scale; 0
// where the norm is not finite.
LS_KERNEL(ls_clip_factor, ls_cuda_cells, 32) {
  if (threadIdx.x > 0) return;
  const double scale = *args.in[3], norm = sqrt(*args.in[0]) / scale;
  const double mean_loss = *args.in[1] / *args.in[2], ratio = args.clip / (norm + 1e-6);
  const bool finite = norm - norm == 0;
  *args.out[0] = norm;
  *args.out[1] = finite ? (args.clip > 0 && ratio < 1 ? ratio : 1) / scale : 0;
  *args.out[2] = mean_loss;
}

// A block's share of the sum of squares. Eight squares are added in fp32, the rest in double: one
// addition of those for 16 or 32 bytes read.
LS_KERNEL(ls_square_parts, ls_cuda_squares, 512) {
  double sum = 0;
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y)
    for (int64_t c = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * LS_CUDA_PACK;
         c < args.columns; c += static_cast<int64_t>(gridDim.x) * blockDim.x * LS_CUDA_PACK) {
      const ls_pack pack = ls_load_any(args.in, row * args.in.stride + c,
                                       ls_at_most_pack(args.columns - c), args.wide);
      float squares = 0;
      for (int i = 0; i < LS_CUDA_PACK; i++) squares += pack.at[i] * pack.at[i];
      sum += static_cast<double>(squares);
    }
  sum = ls_block_sum(sum);
  if (threadIdx.x == 0) args.parts[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

LS_KERNEL(ls_square_sum, ls_cuda_squares, 512) {
  double sum = 0;
  for (int part = threadIdx.x; part < args.part_count; part += blockDim.x) sum += args.parts[part];
  sum = ls_block_sum(sum);
  if (threadIdx.x == 0) ls_put_cell(args.cell, args.weight * sum, args.add);
}

// What a step multiplies by, made once a block: of AdamW, or of the others.
struct ls_rates {
  float factor, keep, rate, second_root, share;
};

// Which moments are corrected for their zeros at the beginning.
enum { LS_CORRECTS_NONE, LS_CORRECTS_SECOND, LS_CORRECTS_BOTH };

// How much of the mean a step's fast weights are: the square of its learning rate in those so far,
// of which warm-up has parts of one.
__device__ inline double ls_share_of_mean(double warmup, double step) {
  if (step <= warmup) return 6 * step / ((step + 1) * (2 * step + 1));
  const double before = warmup > 0 ? (warmup + 1) * (2 * warmup + 1) / (6 * warmup) : 0;
  return 1 / (before + step - warmup);
}

__device__ inline void ls_make_rates(const ls_cuda_optimizer &args, int corrects, ls_rates *rates) {
  const double rate = *args.rate * args.times, step = *args.step;
  const bool first = corrects == LS_CORRECTS_BOTH, second = corrects != LS_CORRECTS_NONE;
  rates->factor = static_cast<float>(*args.factor);
  rates->keep = static_cast<float>(1 - rate * args.weight_decay);
  rates->rate = static_cast<float>(first ? rate / (1 - pow(args.beta1, step)) : rate);
  rates->second_root = second ? static_cast<float>(sqrt(1 - pow(args.beta2, step))) : 1;
  rates->share = static_cast<float>(ls_share_of_mean(args.warmup, step));
}

// PyTorch's AdamW (Loshchilov and Hutter, 2019): decay apart from the gradient.
__device__ inline float ls_adamw_element(const ls_cuda_optimizer &args, const ls_rates &by,
                                         float gradient, float master, float *first,
                                         float *second) {
  const float beta1 = static_cast<float>(args.beta1), beta2 = static_cast<float>(args.beta2);
  const float rest1 = static_cast<float>(1 - args.beta1);
  const float rest2 = static_cast<float>(1 - args.beta2);
  gradient *= by.factor;
  *first = beta1 * *first + rest1 * gradient;
  *second = beta2 * *second + rest2 * gradient * gradient;
  const float divisor = sqrtf(*second) / by.second_root + static_cast<float>(args.epsilon);
  return by.keep * master - by.rate * *first / divisor;
}

// PyTorch's SGD with momentum and no dampening; decay decoupled.
__device__ inline float ls_sgd_element(const ls_cuda_optimizer &args, const ls_rates &by,
                                       float gradient, float master, float *first, float *) {
  *first = static_cast<float>(args.beta1) * *first + by.factor * gradient;
  return by.keep * master - by.rate * *first;
}

// Lion (Chen et al., arXiv 2302.06675): the sign of a mean of momentum and gradient.
__device__ inline float ls_lion_element(const ls_cuda_optimizer &args, const ls_rates &by,
                                        float gradient, float master, float *first, float *) {
  gradient *= by.factor;
  const float mean =
      static_cast<float>(args.beta1) * *first + static_cast<float>(1 - args.beta1) * gradient;
  *first = static_cast<float>(args.beta2) * *first + static_cast<float>(1 - args.beta2) * gradient;
  return by.keep * master - (mean > 0 ? by.rate : mean < 0 ? -by.rate : 0.0f);
}

// Schedule-free AdamW (Defazio et al., arXiv 2405.15682): fast weights step from where the gradient
// is taken, and the master weights are their mean; `first` is what the fast are beyond it.
__device__ inline float ls_schedulefree_element(const ls_cuda_optimizer &args, const ls_rates &by,
                                                float gradient, float master, float *first,
                                                float *second) {
  const float own = static_cast<float>(1 - args.beta1);
  const float decay = static_cast<float>(args.weight_decay);
  gradient *= by.factor;
  *second = static_cast<float>(args.beta2) * *second +
            static_cast<float>(1 - args.beta2) * gradient * gradient;
  const float divisor = sqrtf(*second) / by.second_root + static_cast<float>(args.epsilon);
  const float point = master + own * *first;
  const float fast = *first - by.rate * (gradient / divisor + decay * point);
  *first = (1 - by.share) * fast;
  return master + by.share * fast;
}

typedef float ls_element(const ls_cuda_optimizer &args, const ls_rates &by, float gradient,
                         float master, float *first, float *second);

// All of a unit in one launch: state in place or, ahead, the weights that it would make.
template <ls_element *ELEMENT, int CORRECTS>
__device__ inline void ls_update(const ls_cuda_optimizer &args) {
  constexpr bool ADAM = CORRECTS != LS_CORRECTS_NONE;  // there are second moments
  LS_SHARED(ls_rates, rates, 1);
  if (threadIdx.x == 0) ls_make_rates(args, CORRECTS, rates);
  __syncthreads();
  const bool ahead = args.out.data != nullptr;
  if (rates->factor == 0 && !ahead) return;  // the gradients are not finite
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y)
    for (int64_t c = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * LS_CUDA_PACK;
         c < args.columns; c += static_cast<int64_t>(gridDim.x) * blockDim.x * LS_CUDA_PACK) {
      const int count = ls_at_most_pack(args.columns - c);
      const ls_pack gradient =
          ls_load_any(args.gradient, row * args.gradient.stride + c, count, args.wide);
      float *masters = ls_row_of<float>(args.master, row) + c;
      float *firsts = ls_row_of<float>(args.first, row) + c;
      float *seconds = ADAM ? ls_row_of<float>(args.second, row) + c : firsts;
      ls_pack master = ls_load(masters, count, args.wide),
              first = ls_load(firsts, count, args.wide);
      ls_pack second = ls_load(seconds, count, args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++)
        master.at[i] =
            ELEMENT(args, *rates, gradient.at[i], master.at[i], &first.at[i], &second.at[i]);
      if (ahead) {
        ls_store_any(args.out, row * args.out.stride + c, master, count, args.wide);
        continue;
      }
      ls_store(masters, master, count, args.wide, false);
      ls_store(firsts, first, count, args.wide, false);
      if (ADAM) ls_store(seconds, second, count, args.wide, false);
    }
}

LS_KERNEL(ls_adamw, ls_cuda_optimizer, 256) {
  ls_update<ls_adamw_element, LS_CORRECTS_BOTH>(args);
}
LS_KERNEL(ls_sgd, ls_cuda_optimizer, 256) {
  ls_update<ls_sgd_element, LS_CORRECTS_NONE>(args);
}
LS_KERNEL(ls_lion, ls_cuda_optimizer, 256) {
  ls_update<ls_lion_element, LS_CORRECTS_NONE>(args);
}
LS_KERNEL(ls_schedulefree, ls_cuda_optimizer, 256) {
  ls_update<ls_schedulefree_element, LS_CORRECTS_SECOND>(args);
}

// The weights that a gradient is taken at.
LS_KERNEL(ls_schedulefree_point, ls_cuda_optimizer, 256) {
  const float own = static_cast<float>(1 - args.beta1);
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y)
    for (int64_t c = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * LS_CUDA_PACK;
         c < args.columns; c += static_cast<int64_t>(gridDim.x) * blockDim.x * LS_CUDA_PACK) {
      const int count = ls_at_most_pack(args.columns - c);
      ls_pack pack = ls_load(ls_row_of<float>(args.master, row) + c, count, args.wide);
      const ls_pack first = ls_load(ls_row_of<float>(args.first, row) + c, count, args.wide);
      for (int i = 0; i < LS_CUDA_PACK; i++) pack.at[i] += own * first.at[i];
      ls_store_any(args.out, row * args.out.stride + c, pack, count, args.wide);
    }
}
