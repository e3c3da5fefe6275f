/* Attention, forward: a block of queries against blocks of keys with a running maximum and
 * sum, so that no more than a block of scores exists (Dao, Fu, Ermon, Rudra, Re: "FlashAttention",
 * 2022). Tiles have the queries along their rows: what each query keeps is then a lane of a vector,
 * and maxima and sums are taken over rows without any vector being added up in itself. One head's
 * keys and values are turned into tiles once and serve all queries: tiles of fp32 or, of bf16 where
 * there is an instruction that multiplies it, of its pairs, with exponentials rounded to it too. */
#include "device/cpu/vector_attention.h"
#include "device/cpu/vector_kernels.h"
#include "device/cpu/vector_pairs.h"
#include "device/cpu/vector_placed.h"

enum { QUERIES = LS_FORWARD_QUERIES, KEYS = LS_ATTENTION_KEYS };

static const double ln_2 = 0.693147180559945309;

/* One part's scratch; the second of two shapes is in pairs. */
typedef struct forward_tiles {
  bool paired;      /* see vector_pairs.h */
  float *keys;      /* [blocks * KEYS, width], or [blocks * KEYS, width / 2] */
  float *values;    /* the same, or [blocks * KEYS / 2, width] */
  float *q;         /* [width, QUERIES], or [width / 2, QUERIES] */
  float *o;         /* [width, QUERIES] */
  float *turned;    /* [QUERIES, width]: q as it comes, o as it goes */
  float *scores;    /* [KEYS, QUERIES], which become [KEYS / 2, QUERIES] */
  float *max, *sum; /* [QUERIES] */
  int64_t kept;     /* sequence and KV head whose keys and values are there */
  attention_mask mask;
  uint32_t mask_rows[QUERIES]; /* see device/mask.h */
} forward_tiles;

LS_INLINE bool in_pairs(const forward_tiles *t) {
  return LS_PAIRS && t->paired;
}

/* Where tokens lie in an order of their own, places come behind positions. */
static bool is_placed(const ls_kernel_args *args) {
  return args->inputs > 4;
}

static bool all_bf16(const ls_kernel_args *args) {
  return args->in[0].dtype == LS_BF16 && args->in[1].dtype == LS_BF16 &&
         args->in[2].dtype == LS_BF16;
}

static int64_t key_floats(const ls_kernel_args *args, const attention_shape *s) {
  return ls_attention_key_floats(s->width, s->sequence, LS_PAIRS && all_bf16(args));
}

static forward_tiles forward_tiles_at(const ls_kernel_args *args, const attention_shape *s,
                                      float *scratch) {
  forward_tiles t = {.paired = all_bf16(args), .keys = scratch, .kept = -1};
  t.values = t.keys + key_floats(args, s);
  t.q = t.values + key_floats(args, s);
  t.o = t.q + QUERIES * s->width;
  t.turned = t.o + QUERIES * s->width;
  t.scores = t.turned + QUERIES * s->width;
  t.max = t.scores + KEYS * QUERIES;
  t.sum = t.max + QUERIES;
  return t;
}

/* Keys and values [begin, begin + rows) of what is at hand, which lie from row `row` on. */
static void keys_load(const ls_kernel_args *args, const attention_shape *s, forward_tiles *t,
                      int64_t begin, int64_t row, int64_t rows, int64_t kv_head) {
  const int64_t column = kv_head * s->head_dim;
  rows_load(in_pairs(t), t->keys, s->width, begin, &args->in[1], row, rows, column, s->head_dim);
  rows_load(in_pairs(t), t->values, s->width, begin, &args->in[2], row, rows, column, s->head_dim);
}

/* Behind the last of `rows` keys come zeros, up to `all_rows`, a multiple of KEYS. */
static void keys_end(const attention_shape *s, forward_tiles *t, int64_t rows, int64_t all_rows) {
  rows_clear(in_pairs(t), t->keys, s->width, rows, all_rows);
  rows_clear(in_pairs(t), t->values, s->width, rows, all_rows);
}

