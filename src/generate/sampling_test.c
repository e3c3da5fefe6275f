#include "generate/sampling.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "support/test_seed.h"

enum { V = 8, DRAWS = 40000 };

static ls_arena *arena;
static uint64_t seed;

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return 0;
}

/* Probabilities that are exact in binary, out of order. */
static const double probability[V] = {1 / 16., 1 / 2., 1 / 64., 1 / 8.,
                                      1 / 64., 1 / 4., 1 / 32., 0};

static void logits_of(double temperature, float logits[V]) {
  for (int i = 0; i < V; i++) logits[i] = (float)(temperature * log(probability[i]) + 3);
}

static void count_draws(const ls_sampling *sampling, const float *logits, int counts[V]) {
  ls_sampler *sampler = ls_sampler_create(arena, V, sampling);
  memset(counts, 0, V * sizeof *counts);
  for (uint64_t i = 0; i < DRAWS; i++) {
    int32_t id = -1;
    ls_error error = {0};
    assert_int_equal(ls_sampler_next(sampler, logits, i, &id, &error), LS_OK);
    assert_in_range(id, 0, V - 1);
    counts[id]++;
  }
}

/* Counts follow the probabilities of the allowed ids within five deviations. */
static void assert_shares(const ls_sampling *sampling, const float *logits, unsigned allowed) {
  int counts[V];
  double total = 0;
  count_draws(sampling, logits, counts);
  for (int i = 0; i < V; i++) total += allowed >> i & 1 ? probability[i] : 0;
  for (int i = 0; i < V; i++) {
    const double p = allowed >> i & 1 ? probability[i] / total : 0;
    const double deviation = sqrt(DRAWS * p * (1 - p));
    if (fabs(counts[i] - DRAWS * p) > 5 * deviation) {
      fail_msg("id %d was drawn %d times, expected %g", i, counts[i], DRAWS * p);
    }
  }
}

static void greedy_takes_the_largest_and_the_lower_of_equals(void **state) {
  (void)state;
  const float logits[V] = {-1, 5, 2, 5, -INFINITY, 0, 0, 0};
  for (int i = 0; i < 2; i++) {
    const ls_sampling sampling = {.temperature = 0, .top_k = i, .top_p = 0.5, .seed = seed};
    int counts[V];
    count_draws(&sampling, logits, counts);
    assert_int_equal(counts[1], DRAWS);
  }
  int counts[V];
  count_draws(&(ls_sampling){.temperature = 1, .top_k = 1}, logits, counts);
  assert_int_equal(counts[1], DRAWS);
  count_draws(&(ls_sampling){.temperature = 1e-300}, (const float[V]){1, 2, 3, 9}, counts);
  assert_int_equal(counts[3], DRAWS);
}

static void shares_follow_the_softmax_at_any_temperature(void **state) {
  (void)state;
  static const double temperatures[] = {0.25, 1, 3};
  for (int i = 0; i < 3; i++) {
    float logits[V];
    logits_of(temperatures[i], logits);
    assert_shares(&(ls_sampling){.temperature = temperatures[i], .seed = seed}, logits, 0xff);
    assert_shares(&(ls_sampling){.temperature = temperatures[i], .top_p = 1, .seed = seed}, logits,
                  0xff);
  }
}

/* By probability the ids are 1, 5, 3, 0, 6, 2, 4, 7. */
static void top_k_keeps_the_k_largest(void **state) {
  (void)state;
  static const unsigned kept[] = {0x02, 0x22, 0x2a, 0x2b, 0x6b, 0x6f, 0x7f, 0xff, 0xff};
  float logits[V];
  logits_of(1, logits);
  for (int k = 1; k <= 9; k++) {
    assert_shares(&(ls_sampling){.temperature = 1, .top_k = k, .seed = seed}, logits, kept[k - 1]);
  }
}

static void top_p_keeps_the_fewest_that_hold_p(void **state) {
  (void)state;
  static const struct {
    double top_p;
    unsigned kept;
  } cases[] = {{0.01, 0x02}, {0.49, 0x02}, {0.51, 0x22}, {0.74, 0x22},
               {0.76, 0x2a}, {0.9, 0x2b},  {0.95, 0x6b}, {0.9999, 0x7f}};
  float logits[V];
  logits_of(1, logits);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const ls_sampling sampling = {.temperature = 1, .top_p = cases[i].top_p, .seed = seed};
    assert_shares(&sampling, logits, cases[i].kept);
  }
  /* After top-k the shares are of what it left: 0.5 of 0.75 is 2/3. */
  assert_shares(&(ls_sampling){.temperature = 1, .top_k = 2, .top_p = 0.6, .seed = seed}, logits,
                0x02);
  assert_shares(&(ls_sampling){.temperature = 1, .top_k = 2, .top_p = 0.7, .seed = seed}, logits,
                0x22);
}

static void the_seed_and_the_place_decide(void **state) {
  (void)state;
  float logits[V];
  logits_of(1, logits);
  ls_sampler *first = ls_sampler_create(arena, V, &(ls_sampling){.temperature = 1, .seed = 1});
  ls_sampler *same = ls_sampler_create(arena, V, &(ls_sampling){.temperature = 1, .seed = 1});
  ls_sampler *other = ls_sampler_create(arena, V, &(ls_sampling){.temperature = 1, .seed = 2});
  int differ = 0;
  for (uint64_t i = 0; i < 200; i++) {
    const uint64_t place = 199 - i;
    int32_t a, b, c;
    assert_int_equal(ls_sampler_next(first, logits, i, &a, NULL), LS_OK);
    assert_int_equal(ls_sampler_next(same, logits, place, &b, NULL), LS_OK);
    assert_int_equal(ls_sampler_next(same, logits, i, &b, NULL), LS_OK);
    assert_int_equal(ls_sampler_next(other, logits, i, &c, NULL), LS_OK);
    assert_int_equal(a, b);
    differ += a != c;
  }
  assert_true(differ > 50);
}

