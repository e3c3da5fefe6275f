#include "model/hub.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

bool ls_hub_is_name(const char *model) {
  const char *slash = strchr(model, '/');
  if (!slash || slash == model || !slash[1] || strchr(slash + 1, '/')) return false;
  if (model[0] == '.' || model[0] == '~') return false;
  return !ls_file_exists(model) && !ls_directory_exists(model);
}

static const char *cache_folder(ls_arena *arena) {
  const char *given = getenv("HF_HUB_CACHE");
  if (given && *given) return given;
  given = getenv("HF_HOME");
  if (given && *given) return ls_arena_printf(arena, "%s/hub", given);
  given = getenv("XDG_CACHE_HOME");
  if (given && *given) return ls_arena_printf(arena, "%s/huggingface/hub", given);
  given = getenv("HOME");
  return ls_arena_printf(arena, "%s/.cache/huggingface/hub", given ? given : "");
}

ls_status ls_hub_find(ls_arena *arena, const char *model, const char **folder, ls_error *error) {
  const char *slash = strchr(model, '/');
  const char *cache = cache_folder(arena);
  const char *repository =
      ls_arena_printf(arena, "%s/models--%.*s--%s", cache, (int)(slash - model), model, slash + 1);
  const char *reference = ls_arena_printf(arena, "%s/refs/main", repository);
  if (!ls_file_exists(reference))
    return ls_fail(error, LS_INPUT,
                   "model %s: not a file, and not in the Hugging Face cache (%s): download it with "
                   "hf download %s",
                   model, cache, model);
  char *commit;
  size_t bytes;
  LS_TRY(ls_file_read(arena, reference, &commit, &bytes, error));
  commit[strcspn(commit, "\r\n \t")] = 0;
  *folder = ls_arena_printf(arena, "%s/snapshots/%s", repository, commit);
  if (ls_directory_exists(*folder)) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "model %s: %s names a snapshot that is not there: download it again with hf "
                 "download %s",
                 model, reference, model);
}
