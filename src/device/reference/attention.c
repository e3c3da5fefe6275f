#include <math.h>
#include <string.h>

#include "device/mask.h"
#include "device/reference/reference.h"

/* Attention with grouped heads, causal or both ways. Scores are computed again wherever they are
 * needed: the T x T matrix is never stored. */

enum { COLUMNS = 64 };

typedef struct head_shape {
  int64_t head_dim, heads, per_kv_head; /* heads of this rank; query heads per KV head */
  int64_t first_head;                   /* its place among all heads */
  const ls_attributes *attributes;
} head_shape;

static double dot(const LS_REAL *x, const LS_REAL *y, int64_t count) {
  double sums[4] = {0};
  int64_t k = 0;
  for (; k + 4 <= count; k += 4)
    for (int i = 0; i < 4; i++) sums[i] += (double)x[k + i] * (double)y[k + i];
  for (; k < count; k++) sums[0] += (double)x[k] * (double)y[k];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

static ls_status read_shape(head_shape *shape, const ls_attributes *attributes, const ls_view *q,
                            const ls_view *k, ls_error *error) {
  const int64_t head_dim = attributes->head_dim;
  if (head_dim <= 0 || q->dims[1] % head_dim || k->dims[1] % head_dim || k->dims[1] == 0 ||
      q->dims[1] % k->dims[1])
    return ls_fail(error, LS_INTERNAL,
                   "attention of %lld query and %lld key columns with heads of %lld; expected "
                   "whole heads, and query heads a multiple of key heads",
                   (long long)q->dims[1], (long long)k->dims[1], (long long)head_dim);
  *shape = (head_shape){.head_dim = head_dim,
                        .heads = q->dims[1] / head_dim,
                        .per_kv_head = q->dims[1] / k->dims[1],
                        .first_head = q->start[1] / head_dim,
                        .attributes = attributes};
  return LS_OK;
}

static ls_status check_sequences(const ls_attributes *attributes, const ls_view *k,
                                 ls_error *error) {
  if (attributes->sequence > 0 && k->valid[0] % attributes->sequence == 0) return LS_OK;
  return ls_fail(error, LS_INTERNAL,
                 "attention of %lld tokens in sequences of %lld; expected whole sequences",
                 (long long)k->valid[0], (long long)attributes->sequence);
}

/* The score of a key `distance` tokens before the query, in head `h` of this rank; *slope takes its
 * derivative by the product of the two. */
static double score_of(const head_shape *shape, int64_t h, double product, int64_t distance,
                       double *slope) {
  const ls_attributes *attributes = shape->attributes;
  double score = attributes->softmax_scale * product;
  *slope = attributes->softmax_scale;
  if (attributes->softcap > 0) {
    const double share = tanh(score / attributes->softcap);
    score = attributes->softcap * share;
    *slope *= 1 - share * share;
  }
  if (attributes->alibi > 0)
    score -= attributes->alibi * ls_alibi_slope(shape->first_head + h, attributes->heads) *
             (double)distance;
  return score;
}

/* What the query at row n sees: keys from row `begin` up to, without, `end`; of these, where tokens
 * lie in an order of their own, those whose places are from `first` to `last`. */
typedef struct sight {
  int64_t begin, end, first, last, place;
  int64_t ranks, part;   /* places of keys: row j of this part of so many has j x ranks + part */
  const int32_t *places; /* in place of these, by row of the keys; NULL: none */
  const int32_t *draw;   /* of the query; NULL: nothing is dropped */
} sight;

/* Of the query at row n whose place is `place`, with two_way, the last of its document: as many
 * behind it as are told, or where tokens lie in order the last whose position follows. */
static int64_t last_of(const ls_kernel_args *args, int positions, int64_t n, int64_t place) {
  const int64_t sequence = args->attributes->sequence;
  const int64_t end = place - place % sequence + sequence - 1;
  if (positions >= args->inputs) return end;
  if (positions + 2 < args->inputs) return place + ls_index_data(&args->in[positions + 2])[n];
  const int32_t *at = ls_index_data(&args->in[positions]);
  while (n < end && at[n + 1] == at[n] + 1) n++;
  return n;
}

/* A document, or without documents a sequence, begins as many tokens before a token as its position
 * says. `positions`: that operand; places come behind it, of keys, among which a query's own is. */
static sight sight_of(const ls_kernel_args *args, const head_shape *shape, int positions,
                      int64_t n) {
  const ls_view *q = &args->in[positions < 6 ? 0 : 1], *k = q + 1;
  const int64_t sequence = args->attributes->sequence;
  sight of = {.begin = 0, .end = n + 1, .place = n, .ranks = 1};
  if (positions + 1 < args->inputs) {
    of.places = ls_index_data(&args->in[positions + 1]);
    of.place = of.places[q->start[0] - k->start[0] + n];
    of.end = k->valid[0];
  }
  of.first = of.place - of.place % sequence;
  if (positions < args->inputs) {
    const int64_t document = of.place - ls_index_data(&args->in[positions])[n];
    if (document > of.first) of.first = document < of.place ? document : of.place;
  }
  const bool two_way = args->attributes->two_way;
  const int draws = positions + 2 + two_way;
  if (draws < args->inputs) of.draw = ls_index_data(&args->in[draws]) + n;
  const int64_t window = shape->attributes->window;
  of.last = two_way ? last_of(args, positions, n, of.place) : of.place;
  if (window > 0 && of.first <= of.place - window) of.first = of.place - window + 1;
  if (window > 0 && of.last >= of.place + window) of.last = of.place + window - 1;
  if (!of.places) of.begin = of.first, of.end = of.last + 1;
  return of;
}

/* What a probability of head `h` of this rank is multiplied by, for the key at `place`. */
static double kept_of(const sight *of, const head_shape *shape, int64_t h, int64_t place) {
  if (!of->draw) return 1;
  const ls_attributes *attributes = shape->attributes;
  const uint32_t row = ls_mask_row(*of->draw, attributes->site, shape->first_head + h);
  const uint32_t column = (uint32_t)(place % attributes->sequence);
  const bool kept = ls_mask_keeps(row, column, ls_mask_limit(attributes->dropout));
  return kept ? 1 / (1 - attributes->dropout) : 0;
}

/* The place of key j, or -1: the query does not see it. */
static int64_t seen_at(const sight *of, int64_t j) {
  const int64_t place = of->places ? of->places[j] : j * of->ranks + of->part;
  return place >= of->first && place <= of->last ? place : -1;
}

/* The sinks of all heads, or NULL -> that of head `h` of this rank. */
static double sink_of(const ls_view *sinks, const head_shape *shape, int64_t h) {
  return sinks ? (double)ls_real_data(sinks)[shape->first_head + h] : -INFINITY;
}

/* One query over the keys that it sees, whose scores the sink joins: writes the head's output,
 * returns the log-sum-exp. */
static double attend(LS_REAL *out, bool accumulate, const LS_REAL *query, const LS_REAL *keys,
                     int64_t key_stride, const LS_REAL *values, int64_t value_stride,
                     const sight *of, const head_shape *shape, int64_t head, double sink) {
  double largest = sink, sum = isfinite(sink), slope;
  int64_t place;
  for (int64_t j = of->begin; j < of->end; j++) {
    if ((place = seen_at(of, j)) < 0) continue;
    const double product = dot(query, keys + j * key_stride, shape->head_dim);
    const double score = score_of(shape, head, product, of->place - place, &slope);
    if (score > largest) {
      sum = sum * exp(largest - score) + 1;
      largest = score;
    } else {
      sum += exp(score - largest);
    }
  }
  const double log_sum = largest + log(sum);
  for (int64_t first = 0; first < shape->head_dim; first += COLUMNS) {
    const int64_t width = ls_smaller(COLUMNS, shape->head_dim - first);
    double sums[COLUMNS] = {0};
    for (int64_t j = of->begin; j < of->end; j++) {
      if ((place = seen_at(of, j)) < 0) continue;
      const double product = dot(query, keys + j * key_stride, shape->head_dim);
      const double score = score_of(shape, head, product, of->place - place, &slope);
      const double share = exp(score - log_sum) * kept_of(of, shape, head, place);
      const LS_REAL *value = values + j * value_stride + first;
      for (int64_t c = 0; c < width; c++) sums[c] += share * (double)value[c];
    }
    for (int64_t c = 0; c < width; c++) ls_put(&out[first + c], sums[c], accumulate);
  }
  return log_sum;
}

/* `positions`: that operand. */
static ls_status attention(const ls_kernel_args *args, const ls_view *sinks, int positions,
                           ls_error *error) {
  const ls_view *q = &args->in[0], *k = &args->in[1], *v = &args->in[2], *out = &args->out[0];
  head_shape shape;
  LS_TRY(read_shape(&shape, args->attributes, q, k, error));
  LS_TRY(check_sequences(args->attributes, k, error));
  for (int64_t n = 0; n < out->valid[0]; n++) {
    const sight seen = sight_of(args, &shape, positions, n);
    for (int64_t h = 0; h < shape.heads; h++) {
      const int64_t column = h * shape.head_dim;
      const int64_t kv_column = h / shape.per_kv_head * shape.head_dim;
      const double log_sum =
          attend(ls_real_row(out, n) + column, args->accumulate[0], ls_real_row(q, n) + column,
                 ls_real_data(k) + kv_column, k->dims[1], ls_real_data(v) + kv_column, v->dims[1],
                 &seen, &shape, h, sink_of(sinks, &shape, h));
      ls_put(&ls_real_row(&args->out[1], n)[h], log_sum, args->accumulate[1]);
    }
  }
  return LS_OK;
}

/* Caches, or one of the parts that their rows are dealt to, and which of so many it is. */
typedef struct cached_part {
  LS_REAL *keys, *values;
  int64_t columns, ranks, number;
} cached_part;

/* Each token's row of the caches: its position where there are no places. */
static const int32_t *cache_places(const ls_kernel_args *args) {
  return ls_index_data(&args->in[args->inputs > 6 ? 6 : 5]);
}

/* Each token has a row; `ranks` that rows are dealt to: a sequence begins with the first of them,
 * and a token may be of none. */
static ls_status check_places(const ls_kernel_args *args, int64_t rows, int64_t ranks,
                              ls_error *error) {
  const ls_view *k = &args->in[1], *cache_k = &args->in[3], *cache_v = &args->in[4];
  const int32_t *positions = ls_index_data(&args->in[5]);
  const int32_t *places = cache_places(args);
  const bool dealt = args->outputs > 1;
  if (cache_k->dims[1] != k->dims[1] || cache_v->dims[1] != k->dims[1])
    return ls_fail(error, LS_INTERNAL, "a cache of %lld columns for keys of %lld",
                   (long long)cache_k->dims[1], (long long)k->dims[1]);
  for (int64_t n = 0; n < k->valid[0]; n++) {
    if (dealt && places[n] == -1) continue;
    if (positions[n] < 0 || places[n] < positions[n] || places[n] / ranks >= rows ||
        (places[n] - positions[n]) % ranks)
      return ls_fail(error, LS_INTERNAL, "position %d lies outside a cache of %lld rows",
                     positions[n], (long long)(rows * ranks));
  }
  return LS_OK;
}

static void write_rows(const ls_kernel_args *args, const cached_part *part) {
  const ls_view *k = &args->in[1], *v = &args->in[2];
  const int32_t *places = cache_places(args);
  const size_t bytes = (size_t)part->columns * sizeof(LS_REAL);
  for (int64_t n = 0; n < k->valid[0]; n++) {
    const int64_t row = places[n] / part->ranks;
    if (places[n] < 0 || places[n] % part->ranks != part->number) continue;
    memcpy(part->keys + row * part->columns, ls_real_row(k, n), bytes);
    memcpy(part->values + row * part->columns, ls_real_row(v, n), bytes);
  }
}

/* The rows of a part that the token sees. */
static sight sight_of_cache(const ls_kernel_args *args, const cached_part *part, int64_t n) {
  const int64_t place = cache_places(args)[n];
  const int64_t position = ls_index_data(&args->in[5])[n], window = args->attributes->window;
  const int64_t most = window > 0 ? window : INT64_MAX;
  const int64_t first = place - (position < most ? position : most - 1);
  if (place < 0) return (sight){0};
  return (sight){.begin = first / part->ranks,
                 .end = place / part->ranks + 1,
                 .first = first,
                 .last = place,
                 .place = place,
                 .ranks = part->ranks,
                 .part = part->number};
}

/* All queries over a part; their log-sum-exp goes to `sums` unless that is NULL. */
static void attend_part(const ls_kernel_args *args, const head_shape *shape,
                        const cached_part *part, const ls_view *sinks, LS_REAL *out,
                        LS_REAL *sums) {
  const ls_view *q = &args->in[0];
  write_rows(args, part);
  for (int64_t n = 0; n < q->valid[0]; n++) {
    const sight seen = sight_of_cache(args, part, n);
    for (int64_t h = 0; h < shape->heads; h++) {
      const int64_t column = h * shape->head_dim;
      const int64_t kv_column = h / shape->per_kv_head * shape->head_dim;
      const double log_sum =
          attend(out + n * q->dims[1] + column, args->accumulate[0], ls_real_row(q, n) + column,
                 part->keys + kv_column, part->columns, part->values + kv_column, part->columns,
                 &seen, shape, h, sink_of(sinks, shape, h));
      if (sums) ls_put(&sums[n * shape->heads + h], log_sum, args->accumulate[1]);
    }
  }
}

ls_status LS_REFERENCE(ATTENTION)(const ls_kernel_args *args, ls_error *error) {
  static const char *const forms[] = {"rrr>rr", "rrri>rr", "rrrii>rr", "rrriii>rr", "rrriiii>rr"};
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, forms[args->inputs - 3], error));
  return attention(args, NULL, 3, error);
}

