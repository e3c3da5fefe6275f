#include "base/random.h"

#include "base/arena.h"
#include "base/normals.h"

typedef struct block {
  uint32_t word[4];
} block;

/* One key bump and one round, ten times, with the constants of the paper. */
static block philox(block counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; round++) {
    const uint64_t product0 = (uint64_t)0xD2511F53u * counter.word[0];
    const uint64_t product1 = (uint64_t)0xCD9E8D57u * counter.word[2];
    counter = (block){{
        (uint32_t)(product1 >> 32) ^ counter.word[1] ^ key0,
        (uint32_t)product1,
        (uint32_t)(product0 >> 32) ^ counter.word[3] ^ key1,
        (uint32_t)product0,
    }};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

/* The 128 bits of an index, as two numbers: the seed is the key, (index, stream) the counter. */
static void draw(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bits[2]) {
  const block counter = {
      {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)}};
  const block made = philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
  bits[0] = made.word[0] | (uint64_t)made.word[1] << 32;
  bits[1] = made.word[2] | (uint64_t)made.word[3] << 32;
}

uint64_t ls_random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  uint64_t bits[2];
  draw(seed, stream, index, bits);
  return bits[0];
}

double ls_random_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return (double)(ls_random_bits(seed, stream, index) >> 11) * 0x1p-53;
}

double ls_random_normal(uint64_t seed, uint64_t stream, uint64_t index) {
  uint64_t bits[2];
  draw(seed, stream, index, bits);
  return ls_normal_of(bits[0], bits[1]);
}

void ls_random_normals(uint64_t seed, uint64_t stream, uint64_t first, int64_t count,
                       double *values) {
  ls_normals_at(0)->fill(seed, stream, first, count, values);
}

uint64_t ls_random_stream(const char *name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
  return hash;
}

uint64_t ls_random_permute(uint64_t seed, uint64_t stream, uint64_t count, uint64_t index) {
  LS_ASSERT(index < count);
  /* Two halves of `half` bits each: the smallest even width that holds count - 1. */
  int half = 1;
  while (half < 32 && (count - 1) >> (2 * half)) half++;
  const uint64_t mask = ((uint64_t)1 << half) - 1;
  do {
    uint64_t left = index >> half;
    uint64_t right = index & mask;
    /* Below 8 rounds, small ranges are visibly unfair: at 6, a place of 5 is off by 9%. */
    for (uint64_t round = 0; round < 8; round++) {
      const uint64_t mixed = ls_random_bits(seed, stream, round << 32 | right);
      const uint64_t next = left ^ (mixed & mask);
      left = right;
      right = next;
    }
    index = left << half | right;
  } while (index >= count); /* walk the cycle back into the range */
  return index;
}
