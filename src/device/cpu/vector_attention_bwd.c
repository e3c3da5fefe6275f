/* Attention, backward: scores are computed again from the saved log-sum-exp, a block of
 * queries against a block of keys at a time. A part owns a KV head of a sequence and goes through
 * the query heads that share it, so sums are taken in one order and never by two threads. */
#include "device/cpu/vector_attention_bwd.h"
#include "device/cpu/vector_kernels.h"
#include "device/cpu/vector_pairs.h"
#include "device/cpu/vector_placed.h"

enum { QUERIES = LS_BACKWARD_QUERIES, KEYS = LS_ATTENTION_KEYS };

/* Queries whose q, do and dq stay in cache, the second level or near, while all keys pass by. */
enum { RANGE_FLOATS = 1 << 17 };

/* Of longer sequences the next head's rows would leave the cache again before they are read. */
enum { AHEAD_ROWS = 1024 };

static int64_t sequence_rows(const attention_shape *s) {
  return round_up(s->sequence, QUERIES);
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

/* Rows of a query head's q and do, from `row` on, become rows of tiles from `at` on. */
static void head_load(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                      const backward_steps *steps, int64_t at, int64_t row, int64_t rows,
                      int64_t head) {
  const int64_t column = head * s->head_dim, d = s->head_dim;
  rows_load(steps->paired, t->go, s->width, at, &args->in[0], row, rows, column, d);
  rows_load(steps->paired, t->q, s->width, at, &args->in[1], row, rows, column, d);
}

/* Zeros in rows [begin, end) of q and do. */
static void head_clear(const attention_shape *s, backward_tiles *t, const backward_steps *steps,
                       int64_t begin, int64_t end) {
  rows_clear(steps->paired, t->go, s->width, begin, end);
  rows_clear(steps->paired, t->q, s->width, begin, end);
}

/* What is kept of the same rows: log-sum-exp, and do . o, for which dq has o for a while. */
static void sums_load(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                      const backward_steps *steps, int64_t at, int64_t row, int64_t rows,
                      int64_t head) {
  const bool paired = steps->paired;
  const int64_t width = s->width;
  const ls_view *lse = &args->in[5];
  const float *source = (const float *)lse->data + row * lse->dims[1] + head;
  rows_load(paired, t->dq, width, at, &args->in[4], row, rows, head * s->head_dim, s->head_dim);
  for (int64_t i = at; i < at + rows; i++, source += lse->dims[1]) {
    const float *o = row_of_tile(paired, t->dq, width, i),
                *go = row_of_tile(paired, t->go, width, i);
    t->sums[i] = *source * LS_LOG2_E;
    t->deltas[i] = paired ? row_pairs_dot((const uint32_t *)o, (const uint32_t *)go, width)
                          : row_dot(o, go, width);
  }
}

/* Rows of values, input 3, or of keys, input 2, become rows of a block's from `at` on. */
static void keys_load(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                      const backward_steps *steps, int input, int64_t at, int64_t row, int64_t rows,
                      int64_t kv_head) {
  rows_load(steps->paired, t->keys, s->width, at, &args->in[input], row, rows,
            kv_head * s->head_dim, s->head_dim);
}

/* A block of keys and values that lie in one piece; the keys themselves stay. */
static void block_load(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                       const backward_steps *steps, int64_t row, int64_t rows, int64_t kv_head) {
  for (int i = 3; i >= 2; i--) {
    keys_load(args, s, t, steps, i, 0, row, rows, kv_head);
    rows_clear(steps->paired, t->keys, s->width, rows, KEYS);
    steps->keys_ready(s, t, i == 3);
  }
}

static void head_ready(const attention_shape *s, backward_tiles *t) {
  (void)s;
  (void)t;
}

static void keys_ready(const attention_shape *s, backward_tiles *t, bool values) {
  tile_transpose(values ? t->values_turned : t->keys_turned, KEYS, t->keys, s->width, KEYS,
                 s->width);
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
    query_gradient(s, t, bend, scale, t->p + i * KEYS, t->ds + i * KEYS, key, keys, begin + i,
                   begin + count);
  }
  float *dv = t->dv + t->key_row * width, *dk = t->dk + t->key_row * width;
  float *dq = t->dq + begin * width;
  tile_multiply(dv, width, t->p, 1, KEYS, go, width, keys, width, count, true);
  tile_multiply(dk, width, t->ds, 1, KEYS, q, width, keys, width, count, true);
  tile_multiply(dq, width, t->ds, KEYS, 1, t->keys, width, rows, width, keys, true);
}

