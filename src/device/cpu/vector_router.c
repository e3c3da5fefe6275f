/* Mixtures of experts: routers whose scores are sigmoids, whose experts are in groups or whose
 * weights are scaled; how many tokens go to each expert, and what that costs: see
 * device/reference/router.c. Experts are few beside what they do, so numbers are taken one by one;
 * sums over tokens are one thread's, in their order. */
#include "device/cpu/vector_router.h"

typedef struct scores {
  const ls_view *logits;
  const float *added; /* NULL: nothing is */
  int64_t token, experts, of_group;
  uint64_t groups; /* whose experts may be chosen */
  bool sigmoid;
} scores;

LS_INLINE float logit_at(const ls_view *logits, int64_t row, int64_t expert) {
  float buffer[1];
  return *piece_here(logits, row, expert, 1, buffer);
}

LS_INLINE void put_at(const ls_view *view, int64_t row, int64_t expert, bool add, float value) {
  float buffer[1] = {value}, *to = piece_target(view, row, expert, 1, add, buffer);
  if (to != buffer) *to = value;
  piece_store(view, row, expert, 1, add, buffer);
}

LS_INLINE float score(const scores *of, int64_t e) {
  const float logit = logit_at(of->logits, of->token, e);
  return (of->sigmoid ? sigmoid_of(logit) : logit) + (of->added ? of->added[e] : 0);
}

static float group_score(const scores *of, int64_t group) {
  float best = -INFINITY, second = -INFINITY;
  for (int64_t e = group * of->of_group; e < (group + 1) * of->of_group; e++) {
    const float own = score(of, e);
    if (own > best) {
      second = best;
      best = own;
    } else if (own > second) {
      second = own;
    }
  }
  return of->sigmoid && of->of_group > 1 ? best + second : best;
}

static scores scores_of(const ls_kernel_args *args, const ls_view *added, int64_t token) {
  const ls_attributes *attributes = args->attributes;
  scores of = {.logits = &args->in[0],
               .added = added ? added->data : NULL,
               .token = token,
               .experts = args->in[0].valid[1],
               .of_group = args->in[0].valid[1],
               .groups = UINT64_MAX,
               .sigmoid = attributes->sigmoid != 0};
  if (attributes->groups < 2 || attributes->top_groups >= attributes->groups) return of;
  of.of_group = of.experts / attributes->groups;
  of.groups = 0;
  for (int64_t taken = 0; taken < attributes->top_groups; taken++) {
    int64_t best = -1;
    float most = -INFINITY;
    for (int64_t g = 0; g < attributes->groups; g++) {
      if (of.groups >> g & 1) continue;
      const float own = group_score(&of, g);
      if (best >= 0 && !(own > most)) continue;
      best = g;
      most = own;
    }
    of.groups |= UINT64_C(1) << best;
  }
  return of;
}

/* The best expert that goes behind `last`, of which `bound` is the score. */
static int64_t best_behind(const scores *of, int64_t last, float *bound) {
  int64_t best = -1;
  float most = -INFINITY;
  for (int64_t e = 0; e < of->experts; e++) {
    if (!(of->groups >> (e / of->of_group) & 1)) continue;
    const float own = score(of, e);
    if (last >= 0 && (own > *bound || (own >= *bound && e <= last))) continue;
    if (best >= 0 && !(own > most)) continue;
    best = e;
    most = own;
  }
  *bound = most;
  return best;
}

static void choose_scores(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const int64_t chosen = args->out[0].dims[1];
  int32_t *rows = args->out[0].data;
  for (int64_t n = begin; n < end; n++) {
    const scores of = scores_of(args, args->inputs > 1 ? &args->in[1] : NULL, n);
    float bound = 0;
    for (int64_t j = 0, last = -1; j < chosen; j++) {
      last = best_behind(&of, last, &bound);
      rows[n * chosen + j] = -1 - (int32_t)last;
    }
  }
}

/* A token's probabilities: exp(logit - most) / sum, or sigmoid(logit) / sum. */
typedef struct shares {
  bool sigmoid;
  float most, sum, scale;
} shares;