/* Once all values are there, their pairs are joined along keys. */
static void values_join(const attention_shape *s, forward_tiles *t, int64_t all_rows) {
  const int64_t width = s->width;
  uint32_t *apart = (uint32_t *)t->turned, *values = (uint32_t *)t->values;
  for (int64_t key = 0; key < all_rows && in_pairs(t); key += KEYS, values += KEYS / 2 * width) {
    memcpy(apart, values, (size_t)(KEYS / 2 * width) * sizeof *apart);
    rows_join(values, width, apart, width / 2, KEYS, width);
  }
}

/* Queries [begin + skip, begin + count) of a sequence, the first of them in row `row`. */
typedef struct query_block {
  int64_t row, begin, skip, count, head;
} query_block;

static void queries_load(const ls_kernel_args *args, const attention_shape *s,
                         const query_block *block, forward_tiles *t) {
  const int64_t width = s->width, row = block->row, skip = block->skip;
  const int64_t column = block->head * s->head_dim;
  rows_clear(in_pairs(t), t->turned, width, 0, skip);
  rows_load(in_pairs(t), t->turned, width, skip, &args->in[0], row, block->count - skip, column,
            s->head_dim);
  rows_clear(in_pairs(t), t->turned, width, block->count, QUERIES);
  if (in_pairs(t)) {
    tile_transpose(t->q, QUERIES, t->turned, width / 2, QUERIES, width / 2);
  } else {
    const float scale = attention_scale(args);
#pragma omp simd
    for (int64_t i = 0; i < QUERIES * width; i++) t->turned[i] *= scale;
    tile_transpose(t->q, QUERIES, t->turned, width, QUERIES, width);
  }
  const attention_start start = attention_start_of(args, s, block->head);
  for (int64_t i = 0; i < QUERIES; i++) t->max[i] = start.max, t->sum[i] = start.sum;
}

/* Keys that the diagonal is gone through by: as many as fill tiles, where they are multiplied so.
 */
LS_INLINE int64_t strip_of(const forward_tiles *t) {
  return LS_TILES && in_pairs(t) ? 2 * LS_ATTENTION_STRIP : LS_ATTENTION_STRIP;
}

/* The first query, in whole strips, that sees the key at row `key` of a block: on the diagonal
 * those before it do not. */
LS_INLINE int64_t first_lane(bool diagonal, int64_t key, int64_t strip) {
  return diagonal ? key / strip * strip : 0;
}

/* Bends the scores of the key `distance` tokens before the block's first query, and hides it from
 * the queries that do not see it: those `ahead` before it, or a window's length behind it. */
static void key_hide(float *scores, int64_t lane, int64_t distance, int64_t window, int64_t ahead,
                     attention_bend bend) {
  if (bend.cap > 0.0f) {
    const float inverse = 1.0f / bend.cap;
#pragma omp simd
    for (int64_t j = lane; j < QUERIES; j++) scores[j] = bend.cap * tanh_of(scores[j] * inverse);
  }
  if (bend.slope > 0.0f) {
#pragma omp simd
    for (int64_t j = lane; j < QUERIES; j++)
      scores[j] -= bend.slope * (float)((int32_t)distance + (int32_t)j);
  }
  for (int64_t j = lane; j < least(1 - ahead - distance, QUERIES); j++) scores[j] = -INFINITY;
  const int64_t end = window - distance;
  for (int64_t j = end > lane ? end : lane; j < QUERIES; j++) scores[j] = -INFINITY;
}

/* The largest score of LS_LANES queries with `keys` keys, a multiple of 4. */
LS_INLINE lanes lanes_largest(const float *scores, int64_t keys) {
  const lanes least_of_all = lanes_of(-3e38f);
  lanes most[4] = {least_of_all, least_of_all, least_of_all, least_of_all};
  for (int64_t i = 0; i < keys; i += 4) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < 4; j++)
      most[j] = lanes_larger(*(const lanes_anywhere *)(scores + (i + j) * QUERIES), most[j]);
  }
  return lanes_larger(lanes_larger(most[0], most[1]), lanes_larger(most[2], most[3]));
}

