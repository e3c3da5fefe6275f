/* Cutting a model into chunks: against every cut there is, and by hand. */
#include "pipeline/stages.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/random.h"

static const uint64_t seed = 20250608;

/* The largest chunk's cost and the sum of squares of a cut. */
static void weigh(const double *costs, int chunks, const int *first, double *largest,
                  double *squares) {
  *largest = *squares = 0;
  for (int k = 0; k < chunks; k++) {
    double cost = 0;
    for (int i = first[k]; i < first[k + 1]; i++) cost += costs[i];
    *largest = fmax(*largest, cost);
    *squares += cost * cost;
  }
}

/* The best of every cut: the next one in the order of counting. */
static void try_all(const double *costs, int segments, int chunks, double *largest,
                    double *squares) {
  int first[8];
  for (int k = 0; k < chunks; k++) first[k] = k;
  first[chunks] = segments;
  *largest = *squares = INFINITY;
  for (;;) {
    double size, sum;
    weigh(costs, chunks, first, &size, &sum);
    if (size < *largest || (size == *largest && sum < *squares)) *largest = size, *squares = sum;
    int k = chunks - 1;
    while (k > 0 && first[k] == segments - (chunks - k)) k--;
    if (k == 0) return;
    first[k]++;
    for (int next = k + 1; next < chunks; next++) first[next] = first[next - 1] + 1;
  }
}

static void cuts_are_the_best_there_are(void **state) {
  (void)state;
  int compared = 0;
  print_message("seed %llu\n", (unsigned long long)seed);
  for (uint64_t round = 0; round < 400; round++) {
    double costs[12];
    const int segments = 1 + (int)(ls_random_bits(seed, round, 100) % 12);
    const uint64_t range = round % 4 ? 9 : 1000000; /* many ties, or none */
    for (int i = 0; i < segments; i++)
      costs[i] = (double)(ls_random_bits(seed, round, (uint64_t)i) % range);
    for (int chunks = 1; chunks <= segments && chunks <= 7; chunks++) {
      int first[8];
      double largest, squares, best, best_squares;
      ls_error error = {0};
      assert_int_equal(ls_stages_cut(costs, segments, chunks, first, &error), LS_OK);
      assert_int_equal(first[0], 0);
      assert_int_equal(first[chunks], segments);
      for (int k = 0; k < chunks; k++) assert_true(first[k + 1] > first[k]);
      weigh(costs, chunks, first, &largest, &squares);
      try_all(costs, segments, chunks, &best, &best_squares);
      assert_true(largest == best);
      assert_true(squares <= best_squares * (1 + 1e-9));
      compared++;
    }
  }
  assert_true(compared > 1000);
}

static void assert_cut(const double *costs, int segments, int chunks, const int *expected) {
  int first[32];
  ls_error error = {0};
  assert_int_equal(ls_stages_cut(costs, segments, chunks, first, &error), LS_OK);
  for (int k = 0; k <= chunks; k++) assert_int_equal(first[k], expected[k]);
}

static void known_cuts(void **state) {
  (void)state;
  double even[30], tenths[30], free_costs[4] = {0};
  for (int i = 0; i < 30; i++) even[i] = 1, tenths[i] = 0.1;
  assert_cut(even, 12, 4, (const int[]){0, 3, 6, 9, 12});
  /* What does not divide makes the later chunks longer, and rounding changes nothing of it. */
  assert_cut(even, 10, 4, (const int[]){0, 2, 4, 7, 10});
  assert_cut(tenths, 10, 4, (const int[]){0, 2, 4, 7, 10});
  assert_cut(tenths, 30, 8, (const int[]){0, 3, 6, 10, 14, 18, 22, 26, 30});
  assert_cut(even, 5, 5, (const int[]){0, 1, 2, 3, 4, 5});
  assert_cut(even, 5, 1, (const int[]){0, 5});
  /* A dear embedding and head get fewer layers; a part larger than its share is alone. */
  assert_cut((const double[]){2, 1, 1, 1, 1, 1, 1, 2}, 8, 2, (const int[]){0, 4, 8});
  assert_cut((const double[]){9, 1, 1, 1, 1, 1, 1, 2}, 8, 3, (const int[]){0, 1, 5, 8});
  assert_cut((const double[]){1, 1, 1, 1, 5}, 5, 3, (const int[]){0, 2, 4, 5});
  int first[5];
  ls_error error = {0};
  assert_int_equal(ls_stages_cut(free_costs, 4, 3, first, &error), LS_OK);
}

static void large_cuts_are_quick(void **state) {
  (void)state;
  static double costs[1000];
  int first[513];
  double largest, squares;
  ls_error error = {0};
  for (int i = 0; i < 1000; i++) costs[i] = 1 + ls_random_uniform(seed, 1, (uint64_t)i);
  const clock_t start = clock();
  assert_int_equal(ls_stages_cut(costs, 1000, 512, first, &error), LS_OK);
  assert_int_equal(ls_stages_cut(costs, 128, 128, first, &error), LS_OK);
  assert_int_equal(ls_stages_cut(costs, 1000, 16, first, &error), LS_OK);
  print_message("three cuts in %.3f s\n", (double)(clock() - start) / CLOCKS_PER_SEC);
  weigh(costs, 16, first, &largest, &squares);
  assert_true(largest < 1.5 * 1000 / 16 + 2);
}

