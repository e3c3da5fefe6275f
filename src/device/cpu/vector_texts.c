/* Vectors of texts, told apart: see device/reference/texts.c. Tokens are of any type, and what is
 * made of them fp32.
 *
 * A text's tokens are summed by parts that own columns, and what answers are to change by is by
 * parts that own answers, so that bits do not depend on the count of threads. */
#include "device/cpu/vector_kernels.h"

/* Columns are shared in lines of the cache. */
enum { LINE = 16 };

/* The row that a token's text has in `sums`; -1: none of them. */
LS_INLINE int64_t text_row(const ls_attributes *attributes, int32_t label, const ls_view *sums) {
  const int64_t texts = attributes->texts, answers = attributes->answers ? texts - 1 : 0;
  const int64_t number = label >= 0 ? label : -2 - (int64_t)label;
  const int64_t text = number % texts, pair = number / texts % attributes->pairs;
  if (label == -1 || (text > 0) != (answers > 0)) return -1;
  const int64_t row = (answers ? pair * answers + text - 1 : pair) - sums->start[0];
  return row >= 0 && row < sums->valid[0] ? row : -1;
}

static void sums_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *x = &args->in[0], *sums = &args->out[0];
  const int32_t *labels = args->in[1].data;
  const int64_t first = begin * LINE, last = least(end * LINE, sums->dims[1]);
  const int64_t valid = least(last, x->valid[1]);
  float buffer[LS_PIECE];
  for (int64_t row = 0; row < sums->valid[0] && !args->accumulate[0]; row++)
    memset((float *)sums->data + row * sums->dims[1] + first, 0,
           (size_t)(last - first) * sizeof(float));
  for (int64_t token = 0; token < x->valid[0]; token++) {
    const int64_t row = text_row(args->attributes, labels[token], sums);
    if (row < 0) continue;
    for (int64_t at = first; at < valid; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, valid - at);
      piece_store(sums, row, at, count, true, piece_load(x, token, at, count, buffer));
    }
  }
}

static ls_status kernel_text_sums(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *x = &args->in[0];
  const int64_t lines = (args->out[0].dims[1] + LINE - 1) / LINE;
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, x->valid[0] * x->valid[1]), lines, sums_turns,
                args);
  return LS_OK;
}

static void sums_bwd_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *slopes = &args->in[0], *dx = &args->out[0];
  const int32_t *labels = args->in[1].data;
  const bool add = args->accumulate[0];
  float in_buffer[LS_PIECE], out_buffer[LS_PIECE];
  for (int64_t token = begin; token < end; token++) {
    const int64_t row = text_row(args->attributes, labels[token], slopes);
    if (row < 0 && add) continue;
    for (int64_t at = 0; at < slopes->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, slopes->valid[1] - at);
      float *to = piece_target(dx, token, at, count, add, out_buffer);
      if (row < 0)
        memset(to, 0, (size_t)count * sizeof *to);
      else
        memcpy(to, piece_load(slopes, row, at, count, in_buffer), (size_t)count * sizeof *to);
      piece_store(dx, token, at, count, add, out_buffer);
    }
    row_clear_tail(dx, token, add);
  }
}

static ls_status kernel_text_sums_bwd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *dx = &args->out[0];
  ls_host_split(args->queue->facts->threads,
                ls_cpu_parts(args->queue->facts, dx->valid[0] * dx->valid[1]), dx->valid[0],
                sums_bwd_turns, args);
  return LS_OK;
}

LS_INLINE float *row_at(const ls_view *view, int64_t row) {
  return (float *)view->data + row * view->dims[1];
}

/* Scale times the cosine of a text that asks and an answer. */
LS_INLINE float score_of(const ls_kernel_args *args, int64_t asking, int64_t answer) {
  const float *a = row_at(&args->in[0], asking), *b = row_at(&args->in[2], answer);
  enum { SHORT = 128 }; /* exponentials magnify what a long sum in fp32 loses */
  const int64_t columns = args->in[0].valid[1];
  double score = 0;
  for (int64_t at = 0; at < columns; at += SHORT) {
    const int64_t end = least(at + SHORT, columns);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = at; c < end; c++) sum += a[c] * b[c];
    score += (double)sum;
  }
  return (float)(args->attributes->scale * score);
}

/* The answers of row n's group, its own among them. */
typedef struct group_answers {
  int64_t own, first, end;
} group_answers;

LS_INLINE group_answers answers_of(const ls_kernel_args *args, int64_t n) {
  const int64_t pairs = args->attributes->pairs, answers = args->attributes->texts - 1;
  const int64_t pair = args->in[0].start[0] + n, first = pair / pairs * pairs * answers;
  return (group_answers){pair * answers, first,
                         least(first + pairs * answers, args->in[2].valid[0])};
}

