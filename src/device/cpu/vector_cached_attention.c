/* Attention of new tokens over the rows of a cache, which theirs join first: what generating runs;
 * or over those of the rows that one rank is dealt, with what others need to join theirs.
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

/* Which rows of the caches are at hand: row i is that of place i x ranks + number. */
typedef struct dealt_rows {
  int64_t ranks, number;
} dealt_rows;

static dealt_rows dealt_of(const ls_kernel_args *args) {
  if (args->outputs < 2) return (dealt_rows){1, 0};
  return (dealt_rows){args->attributes->turns, args->out[0].start[0]};
}

/* Queries [first, first + count) of a KV head: those of one token follow each other. */
typedef struct query_block {
  int64_t kv_head, first, count;
  dealt_rows dealt;
} query_block;

/* How many of the rows at hand are of places up to this one. */
LS_INLINE int64_t rows_to(const query_block *block, int64_t place) {
  const dealt_rows *of = &block->dealt;
  return place < of->number ? 0 : (place - of->number) / of->ranks + 1;
}

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

/* The first of the rows at hand that the query at `place` sees. */
LS_INLINE int64_t row_from(const attention_shape *s, const query_block *block, int64_t place) {
  const int64_t first = place - s->window + 1;
  return rows_to(block, (first > s->first ? first : s->first) - 1);
}

/* Rows [first, end) of the cache, which all queries of a block together see; the first is the
 * sequence's first, or whole blocks of keys behind it. */
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
    const int64_t end = rows_to(block, places[token]);
    seen.first = least(seen.first, row_from(s, block, places[token]));
    if (end > seen.end) seen.end = end;
  }
  const int64_t begin = rows_to(block, s->first - 1);
  seen.first = begin + (seen.first - begin) / KEYS * KEYS;
  return seen;
}

/* How many of a block's queries come before `key`, and see nothing of it or of later ones: whole
 * tiles of them. */
static int64_t queries_before(const attention_shape *s, const query_block *block,
                              const int32_t *places, int64_t key) {
  int64_t count = 0;
  while (count < block->count && rows_to(block, places[token_of(s, block, count)]) <= key) count++;
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
    const int64_t seen = least(keys, rows_to(block, places[token_of(s, block, i)]) - key);
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
  const dealt_rows *dealt = &block->dealt;
  const int64_t place = places_of(args)[token_of(s, block, i)];
  const int64_t beyond = rows_to(block, place) - key;
  const int64_t first = least(row_from(s, block, place) - key, KEYS);
  const bool bent = bend.cap > 0.0f || bend.slope > 0.0f;
  const float scale = attention_scale(args);
  float *scores = t->scores + i * KEYS;
  if (bent && in_pairs(t)) {
#pragma omp simd
    for (int64_t j = 0; j < KEYS; j++) scores[j] *= scale;
  }
  scores_bend_apart(scores, bend, place - key * dealt->ranks - dealt->number, dealt->ranks);
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
  const int64_t first = last ? all.first : key, end = least(first + KEYS, all.end);
  for (int64_t row = first; row < end; row++) {
    row_expect(&args->in[3], row, column, s->head_dim);
    row_expect(&args->in[4], row, column, s->head_dim);
  }
}

/* What has been summed, divided; of a part of the rows also the log-sum-exp. */
static void queries_store(const ls_kernel_args *args, const attention_shape *s,
                          const query_block *block, cached_tiles *t) {
  const int64_t width = s->width;
  for (int64_t i = 0; i < block->count; i++) {
    const int64_t token = token_of(s, block, i), column = column_of(s, block, i);
    float *o = t->o + i * width;
    const float inverse = t->sum[i] > 0.0f ? 1.0f / t->sum[i] : 0.0f;
    for (int64_t j = 0; j < width; j++) o[j] *= inverse;
    tile_store(&args->out[0], token, 1, column, s->head_dim, o, width, args->accumulate[0]);
    if (args->outputs < 2) continue;
    float *sums = view_at(&args->out[1], token, column / s->head_dim);
    *sums = t->sum[i] > 0.0f ? t->max[i] / LS_LOG2_E + logf(t->sum[i]) : -INFINITY;
  }
}

