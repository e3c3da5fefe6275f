/* Cases of several factors in which every pair of options occurs that can: a covering array.
 *
 *   ls_pairs about = {.factors = 3, .options = {2, 4, 3}, .possible = rule, .seed = 7};
 *   ls_pairs_sample sample = ls_pairs_cover(arena, &about);
 *   for (int c = 0; c < sample.cases.count; c++) run(sample.cases.items[c].option);
 *
 * Greedy and deterministic. Thread-safe as long as no two threads share an arena. */
#ifndef LS_TESTS_PAIRS_H
#define LS_TESTS_PAIRS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

enum { LS_PAIRS_MOST_FACTORS = 24, LS_PAIRS_ANY = -1 };

typedef struct ls_pairs_case {
  int option[LS_PAIRS_MOST_FACTORS]; /* of each factor; LS_PAIRS_ANY: not chosen */
} ls_pairs_case;

typedef struct ls_pairs {
  int factors;
  int options[LS_PAIRS_MOST_FACTORS];
  /* Whether there is a case that has all the options that are chosen. */
  bool (*possible)(const ls_pairs_case *chosen, const void *context);
  const void *context;
  uint64_t seed;
} ls_pairs;

typedef struct ls_pairs_sample {
  LS_LIST(ls_pairs_case) cases;
  int covered, impossible; /* pairs of options of two factors; together all that there are */
} ls_pairs_sample;

/* A case for every pair; the list is the arena's. */
ls_pairs_sample ls_pairs_cover(ls_arena *arena, const ls_pairs *about);

/* Chooses what is not yet chosen, by the seed and `draw`; the case must be possible. */
void ls_pairs_complete(const ls_pairs *about, ls_pairs_case *chosen, uint64_t draw);

/* Of the cases that there are, few of which one has every pair of options that any has, but for
 * factor `once` (-1: none), of which every option occurs: sets `chosen` of these, and returns how
 * many pairs and options that are. */
int ls_pairs_choose(const ls_pairs_case *cases, int count, int factors, int once, bool *chosen);

#endif
