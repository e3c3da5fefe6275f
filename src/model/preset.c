#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/family.h"
#include "text/distance.h"

/* The models of models.json, which is built in: names, and where their shapes come from. A row that
 * can be built has the keys of its config.json. */

extern const unsigned char ls_models_json[];
extern const size_t ls_models_json_bytes;

static const char *text_of(ls_arena *arena, const json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  return text ? ls_arena_strdup(arena, text) : NULL;
}

static ls_preset read_preset(ls_arena *arena, const char *name, const json_t *row) {
  ls_preset made = {.name = ls_arena_strdup(arena, name),
                    .title = text_of(arena, row, "title"),
                    .parameters = text_of(arena, row, "parameters"),
                    .hub = text_of(arena, row, "hub"),
                    .source = text_of(arena, row, "source"),
                    .notes = text_of(arena, row, "notes"),
                    .counted = text_of(arena, row, "counted"),
                    .not_built = text_of(arena, row, "not_built")};
  const json_t *also = json_object_get(row, "also"), *config = json_object_get(row, "config");
  made.also = LS_NEW_ARRAY(arena, const char *, json_array_size(also) + 1);
  for (size_t i = 0; i < json_array_size(also); i++)
    made.also[i] = ls_arena_strdup(arena, json_string_value(json_array_get(also, i)));
  if (config) {
    char *text = json_dumps(config, JSON_COMPACT);
    made.config = ls_arena_strdup(arena, text);
    free(text);
  }
  return made;
}

const ls_preset *ls_model_presets(ls_arena *arena, int *count) {
  json_t *root;
  ls_error error;
  if (ls_json_parse("models.json", (const char *)ls_models_json, ls_models_json_bytes, 0, &root,
                    &error) != LS_OK)
    ls_panic("%s", error.text);
  ls_preset *presets = LS_NEW_ARRAY(arena, ls_preset, json_object_size(root));
  *count = 0;
  const char *name;
  json_t *row;
  json_object_foreach(root, name, row) presets[(*count)++] = read_preset(arena, name, row);
  json_decref(root);
  return presets;
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/* The next letter or digit of a name, or a point within a number; the end at its end. */
static const char *skip_punctuation(const char *name, const char *at) {
  while (*at && !isalnum((unsigned char)*at)) {
    if (*at == '.' && at > name && is_digit(at[-1]) && is_digit(at[1])) break;
    at++;
  }
  return at;
}

/* Whether two names differ in case and punctuation at most. */
static bool same_name(const char *first, const char *second) {
  for (const char *a = first, *b = second;; a++, b++) {
    a = skip_punctuation(first, a);
    b = skip_punctuation(second, b);
    if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
    if (!*a) return true;
  }
}

bool ls_preset_is_called(const ls_preset *preset, const char *name) {
  if (same_name(preset->name, name)) return true;
  for (const char *const *also = preset->also; *also; also++)
    if (same_name(*also, name)) return true;
  return false;
}

static ls_status open_preset(ls_arena *arena, const ls_preset *preset, ls_model_config *config,
                             ls_error *error) {
  if (!preset->config)
    return ls_fail(error, LS_INPUT,
                   "model: %s cannot be built yet: %s; `lockstep models` lists those that can",
                   preset->name, preset->not_built);
  const char *text = ls_config_complete(arena, preset->config);
  return ls_model_config_parse(arena, preset->name, text, strlen(text), config, error);
}

/* "a, b and c": the three names nearest to a word. */
static const char *list_nearest(ls_arena *arena, const ls_preset *presets, int count,
                                const char *word) {
  enum { LISTED = 3 };
  const char *text = "";
  bool *taken = LS_NEW_ARRAY(arena, bool, count);
  for (int listed = 0; listed < LISTED; listed++) {
    int best = -1, least = 0;
    for (int i = 0; i < count; i++) {
      const int distance = ls_distance(presets[i].name, word);
      if (!taken[i] && (best < 0 || distance < least)) best = i, least = distance;
    }
    taken[best] = true;
    text = ls_arena_printf(arena, "%s%s%s", text, listed ? ", " : "", presets[best].name);
  }
  return text;
}

ls_status ls_model_find(ls_arena *arena, const char *model, ls_model_config *config,
                        ls_error *error) {
  int count;
  const ls_preset *presets = ls_model_presets(arena, &count);
  for (int i = 0; i < count; i++)
    if (strcmp(presets[i].name, model) == 0) return open_preset(arena, &presets[i], config, error);
  if (ls_file_exists(model) || ls_directory_exists(model))
    return ls_model_config_read(arena, model, config, error);
  for (int i = 0; i < count; i++)
    if (ls_preset_is_called(&presets[i], model))
      return open_preset(arena, &presets[i], config, error);
  return ls_fail(error, LS_INPUT,
                 "model: found \"%s\"; expected a folder with a config.json, such a file, or a "
                 "name that `lockstep models` lists; the nearest are %s",
                 model, list_nearest(arena, presets, count, model));
}
