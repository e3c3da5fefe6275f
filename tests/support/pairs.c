#include "support/pairs.h"

#include "base/random.h"

/* Ways to complete a pair to a case, of which the best is taken. */
enum { TRIES = 12 };

typedef struct cover {
  const ls_pairs *about;
  int first[LS_PAIRS_MOST_FACTORS], all; /* number of a factor's option 0; of all options */
  bool *done;                            /* [all][all], the smaller number first */
} cover;

static bool *pair_at(const cover *c, int f, int a, int g, int b) {
  const int one = c->first[f] + a, other = c->first[g] + b;
  return &c->done[one < other ? one * c->all + other : other * c->all + one];
}

/* Pairs that the option of factor `f` makes with what is chosen, not covered before. */
static int gain(const cover *c, const ls_pairs_case *chosen, int f, int option) {
  int found = 0;
  for (int g = 0; g < c->about->factors; g++)
    if (g != f && chosen->option[g] != LS_PAIRS_ANY)
      found += !*pair_at(c, f, option, g, chosen->option[g]);
  return found;
}

/* A shuffled order of the factors, of the seed and `draw`. */
static void order_factors(const ls_pairs *about, uint64_t draw, int *order) {
  for (int i = 0; i < about->factors; i++)
    order[i] = (int)ls_random_permute(about->seed, draw, (uint64_t)about->factors, (uint64_t)i);
}

/* The possible option that gains most, at random of equals; without `c` any. */
static int choose(const ls_pairs *about, const cover *c, const ls_pairs_case *chosen, int f,
                  uint64_t draw) {
  ls_pairs_case with = *chosen;
  int best = -1, most = -1;
  uint64_t highest = 0;
  for (int option = 0; option < about->options[f]; option++) {
    with.option[f] = option;
    const int gained = c ? gain(c, chosen, f, option) : 0;
    const uint64_t lot = ls_random_bits(about->seed, draw, (uint64_t)(f * 1000 + option));
    if (gained < most || (gained == most && lot < highest)) continue;
    if (!about->possible(&with, about->context)) continue;
    best = option;
    most = gained;
    highest = lot;
  }
  LS_ASSERT(best >= 0);
  return best;
}

static void complete(const ls_pairs *about, const cover *c, ls_pairs_case *chosen, uint64_t draw) {
  int order[LS_PAIRS_MOST_FACTORS];
  order_factors(about, draw, order);
  for (int i = 0; i < about->factors; i++)
    if (chosen->option[order[i]] == LS_PAIRS_ANY)
      chosen->option[order[i]] = choose(about, c, chosen, order[i], draw);
}

void ls_pairs_complete(const ls_pairs *about, ls_pairs_case *chosen, uint64_t draw) {
  complete(about, NULL, chosen, draw);
}

/* Pairs that a case has and none before it, and its option of `once`, which is in no pair; marks
 * them where asked. */
static int new_pairs(cover *c, const ls_pairs_case *chosen, int once, bool mark) {
  int found = 0;
  for (int f = 0; f < c->about->factors; f++)
    for (int g = f; g < c->about->factors; g++) {
      if (f == g ? f != once : f == once || g == once) continue;
      bool *done = pair_at(c, f, chosen->option[f], g, chosen->option[g]);
      found += !*done;
      *done |= mark;
    }
  return found;
}

static void add_case(ls_arena *arena, cover *c, const ls_pairs_case *chosen,
                     ls_pairs_sample *sample) {
  sample->covered += new_pairs(c, chosen, -1, true);
  *LS_APPEND(arena, &sample->cases) = *chosen;
}

static void cover_pair(ls_arena *arena, cover *c, const ls_pairs_case *pair,
                       ls_pairs_sample *sample) {
  if (!c->about->possible(pair, c->about->context)) {
    sample->impossible++;
    return;
  }
  ls_pairs_case best;
  int most = 0;
  for (int t = 0; t < TRIES; t++) {
    ls_pairs_case tried = *pair;
    complete(c->about, c, &tried, (uint64_t)(sample->cases.count * TRIES + t));
    const int found = new_pairs(c, &tried, -1, false);
    if (found <= most) continue;
    most = found;
    best = tried;
  }
  LS_ASSERT(most > 0);
  add_case(arena, c, &best, sample);
}

static cover cover_of(ls_arena *arena, const ls_pairs *about) {
  cover c = {.about = about};
  LS_ASSERT(about->factors <= LS_PAIRS_MOST_FACTORS);
  for (int f = 0; f < about->factors; f++) {
    c.first[f] = c.all;
    c.all += about->options[f];
  }
  c.done = LS_NEW_ARRAY(arena, bool, c.all *c.all);
  return c;
}

ls_pairs_sample ls_pairs_cover(ls_arena *arena, const ls_pairs *about) {
  cover c = cover_of(arena, about);
  ls_pairs_sample sample = {0};
  ls_pairs_case pair;
  for (int f = 0; f < about->factors; f++) pair.option[f] = LS_PAIRS_ANY;
  for (int f = 0; f < about->factors; f++)
    for (int g = f + 1; g < about->factors; g++)
      for (int a = 0; a < about->options[f]; a++)
        for (int b = 0; b < about->options[g]; b++) {
          if (*pair_at(&c, f, a, g, b)) continue;
          pair.option[f] = a;
          pair.option[g] = b;
          cover_pair(arena, &c, &pair, &sample);
          pair.option[f] = pair.option[g] = LS_PAIRS_ANY;
        }
  return sample;
}

int ls_pairs_choose(const ls_pairs_case *cases, int count, int factors, int once, bool *chosen) {
  ls_arena *arena = ls_arena_create();
  ls_pairs about = {.factors = factors};
  for (int i = 0; i < count; i++)
    for (int f = 0; f < factors; f++)
      if (cases[i].option[f] >= about.options[f]) about.options[f] = cases[i].option[f] + 1;
  cover c = cover_of(arena, &about);
  int covered = 0;
  for (;;) {
    int most = 0, best = 0;
    for (int i = 0; i < count; i++) {
      const int found = new_pairs(&c, &cases[i], once, false);
      if (found <= most) continue;
      most = found;
      best = i;
    }
    if (most == 0) break;
    chosen[best] = true;
    covered += new_pairs(&c, &cases[best], once, true);
  }
  ls_arena_destroy(&arena);
  return covered;
}
