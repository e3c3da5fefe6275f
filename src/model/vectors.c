#include <stdlib.h>
#include <string.h>

#include "model/family.h"

/* A model without a head, which makes vectors of texts, as config.json has it. */

static const char vectors_key[] = "text_vectors";
static const char *const poolings[] = {"last", "cls", "mean"};

ls_status ls_config_read_vectors(const ls_json_object *json, ls_model_config *config,
                                 ls_error *error) {
  const json_t *found = json_object_get(json->json, vectors_key);
  config->vectors = json_is_object(found) && config->classes == 0;
  if (!config->vectors) return LS_OK;
  const char *pooling = json_string_value(json_object_get(found, "pooling"));
  for (int p = 0; pooling && p < (int)(sizeof poolings / sizeof *poolings); p++)
    if (strcmp(pooling, poolings[p]) == 0) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s.pooling: found %.40s; expected last, cls or mean",
                 json->where, vectors_key, pooling ? pooling : "no text");
}

static const char *text_of(ls_arena *arena, const json_t *of, const char *key) {
  const char *text = json_string_value(json_object_get(of, key));
  return ls_arena_strdup(arena, text ? text : "");
}

bool ls_model_text_vectors(ls_arena *arena, const ls_model_config *config, ls_text_vectors *told) {
  json_t *json = config->text ? json_loads(config->text, 0, NULL) : NULL;
  const json_t *found = json_object_get(json, vectors_key);
  const bool there = json_is_object(found);
  if (there)
    *told =
        (ls_text_vectors){text_of(arena, found, "pooling"), text_of(arena, found, "query_prompt"),
                          text_of(arena, found, "answer_prompt"),
                          json_integer_value(json_object_get(found, "longest"))};
  json_decref(json);
  return there;
}

void ls_model_set_vectors(ls_arena *arena, ls_model_config *config, const ls_text_vectors *told) {
  json_t *json = json_loads(config->text, 0, NULL);
  LS_ASSERT(config->classes == 0);
  const int failed =
      json_object_set_new(json, vectors_key,
                          json_pack("{s:s, s:s, s:s, s:I}", "pooling", told->pooling,
                                    "query_prompt", told->query_prompt, "answer_prompt",
                                    told->answer_prompt, "longest", (json_int_t)told->longest));
  char *dumped = failed ? NULL : ls_config_dump(json);
  if (!dumped) ls_panic("no memory for a config.json of the family %s", config->family);
  config->text = ls_arena_printf(arena, "%s\n", dumped);
  config->vectors = true;
  free(dumped);
  json_decref(json);
}
