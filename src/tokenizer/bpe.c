#include "tokenizer/bpe.h"

#include <string.h>

#include "tokenizer/unicode.h"
#include "tokenizer/word_cache.h"

/* Up to so many symbols the next pair is found by looking at all their ranks, which a processor
 * compares four or more at once; beyond, a heap finds it. */
enum { SHORT = 160, LANES = 8 };

enum { FILTER_BITS = 3 }; /* the filter has 2^3 bits for each place of the table */

/* In a short word rank and place are one number; greater ranks make every word a long one. */
enum { PLACE_BITS = 8, SHORT_RANKS = INT32_MAX >> PLACE_BITS };
_Static_assert(SHORT < 1 << PLACE_BITS, "places fit");

#define NO_ORDER INT32_MAX
#define NO_PLACE UINT32_MAX
#define NO_PAIR UINT64_MAX

typedef struct merge {
  uint64_t pair; /* left, right */
  uint32_t rank;
  int32_t made;
} merge;

struct ls_bpe {
  ls_bpe_options options;
  merge *merges; /* hash table */
  uint64_t mask;
  int shift;
  bool no_short;    /* ranks are too great for the short words' way */
  uint64_t *filter; /* a bit for each hash that a pair has: most pairs of neighbours are none, and
                       this is a tenth of the table's size */
};

ls_bpe *ls_bpe_create(ls_arena *arena, const ls_bpe_options *options, int64_t merges) {
  ls_bpe *made = LS_NEW(arena, ls_bpe);
  made->options = *options;
  int bits = 4;
  while ((int64_t)1 << bits < 2 * merges) bits++;
  made->mask = ((uint64_t)1 << bits) - 1;
  made->shift = 64 - bits;
  made->merges = LS_NEW_ARRAY(arena, merge, made->mask + 1);
  made->filter = LS_NEW_ARRAY(arena, uint64_t, ((made->mask + 1) << FILTER_BITS) / 64 + 1);
  for (uint64_t i = 0; i <= made->mask; i++) made->merges[i].pair = NO_PAIR;
  return made;
}

static uint64_t hash_pair(uint64_t pair) {
  return (pair ^ pair >> 32) * 0x9e3779b97f4a7c15u;
}

/* The pair's place in the table, or the free one where it would go. */
static merge *find_place(const ls_bpe *bpe, uint64_t pair) {
  uint64_t at = hash_pair(pair) >> bpe->shift;
  while (bpe->merges[at].pair != pair && bpe->merges[at].pair != NO_PAIR) at = (at + 1) & bpe->mask;
  return &bpe->merges[at];
}

/* NULL: the two are not merged. */
static const merge *find_merge(const ls_bpe *bpe, int32_t left, int32_t right) {
  const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  const uint64_t bit = hash_pair(pair) >> (bpe->shift - FILTER_BITS);
  if (!(bpe->filter[bit / 64] >> bit % 64 & 1)) return NULL;
  const merge *found = find_place(bpe, pair);
  return found->pair == NO_PAIR ? NULL : found;
}

void ls_bpe_add_merge(ls_bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t made) {
  const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  const uint64_t bit = hash_pair(pair) >> (bpe->shift - FILTER_BITS);
  if (rank >= SHORT_RANKS) bpe->no_short = true;
  *find_place(bpe, pair) = (merge){pair, rank, made};
  bpe->filter[bit / 64] |= (uint64_t)1 << bit % 64;
}

void ls_bpe_work_free(ls_bpe_work *work) {
  ls_bytes_free(&work->symbols);
  ls_bytes_free(&work->heap);
  ls_word_cache_free(work->cache);
  *work = (ls_bpe_work){0};
}

typedef struct symbol {
  int32_t id; /* -1: a character that nothing begins with */
  uint32_t bytes;
  uint32_t before; /* in long words: the place before, NO_PLACE where there is none */
  uint32_t behind; /* in long words: the place behind, the count where there is none */
} symbol;

static symbol *push_symbol(ls_bytes *list, int32_t id, size_t bytes) {
  if (list->capacity - list->count < sizeof(symbol)) ls_bytes_reserve(list, sizeof(symbol));
  symbol *made = (symbol *)(void *)(list->data + list->count);
  *made = (symbol){.id = id, .bytes = (uint32_t)bytes};
  list->count += sizeof *made;
  return made;
}

/* Characters that are no symbol, as Hugging Face's library has them: bytes where all of them are
 * pieces, else the unknown piece, put in when the next known character comes. */
typedef struct unknowns {
  bool waiting;
  uint32_t bytes;
} unknowns;

static void put_unknown(const ls_bpe *bpe, ls_bytes *list, unknowns *state) {
  if (state->waiting) push_symbol(list, bpe->options.unknown, state->bytes);
  *state = (unknowns){0};
}

static bool put_bytes(const ls_bpe *bpe, ls_bytes *list, ls_span character) {
  const int32_t *ids = bpe->options.byte_ids;
  if (!ids) return false;
  for (size_t i = 0; i < character.bytes; i++) {
    if (ids[(unsigned char)character.text[i]] < 0) return false;
  }
  for (size_t i = 0; i < character.bytes; i++) {
    push_symbol(list, ids[(unsigned char)character.text[i]], 1);
  }
  return true;
}

