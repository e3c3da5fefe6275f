#include "tokenizer/vocabulary.h"

#include <string.h>

#include "text/quote.h"

enum { FIRST_SLOTS = 1 << 10 };

uint64_t ls_vocabulary_hash(ls_span text) {
  uint64_t hash = text.bytes * 0x9e3779b97f4a7c15u;
  const char *at = text.text;
  size_t left = text.bytes;
  for (; left >= sizeof hash; left -= sizeof hash, at += sizeof hash) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  uint64_t word = 0;
  for (size_t i = 0; i < left; i++) word |= (uint64_t)(unsigned char)at[i] << 8 * i;
  hash = (hash ^ word) * 0xff51afd7ed558ccdu;
  return hash ^ hash >> 32;
}

ls_vocabulary *ls_vocabulary_create(ls_arena *arena) {
  ls_vocabulary *made = LS_NEW(arena, ls_vocabulary);
  made->arena = arena;
  made->slot_count = FIRST_SLOTS;
  made->slots = LS_NEW_ARRAY(arena, int32_t, FIRST_SLOTS);
  return made;
}

/* The slot of a piece, or the free one where it would go. */
static uint32_t find_slot(const ls_vocabulary *self, ls_span piece) {
  const uint32_t mask = self->slot_count - 1;
  uint32_t at = (uint32_t)ls_vocabulary_hash(piece) & mask;
  for (; self->slots[at]; at = (at + 1) & mask) {
    const ls_span there = self->pieces[self->slots[at] - 1];
    if (there.bytes == piece.bytes && memcmp(there.text, piece.text, piece.bytes) == 0) break;
  }
  return at;
}

static void grow_slots(ls_vocabulary *self) {
  const int32_t *old = self->slots;
  const uint32_t count = self->slot_count;
  self->slot_count = 2 * count;
  self->slots = LS_NEW_ARRAY(self->arena, int32_t, self->slot_count);
  for (uint32_t i = 0; i < count; i++) {
    if (old[i]) self->slots[find_slot(self, self->pieces[old[i] - 1])] = old[i];
  }
}

static void grow_pieces(ls_vocabulary *self, int32_t id) {
  if (id >= self->capacity) {
    int32_t larger = self->capacity ? self->capacity : FIRST_SLOTS;
    while (larger <= id) larger *= 2;
    ls_span *moved = LS_NEW_ARRAY(self->arena, ls_span, larger);
    if (self->count) memcpy(moved, self->pieces, (size_t)self->count * sizeof *moved);
    self->pieces = moved;
    self->capacity = larger;
  }
  if (id >= self->count) self->count = id + 1;
}

ls_status ls_vocabulary_add(ls_vocabulary *self, const char *where, ls_span piece, int64_t id,
                            ls_error *error) {
  char shown[LS_QUOTE_BYTES];
  if (id < 0 || id >= LS_VOCABULARY_MOST) {
    return ls_fail(error, LS_INPUT, "%s: found id %lld for \"%s\"; expected one from 0 to %d",
                   where, (long long)id, ls_quote(shown, piece.text, piece.bytes),
                   LS_VOCABULARY_MOST - 1);
  }
  uint32_t slot = find_slot(self, piece);
  if (self->slots[slot]) {
    if (self->slots[slot] - 1 == id) return LS_OK;
    return ls_fail(error, LS_INPUT, "%s: found \"%s\" with two ids, %d and %d", where,
                   ls_quote(shown, piece.text, piece.bytes), self->slots[slot] - 1, (int)id);
  }
  grow_pieces(self, (int32_t)id);
  if (self->pieces[id].text) {
    return ls_fail(error, LS_INPUT, "%s: found id %d twice, the second time for \"%s\"", where,
                   (int)id, ls_quote(shown, piece.text, piece.bytes));
  }
  if (2 * (self->filled + 1) > (int32_t)self->slot_count) {
    grow_slots(self);
    slot = find_slot(self, piece);
  }
  char *copy = ls_arena_alloc(self->arena, piece.bytes + 1);
  if (piece.bytes) memcpy(copy, piece.text, piece.bytes);
  self->pieces[id] = (ls_span){copy, piece.bytes};
  self->slots[slot] = (int32_t)id + 1;
  self->filled++;
  if (piece.bytes > self->longest) self->longest = piece.bytes;
  return LS_OK;
}

ls_status ls_vocabulary_copy(ls_arena *arena, const ls_vocabulary *from, const char *where,
                             ls_vocabulary **copy, ls_error *error) {
  *copy = ls_vocabulary_create(arena);
  for (int32_t id = 0; id < from->count; id++) {
    if (from->pieces[id].text) {
      LS_TRY(ls_vocabulary_add(*copy, where, from->pieces[id], id, error));
    }
  }
  return LS_OK;
}

int32_t ls_vocabulary_find(const ls_vocabulary *self, ls_span piece) {
  if (piece.bytes > self->longest) return -1;
  return self->slots[find_slot(self, piece)] - 1;
}
