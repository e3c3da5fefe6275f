/* Memory of the compiler: small blocks that live and die together, and growable lists in them.
 *
 *   ls_arena *arena = ls_arena_create();
 *   char *name = ls_arena_printf(arena, "layers.%d.mlp.up", layer);
 *   ls_arena_destroy(&arena);
 *
 * Not for what a training step touches: that is laid out by `lower`. One thread at a time.
 * No call here fails: where memory runs out, the thread goes on behind its ls_arena_guard, which
 * every public call, every command and every rank has; without one the process is ended by
 * ls_panic. */
#ifndef LS_BASE_ARENA_H
#define LS_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lockstep/status.h"

typedef struct ls_arena ls_arena;

ls_arena *ls_arena_create(void);
void ls_arena_destroy(ls_arena **arena);

/* Zeroed memory, aligned to 16 bytes, owned by the arena. */
void *ls_arena_alloc(ls_arena *arena, size_t bytes);
char *ls_arena_strdup(ls_arena *arena, const char *text);
char *ls_arena_printf(ls_arena *arena, const char *format, ...) LS_PRINTF(2, 3);

typedef ls_status (*ls_arena_body)(void *context, ls_error *error);

/* Runs the body on this thread and returns its status; where memory for an arena runs out in it,
 * LS_FAILED, and the rest of the body does not run: files and threads it had open stay so. A
 * parallel region in the body needs a guard inside. A thread that the body starts needs one of its
 * own, and may not outlive what it is given: where its starter can run out of memory before it is
 * joined, that part too is in a guard, with the join behind it. `frees`: arenas that it made on
 * this thread are destroyed then, which is right where nothing outside has a pointer into them.
 * Guards nest. */
LS_CHECKED ls_status ls_arena_guard(ls_arena_body body, void *context, bool frees, ls_error *error);

#define LS_NEW(arena, type) ((type *)ls_arena_alloc((arena), sizeof(type)))
#define LS_NEW_ARRAY(arena, type, count) \
  ((type *)ls_arena_alloc((arena), sizeof(type) * (size_t)(count)))

/* A growable list: struct { type *items; int count, capacity; }. Items move when it grows. */
#define LS_LIST(type)    \
  struct {               \
    type *items;         \
    int count, capacity; \
  }

/* Makes room for one more item of `item_bytes`; returns the possibly moved items. */
void *ls_list_grow(ls_arena *arena, void *items, int count, int *capacity, size_t item_bytes);
void *ls_list_reserve(ls_arena *arena, void *items, int count, int *capacity, int most,
                      size_t item_bytes);

/* Makes room for so many items, which are then appended without moving. */
#define LS_RESERVE(arena, list, most)                                                        \
  ((list)->items = ls_list_reserve((arena), (list)->items, (list)->count, &(list)->capacity, \
                                   (most), sizeof *(list)->items))

/* Appends a zeroed item and evaluates to a pointer to it. */
#define LS_APPEND(arena, list)                                                                  \
  ((list)->items = (list)->count < (list)->capacity                                             \
                       ? (list)->items                                                          \
                       : ls_list_grow((arena), (list)->items, (list)->count, &(list)->capacity, \
                                      sizeof *(list)->items),                                   \
   &(list)->items[(list)->count++])

/* Goes on behind the innermost guard of this thread: for lists that are no arena's. */
_Noreturn void ls_out_of_memory(size_t bytes);

/* Prints the text and aborts the process: for faults of ours and exhausted memory only. */
_Noreturn void ls_panic(const char *format, ...) LS_PRINTF(1, 2);

/* Stays on in release builds. */
#define LS_ASSERT(condition)                                                                   \
  do {                                                                                         \
    if (!(condition)) ls_panic("%s:%d: assertion failed: %s", __FILE__, __LINE__, #condition); \
  } while (0)

#endif
