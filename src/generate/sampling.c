#include "generate/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

struct ls_sampler {
  ls_sampling sampling;
  int32_t vocabulary;
  uint64_t stream, drafting, keeping;
  ls_candidate *candidates; /* a weight is a logit, then exp of its distance from the largest over
                             * the temperature */
  double *others;           /* [vocabulary] chances that a draft had; 0 between calls */
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
                          .drafting = ls_random_stream("drafting"),
                          .keeping = ls_random_stream("keeping"),
                          .candidates = LS_NEW_ARRAY(arena, ls_candidate, vocabulary),
                          .others = LS_NEW_ARRAY(arena, double, vocabulary)};
  return sampler;
}

static int largest_first(const void *first, const void *second) {
  const ls_candidate *a = first, *b = second;
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
static int32_t cut_at(const ls_candidate *candidates, int32_t count, double top_p) {
  double total = 0, sum = 0;
  if (top_p <= 0 || top_p >= 1) return count;
  for (int32_t i = 0; i < count; i++) total += candidates[i].weight;
  for (int32_t i = 0; i < count; i++) {
    sum += candidates[i].weight;
    if (sum >= top_p * total) return i + 1;
  }
  return count;
}

/* What may follow, as the first candidates: *count of them, whose weights sum to *total; *best is
 * the largest logit's. */
static ls_status weigh(ls_sampler *sampler, const float *logits, int32_t *taken, double *total,
                       int32_t *best, ls_error *error) {
  const ls_sampling *sampling = &sampler->sampling;
  ls_candidate *candidates = sampler->candidates;
  int32_t count = sampler->vocabulary;
  *taken = 0;
  *total = 0;
  LS_TRY(find_largest(logits, count, best, error));
  if (sampling->temperature == 0) return LS_OK;
  for (int32_t i = 0; i < count; i++) candidates[i] = (ls_candidate){(double)logits[i], i};
  const bool all = sampling->top_k == 0 && (sampling->top_p <= 0 || sampling->top_p >= 1);
  if (!all) qsort(candidates, (size_t)count, sizeof *candidates, largest_first);
  if (sampling->top_k > 0 && sampling->top_k < count) count = (int32_t)sampling->top_k;
  const double largest = (double)logits[*best];
  for (int32_t i = 0; i < count; i++) {
    candidates[i].weight = exp((candidates[i].weight - largest) / sampling->temperature);
  }
  count = cut_at(candidates, count, sampling->top_p);
  for (int32_t i = 0; i < count; i++) *total += candidates[i].weight;
  *taken = count;
  return LS_OK;
}

/* The candidate that a number in [0, 1) falls on; -1: none has a weight. */
static int32_t draw(const ls_candidate *candidates, int32_t count, double total, double number) {
  double left = number * total;
  int32_t id = -1;
  for (int32_t i = 0; i < count; i++) {
    if (candidates[i].weight == 0) continue;
    id = candidates[i].id;
    left -= candidates[i].weight;
    if (left < 0) return id;
  }
  return id; /* rounding left a last bit over: it belongs to the last candidate */
}

ls_status ls_sampler_next(ls_sampler *sampler, const float *logits, uint64_t index, int32_t *id,
                          ls_error *error) {
  int32_t count;
  double total;
  LS_TRY(weigh(sampler, logits, &count, &total, id, error));
  if (count)
    *id = draw(sampler->candidates, count, total,
               ls_random_uniform(sampler->sampling.seed, sampler->stream, index));
  return LS_OK;
}

ls_status ls_sampler_draft(ls_sampler *sampler, ls_arena *arena, const float *logits,
                           uint64_t index, int32_t *id, ls_chances *chances, ls_error *error) {
  LS_TRY(weigh(sampler, logits, &chances->count, &chances->total, id, error));
  if (!chances->count) return LS_OK;
  if (chances->count > chances->room) {
    chances->room =
        chances->count < sampler->vocabulary / 2 ? 2 * chances->count : sampler->vocabulary;
    chances->items = LS_NEW_ARRAY(arena, ls_candidate, chances->room);
  }
  memcpy(chances->items, sampler->candidates, sizeof *chances->items * (size_t)chances->count);
  *id = draw(chances->items, chances->count, chances->total,
             ls_random_uniform(sampler->sampling.seed, sampler->drafting, index));
  return LS_OK;
}

/* Chances of the draft by id: `sign` 1 puts them there, 0 takes them away. */
static void lay_out(ls_sampler *sampler, int32_t drafted, const ls_chances *chances, double sign) {
  if (!chances) sampler->others[drafted] = sign;
  for (int32_t i = 0; chances && i < chances->count; i++)
    sampler->others[chances->items[i].id] = sign * chances->items[i].weight / chances->total;
}

/* What the first `count` candidates have more of than the draft had; the sum of it. */
static double keep_excess(ls_sampler *sampler, int32_t count, double total) {
  double sum = 0;
  for (int32_t i = 0; i < count; i++) {
    ls_candidate *each = &sampler->candidates[i];
    const double excess = each->weight / total - sampler->others[each->id];
    each->weight = excess > 0 ? excess : 0;
    sum += each->weight;
  }
  return sum;
}

ls_status ls_sampler_verify(ls_sampler *sampler, const float *logits, uint64_t index,
                            int32_t drafted, const ls_chances *chances, int32_t *id, bool *kept,
                            ls_error *error) {
  const uint64_t seed = sampler->sampling.seed;
  int32_t count;
  double total, chance = 0;
  LS_TRY(weigh(sampler, logits, &count, &total, id, error));
  *kept = *id == drafted;
  if (!count) return LS_OK;
  for (int32_t i = 0; i < count; i++)
    if (sampler->candidates[i].id == drafted) chance = sampler->candidates[i].weight / total;
  lay_out(sampler, drafted, chances, 1);
  const double other = sampler->others[drafted];
  *kept = ls_random_uniform(seed, sampler->keeping, index) * other < chance;
  const double excess = *kept ? 0 : keep_excess(sampler, count, total);
  lay_out(sampler, drafted, chances, 0);
  if (*kept) *id = drafted;
  /* With no excess but by rounding both had the same chances, and the likeliest stays. */
  if (excess > 0)
    *id = draw(sampler->candidates, count, excess, ls_random_uniform(seed, sampler->stream, index));
  return LS_OK;
}
