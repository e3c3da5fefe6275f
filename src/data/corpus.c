#include "data/corpus.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/token_file.h"

static ls_status look_at(const char *key, const char *path, ls_corpus_source *source,
                         ls_error *error) {
  struct stat found;
  if (stat(path, &found) != 0) {
    return ls_fail(error, LS_INPUT, "%s: %s: %m; expected a text file", key, path);
  }
  if (S_ISDIR(found.st_mode)) {
    return ls_fail(error, LS_INPUT, "%s: %s is a folder; expected files, such as %s/*.txt", key,
                   path, path);
  }
  if (!S_ISREG(found.st_mode)) {
    return ls_fail(error, LS_INPUT, "%s: %s is no regular file; expected a text file", key, path);
  }
  *source = (ls_corpus_source){
      .path = path,
      .bytes = found.st_size,
      .modified_ns = (int64_t)found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec,
      .device = found.st_dev,
      .inode = found.st_ino,
  };
  return LS_OK;
}

/* One text twice would put the same sentences into training and validation. */
static ls_status check_distinct(const char *key, const ls_corpus *corpus, ls_error *error) {
  for (int i = 0; i < corpus->source_count; i++) {
    for (int k = 0; k < i; k++) {
      const ls_corpus_source *a = &corpus->sources[k], *b = &corpus->sources[i];
      if (a->inode != b->inode || a->device != b->device) continue;
      return ls_fail(error, LS_INPUT, "%s: found %s a second time (as %s); expected each file once",
                     key, b->path, a->path);
    }
  }
  return LS_OK;
}

static ls_status find_sources(ls_arena *arena, const ls_corpus_options *options, ls_corpus *corpus,
                              ls_error *error) {
  LS_LIST(ls_corpus_source) sources = {0};
  int64_t bytes = 0;
  for (int i = 0; i < options->pattern_count; i++) {
    char **paths = NULL;
    int count = 0;
    const char *pattern = options->patterns[i];
    struct stat found;
    /* A name as it stands goes before its reading as a pattern: "notes [old].txt". */
    const bool literal = stat(pattern, &found) == 0;
    if (!literal && ls_file_glob(arena, pattern, &paths, &count, error) != LS_OK) {
      return ls_error_prefix(error, "%s", options->key);
    }
    for (int k = 0; k < (literal ? 1 : count); k++) {
      ls_corpus_source *source = LS_APPEND(arena, &sources);
      LS_TRY(look_at(options->key, literal ? pattern : paths[k], source, error));
      source->path = ls_arena_strdup(arena, source->path);
      bytes += source->bytes;
    }
  }
  corpus->sources = sources.items;
  corpus->source_count = sources.count;
  LS_TRY(check_distinct(options->key, corpus, error));
  if (bytes > 0) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: found no text: %s%s empty; expected a file with text in it",
                 options->key, sources.count ? sources.items[0].path : "the list",
                 sources.count > 1 ? " and the others are" : " is");
}

ls_status ls_corpus_open(ls_arena *arena, const ls_corpus_options *options, ls_corpus *corpus,
                         ls_error *error) {
  *corpus = (ls_corpus){0};
  LS_TRY(find_sources(arena, options, corpus, error));
  LS_TRY(ls_directory_make(options->cache_folder, error));
  const ls_token_file file =
      ls_token_file_of(arena, options, corpus->sources, corpus->source_count);
  corpus->cache_path = file.path;
  corpus->from_cache = ls_token_file_fits(&file);
  if (!corpus->from_cache) LS_TRY(ls_token_file_make(&file, error));
  LS_TRY(ls_file_map(file.path, &corpus->map, error));
  return ls_token_file_view(&file, corpus, error);
}

void ls_corpus_close(ls_corpus *corpus) {
  ls_file_unmap(&corpus->map);
  *corpus = (ls_corpus){0};
}

void ls_corpus_copy(const ls_corpus *corpus, int64_t first, int64_t count, int32_t *ids) {
  LS_ASSERT(first >= 0 && count >= 0 && first <= corpus->count - count);
  if (corpus->width == 1) {
    const uint8_t *from = (const uint8_t *)corpus->tokens + first;
    for (int64_t i = 0; i < count; i++) ids[i] = from[i];
  } else if (corpus->width == 2) {
    const uint16_t *from = (const uint16_t *)corpus->tokens + first;
    for (int64_t i = 0; i < count; i++) ids[i] = from[i];
  } else {
    memcpy(ids, (const int32_t *)corpus->tokens + first, (size_t)count * sizeof *ids);
  }
}

const char *ls_corpus_cache_folder(ls_arena *arena, const char *out) {
  const char *cache = getenv("XDG_CACHE_HOME");
  if (cache && cache[0] == '/') return ls_arena_printf(arena, "%s/lockstep", cache);
  const char *end = out + strlen(out);
  while (end > out && end[-1] == '/') end--;
  while (end > out && end[-1] != '/') end--;
  return ls_arena_printf(arena, "%.*scache", (int)(end - out), out);
}
