// Attention over caches, the same in all types (device/reference/attention.c). Rows of a cache may
// be dealt to ranks in turn: of `ranks` parts a device has some, and the row of a place is row
// place / ranks of part place % ranks.
#include "device/cuda/kernels/cuda_attention.cuh"

enum { LS_WIDE_PARTS = 640 / LS_CUDA_WARP };

// The new tokens' rows go to their places in the caches.
template <class T>
__device__ inline void ls_cache_rows(const ls_cuda_cached &args) {
  const int64_t columns = args.of.k.stride;
  for (int64_t n = blockIdx.x; n < args.of.tokens; n += gridDim.x) {
    const int place = args.places[n], row = place / args.ranks;
    const int part = place % args.ranks - args.number;
    if (place < 0 || part < 0 || part >= args.cache_parts || row >= args.part_rows) continue;
    const int64_t at = static_cast<int64_t>(part) * args.part_rows + row;
    for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
      ls_row_of<T>(args.cache_k, at)[c] = ls_row_of<T>(args.of.k, n)[c];
      ls_row_of<T>(args.cache_v, at)[c] = ls_row_of<T>(args.of.v, n)[c];
    }
  }
}

// Rows of a part of a cache that a query sees.
struct ls_cached_rows {
  int first, end;
};

__device__ inline ls_cached_rows ls_cached_rows_of(const ls_cuda_cached &args, int64_t n,
                                                   int number) {
  const int place = args.places[n], position = args.of.positions[n];
  if (place < 0) return {0, 0};
  const int first = place - position + ls_first_key(args.of, position, 0, 1);
  const int before = first - number, last = place - number;
  return {before <= 0 ? 0 : (before + args.ranks - 1) / args.ranks,
          last < 0 ? 0 : last / args.ranks + 1};
}

// Where the sums of a part of a query's keys lie.
__device__ inline float *ls_cached_sums(const ls_cuda_cached &args, int64_t n, int head, int part,
                                        int share) {
  const int64_t row = (part * args.of.tokens + n) * args.of.heads + head;
  return args.part_sums + (row * args.parts + share) * (args.of.head_dim + 2);
}

// A warp has a query, a head of at most 32 PARTS columns and a share of its keys in one part of the
// cache: the sums, the largest score and the sum of exponentials.
template <class T, int PARTS>
__device__ inline void ls_cached_share(const ls_cuda_cached &args) {
  const ls_cuda_attention &of = args.of;
  const int lane = threadIdx.x % LS_CUDA_WARP, head = static_cast<int>(blockIdx.y);
  const int share = static_cast<int>(blockIdx.z) % args.parts;
  const int part = static_cast<int>(blockIdx.z) / args.parts, number = args.number + part;
  const int64_t n = blockIdx.x, base = static_cast<int64_t>(part) * args.part_rows;
  const ls_cached_rows rows = ls_cached_rows_of(args, n, number);
  const int each = (rows.end - rows.first + args.parts - 1) / args.parts;
  const int first = rows.first + share * each;
  const int end = first + each < rows.end ? first + each : rows.end;
  const float by_distance = ls_distance_slope(of, head);
  const int64_t column = static_cast<int64_t>(head / of.per_kv_head) * of.head_dim;
  const T *q = ls_head_row<T>(of.q, n, static_cast<int64_t>(head) * of.head_dim);
  float sums[PARTS] = {}, largest = -INFINITY, sum = 0;
  for (int tile = first; tile < end; tile += LS_ROW_KEYS) {
    const int key = tile + lane;
    float score = -INFINITY, slope, product = 0;
    if (key < end) {
      const T *k = ls_head_row<T>(args.cache_k, base + key, column);
      for (int c = 0; c < of.head_dim; c += LS_CUDA_PACK) {
        const int some = ls_at_most_pack(of.head_dim - c);
        const ls_pack a = ls_load(q + c, some, of.wide), b = ls_load(k + c, some, of.wide);
        for (int i = 0; i < LS_CUDA_PACK; i++) product += a.at[i] * b.at[i];
      }
      const int distance = args.places[n] - (key * args.ranks + number);
      score = ls_score<false>(of, by_distance, product, distance, &slope);
    }
    const float now = fmaxf(largest, ls_warp_max(score)), scale = expf(largest - now);
    const float probability = expf(score - now);
    sum = sum * scale + ls_warp_sum(probability);
    largest = now;
#pragma unroll
    for (int p = 0; p < PARTS; p++) sums[p] *= scale;
    for (int r = 0; r < LS_ROW_KEYS; r++) {
      const float by = __shfl_sync(LS_ALL_LANES, probability, r);
#pragma unroll
      for (int p = 0; p < PARTS; p++) {
        const int c = lane + p * LS_CUDA_WARP;
        if (c < of.head_dim && tile + r < end)
          sums[p] += by * ls_widen(*ls_head_row<T>(args.cache_v, base + tile + r, column + c));
      }
    }
  }
  float *to = ls_cached_sums(args, n, head, part, share);
#pragma unroll
  for (int p = 0; p < PARTS; p++)
    if (lane + p * LS_CUDA_WARP < of.head_dim) to[lane + p * LS_CUDA_WARP] = sums[p];
  if (lane == 0) to[of.head_dim] = largest, to[of.head_dim + 1] = sum;
}

