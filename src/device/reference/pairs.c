#include <math.h>

#include "device/reference/reference.h"

/* Pairs of answers: of a rank's sequences the documents, two and two. */

typedef struct documents {
  const int32_t *labels, *positions;
  int64_t rows, sequence;
} documents;

/* A document is [begin, middle), the other [middle, end). */
typedef struct pair {
  int64_t begin, middle, end;
} pair;

static documents documents_of(const ls_kernel_args *args, int labels) {
  return (documents){ls_index_data(&args->in[labels]), ls_index_data(&args->in[labels + 1]),
                     args->in[labels].valid[0], args->attributes->sequence};
}

/* Where the document that begins at `first` ends; a sequence ends its last. */
static int64_t document_end(const documents *of, int64_t first) {
  const int64_t limit = (first / of->sequence + 1) * of->sequence;
  int64_t end = first + 1;
  while (end < limit && end < of->rows && of->positions[end] != 0) end++;
  return end;
}

static bool is_asked(const documents *of, const pair *at) {
  for (int64_t n = at->begin; n < at->end; n++)
    if (of->labels[n] >= 0) return true;
  return false;
}

/* The first pair with labels from row `from` on, at most. */
static bool next_pair(const documents *of, int64_t from, pair *found) {
  while (from < of->rows) {
    *found = (pair){.begin = from, .middle = document_end(of, from)};
    from = found->middle;
    if (from % of->sequence == 0 || from >= of->rows) continue; /* it is without another */
    from = found->end = document_end(of, from);
    if (is_asked(of, found)) return true;
  }
  return false;
}

/* log(1 + exp(x)) */
static double softplus(double x) {
  return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double sigmoid(double x) {
  return x > 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

/* How far a pair is told apart. */
static double told_apart(const ls_kernel_args *args, const double *answers, const pair *at) {
  return args->attributes->dpo_beta * (answers[at->begin] - answers[at->middle]);
}

ls_status LS_REFERENCE(PAIR_LOSS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrriid>dD", error));
  const LS_REAL *largest = ls_real_data(&args->in[0]), *sums = ls_real_data(&args->in[1]);
  const LS_REAL *targets = ls_real_data(&args->in[2]);
  const documents of = documents_of(args, 3);
  const double *reference = args->in[5].data;
  double *answers = args->out[1].data, loss = 0;
  for (int64_t begin = 0, end; begin < of.rows; begin = end) {
    double own = 0, other = 0; /* apart: equal ones leave exactly 0, wherever the reference lies */
    end = document_end(&of, begin);
    for (int64_t n = begin; n < end; n++) {
      if (of.labels[n] < 0) continue;
      own += (double)targets[n] - (double)largest[n] - log((double)sums[n]);
      other += reference[n];
    }
    for (int64_t n = begin; n < end; n++) answers[n] = own - other;
  }
  const double wrong = args->attributes->smoothing;
  pair at = {0};
  while (next_pair(&of, at.end, &at)) {
    const double apart = told_apart(args, answers, &at);
    loss += (1 - wrong) * softplus(-apart) + (wrong > 0 ? wrong * softplus(apart) : 0);
  }
  ls_put_cell(&args->out[0], loss, args->accumulate[0]);
  return LS_OK;
}

/* The loss of a token is minus its log-probability. */
ls_status LS_REFERENCE(PAIR_LOSS_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "diid>r", error));
  const double scale = *ls_cell_data(&args->in[3]) * args->attributes->dpo_beta;
  const double *answers = args->in[0].data, wrong = args->attributes->smoothing;
  const documents of = documents_of(args, 1);
  LS_REAL *out = ls_real_data(&args->out[0]);
  for (int64_t n = 0; n < of.rows; n++) ls_put(&out[n], 0, args->accumulate[0]);
  pair at = {0};
  while (next_pair(&of, at.end, &at)) {
    const double apart = told_apart(args, answers, &at);
    const double each = scale * ((1 - wrong) * sigmoid(-apart) - wrong * sigmoid(apart));
    for (int64_t n = at.begin; n < at.end; n++)
      if (of.labels[n] >= 0) ls_put(&out[n], n < at.middle ? each : -each, args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(PAIR_REWARDS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "dii>ddd", error));
  const double *answers = args->in[0].data, beta = args->attributes->dpo_beta;
  const documents of = documents_of(args, 1);
  double told[3] = {0};
  pair at = {0};
  while (next_pair(&of, at.end, &at)) {
    told[0] += beta * answers[at.begin];
    told[1] += beta * answers[at.middle];
    told[2] += answers[at.begin] > answers[at.middle];
  }
  for (int o = 0; o < 3; o++) ls_put_cell(&args->out[o], told[o], args->accumulate[o]);
  return LS_OK;
}

ls_status LS_REFERENCE(COUNT_PAIRS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ii>d", error));
  const documents of = documents_of(args, 0);
  int64_t count = 0;
  pair at = {0};
  while (next_pair(&of, at.end, &at)) count++;
  ls_put_cell(&args->out[0], (double)count, args->accumulate[0]);
  return LS_OK;
}
