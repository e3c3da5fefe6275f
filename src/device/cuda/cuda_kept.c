/* Files of the user's cache: a line with a checksum, the key, and what is kept. */
#include "device/cuda/cuda_kept.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/file.h"
#include "cluster/rates.h"

/* Ranks that are threads write the same file by the same name beside it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *path_of(ls_arena *arena, const char *key) {
  const char *folder = ls_rates_folder(arena);
  uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
  for (const char *at = key; *at; at++) hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
  return folder ? ls_arena_printf(arena, "%s/gpu-%016" PRIx64 ".kept", folder, hash) : NULL;
}

/* What stands before the data: it is believed only with this before it. */
static char *head_of(ls_arena *arena, const char *key, const void *data, size_t bytes) {
  char sum[LS_CHECKSUM_DIGITS + 1];
  ls_checksum of = {0};
  ls_checksum_add(&of, 0, data, bytes);
  ls_checksum_text(&of, sum);
  return ls_arena_printf(arena, "lockstep gpu 1 %s\n%s\n", sum, key);
}

bool ls_cuda_kept_read(ls_arena *arena, const char *key, char **data, size_t *bytes) {
  const char *path = path_of(arena, key);
  ls_error error;
  if (!path || !ls_file_exists(path)) return false;
  if (ls_file_read(arena, path, data, bytes, &error) != LS_OK) {
    ls_warn("%s; it is made again", error.text);
    return false;
  }
  const size_t before = strlen(head_of(arena, key, NULL, 0));
  if (*bytes >= before) {
    const char *head = head_of(arena, key, *data + before, *bytes - before);
    if (memcmp(*data, head, before) == 0) {
      *data += before, *bytes -= before;
      return true;
    }
  }
  ls_warn("%s: damaged, or of another version; it is made again", path);
  return false;
}

void ls_cuda_kept_write(ls_arena *arena, const char *key, const void *data, size_t bytes) {
  const char *path = path_of(arena, key);
  ls_error error;
  if (!path) return;
  const char *head = head_of(arena, key, data, bytes);
  const size_t before = strlen(head);
  char *whole = ls_arena_alloc(arena, before + bytes + 1);
  memcpy(whole, head, before);
  memcpy(whole + before, data, bytes);
  pthread_mutex_lock(&lock);
  ls_status status = ls_directory_make(ls_rates_folder(arena), &error);
  if (status == LS_OK) status = ls_file_write(path, whole, before + bytes, &error);
  pthread_mutex_unlock(&lock);
  if (status != LS_OK) ls_warn("%s; it is found out again next time", error.text);
}
