/* Attention of new tokens over the rows of a cache, which theirs join first: what generating runs.
 *
 * The queries of one KV head, of all new tokens of a sequence and query heads, go through its rows
 * of the cache together,
 * a block of keys at a time, with a running maximum and sum. Where they are few, as with one new
 * token, scores are made key by key, without turning the keys into columns. Where they are many and
 * there is an instruction that multiplies pairs of bf16, tiles of bf16 are of those. */
#include "device/cpu/vector_attention.h"
#include "device/cpu/vector_kernels.h"
#include "device/cpu/vector_pairs.h"

enum { QUERIES = LS_CACHED_QUERIES, KEYS = LS_ATTENTION_KEYS, FEW_QUERIES = 8 };

/* One part's scratch; the second of two shapes is in pairs. */
typedef struct cached_tiles {
  bool paired;          /* see vector_pairs.h */
  float *keys, *values; /* [KEYS, width]; keys [KEYS, width / 2], values [KEYS / 2, width] */
  float *keys_turned;   /* [width, KEYS], or [width / 2, KEYS] */
  float *q, *o;         /* [QUERIES, width]; q [QUERIES, width / 2] */
  float *scores;        /* [QUERIES, KEYS], whose rows become KEYS / 2 pairs */
  float *max, *sum;     /* of each query */
  attention_bend bends[QUERIES];
} cached_tiles;

static cached_tiles cached_tiles_at(const attention_shape *s, float *scratch) {
  cached_tiles t = {.keys = scratch};
  t.values = t.keys + KEYS * s->width;
  t.keys_turned = t.values + KEYS * s->width;
  t.q = t.keys_turned + KEYS * s->width;
  t.o = t.q + QUERIES * s->width;
  t.scores = t.o + QUERIES * s->width;
  t.max = t.scores + QUERIES * KEYS;
  t.sum = t.max + QUERIES;
  return t;
}

/* Queries [first, first + count) of a KV head: those of one token follow each other. */
typedef struct query_block {
  int64_t kv_head, first, count;
} query_block;

/* Each token's row of the caches. */
static const int32_t *places_of(const ls_kernel_args *args) {
  return args->in[args->inputs > 6 ? 6 : 5].data;
}

/* The row of the caches at which the token's sequence begins. */
static int64_t sequence_of(const ls_kernel_args *args, int64_t token) {
  const int32_t *positions = args->in[5].data;
  return (int64_t)places_of(args)[token] - positions[token];
}

static int64_t token_of(const attention_shape *s, const query_block *block, int64_t i) {
  return (block->first + i) / s->group;
}

static int64_t column_of(const attention_shape *s, const query_block *block, int64_t i) {
  return (block->kv_head * s->group + (block->first + i) % s->group) * s->head_dim;
}

/* Rows [first, end) of the cache, which all queries of a block together see. */
typedef struct cache_rows {
  int64_t first, end;
} cache_rows;

static bool cached_in_bf16(const ls_kernel_args *args) {
  return args->in[0].dtype == LS_BF16 && args->in[3].dtype == LS_BF16 &&
         args->in[4].dtype == LS_BF16;
}

LS_INLINE bool in_pairs(const cached_tiles *t) {
  return LS_PAIRS && t->paired;
}

/* Loads a query to row `i`. */
static void query_load(const ls_kernel_args *args, const attention_shape *s,
                       const query_block *block, cached_tiles *t, int64_t i) {
  const int64_t token = token_of(s, block, i), column = column_of(s, block, i), width = s->width;
  if (in_pairs(t)) {
    pairs_load((uint32_t *)t->q + i * (width / 2), width / 2, 1, &args->in[0], token, 1, column,
               s->head_dim);
    return;
  }
  float *q = t->q + i * width;
  const float scale = attention_scale(args);
  tile_load(q, width, 1, &args->in[0], token, 1, column, s->head_dim);
#pragma omp simd
  for (int64_t j = 0; j < width; j++) q[j] *= scale;
}

