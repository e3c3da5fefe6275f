#include <math.h>
#include <string.h>

#include "device/reference/reference.h"

/* Mixtures of experts: where tokens go, how many go to each expert, and what that costs. */

/* A token's experts: what they are chosen by. */
typedef struct scores {
  const LS_REAL *logits, *added; /* NULL: nothing is */
  int64_t experts;
  bool sigmoid;
  uint64_t groups; /* whose experts may be chosen */
  int64_t of_group;
} scores;

static double sigmoid_of(double logit) {
  return 1 / (1 + exp(-logit));
}

static double score(const scores *of, int64_t e) {
  const double own = of->sigmoid ? sigmoid_of((double)of->logits[e]) : (double)of->logits[e];
  return own + (of->added ? (double)of->added[e] : 0);
}

/* Of a group the sum of its two best sigmoids, or its best logit. */
static double group_score(const scores *of, int64_t group) {
  double best = -INFINITY, second = -INFINITY;
  for (int64_t e = group * of->of_group; e < (group + 1) * of->of_group; e++) {
    const double own = score(of, e);
    if (own > best) {
      second = best;
      best = own;
    } else if (own > second) {
      second = own;
    }
  }
  return of->sigmoid && of->of_group > 1 ? best + second : best;
}

static scores scores_of(const ls_kernel_args *args, const ls_view *logits, const ls_view *added,
                        int64_t token) {
  const ls_attributes *attributes = args->attributes;
  scores of = {.logits = ls_real_row(logits, token),
               .added = added ? ls_real_data(added) : NULL,
               .experts = logits->valid[1],
               .sigmoid = attributes->sigmoid != 0,
               .groups = UINT64_MAX,
               .of_group = logits->valid[1]};
  if (attributes->groups < 2 || attributes->top_groups >= attributes->groups) return of;
  of.of_group = of.experts / attributes->groups;
  of.groups = 0;
  for (int64_t taken = 0; taken < attributes->top_groups; taken++) {
    int64_t best = -1;
    double most = -INFINITY;
    for (int64_t g = 0; g < attributes->groups; g++) {
      const double own = group_score(&of, g);
      if (of.groups >> g & 1 || (best >= 0 && !(own > most))) continue;
      best = g;
      most = own;
    }
    of.groups |= UINT64_C(1) << best;
  }
  return of;
}

/* The best expert that goes behind `last`: a smaller score, or an equal one and a higher number;
 * -1: the first of all. */
static int64_t next_best(const scores *of, int64_t last) {
  const double bound = last < 0 ? INFINITY : score(of, last);
  int64_t best = -1;
  double most = -INFINITY;
  for (int64_t e = 0; e < of->experts; e++) {
    const double own = score(of, e);
    if (!(of->groups >> (e / of->of_group) & 1)) continue;
    if (last >= 0 && (own > bound || (own >= bound && e <= last))) continue;
    if (best >= 0 && !(own > most)) continue;
    best = e;
    most = own;
  }
  return best;
}

/* Numbers every choice in the order of experts. A choice that has no row yet is -1 - its expert. */
static void sort_choices(const ls_view *places, int64_t experts, int32_t *expert_of_row) {
  const int64_t slots = places->valid[0] * places->dims[1];
  int32_t *place = places->data, row = 0;
  for (int64_t e = 0; e < experts; e++)
    for (int64_t s = 0; s < slots; s++) {
      if (place[s] != -1 - (int32_t)e) continue;
      expert_of_row[row] = (int32_t)e;
      place[s] = row++;
    }
}

/* A token's probabilities: exp(logit - most) / sum, or sigmoid(logit) / sum. */
typedef struct shares {
  bool sigmoid;
  double most, sum, scale;
} shares;

static double term(const shares *of, LS_REAL logit) {
  return of->sigmoid ? sigmoid_of((double)logit) : exp((double)logit - of->most);
}

static double share(const shares *of, LS_REAL logit) {
  return term(of, logit) / of->sum;
}

