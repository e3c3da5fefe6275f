#include "tokenizer/bpe_train.h"

#include <string.h>

#include "text/quote.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

enum { BYTES = 256, FIRST_SLOTS = 1 << 12, REPORT_EVERY = 256 };

/* A piece at its place in a word. What is merged into its left neighbour has id -1. */
typedef struct symbol {
  int32_t id, before, behind; /* places; -1: none */
  int32_t word;
} symbol;

typedef LS_LIST(int32_t) places;

/* Two neighbours' ids. A text becomes a piece in one way only: what is merged inside of it does not
 * depend on what is around it, as long as nothing is merged across its ends. So all places of a
 * pair come about at once, by the later one of the two merges that made its pieces, and after its
 * own merge it is never there again. */
typedef struct pair {
  uint64_t key;
  int64_t count;
  places at; /* left symbols, in order; some may be merged with others by now */
  bool queued;
} pair;

/* An entry of the queue. Its count may be less by now: it goes down in the queue then. */
typedef struct entry {
  int64_t count;
  uint64_t key;
  int32_t pair;
} entry;

typedef struct trainer {
  const ls_bpe_train_options *options;
  const ls_word_counts *counts;
  ls_arena *arena; /* for the time of the training */
  ls_vocabulary *vocabulary;
  symbol *symbols; /* [symbol_count] */
  int32_t symbol_count;
  LS_LIST(pair) pairs;
  int32_t *slots; /* hash table of pairs + 1 */
  uint32_t slot_count;
  LS_LIST(int32_t) touched; /* pairs that are not in the queue yet */
  LS_LIST(entry) queue;     /* a heap */
  LS_LIST(ls_bpe_rule) rules;
} trainer;

