#include "data/json_line.h"

#include <stdio.h>
#include <string.h>

#include "data/json_scan.h"
#include "text/quote.h"

static const char *kind_of(const json_t *value) {
  switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "true or false";
    case JSON_NULL: return "null";
  }
  return "something else";
}

/* What else the line has, for someone who looks for the right key. */
static ls_status fail_missing(const char *name, int64_t number, const char *key, const json_t *root,
                              ls_error *error) {
  char keys[200] = "";
  size_t used = 0;
  const char *each;
  json_t *value;
  json_object_foreach((json_t *)root, each, value) {
    char shown[LS_QUOTE_BYTES];
    if (!json_is_string(value)) continue;
    const int length = snprintf(keys + used, sizeof keys - used, "%s%s", used ? ", " : "",
                                ls_quote(shown, each, strlen(each)));
    if (length < 0 || used + (size_t)length >= sizeof keys) break;
    used += (size_t)length;
  }
  keys[used] = 0;
  return ls_fail(error, LS_INPUT,
                 "%s:%lld: found no key \"%s\"; expected a string there (the line's strings: %s); "
                 "data.text_key names another key",
                 name, (long long)number, key, used ? keys : "none");
}

static ls_status find_text(const char *name, int64_t number, const char *key, const json_t *root,
                           ls_json_line *line, ls_error *error) {
  if (!json_is_object(root))
    return ls_fail(error, LS_INPUT, "%s:%lld: found %s; expected an object with a key \"%s\"", name,
                   (long long)number, kind_of(root), key);
  const json_t *value = json_object_get(root, key);
  if (!value) return fail_missing(name, number, key, root, error);
  if (!json_is_string(value))
    return ls_fail(error, LS_INPUT, "%s:%lld: \"%s\": found %s; expected a string", name,
                   (long long)number, key, kind_of(value));
  line->text = json_string_value(value);
  line->bytes = (int64_t)json_string_length(value);
  return LS_OK;
}

/* What was no ordinary line. */
static ls_status parse_line(const char *name, int64_t number, const char *text, int64_t bytes,
                            const char *key, ls_json_line *line, ls_error *error) {
  /* jansson takes a NUL outside of strings for the end, and would ignore what follows. */
  const char *nul = bytes ? memchr(text, 0, (size_t)bytes) : NULL;
  if (nul)
    return ls_fail(error, LS_INPUT, "%s:%lld:%lld: found a NUL byte; expected one JSON object",
                   name, (long long)number, (long long)(nul - text) + 1);
  json_error_t problem;
  /* A number too large for 64 bits in a key that nobody reads is no reason to refuse the line. */
  line->root = json_loadb(text, (size_t)bytes,
                          JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &problem);
  if (!line->root) {
    char shown[LS_QUOTE_BYTES];
    return ls_fail(error, LS_INPUT, "%s:%lld:%d: not JSON: %s", name, (long long)number,
                   problem.column > 0 ? problem.column : 1,
                   ls_quote(shown, problem.text, strlen(problem.text)));
  }
  const ls_status status = find_text(name, number, key, line->root, line, error);
  if (status != LS_OK) ls_json_line_close(line);
  return status;
}

ls_status ls_json_line_read(const char *name, int64_t number, char *text, int64_t bytes,
                            const char *key, ls_json_line *line, ls_error *error) {
  *line = (ls_json_line){0};
  line->text = ls_json_scan(text, bytes, key, &line->bytes);
  if (line->text) return LS_OK;
  return parse_line(name, number, text, bytes, key, line, error);
}

void ls_json_line_close(ls_json_line *line) {
  json_decref(line->root);
  *line = (ls_json_line){0};
}
