#include "data/token_folder.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/text_cache.h"

typedef struct folder {
  ls_arena *arena;
  const ls_corpus_options *options;
  const char *path;    /* without a slash at its end */
  ls_text_files texts; /* of all patterns, in their order */
  ls_token_folder_file *files;
  const ls_text_file **begin; /* where each pattern's texts begin; and their end */
  /* Of the patterns before the one that is being made. */
  int64_t bytes, tokens;
} folder;

static bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}

/* Number and last part of the pattern, without the signs that make it one. */
static const char *name_of(const folder *self, int number) {
  enum { MOST = 100 };
  const char *pattern = self->options->patterns[number], *end = pattern + strlen(pattern);
  while (end > pattern && end[-1] == '/') end--;
  const char *begin = end;
  while (begin > pattern && begin[-1] != '/') begin--;
  char name[MOST + 1];
  int length = 0;
  for (; begin < end && length < MOST; begin++)
    if (is_plain(*begin) && (length > 0 || *begin != '.')) name[length++] = *begin;
  return ls_arena_printf(self->arena, "%s/%05d-%.*s.tokens", self->path, number + 1,
                         length ? length : 5, length ? name : "texts");
}

/* The texts that a pattern found, which lie one after another. */
static ls_text_files texts_of(const folder *self, int pattern) {
  ls_text_files found = {self->begin[pattern],
                         (int)(self->begin[pattern + 1] - self->begin[pattern]), 0};
  for (int i = 0; i < found.count; i++) found.bytes += found.items[i].bytes;
  return found;
}

static void find_begins(folder *self) {
  const int count = self->options->pattern_count;
  self->begin = LS_NEW_ARRAY(self->arena, const ls_text_file *, count + 1);
  for (int p = 0, i = 0; p <= count; p++) {
    while (i < self->texts.count && self->texts.items[i].pattern < p) i++;
    self->begin[p] = self->texts.items + i;
  }
}

static ls_status check_texts(const folder *self, ls_error *error) {
  const char *key = self->options->key;
  if (self->options->pattern_count > LS_TOKEN_FOLDER_MOST)
    return ls_fail(error, LS_INPUT, "%s: found %d; expected at most %d: name a folder or a pattern",
                   key, self->options->pattern_count, LS_TOKEN_FOLDER_MOST);
  for (int i = 0; i < self->texts.count; i++)
    if (self->texts.items[i].tokens)
      return ls_fail(error, LS_INPUT, "%s: %s is a token file; expected a text", key,
                     self->texts.items[i].path);
  return LS_OK;
}

static bool is_ours(const folder *self, const char *name) {
  const long number = strtol(name, NULL, 10);
  if (number < 1 || number > self->options->pattern_count) return false;
  const char *path = self->files[number - 1].path;
  return path && strcmp(path + strlen(self->path) + 1, name) == 0;
}

/* Token files of an earlier time and of other patterns would be trained on too. */
static ls_status check_others(const folder *self, ls_error *error) {
  static const char ending[] = ".tokens";
  DIR *listing = opendir(self->path);
  const char *other = NULL;
  for (const struct dirent *entry; listing && (entry = readdir(listing));) {
    const size_t length = strlen(entry->d_name), tail = sizeof ending - 1;
    if (length < tail || strcmp(entry->d_name + length - tail, ending) != 0) continue;
    if (is_ours(self, entry->d_name)) continue;
    if (!other || strcmp(entry->d_name, other) < 0)
      other = ls_arena_strdup(self->arena, entry->d_name);
  }
  if (listing) closedir(listing);
  if (!other) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s/%s is there, of other texts than these: remove it, or name another folder",
                 self->path, other);
}

static void progress(void *context, int64_t done, int64_t total, int64_t tokens) {
  const folder *self = context;
  (void)total;
  self->options->progress(self->options->context, self->bytes + done, self->texts.bytes,
                          tokens ? self->tokens + tokens : 0);
}

static ls_status write_one(folder *self, int pattern, ls_error *error) {
  ls_token_folder_file *into = &self->files[pattern];
  if (!into->path) return LS_OK;
  const ls_text_files texts = texts_of(self, pattern);
  ls_corpus_options options = *self->options;
  if (options.progress) {
    options.progress = progress;
    options.context = self;
    progress(self, 0, texts.bytes, 0);
  }
  ls_token_file file = ls_token_file_of(self->arena, &options, &texts);
  file.path = into->path;
  file.advice = "name a folder on another disk";
  into->reused = ls_token_file_fits(&file);
  if (!into->reused) LS_TRY(ls_token_file_make(&file, error));
  if (!ls_token_file_header(file.path, &into->about))
    return ls_fail(error, LS_FAILED, "%s: is gone or was changed; start again", file.path);
  self->bytes += into->bytes;
  self->tokens += into->about.count;
  return LS_OK;
}

static ls_status write_all(folder *self, ls_error *error) {
  const int count = self->options->pattern_count;
  const bool was_there = ls_directory_exists(self->path);
  LS_TRY(check_texts(self, error));
  find_begins(self);
  self->files = LS_NEW_ARRAY(self->arena, ls_token_folder_file, count);
  for (int p = 0; p < count; p++) {
    const ls_text_files texts = texts_of(self, p);
    self->files[p] = (ls_token_folder_file){.pattern = self->options->patterns[p],
                                            .path = texts.bytes ? name_of(self, p) : NULL,
                                            .texts = texts.count,
                                            .bytes = texts.bytes};
  }
  LS_TRY(check_others(self, error));
  LS_TRY(ls_directory_make(self->path, error));
  ls_cache_sweep(self->path);
  ls_status status = LS_OK;
  for (int p = 0; p < count && status == LS_OK; p++) status = write_one(self, p, error);
  if (status != LS_OK && !was_there) rmdir(self->path); /* where nothing is in it */
  return status;
}

static const char *without_slashes(ls_arena *arena, const char *path) {
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  return ls_arena_printf(arena, "%.*s", (int)length, path);
}

ls_status ls_token_folder_write(ls_arena *arena, const ls_corpus_options *options,
                                ls_token_folder_file **made, int *count, ls_error *error) {
  folder self = {
      .arena = arena, .options = options, .path = without_slashes(arena, options->cache_folder)};
  LS_TRY(ls_text_files_find(arena, options->key, options->patterns, options->pattern_count,
                            &self.texts, error));
  LS_TRY(write_all(&self, error));
  *made = self.files;
  *count = options->pattern_count;
  return LS_OK;
}