// The shares of a query and head joined, in each part of the cache; where it sees none of its rows,
// zeros of a log-sum-exp of -infinity.
LS_KERNEL(ls_cached_join, ls_cuda_cached, 256) {
  const ls_cuda_attention &of = args.of;
  const int64_t n = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y), part = static_cast<int>(blockIdx.z);
  const int width = of.head_dim + 2;
  const float *shares = ls_cached_sums(args, n, head, part, 0);
  float largest = -INFINITY, sum = 0;
  for (int p = 0; p < args.parts; p++) largest = fmaxf(largest, shares[p * width + of.head_dim]);
  const bool none = largest == -INFINITY;
  const float level = none ? 0 : largest;
  for (int p = 0; p < args.parts; p++)
    sum += shares[p * width + of.head_dim + 1] * expf(shares[p * width + of.head_dim] - level);
  const ls_closed row = none ? ls_closed{0, -INFINITY} : ls_close_row(of, head, largest, sum);
  for (int c = threadIdx.x; c < of.head_dim; c += blockDim.x) {
    float total = 0;
    for (int p = 0; p < args.parts; p++)
      total += shares[p * width + c] * expf(shares[p * width + of.head_dim] - level);
    ls_put_any(
        of.out,
        part * args.out_part + n * of.out.stride + static_cast<int64_t>(head) * of.head_dim + c,
        total * row.by);
  }
  if (of.log_sums.data && threadIdx.x == 0)
    ls_put_any(of.log_sums, part * args.log_sums_part + n * of.log_sums.stride + head, row.log_sum);
}

// What all parts of a cache gave, joined: values and log-sum-exps of each, and sinks.
template <class T>
__device__ inline void ls_cached_end_rows(const ls_cuda_cached &args) {
  const ls_cuda_attention &of = args.of;
  const float *values = static_cast<const float *>(args.cache_v.data);
  const float *log_sums = static_cast<const float *>(of.log_sums.data);
  for (int64_t n = blockIdx.x; n < of.tokens; n += gridDim.x)
    for (int64_t c = threadIdx.x; c < of.out.stride; c += blockDim.x) {
      const int head = static_cast<int>(c / of.head_dim);
      const float sink = of.sinks.data ? ls_sink_at(of, head) : -INFINITY;
      float largest = sink, sum = 0, total = 0;
      for (int p = 0; p < args.cache_parts; p++)
        largest = fmaxf(largest, log_sums[p * args.log_sums_part + n * of.log_sums.stride + head]);
      if (of.sinks.data) sum = expf(sink - largest);
      for (int p = 0; p < args.cache_parts && largest > -INFINITY; p++) {
        const float share =
            expf(log_sums[p * args.log_sums_part + n * of.log_sums.stride + head] - largest);
        sum += share;
        total += share * values[p * args.out_part + n * args.cache_v.stride + c];
      }
      T *to = ls_row_of<T>(of.out, n) + c;
      const float value = sum > 0 ? total / sum : 0;
      ls_round(to, of.out.add ? value + ls_widen(*to) : value);
    }
}

// Heads of latent attention over what all of them share are wide: 576 columns.
template <class T>
__device__ void ls_cached_part(const ls_cuda_cached &a) {
  ls_cached_share<T, LS_HEAD_PARTS>(a);
}
template <class T>
__device__ void ls_cached_wide(const ls_cuda_cached &a) {
  ls_cached_share<T, LS_WIDE_PARTS>(a);
}

LS_KERNELS(ls_cached_wide, ls_cuda_cached, 32, ls_cached_wide)
LS_KERNELS(ls_cache_rows, ls_cuda_cached, 256, ls_cache_rows)
LS_KERNELS(ls_cached_part, ls_cuda_cached, 32, ls_cached_part)
LS_KERNELS(ls_cached_end, ls_cuda_cached, 256, ls_cached_end_rows)
