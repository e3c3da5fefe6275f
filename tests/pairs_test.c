/* The covering array behind tests/matrix_options_test.c, against rules drawn at random: every case
 * is one that can be, every pair of options that some case can have is in one of them, and the
 * others are counted. */
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
  ls_pairs_case made;
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

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_pair_that_can_be_is_covered)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
