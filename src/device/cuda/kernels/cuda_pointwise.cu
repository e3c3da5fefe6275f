// Functions of one element, or of elements at one place. Padding is zero and each function here
// takes zero to zero, so tensors are taken as one run of elements. An output may be an input's
// memory: a thread reads its eight before it writes them.
#include "device/cuda/kernels/cuda_device.cuh"

// gelu_new and the exact gelu (Hendrycks and Gimpel, 2016), as in the reference.
constexpr float LS_ROOT_TWO_OVER_PI = 0.79788456080286535588f;
constexpr float LS_ROOT_HALF = 0.70710678118654752440f;
constexpr float LS_INVERSE_ROOT_TWO_PI = 0.39894228040143267794f;
constexpr float LS_CUBIC = 0.044715f;

// The activation at x (an ls_activation); *slope takes its derivative there.
template <bool NARROW>
__device__ inline float ls_activate(int which, float x, float *slope) {
  if (which == 0) {  // silu
    const float share = ls_divide<NARROW>(1, 1 + ls_exp<NARROW>(-x));
    *slope = share * (1 + x * (1 - share));
    return x * share;
  }
  if (which == 1) {  // gelu_tanh
    const float inner = ls_tanh<NARROW>(LS_ROOT_TWO_OVER_PI * (x + LS_CUBIC * x * x * x));
    const float inner_slope =
        (1 - inner * inner) * LS_ROOT_TWO_OVER_PI * (1 + 3 * LS_CUBIC * x * x);
    *slope = 0.5f * (1 + inner) + 0.5f * x * inner_slope;
    return 0.5f * x * (1 + inner);
  }
  if (which == 3) {  // relu
    *slope = x > 0 ? 1 : 0;
    return x > 0 ? x : 0;
  }
  const float normal = 0.5f * (1 + erff(x * LS_ROOT_HALF));
  *slope = normal + x * LS_INVERSE_ROOT_TWO_PI * ls_exp<NARROW>(-0.5f * x * x);
  return x * normal;
}

struct ls_add_function {
  static constexpr int inputs = 2, outputs = 1;
  template <bool NARROW>
  __device__ static void at(const ls_cuda_pointwise &, const float *in, float *out) {
    out[0] = in[0] + in[1];
  }
};

struct ls_scale_function {
  static constexpr int inputs = 1, outputs = 1;
  template <bool NARROW>
  __device__ static void at(const ls_cuda_pointwise &args, const float *in, float *out) {
    out[0] = args.number * in[0];
  }
};

struct ls_gelu_function {
  static constexpr int inputs = 1, outputs = 1;
  template <bool NARROW>
  __device__ static void at(const ls_cuda_pointwise &args, const float *in, float *out) {
    float slope;
    out[0] = ls_activate<NARROW>(args.activation, in[0], &slope);
  }
};

struct ls_gelu_bwd_function {
  static constexpr int inputs = 2, outputs = 1;
  template <bool NARROW>
  __device__ static void at(const ls_cuda_pointwise &args, const float *in, float *out) {
    float slope;
    ls_activate<NARROW>(args.activation, in[1], &slope);
    out[0] = in[0] * slope;
  }
};

struct ls_swiglu_function {
  static constexpr int inputs = 2, outputs = 1;
  template <bool NARROW>
  __device__ static void at(const ls_cuda_pointwise &args, const float *in, float *out) {
    float slope;
    out[0] = ls_activate<NARROW>(args.activation, in[0], &slope) * in[1];
  }
};

struct ls_swiglu_bwd_function {
  static constexpr int inputs = 3, outputs = 2;
  template <bool NARROW>
  __device__ static void at(const ls_cuda_pointwise &args, const float *in, float *out) {
    float slope;
    const float gate = ls_activate<NARROW>(args.activation, in[1], &slope);
    out[0] = in[0] * in[2] * slope;
    out[1] = in[0] * gate;
  }
};