static void queries_run(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                        attention_bend bend, int64_t key, int64_t begin, int64_t count) {
  const bool diagonal = s->ahead == 1 && begin < key + KEYS;
  const int64_t step = diagonal ? LS_ATTENTION_STRIP : QUERIES;
  for (int64_t i = 0; i < count; i += step) {
    const int64_t seen = round_up(begin + i + step - key, LS_ATTENTION_STRIP);
    strip_run(args, s, t, bend, key, diagonal ? least(KEYS, seen) : KEYS, begin + i,
              least(step, count - i));
  }
}

static const backward_steps in_fp32 = {false, head_ready, keys_ready, queries_run};

/* `of`: how many operands, the first ones, are rows of heads. */
static const backward_steps *steps_for(const ls_kernel_args *args, int of) {
#if defined(__AVX512BF16__)
  bool pairs = true;
  for (int i = 0; i < of; i++) pairs = pairs && args->in[i].dtype == LS_BF16;
  if (pairs) return &LS_VECTOR(ls_backward_pairs);
#else
  (void)args;
  (void)of;
#endif
  return &in_fp32;
}

/* The first that sees a key of the block that begins at `key`. */
static int64_t first_query(const attention_shape *s, int64_t key) {
  return key + 1 > s->ahead ? key + 1 - s->ahead : 0;
}

/* And behind the last one: a window's length behind its last key. */
static int64_t last_query(const attention_shape *s, int64_t key, int64_t length) {
  return least(length, key + KEYS - 1 + s->window);
}

/* Goes from one range of `rows` rows of queries to the next, at first with end 0. */
static bool next_range(const attention_shape *s, backward_tiles *t, int64_t rows) {
  t->begin = t->end;
  t->end = least(rows, t->begin + round_up(RANGE_FLOATS / s->width, QUERIES));
  return t->begin < rows;
}

/* Whether any of the queries at hand, places [begin, end), may see a key of places [key, last]. */
static bool is_near(const attention_shape *s, int64_t begin, int64_t end, int64_t key,
                    int64_t last) {
  return last + s->window > begin && first_query(s, key) < end;
}

/* The loaded head's queries at hand against the keys of the block that begins at `key`. */
static void keys_run(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                     const backward_steps *steps, int64_t key, int64_t head) {
  const attention_bend bend = attention_bend_of(args, &args->in[1], head);
  const int64_t first = first_query(s, key), from = first > t->begin ? first : t->begin;
  const int64_t end = least(t->end, last_query(s, key, s->end));
  t->key_row = key;
  for (int64_t at = from / QUERIES * QUERIES; at < end; at += QUERIES)
    steps->queries_run(args, s, t, bend, key, at, least(QUERIES, s->end - at));
}

/* Writes the sums of rows [at, at + rows) of a sequence that begins at row `first`. */
static void sums_store(const ls_kernel_args *args, const attention_shape *s, int output,
                       const float *sums, int64_t first, int64_t at, int64_t rows, int64_t head) {
  tile_store(&args->out[output], first + at, rows, head * s->head_dim, s->head_dim,
             sums + at * s->width, s->width, args->accumulate[output]);
}

/* The loaded head's queries at hand, and all keys that they see. Where no later key is seen by
 * queries of a block, and by no later query a key, what was summed is written while it is in cache.
 */