ls_status LS_REFERENCE(SINK_ATTENTION)(const ls_kernel_args *args, ls_error *error) {
  static const char *const forms[] = {"rrrr>rr", "rrrri>rr", "rrrrii>rr", "rrrriii>rr",
                                      "rrrriiii>rr"};
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, forms[args->inputs - 4], error));
  return attention(args, &args->in[3], 4, error);
}

ls_status LS_REFERENCE(CACHED_ATTENTION)(const ls_kernel_args *args, ls_error *error) {
  static const char *const forms[] = {"rrrrri>r", "rrrrrii>r", "rrrrriir>r"};
  const ls_view *sinks = args->inputs > 7 ? &args->in[7] : NULL;
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, forms[args->inputs - 6], error));
  const ls_view *k = &args->in[1], *cache = &args->in[3];
  head_shape shape;
  LS_TRY(read_shape(&shape, args->attributes, &args->in[0], k, error));
  LS_TRY(check_places(args, cache->valid[0], 1, error));
  const cached_part whole = {.keys = ls_real_data(cache),
                             .values = ls_real_data(&args->in[4]),
                             .columns = k->dims[1],
                             .ranks = 1};
  attend_part(args, &shape, &whole, sinks, ls_real_data(&args->out[0]), NULL);
  return LS_OK;
}

