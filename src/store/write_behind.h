/* Large writes past the system's cache, while the caller makes the next ones: what a checkpoint
 * writes nobody reads soon, and its pages would push out others.
 *
 *   ls_write_behind *behind = ls_write_behind_create(arena);
 *   ls_write_behind_put(behind, direct, offset, data, bytes);
 *   int reason = ls_write_behind_wait(behind);
 *   ls_write_behind_destroy(&behind);
 *
 * Used by one thread, for any number of files in turn. */
#ifndef LS_STORE_WRITE_BEHIND_H
#define LS_STORE_WRITE_BEHIND_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

enum { LS_DIRECT_BLOCK = 4096, LS_BEHIND_BYTES = 2 << 20, LS_BEHIND_BUFFERS = 2 };

typedef struct ls_write_behind ls_write_behind;

/* In the arena, which must outlive it; NULL where no thread is to be had. */
ls_write_behind *ls_write_behind_create(ls_arena *arena);

/* Memory of the arena that begins at a multiple of `block`, as direct transfers want it. */
void *ls_direct_memory(ls_arena *arena, size_t bytes, size_t block);

/* Waits for what was put and ends the thread. Nothing to do where *behind is NULL. */
void ls_write_behind_destroy(ls_write_behind **behind);

/* Copies `bytes` to be written at `offset` of a descriptor opened with O_DIRECT; both are multiples
 * of LS_DIRECT_BLOCK. May wait for earlier ones. */
void ls_write_behind_put(ls_write_behind *behind, int descriptor, uint64_t offset, const void *data,
                         size_t bytes);

/* Waits until all is written: 0, or the errno of the first failure since the last call. */
int ls_write_behind_wait(ls_write_behind *behind);

#endif