static void range_run(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                      const backward_steps *steps, int64_t first, int64_t head) {
  const int64_t kv_head = head / s->group, length = s->end;
  const bool last = head % s->group == s->group - 1;
  for (int64_t key = 0; key < length; key += KEYS) {
    const int64_t rows = least(KEYS, length - key);
    if (!is_near(s, t->begin, t->end, key, key + KEYS - 1)) continue;
    block_load(args, s, t, steps, first + key, rows, kv_head);
    keys_run(args, s, t, steps, key, head);
    if (s->ahead == 1 && key >= t->begin) sums_store(args, s, 0, t->dq, first, key, rows, head);
    if (!last || last_query(s, key, length) > t->end) continue;
    sums_store(args, s, 1, t->dk, first, key, rows, kv_head);
    sums_store(args, s, 2, t->dv, first, key, rows, kv_head);
  }
}

/* One KV head of one sequence, whose tokens begin at row `first`. */
static void kv_head_run(const ls_kernel_args *args, const attention_shape *shape, backward_tiles *t,
                        int64_t first, int64_t length, int64_t kv_head) {
  const backward_steps *steps = steps_for(args, 5);
  attention_shape of = *shape, *s = &of;
  of.end = length;
  const int64_t width = s->width, last = (kv_head + 1) * s->group - 1;
  memset(t->dk, 0, (size_t)(t->rows * width) * sizeof(float));
  memset(t->dv, 0, (size_t)(t->rows * width) * sizeof(float));
  memset(t->sums, 0, (size_t)(2 * t->rows) * sizeof(float));
  for (int64_t head = kv_head * s->group; head <= last; head++) {
    const int64_t skipped = head + 1 < s->heads ? 0 : s->sequence;
    t->ahead = first + skipped;
    t->ahead_end = length > AHEAD_ROWS ? t->ahead : least(s->tokens, t->ahead + length);
    t->ahead_head = (head + 1) % s->heads;
    head_load(args, s, t, steps, 0, first, length, head);
    head_clear(s, t, steps, length, t->rows);
    sums_load(args, s, t, steps, 0, first, length, head);
    steps->head_ready(s, t);
    memset(t->dq, 0, (size_t)(t->rows * width) * sizeof(float));
    for (t->end = 0; next_range(s, t, length);) range_run(args, s, t, steps, first, head);
    if (s->ahead > 1) sums_store(args, s, 0, t->dq, first, 0, length, head);
  }
}

/* A query head of a sequence whose tokens lie in an order of their own; rows of queries that are
 * elsewhere are zero, and so is what comes of them. */
static void placed_head_load(const ls_kernel_args *args, const attention_shape *s,
                             backward_tiles *t, const backward_steps *steps,
                             const placed_rows *queries, int64_t first, int64_t head) {
  head_clear(s, t, steps, 0, t->rows);
  memset(t->sums, 0, (size_t)(2 * t->rows) * sizeof(float));
  placed_run run = {0};
  while (placed_next(queries, first, s->sequence, &run)) {
    head_load(args, s, t, steps, run.begin, run.row, run.end - run.begin, head);
    sums_load(args, s, t, steps, run.begin, run.row, run.end - run.begin, head);
  }
  steps->head_ready(s, t);
  memset(t->dq, 0, (size_t)(t->rows * s->width) * sizeof(float));
}

/* The block of keys that begins at `key`, wherever they lie. */
static void placed_block_load(const ls_kernel_args *args, const attention_shape *s,
                              backward_tiles *t, const backward_steps *steps,
                              const placed_rows *keys, int64_t first, int64_t key,
                              int64_t kv_head) {
  for (int i = 3; i >= 2; i--) {
    rows_clear(steps->paired, t->keys, s->width, 0, KEYS);
    placed_run run = {0};
    while (placed_next(keys, first, s->sequence, &run)) {
      const int64_t begin = run.begin > key ? run.begin : key;
      const int64_t rows = least(run.end, key + KEYS) - begin;
      if (rows > 0)
        keys_load(args, s, t, steps, i, begin - key, run.row + begin - run.begin, rows, kv_head);
    }
    steps->keys_ready(s, t, i == 3);
  }
  t->key_row = key;
}