struct ls_softcap_function {
  static constexpr int inputs = 1, outputs = 1;
  template <bool NARROW>
  __device__ static void at(const ls_cuda_pointwise &args, const float *in, float *out) {
    out[0] = args.number * tanhf(in[0] / args.number);
  }
};

// From the output: the derivative of tanh is 1 - tanh^2.
struct ls_softcap_bwd_function {
  static constexpr int inputs = 2, outputs = 1;
  template <bool NARROW>
  __device__ static void at(const ls_cuda_pointwise &args, const float *in, float *out) {
    const float share = in[1] / args.number;
    out[0] = in[0] * (1 - share * share);
  }
};

template <class T, class FUNCTION>
__device__ inline void ls_pointwise(const ls_cuda_pointwise &args) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x * LS_CUDA_PACK;
  int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * LS_CUDA_PACK;
  for (; i < args.count; i += step) {
    const int count = ls_at_most_pack(args.count - i);
    ls_pack in[FUNCTION::inputs], out[FUNCTION::outputs];
#pragma unroll
    for (int k = 0; k < FUNCTION::inputs; k++)
      in[k] = ls_load(static_cast<const T *>(args.in[k].data) + i, count, args.wide);
#pragma unroll
    for (int e = 0; e < LS_CUDA_PACK; e++) {
      float from[FUNCTION::inputs], to[FUNCTION::outputs];
      for (int k = 0; k < FUNCTION::inputs; k++) from[k] = in[k].at[e];
      FUNCTION::template at<ls_is_narrow<T>>(args, from, to);
      for (int k = 0; k < FUNCTION::outputs; k++) out[k].at[e] = to[k];
    }
#pragma unroll
    for (int k = 0; k < FUNCTION::outputs; k++)
      ls_store(static_cast<T *>(args.out[k].data) + i, out[k], count, args.wide, args.out[k].add);
  }
}

template <class T>
__device__ void ls_add_of(const ls_cuda_pointwise &a) {
  ls_pointwise<T, ls_add_function>(a);
}
template <class T>
__device__ void ls_scale_of(const ls_cuda_pointwise &a) {
  ls_pointwise<T, ls_scale_function>(a);
}
template <class T>
__device__ void ls_gelu_of(const ls_cuda_pointwise &a) {
  ls_pointwise<T, ls_gelu_function>(a);
}
template <class T>
__device__ void ls_gelu_bwd_of(const ls_cuda_pointwise &a) {
  ls_pointwise<T, ls_gelu_bwd_function>(a);
}
template <class T>
__device__ void ls_swiglu_of(const ls_cuda_pointwise &a) {
  ls_pointwise<T, ls_swiglu_function>(a);
}
template <class T>
__device__ void ls_swiglu_bwd_of(const ls_cuda_pointwise &a) {
  ls_pointwise<T, ls_swiglu_bwd_function>(a);
}
template <class T>
__device__ void ls_softcap_of(const ls_cuda_pointwise &a) {
  ls_pointwise<T, ls_softcap_function>(a);
}
template <class T>
__device__ void ls_softcap_bwd_of(const ls_cuda_pointwise &a) {
  ls_pointwise<T, ls_softcap_bwd_function>(a);
}

// Gates beside their ups, both within a limit: gate sigmoid(slope gate) (up + 1).
struct ls_glu_pair {
  float gate, up, share;
};

template <bool NARROW>
__device__ inline ls_glu_pair ls_glu_pair_of(const ls_cuda_pointwise &args, const float *x) {
  ls_glu_pair of;
  of.gate = x[0] > args.number ? args.number : x[0];
  of.up = x[1] > args.number ? args.number : x[1] < -args.number ? -args.number : x[1];
  of.share = ls_divide<NARROW>(1, 1 + ls_exp<NARROW>(-args.slope * of.gate));
  return of;
}