ls_status LS_REFERENCE(CACHED_PART)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrrrrii>RR", error));
  const ls_view *k = &args->in[1], *cache = &args->in[3], *out = args->out;
  const int64_t parts = out[0].dims[0], ranks = args->attributes->turns;
  head_shape shape;
  LS_TRY(read_shape(&shape, args->attributes, &args->in[0], k, error));
  if (parts < 1 || cache->dims[0] % parts)
    return ls_fail(error, LS_INTERNAL, "a cache of %lld rows in %lld parts; expected a multiple",
                   (long long)cache->dims[0], (long long)parts);
  const int64_t rows = cache->dims[0] / parts;
  LS_TRY(check_places(args, rows, ranks, error));
  for (int64_t p = 0; p < parts; p++) {
    const int64_t first = p * rows * k->dims[1];
    const cached_part part = {.keys = ls_real_data(cache) + first,
                              .values = ls_real_data(&args->in[4]) + first,
                              .columns = k->dims[1],
                              .ranks = ranks,
                              .number = out[0].start[0] + p};
    attend_part(args, &shape, &part, NULL,
                ls_real_data(&out[0]) + p * out[0].dims[1] * out[0].dims[2],
                ls_real_data(&out[1]) + p * out[1].dims[1] * out[1].dims[2]);
  }
  return LS_OK;
}

