/* Which elements dropout keeps: a function of the token, the place in the model and the column, so
 * that every layout, slice, recomputation and device has the same mask, and none is kept.
 *
 *   const uint32_t row = ls_mask_row(draw, attributes->site, 0);
 *   if (ls_mask_keeps(row, column, ls_mask_limit(attributes->dropout))) ...
 *
 * A token's draw is a random number of 32 bits (session/inputs.h): a new one in each step. Columns
 * count through the whole tensor, heads through all query heads. Of attention's probabilities the
 * column is the key's place in its sequence. */
#ifndef LS_DEVICE_MASK_H
#define LS_DEVICE_MASK_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define LS_MASK_INLINE __device__ static inline
#else
#define LS_MASK_INLINE static inline
#endif

/* The end of MurmurHash3 (Austin Appleby): each bit of x changes each bit of the result with a
 * probability of one half. */
LS_MASK_INLINE uint32_t ls_mask_mix(uint32_t x) {
  x = (x ^ x >> 16) * 0x85ebca6bu;
  x = (x ^ x >> 13) * 0xc2b2ae35u;
  return x ^ x >> 16;
}

/* `head`: of attention, else 0. */
LS_MASK_INLINE uint32_t ls_mask_row(int32_t draw, int64_t site, int64_t head) {
  const uint32_t where = (uint32_t)site * 0x9e3779b9u + (uint32_t)head * 0x7feb352du;
  return ls_mask_mix((uint32_t)draw ^ ls_mask_mix(where));
}

/* What stays is as likely as 1 - rate, to 2^-32. */
LS_MASK_INLINE uint32_t ls_mask_limit(double rate) {
  return (uint32_t)(rate * 0x1p32);
}

LS_MASK_INLINE bool ls_mask_keeps(uint32_t row, uint32_t column, uint32_t limit) {
  return ls_mask_mix(row ^ column * 0x9e3779b9u) >= limit;
}

#endif
