/* Normal random numbers by the thousand: what ls_random_normals is made of, in one form for each
 * instruction set. All give the same bits.
 *
 *   double values[1000];
 *   ls_normals_at(0)->fill(seed, stream, first, 1000, values);
 *
 * Thread-safe: no state. */
#ifndef LS_BASE_NORMALS_H
#define LS_BASE_NORMALS_H

#include <stdbool.h>
#include <stdint.h>

/* values[i] = ls_random_normal(seed, stream, first + i) */
typedef void (*ls_normals_fill)(uint64_t seed, uint64_t stream, uint64_t first, int64_t count,
                                double *values);

typedef struct ls_normals_set {
  const char *name; /* "avx512" */
  ls_normals_fill fill;
} ls_normals_set;

/* Set `index` of those that this processor runs, the widest first; NULL beyond the last, which is
 * plain. */
const ls_normals_set *ls_normals_at(int index);

/* The normal that the 128 bits of an index are, by Box and Muller: sqrt(-2 log u) cos(2 pi v), with
 * u in (0, 1] of the first 53 bits and v in [0, 1) of the second. Within 5e-16 of the value's
 * size of what is exact. */
double ls_normal_of(uint64_t radius_bits, uint64_t turn_bits);

#endif
