#include "text/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "text/quote.h"

/* The largest integer up to which every integer is a double. */
static const double exact_limit = 9007199254740992.0;

/* What jansson says is "WHAT near 'TOKEN'"; this cuts it into the two. `token` is "" where the
 * text ended, NULL where jansson names none (tokens above 20 bytes). */
static void split_message(char *text, const char **token) {
  *token = NULL;
  char *near = strstr(text, " near ");
  if (!near) return;
  *near = '\0';
  char *start = near + strlen(" near ");
  const size_t length = strlen(start);
  if (length >= 2 && start[0] == '\'' && start[length - 1] == '\'') {
    start[length - 1] = '\0';
    *token = start + 1;
  } else {
    *token = "";
  }
}

/* What jansson says of syntax, and what was expected there. */
static const struct {
  const char *theirs, *expected;
} expectations[] = {
    {"invalid token", "a value"},
    {"unexpected token", "a value"},
    {"premature end of input", "the double quote that ends the string"},
    {"string or '}' expected", "a key in double quotes"},
    {"':' expected", "':'"},
    {"'}' expected", "',' or '}'"},
    {"']' expected", "',' or ']'"},
};

static const char *expectation(const char *theirs) {
  for (size_t i = 0; i < sizeof expectations / sizeof *expectations; i++) {
    if (strcmp(expectations[i].theirs, theirs) == 0) return expectations[i].expected;
  }
  return NULL;
}

/* `token` is NULL where it is unknown, "" at the end of the text; `end` says what that is. */
static ls_status fail_syntax(const char *place, const char *theirs, const char *token, bool ended,
                             const char *end, ls_error *error) {
  char shown[LS_QUOTE_BYTES], problem[LS_QUOTE_BYTES];
  ls_quote(shown, token ? token : "", token ? strlen(token) : 0);
  const char *expected = strcmp(theirs, "end of file expected") == 0 ? end : expectation(theirs);
  if (!expected) {
    ls_quote(problem, theirs, strlen(theirs));
    return ls_fail(error, LS_INPUT, "%s: found %s%s%s; expected JSON as in RFC 8259", place,
                   problem, token ? " in " : "", shown);
  }
  if (ended || !token) {
    return ls_fail(error, LS_INPUT, "%s: found %s; expected %s", place,
                   ended ? end : "something else", expected);
  }
  const bool named = strcmp(token, "NaN") == 0 || strcmp(token, "Infinity") == 0;
  return ls_fail(error, LS_INPUT, "%s: found '%s'; expected %s%s", place, shown, expected,
                 named ? " (JSON has no NaN and no infinity)" : "");
}

/* Forwards what jansson found in our form; the text begins with line `first` of the file, and ends
 * with `end`. */
static ls_status fail_parse(const char *name, int64_t first, const char *end, json_error_t *found,
                            ls_error *error) {
  const enum json_error_code code = json_error_code(found);
  const char *token = NULL;
  split_message(found->text, &token);
  char shown[LS_QUOTE_BYTES], place[640];
  ls_quote(shown, token ? token : "", token ? strlen(token) : 0);
  int column = found->column; /* of the token's last character */
  for (const char *at = token; at && at[0] && at[1]; at++) column -= (at[1] & 0xC0) != 0x80;
  snprintf(place, sizeof place, "%s:%lld:%d", name, (long long)first + found->line - 1,
           column < 1 ? 1 : column);
  switch (code) {
    case json_error_invalid_syntax:
    case json_error_end_of_input_expected:
      return fail_syntax(place, found->text, token, token && token[0] == '\0', end, error);
    case json_error_premature_end_of_input:
      return fail_syntax(place, found->text, token, true, end, error);
    case json_error_stack_overflow:
      return ls_fail(error, LS_INPUT,
                     "%s: found nesting deeper than 2048; expected a shallower document", place);
    case json_error_duplicate_key:
      return ls_fail(error, LS_INPUT, "%s: found the key %s twice in one object; expected it once",
                     place, token ? shown : "that ends here");
    case json_error_numeric_overflow:
      return ls_fail(error, LS_INPUT,
                     "%s: found a number out of range (%s); expected one that fits 64 bits", place,
                     token ? shown : "a long one");
    case json_error_null_byte_in_key:
      return ls_fail(error, LS_INPUT, "%s: found \\u0000 in a key; expected a key without it",
                     place);
    default: /* bytes that are no UTF-8, memory: jansson's own words say it best */
      ls_quote(shown, found->text, strlen(found->text));
      return ls_fail(error, LS_INPUT, "%s: found no JSON (%s); expected JSON in UTF-8", place,
                     shown);
  }
}

