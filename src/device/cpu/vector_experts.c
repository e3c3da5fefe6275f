/* Mixtures of experts: where tokens go, and their rows there and back: see
 * device/reference/experts.c. Each token's numbers are one thread's. */
#include "device/cpu/vector_router.h"

/* The best expert that goes behind `last`, of which `bound` is the logit: a smaller logit, or an
 * equal one and a higher number; -1: the first of all. *bound takes its logit. */
LS_INLINE int64_t next_best(const ls_view *logits, int64_t row, int64_t last, float *bound) {
  float buffer[LS_PIECE], most = -INFINITY;
  int64_t best = -1;
  for (int64_t at = 0; at < logits->valid[1]; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, logits->valid[1] - at);
    const float *piece = piece_here(logits, row, at, count, buffer);
    for (int64_t i = 0; i < count; i++) {
      const float logit = piece[i];
      if (last >= 0 && (logit > *bound || (logit == *bound && at + i <= last))) continue;
      if (best >= 0 && !(logit > most)) continue;
      best = at + i;
      most = logit;
    }
  }
  *bound = most;
  return best;
}

LS_INLINE float logit_of(const ls_view *logits, int64_t row, int64_t expert) {
  float buffer[1];
  return *piece_here(logits, row, expert, 1, buffer);
}

/* A softmax over the experts of a token's rows, or over all of them. */
typedef struct softmax {
  float most, inverse;
} softmax;

LS_INLINE softmax softmax_of(const ls_view *logits, int64_t row, const int32_t *rows,
                             int64_t chosen, const int32_t *expert_of_row, bool renormalise) {
  float most = -INFINITY, sum = 0, buffer[LS_PIECE];
  for (int64_t j = 0; j < chosen; j++) {
    const float logit = logit_of(logits, row, expert_of_row[rows[j]]);
    most = logit > most ? logit : most;
  }
  if (renormalise) {
    for (int64_t j = 0; j < chosen; j++)
      sum += exp_of(logit_of(logits, row, expert_of_row[rows[j]]) - most);
    return (softmax){most, 1.0f / sum};
  }
  for (int64_t at = 0; at < logits->valid[1]; at += LS_PIECE) {
    const int64_t count = least(LS_PIECE, logits->valid[1] - at);
    const float *piece = piece_here(logits, row, at, count, buffer);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) sum += exp_of(piece[i] - most);
  }
  return (softmax){most, 1.0f / sum};
}

/* Chooses: -1 - expert for each of a token's rows. */
static void choose_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const int64_t chosen = args->out[0].dims[1];
  int32_t *rows = args->out[0].data;
  for (int64_t n = begin; n < end; n++) {
    float bound = 0;
    for (int64_t j = 0, last = -1; j < chosen; j++) {
      last = next_best(&args->in[0], n, last, &bound);
      rows[n * chosen + j] = -1 - (int32_t)last;
    }
  }
}

/* Numbers the choices: those of one expert after those of another, of one by token. */
static void sort_choices(const ls_kernel_args *args, int32_t *next) {
  const int64_t slots = args->out[0].valid[0] * args->out[0].dims[1];
  const int64_t experts = args->in[0].valid[1];
  int32_t *rows = args->out[0].data, *expert_of_row = args->out[1].data, row = 0;
  memset(next, 0, (size_t)experts * sizeof *next);
  for (int64_t s = 0; s < slots; s++) next[-1 - rows[s]]++;
  for (int64_t e = 0; e < experts; e++) {
    const int32_t count = next[e];
    next[e] = row;
    row += count;
  }
  for (int64_t s = 0; s < slots; s++) {
    const int32_t expert = -1 - rows[s];
    rows[s] = next[expert]++;
    expert_of_row[rows[s]] = expert;
  }
}

static void weights_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const int64_t chosen = args->out[0].dims[1];
  const int32_t *expert_of_row = args->out[1].data;
  float *weights = args->out[2].data;
  for (int64_t n = begin; n < end; n++) {
    const int32_t *rows = (const int32_t *)args->out[0].data + n * chosen;
    const softmax of = softmax_of(&args->in[0], n, rows, chosen, expert_of_row,
                                  args->attributes->renormalise != 0);
    for (int64_t j = 0; j < chosen; j++)
      weights[rows[j]] =
          exp_of(logit_of(&args->in[0], n, expert_of_row[rows[j]]) - of.most) * of.inverse;
  }
}

static ls_status share_tokens(const ls_kernel_args *args, int64_t tokens, int64_t elements,
                              ls_host_turns turns) {
  ls_host_split(args->queue->facts->threads, ls_cpu_parts(args->queue->facts, elements), tokens,
                turns, args);
  return LS_OK;
}

