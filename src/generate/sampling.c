#include "generate/sampling.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/random.h"

typedef struct candidate {
  double weight; /* the logit, then exp of its distance from the largest over the temperature */
  int32_t id;
} candidate;

struct ls_sampler {
  ls_sampling sampling;
  int32_t vocabulary;
  uint64_t stream;
  candidate *candidates;
};

ls_status ls_sampling_check(const ls_sampling *sampling, ls_error *error) {
  if (!(sampling->temperature >= 0 && sampling->temperature <= 1e6)) {
    return ls_fail(error, LS_INPUT, "temperature: found %g; expected a number of at least 0",
                   sampling->temperature);
  }
  if (sampling->top_k < 0) {
    return ls_fail(error, LS_INPUT, "top-k: found %lld; expected a whole number, 0 for all",
                   (long long)sampling->top_k);
  }
  if (!(sampling->top_p >= 0 && sampling->top_p <= 1)) {
    return ls_fail(error, LS_INPUT, "top-p: found %g; expected a number from 0 to 1",
                   sampling->top_p);
  }
  return LS_OK;
}

ls_sampler *ls_sampler_create(ls_arena *arena, int32_t vocabulary, const ls_sampling *sampling) {
  LS_ASSERT(vocabulary > 0);
  ls_sampler *sampler = LS_NEW(arena, ls_sampler);
  *sampler = (ls_sampler){.sampling = *sampling,
                          .vocabulary = vocabulary,
                          .stream = ls_random_stream("sampling"),
                          .candidates = LS_NEW_ARRAY(arena, candidate, vocabulary)};
  return sampler;
}

static int largest_first(const void *first, const void *second) {
  const candidate *a = first, *b = second;
  if (a->weight != b->weight) return a->weight > b->weight ? -1 : 1;
  return a->id < b->id ? -1 : a->id > b->id;
}

/* The largest logit's id; the lowest of equals. */
static ls_status find_largest(const float *logits, int32_t count, int32_t *id, ls_error *error) {
  int32_t best = -1;
  for (int32_t i = 0; i < count; i++) {
    if (isnan(logits[i]) || logits[i] == INFINITY) {
      return ls_fail(error, LS_FAILED,
                     "the logit of token %d is %g: the model's weights are broken", i,
                     (double)logits[i]);
    }
    if (logits[i] != -INFINITY && (best < 0 || logits[i] > logits[best])) best = i;
  }
  *id = best;
  if (best >= 0) return LS_OK;
  return ls_fail(error, LS_FAILED, "all logits are -inf: the model's weights are broken");
}

/* How many of the first candidates, largest first, hold top_p of the total weight. */
static int32_t cut_at(const candidate *candidates, int32_t count, double top_p) {
  double total = 0, sum = 0;
  if (top_p <= 0 || top_p >= 1) return count;
  for (int32_t i = 0; i < count; i++) total += candidates[i].weight;
  for (int32_t i = 0; i < count; i++) {
    sum += candidates[i].weight;
    if (sum >= top_p * total) return i + 1;
  }
  return count;
}

ls_status ls_sampler_next(ls_sampler *sampler, const float *logits, uint64_t index, int32_t *id,
                          ls_error *error) {
  const ls_sampling *sampling = &sampler->sampling;
  candidate *candidates = sampler->candidates;
  int32_t best = -1, count = sampler->vocabulary;
  LS_TRY(find_largest(logits, count, &best, error));
  *id = best;
  if (sampling->temperature == 0) return LS_OK;
  for (int32_t i = 0; i < count; i++) candidates[i] = (candidate){(double)logits[i], i};
  const bool all = sampling->top_k == 0 && (sampling->top_p <= 0 || sampling->top_p >= 1);
  if (!all) qsort(candidates, (size_t)count, sizeof *candidates, largest_first);
  if (sampling->top_k > 0 && sampling->top_k < count) count = (int32_t)sampling->top_k;
  const double largest = (double)logits[best];
  for (int32_t i = 0; i < count; i++) {
    candidates[i].weight = exp((candidates[i].weight - largest) / sampling->temperature);
  }
  count = cut_at(candidates, count, sampling->top_p);
  double total = 0;
  for (int32_t i = 0; i < count; i++) total += candidates[i].weight;
  double left = ls_random_uniform(sampling->seed, sampler->stream, index) * total;
  for (int32_t i = 0; i < count; i++) {
    if (candidates[i].weight == 0) continue;
    *id = candidates[i].id;
    left -= candidates[i].weight;
    if (left < 0) return LS_OK;
  }
  return LS_OK; /* rounding left a last bit over: it belongs to the last candidate */
}