/* Loads the queries. */
static cache_rows queries_load(const ls_kernel_args *args, const attention_shape *s,
                               const query_block *block, cached_tiles *t) {
  const int32_t *places = places_of(args);
  const int64_t rows = round_up(block->count, LS_TILE_ROWS), width = s->width;
  memset(t->o, 0, (size_t)(rows * width) * sizeof(float));
  memset(t->q, 0, (size_t)(rows * width) * sizeof(float));
  memset(t->scores, 0, (size_t)(rows * KEYS) * sizeof(float));
  cache_rows seen = {INT64_MAX, 0};
  for (int64_t i = 0; i < block->count; i++) {
    const int64_t token = token_of(s, block, i);
    query_load(args, s, block, t, i);
    const int64_t head = column_of(s, block, i) / s->head_dim;
    const attention_start start = attention_start_of(args, s, head);
    t->bends[i] = attention_bend_of(args, &args->in[0], head);
    t->max[i] = start.max, t->sum[i] = start.sum;
    const int64_t first = (int64_t)places[token] - s->window + 1;
    seen.first = least(seen.first, first > s->first ? first : s->first);
    if (places[token] >= seen.end) seen.end = (int64_t)places[token] + 1;
  }
  return seen;
}

/* How many of a block's queries come before `key`, and see nothing of it or of later ones: whole
 * tiles of them. */
static int64_t queries_before(const attention_shape *s, const query_block *block,
                              const int32_t *places, int64_t key) {
  int64_t count = 0;
  while (count < block->count && places[token_of(s, block, count)] < key) count++;
  return count / LS_TILE_ROWS * LS_TILE_ROWS;
}

/* Keys of the cache from row `key` on, as what their scores and their values are made with. */
static void keys_load(const ls_kernel_args *args, const attention_shape *s,
                      const query_block *block, cached_tiles *t, int64_t key, int64_t keys) {
  const int64_t width = s->width, half = width / 2, d = s->head_dim, column = block->kv_head * d;
  if (in_pairs(t)) {
    uint32_t *apart = (uint32_t *)t->keys;
    pairs_load(apart, half, KEYS, &args->in[4], key, keys, column, d);
    rows_join((uint32_t *)t->values, width, apart, half, KEYS, width);
    pairs_load(apart, half, KEYS, &args->in[3], key, keys, column, d);
    pairs_transpose((uint32_t *)t->keys_turned, KEYS, apart, half, KEYS, half);
    return;
  }
  tile_load(t->keys, width, KEYS, &args->in[3], key, keys, column, d);
  tile_load(t->values, width, KEYS, &args->in[4], key, keys, column, d);
  if (block->count > FEW_QUERIES) tile_transpose(t->keys_turned, KEYS, t->keys, width, KEYS, width);
}

/* q . k of the first `keys` keys, for each query from `begin` on of those of them that it sees at
 * least. */
static void scores_make(const attention_shape *s, const query_block *block, cached_tiles *t,
                        const int32_t *places, int64_t begin, int64_t key, int64_t keys) {
  const int64_t width = s->width, rows = round_up(block->count, LS_TILE_ROWS) - begin;
  float *scores = t->scores + begin * KEYS;
  if (in_pairs(t)) {
    pairs_multiply(scores, KEYS, (const uint32_t *)t->q + begin * (width / 2), width / 2, 1,
                   (const uint32_t *)t->keys_turned, KEYS, rows, KEYS, (s->head_dim + 1) / 2,
                   false);
    return;
  }
  if (block->count > FEW_QUERIES) {
    tile_multiply(scores, KEYS, t->q + begin * width, width, 1, t->keys_turned, KEYS, rows, KEYS,
                  s->head_dim, false);
    return;
  }
  for (int64_t i = begin; i < block->count; i++) {
    const int64_t seen = least(keys, places[token_of(s, block, i)] + 1 - key);
    for (int64_t j = 0; j < seen; j++)
      t->scores[i * KEYS + j] = row_dot(t->q + i * width, t->keys + j * width, width);
  }
}

/* The scores at row `i` become exponentials under the query's running maximum, or pairs of them in
 * half the room; what it has summed so far is scaled down to that. `scale`: of scores in pairs,
 * whose maximum is replaced only where it has risen by a factor of 2^8: rounding is relative. */
LS_INLINE void row_softmax(cached_tiles *t, int64_t i, int64_t width, const bool paired,
                           float scale) {
  enum { VECTORS = KEYS / LS_LANES };
  float *scores = t->scores + i * KEYS, *o = t->o + i * width;
  lanes row[VECTORS], largest = lanes_of(-3e38f), total = {0};
  for (int v = 0; v < VECTORS; v++) {
    row[v] = *(const lanes_anywhere *)(scores + v * LS_LANES);
    if (paired) row[v] *= scale;
    largest = lanes_larger(row[v], largest);
  }
  const float before = t->max[i], highest = lanes_most(largest);
  const float now = highest > before + attention_slack(paired) ? highest : before;
  for (int v = 0; v < VECTORS; v++) {
    row[v] = lanes_exp2(row[v] - now);
    total += row[v];
  }
  if (now > before) {
    const float shrink = exp2_of(before - now);
    t->max[i] = now;
    t->sum[i] *= shrink;
#pragma omp simd
    for (int64_t j = 0; j < width; j++) o[j] *= shrink;
  }
  t->sum[i] += lanes_sum(total);
  for (int v = 0; v < VECTORS; v += paired ? 2 : 1) {
    if (paired) {
      *(pairs_anywhere *)(scores + v * LS_LANES / 2) = row_pairs(row[v], row[v + 1]);
    } else {
      *(lanes_anywhere *)(scores + v * LS_LANES) = row[v];
    }
  }
}

