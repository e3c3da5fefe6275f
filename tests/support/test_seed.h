/* The seed of a test program's draws.
 *
 *   seed = test_seed();
 *
 * Thread-safe: no state. */
#ifndef LS_TEST_TEST_SEED_H
#define LS_TEST_TEST_SEED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* LS_TEST_SEED, else another one each time; said, so that a failure can be repeated. */
static inline uint64_t test_seed(void) {
  const char *given = getenv("LS_TEST_SEED");
  const uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
  printf("seed %llu (LS_TEST_SEED repeats it)\n", (unsigned long long)seed);
  return seed;
}

#endif
