#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/family.h"

/* More would not be a model of this decade, and overflows sums of sizes. */
static const double most_parameters = 1e15;
enum { MOST_LAYERS = 65536 };

static ls_status read_key(const ls_json_object *json, const ls_config_key *key,
                          ls_model_config *config, ls_error *error) {
  const bool alias = key->alias && ls_json_has(json, key->alias);
  if (alias && ls_json_has(json, key->key))
    return ls_fail(error, LS_INPUT, "%s: %s and %s, which mean the same; expected one of them",
                   json->where, key->key, key->alias);
  const char *name = alias ? key->alias : key->key;
  void *field = (char *)config + key->offset;
  switch (key->kind) {
    case LS_KEY_COUNT: return ls_json_count_or(json, name, (int64_t)key->fallback, field, error);
    case LS_KEY_BOOL: return ls_json_bool_or(json, name, key->fallback > 0, field, error);
    case LS_KEY_NUMBER: break;
  }
  LS_TRY(ls_json_number_or(json, name, key->fallback, field, error));
  if (*(double *)field >= 0) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s: found %g; expected a number not below 0", json->where,
                 name, *(double *)field);
}

static bool same_value(const json_t *a, const json_t *b) {
  if (json_is_number(a) && json_is_number(b)) {
    const double difference = json_number_value(a) - json_number_value(b);
    return !(difference < 0 || difference > 0);
  }
  return json_equal(a, b);
}

static ls_status check_guard(const ls_json_object *json, const ls_config_guard *guard,
                             ls_error *error) {
  if (!ls_json_has(json, guard->key)) return LS_OK;
  const json_t *value = json_object_get(json->json, guard->key);
  json_t *allowed = json_loads(guard->allowed, JSON_DECODE_ANY, NULL);
  const bool same = same_value(value, allowed);
  json_decref(allowed);
  if (same) return LS_OK;
  char *found = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
  const ls_status status =
      ls_fail(error, LS_INPUT,
              "%s: %s: found %.80s; expected %s: this changes the model's mathematics in a way "
              "that is not built",
              json->where, guard->key, found ? found : "a value", guard->allowed);
  free(found);
  return status;
}

static ls_status read_dropout(ls_arena *arena, const ls_json_object *json, const ls_family *family,
                              ls_model_config *config, ls_error *error) {
  config->dropout_keys = "";
  for (const char *const *key = family->dropout_keys; *key; key++) {
    double rate;
    LS_TRY(ls_json_number_or(json, *key, family->dropout_fallback, &rate, error));
    if (!(rate >= 0 && rate < 1))
      return ls_fail(error, LS_INPUT, "%s: %s: found %g; expected from 0 to below 1", json->where,
                     *key, rate);
    if (rate > config->dropout) config->dropout = rate;
    if (rate > 0)
      config->dropout_keys = ls_arena_printf(arena, "%s%s%s %g", config->dropout_keys,
                                             *config->dropout_keys ? ", " : "", *key, rate);
  }
  return LS_OK;
}

/* One id, a list of them, or null. A missing key is Hugging Face's default. */
static ls_status read_ends(ls_arena *arena, const ls_json_object *json, const ls_family *family,
                           ls_model_config *config, ls_error *error) {
  const json_t *value = json_object_get(json->json, "eos_token_id");
  if (value && json_is_null(value)) return LS_OK;
  config->end_count = 1;
  if (!json_is_array(value))
    return ls_json_int_or(json, "eos_token_id", family->end_fallback, config->end_ids, error);
  int64_t *ids;
  LS_TRY(ls_json_ints(arena, json, "eos_token_id", &ids, &config->end_count, error));
  if (config->end_count > LS_MAX_END_IDS)
    return ls_fail(error, LS_INPUT, "%s: eos_token_id: found %d ids; expected at most %d",
                   json->where, config->end_count, LS_MAX_END_IDS);
  memcpy(config->end_ids, ids, sizeof *ids * (size_t)config->end_count);
  return LS_OK;
}