/* A row of part `p`. */
static const LS_REAL *part_row(const ls_view *view, int64_t p, int64_t n) {
  return ls_real_data(view) + (p * view->dims[1] + n) * view->dims[2];
}

ls_status LS_REFERENCE(CACHED_END)(const ls_kernel_args *args, ls_error *error) {
  const bool sinks = args->inputs > 2;
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, sinks ? "RRr>r" : "RR>r", error));
  const ls_view *values = &args->in[0], *sums = &args->in[1], *out = &args->out[0];
  const int64_t head_dim = args->attributes->head_dim, parts = values->valid[0];
  for (int64_t n = 0; n < out->valid[0]; n++)
    for (int64_t c = 0; c < out->dims[1]; c++) {
      double largest =
          sinks ? (double)ls_real_data(&args->in[2])[(out->start[1] + c) / head_dim] : -INFINITY;
      const double sink = largest;
      double sum = 0, of = 0;
      for (int64_t p = 0; p < parts; p++)
        largest = fmax(largest, (double)part_row(sums, p, n)[c / head_dim]);
      if (sinks) sum = exp(sink - largest);
      for (int64_t p = 0; p < parts && largest > -INFINITY; p++) {
        const double share = exp((double)part_row(sums, p, n)[c / head_dim] - largest);
        sum += share;
        of += share * (double)part_row(values, p, n)[c];
      }
      ls_put(&ls_real_row(out, n)[c], sum > 0 ? of / sum : 0, args->accumulate[0]);
    }
  return LS_OK;
}