static ls_status kernel_route(const ls_kernel_args *args, ls_error *error) {
  const ls_view *logits = &args->in[0];
  const int64_t tokens = args->out[0].valid[0], elements = tokens * logits->valid[1];
  if (args->accumulate[0] || args->accumulate[1] || args->accumulate[2])
    return ls_fail(error, LS_INTERNAL, "a routing cannot be accumulated into");
  const size_t bytes = (size_t)logits->valid[1] * sizeof(int32_t);
  int32_t *next = ls_cpu_scratch(args, bytes);
  if (!next) return ls_fail(error, LS_FAILED, "no memory for %zu bytes of scratch", bytes);
  const bool other = LS_VECTOR(ls_router_is_other)(args->attributes);
  if (other)
    LS_VECTOR(ls_router_choose)(args);
  else
    LS_TRY(share_tokens(args, tokens, elements * args->out[0].dims[1], choose_turns));
  sort_choices(args, next);
  if (other) {
    LS_VECTOR(ls_router_weigh)(args);
    return LS_OK;
  }
  return share_tokens(args, tokens, elements, weights_turns);
}

static void route_bwd_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *logits = &args->in[1], *out = &args->out[0];
  const float *dweights = args->in[0].data;
  const int32_t *expert_of_row = args->in[3].data;
  const int64_t chosen = args->in[2].dims[1];
  const bool renormalise = args->attributes->renormalise != 0, add = args->accumulate[0];
  float from[LS_PIECE], sums[LS_PIECE];
  for (int64_t n = begin; n < end; n++) {
    const int32_t *rows = (const int32_t *)args->in[2].data + n * chosen;
    const softmax of = softmax_of(logits, n, rows, chosen, expert_of_row, renormalise);
    float mean = 0;
    for (int64_t j = 0; j < chosen; j++)
      mean += exp_of(logit_of(logits, n, expert_of_row[rows[j]]) - of.most) * of.inverse *
              dweights[rows[j]];
    for (int64_t at = 0; at < out->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, out->valid[1] - at);
      const float *piece = piece_here(logits, n, at, count, from);
      const float all = renormalise ? 0 : -mean * of.inverse;
#pragma omp simd
      for (int64_t i = 0; i < count; i++) sums[i] = all * exp_of(piece[i] - of.most);
      for (int64_t j = 0; j < chosen; j++) {
        const int64_t e = expert_of_row[rows[j]] - at;
        if (e < 0 || e >= count) continue;
        sums[e] = exp_of(piece[e] - of.most) * of.inverse * (dweights[rows[j]] - mean);
      }
      float *to = piece_target(out, n, at, count, add, sums);
      if (to != sums) memcpy(to, sums, (size_t)count * sizeof *to);
      piece_store(out, n, at, count, add, sums);
    }
    row_clear_tail(out, n, add);
  }
}

static ls_status kernel_route_bwd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  if (LS_VECTOR(ls_router_is_other)(args->attributes)) {
    LS_VECTOR(ls_router_slopes)(args);
    return LS_OK;
  }
  const ls_view *out = &args->out[0];
  return share_tokens(args, out->valid[0], out->valid[0] * out->valid[1], route_bwd_turns);
}

/* A copy of each token's row for each of its routed rows. */
static void spread_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *x = &args->in[0], *out = &args->out[0];
  const int64_t chosen = args->in[1].dims[1];
  const bool add = args->accumulate[0];
  float from_buffer[LS_PIECE], to_buffer[LS_PIECE];
  for (int64_t n = begin; n < end; n++) {
    const int32_t *rows = (const int32_t *)args->in[1].data + n * chosen;
    for (int64_t j = 0; j < chosen; j++) {
      for (int64_t at = 0; at < x->valid[1]; at += LS_PIECE) {
        const int64_t count = least(LS_PIECE, x->valid[1] - at);
        const float *from = piece_here(x, n, at, count, from_buffer);
        float *to = piece_target(out, rows[j], at, count, add, to_buffer);
        memcpy(to, from, (size_t)count * sizeof *to);
        piece_store(out, rows[j], at, count, add, to_buffer);
      }
      row_clear_tail(out, rows[j], add);
    }
  }
}

static ls_status kernel_spread(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *places = &args->in[1];
  return share_tokens(args, places->valid[0],
                      places->valid[0] * places->dims[1] * args->in[0].valid[1], spread_turns);
}

