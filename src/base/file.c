#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; headers may be older than the system */
#endif

enum { WALK_FILES = 16 }; /* folders held open by a walk */

static ls_status fail_read(ls_error *error, const char *path, int reason) {
  if (reason == ENOENT) return ls_fail(error, LS_INPUT, "%s: no such file", path);
  const bool ours = reason == ENOMEM || reason == EIO || reason == EMFILE || reason == ENFILE;
  return ls_fail(error, ours ? LS_FAILED : LS_INPUT, "%s: cannot be read: %s", path,
                 strerror(reason));
}

static ls_status fail_write(ls_error *error, const char *path, int reason) {
  return ls_fail(error, LS_FAILED, "%s: cannot be written: %s", path, strerror(reason));
}

/* Opens for reading and refuses folders, which open() alone does not. */
static ls_status open_read(const char *path, int *descriptor, struct stat *info, ls_error *error) {
  *descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (*descriptor < 0) return fail_read(error, path, errno);
  int reason = 0;
  if (fstat(*descriptor, info)) {
    reason = errno;
  } else if (S_ISDIR(info->st_mode)) {
    reason = EISDIR;
  }
  if (!reason) return LS_OK;
  close(*descriptor);
  return fail_read(error, path, reason);
}

ls_status ls_file_read(ls_arena *arena, const char *path, char **data, size_t *bytes,
                       ls_error *error) {
  int descriptor;
  struct stat info;
  LS_TRY(open_read(path, &descriptor, &info, error));
  /* The size is a hint only: a pipe has none, and a file may grow while it is read. */
  size_t capacity = info.st_size > 0 ? (size_t)info.st_size + 1 : 4096;
  size_t used = 0;
  char *text = ls_arena_alloc(arena, capacity);
  for (;;) {
    if (used == capacity) {
      char *larger = ls_arena_alloc(arena, 2 * capacity);
      memcpy(larger, text, used);
      text = larger;
      capacity *= 2;
    }
    const ssize_t got = read(descriptor, text + used, capacity - used);
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      const int reason = errno;
      close(descriptor);
      return fail_read(error, path, reason);
    }
    used += (size_t)got;
  }
  close(descriptor);
  text[used] = 0;
  *data = text;
  *bytes = used;
  return LS_OK;
}

ls_status ls_file_map(const char *path, ls_map *map, ls_error *error) {
  *map = (ls_map){0};
  int descriptor;
  struct stat info;
  /* A pipe cannot be mapped, and opening one waits for whoever writes to it. */
  if (!stat(path, &info) && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
    return ls_fail(error, LS_INPUT, "%s: cannot be read: expected a regular file", path);
  LS_TRY(open_read(path, &descriptor, &info, error));
  int reason = 0;
  if (info.st_size > 0) {
    const size_t bytes = (size_t)info.st_size;
    void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED) {
      reason = errno;
    } else {
      *map = (ls_map){data, bytes};
    }
  }
  close(descriptor);
  return reason ? fail_read(error, path, reason) : LS_OK;
}

void ls_file_unmap(ls_map *map) {
  if (map->data) munmap((void *)map->data, map->bytes);
  *map = (ls_map){0};
}

static int advise(const void *data, size_t bytes, int advice) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)data / page * page;
  const uintptr_t end = (uintptr_t)data + bytes;
  return bytes && madvise((void *)begin, end - begin, advice) ? errno : 0;
}

void ls_map_expect(const void *data, size_t bytes) {
  (void)advise(data, bytes, MADV_WILLNEED);
}

ls_status ls_map_fetch(const char *path, const void *data, size_t bytes, ls_error *error) {
  const int reason = advise(data, bytes, MADV_POPULATE_READ);
  if (reason == EFAULT)
    return ls_fail(error, LS_INPUT,
                   "%s: cannot be read where it could before: it was cut, or the "
                   "disk fails",
                   path);
  return LS_OK; /* older systems do not know it: touching brings it in */
}

void ls_map_release(const void *data, size_t bytes) {
  (void)advise(data, bytes, MADV_DONTNEED);
}

/* Flushes a file or a folder; returns 0 or the reason. */
static int sync_path(const char *path) {
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return errno;
  int reason = fsync(descriptor) ? errno : 0;
  /* Some file systems have nothing to flush for a folder, and say so in this way. */
  if (reason == EINVAL) reason = 0;
  close(descriptor);
  return reason;
}

/* Flushes the folder that holds `path`, so that its new name outlives a power cut. */
static int sync_parent(const char *path) {
  char *parent = strdup(path);
  if (!parent) return errno;
  size_t length = strlen(parent);
  while (length > 1 && parent[length - 1] == '/') length--;
  while (length > 0 && parent[length - 1] != '/') length--;
  while (length > 1 && parent[length - 1] == '/') length--;
  parent[length] = 0;
  const int reason = sync_path(length ? parent : ".");
  free(parent);
  return reason;
}

/* Writes and flushes what is opened with `flags`; returns 0 or the reason. */
static int write_flushed(const char *path, int flags, const char *data, size_t bytes) {
  const int descriptor = open(path, O_WRONLY | O_CLOEXEC | flags, 0666);
  if (descriptor < 0) return errno;
  int reason = 0;
  while (bytes && !reason) {
    const ssize_t put = write(descriptor, data, bytes);
    if (put >= 0) {
      data += put;
      bytes -= (size_t)put;
    } else if (errno != EINTR) {
      reason = errno;
    }
  }
  if (!reason && fsync(descriptor) && errno != EINVAL) reason = errno; /* EINVAL: of a pipe */
  if (close(descriptor) && !reason) reason = errno;
  return reason;
}