/* By how much a share changes with its logit, over what it changes with its term. */
static double slope(const shares *of, LS_REAL logit) {
  return of->sigmoid ? 1 - sigmoid_of((double)logit) : 1;
}

/* Over the experts of a token's rows, or over all of them; of sigmoids over none. */
static shares weights_of(const ls_attributes *attributes, const LS_REAL *logits, int64_t experts,
                         const int32_t *rows, int64_t chosen, const int32_t *expert_of_row) {
  const bool renormalise = attributes->renormalise != 0;
  shares of = {attributes->sigmoid != 0, -INFINITY, 0,
               attributes->scale > 0 ? attributes->scale : 1};
  for (int64_t j = 0; j < chosen; j++)
    of.most = fmax(of.most, (double)logits[expert_of_row[rows[j]]]);
  if (renormalise)
    for (int64_t j = 0; j < chosen; j++) of.sum += term(&of, logits[expert_of_row[rows[j]]]);
  else if (of.sigmoid)
    of.sum = 1;
  else
    for (int64_t e = 0; e < experts; e++) of.sum += term(&of, logits[e]);
  if (of.sigmoid && renormalise) of.sum += 1e-20;
  return of;
}

ls_status LS_REFERENCE(ROUTE)(const ls_kernel_args *args, ls_error *error) {
  const bool adds = args->inputs > 1;
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, adds ? "rr>iir" : "r>iir", error));
  if (args->accumulate[0] || args->accumulate[1] || args->accumulate[2])
    return ls_fail(error, LS_INTERNAL, "a routing cannot be accumulated into");
  const ls_view *logits = &args->in[0], *places = &args->out[0];
  const int64_t experts = logits->valid[1], chosen = places->dims[1];
  int32_t *rows = places->data, *expert_of_row = args->out[1].data;
  for (int64_t n = 0; n < places->valid[0]; n++) {
    const scores of = scores_of(args, logits, adds ? &args->in[1] : NULL, n);
    for (int64_t j = 0, last = -1; j < chosen; j++) {
      last = next_best(&of, last);
      rows[n * chosen + j] = -1 - (int32_t)last;
    }
  }
  sort_choices(places, experts, expert_of_row);
  for (int64_t n = 0; n < places->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(logits, n);
    const int32_t *of = rows + n * chosen;
    const shares weights = weights_of(args->attributes, from, experts, of, chosen, expert_of_row);
    for (int64_t j = 0; j < chosen; j++)
      ls_real_data(&args->out[2])[of[j]] =
          (LS_REAL)(weights.scale * share(&weights, from[expert_of_row[of[j]]]));
  }
  return LS_OK;
}

ls_status LS_REFERENCE(ROUTE_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rrii>r", error));
  const LS_REAL *dweights = args->in[0].data;
  const int32_t *rows = args->in[2].data, *expert_of_row = args->in[3].data;
  const ls_view *out = &args->out[0];
  const int64_t experts = out->valid[1], chosen = args->in[2].dims[1];
  const bool renormalise = args->attributes->renormalise != 0;
  const bool sums_all = !renormalise && !args->attributes->sigmoid;
  for (int64_t n = 0; n < out->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(&args->in[1], n);
    const int32_t *of = rows + n * chosen;
    const shares weights = weights_of(args->attributes, from, experts, of, chosen, expert_of_row);
    double mean = 0;
    for (int64_t j = 0; j < chosen && (renormalise || sums_all); j++)
      mean += share(&weights, from[expert_of_row[of[j]]]) * (double)dweights[of[j]];
    for (int64_t e = 0; e < experts; e++) {
      int64_t j = 0;
      while (j < chosen && expert_of_row[of[j]] != e) j++;
      const bool counts = j < chosen || sums_all;
      const double own = j < chosen ? (double)dweights[of[j]] : 0;
      const double each = weights.scale * slope(&weights, from[e]) * share(&weights, from[e]);
      ls_put(&ls_real_row(out, n)[e], counts ? each * (own - mean) : 0, args->accumulate[0]);
    }
    ls_put_padding(ls_real_row(out, n), experts, out->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(ROW_SIGMOID)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "r>r", error));
  for (int64_t n = 0; n < args->out[0].valid[0]; n++)
    ls_put(&ls_real_data(&args->out[0])[n], sigmoid_of((double)*ls_real_row(&args->in[0], n)),
           args->accumulate[0]);
  return LS_OK;
}

