#include "data/tokenizer/bpe.h"

#include <string.h>

#include "data/tokenizer/unicode.h"
#include "data/tokenizer/word_cache.h"

/* Up to so many symbols the next pair is found by looking at all: a word's worth, in one or two
 * cache lines; beyond, a heap finds it. */
enum { SHORT = 48 };

#define NO_RANK UINT32_MAX
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
};

ls_bpe *ls_bpe_create(ls_arena *arena, const ls_bpe_options *options, int64_t merges) {
  ls_bpe *made = LS_NEW(arena, ls_bpe);
  made->options = *options;
  int bits = 4;
  while ((int64_t)1 << bits < 2 * merges) bits++;
  made->mask = ((uint64_t)1 << bits) - 1;
  made->shift = 64 - bits;
  made->merges = LS_NEW_ARRAY(arena, merge, made->mask + 1);
  for (uint64_t i = 0; i <= made->mask; i++) made->merges[i].pair = NO_PAIR;
  return made;
}

static merge *find_merge(const ls_bpe *bpe, int32_t left, int32_t right) {
  const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  uint64_t at = (pair * 0x9e3779b97f4a7c15u) >> bpe->shift;
  while (bpe->merges[at].pair != pair && bpe->merges[at].pair != NO_PAIR) at = (at + 1) & bpe->mask;
  return &bpe->merges[at];
}

void ls_bpe_add_merge(ls_bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t made) {
  merge *at = find_merge(bpe, left, right);
  *at = (merge){(uint64_t)(uint32_t)left << 32 | (uint32_t)right, rank, made};
}

void ls_bpe_work_free(ls_bpe_work *work) {
  ls_bytes_free(&work->symbols);
  ls_bytes_free(&work->heap);
  ls_word_cache_free(work->cache);
  *work = (ls_bpe_work){0};
}

/* A symbol of the word. In short words `rank` and `made` are of the pair it begins. */
typedef struct symbol {
  int32_t id; /* -1: a character that nothing begins with */
  uint32_t bytes;
  uint32_t rank; /* in long words: the place before */
  int32_t made;  /* in long words: the place behind, the count where there is none */
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

static void rank_pair(const ls_bpe *bpe, symbol *left, const symbol *right) {
  const merge *found = find_merge(bpe, left->id, right->id);
  left->rank = found->pair == NO_PAIR ? NO_RANK : found->rank;
  left->made = found->made;
}

/* Looks at all pairs for each merge. Returns how many symbols are left. */
static size_t merge_short(const ls_bpe *bpe, symbol *symbols, size_t count) {
  for (size_t i = 0; i + 1 < count; i++) rank_pair(bpe, &symbols[i], &symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; i++) {
      if (symbols[i].rank < symbols[best].rank) best = i;
    }
    if (symbols[best].rank == NO_RANK) break;
    symbols[best].id = symbols[best].made;
    symbols[best].bytes += symbols[best + 1].bytes;
    memmove(&symbols[best + 1], &symbols[best + 2], (count - best - 2) * sizeof *symbols);
    count--;
    if (best + 1 < count) rank_pair(bpe, &symbols[best], &symbols[best + 1]);
    if (best > 0) rank_pair(bpe, &symbols[best - 1], &symbols[best]);
  }
  return count;
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
  if (found->pair == NO_PAIR) return;
  heap_push(heap, &(candidate){(uint64_t)found->rank << 32 | left, symbols[left].id,
                               symbols[right].id, found->made, right});
}

/* Symbols as a list with places before (rank) and behind (made); a merged one has no bytes. */
static size_t merge_long(const ls_bpe *bpe, ls_bytes *heap, symbol *symbols, size_t count) {
  heap->count = 0;
  for (uint32_t i = 0; i < count; i++) {
    symbols[i].rank = i ? i - 1 : NO_RANK;
    symbols[i].made = (int32_t)i + 1;
    if (i + 1 < count) push_pair(bpe, heap, symbols, i, i + 1);
  }
  while (heap->count) {
    const candidate next = heap_pop(heap);
    const uint32_t place = (uint32_t)next.order;
    symbol *left = &symbols[place], *right = &symbols[next.behind];
    /* Either may have been merged since with something else. */
    if (!left->bytes || !right->bytes || left->id != next.left || right->id != next.right ||
        (uint32_t)left->made != next.behind) {
      continue;
    }
    left->id = next.made;
    left->bytes += right->bytes;
    left->made = right->made;
    right->bytes = 0;
    if ((size_t)left->made < count) {
      symbols[left->made].rank = place;
      push_pair(bpe, heap, symbols, place, (uint32_t)left->made);
    }
    if (left->rank != NO_RANK) push_pair(bpe, heap, symbols, left->rank, place);
  }
  size_t kept = 0;
  for (size_t i = 0; i < count; i = (size_t)symbols[i].made) symbols[kept++] = symbols[i];
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
  if (count <= SHORT) {
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
  const uint64_t hash = kept ? ls_vocabulary_hash(word) : 0;
  if (kept) {
    if (!work->cache) work->cache = ls_word_cache_create();
    if (ls_word_cache_find(work->cache, word, hash, ids)) return;
  }
  const int64_t before = ids->count;
  const int32_t whole = bpe->options.whole ? ls_vocabulary_find(bpe->options.whole, word) : -1;
  if (whole >= 0) {
    ls_ids_push(ids, whole);
  } else {
    encode_word(bpe, work, word, ids);
  }
  if (kept) {
    ls_word_cache_keep(work->cache, word, hash, ids->items + before, ids->count - before);
  }
}