static void queries_run(const ls_kernel_args *args, const attention_shape *s,
                        const query_block *block, cached_tiles *t) {
  const int32_t *places = places_of(args);
  const int64_t rows = round_up(block->count, LS_TILE_ROWS);
  t->paired = block->count > FEW_QUERIES && cached_in_bf16(args);
  const cache_rows all = queries_load(args, s, block, t);
  for (int64_t key = all.first; key < all.end; key += KEYS) {
    const int64_t keys = least(KEYS, all.end - key);
    const int64_t begin = queries_before(s, block, places, key);
    keys_load(args, s, block, t, key, keys);
    if (block->count <= FEW_QUERIES) keys_expect(args, s, block, all, key + KEYS);
    scores_make(s, block, t, places, begin, key, keys);
    for (int64_t i = begin; i < block->count; i++) query_softmax(args, s, block, t, i, key, keys);
    values_multiply(s, t, begin, rows - begin, keys);
  }
  queries_store(args, s, block, t);
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
    block.dealt = dealt_of(args);
    s.first = sequence_of(args, token_of(&s, &block, 0));
    queries_run(args, &s, &block, &tiles);
  }
}

/* Puts the new rows into a cache. */
static ls_status cache_write(const ls_kernel_args *args, int which, ls_error *error) {
  const ls_view *cache = &args->in[3 + which], *rows = &args->in[1 + which];
  const int32_t *positions = args->in[5].data, *places = places_of(args);
  const dealt_rows dealt = dealt_of(args);
  if (cache->dims[1] != rows->dims[1] || cache->dtype != rows->dtype) {
    return ls_fail(error, LS_INTERNAL, "a cache of %lld columns of %s for rows of %lld of %s",
                   (long long)cache->dims[1], ls_dtype_name(cache->dtype), (long long)rows->dims[1],
                   ls_dtype_name(rows->dtype));
  }
  const size_t bytes = (size_t)rows->dims[1] * ls_dtype_bytes(rows->dtype);
  for (int64_t n = 0; n < rows->valid[0]; n++) {
    const int64_t row = places[n] / dealt.ranks;
    if (args->outputs > 1 && places[n] == -1) continue;
    if (positions[n] < 0 || places[n] < positions[n] || row >= cache->valid[0] ||
        (places[n] - positions[n]) % dealt.ranks) {
      return ls_fail(error, LS_INTERNAL, "position %d lies outside a cache of %lld rows",
                     positions[n], (long long)cache->valid[0] * dealt.ranks);
    }
    if (places[n] % dealt.ranks == dealt.number)
      memcpy(view_at(cache, row, 0), view_at(rows, n, 0), bytes);
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
                         attention_elements(&s) * (longest / dealt_of(args).ranks + 1),
                         ls_cached_attention_floats(s.width), cached_turns, error);
}

/* Matrix `part` of three dimensions; of a cache rows [part x rows, (part + 1) x rows). */
static ls_view matrix_at(const ls_view *view, int64_t part, int64_t rows) {
  const int last = view->ndim - 1;
  ls_view of = {.dtype = view->dtype, .ndim = 2};
  of.dims[0] = rows;
  of.valid[0] = last > 1 ? view->valid[1] : rows;
  of.start[0] = last > 1 ? view->start[0] + part : 0;
  of.dims[1] = view->dims[last];
  of.valid[1] = view->valid[last];
  of.start[1] = view->start[last];
  of.data = (char *)view->data + (size_t)(part * rows * of.dims[1]) * ls_dtype_bytes(view->dtype);
  return of;
}

