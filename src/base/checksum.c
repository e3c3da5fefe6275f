#include "base/checksum.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { WORD = 4, BLOCK_WORDS = 4096 };

/* Places within a block are small, so that their products need no 64-bit multiplication. */
static void add_block(ls_checksum *sum, uint64_t first, const unsigned char *data, size_t words) {
  uint64_t total = 0, placed = 0;
#pragma omp simd reduction(+ : total, placed)
  for (size_t i = 0; i < words; i++) {
    uint32_t word;
    memcpy(&word, data + i * WORD, WORD);
    total += word;
    placed += (uint64_t)word * (uint32_t)(i + 1);
  }
  sum->words += total;
  sum->places += placed + first * total;
}

/* Bytes of one word: its others are zero here and in somebody else's sum. */
static void add_part(ls_checksum *sum, uint64_t offset, const unsigned char *data, size_t bytes) {
  unsigned char word[WORD] = {0};
  if (bytes == 0) return;
  memcpy(word + offset % WORD, data, bytes);
  add_block(sum, offset / WORD, word, 1);
}

void ls_checksum_add(ls_checksum *sum, uint64_t offset, const void *data, size_t bytes) {
  const unsigned char *at = data;
  size_t head = (size_t)(-offset % WORD);
  if (head > bytes) head = bytes;
  add_part(sum, offset, at, head);
  at += head, offset += head, bytes -= head;
  while (bytes >= WORD) {
    const size_t left = bytes / WORD, words = left < BLOCK_WORDS ? left : BLOCK_WORDS;
    add_block(sum, offset / WORD, at, words);
    at += words * WORD, offset += words * WORD, bytes -= words * WORD;
  }
  add_part(sum, offset, at, bytes);
}

void ls_checksum_join(ls_checksum *sum, const ls_checksum *other) {
  sum->words += other->words;
  sum->places += other->places;
}

void ls_checksum_text(const ls_checksum *sum, char text[LS_CHECKSUM_DIGITS + 1]) {
  snprintf(text, LS_CHECKSUM_DIGITS + 1, "%016" PRIx64 "%016" PRIx64, sum->words, sum->places);
}
