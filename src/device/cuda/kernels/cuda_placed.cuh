// Attention of tokens that lie in an order of their own: each row's place says where its token is
// among all, and a query sees the keys whose places are from the beginning of its document, or of
// its window, to its own, or in both directions to its document's end
// (device/reference/attention.c). For shares of sequences, blocks of keys that go round a ring,
// probabilities that are dropped, and encoders, whose tokens may lie in their order.
//
// Of each 64 rows the least and the last place that matter lie in memory, so that a block passes
// over keys which none of its queries sees.
#pragma once

#include "device/cuda/kernels/cuda_attention.cuh"
#include "device/mask.h"

enum { LS_PLACED_ROWS = 64, LS_NO_PLACE = 0x7fffffff };

// What a query sees: keys with places from `first` to `last`, which is its own or, in both
// directions, its document's. `begin` is its sequence's first.
struct ls_sight {
  int first, last, place, begin;
  uint32_t mask;
};

// Of a row without a query: nothing.
__device__ inline ls_sight ls_sight_of(const ls_cuda_placed &args, int64_t row, int head) {
  ls_sight of = {0, -1, -1, 0, 0};
  if (row >= args.of.tokens) return of;
  const int sequence = static_cast<int>(args.of.sequence), window = args.of.window;
  of.place = args.query_places ? args.query_places[row] : static_cast<int>(row);
  of.begin = of.place - of.place % sequence;
  const int document = args.of.positions ? of.place - args.of.positions[row] : of.begin;
  of.first = document > of.begin ? document : of.begin;
  of.last = !args.two_way ? of.place
            : args.behind ? of.place + args.behind[row]
            : args.lasts  ? args.lasts[row]
                          : of.begin + sequence - 1;
  if (window > 0 && of.first <= of.place - window) of.first = of.place - window + 1;
  if (window > 0 && of.last >= of.place + window) of.last = of.place + window - 1;
  if (args.draws) of.mask = ls_mask_row(args.draws[row], args.site, args.of.first_head + head);
  return of;
}

// Of a row without a key: one that no query sees.
__device__ inline int ls_key_place(const ls_cuda_placed &args, int64_t row) {
  if (row >= args.keys) return LS_NO_PLACE;
  return args.key_places ? args.key_places[row] : static_cast<int>(row);
}

__device__ inline bool ls_sees_place(const ls_sight &of, int key) {
  return key >= of.first && key <= of.last;
}

// What a probability is multiplied by.
__device__ inline float ls_kept(const ls_cuda_placed &args, const ls_sight &of, int key) {
  if (!args.draws) return 1;
  return ls_mask_keeps(of.mask, static_cast<uint32_t>(key - of.begin), args.limit) ? args.kept : 0;
}

__device__ inline int64_t ls_placed_tiles(int64_t rows) {
  return (rows + LS_PLACED_ROWS - 1) / LS_PLACED_ROWS;
}

// Least and last place of 64 rows, from the one with `row` on.
struct ls_place_range {
  int least, last;
};

__device__ inline ls_place_range ls_range_at(const int32_t *ranges, int64_t row) {
  const int32_t *at = ranges + row / LS_PLACED_ROWS * 2;
  return {at[0], at[1]};
}

__device__ inline const int32_t *ls_key_ranges(const ls_cuda_placed &args) {
  return args.ranges + 2 * ls_placed_tiles(args.of.tokens);
}

// The next row from `row` on whose 64 have places in the range; `rows` where there is none.
__device__ inline int64_t ls_next_placed(const int32_t *ranges, int64_t rows, int64_t row,
                                         const ls_place_range &of) {
  while (row < rows) {
    const ls_place_range at = ls_range_at(ranges, row);
    if (at.least <= of.last && at.last >= of.least) return row;
    row = (row / LS_PLACED_ROWS + 1) * LS_PLACED_ROWS;
  }
  return rows;
}

// p and ds of one score from the products of q . k and of do . v: both in their places, and of p
// what values are multiplied by.
template <bool QUICK>
__device__ inline void ls_placed_slope(const ls_cuda_placed &args, float by_distance,
                                       const ls_sight &of, int key, float log_sum, float dot,
                                       float *score, float *dscore) {
  float slope, share = 0, kept = 0;
  if (ls_sees_place(of, key)) {
    const float seen = ls_score<QUICK>(args.of, by_distance, *score, of.place - key, &slope);
    share = QUICK ? __expf(seen - log_sum) : expf(seen - log_sum);
    kept = ls_kept(args, of, key);
  }
  *dscore = share == 0 ? 0 : slope * share * (kept * *dscore - dot);
  *score = share * kept;
}

// The maximum of a ring is kept times log2(e), as devices have it whose exponentials are powers
// of 2.
constexpr float LS_LOG2_E = 1.4426950408889634f;