static void list_characters(const ls_bpe *bpe, ls_bytes *list, ls_span word) {
  const ls_bpe_options *options = &bpe->options;
  unknowns state = {0};
  for (const char *at = word.text, *end = at + word.bytes; at < end;) {
    ls_span character = {at, 0};
    ls_unicode_next(&at);
    character.bytes = (size_t)(at - character.text);
    const int32_t id = ls_vocabulary_find(options->symbols, character);
    if (id >= 0 || options->fall_back_last) {
      put_unknown(bpe, list, &state);
      push_symbol(list, id, character.bytes);
    } else if (!put_bytes(bpe, list, character) && options->unknown >= 0) {
      if (!options->fuse_unknown) put_unknown(bpe, list, &state);
      state.waiting = true;
      state.bytes += (uint32_t)character.bytes;
    }
  }
  put_unknown(bpe, list, &state);
}

static void list_symbols(const ls_bpe *bpe, ls_bytes *list, ls_span word) {
  list->count = 0;
  if (!bpe->options.byte_symbols) {
    list_characters(bpe, list, word);
    return;
  }
  ls_bytes_reserve(list, word.bytes * sizeof(symbol));
  for (size_t i = 0; i < word.bytes; i++) {
    const int32_t id = bpe->options.byte_symbols[(unsigned char)word.text[i]];
    if (id >= 0) push_symbol(list, id, 1);
  }
}

/* A short word: what is asked of all symbols at once, apart. A merged symbol's place stays, without
 * an order; `before` and `behind` lead over it. */
typedef struct short_word {
  int32_t order[SHORT]; /* rank and place of the pair with the symbol behind */
  int32_t made[SHORT];
  int32_t id[SHORT];
  uint8_t before[SHORT], behind[SHORT];
} short_word;

static void rank_pair(const ls_bpe *bpe, short_word *word, size_t left, size_t right) {
  const merge *found = find_merge(bpe, word->id[left], word->id[right]);
  word->order[left] = found ? (int32_t)(found->rank << PLACE_BITS | left) : NO_ORDER;
  word->made[left] = found ? found->made : -1;
}

typedef int32_t lanes __attribute__((vector_size(16)));

static lanes lower_of(lanes a, lanes b) {
  const lanes less = a < b;
  return (a & less) | (b & ~less);
}

/* Two running minima of four lanes each: one would wait for itself. */
static int32_t lowest_order(const int32_t *order, size_t padded) {
  lanes even, odd, next;
  memcpy(&even, order, sizeof even);
  memcpy(&odd, order + LANES / 2, sizeof odd);
  for (size_t i = LANES; i < padded; i += LANES) {
    memcpy(&next, order + i, sizeof next);
    even = lower_of(even, next);
    memcpy(&next, order + i + LANES / 2, sizeof next);
    odd = lower_of(odd, next);
  }
  even = lower_of(even, odd);
  const int32_t low = even[0] < even[1] ? even[0] : even[1];
  const int32_t high = even[2] < even[3] ? even[2] : even[3];
  return low < high ? low : high;
}

/* Returns how many symbols are left. */
static size_t merge_short(const ls_bpe *bpe, symbol *symbols, size_t count) {
  short_word word;
  const size_t padded = (count + LANES - 1) / LANES * LANES;
  for (size_t i = 0; i < count; i++) {
    word.id[i] = symbols[i].id;
    word.before[i] = (uint8_t)(i - 1);
    word.behind[i] = (uint8_t)(i + 1);
  }
  for (size_t i = count - 1; i < padded; i++) word.order[i] = NO_ORDER;
  for (size_t i = 0; i + 1 < count; i++) rank_pair(bpe, &word, i, i + 1);
  for (;;) {
    const int32_t lowest = lowest_order(word.order, padded);
    if (lowest == NO_ORDER) break;
    const size_t left = (size_t)lowest & (((size_t)1 << PLACE_BITS) - 1);
    const size_t right = word.behind[left], behind = word.behind[right];
    word.id[left] = word.made[left];
    word.behind[left] = (uint8_t)behind;
    word.order[right] = word.order[left] = NO_ORDER;
    symbols[left].bytes += symbols[right].bytes;
    if (behind < count) {
      word.before[behind] = (uint8_t)left;
      rank_pair(bpe, &word, left, behind);
    }
    if (left > 0) rank_pair(bpe, &word, word.before[left], left);
  }
  size_t kept = 0;
  for (size_t i = 0; i < count; i = word.behind[i]) {
    symbols[kept++] = (symbol){.id = word.id[i], .bytes = symbols[i].bytes};
  }
  return kept;
}

/* A pair that may be merged: the lowest rank first, of equal ones the leftmost. */
typedef struct candidate {
  uint64_t order; /* rank, place */
  int32_t left, right, made;
  uint32_t behind; /* the place of the right symbol */
} candidate;