static void zero_rows(const ls_view *view) {
  for (int64_t n = 0; n < view->valid[0]; n++)
    ls_put_padding(ls_real_row(view, n), 0, view->dims[1], false);
}

/* Adds what one query contributes to dq, dk and dv. With p the softmax, m what dropout multiplies
 * it by, D = do . o and s' the score's derivative by q . k: dv_j += m_j p_j do, ds_j = s' p_j (m_j
 * do . v_j - D), dq += ds_j k_j, dk_j += ds_j q. */
static void attend_back(const ls_kernel_args *args, const head_shape *shape, const sight *seen,
                        int64_t n, int64_t h, double log_sum, double shared) {
  const ls_view *k = &args->in[2], *v = &args->in[3];
  const ls_view *dk = &args->out[1], *dv = &args->out[2];
  const int64_t head_dim = shape->head_dim, column = h * head_dim;
  const int64_t kv_column = h / shape->per_kv_head * head_dim;
  const LS_REAL *dout = ls_real_row(&args->in[0], n) + column;
  const LS_REAL *query = ls_real_row(&args->in[1], n) + column;
  LS_REAL *dquery = ls_real_row(&args->out[0], n) + column;
  for (int64_t j = seen->begin; j < seen->end; j++) {
    const int64_t place = seen_at(seen, j);
    if (place < 0) continue;
    const LS_REAL *key = ls_real_row(k, j) + kv_column, *value = ls_real_row(v, j) + kv_column;
    LS_REAL *dkey = ls_real_row(dk, j) + kv_column, *dvalue = ls_real_row(dv, j) + kv_column;
    double derivative;
    const double score =
        score_of(shape, h, dot(query, key, head_dim), seen->place - place, &derivative);
    const double share = exp(score - log_sum), kept = kept_of(seen, shape, h, place);
    const double slope = derivative * share * (kept * dot(dout, value, head_dim) - shared);
    for (int64_t c = 0; c < head_dim; c++) {
      ls_put(&dquery[c], slope * (double)key[c], true);
      ls_put(&dkey[c], slope * (double)query[c], true);
      ls_put(&dvalue[c], share * kept * (double)dout[c], true);
    }
  }
}

ls_status LS_REFERENCE(ATTENTION_BWD)(const ls_kernel_args *args, ls_error *error) {
  static const char *const forms[] = {"rrrrrr>rrr", "rrrrrri>rrr", "rrrrrrii>rrr", "rrrrrriii>rrr",
                                      "rrrrrriiii>rrr"};
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, forms[args->inputs - 6], error));
  const ls_view *q = &args->in[1];
  head_shape shape;
  LS_TRY(read_shape(&shape, args->attributes, q, &args->in[2], error));
  LS_TRY(check_sequences(args->attributes, &args->in[2], error));
  for (int i = 0; i < 3; i++)
    if (!args->accumulate[i]) zero_rows(&args->out[i]);
  for (int64_t n = 0; n < q->valid[0]; n++) {
    const sight seen = sight_of(args, &shape, 6, n);
    for (int64_t h = 0; h < shape.heads; h++) {
      const int64_t column = h * shape.head_dim;
      attend_back(args, &shape, &seen, n, h, (double)ls_real_row(&args->in[5], n)[h],
                  dot(ls_real_row(&args->in[0], n) + column, ls_real_row(&args->in[4], n) + column,
                      shape.head_dim));
    }
  }
  return LS_OK;
}

