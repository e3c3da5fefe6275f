#include "tokenizer/word_counts.h"

#include <string.h>

#include "tokenizer/vocabulary.h"

enum { FIRST_SLOTS = 1 << 12 };

ls_word_counts *ls_word_counts_create(ls_arena *arena) {
  ls_word_counts *made = LS_NEW(arena, ls_word_counts);
  made->arena = arena;
  made->slot_count = FIRST_SLOTS;
  made->slots = LS_NEW_ARRAY(arena, uint64_t, FIRST_SLOTS);
  return made;
}

static uint64_t slot_of(uint64_t hash, int index) {
  return (hash & ~(uint64_t)UINT32_MAX) | ((uint64_t)index + 1);
}

static int index_of(uint64_t slot) {
  return (int)((slot & UINT32_MAX) - 1);
}

static void grow_slots(ls_word_counts *self) {
  self->slot_count *= 2;
  self->slots = LS_NEW_ARRAY(self->arena, uint64_t, self->slot_count);
  const uint32_t mask = self->slot_count - 1;
  for (int i = 0; i < self->count; i++) {
    const uint64_t hash = ls_vocabulary_hash(self->items[i].word);
    uint32_t at = (uint32_t)hash & mask;
    while (self->slots[at]) at = (at + 1) & mask;
    self->slots[at] = slot_of(hash, i);
  }
}

void ls_word_counts_add(ls_word_counts *self, ls_span word, int64_t times) {
  const uint64_t hash = ls_vocabulary_hash(word);
  const uint32_t mask = self->slot_count - 1;
  uint32_t at = (uint32_t)hash & mask;
  for (; self->slots[at]; at = (at + 1) & mask) {
    if ((self->slots[at] ^ hash) >> 32) continue;
    ls_counted_word *there = &self->items[index_of(self->slots[at])];
    if (there->word.bytes != word.bytes) continue;
    if (memcmp(there->word.text, word.text, word.bytes) != 0) continue;
    there->count += times;
    return;
  }
  char *text = ls_arena_alloc(self->arena, word.bytes);
  memcpy(text, word.text, word.bytes);
  self->slots[at] = slot_of(hash, self->count);
  *LS_APPEND(self->arena, self) = (ls_counted_word){{text, word.bytes}, times};
  if ((uint32_t)self->count > self->slot_count / 2) grow_slots(self);
}
