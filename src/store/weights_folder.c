#include "store/weights_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

bool ls_weights_folder_has(ls_arena *arena, const char *folder) {
  return ls_file_exists(ls_arena_printf(arena, "%s/model.safetensors", folder)) ||
         ls_file_exists(ls_arena_printf(arena, "%s/model.safetensors.index.json", folder));
}

static bool ends_with(const char *name, const char *end) {
  const size_t length = strlen(name), part = strlen(end);
  return length >= part && strcmp(name + length - part, end) == 0;
}

/* Adapters and the state of an optimizer are no model's weights. */
static bool looks_like_weights(const char *name) {
  if (strncmp(name, "pytorch_model", 13) == 0) return ends_with(name, ".bin");
  return strncmp(name, "model", 5) == 0 &&
         (ends_with(name, ".safetensors") || ends_with(name, ".safetensors.index.json"));
}

/* The first such name in the order of their bytes, which does not depend on the file system. */
static const char *find_stray(ls_arena *arena, const char *folder) {
  const char *found = NULL;
  DIR *opened = opendir(folder);
  for (struct dirent *each; opened && (each = readdir(opened));)
    if (looks_like_weights(each->d_name) && (!found || strcmp(each->d_name, found) < 0))
      found = ls_arena_strdup(arena, each->d_name);
  if (opened) closedir(opened);
  return found;
}

ls_status ls_weights_folder_check(ls_arena *arena, const char *folder, bool *has, ls_error *error) {
  *has = ls_weights_folder_has(arena, folder);
  const char *stray = *has ? NULL : find_stray(arena, folder);
  if (!stray) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found %.100s, but no model.safetensors or model.safetensors.index.json that "
                 "can be read: copy or download it again, save it as safetensors, or give "
                 "init=scratch to start without weights",
                 folder, stray);
}

typedef LS_LIST(const char *) name_list;

static int compare_names(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Files of weights and of adapters, in the order of their names. */
static name_list list_weights(ls_arena *arena, const char *folder) {
  name_list names = {0};
  DIR *opened = opendir(folder);
  for (struct dirent *each; opened && (each = readdir(opened));) {
    const char *name = each->d_name;
    const bool state = strncmp(name, "optimizer", 9) == 0; /* of a checkpoint */
    if (!state && ends_with(name, ".safetensors"))
      *LS_APPEND(arena, &names) = ls_arena_strdup(arena, name);
  }
  if (opened) closedir(opened);
  if (names.count) qsort(names.items, (size_t)names.count, sizeof *names.items, compare_names);
  return names;
}

/* All of it up to 64 MiB; else its first bytes, and pieces at equal distances up to its end. */
static bool glance_file(FILE *file, uint64_t place, ls_checksum *sum) {
  enum { FIRST = 1 << 16, PIECE = 1 << 12, PIECES = 256, WHOLE = 64 << 20 };
  char bytes[FIRST];
  if (fseeko(file, 0, SEEK_END) != 0) return false;
  const off_t size = ftello(file), last = size > PIECE ? size - PIECE : 0;
  for (off_t at = 0; at < size && size <= WHOLE; at += FIRST) {
    if (fseeko(file, at, SEEK_SET) != 0) return false;
    ls_checksum_add(sum, place + (uint64_t)at, bytes, fread(bytes, 1, FIRST, file));
  }
  for (int p = -1; p < PIECES && size > WHOLE; p++) {
    const off_t at = p < 0 ? 0 : last * (p + 1) / PIECES;
    if (fseeko(file, at, SEEK_SET) != 0) return false;
    const size_t found = fread(bytes, 1, p < 0 ? FIRST : PIECE, file);
    ls_checksum_add(sum, place + (uint64_t)at, bytes, found);
  }
  ls_checksum_add(sum, place, &size, sizeof size);
  return size >= 0 && !ferror(file);
}

ls_status ls_weights_folder_glance(ls_arena *arena, const char *folder, ls_checksum *sum,
                                   ls_error *error) {
  const name_list names = list_weights(arena, folder);
  for (int n = 0; n < names.count; n++) {
    const uint64_t place = (uint64_t)(n + 1) << 48; /* so that files do not change places */
    const char *path = ls_arena_printf(arena, "%s/%s", folder, names.items[n]);
    FILE *file = fopen(path, "rb");
    const bool read = file && glance_file(file, place, sum);
    const int reason = errno;
    if (file) fclose(file);
    if (!read) return ls_fail(error, LS_FAILED, "%s: %s", path, strerror(reason));
    ls_checksum_add(sum, place, names.items[n], strlen(names.items[n]));
  }
  return LS_OK;
}