/* The loaded head's queries at hand against the keys of the block that begins at `key`, run by run.
 */
static void placed_keys_run(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                            const backward_steps *steps, const placed_rows *queries, int64_t first,
                            int64_t key, int64_t head) {
  const attention_bend bend = attention_bend_of(args, &args->in[1], head);
  attention_shape of = *s;
  placed_run run = {0};
  while (placed_next(queries, first, s->sequence, &run)) {
    if (key + KEYS <= run.first || key >= run.stop) continue;
    of.first = run.first;
    of.end = run.stop;
    of.from = run.begin;
    t->mask = attention_mask_of(args, &args->in[1], draws_at(args, 6), head);
    if (t->mask.draws) t->mask.draws += run.row - run.begin;
    const int64_t end = least(least(run.end, t->end), key + KEYS - 1 + s->window);
    const int64_t seeing = first_query(s, key), from = seeing > t->begin ? seeing : t->begin;
    const int64_t begin = run.begin > from ? run.begin : from;
    for (int64_t at = begin / QUERIES * QUERIES; at < end; at += QUERIES)
      steps->queries_run(args, &of, t, bend, key, at, least(QUERIES, run.end - at));
  }
}

static void placed_store(const ls_kernel_args *args, const attention_shape *s, int output,
                         const float *sums, const placed_rows *rows, int64_t first, int64_t head) {
  placed_run run = {0};
  while (placed_next(rows, first, s->sequence, &run))
    sums_store(args, s, output, sums, run.row - run.begin, run.begin, run.end - run.begin, head);
}

/* The loaded head's queries at hand, of which there may be none here, and all keys. */
static void placed_range_run(const ls_kernel_args *args, const attention_shape *s,
                             backward_tiles *t, const backward_steps *steps,
                             const placed_rows *queries, const placed_rows *keys, int64_t first,
                             int64_t head) {
  bool any = false;
  placed_run run = {0};
  while (!any && placed_next(queries, first, s->sequence, &run))
    any = run.begin < t->end && run.end > t->begin;
  for (int64_t key = 0; key < s->sequence && any; key += KEYS) {
    if (!is_near(s, t->begin, t->end, key, key + KEYS - 1)) continue;
    placed_block_load(args, s, t, steps, keys, first, key, head / s->group);
    placed_keys_run(args, s, t, steps, queries, first, key, head);
  }
}

/* One KV head of a sequence whose tokens lie in an order of their own. Keys that no query here sees
 * have a gradient of zero. */
static void placed_kv_head_run(const ls_kernel_args *args, const attention_shape *s,
                               backward_tiles *t, int64_t number, int64_t kv_head) {
  const backward_steps *steps = steps_for(args, 5);
  const ls_view *q = &args->in[1], *k = &args->in[2];
  const int64_t first = k->start[0] + number * s->sequence;
  const placed_rows keys = placed_keys(args, k, 7), queries = placed_queries(args, q, k, 7);
  memset(t->dk, 0, (size_t)(t->rows * s->width) * sizeof(float));
  memset(t->dv, 0, (size_t)(t->rows * s->width) * sizeof(float));
  for (int64_t head = kv_head * s->group; head < (kv_head + 1) * s->group; head++) {
    placed_head_load(args, s, t, steps, &queries, first, head);
    for (t->end = 0; next_range(s, t, s->sequence);)
      placed_range_run(args, s, t, steps, &queries, &keys, first, head);
    placed_store(args, s, 0, t->dq, &queries, first, head);
  }
  placed_store(args, s, 1, t->dk, &keys, first, kv_head);
  placed_store(args, s, 2, t->dv, &keys, first, kv_head);
}