/* The scores of the query at row `i` with the first `keys` keys of the block at `key` become
 * exponentials, of those it sees. */
static void query_softmax(const ls_kernel_args *args, const attention_shape *s,
                          const query_block *block, cached_tiles *t, int64_t i, int64_t key,
                          int64_t keys) {
  const attention_bend bend = t->bends[i];
  const int64_t place = places_of(args)[token_of(s, block, i)], beyond = place + 1 - key;
  const int64_t first = window_begin(s, place, key);
  const bool bent = bend.cap > 0.0f || bend.slope > 0.0f;
  const float scale = attention_scale(args);
  float *scores = t->scores + i * KEYS;
  if (bent && in_pairs(t)) {
#pragma omp simd
    for (int64_t j = 0; j < KEYS; j++) scores[j] *= scale;
  }
  scores_bend(scores, bend, place - key);
  for (int64_t j = 0; j < first; j++) scores[j] = -INFINITY;
  for (int64_t j = beyond < 0 ? 0 : least(keys, beyond); j < KEYS; j++) scores[j] = -INFINITY;
  if (in_pairs(t)) {
    row_softmax(t, i, s->width, true, bent ? 1.0f : scale);
  } else {
    row_softmax(t, i, s->width, false, 1.0f);
  }
}

/* Adds the values of the first `keys` keys, each times what has become of its scores. */
static void values_multiply(const attention_shape *s, cached_tiles *t, int64_t begin, int64_t rows,
                            int64_t keys) {
  const int64_t width = s->width;
  const float *shares = t->scores + begin * KEYS;
  float *o = t->o + begin * width;
  if (in_pairs(t)) {
    pairs_multiply(o, width, (const uint32_t *)shares, KEYS, 1, (const uint32_t *)t->values, width,
                   rows, width, (keys + 1) / 2, true);
  } else {
    tile_multiply(o, width, shares, KEYS, 1, t->values, width, rows, width, keys, true);
  }
}

/* Asks for the next keys of a head, or the first of the next one: few queries wait for them. */
static void keys_expect(const ls_kernel_args *args, const attention_shape *s,
                        const query_block *block, cache_rows all, int64_t key) {
  const bool last = key >= all.end;
  if (last && block->kv_head + 1 == s->kv_heads) return;
  const int64_t head = last ? block->kv_head + 1 : block->kv_head, column = head * s->head_dim;
  const int64_t first = last ? all.first / KEYS * KEYS : key, end = least(first + KEYS, all.end);
  for (int64_t row = first; row < end; row++) {
    row_expect(&args->in[3], row, column, s->head_dim);
    row_expect(&args->in[4], row, column, s->head_dim);
  }
}

static void queries_run(const ls_kernel_args *args, const attention_shape *s,
                        const query_block *block, cached_tiles *t) {
  const int32_t *places = places_of(args);
  const int64_t width = s->width, rows = round_up(block->count, LS_TILE_ROWS);
  t->paired = block->count > FEW_QUERIES && cached_in_bf16(args);
  const cache_rows all = queries_load(args, s, block, t);
  for (int64_t key = all.first / KEYS * KEYS; key < all.end; key += KEYS) {
    const int64_t keys = least(KEYS, all.end - key);
    const int64_t begin = queries_before(s, block, places, key);
    keys_load(args, s, block, t, key, keys);
    if (block->count <= FEW_QUERIES) keys_expect(args, s, block, all, key + KEYS);
    scores_make(s, block, t, places, begin, key, keys);
    for (int64_t i = begin; i < block->count; i++) query_softmax(args, s, block, t, i, key, keys);
    values_multiply(s, t, begin, rows - begin, keys);
  }
  for (int64_t i = 0; i < block->count; i++) {
    float *o = t->o + i * width;
    const float inverse = 1.0f / t->sum[i];
    for (int64_t j = 0; j < width; j++) o[j] *= inverse;
    tile_store(&args->out[0], token_of(s, block, i), 1, column_of(s, block, i), s->head_dim, o,
               width, args->accumulate[0]);
  }
}