LS_INLINE bool is_there(const ls_kernel_args *args, int64_t own, int64_t k) {
  return k == own || ((const float *)args->in[3].data)[k] != 0;
}

static void match_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  for (int64_t n = begin; n < end; n++) {
    const group_answers of = answers_of(args, n);
    const bool asks = ((const float *)args->in[1].data)[n] != 0 && of.own < of.end;
    const float own = asks ? score_of(args, n, of.own) : 0;
    float max = own;
    double sum = 0;
    bool found = asks;
    for (int64_t k = of.first; asks && k < of.end; k++) {
      if (!is_there(args, of.own, k)) continue;
      const float score = k == of.own ? own : score_of(args, n, k);
      found = found && (k < of.own ? score < own : score <= own);
      if (score > max) sum *= exp((double)(max - score)), max = score;
      sum += (double)expf(score - max);
    }
    const float made[3] = {asks ? max + (float)log(sum) : 0, own, (float)found};
    for (int o = 0; o < 3; o++) {
      float *to = (float *)args->out[o].data + n;
      *to = args->accumulate[o] ? *to + made[o] : made[o];
    }
  }
}

static int match_parts(const ls_kernel_args *args) {
  const ls_view *asking = &args->in[0];
  const int64_t answers = args->attributes->pairs * (args->attributes->texts - 1);
  return ls_cpu_parts(args->queue->facts, asking->valid[0] * answers * asking->valid[1]);
}

static ls_status kernel_text_match(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  ls_host_split(args->queue->facts->threads, match_parts(args), args->in[0].valid[0], match_turns,
                args);
  return LS_OK;
}

/* What the score of a text that asks with an answer is to change by. */
LS_INLINE float slope_of(const ls_kernel_args *args, int64_t own, int64_t n, int64_t k) {
  const float sum = ((const float *)args->in[4].data)[n];
  const double scale = args->attributes->scale * *(const double *)args->in[5].data;
  return (expf(score_of(args, n, k) - sum) - (float)(k == own)) * (float)scale;
}

LS_INLINE void add_row(float *to, const float *from, float times, int64_t count) {
#pragma omp simd
  for (int64_t c = 0; c < count; c++) to[c] += times * from[c];
}

LS_INLINE float *begin_row(const ls_view *view, int64_t row, bool add) {
  float *to = row_at(view, row);
  if (!add) memset(to, 0, (size_t)view->dims[1] * sizeof *to);
  return to;
}

static void asking_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  for (int64_t n = begin; n < end; n++) {
    const group_answers of = answers_of(args, n);
    float *to = begin_row(&args->out[0], n, args->accumulate[0]);
    if (((const float *)args->in[1].data)[n] == 0) continue;
    for (int64_t k = of.first; k < of.end; k++)
      if (is_there(args, of.own, k))
        add_row(to, row_at(&args->in[2], k), slope_of(args, of.own, n, k), args->in[0].valid[1]);
  }
}

static void answering_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const int64_t pairs = args->attributes->pairs, answers = args->attributes->texts - 1;
  const int64_t start = args->in[0].start[0];
  for (int64_t k = begin; k < end; k++) {
    const int64_t first = k / answers / pairs * pairs - start;
    const int64_t last = least(first + pairs, args->in[0].valid[0]);
    float *to = begin_row(&args->out[1], k, args->accumulate[1]);
    for (int64_t n = first > 0 ? first : 0; n < last; n++) {
      const int64_t own = (start + n) * answers;
      if (((const float *)args->in[1].data)[n] == 0 || !is_there(args, own, k)) continue;
      add_row(to, row_at(&args->in[0], n), slope_of(args, own, n, k), args->in[0].valid[1]);
    }
  }
}

static ls_status kernel_text_match_bwd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const int threads = args->queue->facts->threads;
  ls_host_split(threads, match_parts(args), args->out[0].valid[0], asking_turns, args);
  ls_host_split(threads, match_parts(args), args->out[1].valid[0], answering_turns, args);
  return LS_OK;
}

void LS_VECTOR(ls_fill_texts)(ls_kernel_table *table) {
  table->kernel[LS_OP_TEXT_SUMS] = kernel_text_sums;
  table->kernel[LS_OP_TEXT_SUMS_BWD] = kernel_text_sums_bwd;
  table->kernel[LS_OP_TEXT_MATCH] = kernel_text_match;
  table->kernel[LS_OP_TEXT_MATCH_BWD] = kernel_text_match_bwd;
}
