#include "tokenizer/pattern_symbols.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/unicode.h"

enum { FIRST = 0x80, KINDS = 128, BLOCK = 256 };

struct ls_symbols {
  int kinds;
  uint32_t examples[KINDS]; /* a character of each */
  const uint8_t *blocks[LS_POINTS / BLOCK];
};

/* What a symbol is told apart by: which of the sets have its characters, one bit for each. */
typedef struct kind_table {
  ls_arena *arena;
  const ls_point_set *sets;
  int count;
  size_t bytes;
  uint8_t *kinds[KINDS];
  ls_symbols *made;
} kind_table;

/* The symbol of a character, or -1 where there is none left. */
static int find_kind(kind_table *self, uint32_t point) {
  uint8_t *bits = ls_arena_alloc(self->arena, self->bytes);
  for (int i = 0; i < self->count; i++) {
    if (ls_point_set_has(&self->sets[i], point)) bits[i / 8] |= (uint8_t)(1u << i % 8);
  }
  for (int k = 0; k < self->made->kinds; k++) {
    if (memcmp(self->kinds[k], bits, self->bytes) == 0) return FIRST + k;
  }
  if (self->made->kinds == KINDS) return -1;
  const int kind = self->made->kinds++;
  self->kinds[kind] = bits;
  self->made->examples[kind] = point;
  return FIRST + kind;
}

static int by_number(const void *a, const void *b) {
  const uint32_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* Where a set begins or ends: between two such places no set tells characters apart. */
static uint32_t *find_borders(ls_arena *arena, const ls_point_set *sets, int count, int *borders) {
  int most = 1;
  for (int i = 0; i < count; i++) most += 2 * sets[i].count;
  uint32_t *all = LS_NEW_ARRAY(arena, uint32_t, most);
  int found = 0;
  all[found++] = FIRST;
  for (int i = 0; i < count; i++) {
    for (int k = 0; k < sets[i].count; k++) {
      const ls_point_range range = sets[i].ranges[k];
      if (range.first > FIRST) all[found++] = range.first;
      if (range.last >= FIRST && range.last + 1 < LS_POINTS) all[found++] = range.last + 1;
    }
  }
  qsort(all, (size_t)found, sizeof *all, by_number);
  *borders = 0;
  for (int i = 0; i < found; i++) {
    if (i == 0 || all[i] != all[*borders - 1]) all[(*borders)++] = all[i];
  }
  return all;
}

/* The symbols of all characters. Blocks of one symbol are shared. */
static const ls_symbols *fill_blocks(ls_arena *arena, ls_symbols *self, const uint32_t *borders,
                                     const int *symbols, int count) {
  const uint8_t *same[256] = {0};
  int at = 0;
  for (uint32_t first = 0; first < LS_POINTS; first += BLOCK) {
    while (at + 1 < count && borders[at + 1] <= first) at++;
    const bool one = first > 0 && (at + 1 == count || borders[at + 1] >= first + BLOCK);
    const uint8_t **kept = &self->blocks[first / BLOCK];
    if (one) *kept = same[symbols[at]];
    if (*kept) continue;
    uint8_t *block = ls_arena_alloc(arena, BLOCK);
    for (uint32_t point = first; point < first + BLOCK; point++) {
      while (at + 1 < count && borders[at + 1] <= point) at++;
      block[point - first] = (uint8_t)(point < FIRST ? (int)point : symbols[at]);
    }
    *kept = block;
    if (one) same[symbols[at]] = block;
  }
  return self;
}

const ls_symbols *ls_symbols_create(ls_arena *arena, const ls_point_set *sets, int count) {
  ls_symbols *self = LS_NEW(arena, ls_symbols);
  ls_arena *scratch = ls_arena_create();
  kind_table table = {scratch, sets, count, (size_t)count / 8 + 1, {0}, self};
  int borders;
  const uint32_t *all = find_borders(scratch, sets, count, &borders);
  int *symbols = LS_NEW_ARRAY(scratch, int, borders);
  bool enough = true;
  for (int i = 0; i < borders && enough; i++) {
    symbols[i] = find_kind(&table, all[i]);
    enough = symbols[i] >= 0;
  }
  const ls_symbols *made = enough ? fill_blocks(arena, self, all, symbols, borders) : NULL;
  ls_arena_destroy(&scratch);
  return made;
}

bool ls_symbols_has(const ls_symbols *symbols, const ls_point_set *set, int symbol) {
  if (symbol < FIRST) return ls_point_set_has(set, (uint32_t)symbol);
  return symbol - FIRST < symbols->kinds &&
         ls_point_set_has(set, symbols->examples[symbol - FIRST]);
}

size_t ls_symbols_write(const ls_symbols *symbols, ls_span text, char *out) {
  const char *at = text.text, *end = at + text.bytes;
  char *to = out;
  while (at < end) {
    if ((unsigned char)*at >= 0x80) {
      const uint32_t point = ls_unicode_next(&at);
      *to++ = (char)symbols->blocks[point / BLOCK][point % BLOCK];
    } else if (end - at >= 8) {
      const size_t ascii = ls_ascii_of_eight(at);
      memcpy(to, at, 8); /* what is too much is written again */
      at += ascii;
      to += ascii;
    } else {
      *to++ = *at++;
    }
  }
  return (size_t)(to - out);
}
