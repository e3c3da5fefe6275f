/* Counts of cases that a test must reach, so that it cannot empty itself. They are constants in the
 * test; all that are wrong are told at once, by name, with what to write there. For tests that
 * include <cmocka.h>.
 *
 *   const ls_test_count counts[] = {LS_TEST_COUNT(tally.run, EXPECTED_RUN)};
 *   ls_test_expect_counts(counts, 1); */
#ifndef LS_TESTS_COUNTS_H
#define LS_TESTS_COUNTS_H

typedef struct ls_test_count {
  const char *name;
  int found, expected;
} ls_test_count;

#define LS_TEST_COUNT(found, constant) \
  { #constant, found, constant }

static inline void ls_test_expect_counts(const ls_test_count *counts, int count) {
  int wrong = 0;
  for (int c = 0; c < count; c++) {
    if (counts[c].found == counts[c].expected) continue;
    print_message("%s is %d, and %d were found\n", counts[c].name, counts[c].expected,
                  counts[c].found);
    wrong++;
  }
  if (wrong)
    fail_msg(
        "%d counts differ; where a model, a strategy or an option was added, write those found",
        wrong);
}

#endif
