/* Under sanitizers, where a test takes three to six times as long, cases that are many of a kind
 * are thinned; the release build runs all of them (LS_RELEASE_TESTS in CMakeLists.txt), but where
 * LS_TEST_FEWER is in the environment. */
#ifndef LS_TESTS_THINNED_H
#define LS_TESTS_THINNED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LS_TEST_THINNED = 1 };
#else
enum { LS_TEST_THINNED = 0 };
#endif

static inline bool ls_test_thinned(void) {
  return LS_TEST_THINNED || getenv("LS_TEST_FEWER") != NULL;
}

/* Whether a case is left out: all but one in `of`. A prime `of` meets every value of the factors
 * that the number is made of. */
static inline bool ls_test_left_out(int64_t number, int of) {
  return ls_test_thinned() && number % of != 0;
}

/* How many of `count` cases drawn by chance are run. */
static inline int ls_test_fewer(int count, int of) {
  return ls_test_thinned() ? (count + of - 1) / of : count;
}

#endif
