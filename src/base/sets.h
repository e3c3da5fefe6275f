/* Sets of small whole numbers as bits: number c is bit c % 32 of word c / 32.
 *
 *   int32_t set[ls_set_words(100)];   // zeroed
 *   ls_set_add(set, 64);
 *   if (ls_set_has(set, 64)) ...
 *
 * Thread-safe: no state. */
#ifndef LS_BASE_SETS_H
#define LS_BASE_SETS_H

#include <stdbool.h>
#include <stdint.h>

/* Words of a set of numbers below `count`. */
static inline int64_t ls_set_words(int64_t count) {
  return (count + 31) / 32;
}

static inline bool ls_set_has(const int32_t *set, int64_t number) {
  return (uint32_t)set[number >> 5] >> (number & 31) & 1;
}

static inline void ls_set_add(int32_t *set, int64_t number) {
  set[number >> 5] = (int32_t)((uint32_t)set[number >> 5] | UINT32_C(1) << (number & 31));
}

#endif
