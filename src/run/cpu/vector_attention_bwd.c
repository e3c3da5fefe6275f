/* Causal attention, backward: scores are computed again from the saved log-sum-exp, a block of
 * queries against a block of keys at a time. A part owns a KV head of a sequence and goes through
 * the query heads that share it, so sums are taken in one order and never by two threads. */
#include "run/cpu/vector_attention.h"
#include "run/cpu/vector_kernels.h"

enum { QUERIES = 64, KEYS = LS_ATTENTION_KEYS };

/* One part's scratch. `rows` are a sequence's or a document's, in whole blocks. */
typedef struct backward_tiles {
  float *keys, *keys_turned, *values_turned; /* [KEYS, width], [width, KEYS] twice */
  float *p, *ds;                             /* [QUERIES, KEYS] */
  float *dk, *dv;                            /* [rows, width]: of the KV head */
  float *q, *go, *dq;                        /* [rows, width]: of one query head */
  float *sums, *deltas;                      /* [rows]: log-sum-exp to base 2; do . o */
  int64_t rows;
} backward_tiles;

static int64_t sequence_rows(const attention_shape *s) {
  return round_up(s->sequence, QUERIES);
}

static int64_t backward_floats(const attention_shape *s) {
  return 3 * KEYS * s->width + 2 * QUERIES * KEYS + sequence_rows(s) * (5 * s->width + 2);
}

static backward_tiles backward_tiles_at(const attention_shape *s, float *scratch) {
  backward_tiles t = {.rows = sequence_rows(s)};
  t.keys = scratch;
  t.keys_turned = t.keys + KEYS * s->width;
  t.values_turned = t.keys_turned + KEYS * s->width;
  t.p = t.values_turned + KEYS * s->width;
  t.ds = t.p + QUERIES * KEYS;
  t.dk = t.ds + QUERIES * KEYS;
  t.dv = t.dk + t.rows * s->width;
  t.q = t.dv + t.rows * s->width;
  t.go = t.q + t.rows * s->width;
  t.dq = t.go + t.rows * s->width;
  t.sums = t.dq + t.rows * s->width;
  t.deltas = t.sums + t.rows;
  return t;
}

/* A query head's q and do; and what the softmax's gradient takes off each score: do . o. */
static void head_load(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                      int64_t first, int64_t length, int64_t head) {
  const ls_view *lse = &args->in[5];
  const int64_t column = head * s->head_dim, width = s->width, d = s->head_dim;
  tile_load(t->go, width, t->rows, &args->in[0], first, length, column, d);
  tile_load(t->dq, width, t->rows, &args->in[4], first, length, column, d);
  for (int64_t i = 0; i < length; i++) {
    t->deltas[i] = row_dot(t->dq + i * width, t->go + i * width, width);
    t->sums[i] = ((const float *)lse->data)[(first + i) * lse->dims[1] + head] * LS_LOG2_E;
  }
  tile_load(t->q, width, t->rows, &args->in[1], first, length, column, d);
  memset(t->dq, 0, (size_t)(t->rows * width) * sizeof(float));
}

