#include "generate/ends.h"

#include <string.h>

#include "base/file.h"
#include "text/json.h"

static ls_status read_ids(ls_arena *arena, const ls_json_object *object, int64_t **ids, int *count,
                          ls_error *error) {
  if (json_is_array(json_object_get(object->json, "eos_token_id")))
    return ls_json_ints(arena, object, "eos_token_id", ids, count, error);
  *ids = LS_NEW(arena, int64_t);
  *count = 1;
  return ls_json_int(object, "eos_token_id", *ids, error);
}

static ls_status take_ids(ls_arena *arena, const char *path, const json_t *root,
                          ls_model_config *config, ls_error *error) {
  ls_json_object object;
  int64_t *ids;
  int count;
  LS_TRY(ls_json_root(path, root, &object, error));
  if (!ls_json_has(&object, "eos_token_id")) return LS_OK;
  LS_TRY(read_ids(arena, &object, &ids, &count, error));
  if (count > LS_MAX_END_IDS)
    return ls_fail(error, LS_INPUT, "%s: eos_token_id: found %d ids; expected at most %d", path,
                   count, LS_MAX_END_IDS);
  config->end_count = count;
  memcpy(config->end_ids, ids, sizeof *ids * (size_t)count);
  return LS_OK;
}

ls_status ls_ends_read(ls_arena *arena, const char *folder, ls_model_config *config,
                       ls_error *error) {
  const char *path = ls_arena_printf(arena, "%s/generation_config.json", folder);
  if (!ls_file_exists(path) && config->base)
    path = ls_arena_printf(arena, "%s/generation_config.json", config->base);
  if (!ls_file_exists(path)) return LS_OK;
  json_t *root;
  LS_TRY(ls_json_read(path, LS_JSON_LAST_KEY, &root, error));
  const ls_status status = take_ids(arena, path, root, config, error);
  json_decref(root);
  return status;
}
