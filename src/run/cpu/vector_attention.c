/* Causal attention, forward: rows of queries against blocks of keys with a running maximum and
 * sum, so that no more than a block of scores exists (Dao, Fu, Ermon, Rudra, Re: "FlashAttention",
 * 2022). One head's keys and values are turned into fp32 tiles once and serve all queries. */
#include "run/cpu/vector_attention.h"
#include "run/cpu/vector_kernels.h"

enum { QUERIES = 64, KEYS = LS_ATTENTION_KEYS };

static const double ln_2 = 0.693147180559945309;

/* One part's scratch. */
typedef struct forward_tiles {
  float *keys;   /* [blocks][width, KEYS]: transposed */
  float *values; /* [blocks * KEYS, width] */
  float *q, *o;  /* [QUERIES, width] */
  float *scores; /* [QUERIES, KEYS] */
  float *rows;   /* maximum, then sum, of each query */
  int64_t kept;  /* sequence and KV head whose keys and values are there */
} forward_tiles;

static int64_t key_blocks(const attention_shape *s) {
  return (s->sequence + KEYS - 1) / KEYS;
}

static int64_t forward_floats(const attention_shape *s) {
  return 2 * key_blocks(s) * KEYS * s->width + 2 * QUERIES * s->width + QUERIES * KEYS +
         2 * QUERIES;
}

static forward_tiles forward_tiles_at(const attention_shape *s, float *scratch) {
  forward_tiles t = {.kept = -1};
  t.keys = scratch;
  t.values = t.keys + key_blocks(s) * KEYS * s->width;
  t.q = t.values + key_blocks(s) * KEYS * s->width;
  t.o = t.q + QUERIES * s->width;
  t.scores = t.o + QUERIES * s->width;
  t.rows = t.scores + QUERIES * KEYS;
  return t;
}

static void keys_load(const ls_kernel_args *args, const attention_shape *s, forward_tiles *t,
                      int64_t first, int64_t length, int64_t kv_head) {
  for (int64_t block = 0; block * KEYS < length; block++) {
    const int64_t row = first + block * KEYS;
    const int64_t rows = least(KEYS, length - block * KEYS);
    float *values = t->values + block * KEYS * s->width;
    tile_load(values, s->width, KEYS, &args->in[1], row, rows, kv_head * s->head_dim, s->head_dim);
    tile_transpose(t->keys + block * KEYS * s->width, KEYS, values, s->width, KEYS, s->width);
    tile_load(values, s->width, KEYS, &args->in[2], row, rows, kv_head * s->head_dim, s->head_dim);
  }
}

/* Queries [begin, begin + count) of a sequence, in one head. */
static void queries_run(const ls_kernel_args *args, const attention_shape *s, forward_tiles *t,
                        int64_t first, int64_t begin, int64_t count, int64_t head) {
  const int64_t column = head * s->head_dim, width = s->width;
  const float scale = (float)args->attributes->softmax_scale * LS_LOG2_E;
  const attention_bend bend = attention_bend_of(args, &args->in[0], head);
  const int64_t earliest = begin >= s->window ? (begin - s->window + 1) / KEYS * KEYS : 0;
  float *max = t->rows, *sum = t->rows + QUERIES;
  tile_load(t->q, width, QUERIES, &args->in[0], first + begin, count, column, s->head_dim);
#pragma omp simd
  for (int64_t i = 0; i < QUERIES * width; i++) t->q[i] *= scale;
  memset(t->o, 0, (size_t)(QUERIES * width) * sizeof(float));
  for (int64_t i = 0; i < QUERIES; i++) {
    max[i] = -3e38f; /* finite, so that the first difference is no NaN */
    sum[i] = 0;
  }
  const int64_t rows = round_up(count, LS_TILE_ROWS);
  for (int64_t key = earliest; key < begin + count; key += KEYS) {
    const float *keys = t->keys + key * width;
    tile_multiply(t->scores, KEYS, t->q, width, 1, keys, KEYS, rows, KEYS, s->head_dim, false);
    for (int64_t i = 0; i < rows; i++) {
      const int64_t place = begin + i, seen = least(KEYS, place + 1 - key);
      scores_bend(t->scores + i * KEYS, bend, place - key);
      scores_softmax(t->scores + i * KEYS, window_begin(s, place, key), seen, &max[i], &sum[i],
                     t->o + i * width, width);
    }
    const int64_t depth = least(KEYS, begin + count - key);
    tile_multiply(t->o, width, t->scores, KEYS, 1, t->values + key * width, width, rows, width,
                  depth, true);
  }
  float *sums = args->out[1].data;
  for (int64_t i = 0; i < count; i++) {
    const float inverse = 1.0f / sum[i];
    for (int64_t j = 0; j < width; j++) t->o[i * width + j] *= inverse;
    const float log_sum = (float)((double)max[i] * ln_2 + log((double)sum[i]));
    float *place = &sums[(first + begin + i) * args->out[1].dims[1] + head];
    *place = log_sum + (args->accumulate[1] ? *place : 0);
  }
  tile_store(&args->out[0], first + begin, count, column, s->head_dim, t->o, width,
             args->accumulate[0]);
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
        queries_run(args, s, &tiles, row, i, least(QUERIES, length - i), head);
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
