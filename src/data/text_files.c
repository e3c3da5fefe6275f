#include "data/text_files.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/file.h"
#include "data/token_file.h"

/* The part of the name before `ending`, where it has that ending in any case; else 0. */
static size_t before_ending(const char *name, size_t length, const char *ending) {
  const size_t bytes = strlen(ending);
  if (length <= bytes || strncasecmp(name + length - bytes, ending, bytes) != 0) return 0;
  return length - bytes;
}

static bool ends_with_any(const char *name, size_t length, const char *const *endings) {
  for (; *endings; endings++)
    if (before_ending(name, length, *endings)) return true;
  return false;
}

/* Length of the name without the ending that says how it is packed. */
static size_t unpacked_name(const char *path, ls_text_packing *packing) {
  const size_t length = strlen(path);
  size_t left = before_ending(path, length, ".gz");
  *packing = left ? LS_TEXT_GZIP : LS_TEXT_UNPACKED;
  if (left) return left;
  left = before_ending(path, length, ".zst");
  if (left) *packing = LS_TEXT_ZSTD;
  return left ? left : length;
}

static const char *const json_lines_endings[] = {".jsonl", ".ndjson", NULL};
static const char array_ending[] = ".json";
static const char *const plain_endings[] = {".txt", ".text", ".md", NULL};
static const char token_ending[] = ".tokens";

/* Formats that would be taken for plain text, and what to do about them. */
static const struct refusal {
  const char *ending, *advice;
} refusals[] = {
    {".parquet",
     "no Parquet library is in the distributions this builds on: convert it with "
     "duckdb -c \"COPY (FROM 'FILE.parquet') TO 'FILE.jsonl' (FORMAT json)\""},
    {".arrow", "convert it to JSON lines (datasets: to_json)"},
    {".feather", "convert it to JSON lines (pandas: to_json, orient records, lines true)"},
    {".bz2", "packed texts end in .gz or .zst"},
    {".xz", "packed texts end in .gz or .zst"},
    {".lz4", "packed texts end in .gz or .zst"},
    {".zip", "packed texts end in .gz or .zst"},
    {".tar", "unpack it and name the folder"},
};

static ls_status refuse_format(const char *key, const char *path, ls_error *error) {
  ls_text_packing packing;
  const size_t length = unpacked_name(path, &packing);
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    if (!before_ending(path, length, refusals[i].ending)) continue;
    return ls_fail(error, LS_INPUT, "%s: %s: %s files are not read; %s", key, path,
                   refusals[i].ending, refusals[i].advice);
  }
  return LS_OK;
}

static ls_status look_at(const char *key, const char *path, ls_text_file *file, ls_error *error) {
  struct stat found;
  if (stat(path, &found) != 0) {
    return ls_fail(error, LS_INPUT, "%s: %s: %m; expected a text file", key, path);
  }
  if (!S_ISREG(found.st_mode)) {
    return ls_fail(error, LS_INPUT, "%s: %s is no regular file; expected a text file", key, path);
  }
  LS_TRY(refuse_format(key, path, error));
  *file = (ls_text_file){
      .path = path,
      .bytes = found.st_size,
      .modified_ns = (int64_t)found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec,
      .device = found.st_dev,
      .inode = found.st_ino,
  };
  const size_t length = unpacked_name(path, &file->packing);
  file->json_array = before_ending(path, length, array_ending) > 0;
  file->json_lines = file->json_array || ends_with_any(path, length, json_lines_endings);
  file->tokens = before_ending(path, strlen(path), token_ending) > 0;
  return LS_OK;
}

typedef struct finding {
  ls_arena *arena;
  const char *key;
  int pattern; /* being looked for */
  LS_LIST(ls_text_file) files;
} finding;

static ls_status add(finding *state, const char *path, ls_error *error) {
  ls_text_file *file = LS_APPEND(state->arena, &state->files);
  LS_TRY(look_at(state->key, ls_arena_strdup(state->arena, path), file, error));
  file->pattern = state->pattern;
  return LS_OK;
}

/* The folder's name as a pattern that means itself. */
static char *escaped(ls_arena *arena, const char *path) {
  char *text = ls_arena_alloc(arena, 2 * strlen(path) + 4), *end = text;
  for (; *path; path++) {
    if (strchr("*?[\\", *path)) *end++ = '\\';
    *end++ = *path;
  }
  while (end > text + 1 && end[-1] == '/') end--;
  memcpy(end, "/**", 4);
  return text;
}

/* A folder stands for the text files in it. What ends otherwise is passed over, but for formats
 * that someone may take for texts. */
