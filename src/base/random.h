/* Counter-based random numbers: a value is a function of (seed, stream, index) alone, so any rank
 * makes any element without making those before it.
 *
 * Generator: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011). Thread-safe: no state. */
#ifndef LS_BASE_RANDOM_H
#define LS_BASE_RANDOM_H

#include <stdint.h>

uint64_t ls_random_bits(uint64_t seed, uint64_t stream, uint64_t index);

/* Uniform in [0, 1), 53 bits. */
double ls_random_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/* Normal with mean 0 and deviation 1 (Box-Muller over two uniforms of this index), the same
 * bits on every processor. */
double ls_random_normal(uint64_t seed, uint64_t stream, uint64_t index);

/* The normals of indices [first, first + count), bit for bit, at a tenth of the time. */
void ls_random_normals(uint64_t seed, uint64_t stream, uint64_t first, int64_t count,
                       double *values);

/* A stream number for a name: FNV-1a of its bytes. */
uint64_t ls_random_stream(const char *name);

/* Place of `index` in a permutation of [0, count) chosen by (seed, stream); a Feistel network with
 * cycle walking, so nothing is stored. */
uint64_t ls_random_permute(uint64_t seed, uint64_t stream, uint64_t count, uint64_t index);

#endif