/* The scores of LS_LANES queries with `keys` keys, a multiple of 4, become exponentials under the
 * running maximum; what was summed so far is scaled down to that. `lane`: the first query's;
 * `first`: nothing was summed.
 *
 * Exponentials that become pairs are rounded, but not in the sum, whose logarithm is saved:
 * roundings of many keys make up for each other. As rounding is relative, they may as well be
 * larger than 1: their maximum is replaced, and what was summed is scaled, only where it has risen
 * by a factor of 2^8. Each query decides that for itself, whoever shares its vector. */
LS_INLINE void lanes_softmax(forward_tiles *t, int64_t lane, int64_t keys, int64_t width,
                             const bool paired, float scale, bool first) {
  lanes_anywhere *max = (lanes_anywhere *)(t->max + lane), *sum = (lanes_anywhere *)(t->sum + lane);
  float *scores = t->scores + lane, *o = t->o + lane;
  const lanes largest = lanes_largest(scores, keys), before = *max;
  const float slack = attention_slack(paired);
  const lanes both = lanes_larger(paired ? largest * scale : largest, before);
  const lanes_mask risen = (lanes_mask)(both > before + slack), none = {0};
  const lanes now = (lanes)((risen & (lanes_mask)both) | (~risen & (lanes_mask)before));
  lanes total = *sum;
  if (memcmp(&risen, &none, sizeof none) != 0) {
    const lanes shrink = lanes_exp2(before - now);
    total *= shrink;
    for (int64_t i = 0; i < width && !first; i++) *(lanes_anywhere *)(o + i * QUERIES) *= shrink;
  }
  if (paired) {
    for (int64_t i = 0; i < keys; i += 2) {
      const lanes_anywhere *even = (const lanes_anywhere *)(scores + i * QUERIES);
      const lanes_anywhere *odd = (const lanes_anywhere *)(scores + (i + 1) * QUERIES);
      const lanes low = lanes_exp2(*even * scale - now), high = lanes_exp2(*odd * scale - now);
      *(pairs_anywhere *)(scores + i / 2 * QUERIES) = pairs_join_away(low, high);
      total += low + high;
    }
  } else {
    for (int64_t i = 0; i < keys; i++) {
      lanes_anywhere *place = (lanes_anywhere *)(scores + i * QUERIES);
      *place = lanes_exp2(*place - now);
      total += *place;
    }
  }
  *max = now;
  *sum = total;
}

/* Drops exponentials of the first `keys` keys from `key` on: 32 bits each, or half of a pair. What
 * dropout makes the others larger by is left to the results. */
static void scores_drop(forward_tiles *t, int64_t key, int64_t keys) {
  const uint32_t limit = t->mask.limit;
  for (int64_t i = 0; i < keys; i++) {
    const uint32_t column = (uint32_t)(key + i);
    const uint32_t kept = !in_pairs(t) ? 0 : (i % 2 ? 0x0000ffffu : 0xffff0000u);
    uint32_t *scores = (uint32_t *)t->scores + (in_pairs(t) ? i / 2 : i) * QUERIES;
#pragma omp simd
    for (int64_t j = 0; j < QUERIES; j++)
      scores[j] &= ls_mask_keeps(t->mask_rows[j], column, limit) ? 0xffffffffu : kept;
  }
}

/* The scores of `keys` keys from `key` on, which are row `row` of scores and more, for the queries
 * from `lane` on. */
static void scores_multiply(const attention_shape *s, const forward_tiles *t, int64_t key,
                            int64_t row, int64_t lane, int64_t keys) {
  const int64_t width = s->width;
  float *scores = t->scores + row * QUERIES + lane;
  if (in_pairs(t)) {
    pairs_multiply(scores, QUERIES, (const uint32_t *)t->keys + (key + row) * (width / 2),
                   width / 2, 1, (const uint32_t *)t->q + lane, QUERIES, keys, QUERIES - lane,
                   (s->head_dim + 1) / 2, false);
  } else {
    tile_multiply(scores, QUERIES, t->keys + (key + row) * width, width, 1, t->q + lane, QUERIES,
                  keys, QUERIES - lane, s->head_dim, false);
  }
}

