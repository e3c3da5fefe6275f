/* What the kernels of attention share: dimensions, scratch for each part, what bends scores.
 *
 *   const attention_shape s = attention_shape_of(args, q, k, tokens);
 *   return attention_share(args, &s, units, floats, turns, error);
 *
 * Scores are kept times log2(e), so that exponentials are powers of 2. */
#ifndef LS_DEVICE_CPU_VECTOR_ATTENTION_H
#define LS_DEVICE_CPU_VECTOR_ATTENTION_H

#include "device/cpu/attention_scratch.h"
#include "device/cpu/vector_tiles.h"
#include "device/mask.h"

#define LS_LOG2_E 1.44269504f

/* Where attention's dimensions stand in its arguments. */
typedef struct attention_shape {
  int64_t tokens, sequence, sequences;
  int64_t head_dim, width; /* columns of a head, and those of its tiles */
  int64_t heads, kv_heads, group;
  int64_t window;       /* keys that a query sees: all where none is asked for */
  int64_t ahead;        /* and those from itself on: one, or with two_way as many */
  int64_t first;        /* key of the sequence that any query at hand sees */
  int64_t end;          /* key behind the last one there is */
  int64_t from;         /* query that is at hand */
  const ls_view *sinks; /* of all heads; NULL: none */
} attention_shape;

/* A kernel without sequences (its tokens are one's) has attributes that say 0. */
LS_INLINE attention_shape attention_shape_of(const ls_kernel_args *args, const ls_view *q,
                                             const ls_view *k, int64_t tokens) {
  attention_shape s = {.tokens = tokens,
                       .sequence = args->attributes->sequence,
                       .head_dim = args->attributes->head_dim};
  s.sequences = s.sequence ? (tokens + s.sequence - 1) / s.sequence : 1;
  s.width = round_up(s.head_dim, LS_LANES);
  s.heads = q->dims[1] / s.head_dim;
  s.kv_heads = k->dims[1] / s.head_dim;
  s.group = s.kv_heads ? s.heads / s.kv_heads : 0;
  s.end = INT64_MAX / 2;
  s.window = args->attributes->window > 0 ? args->attributes->window : INT64_MAX / 2;
  s.ahead = args->attributes->two_way ? s.window : 1;
  return s;
}

/* Of a ring: the rows that a rank has of each sequence. */
LS_INLINE int64_t ring_rows(const ls_kernel_args *args) {
  return args->attributes->sequence / args->attributes->turns;
}

/* The same of a block of a ring's keys: of each sequence all rows there are, and some behind them
 * that blocks of keys reach into. */
LS_INLINE attention_shape ring_shape_of(const ls_kernel_args *args, const ls_view *q,
                                        const ls_view *k) {
  attention_shape s = attention_shape_of(args, q, k, k->valid[0]);
  const int64_t rows = ring_rows(args);
  s.sequences = s.tokens / rows;
  s.sequence = ls_ring_rows(rows);
  return s;
}

/* Where the document that begins at row `first` ends, at `end` at the latest: tokens are of one
 * where positions grow as rows do. NULL: there are no documents. */
LS_INLINE int64_t document_end(const ls_view *positions, int64_t first, int64_t end) {
  if (!positions) return end;
  const int32_t *at = positions->data;
  int64_t next = first + 1;
  while (next < end && at[next] == at[next - 1] + 1) next++;
  return next;
}

typedef struct attention_work {
  const ls_kernel_args *args;
  attention_shape shape;
  float *scratch;
  int64_t floats; /* of scratch for each part */
  ls_host_turns turns;
} attention_work;

static inline void attention_part(const void *work, int part, int64_t begin, int64_t end) {
  tiles_begin(LS_TILE_SIDE);
  ((const attention_work *)work)->turns(work, part, begin, end);
  tiles_end();
}

/* Elements of a query's side, which attention takes at least one pass over. */
LS_INLINE int64_t attention_elements(const attention_shape *shape) {
  return shape->tokens * shape->heads * shape->head_dim;
}

/* Shares `units` of work on `elements` in all, each part with `floats` of scratch. */
LS_INLINE ls_status attention_share(const ls_kernel_args *args, const attention_shape *shape,
                                    int64_t units, int64_t elements, int64_t floats,
                                    ls_host_turns turns, ls_error *error) {
  if (units == 0) return LS_OK;
  attention_work work = {
      .args = args, .shape = *shape, .floats = round_up(floats, 16), .turns = turns};
  const int parts = ls_cpu_parts(args->queue->facts, elements);
  const size_t bytes = (size_t)(work.floats * parts) * sizeof(float);
  work.scratch = ls_cpu_scratch(args, bytes);
  if (!work.scratch) return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", bytes);
  ls_host_split(args->queue->facts->threads, parts, units, attention_part, &work);
  return LS_OK;
}

/* What makes scores of products. Queries in fp32 take it along; in bf16 they would be rounded once
 * more, so it is left to the scores. */
LS_INLINE float attention_scale(const ls_kernel_args *args) {
  return (float)args->attributes->softmax_scale * LS_LOG2_E;
}