/* The sum of each token's routed rows. */
static void collect_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *y = &args->in[0], *out = &args->out[0];
  const int64_t chosen = args->in[1].dims[1];
  const bool add = args->accumulate[0];
  float from_buffer[LS_PIECE], sums[LS_PIECE];
  for (int64_t n = begin; n < end; n++) {
    const int32_t *rows = (const int32_t *)args->in[1].data + n * chosen;
    for (int64_t at = 0; at < y->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, y->valid[1] - at);
      float *to = piece_target(out, n, at, count, add, sums);
      for (int64_t j = 0; j < chosen; j++) {
        const float *from = piece_here(y, rows[j], at, count, from_buffer);
        if (j == 0) {
          memcpy(to, from, (size_t)count * sizeof *to);
          continue;
        }
#pragma omp simd
        for (int64_t i = 0; i < count; i++) to[i] += from[i];
      }
      piece_store(out, n, at, count, add, sums);
    }
    row_clear_tail(out, n, add);
  }
}

static ls_status kernel_collect(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *places = &args->in[1];
  return share_tokens(args, places->valid[0],
                      places->valid[0] * places->dims[1] * args->in[0].valid[1], collect_turns);
}

static void weigh_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *x = &args->in[0], *out = &args->out[0];
  const float *weights = args->in[1].data;
  const bool add = args->accumulate[0];
  float from_buffer[LS_PIECE], to_buffer[LS_PIECE];
  for (int64_t n = begin; n < end; n++) {
    const float weight = weights[n];
    for (int64_t at = 0; at < x->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, x->valid[1] - at);
      const float *from = piece_load(x, n, at, count, from_buffer);
      float *to = piece_target(out, n, at, count, add, to_buffer);
#pragma omp simd
      for (int64_t i = 0; i < count; i++) to[i] = weight * from[i];
      piece_store(out, n, at, count, add, to_buffer);
    }
    row_clear_tail(out, n, add);
  }
}

static ls_status kernel_weigh(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *out = &args->out[0];
  return share_tokens(args, out->valid[0], out->valid[0] * out->valid[1], weigh_turns);
}

static void weigh_bwd_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *x = &args->in[1], *dx = &args->out[0];
  const float *weights = args->in[2].data;
  float *dweights = args->out[1].data;
  const bool add = args->accumulate[0];
  float dy_buffer[LS_PIECE], x_buffer[LS_PIECE], dx_buffer[LS_PIECE];
  for (int64_t n = begin; n < end; n++) {
    const float weight = weights[n];
    float total = args->accumulate[1] ? dweights[n] : 0;
    for (int64_t at = 0; at < x->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, x->valid[1] - at);
      const float *dy = piece_load(&args->in[0], n, at, count, dy_buffer);
      const float *from = piece_load(x, n, at, count, x_buffer);
      float *to = piece_target(dx, n, at, count, add, dx_buffer), sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < count; i++) {
        sum += dy[i] * from[i];
        to[i] = weight * dy[i];
      }
      total += sum;
      piece_store(dx, n, at, count, add, dx_buffer);
    }
    dweights[n] = total;
    row_clear_tail(dx, n, add);
  }
}

static ls_status kernel_weigh_bwd(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *dx = &args->out[0];
  return share_tokens(args, dx->valid[0], dx->valid[0] * dx->valid[1], weigh_bwd_turns);
}

/* The row of `bias` that row n's expert has, or -1: another rank has it. */
LS_INLINE int64_t bias_row(const ls_view *bias, const ls_view *experts, int64_t n) {
  const ls_held_experts held = ls_held_experts_of(bias, 1);
  const int64_t expert = ((const int32_t *)experts->data)[n] - held.first;
  return expert < held.count ? expert : -1;
}

/* x plus the expert's bias, times the row's number where there is one, which then is 0 of others'
 * experts; else their rows stay as they are: zeros. */
static void bias_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *bias = &args->in[1], *out = &args->out[0];
  const float *numbers = args->inputs > 3 ? args->in[3].data : NULL;
  const bool add = args->accumulate[0];
  static const float none[LS_PIECE];
  float from_buffer[LS_PIECE], bias_buffer[LS_PIECE], to_buffer[LS_PIECE];
  for (int64_t n = begin; n < end; n++) {
    const int64_t expert = bias_row(bias, &args->in[2], n);
    const float number = !numbers ? 1.0f : expert < 0 ? 0.0f : numbers[n];
    for (int64_t at = 0; at < out->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, out->valid[1] - at);
      const float *from = piece_load(&args->in[0], n, at, count, from_buffer);
      const float *more = expert < 0 ? none : piece_load(bias, expert, at, count, bias_buffer);
      float *to = piece_target(out, n, at, count, add, to_buffer);
#pragma omp simd
      for (int64_t i = 0; i < count; i++) to[i] = number * (from[i] + more[i]);
      piece_store(out, n, at, count, add, to_buffer);
    }
    row_clear_tail(out, n, add);
  }
}

static ls_status kernel_grouped_bias(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *out = &args->out[0];
  return share_tokens(args, out->valid[0], out->valid[0] * out->valid[1], bias_turns);
}

