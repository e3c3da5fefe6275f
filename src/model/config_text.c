#include <stdlib.h>
#include <string.h>

#include "model/family.h"

/* config.json, written: of a preset, and of a checkpoint. */

static const char *torch_name(ls_dtype dtype) {
  switch (dtype) {
    case LS_BF16: return "bfloat16";
    case LS_F16: return "float16";
    case LS_F64: return "float64";
    default: return "float32";
  }
}

/* With as few digits as bring every number back. */
char *ls_config_dump(const json_t *json) {
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

const char *ls_config_complete(ls_arena *arena, const char *keys) {
  json_t *given = json_loads(keys, 0, NULL);
  const ls_family *family = ls_family_find(json_string_value(json_object_get(given, "model_type")));
  LS_ASSERT(family);
  json_t *json = json_pack("{s:[s], s:s, s:n, s:n}", "architectures", family->architecture,
                           "torch_dtype", torch_name(LS_F32), "bos_token_id", "eos_token_id");
  int failed = json_object_update(json, given);
  for (const char *const *key = ls_family_dropout_keys(family); !failed && *key; key++)
    failed |= json_object_set_new(json, *key, json_integer(0));
  char *dumped = failed ? NULL : ls_config_dump(json);
  if (!dumped) ls_panic("no memory for a config.json of the family %s", family->name);
  const char *text = ls_arena_printf(arena, "%s\n", dumped);
  free(dumped);
  json_decref(json);
  json_decref(given);
  return text;
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

const char *ls_model_config_text(ls_arena *arena, const ls_model_config *config, ls_dtype dtype) {
  const char *text = ls_config_with_blocks(arena, config->text, config->blocks, NULL, 0);
  return replace_dtype(arena, text, dtype);
}

const char *ls_model_config_quantised(ls_arena *arena, const ls_model_config *config,
                                      ls_dtype dtype, const char *const *others, int count) {
  const char *text = ls_config_with_blocks(arena, config->text, config->blocks, others, count);
  return replace_dtype(arena, text, dtype);
}