/* Adds those keys' values, each times what has become of its scores, to the queries' sums. */
static void values_multiply(const attention_shape *s, const forward_tiles *t, int64_t key,
                            int64_t row, int64_t lane, int64_t keys, bool add) {
  const int64_t width = s->width;
  if (in_pairs(t)) {
    pairs_multiply(t->o + lane, QUERIES, (const uint32_t *)t->values + (key + row) / 2 * width, 1,
                   width, (const uint32_t *)t->scores + row / 2 * QUERIES + lane, QUERIES, width,
                   QUERIES - lane, keys / 2, add);
  } else {
    tile_multiply(t->o + lane, QUERIES, t->values + (key + row) * width, 1, width,
                  t->scores + row * QUERIES + lane, QUERIES, width, QUERIES - lane, keys, add);
  }
}

/* The queries against the block of keys from `key` on. */
static void keys_run(const attention_shape *s, forward_tiles *t, const query_block *block,
                     attention_bend bend, float scale, int64_t key, bool first) {
  const bool diagonal = s->ahead == 1 && key == block->begin;
  const int64_t strip = diagonal ? strip_of(t) : KEYS;
  const int64_t keys = diagonal ? round_up(block->count, strip) : KEYS;
  const bool bent = bend.cap > 0.0f || bend.slope > 0.0f;
  const bool cut = diagonal || block->begin + QUERIES - key > s->window || key < s->first ||
                   key + KEYS > s->end || key + KEYS - block->begin >= s->ahead;
  for (int64_t i = 0; i < keys; i += strip)
    scores_multiply(s, t, key, i, first_lane(diagonal, i, strip), strip);
  for (int64_t i = 0; i < keys && (bent || cut); i++) {
    const int64_t lane = first_lane(diagonal, i, strip);
    float *scores = t->scores + i * QUERIES;
    if (bent && in_pairs(t))
#pragma omp simd
      for (int64_t j = lane; j < QUERIES; j++) scores[j] *= scale;
    key_hide(scores, lane, block->begin - key - i, s->window, s->ahead, bend);
    const bool there = key + i >= s->first && key + i < s->end;
    for (int64_t j = lane; j < QUERIES && !there; j++) scores[j] = -INFINITY;
  }
  for (int64_t lane = 0; lane < QUERIES; lane += LS_LANES) {
    const int64_t seen = (lane / strip + 1) * strip;
    const int64_t count = diagonal ? least(keys, seen) : keys;
    if (in_pairs(t)) {
      lanes_softmax(t, lane, count, s->width, true, bent ? 1.0f : scale, first);
    } else {
      lanes_softmax(t, lane, count, s->width, false, 1.0f, first);
    }
  }
  if (t->mask.draws) scores_drop(t, key, keys);
  for (int64_t i = 0; i < keys; i += strip)
    values_multiply(s, t, key, i, first_lane(diagonal, i, strip), strip, i > 0 || !first);
}

/* Results as they are summed are divided by their query's sum of exponentials and turned into
 * rows; for bf16, two columns are rounded and joined first, and there is half as much to turn. */
static void results_store(const ls_kernel_args *args, const attention_shape *s,
                          const query_block *block, forward_tiles *t) {
  const ls_view *to = &args->out[0];
  const int64_t row = block->row, skip = block->skip, column = block->head * s->head_dim;
  const bool joined = in_pairs(t) && to->dtype == LS_BF16 && !args->accumulate[0];
  const float kept = t->mask.draws ? t->mask.kept : 1.0f;
  for (int64_t lane = 0; lane < QUERIES; lane += LS_LANES) {
    const lanes inverse = kept / *(lanes_anywhere *)(t->sum + lane);
    float *o = t->o + lane;
    for (int64_t i = 0; i < s->width; i += 2) {
      lanes_anywhere *even = (lanes_anywhere *)(o + i * QUERIES);
      lanes_anywhere *odd = (lanes_anywhere *)(o + (i + 1) * QUERIES);
      if (joined) {
        *(pairs_anywhere *)(o + i / 2 * QUERIES) = pairs_join(*even * inverse, *odd * inverse);
      } else {
        *even *= inverse, *odd *= inverse;
      }
    }
  }
  if (joined) {
    const int64_t pairs = round_up(s->width / 2, LS_LANES);
    tile_transpose(t->turned, pairs, t->o, QUERIES, pairs, QUERIES);
    pairs_store(to, row, block->count - skip, column, s->head_dim,
                (const uint32_t *)t->turned + skip * pairs, pairs);
  } else {
    tile_transpose(t->turned, s->width, t->o, QUERIES, s->width, QUERIES);
    tile_store(to, row, block->count - skip, column, s->head_dim, t->turned + skip * s->width,
               s->width, args->accumulate[0]);
  }
}

