/* Tokens that lie in an order of their own: where the keys and the queries of a sequence are.
 *
 *   const placed_rows keys = placed_keys(args, k, 4);
 *   placed_run run = {0};
 *   while (placed_next(&keys, first, sequence, &run)) ... rows run.row on are places run.begin on
 * ...
 *
 * Rows with places that follow one another are one run, so that whole tiles of it can be read. */
#ifndef LS_DEVICE_CPU_VECTOR_PLACED_H
#define LS_DEVICE_CPU_VECTOR_PLACED_H

#include "device/cpu/vector_attention.h"

typedef struct placed_rows {
  const int32_t *places;    /* by row */
  const int32_t *positions; /* a run ends with its document; NULL: with its sequence alone */
  const int32_t *remaining; /* tokens of its document behind each; NULL: queries see none of them */
  int64_t rows;
} placed_rows;

/* Places [begin, end) of a sequence, from row `row` on; they see none before `first`, and none from
 * `stop` on. */
typedef struct placed_run {
  int64_t row, begin, end, first, stop;
  int64_t next; /* row behind them */
} placed_run;

LS_INLINE placed_rows placed_keys(const ls_kernel_args *args, const ls_view *k, int places) {
  return (placed_rows){.places = args->in[places].data, .rows = k->valid[0]};
}

/* Queries are some of the rows of which the keys are all. */
LS_INLINE placed_rows placed_queries(const ls_kernel_args *args, const ls_view *q, const ls_view *k,
                                     int places) {
  const int32_t *all = args->in[places].data;
  return (placed_rows){.places = all + (q->start[0] - k->start[0]),
                       .positions = args->in[places - 1].data,
                       .remaining = args->attributes->two_way ? args->in[places + 1].data : NULL,
                       .rows = q->valid[0]};
}

/* Keys and queries of a ring are shares of all rows, of which places tell. A share lies in pieces,
 * one for each rank that changed tokens for heads (or one in all), and a piece has some rows of
 * each sequence. */
typedef struct ring_share {
  const int32_t *places;    /* of the share's rows */
  const int32_t *positions; /* likewise; NULL: not asked for */
  int64_t pieces, piece;    /* how many, and rows of a sequence in each */
  int64_t stride;           /* rows from piece to piece */
} ring_share;

/* Where the first row's sequence ends, so does its piece; of one sequence all rows are one. */
LS_INLINE ring_share ring_share_of(const ls_kernel_args *args, const ls_view *of, int places,
                                   const ls_view *positions) {
  const ls_view *all = &args->in[places];
  const int64_t rows = ring_rows(args), sequence = args->attributes->sequence;
  ring_share share = {.places = (const int32_t *)all->data + (of->start[0] - all->start[0]),
                      .positions = positions ? positions->data : NULL,
                      .piece = 1};
  while (share.piece < rows && share.places[share.piece] / sequence == share.places[0] / sequence)
    share.piece++;
  share.pieces = rows / share.piece;
  share.stride = of->valid[0] / share.pieces;
  return share;
}

/* The first row of a sequence in piece `piece`. */
LS_INLINE int64_t ring_row(const ring_share *share, int64_t number, int64_t piece) {
  return piece * share->stride + number * share->piece;
}

/* The rows from that one on. */
LS_INLINE placed_rows ring_places(const ring_share *share, int64_t row) {
  return (placed_rows){.places = share->places + row,
                       .positions = share->positions ? share->positions + row : NULL,
                       .rows = share->piece};
}

/* The first place of a sequence. */
LS_INLINE int64_t ring_first(const ls_kernel_args *args, const ring_share *share, int64_t number) {
  const int64_t sequence = args->attributes->sequence;
  return share->places[ring_row(share, number, 0)] / sequence * sequence;
}

/* Runs are looked for once for each block of keys, so rows are gone through many at a time. */
enum { LS_MANY_ROWS = 8 * LS_LANES };

/* Whether the `count` numbers behind one follow it. */
LS_INLINE bool follow(const int32_t *one, int64_t count) {
  int32_t others = 0;
#pragma omp simd reduction(| : others)
  for (int64_t i = 0; i < count; i++) others |= one[i + 1] ^ (one[i] + 1);
  return others == 0;
}

/* The row behind the run of numbers that begins at row `row`. */
LS_INLINE int64_t run_end(const int32_t *numbers, int64_t row, int64_t rows) {
  while (row + LS_MANY_ROWS < rows && follow(numbers + row, LS_MANY_ROWS)) row += LS_MANY_ROWS;
  while (row + 1 < rows && follow(numbers + row, 1)) row++;
  return row + 1;
}

/* Whether none of `count` places is of the sequence that begins at `first`. */
LS_INLINE bool elsewhere(const int32_t *places, int64_t count, int64_t first, int64_t sequence) {
  const uint32_t begin = (uint32_t)first, length = (uint32_t)sequence;
  uint32_t here = 0;
#pragma omp simd reduction(| : here)
  for (int64_t i = 0; i < count; i++) here |= (uint32_t)places[i] - begin < length;
  return here == 0;
}

/* The first row from `row` on that is of the sequence. */
LS_INLINE int64_t run_begin(const placed_rows *of, int64_t row, int64_t first, int64_t sequence) {
  while (row + LS_MANY_ROWS < of->rows &&
         elsewhere(of->places + row, LS_MANY_ROWS, first, sequence))
    row += LS_MANY_ROWS;
  while (row < of->rows && elsewhere(of->places + row, 1, first, sequence)) row++;
  return row;
}

/* The next run of the sequence whose first token has place `first`. */
static inline bool placed_next(const placed_rows *of, int64_t first, int64_t sequence,
                               placed_run *run) {
  const int32_t *places = of->places, *positions = of->positions;
  const int64_t row = run_begin(of, run->next, first, sequence);
  if (row == of->rows) return false;
  const int64_t rows = least(of->rows, row + first + sequence - places[row]);
  const int64_t last = positions ? run_end(positions, row, rows) : rows;
  const int64_t next = run_end(places, row, last);
  const int64_t begin = places[row] - first;
  const int64_t seen = positions && begin > positions[row] ? begin - positions[row] : 0;
  const int64_t stop = of->remaining ? begin + of->remaining[row] + 1 : INT64_MAX / 2;
  *run = (placed_run){row, begin, begin + next - row, seen, stop, next};
  return true;
}

#endif
