/* Causal attention, forward: a block of queries against blocks of keys with a running maximum and
 * sum, so that no more than a block of scores exists (Dao, Fu, Ermon, Rudra, Re: "FlashAttention",
 * 2022). Tiles have the queries along their rows: what each query keeps is then a lane of a vector,
 * and maxima and sums are taken over rows without any vector being added up in itself. One head's
 * keys and values are turned into fp32 tiles once and serve all queries. */
#include "run/cpu/vector_attention.h"
#include "run/cpu/vector_kernels.h"

enum { QUERIES = 64, KEYS = LS_ATTENTION_KEYS };

static const double ln_2 = 0.693147180559945309;

/* One part's scratch. */
typedef struct forward_tiles {
  float *keys, *values; /* [blocks * KEYS, width] */
  float *q, *o;         /* [width, QUERIES] */
  float *turned;        /* [QUERIES, width]: q as it comes, o as it goes */
  float *scores;        /* [KEYS, QUERIES] */
  float *max, *sum;     /* [QUERIES] */
  int64_t kept;         /* sequence and KV head whose keys and values are there */
} forward_tiles;

/* Floats of a head's keys, in whole blocks. */
static int64_t key_floats(const attention_shape *s) {
  return round_up(s->sequence, KEYS) * s->width;
}

static int64_t forward_floats(const attention_shape *s) {
  return 2 * key_floats(s) + 3 * QUERIES * s->width + KEYS * QUERIES + 2 * QUERIES;
}

static forward_tiles forward_tiles_at(const attention_shape *s, float *scratch) {
  forward_tiles t = {.keys = scratch, .kept = -1};
  t.values = t.keys + key_floats(s);
  t.q = t.values + key_floats(s);
  t.o = t.q + QUERIES * s->width;
  t.turned = t.o + QUERIES * s->width;
  t.scores = t.turned + QUERIES * s->width;
  t.max = t.scores + KEYS * QUERIES;
  t.sum = t.max + QUERIES;
  return t;
}

static void keys_load(const ls_kernel_args *args, const attention_shape *s, forward_tiles *t,
                      int64_t first, int64_t length, int64_t kv_head) {
  const int64_t rows = round_up(length, KEYS), column = kv_head * s->head_dim;
  tile_load(t->keys, s->width, rows, &args->in[1], first, length, column, s->head_dim);
  tile_load(t->values, s->width, rows, &args->in[2], first, length, column, s->head_dim);
}

/* Queries [begin, begin + count) of the sequence whose first token is row `first`. */
typedef struct query_block {
  int64_t first, begin, count, head;
} query_block;

static void queries_load(const ls_kernel_args *args, const attention_shape *s,
                         const query_block *block, forward_tiles *t) {
  const int64_t width = s->width;
  const float scale = (float)args->attributes->softmax_scale * LS_LOG2_E;
  tile_load(t->turned, width, QUERIES, &args->in[0], block->first + block->begin, block->count,
            block->head * s->head_dim, s->head_dim);
#pragma omp simd
  for (int64_t i = 0; i < QUERIES * width; i++) t->turned[i] *= scale;
  tile_transpose(t->q, QUERIES, t->turned, width, QUERIES, width);
  memset(t->o, 0, (size_t)(QUERIES * width) * sizeof(float));
  for (int64_t i = 0; i < QUERIES; i++) {
    t->max[i] = -3e38f; /* finite, so that the first difference is no NaN */
    t->sum[i] = 0;
  }
}

/* The first query, in whole strips, that sees the key at row `key` of a block: on the diagonal
 * those before it do not. */
LS_INLINE int64_t first_lane(bool diagonal, int64_t key) {
  return diagonal ? key / LS_ATTENTION_STRIP * LS_ATTENTION_STRIP : 0;
}

/* Bends the scores of the key `distance` tokens before the block's first query, and hides it from
 * the queries that do not see it: those before it, or a window's length behind it. */
static void key_hide(float *scores, int64_t lane, int64_t distance, int64_t window,
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
  for (int64_t j = lane; j < -distance; j++) scores[j] = -INFINITY;
  const int64_t end = window - distance;
  for (int64_t j = end > lane ? end : lane; j < QUERIES; j++) scores[j] = -INFINITY;
}

/* The scores of LS_LANES queries with `keys` keys, a multiple of 4, become exponentials under the
 * running maximum; what was summed so far is scaled down to that. `lane`: the first query's. */
LS_INLINE void lanes_softmax(forward_tiles *t, int64_t lane, int64_t keys, int64_t width) {
  lanes_anywhere *max = (lanes_anywhere *)(t->max + lane), *sum = (lanes_anywhere *)(t->sum + lane);
  float *scores = t->scores + lane, *o = t->o + lane;
  lanes most[4] = {*max, *max, *max, *max};
  for (int64_t i = 0; i < keys; i += 4) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < 4; j++)
      most[j] = lanes_larger(*(lanes_anywhere *)(scores + (i + j) * QUERIES), most[j]);
  }
  const lanes now = lanes_larger(lanes_larger(most[0], most[1]), lanes_larger(most[2], most[3]));
  const lanes before = *max;
  lanes total = *sum;
  if (memcmp(&before, &now, sizeof now) != 0) {
    const lanes shrink = lanes_exp2(before - now);
    total *= shrink;
    for (int64_t i = 0; i < width; i++) *(lanes_anywhere *)(o + i * QUERIES) *= shrink;
  }
  for (int64_t i = 0; i < keys; i++) {
    lanes_anywhere *place = (lanes_anywhere *)(scores + i * QUERIES);
    *place = lanes_exp2(*place - now);
    total += *place;
  }
  *max = now;
  *sum = total;
}

