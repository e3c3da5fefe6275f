#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 * 1024, ALIGNMENT = 16 };

typedef struct chunk {
  struct chunk *next;
  size_t used, bytes;
} chunk;

struct ls_arena {
  chunk *first;
};

_Noreturn void ls_panic(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("lockstep: internal fault: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  abort();
}

static chunk *chunk_create(size_t bytes) {
  chunk *made = calloc(1, sizeof(chunk) + ALIGNMENT + bytes);
  if (!made) ls_panic("out of memory for %zu bytes of compiler data", bytes);
  made->bytes = bytes;
  return made;
}

ls_arena *ls_arena_create(void) {
  ls_arena *arena = calloc(1, sizeof *arena);
  if (!arena) ls_panic("out of memory");
  return arena;
}

void ls_arena_destroy(ls_arena **arena) {
  ls_arena *dying = *arena;
  *arena = NULL; /* first: the pointer itself may lie in the arena */
  if (!dying) return;
  for (chunk *each = dying->first; each;) {
    chunk *next = each->next;
    free(each);
    each = next;
  }
  free(dying);
}

void *ls_arena_alloc(ls_arena *arena, size_t bytes) {
  bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  chunk *head = arena->first;
  if (!head || head->bytes - head->used < bytes) {
    chunk *made = chunk_create(bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES);
    if (head && bytes > CHUNK_BYTES) { /* a large block does not end the open chunk */
      made->next = head->next;
      head->next = made;
    } else {
      made->next = head;
      arena->first = made;
    }
    head = made;
  }
  uintptr_t start = ((uintptr_t)(head + 1) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  void *block = (void *)(start + head->used);
  head->used += bytes;
  return block;
}

char *ls_arena_strdup(ls_arena *arena, const char *text) {
  size_t bytes = strlen(text) + 1;
  return memcpy(ls_arena_alloc(arena, bytes), text, bytes);
}

char *ls_arena_printf(ls_arena *arena, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  LS_ASSERT(length >= 0);
  char *text = ls_arena_alloc(arena, (size_t)length + 1);
  va_start(arguments, format);
  vsnprintf(text, (size_t)length + 1, format, arguments);
  va_end(arguments);
  return text;
}

void *ls_list_grow(ls_arena *arena, void *items, int count, int *capacity, size_t item_bytes) {
  if (count < *capacity) return items;
  int larger = *capacity ? 2 * *capacity : 8;
  void *moved = ls_arena_alloc(arena, (size_t)larger * item_bytes);
  if (count) memcpy(moved, items, (size_t)count * item_bytes);
  *capacity = larger;
  return moved;
}