static void too_many_chunks_are_refused(void **state) {
  (void)state;
  const double costs[] = {1, 1, 1};
  int first[8];
  ls_error error = {0};
  assert_int_equal(ls_stages_cut(costs, 3, 4, first, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "found 4 stages x chunks for a model of 3 parts (embedding, layers, head); "
                      "expected 1 to 3");
  assert_int_equal(ls_stages_cut(costs, 3, 0, first, &error), LS_INPUT);
}

static void by_hand(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int layers, chunks, first[5];
  } cases[] = {
      {"0-6, 7-13, 14-20, 21-27", 28, 4, {0, 7, 14, 21, 28}},
      {"[0-6,7-13]", 14, 2, {0, 7, 14}},
      {" [ 0 - 0 ,1, 2-3 ] ", 4, 3, {0, 1, 2, 4}},
      {"0-27", 28, 1, {0, 28}},
      {"none, 0-1, none, 2", 3, 4, {0, 0, 2, 2, 3}},
      {"[none,0,1,none]", 2, 4, {0, 0, 1, 2, 2}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int first[5];
    ls_error error = {0};
    if (ls_stages_parse(cases[i].text, cases[i].layers, cases[i].chunks, first, &error) != LS_OK)
      fail_msg("%s", error.text);
    assert_memory_equal(first, cases[i].first, sizeof(int) * (size_t)(cases[i].chunks + 1));
  }
}

static void mistakes_by_hand_are_named(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int layers, chunks;
    const char *error;
  } cases[] = {
      {"0-6, 8-13", 14, 2,
       "stages: found \"8-13\" as item 2; expected it to begin with layer 7, as items follow each "
       "other"},
      {"1-6, 7-13", 14, 2,
       "stages: found \"1-6\" as item 1; expected it to begin with layer 0, as items follow each "
       "other"},
      {"0-6, 6-13", 14, 2,
       "stages: found \"6-13\" as item 2; expected it to begin with layer 7, as items follow each "
       "other"},
      {"0-6, 7-14", 14, 2,
       "stages: found \"7-14\" as item 2; expected a last layer of 7 to 13: the model has 14 "
       "layers"},
      {"0-6, 7-5", 14, 2,
       "stages: found \"7-5\" as item 2; expected a last layer of 7 to 13: the model has 14 "
       "layers"},
      {"0-13, 14", 14, 2,
       "stages: found \"14\" as item 2; expected none, as all 14 layers are taken before it"},
      {"0-6, 7-12", 14, 2,
       "stages: found 13 of 14 layers taken; expected item 2 to end with layer 13"},
      {"none", 14, 1, "stages: found 0 of 14 layers taken; expected item 1 to end with layer 13"},
      {"0-6, 7-13", 14, 4, "stages: found 2 items; expected 4, one for each chunk of each stage"},
      {"0-6, 7-13", 14, 1, "stages: found 2 items; expected 1, one for each chunk of each stage"},
      {"0-6, x", 14, 2,
       "stages: found \"x\" as item 2; expected layers such as 0-6, one layer such as 7, or none"},
      {"0-6,, 7-13", 14, 3,
       "stages: found \"\" as item 2; expected layers such as 0-6, one layer such as 7, or none"},
      {"0-", 14, 1,
       "stages: found \"0-\" as item 1; expected layers such as 0-6, one layer such as 7, or none"},
      {"0-6-13", 14, 1,
       "stages: found \"0-6-13\" as item 1; expected layers such as 0-6, one layer such as 7, or "
       "none"},
      {"0-99999999999", 14, 1,
       "stages: found \"0-99999999999\" as item 1; expected layers such as 0-6, one layer such as "
       "7, or none"},
      {"[0-13", 14, 1, "stages: found \"[0-13\"; expected ] at its end"},
      {"[", 14, 1, "stages: found \"[\"; expected ] at its end"},
      {"", 14, 1,
       "stages: found \"\" as item 1; expected layers such as 0-6, one layer such as 7, or none"},
      {"[]", 14, 1,
       "stages: found \"\" as item 1; expected layers such as 0-6, one layer such as 7, or none"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int first[8];
    ls_error error = {0};
    if (ls_stages_parse(cases[i].text, cases[i].layers, cases[i].chunks, first, &error) != LS_INPUT)
      fail_msg("taken: %s", cases[i].text);
    assert_string_equal(error.text, cases[i].error);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cuts_are_the_best_there_are),
      cmocka_unit_test(known_cuts),
      cmocka_unit_test(large_cuts_are_quick),
      cmocka_unit_test(too_many_chunks_are_refused),
      cmocka_unit_test(by_hand),
      cmocka_unit_test(mistakes_by_hand_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
