// Norms of rows that a warp holds in its registers: all of a row is on its way at once, and is read
// from memory once. For rows of whole packs in 16 bits, without padding; the others are
// cuda_rows.cu's.
#include "device/cuda/kernels/cuda_rows.cuh"

// A lane's packs of a row of at most 32 * PACKS * 8 columns, as they are stored.
template <int PACKS>
struct ls_held {
  ls_words words[PACKS];
};

__device__ inline int64_t ls_held_column(int lane, int pack) {
  return (static_cast<int64_t>(pack) * LS_CUDA_WARP + lane) * LS_CUDA_PACK;
}

template <class T, int PACKS>
__device__ inline ls_held<PACKS> ls_hold(const T *row, int lane, int64_t columns) {
  ls_held<PACKS> held;
#pragma unroll
  for (int p = 0; p < PACKS; p++) {
    const int64_t c = ls_held_column(lane, p);
    held.words[p] = c < columns ? *reinterpret_cast<const ls_words *>(row + c) : ls_words{};
  }
  return held;
}

template <class T>
__device__ inline ls_pack ls_widen_words(const ls_words &words) {
  ls_pack pack;
#pragma unroll
  for (int w = 0; w < 4; w++) ls_widen_two(&pack.at[2 * w], words.word[w], T{});
  return pack;
}

template <class T, ls_norm NORM, int PACKS>
__device__ inline void ls_held_forward(const ls_cuda_rows &args) {
  const ls_team team = ls_team_of(args);
  for (int64_t row = team.row; row < args.rows; row += team.step) {
    const ls_held<PACKS> x =
        ls_hold<T, PACKS>(ls_group_of<T>(args, args.in[0], row), team.thread, args.columns);
    float mean = 0, squares = 0;
    if (NORM == LS_NORM_LAYER) {
#pragma unroll
      for (int p = 0; p < PACKS; p++) {
        const ls_pack pack = ls_widen_words<T>(x.words[p]);
        for (int i = 0; i < LS_CUDA_PACK; i++) mean += pack.at[i];
      }
      mean = ls_warp_sum(mean) / static_cast<float>(args.columns);
    }
    if (NORM != LS_NORM_SCALE) {
#pragma unroll
      for (int p = 0; p < PACKS; p++) {
        if (ls_held_column(team.thread, p) >= args.columns) continue;
        const ls_pack pack = ls_widen_words<T>(x.words[p]);
        for (int i = 0; i < LS_CUDA_PACK; i++) squares += (pack.at[i] - mean) * (pack.at[i] - mean);
      }
      squares = ls_warp_sum(squares);
    } else {
      squares = static_cast<const float *>(args.in[2].data)[row];
    }
    const float inverse = ls_row_inverse(args, squares);
    const T *weight = static_cast<const T *>(args.in[1].data);
    T *y = ls_group_of<T>(args, args.out[0], row);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      const int64_t c = ls_held_column(team.thread, p);
      if (c >= args.columns) continue;
      ls_pack pack = ls_widen_words<T>(x.words[p]);
      const ls_pack by = ls_load(weight + c, LS_CUDA_PACK, true);
      for (int i = 0; i < LS_CUDA_PACK; i++)
        pack.at[i] = (pack.at[i] - mean) * inverse * (by.at[i] + args.offset);
      if (NORM == LS_NORM_LAYER) {
        const T *bias = static_cast<const T *>(args.in[2].data);
        const ls_pack more = bias ? ls_load(bias + c, LS_CUDA_PACK, true) : ls_pack{};
        for (int i = 0; i < LS_CUDA_PACK; i++) pack.at[i] += more.at[i];
      }
      ls_store(y + c, pack, LS_CUDA_PACK, true, args.out[0].add);
    }
    if (team.thread == 0) {
      if (NORM == LS_NORM_LAYER) ls_put_any(args.out[1], row, mean);
      if (NORM != LS_NORM_SCALE) ls_put_any(args.out[NORM == LS_NORM_LAYER ? 2 : 1], row, inverse);
    }
  }
}

