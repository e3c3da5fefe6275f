#include "data/tokenizer/word_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* Two places for each hash; the second is the older word's. English text of any length has most of
 * its words among 2^15. */
enum { SETS = 1 << 15, WAYS = 2 };

/* Most words are short and are one or two ids: an entry is one cache line. */
enum { SHORT_IDS = 6 };

typedef struct entry {
  uint64_t hash;
  uint8_t bytes, count; /* bytes 0: empty */
  char word[LS_WORD_CACHE_BYTES];
  int32_t ids[SHORT_IDS];
} entry;

struct ls_word_cache {
  entry entries[SETS][WAYS];
};

ls_word_cache *ls_word_cache_create(void) {
  ls_word_cache *cache = calloc(1, sizeof *cache);
  if (!cache) ls_panic("out of memory for a cache of words");
  return cache;
}

void ls_word_cache_free(ls_word_cache *cache) {
  free(cache);
}

bool ls_word_cache_find(const ls_word_cache *cache, ls_span word, uint64_t hash, ls_ids *ids) {
  const entry *set = cache->entries[hash % SETS];
  for (int way = 0; way < WAYS; way++) {
    const entry *each = &set[way];
    if (each->hash != hash || each->bytes != word.bytes) continue;
    if (memcmp(each->word, word.text, word.bytes) != 0) continue;
    ls_ids_reserve(ids, SHORT_IDS);
    memcpy(ids->items + ids->count, each->ids, sizeof each->ids);
    ids->count += each->count;
    return true;
  }
  return false;
}

void ls_word_cache_keep(ls_word_cache *cache, ls_span word, uint64_t hash, const int32_t *ids,
                        int64_t count) {
  if (word.bytes > LS_WORD_CACHE_BYTES || count > SHORT_IDS) return;
  entry *set = cache->entries[hash % SETS];
  set[1] = set[0];
  set[0] = (entry){.hash = hash, .bytes = (uint8_t)word.bytes, .count = (uint8_t)count};
  memcpy(set[0].word, word.text, word.bytes);
  memcpy(set[0].ids, ids, (size_t)count * sizeof *ids);
}