/* Writes the queries' results, and the logarithm of each one's sum of exponentials. */
static void queries_store(const ls_kernel_args *args, const attention_shape *s,
                          const query_block *block, forward_tiles *t) {
  const ls_view *sums = &args->out[1];
  float *place = (float *)sums->data + block->row * sums->dims[1] + block->head;
  for (int64_t i = block->skip; i < block->count; i++, place += sums->dims[1]) {
    const float log_sum = (float)((double)t->max[i] * ln_2 + log((double)t->sum[i]));
    *place = log_sum + (args->accumulate[1] ? *place : 0);
  }
  results_store(args, s, block, t);
}

static void rows_expect(const ls_view *view, int64_t row, int64_t rows, int64_t column,
                        int64_t columns) {
  for (int64_t i = 0; i < rows; i++) row_expect(view, row + i, column, columns);
}

/* Asks for where the queries' results go, and for the same rows of the next head, or of the next
 * sequence's first: processors do not see that they will be read. */
static void block_expect(const ls_kernel_args *args, const attention_shape *s,
                         const query_block *block) {
  const int64_t row = block->row, d = s->head_dim;
  const bool last = block->head + 1 == s->heads;
  const int64_t next = last ? 0 : block->head + 1, next_row = last ? row + s->sequence : row;
  const int64_t rows = least(block->count, s->tokens - next_row);
  rows_expect(&args->out[0], row, block->count, block->head * d, d);
  rows_expect(&args->in[0], next_row, rows, next * d, d);
  rows_expect(&args->in[1], next_row, rows, next / s->group * d, d);
  rows_expect(&args->in[2], next_row, rows, next / s->group * d, d);
}

static void queries_run(const ls_kernel_args *args, const attention_shape *s, forward_tiles *t,
                        const query_block *block) {
  const attention_bend bend = attention_bend_of(args, &args->in[0], block->head);
  /* By any query: the keys before it. */
  const int64_t behind = block->begin - s->window + 1;
  const int64_t unseen = behind > s->first ? behind : s->first;
  queries_load(args, s, block, t);
  t->mask = attention_mask_of(args, &args->in[0], draws_at(args, 3), block->head);
  for (int64_t j = block->skip; t->mask.draws && j < block->count; j++)
    t->mask_rows[j] =
        ls_mask_row(t->mask.draws[block->row + j - block->skip], t->mask.site, t->mask.head);
  if (!is_placed(args)) block_expect(args, s, block);
  const int64_t first = unseen > 0 ? unseen / KEYS * KEYS : 0;
  const int64_t stop = least(s->end, block->begin + block->count - 1 + s->ahead);
  for (int64_t key = first; key < stop; key += KEYS)
    keys_run(s, t, block, bend, attention_scale(args), key, key == first);
  queries_store(args, s, block, t);
}

/* One head of a sequence whose tokens lie in an order of their own: the queries that are here, run
 * by run, in blocks that begin where those of the whole sequence do. */
