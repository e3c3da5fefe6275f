/* Attention of new tokens over the rows of a cache, which theirs join first: what generating runs.
 *
 * The queries of one KV head, of all its new tokens and query heads, go through the cache together,
 * a block of keys at a time, with a running maximum and sum. Where they are few, as with one new
 * token, scores are made key by key, without turning the keys into columns. */
#include "run/cpu/vector_attention.h"
#include "run/cpu/vector_kernels.h"

enum { QUERIES = 128, KEYS = LS_ATTENTION_KEYS, FEW_QUERIES = 8 };

/* One part's scratch. */
typedef struct cached_tiles {
  float *keys, *values; /* [KEYS, width] */
  float *keys_turned;   /* [width, KEYS] */
  float *q, *o;         /* [QUERIES, width] */
  float *scores;        /* [QUERIES, KEYS] */
  float *max, *sum;     /* of each query */
  attention_bend bends[QUERIES];
} cached_tiles;

static int64_t cached_floats(const attention_shape *s) {
  return (3 * KEYS + 2 * QUERIES) * s->width + QUERIES * KEYS + 2 * QUERIES;
}

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

/* Loads the queries. */
static cache_rows queries_load(const ls_kernel_args *args, const attention_shape *s,
                               const query_block *block, cached_tiles *t) {
  const int32_t *positions = args->in[5].data;
  const int64_t rows = round_up(block->count, LS_TILE_ROWS), width = s->width;
  const float scale = (float)args->attributes->softmax_scale * LS_LOG2_E;
  memset(t->o, 0, (size_t)(rows * width) * sizeof(float));
  memset(t->q, 0, (size_t)(rows * width) * sizeof(float));
  memset(t->scores, 0, (size_t)(rows * KEYS) * sizeof(float));
  cache_rows seen = {INT64_MAX, 0};
  for (int64_t i = 0; i < block->count; i++) {
    const int64_t token = token_of(s, block, i);
    float *q = t->q + i * width;
    tile_load(q, width, 1, &args->in[0], token, 1, column_of(s, block, i), s->head_dim);
#pragma omp simd
    for (int64_t j = 0; j < width; j++) q[j] *= scale;
    t->bends[i] = attention_bend_of(args, &args->in[0], column_of(s, block, i) / s->head_dim);
    t->max[i] = -3e38f; /* finite, so that the first difference is no NaN */
    t->sum[i] = 0;
    const int64_t first = (int64_t)positions[token] - s->window + 1;
    seen.first = least(seen.first, first > 0 ? first : 0);
    if (positions[token] >= seen.end) seen.end = (int64_t)positions[token] + 1;
  }
  return seen;
}

/* How many of a block's queries come before `key`, and see nothing of it or of later ones: whole
 * tiles of them. */
static int64_t queries_before(const attention_shape *s, const query_block *block,
                              const int32_t *positions, int64_t key) {
  int64_t count = 0;
  while (count < block->count && positions[token_of(s, block, count)] < key) count++;
  return count / LS_TILE_ROWS * LS_TILE_ROWS;
}

/* q . k of the first `keys` keys, for each query from `begin` on of those of them that it sees at
 * least. */
static void scores_make(const attention_shape *s, const query_block *block, cached_tiles *t,
                        const int32_t *positions, int64_t begin, int64_t key, int64_t keys) {
  const int64_t width = s->width;
  if (block->count > FEW_QUERIES) {
    const int64_t rows = round_up(block->count, LS_TILE_ROWS) - begin;
    tile_transpose(t->keys_turned, KEYS, t->keys, width, KEYS, width);
    tile_multiply(t->scores + begin * KEYS, KEYS, t->q + begin * width, width, 1, t->keys_turned,
                  KEYS, rows, KEYS, s->head_dim, false);
    return;
  }
  for (int64_t i = begin; i < block->count; i++) {
    const int64_t seen = least(keys, positions[token_of(s, block, i)] + 1 - key);
    for (int64_t j = 0; j < seen; j++)
      t->scores[i * KEYS + j] = row_dot(t->q + i * width, t->keys + j * width, width);
  }
}