ls_status LS_REFERENCE(ROW_SIGMOID_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rr>r", error));
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    const double own = sigmoid_of((double)*ls_real_row(&args->in[1], n));
    ls_put(ls_real_row(&args->out[0], n), (double)ls_real_data(&args->in[0])[n] * own * (1 - own),
           args->accumulate[0]);
  }
  return LS_OK;
}

static double number_at(const ls_view *view, int64_t row, int64_t column) {
  const int64_t at = row * ls_stored_columns(view) + column;
  return view->dtype == LS_F64 ? ((const double *)view->data)[at]
                               : (double)((const float *)view->data)[at];
}

static void add_number(const ls_view *view, int64_t row, int64_t column, double number) {
  const int64_t at = row * ls_stored_columns(view) + column;
  if (view->dtype == LS_F64)
    ((double *)view->data)[at] += number;
  else
    ((float *)view->data)[at] += (float)number;
}

static void clear(const ls_view *view) {
  const size_t numbers = (size_t)(view->valid[0] * ls_stored_columns(view));
  memset(view->data, 0, numbers * ls_dtype_bytes(view->dtype));
}

/* Rows that one row of the loads is of. */
static int64_t rows_of_loads(const ls_view *rows, const ls_view *loads) {
  const int64_t parts = loads->valid[0] > 0 ? loads->valid[0] : 1;
  return rows->valid[0] > parts ? rows->valid[0] / parts : 1;
}

static ls_status count_loads(const ls_kernel_args *args, ls_error *error) {
  const ls_view *logits = &args->in[0], *told = &args->out[0], *loads = &args->out[1];
  if (args->accumulate[1])
    return ls_fail(error, LS_INTERNAL, "loads of a microbatch cannot be accumulated into");
  if (!args->accumulate[0]) clear(told);
  clear(loads);
  const int64_t each = rows_of_loads(logits, loads);
  for (int64_t n = 0; n < logits->valid[0]; n++) {
    if (ls_index_data(&args->in[1])[n] < 0) continue;
    const scores of = scores_of(args, logits, args->inputs > 2 ? &args->in[2] : NULL, n);
    for (int64_t j = 0, last = -1; j < args->attributes->chosen; j++) {
      last = next_best(&of, last);
      add_number(told, 0, last, 1);
      add_number(loads, n / each, last, 1);
    }
  }
  return LS_OK;
}

ls_status LS_REFERENCE(ROUTER_LOADS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, args->inputs > 2 ? "rir>dd" : "ri>dd", error));
  return count_loads(args, error);
}

ls_status LS_REFERENCE(ROUTER_LOADS_EACH)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, args->inputs > 2 ? "rir>dr" : "ri>dr", error));
  return count_loads(args, error);
}

ls_status LS_REFERENCE(ROUTER_TOTAL)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, args->inputs > 1 ? "dd>D" : "d>D", error));
  double *to = args->out[0].data;
  for (int64_t c = 0; c < args->out[0].dims[1]; c++) {
    to[c] = ls_cell_data(&args->in[0])[c];
    if (args->inputs > 1) to[c] += ls_cell_data(&args->in[1])[c];
  }
  return LS_OK;
}

/* What the loss of a token is made of. */
typedef struct penalty {
  shares all;
  double mean;        /* of loads over their sum, by probability */
  double loads;       /* their sum; 0: nothing is balanced */
  double sum_of_exps; /* of the logits, over that of the largest */
  double log_sum_exp;
} penalty;

