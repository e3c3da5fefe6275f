#include "session/learning_rate.h"

#include <math.h>

#include "base/arena.h"

/* A percentage such as 7% of 100 steps must not become 8 through a last-bit excess. */
static int64_t whole_steps(ls_run_span span, int64_t steps) {
  if (!span.percent) return (int64_t)span.value;
  return (int64_t)ceil(span.value * (double)steps / 100 - 1e-9);
}

ls_learning_rate ls_learning_rate_of(const ls_run_file *run) {
  LS_ASSERT(run->train.lr > 0 && run->train.steps > 0);
  ls_learning_rate rate = {.schedule = run->train.lr_schedule,
                           .lr = run->train.lr,
                           .lr_min = run->train.lr_min,
                           .steps = run->train.steps};
  rate.warmup = whole_steps(run->train.warmup, rate.steps);
  rate.decay = whole_steps(run->train.decay, rate.steps);
  const int64_t left = rate.steps > rate.warmup ? rate.steps - rate.warmup : 0;
  if (rate.decay > left) rate.decay = left;
  return rate;
}

/* How far `step` is on the way that starts at `first` and takes `length` steps, 0 to 1. */
static double progress(int64_t step, int64_t first, int64_t length) {
  if (length <= 0 || step >= first + length) return 1;
  return (double)(step - first) / (double)length;
}

double ls_learning_rate_at(const ls_learning_rate *rate, int64_t step) {
  LS_ASSERT(step >= 0);
  if (step < rate->warmup) return rate->lr * (double)(step + 1) / (double)rate->warmup;
  const double span = rate->lr - rate->lr_min;
  switch (rate->schedule) {
    case LS_RUN_LR_CONSTANT: return rate->lr;
    case LS_RUN_LR_LINEAR:
      return rate->lr_min + span * (1 - progress(step, rate->warmup, rate->steps - rate->warmup));
    case LS_RUN_LR_COSINE: {
      const double p = progress(step, rate->warmup, rate->steps - rate->warmup);
      return rate->lr_min + span * 0.5 * (1 + cos(M_PI * p));
    }
    case LS_RUN_LR_WSD: {
      const int64_t start = rate->steps - rate->decay;
      if (step < start) return rate->lr;
      return rate->lr_min + span * (1 - progress(step, start, rate->decay));
    }
  }
  ls_panic("learning-rate schedule %d is not known", (int)rate->schedule);
}