static void placed_turns(const void *work, int part, int64_t begin, int64_t end) {
  const attention_work *given = work;
  const attention_shape *s = &given->shape;
  backward_tiles tiles = backward_tiles_at(s, given->scratch + part * given->floats);
  for (int64_t unit = begin; unit < end; unit++)
    placed_kv_head_run(given->args, s, &tiles, unit / s->kv_heads, unit % s->kv_heads);
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

/* A query head by the rows of a sequence that are here; what is kept of them is given. */
static void ring_head_load(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                           const backward_steps *steps, const ring_share *share, int64_t number,
                           int64_t head) {
  const int64_t length = share->pieces * share->piece;
  const ls_view *lse = &args->in[4], *deltas = &args->in[5];
  head_clear(s, t, steps, length, t->rows);
  memset(t->dq, 0, (size_t)(t->rows * s->width) * sizeof(float));
  memset(t->sums, 0, (size_t)(2 * t->rows) * sizeof(float));
  for (int64_t at = 0; at < length; at += share->piece) {
    const int64_t row = ring_row(share, number, at / share->piece);
    head_load(args, s, t, steps, at, row, share->piece, head);
    for (int64_t i = 0; i < share->piece; i++) {
      const int64_t from = (row + i) * lse->dims[1] + head;
      t->sums[at + i] = ((const float *)lse->data)[from] * LS_LOG2_E;
      t->deltas[at + i] = ((const float *)deltas->data)[from];
    }
  }
  steps->head_ready(s, t);
}

/* The loaded head's queries at hand of one run against the loaded block of keys, which has places
 * from `key` to `end`. Places are counted so that those of queries are their rows. */
static void ring_run(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                     const backward_steps *steps, const placed_run *run, int64_t key, int64_t end,
                     int64_t head) {
  const attention_bend bend = attention_bend_of(args, &args->in[1], head);
  const int64_t back = run->begin - run->row, from = key - back;
  attention_shape of = *s;
  of.first = run->first - back;
  of.end = end - back;
  of.from = run->row;
  if (of.end <= of.first) return;
  const int64_t last = least(least(run->end - back, t->end), of.end - 1 + s->window);
  const int64_t here = run->row > t->begin ? run->row : t->begin;
  for (int64_t at = (from > here ? from : here) / 2 * 2; at < last; at += QUERIES)
    steps->queries_run(args, &of, t, bend, from, at, least(QUERIES, last - at));
}

/* The loaded block of keys, with places from `key` to `end`, and the head's queries of all runs. */
static void ring_queries_run(const ls_kernel_args *args, const attention_shape *s,
                             backward_tiles *t, const backward_steps *steps,
                             const ring_share *queries, int64_t number, int64_t key, int64_t end,
                             int64_t head) {
  const int64_t first = ring_first(args, queries, number);
  for (int64_t p = 0; p < queries->pieces; p++) {
    const placed_rows rows = ring_places(queries, ring_row(queries, number, p));
    placed_run run = {0};
    while (placed_next(&rows, first, args->attributes->sequence, &run)) {
      placed_run tiles = run;
      tiles.row += p * queries->piece;
      ring_run(args, s, t, steps, &tiles, key, end, head);
    }
  }
}

/* A sequence's sums, piece by piece. */
static void ring_store(const ls_kernel_args *args, const attention_shape *s, int output,
                       const float *sums, const ring_share *share, int64_t number, int64_t head) {
  for (int64_t p = 0; p < share->pieces; p++)
    sums_store(args, s, output, sums + p * share->piece * s->width, ring_row(share, number, p), 0,
               share->piece, head);
}

/* Between which places the queries at hand are: none before *begin, none from *end on. */
static void ring_span(const backward_tiles *t, const ring_share *queries, int64_t number,
                      int64_t first, int64_t sequence, int64_t *begin, int64_t *end) {
  *begin = sequence, *end = 0;
  for (int64_t p = 0; p < queries->pieces; p++) {
    const placed_rows rows = ring_places(queries, ring_row(queries, number, p));
    placed_run run = {0};
    while (placed_next(&rows, first, sequence, &run)) {
      const int64_t back = run.begin - run.row - p * queries->piece;
      const int64_t from = t->begin + back > run.begin ? t->begin + back : run.begin;
      const int64_t to = least(t->end + back, run.end);
      if (from >= to) continue;
      *begin = least(*begin, from);
      *end = to > *end ? to : *end;
    }
  }
}

/* The loaded head's queries at hand, and all keys of the block. */
static void ring_range_run(const ls_kernel_args *args, const attention_shape *s, backward_tiles *t,
                           const backward_steps *steps, const ring_share *queries,
                           const ring_share *all_keys, int64_t number, int64_t head) {
  const int64_t sequence = args->attributes->sequence, first = ring_first(args, queries, number);
  int64_t begin, end;
  ring_span(t, queries, number, first, sequence, &begin, &end);
  for (int64_t p = 0; p < all_keys->pieces; p++) {
    const int64_t row = ring_row(all_keys, number, p);
    const placed_rows rows = ring_places(all_keys, row);
    placed_run keys = {0};
    while (placed_next(&rows, first, sequence, &keys))
      for (int64_t key = keys.begin; key < keys.end; key += KEYS) {
        const int64_t at = keys.row + key - keys.begin, stop = least(keys.end, key + KEYS);
        if (!is_near(s, begin, end, key, stop - 1)) continue;
        t->key_row = p * all_keys->piece + at;
        block_load(args, s, t, steps, row + at, stop - key, head / s->group);
        ring_queries_run(args, s, t, steps, queries, number, key, stop, head);
      }
  }
}

/* One KV head of one sequence's rows. Keys that no query here sees have a gradient of zero. */
static void ring_kv_head_run(const ls_kernel_args *args, const attention_shape *s,
                             backward_tiles *t, int64_t number, int64_t kv_head) {
  const backward_steps *steps = steps_for(args, 4);
  const ring_share all_keys = ring_share_of(args, &args->in[2], 7, NULL);
  const ring_share queries = ring_share_of(args, &args->in[1], 7, &args->in[6]);
  memset(t->dk, 0, (size_t)(t->rows * s->width) * sizeof(float));
  memset(t->dv, 0, (size_t)(t->rows * s->width) * sizeof(float));
  for (int64_t head = kv_head * s->group; head < (kv_head + 1) * s->group; head++) {
    ring_head_load(args, s, t, steps, &queries, number, head);
    for (t->end = 0; next_range(s, t, queries.pieces * queries.piece);)
      ring_range_run(args, s, t, steps, &queries, &all_keys, number, head);
    ring_store(args, s, 0, t->dq, &queries, number, head);
  }
  ring_store(args, s, 1, t->dk, &all_keys, number, kv_head);
  ring_store(args, s, 2, t->dv, &all_keys, number, kv_head);
}

static void ring_turns(const void *work, int part, int64_t begin, int64_t end) {
  const attention_work *given = work;
  const attention_shape *s = &given->shape;
  backward_tiles tiles = backward_tiles_at(s, given->scratch + part * given->floats);
  for (int64_t unit = begin; unit < end; unit++)
    ring_kv_head_run(given->args, s, &tiles, unit / s->kv_heads, unit % s->kv_heads);
}

static ls_status kernel_ring_attention_bwd(const ls_kernel_args *args, ls_error *error) {
  const attention_shape s = ring_shape_of(args, &args->in[1], &args->in[2]);
  return attention_share(args, &s, s.sequences * s.kv_heads, attention_elements(&s),
                         ls_attention_bwd_floats(s.width, s.sequence), ring_turns, error);
}

/* do . o of one query and head, the first two inputs. */
LS_INLINE float dot_of_results(const ls_kernel_args *args, int64_t row, int64_t head) {
  const int64_t head_dim = args->attributes->head_dim;
  float dout_buffer[LS_PIECE], out_buffer[LS_PIECE], sum = 0;
  for (int64_t at = 0; at < head_dim; at += LS_PIECE) {
    const int64_t column = head * head_dim + at, count = least(LS_PIECE, head_dim - at);
    const float *dout = piece_load(&args->in[0], row, column, count, dout_buffer);
    const float *out = piece_load(&args->in[1], row, column, count, out_buffer);
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < count; c++) sum += dout[c] * out[c];
  }
  return sum;
}

