#include "store/weights_folder.h"

#include <dirent.h>
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
