/* The folder that token files are kept in: what is there, what was left half-written, and what is
 * removed when it is too large.
 *
 *   ls_cache_list list;
 *   LS_TRY(ls_cache_find(arena, folder, &list, error));
 *   for (int i = 0; i < list.files.count; i++)
 *     LS_TRY(ls_cache_remove(&list.files.items[i], error));
 *
 * Files of other names are not looked at. A token file that is removed while a run has it mapped
 * stays with that run. No state; what is half-written is told by its lock (see ls_token_file_make).
 */
#ifndef LS_DATA_TEXT_CACHE_H
#define LS_DATA_TEXT_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "lockstep/status.h"

typedef enum ls_cache_kind {
  LS_CACHE_TOKENS,   /* tokens-HASH.bin */
  LS_CACHE_LEFTOVER, /* of a process that is gone: a token file's name, its process and the time */
  LS_CACHE_RATES,    /* machine-HASH.json: what lockstep bench measured */
  LS_CACHE_GPU,      /* gpu-HASH.kept: what was found out on a GPU (device/cuda/cuda_kept.h) */
} ls_cache_kind;

typedef struct ls_cache_file {
  const char *path;
  ls_cache_kind kind;
  int64_t bytes;
  int64_t used_s; /* when it was last used or written, seconds since 1970 */
} ls_cache_file;

typedef struct ls_cache_list {
  LS_LIST(ls_cache_file) files; /* what was used longest ago first */
  int64_t bytes;
} ls_cache_list;

/* Files of ours in a folder; none where there is no such folder. LS_FAILED: it cannot be read.
 * Lives in the arena. */
LS_CHECKED ls_status ls_cache_find(ls_arena *arena, const char *folder, ls_cache_list *list,
                                   ls_error *error);

/* LS_FAILED: it cannot be removed; one that is gone is fine. */
LS_CHECKED ls_status ls_cache_remove(const ls_cache_file *file, ls_error *error);

/* Removes what processes that are gone left half-written in a folder. What cannot be removed stays.
 */
void ls_cache_sweep(const char *folder);

/* Removes the token files used longest ago, but none of a name that ends a path in `kept`, until
 * all have `limit` bytes at most (0: no limit), with a warning that names each; and with one where
 * those kept alone have more. */
void ls_cache_trim(const char *folder, int64_t limit, const char *const *kept, int kept_count);

/* Now is when the file was last used. */
void ls_cache_touch(const char *path);

#endif
