/* Text files as one row of token ids, kept in a cache file that is mapped into memory.
 *
 *   ls_corpus corpus;
 *   LS_TRY(ls_corpus_open(arena, &(ls_corpus_options){.key = "data.text", ...}, &corpus, error));
 *   ls_corpus_copy(&corpus, first, count, ids);
 *   ls_corpus_close(&corpus);
 *
 * The cache is made again when a file's path, size, time or content, or the tokenizer, changed. It
 * is published whole, so several processes may open one corpus at the same time. Reading an open
 * corpus is thread-safe. */
#ifndef LS_DATA_CORPUS_H
#define LS_DATA_CORPUS_H

#include <stdbool.h>

#include "base/file.h"
#include "data/tokenizer.h"

/* Called now and then while a text is read; done and total in bytes. */
typedef void ls_corpus_progress(void *context, int64_t done, int64_t total);

typedef struct ls_corpus_options {
  const char *key;             /* of the run file, for errors */
  const char *const *patterns; /* paths or globs */
  int pattern_count;
  const ls_tokenizer *tokenizer;
  const char *cache_folder;     /* made if it is missing */
  ls_corpus_progress *progress; /* may be NULL */
  void *context;
} ls_corpus_options;

/* A text file: device and inode tell two names of one file. */
typedef struct ls_corpus_source {
  const char *path;
  int64_t bytes, modified_ns;
  uint64_t device, inode;
} ls_corpus_source;

typedef struct ls_corpus {
  ls_map map;
  const void *tokens; /* little-endian, `width` bytes each */
  int width;          /* 1, 2 or 4 */
  int64_t count;
  const ls_corpus_source *sources;
  int source_count;
  bool from_cache; /* an earlier cache file still fitted */
  const char *cache_path;
} ls_corpus;

/* LS_INPUT for a missing, unreadable or empty text, a folder, or a file named twice; LS_FAILED
 * where the cache cannot be written. Texts in the corpus live in the arena. */
LS_CHECKED ls_status ls_corpus_open(ls_arena *arena, const ls_corpus_options *options,
                                    ls_corpus *corpus, ls_error *error);

void ls_corpus_close(ls_corpus *corpus);

/* Ids of tokens [first, first + count). */
void ls_corpus_copy(const ls_corpus *corpus, int64_t first, int64_t count, int32_t *ids);

/* Where caches go: $XDG_CACHE_HOME/lockstep, else the folder "cache" beside the run's `out`. */
const char *ls_corpus_cache_folder(ls_arena *arena, const char *out);

#endif