static uint64_t key_of(int32_t left, int32_t right) {
  return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static uint32_t hash_of(uint64_t key) {
  key *= 0x9e3779b97f4a7c15u;
  return (uint32_t)(key >> 32 ^ key >> 12);
}

static void grow_slots(trainer *self) {
  self->slot_count = self->slot_count ? 2 * self->slot_count : FIRST_SLOTS;
  self->slots = LS_NEW_ARRAY(self->arena, int32_t, self->slot_count);
  const uint32_t mask = self->slot_count - 1;
  for (int i = 0; i < self->pairs.count; i++) {
    uint32_t at = hash_of(self->pairs.items[i].key) & mask;
    while (self->slots[at]) at = (at + 1) & mask;
    self->slots[at] = i + 1;
  }
}

/* The pair of two ids, made where there is none. */
static int32_t find_pair(trainer *self, int32_t left, int32_t right) {
  const uint64_t key = key_of(left, right);
  const uint32_t mask = self->slot_count - 1;
  uint32_t at = hash_of(key) & mask;
  for (; self->slots[at]; at = (at + 1) & mask)
    if (self->pairs.items[self->slots[at] - 1].key == key) return self->slots[at] - 1;
  const int32_t made = self->pairs.count;
  *LS_APPEND(self->arena, &self->pairs) = (pair){.key = key};
  self->slots[at] = made + 1;
  if ((uint32_t)self->pairs.count > self->slot_count / 2) grow_slots(self);
  return made;
}

static void count_gone(trainer *self, int32_t left, int32_t right, int64_t times) {
  self->pairs.items[find_pair(self, left, right)].count -= times;
}

static void count_new(trainer *self, int32_t left, int32_t right, int64_t times, int32_t at) {
  const int32_t index = find_pair(self, left, right);
  pair *there = &self->pairs.items[index];
  LS_ASSERT(!there->queued);
  if (there->at.count == 0) *LS_APPEND(self->arena, &self->touched) = index;
  there->count += times;
  *LS_APPEND(self->arena, &there->at) = at;
}

/* More frequent ones first, then lower ids. */
static bool goes_before(const entry *a, const entry *b) {
  return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static void sift_down(entry *heap, int count, int at) {
  const entry moved = heap[at];
  for (;;) {
    int child = 2 * at + 1;
    if (child >= count) break;
    if (child + 1 < count && goes_before(&heap[child + 1], &heap[child])) child++;
    if (!goes_before(&heap[child], &moved)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = moved;
}

static void push(trainer *self, const entry *added) {
  (void)LS_APPEND(self->arena, &self->queue);
  entry *heap = self->queue.items;
  int at = self->queue.count - 1;
  while (at > 0 && goes_before(added, &heap[(at - 1) / 2])) {
    heap[at] = heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  heap[at] = *added;
}

static void pop(trainer *self) {
  entry *heap = self->queue.items;
  heap[0] = heap[--self->queue.count];
  if (self->queue.count > 0) sift_down(heap, self->queue.count, 0);
}

/* Pairs that the last merge made go into the queue. */
static void queue_touched(trainer *self) {
  for (int i = 0; i < self->touched.count; i++) {
    const int32_t index = self->touched.items[i];
    pair *each = &self->pairs.items[index];
    each->queued = true;
    if (each->count > 0) push(self, &(entry){each->count, each->key, index});
  }
  self->touched.count = 0;
}

/* Merges the symbol at a place with the one behind it. */
static void merge_at(trainer *self, int32_t at, int32_t made) {
  symbol *left = &self->symbols[at];
  symbol *right = &self->symbols[left->behind];
  const int64_t times = self->counts->items[left->word].count;
  const int32_t first = left->id, second = right->id;
  if (left->before >= 0) {
    const int32_t before = self->symbols[left->before].id;
    count_gone(self, before, first, times);
    count_new(self, before, made, times, left->before);
  }
  left->id = made;
  left->behind = right->behind;
  right->id = -1;
  if (left->behind < 0) return;
  symbol *behind = &self->symbols[left->behind];
  behind->before = at;
  count_gone(self, second, behind->id, times);
  count_new(self, made, behind->id, times, at);
}

static bool is_pair(const trainer *self, int32_t at, int32_t left, int32_t right) {
  const symbol *there = &self->symbols[at];
  return there->id == left && there->behind >= 0 && self->symbols[there->behind].id == right;
}

/* Places are in order: of overlapping pairs ("aaa") the left one is merged. */
static void merge_places(trainer *self, int32_t index, const ls_bpe_rule *rule) {
  const places at = self->pairs.items[index].at; /* the list of pairs may move */
  for (int i = 0; i < at.count; i++)
    if (is_pair(self, at.items[i], rule->left, rule->right))
      merge_at(self, at.items[i], rule->made);
}

/* The piece of both texts, which may be a special token. */
static ls_status make_piece(trainer *self, int32_t left, int32_t right, int32_t *made,
                            ls_error *error) {
  const ls_span a = self->vocabulary->pieces[left], b = self->vocabulary->pieces[right];
  char *text = ls_arena_alloc(self->arena, a.bytes + b.bytes);
  memcpy(text, a.text, a.bytes);
  memcpy(text + a.bytes, b.text, b.bytes);
  const ls_span both = {text, a.bytes + b.bytes};
  *made = ls_vocabulary_find(self->vocabulary, both);
  if (*made >= 0) return LS_OK;
  *made = self->vocabulary->count;
  return ls_vocabulary_add(self->vocabulary, "training", both, *made, error);
}

static ls_status merge_all(trainer *self, ls_error *error) {
  const ls_bpe_train_options *options = self->options;
  const int64_t least = options->least_count > 1 ? options->least_count : 1;
  while (self->vocabulary->count < options->pieces && self->queue.count > 0) {
    entry *top = &self->queue.items[0];
    const int64_t count = self->pairs.items[top->pair].count;
    if (top->count != count) {
      top->count = count;
      sift_down(self->queue.items, self->queue.count, 0);
      continue;
    }
    if (count < least) break;
    const int32_t merged = top->pair;
    ls_bpe_rule rule = {(int32_t)(top->key >> 32), (int32_t)(top->key & UINT32_MAX), -1};
    pop(self);
    LS_TRY(make_piece(self, rule.left, rule.right, &rule.made, error));
    *LS_APPEND(self->arena, &self->rules) = rule;
    merge_places(self, merged, &rule);
    queue_touched(self);
    if (options->progress && self->rules.count % REPORT_EVERY == 0)
      options->progress(options->context, self->vocabulary->count, options->pieces);
  }
  return LS_OK;
}

static ls_status add_special(trainer *self, ls_error *error) {
  for (int i = 0; i < self->options->special_count; i++) {
    const char *text = self->options->special[i];
    const ls_span token = {text, strlen(text)};
    ls_bytes repaired = {0};
    const bool valid = ls_unicode_repair(token, false, &repaired).text == text;
    ls_bytes_free(&repaired);
    char shown[LS_QUOTE_BYTES];
    if (!valid || token.bytes == 0 || ls_vocabulary_find(self->vocabulary, token) >= 0) {
      return ls_fail(error, LS_INPUT,
                     "special token \"%s\": found it empty, twice or not in UTF-8; expected texts "
                     "that differ",
                     ls_quote(shown, text, token.bytes));
    }
    LS_TRY(ls_vocabulary_add(self->vocabulary, "special tokens", token, i, error));
  }
  return LS_OK;
}

/* The alphabet in the order of its characters. One may be a special token already. */
static ls_status add_alphabet(trainer *self, int32_t byte_ids[BYTES], ls_error *error) {
  enum { POINTS = 0x144 };
  for (uint32_t point = 0; point < POINTS; point++) {
    const int byte = ls_byte_level_byte(point);
    if (byte < 0) continue;
    char text[4];
    const ls_span piece = {text, (size_t)ls_unicode_put(point, text)};
    byte_ids[byte] = ls_vocabulary_find(self->vocabulary, piece);
    if (byte_ids[byte] >= 0) continue;
    byte_ids[byte] = self->vocabulary->count;
    LS_TRY(ls_vocabulary_add(self->vocabulary, "alphabet", piece, byte_ids[byte], error));
  }
  return LS_OK;
}

static ls_status place_words(trainer *self, const int32_t byte_ids[BYTES], ls_error *error) {
  const ls_word_counts *counts = self->counts;
  size_t total = 0;
  for (int w = 0; w < counts->count; w++) total += counts->items[w].word.bytes;
  if (total >= INT32_MAX) {
    return ls_fail(error, LS_INPUT,
                   "the texts have %d different words of %zu bytes; expected less than 2^31: train "
                   "on a part of them",
                   counts->count, total);
  }
  self->symbol_count = (int32_t)total;
  self->symbols = LS_NEW_ARRAY(self->arena, symbol, total + 1);
  int32_t at = 0;
  for (int32_t w = 0; w < counts->count; w++) {
    const ls_span word = counts->items[w].word;
    for (size_t b = 0; b < word.bytes; b++, at++) {
      self->symbols[at] = (symbol){.id = byte_ids[(unsigned char)word.text[b]],
                                   .before = b > 0 ? at - 1 : -1,
                                   .behind = b + 1 < word.bytes ? at + 1 : -1,
                                   .word = w};
    }
  }
  return LS_OK;
}

static void count_pairs(trainer *self) {
  for (int32_t at = 0; at < self->symbol_count; at++) {
    const symbol *left = &self->symbols[at];
    if (left->behind < 0) continue;
    const int64_t times = self->counts->items[left->word].count;
    count_new(self, left->id, self->symbols[left->behind].id, times, at);
  }
  queue_touched(self);
}

static ls_status train(trainer *self, ls_error *error) {
  const ls_bpe_train_options *options = self->options;
  int32_t byte_ids[BYTES];
  if (options->pieces > LS_VOCABULARY_MOST) {
    return ls_fail(error, LS_INPUT, "found a vocabulary of %lld; expected at most %d",
                   (long long)options->pieces, LS_VOCABULARY_MOST);
  }
  LS_TRY(add_special(self, error));
  LS_TRY(add_alphabet(self, byte_ids, error));
  if (options->pieces < self->vocabulary->count) {
    return ls_fail(error, LS_INPUT,
                   "found a vocabulary of %lld; expected at least %d: 256 bytes and the special "
                   "tokens",
                   (long long)options->pieces, self->vocabulary->count);
  }
  LS_TRY(place_words(self, byte_ids, error));
  grow_slots(self);
  count_pairs(self);
  return merge_all(self, error);
}

ls_status ls_bpe_train(ls_arena *arena, const ls_word_counts *counts,
                       const ls_bpe_train_options *options, ls_bpe_trained *trained,
                       ls_error *error) {
  trainer self = {.options = options,
                  .counts = counts,
                  .arena = ls_arena_create(),
                  .vocabulary = ls_vocabulary_create(arena)};
  const ls_status status = train(&self, error);
  ls_bpe_rule *rules = LS_NEW_ARRAY(arena, ls_bpe_rule, self.rules.count + 1);
  if (self.rules.count) memcpy(rules, self.rules.items, (size_t)self.rules.count * sizeof *rules);
  *trained = (ls_bpe_trained){.vocabulary = self.vocabulary,
                              .rules = rules,
                              .rule_count = self.rules.count,
                              .special_count = options->special_count};
  ls_arena_destroy(&self.arena);
  return status;
}

ls_status ls_bpe_train_check(const ls_bpe_train_options *options, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_bpe_trained none;
  const ls_status status = ls_bpe_train(arena, ls_word_counts_create(arena), options, &none, error);
  ls_arena_destroy(&arena);
  return status;
}