/* jansson takes a NUL outside of strings for the end of the text and would ignore what follows. */
static ls_status refuse_nul(const char *name, int64_t line, const char *text, size_t bytes,
                            ls_error *error) {
  const char *nul = bytes ? memchr(text, '\0', bytes) : NULL;
  if (!nul) return LS_OK;
  int column = 1;
  for (const char *at = text; at < nul; at++) {
    column = *at == '\n' ? 1 : column + ((*at & 0xC0) != 0x80);
    line += *at == '\n';
  }
  return ls_fail(error, LS_INPUT, "%s:%lld:%d: found a NUL byte; expected JSON text", name,
                 (long long)line, column);
}

static ls_status parse(const char *name, int64_t line, const char *ending, const char *text,
                       size_t bytes, unsigned flags, json_t **root, ls_error *error) {
  *root = NULL;
  if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
    text += 3;
    bytes -= 3;
  }
  LS_TRY(refuse_nul(name, line, text, bytes, error));
  size_t how = JSON_DECODE_ANY | JSON_ALLOW_NUL;
  if (!(flags & LS_JSON_LAST_KEY)) how |= JSON_REJECT_DUPLICATES;
  json_error_t found;
  *root = json_loadb(text, bytes, how, &found);
  if (!*root && json_error_code(&found) == json_error_numeric_overflow &&
      !(flags & LS_JSON_EXACT)) {
    /* tokenizer_config.json often says "model_max_length": 1000000000000000019884624838656. */
    *root = json_loadb(text, bytes, how | JSON_DECODE_INT_AS_REAL, &found);
  }
  if (*root) return LS_OK;
  if (ls_is_lfs_pointer(text, bytes)) {
    return ls_fail(
        error, LS_INPUT,
        "%s: found a git-lfs pointer; expected JSON: fetch the file itself (git lfs pull)", name);
  }
  return fail_parse(name, line, ending, &found, error);
}

ls_status ls_json_parse(const char *name, const char *text, size_t bytes, unsigned flags,
                        json_t **root, ls_error *error) {
  return parse(name, 1, "the end of the file", text, bytes, flags, root, error);
}

ls_status ls_json_parse_part(const char *name, int64_t line, const char *text, size_t bytes,
                             unsigned flags, json_t **root, ls_error *error) {
  return parse(name, line, "the end of the line", text, bytes, flags, root, error);
}

ls_status ls_json_read(const char *path, unsigned flags, json_t **root, ls_error *error) {
  *root = NULL;
  ls_map map;
  LS_TRY(ls_file_map(path, &map, error));
  const ls_status status =
      ls_json_parse(path, map.data ? map.data : "", map.bytes, flags, root, error);
  ls_file_unmap(&map);
  return status;
}

/* Words for a value found where another was expected. */
static const char *describe(char words[LS_QUOTE_BYTES + 32], const json_t *json) {
  const size_t room = LS_QUOTE_BYTES + 32;
  char shown[LS_QUOTE_BYTES];
  if (!json) return "nothing";
  switch (json_typeof(json)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: snprintf(words, room, "an array of %zu", json_array_size(json)); break;
    case JSON_STRING:
      ls_quote(shown, json_string_value(json), json_string_length(json));
      snprintf(words, room, "a string (\"%s\")", shown);
      break;
    case JSON_INTEGER:
      snprintf(words, room, "the number %lld", (long long)json_integer_value(json));
      break;
    case JSON_REAL: snprintf(words, room, "the number %.17g", json_real_value(json)); break;
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_NULL: return "null";
  }
  return words;
}