template <class T, ls_norm NORM, int PACKS>
__device__ inline void ls_held_backward(const ls_cuda_rows &args) {
  const ls_team team = ls_team_of(args);
  const T *weight = static_cast<const T *>(args.in[2].data);
  for (int64_t row = team.row; row < args.rows; row += team.step) {
    const ls_held<PACKS> dy =
        ls_hold<T, PACKS>(ls_group_of<T>(args, args.in[0], row), team.thread, args.columns);
    const ls_held<PACKS> x =
        ls_hold<T, PACKS>(ls_group_of<T>(args, args.in[1], row), team.thread, args.columns);
    float mean, inverse, plain = 0, along = 0;
    ls_norm_statistics<NORM>(args, row, &mean, &inverse);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      const int64_t c = ls_held_column(team.thread, p);
      if (c >= args.columns) continue;
      const ls_pack slope = ls_widen_words<T>(dy.words[p]), from = ls_widen_words<T>(x.words[p]);
      const ls_pack by = ls_load(weight + c, LS_CUDA_PACK, true);
      for (int i = 0; i < LS_CUDA_PACK; i++) {
        const float g = slope.at[i] * (by.at[i] + args.offset);
        plain += g;
        along += g * (from.at[i] - mean) * inverse;
      }
    }
    along = ls_warp_sum(along);
    if (NORM == LS_NORM_LAYER) plain = ls_warp_sum(plain) / static_cast<float>(args.columns);
    if (NORM == LS_NORM_SCALE && team.thread == 0)
      ls_put_any(args.out[2], row, -0.5f * along * inverse * inverse / args.divisor);
    const float taken = NORM == LS_NORM_SCALE ? 0 : along / static_cast<float>(args.columns);
    const float level = NORM == LS_NORM_LAYER ? plain : 0;
    T *dx = ls_group_of<T>(args, args.out[0], row);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
      const int64_t c = ls_held_column(team.thread, p);
      if (c >= args.columns) continue;
      const ls_pack slope = ls_widen_words<T>(dy.words[p]), from = ls_widen_words<T>(x.words[p]);
      const ls_pack by = ls_load(weight + c, LS_CUDA_PACK, true);
      ls_pack out;
      for (int i = 0; i < LS_CUDA_PACK; i++) {
        const float unit = (from.at[i] - mean) * inverse;
        out.at[i] = (slope.at[i] * (by.at[i] + args.offset) - level - unit * taken) * inverse;
      }
      ls_store(dx + c, out, LS_CUDA_PACK, true, args.out[0].add);
    }
  }
}

#define LS_HELD(name, packs, norm, body)                \
  LS_KERNEL(name##_##packs##_bf16, ls_cuda_rows, 256) { \
    body<ls_bits_bf16, norm, packs>(args);              \
  }                                                     \
  LS_KERNEL(name##_##packs##_fp16, ls_cuda_rows, 256) { \
    body<ls_bits_fp16, norm, packs>(args);              \
  }
#define LS_HELD_SIZES(name, norm, body) \
  LS_HELD(name, 8, norm, body)          \
  LS_HELD(name, 16, norm, body)

LS_HELD_SIZES(ls_rmsnorm, LS_NORM_RMS, ls_held_forward)
LS_HELD_SIZES(ls_layernorm, LS_NORM_LAYER, ls_held_forward)
LS_HELD_SIZES(ls_row_scale, LS_NORM_SCALE, ls_held_forward)
LS_HELD_SIZES(ls_rmsnorm_bwd, LS_NORM_RMS, ls_held_backward)
LS_HELD_SIZES(ls_layernorm_bwd, LS_NORM_LAYER, ls_held_backward)
LS_HELD_SIZES(ls_row_scale_bwd, LS_NORM_SCALE, ls_held_backward)