static void heap_push(ls_bytes *heap, const candidate *added) {
  ls_bytes_reserve(heap, sizeof *added);
  candidate *items = (candidate *)(void *)heap->data;
  size_t at = heap->count / sizeof *added;
  heap->count += sizeof *added;
  while (at > 0) {
    const size_t parent = (at - 1) / 2;
    if (items[parent].order <= added->order) break;
    items[at] = items[parent];
    at = parent;
  }
  items[at] = *added;
}

static candidate heap_pop(ls_bytes *heap) {
  candidate *items = (candidate *)(void *)heap->data;
  const candidate first = items[0];
  heap->count -= sizeof first;
  const size_t count = heap->count / sizeof first;
  const candidate last = items[count];
  size_t at = 0;
  for (size_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && items[child + 1].order < items[child].order) child++;
    if (last.order <= items[child].order) break;
    items[at] = items[child];
  }
  items[at] = last;
  return first;
}

static void push_pair(const ls_bpe *bpe, ls_bytes *heap, const symbol *symbols, uint32_t left,
                      uint32_t right) {
  const merge *found = find_merge(bpe, symbols[left].id, symbols[right].id);
  if (!found) return;
  heap_push(heap, &(candidate){(uint64_t)found->rank << 32 | left, symbols[left].id,
                               symbols[right].id, found->made, right});
}

/* A merged symbol has no bytes. */
static size_t merge_long(const ls_bpe *bpe, ls_bytes *heap, symbol *symbols, size_t count) {
  heap->count = 0;
  for (uint32_t i = 0; i < count; i++) {
    symbols[i].before = i ? i - 1 : NO_PLACE;
    symbols[i].behind = i + 1;
    if (i + 1 < count) push_pair(bpe, heap, symbols, i, i + 1);
  }
  while (heap->count) {
    const candidate next = heap_pop(heap);
    const uint32_t place = (uint32_t)next.order;
    symbol *left = &symbols[place], *right = &symbols[next.behind];
    /* Either may have been merged since with something else. */
    if (!left->bytes || !right->bytes || left->id != next.left || right->id != next.right ||
        left->behind != next.behind) {
      continue;
    }
    left->id = next.made;
    left->bytes += right->bytes;
    left->behind = right->behind;
    right->bytes = 0;
    if (left->behind < count) {
      symbols[left->behind].before = place;
      push_pair(bpe, heap, symbols, place, left->behind);
    }
    if (left->before != NO_PLACE) push_pair(bpe, heap, symbols, left->before, place);
  }
  size_t kept = 0;
  for (size_t i = 0; i < count; i = symbols[i].behind) symbols[kept++] = symbols[i];
  return kept;
}

/* Ids of what no merge made a piece, as SentencePiece has them: bytes, or one unknown for all in a
 * row. */
static void put_ids(const ls_bpe *bpe, const symbol *symbols, size_t count, const char *text,
                    ls_ids *ids) {
  const ls_bpe_options *options = &bpe->options;
  bool was_unknown = false;
  for (size_t i = 0; i < count; text += symbols[i++].bytes) {
    if (symbols[i].id >= 0 && symbols[i].id < options->pieces) {
      ls_ids_push(ids, symbols[i].id);
      was_unknown = false;
      continue;
    }
    if (options->byte_ids) {
      for (uint32_t b = 0; b < symbols[i].bytes; b++) {
        ls_ids_push(ids, options->byte_ids[(unsigned char)text[b]]);
      }
    } else if (!was_unknown) {
      ls_ids_push(ids, options->unknown);
      was_unknown = true;
    }
  }
}

static void encode_word(const ls_bpe *bpe, ls_bpe_work *work, ls_span word, ls_ids *ids) {
  list_symbols(bpe, &work->symbols, word);
  symbol *symbols = (symbol *)(void *)work->symbols.data;
  size_t count = work->symbols.count / sizeof *symbols;
  if (count < 2) {
    /* nothing to merge */
  } else if (count <= SHORT && !bpe->no_short) {
    count = merge_short(bpe, symbols, count);
  } else {
    count = merge_long(bpe, &work->heap, symbols, count);
  }
  if (bpe->options.fall_back_last) {
    put_ids(bpe, symbols, count, word.text, ids);
    return;
  }
  ls_ids_reserve(ids, (int64_t)count);
  for (size_t i = 0; i < count; i++) ids->items[ids->count++] = symbols[i].id;
}

void ls_bpe_encode(const ls_bpe *bpe, ls_bpe_work *work, ls_span word, ls_ids *ids) {
  if (!word.bytes) return;
  const bool kept = word.bytes <= LS_WORD_CACHE_BYTES;
  ls_word_key key = {0};
  if (kept) {
    key = ls_word_key_of(word);
    if (!work->cache) work->cache = ls_word_cache_create();
    if (ls_word_cache_find(work->cache, &key, ids)) return;
  }
  const int64_t before = ids->count;
  const int32_t whole = bpe->options.whole ? ls_vocabulary_find(bpe->options.whole, word) : -1;
  if (whole >= 0) {
    ls_ids_push(ids, whole);
  } else {
    encode_word(bpe, work, word, ids);
  }
  if (kept) {
    ls_word_cache_keep(work->cache, &key, ids->items + before, ids->count - before);
  }
}
