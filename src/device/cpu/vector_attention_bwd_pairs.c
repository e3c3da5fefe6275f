/* Attention's backward pass in bf16, for the set that has the dot product of pairs: probabilities
 * and the gradients of scores are made in fp32 and rounded to bf16 before they are multiplied. */
#include "device/cpu/vector_attention_bwd.h"

#if defined(__AVX512BF16__)
#include "device/cpu/vector_pairs.h"

enum { QUERIES = LS_BACKWARD_QUERIES, KEYS = LS_ATTENTION_KEYS };

/* Queries whose scores are made at a time. */
enum { ROWS = LS_TILES ? LS_TILE_SIDE : LS_TILE_ROWS };

/* Tiles of pairs where backward_tiles has room for fp32. What is summed over goes by pairs: columns
 * of a head for scores, queries for dk and dv, keys for dq. */
typedef struct backward_pairs {
  uint32_t *q, *go, *keys;                      /* [rows, width / 2] */
  uint32_t *q_joined, *go_joined, *keys_joined; /* [rows / 2, width] */
  uint32_t *keys_turned, *values_turned;        /* [width / 2, KEYS] */
  uint32_t *ds;                                 /* [QUERIES, KEYS / 2] */
  uint32_t *p_joined, *ds_joined;               /* [QUERIES / 2, KEYS] */
  float *scores, *gradients;                    /* [ROWS, KEYS] */
} backward_pairs;

static backward_pairs pairs_at(const attention_shape *s, const backward_tiles *t) {
  const int64_t head = t->rows * s->width / 2, block = KEYS * s->width / 2;
  backward_pairs pairs = {.q = (uint32_t *)t->q, .go = (uint32_t *)t->go};
  pairs.q_joined = pairs.q + head;
  pairs.go_joined = pairs.go + head;
  pairs.keys = (uint32_t *)t->keys;
  pairs.keys_joined = pairs.keys + block;
  pairs.keys_turned = (uint32_t *)t->keys_turned;
  pairs.values_turned = (uint32_t *)t->values_turned;
  pairs.ds = (uint32_t *)t->ds;
  pairs.ds_joined = pairs.ds + QUERIES * KEYS / 2;
  pairs.p_joined = (uint32_t *)t->p;
  pairs.scores = t->p + QUERIES * KEYS / 2;
  pairs.gradients = pairs.scores + ROWS * KEYS;
  return pairs;
}

static void head_ready(const attention_shape *s, backward_tiles *t) {
  const backward_pairs pairs = pairs_at(s, t);
  const int64_t width = s->width;
  rows_join(pairs.q_joined, width, pairs.q, width / 2, t->rows, width);
  rows_join(pairs.go_joined, width, pairs.go, width / 2, t->rows, width);
}

static void keys_ready(const attention_shape *s, backward_tiles *t, bool values) {
  const backward_pairs pairs = pairs_at(s, t);
  const int64_t width = s->width, half = width / 2;
  pairs_transpose(values ? pairs.values_turned : pairs.keys_turned, KEYS, pairs.keys, half, KEYS,
                  half);
  if (!values) rows_join(pairs.keys_joined, width, pairs.keys, half, KEYS, width);
}

/* Rounds what query_gradient made of ROWS queries, the first of them at row `i` of the block. */
static void gradients_round(const backward_pairs *pairs, int64_t i, int64_t keys) {
  for (int64_t row = 0; row < ROWS; row += 2) {
    const float *p = pairs->scores + row * KEYS, *ds = pairs->gradients + row * KEYS;
    uint32_t *p_joined = pairs->p_joined + (i + row) / 2 * KEYS;
    uint32_t *ds_joined = pairs->ds_joined + (i + row) / 2 * KEYS;
    for (int64_t j = 0; j < keys; j += LS_LANES) {
      *(pairs_anywhere *)(p_joined + j) =
          pairs_join(*(const lanes_anywhere *)(p + j), *(const lanes_anywhere *)(p + KEYS + j));
      *(pairs_anywhere *)(ds_joined + j) =
          pairs_join(*(const lanes_anywhere *)(ds + j), *(const lanes_anywhere *)(ds + KEYS + j));
    }
  }
  for (int64_t row = 0; row < ROWS; row++)
    row_narrow(pairs->ds + (i + row) * (KEYS / 2), pairs->gradients + row * KEYS, keys);
}

/* Keys that any of ROWS queries from `place` on sees of the block that begins at `key`. */
static int64_t keys_seen(const attention_shape *s, int64_t key, int64_t place) {
  return s->ahead > 1 ? KEYS : least(KEYS, round_up(place + ROWS - key, 2 * LS_LANES));
}

static void queries_run(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                        attention_bend bend, int64_t key, int64_t begin, int64_t count) {
  const backward_pairs pairs = pairs_at(s, t);
  const int64_t width = s->width, half = width / 2, depth = (s->head_dim + 1) / 2;
  const int64_t rows = round_up(count, ROWS);
  const float scale = (float)args->attributes->softmax_scale;
  for (int64_t i = 0; i < rows; i += ROWS) {
    const int64_t place = begin + i, keys = keys_seen(s, key, place);
    rows_expect(args, s, t, ROWS);
    pairs_multiply(pairs.scores, KEYS, pairs.q + place * half, half, 1, pairs.keys_turned, KEYS,
                   ROWS, keys, depth, false);
    pairs_multiply(pairs.gradients, KEYS, pairs.go + place * half, half, 1, pairs.values_turned,
                   KEYS, ROWS, keys, depth, false);
    for (int64_t row = 0; row < ROWS; row++) {
      query_gradient(s, t, bend, scale, pairs.scores + row * KEYS, pairs.gradients + row * KEYS,
                     key, keys, place + row, begin + count);
    }
    gradients_round(&pairs, i, keys);
  }
  for (int64_t i = 0; i < rows; i += ROWS) {
    pairs_multiply(t->dq + (begin + i) * width, width, pairs.ds + i * (KEYS / 2), KEYS / 2, 1,
                   pairs.keys_joined, width, ROWS, width, keys_seen(s, key, begin + i) / 2, true);
  }
  float *all_dv = t->dv + t->key_row * width, *all_dk = t->dk + t->key_row * width;
  for (int64_t j = 0; j < KEYS; j += LS_LANES) {
    const int64_t before = s->ahead > 1 ? 0 : key + j - begin;
    const int64_t first = before > 0 ? before / 2 * 2 : 0; /* queries go by pairs */
    if (first >= rows) break;
    float *dv = all_dv + j * width, *dk = all_dk + j * width;
    const int64_t from = first / 2 * KEYS + j, query = (begin + first) / 2 * width;
    pairs_multiply(dv, width, pairs.p_joined + from, 1, KEYS, pairs.go_joined + query, width,
                   LS_LANES, width, (rows - first) / 2, true);
    pairs_multiply(dk, width, pairs.ds_joined + from, 1, KEYS, pairs.q_joined + query, width,
                   LS_LANES, width, (rows - first) / 2, true);
  }
}

const backward_steps LS_VECTOR(ls_backward_pairs) = {true, head_ready, keys_ready, queries_run};
#endif