static ls_status add_folder(finding *state, const char *folder, ls_error *error) {
  char **paths = NULL;
  int count = 0, taken = 0;
  if (ls_file_glob(state->arena, escaped(state->arena, folder), &paths, &count, error) != LS_OK)
    return ls_fail(error, LS_INPUT, "%s: %s is a folder without files; expected texts in it",
                   state->key, folder);
  for (int i = 0; i < count; i++) {
    ls_text_packing packing;
    const size_t length = unpacked_name(paths[i], &packing);
    LS_TRY(refuse_format(state->key, paths[i], error));
    if (before_ending(paths[i], length, array_ending))
      return ls_fail(error, LS_INPUT,
                     "%s: %s: a .json file in a folder may be a list of texts or something else; "
                     "name it, or move it",
                     state->key, paths[i]);
    if (!ends_with_any(paths[i], length, plain_endings) &&
        !ends_with_any(paths[i], length, json_lines_endings) &&
        !before_ending(paths[i], strlen(paths[i]), token_ending))
      continue;
    LS_TRY(add(state, paths[i], error));
    taken++;
  }
  if (taken) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: none of the %d files in the folder %s ends in .txt, .text, .md, .jsonl or "
                 ".ndjson (.gz, .zst), or .tokens: name them, as in %s/*",
                 state->key, count, folder, folder);
}

static ls_status add_pattern(finding *state, const char *pattern, ls_error *error) {
  if (ls_directory_exists(pattern)) return add_folder(state, pattern, error);
  struct stat found;
  /* A name as it stands goes before its reading as a pattern: "notes [old].txt". */
  if (stat(pattern, &found) == 0) {
    LS_TRY(add(state, pattern, error));
    ls_text_file *file = &state->files.items[state->files.count - 1];
    file->tokens = file->tokens || ls_token_file_is(pattern);
    return LS_OK;
  }
  char **paths = NULL;
  int count = 0;
  if (ls_file_glob(state->arena, pattern, &paths, &count, error) != LS_OK)
    return ls_error_prefix(error, "%s", state->key);
  for (int i = 0; i < count; i++) LS_TRY(add(state, paths[i], error));
  return LS_OK;
}

typedef struct identity {
  uint64_t device, inode;
  int index;
} identity;

static int by_identity(const void *left, const void *right) {
  const identity *a = left, *b = right;
  if (a->device != b->device) return a->device < b->device ? -1 : 1;
  if (a->inode != b->inode) return a->inode < b->inode ? -1 : 1;
  return a->index < b->index ? -1 : 1;
}

static identity *sorted(ls_arena *arena, const ls_text_file *first, int count) {
  identity *list = LS_NEW_ARRAY(arena, identity, count + 1);
  for (int i = 0; i < count; i++) list[i] = (identity){first[i].device, first[i].inode, i};
  qsort(list, (size_t)count, sizeof *list, by_identity);
  return list;
}

/* One text twice would put the same sentences into training and validation. */
static ls_status check_distinct(const finding *state, ls_error *error) {
  const ls_text_file *files = state->files.items;
  const identity *list = sorted(state->arena, files, state->files.count);
  for (int i = 1; i < state->files.count; i++) {
    if (list[i].inode != list[i - 1].inode || list[i].device != list[i - 1].device) continue;
    return ls_fail(error, LS_INPUT, "%s: found %s a second time (as %s); expected each file once",
                   state->key, files[list[i].index].path, files[list[i - 1].index].path);
  }
  return LS_OK;
}

ls_status ls_text_files_find(ls_arena *arena, const char *key, const char *const *patterns,
                             int pattern_count, ls_text_files *files, ls_error *error) {
  finding state = {.arena = arena, .key = key};
  for (; state.pattern < pattern_count; state.pattern++)
    LS_TRY(add_pattern(&state, patterns[state.pattern], error));
  LS_TRY(check_distinct(&state, error));
  *files = (ls_text_files){state.files.items, state.files.count, 0};
  for (int i = 0; i < files->count; i++) files->bytes += files->items[i].bytes;
  if (files->bytes > 0) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: found no text: %s%s empty; expected a file with text in it",
                 key, files->count ? files->items[0].path : "the list",
                 files->count > 1 ? " and the others are" : " is");
}

bool ls_text_files_shared(ls_arena *arena, const ls_text_files *first, const ls_text_files *second,
                          int *in_first, int *in_second) {
  const identity *a = sorted(arena, first->items, first->count);
  const identity *b = sorted(arena, second->items, second->count);
  for (int i = 0, k = 0; i < first->count && k < second->count;) {
    const bool same = a[i].device == b[k].device && a[i].inode == b[k].inode;
    if (same) {
      *in_first = a[i].index;
      *in_second = b[k].index;
      return true;
    }
    const bool less =
        a[i].device != b[k].device ? a[i].device < b[k].device : a[i].inode < b[k].inode;
    if (less)
      i++;
    else
      k++;
  }
  return false;
}
