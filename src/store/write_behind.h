/* Large writes past the system's cache, while the caller makes the next ones: what a checkpoint
 * writes nobody reads soon, and its pages would push out others.
 *
 *   ls_write_behind *behind = ls_write_behind_create();
 *   ls_write_behind_put(behind, direct, offset, data, bytes);
 *   int reason = ls_write_behind_wait(behind);
 *   ls_write_behind_destroy(&behind);
 *
 * Used by one thread, for any number of files in turn. */
#ifndef LS_STORE_WRITE_BEHIND_H
#define LS_STORE_WRITE_BEHIND_H

#include <stddef.h>
#include <stdint.h>

enum { LS_DIRECT_BLOCK = 4096, LS_BEHIND_BYTES = 2 << 20, LS_BEHIND_BUFFERS = 2 };

typedef struct ls_write_behind ls_write_behind;

/* NULL where memory or a thread is not to be had. */
ls_write_behind *ls_write_behind_create(void);

/* Waits for what was put and ends the thread. */
void ls_write_behind_destroy(ls_write_behind **behind);

/* Copies `bytes` to be written at `offset` of a descriptor opened with O_DIRECT; both are multiples
 * of LS_DIRECT_BLOCK. May wait for earlier ones. */
void ls_write_behind_put(ls_write_behind *behind, int descriptor, uint64_t offset, const void *data,
                         size_t bytes);

/* Waits until all is written: 0, or the errno of the first failure since the last call. */
int ls_write_behind_wait(ls_write_behind *behind);

#endif
