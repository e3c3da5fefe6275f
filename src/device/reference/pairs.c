#include <math.h>

#include "device/reference/reference.h"

/* Pairs of answers: of a rank's sequences the documents, two and two. Tokens are counted in turn,
 * whichever rows they are. */

typedef struct documents {
  const int32_t *labels, *positions;
  const int32_t *row_of_token; /* NULL: the same */
  int64_t tokens, sequence;
} documents;

/* A document is [begin, middle), the other [middle, end). */
typedef struct pair {
  int64_t begin, middle, end;
} pair;

/* Labels are input `labels`, positions that behind it, tokens' rows input `rows` where it is there.
 */
static documents documents_of(const ls_kernel_args *args, int labels, int rows) {
  return (documents){ls_index_data(&args->in[labels]), ls_index_data(&args->in[labels + 1]),
                     rows < args->inputs ? ls_index_data(&args->in[rows]) : NULL,
                     args->in[labels].valid[0], args->attributes->sequence};
}

static int64_t row_of(const documents *of, int64_t token) {
  return of->row_of_token ? of->row_of_token[token] : token;
}

static bool has_label(const documents *of, int64_t token) {
  return of->labels[row_of(of, token)] >= 0;
}

/* Where the document that begins at `first` ends; a sequence ends its last. */
static int64_t document_end(const documents *of, int64_t first) {
  const int64_t limit = (first / of->sequence + 1) * of->sequence;
  int64_t end = first + 1;
  while (end < limit && end < of->tokens && of->positions[row_of(of, end)] != 0) end++;
  return end;
}

static bool is_asked(const documents *of, const pair *at) {
  for (int64_t t = at->begin; t < at->end; t++)
    if (has_label(of, t)) return true;
  return false;
}

/* The first pair with labels from token `from` on, at most. */
static bool next_pair(const documents *of, int64_t from, pair *found) {
  while (from < of->tokens) {
    *found = (pair){.begin = from, .middle = document_end(of, from)};
    from = found->middle;
    if (from % of->sequence == 0 || from >= of->tokens) continue; /* it is without another */
    from = found->end = document_end(of, from);
    if (is_asked(of, found)) return true;
  }
  return false;
}

ls_status LS_REFERENCE(TOKEN_ROWS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "i>i", error));
  if (args->accumulate[0]) return ls_fail(error, LS_INTERNAL, "rows cannot be added to");
  const ls_view *places = &args->in[0];
  for (int64_t n = 0; n < places->valid[0]; n++) {
    const int64_t token = ls_index_data(places)[n] - places->start[0];
    if (token < 0 || token >= places->valid[0])
      return ls_fail(error, LS_INTERNAL,
                     "row %lld is token %lld; expected one of %lld from %lld on", (long long)n,
                     (long long)(token + places->start[0]), (long long)places->valid[0],
                     (long long)places->start[0]);
    ((int32_t *)args->out[0].data)[token] = (int32_t)n;
  }
  return LS_OK;
}

