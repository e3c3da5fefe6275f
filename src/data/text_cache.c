#include "data/text_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { YOUNG_S = 10 }; /* its writer may not have locked it yet */

static const char digits[] = "0123456789";

/* Behind 16 hexadecimal digits; NULL: there are fewer or more. */
static const char *skip_hash(const char *name) {
  return strspn(name, "0123456789abcdef") == 16 ? name + 16 : NULL;
}

/* FRONT, a hash, END and nothing else. */
static bool is_hashed(const char *name, const char *front, const char *end) {
  if (strncmp(name, front, strlen(front)) != 0) return false;
  const char *rest = skip_hash(name + strlen(front));
  return rest && strcmp(rest, end) == 0;
}

/* NUMBER-NAME.tokens, as ls_token_folder_write names them. */
static bool is_of_folder(const char *name) {
  enum { NUMBER = 5, MOST = 100 };
  static const char ending[] = ".tokens";
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  if (strspn(name, digits) != NUMBER || name[NUMBER] != '-') return false;
  name += NUMBER + 1;
  const size_t length = strlen(name), tail = sizeof ending - 1;
  if (length <= tail || length > MOST + tail || *name == '.') return false;
  return strspn(name, plain) == length && strcmp(name + length - tail, ending) == 0;
}

/* A token file's name, then .PROCESS.TIME: what ls_token_file_make writes to. */
static bool is_aside(const char *name) {
  const char *dot = strrchr(name, '.');
  const char *rest = dot ? skip_hash(dot + 1) : NULL;
  if (!rest || *rest) return false;
  const char *end = dot; /* of the process's digits */
  while (end > name && strchr(digits, end[-1])) end--;
  if (end == dot || end == name || end[-1] != '.') return false;
  char *whole = strndup(name, (size_t)(end - 1 - name));
  const bool ours = whole && (is_hashed(whole, "tokens-", ".bin") || is_of_folder(whole));
  free(whole);
  return ours;
}

/* Whether nobody writes to it. */
static bool is_left(const char *path, const struct stat *about) {
  if (time(NULL) - about->st_mtime < YOUNG_S) return false;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool left = flock(file, LOCK_EX | LOCK_NB) == 0;
  close(file);
  return left;
}

static bool kind_of(const char *name, const char *path, const struct stat *about,
                    ls_cache_kind *kind) {
  *kind = LS_CACHE_TOKENS;
  if (is_hashed(name, "tokens-", ".bin")) return true;
  *kind = LS_CACHE_RATES;
  if (is_hashed(name, "machine-", ".json")) return true;
  *kind = LS_CACHE_GPU;
  if (is_hashed(name, "gpu-", ".kept")) return true;
  *kind = LS_CACHE_LEFTOVER;
  return is_aside(name) && is_left(path, about);
}

static int by_use(const void *one, const void *other) {
  const ls_cache_file *a = one, *b = other;
  if (a->used_s != b->used_s) return a->used_s < b->used_s ? -1 : 1;
  return strcmp(a->path, b->path);
}

ls_status ls_cache_find(ls_arena *arena, const char *folder, ls_cache_list *list, ls_error *error) {
  *list = (ls_cache_list){0};
  DIR *open = opendir(folder);
  if (!open && errno == ENOENT) return LS_OK;
  if (!open) return ls_fail(error, LS_FAILED, "%s: cannot be read: %s", folder, strerror(errno));
  for (const struct dirent *entry; (entry = readdir(open));) {
    const char *path = ls_arena_printf(arena, "%s/%s", folder, entry->d_name);
    struct stat about;
    ls_cache_kind kind;
    if (lstat(path, &about) != 0 || !S_ISREG(about.st_mode)) continue;
    if (!kind_of(entry->d_name, path, &about, &kind)) continue;
    *LS_APPEND(arena, &list->files) =
        (ls_cache_file){path, kind, (int64_t)about.st_size, (int64_t)about.st_mtime};
    list->bytes += (int64_t)about.st_size;
  }
  closedir(open);
  if (list->files.count > 0)
    qsort(list->files.items, (size_t)list->files.count, sizeof *list->files.items, by_use);
  return LS_OK;
}

ls_status ls_cache_remove(const ls_cache_file *file, ls_error *error) {
  if (unlink(file->path) == 0 || errno == ENOENT) return LS_OK;
  return ls_fail(error, LS_FAILED, "%s: cannot be removed: %s", file->path, strerror(errno));
}

void ls_cache_sweep(const char *folder) {
  ls_arena *arena = ls_arena_create();
  ls_cache_list list;
  ls_error error;
  if (ls_cache_find(arena, folder, &list, &error) == LS_OK)
    for (int i = 0; i < list.files.count; i++)
      if (list.files.items[i].kind == LS_CACHE_LEFTOVER)
        (void)!ls_cache_remove(&list.files.items[i], &error);
  ls_arena_destroy(&arena);
}

static const char *last_part(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static bool is_kept(const ls_cache_file *file, const char *const *kept, int count) {
  const char *name = last_part(file->path); /* a folder has more than one path */
  for (int i = 0; i < count; i++)
    if (strcmp(name, last_part(kept[i])) == 0) return true;
  return false;
}

static void trim(const char *folder, const ls_cache_list *list, int64_t limit,
                 const char *const *kept, int kept_count) {
  int64_t bytes = 0, held = 0;
  for (int i = 0; i < list->files.count; i++) {
    const ls_cache_file *file = &list->files.items[i];
    if (file->kind != LS_CACHE_TOKENS) continue;
    bytes += file->bytes;
    if (is_kept(file, kept, kept_count)) held += file->bytes;
  }
  if (held > limit)
    ls_warn(
        "%s: the token files of this run have %.1f MiB and stay, and data.cache_limit is %.1f: "
        "data.cache_limit=%lldMiB holds them",
        folder, (double)held / 1048576, (double)limit / 1048576,
        (long long)((held + 1048575) / 1048576));
  for (int i = 0; i < list->files.count && bytes > limit; i++) {
    const ls_cache_file *file = &list->files.items[i];
    ls_error error;
    if (file->kind != LS_CACHE_TOKENS || is_kept(file, kept, kept_count)) continue;
    const ls_status status = ls_cache_remove(file, &error);
    if (status != LS_OK) ls_warn("%s", error.text);
    if (status != LS_OK) continue;
    ls_warn(
        "%s (%.1f MiB) is removed, as used longest ago: token files have %.1f MiB, and "
        "data.cache_limit is %.1f",
        file->path, (double)file->bytes / 1048576, (double)bytes / 1048576,
        (double)limit / 1048576);
    bytes -= file->bytes;
  }
}

void ls_cache_trim(const char *folder, int64_t limit, const char *const *kept, int kept_count) {
  if (limit <= 0) return;
  ls_arena *arena = ls_arena_create();
  ls_cache_list list;
  ls_error error;
  if (ls_cache_find(arena, folder, &list, &error) == LS_OK)
    trim(folder, &list, limit, kept, kept_count);
  ls_arena_destroy(&arena);
}

void ls_cache_touch(const char *path) {
  (void)!utimensat(AT_FDCWD, path, NULL, 0); /* of somebody else's file it may be refused */
}
