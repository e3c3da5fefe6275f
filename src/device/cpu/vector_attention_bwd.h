/* What both forms of attention's backward pass share: one multiplies in fp32, one in pairs of bf16.
 * vector_attention_bwd.c walks heads and blocks for both, and loads rows of either; they differ in
 * how they turn rows and how they go through a block of queries against a block of keys.
 *
 *   rows_load(steps->paired, t->q, ...), ...
 *   steps->head_ready(s, t);
 *   steps->keys_ready(s, t, values);
 *   steps->queries_run(args, s, t, bend, key, begin, count);
 *
 * A part has tiles of its own. */
#ifndef LS_DEVICE_CPU_VECTOR_ATTENTION_BWD_H
#define LS_DEVICE_CPU_VECTOR_ATTENTION_BWD_H

#include "device/cpu/vector_attention.h"

/* One part's scratch. `rows` are a sequence's or a document's, in whole blocks. Tiles of pairs take
 * half the room of fp32: there are two of them in a place. */
typedef struct backward_tiles {
  float *keys, *keys_turned, *values_turned; /* [KEYS, width], [width, KEYS] twice */
  float *p, *ds;                             /* [QUERIES, KEYS] */
  float *dk, *dv;                            /* [rows, width]: of the KV head */
  float *q, *go, *dq;                        /* [rows, width]: of one query head */
  float *sums, *deltas;                      /* [rows]: log-sum-exp to base 2; do . o */
  int64_t rows;
  int64_t begin, end;                   /* rows of queries at hand: see next_range */
  int64_t key_row;                      /* row of dk and dv of the loaded block of keys */
  int64_t ahead, ahead_end, ahead_head; /* rows of the next head: see rows_expect */
  attention_mask mask;                  /* of the loaded head, by place */
} backward_tiles;

typedef struct backward_steps {
  bool paired; /* rows are loaded as pairs: see rows_load */
  /* Once a query head's q and do are loaded. */
  void (*head_ready)(const attention_shape *s, backward_tiles *t);
  /* Once a block's values are loaded where its keys go, which follow, or those. */
  void (*keys_ready)(const attention_shape *s, backward_tiles *t, bool values);
  /* Queries [begin, begin + count) of the loaded head, no more than QUERIES, against the loaded
   * block of keys, which begins at `key`, on the same scale; `begin` is even. */
  void (*queries_run)(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                      attention_bend bend, int64_t key, int64_t begin, int64_t count);
} backward_steps;

/* Asks for `rows` more rows of what the next head reads and writes, while this one computes. */
LS_INLINE void rows_expect(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                           int64_t rows) {
  const int64_t d = s->head_dim, head = t->ahead_head, end = least(t->ahead + rows, t->ahead_end);
  for (; t->ahead < end; t->ahead++) {
    row_expect(&args->in[0], t->ahead, head * d, d);
    row_expect(&args->in[1], t->ahead, head * d, d);
    row_expect(&args->in[4], t->ahead, head * d, d);
    row_expect(&args->out[0], t->ahead, head * d, d);
    if (head % s->group > 0) continue;
    row_expect(&args->in[2], t->ahead, head / s->group * d, d);
    row_expect(&args->in[3], t->ahead, head / s->group * d, d);
    row_expect(&args->out[1], t->ahead, head / s->group * d, d);
    row_expect(&args->out[2], t->ahead, head / s->group * d, d);
  }
}

/* From scores and do . v of one query: its probabilities, and the gradient of its scores. A key
 * that it does not see may score anything: what is made of that is cleared. */
LS_INLINE void row_gradient(float *p, float *ds, int64_t keys, float scale, float sum,
                            float delta) {
  for (int64_t j = 0; j < keys; j += LS_LANES) {
    lanes_anywhere *score = (lanes_anywhere *)(p + j), *gradient = (lanes_anywhere *)(ds + j);
    const lanes probability = lanes_exp2(*score * (scale * LS_LOG2_E) - sum);
    *score = probability;
    *gradient = probability * (*gradient * scale - delta * scale);
  }
}

/* The same of scores that are bent; `distance`: see scores_bend. */
static inline void bent_gradient(float *p, float *ds, attention_bend bend, int64_t distance,
                                 float scale, float sum, float delta) {
  enum { KEYS = LS_ATTENTION_KEYS };
  float scores[KEYS];
#pragma omp simd
  for (int64_t j = 0; j < KEYS; j++) scores[j] = p[j] * (scale * LS_LOG2_E);
  scores_bend(scores, (attention_bend){.cap = bend.cap}, distance);
#pragma omp simd
  for (int64_t j = 0; j < KEYS; j++) {
    const float share = bend.cap > 0.0f ? scores[j] / bend.cap : 0.0f;
    ds[j] = (ds[j] - delta) * scale * (1.0f - share * share);
  }
  scores_bend(scores, (attention_bend){.slope = bend.slope}, distance);
#pragma omp simd
  for (int64_t j = 0; j < KEYS; j++) {
    p[j] = exp2_of(scores[j] - sum);
    ds[j] *= p[j];
  }
}

/* A query sees keys [first, end) of the block. */
LS_INLINE void clear_unseen(float *p, float *ds, int64_t keys, int64_t first, int64_t end) {
  for (int64_t j = 0; j < first; j++) p[j] = ds[j] = 0;
  for (int64_t j = end > 0 ? end : 0; j < keys; j++) p[j] = ds[j] = 0;
}

/* What dropout multiplies the query's probabilities by. */
static inline void mask_row(float *factors, const attention_mask *mask, int64_t place, int64_t key,
                            int64_t keys) {
  const uint32_t row = ls_mask_row(mask->draws[place], mask->site, mask->head);
  const uint32_t limit = mask->limit;
  const float kept = mask->kept;
#pragma omp simd
  for (int64_t j = 0; j < keys; j++)
    factors[j] = ls_mask_keeps(row, (uint32_t)(key + j), limit) ? kept : 0.0f;
}

/* From scores and do . v of the query at `place` to its probabilities and the gradient of its
 * scores, in the first `keys` of the block that begins at `key`. There is none from `end` on, nor
 * before those at hand. */
LS_INLINE void query_gradient(const attention_shape *s, const backward_tiles *t,
                              attention_bend bend, float scale, float *p, float *ds, int64_t key,
                              int64_t keys, int64_t place, int64_t end) {
  const float sum = t->sums[place], delta = t->deltas[place];
  const int64_t seen =
      place >= s->from && place < end ? least(keys, least(place + s->ahead, s->end) - key) : 0;
  const bool drops = t->mask.draws && seen > 0;
  float factors[LS_ATTENTION_KEYS];
  if (drops) {
    mask_row(factors, &t->mask, place, key, keys);
    for (int64_t j = 0; j < keys; j++) ds[j] *= factors[j];
  }
  if (bend.cap > 0.0f || bend.slope > 0.0f)
    bent_gradient(p, ds, bend, place - key, scale, sum, delta);
  else
    row_gradient(p, ds, keys, scale, sum, delta);
  clear_unseen(p, ds, keys, window_begin(s, place, key), seen);
  for (int64_t j = 0; drops && j < keys; j++) p[j] *= factors[j];
}

#if defined(__AVX512BF16__)
extern const backward_steps LS_VECTOR(ls_backward_pairs);
#endif

#endif