LS_INLINE float term(const shares *of, float logit) {
  return of->sigmoid ? sigmoid_of(logit) : exp_of(logit - of->most);
}

LS_INLINE float slope(const shares *of, float logit) {
  return of->sigmoid ? 1 - sigmoid_of(logit) : 1;
}

static shares weights_of(const ls_attributes *attributes, const ls_view *logits, int64_t n,
                         const int32_t *rows, int64_t chosen, const int32_t *expert_of_row) {
  const bool renormalise = attributes->renormalise != 0;
  shares of = {attributes->sigmoid != 0, -INFINITY, 0,
               attributes->scale > 0 ? (float)attributes->scale : 1};
  for (int64_t j = 0; j < chosen; j++)
    of.most = fmaxf(of.most, logit_at(logits, n, expert_of_row[rows[j]]));
  if (renormalise)
    for (int64_t j = 0; j < chosen; j++)
      of.sum += term(&of, logit_at(logits, n, expert_of_row[rows[j]]));
  else if (of.sigmoid)
    of.sum = 1;
  else
    for (int64_t e = 0; e < logits->valid[1]; e++) of.sum += term(&of, logit_at(logits, n, e));
  if (of.sigmoid && renormalise) of.sum += 1e-20f;
  return of;
}

static void weigh_choices(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const int64_t chosen = args->out[0].dims[1];
  const int32_t *expert_of_row = args->out[1].data;
  float *weights = args->out[2].data;
  for (int64_t n = begin; n < end; n++) {
    const int32_t *rows = (const int32_t *)args->out[0].data + n * chosen;
    const shares of = weights_of(args->attributes, &args->in[0], n, rows, chosen, expert_of_row);
    for (int64_t j = 0; j < chosen; j++)
      weights[rows[j]] =
          of.scale * term(&of, logit_at(&args->in[0], n, expert_of_row[rows[j]])) / of.sum;
  }
}

static void slopes_of_choices(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *logits = &args->in[1], *out = &args->out[0];
  const float *dweights = args->in[0].data;
  const int32_t *expert_of_row = args->in[3].data;
  const int64_t chosen = args->in[2].dims[1];
  const bool renormalise = args->attributes->renormalise != 0, add = args->accumulate[0];
  const bool all = !renormalise && !args->attributes->sigmoid;
  for (int64_t n = begin; n < end; n++) {
    const int32_t *rows = (const int32_t *)args->in[2].data + n * chosen;
    const shares of = weights_of(args->attributes, logits, n, rows, chosen, expert_of_row);
    float mean = 0;
    for (int64_t j = 0; j < chosen && (renormalise || all); j++)
      mean += term(&of, logit_at(logits, n, expert_of_row[rows[j]])) / of.sum * dweights[rows[j]];
    for (int64_t e = 0; e < out->valid[1]; e++) {
      int64_t j = 0;
      while (j < chosen && expert_of_row[rows[j]] != e) j++;
      const float logit = logit_at(logits, n, e), own = j < chosen ? dweights[rows[j]] : 0;
      float made = of.scale * slope(&of, logit) * term(&of, logit) / of.sum * (own - mean);
      if (j == chosen && !all) made = 0;
      put_at(out, n, e, add, made);
    }
    row_clear_tail(out, n, add);
  }
}

static void share_out(const ls_kernel_args *args, int64_t tokens, int64_t elements,
                      ls_host_turns turns) {
  ls_host_split(args->queue->facts->threads, ls_cpu_parts(args->queue->facts, elements), tokens,
                turns, args);
}

bool LS_VECTOR(ls_router_is_other)(const ls_attributes *attributes) {
  return attributes->sigmoid != 0 || attributes->groups > 1 || attributes->scale > 0;
}

void LS_VECTOR(ls_router_choose)(const ls_kernel_args *args) {
  const int64_t tokens = args->out[0].valid[0];
  share_out(args, tokens, tokens * args->in[0].valid[1] * args->out[0].dims[1], choose_scores);
}

