#include <stdlib.h>
#include <string.h>

#include "model/family.h"

/* config.json, written. */

static const char *torch_name(ls_dtype dtype) {
  switch (dtype) {
    case LS_BF16: return "bfloat16";
    case LS_F16: return "float16";
    case LS_F64: return "float64";
    default: return "float32";
  }
}

static int write_key(json_t *json, const ls_config_key *key, const ls_model_config *config) {
  const void *field = (const char *)config + key->offset;
  switch (key->kind) {
    case LS_KEY_COUNT:
      return json_object_set_new(json, key->key, json_integer(*(const int64_t *)field));
    case LS_KEY_BOOL:
      return json_object_set_new(json, key->key, json_boolean(*(const bool *)field));
    case LS_KEY_NUMBER: break;
  }
  return json_object_set_new(json, key->key, json_real(*(const double *)field));
}

static json_t *end_ids(const ls_model_config *config) {
  if (config->end_count == 0) return json_null();
  if (config->end_count == 1) return json_integer(config->end_ids[0]);
  json_t *ids = json_array();
  for (int i = 0; i < config->end_count; i++)
    json_array_append_new(ids, json_integer(config->end_ids[i]));
  return ids;
}

static json_t *make_object(const ls_model_config *config, ls_dtype dtype) {
  const ls_family *family = ls_family_find(config->family);
  json_t *json =
      json_pack("{s:[s], s:s, s:s, s:o, s:o}", "architectures", family->architecture, "model_type",
                family->name, "torch_dtype", torch_name(dtype), "bos_token_id",
                config->begin_id < 0 ? json_null() : json_integer(config->begin_id), "eos_token_id",
                end_ids(config));
  int failed = json == NULL;
  for (const ls_config_key *key = family->keys; !failed && key->key; key++)
    failed |= write_key(json, key, config);
  for (const char *const *key = ls_family_dropout_keys(family); !failed && *key; key++)
    failed |= json_object_set_new(json, *key, json_real(0));
  LS_ASSERT(family->write); /* only presets are without a text */
  if (!failed && family->write(json, config) == 0) return json;
  ls_panic("%s: no memory for its config.json", config->source);
}

/* With as few digits as bring every number back. */
static char *dump_exactly(const json_t *json) {
  for (size_t digits = 6; digits < 17; digits++) {
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
    json_t *again = json_loads(text, 0, NULL);
    const bool same = json_equal(json, again);
    json_decref(again);
    if (same) return text;
    free(text);
  }
  return json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
}

/* The end of the JSON string that begins at `quote`: its closing quote. */
static const char *string_end(const char *quote) {
  const char *at = quote + 1;
  while (*at != '"') at += *at == '\\' ? 2 : 1;
  return at;
}

static bool is_dtype_key(const char *quote, const char *end) {
  const size_t length = (size_t)(end - quote) - 1;
  return (length == 11 && memcmp(quote + 1, "torch_dtype", length) == 0) ||
         (length == 5 && memcmp(quote + 1, "dtype", length) == 0);
}

/* The text of valid JSON with the value of the outermost torch_dtype (or dtype, as transformers 5
 * has it) replaced: all else stays as its author wrote it. */
static const char *replace_dtype(ls_arena *arena, const char *text, ls_dtype dtype) {
  int depth = 0;
  for (const char *at = text; *at; at++) {
    if (*at == '{' || *at == '[') depth++;
    if (*at == '}' || *at == ']') depth--;
    if (*at != '"') continue;
    const char *end = string_end(at);
    const char *after = end + 1 + strspn(end + 1, " \t\r\n");
    if (depth == 1 && *after == ':' && is_dtype_key(at, end)) {
      const char *value = after + 1 + strspn(after + 1, " \t\r\n");
      if (*value == '"')
        return ls_arena_printf(arena, "%.*s\"%s%s", (int)(value - text), text, torch_name(dtype),
                               string_end(value));
    }
    at = end;
  }
  return text;
}

ls_status ls_model_config_text(ls_arena *arena, const ls_model_config *config, ls_dtype dtype,
                               const char **text, ls_error *error) {
  if (config->text) {
    *text = replace_dtype(arena, config->text, dtype);
    return LS_OK;
  }
  json_t *json = make_object(config, dtype);
  char *dumped = dump_exactly(json);
  json_decref(json);
  if (!dumped) return ls_fail(error, LS_INTERNAL, "%s: cannot be written as JSON", config->source);
  *text = ls_arena_printf(arena, "%s\n", dumped);
  free(dumped);
  return LS_OK;
}