/* The token behind those of one sequence that follow `first`. */
static int64_t sequence_end(const ls_kernel_args *args, const attention_shape *s, int64_t first) {
  if (args->inputs <= 6) return s->tokens;
  int64_t end = first + 1;
  while (end < s->tokens && sequence_of(args, end) == sequence_of(args, first)) end++;
  return end;
}

static int64_t blocks_of(const attention_shape *s, int64_t tokens) {
  return (tokens * s->group + QUERIES - 1) / QUERIES;
}

/* Of each KV head's queries: none has queries of two sequences. */
static int64_t cached_blocks(const ls_kernel_args *args, const attention_shape *s) {
  int64_t blocks = 0;
  for (int64_t first = 0, end; first < s->tokens; first = end) {
    end = sequence_end(args, s, first);
    blocks += blocks_of(s, end - first);
  }
  return blocks;
}

static query_block cached_block(const ls_kernel_args *args, const attention_shape *s,
                                int64_t number) {
  int64_t first = 0, end = sequence_end(args, s, 0);
  for (int64_t blocks; number >= (blocks = blocks_of(s, end - first));) {
    number -= blocks;
    first = end;
    end = sequence_end(args, s, first);
  }
  query_block block = {.first = first * s->group + number * QUERIES};
  block.count = least(QUERIES, end * s->group - block.first);
  return block;
}

/* Units are blocks of queries, a KV head's side by side: of them the later see more keys. Of
 * several sequences the heads of one are side by side: each asks for the keys of the next. */
static void cached_turns(const void *work, int part, int64_t begin, int64_t end) {
  const attention_work *given = work;
  const ls_kernel_args *args = given->args;
  attention_shape s = given->shape;
  cached_tiles tiles = cached_tiles_at(&s, given->scratch + part * given->floats);
  const bool placed = args->inputs > 6;
  const int64_t blocks = cached_blocks(args, &s);
  for (int64_t unit = begin; unit < end; unit++) {
    query_block block = cached_block(args, &s, placed ? unit / s.kv_heads : unit % blocks);
    block.kv_head = placed ? unit % s.kv_heads : unit / blocks;
    s.first = sequence_of(args, token_of(&s, &block, 0));
    queries_run(args, &s, &block, &tiles);
  }
}

/* Puts the new rows into a cache. */
static ls_status cache_write(const ls_kernel_args *args, int which, ls_error *error) {
  const ls_view *cache = &args->in[3 + which], *rows = &args->in[1 + which];
  const int32_t *positions = args->in[5].data, *places = places_of(args);
  if (cache->dims[1] != rows->dims[1] || cache->dtype != rows->dtype) {
    return ls_fail(error, LS_INTERNAL, "a cache of %lld columns of %s for rows of %lld of %s",
                   (long long)cache->dims[1], ls_dtype_name(cache->dtype), (long long)rows->dims[1],
                   ls_dtype_name(rows->dtype));
  }
  const size_t bytes = (size_t)rows->dims[1] * ls_dtype_bytes(rows->dtype);
  for (int64_t n = 0; n < rows->valid[0]; n++) {
    if (positions[n] < 0 || places[n] < positions[n] || places[n] >= cache->valid[0]) {
      return ls_fail(error, LS_INTERNAL, "position %d lies outside a cache of %lld rows",
                     positions[n], (long long)cache->valid[0]);
    }
    memcpy(view_at(cache, places[n], 0), view_at(rows, n, 0), bytes);
  }
  return LS_OK;
}

static ls_status kernel_cached_attention(const ls_kernel_args *args, ls_error *error) {
  const ls_view *q = &args->in[0], *k = &args->in[1];
  const int32_t *positions = args->in[5].data;
  LS_TRY(cache_write(args, 0, error));
  LS_TRY(cache_write(args, 1, error));
  attention_shape s = attention_shape_of(args, q, k, q->valid[0]);
  if (args->inputs > 7) s.sinks = &args->in[7];
  int64_t longest = 0;
  for (int64_t n = 0; n < s.tokens; n++) {
    if (positions[n] >= longest) longest = (int64_t)positions[n] + 1;
  }
  return attention_share(args, &s, cached_blocks(args, &s) * s.kv_heads,
                         attention_elements(&s) * longest, ls_cached_attention_floats(s.width),
                         cached_turns, error);
}

void LS_VECTOR(ls_fill_cached_attention)(ls_kernel_table *table) {
  table->kernel[LS_OP_CACHED_ATTENTION] = kernel_cached_attention;
}