/* By how much, as a power of 2, scores may exceed the running maximum before it is replaced:
 * exponentials that are rounded to pairs may as well be larger than 1, since rounding is relative.
 */
LS_INLINE float attention_slack(const bool paired) {
  return paired ? 8.0f : 0.0f;
}

/* How scores are bent: soft cap and ALiBi, for one head. Both are kept times log2(e). */
typedef struct attention_bend {
  float cap;   /* 0: none */
  float slope; /* 0: none */
} attention_bend;

/* `head` counts those of this rank, whose first column in the whole is q's start. */
LS_INLINE attention_bend attention_bend_of(const ls_kernel_args *args, const ls_view *q,
                                           int64_t head) {
  const ls_attributes *attributes = args->attributes;
  attention_bend bend = {.cap = (float)attributes->softcap * LS_LOG2_E};
  if (attributes->alibi > 0) {
    const int64_t place = q->start[1] / attributes->head_dim + head;
    bend.slope = (float)(attributes->alibi * ls_alibi_slope(place, attributes->heads)) * LS_LOG2_E;
  }
  return bend;
}

/* What a query's running maximum and sum begin with: the sink of its head, or nothing; finite, so
 * that the first difference is no NaN. */
typedef struct attention_start {
  float max, sum;
} attention_start;

/* The sink of a head of this rank, times log2(e). */
LS_INLINE float sink_of(const ls_kernel_args *args, const ls_view *sinks, const ls_view *q,
                        int64_t head) {
  float buffer[1];
  const int64_t place = q->start[1] / args->attributes->head_dim + head;
  return *piece_here(sinks, 0, place, 1, buffer) * LS_LOG2_E;
}

LS_INLINE attention_start attention_start_of(const ls_kernel_args *args,
                                             const attention_shape *shape, int64_t head) {
  if (!shape->sinks) return (attention_start){-3e38f, 0};
  return (attention_start){sink_of(args, shape->sinks, &args->in[0], head), 1};
}

/* The log-sum-exp of one query and head that a ring has come to, its sink included. `max`: that
 * operand, behind which come sums, and sinks. */
LS_INLINE double ring_log_sum(const ls_kernel_args *args, int max, int64_t row, int64_t head) {
  const int64_t place = row * args->in[max].dims[1] + head;
  const double ln_2 = 0.693147180559945309;
  const double largest = (double)((const float *)args->in[max].data)[place];
  const double log_sum =
      largest * ln_2 + log((double)((const float *)args->in[max + 1].data)[place]);
  if (max + 2 >= args->inputs) return log_sum;
  const double sink = (double)sink_of(args, &args->in[max + 2], &args->in[0], head) * ln_2;
  return fmax(sink, log_sum) + log1p(exp(-fabs(sink - log_sum)));
}

/* Which probabilities of one head are kept, and how much larger these become. */
typedef struct attention_mask {
  const int32_t *draws; /* by row of the queries; NULL: all are kept */
  int64_t site, head;
  uint32_t limit;
  float kept;
} attention_mask;

/* `draws`: that operand, which a kernel may be without; `head`: see attention_bend_of. */
LS_INLINE attention_mask attention_mask_of(const ls_kernel_args *args, const ls_view *q, int draws,
                                           int64_t head) {
  const ls_attributes *attributes = args->attributes;
  if (draws >= args->inputs) return (attention_mask){0};
  return (attention_mask){.draws = args->in[draws].data,
                          .site = attributes->site,
                          .head = q->start[1] / attributes->head_dim + head,
                          .limit = ls_mask_limit(attributes->dropout),
                          .kept = (float)(1 / (1 - attributes->dropout))};
}

/* The operand with draws of dropout, behind positions and places. */
LS_INLINE int draws_at(const ls_kernel_args *args, int positions) {
  return positions + 2 + (args->attributes->two_way ? 1 : 0);
}

/* Scores of a block whose first key lies `distance` tokens before the query, the next `apart` less.
 */
LS_INLINE void scores_bend_apart(float *scores, attention_bend bend, int64_t distance,
                                 int64_t apart) {
  if (bend.cap > 0.0f) {
    const float inverse = 1.0f / bend.cap;
#pragma omp simd
    for (int64_t j = 0; j < LS_ATTENTION_KEYS; j++)
      scores[j] = bend.cap * tanh_of(scores[j] * inverse);
  }
  if (bend.slope > 0.0f) {
#pragma omp simd
    for (int64_t j = 0; j < LS_ATTENTION_KEYS; j++)
      scores[j] -= bend.slope * (float)((int32_t)distance - (int32_t)(j * apart));
  }
}

LS_INLINE void scores_bend(float *scores, attention_bend bend, int64_t distance) {
  scores_bend_apart(scores, bend, distance, 1);
}

/* The first key of the block that begins at `key` that the query at `place` sees. */
LS_INLINE int64_t window_begin(const attention_shape *shape, int64_t place, int64_t key) {
  const int64_t seen = place - shape->window + 1;
  const int64_t first = (seen > shape->first ? seen : shape->first) - key;
  return first > 0 ? least(first, LS_ATTENTION_KEYS) : 0;
}

#endif
