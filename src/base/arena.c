#include "base/arena.h"

#ifdef _OPENMP
#include <omp.h>
#endif
#include <pthread.h>
#include <setjmp.h>
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
  ls_arena *next, **link; /* among those its guard would destroy; link NULL: it has none */
};

/* Where a thread goes on when memory runs out, and the arenas it has made since. */
typedef struct guard {
  jmp_buf place;
  struct guard *outer;
  ls_arena *made;
  size_t bytes;
  int level;
} guard;

static _Thread_local guard *innermost;
static pthread_mutex_t lists = PTHREAD_MUTEX_INITIALIZER; /* an arena may die on another thread */

static void enlist(ls_arena *arena, guard *of) {
  if (!of) return;
  arena->next = of->made;
  arena->link = &of->made;
  if (arena->next) arena->next->link = &arena->next;
  of->made = arena;
}

static void delist(ls_arena *arena) {
  if (!arena->link) return;
  *arena->link = arena->next;
  if (arena->next) arena->next->link = arena->link;
  arena->link = NULL;
}

_Noreturn void ls_panic(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("lockstep: internal fault: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  abort();
}

/* Parallel regions that the thread is in: none may be left half way. */
static int level(void) {
#ifdef _OPENMP
  return omp_get_level();
#else
  return 0;
#endif
}

_Noreturn void ls_out_of_memory(size_t bytes) {
  if (!innermost || innermost->level != level()) ls_panic("out of memory for %zu bytes", bytes);
  innermost->bytes = bytes;
  longjmp(innermost->place, 1);
}

static ls_status attempt(guard *self, ls_arena_body body, void *context, ls_error *error) {
  if (setjmp(self->place) == 0) return body(context, error);
  return ls_fail(error, LS_FAILED,
                 "out of memory for %zu bytes: free some, or raise the limit (ulimit -v, the "
                 "container's)",
                 self->bytes);
}

/* An arena that is in no list. */
static void release(ls_arena *dying) {
  for (chunk *each = dying->first; each;) {
    chunk *next = each->next;
    free(each);
    each = next;
  }
  free(dying);
}

/* Takes the first of the guard's arenas from it, to die or for the guard outside; NULL: none. */
static ls_arena *take_first(guard *of, bool dies) {
  pthread_mutex_lock(&lists);
  ls_arena *first = of->made;
  if (first) delist(first);
  if (first && !dies) enlist(first, of->outer);
  pthread_mutex_unlock(&lists);
  return first;
}

ls_status ls_arena_guard(ls_arena_body body, void *context, bool frees, ls_error *error) {
  guard self = {.outer = innermost, .level = level()};
  innermost = &self;
  const ls_status status = attempt(&self, body, context, error);
  innermost = self.outer;
  const bool dies = self.bytes && frees;
  for (ls_arena *each; (each = take_first(&self, dies));)
    if (dies) release(each);
  return status;
}

static chunk *chunk_create(size_t bytes, bool zeroed) {
  const size_t all = sizeof(chunk) + ALIGNMENT + bytes;
  chunk *made = zeroed ? calloc(1, all) : malloc(all);
  if (!made) ls_out_of_memory(bytes);
  *made = (chunk){.bytes = bytes};
  return made;
}

ls_arena *ls_arena_create(void) {
  ls_arena *arena = calloc(1, sizeof *arena);
  if (!arena) ls_out_of_memory(sizeof *arena);
  pthread_mutex_lock(&lists);
  enlist(arena, innermost);
  pthread_mutex_unlock(&lists);
  return arena;
}

void ls_arena_destroy(ls_arena **arena) {
  ls_arena *dying = *arena;
  *arena = NULL; /* first: the pointer itself may lie in the arena */
  if (!dying) return;
  pthread_mutex_lock(&lists);
  delist(dying);
  pthread_mutex_unlock(&lists);
  release(dying);
}

/* A block whose first `written` bytes the caller writes; the rest is zeroed. A large one may be
 * never touched: its pages are left to the system. */
static void *take(ls_arena *arena, size_t bytes, size_t written) {
  bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  chunk *head = arena->first;
  const bool large = bytes > CHUNK_BYTES, zeroed = large && !written;
  if (!head || head->bytes - head->used < bytes) {
    chunk *made = chunk_create(large ? bytes : CHUNK_BYTES, zeroed);
    if (head && large) { /* it does not end the open chunk */
      made->next = head->next;
      head->next = made;
    } else {
      made->next = head;
      arena->first = made;
    }
    head = made;
  }
  uintptr_t start = ((uintptr_t)(head + 1) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  char *block = (char *)(start + head->used);
  head->used += bytes;
  if (!zeroed) memset(block + written, 0, bytes - written);
  return block;
}

void *ls_arena_alloc(ls_arena *arena, size_t bytes) {
  return take(arena, bytes, 0);
}

char *ls_arena_strdup(ls_arena *arena, const char *text) {
  size_t bytes = strlen(text) + 1;
  return memcpy(take(arena, bytes, bytes), text, bytes);
}

enum { USUAL = 256 }; /* bytes of a text */

/* The digits of a number, which end where `end` is. */
static char *write_digits(char *end, int number) {
  unsigned left = number < 0 ? 0u - (unsigned)number : (unsigned)number;
  do *--end = (char)('0' + left % 10);
  while (left /= 10);
  if (number < 0) *--end = '-';
  return end;
}

/* Most names are of texts and whole numbers, for which the library's way is long. -1: there is more
 * to it. */
static int format_name(char usual[USUAL], const char *format, va_list arguments) {
  char digits[16], *const end = digits + sizeof digits;
  size_t length = 0, count;
  for (const char *at = format; *at; at++) {
    const char *from = at;
    if (*at != '%') {
      count = strcspn(at, "%");
      at += count - 1;
    } else if (*++at == 's') {
      from = va_arg(arguments, const char *);
      if (!from) return -1;
      count = strlen(from);
    } else if (*at == 'd') {
      from = write_digits(end, va_arg(arguments, int));
      count = (size_t)(end - from);
    } else {
      return -1;
    }
    if (length + count >= USUAL) return -1;
    memcpy(usual + length, from, count);
    length += count;
  }
  usual[length] = 0;
  return (int)length;
}

char *ls_arena_printf(ls_arena *arena, const char *format, ...) {
  char usual[USUAL];
  va_list arguments;
  va_start(arguments, format);
  int length = format_name(usual, format, arguments);
  va_end(arguments);
  if (length < 0) {
    va_start(arguments, format);
    length = vsnprintf(usual, sizeof usual, format, arguments);
    va_end(arguments);
  }
  LS_ASSERT(length >= 0);
  char *text = take(arena, (size_t)length + 1, (size_t)length + 1);
  if (length < USUAL) return memcpy(text, usual, (size_t)length + 1);
  va_start(arguments, format);
  vsnprintf(text, (size_t)length + 1, format, arguments);
  va_end(arguments);
  return text;
}

void *ls_list_reserve(ls_arena *arena, void *items, int count, int *capacity, int most,
                      size_t item_bytes) {
  if (most <= *capacity) return items;
  const size_t kept = (size_t)count * item_bytes;
  void *moved = take(arena, (size_t)most * item_bytes, kept);
  if (count) memcpy(moved, items, kept);
  *capacity = most;
  return moved;
}

void *ls_list_grow(ls_arena *arena, void *items, int count, int *capacity, size_t item_bytes) {
  if (count < *capacity) return items;
  const int larger = *capacity ? 2 * *capacity : 8;
  return ls_list_reserve(arena, items, count, capacity, larger, item_bytes);
}