// Eight of what is made for sixteen of x: BODY(pairs, made, count) of a thread's share.
template <class T, class BODY>
__device__ inline void ls_each_pairs(const ls_cuda_pointwise &args, const void *x, BODY body) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x * LS_CUDA_PACK;
  int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * LS_CUDA_PACK;
  for (; i < args.count; i += step) {
    const int count = ls_at_most_pack(args.count - i);
    ls_pack pairs[2];
#pragma unroll
    for (int k = 0; k < 2; k++)
      pairs[k] = ls_load(static_cast<const T *>(x) + 2 * i + k * LS_CUDA_PACK,
                         ls_at_most_pack(2 * (args.count - i) - k * LS_CUDA_PACK), args.wide);
    body(i, count, pairs);
  }
}

template <class T>
__device__ inline void ls_paired_glu_of(const ls_cuda_pointwise &args) {
  ls_each_pairs<T>(args, args.in[0].data, [&](int64_t i, int count, ls_pack(&pairs)[2]) {
    ls_pack made;
#pragma unroll
    for (int e = 0; e < LS_CUDA_PACK; e++) {
      const ls_glu_pair of = ls_glu_pair_of<ls_is_narrow<T>>(args, &pairs[e / 4].at[e % 4 * 2]);
      made.at[e] = of.gate * of.share * (of.up + 1);
    }
    ls_store(static_cast<T *>(args.out[0].data) + i, made, count, args.wide, args.out[0].add);
  });
}

// What is beyond a limit has no slope.
template <class T>
__device__ inline void ls_paired_glu_bwd_of(const ls_cuda_pointwise &args) {
  ls_each_pairs<T>(args, args.in[1].data, [&](int64_t i, int count, ls_pack(&pairs)[2]) {
    const ls_pack slope = ls_load(static_cast<const T *>(args.in[0].data) + i, count, args.wide);
#pragma unroll
    for (int e = 0; e < LS_CUDA_PACK; e++) {
      float *x = &pairs[e / 4].at[e % 4 * 2];
      const ls_glu_pair of = ls_glu_pair_of<ls_is_narrow<T>>(args, x);
      const float of_gate = of.share * (1 + args.slope * of.gate * (1 - of.share)) * (of.up + 1);
      x[0] = x[0] <= args.number ? slope.at[e] * of_gate : 0;
      x[1] = fabsf(x[1]) <= args.number ? slope.at[e] * of.gate * of.share : 0;
    }
#pragma unroll
    for (int k = 0; k < 2; k++)
      ls_store(static_cast<T *>(args.out[0].data) + 2 * i + k * LS_CUDA_PACK, pairs[k],
               ls_at_most_pack(2 * (args.count - i) - k * LS_CUDA_PACK), args.wide,
               args.out[0].add);
  });
}

LS_KERNELS(ls_paired_glu, ls_cuda_pointwise, 256, ls_paired_glu_of)
LS_KERNELS(ls_paired_glu_bwd, ls_cuda_pointwise, 256, ls_paired_glu_bwd_of)
LS_KERNELS(ls_add, ls_cuda_pointwise, 256, ls_add_of)
LS_KERNELS(ls_scale, ls_cuda_pointwise, 256, ls_scale_of)
LS_KERNELS(ls_gelu, ls_cuda_pointwise, 256, ls_gelu_of)
LS_KERNELS(ls_gelu_bwd, ls_cuda_pointwise, 256, ls_gelu_bwd_of)
LS_KERNELS(ls_swiglu, ls_cuda_pointwise, 256, ls_swiglu_of)
LS_KERNELS(ls_swiglu_bwd, ls_cuda_pointwise, 256, ls_swiglu_bwd_of)
LS_KERNELS(ls_softcap, ls_cuda_pointwise, 256, ls_softcap_of)
LS_KERNELS(ls_softcap_bwd, ls_cuda_pointwise, 256, ls_softcap_bwd_of)