void LS_VECTOR(ls_router_weigh)(const ls_kernel_args *args) {
  const int64_t tokens = args->out[0].valid[0];
  share_out(args, tokens, tokens * args->in[0].valid[1], weigh_choices);
}

void LS_VECTOR(ls_router_slopes)(const ls_kernel_args *args) {
  const ls_view *out = &args->out[0];
  share_out(args, out->valid[0], out->valid[0] * out->valid[1], slopes_of_choices);
}

static ls_status kernel_row_sigmoid(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  float *to = args->out[0].data;
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    const float made = sigmoid_of(logit_at(&args->in[0], n, 0));
    to[n] = args->accumulate[0] ? to[n] + made : made;
  }
  return LS_OK;
}

static ls_status kernel_row_sigmoid_bwd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const float *from = args->in[0].data;
  for (int64_t n = 0; n < args->out[0].valid[0]; n++) {
    const float own = sigmoid_of(logit_at(&args->in[1], n, 0));
    put_at(&args->out[0], n, 0, args->accumulate[0], from[n] * own * (1 - own));
  }
  return LS_OK;
}

LS_INLINE double number_at(const ls_view *view, int64_t row, int64_t column) {
  const int64_t at = row * view->dims[1] + column;
  return view->dtype == LS_F64 ? ((const double *)view->data)[at]
                               : (double)((const float *)view->data)[at];
}

LS_INLINE void count_one(const ls_view *view, int64_t row, int64_t column) {
  const int64_t at = row * view->dims[1] + column;
  if (view->dtype == LS_F64)
    ((double *)view->data)[at] += 1;
  else
    ((float *)view->data)[at] += 1;
}

static void clear(const ls_view *view) {
  memset(view->data, 0, (size_t)(view->valid[0] * view->dims[1]) * ls_dtype_bytes(view->dtype));
}

/* Rows that one row of the loads is of. */
LS_INLINE int64_t rows_of_loads(const ls_view *rows, const ls_view *loads) {
  const int64_t parts = loads->valid[0] > 0 ? loads->valid[0] : 1;
  return rows->valid[0] > parts ? rows->valid[0] / parts : 1;
}

static ls_status kernel_loads(const ls_kernel_args *args, ls_error *error) {
  const ls_view *logits = &args->in[0], *told = &args->out[0], *loads = &args->out[1];
  if (args->accumulate[1])
    return ls_fail(error, LS_INTERNAL, "loads of a microbatch cannot be accumulated into");
  if (!args->accumulate[0]) clear(told);
  clear(loads);
  const int64_t each = rows_of_loads(logits, loads);
  for (int64_t n = 0; n < logits->valid[0]; n++) {
    if (((const int32_t *)args->in[1].data)[n] < 0) continue;
    const scores of = scores_of(args, args->inputs > 2 ? &args->in[2] : NULL, n);
    float bound = 0;
    for (int64_t j = 0, last = -1; j < args->attributes->chosen; j++) {
      last = best_behind(&of, last, &bound);
      count_one(told, 0, last);
      count_one(loads, n / each, last);
    }
  }
  return LS_OK;
}

static ls_status kernel_total(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  double *to = args->out[0].data;
  for (int64_t e = 0; e < args->out[0].dims[1]; e++) {
    to[e] = ((const double *)args->in[0].data)[e];
    if (args->inputs > 1) to[e] += ((const double *)args->in[1].data)[e];
  }
  return LS_OK;
}

typedef struct penalty {
  shares all;
  float mean;        /* of loads over their sum, by probability */
  double loads;      /* their sum; 0: nothing is balanced */
  float sum_of_exps; /* of the logits, over that of the largest */
  float log_sum_exp;
} penalty;

