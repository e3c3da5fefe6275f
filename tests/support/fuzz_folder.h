/* A folder for fuzz targets whose readers find files by their names. The input holds the files one
 * after another, a NUL between them.
 *
 *   static const char *const names[] = {"vocab.json", "merges.txt"};
 *   fuzz_folder_fill(names, 2, data, bytes);
 *   ls_tokenizer_open(fuzz_folder(), NULL, &tokenizer, &error);
 *
 * It is removed when the process ends. One thread. */
#ifndef LS_TEST_FUZZ_FOLDER_H
#define LS_TEST_FUZZ_FOLDER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

static char fuzz_folder_path[64];

static inline void fuzz_folder_remove(void) {
  (void)!ls_directory_remove(fuzz_folder_path, NULL);
}

/* Made at the first call; in memory where there is a folder for that. */
static inline const char *fuzz_folder(void) {
  if (fuzz_folder_path[0]) return fuzz_folder_path;
  const bool shared = access("/dev/shm", W_OK) == 0;
  snprintf(fuzz_folder_path, sizeof fuzz_folder_path, "%s/lockstep-fuzz-XXXXXX",
           shared ? "/dev/shm" : "/tmp");
  LS_ASSERT(mkdtemp(fuzz_folder_path) && atexit(fuzz_folder_remove) == 0);
  return fuzz_folder_path;
}

/* Plainly, without the flushing to the drive of ls_file_write. */
static inline void fuzz_folder_write(const char *name, const void *data, size_t bytes) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
  FILE *file = fopen(path, "wb");
  LS_ASSERT(file && (bytes == 0 || fwrite(data, bytes, 1, file) == 1) && fclose(file) == 0);
}

/* The first `count` parts of the input, the last to its end; a file without a part is not there. */
static inline void fuzz_folder_fill(const char *const *names, int count, const uint8_t *data,
                                    size_t bytes) {
  for (int i = 0; i < count; i++) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), names[i]);
    unlink(path);
    if (!data) continue;
    const uint8_t *end = i + 1 < count ? memchr(data, 0, bytes) : NULL;
    const size_t length = end ? (size_t)(end - data) : bytes;
    fuzz_folder_write(names[i], data, length);
    bytes -= end ? length + 1 : length;
    data = end ? end + 1 : NULL;
  }
}

/* What a refusal must be: wrong input, told in one line. */
static inline void fuzz_check_refusal(ls_status status, const ls_error *error) {
  LS_ASSERT(status == LS_INPUT && error->status == LS_INPUT);
  LS_ASSERT(error->text[0] && !strchr(error->text, '\n'));
}

#endif