/* `index` counts from 0 in an array; -1 for the value itself. */
static ls_status fail_type(const ls_json_object *object, const char *key, int index,
                           const json_t *found, const char *wanted, ls_error *error) {
  char words[LS_QUOTE_BYTES + 32], place[24] = "", shown[LS_QUOTE_BYTES];
  if (index >= 0) snprintf(place, sizeof place, "[%d]", index);
  ls_quote(shown, key, strlen(key));
  return ls_fail(error, LS_INPUT, "%s: \"%s\"%s: found %s; expected %s", object->where, shown,
                 place, describe(words, found), wanted);
}

ls_status ls_json_root(const char *where, const json_t *json, ls_json_object *object,
                       ls_error *error) {
  *object = (ls_json_object){.where = where, .json = json};
  if (json_is_object(json)) return LS_OK;
  char words[LS_QUOTE_BYTES + 32];
  return ls_fail(error, LS_INPUT, "%s: found %s; expected an object", where, describe(words, json));
}

static const json_t *value_of(const ls_json_object *object, const char *key) {
  return object->json ? json_object_get(object->json, key) : NULL;
}

bool ls_json_has(const ls_json_object *object, const char *key) {
  const json_t *json = value_of(object, key);
  return json && !json_is_null(json);
}

/* Conversions: false where `json` (may be NULL) is no such value. */

static bool to_int(const json_t *json, int64_t *value) {
  if (json_is_integer(json)) {
    *value = json_integer_value(json);
    return true;
  }
  if (!json_is_real(json)) return false;
  const double real = json_real_value(json);
  if (real != floor(real) || fabs(real) > exact_limit) return false;
  *value = (int64_t)real;
  return true;
}

static bool to_number(const json_t *json, double *value) {
  if (!json_is_number(json)) return false;
  *value = json_number_value(json);
  return true;
}

static bool to_string(const json_t *json, const char **value) {
  if (!json_is_string(json)) return false;
  *value = json_string_value(json);
  return strlen(*value) == json_string_length(json);
}

static const char a_whole_number[] = "a whole number of at most 64 bits";
static const char a_count[] = "a whole number from 1 to 2147483647";
static const char a_number[] = "a number";
static const char a_bool[] = "true or false";
static const char a_string[] = "a string";

ls_status ls_json_int(const ls_json_object *object, const char *key, int64_t *value,
                      ls_error *error) {
  const json_t *json = value_of(object, key);
  return to_int(json, value) ? LS_OK : fail_type(object, key, -1, json, a_whole_number, error);
}

ls_status ls_json_int_or(const ls_json_object *object, const char *key, int64_t fallback,
                         int64_t *value, ls_error *error) {
  *value = fallback;
  return ls_json_has(object, key) ? ls_json_int(object, key, value, error) : LS_OK;
}

ls_status ls_json_count(const ls_json_object *object, const char *key, int64_t *value,
                        ls_error *error) {
  const json_t *json = value_of(object, key);
  int64_t count = 0;
  if (!to_int(json, &count) || count < 1 || count > INT32_MAX) {
    return fail_type(object, key, -1, json, a_count, error);
  }
  *value = count;
  return LS_OK;
}

ls_status ls_json_count_or(const ls_json_object *object, const char *key, int64_t fallback,
                           int64_t *value, ls_error *error) {
  *value = fallback;
  return ls_json_has(object, key) ? ls_json_count(object, key, value, error) : LS_OK;
}

ls_status ls_json_number(const ls_json_object *object, const char *key, double *value,
                         ls_error *error) {
  const json_t *json = value_of(object, key);
  return to_number(json, value) ? LS_OK : fail_type(object, key, -1, json, a_number, error);
}

ls_status ls_json_number_or(const ls_json_object *object, const char *key, double fallback,
                            double *value, ls_error *error) {
  *value = fallback;
  return ls_json_has(object, key) ? ls_json_number(object, key, value, error) : LS_OK;
}

