#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "cli/command.h"
#include "cluster/rates.h"
#include "data/text_cache.h"
#include "data/token_file.h"
#include "train/run_folder.h"

static const char help[] =
    "usage: lockstep cache [list] [FOLDER...]\n"
    "       lockstep cache clear [FOLDER...] [--older-than DAYS] [--all]\n\n"
    "Texts become token files once, which later runs map: in $XDG_CACHE_HOME/lockstep, else in "
    "the\n"
    "folder `cache` beside a run's out. What was found out on a GPU (gpu-*.kept) lies there too.\n"
    "Each is made again when it is not there. FOLDER is such a\n"
    "folder or a run's; without one, $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep, and "
    "runs/cache.\n"
    "A run removes what was used longest ago, but never its own, once all have more than\n"
    "data.cache_limit.\n\n"
    "  --older-than DAYS  only what was not used for so long\n"
    "  --all              also what lockstep bench measured of this machine (machine-*.json)\n"
    "  --help             this text\n\n"
    "examples:\n"
    "  lockstep cache\n"
    "  lockstep cache clear --older-than 30\n"
    "  lockstep cache clear runs/quickstart\n";

typedef struct request {
  bool clear, all;
  const char *days;
  double older_than_s; /* 0: any age */
  int64_t files, bytes;
} request;

/* The folders that there may be a cache in. */
static int usual_folders(ls_arena *arena, const char *folders[2]) {
  int count = 0;
  const char *own = ls_rates_folder(arena);
  if (own) folders[count++] = own;
  folders[count++] = "runs/cache";
  return count;
}

static const char *size_text(ls_arena *arena, int64_t bytes) {
  const double mib = (double)bytes / 1048576;
  return mib < 1024 ? ls_arena_printf(arena, "%.1f MiB", mib)
                    : ls_arena_printf(arena, "%.1f GiB", mib / 1024);
}

/* The key of what was found out on a GPU: the file's second line. */
static const char *kept_of(ls_arena *arena, const char *path) {
  char *data;
  size_t bytes;
  ls_error error;
  if (ls_file_read(arena, path, &data, &bytes, &error) != LS_OK) return "cannot be read";
  char *key = memchr(data, '\n', bytes);
  char *end = key ? memchr(key + 1, '\n', bytes - (size_t)(key + 1 - data)) : NULL;
  if (!end) return "damaged, or of another version";
  *end = 0;
  return key + 1;
}

static const char *what(ls_arena *arena, const ls_cache_file *file) {
  ls_token_header about;
  switch (file->kind) {
    case LS_CACHE_LEFTOVER: return "half-written, its process is gone";
    case LS_CACHE_RATES: return "rates of this machine";
    case LS_CACHE_GPU: return kept_of(arena, file->path);
    case LS_CACHE_TOKENS: break;
  }
  if (!ls_token_file_header(file->path, &about)) return "damaged, or of another version";
  return ls_arena_printf(arena, "%lld tokens of %lld document%s by %.24s", (long long)about.count,
                         (long long)about.documents, about.documents == 1 ? "" : "s",
                         about.tokenizer);
}

static bool is_meant(const request *asked, const ls_cache_file *file) {
  if (asked->clear && file->kind == LS_CACHE_RATES && !asked->all) return false;
  return difftime(time(NULL), (time_t)file->used_s) >= asked->older_than_s;
}

static ls_status each_file(ls_arena *arena, request *asked, const ls_cache_file *file,
                           ls_error *error) {
  if (!is_meant(asked, file)) return LS_OK;
  char used[32];
  const time_t when = (time_t)file->used_s;
  struct tm local;
  if (!localtime_r(&when, &local) || !strftime(used, sizeof used, "%Y-%m-%d %H:%M", &local))
    snprintf(used, sizeof used, "?");
  const char *words = what(arena, file);
  if (asked->clear) LS_TRY(ls_cache_remove(file, error));
  printf("%s%-16s  %10s  %s  %s\n", asked->clear ? "removed  " : "", used,
         size_text(arena, file->bytes), file->path, words);
  asked->files++;
  asked->bytes += file->bytes;
  return LS_OK;
}

static ls_status each_folder(ls_arena *arena, request *asked, const char *folder, ls_error *error) {
  ls_cache_list list;
  LS_TRY(ls_cache_find(arena, folder, &list, error));
  for (int i = 0; i < list.files.count; i++)
    LS_TRY(each_file(arena, asked, &list.files.items[i], error));
  return LS_OK;
}

/* A cache's folder, or that of a run's cache: beside `word` as train has it of the same out, or, as
 * of "." and "..", beside the folder that it stands for. */
static ls_status folder_of(ls_arena *arena, const char *word, const char **folder,
                           ls_error *error) {
  *folder = word;
  if (!ls_directory_exists(word))
    return ls_fail(error, LS_INPUT, "%s: no folder of that name; expected a cache or a run", word);
  if (!ls_file_exists(ls_arena_printf(arena, "%s/" LS_RESOLVED_NAME, word))) return LS_OK;
  *folder = ls_corpus_cache_folder(arena, word);
  char *real = ls_directory_exists(*folder) ? NULL : realpath(word, NULL);
  if (real) *folder = ls_corpus_cache_folder(arena, real);
  free(real);
  return LS_OK;
}

static ls_status cache(ls_arena *arena, const ls_words *words, void *flags, ls_error *error) {
  request *asked = flags;
  if (words->key_count)
    return ls_fail(error, LS_INPUT, "%s: cache takes no keys of a run file", words->keys[0]);
  const char **given = words->positional;
  int count = words->positional_count;
  asked->clear = count > 0 && strcmp(given[0], "clear") == 0;
  if (count > 0 && (asked->clear || strcmp(given[0], "list") == 0)) given++, count--;
  if (!asked->clear && asked->all)
    return ls_fail(error, LS_INPUT, "--all: expected it with clear; list shows all");
  if (asked->days) {
    char *end;
    asked->older_than_s = 86400 * strtod(asked->days, &end);
    if (end == asked->days || *end || !(asked->older_than_s >= 0))
      return ls_fail(error, LS_INPUT, "--older-than: found \"%s\"; expected a number of days",
                     asked->days);
  }
  const char *usual[2];
  const int usual_count = count ? 0 : usual_folders(arena, usual);
  for (int i = 0; i < usual_count; i++) LS_TRY(each_folder(arena, asked, usual[i], error));
  for (int i = 0; i < count; i++) {
    const char *folder;
    LS_TRY(folder_of(arena, given[i], &folder, error));
    LS_TRY(each_folder(arena, asked, folder, error));
  }
  printf("%lld file%s, %s%s\n", (long long)asked->files, asked->files == 1 ? "" : "s",
         size_text(arena, asked->bytes), asked->clear ? " removed" : "");
  return LS_OK;
}

int ls_command_cache(int count, char **words) {
  request asked = {0};
  const ls_command_flag flags[] = {{"--older-than", &asked.days, NULL},
                                   {"--all", NULL, &asked.all}};
  return ls_command_run(
      &(ls_command){"cache", help, false, flags, sizeof flags / sizeof *flags, cache, &asked},
      count, words);
}
