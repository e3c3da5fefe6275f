/* The seed of a test program's draws.
 *
 *   seed = test_seed(20261121);
 *
 * It is the number given there, so that `make check` draws the same each time and fails or does
 * not; LS_SEED draws others (`make check-seeds`). Thread-safe: no state. */
#ifndef LS_TEST_TEST_SEED_H
#define LS_TEST_TEST_SEED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline uint64_t test_seed_untold(uint64_t usual) {
  const char *given = getenv("LS_SEED");
  return given ? strtoull(given, NULL, 10) : usual;
}

/* And says it, so that a failure can be repeated. */
static inline uint64_t test_seed(uint64_t usual) {
  const uint64_t seed = test_seed_untold(usual);
  printf("seed %llu (LS_SEED)\n", (unsigned long long)seed);
  fflush(stdout);
  return seed;
}

#endif
