/* Runs a fuzz target over files, without a fuzzer: each argument is a file or a folder of files. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int replay_file(const char *path) {
  ls_error error = {0};
  ls_map map;
  if (ls_file_map(path, &map, &error) != LS_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 0;
  }
  LLVMFuzzerTestOneInput(map.data, map.bytes);
  ls_file_unmap(&map);
  return 1;
}

static int replay_directory(const char *path) {
  DIR *directory = opendir(path);
  if (!directory) return 0;
  int replayed = 0;
  for (const struct dirent *entry; (entry = readdir(directory));) {
    if (entry->d_name[0] == '.') continue;
    char name[4096];
    snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
    replayed += replay_file(name);
  }
  closedir(directory);
  return replayed;
}

int main(int count, char **arguments) {
  int replayed = 0;
  for (int i = 1; i < count; i++) {
    replayed += ls_directory_exists(arguments[i]) ? replay_directory(arguments[i])
                                                  : replay_file(arguments[i]);
  }
  printf("%d inputs replayed\n", replayed);
  return replayed ? 0 : 77;
}
