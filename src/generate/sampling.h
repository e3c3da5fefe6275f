/* Chooses the next token from a row of logits.
 *
 *   ls_sampler *sampler = ls_sampler_create(arena, vocabulary, &(ls_sampling){.temperature = 0.8});
 *   int32_t id;
 *   LS_TRY(ls_sampler_next(sampler, logits, position, &id, error));
 *
 * In this order, as transformers does it: logits over the temperature; of these the `top_k`
 * largest; of these the fewest whose probabilities sum to `top_p`; one of these by chance. The
 * chance is a function of (seed, index): the same logits give the same token. What another model
 * has drafted may be taken instead, so that tokens have the chances that these logits give them. A
 * sampler belongs to one thread. */
#ifndef LS_GENERATE_SAMPLING_H
#define LS_GENERATE_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

typedef struct ls_sampling {
  double temperature; /* 0: the largest logit, always */
  int64_t top_k;      /* 0: all */
  double top_p;       /* above 0; 0 and 1: all */
  uint64_t seed;
} ls_sampling;

typedef struct ls_sampler ls_sampler;

typedef struct ls_candidate {
  double weight;
  int32_t id;
} ls_candidate;

/* What may be chosen: an id's chance is its weight over the total. */
typedef struct ls_chances {
  ls_candidate *items; /* count of them; of temperature 0: none, the draft was sure */
  int32_t count, room;
  double total;
} ls_chances;

/* LS_INPUT where a setting is out of its range. */
LS_CHECKED ls_status ls_sampling_check(const ls_sampling *sampling, ls_error *error);

ls_sampler *ls_sampler_create(ls_arena *arena, int32_t vocabulary, const ls_sampling *sampling);

/* The token for place `index` of the sequence. Of equal logits the lower id goes first. LS_FAILED
 * where a logit is NaN or plus infinity, or all are minus infinity. */
LS_CHECKED ls_status ls_sampler_next(ls_sampler *sampler, const float *logits, uint64_t index,
                                     int32_t *id, ls_error *error);

/* The token that a draft proposes for place `index`; *chances (of the arena, used again) are those
 * that it had. */
LS_CHECKED ls_status ls_sampler_draft(ls_sampler *sampler, ls_arena *arena, const float *logits,
                                      uint64_t index, int32_t *id, ls_chances *chances,
                                      ls_error *error);

/* The token for place `index`, where another has drafted one with these chances (NULL: it was
 * sure): *id is that one, *kept then, or another that makes up for what was drafted too often. With
 * temperature 0 it is what ls_sampler_next gives. Leviathan, Kalman, Matias: "Fast inference from
 * transformers via speculative decoding", ICML 2023; Chen et al., arXiv:2302.01318. */
LS_CHECKED ls_status ls_sampler_verify(ls_sampler *sampler, const float *logits, uint64_t index,
                                       int32_t drafted, const ls_chances *chances, int32_t *id,
                                       bool *kept, ls_error *error);

#endif
