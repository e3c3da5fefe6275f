/* Running fingerprints of 64 bits: of texts, documents and the blocks of a token file.
 *
 *   uint64_t hash = ls_random_stream("what it is of");
 *   hash = ls_fingerprint_bytes(hash, data, bytes);
 *
 * They find changes and damage; they do not resist an adversary. Thread-safe: no state. */
#ifndef LS_DATA_FINGERPRINT_H
#define LS_DATA_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* One word more. */
static inline uint64_t ls_fingerprint_word(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

/* A piece of bytes more. Other cuts into pieces give another fingerprint. */
static inline uint64_t ls_fingerprint_bytes(uint64_t hash, const void *data, size_t bytes) {
  const char *from = data;
  const size_t words = bytes / sizeof(uint64_t);
  for (size_t i = 0; i < words; i++) {
    uint64_t word;
    memcpy(&word, from + i * sizeof word, sizeof word);
    hash = ls_fingerprint_word(hash, word);
  }
  uint64_t last = 0;
  if (bytes % sizeof last) memcpy(&last, from + words * sizeof last, bytes % sizeof last);
  return ls_fingerprint_word(ls_fingerprint_word(hash, last), bytes);
}

/* Spreads a fingerprint over all 64 bits, so that any of them serve as a draw (the finalizer of
 * splitmix64: Steele, Lea, Flood, OOPSLA 2014). */
static inline uint64_t ls_fingerprint_spread(uint64_t hash) {
  hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ hash >> 27) * 0x94d049bb133111ebu;
  return hash ^ hash >> 31;
}

/* The fingerprint that was spread: each step undone, the factors being odd. */
static inline uint64_t ls_fingerprint_unspread(uint64_t hash) {
  hash = (hash ^ hash >> 31 ^ hash >> 62) * 0x319642b2d24d8ec3u;
  hash = (hash ^ hash >> 27 ^ hash >> 54) * 0x96de1b173f119089u;
  return hash ^ hash >> 30 ^ hash >> 60;
}

#endif