static void placed_head_run(const ls_kernel_args *args, const attention_shape *s, forward_tiles *t,
                            int64_t number, int64_t head) {
  const ls_view *q = &args->in[0], *k = &args->in[1];
  const int64_t sequence = s->sequence, first = k->start[0] + number * sequence;
  const int64_t kv_head = head / s->group, kv_unit = number * s->kv_heads + kv_head;
  if (t->kept != kv_unit) {
    const placed_rows keys = placed_keys(args, k, 4);
    const int64_t all_rows = round_up(sequence, KEYS);
    placed_run run = {0};
    keys_end(s, t, 0, all_rows);
    while (placed_next(&keys, first, sequence, &run))
      keys_load(args, s, t, run.begin, run.row, run.end - run.begin, kv_head);
    values_join(s, t, all_rows);
  }
  t->kept = kv_unit;
  const placed_rows queries = placed_queries(args, q, k, 4);
  attention_shape of = *s;
  placed_run run = {0};
  while (placed_next(&queries, first, sequence, &run)) {
    of.first = run.first;
    of.end = run.stop;
    for (int64_t i = run.begin / QUERIES * QUERIES; i < run.end; i += QUERIES) {
      const int64_t skip = run.begin > i ? run.begin - i : 0;
      const query_block block = {run.row + i + skip - run.begin, i, skip,
                                 least(QUERIES, run.end - i), head};
      queries_run(args, &of, t, &block);
    }
  }
}

static void placed_turns(const void *work, int part, int64_t begin, int64_t end) {
  const attention_work *given = work;
  const attention_shape *s = &given->shape;
  forward_tiles tiles = forward_tiles_at(given->args, s, given->scratch + part * given->floats);
  for (int64_t unit = begin; unit < end; unit++)
    placed_head_run(given->args, s, &tiles, unit / s->heads, unit % s->heads);
}

/* Units are the heads of each sequence. */
static void attention_turns(const void *work, int part, int64_t begin, int64_t end) {
  const attention_work *given = work;
  const ls_kernel_args *args = given->args;
  const attention_shape *s = &given->shape;
  forward_tiles tiles = forward_tiles_at(args, s, given->scratch + part * given->floats);
  const ls_view *positions = args->inputs > 3 ? &args->in[3] : NULL;
  attention_shape of = *s;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t head = unit % s->heads, first = unit / s->heads * s->sequence;
    const int64_t whole = least(s->sequence, s->tokens - first);
    const int64_t kv_unit = unit / s->group;
    for (int64_t row = first, next; row < first + whole; row = next) { /* a document, or all */
      next = document_end(positions, row, first + whole);
      const int64_t length = next - row;
      of.end = length;
      if (tiles.kept != kv_unit || length < whole) {
        keys_load(args, s, &tiles, 0, row, length, head / s->group);
        keys_end(s, &tiles, length, round_up(length, KEYS));
        values_join(s, &tiles, round_up(length, KEYS));
      }
      tiles.kept = length < whole ? -1 : kv_unit;
      for (int64_t i = 0; i < length; i += QUERIES) {
        const query_block block = {row + i, i, 0, least(QUERIES, length - i), head};
        queries_run(args, &of, &tiles, &block);
      }
    }
  }
}

/* What the queries have come to with the blocks before. The maximum is the one that exponentials
 * are under; scores in pairs may exceed it by attention_slack. */
static void state_load(const ls_kernel_args *args, const attention_shape *s,
                       const query_block *block, forward_tiles *t) {
  const int64_t width = s->width, row = block->row;
  if (args->inputs <= 5) {
    memset(t->o, 0, (size_t)(QUERIES * width) * sizeof(float));
    return;
  }
  tile_load(t->turned, width, QUERIES, &args->in[5], row, block->count, block->head * s->head_dim,
            s->head_dim);
  tile_transpose(t->o, QUERIES, t->turned, width, QUERIES, width);
  for (int i = 6; i < 8; i++) {
    const ls_view *from = &args->in[i];
    const float *place = (const float *)from->data + row * from->dims[1] + block->head;
    float *to = i == 6 ? t->max : t->sum;
    for (int64_t j = 0; j < block->count; j++) to[j] = place[j * from->dims[1]];
  }
}

