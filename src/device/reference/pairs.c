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

ls_status LS_REFERENCE(PAIR_SHARES)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ii>r", error));
  const documents all = documents_of(args, 0);
  for (int64_t first = 0; first < all.rows; first += all.sequence) {
    const int64_t end = ls_smaller(first + all.sequence, all.rows);
    const documents of = {all.labels, all.positions, end, all.sequence};
    int64_t pairs = 0, asked = 0;
    for (pair at = {.end = first}; next_pair(&of, at.end, &at);) pairs++;
    for (int64_t n = first; n < end; n++) asked += of.labels[n] >= 0;
    for (int64_t n = first; n < end; n++)
      ls_put(&ls_real_data(&args->out[0])[n], of.labels[n] >= 0 ? (double)pairs / (double)asked : 0,
             args->accumulate[0]);
  }
  return LS_OK;
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

/* The log-probability of a mean of labels, kept below that of certainty, whose odds have no end. */
static double below_certain(double answer) {
  const double most = -1e-9;
  return answer < most ? answer : most;
}

/* How much larger the log odds of the chosen answer are: of p they are log p - log(1 - p). */
static double log_odds_ratio(const double *answers, const pair *at) {
  const double chosen = below_certain(answers[at->begin]);
  const double rejected = below_certain(answers[at->middle]);
  return (chosen - rejected) - (log(-expm1(chosen)) - log(-expm1(rejected)));
}

static double loss_of(const ls_attributes *attributes, double apart, const double *answers,
                      const pair *at) {
  const double wrong = attributes->smoothing, own = attributes->scale;
  if (own > 0)
    return -own * answers[at->begin] +
           attributes->dpo_beta * softplus(-log_odds_ratio(answers, at));
  return (1 - wrong) * softplus(-apart) + (wrong > 0 ? wrong * softplus(apart) : 0);
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
    int64_t count = 0;
    end = document_end(&of, begin);
    for (int64_t n = begin; n < end; n++) {
      if (of.labels[n] < 0) continue;
      own += (double)targets[n] - (double)largest[n] - log((double)sums[n]);
      other += reference[n];
      count++;
    }
    const double answer =
        args->attributes->scale > 0 ? (count > 0 ? own / (double)count : 0) : own - other;
    for (int64_t n = begin; n < end; n++) answers[n] = answer;
  }
  pair at = {0};
  while (next_pair(&of, at.end, &at))
    loss += loss_of(args->attributes, told_apart(args, answers, &at), answers, &at);
  ls_put_cell(&args->out[0], loss, args->accumulate[0]);
  return LS_OK;
}

static int64_t labels_of(const documents *of, int64_t begin, int64_t end) {
  int64_t count = 0;
  for (int64_t n = begin; n < end; n++) count += of->labels[n] >= 0;
  return count > 0 ? count : 1;
}

/* How often the loss of each token of both answers counts, which is minus its log-probability. */
static void slopes_of(const ls_kernel_args *args, const documents *of, const pair *at,
                      double each[2]) {
  const ls_attributes *attributes = args->attributes;
  const double *answers = args->in[0].data, wrong = attributes->smoothing, own = attributes->scale;
  const double beta = attributes->dpo_beta, scale = *ls_cell_data(&args->in[3]);
  const double apart = told_apart(args, answers, at);
  each[0] = scale * beta * ((1 - wrong) * sigmoid(-apart) - wrong * sigmoid(apart));
  each[1] = -each[0];
  if (own <= 0) return;
  const double ratio = beta * sigmoid(-log_odds_ratio(answers, at));
  const double chosen = own + ratio / -expm1(below_certain(answers[at->begin]));
  const double rejected = -ratio / -expm1(below_certain(answers[at->middle]));
  each[0] = scale * chosen / (double)labels_of(of, at->begin, at->middle);
  each[1] = scale * rejected / (double)labels_of(of, at->middle, at->end);
}

ls_status LS_REFERENCE(PAIR_LOSS_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "diid>r", error));
  const documents of = documents_of(args, 1);
  LS_REAL *out = ls_real_data(&args->out[0]);
  for (int64_t n = 0; n < of.rows; n++) ls_put(&out[n], 0, args->accumulate[0]);
  pair at = {0};
  while (next_pair(&of, at.end, &at)) {
    double each[2];
    slopes_of(args, &of, &at, each);
    for (int64_t n = at.begin; n < at.end; n++)
      if (of.labels[n] >= 0) ls_put(&out[n], each[n >= at.middle], args->accumulate[0]);
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
