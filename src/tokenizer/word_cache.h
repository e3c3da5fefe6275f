/* The words an encoder met lately, with their ids. Used by bpe.c alone; one thread at a time. */
#ifndef LS_TOKENIZER_WORD_CACHE_H
#define LS_TOKENIZER_WORD_CACHE_H

#include <string.h>

#include "tokenizer/token_buffer.h"

enum { LS_WORD_CACHE_BYTES = 24 }; /* longer words are not kept */

typedef struct ls_word_cache ls_word_cache;

ls_word_cache *ls_word_cache_create(void);
void ls_word_cache_free(ls_word_cache *cache);

/* A word of 1 to LS_WORD_CACHE_BYTES bytes in three numbers, which with its length tell it from all
 * others. */
typedef struct ls_word_key {
  uint64_t part[3];
  uint64_t hash;
  size_t bytes;
} ls_word_key;

static inline uint64_t ls_word_load(const char *from, size_t bytes) {
  uint64_t value = 0;
  memcpy(&value, from, bytes);
  return value;
}

/* Loads overlap where the length is no power of two: together with it they still say it all. */
static inline ls_word_key ls_word_key_of(ls_span word) {
  const char *text = word.text;
  const size_t bytes = word.bytes;
  ls_word_key key = {.bytes = bytes};
  if (bytes > 8) {
    key.part[0] = ls_word_load(text, 8);
    key.part[1] = ls_word_load(text + bytes - 8, 8);
    if (bytes > 16) key.part[2] = ls_word_load(text + 8, 8);
  } else if (bytes >= 4) {
    key.part[0] = ls_word_load(text, 4) | ls_word_load(text + bytes - 4, 4) << 32;
  } else {
    key.part[0] = ls_word_load(text, 1) | ls_word_load(text + bytes / 2, 1) << 8 |
                  ls_word_load(text + bytes - 1, 1) << 16;
  }
  uint64_t hash = (key.part[0] ^ bytes) * 0x9e3779b97f4a7c15u;
  hash = (hash ^ hash >> 29 ^ key.part[1]) * 0xff51afd7ed558ccdu;
  hash = (hash ^ hash >> 31 ^ key.part[2]) * 0xc4ceb9fe1a85ec53u;
  key.hash = hash ^ hash >> 33;
  return key;
}

/* Appends the ids of a word that is kept; false where it is not. */
bool ls_word_cache_find(const ls_word_cache *cache, const ls_word_key *word, ls_ids *ids);

/* Keeps a word, in place of what was kept where its hash leads. */
void ls_word_cache_keep(ls_word_cache *cache, const ls_word_key *word, const int32_t *ids,
                        int64_t count);

#endif