ls_status LS_REFERENCE(PAIR_SHARES)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, args->inputs > 2 ? "iii>r" : "ii>r", error));
  const documents all = documents_of(args, 0, 2);
  for (int64_t first = 0; first < all.tokens; first += all.sequence) {
    documents of = all;
    of.tokens = ls_smaller(first + all.sequence, all.tokens);
    int64_t pairs = 0, asked = 0;
    for (pair at = {.end = first}; next_pair(&of, at.end, &at);) pairs++;
    for (int64_t t = first; t < of.tokens; t++) asked += has_label(&of, t);
    for (int64_t t = first; t < of.tokens; t++)
      ls_put(&ls_real_data(&args->out[0])[row_of(&of, t)],
             has_label(&of, t) ? (double)pairs / (double)asked : 0, args->accumulate[0]);
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

/* What is said of a pair's documents. */
typedef struct told {
  double chosen, rejected;
} told;

static told told_of(const documents *of, const double *answers, const pair *at) {
  return (told){answers[row_of(of, at->begin)], answers[row_of(of, at->middle)]};
}

/* The log-probability of a mean of labels, kept below that of certainty, whose odds have no end. */
static double below_certain(double answer) {
  const double most = -1e-9;
  return answer < most ? answer : most;
}

/* How much larger the log odds of the chosen answer are: of p they are log p - log(1 - p). */
static double log_odds_ratio(const told *of) {
  const double chosen = below_certain(of->chosen), rejected = below_certain(of->rejected);
  return (chosen - rejected) - (log(-expm1(chosen)) - log(-expm1(rejected)));
}

static double loss_of(const ls_attributes *attributes, const told *of) {
  const double wrong = attributes->smoothing, own = attributes->scale;
  const double apart = attributes->dpo_beta * (of->chosen - of->rejected);
  if (own > 0) return -own * of->chosen + attributes->dpo_beta * softplus(-log_odds_ratio(of));
  return (1 - wrong) * softplus(-apart) + (wrong > 0 ? wrong * softplus(apart) : 0);
}

/* Of each document what counts of it, at each of its tokens. */
static void put_answers(const ls_kernel_args *args, const documents *of, double *answers) {
  const LS_REAL *largest = ls_real_data(&args->in[0]), *sums = ls_real_data(&args->in[1]);
  const LS_REAL *targets = ls_real_data(&args->in[2]);
  const double *reference = args->in[5].data;
  for (int64_t begin = 0, end; begin < of->tokens; begin = end) {
    double own = 0, other = 0; /* apart: equal ones leave exactly 0, wherever the reference lies */
    int64_t count = 0;
    end = document_end(of, begin);
    for (int64_t t = begin; t < end; t++) {
      const int64_t n = row_of(of, t);
      if (of->labels[n] < 0) continue;
      own += (double)targets[n] - (double)largest[n] - log((double)sums[n]);
      other += reference[n];
      count++;
    }
    const double answer =
        args->attributes->scale > 0 ? (count > 0 ? own / (double)count : 0) : own - other;
    for (int64_t t = begin; t < end; t++) answers[row_of(of, t)] = answer;
  }
}

ls_status LS_REFERENCE(PAIR_LOSS)(const ls_kernel_args *args, ls_error *error) {
  const bool placed = args->inputs > 6;
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, placed ? "rrriidi>dD" : "rrriid>dD", error));
  const documents of = documents_of(args, 3, 6);
  double *answers = args->out[1].data, loss = 0;
  put_answers(args, &of, answers);
  for (pair at = {0}; next_pair(&of, at.end, &at);) {
    const told both = told_of(&of, answers, &at);
    loss += loss_of(args->attributes, &both);
  }
  ls_put_cell(&args->out[0], loss, args->accumulate[0]);
  return LS_OK;
}

static int64_t labels_of(const documents *of, int64_t begin, int64_t end) {
  int64_t count = 0;
  for (int64_t t = begin; t < end; t++) count += has_label(of, t);
  return count > 0 ? count : 1;
}

/* How often the loss of each token of both answers counts, which is minus its log-probability. */
static void slopes_of(const ls_kernel_args *args, const documents *of, const pair *at,
                      double each[2]) {
  const ls_attributes *attributes = args->attributes;
  const double wrong = attributes->smoothing, own = attributes->scale;
  const double beta = attributes->dpo_beta, scale = *ls_cell_data(&args->in[3]);
  const told both = told_of(of, args->in[0].data, at);
  const double apart = beta * (both.chosen - both.rejected);
  each[0] = scale * beta * ((1 - wrong) * sigmoid(-apart) - wrong * sigmoid(apart));
  each[1] = -each[0];
  if (own <= 0) return;
  const double ratio = beta * sigmoid(-log_odds_ratio(&both));
  const double chosen = own + ratio / -expm1(below_certain(both.chosen));
  const double rejected = -ratio / -expm1(below_certain(both.rejected));
  each[0] = scale * chosen / (double)labels_of(of, at->begin, at->middle);
  each[1] = scale * rejected / (double)labels_of(of, at->middle, at->end);
}

ls_status LS_REFERENCE(PAIR_LOSS_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, args->inputs > 4 ? "diidi>r" : "diid>r", error));
  const documents of = documents_of(args, 1, 4);
  LS_REAL *out = ls_real_data(&args->out[0]);
  for (int64_t n = 0; n < of.tokens; n++) ls_put(&out[n], 0, args->accumulate[0]);
  for (pair at = {0}; next_pair(&of, at.end, &at);) {
    double each[2];
    slopes_of(args, &of, &at, each);
    for (int64_t t = at.begin; t < at.end; t++)
      if (has_label(&of, t))
        ls_put(&out[row_of(&of, t)], each[t >= at.middle], args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(PAIR_REWARDS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(
      ls_reference_expect(args, LS_REAL_DTYPE, args->inputs > 3 ? "diii>ddd" : "dii>ddd", error));
  const double beta = args->attributes->dpo_beta;
  const documents of = documents_of(args, 1, 3);
  double sums[3] = {0};
  for (pair at = {0}; next_pair(&of, at.end, &at);) {
    const told both = told_of(&of, args->in[0].data, &at);
    sums[0] += beta * both.chosen;
    sums[1] += beta * both.rejected;
    sums[2] += both.chosen > both.rejected;
  }
  for (int o = 0; o < 3; o++) ls_put_cell(&args->out[o], sums[o], args->accumulate[o]);
  return LS_OK;
}