static void keys_load(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                      int64_t row, int64_t rows, int64_t kv_head) {
  const int64_t column = kv_head * s->head_dim, width = s->width;
  tile_load(t->keys, width, KEYS, &args->in[3], row, rows, column, s->head_dim);
  tile_transpose(t->values_turned, KEYS, t->keys, width, KEYS, width);
  tile_load(t->keys, width, KEYS, &args->in[2], row, rows, column, s->head_dim);
  tile_transpose(t->keys_turned, KEYS, t->keys, width, KEYS, width);
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
static void bent_gradient(float *p, float *ds, attention_bend bend, int64_t distance, float scale,
                          float sum, float delta) {
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
static void clear_unseen(float *p, float *ds, int64_t keys, int64_t first, int64_t end) {
  for (int64_t j = 0; j < first; j++) p[j] = ds[j] = 0;
  for (int64_t j = end > 0 ? end : 0; j < keys; j++) p[j] = ds[j] = 0;
}

/* Queries [begin, begin + count) of the loaded head against the first `keys` of the loaded block of
 * keys, which begins at `key`. */
static void strip_run(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                      attention_bend bend, int64_t key, int64_t keys, int64_t begin,
                      int64_t count) {
  const int64_t width = s->width, d = s->head_dim;
  const float scale = (float)args->attributes->softmax_scale;
  const int64_t rows = round_up(count, LS_TILE_ROWS);
  const float *q = t->q + begin * width, *go = t->go + begin * width;
  tile_multiply(t->p, KEYS, q, width, 1, t->keys_turned, KEYS, rows, keys, d, false);
  tile_multiply(t->ds, KEYS, go, width, 1, t->values_turned, KEYS, rows, keys, d, false);
  for (int64_t i = 0; i < rows; i++) {
    const int64_t place = begin + i, seen = i < count ? least(keys, place + 1 - key) : 0;
    float *p = t->p + i * KEYS, *ds = t->ds + i * KEYS;
    if (bend.cap > 0.0f || bend.slope > 0.0f)
      bent_gradient(p, ds, bend, place - key, scale, t->sums[place], t->deltas[place]);
    else
      row_gradient(p, ds, keys, scale, t->sums[place], t->deltas[place]);
    clear_unseen(p, ds, keys, window_begin(s, place, key), seen);
  }
  float *dv = t->dv + key * width, *dk = t->dk + key * width, *dq = t->dq + begin * width;
  tile_multiply(dv, width, t->p, 1, KEYS, go, width, keys, width, count, true);
  tile_multiply(dk, width, t->ds, 1, KEYS, q, width, keys, width, count, true);
  tile_multiply(dq, width, t->ds, KEYS, 1, t->keys, width, rows, width, keys, true);
}

/* Queries [begin, begin + count) against the loaded block of keys. */
static void queries_run(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                        attention_bend bend, int64_t key, int64_t begin, int64_t count) {
  if (begin > key) {
    strip_run(args, s, t, bend, key, KEYS, begin, count);
    return;
  }
  for (int64_t i = 0; i < count; i += LS_ATTENTION_STRIP)
    strip_run(args, s, t, bend, key, i + LS_ATTENTION_STRIP, begin + i,
              least(LS_ATTENTION_STRIP, count - i));
}

/* One KV head of one sequence, whose tokens begin at row `first`. */
static void kv_head_run(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                        int64_t first, int64_t length, int64_t kv_head) {
  const int64_t d = s->head_dim, width = s->width;
  memset(t->dk, 0, (size_t)(t->rows * width) * sizeof(float));
  memset(t->dv, 0, (size_t)(t->rows * width) * sizeof(float));
  memset(t->sums, 0, (size_t)(2 * t->rows) * sizeof(float));
  for (int64_t head = kv_head * s->group; head < (kv_head + 1) * s->group; head++) {
    const attention_bend bend = attention_bend_of(args, &args->in[1], head);
    head_load(args, s, t, first, length, head);
    for (int64_t key = 0; key < length; key += KEYS) {
      keys_load(args, s, t, first + key, least(KEYS, length - key), kv_head);
      /* The last query that sees a key of the block is a window's length behind its last key. */
      const int64_t end = s->window < length ? least(length, key + KEYS - 1 + s->window) : length;
      for (int64_t begin = key / QUERIES * QUERIES; begin < end; begin += QUERIES) {
        queries_run(args, s, t, bend, key, begin, least(QUERIES, length - begin));
      }
    }
    tile_store(&args->out[0], first, length, head * d, d, t->dq, width, args->accumulate[0]);
  }
  tile_store(&args->out[1], first, length, kv_head * d, d, t->dk, width, args->accumulate[1]);
  tile_store(&args->out[2], first, length, kv_head * d, d, t->dv, width, args->accumulate[2]);
}

/* Units are the KV heads of each sequence. */
static void attention_bwd_turns(const void *work, int part, int64_t begin, int64_t end) {
  const attention_work *given = work;
  const attention_shape *s = &given->shape;
  const ls_view *positions = given->args->inputs > 6 ? &given->args->in[6] : NULL;
  backward_tiles tiles = backward_tiles_at(s, given->scratch + part * given->floats);
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t first = unit / s->kv_heads * s->sequence;
    const int64_t stop = first + least(s->sequence, s->tokens - first);
    for (int64_t row = first, next; row < stop; row = next) { /* a document, or all */
      next = document_end(positions, row, stop);
      tiles.rows = round_up(next - row, QUERIES);
      kv_head_run(given->args, s, &tiles, row, next - row, unit % s->kv_heads);
    }
  }
}

static ls_status kernel_attention_bwd(const ls_kernel_args *args, ls_error *error) {
  const attention_shape s =
      attention_shape_of(args, &args->in[1], &args->in[2], args->in[1].valid[0]);
  return attention_share(args, &s, s.sequences * s.kv_heads, attention_elements(&s),
                         backward_floats(&s), attention_bwd_turns, error);
}

void LS_VECTOR(ls_fill_attention_bwd)(ls_kernel_table *table) {
  table->kernel[LS_OP_ATTENTION_BWD] = kernel_attention_bwd;
}

size_t LS_VECTOR(ls_attention_bwd_bytes)(const ls_kernel_args *args) {
  const attention_shape s =
      attention_shape_of(args, &args->in[1], &args->in[2], args->in[1].dims[0]);
  return attention_scratch(args, backward_floats(&s));
}