static void queries_run(const ls_kernel_args *args, const attention_shape *s,
                        const query_block *block, cached_tiles *t) {
  const int32_t *positions = args->in[5].data;
  const int64_t width = s->width, d = s->head_dim, kv_column = block->kv_head * d;
  const cache_rows all = queries_load(args, s, block, t);
  const int64_t rows = round_up(block->count, LS_TILE_ROWS);
  for (int64_t key = all.first / KEYS * KEYS; key < all.end; key += KEYS) {
    const int64_t keys = least(KEYS, all.end - key);
    tile_load(t->keys, width, KEYS, &args->in[3], key, keys, kv_column, d);
    tile_load(t->values, width, KEYS, &args->in[4], key, keys, kv_column, d);
    const int64_t begin = queries_before(s, block, positions, key);
    scores_make(s, block, t, positions, begin, key, keys);
    for (int64_t i = begin; i < block->count; i++) {
      const int64_t place = positions[token_of(s, block, i)], beyond = place + 1 - key;
      const int64_t seen = beyond < 0 ? 0 : least(keys, beyond);
      float *scores = t->scores + i * KEYS;
      scores_bend(scores, t->bends[i], place - key);
      scores_softmax(scores, window_begin(s, place, key), seen, &t->max[i], &t->sum[i],
                     t->o + i * width, width);
    }
    tile_multiply(t->o + begin * width, width, t->scores + begin * KEYS, KEYS, 1, t->values, width,
                  rows - begin, width, keys, true);
  }
  for (int64_t i = 0; i < block->count; i++) {
    float *o = t->o + i * width;
    const float inverse = 1.0f / t->sum[i];
    for (int64_t j = 0; j < width; j++) o[j] *= inverse;
    tile_store(&args->out[0], token_of(s, block, i), 1, column_of(s, block, i), d, o, width,
               args->accumulate[0]);
  }
}

/* Of each KV head's queries. */
static int64_t cached_blocks(const attention_shape *s) {
  return (s->tokens * s->group + QUERIES - 1) / QUERIES;
}

/* Units are blocks of queries, a KV head's side by side: of them the later see more keys. */
static void cached_turns(const void *work, int part, int64_t begin, int64_t end) {
  const attention_work *given = work;
  const attention_shape *s = &given->shape;
  cached_tiles tiles = cached_tiles_at(s, given->scratch + part * given->floats);
  const int64_t blocks = cached_blocks(s);
  for (int64_t unit = begin; unit < end; unit++) {
    query_block block = {.kv_head = unit / blocks, .first = unit % blocks * QUERIES};
    block.count = least(QUERIES, s->tokens * s->group - block.first);
    queries_run(given->args, s, &block, &tiles);
  }
}

/* Puts the new rows into a cache. */
static ls_status cache_write(const ls_view *cache, const ls_view *rows, const int32_t *positions,
                             ls_error *error) {
  if (cache->dims[1] != rows->dims[1] || cache->dtype != rows->dtype) {
    return ls_fail(error, LS_INTERNAL, "a cache of %lld columns of %s for rows of %lld of %s",
                   (long long)cache->dims[1], ls_dtype_name(cache->dtype), (long long)rows->dims[1],
                   ls_dtype_name(rows->dtype));
  }
  const size_t bytes = (size_t)rows->dims[1] * ls_dtype_bytes(rows->dtype);
  for (int64_t n = 0; n < rows->valid[0]; n++) {
    if (positions[n] < 0 || positions[n] >= cache->valid[0]) {
      return ls_fail(error, LS_INTERNAL, "position %d lies outside a cache of %lld rows",
                     positions[n], (long long)cache->valid[0]);
    }
    memcpy(view_at(cache, positions[n], 0), view_at(rows, n, 0), bytes);
  }
  return LS_OK;
}

static ls_status kernel_cached_attention(const ls_kernel_args *args, ls_error *error) {
  const ls_view *q = &args->in[0], *k = &args->in[1];
  const int32_t *positions = args->in[5].data;
  LS_TRY(cache_write(&args->in[3], k, positions, error));
  LS_TRY(cache_write(&args->in[4], &args->in[2], positions, error));
  const attention_shape s = attention_shape_of(args, q, k, q->valid[0]);
  int64_t longest = 0;
  for (int64_t n = 0; n < s.tokens; n++) {
    if (positions[n] >= longest) longest = (int64_t)positions[n] + 1;
  }
  return attention_share(args, &s, cached_blocks(&s) * s.kv_heads, attention_elements(&s) * longest,
                         cached_floats(&s), cached_turns, error);
}

void LS_VECTOR(ls_fill_cached_attention)(ls_kernel_table *table) {
  table->kernel[LS_OP_CACHED_ATTENTION] = kernel_cached_attention;
}

size_t LS_VECTOR(ls_cached_attention_bytes)(const ls_kernel_args *args) {
  const attention_shape s =
      attention_shape_of(args, &args->in[0], &args->in[1], args->in[0].dims[0]);
  return attention_scratch(args, cached_floats(&s));
}