ls_status ls_json_bool(const ls_json_object *object, const char *key, bool *value,
                       ls_error *error) {
  const json_t *json = value_of(object, key);
  if (!json_is_boolean(json)) return fail_type(object, key, -1, json, a_bool, error);
  *value = json_is_true(json);
  return LS_OK;
}

ls_status ls_json_bool_or(const ls_json_object *object, const char *key, bool fallback, bool *value,
                          ls_error *error) {
  *value = fallback;
  return ls_json_has(object, key) ? ls_json_bool(object, key, value, error) : LS_OK;
}

ls_status ls_json_string(const ls_json_object *object, const char *key, const char **value,
                         ls_error *error) {
  const json_t *json = value_of(object, key);
  return to_string(json, value) ? LS_OK : fail_type(object, key, -1, json, a_string, error);
}

ls_status ls_json_string_or(const ls_json_object *object, const char *key, const char *fallback,
                            const char **value, ls_error *error) {
  *value = fallback;
  return ls_json_has(object, key) ? ls_json_string(object, key, value, error) : LS_OK;
}

ls_status ls_json_child(ls_arena *arena, const ls_json_object *object, const char *key,
                        ls_json_object *child, ls_error *error) {
  const json_t *json = value_of(object, key);
  if (!json_is_object(json)) return fail_type(object, key, -1, json, "an object", error);
  char shown[LS_QUOTE_BYTES];
  ls_quote(shown, key, strlen(key));
  child->where = ls_arena_printf(arena, "%s: \"%s\"", object->where, shown);
  child->json = json;
  return LS_OK;
}

ls_status ls_json_child_or(ls_arena *arena, const ls_json_object *object, const char *key,
                           ls_json_object *child, ls_error *error) {
  *child = (ls_json_object){.where = object->where, .json = NULL};
  return ls_json_has(object, key) ? ls_json_child(arena, object, key, child, error) : LS_OK;
}

static ls_status array_of(const ls_json_object *object, const char *key, const char *wanted,
                          const json_t **array, int *count, ls_error *error) {
  *array = value_of(object, key);
  if (!json_is_array(*array) || json_array_size(*array) > INT32_MAX) {
    return fail_type(object, key, -1, *array, wanted, error);
  }
  *count = (int)json_array_size(*array);
  return LS_OK;
}

ls_status ls_json_ints(ls_arena *arena, const ls_json_object *object, const char *key,
                       int64_t **values, int *count, ls_error *error) {
  const json_t *array;
  LS_TRY(array_of(object, key, "an array of whole numbers", &array, count, error));
  *values = LS_NEW_ARRAY(arena, int64_t, *count);
  for (int i = 0; i < *count; i++) {
    const json_t *item = json_array_get(array, (size_t)i);
    if (!to_int(item, &(*values)[i])) {
      return fail_type(object, key, i, item, a_whole_number, error);
    }
  }
  return LS_OK;
}

ls_status ls_json_numbers(ls_arena *arena, const ls_json_object *object, const char *key,
                          double **values, int *count, ls_error *error) {
  const json_t *array;
  LS_TRY(array_of(object, key, "an array of numbers", &array, count, error));
  *values = LS_NEW_ARRAY(arena, double, *count);
  for (int i = 0; i < *count; i++) {
    const json_t *item = json_array_get(array, (size_t)i);
    if (!to_number(item, &(*values)[i])) return fail_type(object, key, i, item, a_number, error);
  }
  return LS_OK;
}

ls_status ls_json_strings(ls_arena *arena, const ls_json_object *object, const char *key,
                          const char ***values, int *count, ls_error *error) {
  const json_t *array;
  LS_TRY(array_of(object, key, "an array of strings", &array, count, error));
  *values = LS_NEW_ARRAY(arena, const char *, *count);
  for (int i = 0; i < *count; i++) {
    const json_t *item = json_array_get(array, (size_t)i);
    if (!to_string(item, &(*values)[i])) return fail_type(object, key, i, item, a_string, error);
  }
  return LS_OK;
}