static ls_status kernel_cached_part(const ls_kernel_args *args, ls_error *error) {
  const int64_t parts = args->out[0].dims[0];
  if (args->accumulate[0] || args->accumulate[1])
    return ls_fail(error, LS_INTERNAL, "parts of a cache cannot be accumulated into");
  if (parts < 1 || args->in[3].dims[0] % parts)
    return ls_fail(error, LS_INTERNAL, "a cache of %lld rows in %lld parts; expected a multiple",
                   (long long)args->in[3].dims[0], (long long)parts);
  for (int64_t p = 0; p < parts; p++) {
    ls_kernel_args one = *args;
    for (int c = 3; c < 5; c++) one.in[c] = matrix_at(&args->in[c], p, args->in[c].dims[0] / parts);
    for (int o = 0; o < 2; o++) one.out[o] = matrix_at(&args->out[o], p, args->out[o].dims[1]);
    LS_TRY(kernel_cached_attention(&one, error));
  }
  return LS_OK;
}

/* What parts came to for one head of a token, each by its share of the exponentials. */
static void head_join(const ls_kernel_args *args, int64_t token, int64_t head) {
  const ls_view *values = &args->in[0], *sums = &args->in[1];
  const int64_t head_dim = args->attributes->head_dim, column = head * head_dim;
  const int64_t apart = values->dims[1] * values->dims[2];
  const float *of = (const float *)values->data + token * values->dims[2] + column;
  const float *sum = (const float *)sums->data + token * sums->dims[2] + head;
  const int64_t sums_apart = sums->dims[1] * sums->dims[2];
  const bool sinks = args->inputs > 2;
  const float sink =
      sinks ? sink_of(args, &args->in[2], &args->out[0], head) / LS_LOG2_E : -INFINITY;
  float largest = sink, joined[KEYS];
  for (int64_t p = 0; p < values->valid[0]; p++)
    if (sum[p * sums_apart] > largest) largest = sum[p * sums_apart];
  float total = sinks ? exp2_of((sink - largest) * LS_LOG2_E) : 0.0f;
  for (int64_t p = 0; p < values->valid[0] && largest > -INFINITY; p++)
    total += exp2_of((sum[p * sums_apart] - largest) * LS_LOG2_E);
  for (int64_t first = 0; first < head_dim; first += KEYS) {
    const int64_t count = least(KEYS, head_dim - first);
    memset(joined, 0, sizeof joined);
    for (int64_t p = 0; p < values->valid[0]; p++) {
      const float below = sum[p * sums_apart] - largest;
      const float share = total > 0.0f ? exp2_of(below * LS_LOG2_E) / total : 0.0f;
      const float *part = of + p * apart + first;
#pragma omp simd
      for (int64_t c = 0; c < count; c++) joined[c] += share * part[c];
    }
    tile_store(&args->out[0], token, 1, column + first, count, joined, KEYS, args->accumulate[0]);
  }
}

static void tokens_join(const void *work, int part, int64_t begin, int64_t end) {
  const ls_kernel_args *args = work;
  const int64_t heads = args->in[1].dims[2];
  (void)part;
  for (int64_t unit = begin; unit < end; unit++) head_join(args, unit / heads, unit % heads);
}

static ls_status kernel_cached_end(const ls_kernel_args *args, ls_error *error) {
  const ls_view *values = &args->in[0];
  const int64_t tokens = args->out[0].valid[0], heads = args->in[1].dims[2];
  (void)error;
  const int64_t elements = values->valid[0] * tokens * values->dims[2];
  ls_host_split(args->queue->facts->threads, ls_cpu_parts(args->queue->facts, elements),
                tokens * heads, tokens_join, args);
  return LS_OK;
}

void LS_VECTOR(ls_fill_cached_attention)(ls_kernel_table *table) {
  table->kernel[LS_OP_CACHED_ATTENTION] = kernel_cached_attention;
  table->kernel[LS_OP_CACHED_PART] = kernel_cached_part;
  table->kernel[LS_OP_CACHED_END] = kernel_cached_end;
}