/* The queries against the block of keys from `key` on. */
static void keys_run(const attention_shape *s, forward_tiles *t, const query_block *block,
                     attention_bend bend, int64_t key) {
  const bool diagonal = key == block->begin;
  const int64_t width = s->width, strip = diagonal ? LS_ATTENTION_STRIP : KEYS;
  const int64_t keys = diagonal ? round_up(block->count, strip) : KEYS;
  const bool bent = bend.cap > 0.0f || bend.slope > 0.0f;
  const bool cut = diagonal || block->begin + QUERIES - key > s->window;
  for (int64_t i = 0; i < keys; i += strip) {
    const int64_t lane = first_lane(diagonal, i);
    tile_multiply(t->scores + i * QUERIES + lane, QUERIES, t->keys + (key + i) * width, width, 1,
                  t->q + lane, QUERIES, strip, QUERIES - lane, s->head_dim, false);
  }
  for (int64_t i = 0; i < keys && (bent || cut); i++)
    key_hide(t->scores + i * QUERIES, first_lane(diagonal, i), block->begin - key - i, s->window,
             bend);
  for (int64_t lane = 0; lane < QUERIES; lane += LS_LANES) {
    const int64_t seen = (lane / LS_ATTENTION_STRIP + 1) * LS_ATTENTION_STRIP;
    lanes_softmax(t, lane, diagonal ? least(keys, seen) : keys, width);
  }
  for (int64_t i = 0; i < keys; i += strip) {
    const int64_t lane = first_lane(diagonal, i);
    tile_multiply(t->o + lane, QUERIES, t->values + (key + i) * width, 1, width,
                  t->scores + i * QUERIES + lane, QUERIES, width, QUERIES - lane, strip, true);
  }
}

/* Writes the queries' results, and the logarithm of each one's sum of exponentials. */
static void queries_store(const ls_kernel_args *args, const attention_shape *s,
                          const query_block *block, forward_tiles *t) {
  const int64_t row = block->first + block->begin, width = s->width;
  const ls_view *sums = &args->out[1];
  tile_transpose(t->turned, width, t->o, QUERIES, width, QUERIES);
  for (int64_t i = 0; i < block->count; i++) {
    const float inverse = 1.0f / t->sum[i];
#pragma omp simd
    for (int64_t j = 0; j < width; j++) t->turned[i * width + j] *= inverse;
    float *place = (float *)sums->data + (row + i) * sums->dims[1] + block->head;
    const float log_sum = (float)((double)t->max[i] * ln_2 + log((double)t->sum[i]));
    *place = log_sum + (args->accumulate[1] ? *place : 0);
  }
  tile_store(&args->out[0], row, block->count, block->head * s->head_dim, s->head_dim, t->turned,
             width, args->accumulate[0]);
}

static void queries_run(const ls_kernel_args *args, const attention_shape *s, forward_tiles *t,
                        const query_block *block) {
  const attention_bend bend = attention_bend_of(args, &args->in[0], block->head);
  const int64_t unseen = block->begin - s->window + 1; /* by any query: the keys before it */
  queries_load(args, s, block, t);
  for (int64_t key = unseen > 0 ? unseen / KEYS * KEYS : 0; key <= block->begin; key += KEYS)
    keys_run(s, t, block, bend, key);
  queries_store(args, s, block, t);
}

/* Units are the heads of each sequence. */
static void attention_turns(const void *work, int part, int64_t begin, int64_t end) {
  const attention_work *given = work;
  const ls_kernel_args *args = given->args;
  const attention_shape *s = &given->shape;
  forward_tiles tiles = forward_tiles_at(s, given->scratch + part * given->floats);
  const ls_view *positions = args->inputs > 3 ? &args->in[3] : NULL;
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t head = unit % s->heads, first = unit / s->heads * s->sequence;
    const int64_t whole = least(s->sequence, s->tokens - first);
    const int64_t kv_unit = unit / s->group;
    for (int64_t row = first, next; row < first + whole; row = next) { /* a document, or all */
      next = document_end(positions, row, first + whole);
      const int64_t length = next - row;
      if (tiles.kept != kv_unit || length < whole)
        keys_load(args, s, &tiles, row, length, head / s->group);
      tiles.kept = length < whole ? -1 : kv_unit;
      for (int64_t i = 0; i < length; i += QUERIES) {
        const query_block block = {row, i, least(QUERIES, length - i), head};
        queries_run(args, s, &tiles, &block);
      }
    }
  }
}

static ls_status kernel_attention(const ls_kernel_args *args, ls_error *error) {
  const attention_shape s =
      attention_shape_of(args, &args->in[0], &args->in[1], args->in[0].valid[0]);
  return attention_share(args, &s, s.sequences * s.heads, attention_elements(&s),
                         forward_floats(&s), attention_turns, error);
}

void LS_VECTOR(ls_fill_attention)(ls_kernel_table *table) {
  table->kernel[LS_OP_ATTENTION] = kernel_attention;
}

size_t LS_VECTOR(ls_attention_bytes)(const ls_kernel_args *args) {
  const attention_shape s =
      attention_shape_of(args, &args->in[0], &args->in[1], args->in[0].dims[0]);
  return attention_scratch(args, forward_floats(&s));
}