/* Chi-square of the tokens that are handed out, which have the first row's chances whatever the
 * second one drafted; *kept of DRAWS. Seeds are fixed: nothing is left to luck. */
static double drafted_chi_square(const ls_sampling *sampling, const float *logits,
                                 const float *others, bool sure, const double *chances, int *kept) {
  ls_sampler *sampler = ls_sampler_create(arena, V, sampling);
  ls_chances drafts = {0};
  int counts[V] = {0};
  double sum = 0;
  *kept = 0;
  for (uint64_t i = 0; i < DRAWS; i++) {
    int32_t drafted = (int32_t)(i % 2), id;
    bool same;
    if (!sure)
      assert_int_equal(ls_sampler_draft(sampler, arena, others, i, &drafted, &drafts, NULL), LS_OK);
    assert_int_equal(
        ls_sampler_verify(sampler, logits, i, drafted, sure ? NULL : &drafts, &id, &same, NULL),
        LS_OK);
    assert_true(!same || id == drafted);
    *kept += same;
    counts[id]++;
  }
  for (int i = 0; i < V; i++) {
    const double expected = DRAWS * chances[i];
    if (expected == 0) assert_int_equal(counts[i], 0);
    if (expected > 0) sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

static void what_is_drafted_changes_no_chance(void **state) {
  (void)state;
  enum { CASES = 5 };
  float logits[V], others[V];
  double halves[V] = {0}, all = 0;
  logits_of(1, logits);
  for (int i = 0; i < V; i++) others[i] = logits[(i + 2) % V] / 2; /* one is impossible, too */
  for (int i = 0; i < V; i++) all += probability[i];
  for (int i = 0; i < V; i++) halves[i] = probability[i] / all;
  const double three[V] = {0, 4 / 7., 0, 1 / 7., 0, 2 / 7., 0, 0};
  const double two[V] = {0, 2 / 3., 0, 0, 0, 1 / 3., 0, 0};
  const struct {
    ls_sampling sampling;
    const double *chances;
    bool sure, same;
  } cases[CASES] = {{{.temperature = 1, .seed = 1}, halves, false, false},
                    {{.temperature = 1, .seed = 2}, halves, true, false},
                    {{.temperature = 1, .seed = 3}, halves, false, true},
                    {{.temperature = 1, .seed = 4, .top_k = 3}, three, false, false},
                    {{.temperature = 1, .seed = 5, .top_p = 0.7}, two, false, false}};
  for (int c = 0; c < CASES; c++) {
    int kept;
    const double found =
        drafted_chi_square(&cases[c].sampling, logits, cases[c].same ? logits : others,
                           cases[c].sure, cases[c].chances, &kept);
    print_message("case %d: chi-square %.1f, %d of %d kept\n", c, found, kept, DRAWS);
    assert_true(found < 20); /* of 6 degrees: once in 400 */
    assert_true(cases[c].same ? kept == DRAWS : kept < DRAWS);
  }
}

static void a_draft_of_the_likeliest_is_kept_where_it_is_right(void **state) {
  (void)state;
  float logits[V];
  ls_sampler *sampler = ls_sampler_create(arena, V, &(ls_sampling){0});
  ls_chances drafts = {0};
  int32_t id;
  bool kept;
  logits_of(1, logits);
  assert_int_equal(ls_sampler_draft(sampler, arena, logits, 4, &id, &drafts, NULL), LS_OK);
  assert_int_equal(id, 1);
  for (int32_t drafted = 0; drafted < V; drafted++) {
    assert_int_equal(ls_sampler_verify(sampler, logits, 4, drafted, &drafts, &id, &kept, NULL),
                     LS_OK);
    assert_int_equal(id, 1);
    assert_int_equal(kept, drafted == 1);
  }
}

static void broken_logits_and_settings_are_refused(void **state) {
  (void)state;
  ls_error error = {0};
  int32_t id;
  ls_sampler *sampler = ls_sampler_create(arena, 3, &(ls_sampling){.temperature = 1});
  const float bad[3][3] = {{0, NAN, 1}, {0, 0, INFINITY}, {-INFINITY, -INFINITY, -INFINITY}};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(ls_sampler_next(sampler, bad[i], 0, &id, &error), LS_FAILED);
  }
  const ls_sampling wrong[] = {
      {.temperature = -1}, {.temperature = NAN}, {.top_k = -1}, {.top_p = 1.5}, {.top_p = NAN}};
  for (int i = 0; i < 5; i++) {
    assert_int_equal(ls_sampling_check(&wrong[i], &error), LS_INPUT);
    assert_non_null(strstr(error.text, "; expected a"));
  }
  assert_int_equal(ls_sampling_check(&(ls_sampling){0}, &error), LS_OK);
}

int main(void) {
  seed = test_seed(20261128);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(greedy_takes_the_largest_and_the_lower_of_equals),
      cmocka_unit_test(shares_follow_the_softmax_at_any_temperature),
      cmocka_unit_test(top_k_keeps_the_k_largest),
      cmocka_unit_test(top_p_keeps_the_fewest_that_hold_p),
      cmocka_unit_test(the_seed_and_the_place_decide),
      cmocka_unit_test(what_is_drafted_changes_no_chance),
      cmocka_unit_test(a_draft_of_the_likeliest_is_kept_where_it_is_right),
      cmocka_unit_test(broken_logits_and_settings_are_refused),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