static void state_store(const ls_kernel_args *args, const attention_shape *s,
                        const query_block *block, forward_tiles *t) {
  const int64_t width = s->width, row = block->row;
  tile_transpose(t->turned, width, t->o, QUERIES, width, QUERIES);
  tile_store(&args->out[0], row, block->count, block->head * s->head_dim, s->head_dim, t->turned,
             width, false);
  for (int o = 1; o < 3; o++) {
    const ls_view *to = &args->out[o];
    const float *from = o == 1 ? t->max : t->sum;
    float *place = (float *)to->data + row * to->dims[1] + block->head;
    for (int64_t j = 0; j < block->count; j++) place[j * to->dims[1]] = from[j];
  }
}

/* The keys and values from row `row` on, which is even: values lie in pairs. */
static forward_tiles tiles_from(const attention_shape *s, const forward_tiles *t, int64_t row) {
  const int64_t floats = row * s->width / (in_pairs(t) ? 2 : 1);
  forward_tiles from = *t;
  from.keys += floats;
  from.values += floats;
  return from;
}

/* The queries against one run of keys, whose rows are tile rows from `keys.row` on, and blocks of
 * them begin at an even one. Places are counted from the block of keys at hand. */
static void run_attend(const ls_kernel_args *args, const attention_shape *s, forward_tiles *t,
                       const query_block *block, const placed_run *keys) {
  const attention_bend bend = attention_bend_of(args, &args->in[0], block->head);
  const int64_t behind = block->begin - s->window + 1;
  const int64_t before = s->first > keys->begin ? s->first : keys->begin; /* none is seen */
  const int64_t unseen = behind > before ? behind : before;
  const int64_t end = least(keys->end, block->begin + block->count);
  for (int64_t key = keys->begin - keys->row % 2; key < end; key += KEYS) {
    if (key + KEYS <= unseen) continue;
    attention_shape of = *s;
    forward_tiles tiles = tiles_from(s, t, keys->row + key - keys->begin);
    query_block queries = *block;
    of.first = before - key;
    of.end = keys->end - key;
    queries.begin -= key;
    keys_run(&of, &tiles, &queries, bend, attention_scale(args), 0, false);
  }
}

/* A block of queries against the runs of all pieces of keys, which are tile rows. */
static void ring_attend(const ls_kernel_args *args, const attention_shape *s, forward_tiles *t,
                        const query_block *block, const ring_share *keys, int64_t number,
                        int64_t first) {
  for (int64_t p = 0; p < keys->pieces; p++) {
    const placed_rows rows = ring_places(keys, ring_row(keys, number, p));
    placed_run run = {0};
    while (placed_next(&rows, first, args->attributes->sequence, &run)) {
      placed_run tiles = run;
      tiles.row += p * keys->piece;
      run_attend(args, s, t, block, &tiles);
    }
  }
}

/* One head of one sequence's rows: queries by runs against keys by runs. */
static void ring_head_run(const ls_kernel_args *args, const attention_shape *s, forward_tiles *t,
                          int64_t number, int64_t head) {
  const int64_t kv_head = head / s->group, kv_unit = number * s->kv_heads + kv_head;
  const ring_share keys = ring_share_of(args, &args->in[1], 4, NULL);
  const ring_share queries = ring_share_of(args, &args->in[0], 4, &args->in[3]);
  const int64_t first = ring_first(args, &queries, number);
  if (t->kept != kv_unit) {
    for (int64_t p = 0; p < keys.pieces; p++)
      keys_load(args, s, t, p * keys.piece, ring_row(&keys, number, p), keys.piece, kv_head);
    keys_end(s, t, keys.pieces * keys.piece, s->sequence);
    values_join(s, t, s->sequence);
  }
  t->kept = kv_unit;
  attention_shape of = *s;
  for (int64_t p = 0; p < queries.pieces; p++) {
    const int64_t row = ring_row(&queries, number, p);
    const placed_rows rows = ring_places(&queries, row);
    placed_run run = {0};
    while (placed_next(&rows, first, args->attributes->sequence, &run)) {
      of.first = run.first;
      for (int64_t i = 0; i < run.end - run.begin; i += QUERIES) {
        const query_block block = {row + run.row + i, run.begin + i, 0,
                                   least(QUERIES, run.end - run.begin - i), head};
        queries_load(args, s, &block, t);
        state_load(args, s, &block, t);
        ring_attend(args, &of, t, &block, &keys, number, first);
        state_store(args, s, &block, t);
      }
    }
  }
}

