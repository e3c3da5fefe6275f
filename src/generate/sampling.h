/* Chooses the next token from a row of logits.
 *
 *   ls_sampler *sampler = ls_sampler_create(arena, vocabulary, &(ls_sampling){.temperature = 0.8});
 *   int32_t id;
 *   LS_TRY(ls_sampler_next(sampler, logits, position, &id, error));
 *
 * In this order, as transformers does it: logits over the temperature; of these the `top_k`
 * largest; of these the fewest whose probabilities sum to `top_p`; one of these by chance. The
 * chance is a function of (seed, index): the same logits give the same token. A sampler belongs to
 * one thread. */
#ifndef LS_GENERATE_SAMPLING_H
#define LS_GENERATE_SAMPLING_H

#include <stdint.h>

#include "base/arena.h"

typedef struct ls_sampling {
  double temperature; /* 0: the largest logit, always */
  int64_t top_k;      /* 0: all */
  double top_p;       /* above 0; 0 and 1: all */
  uint64_t seed;
} ls_sampling;

typedef struct ls_sampler ls_sampler;

/* LS_INPUT where a setting is out of its range. */
LS_CHECKED ls_status ls_sampling_check(const ls_sampling *sampling, ls_error *error);

ls_sampler *ls_sampler_create(ls_arena *arena, int32_t vocabulary, const ls_sampling *sampling);

/* The token for place `index` of the sequence. Of equal logits the lower id goes first. LS_FAILED
 * where a logit is NaN or plus infinity, or all are minus infinity. */
LS_CHECKED ls_status ls_sampler_next(ls_sampler *sampler, const float *logits, uint64_t index,
                                     int32_t *id, ls_error *error);

#endif