/* Units are the experts that the rank has: of each the sum of its rows of dy, times their numbers
 * where there are any. The bias's gradient is the last output, numbers are the last input. */
static void bias_db_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const bool weighed = args->inputs > 2, add = args->accumulate[args->outputs - 1];
  const ls_view *dy = &args->in[0], *out = &args->out[args->outputs - 1];
  const ls_view *experts = &args->in[weighed ? 3 : 1];
  const float *numbers = weighed ? args->in[4].data : NULL;
  float from_buffer[LS_PIECE], sums[LS_PIECE], to_buffer[LS_PIECE];
  for (int64_t e = begin; e < end; e++) {
    for (int64_t at = 0; at < out->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, out->valid[1] - at);
      memset(sums, 0, sizeof sums);
      for (int64_t n = 0; n < dy->valid[0]; n++) {
        if (bias_row(out, experts, n) != e) continue;
        const float *from = piece_load(dy, n, at, count, from_buffer);
        const float number = numbers ? numbers[n] : 1.0f;
#pragma omp simd
        for (int64_t i = 0; i < count; i++) sums[i] += number * from[i];
      }
      float *to = piece_target(out, e, at, count, add, to_buffer);
      memcpy(to, sums, (size_t)count * sizeof(float));
      piece_store(out, e, at, count, add, to_buffer);
    }
    row_clear_tail(out, e, add);
  }
}

static ls_status kernel_grouped_bias_db(const ls_kernel_args *args, ls_error *error) {
  (void)error;
  const ls_view *dy = &args->in[0];
  return share_tokens(args, args->out[args->outputs - 1].dims[0], dy->valid[0] * dy->valid[1],
                      bias_db_turns);
}

static void grouped_weigh_bwd_turns(const void *work, int part, int64_t begin, int64_t end) {
  (void)part;
  const ls_kernel_args *args = work;
  const ls_view *x = &args->in[1], *bias = &args->in[2], *dx = &args->out[0];
  const float *numbers = args->in[4].data;
  float *dnumbers = args->out[1].data;
  const bool add = args->accumulate[0];
  static const float none[LS_PIECE];
  float dy_buffer[LS_PIECE], x_buffer[LS_PIECE], bias_buffer[LS_PIECE], dx_buffer[LS_PIECE];
  for (int64_t n = begin; n < end; n++) {
    const int64_t expert = bias_row(bias, &args->in[3], n);
    const float number = numbers[n];
    float total = args->accumulate[1] ? dnumbers[n] : 0;
    for (int64_t at = 0; at < x->valid[1]; at += LS_PIECE) {
      const int64_t count = least(LS_PIECE, x->valid[1] - at);
      const float *dy = expert < 0 ? none : piece_load(&args->in[0], n, at, count, dy_buffer);
      const float *more = expert < 0 ? none : piece_load(bias, expert, at, count, bias_buffer);
      const float *from = piece_load(x, n, at, count, x_buffer);
      float *to = piece_target(dx, n, at, count, add, dx_buffer), sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < count; i++) {
        sum += dy[i] * (from[i] + more[i]);
        to[i] = number * dy[i];
      }
      total += sum;
      piece_store(dx, n, at, count, add, dx_buffer);
    }
    dnumbers[n] = total;
    row_clear_tail(dx, n, add);
  }
}

static ls_status kernel_grouped_weigh_bwd(const ls_kernel_args *args, ls_error *error) {
  const ls_view *dx = &args->out[0];
  LS_TRY(share_tokens(args, dx->valid[0], dx->valid[0] * dx->valid[1], grouped_weigh_bwd_turns));
  return args->outputs > 2 ? kernel_grouped_bias_db(args, error) : LS_OK;
}

void LS_VECTOR(ls_fill_experts)(ls_kernel_table *table) {
  table->kernel[LS_OP_GROUPED_BIAS] = kernel_grouped_bias;
  table->kernel[LS_OP_GROUPED_BIAS_DB] = kernel_grouped_bias_db;
  table->kernel[LS_OP_GROUPED_WEIGH] = kernel_grouped_bias;
  table->kernel[LS_OP_GROUPED_WEIGH_BWD] = kernel_grouped_weigh_bwd;
  table->kernel[LS_OP_ROUTE] = kernel_route;
  table->kernel[LS_OP_ROUTE_BWD] = kernel_route_bwd;
  table->kernel[LS_OP_DISPATCH] = kernel_spread;
  table->kernel[LS_OP_DISPATCH_BWD] = kernel_collect;
  table->kernel[LS_OP_COMBINE] = kernel_collect;
  table->kernel[LS_OP_COMBINE_BWD] = kernel_spread;
  table->kernel[LS_OP_WEIGH] = kernel_weigh;
  table->kernel[LS_OP_WEIGH_BWD] = kernel_weigh_bwd;
}
