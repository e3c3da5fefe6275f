/* Files: whole reads, maps, and writes that are published or not there at all.
 *
 * Errors are LS_INPUT for what the user named (missing, unreadable) and LS_FAILED for writing
 * (disk full); the text names the path and the reason. */
#ifndef LS_BASE_FILE_H
#define LS_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "lockstep/status.h"

/* The whole file in the arena, with a NUL after its last byte (not counted in *bytes). */
LS_CHECKED ls_status ls_file_read(ls_arena *arena, const char *path, char **data, size_t *bytes,
                                  ls_error *error);

/* A read-only private map; unmap with ls_file_unmap. An empty file maps to NULL and 0 bytes. */
typedef struct ls_map {
  const void *data;
  size_t bytes;
} ls_map;
LS_CHECKED ls_status ls_file_map(const char *path, ls_map *map, ls_error *error);
void ls_file_unmap(ls_map *map);

/* Reading through a map at the disk's speed and in little memory: what is read soon is asked for
 * ahead; what is read now is brought in, LS_INPUT where the file has it no more (to touch it would
 * be fatal); and what was read is given back (it stays in the system's cache). Whole pages. */
void ls_map_expect(const void *data, size_t bytes);
LS_CHECKED ls_status ls_map_fetch(const char *path, const void *data, size_t bytes,
                                  ls_error *error);
void ls_map_release(const void *data, size_t bytes);

/* Writes `path` so that it holds all of `data` or is untouched: path.tmp-PID, fsync, rename, fsync
 * of the folder. Links are followed. A device or a pipe is written to, and stays what it is. */
LS_CHECKED ls_status ls_file_write(const char *path, const void *data, size_t bytes,
                                   ls_error *error);

bool ls_file_exists(const char *path);

/* A device, a pipe or a socket, by a link or not. */
bool ls_file_is_special(const char *path);
bool ls_directory_exists(const char *path);

/* LS_INPUT where something is there: what is written is to be a new folder, or an empty one. */
LS_CHECKED ls_status ls_directory_check_new(const char *path, ls_error *error);

/* Makes the folder and its parents; existing ones are fine. */
LS_CHECKED ls_status ls_directory_make(const char *path, ls_error *error);

/* Removes a folder and what is in it; a missing one is fine. */
LS_CHECKED ls_status ls_directory_remove(const char *path, ls_error *error);

/* Publishes a written folder: fsync of every file in it and of itself, rename to `final` (which
 * must not exist), fsync of the parent. */
LS_CHECKED ls_status ls_directory_publish(const char *written, const char *final, ls_error *error);

/* Paths matching a glob pattern, sorted, "**" for any depth; LS_INPUT where none does. */
LS_CHECKED ls_status ls_file_glob(ls_arena *arena, const char *pattern, char ***paths, int *count,
                                  ls_error *error);

#endif