/* What a query sees of one block of keys, which lie anywhere among all: operands k and places. */
static sight block_sight(const ls_kernel_args *args, const ls_view *q, const ls_view *k,
                         int positions, int64_t n) {
  const ls_view *places = &args->in[positions + 1];
  const int32_t *all = ls_index_data(places);
  const int64_t sequence = args->attributes->sequence, window = args->attributes->window;
  sight of = {.end = k->valid[0],
              .place = all[q->start[0] - places->start[0] + n],
              .places = all + (k->start[0] - places->start[0])};
  of.last = of.place;
  of.first = of.place - of.place % sequence;
  const int64_t document = of.place - ls_index_data(&args->in[positions])[n];
  if (document > of.first) of.first = document < of.place ? document : of.place;
  if (window > 0 && of.first <= of.place - window) of.first = of.place - window + 1;
  return of;
}

/* The running maximum of scores is kept times log2(e), as devices have it whose exponentials are
 * powers of 2: so it is not rounded on the way. */
static const double log2_e = 1.4426950408889634;

/* Adds a block of keys to what a head of query n has come to: sums of exp(score - max), of values
 * times these, and max itself. */
static void attend_block(const ls_kernel_args *args, const head_shape *shape, int64_t n,
                         int64_t h) {
  const ls_view *k = &args->in[1], *v = &args->in[2];
  const bool begun = args->inputs > 5;
  const int64_t column = h * shape->head_dim, kv_column = h / shape->per_kv_head * shape->head_dim;
  const LS_REAL *query = ls_real_row(&args->in[0], n) + column;
  const sight seen = block_sight(args, &args->in[0], k, 3, n);
  const double before = begun ? (double)ls_real_row(&args->in[6], n)[h] / log2_e : -INFINITY;
  const double summed = begun ? (double)ls_real_row(&args->in[7], n)[h] : 0;
  double largest = before, slope;
  int64_t place;
  for (int64_t j = 0; j < seen.end; j++) {
    if ((place = seen_at(&seen, j)) < 0) continue;
    const double product = dot(query, ls_real_row(k, j) + kv_column, shape->head_dim);
    const double score = score_of(shape, h, product, seen.place - place, &slope);
    if (score > largest) largest = score;
  }
  const double shrink = summed > 0 ? exp(before - largest) : 0;
  double sum = summed * shrink;
  for (int64_t first = 0; first < shape->head_dim; first += COLUMNS) {
    const int64_t width = ls_smaller(COLUMNS, shape->head_dim - first);
    double sums[COLUMNS] = {0};
    for (int64_t c = 0; c < width && begun; c++)
      sums[c] = shrink * (double)(ls_real_row(&args->in[5], n) + column + first)[c];
    for (int64_t j = 0; j < seen.end; j++) {
      if ((place = seen_at(&seen, j)) < 0) continue;
      const double product = dot(query, ls_real_row(k, j) + kv_column, shape->head_dim);
      const double share = exp(score_of(shape, h, product, seen.place - place, &slope) - largest);
      if (first == 0) sum += share;
      const LS_REAL *value = ls_real_row(v, j) + kv_column + first;
      for (int64_t c = 0; c < width; c++) sums[c] += share * (double)value[c];
    }
    LS_REAL *out = ls_real_row(&args->out[0], n) + column + first;
    for (int64_t c = 0; c < width; c++) ls_put(&out[c], sums[c], false);
  }
  ls_put(&ls_real_row(&args->out[1], n)[h], largest * log2_e, false);
  ls_put(&ls_real_row(&args->out[2], n)[h], sum, false);
}

ls_status LS_REFERENCE(RING_ATTENTION)(const ls_kernel_args *args, ls_error *error) {
  const char *form = args->inputs > 5 ? "rrriirrr>RRR" : "rrrii>RRR";
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, form, error));
  const ls_view *q = &args->in[0];
  head_shape shape;
  LS_TRY(read_shape(&shape, args->attributes, q, &args->in[1], error));
  for (int64_t n = 0; n < q->valid[0]; n++)
    for (int64_t h = 0; h < shape.heads; h++) attend_block(args, &shape, n, h);
  return LS_OK;
}

/* Adds what one query of head `h` of this rank contributes to dsinks, output `to`, of the last
 * input: with p the sink's probability, which has no value, -p do . o. */
static void add_sink_slope(const ls_kernel_args *args, int to, int64_t h, double log_sum,
                           double shared) {
  const int64_t head = args->in[0].start[1] / args->attributes->head_dim + h;
  const double sink = (double)ls_real_data(&args->in[args->inputs - 1])[head];
  ls_put(&ls_real_data(&args->out[to])[head], -exp(sink - log_sum) * shared, true);
}

