/* The covering arrays of the equality tests, against rules drawn at random: every case is one that
 * can be, every pair of options that some case can have is in one of them, and the others are
 * counted. */
#include "support/pairs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"

enum { FACTORS = 4, CASES = 2 * 5 * 3 * 4, RULES = 200, SEED = 20261121 };
static const int options[FACTORS] = {2, 5, 3, 4};

/* Which of all cases can be. */
typedef struct rule {
  bool legal[CASES];
} rule;

static ls_pairs_case case_of(int number) {
  ls_pairs_case made = {0};
  for (int f = 0; f < FACTORS; f++) {
    made.option[f] = number % options[f];
    number /= options[f];
  }
  return made;
}

static bool agrees(const ls_pairs_case *chosen, const ls_pairs_case *whole) {
  for (int f = 0; f < FACTORS; f++)
    if (chosen->option[f] != LS_PAIRS_ANY && chosen->option[f] != whole->option[f]) return false;
  return true;
}

static bool is_possible(const ls_pairs_case *chosen, const void *context) {
  const rule *by = context;
  for (int number = 0; number < CASES; number++) {
    const ls_pairs_case whole = case_of(number);
    if (by->legal[number] && agrees(chosen, &whole)) return true;
  }
  return false;
}

static bool has(const ls_pairs_sample *sample, const ls_pairs_case *pair) {
  for (int c = 0; c < sample->cases.count; c++)
    if (agrees(pair, &sample->cases.items[c])) return true;
  return false;
}

static void check_sample(const ls_pairs_sample *sample, const rule *by) {
  int covered = 0, impossible = 0;
  for (int f = 0; f < FACTORS; f++)
    for (int g = f + 1; g < FACTORS; g++)
      for (int a = 0; a < options[f]; a++)
        for (int b = 0; b < options[g]; b++) {
          ls_pairs_case pair;
          for (int any = 0; any < FACTORS; any++) pair.option[any] = LS_PAIRS_ANY;
          pair.option[f] = a;
          pair.option[g] = b;
          const bool possible = is_possible(&pair, by);
          assert_int_equal(has(sample, &pair), possible);
          covered += possible;
          impossible += !possible;
        }
  assert_int_equal(sample->covered, covered);
  assert_int_equal(sample->impossible, impossible);
  for (int c = 0; c < sample->cases.count; c++)
    assert_true(is_possible(&sample->cases.items[c], by));
}

static void test_every_pair_that_can_be_is_covered(void **state) {
  (void)state;
  int cases = 0, legal = 0;
  for (int r = 0; r < RULES; r++) {
    ls_arena *arena = ls_arena_create();
    rule by;
    const double share = ls_random_uniform(SEED, 1, (uint64_t)r);
    for (int number = 0; number < CASES; number++) {
      by.legal[number] = ls_random_uniform(SEED, 2 + (uint64_t)r, (uint64_t)number) < share;
      legal += by.legal[number];
    }
    ls_pairs about = {.factors = FACTORS, .possible = is_possible, .context = &by, .seed = SEED};
    memcpy(about.options, options, sizeof options);
    const ls_pairs_sample sample = ls_pairs_cover(arena, &about);
    const ls_pairs_sample again = ls_pairs_cover(arena, &about);
    check_sample(&sample, &by);
    assert_int_equal(again.cases.count, sample.cases.count);
    for (int c = 0; c < sample.cases.count; c++)
      for (int f = 0; f < FACTORS; f++)
        assert_int_equal(again.cases.items[c].option[f], sample.cases.items[c].option[f]);
    cases += sample.cases.count;
    ls_arena_destroy(&arena);
  }
  print_message("seed %d: %d cases cover the pairs of %d\n", SEED, cases, legal);
  assert_true(cases < legal / 2);
}

/* Of listed cases: every pair that one of them has but with `once`, of which every option. */
static void check_chosen(const ls_pairs_case *cases, const bool *chosen, int count, int once,
                         int covered) {
  int found = 0;
  for (int f = 0; f < FACTORS; f++)
    for (int g = f; g < FACTORS; g++)
      for (int a = 0; a < options[f]; a++)
        for (int b = 0; b < options[g]; b++) {
          bool any = false, kept = false;
          if (f == g ? f != once || a != b : f == once || g == once) continue;
          for (int c = 0; c < count; c++) {
            const bool has_both = cases[c].option[f] == a && cases[c].option[g] == b;
            any |= has_both;
            kept |= has_both && chosen[c];
          }
          assert_int_equal(kept, any);
          found += any;
        }
  assert_int_equal(covered, found);
}

static void test_few_of_listed_cases_have_every_pair(void **state) {
  (void)state;
  int legal = 0, kept = 0;
  for (int r = 0; r < RULES; r++) {
    ls_pairs_case cases[CASES];
    bool chosen[CASES] = {false};
    const double share = ls_random_uniform(SEED, 1, (uint64_t)r);
    const int once = r % (FACTORS + 1) - 1;
    int count = 0;
    for (int number = 0; number < CASES; number++)
      if (ls_random_uniform(SEED, 2 + (uint64_t)r, (uint64_t)number) < share)
        cases[count++] = case_of(number);
    const int covered = ls_pairs_choose(cases, count, FACTORS, once, chosen);
    check_chosen(cases, chosen, count, once, covered);
    for (int c = 0; c < count; c++) kept += chosen[c];
    legal += count;
  }
  print_message("seed %d: %d cases have the pairs of %d\n", SEED, kept, legal);
  assert_true(kept < legal / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_pair_that_can_be_is_covered),
                                     cmocka_unit_test(test_few_of_listed_cases_have_every_pair)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
