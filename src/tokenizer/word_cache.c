#include "tokenizer/word_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* Two places for each hash; the second is the older word's. Most words of a text are among the
 * 2^16 that were met last. */
enum { SETS = 1 << 15, WAYS = 2 };

/* Most words are short and are one or two ids: an entry is one cache line. */
enum { SHORT_IDS = 8 };

typedef struct entry {
  uint64_t part[3];
  uint32_t bytes, count; /* bytes 0: empty */
  int32_t ids[SHORT_IDS];
} entry;
_Static_assert(sizeof(entry) == 64, "an entry is a cache line");

struct ls_word_cache {
  entry entries[SETS][WAYS];
};

ls_word_cache *ls_word_cache_create(void) {
  ls_word_cache *cache = calloc(1, sizeof *cache);
  if (!cache) ls_out_of_memory(sizeof *cache);
  return cache;
}

void ls_word_cache_free(ls_word_cache *cache) {
  free(cache);
}

static bool is_word(const entry *kept, const ls_word_key *word) {
  return kept->bytes == word->bytes && kept->part[0] == word->part[0] &&
         kept->part[1] == word->part[1] && kept->part[2] == word->part[2];
}

bool ls_word_cache_find(const ls_word_cache *cache, const ls_word_key *word, ls_ids *ids) {
  const entry *set = cache->entries[word->hash % SETS];
  const entry *found = is_word(&set[0], word) ? &set[0] : &set[1];
  if (found == &set[1] && !is_word(found, word)) return false;
  if (ids->capacity - ids->count < SHORT_IDS) ls_ids_reserve(ids, SHORT_IDS);
  memcpy(ids->items + ids->count, found->ids, sizeof found->ids);
  ids->count += found->count;
  return true;
}

void ls_word_cache_keep(ls_word_cache *cache, const ls_word_key *word, const int32_t *ids,
                        int64_t count) {
  if (count > SHORT_IDS) return;
  entry *set = cache->entries[word->hash % SETS];
  set[1] = set[0];
  memcpy(set[0].part, word->part, sizeof word->part);
  set[0].bytes = (uint32_t)word->bytes;
  set[0].count = (uint32_t)count;
  if (count) memcpy(set[0].ids, ids, (size_t)count * sizeof *ids);
}