/* What the exponentials of head `h` come to, the sink's among them: the largest score, *sum of all
 * under it, and *shrink of what was summed under the maximum at hand. */
static double ring_sum(const ls_kernel_args *args, int max, int64_t n, int64_t h, double *sum,
                       double *shrink) {
  const int64_t first_head = args->in[0].start[1] / args->attributes->head_dim;
  const double before = (double)ls_real_row(&args->in[max], n)[h] / log2_e;
  const double summed = (double)ls_real_row(&args->in[max + 1], n)[h];
  *shrink = 1;
  *sum = summed;
  if (max + 2 >= args->inputs) return before;
  const double sink = (double)ls_real_data(&args->in[max + 2])[first_head + h];
  const double largest = fmax(before, sink);
  *shrink = exp(before - largest);
  *sum = summed * *shrink + exp(sink - largest);
  return largest;
}

ls_status LS_REFERENCE(RING_END)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, args->inputs > 3 ? "rrrr>R" : "rrr>R", error));
  const int64_t head_dim = args->attributes->head_dim;
  for (int64_t n = 0; n < args->out[0].valid[0]; n++)
    for (int64_t h = 0; h < args->in[1].dims[1]; h++) {
      const LS_REAL *values = ls_real_row(&args->in[0], n) + h * head_dim;
      LS_REAL *out = ls_real_row(&args->out[0], n) + h * head_dim;
      double sum, shrink;
      ring_sum(args, 1, n, h, &sum, &shrink);
      for (int64_t c = 0; c < head_dim; c++)
        ls_put(&out[c], (double)values[c] * shrink / sum, false);
    }
  return LS_OK;
}

ls_status LS_REFERENCE(RING_END_BWD)(const ls_kernel_args *args, ls_error *error) {
  const char *form = args->inputs > 4 ? "rrrrr>RRr?" : "rrrr>RR";
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, form, error));
  const int64_t head_dim = args->attributes->head_dim;
  const bool differs = args->outputs > 2; /* by the sinks */
  if (differs) ls_put_padding(args->out[2].data, 0, args->out[2].dims[0], args->accumulate[2]);
  for (int64_t n = 0; n < args->out[0].valid[0]; n++)
    for (int64_t h = 0; h < args->out[0].dims[1]; h++) {
      const LS_REAL *dout = ls_real_row(&args->in[0], n) + h * head_dim;
      const double shared = dot(dout, ls_real_row(&args->in[1], n) + h * head_dim, head_dim);
      double sum, shrink;
      const double log_sum = ring_sum(args, 2, n, h, &sum, &shrink) + log(sum);
      ls_put(&ls_real_row(&args->out[0], n)[h], log_sum, false);
      ls_put(&ls_real_row(&args->out[1], n)[h], shared, false);
      if (differs) add_sink_slope(args, 2, h, log_sum, shared);
    }
  return LS_OK;
}

/* A sink's probability falls where the score of a key rises, and nothing comes of it but that. */
ls_status LS_REFERENCE(SINK_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrrr>r", error));
  const int64_t head_dim = args->attributes->head_dim;
  const ls_view *log_sums = &args->in[2];
  ls_put_padding(args->out[0].data, 0, args->out[0].dims[0], args->accumulate[0]);
  for (int64_t n = 0; n < args->in[0].valid[0]; n++)
    for (int64_t h = 0; h < log_sums->dims[1]; h++)
      add_sink_slope(args, 0, h, (double)ls_real_row(log_sums, n)[h],
                     dot(ls_real_row(&args->in[0], n) + h * head_dim,
                         ls_real_row(&args->in[1], n) + h * head_dim, head_dim));
  return LS_OK;
}

ls_status LS_REFERENCE(RING_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrrrrrii>rrr", error));
  const ls_view *q = &args->in[1];
  head_shape shape;
  LS_TRY(read_shape(&shape, args->attributes, q, &args->in[2], error));
  for (int i = 0; i < 3; i++)
    if (!args->accumulate[i]) zero_rows(&args->out[i]);
  for (int64_t n = 0; n < q->valid[0]; n++) {
    const sight seen = block_sight(args, q, &args->in[2], 6, n);
    for (int64_t h = 0; h < shape.heads; h++)
      attend_back(args, &shape, &seen, n, h, (double)ls_real_row(&args->in[4], n)[h],
                  (double)ls_real_row(&args->in[5], n)[h]);
  }
  return LS_OK;
}