static void ring_turns(const void *work, int part, int64_t begin, int64_t end) {
  const attention_work *given = work;
  const attention_shape *s = &given->shape;
  forward_tiles tiles = forward_tiles_at(given->args, s, given->scratch + part * given->floats);
  for (int64_t unit = begin; unit < end; unit++)
    ring_head_run(given->args, s, &tiles, unit / s->heads, unit % s->heads);
}

static ls_status kernel_ring_attention(const ls_kernel_args *args, ls_error *error) {
  const attention_shape s = ring_shape_of(args, &args->in[0], &args->in[1]);
  return attention_share(args, &s, s.sequences * s.heads, attention_elements(&s),
                         ls_attention_floats(s.width, s.sequence, LS_PAIRS && all_bf16(args)),
                         ring_turns, error);
}

/* What values are divided by: the sum of exponentials, to which a sink adds one. */
LS_INLINE float ring_sum(const ls_kernel_args *args, int64_t row, int64_t head) {
  const int64_t place = row * args->in[1].dims[1] + head;
  if (args->inputs <= 3) return ((const float *)args->in[2].data)[place];
  const double largest = (double)((const float *)args->in[1].data)[place];
  return (float)exp(ring_log_sum(args, 1, row, head) - largest * ln_2);
}

static void ring_end_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *values = &args->in[0], *out = &args->out[0];
  const int64_t head_dim = args->attributes->head_dim, heads = args->in[1].dims[1];
  float buffer[LS_PIECE], target[LS_PIECE];
  for (int64_t row = begin; row < end; row++) {
    for (int64_t head = 0; head < heads; head++) {
      const float sum = ring_sum(args, row, head);
      for (int64_t at = 0; at < head_dim; at += LS_PIECE) {
        const int64_t column = head * head_dim + at, count = least(LS_PIECE, head_dim - at);
        const float *from = piece_load(values, row, column, count, buffer);
        float *to = piece_target(out, row, column, count, false, target);
        for (int64_t i = 0; i < count; i++) to[i] = from[i] / sum;
        piece_store(out, row, column, count, false, target);
      }
    }
    row_clear_tail(out, row, false);
  }
}

static ls_status kernel_ring_end(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *out = &args->out[0];
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, out->valid[0] * out->valid[1]), out->valid[0],
                ring_end_turns, args);
  return LS_OK;
}

static ls_status attend(const ls_kernel_args *args, const ls_view *sinks, ls_error *error) {
  attention_shape s = attention_shape_of(args, &args->in[0], &args->in[1], args->in[1].valid[0]);
  s.sinks = sinks;
  return attention_share(args, &s, s.sequences * s.heads, attention_elements(&s),
                         ls_attention_floats(s.width, s.sequence, LS_PAIRS && all_bf16(args)),
                         is_placed(args) ? placed_turns : attention_turns, error);
}

static ls_status kernel_attention(const ls_kernel_args *args, ls_error *error) {
  return attend(args, NULL, error);
}

/* Behind the sinks operands are those of attention without. */
static ls_status kernel_sink_attention(const ls_kernel_args *args, ls_error *error) {
  ls_kernel_args plain = *args;
  plain.inputs--;
  for (int i = 3; i < plain.inputs; i++) plain.in[i] = args->in[i + 1];
  return attend(&plain, &args->in[3], error);
}

void LS_VECTOR(ls_fill_attention)(ls_kernel_table *table) {
  table->kernel[LS_OP_ATTENTION] = kernel_attention;
  table->kernel[LS_OP_SINK_ATTENTION] = kernel_sink_attention;
  table->kernel[LS_OP_RING_ATTENTION] = kernel_ring_attention;
  table->kernel[LS_OP_RING_END] = kernel_ring_end;
}