static void ring_end_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const int64_t heads = args->in[2].dims[1];
  for (int64_t row = begin; row < end; row++)
    for (int64_t head = 0; head < heads; head++) {
      const int64_t i = row * heads + head;
      ((float *)args->out[0].data)[i] = (float)ring_log_sum(args, 2, row, head);
      ((float *)args->out[1].data)[i] = dot_of_results(args, row, head);
    }
}

/* Units are heads: of each the sum over all queries of -p do . o, p the sink's probability. The
 * sinks are the last input, their gradient the last output. */
static void sink_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *dout = &args->in[0], *sinks = &args->in[args->inputs - 1];
  const bool ring = args->inputs > 4;
  const int64_t first = dout->start[1] / args->attributes->head_dim, heads = args->in[2].dims[1];
  const ls_view *out = &args->out[args->outputs - 1];
  for (int64_t head = begin; head < end; head++) {
    const double sink = (double)(sink_of(args, sinks, dout, head) / LS_LOG2_E);
    double sum = 0;
    for (int64_t row = 0; row < dout->valid[0]; row++) {
      const double log_sum = ring ? ring_log_sum(args, 2, row, head)
                                  : (double)((const float *)args->in[2].data)[row * heads + head];
      sum += exp(sink - log_sum) * (double)dot_of_results(args, row, head);
    }
    float buffer[1], *to = piece_target(out, 0, first + head, 1, true, buffer);
    *to = (float)-sum;
    piece_store(out, 0, first + head, 1, true, buffer);
  }
}