static ls_status read_begin(const ls_json_object *json, const ls_family *family,
                            ls_model_config *config, ls_error *error) {
  const json_t *value = json_object_get(json->json, "bos_token_id");
  const int64_t fallback = value && json_is_null(value) ? -1 : family->begin_fallback;
  return ls_json_int_or(json, "bos_token_id", fallback, &config->begin_id, error);
}

static ls_status check_size(const ls_json_object *json, const ls_model_config *config,
                            ls_error *error) {
  const double width = (double)config->width, head_dim = (double)config->head_dim;
  const double heads = 2 * ((double)config->heads + (double)config->kv_heads) * head_dim;
  const double layer = width * (heads + 3 * (double)config->mlp_width);
  const double outside = width * (2 * (double)config->vocabulary + (double)config->positions);
  const double total = (double)config->layers * layer + outside;
  if (config->layers > MOST_LAYERS)
    return ls_fail(error, LS_INPUT, "%s: %lld layers; expected at most %d", json->where,
                   (long long)config->layers, MOST_LAYERS);
  if (total > most_parameters)
    return ls_fail(error, LS_INPUT, "%s: about %g parameters; expected at most %g", json->where,
                   total, most_parameters);
  return LS_OK;
}

static ls_status find_family(ls_arena *arena, const ls_json_object *json, const ls_family **family,
                             ls_error *error) {
  const char *name;
  if (!ls_json_has(json, "model_type"))
    return ls_fail(error, LS_INPUT, "%s: no model_type; expected one of %s", json->where,
                   ls_family_names(arena));
  LS_TRY(ls_json_string(json, "model_type", &name, error));
  *family = ls_family_find(name);
  if (*family) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: model_type: found \"%.60s\"; expected one of %s",
                 json->where, name, ls_family_names(arena));
}

static ls_status read_object(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                             ls_error *error) {
  const ls_family *family;
  LS_TRY(find_family(arena, json, &family, error));
  config->family = family->name;
  for (const ls_config_guard *guard = family->guards; guard->key; guard++)
    LS_TRY(check_guard(json, guard, error));
  for (const ls_config_key *key = family->keys; key->key; key++)
    LS_TRY(read_key(json, key, config, error));
  LS_TRY(read_dropout(arena, json, family, config, error));
  LS_TRY(read_begin(json, family, config, error));
  LS_TRY(read_ends(arena, json, family, config, error));
  LS_TRY(family->read(arena, json, config, error));
  return check_size(json, config, error);
}

ls_status ls_model_config_parse(ls_arena *arena, const char *name, const char *text, size_t bytes,
                                ls_model_config *config, ls_error *error) {
  json_t *root;
  ls_json_object json;
  *config = (ls_model_config){.source = ls_arena_strdup(arena, name)};
  LS_TRY(ls_json_parse(name, text, bytes, 0, &root, error));
  ls_status status = ls_json_root(config->source, root, &json, error);
  if (status == LS_OK) status = read_object(arena, &json, config, error);
  json_decref(root);
  if (status != LS_OK) return status;
  char *copy = ls_arena_alloc(arena, bytes + 1);
  memcpy(copy, text, bytes);
  config->text = copy;
  return LS_OK;
}

ls_status ls_model_config_read(ls_arena *arena, const char *path, ls_model_config *config,
                               ls_error *error) {
  char *text;
  size_t bytes;
  if (ls_directory_exists(path)) path = ls_arena_printf(arena, "%s/config.json", path);
  LS_TRY(ls_file_read(arena, path, &text, &bytes, error));
  return ls_model_config_parse(arena, path, text, bytes, config, error);
}

ls_status ls_model_find(ls_arena *arena, const char *model, ls_model_config *config,
                        ls_error *error) {
  if (ls_model_preset(model, config)) return LS_OK;
  if (ls_file_exists(model) || ls_directory_exists(model))
    return ls_model_config_read(arena, model, config, error);
  int count;
  const ls_preset_line *presets = ls_model_presets(arena, &count);
  const char *names = presets[0].name;
  for (int i = 1; i < count; i++) names = ls_arena_printf(arena, "%s, %s", names, presets[i].name);
  return ls_fail(error, LS_INPUT,
                 "model: found \"%s\"; expected a folder with a config.json, such a file, or one "
                 "of %s",
                 model, names);
}