static penalty penalty_of(const ls_kernel_args *args, int64_t n, int64_t row) {
  const ls_view *logits = &args->in[0], *loads = &args->in[2];
  const LS_REAL *from = ls_real_row(logits, n);
  penalty of = {.all = {args->attributes->sigmoid != 0, -INFINITY, 0, 1}};
  for (int64_t e = 0; e < logits->valid[1]; e++) of.all.most = fmax(of.all.most, (double)from[e]);
  for (int64_t e = 0; e < logits->valid[1]; e++) {
    of.all.sum += term(&of.all, from[e]);
    of.sum_of_exps += exp((double)from[e] - of.all.most);
    of.loads += number_at(loads, row, e);
  }
  for (int64_t e = 0; e < logits->valid[1] && of.loads > 0; e++)
    of.mean += number_at(loads, row, e) / of.loads * share(&of.all, from[e]);
  of.log_sum_exp = of.all.most + log(of.sum_of_exps);
  return of;
}

/* How often the token counts, by the operand of that number, where there is one. */
static double counts_as(const ls_kernel_args *args, int weights, int64_t n) {
  return args->inputs > weights ? (double)ls_real_data(&args->in[weights])[n] : 1;
}

static ls_status sum_penalties(const ls_kernel_args *args) {
  const int64_t each = rows_of_loads(&args->in[0], &args->in[2]);
  double sum = 0;
  for (int64_t n = 0; n < args->in[0].valid[0]; n++) {
    if (ls_index_data(&args->in[1])[n] < 0) continue;
    const penalty of = penalty_of(args, n, n / each);
    sum += counts_as(args, 3, n) * (args->attributes->scale * of.mean +
                                    args->attributes->z_scale * of.log_sum_exp * of.log_sum_exp);
  }
  ls_put_cell(&args->out[0], sum, args->accumulate[0]);
  return LS_OK;
}

static ls_status penalty_slopes(const ls_kernel_args *args) {
  const ls_view *out = &args->out[0];
  const int64_t each = rows_of_loads(&args->in[0], &args->in[2]), experts = out->valid[1];
  const double root = *ls_cell_data(&args->in[3]);
  for (int64_t n = 0; n < out->valid[0]; n++) {
    const LS_REAL *from = ls_real_row(&args->in[0], n);
    const bool labelled = ls_index_data(&args->in[1])[n] >= 0;
    const double from_root = root * counts_as(args, 4, n);
    const penalty of = penalty_of(args, n, n / each);
    const double z = 2 * args->attributes->z_scale * of.log_sum_exp / of.sum_of_exps;
    for (int64_t e = 0; e < experts; e++) {
      double made = z * exp((double)from[e] - of.all.most);
      if (of.loads > 0)
        made += args->attributes->scale * slope(&of.all, from[e]) * share(&of.all, from[e]) *
                (number_at(&args->in[2], n / each, e) / of.loads - of.mean);
      ls_put(&ls_real_row(out, n)[e], labelled ? from_root * made : 0, args->accumulate[0]);
    }
    ls_put_padding(ls_real_row(out, n), experts, out->dims[1], args->accumulate[0]);
  }
  return LS_OK;
}

ls_status LS_REFERENCE(ROUTER_LOSS)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "rid>d", error));
  return sum_penalties(args);
}

ls_status LS_REFERENCE(ROUTER_LOSS_EACH)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, args->inputs > 3 ? "rirr>d" : "rir>d", error));
  return sum_penalties(args);
}

ls_status LS_REFERENCE(ROUTER_LOSS_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, "ridd>r", error));
  return penalty_slopes(args);
}

ls_status LS_REFERENCE(ROUTER_LOSS_EACH_BWD)(const ls_kernel_args *args, ls_error *error) {
  LS_TRY(ls_reference_expect(args, LS_REAL_DTYPE, args->inputs > 4 ? "rirdr>r" : "rird>r", error));
  return penalty_slopes(args);
}