/* Sinks of other ranks' heads have zeros. */
static ls_status sinks_differentiate(const ls_kernel_args *args) {
  const ls_view *out = &args->out[args->outputs - 1];
  if (!args->accumulate[args->outputs - 1])
    memset(out->data, 0, ls_dtype_bytes(out->dtype) * (size_t)out->dims[0]);
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, args->in[0].valid[0] * args->in[0].valid[1]),
                args->in[2].dims[1], sink_turns, args);
  return LS_OK;
}

static ls_status kernel_sink_bwd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  return sinks_differentiate(args);
}

static ls_status kernel_ring_end_bwd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *dout = &args->in[0];
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, dout->valid[0] * dout->valid[1]), dout->valid[0],
                ring_end_turns, args);
  return args->outputs > 2 ? sinks_differentiate(args) : LS_OK;
}

static ls_status kernel_attention_bwd(const ls_kernel_args *args, ls_error *error) {
  const attention_shape s =
      attention_shape_of(args, &args->in[1], &args->in[2], args->in[2].valid[0]);
  return attention_share(args, &s, s.sequences * s.kv_heads, attention_elements(&s),
                         ls_attention_bwd_floats(s.width, s.sequence),
                         args->inputs > 7 ? placed_turns : attention_bwd_turns, error);
}

void LS_VECTOR(ls_fill_attention_bwd)(ls_kernel_table *table) {
  table->kernel[LS_OP_ATTENTION_BWD] = kernel_attention_bwd;
  table->kernel[LS_OP_SINK_BWD] = kernel_sink_bwd;
  table->kernel[LS_OP_RING_BWD] = kernel_ring_attention_bwd;
  table->kernel[LS_OP_RING_END_BWD] = kernel_ring_end_bwd;
}