/* Writes a new file in the place of `path`; returns 0 or the reason. */
static int write_beside(const char *path, const char *data, size_t bytes) {
  char *aside;
  if (asprintf(&aside, "%s.tmp-%ld", path, (long)getpid()) < 0) return ENOMEM;
  int reason = write_flushed(aside, O_CREAT | O_TRUNC, data, bytes);
  if (!reason && rename(aside, path)) reason = errno;
  if (reason) unlink(aside);
  free(aside);
  return reason ? reason : sync_parent(path);
}

bool ls_file_is_special(const char *path) {
  struct stat info;
  return !stat(path, &info) && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

ls_status ls_file_write(const char *path, const void *data, size_t bytes, ls_error *error) {
  struct stat info;
  const bool link = !lstat(path, &info) && S_ISLNK(info.st_mode);
  char *real = link ? realpath(path, NULL) : NULL;
  int reason = link && !real ? errno : 0;
  if (ls_file_is_special(path))
    reason = write_flushed(path, 0, data, bytes);
  else if (reason == ENOENT) /* a link to what is not there yet */
    reason = write_flushed(path, O_CREAT, data, bytes);
  else if (!reason)
    reason = write_beside(real ? real : path, data, bytes);
  free(real);
  return reason ? fail_write(error, path, reason) : LS_OK;
}

bool ls_file_exists(const char *path) {
  struct stat info;
  return !stat(path, &info) && !S_ISDIR(info.st_mode);
}

bool ls_directory_exists(const char *path) {
  struct stat info;
  return !stat(path, &info) && S_ISDIR(info.st_mode);
}

static bool is_empty(const char *folder) {
  DIR *opened = opendir(folder);
  bool empty = true;
  for (struct dirent *each; opened && (each = readdir(opened));)
    if (strcmp(each->d_name, ".") != 0 && strcmp(each->d_name, "..") != 0) empty = false;
  if (opened) closedir(opened);
  return empty;
}

ls_status ls_directory_check_new(const char *path, ls_error *error) {
  struct stat info;
  if (stat(path, &info) != 0 || (S_ISDIR(info.st_mode) && is_empty(path))) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: something is there; expected a new or an empty folder",
                 path);
}

ls_status ls_directory_make(const char *path, ls_error *error) {
  char *partial = strdup(path);
  if (!partial) return fail_write(error, path, ENOMEM);
  int reason = *path ? 0 : ENOENT;
  for (char *end = partial; *end && !reason; end++) {
    if (end[1] && end[1] != '/') continue;
    const char after = end[1];
    end[1] = 0;
    const int failure = mkdir(partial, 0777) ? errno : 0;
    if (failure && !ls_directory_exists(partial)) reason = failure;
    end[1] = after;
  }
  free(partial);
  if (!reason) return LS_OK;
  struct stat info;
  const bool link = !lstat(path, &info) && S_ISLNK(info.st_mode);
  /* A full or broken disk is a failure; anything else is a path that cannot be right. */
  const bool disk = reason == ENOSPC || reason == EDQUOT || reason == EIO || reason == ENOMEM;
  return ls_fail(error, disk ? LS_FAILED : LS_INPUT, "%s: this folder cannot be made: %s", path,
                 reason == EEXIST && link                ? "a link that leads nowhere is in the way"
                 : reason == EEXIST || reason == ENOTDIR ? "a file of that name is in the way"
                                                         : strerror(reason));
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place) {
  (void)info, (void)kind, (void)place;
  return remove(path) && errno != ENOENT ? errno : 0;
}

ls_status ls_directory_remove(const char *path, ls_error *error) {
  struct stat info;
  int reason = 0;
  if (lstat(path, &info)) {
    reason = errno == ENOENT ? 0 : errno;
  } else if (!S_ISDIR(info.st_mode)) {
    reason = ENOTDIR;
  } else {
    reason = nftw(path, remove_one, WALK_FILES, FTW_DEPTH | FTW_PHYS);
    if (reason < 0) reason = errno;
  }
  if (!reason) return LS_OK;
  return ls_fail(error, LS_FAILED, "%s: cannot be removed: %s", path, strerror(reason));
}

static int sync_one(const char *path, const struct stat *info, int kind, struct FTW *place) {
  (void)info, (void)place;
  if (kind == FTW_F || kind == FTW_DP) return sync_path(path);
  return kind == FTW_DNR || kind == FTW_NS ? EACCES : 0;
}

/* rename() for a name that must be free; returns 0 or the reason. */
static int rename_new(const char *from, const char *to) {
  if (!renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE)) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  /* This file system cannot refuse by itself (NFS): ask first. */
  struct stat info;
  if (!lstat(to, &info)) return EEXIST;
  return rename(from, to) ? errno : 0;
}

ls_status ls_directory_publish(const char *written, const char *final, ls_error *error) {
  int reason = nftw(written, sync_one, WALK_FILES, FTW_DEPTH | FTW_PHYS);
  if (reason < 0) reason = errno;
  if (!reason) reason = rename_new(written, final);
  if (!reason) reason = sync_parent(final);
  return reason ? fail_write(error, final, reason) : LS_OK;
}
