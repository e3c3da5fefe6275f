/* The files of a corpus, found by paths, patterns and folders.
 *
 *   ls_text_files files;
 *   LS_TRY(ls_text_files_find(arena, "data.text", patterns, pattern_count, &files, error));
 *
 * What a file is, its name says: .jsonl and .ndjson are JSON lines, .json one list of objects,
 * .tokens token files (and what is named itself and begins as one), others plain text; a last .gz
 * or .zst is how it is packed. Files of formats that are not read here are refused by name, with
 * what converts them. Thread-safe: no state. */
#ifndef LS_DATA_TEXT_FILES_H
#define LS_DATA_TEXT_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "lockstep/status.h"

typedef enum ls_text_packing {
  LS_TEXT_UNPACKED = 0,
  LS_TEXT_GZIP,
  LS_TEXT_ZSTD,
  LS_TEXT_RAW /* as it lies on disk, whatever it is */
} ls_text_packing;

/* A text file: device and inode tell two names of one file. */
typedef struct ls_text_file {
  const char *path;
  int64_t bytes, modified_ns;
  uint64_t device, inode;
  int pattern;     /* that found it */
  bool json_lines; /* an object a line, or of a list */
  bool json_array; /* a list of them: .json */
  bool tokens;     /* a token file, not a text */
  ls_text_packing packing;
} ls_text_file;

typedef struct ls_text_files {
  const ls_text_file *items;
  int count;
  int64_t bytes; /* of all, as they lie on disk */
} ls_text_files;

/* Paths, patterns ("**": any depth) and folders (the texts and token files in them, at any depth)
 * in the order given, each sorted by name. LS_INPUT, with `key` in front: nothing found, a file
 * named twice, all empty, unreadable, or of a format that is not read. Lives in the arena. */
LS_CHECKED ls_status ls_text_files_find(ls_arena *arena, const char *key,
                                        const char *const *patterns, int pattern_count,
                                        ls_text_files *files, ls_error *error);

/* A file that both lists have, as two indices; false where there is none. */
bool ls_text_files_shared(ls_arena *arena, const ls_text_files *first, const ls_text_files *second,
                          int *in_first, int *in_second);

#endif