static penalty penalty_of(const ls_kernel_args *args, int64_t n, int64_t row) {
  const ls_view *logits = &args->in[0], *loads = &args->in[2];
  penalty of = {.all = {args->attributes->sigmoid != 0, -INFINITY, 0, 1}};
  double mean = 0;
  for (int64_t e = 0; e < logits->valid[1]; e++)
    of.all.most = fmaxf(of.all.most, logit_at(logits, n, e));
  for (int64_t e = 0; e < logits->valid[1]; e++) {
    const float logit = logit_at(logits, n, e), own = term(&of.all, logit);
    of.all.sum += own;
    of.sum_of_exps += of.all.sigmoid ? exp_of(logit - of.all.most) : own;
    of.loads += number_at(loads, row, e);
    mean += number_at(loads, row, e) * (double)own;
  }
  if (of.loads > 0) of.mean = (float)(mean / of.loads) / of.all.sum;
  of.log_sum_exp = of.all.most + logf(of.sum_of_exps);
  return of;
}

/* How often the token counts, by the operand of that number, where there is one. */
static float counts_as(const ls_kernel_args *args, int weights, int64_t n) {
  return args->inputs > weights ? ((const float *)args->in[weights].data)[n] : 1;
}

static ls_status kernel_loss(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const int64_t each = rows_of_loads(&args->in[0], &args->in[2]);
  double sum = 0, *to = args->out[0].data;
  for (int64_t n = 0; n < args->in[0].valid[0]; n++) {
    if (((const int32_t *)args->in[1].data)[n] < 0) continue;
    const penalty of = penalty_of(args, n, n / each);
    const double z = args->attributes->z_scale * (double)of.log_sum_exp * (double)of.log_sum_exp;
    sum += (double)counts_as(args, 3, n) * (args->attributes->scale * (double)of.mean + z);
  }
  *to = args->accumulate[0] ? *to + sum : sum;
  return LS_OK;
}

static void loss_slopes(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *logits = &args->in[0], *out = &args->out[0];
  const int64_t each = rows_of_loads(logits, &args->in[2]);
  const float root = (float)*(const double *)args->in[3].data;
  const float scale = (float)args->attributes->scale, z_scale = (float)args->attributes->z_scale;
  for (int64_t n = begin; n < end; n++) {
    const bool labelled = ((const int32_t *)args->in[1].data)[n] >= 0;
    const float from_root = root * counts_as(args, 4, n);
    const penalty of = penalty_of(args, n, n / each);
    const float z = 2 * z_scale * of.log_sum_exp / of.sum_of_exps;
    for (int64_t e = 0; e < out->valid[1]; e++) {
      const float logit = logit_at(logits, n, e);
      float made = z * exp_of(logit - of.all.most);
      if (of.loads > 0)
        made += scale * slope(&of.all, logit) * term(&of.all, logit) / of.all.sum *
                ((float)(number_at(&args->in[2], n / each, e) / of.loads) - of.mean);
      made = labelled ? from_root * made : 0;
      put_at(out, n, e, args->accumulate[0], made);
    }
    row_clear_tail(out, n, args->accumulate[0]);
  }
}

static ls_status kernel_loss_bwd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *out = &args->out[0];
  share_out(args, out->valid[0], out->valid[0] * out->valid[1], loss_slopes);
  return LS_OK;
}

void LS_VECTOR(ls_fill_router)(ls_kernel_table *table) {
  table->kernel[LS_OP_ROW_SIGMOID] = kernel_row_sigmoid;
  table->kernel[LS_OP_ROW_SIGMOID_BWD] = kernel_row_sigmoid_bwd;
  table->kernel[LS_OP_ROUTER_LOADS] = kernel_loads;
  table->kernel[LS_OP_ROUTER_LOADS_EACH] = kernel_loads;
  table->kernel[LS_OP_ROUTER_TOTAL] = kernel_total;
  table->kernel[LS_OP_ROUTER_LOSS] = kernel_loss;
  table->kernel[LS_OP_ROUTER_LOSS_EACH] = kernel_loss;
  table->kernel[LS_OP_ROUTER_LOSS_BWD] = kernel_loss_bwd;
  table->kernel[LS_OP_ROUTER_LOSS_EACH_BWD] = kernel_loss_bwd;
}
